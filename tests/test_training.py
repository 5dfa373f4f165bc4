"""Operating points: the stored figures are those of the stored threshold, by kind of trial."""

from __future__ import annotations

import warnings
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from domain_problems import domain_bundle, make_place

import mvplda
from mvplda.decisions import OperatingPoint, point_for
from mvplda.exceptions import LabelError
from mvplda.model_files import load_model
from mvplda.models import find_scorers
from mvplda.training import COMMITTEE, FARS, deploy_on_speakers, train
from mvplda.training.held_out import HeldOutModels
from mvplda.voice.default_model import DEFAULT_MODEL
from mvplda.voice.setup import setup_vectors
from mvplda.voice.setup_report import point_sentence

PEOPLE, PHRASES, TAKES, WIDTH = 12, 3, 3, 8
OURS = [name for name, kind in find_scorers().items() if kind.__module__.startswith("mvplda.")]
"""Other tests may have entered scorers of theirs."""


def drawn() -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Vectors of people who say phrases, so far apart that the thresholds of many shares are below 0."""
    rng = np.random.default_rng(4)
    speaker, phrase, _ = (grid.ravel() for grid in np.indices((PEOPLE, PHRASES, TAKES)))
    X = 3.0 * rng.normal(size=(PEOPLE, WIDTH))[speaker]
    X += 1.5 * rng.normal(size=(PHRASES, WIDTH))[phrase]
    X += 0.4 * rng.normal(size=X.shape)
    return X, {"speaker": speaker.astype(str), "phrase": phrase.astype(str)}


def names_of_differences(held: HeldOutModels) -> np.ndarray:
    """TC, TW, IC or IW by the labels of both sides; target or nontarget where there is one view."""
    names = []
    for trials in held.trials:
        enrolled, tested = trials.pairs.T
        same = [
            column[trials.profiles][enrolled] == column[trials.test][tested]
            for column in held.labels.values()
        ]
        if len(same) == 1:
            names.append(np.where(same[0], "target", "nontarget"))
        else:
            speaker, phrase = same
            names.append(np.char.add(np.where(speaker, "T", "I"), np.where(phrase, "C", "W")))
    return np.concatenate(names)


Call = tuple[HeldOutModels, dict[str, Any], dict[str, list[OperatingPoint]]]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Call]:
    """The held-out trials and the points of every measurement."""
    noted: list[Call] = []
    measure = HeldOutModels.measure

    def measured(held: HeldOutModels, scores: dict[str, Any], fars: Any) -> Any:
        points, card = measure(held, scores, fars)
        noted.append((held, scores, points))
        return points, card

    monkeypatch.setattr(HeldOutModels, "measure", measured)
    return noted


def check_halves(point: OperatingPoint, kinds: np.ndarray, halves: dict[str, np.ndarray]) -> None:
    """Compare the figures of each half with the trials in which only its view may differ."""
    for view, impostors in (("speaker", "IC"), ("phrase", "TW")):
        half = point.halves[view]
        accepted = halves[view] >= half.accept
        measured = half.measured
        assert measured is not None
        assert set(measured["far"]) == {impostors}
        assert measured["far"][impostors][0] == pytest.approx(np.mean(accepted[kinds == impostors]))
        assert measured["far"][impostors][0] <= (point.far or 0.0) + 1e-12
        assert measured["frr"][0] == pytest.approx(np.mean(~accepted[kinds == "TC"]))


def check_points(calls: list[Call]) -> int:
    """Compare every stored figure with the held-out trials; return how many points lie at 0."""
    at_zero = 0
    for held, scores, points in calls:
        kinds = names_of_differences(held)
        targets = {
            ("speaker", "phrase"): ["TC", "target"],
            ("speaker",): ["TC", "TW", "target"],
            ("phrase",): ["TC", "IC"],
        }
        assert set(points) == set(scores)
        for key, (same, _, halves) in scores.items():
            is_target = np.isin(kinds, targets[same])
            assert points[key]
            limits = [
                (point.threshold, *(half.accept for half in point.halves.values()))
                for point in points[key]
            ]
            assert len(set(limits)) == len(limits)
            for point in points[key]:
                assert point.measured is not None
                assert point.far is not None
                assert list(point.halves) == list(same)
                accepted = np.logical_and.reduce(
                    [halves[view] >= half.accept for view, half in point.halves.items()]
                )
                if len(same) > 1:
                    check_halves(point, kinds, halves)
                else:
                    assert point.halves[same[0]].measured == point.measured
                frr = point.measured["frr"][0]
                assert frr == pytest.approx(np.mean(~accepted[is_target]))
                assert set(point.measured["far"]) == set(kinds[~is_target].tolist())
                for kind, (estimate, low, high) in point.measured["far"].items():
                    assert estimate == pytest.approx(np.mean(accepted[kinds == kind]))
                    assert low <= estimate <= high
                    assert estimate <= point.far + 1e-12
                lowest = min(
                    (half.accept for half in point.halves.values()), default=point.threshold
                )
                at_zero += lowest == 0
            strictest = min(point.far or 1.0 for point in points[key])
            for far in (0.3, *FARS):
                if far >= strictest:
                    asked = point_for(points[key], far=far)
                    assert asked in points[key]
                    assert asked.far is not None
                    assert asked.far <= far
    return at_zero


@pytest.mark.parametrize("model", [COMMITTEE, *OURS])
def test_stored_rates_are_those_at_the_stored_threshold(model: str, calls: list[Call]) -> None:
    X, labels = drawn()
    if model == "plda":
        labels = {"speaker": labels["speaker"]}
    bundle = train(X, labels, model=model, folds=2)
    assert bundle.points == calls[-1][2]
    assert check_points(calls) > 0


def test_rates_of_the_deployed_default_model_are_those_at_the_threshold(
    calls: list[Call],
) -> None:
    place = make_place(23, size=0.2)
    cells = [(who, what) for who in range(24) for what in range(3)]
    X = np.concatenate([place.say(who, what, 2) for who, what in cells])
    speaker, phrase = np.repeat(cells, 2, axis=0).T.astype(str)
    deployed = deploy_on_speakers(domain_bundle(), X, {"speaker": speaker, "phrase": phrase})
    assert set(calls[-1][2]) <= set(deployed.points or {})
    assert check_points(calls) > 0


def test_a_point_with_fewer_errors_than_were_asked_for_says_so() -> None:
    """Where the threshold for a share is below 0, the report has the share at 0, the threshold in use."""
    made = setup_vectors(*drawn(), far=0.3)
    key = "speaker+phrase"
    point = made.bundle.operating_points()[0]
    assert point.measured is not None
    assert point.threshold == 0
    worst = max(rates[0] for rates in point.measured["far"].values())
    sentence = point_sentence(key, point, 0.3)
    assert sentence in made.report
    assert f"already {100 * worst:.2g} % (30 % requested)" in sentence
    strict = next(one for one in made.bundle.operating_points() if one.threshold > 0)
    assert strict.far is not None
    assert f"for {100 * strict.far:g} % false" in point_sentence(key, strict, strict.far)


SHIPPED = {
    "default": DEFAULT_MODEL,
    "demonstration": Path(mvplda.__file__).parent / "serve" / "models" / "small.safetensors",
}


@pytest.mark.parametrize("name", SHIPPED)
def test_figures_of_shipped_models_follow_their_thresholds(name: str) -> None:
    """Where a higher threshold has as many errors of either kind, one of the figures is of another threshold."""
    points_of = load_model(SHIPPED[name]).points
    assert points_of
    for points in points_of.values():
        rising = sorted(points, key=lambda point: point.threshold)
        for point in rising:
            assert point.measured is not None
            assert set(point.measured["far"]) <= {"TW", "IC", "IW"}
        for low, high in pairwise(rising):
            assert low.threshold < high.threshold
            assert (low.far or 0) > (high.far or 0)
            assert low.measured is not None
            assert high.measured is not None
            assert low.measured["frr"][0] <= high.measured["frr"][0]
            for kind, (estimate, *_) in low.measured["far"].items():
                assert estimate >= high.measured["far"][kind][0]


def test_rates_of_the_demonstration_at_zero_are_not_those_of_a_lower_threshold() -> None:
    """Of 3,584 TW trials 65 are accepted at 0; 179, 5 %, are at the threshold for 5 %, which is below."""
    point = load_model(SHIPPED["demonstration"]).point(far=0.05)
    assert point.threshold == 0
    assert point.measured is not None
    assert point.measured["far"]["TW"][0] == pytest.approx(65 / 3584)


def test_an_error_on_held_out_people_leaves_the_filters_of_warnings_as_they_were() -> None:
    X, labels = drawn()

    def fit(vectors: np.ndarray, columns: dict[str, np.ndarray]) -> mvplda.Bundle:
        return mvplda.Bundle(None, mvplda.CosineScorer()).fit(vectors, columns)

    held = HeldOutModels(fit, X, labels, 1, 2)
    before = list(warnings.filters)
    with pytest.raises(LabelError, match="has no known classes") as error:
        held.evidence(("phrase",))
    assert error.traceback
    assert warnings.filters == before


def test_held_out_models_keep_no_covariances_of_speakers() -> None:
    X, labels = drawn()

    def fit(vectors: np.ndarray, columns: dict[str, np.ndarray]) -> mvplda.Bundle:
        model = mvplda.MultiviewPLDA({"speaker": 2, "phrase": 1}, max_iter=1, tol=0)
        return mvplda.Bundle(None, model).fit(vectors, columns)

    held = HeldOutModels(fit, X, labels, 1, 2)
    evidence = held.evidence(("phrase",))
    for model in held.models:
        assert list(model.fitted_scorer.class_covariances_) == ["phrase"]
    again = held.evidence(("phrase",))
    for hypothesis, logs in evidence.logs.items():
        np.testing.assert_array_equal(again.logs[hypothesis], logs)


@pytest.mark.parametrize("model", [COMMITTEE, "cosine", "multiview"])
def test_a_model_trained_on_a_table_refuses_its_columns_in_another_order(model):
    pandas = pytest.importorskip("pandas")
    X, labels, _ = mvplda.make_two_views(20, 5, 5, 6, (2, 2), held_out=2, random_state=0)
    table = pandas.DataFrame(X, columns=list("abcdef"))
    bundle = train(table, labels, model=model, folds=0)
    assert np.isfinite(bundle.llr(table[:2], table[2:4])).all()
    with pytest.raises(mvplda.MvpldaError, match="feature names"):
        bundle.llr(table[:2], table[2:4][list("fedcba")])
