"""Recordings of every kind as samples: what browsers record, streams, bytes, and what is cut off or huge."""

from __future__ import annotations

import io
import struct

import numpy as np
import pytest
from extractor_problems import RATE, network, soundfile, voice, write

from mvplda.exceptions import AudioError, DataError
from mvplda.voice.audio.decode import read_audio, read_segments, read_sound
from mvplda.voice.extractors import load_extractor

av = pytest.importorskip(
    "av", reason="PyAV is not installed, which makes the recordings of these tests"
)


def encoded(
    samples: np.ndarray, kind: str, codec: str, layout: str = "mono", **options: str
) -> bytes:
    """A recording at 48 kHz as a browser would send it."""
    soxr = pytest.importorskip("soxr")
    out = io.BytesIO()
    with av.open(out, "w", format=kind, options=options) as container:
        stream = container.add_stream(codec, rate=48000, layout=layout)
        wide = np.repeat(
            soxr.resample(samples, RATE, 48000)[None], 2 if layout == "stereo" else 1, axis=0
        )
        frame = av.AudioFrame.from_ndarray(
            np.ascontiguousarray(wide, np.float32), format="fltp", layout=layout
        )
        frame.sample_rate = 48000
        plain = av.AudioResampler(
            format=stream.format.name if codec != "libopus" else "flt", layout=layout, rate=48000
        )
        for piece in [*plain.resample(frame), *plain.resample(None)]:
            for packet in stream.encode(piece):
                container.mux(packet)
        for packet in stream.encode(None):
            container.mux(packet)
    return out.getvalue()


KINDS = {
    "webm": ("webm", "libopus", {}),
    "webm, live": ("webm", "libopus", {"live": "1"}),
    "mp4": ("mp4", "aac", {}),
    "mp4, in fragments": ("mp4", "aac", {"movflags": "frag_keyframe+empty_moov"}),
    "ogg": ("ogg", "libopus", {}),
    "aac": ("adts", "aac", {}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_browsers_record_is_read_from_files_and_bytes(tmp_path, kind):
    form, codec, options = KINDS[kind]
    spoken = voice(2.0)
    data = encoded(spoken, form, codec, **options)
    samples, rate = read_sound(data)
    assert rate == RATE
    assert samples.dtype == np.float32
    assert len(samples) == pytest.approx(len(spoken), abs=0.1 * RATE)
    file = tmp_path / "recorded.wav"  # the suffix lies
    file.write_bytes(data)
    np.testing.assert_array_equal(read_sound(file)[0], samples)
    np.testing.assert_array_equal(np.concatenate(list(read_segments(file, RATE, 30.0))), samples)
    one, other = (np.abs(np.fft.rfft(x, 2**16)) for x in (samples, spoken))
    assert np.corrcoef(one, other)[0, 1] > 0.97
    assert np.abs(samples).max() == pytest.approx(np.abs(spoken).max(), rel=0.1)


def test_channels_are_averaged_not_added():
    data = encoded(voice(1.0), "webm", "libopus", "stereo")
    assert np.abs(read_sound(data)[0]).max() == pytest.approx(np.abs(voice(1.0)).max(), rel=0.1)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "webm, live"])
def test_what_is_cut_off_is_an_error(kind):
    form, codec, options = KINDS[kind]
    data = encoded(voice(2.0), form, codec, **options)
    # of WebM a quarter of a second may be missing
    for share in (0.05, 0.3, 0.62, 0.8 if kind == "webm" else 0.95):
        with pytest.raises(AudioError, match=r"the recording is (truncated|damaged)"):
            read_sound(data[: int(share * len(data))])


def test_a_vector_of_a_browsers_recording_is_that_of_the_sound(tmp_path):
    extractor = load_extractor(network(tmp_path / "model.onnx"))
    one, other = (
        extractor(*read_sound(encoded(voice(), "webm", "libopus"))),
        extractor(voice(), RATE),
    )
    assert one @ other / np.linalg.norm(one) / np.linalg.norm(other) > 0.9


def test_a_flac_stream_that_does_not_tell_its_length_is_read():
    out = io.BytesIO()
    soundfile.write(out, voice(1.0), RATE, format="FLAC")
    data = bytearray(out.getvalue())
    data[21:26] = bytes([data[21] & 0xF0, 0, 0, 0, 0])
    np.testing.assert_allclose(read_sound(bytes(data))[0], read_sound(out.getvalue())[0], atol=1e-6)


@pytest.mark.parametrize("kind", ["WAV", "FLAC", "OGG", "MP3"])
def test_bytes_are_read_as_their_file_is(tmp_path, kind):
    file = write(tmp_path / "a", voice(1.0), format=kind)
    np.testing.assert_array_equal(read_sound(file.read_bytes())[0], read_audio(file))


