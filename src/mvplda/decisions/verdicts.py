"""Verdicts: accept, reject or inconclusive for each trial, with the reason in words."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import NamedTuple, Protocol

import numpy as np

from .._typing import Array, Json
from ..exceptions import DataError
from ..kinds import SPOOF
from ..scoring.answer import Answer, hypothesis_name
from .operating_points import HalfThreshold, OperatingPoint, Verdict, point_for

REASONS = {
    "wrong_speaker": "wrong speaker",
    "wrong_phrase": "wrong phrase",
    "both": "wrong speaker and wrong phrase",
    "either": "wrong speaker or wrong phrase, unclear which of them",
    "suspected_replay": "suspected replay or synthetic speech",
    "not_enough_evidence": "not enough evidence",
    "unusable_recording": "a recording is unusable",
}
"""Reasons why a trial was not accepted, in words, by their codes; other views than speaker and
phrase have ``wrong_VIEW``.
"""

FAULTS = {
    "quiet": "a recording is nearly silent",
    "clipped": "a recording is clipped",
    "short": "a recording contains very little speech",
    "noisy": "a recording is noisy",
    "narrow": "a recording has telephone bandwidth",
    "damaged": "a recording may be damaged: it contains sounds that no voice produces",
    "speechless": "a recording contains no speech",
}
"""Faults of a recording, in words, by their codes in quality reports."""

MAX_SHOWN_ODDS = 1e6
"""Largest odds shown as a number; larger ones are shown as "over 1,000,000:1"."""


class QualityLike(Protocol):
    """Interface of a recording's quality report: the attributes that a decision uses."""

    @property
    def usable(self) -> bool:
        """Whether the recording can be used for a decision."""
        ...

    @property
    def warnings(self) -> Sequence[str]:
        """Faults of the recording, keys of `FAULTS`."""
        ...


