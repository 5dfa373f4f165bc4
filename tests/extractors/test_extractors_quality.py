"""The quality of recordings: what is measured, and what is warned of by name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from extractor_problems import RATE, network, soundfile, voice, write
from hypothesis import given, settings
from hypothesis import strategies as st

from mvplda.exceptions import AudioError, FetchError, ParameterError
from mvplda.extractors import QualitySettings, activity, load_extractor, measure
from mvplda.extractors.frontends import cached_file
from mvplda.extractors.quality import measure_parts

T = np.arange(3 * RATE) / RATE
NOISE = 0.1 * np.random.default_rng(0).normal(size=len(T))


def test_a_good_recording_has_no_warning_and_the_right_numbers():
    silence = 1e-4 * np.random.default_rng(1).normal(size=RATE)
    found = measure(np.concatenate([silence, voice(4.0), silence]), RATE)
    assert found.warnings == ()
    assert found.usable
    assert found.duration_s == pytest.approx(6.0)
    assert 1.0 < found.speech_s < 4.0
    assert found.snr_db is not None
    assert found.snr_db > 20


@pytest.mark.parametrize(
    ("name", "samples"),
    [
        ("noise", NOISE),
        ("tone", 0.3 * np.sin(2 * np.pi * 440 * T)),
        ("clipped", np.clip(20 * voice(3.0), -0.9, 0.9)),
        ("quiet", 2e-4 * voice(3.0) / np.abs(voice(3.0)).max()),
        ("short", voice(0.5)),
        (
            "damaged",
            np.frombuffer(b"\0" + (voice(3.0) * 32767).astype("<i2").tobytes()[:-1], "<i2") / 32768,
        ),
        ("damaged", np.where(np.arange(3 * RATE) % 9000 == 4000, 0.9, voice(3.0))),
        ("noisy", voice(3.0) + 0.8 * np.abs(voice(3.0)).max() * NOISE),
    ],
)
def test_a_bad_recording_is_warned_of_by_name(name, samples):
    assert name in measure(samples, RATE).warnings
    assert name not in measure(voice(4.0), RATE).warnings


def test_a_telephones_bandwidth_is_seen_after_resampling():
    soxr = pytest.importorskip("soxr")
    wide = voice(3.0) + 0.3 * NOISE * np.repeat(np.abs(voice(3.0)).max(), len(T))
    narrow = soxr.resample(soxr.resample(wide, RATE, 8000), 8000, RATE)
    narrow[::2] += 0  # the same rate, less in it
    assert measure(wide, RATE).bandwidth_hz > 7000
    found = measure(soxr.resample(soxr.resample(wide, RATE, 6800), 6800, RATE), RATE)
    assert found.bandwidth_hz < 3700
    assert "narrow" in measure(narrow, RATE, QualitySettings(bandwidth_hz=4500)).warnings


def test_thresholds_are_settings():
    assert "short" not in measure(voice(0.5), RATE, QualitySettings(speech_s=0.1)).warnings


def test_parts_are_measured_as_a_whole_and_copies_are_known():
    whole = voice(4.0)
    one, parts = measure(whole, RATE), measure_parts(np.split(whole, 4), RATE)
    assert parts.duration_s == one.duration_s
    assert parts.speech_s == pytest.approx(one.speech_s, abs=0.15)
    assert parts.digest == one.digest != measure(voice(4.0, 1.1), RATE).digest


def test_nothing_is_an_error():
    with pytest.raises(AudioError, match="empty"):
        measure(np.empty(0), RATE)


def test_too_little_speech_is_an_error_where_a_least_is_asked_for(tmp_path):
    extractor = load_extractor(network(tmp_path / "model.onnx"))
    files = [write(tmp_path / f"{seconds}.wav", voice(seconds)) for seconds in (0.5, 3.0)]
    settings = QualitySettings(least_speech_s=1.0)
    with pytest.raises(
        AudioError, match=r"0\.5\.wav: the sound holds 0\.\d\d s of speech, at least 1 s are wanted"
    ):
        extractor.extract_all(files, settings=settings)
    assert extractor.extract_all(files, settings=settings, on_error="skip").rows == [1]


def test_without_silero_the_error_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setenv("MVPLDA_CACHE", str(tmp_path))
    activity._loaded.cache_clear()
    with pytest.raises(FetchError, match="mvplda extractor get silero"):
        measure(voice(), RATE, QualitySettings(activity="silero"))
    with pytest.raises(ParameterError, match="'energy' or 'silero'"):
        QualitySettings(activity="loudness")  # type: ignore[arg-type]


def test_silero_hears_speech_and_only_that():
    try:
        cached_file("silero")
    except FetchError as error:
        pytest.skip(str(error))
    file = Path(__file__).resolve().parents[3] / "shared" / "data" / "audiomnist" / "03.flac"
    if not file.is_file():
        pytest.skip(f"there is no {file}")
    activity._loaded.cache_clear()
    spoken, _ = soundfile.read(file, 5 * RATE, dtype="float32")
    settings = QualitySettings(activity="silero")
    pause = 1e-4 * np.random.default_rng(0).normal(size=3 * RATE)
    knocks = np.where(np.arange(3 * RATE) % RATE < 4000, 5 * NOISE, 1e-3 * NOISE)
    one = measure(spoken, RATE, settings)
    assert 2.5 < one.speech_s < 5
    assert one.usable
    assert measure(
        np.concatenate([pause, spoken, pause]), RATE, settings
    ).speech_s == pytest.approx(one.speech_s, abs=0.3)
    assert measure(spoken / 30, RATE, settings).speech_s == one.speech_s
    for samples in (NOISE, 0.3 * np.sin(2 * np.pi * 440 * T), knocks):
        found = measure(samples, RATE, settings)
        assert "speechless" in found.warnings
        assert not found.usable
    assert measure(knocks, RATE).usable  # to the eyes of energy


def test_the_quality_comes_with_every_vector(tmp_path):
    extractor = load_extractor(network(tmp_path / "model.onnx"))
    found = extractor.utterance(0.3 * np.sin(2 * np.pi * 440 * T), RATE)
    assert found.vector.shape == (6,)
    assert "tone" in found.quality.warnings
    assert not found.quality.usable


@pytest.mark.parametrize(
    ("suffix", "options"),
    [
        (".wav", {"subtype": "PCM_U8"}),
        (".wav", {"subtype": "PCM_16"}),
        (".wav", {"subtype": "PCM_24"}),
        (".wav", {"subtype": "DOUBLE"}),
        (".wav", {"subtype": "ULAW"}),
        (".flac", {"subtype": "PCM_24"}),
        (".ogg", {"subtype": "VORBIS"}),
        (".ogg", {"subtype": "OPUS"}),
        (".mp3", {}),
        (".aiff", {}),
        (".w64", {}),
        (".au", {}),
    ],
)
@pytest.mark.parametrize("rate", [8000, 16000, 48000])
def test_every_codec_and_rate_gives_a_vector(tmp_path, suffix, options, rate):
    soxr = pytest.importorskip("soxr")
    extractor = load_extractor(network(tmp_path / "model.onnx"))
    sound = soxr.resample(voice(1.5), RATE, rate)
    file = write(tmp_path / f"a{suffix}", np.stack([sound, 0.5 * sound], axis=1), rate, **options)
    found = extractor.utterance(file)
    assert np.isfinite(found.vector).all()
    assert found.quality.duration_s == pytest.approx(1.5, abs=0.2)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_damaged_files_give_an_error_or_a_finite_vector(tmp_path_factory, data):
    folder = tmp_path_factory.getbasetemp()
    extractor = _extractor(folder)
    kind = data.draw(st.sampled_from(sorted(_whole(folder))))
    damaged = bytearray(_whole(folder)[kind])
    for _ in range(data.draw(st.integers(0, 8))):
        damaged[data.draw(st.integers(0, min(len(damaged) - 1, 400)))] = data.draw(
            st.integers(0, 255)
        )
    cut = data.draw(st.integers(0, len(damaged)))
    file = (
        folder
        / f"damaged{data.draw(st.sampled_from(['.wav', '.flac', '.ogg', '.mp3', '.webm', '']))}"
    )
    file.write_bytes(damaged[: cut if data.draw(st.booleans()) else None])
    found = extractor.extract_all([file], on_error="skip")
    assert len(found.X) + len(found.skipped) == 1
    assert np.isfinite(found.X).all()
    assert all(str(file) in reason for _, reason in found.skipped)


_KEPT: dict = {}


def _extractor(folder):
    if "extractor" not in _KEPT:
        _KEPT["extractor"] = load_extractor(network(folder / "damage.onnx"))
    return _KEPT["extractor"]


def _whole(folder):
    if "files" not in _KEPT:
        _KEPT["files"] = {}
        for kind in (".wav", ".flac", ".ogg", ".mp3", ".aiff"):
            soundfile.write(folder / f"whole{kind}", voice(0.5), RATE)
            _KEPT["files"][kind] = (folder / f"whole{kind}").read_bytes()
    return _KEPT["files"]


@pytest.mark.parametrize(
    ("name", "samples", "rate"),
    [
        ("narrow", lambda soxr: soxr.resample(voice(3.0), RATE, 8000), 8000),
        (
            "clipped",
            lambda soxr: np.clip(200 * soxr.resample(voice(3.0), RATE, 44100), -1, 1),
            44100,
        ),
        ("damaged", lambda soxr: _noisy_stretch(soxr.resample(voice(3.0), RATE, 11025)), 11025),
        ("damaged", lambda soxr: np.concatenate([[1e5], voice(3.0)]), RATE),
    ],
)
def test_what_another_rate_hides_is_warned_of(name, samples, rate):
    soxr = pytest.importorskip("soxr")
    made = np.asarray(samples(soxr), dtype=np.float32)
    found = measure(made if rate == RATE else soxr.resample(made, rate, RATE, quality="HQ"), RATE)
    assert name in found.warnings
    assert not measure(voice(3.0), RATE).warnings


def _noisy_stretch(samples):
    noisy = samples.copy()
    noisy[len(noisy) // 2 :][:4000] = np.random.default_rng(0).uniform(-1, 1, 4000)
    return noisy


def test_huge_samples_are_an_error_and_not_a_warning_of_numpy(tmp_path):
    sound = voice(1.5)
    sound[100] = 1e30
    with pytest.raises(AudioError, match=r"as large as 1e\+30, where full scale is 1"):
        _extractor(tmp_path).utterance(sound, RATE)
    with pytest.raises(AudioError, match=r"as large as 1e\+30, where full scale is 1"):
        _extractor(tmp_path).utterance(write(tmp_path / "huge.wav", sound, subtype="FLOAT"))
