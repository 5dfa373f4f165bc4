"""A metric is an object in one list; operating points by counting, with their intervals, and the command for them."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from cli_files import said_by, write_map
from evaluation_problems import SPREAD, simulate, weighted_curve
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import there
from scipy.special import ndtr, ndtri

from mvplda.exceptions import ParameterError
from mvplda.metrics import METRICS, Metric, ScoreCurve, compare_systems, evaluate, speaker_intervals
from mvplda.metrics.catalogue import metrics_of
from mvplda.metrics.intervals import weighted_trials
from mvplda.report import write_report

tied_scores = st.lists(st.integers(-4, 4).map(float), min_size=1, max_size=14)
rates = st.sampled_from([0.001, 0.05, 0.1, 0.25, 1 / 3, 0.5, 0.9])


class Overlap(Metric):
    """Share of targets below the mean of the non-targets."""

    name, heading, percent, headline = "overlap", "Overlap %", True, True

    notes = ("Overlap: targets below zero.",)

    def value(self, curve):
        return float(curve.rates(0.0)[0])


def test_a_metric_that_is_entered_in_the_list_is_everywhere(monkeypatch, tmp_path):
    scores, same, enrol, test = simulate(np.random.default_rng(3), mean=1.0)
    monkeypatch.setattr(
        "mvplda.metrics.catalogue.METRICS", [*METRICS, lambda costs, far: [Overlap()]]
    )
    result = evaluate(scores, same)
    intervals = speaker_intervals(scores, same, enrol, test)
    expected = np.mean(scores[same] < 0)
    found = intervals.intervals["Total"]["overlap"]
    assert result["Total"]["overlap"] == pytest.approx(expected) == found.estimate
    assert 0 < found.low < expected < found.high
    cell = f"{100 * expected:.2f} [{100 * found.low:.2f}, {100 * found.high:.2f}]"
    table = result.table(intervals)
    assert "Overlap %" in table
    assert cell in table
    assert "targets below zero" in table
    assert json.loads(json.dumps(result.to_dict()))["kinds"]["Total"]["overlap"] == pytest.approx(
        expected
    )
    assert ("Overlap %", "Total") in [(heading, kind) for heading, _, kind in result.summary()]
    tests = compare_systems(
        scores, scores + 1.0, same, enrol, test, n_resamples=20, random_state=0
    ).tests["Total"]
    assert tests["overlap"].difference > 0
    by_kind = {"target": scores[same], "nontarget": scores[~same]}
    write_report(tmp_path / "page.html", "a page", result, by_kind, intervals)
    page = (tmp_path / "page.html").read_text()
    assert "<th>Overlap %</th>" in page
    assert f"<td>{100 * expected:.2f}<small" in page


# -- operating points ----------------------------------------------------------


def by_counting(targets, nontargets, rate):
    """The threshold among all scores, and both rates there, by trying every one."""
    targets, nontargets = np.asarray(targets), np.asarray(nontargets)
    every = [*np.unique(np.concatenate([targets, nontargets])), np.inf]
    found = [(t, np.mean(targets < t), np.mean(nontargets >= t)) for t in every]
    return next(row for row in found if row[2] <= rate + 1e-9)


@given(tied_scores, tied_scores, rates)
@settings(deadline=None, max_examples=150)
def test_operating_points_by_trying_every_threshold(targets, nontargets, rate):
    """Nothing but a threshold below every score is left out of the trial: all rates there are known."""
    curve = ScoreCurve(targets, nontargets)
    who = np.arange(len(targets) + len(nontargets))
    sides = (who, who + len(who))
    flags = who < len(targets)
    weighed = weighted_trials(np.concatenate([targets, nontargets]), flags, sides)["Total"]
    threshold, miss, false_alarm = by_counting(targets, nontargets, rate)
    for one in (curve, there(weighed.under(np.ones(2 * len(who) + 1)))):
        found = one.threshold_for(rate)
        assert tuple(map(float, one.rates(found))) == pytest.approx((miss, false_alarm))
        assert found == threshold


def test_weights_of_kinds_count_in_a_false_alarm_rate():
    """Ten a, one b, each kind half of the weight: a b above all is too many at 49 %, and not at 50 %."""
    curve = weighted_curve([0.5], {"a": np.arange(10.0), "b": [20.0]}, {"a": 0.05, "b": 0.5})
    assert curve.threshold_for(0.5) == 20.0
    assert curve.threshold_for(0.49) == math.inf
    assert curve.threshold_for(0.7) == 6.0


def test_too_few_trials_by_the_rule_of_three(tmp_path):
    rng = np.random.default_rng(0)
    scores = {n: np.concatenate([rng.normal(3, 1, 50), rng.normal(0, 1, n)]) for n in (299, 300)}
    values = {n: evaluate(s, np.arange(len(s)) < 50, far=[0.01]) for n, s in scores.items()}
    assert math.isnan(values[299]["Total"]["frr_at_far/0.01"])
    assert math.isnan(values[299]["Total"]["threshold_at_far/0.01"])
    assert values[300]["Total"]["frr_at_far/0.01"] == np.mean(
        scores[300][:50] <= np.sort(scores[300][50:])[-4]
    )
    assert "too few" in values[299].table()
    assert "needs 3 / f non-targets" in values[299].table()
    assert values[299].to_dict()["kinds"]["Total"]["frr_at_far"] == {"0.01": None}
    with pytest.raises(ParameterError, match=r"a share in \(0, 1\)"):
        metrics_of(far=[1.0])


def test_an_interval_of_a_threshold_by_hand():
    """Jackknife the false-alarm rate at the threshold, and look up the thresholds of its ends."""
    from mvplda.metrics.catalogue import jackknife_interval

    scores, same, enrol, test = simulate(np.random.default_rng(5), speakers=25, mean=2.0)
    row = speaker_intervals(scores, same, enrol, test, far=[0.05]).intervals["Total"]
    others, targets = np.sort(scores[~same]), scores[same]
    threshold, miss, _ = by_counting(targets, others, 0.05)
    without = []
    for one in range(25):
        kept = np.ix_(enrol != one, test != one)
        part, flags = scores[kept], same[kept]
        without.append((np.mean(part[flags] < threshold), np.mean(part[~flags] >= threshold)))
    misses, alarms = np.array(without).T
    unseen = 1 - 0.05 ** (1 / 25)
    there = jackknife_interval(np.mean(others >= threshold), alarms, unseen_error=unseen)
    own = jackknife_interval(miss, misses, unseen_error=unseen)
    low, high = (by_counting(targets, others, rate)[0] for rate in (there.high, there.low))
    assert (row["threshold_at_far/0.05"].low, row["threshold_at_far/0.05"].high) == pytest.approx(
        (low, high)
    )
    reach = [
        math.hypot(miss - end, miss - np.mean(targets < t))
        for end, t in ((own.low, low), (own.high, high))
    ]
    found = row["frr_at_far/0.05"]
    assert (found.low, found.high) == pytest.approx((max(0, miss - reach[0]), miss + reach[1]))


@pytest.mark.slow
def test_intervals_of_operating_points_hold_the_truth():
    rng, rounds, far = np.random.default_rng(0), 60, 0.01
    deviation = math.sqrt(2 * SPREAD**2 + 1)
    threshold = deviation * ndtri(1 - far)
    truth = {
        "threshold_at_far/0.01": threshold,
        "frr_at_far/0.01": ndtr((threshold - 4.0) / math.hypot(SPREAD, 1)),
    }
    hits = dict.fromkeys(truth, 0)
    for _ in range(rounds):
        scores, same, enrol, test = simulate(rng, speakers=20)
        row = speaker_intervals(scores, same, enrol, test, far=[far]).intervals["Total"]
        for name, value in truth.items():
            hits[name] += int(row[name].low <= value <= row[name].high)
    assert min(hits.values()) >= 0.88 * rounds


# -- the command ---------------------------------------------------------------


@pytest.fixture
def files(tmp_path):
    scores, same, _, test = simulate(np.random.default_rng(2), speakers=20)
    pairs = [f"s{i} t{j}" for i, j in np.ndindex(scores.shape)]
    write_map(tmp_path / "scores", pairs, scores.reshape(-1).tolist())
    write_map(tmp_path / "trials", pairs, np.where(same, "target", "nontarget").reshape(-1))
    write_map(
        tmp_path / "utt2spk", [f"t{j}" for j in range(len(test))], [f"s{who}" for who in test]
    )
    return tmp_path, scores, same


def test_evaluate_shows_the_wanted_rates(files):
    folder, scores, same = files
    call = ["evaluate", folder / "scores", "--trials", folder / "trials"]
    _, miss, _ = by_counting(scores[same], scores[~same], 0.02)
    found = json.loads(said_by(*call, "--far", "0.02", "--json", code=0).out)
    assert found["kinds"]["Total"]["frr_at_far"] == {"0.02": pytest.approx(miss)}
    text = said_by(*call, code=0).out
    assert "FRR % at FAR 0.1 %" in text
