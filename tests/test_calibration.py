"""Calibrators: near the least Cllr, order kept, exact gradients, kinds weighed alike."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import check_grad

from mvplda import MultiviewPLDA
from mvplda.calibration import (
    KindCalibrator,
    LinearCalibrator,
    PAVCalibrator,
    QualityCalibrator,
    name_kinds,
    threshold_from_costs,
)
from mvplda.calibration.logistic import curvature, logistic_cost
from mvplda.exceptions import (
    DataError,
    LabelError,
    ParameterError,
    ReversedScoresWarning,
    SeparableScoresWarning,
)
from mvplda.metrics import cllr, min_cllr, trial_kinds

N = 20_000


def gaussian_trials(seed: int = 0, share: float = 0.2) -> tuple[np.ndarray, np.ndarray]:
    """Scores s with LLR 4 s - 4.8: the means are 1 and 1.4, the variance 0.1."""
    rng = np.random.default_rng(seed)
    targets = rng.random(N) < share
    return rng.normal(np.where(targets, 1.4, 1.0), np.sqrt(0.1)), targets


def cost(llrs: np.ndarray, targets: np.ndarray) -> float:
    return cllr(llrs[targets], llrs[~targets])


def kind_cost(llrs: np.ndarray, kinds: np.ndarray) -> float:
    """Cllr with every kind of non-target weighing the same."""
    others = np.mean([np.logaddexp(0, llrs[kinds == k]).mean() for k in np.unique(kinds) if k != "TC"])
    return float((np.logaddexp(0, -llrs[kinds == "TC"]).mean() + others) / (2 * np.log(2)))


def many_kinds(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Few TC, TW and IC, very many IW; the joint score, a speaker score and a phrase score, none calibrated."""
    rng = np.random.default_rng(seed)
    kinds = np.repeat(["TC", "TW", "IC", "IW"], [2000, 2000, 2000, 40_000])
    same_speaker, same_phrase = np.isin(kinds, ["TC", "TW"]), np.isin(kinds, ["TC", "IC"])
    speaker = rng.normal(np.where(same_speaker, 1.0, -1.0), 1.0)
    phrase = rng.normal(np.where(same_phrase, 2.0, -2.0), 1.0)
    joint = np.minimum(speaker, phrase) + 0.5 * rng.normal(size=len(kinds))
    return np.column_stack([joint, speaker, phrase]), kinds


# -- linear ------------------------------------------------------------------


def test_linear_finds_the_true_line() -> None:
    scores, targets = gaussian_trials()
    calibrator = LinearCalibrator().fit(scores, targets)
    assert calibrator.slopes_ == pytest.approx([4.0], abs=0.15)
    assert calibrator.intercept_ == pytest.approx(-4.8, abs=0.2)


@pytest.mark.parametrize("prior", [0.01, 0.5, 0.9])
def test_linear_reaches_the_least_cllr_on_new_trials(prior: float) -> None:
    calibrator = LinearCalibrator(prior).fit(*gaussian_trials(0))
    scores, targets = gaussian_trials(1, share=0.6)
    llrs = calibrator.transform(scores)
    assert cost(scores, targets) > 1.2 * cost(llrs, targets)
    least = min_cllr(scores[targets], scores[~targets])
    assert least <= cost(llrs, targets) < 1.01 * least
    assert (np.argsort(llrs) == np.argsort(scores)).all()


def test_shares_of_trials_do_not_matter() -> None:
    scores, targets = gaussian_trials()
    once = LinearCalibrator().fit(scores, targets)
    extra = np.concatenate([np.arange(len(scores)), *[np.flatnonzero(~targets)] * 3])
    again = LinearCalibrator().fit(scores[extra], targets[extra])
    assert again.slopes_ == pytest.approx(once.slopes_, rel=1e-8)
    assert again.intercept_ == pytest.approx(once.intercept_, rel=1e-8)


def test_the_fit_is_invariant_to_the_scale_of_scores() -> None:
    scores, targets = gaussian_trials()
    plain = LinearCalibrator().fit_transform(scores, targets)
    assert LinearCalibrator().fit_transform(1e6 * scores - 3e7, targets) == pytest.approx(plain, abs=1e-6)


