"""Decisions: operating points, and from the answer to a trial to accept, reject or inconclusive, with the reason.

The command line, the service and the report decide by this module and by nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from ._typing import Array, Card, Json
from .exceptions import DataError, ParameterError
from .kinds import SPOOF
from .scoring.answer import Answer, hypothesis_name

Verdict = Literal["accept", "reject", "inconclusive"]

LOWEST_THRESHOLD = 0.0
"""The lowest threshold in use: what is more likely different than the same is not accepted."""

SMALLEST = 1e-15
"""Probabilities that are told apart from 0."""

NAMED_FAR = 0.02
"""Of the point that people are named by, where a model has it: the threshold rises with their number, so that on
corpora that the default model had not seen fewer than 3 % of strangers are named (results/strangers)."""

VIEW_WORDS = {"speaker": "voice", "phrase": "words"}
"""What views are called in sentences."""

REASONS = {
    "wrong_speaker": "the voice does not fit",
    "wrong_phrase": "the words do not fit",
    "both": "neither the voice nor the words fit",
    "either": "the voice or the words do not fit, and it is not clear which",
    "suspected_replay": "the recording seems to be played or synthetic",
    "not_enough_evidence": "the recordings do not tell enough to decide",
    "unusable_recording": "a recording cannot be used",
}
"""Why a trial was not accepted, and how it is said. Views other than speaker and phrase have ``wrong_VIEW``."""

FAULTS = {
    "quiet": "a recording is nearly silent",
    "clipped": "a recording is clipped",
    "short": "a recording holds very little speech",
    "noisy": "a recording is noisy",
    "narrow": "a recording has the bandwidth of a telephone",
    "damaged": "a recording holds sound that no voice makes, as damaged files do",
    "speechless": "a recording holds no speech",
}
"""What can be wrong with a recording, by the names that quality reports use."""


class QualityLike(Protocol):
    """What a decision needs of the quality of a recording."""

    @property
    def usable(self) -> bool: ...

    @property
    def warnings(self) -> Sequence[str]: ...


@dataclass(frozen=True)
class OperatingPoint:
    """An LLR that accepts from `threshold` on and rejects up to `reject`; what lies between decides nothing.

    threshold : a threshold that is asked for below `LOWEST_THRESHOLD` becomes that; measured figures belong to a
        threshold that is not below it
    reject : never above 0: what is more likely the same than different is not rejected
    far : share of impostors of the worst kind that may be accepted, where the point was chosen for one
    measured : what was measured on held-out people: ``far`` by kind of impostor and ``frr``, each
        [estimate, lower, upper end of the 95 % interval]; None: nothing was
    people : how many the measurement rests on
    basis : where the threshold comes from, in words

    Examples
    --------
    >>> OperatingPoint(4.6).verdict(5.0), OperatingPoint(4.6).verdict(1.0), OperatingPoint(4.6).verdict(-1.0)
    ('accept', 'inconclusive', 'reject')
    """

    threshold: float
    reject: float = 0.0
    far: float | None = None
    measured: Card | None = None
    people: int | None = None
    basis: str = ""

    def __post_init__(self) -> None:
        if math.isnan(self.threshold):
            raise ParameterError("the threshold is NaN")
        if self.measured is not None and self.threshold < LOWEST_THRESHOLD:
            raise ParameterError(
                f"error rates measured at the threshold {self.threshold:g} are not those of the threshold in use, "
                f"{LOWEST_THRESHOLD:g}: measure them there"
            )
        threshold = max(LOWEST_THRESHOLD, float(self.threshold))
        object.__setattr__(self, "threshold", threshold)
        object.__setattr__(self, "reject", min(float(self.reject), 0.0))

    def verdict(self, llr: float) -> Verdict:
        if llr >= self.threshold:
            return "accept"
        return "reject" if llr <= self.reject else "inconclusive"

    def to_dict(self) -> Json:
        return asdict(self)


def distinct_points(points: Sequence[OperatingPoint]) -> list[OperatingPoint]:
    """Return one point per threshold, the one with the strictest promise, in the order of the thresholds given.

    Examples
    --------
    >>> points = [OperatingPoint(0.0, far=0.05), OperatingPoint(0.0, far=0.01), OperatingPoint(2.0, far=0.001)]
    >>> [(point.threshold, point.far) for point in distinct_points(points)]
    [(0.0, 0.01), (2.0, 0.001)]
    """
    strictest: dict[tuple[float, float], OperatingPoint] = {}
    for point in points:
        limits = (point.threshold, point.reject)
        other = strictest.setdefault(limits, point)
        if _promise(point) < _promise(other):
            strictest[limits] = point
    return list(strictest.values())


def _promise(point: OperatingPoint) -> float:
    """The share of false acceptances that a point was chosen for; 1 where it was chosen otherwise."""
    return 1.0 if point.far is None else point.far


def point_for(
    points: Sequence[OperatingPoint] = (),
    *,
    far: float | None = None,
    threshold: float | None = None,
    largest_llr: float = math.inf,
) -> OperatingPoint:
    """The operating point that a caller asks for, by a threshold or by false acceptances.

    Parameters
    ----------
    points : the model's own, measured on held-out people
    far : share of impostors of the worst kind that may pass. Where the model has points, the one with the loosest
        promise that is at least as strict; else a calibrated LLR exceeds t for at most exp(-t) of the impostors
    threshold : the LLR itself; `mvplda.costs.DetectionCost.threshold` is that of a prior and costs
    largest_llr : that the model's calibration gives

    None of them: the model's first point, else 1 % of the impostors.
    """
    if threshold is not None:
        if far is not None:
            raise ParameterError("a threshold comes from far or from threshold, not from both")
        return OperatingPoint(threshold, basis="as asked for")
    if far is None and points:
        return points[0]
    wanted = 0.01
    if far is not None:
        wanted = far
    if not 0 < wanted < 1:
        raise ParameterError(f"a share of false acceptances lies between 0 and 1; got {far}")
    promised = {point.far: point for point in points if point.far is not None}
    enough = [share for share in promised if share <= wanted + 1e-12]
    if enough:
        return promised[max(enough)]
    limit = -math.log(wanted)
    least = min(promised, default=math.exp(-largest_llr))
    if promised or limit > largest_llr:
        raise ParameterError(
            f"this model cannot promise false acceptances of {100 * wanted:g} %: the people that it was measured or "
            f"calibrated on are too few. Ask for {100 * least:.2g} % or more, or use a model of more people"
        )
    return OperatingPoint(limit, far=wanted, basis="that of calibrated LLRs, not measured")


def wanted_to_name(
    points: Sequence[OperatingPoint], **wanted: float | None
) -> dict[str, float | None]:
    """What `point_for` is asked for: as it is wanted, else `NAMED_FAR` where one of a model's points promises it."""
    is_open = all(value is None for value in wanted.values())
    if is_open and any(_promise(point) <= NAMED_FAR for point in points):
        return {"far": NAMED_FAR}
    return wanted


