"""Sexes of people from labels, tables and voices."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from extractor_problems import voice, write

from mvplda.voice.audio.speech_detection import SoundSegment
from mvplda.voice.sexes import Sexes, sexes_in_labels, sexes_in_table

RATE = 16_000


def vowel(pitch_hz: float, seconds: float = 1.0, seed: int = 0) -> np.ndarray:
    """Harmonics of a pitch that falls by a tenth, with syllables and a little noise."""
    rng = np.random.default_rng(seed)
    t = np.arange(int(seconds * RATE)) / RATE
    phase = 2 * np.pi * np.cumsum(pitch_hz * (1.05 - 0.1 * t / seconds)) / RATE
    harmonics = sum(np.sin(k * phase) / k for k in range(1, 15))
    syllables = 0.5 - 0.5 * np.cos(2 * np.pi * 4 * t)
    return 0.1 * np.asarray(harmonics) * syllables + 1e-4 * rng.normal(size=len(t))


@pytest.mark.parametrize("pitch_hz", [85.0, 110.0, 155.0, 170.0, 230.0, 320.0])
def test_the_pitch_of_a_vowel_is_its_own_and_not_an_octave_off(pitch_hz: float) -> None:
    for rate in (RATE, 8000):
        sound = vowel(pitch_hz)[:: RATE // rate]
        assert SoundSegment(sound, rate).pitch_hz() == pytest.approx(pitch_hz, rel=0.04)


def test_noise_and_silence_have_no_pitch() -> None:
    rng = np.random.default_rng(0)
    for sound in (np.zeros(RATE), 0.1 * rng.normal(size=RATE), np.zeros(0)):
        assert SoundSegment(sound, RATE).pitch_hz() is None


def test_voices_are_grouped_by_their_median_pitch(tmp_path: Path) -> None:
    speakers, files = [], []
    pitches = {"ann": 210.0, "bob": 110.0, "cem": 140.0}
    for name, pitch_hz in pitches.items():
        for number in range(5):
            speakers.append(name)
            sound = vowel(pitch_hz * (0.95 + 0.02 * number), seed=number)
            files.append(write(tmp_path / f"{name}{number}.wav", sound))
    speakers.append("quiet")
    files.append(write(tmp_path / "quiet.wav", np.zeros(RATE)))
    sexes = Sexes.from_voices(speakers, files)
    assert sexes.of == {"ann": "high", "bob": "low", "cem": "low"}
    assert "not labelled" in sexes.note
    assert "160 Hz in median pitch: 1 high, 2 low." in sexes.note
    files[0].unlink()
    assert Sexes.from_voices(speakers, files).of == sexes.of


def test_labels_name_the_most_frequent_sex_of_each_speaker() -> None:
    labels = {
        "speaker": np.array(["a", "a", "a", "b", "c"]),
        "gender": np.array(["f", "m", "f", "m", ""]),
    }
    sexes = sexes_in_labels(labels)
    assert sexes is not None
    assert sexes.of == {"a": "f", "b": "m"}
    assert sexes.note == "Sex comes from the column gender: 1 f, 1 m."
    assert sexes_in_labels({"speaker": labels["speaker"]}) is None


def test_a_table_has_a_column_of_sexes_or_none(tmp_path: Path) -> None:
    table = tmp_path / "index.csv"
    write(tmp_path / "1.wav", voice(1.0))
    table.write_text("file,speaker,sex\n1.wav,ann,female\n1.wav,bob,male\n", encoding="utf-8")
    sexes = sexes_in_table(table)
    assert sexes is not None
    assert sexes.of == {"ann": "female", "bob": "male"}
    table.write_text("file,speaker\n1.wav,ann\n", encoding="utf-8")
    assert sexes_in_table(table) is None
