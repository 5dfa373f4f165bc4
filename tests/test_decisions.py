"""Decisions: thresholds, verdicts, reasons, and that none of them contradicts the evidence."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from mvplda import Question
from mvplda.decisions import (
    OperatingPoint,
    decide,
    decide_each,
    distinct_points,
    name_among,
    naming_point,
    point_for,
)
from mvplda.decisions.verdicts import ViewEvidence, _decide_trial, odds_text
from mvplda.exceptions import DataError, LabelError, ParameterError
from mvplda.scoring.answer import Answer

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
    traces = None if asked.countermeasure is None else np.asarray(asked.countermeasure)
    key = np.asarray("speaker+phrase")
    return Answer(logs, asked.ratio(BOTH), asked, key, np.asarray(True), traces)


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
    assert (decision.voice, decision.phrase) == (voice, words)


def test_nothing_is_accepted_against_the_evidence() -> None:
    rng = np.random.default_rng(0)
    lenient = OperatingPoint(-5.0, -9.0)
    for logs in rng.normal(0, 4, size=(300, 4)).tolist():
        trial = answer(*logs)
        decision = decide(trial, lenient)
        if decision.answer == "accept":
            assert decision.llr >= 0
            assert decision.probabilities["speaker+phrase"] >= 0.5
            assert min(trial.log_odds_of("speaker"), trial.log_odds_of("phrase")) >= 0


QUESTIONS: list[dict[str, Any]] = [
    {},
    {"same": "speaker"},
    {"priors": {BOTH: 1, ("speaker",): 5, ("phrase",): 0.5, (): 2}},
    {"countermeasure": 0.7, "spoof_prior": 0.3},
    {"countermeasure": np.inf},
    {"same": "phrase", "countermeasure": -1.0, "spoof_prior": 0.9},
    {"countermeasure": 0.2, "spoof_prior": 0.0},
]


@pytest.mark.parametrize("question", QUESTIONS)
def test_probabilities_are_those_of_the_llr(question: dict[str, Any]) -> None:
    trial = answer(3.0, 1.0, 0.5, -1.0, **question)
    posteriors = trial.posteriors()
    assert sum(map(float, posteriors.values())) == pytest.approx(1.0)
    asked = set(trial.question.same or BOTH)
    target = sum(float(p) for h, p in posteriors.items() if asked <= set(h))
    assert np.log(target / (1 - target)) == pytest.approx(float(trial.llr))


@pytest.mark.parametrize("question", QUESTIONS)
def test_halves_are_sums_over_the_weighted_hypotheses(question: dict[str, Any]) -> None:
    trial = answer(1.0, 2.0, -0.5, 0.3, **question)
    posteriors = {h: float(p) for h, p in trial.posteriors().items() if h != ("spoof",)}
    for view in BOTH:
        same = sum(p for h, p in posteriors.items() if view in h)
        other = sum(p for h, p in posteriors.items() if view not in h)
        assert float(trial.log_odds_of(view)) == pytest.approx(np.log(same / other))
        weights = trial.weights
        likelihoods = {h: weights[h] * np.exp(float(trial.logs[h])) for h in weights}
        prior = [
            sum(weights[h] for h in weights if (view in h) == is_in) for is_in in (True, False)
        ]
        means = [
            sum(likelihoods[h] for h in weights if (view in h) == is_in) / total
            for is_in, total in zip((True, False), prior, strict=True)
        ]
        assert float(trial.llr_of(view)) == pytest.approx(np.log(means[0] / means[1]))
    with pytest.raises(LabelError, match="has no LLR of view"):
        trial.llr_of("room")


def test_without_priors_the_target_weighs_one_half_and_the_others_a_sixth() -> None:
    weights = answer(0, 0, 0, 0).weights
    assert weights == pytest.approx({BOTH: 1 / 2, **dict.fromkeys(HYPOTHESES[1:], 1 / 6)})


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize(
    "point", [OperatingPoint(0.0), OperatingPoint(2.0), OperatingPoint(1.0, -2.0)]
)
def test_no_decision_contradicts_its_own_evidence(
    question: dict[str, Any], point: OperatingPoint
) -> None:
    """Rejections for "the voice does not fit" once stood beside a probability above one half that it is the same."""
    rng = np.random.default_rng(3)
    reasons = set()
    for logs in rng.normal(0, 1.5, size=(400, 4)).tolist():
        trial = answer(*logs, **question)
        decision = decide(trial, point)
        p = dict(decision.probabilities)
        assert sum(p.values()) == pytest.approx(1.0)
        asked = list(decision.views)
        halves = {
            view: sum(share for name, share in p.items() if view in name.split("+"))
            for view in asked
        }
        target = p["+".join(asked)]
        reasons.add(decision.reason)
        # rounding: llr and probability of the same trial
        if decision.answer == "reject":
            assert decision.llr < 1e-9
            assert ":1 for the same" not in decision.sentence()
            assert target < 0.5 + 1e-9
        if decision.answer == "accept":
            assert decision.reason is None
            assert decision.llr >= point.threshold
            assert target > 0.5 - 1e-9
            assert set(decision.views.values()) == {"accept"}
        failed = {view for view, verdict in decision.views.items() if verdict == "reject"}
        if failed:
            assert decision.answer == "reject"
        for view in failed:
            assert halves[view] < 0.5 + 1e-9
        if decision.reason == "both":
            assert failed == set(asked) == set(BOTH)
        elif decision.reason == "either":
            assert not failed
            assert target < 0.5 < min(halves.values()) + p.get("spoof", 0)
        elif str(decision.reason).startswith("wrong_"):
            assert failed == {str(decision.reason).removeprefix("wrong_")}
        elif decision.reason == "suspected_replay":
            assert p["spoof"] > target or p["spoof"] > 0.5
    if not question and point.reject == 0:
        halves_of = {"wrong_speaker", "wrong_phrase", "both", "either"}
        assert reasons == halves_of | {None} | (
            {"not_enough_evidence"} if point.threshold else set()
        )


def test_one_view_at_the_lower_limit_is_rejected_for_this_view() -> None:
    decision = decide(answer(0, 0, 0, 0, same="speaker"), OperatingPoint(1.0))
    assert (decision.answer, decision.reason) == ("reject", "wrong_speaker")
    assert decision.views == {"speaker": "reject"}


def test_halves_that_exclude_each_other_decide_neither() -> None:
    decision = decide(answer(0.0, 1.0, 1.0, -9.0), OperatingPoint(0.0))
    assert (decision.answer, decision.reason) == ("reject", "either")
    assert decision.views == dict.fromkeys(BOTH, "inconclusive")
    assert "wrong speaker or wrong phrase, unclear which" in decision.sentence()


def test_a_spoof_that_is_the_likeliest_alternative_is_suspected() -> None:
    decision = decide(answer(3.0, 1.0, 0.5, 0.0, countermeasure=-0.72), OperatingPoint(1.0))
    p = decision.probabilities
    assert p["speaker+phrase"] < p["spoof"] < 0.5
    assert (decision.answer, decision.reason) == ("reject", "suspected_replay")
    assert "reject" not in decision.views.values()


def test_a_probable_spoof_is_the_reason_whatever_the_halves_are() -> None:
    trial = answer(0.0, 0.0, 0.0, 5.4, countermeasure=-4.8)
    assert 0.5 < float(trial.posteriors()["spoof",]) < 0.7
    for point in (OperatingPoint(1.0), OperatingPoint(1.0, -99.0)):
        decision = decide(trial, point)
        assert (decision.answer, decision.reason) == ("reject", "suspected_replay")
        assert decision.views == {"speaker": "reject", "phrase": "reject"}


def test_a_question_about_one_view_has_the_probabilities_of_that_view() -> None:
    trial = answer(3.0, 1.0, 0.5, -1.0, same="speaker")
    decision = decide(trial)
    assert list(decision.probabilities) == ["speaker", "nothing"]
    both = {h: float(p) for h, p in trial.posteriors().items()}
    assert decision.probabilities["speaker"] == pytest.approx(both[BOTH] + both["speaker",])
    same = decision.probabilities["speaker"]
    assert np.log(same / (1 - same)) == pytest.approx(decision.llr)
    given = decide(answer(3.0, 1.0, 0.5, -1.0, given={"phrase": "same"}))
    assert list(given.probabilities) == ["speaker+phrase", "phrase"]


def test_a_decision_takes_one_point_per_trial() -> None:
    with pytest.raises(DataError, match="for each of 1 trials; got 2"):
        decide_each(answer(0, 0, 0, 0), [OperatingPoint(1.0)] * 2)


def test_nothing_that_is_more_likely_the_same_is_rejected() -> None:
    assert OperatingPoint(5.0, 2.0).reject == 0.0
    assert OperatingPoint(5.0, -2.0).reject == -2.0
    assert decide(answer(1.0, 0, 0, -1.0), OperatingPoint(5.0, 2.0)).answer == "inconclusive"


def test_a_name_is_given_by_probabilities_that_add_up() -> None:
    llrs = np.array([9.0, -3.0, -np.inf])
    for outlier_probability in (0.0, 0.02):
        naming = name_among(llrs, OperatingPoint(3.0), outlier_probability=outlier_probability)
        assert naming.probabilities.sum() + naming.none == pytest.approx(1.0)
        assert naming.best == 0
        # nobody in question has a prior, and the doubt leaves every prior as it is
        assert naming.probabilities[2] == 0.0
        assert naming.probabilities[1] >= outlier_probability * 0.25
        assert naming.none >= outlier_probability * 0.5
    # a prior of one half each, and evidence that says nothing
    even = name_among([0.0, 0.0], OperatingPoint(0.0), none=0.5)
    np.testing.assert_allclose([*even.probabilities, even.none], [0.25, 0.25, 0.5])
    assert even.best is None
    # as likely as each other: neither is named, however large the LLRs are
    assert name_among([9.0, 9.0], OperatingPoint(3.0)).best is None
    # profiles that are in question and not among the LLRs
    some = name_among([9.0, -3.0], OperatingPoint(3.0), count=10, outlier_probability=0.02)
    assert some.probabilities.sum() + some.none == pytest.approx(1.0)


@pytest.mark.parametrize("position", [0, 1, 2])
def test_the_most_probable_profile_is_named_wherever_it_stands(position: int) -> None:
    llrs = [-3.0, -5.0]
    llrs.insert(position, 9.0)
    assert name_among(llrs, OperatingPoint(3.0)).best == position


def test_a_question_about_the_voice_is_not_decided_by_the_words() -> None:
    decision = decide(answer(0, 9, -9, 0, same="speaker"), point_for(far=0.01))
    assert (decision.answer, decision.voice, decision.phrase) == ("accept", "accept", None)


def test_an_unusable_recording_decides_nothing() -> None:
    sure = answer(20, 0, 0, -9)
    decision = decide(sure, quality=[Recording(), Recording(usable=False, warnings=["tone"])])
    assert (decision.answer, decision.reason) == ("inconclusive", "unusable_recording")
    assert decision.faults == ("tone",)
    assert decide(sure, quality=[Recording(warnings=["noisy"])]).answer == "accept"


def test_a_suspected_replay_is_named() -> None:
    replay = answer(9.0, 0.0, 0.0, -9.0, countermeasure=-8.0)
    decision = decide(replay, point_for(far=0.01))
    assert decision.answer == "reject"
    assert decision.reason == "suspected_replay"


def test_points_are_chosen_by_what_they_promise() -> None:
    points = [OperatingPoint(4.0, far=0.01), OperatingPoint(6.0, far=0.001)]
    assert point_for(points).threshold == 4.0
    assert point_for(points, far=0.005).threshold == 6.0
    assert point_for(points, far=0.05).threshold == 4.0
    refusal = (
        r"cannot promise at most 0.01 % .*: it was measured on too few people.* one of 1, 0.1 %"
    )
    with pytest.raises(ParameterError, match=refusal):
        point_for(points, far=0.0001)
    counted = [OperatingPoint(6.0, far=0.02, people=20)]
    with pytest.raises(ParameterError, match=r"measured on 20 people, .* Choose 2 %, or use"):
        point_for(counted, far=0.01)
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
    # a point that rejects at another limit is another point
    apart = [OperatingPoint(0.0, far=0.01), OperatingPoint(0.0, -1.0, far=0.05)]
    assert distinct_points(apart) == apart
    assert distinct_points([OperatingPoint(1.0), points[-1]]) == [OperatingPoint(1.0), points[-1]]


def test_rates_that_were_measured_below_the_lowest_threshold_are_refused() -> None:
    measured = {"far": {"IC": [0.05, 0.0, 0.1]}, "frr": [0.0, 0.0, 0.1]}
    with pytest.raises(
        ParameterError, match=r"measured at the threshold -1\.5, but thresholds below"
    ):
        OperatingPoint(-1.5, far=0.05, measured=measured)
    assert OperatingPoint(0.0, far=0.05, measured=measured).threshold == 0.0


@pytest.mark.parametrize("outlier_probability", [0.0, 0.1])
@pytest.mark.parametrize("none", [0.5, 0.2])
@pytest.mark.parametrize("count", [None, 7])
def test_probabilities_of_names_are_those_of_bayes(
    outlier_probability: float, none: float, count: int | None
) -> None:
    """By hand: with the doubt the recording tells nothing, else each profile has its likelihood ratio."""
    ratios = np.array([1.5, -0.5, 0.3, 0.0])
    asked = np.array([True, True, True, False])
    number = count or 3
    prior = np.append(asked * (1 - none) / number, none)
    weights = prior * np.append(np.exp(ratios), 1.0)
    expected = (
        1 - outlier_probability
    ) * weights / weights.sum() + outlier_probability * prior / prior.sum()
    llrs = np.where(asked, ratios, -np.inf)
    naming = name_among(
        llrs, OperatingPoint(0.5), none=none, count=count, outlier_probability=outlier_probability
    )
    np.testing.assert_allclose(naming.probabilities, expected[:-1], atol=1e-12)
    assert naming.none == pytest.approx(expected[-1])
    assert naming.probabilities[3] == 0


@pytest.mark.parametrize("outlier_probability", [0.0, 0.05])
def test_the_threshold_of_names_rises_by_the_logarithm_of_their_number(
    outlier_probability: float,
) -> None:
    """A given joint threshold is that of LLRs with the outlier probability, which those of names come without."""
    threshold = 2.0
    share = (1 - outlier_probability) / (1 + np.exp(-threshold)) + outlier_probability / 2
    limited = float(np.log(share) - np.log1p(-share))
    point = naming_point([], 20, threshold=limited, outlier_probability=outlier_probability)
    assert point.threshold == pytest.approx(threshold + np.log(20))
    for margin, named in ((-0.01, None), (0.01, 0)):
        llrs = np.array([threshold + np.log(20) + margin, *[-8.0] * 19])
        naming = name_among(llrs, point, none=0.1, outlier_probability=outlier_probability)
        assert naming.best == named


@pytest.mark.parametrize(
    ("odds", "text"),
    [
        (3.44, "3.4:1"),
        (99.4, "99.4:1"),
        (101.4, "101:1"),
        (999_990.0, "999,990:1"),
        (1_000_010.0, "over 1,000,000:1"),
    ],
)
def test_odds_are_shown_up_to_a_million(odds: float, text: str) -> None:
    assert odds_text(math.log(odds)) == text
    assert odds_text(-math.log(odds)) == text


def test_an_infinite_llr_has_odds_in_words() -> None:
    assert odds_text(math.inf) == odds_text(-5000.0) == "over 1,000,000:1"


def test_of_two_failed_views_among_three_the_less_likely_one_is_the_reason() -> None:
    evidence = {
        "speaker": ViewEvidence(5.0, False),
        "phrase": ViewEvidence(-2.0, True),
        "room": ViewEvidence(-4.0, True),
    }
    verdict, reason, views = _decide_trial(-3.0, evidence, {"speaker": 1.0}, OperatingPoint(2.0))
    assert (verdict, reason, views["speaker"]) == ("reject", "wrong_room", "accept")


def test_a_likely_view_beside_a_likelier_spoof_is_not_the_reason() -> None:
    probabilities = {"speaker": 0.438, "nothing": 0.194, "spoof": 0.45}
    evidence = {"speaker": ViewEvidence(0.12, False)}
    verdict, reason, views = _decide_trial(-0.2, evidence, probabilities, OperatingPoint(2.0))
    assert (verdict, reason) == ("reject", "suspected_replay")
    assert views["speaker"] != "reject"