@dataclass(frozen=True)
class Decision:
    """Verdict about a trial, with its reason and its evidence.

    answer : accept, reject or inconclusive
    reason : a key of `REASONS`, or ``wrong_VIEW``; None if the trial was accepted
    llr : joint LLR of the question
    threshold : joint threshold. Without `halves`, the trial is accepted if the LLR reaches it; with
        `halves`, the views decide instead
    probabilities : posterior of each hypothesis about the views of the question, by the views that
        are the same: {"speaker+phrase": 0.9, "speaker": 0.08, "nothing": 0.02, ...}. The LLR is
        computed from the same hypotheses and weights
    views : {view: verdict about this view alone}
    llrs : {view: LLR of same against different in this view, summed over the other views}; with
        `halves`, the LLR to which their thresholds apply (`Answer.half_llr`)
    calibrated : whether LLRs and probabilities are calibrated for the question
    faults : faults of the recordings, keys of `FAULTS`
    halves : {view: thresholds of this view}; empty if the joint LLR decides
    advice : a sentence about what to do next, if more evidence would help; else None
    """

    answer: Verdict
    reason: str | None
    llr: float
    threshold: float
    probabilities: Mapping[str, float]
    views: Mapping[str, Verdict] = field(default_factory=dict)
    llrs: Mapping[str, float] = field(default_factory=dict)
    calibrated: bool = True
    faults: tuple[str, ...] = ()
    halves: Mapping[str, HalfThreshold] = field(default_factory=dict)
    advice: str | None = None

    @property
    def voice(self) -> Verdict | None:
        """Verdict about the speaker alone; None if the question is not about the speaker."""
        return self.views.get("speaker")

    @property
    def phrase(self) -> Verdict | None:
        """Verdict about the phrase alone; None if the question is not about the phrase."""
        return self.views.get("phrase")

    def to_dict(self) -> Json:
        """Return the fields as plain values for JSON; each entry of `halves` has its LLR, verdict,
        thresholds and rates.
        """
        plain = asdict(self)
        for view, half in plain["halves"].items():
            half |= {"llr": self.llrs[view], "verdict": self.views[view]}
        return plain

    def sentence(self) -> str:
        """Describe the decision in one sentence.

        Examples
        --------
        >>> decision = Decision("inconclusive", "not_enough_evidence", 1.23, 4.6, {}, {"speaker": "inconclusive"})
        >>> decision.sentence()
        'Inconclusive: not enough evidence (LLR +1.23, 3.4:1 for the same speaker).'
        >>> llrs, halves = {"speaker": -2.0}, {"speaker": HalfThreshold(5.0)}
        >>> decision = Decision("reject", "wrong_speaker", -2.0, 5.0, {}, {"speaker": "reject"}, llrs, halves=halves)
        >>> decision.sentence()
        'Rejected: wrong speaker (speaker LLR -2.00, rejects up to 0.00).'
        """
        same = f"same {' and '.join(self.views) or 'speaker'}"
        odds = odds_text(self.llr)
        if self.halves:
            # prompted words have a verdict, but no threshold of an LLR
            halves = "; ".join(self._half_text(view) for view in self.views if view in self.halves)
            return f"{self._outcome(same)} ({halves})."
        if self.reason is None:
            return f"{self._outcome(same)} (LLR {self.llr:+.2f}, {odds})."
        direction = "for" if self.llr >= 0 else "against"
        return f"{self._outcome(same)} (LLR {self.llr:+.2f}, {odds} {direction} the {same})."

    def probability_note(self) -> str | None:
        """Return why the most likely hypothesis and the verdict differ; None if they agree.

        They can differ because each view is decided by its own LLR and threshold, and the
        probabilities of hypotheses depend on all views together.

        Examples
        --------
        >>> halves = {"speaker": HalfThreshold(5.0), "phrase": HalfThreshold(2.0)}
        >>> views = {"speaker": "reject", "phrase": "accept"}
        >>> probabilities = {"speaker+phrase": 0.65, "phrase": 0.35}
        >>> decision = Decision("reject", "wrong_speaker", 0.6, 5.0, probabilities, views, halves=halves)
        >>> decision.probability_note()
        'The threshold of the speaker decided. The probabilities weigh speaker and phrase together, at even odds:'
        """
        if not (self.halves and self.probabilities) or self.answer == "inconclusive":
            return None
        likeliest = max(self.probabilities, key=self.probabilities.__getitem__)
        is_target = set(likeliest.split("+")) == set(self.views)
        if is_target == (self.answer == "accept"):
            return None
        views = [view for view in self.views if self.views[view] == self.answer]
        if not views:
            return None
        thresholds = f"threshold{'s' * (len(views) > 1)} of the {' and the '.join(views)}"
        together = f"The probabilities weigh {' and '.join(self.views)} together, at even odds:"
        return f"The {thresholds} decided. {together}"

    def _outcome(self, same: str) -> str:
        """Return the verdict and its reason in words.

        same : what an accepted trial has in common, such as "same speaker and phrase"
        """
        if self.reason is None:
            return f"Accepted: {same}"
        outcome = "Inconclusive" if self.answer == "inconclusive" else "Rejected"
        reason = REASONS.get(self.reason, self.reason.replace("_", " "))
        if self.reason == "both":
            reason = " and ".join(f"wrong {view}" for view in self.views)
        return f"{outcome}: {reason}"

    def _half_text(self, view: str) -> str:
        """Return the LLR of a view, and the threshold that decides its verdict, in words."""
        half = self.halves[view]
        limit = f"accepts from {half.accept:.2f}"
        if self.views[view] == "reject":
            limit = f"rejects up to {half.reject:.2f}"
        return f"{view} LLR {self.llrs[view]:+.2f}, {limit}"


def odds_text(llr: float) -> str:
    """Format an LLR as odds of at least 1, such as "3.4:1"; its sign is ignored."""
    if abs(llr) > math.log(MAX_SHOWN_ODDS):
        return f"over {MAX_SHOWN_ODDS:,.0f}:1"
    odds = math.exp(abs(llr))
    digits = 1 if odds < 100 else 0
    return f"{odds:,.{digits}f}:1"


