"""Error rates against counting by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from mvplda.exceptions import DataError
from mvplda.metrics import ScoreCurve, cllr, eer, evaluate, trial_kinds
from mvplda.metrics.curves import min_cllr

scores = st.lists(st.integers(-4, 4).map(float), min_size=1, max_size=12)


def roc_points(targets, nontargets):
    thresholds = np.unique(np.concatenate([targets, nontargets]))
    points = [(0.0, 1.0)] + [
        (float(np.mean(np.asarray(targets) <= t)), float(np.mean(np.asarray(nontargets) > t)))
        for t in thresholds
    ]
    return np.array(points)


@given(scores, scores)
@settings(deadline=None, max_examples=60)
def test_eer_is_where_the_lower_hull_meets_the_diagonal(targets, nontargets):
    """min over mixtures of two thresholds of max(miss, false alarm), by brute force."""
    points = roc_points(targets, nontargets)
    best = 1.0
    for a in points:
        for b in points:
            gap_a, gap_b = a[0] - a[1], b[0] - b[1]
            shares = {0.0, 1.0} | ({gap_a / (gap_a - gap_b)} if gap_a != gap_b else set())
            for share in shares:
                if 0 <= share <= 1:
                    best = min(best, max((1 - share) * a + share * b))
    assert eer(targets, nontargets) == pytest.approx(best, abs=1e-12)


@given(scores, scores)
@settings(deadline=None, max_examples=40)
def test_hull_is_convex_and_below_every_threshold(targets, nontargets):
    hull = ScoreCurve(targets, nontargets).hull
    miss, false_alarm = hull.miss, hull.false_alarm
    steps = np.diff(np.stack([miss, false_alarm]), axis=1)
    points = roc_points(targets, nontargets)
    for corner in zip(miss, false_alarm, strict=True):
        assert np.abs(points - corner).max(axis=1).min() <= 1e-12
    for m, f in points:  # on no edge's lower side
        assert (steps[0] * (f - false_alarm[:-1]) - steps[1] * (m - miss[:-1]) >= -1e-12).all()
    turns = steps[0, :-1] * steps[1, 1:] - steps[1, :-1] * steps[0, 1:]
    assert (turns >= -1e-12).all()


def test_separable_equal_and_reversed_scores():
    assert eer([1, 2], [-1, 0]) == 0.0
    assert eer([1, 1], [1, 1]) == pytest.approx(0.5)
    assert eer([-1], [1]) == pytest.approx(0.5)


def test_cllr_by_its_definition_and_its_least_value():
    rng = np.random.default_rng(0)
    targets, nontargets = rng.normal(1, 1, 60), rng.normal(-1, 1, 90)
    by_hand = np.mean(np.log2(1 + np.exp(-targets))) + np.mean(np.log2(1 + np.exp(nontargets)))
    assert cllr(targets, nontargets) == pytest.approx(by_hand / 2)
    assert cllr([0.0], [0.0]) == pytest.approx(1.0)
    least = min_cllr(targets, nontargets)

    def cost(w: np.ndarray) -> float:
        return cllr(np.exp(w[0]) * targets + w[1], np.exp(w[0]) * nontargets + w[1])

    linear = minimize(cost, [0.0, 0.0])
    assert 0 < least <= linear.fun
    assert min_cllr(3 * targets + 5, 3 * nontargets + 5) == pytest.approx(least)


def test_kinds_of_trials():
    kinds = trial_kinds(
        {"speaker": [1, 2], "phrase": ["a", "a"]}, {"speaker": [1, 1, 2], "phrase": ["a", "b", "b"]}
    )
    assert kinds["TC"].tolist() == [[True, False, False], [False, False, False]]
    assert kinds["TW"].tolist() == [[False, True, False], [False, False, True]]
    assert kinds["IC"].tolist() == [[False, False, False], [True, False, False]]
    assert kinds["IW"].tolist() == [[False, False, True], [False, True, False]]
    table = evaluate(np.array([[3.0, 1, 0], [2, 0, 1]]), kinds)
    assert {kind: row["eer"] for kind, row in table.rows.items()} == {
        "IW": 0.0,
        "IC": 0.0,
        "TW": 0.0,
        "Total": 0.0,
    }


def test_empty_and_nan_scores_are_errors():
    with pytest.raises(DataError, match="no target"):
        eer([], [1.0])
    with pytest.raises(DataError, match="1 non-target score"):
        cllr([1.0], [np.nan, 0.0])


def _calibrated(
    rng: np.random.Generator, separation: float, targets: int, others: int
) -> np.ndarray:
    """LLRs of two Gaussians of one variance, which are calibrated: the LLR of an LLR is itself."""
    mean = np.repeat([separation / 2, -separation / 2], [targets, others])
    return rng.normal(mean, np.sqrt(separation))


@pytest.mark.parametrize("separation", [2.0, 6.0, 12.0])
@pytest.mark.parametrize(("targets", "others"), [(10, 20), (30, 200), (300, 3000)])
def test_calibrated_scores_are_not_called_uncalibrated(separation, targets, others):
    rng = np.random.default_rng(0)
    kinds = np.repeat([True, False], [targets, others])
    called = [
        evaluate(_calibrated(rng, separation, targets, others), kinds).uncalibrated() != ""
        for _ in range(200)
    ]
    assert np.mean(called) <= 0.02


def test_scores_that_are_not_calibrated_are_called_so():
    rng = np.random.default_rng(0)
    llrs = _calibrated(rng, 12.0, 300, 3000)
    kinds = np.repeat([True, False], [300, 3000])
    assert evaluate(llrs / 5, kinds).uncalibrated()
    assert evaluate(llrs + 8, kinds).uncalibrated()
    # of few trials, what is plain
    few = _calibrated(rng, 12.0, 10, 20)
    assert evaluate(few + 12, np.repeat([True, False], [10, 20])).uncalibrated()