@pytest.mark.parametrize("ridge", [0.0, 0.3])
def test_gradient_and_curvature_against_differences(ridge: float) -> None:
    rng = np.random.default_rng(0)
    inputs = np.column_stack([rng.normal(size=(50, 3)), np.ones(50)])
    signs, mass, weights = rng.choice([-1.0, 1.0], 50), rng.uniform(0.01, 0.04, 50), rng.normal(size=4)

    def value(w: np.ndarray) -> float:
        return logistic_cost(w, inputs, signs, mass, 0.7, ridge)[0]

    def slope(w: np.ndarray) -> np.ndarray:
        return logistic_cost(w, inputs, signs, mass, 0.7, ridge)[1]

    assert check_grad(value, slope, weights) < 1e-6
    steps = 1e-6 * np.eye(4)
    differences = np.stack([(slope(weights + h) - slope(weights - h)) / 2e-6 for h in steps])
    assert curvature(weights, inputs, mass, 0.7, ridge) == pytest.approx(differences, abs=1e-7)


def test_the_gradient_vanishes_at_the_fit() -> None:
    scores, targets = gaussian_trials()
    calibrator = LinearCalibrator(0.1).fit(scores, targets)
    mass = np.where(targets, 0.1 / targets.sum(), 0.9 / (~targets).sum())
    inputs = np.column_stack([scores, np.ones(len(scores))])
    weights = np.append(calibrator.slopes_, calibrator.intercept_)
    _, gradient = logistic_cost(weights, inputs, np.where(targets, 1.0, -1.0), mass, np.log(0.1 / 0.9))
    assert np.abs(gradient).max() < 1e-7


@pytest.mark.parametrize("scores", [[0.0, 1.0, 2.0, 3.0], [0.0, 1.0, 1.0, 2.0]], ids=["apart", "touching"])
def test_separable_scores_are_named_and_stay_finite(scores: list[float]) -> None:
    with pytest.warns(SeparableScoresWarning, match="infinite"):
        calibrator = LinearCalibrator().fit(scores, [False, False, True, True])
    llrs = calibrator.transform(scores)
    assert np.isfinite(llrs).all()
    assert (np.diff(llrs) >= 0).all()
    assert llrs[0] < 0 < llrs[-1]


def test_scores_that_say_nothing_give_zero() -> None:
    assert LinearCalibrator().fit_transform([3.0] * 4, [0, 1, 0, 0]) == pytest.approx(np.zeros(4))


def test_separable_fused_scores_are_named() -> None:
    rng = np.random.default_rng(0)
    targets = np.arange(200) % 2 == 1
    first = rng.normal(size=200)
    fused = np.column_stack([first, first + np.where(targets, 0.1, -0.1)])
    with pytest.warns(SeparableScoresWarning):
        assert np.isfinite(LinearCalibrator().fit_transform(fused, targets)).all()


def test_reversed_scores_are_named() -> None:
    scores, targets = gaussian_trials()
    with pytest.warns(ReversedScoresWarning, match="slope is -"):
        LinearCalibrator().fit(-scores, targets)


# -- PAV ---------------------------------------------------------------------


def test_pav_reaches_the_least_cllr_where_no_line_does() -> None:
    scores, targets = gaussian_trials(0)
    new, new_targets = gaussian_trials(1)
    pav = PAVCalibrator().fit(np.exp(5 * scores), targets)
    line = LinearCalibrator().fit(np.exp(5 * scores), targets)
    llrs = pav.transform(np.exp(5 * new))
    least = min_cllr(new[new_targets], new[~new_targets])
    assert cost(llrs, new_targets) < 1.02 * least
    assert cost(llrs, new_targets) < 0.97 * cost(line.transform(np.exp(5 * new)), new_targets)
    order = np.argsort(new)
    assert (np.diff(llrs[order]) >= 0).all()