def decide(
    answer: Answer,
    point: OperatingPoint | None = None,
    *,
    quality: Iterable[QualityLike] = (),
) -> Decision:
    """Decide one trial.

    With thresholds per view (`OperatingPoint.halves`): accept if the LLR of every view reaches its
    threshold, reject if the LLR of any view is at or below its rejection threshold. With a
    countermeasure, acceptance requires that the joint LLR reaches the joint threshold too.

    With a joint threshold: accept if the joint LLR reaches it. Reject if the joint LLR is at or
    below the rejection threshold, or if one view alone is more likely different than the same.

    Otherwise, and whenever a recording is unusable, the verdict is inconclusive. LLR and
    probabilities are computed from the same hypotheses and weights (`Answer.weights`), so that
    they do not contradict each other.

    Parameters
    ----------
    answer : answer for one trial; `Answer.take` selects one of several
    point : operating point; None: that of `point_for`
    quality : quality reports of the recordings

    Returns
    -------
    Decision
    """
    decision = decide_each(answer, [point or point_for()])[0]
    reports = list(quality)
    faults = tuple(dict.fromkeys(fault for report in reports for fault in report.warnings))
    if all(report.usable for report in reports):
        return replace(decision, faults=faults)
    return replace(decision, answer="inconclusive", reason="unusable_recording", faults=faults)


def decide_each(answer: Answer, points: Sequence[OperatingPoint]) -> list[Decision]:
    """Decide a list of trials, each at its own operating point; see `decide`.

    Parameters
    ----------
    answer : answer for n trials
    points : n operating points

    Returns
    -------
    list of Decision
    """
    if len(points) != answer.llr.size:
        raise DataError(
            f"points must have one operating point for each of {answer.llr.size} trials; got {len(points)}"
        )
    same = answer.question.same
    views = [view for view in answer.views if same is None or view in same]
    # Lists, because indexing arrays one number at a time is many times slower.
    llrs = np.ravel(answer.llr).tolist()
    odds_by_view = {view: np.ravel(answer.log_odds_of(view)).tolist() for view in views}
    llrs_by_view = {view: np.ravel(answer.llr_of(view)).tolist() for view in views}
    half_llrs_by_view = llrs_by_view
    inlier_llrs = llrs
    if any(point.halves for point in points):
        half_llrs_by_view = {view: np.ravel(answer.half_llr(view)).tolist() for view in views}
        inlier_llrs = np.ravel(answer.inlier_llr).tolist()
    posteriors = {name: np.ravel(p).tolist() for name, p in _probabilities(answer, views).items()}
    calibrated = np.ravel(answer.is_calibrated).tolist()

    decisions = []
    for trial, point in enumerate(points):
        halves = _halves_of(point, views)
        probabilities = {name: values[trial] for name, values in posteriors.items()}
        view_llrs = half_llrs_by_view if halves else llrs_by_view
        evidence = {
            view: ViewEvidence(view_llrs[view][trial], odds_by_view[view][trial] < 0)
            for view in views
        }
        rule, llr = _decide_trial, llrs[trial]
        if halves:
            rule, llr = _decide_halves, inlier_llrs[trial]
        verdict, reason, view_verdicts = rule(llr, evidence, probabilities, point)
        decision = Decision(
            answer=verdict,
            reason=reason,
            llr=llrs[trial],
            threshold=point.threshold,
            probabilities=probabilities,
            views=view_verdicts,
            llrs={view: values.llr for view, values in evidence.items()},
            calibrated=calibrated[trial],
            halves=halves,
        )
        decisions.append(decision)
    return decisions


def _halves_of(point: OperatingPoint, views: Sequence[str]) -> dict[str, HalfThreshold]:
    """Return the point's thresholds of the views in question, {view: thresholds}.

    Empty if the point has a joint threshold only. Raise `DataError` if it has thresholds per view,
    but none for one of the views.
    """
    if not point.halves:
        return {}
    missing = [view for view in views if view not in point.halves]
    if missing:
        raise DataError(
            f"the operating point has thresholds of {', '.join(point.halves)}, but the question is also about "
            f"{missing[0]}: use an operating point of the same question"
        )
    return {view: point.halves[view] for view in views}


def _probabilities(answer: Answer, views: Sequence[str]) -> dict[str, Array]:
    """Return the posterior per set of shared views, {name: (trials)}, summed over the views outside the question."""
    ignored = set(answer.views) - set(views)
    posteriors: dict[str, Array] = {}
    for hypothesis, p in answer.posteriors().items():
        name = hypothesis_name(tuple(view for view in hypothesis if view not in ignored))
        posteriors[name] = posteriors[name] + p if name in posteriors else p
    return posteriors


