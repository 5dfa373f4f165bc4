"""The bootstrap over speakers: its weights, its coverage, and the paired test."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy.special import ndtr

from mvplda.exceptions import DataError, LabelError, ParameterError
from mvplda.metrics import compare_systems, evaluate, speaker_bootstrap, trial_kinds
from mvplda.metrics.costs import detection_costs
from mvplda.metrics.resampling import measure_names, speaker_codes, weighted_curves


def simulate(rng, speakers=30, tests=4, mean=4.0, noise=1.0):
    """Scores with effects of the speakers on both sides; the EER of the population is known."""
    who, spread = np.arange(speakers), 0.7
    test = np.repeat(who, tests)
    same = who[:, None] == test[None, :]
    own, enrolled, tested = rng.normal(0, spread, (3, speakers))
    effect = np.where(same, mean + own[:, None], enrolled[:, None] + tested[test][None, :])
    return effect + rng.normal(0, noise, same.shape), same, who, test


def population_eer(mean=4.0, noise=1.0, spread=0.7):
    """Phi(-mean / (s1 + s0)): the threshold where both Gaussian tails are equal."""
    return ndtr(-mean / (np.hypot(spread, noise) + np.sqrt(2 * spread**2 + noise**2)))


@pytest.mark.parametrize("equal_weights", [False, True])
def test_a_resample_is_the_evaluation_of_the_drawn_speakers(equal_weights):
    """Copy the trials of every drawn speaker, leave out those between copies of one, and evaluate them."""
    rng = np.random.default_rng(0)
    enrol = {"speaker": rng.integers(5, size=12), "phrase": rng.integers(2, size=12)}
    test = {"speaker": rng.integers(6, size=15), "phrase": rng.integers(2, size=15)}
    kinds = trial_kinds(enrol, test)
    scores = (rng.normal(0, 2, (12, 15)) + 3 * kinds["TC"]).round()  # with ties
    costs = detection_costs(["default", "sdsv"])
    first, second, n_speakers = speaker_codes(enrol["speaker"], test["speaker"], scores.shape)
    curves = weighted_curves(scores, kinds, (first, second), costs, None, equal_weights)
    drawn = np.array([2, 0, 1, 3, 1, 0])
    assert n_speakers == 6
    copies = []
    for i, j in np.ndindex(scores.shape):
        a, b = enrol["speaker"][i], test["speaker"][j]
        kind = next(kind for kind, mask in kinds.items() if mask[i, j])
        times = sum(1 for x in range(drawn[a]) for y in range(drawn[b]) if a != b or x == y)
        copies += [(scores[i, j], kind)] * times
    expected = evaluate([s for s, _ in copies], [k for _, k in copies], costs, equal_weights=equal_weights)
    assert list(curves) == list(expected.rows)
    for kind, curve in curves.items():
        found = dict(zip(measure_names(costs), curve.measure(np.append(drawn, 1.0)), strict=True))
        assert found == pytest.approx(expected[kind].flat(), abs=1e-12)


def test_estimates_are_those_of_evaluate_and_draws_repeat():
    scores, same, enrol, test = simulate(np.random.default_rng(1))
    found = speaker_bootstrap(scores, same, enrol, test, n_resamples=50, random_state=3)
    expected = evaluate(scores, same)["Total"].flat()
    assert {name: item.estimate for name, item in found.intervals["Total"].items()} == pytest.approx(expected)
    for item in found.intervals["Total"].values():
        assert item.low <= item.high
        assert item.standard_error > 0
    rows, columns = (np.broadcast_to(x, scores.shape).reshape(-1) for x in (enrol[:, None], test[None, :]))
    flat = speaker_bootstrap(scores.reshape(-1), same.reshape(-1), rows, columns, n_resamples=50, random_state=3)
    assert flat.to_dict() == found.to_dict()
    json.dumps(found.to_dict(), allow_nan=False)


@pytest.mark.slow
def test_intervals_cover_the_population_and_trials_alone_would_not():
    rng = np.random.default_rng(5)
    truth, hits, estimates, errors, naive = population_eer(), 0, [], [], []
    n = 80
    for _ in range(n):
        scores, same, enrol, test = simulate(rng)
        item = speaker_bootstrap(scores, same, enrol, test, n_resamples=120, random_state=rng).intervals["Total"]["eer"]
        hits += item.low <= truth <= item.high
        estimates.append(item.estimate)
        errors.append(item.standard_error)
        # drawing trials is drawing speakers of one trial each
        trial = np.arange(same.sum() + (~same).sum())
        flat = np.concatenate([scores[same], scores[~same]])
        alone = speaker_bootstrap(flat, trial < same.sum(), trial, trial, n_resamples=10, random_state=rng)
        naive.append(alone.intervals["Total"]["eer"].standard_error)
    assert 0.84 <= hits / n <= 1
    assert np.mean(errors) == pytest.approx(np.std(estimates), rel=0.3)
    assert np.mean(naive) < 0.8 * np.std(estimates)


def test_paired_test_finds_the_better_system_and_only_then():
    rng = np.random.default_rng(2)
    scores, same, enrol, test = simulate(rng)
    worse = scores + rng.normal(0, 1.0, scores.shape)
    found = compare_systems(scores, worse, same, enrol, test, n_resamples=200, random_state=0)
    item = found.tests["Total"]["min_cllr"]
    assert item.verdict == "A"
    assert item.difference == pytest.approx(item.a - item.b)
    assert item.high < 0
    assert item.p_value < 0.05
    back = compare_systems(worse, scores, same, enrol, test, n_resamples=200, random_state=0).tests["Total"]["min_cllr"]
    assert (back.verdict, back.p_value) == ("B", item.p_value)
    none = compare_systems(scores, 2 * scores, same, enrol, test, n_resamples=50, random_state=0).tests["Total"]["eer"]
    assert (none.difference, none.p_value, none.verdict) == (0, 1, "undecided")
    json.dumps(found.to_dict(), allow_nan=False)


@pytest.mark.slow
def test_paired_p_values_are_not_too_small_when_nothing_differs():
    rng = np.random.default_rng(4)
    small = 0
    for _ in range(60):
        scores, same, enrol, test = simulate(rng, noise=0.5)
        a, b = (scores + rng.normal(0, 0.87, scores.shape) for _ in range(2))
        found = compare_systems(a, b, same, enrol, test, n_resamples=100, random_state=rng)
        small += found.tests["Total"]["min_cllr"].p_value < 0.05
    assert small <= 9  # of 60; 3 expected


def test_progress_is_shown_on_request(capsys):
    scores, same, enrol, test = simulate(np.random.default_rng(1), speakers=8)
    speaker_bootstrap(scores, same, enrol, test, n_resamples=20, random_state=0)
    assert capsys.readouterr().err == ""
    speaker_bootstrap(scores, same, enrol, test, n_resamples=20, random_state=0, verbose=True)
    assert "bootstrap over speakers 20/20" in capsys.readouterr().err


def test_infinite_costs_are_kept_and_not_averaged():
    scores, same, enrol, test = simulate(np.random.default_rng(1), speakers=8)
    scores[0, 0] = -np.inf  # a target, rejected for certain
    found = speaker_bootstrap(scores, same, enrol, test, n_resamples=40, random_state=0).intervals["Total"]
    assert found["cllr"].estimate == found["cllr"].high == np.inf
    assert np.isfinite(found["min_cllr"].high)
    paired = compare_systems(scores, scores, same, enrol, test, n_resamples=40, random_state=0).tests["Total"]["cllr"]
    assert paired.verdict == "undecided"


def test_what_cannot_be_drawn():
    scores, same, enrol, test = simulate(np.random.default_rng(1), speakers=8)
    with pytest.raises(LabelError, match="test_speakers must label every trial"):
        speaker_bootstrap(scores, same, enrol, test[1:])
    with pytest.raises(LabelError, match="one type"):
        speaker_bootstrap(scores, same, enrol, test.astype(str))
    with pytest.raises(DataError, match="at least two speakers"):
        speaker_bootstrap([1.0, 0.0], ["TC", "TW"], ["a", "a"], ["a", "a"])
    with pytest.raises(DataError, match="too few speakers"):
        speaker_bootstrap([1.0, 0.0], ["TC", "IC"], ["a", "a"], ["a", "b"], n_resamples=50, random_state=0)
    with pytest.raises(DataError, match="same trials"):
        compare_systems(scores, scores[1:], same, enrol, test)
    with pytest.raises(ParameterError, match="level"):
        speaker_bootstrap(scores, same, enrol, test, level=95)
    with pytest.raises(ParameterError, match="at least 2"):
        speaker_bootstrap(scores, same, enrol, test, n_resamples=1)
