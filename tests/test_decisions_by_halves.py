"""Decisions with one threshold per view: verdicts, reasons, files, and their agreement with the evidence."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from mvplda import Question
from mvplda.calibration.hypotheses import with_outliers
from mvplda.decisions import (
    HalfThreshold,
    MeasuredRates,
    OperatingPoint,
    RateInterval,
    decide,
    decide_each,
    distinct_points,
    name_among,
    naming_point,
    point_for,
    promised_point,
)
from mvplda.exceptions import DataError, ParameterError
from mvplda.scoring.answer import Answer

BOTH = ("speaker", "phrase")
HYPOTHESES = (BOTH, ("speaker",), ("phrase",), ())
RATES = MeasuredRates(
    far={"IC": RateInterval(0.004, 0.001, 0.01), "IC, same sex": RateInterval(0.008, 0.002, 0.02)},
    frr=RateInterval(0.03, 0.02, 0.05),
)
POINT = OperatingPoint.from_halves(
    {"speaker": HalfThreshold(5.0, -1.0, RATES, 260), "phrase": HalfThreshold(1.0)},
    far=0.001,
    people=260,
    basis="left-out corpora",
)


def answer(speaker: Any, phrase: Any, **question: Any) -> Answer:
    """Answer with independent evidence about the speaker and the phrase."""
    speaker, phrase = np.asarray(speaker, dtype=float), np.asarray(phrase, dtype=float)
    logs = dict(
        zip(HYPOTHESES, (speaker + phrase, speaker, phrase, np.zeros_like(speaker)), strict=True)
    )
    asked = Question(**question)
    countermeasure = None
    if asked.countermeasure is not None:
        countermeasure = np.broadcast_to(asked.countermeasure, speaker.shape)
    keys = np.full(speaker.shape, "speaker+phrase", dtype=object)
    calibrated = np.ones(speaker.shape, dtype=bool)
    return Answer(logs, asked.ratio(BOTH), asked, keys, calibrated, countermeasure)


@pytest.mark.parametrize(
    ("speaker", "phrase", "verdict", "reason"),
    [
        (5.0, 1.0, "accept", None),
        (9.0, 9.0, "accept", None),
        (4.99, 9.0, "inconclusive", "not_enough_evidence"),
        (-0.5, 9.0, "inconclusive", "not_enough_evidence"),
        (9.0, 0.99, "inconclusive", "not_enough_evidence"),
        (9.0, 0.0, "reject", "wrong_phrase"),
        (-1.0, 9.0, "reject", "wrong_speaker"),
        (-1.0, 0.5, "reject", "wrong_speaker"),
        (-1.0, -0.1, "reject", "both"),
    ],
)
def test_each_view_is_decided_by_its_own_thresholds(
    speaker: float, phrase: float, verdict: str, reason: str | None
) -> None:
    decision = decide(answer(speaker, phrase), POINT)
    assert (decision.answer, decision.reason) == (verdict, reason)
    assert decision.llrs == pytest.approx({"speaker": speaker, "phrase": phrase})
    assert decision.halves == POINT.halves


def test_the_llr_of_a_view_is_that_of_the_question_about_it() -> None:
    rng = np.random.default_rng(0)
    logs = dict(zip(HYPOTHESES, rng.normal(0, 3, (4, 50)), strict=True))
    whole = Question()
    trials = Answer(logs, whole.ratio(BOTH), whole, np.full(50, ""), np.ones(50, dtype=bool))
    for view in BOTH:
        alone = Question(view).ratio(BOTH).of(logs)
        np.testing.assert_allclose(trials.half_llr(view), alone)
        sums = [
            np.log(sum(np.exp(logs[h]) for h in HYPOTHESES if (view in h) == is_in))
            for is_in in (True, False)
        ]
        np.testing.assert_allclose(trials.half_llr(view), sums[0] - sums[1])


def test_verdicts_agree_with_brute_force_and_with_sentences() -> None:
    rng = np.random.default_rng(1)
    speaker, phrase = rng.normal(2, 4, (2, 400))
    decisions = decide_each(answer(speaker, phrase), [POINT] * 400)
    verdicts = set()
    for s, p, decision in zip(speaker.tolist(), phrase.tolist(), decisions, strict=True):
        expected = "inconclusive"
        if s <= -1.0 or p <= 0.0:
            expected = "reject"
        elif s >= 5.0 and p >= 1.0:
            expected = "accept"
        assert decision.answer == expected
        start = {"accept": "Accepted", "reject": "Rejected", "inconclusive": "Inconclusive"}
        assert decision.sentence().startswith(start[expected])
        assert f"speaker LLR {s:+.2f}" in decision.sentence()
        if expected == "accept":
            assert decision.llr >= POINT.threshold - 1e-9
        verdicts.add((expected, decision.reason))
    assert len(verdicts) == 5


def test_the_joint_threshold_is_the_joint_llr_at_all_thresholds() -> None:
    for limits in ((5.0, 1.0), (0.0, 0.0), (7.5, 3.0)):
        halves = {view: HalfThreshold(limit) for view, limit in zip(BOTH, limits, strict=True)}
        point = OperatingPoint.from_halves(halves)
        assert point.threshold == pytest.approx(float(answer(*limits).llr), abs=1e-12)
    assert OperatingPoint.from_halves({"speaker": HalfThreshold(6.5)}).threshold == 6.5
    with pytest.raises(ParameterError, match="at least one view"):
        OperatingPoint.from_halves({})


def test_a_question_about_one_view_needs_the_threshold_of_that_view_only() -> None:
    point = OperatingPoint.from_halves({"speaker": HalfThreshold(5.0)})
    decision = decide(answer(6.0, -9.0, same="speaker"), point)
    assert (decision.answer, dict(decision.views)) == ("accept", {"speaker": "accept"})
    assert decision.llr == pytest.approx(6.0)
    with pytest.raises(DataError, match="the question is also about phrase"):
        decide(answer(6.0, 6.0), point)


def test_trials_of_one_list_may_have_points_with_and_without_halves() -> None:
    trials = answer([6.0, 6.0], [0.5, 0.5])
    first, second = decide_each(trials, [POINT, OperatingPoint(0.5)])
    assert (first.answer, second.answer) == ("inconclusive", "accept")
    assert not second.halves
    assert second.llrs["speaker"] == pytest.approx(float(trials.llr_of("speaker")[1]))


def test_a_countermeasure_can_only_prevent_acceptance() -> None:
    grid = itertools.product((-3.0, 0.5, 2.0, 8.0), (-3.0, 0.5, 8.0), (-4.0, 0.0, 3.0, 50.0))
    for speaker, phrase, trace in grid:
        without = decide(answer(speaker, phrase), POINT)
        decision = decide(answer(speaker, phrase, countermeasure=trace), POINT)
        if decision.answer == "accept":
            assert without.answer == "accept"
        if trace == 50.0:
            assert decision.answer == without.answer
    spoof = decide(answer(8.0, 8.0, countermeasure=-4.0), POINT)
    assert (spoof.answer, spoof.reason) == ("reject", "suspected_replay")
    assert "suspected replay" in spoof.sentence()


def test_an_outlier_probability_does_not_limit_the_halves() -> None:
    """With an outlier probability, no joint LLR reaches a strict threshold; the halves and a countermeasure do."""
    strict = OperatingPoint.from_halves(
        {"speaker": HalfThreshold(9.0), "phrase": HalfThreshold(8.0)}, far=0.001
    )
    for trace, verdict in ((None, "accept"), (50.0, "accept"), (-4.0, "reject")):
        question = {} if trace is None else {"countermeasure": trace}
        inliers = answer(12.0, 9.0, **question)
        limited = replace(
            inliers, logs=with_outliers(inliers.logs, 0.01), inliers=inliers.logs
        ).take()
        decision = decide(limited, strict)
        assert decision.answer == verdict
        assert decision.llr < math.log(8 / 0.01) < strict.threshold
        assert decision.llrs == pytest.approx({"speaker": 12.0, "phrase": 9.0})
        assert decision.probabilities["speaker+phrase"] < 0.999
    assert decide(replace(limited, inliers=None, countermeasure=None), strict).answer != "accept"


def test_points_with_halves_survive_files() -> None:
    plain = json.loads(json.dumps(POINT.to_dict()))
    restored = OperatingPoint(**plain)
    assert restored == POINT
    measured = restored.halves["speaker"].measured
    assert measured is not None
    assert measured["far"]["IC, same sex"].high == 0.02
    assert restored.to_dict() == POINT.to_dict()
    decision = decide(answer(6.0, 2.0), POINT)
    plain = json.loads(json.dumps(decision.to_dict()))["halves"]
    limits = {view: (half["accept"], half["reject"]) for view, half in plain.items()}
    assert limits == {"speaker": (5.0, -1.0), "phrase": (1.0, 0.0)}
    assert plain["speaker"]["llr"] == pytest.approx(6.0)
    assert plain["speaker"]["verdict"] == "accept"
    assert plain["speaker"]["people"] == 260
    assert plain["speaker"]["measured"]["far"]["IC, same sex"] == [0.008, 0.002, 0.02]
    assert plain["phrase"]["measured"] is None


def test_points_of_one_in_a_thousand_are_chosen_among_points_with_halves() -> None:
    loose = OperatingPoint.from_halves(
        {"speaker": HalfThreshold(3.0), "phrase": HalfThreshold(1.0)}, far=0.01
    )
    assert promised_point([loose, POINT], 0.001) is POINT
    assert point_for([loose, POINT], far=0.001) is POINT
    assert point_for([loose, POINT]) is loose
    assert distinct_points([loose, POINT]) == [loose, POINT]
    # the joint thresholds are equal, those of the halves are not
    swapped = OperatingPoint.from_halves(
        {"speaker": HalfThreshold(1.0), "phrase": HalfThreshold(3.0)}, far=0.01
    )
    assert swapped.threshold == loose.threshold
    assert len(distinct_points([loose, swapped])) == 2


def test_thresholds_of_halves_are_limited_to_zero() -> None:
    half = HalfThreshold(-2.0, 3.0)
    assert (half.accept, half.reject) == (0.0, 0.0)
    assert (half.verdict(0.0), half.verdict(-0.1)) == ("accept", "reject")
    with pytest.raises(ParameterError, match="NaN"):
        HalfThreshold(math.nan)
    with pytest.raises(ParameterError, match=r"measured at the threshold -2, but thresholds below"):
        HalfThreshold(-2.0, measured=RATES)


def test_sentences_describe_all_thresholds() -> None:
    assert POINT.sentence() == (
        "Accepts from speaker LLR 5 and phrase LLR 1, rejects below speaker LLR -1 or phrase LLR 0; in between: "
        "inconclusive."
    )
    alone = OperatingPoint.from_halves({"speaker": HalfThreshold(5.25)})
    assert alone.sentence() == (
        "Accepts from speaker LLR 5.25, rejects below 0; in between: inconclusive."
    )


HALVES = [
    OperatingPoint.from_halves({"speaker": HalfThreshold(accept, 0.0, RATES, 100)}, far=far)
    for far, accept in ((0.01, 4.0), (0.05, 2.0), (0.02, 3.0), (0.001, 7.0))
]


@pytest.mark.parametrize(
    ("count", "options", "limit"),
    [
        (1, {}, 3.0),  # 2 %
        (2, {}, 4.0),  # 1 % each
        (5, {}, 7.0),  # 0.4 % each: the next strictest point
        (20, {}, 7.0),
        (40, {}, 7.0 + np.log(2)),
        (1000, {}, 7.0 + np.log(50)),
        (1, {"far": 0.05}, 2.0),
        (10, {"far": 0.01}, 7.0),
        (10, {"far": 0.001}, 7.0 + np.log(10)),
        (10, {"threshold": 5.0}, 5.0 + np.log(10)),
    ],
)
def test_each_of_several_profiles_accepts_its_share_of_strangers(
    count: int, options: dict[str, float], limit: float
) -> None:
    point = naming_point(HALVES, count, **options)
    assert point.threshold == pytest.approx(limit)
    if "threshold" not in options:
        assert point.halves["speaker"].accept == pytest.approx(limit)
        # raised thresholds are not those that rates were measured at
        is_measured = point in HALVES
        assert (point.halves["speaker"].measured is not None) == is_measured
    names = [limit + 0.01, *[-9.0] * (count - 1)]
    assert name_among(names, point, none=0.1).best == 0
    names[0] = limit - 0.01
    assert name_among(names, point, none=0.1).best is None


def test_more_profiles_never_lower_the_threshold_of_names() -> None:
    for points in (HALVES, [OperatingPoint(3.0, far=0.05)], [OperatingPoint(3.0)], []):
        limits = [naming_point(points, count).threshold for count in range(1, 300)]
        assert (np.diff(limits) >= 0).all()
        assert limits[-1] > limits[0]
    with pytest.raises(ParameterError, match="cannot promise"):
        naming_point(HALVES, 1, far=0.0001)
    with pytest.raises(ParameterError, match="both far and threshold"):
        naming_point(HALVES, 1, far=0.01, threshold=1.0)


@pytest.mark.parametrize("count", [2, 20, 200])
def test_few_strangers_are_named_if_llrs_are_calibrated(count: int) -> None:
    """LLRs of strangers N(-m, 2m) are calibrated; the points are exact, and the strictest is extrapolated."""
    mean = 6.0
    points = [
        OperatingPoint.from_halves(
            {"speaker": HalfThreshold(norm.isf(far, -mean, np.sqrt(2 * mean)))}, far=far
        )
        for far in (0.05, 0.02, 0.01, 0.005, 0.001)
    ]
    rng = np.random.default_rng(count)
    llrs = rng.normal(-mean, np.sqrt(2 * mean), (4000, count))
    point = naming_point(points, count)
    named = [name_among(row, point, none=0.01).best is not None for row in llrs]
    assert np.mean(named) <= 0.02 + 3 * np.sqrt(0.02 / 4000)


def test_a_name_needs_every_half_of_the_question() -> None:
    point = naming_point([POINT], 1, far=0.001)
    halves = {"speaker": np.array([9.0, 9.0]), "phrase": np.array([3.0, 0.5])}
    assert name_among([9.0, 2.0], point, halves=halves).best == 0
    halves["phrase"][0] = 0.9
    assert name_among([9.0, 2.0], point, halves=halves).best is None


def test_a_note_says_which_threshold_decided_against_the_likeliest_hypothesis():
    # two hypotheses of another speaker outweigh that of the owner only together
    logs = dict(zip(HYPOTHESES, (6.0, -10.0, 6.9, 6.4), strict=True))
    one = replace(answer(0.0, 0.0), logs={h: np.asarray(value) for h, value in logs.items()})
    rejected = decide(one, POINT)
    assert (rejected.answer, rejected.reason) == ("reject", "wrong_speaker")
    assert max(rejected.probabilities, key=rejected.probabilities.__getitem__) == "speaker+phrase"
    assert rejected.probability_note() == (
        "The threshold of the speaker decided. The probabilities weigh speaker and phrase together, at even odds:"
    )
    for llrs in ((-4.0, 8.0), (8.0, 8.0), (4.0, 8.0)):
        assert decide(answer(*llrs), POINT).probability_note() is None
    assert replace(rejected, halves={}).probability_note() is None