class ViewEvidence(NamedTuple):
    """Evidence about one view in a trial.

    llr : LLR of the view
    is_unlikely : True if "different" is more likely than "same"
    """

    llr: float
    is_unlikely: bool


def _decide_halves(
    llr: float,
    evidence: Mapping[str, ViewEvidence],
    probabilities: Mapping[str, float],
    point: OperatingPoint,
) -> tuple[Verdict, str | None, dict[str, Verdict]]:
    """Decide a trial with thresholds per view: return its verdict, its reason, and the verdict about each view.

    llr : joint LLR without the outlier probability; only used with a countermeasure
    evidence : {view: evidence}
    probabilities : {name of a hypothesis: posterior}
    point : operating point with halves
    """
    views = {view: point.halves[view].verdict(values.llr) for view, values in evidence.items()}
    failed = [view for view, view_verdict in views.items() if view_verdict == "reject"]
    verdict: Verdict = "inconclusive"
    if failed:
        verdict = "reject"
    elif SPOOF in probabilities and point.verdict(llr) != "accept":
        # verdicts of views assume a genuine recording; the joint LLR includes spoofs
        verdict = point.verdict(llr)
    elif all(view_verdict == "accept" for view_verdict in views.values()):
        verdict = "accept"
    if verdict == "accept":
        return verdict, None, views
    return verdict, _reason(verdict, failed, evidence, probabilities), views


def _decide_trial(
    llr: float,
    evidence: Mapping[str, ViewEvidence],
    probabilities: Mapping[str, float],
    point: OperatingPoint,
) -> tuple[Verdict, str | None, dict[str, Verdict]]:
    """Decide a trial with a joint threshold: return its verdict, its reason, and the verdict about each view.

    llr : joint LLR of the trial
    evidence, probabilities : as for `_decide_halves`
    point : operating point with a joint threshold
    """
    verdict = point.verdict(llr)
    failed: list[str] = []
    # With a positive LLR no view can be unlikely, except by rounding.
    if llr < 0:
        failed = [view for view, values in evidence.items() if values.is_unlikely]
    if failed:
        verdict = "reject"
    elif verdict == "reject" and len(evidence) == 1 and SPOOF not in probabilities:
        failed = list(evidence)

    views = {view: _view_verdict(values, llr, point) for view, values in evidence.items()}
    views |= dict.fromkeys(failed, "reject")
    if verdict == "accept":
        return verdict, None, views
    if verdict == "reject" and not failed:
        # Each view alone is more likely the same, but not all together: no single view is decided.
        views = dict.fromkeys(views, "inconclusive")
    return verdict, _reason(verdict, failed, evidence, probabilities), views


def _view_verdict(evidence: ViewEvidence, llr: float, point: OperatingPoint) -> Verdict:
    """Return the verdict about a view that is not rejected, by the joint threshold of the point.

    Accept if the LLR of the view or of the trial reaches the threshold, else inconclusive.

    llr : joint LLR of the trial
    """
    if max(llr, evidence.llr) >= point.threshold:
        return "accept"
    return "inconclusive"


def _reason(
    verdict: Verdict,
    failed: Sequence[str],
    evidence: Mapping[str, ViewEvidence],
    probabilities: Mapping[str, float],
) -> str:
    """Return the reason of a verdict other than accept, a key of `REASONS` or ``wrong_VIEW``.

    If some but not all views failed, the reason names the failed view with the lowest LLR.

    failed : views that were rejected
    """
    spoof = probabilities.get(SPOOF, 0.0)
    if spoof > 0.5:
        return "suspected_replay"
    if verdict == "inconclusive":
        return "not_enough_evidence"
    if len(failed) > 1 and len(failed) == len(evidence):
        return "both"
    if failed:
        return f"wrong_{min(failed, key=lambda view: evidence[view].llr)}"
    # No single view failed, so that a spoof is suspected if it is the most likely alternative.
    if spoof > max(p for name, p in probabilities.items() if name != SPOOF):
        return "suspected_replay"
    return "either"
