"""Decisions: thresholds, verdicts, reasons, and that none of them contradicts the evidence."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from mvplda import Question
from mvplda.calibration import Answer
from mvplda.decisions import (
    NAMED_FAR,
    OperatingPoint,
    decide,
    distinct_points,
    name_among,
    point_for,
    wanted_to_name,
)
from mvplda.exceptions import ParameterError

BOTH = ("speaker", "phrase")
HYPOTHESES = (BOTH, ("speaker",), ("phrase",), ())


@dataclass
class Recording:
    usable: bool = True
    warnings: list[str] = field(default_factory=list)


def answer(tc: float, tw: float, ic: float, iw: float, **question: Any) -> Answer:
    """Of one trial, from the log-likelihoods of its four hypotheses, at even odds."""
    logs = {h: np.asarray(value) for h, value in zip(HYPOTHESES, (tc, tw, ic, iw), strict=True)}
    asked = Question(**question)
    ratio = asked.ratio(BOTH)
    above = [logs[h] + w for h, w in ratio.numerator.items()]
    below = [logs[h] + w for h, w in ratio.denominator.items()]
    llr = np.logaddexp.reduce(above) - np.logaddexp.reduce(below)
    weights = {h: float(np.exp(w)) / 2 for h, w in (ratio.numerator | ratio.denominator).items()}
    return Answer(logs, np.asarray(llr), asked, "speaker+phrase", True, weights)


@pytest.mark.parametrize(
    ("logs", "verdict", "reason", "voice", "words"),
    [
        ((9, 0, 0, -9), "accept", None, "accept", "accept"),
        ((0, 9, -9, 0), "reject", "wrong_phrase", "accept", "reject"),
        ((0, -9, 9, 0), "reject", "wrong_speaker", "reject", "accept"),
        ((-9, 0, 0, 9), "reject", "both", "reject", "reject"),
        ((2.5, 0, 0, -2), "inconclusive", "not_enough_evidence", "inconclusive", "inconclusive"),
    ],
)
def test_both_halves_are_decided_and_the_one_that_failed_is_named(
    logs: tuple[float, ...], verdict: str, reason: str | None, voice: str, words: str
) -> None:
    decision = decide(answer(*logs), point_for(far=0.01))
    assert (decision.answer, decision.reason) == (verdict, reason)
    assert (decision.voice, decision.words) == (voice, words)


def test_nothing_is_accepted_against_the_evidence() -> None:
    rng = np.random.default_rng(0)
    lenient = OperatingPoint(-5.0, -9.0)
    for logs in rng.normal(0, 4, size=(300, 4)).tolist():
        trial = answer(*logs)
        decision = decide(trial, lenient)
        if decision.answer == "accept":
            assert decision.llr >= 0
            assert decision.probabilities["speaker+phrase"] >= 0.5
            assert min(trial.llr_of("speaker"), trial.llr_of("phrase")) >= 0


def test_probabilities_are_those_of_the_llr() -> None:
    for question in ({}, {"same": "speaker"}):
        trial = answer(3.0, 1.0, 0.5, -1.0, **question)
        posteriors = trial.posteriors()
        assert sum(map(float, posteriors.values())) == pytest.approx(1.0)
        asked = set(trial.question.same or BOTH)
        target = sum(float(p) for h, p in posteriors.items() if asked <= set(h))
        assert np.log(target / (1 - target)) == pytest.approx(float(trial.llr))


def test_a_question_about_the_voice_is_not_decided_by_the_words() -> None:
    decision = decide(answer(0, 9, -9, 0, same="speaker"), point_for(far=0.01))
    assert (decision.answer, decision.voice, decision.words) == ("accept", "accept", None)


def test_an_unusable_recording_decides_nothing() -> None:
    sure = answer(20, 0, 0, -9)
    decision = decide(sure, quality=[Recording(), Recording(usable=False, warnings=["tone"])])
    assert (decision.answer, decision.reason) == ("inconclusive", "unusable_recording")
    assert decision.faults == ("tone",)
    assert decide(sure, quality=[Recording(warnings=["noisy"])]).answer == "accept"


def test_a_suspected_replay_is_named() -> None:
    logs = {h: np.asarray(v) for h, v in zip(HYPOTHESES, (9.0, 0.0, 0.0, -9.0), strict=True)}
    trial = answer(9.0, 0.0, 0.0, -9.0)
    suspicious = Question(countermeasure=-8.0)
    llr = suspicious.with_spoofs(trial.llr.reshape(1, 1), (1, 1))
    replay = Answer(logs, llr[0, 0], suspicious, trial.key, True, trial.weights)
    decision = decide(replay, point_for(far=0.01))
    assert decision.answer == "reject"
    assert decision.reason == "suspected_replay"


def test_points_are_chosen_by_what_they_promise() -> None:
    points = [OperatingPoint(4.0, far=0.01), OperatingPoint(6.0, far=0.001)]
    assert point_for(points).threshold == 4.0
    assert point_for(points, far=0.005).threshold == 6.0
    assert point_for(points, far=0.05).threshold == 4.0
    with pytest.raises(ParameterError, match=r"cannot promise .* 0.01 %.* 0.1 % or more"):
        point_for(points, far=0.0001)
    assert point_for(threshold=2.0).threshold == 2.0
    assert point_for().threshold == pytest.approx(np.log(100))
    assert point_for(far=0.001).threshold == pytest.approx(np.log(1000))
    with pytest.raises(ParameterError, match=r"cannot promise .* 5 % or more"):
        point_for(far=0.01, largest_llr=3.0)
    mistakes: list[dict[str, Any]] = [
        {"far": 0.1, "threshold": 1.0},
        {"far": 1.5},
    ]
    for wrong in mistakes:
        with pytest.raises(ParameterError):
            point_for(**wrong)


def test_points_with_equal_thresholds_become_the_strictest() -> None:
    measured = {"far": {"IC": [0.003, 0.0, 0.01]}, "frr": [0.1, 0.05, 0.2]}
    shares = (0.01, 0.05, 0.02, 0.005, 0.001)
    thresholds = (0.0, 0.0, 0.0, 0.0, 2.5)
    limits = zip(thresholds, shares, strict=True)
    points = [OperatingPoint(threshold, far=far, measured=measured) for threshold, far in limits]
    distinct = distinct_points(points)
    assert [(point.threshold, point.far) for point in distinct] == [(0.0, 0.005), (2.5, 0.001)]
    for far in (0.05, 0.02, 0.01, 0.005):
        assert point_for(distinct, far=far).threshold == 0.0
    assert point_for(distinct, far=0.004).threshold == 2.5
    assert point_for(distinct).threshold == point_for(points).threshold
    assert wanted_to_name(distinct, far=None) == {"far": NAMED_FAR}
    assert wanted_to_name(distinct[1:], far=0.3) == {"far": 0.3}
    assert wanted_to_name([OperatingPoint(1.0, far=0.05)], far=None) == {"far": None}
    # a point that rejects at another limit is another point
    apart = [OperatingPoint(0.0, far=0.01), OperatingPoint(0.0, -1.0, far=0.05)]
    assert distinct_points(apart) == apart
    assert distinct_points([OperatingPoint(1.0), points[-1]]) == [OperatingPoint(1.0), points[-1]]


def test_rates_that_were_measured_below_the_lowest_threshold_are_refused() -> None:
    measured = {"far": {"IC": [0.05, 0.0, 0.1]}, "frr": [0.0, 0.0, 0.1]}
    with pytest.raises(ParameterError, match=r"measured at the threshold -1\.5 are not those"):
        OperatingPoint(-1.5, far=0.05, measured=measured)
    assert OperatingPoint(0.0, far=0.05, measured=measured).threshold == 0.0


@pytest.mark.parametrize("doubt", [0.0, 0.1])
@pytest.mark.parametrize("none", [0.5, 0.2])
@pytest.mark.parametrize("count", [None, 7])
def test_probabilities_of_names_are_those_of_bayes(
    doubt: float, none: float, count: int | None
) -> None:
    """By hand: with the doubt the recording tells nothing, else each profile has its likelihood ratio."""
    ratios = np.array([1.5, -0.5, 0.3, 0.0])
    asked = np.array([True, True, True, False])
    number = count or 3
    prior = np.append(asked * (1 - none) / number, none)
    weights = prior * np.append(np.exp(ratios), 1.0)
    expected = (1 - doubt) * weights / weights.sum() + doubt * prior / prior.sum()
    share = (1 - doubt) / (1 + np.exp(-ratios)) + doubt / 2
    llrs = np.where(asked, np.log(share) - np.log1p(-share), -np.inf)
    naming = name_among(llrs, OperatingPoint(0.5), none=none, count=count, doubt=doubt)
    np.testing.assert_allclose(naming.probabilities, expected[:-1], atol=1e-12)
    assert naming.none == pytest.approx(expected[-1])
    assert naming.probabilities[3] == 0


@pytest.mark.parametrize("doubt", [0.0, 0.05])
def test_the_threshold_of_names_rises_by_the_logarithm_of_their_number(doubt: float) -> None:
    threshold = 2.0
    for margin, named in ((-0.01, None), (0.01, 0)):
        true = np.array([threshold + np.log(20) + margin, *[-8.0] * 19])
        share = (1 - doubt) / (1 + np.exp(-true)) + doubt / 2
        limited = np.log(share) - np.log1p(-share)
        share = (1 - doubt) / (1 + np.exp(-threshold)) + doubt / 2
        point = OperatingPoint(float(np.log(share) - np.log1p(-share)))
        assert name_among(limited, point, none=0.1, doubt=doubt).best == named
