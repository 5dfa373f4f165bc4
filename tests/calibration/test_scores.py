"""Calibrators: near the least Cllr, order kept, exact gradients, kinds weighed alike."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from scipy.optimize import approx_fprime, minimize

from mvplda import PLDA, load
from mvplda.calibration.hypotheses import HypothesisCalibrator
from mvplda.calibration.scores import LLR_DEVIATION, LinearCalibrator
from mvplda.cli import main
from mvplda.costs import DetectionCost
from mvplda.exceptions import (
    DataError,
    FewSpeakersWarning,
    LabelError,
    ParameterError,
    ReversedScoresWarning,
)
from mvplda.metrics import cllr
from mvplda.metrics.curves import min_cllr

N = 20_000


def fit_transform(
    calibrator: LinearCalibrator, scores: Any, targets: Any, **options: Any
) -> np.ndarray:
    return calibrator.fit(scores, targets, **options).transform(scores)


def gaussian_trials(seed: int = 0, share: float = 0.2) -> tuple[np.ndarray, np.ndarray]:
    """Scores s with LLR 4 s - 4.8: the means are 1 and 1.4, the variance 0.1."""
    rng = np.random.default_rng(seed)
    targets = rng.random(N) < share
    return rng.normal(np.where(targets, 1.4, 1.0), np.sqrt(0.1)), targets


def cost(llrs: np.ndarray, targets: np.ndarray) -> float:
    return cllr(llrs[targets], llrs[~targets])


def kind_cost(llrs: np.ndarray, kinds: np.ndarray) -> float:
    """Cllr with every kind of non-target weighing the same."""
    others = np.mean(
        [np.logaddexp(0, llrs[kinds == k]).mean() for k in np.unique(kinds) if k != "TC"]
    )
    return float((np.logaddexp(0, -llrs[kinds == "TC"]).mean() + others) / (2 * np.log(2)))


def many_kinds(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Few TC, TW and IC, very many IW; scores that are not calibrated."""
    rng = np.random.default_rng(seed)
    kinds = np.repeat(["TC", "TW", "IC", "IW"], [2000, 2000, 2000, 40_000])
    same_speaker, same_phrase = np.isin(kinds, ["TC", "TW"]), np.isin(kinds, ["TC", "IC"])
    speaker = rng.normal(np.where(same_speaker, 1.0, -1.0), 1.0)
    phrase = rng.normal(np.where(same_phrase, 2.0, -2.0), 1.0)
    return np.minimum(speaker, phrase) + 0.5 * rng.normal(size=len(kinds)), kinds


# -- linear ------------------------------------------------------------------


def test_linear_finds_the_true_line() -> None:
    scores, targets = gaussian_trials()
    calibrator = LinearCalibrator().fit(scores, targets)
    assert calibrator.slope_ == pytest.approx(4.0, abs=0.15)
    assert calibrator.intercept_ == pytest.approx(-4.8, abs=0.2)


def test_linear_reaches_the_least_cllr_on_new_trials() -> None:
    calibrator = LinearCalibrator().fit(*gaussian_trials(0))
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
    assert again.slope_ == pytest.approx(once.slope_, rel=1e-8)
    assert again.intercept_ == pytest.approx(once.intercept_, rel=1e-8)


def test_the_fit_is_invariant_to_the_scale_of_scores() -> None:
    scores, targets = gaussian_trials()
    plain = fit_transform(LinearCalibrator(), scores, targets)
    assert fit_transform(LinearCalibrator(), 1e6 * scores - 3e7, targets) == pytest.approx(
        plain, abs=1e-6
    )


def logistic_cost(
    weights: np.ndarray, inputs: np.ndarray, signs: np.ndarray, mass: np.ndarray, offset: float
) -> tuple[float, np.ndarray]:
    """Weighted logistic loss and its gradient; the last column of the inputs is the constant."""
    margin = signs * (inputs @ weights + offset)
    gradient = -inputs.T @ (mass * signs / (1 + np.exp(margin)))
    return float(mass @ np.logaddexp(0.0, -margin)), gradient


