"""Where a band ends, and extractors by their names: what is found, and what is not."""

from __future__ import annotations

import os

import numpy as np
import pytest
from extractor_problems import RATE, network

from mvplda import load_extractor
from mvplda.exceptions import FetchError, FileFormatError
from mvplda.voice.audio.speech_detection import SoundSegment, bandwidth_hz
from mvplda.voice.extractors.recipe import families, recipe_to_toml

soxr = pytest.importorskip("soxr", reason="soxr is not installed, which resamples")


def telephone(samples: np.ndarray) -> np.ndarray:
    low = soxr.resample(samples, RATE, 8000)
    return soxr.resample(low, 8000, RATE).astype(np.float32)


def end_of_band(samples: np.ndarray) -> float:
    return bandwidth_hz(SoundSegment(samples, RATE).spectrum, RATE)


def test_the_end_of_a_band_is_seen() -> None:
    noise = np.random.default_rng(0).normal(size=RATE).astype(np.float32)
    assert end_of_band(noise) > 7800
    assert 3500 < end_of_band(telephone(noise)) < 4100
    assert end_of_band(telephone(noise) + 1) < 4100  # a constant is no sound
    assert end_of_band(np.zeros(100, dtype=np.float32)) == 0


def test_a_name_is_a_name_whatever_lies_here(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("MVPLDA_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "words").mkdir()
    with pytest.raises(FetchError, match="mvplda extractor get words"):
        load_extractor("words")


def test_a_damaged_file_of_a_name_is_to_be_fetched_again(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("MVPLDA_CACHE", str(tmp_path))
    folder = tmp_path / "extractors" / "words"
    folder.mkdir(parents=True)
    (folder / "words.onnx").write_bytes(b"no network")
    (folder / "words.toml").write_text(recipe_to_toml(families()["words"]))
    with pytest.raises(FileFormatError, match="Fetch it again: mvplda extractor get words"):
        load_extractor("words")


def test_onnxruntime_reports_nothing_to_its_makers() -> None:
    assert os.environ["ORT_DISABLE_TELEMETRY"] == "1"


def test_what_another_version_fetched_is_refused_by_name(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("MVPLDA_CACHE", str(tmp_path))
    folder = tmp_path / "extractors" / "words"
    folder.mkdir(parents=True)
    network(folder / "words.onnx")
    (folder / "words.toml").write_text('name = "words"\n[samples]\nlevel = "peak"\n')
    with pytest.raises(FileFormatError, match="mvplda extractor get words"):
        load_extractor("words")