def test_a_sound_longer_or_larger_than_allowed_is_not_decoded(tmp_path):
    with pytest.raises(AudioError, match=r"too long: .*limit is 1 s"):
        read_sound(encoded(voice(2.0), "webm", "libopus"), longest_s=1.0)
    file = write(tmp_path / "a.wav", voice(2.0))
    with pytest.raises(AudioError, match="too long: 2 s, the limit is 1 s"):
        read_sound(file, longest_s=1.0)
    for source in (file, file.read_bytes()):
        with pytest.raises(AudioError, match="too large: 64044 bytes, the limit is 1000"):
            read_sound(source, most_bytes=1000)


def test_a_header_that_promises_more_than_memory_is_an_error(tmp_path):
    out = io.BytesIO()
    soundfile.write(out, voice(1.0), RATE, format="FLAC")
    data = bytearray(out.getvalue())
    data[21:26] = struct.pack(">Q", (data[21] >> 4) << 36 | (2**36 - 1))[3:]
    with pytest.raises(AudioError, match="too long"):
        read_sound(bytes(data))
    file = tmp_path / "a.flac"
    file.write_bytes(data)
    with pytest.raises(AudioError, match="promises more than fits in memory"):
        read_audio(file)


def test_a_damaged_rate_does_not_make_hours_of_a_second(tmp_path):
    extractor = load_extractor(network(tmp_path / "model.onnx"))
    file = write(tmp_path / "a.wav", voice(0.2), 16)
    for read in (extractor, read_sound):
        with pytest.raises(AudioError, match=r"a\.wav has 16 samples per second, expected 4000"):
            read(file)
    with pytest.raises(AudioError, match="16 samples per second"):
        extractor(voice(1.0), 16)


def test_empty_silent_and_senseless_bytes_are_errors():
    for data, why in (
        (b"", "is empty"),
        (b"what is this", "not a sound file"),
        (b"\x1a\x45\xdf\xa3" + bytes(100), "the recording is (damaged|truncated)"),
        (b"\0\0\0\x20ftypM4A " + bytes(100), "the recording is (damaged|truncated)"),
        (encoded(np.zeros(RATE, np.float32), "mp4", "aac"), "is silent"),
    ):
        with pytest.raises(AudioError, match=why):
            read_sound(data)


def test_a_truncated_opus_file_is_an_error(tmp_path):
    data = encoded(voice(2.0), "ogg", "libopus", page_duration="200000")
    (tmp_path / "a.ogg").write_bytes(data[: 2 * len(data) // 3])
    with pytest.raises(AudioError, match=r"a\.ogg is truncated"):
        read_audio(tmp_path / "a.ogg")


def test_parts_of_a_stream_are_those_of_its_sound(tmp_path):
    file = tmp_path / "a.webm"
    file.write_bytes(encoded(voice(7.3), "webm", "libopus"))
    whole = read_sound(file)[0]
    parts = list(read_segments(file, RATE, 2.0))
    assert all(len(part) <= 2 * RATE for part in parts)
    assert min(map(len, parts)) > 1.5 * RATE
    np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_other_bytes_are_read_as_bytes_are(tmp_path):
    file = write(tmp_path / "a.wav", voice(1.0))
    data = file.read_bytes()
    expected = read_sound(data)[0]
    for source in (bytearray(data), memoryview(data), file):
        np.testing.assert_array_equal(read_sound(source)[0], expected)
    with pytest.raises(AudioError, match="too large"):
        read_sound(data, most_bytes=1000)
    with pytest.raises(DataError, match=r"a path or the bytes of a file .* got list"):
        read_sound([0.0, 1.0])


def test_a_stream_that_promises_more_than_there_is_time_is_an_error(tmp_path):
    buffer = io.BytesIO()
    soundfile.write(buffer, voice(2.0), RATE, format="OGG", subtype="OPUS")
    whole = buffer.getvalue()
    file = tmp_path / "twice.ogg"
    for share in (0.3, 0.4, 0.5):  # the second begins anew and does not end
        file.write_bytes(whole + whole[: int(share * len(whole))])
        with pytest.raises(AudioError, match="truncated"):
            list(read_segments(file, RATE, 30.0))


def test_quality_is_measured_of_floats():
    from mvplda.voice.audio.quality import measure

    tone = np.sin(np.arange(16000) / 10).astype(np.float32)
    whole = (tone * 32767).astype(np.int16)
    for samples, rate, error in (
        (tone * np.nan, 16000, AudioError),
        (whole, 16000, DataError),
        (np.stack([whole, whole], axis=1), 16000, DataError),
        (tone, 0, AudioError),
    ):
        with pytest.raises(error):
            measure(samples, rate)
    assert measure(np.stack([tone, tone], axis=1), 16000) == measure(tone, 16000)


def test_a_codec_that_is_not_known_is_refused():
    """The stream is there and has no decoder."""
    form, codec, options = KINDS["webm"]
    sound = encoded(voice(), form, codec, **options)
    with pytest.raises(AudioError, match="damaged, or has no sound"):
        read_sound(sound.replace(b"A_OPUS", b"A_NONE"), 16000)