def test_pav_steps_by_hand() -> None:
    """Targets 2, 4, 5; others 0, 1, 3, and by the rule a target at 0 and another at 5."""
    pav = PAVCalibrator().fit([0, 1, 2, 3, 4, 5], [0, 0, 1, 0, 1, 1])
    # pooled: {t, 0, 1} p = 1/3; {2, 3} p = 1/2; {4, 5, n} p = 2/3; 4 targets and 4 others
    expected = {0: -np.log(2), 1: -np.log(2), 1.5: -np.log(2) / 2, 2: 0.0, 3: 0.0, 4: np.log(2), 5: np.log(2)}
    assert pav.transform(list(expected)) == pytest.approx(list(expected.values()))
    assert pav.transform([-9.0, 9.0]) == pytest.approx([-np.log(2), np.log(2)])


def test_pav_ties_and_separable_scores_stay_finite() -> None:
    pav = PAVCalibrator().fit([1, 1, 1, 2, 2, 2, 3, 3], [0, 0, 1, 0, 1, 1, 1, 1])
    assert np.isfinite(pav.llrs_).all()
    assert (np.diff(pav.knots_) >= 0).all()
    apart = PAVCalibrator().fit(np.arange(20.0), np.arange(20) >= 10)
    assert apart.transform([0.0, 19.0]) == pytest.approx([-np.log(10), np.log(10)])


def test_pav_takes_one_score() -> None:
    with pytest.raises(DataError, match=r"one score a trial, got 2: fuse"):
        PAVCalibrator().fit(np.zeros((4, 2)), [0, 0, 1, 1])


# -- kinds ---------------------------------------------------------------------


def test_kinds_weigh_alike_where_iw_drown_the_others() -> None:
    scores, kinds = many_kinds(0)
    new, new_kinds = many_kinds(1)
    plain = LinearCalibrator().fit(scores[:, 0], kinds).transform(new[:, 0])
    by_kind = KindCalibrator().fit(scores[:, 0], kinds).transform(new[:, 0])
    fused = KindCalibrator().fit(scores, kinds).transform(new)
    assert kind_cost(by_kind, new_kinds) < 0.95 * kind_cost(plain, new_kinds)
    assert kind_cost(fused, new_kinds) < 0.95 * kind_cost(by_kind, new_kinds)
    weight = {"IC": 1.0}
    for_impostors = KindCalibrator(kind_priors=weight).fit(scores[:, 0], kinds).transform(new[:, 0])
    some = np.isin(new_kinds, ["TC", "IC"])
    assert kind_cost(for_impostors[some], new_kinds[some]) < kind_cost(by_kind[some], new_kinds[some])
    assert kind_cost(by_kind[some], new_kinds[some]) < kind_cost(plain[some], new_kinds[some])


def test_equal_kind_counts_make_it_the_linear_calibrator() -> None:
    scores, kinds = many_kinds()
    some = np.concatenate([np.flatnonzero(kinds == k)[:2000] for k in np.unique(kinds)])
    a, b = KindCalibrator().fit(scores[some], kinds[some]), LinearCalibrator().fit(scores[some], kinds[some])
    assert a.slopes_ == pytest.approx(b.slopes_)


def test_kind_errors() -> None:
    scores, kinds = many_kinds()
    with pytest.raises(LabelError, match="by name"):
        KindCalibrator().fit(scores, kinds == "TC")
    with pytest.raises(LabelError, match="names 'XX'"):
        KindCalibrator(kind_priors={"XX": 1}).fit(scores, kinds)
    with pytest.raises(ParameterError, match="not negative"):
        KindCalibrator(kind_priors={"IC": -1, "IW": 2}).fit(scores, kinds)


def test_names_of_kinds_from_masks() -> None:
    masks = trial_kinds({"speaker": [1, 2], "phrase": [1, 1]}, {"speaker": [1, 3], "phrase": [1, 2]})
    assert name_kinds(masks).tolist() == [["TC", "IW"], ["IC", "IW"]]
    with pytest.raises(LabelError, match="1 trial"):
        name_kinds({"TC": [True, False], "IW": [False, False]})


# -- side information ------------------------------------------------------------


