"""Damaged recordings of every form: an error of ours, or a vector with a warning where it is far from the clean one."""

from __future__ import annotations

from pathlib import Path

import pytest
from extractor_problems import network

pytest.importorskip("av", reason="PyAV is not installed, which makes some of the recordings")

from benchmarks import damaged
from mvplda.exceptions import FetchError
from mvplda.voice.extractors import load_extractor
from mvplda.voice.extractors.download import cached_file

DATA = Path(__file__).resolve().parents[4] / "shared" / "data" / "audiomnist"


@pytest.mark.slow
def test_damaged_recordings_give_our_errors_or_finite_vectors(tmp_path):
    extractor = load_extractor(network(tmp_path / "small.onnx"))
    clean, far = damaged.voices(extractor, None)
    vectors = [extractor(x, damaged.RATE) for x in clean]
    states = []
    for number in range(120):
        data, suffix, told = damaged.damaged(number, clean, seed=7)
        file = tmp_path / f"damaged.{suffix}"
        found = damaged.state(extractor, file, data, vectors[told["voice"]], far, number % 2 == 0)
        assert found["state"] not in ("not our error", "not finite"), (told, found)
        states.append(found["state"])
    assert {"error", "near, not warned", "far, warned"} <= set(states)


@pytest.mark.slow
def test_vectors_of_damaged_voices_are_near_or_warned_of():
    if not DATA.is_dir():
        pytest.skip(f"there is no {DATA}")
    try:
        cached_file("campplus")
    except FetchError as error:
        pytest.skip(str(error))
    found = damaged.run("campplus", DATA, 300, seed=3)
    assert not found["lost, with the process"]
    assert found["states"].get("not our error", 0) == 0
    assert found["states"].get("far, not warned", 0) <= 3, found["bad"]
