"""Trials under drawn speakers, and the paired test."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from evaluation_problems import phrase_blind, simulate, weighted_curve
from problems import there
from scipy.stats import norm
from scipy.stats import t as student

from mvplda.exceptions import DataError, ParameterError
from mvplda.metrics import cllr, compare_systems, evaluate, trial_kinds
from mvplda.metrics.intervals import speaker_codes, weighted_trials


def test_a_resample_is_the_evaluation_of_the_drawn_speakers():
    """Copy the trials of every drawn speaker, leave out those between copies of one, and evaluate them.

    In rows of several kinds every kind keeps the share that it has when every speaker comes once.
    """
    rng = np.random.default_rng(0)
    enrol = {"speaker": rng.integers(5, size=12), "phrase": rng.integers(2, size=12)}
    test = {"speaker": rng.integers(6, size=15), "phrase": rng.integers(2, size=15)}
    kinds = trial_kinds(enrol, test)
    scores = (rng.normal(0, 2, (12, 15)) + 3 * kinds["TC"]).round()  # with ties
    points: dict[str, Any] = {"costs": ["default", "sdsv"], "far": [0.05, 0.2]}
    n_speakers = speaker_codes(enrol["speaker"], test["speaker"], scores.shape)[2]
    rows = weighted_trials(scores, kinds, (enrol["speaker"], test["speaker"]))
    drawn = np.array([2, 0, 1, 3, 1, 0])
    assert n_speakers == 6
    copies = []
    for i, j in np.ndindex(scores.shape):
        a, b = enrol["speaker"][i], test["speaker"][j]
        kind = next(kind for kind, mask in kinds.items() if mask[i, j])
        times = sum(1 for x in range(drawn[a]) for y in range(drawn[b]) if a != b or x == y)
        copies += [(scores[i, j], kind)] * times
    expected = evaluate([s for s, _ in copies], [k for _, k in copies], **points)
    assert list(rows) == list(expected.rows)
    drawn_scores = {k: [s for s, name in copies if name == k] for k in kinds}
    once = {k: mask.sum() for k, mask in kinds.items() if k != "TC"}
    for kind, trials in rows.items():
        curve = there(trials.under(np.append(drawn, 1.0)))
        shares = {kind: 1.0}
        if kind == "Total":
            shares = {k: size / len(drawn_scores[k]) for k, size in once.items()}
        parts = {k: drawn_scores[k] for k in shares}
        right = weighted_curve(drawn_scores["TC"], parts, shares)
        errors = [metric for metric in expected.metrics if metric.is_error]
        found = {metric.name: metric.value(curve) for metric in errors}
        wanted = {metric.name: metric.value(right) for metric in errors}
        assert found == pytest.approx(wanted, abs=1e-12)


def test_a_difference_in_total_keeps_the_shares_of_the_kinds():
    """A rejects wrong phrases, B does not: B's errors are the share of wrong phrases, which is no chance."""
    rng = np.random.default_rng(3)
    blind, kinds, who, test = phrase_blind(rng, speakers=30, phrases=4)
    aware = np.where(kinds["TW"], blind - 12.0, blind)
    found = compare_systems(aware, blind, kinds, who, test, n_resamples=200, random_state=0)
    item = found.tests["Total"]["eer"]
    other_speakers = []
    for _ in range(8):
        again = phrase_blind(rng, speakers=30, phrases=4)
        better = np.where(again[1]["TW"], again[0] - 12.0, again[0])
        pair = [evaluate(s, again[1])["Total"]["eer"] for s in (better, again[0])]
        other_speakers.append(pair[0] - pair[1])
    assert item.low < min(other_speakers)
    assert max(other_speakers) < item.high
    assert item.low < item.difference < item.high
    assert item.difference - item.low < 3 * (item.high - item.difference)


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
    back = compare_systems(worse, scores, same, enrol, test, n_resamples=200, random_state=0).tests[
        "Total"
    ]["min_cllr"]
    assert (back.verdict, back.p_value) == ("B", item.p_value)
    none = compare_systems(
        scores, 2 * scores, same, enrol, test, n_resamples=50, random_state=0
    ).tests["Total"]["eer"]
    assert (none.difference, none.p_value, none.verdict) == (0, 1, "undecided")
    json.dumps(found.to_dict(), allow_nan=False)