def test_the_gradient_vanishes_at_the_fit() -> None:
    scores, targets = gaussian_trials()
    calibrator = LinearCalibrator().fit(scores, targets)
    mass = np.where(targets, 0.5 / targets.sum(), 0.5 / (~targets).sum())
    inputs = np.column_stack([scores, np.ones(len(scores))])
    weights = np.append(calibrator.slope_, calibrator.intercept_)
    _, gradient = logistic_cost(weights, inputs, np.where(targets, 1.0, -1.0), mass, 0.0)
    variance = mass @ np.square(scores - mass @ scores)
    gradient[0] += calibrator.slope_ * variance / (2 * targets.sum() * LLR_DEVIATION**2)
    assert np.abs(gradient).max() < 1e-7


@pytest.mark.parametrize(
    "scores", [[0.0, 1.0, 2.0, 3.0], [0.0, 1.0, 1.0, 2.0]], ids=["apart", "touching"]
)
def test_separable_scores_stay_finite(scores: list[float]) -> None:
    calibrator = LinearCalibrator().fit(scores, [False, False, True, True])
    llrs = calibrator.transform(scores)
    assert np.isfinite(llrs).all()
    assert (np.diff(llrs) >= 0).all()
    assert llrs[0] < 0 < llrs[-1]


def test_scores_that_say_nothing_give_zero() -> None:
    assert fit_transform(LinearCalibrator(), [3.0] * 4, np.arange(4) == 1) == pytest.approx(
        np.zeros(4)
    )


def test_reversed_scores_are_named() -> None:
    scores, targets = gaussian_trials()
    with pytest.warns(ReversedScoresWarning, match="slope of the calibration is -"):
        LinearCalibrator().fit(-scores, targets)


# -- kinds ---------------------------------------------------------------------


def test_kinds_weigh_alike_where_iw_drown_the_others() -> None:
    scores, kinds = many_kinds(0)
    new, new_kinds = many_kinds(1)
    plain = LinearCalibrator().fit(scores, kinds).transform(new)
    by_kind = LinearCalibrator(by_kind=True).fit(scores, kinds).transform(new)
    assert kind_cost(by_kind, new_kinds) < 0.95 * kind_cost(plain, new_kinds)
    some = np.isin(new_kinds, ["TC", "IC"])
    assert kind_cost(by_kind[some], new_kinds[some]) < kind_cost(plain[some], new_kinds[some])


def test_equal_kind_counts_make_it_the_linear_calibrator() -> None:
    scores, kinds = many_kinds()
    some = np.concatenate([np.flatnonzero(kinds == k)[:2000] for k in np.unique(kinds)])
    a, b = (
        LinearCalibrator(by_kind=True).fit(scores[some], kinds[some]),
        LinearCalibrator().fit(scores[some], kinds[some]),
    )
    assert a.slope_ == pytest.approx(b.slope_)


# -- what every calibrator refuses -------------------------------------------------


def test_bad_input() -> None:
    calibrator = LinearCalibrator()
    with pytest.raises(DataError, match=r"scores of 1 of 2 trial\(s\) are NaN"):
        calibrator.fit([1.0, np.nan], [False, True])
    with pytest.raises(DataError, match="target and non-target"):
        calibrator.fit([1.0, 2.0], [True, True])
    with pytest.raises(DataError, match="of the shape of the scores"):
        calibrator.fit([1.0, 2.0], [True])
    with pytest.raises(DataError, match="none of the kinds of trials"):
        calibrator.fit([1.0, 2.0], [3, 4])
    scores = [0.0, 1.0, 1.5, 2.0]
    by_name = calibrator.fit(scores, ["IC", "TC", "IW", "TC"]).transform([0.3])
    by_flag = calibrator.fit(scores, [False, True, False, True]).transform([0.3])
    assert by_name == pytest.approx(by_flag)


def test_scores_have_any_shape() -> None:
    scores, targets = gaussian_trials()
    flat = fit_transform(LinearCalibrator(), scores, targets)
    square = fit_transform(LinearCalibrator(), scores.reshape(100, -1), targets.reshape(100, -1))
    assert square.reshape(-1) == pytest.approx(flat)


def test_threshold_from_costs() -> None:
    assert DetectionCost("", 0.5).threshold == 0.0
    assert DetectionCost("", 0.01, 10, 1).threshold == pytest.approx(np.log(0.99 / 0.01 / 10))
    for bad in [(0.0, 1, 1), (0.5, 0, 1), (0.5, 1, -1)]:
        with pytest.raises(
            ParameterError, match=r"must be positive and finite|must lie between 0 and 1"
        ):
            DetectionCost("", *bad)