def quality_trials(seed: int) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    """The scatter of scores, hence the slope of the LLR, depends on the count of enrolment vectors."""
    rng = np.random.default_rng(seed)
    targets, counts = rng.random(N) < 0.3, rng.choice([1, 2, 4, 8], N)
    scores = rng.normal(np.where(targets, 1.0, -1.0), 2.0 / np.sqrt(counts))
    return scores, targets, {"count": counts, "seconds": rng.uniform(1, 3, N)}


def test_side_information_helps_and_interactions_more() -> None:
    training, new = quality_trials(0), quality_trials(1)

    def loss(calibrator: QualityCalibrator) -> float:
        return cost(calibrator.fit(*training).transform(new[0], new[2]), new[1])

    plain = cost(LinearCalibrator().fit(*training[:2]).transform(new[0]), new[1])
    only_offset, slopes = loss(QualityCalibrator(interactions=False)), loss(QualityCalibrator(log=False))
    exact = new[2]["count"] / 2 * new[0]
    assert slopes < 0.95 * min(plain, only_offset)
    assert slopes < 1.01 * cost(exact, new[1])


def test_side_information_is_taken_at_the_edge_of_its_range() -> None:
    scores, targets, side = quality_trials(0)
    calibrator = QualityCalibrator().fit(scores, targets, side)
    edge, beyond = ({"seconds": [2.0], "count": [c]} for c in (8, 1000))
    assert calibrator.transform([1.0], beyond) == pytest.approx(calibrator.transform([1.0], edge))
    with pytest.raises(DataError, match="no column 'count'"):
        calibrator.transform([1.0], {"seconds": [2.0]})
    with pytest.raises(DataError, match="needs side="):
        calibrator.transform([1.0])
    with pytest.raises(DataError, match="positive side information"):
        calibrator.transform([1.0], {"seconds": [2.0], "count": [0]})


# -- what every calibrator refuses -------------------------------------------------


@pytest.mark.parametrize("calibrator", [LinearCalibrator(), PAVCalibrator()], ids=["linear", "pav"])
def test_bad_input(calibrator: LinearCalibrator) -> None:
    with pytest.raises(DataError, match=r"1 trial\(s\) have a score that is NaN"):
        calibrator.fit([1.0, np.nan], [0, 1])
    with pytest.raises(DataError, match="target and non-target"):
        calibrator.fit([1.0, 2.0], [1, 1])
    with pytest.raises(LabelError, match="2 trials and labels of shape"):
        calibrator.fit([1.0, 2.0], [1])
    with pytest.raises(LabelError, match="no kind of trial 'XX'"):
        calibrator.fit([1.0, 2.0], ["TC", "XX"])
    with pytest.raises(LabelError, match="by kind"):
        calibrator.fit([1.0, 2.0], [3, 4])
    with pytest.raises(DataError, match="Flatten"):
        calibrator.fit(np.zeros((2, 2, 2)), [0, 1])
    names = calibrator.fit([0.0, 1.0, 1.5, 2.0], ["nontarget", "TC", "IW", "target"]).transform([0.3])
    assert names == pytest.approx(calibrator.fit([0.0, 1.0, 1.5, 2.0], [-1, 1, -1, 1]).transform([0.3]))


def test_settings_are_checked() -> None:
    with pytest.raises(ParameterError, match="prior"):
        LinearCalibrator(prior=1.0).fit(*gaussian_trials())
    with pytest.raises(ParameterError, match="ridge"):
        LinearCalibrator(ridge=0.0).fit(*gaussian_trials())


def test_threshold_from_costs() -> None:
    assert threshold_from_costs(0.5) == 0.0
    assert threshold_from_costs(0.01, 10, 1) == pytest.approx(np.log(0.99 / 0.01 / 10))
    assert MultiviewPLDA().set_threshold_from_costs(0.1, 2, 3).threshold_ == threshold_from_costs(0.1, 2, 3)
    for bad in [(0.0, 1, 1), (0.5, 0, 1), (0.5, 1, -1)]:
        with pytest.raises(ParameterError, match="costs are positive"):
            threshold_from_costs(*bad)