@dataclass(frozen=True)
class Decision:
    """What was decided about a trial, and why.

    answer : accept, reject or inconclusive
    reason : a key of `REASONS`, or ``wrong_VIEW``; None where the trial was accepted
    views : {view: what was decided about it alone}
    llrs : {view: LLR of the same against different ones in it, whatever the others}
    llr, threshold : accepted where the one reaches the other
    probabilities : {"speaker+phrase", "speaker", "nothing", ...: posterior} by the views that are the same, of those
        that were asked about, from the same weighted hypotheses as the LLR
    calibrated : whether all of these are calibrated for what was asked
    faults : what is wrong with the recordings, keys of `FAULTS`
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

    @property
    def voice(self) -> Verdict | None:
        """What was decided about the speaker alone."""
        return self.views.get("speaker")

    @property
    def words(self) -> Verdict | None:
        """What was decided about the phrase alone."""
        return self.views.get("phrase")

    def to_dict(self) -> Json:
        return asdict(self)

    def sentence(self) -> str:
        """The decision in one sentence."""
        things = " and ".join(VIEW_WORDS.get(view, view) for view in self.views) or "voice"
        odds = math.exp(min(abs(self.llr), 50.0))
        amount = f"{odds:,.0f}"
        if odds < 100:
            amount = f"{odds:.1f}"
        elif odds >= 1e6:
            amount = f"{odds:.0e}"
        which = "the same" if self.llr >= 0 else "different ones"
        evidence = f"{amount} times more likely with {which} (LLR {self.llr:+.2f})"
        if self.reason is None:
            return f"The same {things}: {evidence}."
        view = self.reason.removeprefix("wrong_")
        because = REASONS.get(self.reason, f"the {view} does not fit")
        if self.answer == "inconclusive":
            return f"Nothing can be decided: {because}; {evidence}."
        return f"Not the same {things}: {because}; {evidence}."


def decide(
    answer: Answer,
    point: OperatingPoint | None = None,
    *,
    quality: Iterable[QualityLike] = (),
) -> Decision:
    """Decide one trial.

    Accept where the LLR reaches the point's threshold. Reject where it lies at or below the point's lower limit, or
    where one half alone is more likely different than the same. All else, and all that rests on a recording which
    cannot be used, is inconclusive. Probabilities, halves and LLR come from one weighted set of hypotheses
    (`Answer.weights`): the LLR is the log odds of the hypothesis that is asked about, and no half is less likely than
    the whole.

    Parameters
    ----------
    answer : of one trial; `Answer.take` picks one of many
    point : None: that of `point_for`
    quality : of the recordings
    """
    decision = decide_each(answer, [point or point_for()])[0]
    recordings = list(quality)
    faults = tuple(dict.fromkeys(fault for one in recordings for fault in one.warnings))
    if all(one.usable for one in recordings):
        return replace(decision, faults=faults)
    return replace(decision, answer="inconclusive", reason="unusable_recording", faults=faults)


def decide_each(answer: Answer, points: Sequence[OperatingPoint]) -> list[Decision]:
    """Decide the trials of a list, each at its own point; see `decide`."""
    if len(points) != answer.llr.size:
        raise DataError(
            f"there are {answer.llr.size} trials and {len(points)} operating points: give one per trial"
        )
    same = answer.question.same
    asked = [view for view in answer.views if same is None or view in same]
    # lists: arrays of one number each cost many times as much
    llrs = np.ravel(answer.llr).tolist()
    llrs_of = {view: np.ravel(answer.llr_of(view)).tolist() for view in asked}
    odds_of = {view: np.ravel(answer.log_odds_of(view)).tolist() for view in asked}
    shares = {name: np.ravel(p).tolist() for name, p in _probabilities(answer, asked).items()}
    calibrated = np.ravel(answer.is_calibrated).tolist()
    decisions = []
    for trial, point in enumerate(points):
        posteriors = {name: values[trial] for name, values in shares.items()}
        halves = {view: Half(llrs_of[view][trial], odds_of[view][trial] < 0) for view in asked}
        verdict, reason, views = _decided(llrs[trial], halves, posteriors, point)
        view_llrs = {view: half.llr for view, half in halves.items()}
        decided = (verdict, reason, llrs[trial], point.threshold, posteriors, views, view_llrs)
        decisions.append(Decision(*decided, calibrated=calibrated[trial]))
    return decisions


def _probabilities(answer: Answer, asked: Sequence[str]) -> dict[str, Array]:
    """Posteriors by the views that are the same, summed over the views that were not asked about."""
    ignored = set(answer.views) - set(asked)
    shares: dict[str, Array] = {}
    for hypothesis, p in answer.posteriors().items():
        name = hypothesis_name(tuple(view for view in hypothesis if view not in ignored))
        shares[name] = shares[name] + p if name in shares else p
    return shares


class Half(NamedTuple):
    """The evidence about one view: its LLR, and whether "different" is the more likely."""

    llr: float
    is_unlikely: bool


def _decided(
    llr: float, halves: Mapping[str, Half], posteriors: Mapping[str, float], point: OperatingPoint
) -> tuple[Verdict, str | None, dict[str, Verdict]]:
    """The decision about one trial, its reason, and the decision about each view."""
    verdict = point.verdict(llr)
    failed: list[str] = []
    # no half is less likely than the whole: only rounding says otherwise
    if llr < 0:
        failed = [view for view, half in halves.items() if half.is_unlikely]
    if failed:
        verdict = "reject"
    elif verdict == "reject" and len(halves) == 1:
        failed = list(halves)
    views = {view: _view_verdict(half, llr, point) for view, half in halves.items()}
    views |= dict.fromkeys(failed, "reject")
    if verdict == "accept":
        return verdict, None, views
    if verdict == "reject" and not failed:
        # the halves exclude each other: neither is decided
        views = dict.fromkeys(views, "inconclusive")
    return verdict, _reason(verdict, failed, posteriors), views


@dataclass(frozen=True, eq=False)
class Naming:
    """Whose voice it is, of several profiles, or that it is none of them.

    best : place of the profile that is named; None: nobody is
    probabilities : (n,) of the profiles
    none : probability that it is none of them
    """

    best: int | None
    probabilities: Array
    none: float


def name_among(
    llrs: ArrayLike,
    point: OperatingPoint,
    *,
    none: float = 0.5,
    count: int | None = None,
    doubt: float = 0.0,
) -> Naming:
    """Name the likeliest of several profiles, if it is likely enough.

    Each of n profiles gives a stranger one more chance to be taken for somebody: at the same share of strangers that
    are named, the threshold rises by log n. The profile that is named is more likely than all others and nobody
    together.

    The doubt of a calibration, that the model tells nothing about a recording, is the same for all profiles. It is
    taken out of their LLRs, which it limits, and put into the probabilities once.

    Parameters
    ----------
    llrs : (n,) of the voice against each profile; -inf: not in question
    point : for one profile
    none : probability beforehand that it is none of them
    count : profiles in question; None: all that are finite
    doubt : of the calibration that the LLRs have

    Examples
    --------
    >>> name_among([9.0, -3.0, -5.0], OperatingPoint(4.6)).best
    0
    >>> name_among([5.0, -3.0, -5.0], OperatingPoint(4.6)).best is None
    True
    """
    given = np.asarray(llrs, dtype=np.float64)
    possible = np.isfinite(given)
    number = max(1, np.count_nonzero(possible) if count is None else count)
    scores = without_doubt(given, doubt)
    threshold = without_doubt(np.asarray(point.threshold), doubt) + math.log(number)
    prior = np.append(possible * (1 - none) / number, none)
    logs = np.append(scores + math.log1p(-none) - math.log(number), math.log(none))
    posterior = np.exp(logs - np.logaddexp.reduce(logs))
    posterior = (1 - doubt) * posterior + doubt * prior / prior.sum()
    likely = np.flatnonzero((scores >= threshold) & (posterior[:-1] > 0.5))
    best = next(iter(likely.tolist()), None)
    return Naming(best, posterior[:-1], float(posterior[-1]))


def without_doubt(llrs: Array, doubt: float) -> Array:
    """LLRs at even odds before a doubt was mixed in: p = (1 - doubt) q + doubt / 2, and the logit of q comes back."""
    if doubt == 0:
        return llrs
    # for and against, each by itself: the smaller one would be lost in 1 minus the larger
    both = expit(np.stack([llrs, -llrs]))
    for_it, against = np.log(np.maximum((both - doubt / 2) / (1 - doubt), SMALLEST))
    return np.asarray(np.where(np.isneginf(llrs), -np.inf, for_it - against))


def _view_verdict(half: Half, llr: float, point: OperatingPoint) -> Verdict:
    """One view that does not fail: what an accepted trial shows of all views, it shows of each."""
    if max(llr, half.llr) >= point.threshold:
        return "accept"
    return "inconclusive"


def _reason(verdict: Verdict, failed: Sequence[str], posteriors: Mapping[str, float]) -> str:
    spoof = posteriors.get(SPOOF, 0.0)
    if spoof > 0.5:
        return "suspected_replay"
    if verdict == "inconclusive":
        return "not_enough_evidence"
    if len(failed) > 1:
        return "both"
    if failed:
        return f"wrong_{failed[0]}"
    # Each half by itself is more likely the same, all of them together are not.
    if spoof > max(p for name, p in posteriors.items() if name != SPOOF):
        return "suspected_replay"
    return "either"
