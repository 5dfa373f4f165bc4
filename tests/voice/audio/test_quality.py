"""The quality of recordings: what is measured, and what is warned of by name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from extractor_problems import RATE, network, soundfile, voice, write
from hypothesis import given, settings
from hypothesis import strategies as st

from mvplda.exceptions import AudioError
from mvplda.voice.audio import quality
from mvplda.voice.audio.quality import QualitySettings, measure, measure_segments
from mvplda.voice.audio.speech_detection import SHIFT_S, SoundSegment
from mvplda.voice.extractors import load_extractor

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
        ("speechless", NOISE),
        ("speechless", 0.3 * np.sin(2 * np.pi * 440 * T)),
        ("clipped", np.clip(20 * voice(3.0), -0.9, 0.9)),
        ("quiet", 2e-4 * voice(3.0) / np.abs(voice(3.0)).max()),
        ("short", voice(0.3)[: RATE // 4]),
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
    assert "short" in measure(voice(1.0), RATE, QualitySettings(speech_s=3.0)).warnings


def test_parts_are_measured_as_a_whole_and_copies_are_known():
    whole = voice(4.0)
    one, parts = measure(whole, RATE), measure_segments(np.split(whole, 4), RATE)
    assert parts.duration_s == one.duration_s
    assert parts.speech_s == pytest.approx(one.speech_s, abs=0.15)
    assert parts.digest == one.digest != measure(voice(4.0, 1.1), RATE).digest


def test_nothing_is_an_error():
    with pytest.raises(AudioError, match="empty"):
        measure(np.empty(0), RATE)


def _claps(rng):
    sound = 1e-3 * rng.normal(size=2 * RATE)
    for start in (4000, 12000, 23000):
        sound[start : start + 1600] += 0.5 * rng.normal(size=1600) * np.exp(-np.arange(1600) / 200)
    return sound


def _beeps(rng):
    sound = 1e-3 * rng.normal(size=2 * RATE)
    for start in (4000, 16000):
        sound[start : start + 4000] += 0.3 * np.sin(2 * np.pi * 1000 * T[:4000])
    return sound


def _keys(seconds):
    """Telephone keys (DTMF), eight of them, with as much silence between."""

    def sound(rng):
        time = np.arange(round(seconds * RATE)) / RATE
        quiet = np.zeros(len(time))
        keys = []
        for _ in range(8):
            low = rng.choice([697, 770, 852, 941])
            high = rng.choice([1209, 1336, 1477, 1633])
            tones = np.sin(2 * np.pi * low * time) + np.sin(2 * np.pi * high * time)
            keys += [0.3 * tones, quiet]
        whole = np.concatenate(keys)
        return whole + 1e-3 * rng.normal(size=len(whole))

    return sound


NO_SPEECH = {
    "noise": lambda rng: 0.1 * rng.normal(size=2 * RATE),
    "tone": lambda rng: 0.3 * np.sin(2 * np.pi * 440 * T),
    "hum": lambda rng: 0.1 * np.sign(np.sin(2 * np.pi * 100 * T)) + 1e-3 * NOISE,
    "claps": _claps,
    "beeps": _beeps,
    "quick keys": _keys(0.06),
    "keys": _keys(0.1),
    "long keys": _keys(0.3),
}


@pytest.mark.parametrize("zeros", [0, 4800])
@pytest.mark.parametrize("kind", NO_SPEECH)
def test_what_is_no_speech_does_not_pass_for_it_with_or_without_zeros(kind, zeros):
    for seed in range(5):
        sound = NO_SPEECH[kind](np.random.default_rng(seed))
        measured = measure(np.concatenate([sound, np.zeros(zeros)]), RATE)
        assert "speechless" in measured.warnings
        assert not measured.usable


@pytest.mark.parametrize("snr_db", [20, 10, 6, 3])
def test_zeros_change_neither_speech_nor_noise(snr_db):
    sound = voice(3.0)
    noise = NOISE * np.sqrt(np.mean(sound**2) / np.mean(NOISE**2) / 10 ** (snr_db / 10))
    plain = measure(sound + noise, RATE)
    longer = measure(np.concatenate([np.zeros(4800), sound + noise, np.zeros(4800)]), RATE)
    assert plain.usable
    assert longer.usable
    assert longer.speech_s == pytest.approx(plain.speech_s, abs=0.1)
    assert longer.snr_db == pytest.approx(plain.snr_db, abs=1)


def test_a_quarter_of_a_second_of_a_voice_decides_nothing():
    whole = voice(3.0)
    speech = np.flatnonzero(SoundSegment(whole, RATE).speech) * round(SHIFT_S * RATE)
    for start in speech[: -RATE // 160 : 20]:
        piece = measure(whole[start : start + RATE // 4], RATE)
        assert {"short", "speechless"} & set(piece.warnings)
        assert not piece.usable
    assert measure(voice(1.0), RATE).warnings == ()


DATA = Path(__file__).resolve().parents[4] / "shared" / "data"


def test_real_words_of_a_second_are_usable_and_nearly_none_is_warned_of():
    files = sorted(DATA.glob("speech_commands/*/*/*.flac"))[::70]
    if not files:
        pytest.skip(f"there are no recordings under {DATA}")
    measured = [measure(soundfile.read(file)[0], RATE) for file in files]
    assert np.mean([one.usable for one in measured]) > 0.9
    assert np.mean(["short" in one.warnings for one in measured]) < 0.1


def test_the_quality_comes_with_every_vector(tmp_path):
    extractor = load_extractor(network(tmp_path / "model.onnx"))
    found = extractor.utterance(0.3 * np.sin(2 * np.pi * 440 * T), RATE)
    assert found.vector.shape == (6,)
    assert "speechless" in found.quality.warnings
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
    found = extractor.extract([file], on_error="skip")
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


def test_a_loud_stretch_that_is_not_taken_for_speech_is_no_noise() -> None:
    levels = np.full(300, -60.0)
    levels[100:200] = -20.0
    speech = np.zeros(300, dtype=bool)
    speech[100:160] = True
    # a third of what is loud was missed: the room is as quiet as before
    assert quality._snr(levels, speech) == pytest.approx(40.0, abs=0.1)
