"""The default model in a domain of its own: for files of profiles, for identification and for setup."""

from __future__ import annotations

from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from domain_problems import VOICE, WORDS, domain_bundle, make_place

from mvplda import load
from mvplda.decisions import (
    HalfThreshold,
    OperatingPoint,
    name_among,
    naming_point,
    without_outliers,
)
from mvplda.exceptions import ParameterError
from mvplda.scoring.question import Question
from mvplda.training import deploy_on_speakers
from mvplda.voice import default_model
from mvplda.voice.extractors.extractor import ExtractedVectors
from mvplda.voice.profile_file import ProfileBook
from mvplda.voice.setup import setup_vectors
from mvplda.voice.verification import VoiceModel


class Named:
    """An extractor by its name alone."""

    name = "drawn"
    dimension = VOICE + WORDS


@pytest.fixture
def default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "default.safetensors"
    domain_bundle().save(path)
    monkeypatch.setattr(default_model, "DEFAULT_MODEL", path)
    return path


def side(X: np.ndarray) -> ExtractedVectors:
    return ExtractedVectors(X.astype(np.float32), list(range(len(X))), [], [])


def people(place: Any, count: int, phrases: int = 3, takes: int = 3) -> tuple[np.ndarray, dict]:
    rows = [(who, what) for who in range(count) for what in range(phrases)]
    X = np.concatenate([place.say(who, what, takes) for who, what in rows])
    labels = {
        "speaker": np.array([f"s{who}" for who, _ in rows for _ in range(takes)]),
        "phrase": np.array([f"p{what}" for _, what in rows for _ in range(takes)]),
    }
    return X, labels


def test_extractors_that_are_not_fetched_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MVPLDA_CACHE", str(tmp_path))
    with pytest.raises(ParameterError, match="mvplda extractor get"):
        VoiceModel.load()


def test_a_file_of_profiles_tells_the_domain(default: Path, tmp_path: Path) -> None:
    place = make_place(21, size=0.2)
    book = ProfileBook(tmp_path / "voices.npz")
    for person in range(8):
        book.add(f"s{person}", "drawn", place.say(person, 0, 3), [f"{i}" for i in range(3)])
    bundle = default_model.default_bundle("drawn")
    assert bundle is not None
    model = VoiceModel(bundle, Named())
    here = model.deployed(book)
    accepted = {"prior": 0, "deployed": 0}
    for person in range(8):
        stranger = side(place.say(30 + person, 0, 1))
        for title, one in (("prior", model), ("deployed", here)):
            decision = one.verify(book.of(f"s{person}"), stranger, Question("speaker"))
            accepted[title] += decision.answer == "accept"
        own = here.verify(book.of(f"s{person}"), side(place.say(person, 0, 1)), Question("speaker"))
        assert own.answer == "accept"
        found = model.identify(side(place.say(30 + person, 1, 1)), book)
        assert found.profile is None
        assert found.answer != "accept"
        found = model.identify(side(place.say(person, 1, 1)), book)
        assert found.profile in (None, f"s{person}")
        assert found.none + sum(p for _, _, p in found.candidates) == pytest.approx(1)
    assert accepted["deployed"] == 0
    assert accepted["prior"] > 0
    # other vectors than those that it takes
    assert default_model.default_bundle("other") is None


def test_a_caller_of_identify_chooses_the_point(default: Path, tmp_path: Path) -> None:
    place = make_place(21, size=0.2)
    book = ProfileBook(tmp_path / "voices.npz")
    for person in range(4):
        book.add(f"s{person}", "drawn", place.say(person, 0, 3), ["0", "1", "2"])
    bundle = copy(domain_bundle())
    limits = {0.01: 4.0, 0.05: 1.0, 0.02: 3.0, 0.005: 5.0, 0.001: 8.0}
    bundle.points = {
        "speaker": [
            OperatingPoint.from_halves({"speaker": HalfThreshold(threshold)}, far=far)
            for far, threshold in limits.items()
        ]
    }
    model = VoiceModel(bundle, Named())
    test = side(place.say(1, 1, 1))
    # each of four profiles may accept a quarter of the strangers that may be named
    quarters = {0.05: 4.0, 0.02: 5.0, 0.01: 8.0, 0.001: 8.0 + np.log(4)}
    for far, threshold in quarters.items():
        point = model.identify(test, book, far=far).point
        assert point.threshold == pytest.approx(threshold)
        assert point.halves["speaker"].accept == pytest.approx(threshold)
    given = model.identify(test, book, threshold=6.5).point
    d = bundle.outlier_probability(Question("speaker"))
    assert given.threshold == pytest.approx(without_outliers(np.array(6.5), d) + np.log(4))
    # 2 %, where the caller chooses nothing
    assert model.identify(test, book).point.threshold == 5.0
    found = model.identify(test, book)
    llr = found.candidates[0][1]
    assert found.profile == "s1"
    assert model.identify(test, book, threshold=llr + 0.1).profile is None
    with pytest.raises(ParameterError, match="cannot promise"):
        model.identify(test, book, far=1e-4)


