"""The threshold for a wanted false-alarm rate of the worst kind of impostor."""

from __future__ import annotations

import math

import numpy as np
import pytest
from evaluation_problems import phrase_blind, simulate

from mvplda.exceptions import DataError, ParameterError
from mvplda.metrics import (
    ScoreCurve,
    identification_curve,
    speaker_intervals,
    threshold_for,
    transactions,
)


def test_the_threshold_is_that_of_the_kind_that_needs_the_highest():
    scores, kinds, who, test = phrase_blind(np.random.default_rng(0), speakers=20, phrases=3)
    point = threshold_for(scores, kinds, 0.05, who, test)
    targets = scores[kinds["TC"]]
    wanted = {
        kind: ScoreCurve(targets, scores[kinds[kind]]).threshold_for(0.05)
        for kind in ("IW", "IC", "TW")
    }
    assert point.threshold == max(wanted.values()) == wanted["TW"]
    assert point.worst == "TW"
    for kind, rate in point.far.items():
        assert rate.estimate == pytest.approx((scores[kinds[kind]] >= point.threshold).mean())
        assert rate.estimate <= 0.05 + 1e-12
        assert 0 <= rate.low <= rate.estimate <= rate.high
    assert point.frr.estimate == pytest.approx((targets < point.threshold).mean())
    assert point.frr.low < point.frr.estimate < point.frr.high


def test_of_one_kind_it_is_the_operating_point_of_the_tables():
    scores, same, who, test = simulate(np.random.default_rng(1))
    point = threshold_for(scores, same, 0.01, who, test)
    row = speaker_intervals(scores, same, who, test, far=[0.01]).intervals["Total"]
    threshold = row["threshold_at_far/0.01"]
    assert point.threshold == threshold.estimate
    assert threshold.low < threshold.estimate < threshold.high


def test_few_speakers_can_show_no_low_rate():
    """The rule of three over the side with fewer speakers: 1 - 0.05^(1/10), about 3 / 10."""
    scores, same, who, test = simulate(np.random.default_rng(1), speakers=30)
    enrolled = who < 10
    few = threshold_for(scores[enrolled], same[enrolled], 0.01, who[enrolled], test)
    assert few.speakers == 10
    assert few.least_far == pytest.approx(1 - 0.05 ** (1 / 10))
    assert "10 speakers cannot show a false-alarm rate below 26 %" in str(few.warning())
    enough = threshold_for(scores, same, 0.2, who, test)
    assert enough.warning() is None


def test_a_side_of_one_speaker_has_rates_of_which_nothing_is_known():
    point = threshold_for([2.0, 1.0, 0.0], ["TC", "TC", "IC"], 0.1, list("aaa"), list("aab"))
    assert (point.far["IC"].low, point.far["IC"].high) == (0.0, 1.0)
    assert (point.frr.low, point.frr.high) == (0.0, 1.0)


def test_no_score_may_be_high_enough():
    point = threshold_for(
        [0.0, 1.0, 9.0, 9.0], [True, True, False, False], 0.1, [0, 1, 0, 1], [0, 1, 1, 0]
    )
    assert math.isinf(point.threshold)
    assert point.frr.estimate == 1


def test_non_targets_at_infinity_cannot_be_rejected():
    scores = np.array([1.0, 2.0, np.inf, 0.0, 0.5, 0.2])
    same = np.array([True, True, False, False, False, False])
    who = np.arange(6)
    with pytest.raises(DataError, match=r"1 of 4 nontarget score\(s\) are \+infinity"):
        threshold_for(scores, same, 0.1, who, who)
    # a share that they fit in needs no infinite threshold
    point = threshold_for(scores, same, 0.25, who, who)
    assert math.isfinite(point.threshold)
    assert point.far["nontarget"].estimate == np.mean(scores[~same] >= point.threshold) == 0.25
    # the kind with the infinite score is named, not the one with the highest threshold
    kinds = np.array(["TC", "TC", "IC", "IC", "IW", "IW"])
    with pytest.raises(DataError, match="1 of 2 IC"):
        threshold_for(scores, kinds, 0.1, who, who)
    # targets may be sure
    sure = threshold_for([np.inf, 1.0, 0.0], [True, True, False], 0.1, [0, 1, 0], [0, 1, 1])
    assert (sure.threshold, sure.frr.estimate) == (1.0, 0.0)


def test_scores_that_are_no_number_are_refused():
    for place in (0, 2):
        scores = np.array([1.0, 2.0, 0.0, 0.5])
        scores[place] = np.nan
        with pytest.raises(DataError, match="NaN"):
            threshold_for(scores, [True, True, False, False], 0.1, range(4), range(4))


