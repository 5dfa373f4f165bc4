"""Calibration by the amount of evidence: its formula, its guard for impostors, and its bound."""

from __future__ import annotations

from functools import cache
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import expit, logit

from mvplda.calibration import AmountCalibrator
from mvplda.calibration.amount import ImpostorGrowth, ViewDesign, impostor_growth
from mvplda.exceptions import DataError, ParameterError
from mvplda.metrics import cllr
from mvplda.metrics.curves import min_cllr
from mvplda.scoring.question import NearMatches, Question

BOTH = ("speaker", "phrase")
HYPOTHESES = (BOTH, ("speaker",), ("phrase",), ())
PEOPLE = 60
GROWTHS: dict[int, dict[str, ImpostorGrowth]] = {}


def draw(n: int = 6000, seed: int = 0, growth: float = 0.4) -> dict[str, Any]:
    """Draw trials of two corpora whose LLRs are too large, the more so the more speech there is."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, 4, n)
    seconds, recordings = rng.uniform(0.4, 4.0, n), rng.integers(1, 4, n)
    amount = np.log(seconds / 0.4) + np.log(recordings)
    corpus = rng.integers(0, 2, n)
    raw = {}
    for view, same in zip(BOTH, (truth < 2, truth % 2 == 0), strict=True):
        mean = np.where(same, 3.0 + 2.0 * amount, -3.0 - amount + 0.7 * corpus)
        raw[view] = mean + (1.5 + growth * amount) * rng.normal(size=n)
    logs = {
        BOTH: raw["speaker"] + raw["phrase"],
        ("speaker",): raw["speaker"],
        ("phrase",): raw["phrase"],
        (): np.zeros(n),
    }
    return {
        "logs": logs,
        "truth": truth,
        "speakers": rng.integers(0, PEOPLE, n),
        "corpora": corpus,
        "measures": {"log_seconds": np.log(seconds), "log_recordings": np.log(recordings)},
    }


def fitted(trials: dict[str, Any], **settings: float) -> AmountCalibrator:
    columns = dict(trials)
    return AmountCalibrator(**settings).fit(columns.pop("logs"), columns.pop("truth"), **columns)


@cache
def fitted_once(seed: int) -> AmountCalibrator:
    """Fit to drawn trials, and note the growth of the raw LLRs of their impostors in `GROWTHS`."""
    trials = draw(4000, seed, growth=0.3 * seed)
    calibrator = fitted(trials)
    amounts = calibrator._amounts(trials["measures"], trials["truth"].shape)
    for view, same in zip(BOTH, (trials["truth"] < 2, trials["truth"] % 2 == 0), strict=True):
        GROWTHS.setdefault(seed, {})[view] = impostor_growth(
            trials["logs"][view,], amounts, ~same, trials["corpora"], calibrator.quantile
        )
    return calibrator


def half(logs: Any, view: str) -> np.ndarray:
    return Question(view).ratio(BOTH).of(logs)


@pytest.fixture(scope="module")
def trials() -> dict[str, Any]:
    return draw()


@pytest.fixture(scope="module")
def calibrator(trials: dict[str, Any]) -> AmountCalibrator:
    return fitted(trials)


def test_the_llr_of_each_view_is_the_formula(
    trials: dict[str, Any], calibrator: AmountCalibrator
) -> None:
    calibrated = calibrator.transform(trials["logs"], measures=trials["measures"])
    d = calibrator.outlier_probability_
    for view in BOTH:
        slopes, constants = calibrator.slopes_[view], calibrator.constants_[view]
        for row in range(0, 6000, 97):
            slope, constant = slopes["llr"], constants["constant"]
            for name, values in trials["measures"].items():
                amount = values[row] - calibrator.measures_[name][0]
                slope += slopes[name] * amount
                constant += constants[name] * amount
            llr = slope * trials["logs"][view,][row] + constant
            expected = logit((1 - d) * expit(llr) + d / 2)
            assert half(calibrated, view)[row] == pytest.approx(expected, abs=1e-9)


def test_log_likelihoods_are_posteriors_at_equal_priors(
    trials: dict[str, Any], calibrator: AmountCalibrator
) -> None:
    calibrated = calibrator.transform(trials["logs"], measures=trials["measures"])
    total = sum(np.exp(values) for values in calibrated.values())
    np.testing.assert_allclose(total, 1.0)


def test_the_outlier_probability_is_mixed_in_afterwards(
    trials: dict[str, Any], calibrator: AmountCalibrator
) -> None:
    inliers = calibrator.without_outliers(trials["logs"], measures=trials["measures"])
    added = calibrator.add_outliers(inliers)
    calibrated = calibrator.transform(trials["logs"], measures=trials["measures"])
    for h in HYPOTHESES:
        np.testing.assert_array_equal(added[h], calibrated[h])
    for view in BOTH:
        assert half(calibrated, view).max() <= logit(1 - calibrator.outlier_probability_ / 2)
        slopes = np.array([*calibrator.slopes_[view].values()])
        constants = np.array([*calibrator.constants_[view].values()])
        amounts = calibrator._amounts(trials["measures"], trials["truth"].shape)
        llrs = (slopes[0] + amounts @ slopes[1:]) * trials["logs"][view,]
        llrs += constants[0] + amounts @ constants[1:]
        np.testing.assert_allclose(half(inliers, view), llrs)


@settings(max_examples=50, deadline=None)
@given(
    people=st.integers(20, 400),
    scale=st.floats(1.0, 4.0),
    seconds=st.floats(0.4, 4.0),
    factor=st.floats(1.0, 10.0),
    threshold=st.floats(0.0, 15.0),
)
def test_more_speech_never_turns_an_impostor_into_an_owner(
    people: int, scale: float, seconds: float, factor: float, threshold: float
) -> None:
    """Impostors up to the quantile of the fit: accepted with more speech, they were accepted with less."""
    calibrator = fitted_once(people % 4)
    rng = np.random.default_rng(people)
    names = [*calibrator.measures_]
    for view in BOTH:
        growth = GROWTHS[people % 4][view]
        for grown in ({"log_seconds"}, {"log_recordings"}, set(names)):
            shares = []
            below = scale * rng.exponential(size=people)
            for multiple in (1.0, factor):
                measures = {
                    name: np.full(people, np.log(seconds * multiple if name in grown else seconds))
                    for name in names
                }
                amounts = calibrator._amounts(measures, (people,))
                raw = growth.least + amounts @ growth.slopes - below
                logs = {BOTH: raw, ("speaker",): 0 * raw, ("phrase",): 0 * raw, (): 0 * raw}
                logs[view,] = raw
                llrs = half(calibrator.without_outliers(logs, measures=measures), view)
                shares.append((llrs >= threshold).mean())
            assert shares[1] <= shares[0]


def test_halves_stay_independent_of_each_other(calibrator: AmountCalibrator) -> None:
    speaker = np.linspace(-8, 8, 9)
    llrs = []
    for phrase in (-20.0, 0.0, 20.0):
        logs = {BOTH: speaker + phrase, ("speaker",): speaker, ("phrase",): 0 * speaker + phrase}
        llrs.append(half(calibrator.transform({**logs, (): 0 * speaker}), "speaker"))
    np.testing.assert_allclose(llrs[0], llrs[1], atol=1e-9)
    np.testing.assert_allclose(llrs[0], llrs[2], atol=1e-9)


@pytest.mark.parametrize("growth", [0.0, 0.4, 1.0])
def test_more_evidence_never_raises_the_share_of_impostors(growth: float) -> None:
    """Brute force over thresholds and amounts, on the trials of the fit and on others."""
    calibrator = fitted(draw(15_000, growth=growth))
    others = draw(40_000, seed=5, growth=growth)
    inliers = calibrator.without_outliers(others["logs"], measures=others["measures"])
    for view, same in zip(BOTH, (others["truth"] < 2, others["truth"] % 2 == 0), strict=True):
        llrs = half(inliers, view)
        # strict points lie beyond what an outlier probability allows
        strict = calibrator.largest_llr + 2.0
        assert (llrs >= strict).any()
        for name, values in others["measures"].items():
            edges = np.quantile(values, (0.0, 0.33, 0.66, 1.0))
            for threshold in (0.0, 1.0, 2.0, 4.0, strict):
                shares = [
                    (llrs[~same & (values >= low) & (values <= high)] >= threshold).mean()
                    for low, high in pairwise(edges)
                ]
                assert (np.diff(shares) <= 0.003).all(), (view, name, threshold, shares)


def test_llrs_of_impostors_do_not_rise_with_the_amount(
    trials: dict[str, Any], calibrator: AmountCalibrator
) -> None:
    """The guard in its exact form: along the quantile of impostors, and below it, LLRs fall with every measure."""
    for view, same in zip(BOTH, (trials["truth"] < 2, trials["truth"] % 2 == 0), strict=True):
        amounts = calibrator._amounts(trials["measures"], trials["truth"].shape)
        quantile = impostor_growth(
            trials["logs"][view,], amounts, ~same, trials["corpora"], calibrator.quantile
        )
        slopes = np.array([*calibrator.slopes_[view].values()])
        constants = np.array([*calibrator.constants_[view].values()])
        ranges = amounts.max(axis=0)
        grid = np.array(list(product(*(np.linspace(0, top, 7) for top in ranges))))
        for below in (0.0, 1.0, 5.0):
            raw = quantile.least + grid @ quantile.slopes - below
            llrs = (slopes[0] + grid @ slopes[1:]) * raw + constants[0] + grid @ constants[1:]
            cube = llrs.reshape(7, 7)
            assert (np.diff(cube, axis=0) <= 1e-9).all()
            assert (np.diff(cube, axis=1) <= 1e-9).all()
        assert (slopes >= 0).all()


def test_columns_with_the_guard_have_the_stated_coefficients() -> None:
    rng = np.random.default_rng(2)
    raw, amounts = rng.normal(size=50), rng.uniform(0, 3, (50, 2))
    growth = ImpostorGrowth(0.7, np.array([0.3, 0.1]))
    design = ViewDesign.of(raw, amounts, growth, None)
    weights = rng.uniform(0, 1, 6)
    slopes, constants, near = design.coefficients(weights)
    expected = (slopes[0] + amounts @ slopes[1:]) * raw + constants[0] + amounts @ constants[1:]
    np.testing.assert_allclose(design.columns @ weights, expected)
    assert near is None


def test_amounts_make_trials_of_all_lengths_calibrated(
    trials: dict[str, Any], calibrator: AmountCalibrator
) -> None:
    others = draw(20_000, seed=9)
    plain = fitted({**trials, "measures": {}})
    costs = []
    for model, measures in ((calibrator, others["measures"]), (plain, None)):
        llrs = half(model.transform(others["logs"], measures=measures), "speaker")
        same = others["truth"] < 2
        costs.append(cllr(llrs[same], llrs[~same]))
    assert costs[0] < costs[1]
    llrs = half(calibrator.transform(others["logs"], measures=others["measures"]), "speaker")
    assert costs[0] < 1.5 * min_cllr(llrs[others["truth"] < 2], llrs[others["truth"] >= 2]) + 0.01


def test_without_measures_it_is_a_logistic_regression() -> None:
    """Brute force of the likelihood of one view, whose prior hardly matters with so many people."""
    rng = np.random.default_rng(3)
    same = rng.integers(0, 2, 3000) == 1
    raw = rng.normal(np.where(same, 4.0, -4.0), 4.0)
    logs = {("speaker",): raw, (): np.zeros(3000)}
    weights = np.where(same, 0.5 / same.sum(), 0.5 / (~same).sum())
    calibrator = AmountCalibrator(errors=1e-6).fit(
        logs, np.where(same, 0, 1), speakers=np.arange(3000)
    )

    def cost(theta: np.ndarray) -> float:
        llr = theta[0] * raw + theta[1]
        return float(weights @ np.logaddexp(0, np.where(same, -llr, llr)))

    best = minimize(cost, [1.0, 0.0]).x
    slope = calibrator.slopes_["speaker"]["llr"]
    assert slope == pytest.approx(best[0], abs=0.01)
    assert calibrator.constants_["speaker"]["constant"] == pytest.approx(best[1], abs=0.02)


def test_corpora_weigh_the_same() -> None:
    trials = draw()
    repeated = {key: value for key, value in trials.items() if key not in ("logs", "measures")}
    rows = np.concatenate([np.arange(6000), *[np.flatnonzero(trials["corpora"] == 1)] * 5])
    repeated = {key: value[rows] for key, value in repeated.items()}
    repeated["logs"] = {h: values[rows] for h, values in trials["logs"].items()}
    repeated["measures"] = {name: values[rows] for name, values in trials["measures"].items()}
    one, other = fitted(trials), fitted(repeated)
    for view in BOTH:
        for name in ("slopes_", "constants_"):
            expected = [*getattr(one, name)[view].values()]
            assert [*getattr(other, name)[view].values()] == pytest.approx(expected, abs=0.15)


def test_amounts_outside_the_range_count_as_its_ends(
    trials: dict[str, Any], calibrator: AmountCalibrator
) -> None:
    logs = {h: values[:5] for h, values in trials["logs"].items()}
    least, largest, _ = calibrator.measures_["log_seconds"]
    for outside, inside in ((least - 9.0, least), (largest + 9.0, largest)):
        one, other = (
            calibrator.transform(logs, measures={"log_seconds": np.full(5, value)})
            for value in (outside, inside)
        )
        np.testing.assert_array_equal(half(one, "speaker"), half(other, "speaker"))
    missing = calibrator.transform(logs)
    typical_amounts = {name: np.full(5, values[2]) for name, values in calibrator.measures_.items()}
    expected = calibrator.transform(logs, measures=typical_amounts)
    np.testing.assert_array_equal(half(missing, "speaker"), half(expected, "speaker"))
    with pytest.raises(DataError, match="NaN"):
        calibrator.transform(logs, measures={"log_seconds": np.full(5, np.nan)})


def test_the_bound_follows_from_pairs_of_people(trials: dict[str, Any]) -> None:
    rng = np.random.default_rng(0)
    tested = rng.integers(0, PEOPLE, 6000)
    by_people, by_pairs = fitted(trials), fitted({**trials, "test_speakers": tested})
    pairs = {
        frozenset(pair)
        for pair in zip(trials["speakers"].tolist(), tested.tolist(), strict=True)
        if pair[0] != pair[1]
    }
    assert by_people.outlier_probability_ == 0.5 / PEOPLE
    assert by_pairs.outlier_probability_ == 0.5 / len(pairs)
    logs = {h: np.full(1, 1e4 * len(h)) for h in HYPOTHESES}
    largest = half(by_pairs.transform(logs, measures={}), "speaker")[0]
    d = by_pairs.outlier_probability_
    assert largest == pytest.approx(np.log((1 - d / 2) / (d / 2)))
    # one in a thousand is within reach
    assert largest > np.log(1000)
    assert Question().ratio(BOTH).of(by_pairs.transform(logs)) == pytest.approx(
        by_pairs.largest_llr
    )


def test_near_matches_weaken_the_phrase_only(calibrator: AmountCalibrator) -> None:
    logs = {h: np.full(3, 6.0 * len(h)) for h in HYPOTHESES}
    near = NearMatches("phrase", np.full(3, 0.3), np.array([5.0, 0.0, -5.0]), np.zeros(3))
    plain, mixed = calibrator.transform(logs), calibrator.transform(logs, near)
    np.testing.assert_allclose(half(mixed, "speaker"), half(plain, "speaker"), atol=1e-9)
    phrase = half(mixed, "phrase")
    assert (np.diff(phrase) < 0).all()
    assert phrase[2] < 0.5 < half(plain, "phrase")[2]


def draw_near_matches(n: int = 4000) -> tuple[dict[str, Any], NearMatches, Any]:
    """Draw trials in which both the evidence against near matches and the LLR of the phrase tell near matches."""
    rng = np.random.default_rng(7)
    is_near = np.arange(n) % 4 == 0
    trials = draw(n)
    raw = rng.normal(np.where(is_near, 4.0, 6.0), 1.0)
    evidence = rng.normal(np.where(is_near, 0.0, 2.0), 2.0)
    trials["logs"] = {h: raw * ("phrase" in h) for h in HYPOTHESES}
    near = NearMatches("phrase", np.full(n, 0.3), evidence, np.zeros(n))
    return trials, near, is_near


def test_near_matches_are_told_by_their_evidence_and_by_the_phrase(tmp_path: Path) -> None:
    trials, near, is_near = draw_near_matches()
    measures = {"log_seconds": trials["measures"]["log_seconds"]}
    fitted_near = fitted(draw())
    fitted_near.fit_near_matches(
        trials["logs"], near, is_near, corpora=trials["corpora"], measures=measures
    )
    slopes = fitted_near.near_match_slopes_
    # the LLR of normal densities: difference of the means over the variance
    assert slopes["near match"] == pytest.approx(2.0 / 4.0, abs=0.06)
    assert slopes["llr"] == pytest.approx(2.0 / 1.0, abs=0.2)
    assert slopes["log_seconds"] == pytest.approx(0.0, abs=0.2)
    raw = trials["logs"]["phrase",]
    least = fitted_near.measures_["log_seconds"][0]
    llr = (
        slopes["near match"] * near.llr
        + slopes["llr"] * raw
        + slopes["log_seconds"] * (measures["log_seconds"] - least)
        + slopes["constant"]
    )
    assert ((llr > 0) == ~is_near).mean() > 0.85
    # the mixture uses this LLR
    measures = trials["measures"]
    expected = fitted(draw()).without_outliers(trials["logs"], near._replace(llr=llr), measures)
    mixed = fitted_near.without_outliers(trials["logs"], near, measures)
    for h in HYPOTHESES:
        np.testing.assert_allclose(mixed[h], expected[h], atol=1e-9)
    fitted_near.save(tmp_path / "c.safetensors")
    loaded = AmountCalibrator.load(tmp_path / "c.safetensors")
    assert loaded.near_match_slopes_ == slopes


def test_kinds_and_corpora_of_near_matches_weigh_the_same() -> None:
    trials, near, is_near = draw_near_matches()
    once, repeated = fitted(draw()), fitted(draw())
    once.fit_near_matches(trials["logs"], near, is_near, corpora=trials["corpora"])
    rows = np.concatenate(
        [np.arange(4000), *[np.flatnonzero(~is_near & (trials["corpora"] == 1))] * 5]
    )
    logs = {h: values[rows] for h, values in trials["logs"].items()}
    many = NearMatches("phrase", *(values[rows] for values in near[1:]))
    repeated.fit_near_matches(logs, many, is_near[rows], corpora=trials["corpora"][rows])
    for name, slope in once.near_match_slopes_.items():
        assert repeated.near_match_slopes_[name] == pytest.approx(slope, rel=0.02, abs=0.02)


@pytest.mark.parametrize("kind", [np.int64, list])
def test_near_matches_may_be_marked_by_numbers(kind: Any) -> None:
    trials, near, is_near = draw_near_matches()
    marks = is_near.tolist() if kind is list else is_near.astype(kind)
    slopes = []
    for mask in (is_near, marks):
        calibrator = fitted(draw())
        calibrator.fit_near_matches(trials["logs"], near, mask, corpora=trials["corpora"])
        slopes.append(calibrator.near_match_slopes_)
    assert slopes[1] == slopes[0]


def test_a_file_without_coefficients_of_near_matches_uses_their_evidence_as_it_is(
    tmp_path: Path,
) -> None:
    calibrator = fitted(draw())
    arrays, values = calibrator.get_state()
    del values["values"]["near_match_slopes_"]
    older = AmountCalibrator.from_state(arrays, values)
    assert older.near_match_slopes_ == {"near match": 1.0}


def test_an_unknown_term_of_near_matches_is_refused() -> None:
    calibrator = fitted(draw())
    calibrator.near_match_slopes_ = {"near match": 1.0, "tempo": 0.5}
    with pytest.raises(DataError, match="unknown term: 'tempo'"):
        calibrator.check_state()


@pytest.mark.parametrize("n", [399, 400, 401])
def test_a_measure_that_never_changes_can_be_saved(n: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    truth = rng.integers(0, 2, n)
    logs: Any = {("speaker",): rng.normal(np.where(truth == 0, 2.0, -2.0), 2.0), (): np.zeros(n)}
    measures = {"log recordings": np.full(n, np.log(3.0))}
    calibrator = AmountCalibrator().fit(logs, truth, speakers=np.arange(n) // 4, measures=measures)
    calibrator.save(tmp_path / "c.safetensors")


def test_wrong_input_is_refused(trials: dict[str, Any]) -> None:
    with pytest.raises(ParameterError, match="quantile"):
        fitted(trials, quantile=1.0)
    with pytest.raises(DataError, match="must have one finite number per trial"):
        fitted({**trials, "measures": {"log_seconds": np.zeros(3)}})
    with pytest.raises(DataError, match="at least two hypotheses"):
        fitted({**trials, "truth": np.zeros(6000, dtype=int)})
    with pytest.raises(DataError, match="logs must contain the hypothesis"):
        fitted({**trials, "logs": {BOTH: np.zeros(6000), (): np.zeros(6000)}})


def test_a_condition_shifts_the_llr_of_a_view_and_is_saved(tmp_path: Path) -> None:
    trials = draw(2000)
    calibrator = fitted(trials)
    logs, measures = trials["logs"], trials["measures"]
    before = calibrator.without_outliers(logs, measures=measures)
    calibrator.shift("narrow", {"speaker": 1.5})
    # trials without the condition are unchanged
    unchanged = calibrator.without_outliers(logs, measures=measures)
    for h, values in before.items():
        np.testing.assert_allclose(unchanged[h], values)
    narrow = np.linspace(0.0, 1.0, len(trials["truth"]))
    calibrator.save(tmp_path / "calibrator.safetensors")
    loaded = AmountCalibrator.load(tmp_path / "calibrator.safetensors")
    shifted = loaded.without_outliers(logs, measures=measures | {"narrow": narrow})
    for h, values in before.items():
        np.testing.assert_allclose(shifted[h], values + 1.5 * narrow * ("speaker" in h))
    with pytest.raises(ParameterError, match="narrow"):
        calibrator.shift("narrow", {})