def test_the_doubt_of_the_calibration_enters_a_ranking_once(default: Path, tmp_path: Path) -> None:
    place = make_place(21, size=0.2)
    book = ProfileBook(tmp_path / "voices.npz")
    for person in range(4):
        book.add(f"s{person}", "drawn", place.say(person, 0, 3), ["0", "1", "2"])
    bundle = copy(domain_bundle())
    doubtful = copy((bundle.calibrations or {})["speaker"])
    doubtful.outlier_probability_ = 0.2
    bundle.calibrations = {"speaker": doubtful}
    found = VoiceModel(bundle, Named()).identify(side(place.say(1, 1, 1)), book)
    llrs = [llr for _, llr, _ in found.candidates]
    expected = name_among(llrs, found.point, outlier_probability=0.2)
    assert [p for *_, p in found.candidates] == pytest.approx(expected.probabilities.tolist())
    assert found.none == pytest.approx(expected.none)
    assert found.none > 0.09  # half of the doubt


def test_points_hold_for_what_they_were_measured_for() -> None:
    bundle = copy(domain_bundle())
    assert bundle.point().basis == "drawn"
    # no errors were measured with a countermeasure
    assert bundle.point(Question(countermeasure=1.0)).basis != "drawn"
    bundle.points = {}
    largest = bundle.calibrations["speaker+phrase"].largest_llr
    assert bundle.point(far=1.1 * np.exp(-largest)).threshold < largest
    with pytest.raises(ParameterError, match="cannot promise"):
        bundle.point(far=0.9 * np.exp(-largest))


def test_more_profiles_want_more_evidence() -> None:
    point, point_of_four = (naming_point([OperatingPoint(3.0)], count) for count in (1, 4))
    assert name_among([3.5], point).best == 0
    assert name_among([3.5, -9, -9, -9], point_of_four).best is None
    assert name_among([4.5, -9, -9, -9], point_of_four).best == 0
    # two that fit alike are not named
    assert name_among([6.0, 6.0], point).best is None
    assert name_among([], point).best is None


def test_doubt_is_about_the_recording_and_not_about_each_profile() -> None:
    """However many profiles there are, somebody whose voice fits can be named."""
    outlier_probability = 0.05
    true = np.array([15.0, *[-5.0] * 500])
    mixed = (1 - outlier_probability) / (1 + np.exp(-true)) + outlier_probability / 2
    limited = np.log(mixed) - np.log1p(-mixed)
    assert limited.max() < 3.7
    np.testing.assert_allclose(without_outliers(limited, outlier_probability), true, atol=1e-6)
    point = naming_point([], 501, threshold=2.0, outlier_probability=outlier_probability)
    assert name_among(limited, point).best is None
    naming = name_among(true, point, outlier_probability=outlier_probability)
    assert naming.best == 0
    # what is left of nobody is the doubt's half, and what the evidence leaves
    assert naming.none == pytest.approx(outlier_probability / 2, abs=1e-3)
    assert naming.none + naming.probabilities.sum() == pytest.approx(1)


def test_few_people_get_the_default_model_in_their_domain(default: Path, tmp_path: Path) -> None:
    place = make_place(22, size=0.2)
    X, labels = people(place, 4)
    made = setup_vectors(X, labels, name="drawn")
    assert "4 people are too few to train a model" in made.report
    assert "Chosen: the default model, adapted to their recordings." in made.report
    made.save(tmp_path / "voices")
    again = load(tmp_path / "voices" / "model.safetensors")
    assert again.operating_points()[0].threshold == 4.6
    # where nothing is enrolled, the domain of these people is that of the model
    enrolled = again.enrol(X[:3], ["s0"] * 3)
    llrs = again.answer(enrolled, place.say(30, 0, 20), Question("speaker")).llr
    before = domain_bundle().answer(
        domain_bundle().enrol(X[:3], ["s0"] * 3), place.say(30, 0, 20), Question("speaker")
    )
    assert llrs.mean() < before.llr.mean() - 1


