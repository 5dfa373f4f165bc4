"""Operating points: thresholds of LLRs, the error rates measured at them, and the choice among them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Literal, NamedTuple, NotRequired, TypedDict

from .._typing import Json
from ..exceptions import ParameterError

Verdict = Literal["accept", "reject", "inconclusive"]

LOWEST_THRESHOLD = 0.0
"""Lowest threshold in use: a trial that is more likely different than the same is never accepted."""

RATE_TOLERANCE = 1e-12
"""Error rates that differ by less are equal."""

DEFAULT_FAR = 0.01
"""Share of impostors that may be accepted, for a model without operating points."""


class RateInterval(NamedTuple):
    """Error rate with its 95 % interval."""

    estimate: float
    low: float
    high: float


class MeasuredRates(TypedDict):
    """Error rates of held-out people at a threshold.

    far : false-acceptance rate by kind of impostor
    frr : false-rejection rate
    warning : why the rates may be unreliable
    """

    far: Mapping[str, RateInterval]
    frr: RateInterval
    warning: NotRequired[str | None]


@dataclass(frozen=True)
class OperatingPoint:
    """Two thresholds of an LLR: accept from `threshold`, reject up to `reject`, inconclusive in between.

    threshold : raised to `LOWEST_THRESHOLD` if it is lower; measured rates require a threshold that is not lower
    reject : lowered to 0 if it is higher, so that a trial that is more likely the same is never rejected
    far : share of impostors of the worst kind that may be accepted, if the threshold was chosen for one
    measured : error rates of held-out people at this threshold; None: not measured
    people : number of people that the measurement rests on
    basis : origin of the threshold, in words

    Examples
    --------
    >>> OperatingPoint(4.6).verdict(5.0), OperatingPoint(4.6).verdict(1.0), OperatingPoint(4.6).verdict(-1.0)
    ('accept', 'inconclusive', 'reject')
    >>> OperatingPoint(1.97).sentence()
    'Accepts from LLR 1.97, rejects below 0; in between: inconclusive.'
    """

    threshold: float
    reject: float = 0.0
    far: float | None = None
    measured: MeasuredRates | None = None
    people: int | None = None
    basis: str = ""

    def __post_init__(self) -> None:
        if math.isnan(self.threshold):
            raise ParameterError("the threshold is NaN: give a number")
        if self.measured is not None and self.threshold < LOWEST_THRESHOLD:
            raise ParameterError(
                f"the error rates were measured at the threshold {self.threshold:g}, but the lowest threshold in use "
                f"is {LOWEST_THRESHOLD:g}: measure them there"
            )
        threshold = max(LOWEST_THRESHOLD, float(self.threshold))
        object.__setattr__(self, "threshold", threshold)
        object.__setattr__(self, "reject", min(float(self.reject), 0.0))
        if self.measured is not None:
            object.__setattr__(self, "measured", _with_intervals(self.measured))

    def verdict(self, llr: float) -> Verdict:
        """Return the verdict for an LLR."""
        if llr >= self.threshold:
            return "accept"
        return "reject" if llr <= self.reject else "inconclusive"

    def sentence(self) -> str:
        """Describe both thresholds in one sentence."""
        accept = f"{self.threshold:.2f}".removesuffix(".00")
        reject = f"{self.reject:.2f}".removesuffix(".00")
        limits = f"Accepts from LLR {accept}, rejects below {reject}"
        if self.threshold <= self.reject:
            return f"{limits}."
        return f"{limits}; in between: inconclusive."

    def to_dict(self) -> Json:
        """Return the fields as plain values for JSON."""
        return asdict(self)


def _with_intervals(measured: MeasuredRates) -> MeasuredRates:
    """Return the same rates with each interval as a `RateInterval`; JSON has lists."""
    rates = measured.copy()
    rates["far"] = {kind: RateInterval(*interval) for kind, interval in measured["far"].items()}
    rates["frr"] = RateInterval(*measured["frr"])
    return rates


def distinct_points(points: Sequence[OperatingPoint]) -> list[OperatingPoint]:
    """Return one point per pair of thresholds, the one with the lowest `far`, in the order given.

    Examples
    --------
    >>> points = [OperatingPoint(0.0, far=0.05), OperatingPoint(0.0, far=0.01), OperatingPoint(2.0, far=0.001)]
    >>> [(point.threshold, point.far) for point in distinct_points(points)]
    [(0.0, 0.01), (2.0, 0.001)]
    """
    strictest: dict[tuple[float, float], OperatingPoint] = {}
    for point in points:
        limits = (point.threshold, point.reject)
        previous = strictest.setdefault(limits, point)
        if promised_far(point) < promised_far(previous):
            strictest[limits] = point
    return list(strictest.values())


def promised_far(point: OperatingPoint) -> float:
    """Return the false-acceptance rate that a point was chosen for; 1 if it was chosen otherwise."""
    return 1.0 if point.far is None else point.far


def promised_point(points: Sequence[OperatingPoint], far: float) -> OperatingPoint | None:
    """Return the point with the highest rate that does not exceed `far`, else the lowest; None without rates.

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

    Without either, return the model's first point, or else a point for 1 % of the impostors.

    Parameters
    ----------
    points : the model's points, measured on held-out people
    far : share of impostors of the worst kind that may be accepted. If the model has points, the one with the highest
        rate that does not exceed `far` is used. Otherwise the threshold is -log(far), because a calibrated LLR
        exceeds t for at most exp(-t) of the impostors
    threshold : the LLR itself; `mvplda.costs.DetectionCost.threshold` gives that of a prior and costs
    largest_llr : upper bound of the LLRs that the model's calibration can give
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
    lowest_rate = math.exp(-largest_llr) if promised is None else promised_far(promised)
    if promised is not None or limit > largest_llr:
        raise ParameterError(
            f"this model cannot promise false acceptances of {100 * rate:g} %: it was measured or calibrated on too "
            f"few people. Choose {100 * lowest_rate:.2g} % or more, or use a model of more people"
        )
    return OperatingPoint(
        limit, far=rate, basis="theoretical bound for calibrated LLRs, not measured"
    )
