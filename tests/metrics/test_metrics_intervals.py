"""Intervals over speakers: by hand, at the edges, and how often they hold the truth."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from evaluation_problems import phrase_blind, population, simulate
from scipy.stats import beta
from scipy.stats import t as student

from mvplda.exceptions import LabelError, ParameterError
from mvplda.metrics import evaluate, intervals, speaker_intervals
from mvplda.metrics.catalogue import Interval, effective_number, jackknife_interval
from mvplda.metrics.curves import Hull, hull_corners
from mvplda.metrics.intervals import Intervals


def test_estimates_are_those_of_evaluate_whatever_the_shape():
    scores, same, enrol, test = simulate(np.random.default_rng(1))
    found = speaker_intervals(scores, same, enrol, test, ("default", "sre21"))
    expected = evaluate(scores, same, ("default", "sre21"))["Total"].values
    row = found.intervals["Total"]
    none = {name for name, value in expected.items() if name.startswith("act_dcf")}
    assert set(expected) - set(row) == none | {
        f"{name}/0.0001" for name in ("frr_at_far", "threshold_at_far")
    }
    for name, item in row.items():
        assert item.estimate == pytest.approx(expected[name], abs=1e-12)
        assert item.low < item.estimate < item.high
        assert "threshold" in name or item.low >= 0
    rows, columns = (
        np.broadcast_to(x, scores.shape).reshape(-1) for x in (enrol[:, None], test[None, :])
    )
    flat = speaker_intervals(
        scores.reshape(-1), same.reshape(-1), rows, columns, ("default", "sre21")
    )
    assert flat.to_dict() == found.to_dict()
    json.dumps(found.to_dict(), allow_nan=False)


def test_an_interval_by_hand():
    """Leave out every speaker by masking his rows and columns, and write the formula out."""
    scores, same, enrol, test = simulate(np.random.default_rng(3), speakers=25)
    found = speaker_intervals(scores, same, enrol, test).intervals["Total"]["eer"]
    n, e = 25, evaluate(scores, same)["Total"]["eer"]
    without = []
    for i in range(n):
        part = np.ix_(enrol != i, test != i)
        without.append(evaluate(scores[part], same[part])["Total"]["eer"])
    c = 2 * e / n
    y, y_i = np.log(e + c), np.log(np.array(without) + c)
    d = y_i - y_i.mean()
    error = np.sqrt((n - 1) / n * np.sum(d**2))
    corrected = n * y - (n - 1) * y_i.mean()
    freedom = min(n - 1, max(4, 3 * np.sum(d**2) ** 2 / np.sum(d**4) - 1))
    t = student.ppf(0.975, freedom)
    skewness = -np.sum(d**3) / np.sum(d**2) ** 1.5
    further = max(0, skewness) * (2 * t**2 + 1) / 6
    assert found.low == pytest.approx(np.exp(min(y, corrected) - t * error) - c, rel=1e-9)
    of_hull = y + 1.5 * max(0, corrected - y)
    high = np.exp(of_hull + (t + further) * error) - c
    assert found.high == pytest.approx(high, rel=1e-9)
    raw = np.array(without)
    assert found.standard_error == pytest.approx(
        np.sqrt((n - 1) / n * np.sum((raw - raw.mean()) ** 2))
    )


def by_formula(estimate, without, hull=1.0):
    """Both ends, written out: the ends without a bias, and what the bias and the skewness add."""
    n = len(without)
    c = 2 * estimate / n
    y, y_i = np.log(estimate + c), np.log(without + c)
    d = y_i.mean() - y_i
    error = np.sqrt((n - 1) / n * np.sum(d**2))
    bias = (n - 1) * (y_i.mean() - y)
    t = student.ppf(0.975, min(n - 1, max(4, 3 * np.sum(d**2) ** 2 / np.sum(d**4) - 1)))
    g = max(0, np.sum(d**3) / np.sum(d**2) ** 1.5) * (2 * t**2 + 1) / 6
    return np.exp(min(y, y - bias) - t * error) - c, np.exp(
        max(y, y - hull * bias) + (t + g) * error
    ) - c


@pytest.mark.parametrize("shift", [-0.002, 0.0, 0.002])
@pytest.mark.parametrize("worst", [-0.01, 0.0, 0.01])
def test_each_end_follows_the_bias_its_way_and_the_upper_end_the_skewness(shift, worst):
    """Bias down moves the lower end only, bias up the upper; one bad speaker stretches the upper."""
    without = 0.1 + shift + 0.002 * np.linspace(-1, 1, 12)
    without[0] += worst
    found = jackknife_interval(0.1, without)
    assert (found.low, found.high) == pytest.approx(by_formula(0.1, without), rel=1e-12)
    assert 0 < found.low < 0.1 < found.high
    of_hull = jackknife_interval(0.1, without, of_hull=True)
    assert (of_hull.low, of_hull.high) == pytest.approx(by_formula(0.1, without, 1.5), rel=1e-12)


def test_the_lower_end_is_never_below_zero():
    without = np.array([0.001, *[0.011] * 9])  # one speaker makes nearly all errors
    assert by_formula(0.01, without)[0] < 0
    assert jackknife_interval(0.01, without).low == 0


def test_speakers_count_by_their_share_of_the_trials():
    """Four of twenty speakers have nine targets each, the others one: not quite eight speakers."""
    sizes = np.array([9] * 4 + [1] * 16)
    assert effective_number(sizes) == pytest.approx(52**2 / 340)
    assert effective_number(np.full(7, 4)) == pytest.approx(7)
    own = np.repeat(np.arange(20), sizes)
    enrol, test = (side.reshape(-1) for side in np.indices((20, 20)))
    kinds = np.repeat(["target", "nontarget"], [len(own), 380])
    scores = np.where(kinds == "target", 5.0, -5.0)
    sides = (np.concatenate([own, side[enrol != test]]) for side in (enrol, test))
    found = speaker_intervals(scores, kinds, *sides).intervals["Total"]["eer"]
    assert found.high == pytest.approx(1 - 0.05 ** (340 / 52**2))


def test_many_speakers_are_left_out_in_groups(monkeypatch):
    """Groups of nearly one size, every speaker in one of them, and an interval that is much the same."""
    scores, same, enrol, test = simulate(np.random.default_rng(1), speakers=60)
    one_by_one = speaker_intervals(scores, same, enrol, test).intervals["Total"]["cllr"]
    monkeypatch.setattr(intervals, "MAX_GROUPS", 20)
    grouped = speaker_intervals(scores, same, enrol, test).intervals["Total"]["cllr"]
    group = enrol % 20
    without = [
        evaluate(
            scores[np.ix_(group != g, group[test] != g)], same[np.ix_(group != g, group[test] != g)]
        )["Total"]["cllr"]
        for g in range(20)
    ]
    assert grouped.standard_error == pytest.approx(np.sqrt(19 / 20 * 20 * np.var(without)))
    assert grouped.standard_error == pytest.approx(one_by_one.standard_error, rel=0.5)
    assert grouped.standard_error != one_by_one.standard_error


@pytest.mark.parametrize("phrases", [3, 8])
def test_total_keeps_the_shares_of_the_kinds_in_every_replicate(phrases):
    """Without a speaker there are fewer wrong phrases for every impostor; that is no bias of the estimate.

    A model of voices alone errs by the share of wrong phrases, about 1 / speakers, whoever they are.
    """
    rng = np.random.default_rng(2)
    scores, kinds, who, test = phrase_blind(rng, speakers=40, phrases=phrases)
    found = speaker_intervals(scores, kinds, who, test).intervals["Total"]
    for name in ("eer", "min_cllr"):
        item = found[name]
        others = []
        for _ in range(8):
            again, masks, *_ = phrase_blind(rng, speakers=40, phrases=phrases)
            others.append(evaluate(again, masks)["Total"][name])
        assert item.low < np.mean(others) < item.high
        assert item.high - item.low < 6 * (max(others) - min(others)), name
        assert item.estimate - item.low < 3 * (item.high - item.estimate), name


@pytest.mark.parametrize(("speakers", "high"), [(10, 0.2589), (20, 0.1391), (100, 0.0295)])
def test_no_error_is_the_rule_of_three(speakers, high):
    """1 - 0.05^(1/n), about 3 / n: speakers who always fail may be that many, and not one was met."""
    who = np.arange(speakers)
    row = speaker_intervals(
        np.eye(speakers), np.eye(speakers, dtype=bool), who, who, "sre21"
    ).intervals["Total"]
    assert (row["eer"].estimate, row["eer"].low) == (0, 0)
    assert row["eer"].high == pytest.approx(high, abs=1e-4)
    assert row["min_cllr"].low == 0
    assert row["min_cllr"].high == pytest.approx(
        -high * np.log2(high) - (1 - high) * np.log2(1 - high), abs=1e-3
    )
    if "min_dcf/sre21" in row:
        assert row["min_dcf/sre21"].high == pytest.approx(min(1.0, 19 * high), abs=1e-2)


@pytest.mark.parametrize("turned", [False, True])
def test_impostors_who_are_not_enrolled_are_no_more_people_to_be_missed(turned):
    """Five have targets, or five alone pretend, whatever there are on the other side: three in five."""
    few, many = np.repeat(np.arange(5), 200), np.tile(100 + np.arange(200), 5)
    own = np.arange(100, 300) if turned else np.repeat(np.arange(5), 3)  # of the targets
    enrol, test = (many, few) if turned else (few, many)
    same = np.arange(len(own) + len(few)) < len(own)
    sides = np.concatenate([own, enrol]), np.concatenate([own, test])
    high = 1 - 0.05 ** (1 / 5)
    row = speaker_intervals(np.where(same, 9.0, -9.0), same, *sides).intervals["Total"]
    assert (row["eer"].low, row["eer"].high) == (0, pytest.approx(high))
    scores = np.random.default_rng(0).normal(np.where(same, 3.0, -3.0), 1.5)
    found = speaker_intervals(scores, same, *sides).intervals["Total"]["eer"]
    assert found.low < found.estimate < found.high <= found.estimate + high


def test_freedom_is_that_of_the_speakers_who_count():
    without = 0.1 + np.tile([-0.01, 0.01], 10)
    reach = [
        np.log((jackknife_interval(0.1, without, speakers=n).high + 0.2 / n) / (0.1 + 0.2 / n))
        for n in (10, 20)
    ]
    spread = [
        np.sqrt(19 / 20)
        * np.linalg.norm(np.log(without + 0.2 / n) - np.log(without + 0.2 / n).mean())
        for n in (10, 20)
    ]
    shift = [19 * (np.log(0.1 + 0.2 / n) - np.log(without + 0.2 / n).mean()) for n in (10, 20)]
    for k, n in enumerate((10, 20)):
        logs = np.log(without + 0.2 / n)
        d = logs.mean() - logs
        t = student.ppf(0.975, n - 1)
        further = max(0, np.sum(d**3) / np.sum(d**2) ** 1.5) * (2 * t**2 + 1) / 6
        assert reach[k] == pytest.approx(shift[k] + (t + further) * spread[k])


@pytest.mark.parametrize(
    ("kinds", "enrol", "test"),
    [
        (["TC"] * 4 + ["TW"] + ["IC"] * 4, "abcdaabcd", "abcdabcda"),  # TW of one speaker
        (["TC", "TC", "IC", "IC"], "abab", "abba"),  # two speakers
        (["TC", "TW", "TC"], "aaa", "aaa"),
    ],
)
def test_a_kind_of_too_few_speakers_has_no_interval_and_the_table_says_so(kinds, enrol, test):
    scores = np.linspace(1, -1, len(kinds))
    found = speaker_intervals(scores, kinds, list(enrol), list(test))
    assert [kind for kind, row in found.intervals.items() if not row] == list(found.too_few) != []
    assert ("IC" in found.too_few) == (set(enrol) == {"a", "b"})
    table = evaluate(scores, kinds).table(intervals=found)
    assert f"None for {', '.join(found.too_few)}: " in table
    assert "too few speakers" in found.to_dict()["definition"]


@pytest.mark.parametrize("weight", [-1.0, 0.0, math.nan, math.inf])
def test_a_trial_stands_for_some_number_of_trials(weight):
    scores, same, enrol, test = simulate(np.random.default_rng(1), speakers=8)
    with pytest.raises(ParameterError, match=r"weights\['nontarget'\] is the number"):
        speaker_intervals(scores, same, enrol, test, weights={"nontarget": weight})


def test_one_erring_speaker_reaches_no_further_than_three_in_n():
    who = np.arange(20)
    scores = np.eye(20)
    scores[0, 0] = -1.0
    found = speaker_intervals(scores, np.eye(20, dtype=bool), who, who).intervals["Total"]["eer"]
    assert found.low < 0.25 * found.estimate
    assert found.estimate + 0.02 < found.high <= found.estimate + 1 - 0.05 ** (1 / 20)


def test_one_speaker_with_half_of_the_errors_may_stand_for_many_more():
    """Of 29 speakers one fails in 35 % of trials, the others in 1.1 %: such speakers may be 1 in 1000, or 1 in 6."""
    rates = np.array([0.35, *[0.011] * 28])
    without = (rates.sum() - rates) / 28
    found = jackknife_interval(
        rates.mean(), without, of_hull=True, unseen_error=0.1, upper_bound=0.5
    )
    shares: Any = beta.ppf([0.025, 0.975], [1, 2], [29, 28])
    least, most = 0.011 + shares * (0.35 - 0.011)
    assert found.low < least
    assert most < found.high <= rates.mean() + 0.1


def test_ends_stay_where_a_measure_can_be():
    rng = np.random.default_rng(0)
    scores, same, enrol, test = simulate(rng, speakers=8, mean=0.2)
    row = speaker_intervals(scores, same, enrol, test, "sre21").intervals["Total"]
    assert row["eer"].high <= 0.5
    assert row["min_cllr"].high <= 1
    values = jackknife_interval(0.9, np.linspace(0.5, 1.0, 10), upper_bound=1.0)
    assert values.high == 1
    same_again = jackknife_interval(0.3, np.full(10, 0.3))
    assert (same_again.low, same_again.high) == (pytest.approx(0.3), pytest.approx(0.3))


def test_cllr_reaches_as_far_as_min_cllr_and_the_loss():
    """Without a single error every score is fine, and Cllr of these few scores says next to nothing."""
    who = np.arange(12)
    same = np.eye(12, dtype=bool)
    row = speaker_intervals(np.where(same, 20.0, -20.0), same, who, who).intervals["Total"]
    assert row["cllr"].estimate < 1e-6
    assert row["cllr"].high >= row["min_cllr"].high > 0.5


def test_costs_too_coarse_for_the_trials_have_no_interval():
    """20 speakers, 1520 non-targets: one false alarm costs 99 / 1520 at a prior of .01, 999 / 1520 at .001."""
    scores, same, enrol, test = simulate(np.random.default_rng(1), speakers=20)
    row = speaker_intervals(scores, same, enrol, test, ("default", "sre10")).intervals["Total"]
    assert "min_dcf/default" in row
    assert "min_dcf/sre10" not in row
    table = evaluate(scores, same, ("default", "sre10")).table(
        intervals=speaker_intervals(scores, same, enrol, test, ("default", "sre10"))
    )
    assert "a minDCF that one trial moves by more than 0.1" in table


def test_a_drawn_kind_keeps_its_weight_in_total():
    """Of a kind of which one trial in five was drawn, one stands for five."""
    rng = np.random.default_rng(0)
    n = 40
    who = np.repeat(np.arange(n), n)
    test = np.tile(np.arange(n), n)
    kind = np.where(who == test, "TC", np.where((who + test) % 6 == 0, "IC", "IW"))
    scores = rng.normal(0, 1, n * n) + np.select([kind == "TC", kind == "IC"], [4.0, 2.0], 0.0)
    some = np.flatnonzero((kind != "IW") | (rng.random(n * n) < 0.2))
    weight = (kind == "IW").sum() / (kind[some] == "IW").sum()
    whole = speaker_intervals(scores, kind, who, test)
    part = scores[some], kind[some], who[some], test[some]
    weighted, plain = (speaker_intervals(*part, weights=w) for w in ({"IW": weight}, None))
    assert weighted.intervals["IW"] == plain.intervals["IW"]
    for name in ("eer", "cllr"):
        truth = whole.intervals["Total"][name].estimate
        assert weighted.intervals["Total"][name].estimate == pytest.approx(truth, rel=0.1)
        assert plain.intervals["Total"][name].estimate > 1.3 * truth
    copies = np.concatenate([some[kind[some] != "IW"], np.repeat(some[kind[some] == "IW"], 3)])
    three = speaker_intervals(*part, weights={"IW": 3.0}).intervals["Total"]
    copied = speaker_intervals(scores[copies], kind[copies], who[copies], test[copies]).intervals[
        "Total"
    ]
    for name in ("eer", "cllr", "min_cllr"):
        assert vars(three[name]) == pytest.approx(vars(copied[name]))


def test_infinite_costs_have_no_interval():
    scores, same, enrol, test = simulate(np.random.default_rng(1), speakers=8)
    scores[0, 0] = -np.inf  # a target, rejected for certain
    found = speaker_intervals(scores, same, enrol, test).intervals["Total"]
    assert "cllr" not in found
    assert np.isfinite(found["min_cllr"].high)


def test_what_can_have_no_intervals():
    scores, same, enrol, test = simulate(np.random.default_rng(1), speakers=8)
    with pytest.raises(LabelError, match="test_speakers must have one label per trial"):
        speaker_intervals(scores, same, enrol, test[1:])


@pytest.mark.slow
def test_intervals_hold_the_population_and_trials_alone_would_not():
    """`python -m benchmarks intervals` measures the same closely; here, 80 evaluations of 20 speakers."""
    targets, others, shares = population()
    edges = np.union1d(targets, others)
    below = [
        np.concatenate([[0.0], np.interp(edges, x, np.cumsum(shares), left=0.0), [1.0]])
        for x in (targets, others)
    ]
    hull = Hull(*hull_corners(np.array(list(below))))
    cllr = float(shares @ (np.logaddexp(0, -targets) + np.logaddexp(0, others)) / (2 * math.log(2)))
    truth = {"eer": hull.eer(), "min_dcf/sre21": float(hull.least(1.0, 19.0)[0]), "cllr": cllr}
    truth["min_cllr"] = hull.min_cllr()
    rng = np.random.default_rng(5)
    rounds, hits = 80, dict.fromkeys(truth, 0)
    widths: dict[str, list[float]] = {name: [] for name in truth}
    estimates, errors, naive = [], [], []
    for _ in range(rounds):
        scores, same, enrol, test = simulate(rng, speakers=20)
        row = speaker_intervals(scores, same, enrol, test, "sre21").intervals["Total"]
        for name, value in truth.items():
            hits[name] += row[name].low <= value <= row[name].high
            widths[name].append(row[name].high - row[name].low)
        estimates.append(row["eer"].estimate)
        errors.append(row["eer"].standard_error)
        # leaving out trials is leaving out speakers of one trial each
        trial = np.arange(scores.size)
        flat = np.concatenate([scores[same], scores[~same]])
        naive.append(
            speaker_intervals(flat, trial < same.sum(), trial, trial)
            .intervals["Total"]["eer"]
            .standard_error
        )
    for name, value in truth.items():
        assert hits[name] >= 0.9 * rounds, name
        assert np.median(widths[name]) < 2.5 * value, name
    assert np.mean(errors) == pytest.approx(np.std(estimates), rel=0.35)
    assert np.mean(naive) < 0.8 * np.std(estimates)


@pytest.mark.slow
@pytest.mark.parametrize("enrolled", [5, 12])
def test_intervals_hold_the_population_where_impostors_are_not_enrolled(enrolled):
    """60 evaluations of a few who are enrolled, and of 60 others who are tested only."""
    targets, others, shares = population()
    edges = np.union1d(targets, others)
    below = (
        np.concatenate([[0.0], np.interp(edges, x, np.cumsum(shares), left=0.0), [1.0]])
        for x in (targets, others)
    )
    truth = Hull(*hull_corners(np.array(list(below)))).eer()
    rng = np.random.default_rng(5)
    held = 0
    for _ in range(60):
        scores, same, who, test = simulate(rng, speakers=enrolled + 60)
        found = speaker_intervals(
            scores[:enrolled], same[:enrolled], who[:enrolled], test
        ).intervals["Total"]["eer"]
        held += found.low <= truth <= found.high
    assert held >= 54


def test_an_interval_that_repeats_its_number_is_not_shown():
    scores, same, _, _ = simulate(np.random.default_rng(1), speakers=8)
    result = evaluate(scores, same, far=[0.05])
    eer = next(metric for metric in result.metrics if metric.name == "eer")
    value = result["Total"]["eer"]

    def cell(low, high):
        row = {"Total": {"eer": Interval(value, low, high)}}
        return result.cell(eer, "Total", Intervals(row, 0.95, 8))

    assert cell(value - 1e-7, value + 1e-7) == f"{100 * value:.2f}"
    assert cell(0.0, 0.5) == f"{100 * value:.2f} [0.00, 50.00]"