def test_a_profile_without_names_of_phrases_claims_none() -> None:
    """A deployment uses names of phrases for profiles that have names, and for no other."""
    place = make_place(22, size=0.2)
    X, labels = people(place, 4)
    plain = domain_bundle()
    named = plain.enrol(X, labels["speaker"], {"phrase": labels["phrase"]})
    unnamed = plain.enrol(X, labels["speaker"])
    missing = plain.enrol(X, labels["speaker"], {"phrase": np.array([None] * len(X))})
    bundle = plain.deployed(named)
    key = "speaker+phrase|phrase known"
    calibrations = dict(plain.calibrations or {})
    known = copy(calibrations["speaker+phrase"])
    known.outlier_probability_ = 0.25
    bundle.calibrations = {**calibrations, key: known}
    bundle.points = {key: [OperatingPoint(1.0)], "speaker+phrase": [OperatingPoint(4.0)]}
    tests = place.say(1, 1, 2)
    for profiles, threshold, outlier_probability in (
        (named, 1.0, 0.25),
        (unnamed, 4.0, 1e-5),
        (missing, 4.0, 1e-5),
    ):
        question = bundle.informed(None, profiles)
        assert bundle.point(None, profiles).threshold == threshold
        assert bundle.outlier_probability(question) == outlier_probability
        answer = bundle.answer(profiles, tests)
        assert answer.calibrated
        assert (answer.key == key) == (threshold == 1.0)
    # a question without a calibration of its own has no doubt, and an answer that is not calibrated
    bundle.calibrations = {}
    assert bundle.outlier_probability() == 0.0
    assert not bundle.answer(unnamed, tests).calibrated


def test_what_cannot_be_promised_is_not_replaced_silently(default: Path) -> None:
    X, labels = people(make_place(22, size=0.2), 4)
    made = setup_vectors(X, labels, name="drawn", far=1e-4)
    strictest = min(point.far for point in domain_bundle().operating_points())
    assert made.bundle.operating_points()[0].far == strictest
    assert "cannot guarantee 0.01 % false acceptances" in made.report
    usual = setup_vectors(X, labels, name="drawn", far=strictest)
    assert "cannot guarantee" not in usual.report


def test_one_phrase_that_all_say_keeps_its_name(default: Path) -> None:
    X, labels = people(make_place(26, size=0.2), 4, phrases=1)
    made = setup_vectors(X, labels, name="drawn")
    assert "Fewer than two phrases are labelled" in made.report
    assert list(made.phrases) == [str(name) for name in labels["phrase"]]
    unnamed = setup_vectors(X, {"speaker": labels["speaker"]}, name="drawn")
    assert set(unnamed.phrases) == {""}


def test_thresholds_are_those_of_people_who_are_enough() -> None:
    place = make_place(23, size=0.2)
    few = deploy_on_speakers(domain_bundle(), *people(place, 12))
    assert few.operating_points()[0].basis == "drawn"
    assert few.card is not None
    assert few.card["held_out"]["errors"]["speaker+phrase"]["cllr"] < 0.2
    many = deploy_on_speakers(domain_bundle(), *people(place, 24, takes=2))
    assert many.operating_points()[0].people == 24
    assert many.operating_points(Question("speaker"))[0].far == 0.01


def test_phrases_that_one_person_alone_says_are_no_obstacle(default: Path) -> None:
    X, labels = people(make_place(25, size=0.2), 12, phrases=2, takes=2)
    pairs = zip(labels["speaker"], labels["phrase"], strict=True)
    labels["phrase"] = np.array([f"{who} {what}" for who, what in pairs])
    made = setup_vectors(X, labels, name="drawn", blocks={"voice": VOICE, "words": WORDS})
    assert "Chosen: " in made.report


@pytest.mark.slow
def test_setup_keeps_the_better(default: Path) -> None:
    X, labels = people(make_place(24, size=0.2), 12)
    made = setup_vectors(X, labels, name="drawn", blocks={"voice": VOICE, "words": WORDS})
    lines = made.report.splitlines()
    assert any("Chosen: " in line for line in lines)
    rows = [line for line in lines if "EER of the worst kind" in line]
    assert len(rows) == 3