# -- few speakers --------------------------------------------------------------


def speaker_trials(
    rng: np.random.Generator, n_speakers: int, per_speaker: int = 4
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """LLRs of all pairs of vectors under a model that is too sure of itself; targets; the first vector's speaker.

    Speakers differ in how noisy they are, so that what holds of few does not hold of all.
    """
    D = 6
    loading = 2 * np.random.default_rng(0).normal(size=(D, D)) / np.sqrt(D)
    model = PLDA.from_parameters(np.zeros(D), {"class": loading}, np.full(D, 0.1))
    speaker = np.repeat(np.arange(n_speakers), per_speaker)
    noise = np.exp(0.3 * rng.normal(size=(n_speakers, 1)))[speaker] * rng.normal(
        size=(len(speaker), D)
    )
    X = (rng.normal(size=(n_speakers, D)) @ loading.T)[speaker] + 0.6 * noise
    rows, columns = np.triu_indices(len(X), 1)
    return (
        model.llr(X, X, dtype=np.float64)[rows, columns],
        speaker[rows] == speaker[columns],
        speaker[rows],
    )


def test_few_speakers_are_calibrated_better_with_their_number_known() -> None:
    rng = np.random.default_rng(5)
    scores, targets, _ = speaker_trials(rng, 120, 3)
    for n_speakers in (5, 10, 20):
        plain, told = [], []
        for _ in range(25):
            few = speaker_trials(rng, n_speakers)
            with pytest.warns(FewSpeakersWarning, match=f"fitted to {n_speakers} speaker"):
                told.append(
                    cost(
                        LinearCalibrator().fit(*few[:2], speakers=few[2]).transform(scores), targets
                    )
                )
            plain.append(cost(LinearCalibrator().fit(*few[:2]).transform(scores), targets))
        assert np.mean(told) < np.mean(plain) + 1e-3
        assert np.mean(told) < 0.95 * np.mean(plain) or n_speakers > 5
    scores, targets, speakers = speaker_trials(rng, 300, 2)
    many, known = (
        LinearCalibrator().fit(scores, targets),
        LinearCalibrator().fit(scores, targets, speakers=speakers),
    )
    assert known.n_speakers_ == 300
    assert known.slope_ == pytest.approx(many.slope_, rel=0.01)
    assert known.intercept_ == pytest.approx(many.intercept_, abs=0.02)


def test_the_prior_of_few_speakers_knows_no_unit() -> None:
    """Scores in any unit, from any zero, become the same LLRs."""
    scores, targets, speakers = speaker_trials(np.random.default_rng(6), 8)
    for calibrator in (LinearCalibrator(), LinearCalibrator(by_kind=True)):
        with pytest.warns(FewSpeakersWarning):
            expected = fit_transform(calibrator, scores, targets, speakers=speakers)
        with pytest.warns(FewSpeakersWarning):
            moved = fit_transform(calibrator, 1e-3 * scores + 7, targets, speakers=speakers)
        np.testing.assert_allclose(moved, expected, rtol=1e-5, atol=1e-5)
        with pytest.warns(FewSpeakersWarning):
            repeated = fit_transform(
                calibrator, np.tile(scores, 3), np.tile(targets, 3), speakers=np.tile(speakers, 3)
            )  # more trials of the same speakers tell nothing new
        np.testing.assert_allclose(repeated[: len(scores)], expected, rtol=1e-5, atol=1e-5)


def test_what_is_said_of_speakers() -> None:
    scores, targets, speakers = speaker_trials(np.random.default_rng(7), 40)
    for calibrator in (LinearCalibrator(),):
        assert calibrator.fit(scores, targets).n_speakers_ is None
        assert calibrator.fit(scores, targets, speakers=speakers).n_speakers_ == 40
        uneven = (speakers < 2) | ~targets | (np.arange(len(scores)) % 6 == 0)
        with pytest.warns(
            FewSpeakersWarning,
            match=r"fitted to \d+ speaker\(s\), equivalent to \d+ with equal numbers of target",
        ):
            calibrator.fit(scores[uneven], targets[uneven], speakers=speakers[uneven])
        with pytest.raises(LabelError, match="one speaker per trial"):
            calibrator.fit(scores, targets, speakers=speakers[1:])
    apart = np.array([0.0, 1.0, 2.0, 3.0])
    with pytest.warns(FewSpeakersWarning, match="fitted to 2"):
        told = LinearCalibrator().fit(
            apart, [False, False, True, True], speakers=["a", "b", "a", "b"]
        )
    assert 0 < told.slope_ < 100


def test_the_optimum_is_found_where_a_full_step_goes_too_far() -> None:
    """Scores far out make the cost so flat at the start that an undamped Newton step multiplies it."""
    rng = np.random.default_rng(9)
    targets = np.arange(400) < 200
    scores = rng.normal(np.where(targets, 1.0, -1.0))
    scores[:6] = [-40, 60, 80, 100, 120, 150]
    scores[-6:] = [30, -60, -80, -100, -120, -400]
    calibrator = LinearCalibrator().fit(scores, targets)
    inputs = np.column_stack([scores, np.ones(400)])
    weights = np.append(calibrator.slope_, calibrator.intercept_)
    value, gradient = logistic_cost(
        weights, inputs, np.where(targets, 1.0, -1.0), np.full(400, 1 / 400), 0.0
    )
    # the prior of the slope, on scores of unit variance, as 200 speakers weigh against it
    gradient[0] += calibrator.slope_ * scores.var() / (2 * 200 * LLR_DEVIATION**2)
    assert np.abs(gradient).max() < 1e-6
    assert value < np.log(2)


def test_calibrate_says_on_how_many_speakers(tmp_path: Path) -> None:
    scores, targets, speakers = speaker_trials(np.random.default_rng(10), 12, 3)
    lines = [(f"m{i}", f"t{i}") for i in range(len(scores))]
    named = zip(lines, targets, scores, speakers, strict=True)
    for (model, test), target, value, speaker in named:
        for name, text in (
            ("trials", f"{model} {test} {'target' if target else 'nontarget'}\n"),
            ("scores", f"{model} {test} {value}\n"),
            ("model2spk", f"{model} s{speaker}\n"),
        ):
            with (tmp_path / name).open("a") as file:
                file.write(text)
    command = ["calibrate", str(tmp_path / "scores"), "--trials", str(tmp_path / "trials")]
    command += ["--save", str(tmp_path / "plain")]
    result = CliRunner().invoke(main, command)
    assert result.exit_code == 0, result.output
    assert "speaker" not in result.output
    command[-1] = str(tmp_path / "told")
    result = CliRunner().invoke(main, [*command, "--enrol-speakers", str(tmp_path / "model2spk")])
    assert "trained the calibrator on trials of 12 speakers" in result.output
    assert "fitted to 12 speaker(s)" in result.output
    assert load(tmp_path / "told").n_speakers_ == 12
    assert load(tmp_path / "plain").n_speakers_ is None


# -- log-likelihoods of hypotheses ---------------------------------------------


EVERY = [("speaker", "phrase"), ("speaker",), ("phrase",), ()]


def hypothesis_trials(
    rng: np.random.Generator, counts: Sequence[int]
) -> tuple[dict[tuple[str, ...], np.ndarray], np.ndarray]:
    """Log-likelihoods that claim too much, and the place of the true hypothesis, of so many trials of each."""
    truth = np.repeat(np.arange(4), counts)
    voice = 3 * rng.normal(np.where(truth < 2, 1.5, -1.5), 2.0)
    words = 2 * rng.normal(np.where(truth % 2 == 0, 1.0, -1.0), 1.5)
    together = voice + words + rng.normal(0, 0.5, len(truth))
    return dict(zip(EVERY, (together, voice, words, np.zeros(len(truth))), strict=True)), truth


def brute_force_fit(
    logs: dict[tuple[str, ...], np.ndarray],
    truth: np.ndarray,
    mass: np.ndarray,
    speakers: int,
    errors: float,
) -> tuple[np.ndarray, np.ndarray, float]:
    """Factors of speaker, phrase and together, constants and doubt, by a search that is given no gradient."""
    together, voice, words, none = logs.values()
    occurring = np.unique(truth)

    def values_of(theta: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
        scale = np.exp(theta[0])
        constants = np.append(theta[4 : 3 + len(occurring)], 0.0)
        return scale * theta[1:4], scale * constants, float(1 / (1 + np.exp(-theta[-1])))

    def cost(theta: np.ndarray) -> float:
        factors, constants, outlier_probability = values_of(theta)
        alone = factors[0] * voice, factors[1] * words
        every = np.stack(
            [sum(alone) + factors[2] * (together - voice - words), *alone, none], axis=1
        )
        evidence = every[:, occurring] + constants
        odds = np.exp(evidence - evidence.max(axis=1, keepdims=True))
        right = odds[np.arange(len(truth)), np.searchsorted(occurring, truth)] / odds.sum(axis=1)
        likelihood = (1 - outlier_probability) * right + outlier_probability / len(occurring)
        prior = 0.5 * (theta[0] / 3.0) ** 2
        prior += 0.5 * np.sum(((theta[1:4] - 1.0) / 0.5) ** 2)
        prior += 0.5 * np.sum(theta[4:-1] ** 2) - errors * np.log(outlier_probability)
        return float(prior / speakers - mass @ np.log(likelihood))

    start = np.array([-0.5, 0.8, 0.8, 0.8, *np.zeros(len(occurring) - 1), -3.0])
    bounds = [(None, None), *[(0, None)] * 3, *[(None, None)] * (len(occurring) - 1), (-15, 0)]
    found = minimize(cost, start, method="L-BFGS-B", bounds=bounds, options={"ftol": 1e-13})
    found = minimize(
        cost, found.x, method="Powell", bounds=bounds, options={"xtol": 1e-8, "ftol": 1e-14}
    )
    return values_of(found.x)


def test_the_gradient_of_the_calibration_of_hypotheses_is_exact(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    costs: list[Any] = []

    def recording_minimize(cost: Any, *args: Any, **options: Any) -> Any:
        costs.append(cost)
        return minimize(cost, *args, **options)

    monkeypatch.setattr("scipy.optimize.minimize", recording_minimize)
    logs, truth = hypothesis_trials(np.random.default_rng(3), (10, 12, 9, 20))
    HypothesisCalibrator().fit(logs, truth, speakers=np.arange(len(truth)) % 8)
    (cost,) = costs
    # log scale, three weights, three constants, logit of the outlier probability
    theta = np.array([-0.4, 0.9, 0.7, 1.2, 0.3, -0.2, 0.1, -0.8])
    _, gradient = cost(theta)

    def value_of(values: Any) -> float:
        return float(cost(values)[0])

    numerical = approx_fprime(theta, value_of, 1e-7)
    np.testing.assert_allclose(gradient, numerical, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("counts", "speakers", "errors", "corpora"),
    [
        ((60, 90, 150, 400), 12, 0.5, False),
        ((60, 90, 150, 400), 12, 0.05, True),
        ((80, 0, 120, 300), 40, 0.5, False),
    ],
    ids=["few speakers", "two corpora", "no TW"],
)
def test_hypotheses_are_calibrated_as_by_brute_force(
    counts: Sequence[int], speakers: int, errors: float, corpora: bool
) -> None:
    """Hypotheses that occur weigh the same, corpora do, and so many speakers weigh against the prior."""
    rng = np.random.default_rng(1)
    logs, truth = hypothesis_trials(rng, counts)
    n = len(truth)
    corpus = np.where(rng.random(n) < 0.2, "a", "b") if corpora else np.full(n, "a")
    mass = np.zeros(n)
    for place in np.unique(corpus):
        kinds = np.unique(truth[corpus == place])
        for kind in kinds:
            rows = (corpus == place) & (truth == kind)
            mass[rows] = 1 / rows.sum() / len(kinds) / len(np.unique(corpus))
    factors, constants, outlier_probability = brute_force_fit(logs, truth, mass, speakers, errors)
    calibrator = HypothesisCalibrator(errors=errors)
    calibrator.fit(
        logs, truth, speakers=np.arange(n) % speakers, corpora=corpus if corpora else None
    )
    assert calibrator.n_speakers_ == speakers
    assert list(calibrator.weights_) == ["speaker", "phrase", "together"]
    np.testing.assert_allclose([*calibrator.weights_.values()], factors, atol=2e-3)
    names = ["speaker+phrase", "speaker", "phrase", "nothing"]
    occurring = [names[k] for k in np.unique(truth)]
    found = [calibrator.constants_[name] for name in occurring]
    np.testing.assert_allclose(found, constants, atol=1e-2)
    assert calibrator.outlier_probability_ == pytest.approx(outlier_probability, rel=2e-2)
    # a hypothesis of which there are no trials is left as it is
    assert all(calibrator.constants_[name] == 0 for name in names if name not in occurring)


def test_a_factor_is_not_negative() -> None:
    rng = np.random.default_rng(2)
    logs, truth = hypothesis_trials(rng, (200, 200, 200, 200))
    turned = {h: values.copy() for h, values in logs.items()}
    turned["phrase",] *= -1
    turned["speaker", "phrase"] = turned["speaker",] + turned["phrase",]
    calibrator = HypothesisCalibrator().fit(turned, truth, speakers=np.arange(800))
    assert calibrator.weights_["phrase"] == 0
    assert calibrator.weights_["speaker"] > 0


def test_calibrated_log_likelihoods_by_hand() -> None:
    rng = np.random.default_rng(3)
    logs, _ = hypothesis_trials(rng, (5, 5, 5, 5))
    calibrator = HypothesisCalibrator()
    calibrator.weights_ = {"speaker": 0.5, "phrase": 0.8}  # "together" has a factor of 1
    calibrator.constants_ = {"speaker+phrase": -1.0, "speaker": 0.5, "phrase": 0.2, "nothing": 0.0}
    calibrator.outlier_probability_ = 0.04
    calibrator.n_speakers_ = 20
    together, voice, words, none = logs.values()
    alone = 0.5 * voice, 0.8 * words
    every = [sum(alone) + together - voice - words - 1.0, alone[0] + 0.5, alone[1] + 0.2, none]
    share = np.exp(every) / np.exp(every).sum(axis=0)
    for values, own in zip(calibrator.transform(logs).values(), share, strict=True):
        np.testing.assert_allclose(np.exp(values), 0.96 * own + 0.01)


@pytest.mark.parametrize("outlier_probability", [0.2, 1e-3])
def test_no_ratio_is_larger_than_the_doubt_lets_it_be(outlier_probability: float) -> None:
    calibrator = HypothesisCalibrator()
    calibrator.weights_ = {"speaker": 1.0, "phrase": 1.0, "together": 1.0}
    calibrator.constants_ = dict.fromkeys(["speaker+phrase", "speaker", "phrase", "nothing"], 0.0)
    calibrator.outlier_probability_ = outlier_probability
    calibrator.n_speakers_ = 20
    sure = dict(zip(EVERY, np.array([[900.0], [300.0], [300.0], [0.0]]), strict=True))
    logs = calibrator.transform(sure)
    own, *others = (float(values[0]) for values in logs.values())
    mean = np.logaddexp.reduce(others) - np.log(3)
    assert calibrator.largest_llr == pytest.approx(own - mean)


@pytest.mark.parametrize("factor", [0.1, 4.0])
def test_the_prior_of_slopes_is_that_of_so_many_speakers(factor: float) -> None:
    """Two trials of each speaker against a slope of deviation 30, on scores of unit variance."""
    scores = factor * np.array([0.0, 1.0, 2.0, 3.0, 1.2, 1.8])
    targets = np.array([False, False, True, True, False, True])
    weights = np.where(targets, 0.5 / 3, 0.5 / 3)
    centre = weights @ scores
    scale = np.sqrt(weights @ (scores - centre) ** 2)
    unit = (scores - centre) / scale

    def cost(theta: np.ndarray) -> float:
        margin = np.where(targets, 1, -1) * (theta[0] * unit + theta[1])
        return float(
            weights @ np.logaddexp(0, -margin) + 0.5 * (theta[0] / 30.0) ** 2 / (2 * targets.sum())
        )

    found = minimize(cost, [1.0, 0.0], method="BFGS", options={"gtol": 1e-9})
    calibrator = LinearCalibrator().fit(scores, targets)
    assert calibrator.slope_ * scale == pytest.approx(found.x[0], rel=1e-3)
