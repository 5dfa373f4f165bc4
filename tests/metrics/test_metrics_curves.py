"""Curves and costs against counting by hand, and against scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from evaluation_problems import act_dcf, min_dcf, weighted_curve
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit
from sklearn.metrics import det_curve, roc_curve

from mvplda.costs import PRESETS, DetectionCost, detection_cost, detection_costs
from mvplda.exceptions import DataError, ParameterError
from mvplda.metrics import ScoreCurve, cllr, eer
from mvplda.metrics.catalogue import MinDCF
from mvplda.metrics.curves import count_below, min_cllr

tied_scores = st.lists(st.integers(-4, 4).map(float), min_size=1, max_size=14)


def draw(seed=0, n=400, m=900, decimals=None):
    rng = np.random.default_rng(seed)
    targets, nontargets = rng.normal(2, 2, n), rng.normal(-2, 2, m)
    return (
        (targets, nontargets)
        if decimals is None
        else (targets.round(decimals), nontargets.round(decimals))
    )


def rates_by_counting(targets, nontargets, threshold):
    return np.mean(np.asarray(targets) < threshold), np.mean(np.asarray(nontargets) >= threshold)


def all_thresholds(targets, nontargets):
    return [*np.unique(np.concatenate([targets, nontargets])), np.inf]


def test_by_hand_with_ties():
    """Targets 1 2 2 3, non-targets 0 1 2 0: shares of targets by score 0/2, 1/2, 2/3, 1/1 already rise.

    Corners (miss, false alarm): (0, 1), (0, 1/2), (1/4, 1/4), (3/4, 0), (1, 0).
    """
    hull = ScoreCurve([1, 2, 2, 3], [0, 1, 2, 0]).hull
    miss, false_alarm = hull.miss, hull.false_alarm
    assert miss.tolist() == [0, 0, 0.25, 0.75, 1]
    assert false_alarm.tolist() == [1, 0.5, 0.25, 0, 0]
    assert eer([1, 2, 2, 3], [0, 1, 2, 0]) == 0.25
    pools = [(1 / 4, 1 / 4), (1 / 2, 1 / 4)]  # shares of targets and non-targets in the mixed pools
    by_hand = sum(m * np.log2(1 + f / m) + f * np.log2(1 + m / f) for m, f in pools)
    assert min_cllr([1, 2, 2, 3], [0, 1, 2, 0]) == pytest.approx(by_hand / 2)
    # (1, 1, 0.01): misses weigh 1, false alarms 99; the best is to reject below 3
    assert min_dcf([1, 2, 2, 3], [0, 1, 2, 0]) == pytest.approx(0.75)
    # prior 1/2: miss + false alarm, 1/2 at two corners
    assert min_dcf([1, 2, 2, 3], [0, 1, 2, 0], DetectionCost("even", 0.5)) == pytest.approx(0.5)


@given(tied_scores, tied_scores)
@settings(deadline=None, max_examples=80)
def test_min_dcf_by_trying_every_threshold(targets, nontargets):
    for cost in (
        PRESETS["default"],
        DetectionCost("even", 0.5),
        DetectionCost("dear misses", 0.3, 20, 1),
    ):
        costs = [
            cost.at(*rates_by_counting(targets, nontargets, t))
            for t in all_thresholds(targets, nontargets)
        ]
        curve = ScoreCurve(targets, nontargets)
        least = MinDCF(cost).value(curve)
        assert least == pytest.approx(min(costs), abs=1e-12)
        assert least <= 1 + 1e-12


@given(tied_scores, tied_scores, tied_scores)
@settings(deadline=None, max_examples=60)
def test_weighted_kinds_are_repeated_trials(targets, first, second):
    weighted = weighted_curve(targets, {"a": first, "b": second}, {"a": 3.0, "b": 2.0})
    repeated = ScoreCurve(targets, [*first * 3, *second * 2])
    assert weighted.eer() == pytest.approx(repeated.eer(), abs=1e-12)
    assert weighted.min_cllr() == pytest.approx(repeated.min_cllr(), abs=1e-12)
    assert weighted.cllr() == pytest.approx(repeated.cllr())
    assert weighted.rates([0.0, 1.5])[1] == pytest.approx(repeated.rates([0.0, 1.5])[1])


@pytest.mark.parametrize("decimals", [None, 1])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_curve_is_that_of_scikit_learn(decimals, dtype):
    targets, nontargets = (a.astype(dtype) for a in draw(decimals=decimals))
    labels = np.repeat([1, 0], [len(targets), len(nontargets)])
    scores = np.concatenate([targets, nontargets])
    curve = ScoreCurve(targets, nontargets)
    false_alarm, hit, thresholds = roc_curve(labels, scores, drop_intermediate=False)
    mine = curve.steps(max_points=None)
    np.testing.assert_allclose(mine[0][::-1], thresholds)
    np.testing.assert_allclose(mine[1][::-1], 1 - hit, atol=1e-12)
    np.testing.assert_allclose(mine[2][::-1], false_alarm, atol=1e-12)
    false_alarm, miss, thresholds = det_curve(labels, scores)
    np.testing.assert_allclose(curve.rates(thresholds), [miss, false_alarm], atol=1e-12)
    # the EER of the raw curve is never below that of the hull, and close
    raw = np.min(np.maximum(miss, false_alarm))
    assert curve.eer() <= raw + 1e-12
    assert raw - curve.eer() < 0.02
    # every corner of the hull is a point of the raw curve
    points = {(round(m, 9), round(f, 9)) for m, f in zip(mine[1], mine[2], strict=True)}
    corners = zip(curve.hull.miss, curve.hull.false_alarm, strict=True)
    assert {(round(float(m), 9), round(float(f), 9)) for m, f in corners} <= points


def test_thinned_steps_are_points_of_the_curve():
    curve = ScoreCurve(*draw(n=3000, m=5000))
    thresholds, miss, false_alarm = curve.steps(max_points=200)
    assert 50 < len(thresholds) <= 210
    np.testing.assert_array_equal(curve.rates(thresholds[:-1]), [miss[:-1], false_alarm[:-1]])
    assert (miss[0], false_alarm[0], miss[-1], false_alarm[-1]) == (0, 1, 1, 0)


def test_float64_thresholds_meet_float32_scores_exactly():
    scores = np.sort(np.array([0.1, 0.1, 0.2, 0.3, 3e38], dtype=np.float32))
    for side, below in (("left", np.less), ("right", np.less_equal)):
        for t in (
            0.1,
            float(np.float32(0.1)),
            0.2,
            0.3,
            np.nextafter(float(np.float32(0.3)), 1),
            1e300,
            -1e300,
        ):
            assert count_below(scores, t, side) == below(scores.astype(np.float64), t).sum()


def test_inputs_are_neither_changed_nor_widened():
    targets, nontargets = (a.astype(np.float32) for a in draw())
    before = targets.copy()
    curve = ScoreCurve(targets, nontargets)
    assert curve.targets.scores.dtype == curve.others.scores.dtype == np.float32
    np.testing.assert_array_equal(targets, before)
    assert curve.eer() == pytest.approx(eer(targets.astype(float), nontargets.astype(float)))
    assert curve.cllr() == pytest.approx(cllr(targets.astype(float), nontargets.astype(float)))


def test_infinite_scores_have_an_order_and_a_price():
    assert eer([np.inf, 1.0], [-np.inf, 0.0]) == 0
    assert cllr([np.inf], [-np.inf]) == 0
    assert cllr([-np.inf], [0.0]) == np.inf
    thresholds, miss, false_alarm = ScoreCurve([np.inf, 1.0], [-np.inf, np.inf]).steps()
    assert (thresholds[-1], miss[-1], false_alarm[-1]) == (np.inf, 1, 0)


def test_act_dcf_by_hand_and_the_threshold_is_accepted():
    cost = DetectionCost("mine", 0.2, 2, 1)  # log(0.8 / 0.4) = log 2; default 0.4
    assert cost.threshold == pytest.approx(np.log(2))
    assert (cost.miss_weight, cost.false_alarm_weight) == (1, pytest.approx(2))
    t = cost.threshold
    assert act_dcf([t, t + 1, t - 0.1, 5], [t, -1, -2, -3, -4], cost) == pytest.approx(
        1 / 4 + 2 * 1 / 5
    )
    assert act_dcf([-1.0], [1.0], "default") == pytest.approx(
        1.0
    )  # both below log 99: all rejected
    assert act_dcf([-1.0], [9.0], "default") == pytest.approx(100.0)


def test_presets_and_their_triples():
    triples = {
        name: (cost.miss_cost, cost.false_alarm_cost, cost.prior) for name, cost in PRESETS.items()
    }
    assert triples == {
        "default": (1, 1, 0.01),
        "sre08": (10, 1, 0.01),
        "sre10": (1, 1, 0.001),
        "sre21": (1, 1, 0.05),
        "sdsv": (10, 1, 0.01),
        "voxsrc": (1, 1, 0.05),
    }
    assert str(detection_cost("sdsv")) == "sdsv (C_miss=10, C_fa=1, P_target=0.01)"
    assert detection_cost("10, 1, .02") == DetectionCost("10, 1, .02", 0.02, 10, 1)
    assert [cost.name for cost in detection_costs("voxsrc")] == ["voxsrc"]
    for wrong in ("nist", "1,1", "1,1,x"):
        with pytest.raises(ParameterError, match=r"expected one of default.*three numbers"):
            detection_cost(wrong)
    for wrong in ("1,1,0", "1,1,1", "0,1,.5", "1,inf,.5", "1,-1,.5"):
        with pytest.raises(
            ParameterError, match=r"must be positive and finite|must lie between 0 and 1"
        ):
            detection_cost(wrong)
    assert len(detection_costs(["default", "default", "voxsrc"])) == 2


def bayes_errors(targets, nontargets, log_odds):
    """Actual and least error at prior log-odds, over that without scores."""
    curve = ScoreCurve(targets, nontargets)
    prior, rest = expit(log_odds), expit(-log_odds)
    miss, false_alarm = curve.rates(-log_odds)
    least, _ = curve.hull.least(prior, rest)
    return np.stack([prior * miss + rest * false_alarm, least]) / np.minimum(prior, rest)


def test_bayes_error_over_the_prior():
    targets, nontargets = draw()
    grid = np.array([-4.0, -1.0, 0.0, 2.5])
    actual, least = bayes_errors(targets, nontargets, grid)
    for i, x in enumerate(grid):
        cost = DetectionCost("here", 1 / (1 + np.exp(-x)))
        assert actual[i] == pytest.approx(act_dcf(targets, nontargets, cost))
        assert least[i] == pytest.approx(min_dcf(targets, nontargets, cost))
    assert (least <= np.minimum(actual, 1) + 1e-12).all()
    # well calibrated scores lose next to nothing
    grid = np.linspace(-5, 5, 101)
    targets, nontargets = _calibrated()
    actual, least = bayes_errors(targets, nontargets, grid)
    assert ((actual - least) / (1 + np.exp(np.abs(grid)))).max() < 0.01


def test_nothing_is_accepted_at_an_infinite_threshold():
    curve = ScoreCurve([1.0, np.inf], [0.0, np.inf])
    assert curve.threshold_for(0.1) == np.inf
    assert [float(rate) for rate in curve.rates(np.inf)] == [1.0, 0.0]
    assert [float(rate) for rate in curve.rates(1.0)] == [0.0, 0.5]


def _calibrated():
    rng = np.random.default_rng(3)
    return rng.normal(2, 2, 20000), rng.normal(
        -2, 2, 20000
    )  # log-likelihood ratios: variance twice the mean


def test_min_cllr_is_the_bayes_error_summed_over_all_priors():
    """Cllr is the integral of the Bayes error over the log-odds, divided by that of saying nothing, 2 log 2."""
    targets, nontargets = draw(n=50, m=60)
    grid = np.linspace(-40, 40, 80001)
    actual, least = bayes_errors(targets, nontargets, grid)
    default = 1 / (1 + np.exp(np.abs(grid)))
    assert np.trapezoid(least * default, grid) / (2 * np.log(2)) == pytest.approx(
        min_cllr(targets, nontargets), rel=1e-4
    )
    assert np.trapezoid(actual * default, grid) / (2 * np.log(2)) == pytest.approx(
        cllr(targets, nontargets), rel=1e-3
    )


def test_what_cannot_be_measured():
    with pytest.raises(DataError, match="no non-target"):
        ScoreCurve([1.0], [])
    with pytest.raises(DataError, match=r"1 non-target score"):
        ScoreCurve([1.0], [np.nan])
    with pytest.raises(DataError, match="must be numbers"):
        eer(["a"], [1.0])


def test_a_million_scores_of_two_gaussians():
    rng = np.random.default_rng(0)
    targets = 4 * rng.standard_normal(10_000, dtype=np.float32) + 8
    nontargets = 4 * rng.standard_normal(990_000, dtype=np.float32) - 8
    curve = ScoreCurve(targets, nontargets)
    values = curve.eer(), curve.cllr(), curve.min_cllr(), MinDCF(PRESETS["default"]).value(curve)
    assert values[0] == pytest.approx(0.02275, abs=0.003)  # Phi(-2)
    assert values[1] == pytest.approx(0.0872, abs=0.006)  # by quadrature
    assert values[2] < values[1]