@pytest.mark.slow
def test_paired_p_values_are_not_too_small_when_nothing_differs():
    rng = np.random.default_rng(4)
    small = {"eer": 0, "cllr": 0, "min_cllr": 0}
    for _ in range(100):
        scores, same, enrol, test = simulate(rng, speakers=12, noise=0.5)
        a, b = (scores + rng.normal(0, 0.87, scores.shape) for _ in range(2))
        found = compare_systems(a, b, same, enrol, test, n_resamples=100, random_state=rng).tests[
            "Total"
        ]
        for name in small:
            assert (found[name].p_value < 0.05) == (found[name].verdict != "undecided")
            small[name] += found[name].p_value < 0.05
    assert max(small.values()) <= 10  # of 100; 5 expected
    assert sum(small.values()) >= 2


def test_a_p_value_by_hand():
    """Draw the speakers, count the differences on either side, and expand for few speakers."""
    rng = np.random.default_rng(6)
    scores, same, enrol, test = simulate(rng, speakers=12)
    a, b = scores, scores + rng.normal(0, 0.5, scores.shape)
    found = compare_systems(a, b, same, enrol, test, n_resamples=99, random_state=5).tests["Total"][
        "cllr"
    ]
    rng, differences = np.random.default_rng(5), []
    for _ in range(99):
        times = np.bincount(rng.integers(12, size=12), minlength=12)
        weight = np.where(same, times[:, None], times[:, None] * times[test][None, :])
        ours, theirs = (cllr(*(np.repeat(s[m], weight[m]) for m in (same, ~same))) for s in (a, b))
        differences.append(ours - theirs)
    tail = min(np.sum(np.array(differences) <= 0), np.sum(np.array(differences) >= 0))
    z = norm.ppf((tail + 1) / 100)
    assert 0 < tail < 50
    assert found.p_value == pytest.approx(2 * student.cdf(z / np.sqrt(12 / 11), 11))
    edge = student.ppf(0.975, 11) * np.sqrt(12 / 11)
    assert (found.low, found.high) == pytest.approx(
        tuple(np.quantile(differences, [norm.cdf(-edge), norm.cdf(edge)]))
    )


def test_what_is_no_error_is_not_compared():
    """A threshold is neither better nor worse."""
    scores, same, enrol, test = simulate(np.random.default_rng(1), speakers=8)
    found = compare_systems(scores, 2 * scores, same, enrol, test, n_resamples=2, random_state=0)
    families = {name.partition("/")[0] for name in found.tests["Total"]}
    errors = {"eer", "min_dcf", "act_dcf", "cllr", "min_cllr"}
    assert families == errors


def test_draws_repeat():
    rng = np.random.default_rng(1)
    scores, same, enrol, test = simulate(rng)
    other = scores + rng.normal(0, 0.5, scores.shape)
    first, again, otherwise = (
        compare_systems(
            scores, other, same, enrol, test, n_resamples=50, random_state=seed
        ).to_dict()
        for seed in (3, 3, 4)
    )
    assert first == again != otherwise


def test_infinite_costs_are_undecided():
    scores, same, enrol, test = simulate(np.random.default_rng(1), speakers=8)
    scores[0, 0] = -np.inf  # a target, rejected for certain
    paired = compare_systems(
        scores, scores, same, enrol, test, n_resamples=40, random_state=0
    ).tests["Total"]["cllr"]
    assert paired.verdict == "undecided"
    assert np.isnan(paired.difference)


@pytest.mark.parametrize(("enrol", "test"), [("aa", "ab"), ("aa", "aa")])
def test_a_kind_of_too_few_speakers_is_undecided(enrol, test):
    found = compare_systems(
        [1.0, 0.0],
        [0.0, 1.0],
        ["TC", "IC"],
        list(enrol),
        list(test),
        n_resamples=50,
        random_state=0,
    ).tests["IC"]["eer"]
    assert (found.a, found.b, found.verdict) == (0, 0.5, "undecided")
    assert np.isnan([found.low, found.high, found.p_value]).all()


@pytest.mark.slow
def test_paired_p_values_where_impostors_are_not_enrolled():
    """Twelve are enrolled and a hundred pretend: the test knows twelve."""
    rng = np.random.default_rng(4)
    wrong = 0
    for _ in range(100):
        systems = [simulate(rng, speakers=112, tests=2) for _ in range(2)]
        (a, same, who, test), (b, *_) = systems
        found = compare_systems(
            a[:12], b[:12], same[:12], who[:12], test, n_resamples=100, random_state=rng
        )
        wrong += found.tests["Total"]["eer"].p_value < 0.05
    assert wrong <= 9  # of 100; 5 expected


def test_what_cannot_be_compared():
    scores, same, enrol, test = simulate(np.random.default_rng(1), speakers=8)
    with pytest.raises(DataError, match="same trials"):
        compare_systems(scores, scores[1:], same, enrol, test)
    with pytest.raises(ParameterError, match="at least 2"):
        compare_systems(scores, scores, same, enrol, test, n_resamples=1)
