"""Samples from files of any format, rate and channel count; and a clear word about files without use."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from mvplda.exceptions import AudioError, DataError, ParameterError
from mvplda.speech.features import SoundReader, read_audio
from mvplda.speech.features.reading import Clip


def tone(hz: float = 440.0, rate: int = 16000, seconds: float = 1.0, amplitude: float = 0.5) -> Any:
    return (amplitude * np.sin(2 * np.pi * hz * np.arange(int(rate * seconds)) / rate)).astype(
        np.float32
    )


def noise(n: int = 16000, channels: int = 1, seed: int = 0) -> Any:
    x = 0.1 * np.random.default_rng(seed).standard_normal((n, channels)).astype(np.float32)
    return x[:, 0] if channels == 1 else x


@pytest.mark.parametrize(
    ("name", "format", "subtype", "tolerance"),
    [
        ("a.wav", "WAV", "PCM_16", 4e-5),
        ("b.wav", "WAV", "FLOAT", 0),
        ("c.wav", "WAV", "PCM_24", 2e-7),
        ("d.wav", "WAV", "PCM_U8", 8e-3),
        ("e.flac", "FLAC", "PCM_16", 4e-5),
        ("f.sph", "NIST", "PCM_16", 4e-5),
        ("g.sph", "NIST", "ULAW", 0.02),
        ("h.aiff", "AIFF", "PCM_16", 4e-5),
        ("without_suffix", "WAV", "PCM_16", 4e-5),
        ("wrong.wav", "FLAC", "PCM_16", 4e-5),
    ],
)
@pytest.mark.parametrize("channels", [1, 2, 3])
def test_formats(
    tmp_path: Path, name: str, format: str, subtype: str, tolerance: float, channels: int
) -> None:
    x = noise(4000, channels)
    soundfile.write(tmp_path / name, x, 16000, format=format, subtype=subtype)
    samples = read_audio(tmp_path / name)
    assert samples.dtype == np.float32
    assert samples.shape == (4000,)
    np.testing.assert_allclose(
        samples, x if channels == 1 else x.mean(axis=1), atol=tolerance + 1e-8
    )
    last = read_audio(Clip(tmp_path / name, 500, 1000, channels - 1))
    np.testing.assert_allclose(last, (x if channels == 1 else x[:, -1])[500:1500], atol=tolerance)


@pytest.mark.parametrize(
    ("name", "format", "subtype"), [("a.ogg", "OGG", "VORBIS"), ("b.opus", "OGG", "OPUS")]
)
def test_ogg(tmp_path: Path, name: str, format: str, subtype: str) -> None:
    x = tone(440)
    soundfile.write(tmp_path / name, x, 16000, format=format, subtype=subtype)
    samples = read_audio(str(tmp_path / name))
    assert len(samples) == 16000
    assert np.corrcoef(samples, x)[0, 1] > 0.99


@pytest.mark.parametrize("rate", [8000, 11025, 22050, 44100, 48000])
def test_resampling_keeps_a_tone(tmp_path: Path, rate: int) -> None:
    """A tone of 1 kHz stays there, with its size; one above half of the new rate is gone."""
    path = tmp_path / "tone.wav"
    low, high = tone(1000, rate, amplitude=0.5), tone(9000, rate, amplitude=0.3)
    soundfile.write(path, low + (high if rate > 18000 else 0), rate, subtype="FLOAT")
    samples = read_audio(path)
    assert abs(len(samples) - 16000) <= 1
    spectrum = np.abs(np.fft.rfft(samples[:16000] * np.hanning(len(samples[:16000])))) * 4 / 16000
    assert np.argmax(spectrum) == pytest.approx(1000, abs=1)
    assert spectrum.max() == pytest.approx(0.5, rel=0.01)
    spectrum[960:1041] = 0
    assert spectrum.max() < 1e-3


def test_stretches_join_to_the_whole(tmp_path: Path) -> None:
    x = noise(30000)
    for name in ("x.flac", "x.wav", "x.sph"):
        path = tmp_path / name
        soundfile.write(path, x, 16000, format="NIST" if name.endswith("sph") else None)
        whole = read_audio(path)
        with SoundReader(path) as reader:
            parts = {start: reader.read(start, 6000) for start in (0, 6000, 24000, 12000, 18000)}
        np.testing.assert_array_equal(
            np.concatenate([parts[start] for start in sorted(parts)]), whole
        )
        np.testing.assert_array_equal(read_audio(Clip(path, 29990)), whole[29990:])


def test_a_stretch_is_read_without_the_rest(tmp_path: Path) -> None:
    """What follows the stretch is damaged, which is not noticed."""
    path = tmp_path / "x.flac"
    soundfile.write(path, noise(200_000), 16000)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    assert len(read_audio(Clip(path, 1000, 20000))) == 20000
    with pytest.raises(AudioError, match=r"x\.flac is damaged"):
        read_audio(path)


# -- faults


@pytest.mark.parametrize(
    ("name", "format"),
    [("x.wav", "WAV"), ("x.flac", "FLAC"), ("x.ogg", "OGG"), ("x.sph", "NIST"), ("x.aiff", "AIFF")],
)
def test_truncated_files(tmp_path: Path, name: str, format: str) -> None:
    whole, path = tmp_path / "whole", tmp_path / name
    soundfile.write(whole, noise(), 16000, format=format)
    data = whole.read_bytes()
    assert len(read_audio(whole)) == 16000
    for kept in (0, 10, 60, 1030, len(data) // 2, len(data) - 100):
        path.write_bytes(data[:kept])
        with pytest.raises(AudioError, match=r"x\.\w+ .*(truncated|damaged|empty)"):
            read_audio(path)


def test_what_is_there_of_a_truncated_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "x.wav"
    soundfile.write(path, noise(), 16000)
    path.write_bytes(path.read_bytes()[:20000])
    assert len(read_audio(Clip(path, 0, 9000))) == 9000
    with pytest.raises(
        AudioError, match="truncated: its header promises 32000 bytes of sound, 19956 are there"
    ):
        read_audio(Clip(path, 5000, 6000))


def test_a_stream_of_unknown_length_is_no_truncated_file(tmp_path: Path) -> None:
    path = tmp_path / "x.wav"
    soundfile.write(path, noise(), 16000)
    data = bytearray(path.read_bytes())
    data[4:8] = data[40:44] = b"\xff\xff\xff\xff"
    path.write_bytes(data)
    assert len(read_audio(path)) == 16000


def test_a_damaged_middle(tmp_path: Path) -> None:
    path = tmp_path / "x.flac"
    soundfile.write(path, noise(100_000), 16000)
    data = bytearray(path.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 3000] = np.random.default_rng(0).bytes(3000)
    path.write_bytes(data)
    with pytest.raises(AudioError, match=r"x\.flac is damaged"):
        read_audio(path)


def _file(path: Path, kind: str) -> Path | Clip:
    if kind == "missing":
        return path / "none.wav"
    if kind == "folder":
        return path
    path = path / ("x.raw" if kind == "raw" else "x.wav")
    if kind in ("text", "raw"):
        path.write_text("this is no sound\n" * 100)
    elif kind == "nothing":
        path.write_bytes(b"")
    elif kind == "header":
        soundfile.write(path, np.zeros(0), 16000)
    elif kind in ("nan", "inf"):
        x = noise()
        x[5] = float(kind)
        soundfile.write(path, x, 16000, subtype="FLOAT")
    elif kind == "silent":
        soundfile.write(path, np.zeros(9000), 16000)
    elif kind == "opposite":
        soundfile.write(path, np.column_stack([tone(), -tone()]), 16000)
    else:
        soundfile.write(path, noise(), 16000)
    stretches = {
        "past the end": Clip(path, 15000, 2000),
        "after the end": Clip(path, 16000),
        "before": Clip(path, -1),
        "no length": Clip(path, 0, 0),
        "channel": Clip(path, channel=1),
        "negative channel": Clip(path, channel=-1),
    }
    return stretches.get(kind, path)


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("missing", "there is no sound file .*none.wav"),
        ("folder", "is a folder, not a sound file"),
        ("text", "damaged or not a sound file: Format not recognised"),
        ("raw", "no header that tells its rate"),
        ("nothing", "is empty: it has no bytes"),
        ("header", "is empty: it has a header but no samples"),
        ("nan", "not finite, the first at 5"),
        ("inf", "not finite, the first at 5"),
        ("silent", "is silent: all samples are zero$"),
        ("opposite", "has channels that cancel each other: choose one"),
        ("past the end", "has 16000 samples, the stretch from 15000 to 17000 is not in it"),
        ("after the end", "has 16000 samples, the stretch from 16000"),
        ("before", "starts at 0 or later"),
        ("no length", "length 0"),
        ("channel", r"has 1 channel\(s\), there is no channel 1"),
        ("negative channel", "there is no channel -1"),
    ],
)
def test_files_without_use(tmp_path: Path, kind: str, says: str) -> None:
    with pytest.raises(AudioError, match=says) as caught:
        read_audio(_file(tmp_path, kind))
    assert isinstance(caught.value, DataError)
    assert str(tmp_path) in str(caught.value)


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() == 0, reason="the superuser may read everything"
)
def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    path = tmp_path / "x.wav"
    soundfile.write(path, noise(), 16000)
    path.chmod(0)
    with pytest.raises(AudioError, match="ermission"):
        read_audio(path)


def test_compressed_sphere_says_how_to_unpack_it(tmp_path: Path) -> None:
    """Its header looks like that of a plain file, and libsndfile would read noise."""
    path = tmp_path / "x.sph"
    soundfile.write(path, noise(), 16000, format="NIST", subtype="PCM_16")
    data = path.read_bytes()
    coding = b"sample_coding -s26 pcm,embedded-shorten-v2.00\n"
    head = (
        data[:1024]
        .replace(b"sample_coding -s3 pcm\n", coding)
        .rstrip(b"\0")
        .ljust(1024, b"\0")[:1024]
    )
    assert coding in head
    path.write_bytes(head + data[1024:])
    with pytest.raises(AudioError, match=r"compressed NIST SPHERE.*sph2pipe -f wav x\.sph x\.wav"):
        read_audio(path)


def test_a_rate_is_positive(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="rate"):
        read_audio(tmp_path / "x.wav", rate=0)


def test_a_name_that_is_no_utf8(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", tone(), 16000)
    try:
        odd = (tmp_path / "a.wav").rename(tmp_path / os.fsdecode(b"caf\xe9.wav"))
    except (OSError, UnicodeError):
        pytest.skip("this file system takes UTF-8 names only")
    assert len(read_audio(odd)) == 16000
