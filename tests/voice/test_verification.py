"""Comparisons of two sides without a deployment, which have a domain, calibration and points of their own."""

from __future__ import annotations

from copy import copy, deepcopy
from pathlib import Path

import numpy as np
import pytest
from domain_problems import VOICE, WORDS, Place, domain_bundle, make_place

from mvplda import Bundle, Question
from mvplda.bundle import UNDEPLOYED
from mvplda.decisions import HalfThreshold, OperatingPoint
from mvplda.training import deploy_on_speakers
from mvplda.voice.audio.quality import Quality
from mvplda.voice.extractors.extractor import ExtractedVectors
from mvplda.voice.profile_file import ProfileBook
from mvplda.voice.verification import VoiceModel

QUESTIONS = ("speaker+phrase", "speaker", "phrase")


class Named:
    """An extractor by its name alone."""

    name = "drawn"
    dimension = VOICE + WORDS


def side(X: np.ndarray, speech_s: float = 0.6) -> ExtractedVectors:
    quality = Quality(1.0, speech_s, -3.0, -20.0, 0.0, 30.0, 8000.0)
    return ExtractedVectors(X.astype(np.float32), list(range(len(X))), [quality] * len(X), [])


def paired_bundle() -> Bundle:
    """A bundle whose single comparisons have half the LLRs, and thresholds per view."""
    bundle = copy(domain_bundle())
    smaller = deepcopy((bundle.calibrations or {})["speaker"])
    smaller.weights_ = dict.fromkeys(smaller.weights_, 0.5)
    undeployed = {f"{key}|{UNDEPLOYED}": smaller for key in QUESTIONS}
    bundle.calibrations = {**(bundle.calibrations or {}), **undeployed}
    limits = {"speaker": HalfThreshold(2.5), "phrase": HalfThreshold(1.5)}
    points = {
        f"{key}|{UNDEPLOYED}": [
            OperatingPoint.from_halves(
                {view: limits[view] for view in key.split("+")}, far=0.01, basis="alone"
            )
        ]
        for key in QUESTIONS
    }
    bundle.points = {**(bundle.points or {}), **points}
    return bundle


@pytest.fixture
def place() -> Place:
    return make_place(21, size=0.2)


def test_the_enrolled_side_is_the_deployment(place: Place) -> None:
    bundle = paired_bundle()
    enrolled, tested = side(place.say(0, 0, 2)), side(place.say(0, 0, 1))
    decision = VoiceModel(bundle, Named()).verify(enrolled, tested)
    profile = bundle.enrol(enrolled.X, ["0", "0"])
    deployed = domain_bundle().deployed(profile)
    deployed.calibrations = dict.fromkeys(
        QUESTIONS, (bundle.calibrations or {})[f"speaker|{UNDEPLOYED}"]
    )
    answer = deployed.answer(profile, tested.X)
    assert decision.llr == pytest.approx(float(answer.llr[0, 0]), abs=1e-9)
    assert decision.calibrated
    assert decision.llrs["speaker"] == pytest.approx(float(answer.half_llr("speaker")[0, 0]))
    assert {view: half.accept for view, half in decision.halves.items()} == {
        "speaker": 2.5,
        "phrase": 1.5,
    }


def test_strangers_of_a_shifted_domain_look_less_alike(place: Place) -> None:
    """With the prior domain everybody in a new domain looks alike, see `test_default_model`."""
    bundle = domain_bundle()
    alone = copy(bundle)
    entries = {f"{key}|{UNDEPLOYED}": value for key, value in (bundle.calibrations or {}).items()}
    alone.calibrations = {**(bundle.calibrations or {}), **entries}
    prior, paired = VoiceModel(bundle, Named()), VoiceModel(alone, Named())
    question = Question("speaker")
    for person in range(8):
        enrolled = side(place.say(person, 0, 2))
        stranger = side(place.say(30 + person, 0, 1))
        llrs = [model.verify(enrolled, stranger, question).llr for model in (prior, paired)]
        assert llrs[1] < llrs[0]
        assert paired.verify(enrolled, side(place.say(person, 0)), question).llr > llrs[1]


def test_the_point_is_that_of_single_comparisons(place: Place) -> None:
    voices = VoiceModel(paired_bundle(), Named())
    enrolled = side(place.say(0, 0, 2))
    assert voices.point(enrolled).basis == "alone"
    assert voices.point(enrolled, Question("speaker")).threshold == 2.5
    assert voices.point(enrolled, threshold=7.0).threshold == 7.0


def test_deployments_have_no_points_of_single_comparisons(place: Place, tmp_path: Path) -> None:
    bundle = paired_bundle()
    book = ProfileBook(tmp_path / "voices.npz")
    for person in range(4):
        book.add(f"s{person}", "drawn", place.say(person, 0, 3), ["0", "1", "2"])
    deployed = VoiceModel(bundle, Named()).deployed(book)
    assert set(deployed.bundle.points or {}) == set(QUESTIONS)
    assert deployed.point(book.of("s1")).basis == "drawn"
    decision = deployed.verify(book.of("s1"), side(place.say(1, 0)))
    assert not decision.halves
    X = np.concatenate([place.say(person, 0, 2) for person in range(24)])
    speakers = np.repeat([f"s{person}" for person in range(24)], 2)
    adapted = deploy_on_speakers(bundle, X, {"speaker": speakers})
    assert set(adapted.points or {}) == set(adapted.calibrations or {}) == set(QUESTIONS)


def test_files_keep_single_comparisons(place: Place, tmp_path: Path) -> None:
    bundle = paired_bundle()
    bundle.save(tmp_path / "model.safetensors")
    loaded = Bundle.load(tmp_path / "model.safetensors")
    assert loaded.points == bundle.points
    enrolled, tested = side(place.say(0, 0, 1)), side(place.say(1, 0, 1))
    decisions = [VoiceModel(model, Named()).verify(enrolled, tested) for model in (bundle, loaded)]
    assert decisions[0] == decisions[1]


def test_without_keys_of_its_own_a_comparison_uses_the_model_as_it_is(place: Place) -> None:
    bundle = domain_bundle()
    profile = bundle.enrol(place.say(0, 0, 1))
    assert bundle.paired(profile) is bundle


def test_too_little_evidence_asks_for_more_of_what_is_missing(place: Place) -> None:
    voices = VoiceModel(paired_bundle(), Named())

    def advice(count: int, speech_s: float, test_s: float, threshold: float = 50.0) -> str | None:
        enrolled = side(place.say(0, 0, count), speech_s)
        test = side(place.say(0, 0, 1), test_s)
        decision = voices.verify(enrolled, test, threshold=threshold)
        assert decision.to_dict()["advice"] == decision.advice
        assert (decision.reason == "not_enough_evidence") == (threshold == 50.0)
        return decision.advice

    wanted = "3 recordings of 2 s or more, and a test as long, usually suffice"
    assert advice(1, 0.6, 0.7) == (
        f"The enrolled side has 1 recording with 0.6 s of speech, the tested side 0.7 s; {wanted}: add another "
        "recording of this person, or use a longer phrase."
    )
    two = advice(2, 2.5, 2.1)
    assert two is not None
    assert two.startswith("The enrolled side has 2 recordings with 5.0 s of speech, the tested")
    assert two.endswith("suffice: add another recording of this person.")
    three = advice(3, 2.5, 0.8)
    assert three is not None
    assert three.endswith("suffice: use a longer phrase.")
    assert advice(3, 2.5, 2.5) is None
    # an accepted test needs no advice
    assert advice(1, 0.6, 0.6, threshold=0.0) is None
