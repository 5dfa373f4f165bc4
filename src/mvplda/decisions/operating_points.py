"""Operating points: thresholds of LLRs, the error rates measured at them, and the choice among them.

A point has one threshold per half of a question (speaker, phrase), or a single threshold of the
joint LLR.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, NamedTuple, NotRequired, Self, TypedDict

import numpy as np

from .._typing import Json
from ..exceptions import ParameterError

Verdict = Literal["accept", "reject", "inconclusive"]
"""Decision about a trial, or about one of its views."""

LOWEST_THRESHOLD = 0.0
"""Lowest threshold in use: a trial that is more likely different than the same is never accepted."""

RATE_TOLERANCE = 1e-12
"""Error rates that differ by less are equal."""

DEFAULT_FAR = 0.01
"""Share of impostors that may be accepted, for a model without operating points."""


class RateInterval(NamedTuple):
    """Error rate, a share between 0 and 1, with the limits of its 95 % interval."""

    estimate: float
    low: float
    high: float


class MeasuredRates(TypedDict):
    """Error rates of held-out people at a threshold.

    far : false-acceptance rate by kind of impostor
    frr : false-rejection rate
    warning : reason why the rates may be unreliable; None or missing if they are reliable
    """

    far: Mapping[str, RateInterval]
    frr: RateInterval
    warning: NotRequired[str | None]


@dataclass(frozen=True)
class HalfThreshold:
    """Two thresholds of the LLR of one view: accept from `accept`, reject up to `reject`, inconclusive in between.

    accept : lowest LLR at which the view is accepted. A value below 0 becomes 0; it raises
        `ParameterError` if `measured` is given, because the rates would not hold at 0
    reject : highest LLR at which the view is rejected. A value above 0 becomes 0, because a
        positive LLR is evidence for "same"
    measured : shares of this view's impostors with an LLR of at least `accept`, and of owners below
        it. For the speaker, impostors say the right words; for the phrase, owners say other or
        similar words. None: not measured
    people : number of people on whom the rates were measured
    """

    accept: float
    reject: float = 0.0
    measured: MeasuredRates | None = None
    people: int | None = None

    def __post_init__(self) -> None:
        _set_thresholds(self, "accept")

    def verdict(self, llr: float) -> Verdict:
        """Return the verdict about this view for its LLR."""
        return _verdict(llr, self.accept, self.reject)


@dataclass(frozen=True)
class OperatingPoint:
    """Thresholds of a decision: accept from the threshold, reject up to `reject`, inconclusive in between.

    With `halves`, each view is decided by its own thresholds. The trial is accepted if every view
    is accepted, rejected if any view is rejected, and inconclusive otherwise. Without `halves`, the
    joint LLR decides.

    threshold : lowest joint LLR at which a trial is accepted. A value below 0 becomes 0; it raises
        `ParameterError` if `measured` is given, because the rates would not hold at 0. For a point
        with `halves`, `from_halves` computes it from their thresholds
    reject : highest joint LLR at which a trial is rejected. A value above 0 becomes 0, because a
        positive LLR is evidence for "same"
    far : false-acceptance rate for which the thresholds were chosen, that of the kind of impostor
        accepted most often; None: they were not chosen for a rate
    measured : error rates of held-out people at these thresholds; None: not measured
    people : number of people on whom the rates were measured
    basis : how the thresholds were chosen, in words
    halves : {view: thresholds of this view}, for every view of the question; empty: the joint LLR
        decides

    Examples
    --------
    >>> OperatingPoint(4.6).verdict(5.0), OperatingPoint(4.6).verdict(1.0), OperatingPoint(4.6).verdict(-1.0)
    ('accept', 'inconclusive', 'reject')
    >>> OperatingPoint(1.97).sentence()
    'Accepts from LLR 1.97, rejects below 0; in between: inconclusive.'
    >>> halves = {"speaker": HalfThreshold(5.2), "phrase": HalfThreshold(1.0)}
    >>> OperatingPoint.from_halves(halves, far=0.01).sentence()
    'Accepts from speaker LLR 5.20 and phrase LLR 1, rejects below 0 in either; in between: inconclusive.'
    """

    threshold: float
    reject: float = 0.0
    far: float | None = None
    measured: MeasuredRates | None = None
    people: int | None = None
    basis: str = ""
    halves: Mapping[str, HalfThreshold] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _set_thresholds(self, "threshold")
        # files hold the fields of each half
        halves = {
            view: HalfThreshold(**half) if isinstance(half, Mapping) else half
            for view, half in self.halves.items()
        }
        object.__setattr__(self, "halves", halves)

    @classmethod
    def from_halves(cls, halves: Mapping[str, HalfThreshold], **fields: Any) -> Self:
        """Return a point with thresholds per view.

        Its joint threshold is the joint LLR of a trial whose n views are exactly at their
        thresholds t_v: log(2^n - 1) - log(product over v of (1 + exp(-t_v)) - 1). If all views of a
        trial are accepted and their evidence is independent, the trial reaches the joint threshold.

        Parameters
        ----------
        halves : {view: thresholds}, at least one
        fields : other fields of the point, such as far, measured, people and basis

        Returns
        -------
        OperatingPoint
        """
        if not halves:
            raise ParameterError(
                "halves is empty: pass the thresholds of at least one view, {view: HalfThreshold}"
            )
        accepts = np.array([half.accept for half in halves.values()])
        log_product = np.logaddexp(0.0, -accepts).sum()
        with np.errstate(divide="ignore"):  # no trial reaches an infinite threshold
            # (V20)
            threshold = math.log(2 ** len(halves) - 1) - float(np.log(np.expm1(log_product)))
        if len(halves) == 1:
            threshold = float(accepts[0])
        return cls(threshold, halves=halves, **fields)

    def verdict(self, llr: float) -> Verdict:
        """Return the verdict for a joint LLR, by the joint thresholds."""
        return _verdict(llr, self.threshold, self.reject)

    def sentence(self) -> str:
        """Describe the thresholds in one sentence."""
        if self.halves:
            return self._sentence_of_halves()
        accept, reject = _threshold_text(self.threshold), _threshold_text(self.reject)
        limits = f"Accepts from LLR {accept}, rejects below {reject}"
        if self.threshold <= self.reject:
            return f"{limits}."
        return f"{limits}; in between: inconclusive."

    def _sentence_of_halves(self) -> str:
        accepts = [
            f"{view} LLR {_threshold_text(half.accept)}" for view, half in self.halves.items()
        ]
        rejects = {_threshold_text(half.reject) for half in self.halves.values()}
        if len(rejects) > 1:
            limits = " or ".join(
                f"{view} LLR {_threshold_text(half.reject)}" for view, half in self.halves.items()
            )
        else:
            limits = rejects.pop()
            if len(self.halves) > 1:
                limits += " in either" if len(self.halves) == 2 else " in any"
        sentence = f"Accepts from {' and '.join(accepts)}, rejects below {limits}"
        if all(half.accept <= half.reject for half in self.halves.values()):
            return f"{sentence}."
        return f"{sentence}; in between: inconclusive."

    def to_dict(self) -> Json:
        """Return the fields as plain values for JSON."""
        return asdict(self)


def _verdict(llr: float, accept: float, reject: float) -> Verdict:
    """Return the verdict for an LLR: accept from `accept`, reject up to `reject`, else inconclusive."""
    if llr >= accept:
        return "accept"
    return "reject" if llr <= reject else "inconclusive"


def _threshold_text(threshold: float) -> str:
    """Format a threshold with two decimals, or without decimals if it is a whole number."""
    return f"{threshold:.2f}".removesuffix(".00")


def _set_thresholds(point: OperatingPoint | HalfThreshold, name: str) -> None:
    """Check the thresholds of a point that is being created, limit them, and convert its rates.

    Acceptance thresholds below 0 and rejection thresholds above 0 become 0. Raise `ParameterError`
    for NaN, and for measured rates at an acceptance threshold below 0.

    name : name of the point's attribute with the acceptance threshold
    """
    threshold = float(getattr(point, name))
    if math.isnan(threshold) or math.isnan(point.reject):
        raise ParameterError(
            f"thresholds must not be NaN; got {name}={threshold} and reject={point.reject}"
        )
    if point.measured is not None and threshold < LOWEST_THRESHOLD:
        raise ParameterError(
            f"error rates were measured at the threshold {threshold:g}, but thresholds below {LOWEST_THRESHOLD:g} are "
            f"not used: measure the rates at {LOWEST_THRESHOLD:g} or higher"
        )
    object.__setattr__(point, name, max(LOWEST_THRESHOLD, threshold))
    object.__setattr__(point, "reject", min(float(point.reject), 0.0))
    if point.measured is not None:
        object.__setattr__(point, "measured", _with_intervals(point.measured))


def _with_intervals(measured: MeasuredRates) -> MeasuredRates:
    """Return measured rates with each interval as a `RateInterval`; in JSON files they are lists."""
    rates = measured.copy()
    rates["far"] = {kind: RateInterval(*interval) for kind, interval in measured["far"].items()}
    rates["frr"] = RateInterval(*measured["frr"])
    return rates


def distinct_points(points: Sequence[OperatingPoint]) -> list[OperatingPoint]:
    """Return the points without those that have the same thresholds as another point.

    Of points with the same thresholds, the one with the lowest `far` is kept. The order is kept.

    Examples
    --------
    >>> points = [OperatingPoint(0.0, far=0.05), OperatingPoint(0.0, far=0.01), OperatingPoint(2.0, far=0.001)]
    >>> [(point.threshold, point.far) for point in distinct_points(points)]
    [(0.0, 0.01), (2.0, 0.001)]
    """
    strictest: dict[object, OperatingPoint] = {}
    for point in points:
        halves = ((view, half.accept, half.reject) for view, half in point.halves.items())
        limits = tuple(halves) or (point.threshold, point.reject)
        previous = strictest.setdefault(limits, point)
        if promised_far(point) < promised_far(previous):
            strictest[limits] = point
    return list(strictest.values())


def promised_far(point: OperatingPoint) -> float:
    """Return the false-acceptance rate for which a point was chosen; 1 if it was not chosen for a rate."""
    return 1.0 if point.far is None else point.far


def promised_point(points: Sequence[OperatingPoint], far: float) -> OperatingPoint | None:
    """Return the point chosen for the highest false-acceptance rate that does not exceed `far`.

    If all points were chosen for higher rates, return the one with the lowest rate. Return None if
    no point was chosen for a rate.

    Examples
    --------
    >>> points = [OperatingPoint(1.0, far=0.05), OperatingPoint(2.0, far=0.01), OperatingPoint(3.0)]
    >>> promised_point(points, 0.02).far, promised_point(points, 0.001).far
    (0.01, 0.01)
    """
    point_by_far = {point.far: point for point in points if point.far is not None}
    if not point_by_far:
        return None
    strict_enough = [rate for rate in point_by_far if rate <= far + RATE_TOLERANCE]
    return point_by_far[max(strict_enough, default=min(point_by_far))]


def point_for(
    points: Sequence[OperatingPoint] = (),
    *,
    far: float | None = None,
    threshold: float | None = None,
    largest_llr: float = math.inf,
) -> OperatingPoint:
    """Return the operating point for a threshold or a false-acceptance rate.

    Without either, return the model's first point; for a model without points, a point for
    `DEFAULT_FAR`.

    Parameters
    ----------
    points : the model's points, measured on held-out people
    far : largest false-acceptance rate, for every kind of impostor. If the model has points, the
        one with the highest rate that does not exceed `far` is used. Otherwise the threshold is
        -log(far), because a calibrated LLR exceeds t for at most exp(-t) of the impostors
    threshold : joint LLR from which trials are accepted, instead of `far`;
        `mvplda.costs.DetectionCost.threshold` computes it from a prior and costs
    largest_llr : upper bound of the LLRs that the model's calibration can give

    Returns
    -------
    OperatingPoint

    Raises
    ------
    ParameterError
        The model was measured, or calibrated, on too few people for this rate.
    """
    if threshold is not None:
        if far is not None:
            raise ParameterError("got both far and threshold: pass one of them")
        return OperatingPoint(threshold, basis="given by the caller")
    if far is None and points:
        return points[0]

    rate = DEFAULT_FAR if far is None else far
    if not 0 < rate < 1:
        raise ParameterError(f"expected a false-acceptance rate between 0 and 1; got {far}")
    promised = promised_point(points, rate)
    if promised is not None and promised_far(promised) <= rate + RATE_TOLERANCE:
        return promised

    limit = -math.log(rate)
    refusal = f"this model cannot promise at most {100 * rate:g} % false acceptances"
    if promised is not None:
        raise ParameterError(
            f"{refusal}: {_available_rates(points)}, or use a model measured on more people"
        )
    if limit > largest_llr:
        raise ParameterError(
            f"{refusal}: it was calibrated on too few people. Choose {100 * math.exp(-largest_llr):.2g} % or more, or "
            "use a model calibrated on more people"
        )
    return OperatingPoint(
        limit, far=rate, basis="theoretical bound for calibrated LLRs, not measured"
    )


def _available_rates(points: Sequence[OperatingPoint]) -> str:
    """Return text for an error: why a false-acceptance rate is not available, and which rates are."""
    shares = sorted({point.far for point in points if point.far is not None}, reverse=True)
    strictest = next(point for point in points if point.far == shares[-1])
    reason = "it was measured on too few people for so small a share"
    if strictest.people is not None:
        reason = f"it was measured on {strictest.people} people, too few for so small a share"
    offered = ", ".join(f"{100 * share:g}" for share in shares)
    if len(shares) == 1:
        return f"{reason}. Choose {offered} %"
    return f"{reason}. Choose one of {offered} %"