@pytest.mark.parametrize("lowest", [-9.0, 0.0, 1.5])
def test_rates_are_those_at_the_lowest_threshold_in_use(lowest):
    scores, same, who, test = simulate(np.random.default_rng(1))
    raw = threshold_for(scores, same, 0.3, who, test)
    point = threshold_for(scores, same, 0.3, who, test, lowest=lowest)
    assert -9.0 < raw.threshold < 1.5
    assert point.threshold == max(raw.threshold, lowest)
    assert point.frr.estimate == pytest.approx(np.mean(scores[same] < point.threshold))
    far = np.mean(scores[~same] >= point.threshold)
    assert point.far["nontarget"].estimate == pytest.approx(far)


@pytest.mark.parametrize("far", [0.0, 1.0, -0.1, math.nan])
def test_a_rate_is_a_share(far):
    scores, same, who, test = simulate(np.random.default_rng(1), speakers=8)
    with pytest.raises(ParameterError, match="share in"):
        threshold_for(scores, same, far, who, test)


@pytest.mark.slow
def test_the_rate_of_other_speakers_lies_in_the_interval():
    """80 evaluations of 20 speakers; the threshold of each on all speakers that there might be."""
    from scipy.stats import norm

    rng = np.random.default_rng(5)
    held = 0
    for _ in range(80):
        scores, same, who, test = simulate(rng, speakers=20)
        point = threshold_for(scores, same, 0.02, who, test)
        truth = norm.sf(point.threshold, scale=np.sqrt(2 * 0.7**2 + 1))
        found = point.far["nontarget"]
        held += found.low <= truth <= found.high
    assert held >= 72


def test_identification_by_looking_at_every_search():
    rng = np.random.default_rng(0)
    enrolled = np.repeat(np.arange(12), 2)  # two profiles of everybody
    searched = rng.integers(0, 18, size=200)  # six people are not enrolled
    scores = rng.normal(size=(24, 200)) + 1.5 * (enrolled[:, None] == searched)
    scores = scores.round(1)  # ties
    same = enrolled[:, None] == searched
    tests = np.broadcast_to(np.arange(200), same.shape)
    curve = identification_curve(scores.ravel(), same.ravel(), tests.ravel())
    for threshold in (-10.0, 0.0, 1.0, 1.7, 2.5, np.inf):
        missed, falsely = [], []
        for search, who in enumerate(searched):
            # the right profile comes last among equals
            order = sorted(range(24), key=lambda k: (-scores[k, search], enrolled[k] == who))
            others = [k for k in order if enrolled[k] != who]
            if who < 12:
                best = max(scores[k, search] for k in range(24) if enrolled[k] == who)
                place = sum(scores[k, search] >= best for k in others)
                missed.append(not (place == 0 and best >= threshold))
            else:
                falsely.append(scores[order[0], search] >= threshold)
        np.testing.assert_allclose(
            curve.rates(threshold), [np.mean(missed), np.mean(falsely)], atol=1e-12
        )


def test_searches_that_cannot_be_measured():
    with pytest.raises(DataError, match="2 of 2 searches are of enrolled people"):
        identification_curve([1.0, 0.0], [True, True], ["a", "b"])


@pytest.mark.parametrize("most", [1, 2, 9])
def test_transactions_by_trying_one_attempt_after_the_other(most):
    rng = np.random.default_rng(most)
    profiles, sessions = rng.integers(0, 4, 60), rng.integers(0, 5, 60)
    kinds = np.where((profiles + sessions) % 2 > 0, "target", "nontarget")
    scores = rng.normal(size=60)
    rows, best = transactions(scores, kinds, profiles, sessions, most)
    threshold = 0.3
    accepted = {}
    tries: dict[tuple[int, int], int] = {}
    for i in range(60):
        one = (profiles[i], sessions[i])
        tries[one] = tries.get(one, 0) + 1
        if tries[one] <= most:
            accepted[one] = accepted.get(one, False) or scores[i] >= threshold
    assert {
        (profiles[r], sessions[r]): b >= threshold for r, b in zip(rows, best, strict=True)
    } == accepted
    first = {one: min(np.flatnonzero((profiles == one[0]) & (sessions == one[1]))) for one in tries}
    assert sorted(rows.tolist()) == sorted(first.values())
    with pytest.raises(DataError, match="several kinds"):
        transactions(scores, np.where(np.arange(60) % 2, "target", "nontarget"), profiles, sessions)
    with pytest.raises(ParameterError, match="at least 1 attempt"):
        transactions(scores, kinds, profiles, sessions, 0)


def test_rates_count_scores_of_infinity() -> None:
    """One of eight impostors at +infinity is accepted at every threshold, and so is one of two targets."""
    scores = np.array([-1, 0, 0, 0, -1, np.inf, 1, 0, np.inf, -2.0])
    kinds = np.array(["IW"] * 8 + ["TC"] * 2)
    enrolled = np.arange(10) % 5
    tested = np.append((np.arange(8) + 1) % 5, enrolled[8:])
    point = threshold_for(scores, kinds, 0.2, enrolled, tested)
    assert (point.far["IW"].estimate, point.frr.estimate) == (1 / 8, 1 / 2)
