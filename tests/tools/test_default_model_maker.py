"""The maker of the default model: conditions of recordings, thresholds, and a model of small vectors."""

from __future__ import annotations

import numpy as np
import pytest

from mvplda import load
from mvplda.exceptions import DataError
from mvplda.voice.audio.speech_detection import SoundSegment, bandwidth_hz
from mvplda.voice.default_model import DEFAULT_MODEL
from tools.default_model import build as defaults
from tools.default_model import recordings


def noise(seconds: float = 1.0) -> np.ndarray:
    return np.random.default_rng(0).normal(size=int(seconds * recordings.RATE)).astype(np.float32)


def test_a_telephone_has_a_narrow_band_and_keeps_the_length() -> None:
    heard = recordings.simulate_condition(noise(), "telephone", np.random.default_rng(0))
    assert heard.shape == noise().shape
    assert bandwidth_hz(SoundSegment(heard, recordings.RATE).spectrum, recordings.RATE) < 4100
    assert bandwidth_hz(SoundSegment(noise(), recordings.RATE).spectrum, recordings.RATE) > 7000


@pytest.mark.parametrize("name", ["noise", "room", "mixed"])
def test_conditions_change_a_recording_and_its_length_not(name: str) -> None:
    clean = recordings.simulate_condition(noise(), "clean", np.random.default_rng(0))
    heard = recordings.simulate_condition(noise(), name, np.random.default_rng(0))
    assert heard.shape == clean.shape
    assert not np.allclose(heard, clean)


def outcome(domain: str, seed: int) -> defaults.Outcome:
    rng = np.random.default_rng(seed)
    truth = np.repeat([0, 1, 2, 3], 500)
    voice = np.where(truth < 2, 3.0, -3.0) + rng.normal(size=2000)
    words = np.where(truth % 2 == 0, 2.0, -2.0) + rng.normal(size=2000)
    logs = {
        ("speaker", "phrase"): voice + words,
        ("speaker",): voice,
        ("phrase",): words,
        (): np.zeros(2000),
    }
    speakers = rng.integers(0, 25, 2000)
    return defaults.Outcome(domain, "clean", 20, None, logs, truth, speakers, {})


def test_no_kind_of_impostor_passes_the_threshold_more_often_than_promised() -> None:
    trials = [outcome("one", 0), outcome("two", 1)]
    views = ("speaker", "phrase")
    calibrated = defaults.Calibrated(trials)
    threshold = calibrated.threshold(0.01)
    rates = []
    for kind in (1, 2, 3):
        passed = []
        for one in trials:
            scores = defaults.ratios(calibrated.calibrator.transform(one.logs), views)
            passed.append((scores[one.truth == kind] >= threshold).mean())
        rates.append(float(np.mean(passed)))
    assert max(rates) == pytest.approx(0.01, abs=0.003)
    point = calibrated.point(0.01)
    low, high = point.measured["far"]["TW"][1:]
    assert low <= point.measured["far"]["TW"][0] <= high


def test_what_never_happened_may_happen_to_one_of_few() -> None:
    never = np.zeros(100, dtype=bool)
    share, low, high = defaults.share_over_people(never, np.arange(100) % 10, ~never)
    assert (share, low) == (0.0, 0.0)
    assert high == pytest.approx(1 - 0.05**0.1)


def test_a_copy_of_what_is_enrolled_is_no_test_of_it(tmp_path) -> None:
    for name, domains in recordings.DOMAINS.items():
        rows = [
            (domain, speaker, phrase, condition, take)
            for domain in domains
            for speaker in ("ann", "bob")
            for phrase in ("yes", "no")
            for take in "abc"
            for condition in ("clean", "room")
        ]
        columns = dict(zip(recordings.COLUMNS[1:], np.array(rows).T, strict=True))
        vectors = np.arange(len(rows) * 4.0).reshape(-1, 4)
        np.savez(tmp_path / f"{name}.npz", vectors=vectors, **columns)
    material = recordings.read_labelled_vectors(tmp_path)
    # the numbers are those of takes a, b and c, in whatever condition
    assert material.repetition[:6].tolist() == [0, 0, 1, 1, 2, 2]
    takes = material.labels()["source_recording"]
    assert len(set(takes)) == len(takes) // 2
    assert takes[0] == takes[1] != takes[2]


def test_everybody_has_a_phrase_of_their_own_where_there_are_enough() -> None:
    people = np.repeat(["ann", "bob", "cid"], 4)
    phrases = np.tile(["a", "a", "b", "b"], 3)
    rows = defaults.own_phrases(people, phrases, np.random.default_rng(0))
    own = {person: set(phrases[rows & (people == person)]) for person in np.unique(people)}
    assert all(len(some) == 1 for some in own.values())
    assert own["ann"] != own["bob"]
    assert np.bincount(np.unique(people, return_inverse=True)[1][rows]).tolist() == [2, 2, 2]


def test_vectors_that_are_missing_are_named(tmp_path) -> None:
    with pytest.raises(DataError, match="audiomnist"):
        recordings.read_labelled_vectors(tmp_path)


def test_the_default_model_of_the_package_answers_calibrated() -> None:
    bundle = load(DEFAULT_MODEL)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(6, 1505))
    answer = bundle.answer(X[:3], X[3:])
    assert answer.calibrated
    assert bundle.points["speaker+phrase"][0].far == 0.01
    assert {row["corpus left out"] for row in bundle.card["left_out"]} >= {
        "pass-phrases",
        "commands",
    }
