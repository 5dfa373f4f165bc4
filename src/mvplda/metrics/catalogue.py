"""The metrics, each an object, in one list: tables, pages, JSON, intervals and comparisons walk that list.

A new metric is a subclass of `Metric`, and a line in `METRICS`.

The interval of an error rate or cost is that of :mod:`mvplda.metrics.jackknife`.

Interval of an operating point
------------------------------
A threshold is a quantile of scores, which a jackknife moves in steps. The false-alarm rate at a
threshold that stays where it is has a jackknife interval as above; the thresholds of its two ends
are the interval of the threshold (Woodruff, 1952). The miss rate at a wanted false-alarm rate
has two sources of error: the misses at that threshold, with an interval of their own, and where
the threshold lies, which the misses at its two ends tell. Their lengths add as squares.

A rate that no trial could tell from zero is not stated: by the rule of three a false-alarm rate f
needs 3 / f trials.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, ClassVar

from scipy.special import entr

from .._typing import Array
from ..exceptions import ParameterError
from ..kinds import Costs, DetectionCost, detection_costs
from .curves import Curve
from .jackknife import Interval, jackknife_interval, rate_interval, unmet

COARSEST = 0.1
"""A minDCF that one trial moves by more than this has no interval."""

FARS = (0.01, 0.001, 0.0001)
"""The false-alarm rates at which misses and thresholds are shown unless others are asked for."""

ERRORS = "Errors and costs"
POINTS = "Operating points"
THRESHOLDS = "Thresholds"
"""Titles of the tables that metrics stand in."""

Probe = Callable[[Curve], tuple[Any, ...]]


class Metric:
    """One number about targets and non-targets, and how it is shown.

    name : in Python and JSON; ``family/point`` of a metric that there is for several operating points
    heading : of its column
    table : title of the table that it stands in; None leaves it to JSON
    percent : a share, shown in percent
    headline : also shown of every system where several stand in one table
    needs_llr : means nothing unless scores are likelihood ratios
    is_error : the less the better, so that systems can be compared by it
    most : what it cannot exceed
    of_hull : read off the convex hull of the ROC
    unknown : what is shown if it is not known
    """

    name: str
    heading: str
    table: str | None = ERRORS
    percent: bool = False
    headline: bool = False
    needs_llr: bool = False
    is_error: bool = True
    most: float = math.inf
    of_hull: bool = False
    unknown: str = "-"

    def notes(self) -> tuple[str, ...]:
        """What it is, in sentences to stand below a table."""
        return ()

    def value(self, curve: Curve) -> float:
        """The metric of a curve."""
        raise NotImplementedError

    def enough(self, curve: Curve) -> bool:
        """Whether there are trials enough to state it."""
        return True

    def unseen(self, missing: float) -> float:
        """What a share ``missing`` of speakers may add if all their trials fail."""
        return math.inf

    def probe(self, whole: Curve) -> Probe | None:
        """What the interval needs to know of the trials without every speaker; None if there is no interval."""
        return lambda curve: (self.value(curve),)

    def interval(self, whole: Curve, without: Array, level: float, speakers: float) -> Interval:
        """The interval of its value of the whole curve.

        without : (groups, numbers of the probe), finite
        level : how often the interval is to hold
        speakers : how many of them count, see above
        """
        return jackknife_interval(
            float(self.value(whole)),
            without[:, 0],
            level,
            speakers=speakers,
            most=self.most,
            unseen=self.unseen(unmet(level, speakers)),
            of_hull=self.of_hull,
        )

    def show(self, value: float) -> str:
        """The number in a table."""
        if math.isnan(value):
            return self.unknown
        if self.percent:
            return f"{100 * value:.2f}"
        return f"{value:.3f}" if value < 1000 or math.isinf(value) else ">=1000"


class EER(Metric):
    """Equal error rate, of the convex hull of the ROC."""

    name = "eer"
    heading = "EER %"
    percent = True
    headline = True
    most = 0.5
    of_hull = True

    def notes(self) -> tuple[str, ...]:
        return ("EER: where the convex hull of the ROC meets miss = false alarm.",)

    def value(self, curve: Curve) -> float:
        return curve.eer()

    def unseen(self, missing: float) -> float:
        return missing


class _DetectionCostMetric(Metric):
    family: ClassVar[str]
    word: ClassVar[str]

    def __init__(self, cost: DetectionCost) -> None:
        self.cost = cost
        self.name = f"{self.family}/{cost.name}"
        self.heading = f"{self.word} {cost.name}"

    def notes(self) -> tuple[str, ...]:
        return (
            "minDCF, actDCF: divided by the best decision without a score; "
            "actDCF at Bayes' threshold for natural-log likelihood ratios.",
            f"DCF {self.cost}, threshold {self.cost.threshold:.4f}.",
        )

    def probe(self, whole: Curve) -> Probe | None:
        return None

    def _least(self, curve: Curve) -> tuple[Any, Any]:
        return curve.hull.least(self.cost.miss_weight, self.cost.false_alarm_weight)


class MinDCF(_DetectionCostMetric):
    """Least normalised detection cost over all thresholds."""

    family = "min_dcf"
    word = "minDCF"
    headline = True
    most = 1.0
    of_hull = True

    def value(self, curve: Curve) -> float:
        return float(self._least(curve)[0])

    def unseen(self, missing: float) -> float:
        return missing * max(self.cost.miss_weight, self.cost.false_alarm_weight)

    def probe(self, whole: Curve) -> Probe | None:
        miss = self.cost.miss_weight * whole.targets.largest_share()
        false_alarm = self.cost.false_alarm_weight * whole.others.largest_share()
        return None if max(miss, false_alarm) > COARSEST else Metric.probe(self, whole)


class ActDCF(_DetectionCostMetric):
    """Normalised detection cost at Bayes' threshold."""

    family = "act_dcf"
    word = "actDCF"
    needs_llr = True

    def value(self, curve: Curve) -> float:
        return float(self.cost.at(*curve.rates(self.cost.threshold)))


class MinDCFThreshold(_DetectionCostMetric):
    """The lowest score that is accepted at minDCF."""

    family = "min_dcf_threshold"
    word = "threshold of minDCF"
    table = None
    is_error = False

    def value(self, curve: Curve) -> float:
        return curve.threshold_for(float(curve.hull.false_alarm[self._least(curve)[1]]))


class MinCllr(Metric):
    """Cllr after the best rising recalibration."""

    name = "min_cllr"
    heading = "minCllr"
    headline = True
    most = 1.0
    of_hull = True

    def notes(self) -> tuple[str, ...]:
        return ("Cllr, minCllr: bits.",)

    def value(self, curve: Curve) -> float:
        return curve.min_cllr()

    def unseen(self, missing: float) -> float:
        share = min(missing, 0.5)
        return float((entr(share) + entr(1 - share)) / math.log(2))


class Cllr(Metric):
    """Cost of log-likelihood ratios."""

    name = "cllr"
    heading = "Cllr"
    headline = True
    needs_llr = True
    notes = MinCllr.notes

    def value(self, curve: Curve) -> float:
        return curve.cllr()

    def probe(self, whole: Curve) -> Probe | None:
        return lambda curve: (curve.cllr(), curve.min_cllr())

    def interval(self, whole: Curve, without: Array, level: float, speakers: float) -> Interval:
        """It reaches at least as far up as minCllr and what poor calibration loses."""
        own = super().interval(whole, without, level, speakers)
        least = MinCllr().interval(whole, without[:, 1:], level, speakers)
        loss = max(0.0, own.estimate - least.estimate)
        return replace(own, high=max(own.high, least.high + loss))


class _AtRate(Metric):
    """What follows from a wanted false-alarm rate: a threshold, and the misses there."""

    unknown = "too few"
    family: ClassVar[str]
    word: ClassVar[str]

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self.name = f"{self.family}/{rate:g}"
        self.heading = f"{self.word} at FAR {100 * rate:g} %"

    def notes(self) -> tuple[str, ...]:
        return (
            "FAR: false alarms as a share of the non-targets; FRR: misses as a share of the targets.",
            "At a FAR: at the lowest threshold that gives no more false alarms; scores at or above it are accepted. "
            "Too few: by the rule of three a FAR of f needs 3 / f non-targets.",
        )

    def enough(self, curve: Curve) -> bool:
        return 3 * curve.others.largest_share() <= self.rate * (1 + 1e-9)

    def probe(self, whole: Curve) -> Probe | None:
        threshold = whole.threshold_for(self.rate)
        return lambda curve: curve.rates(threshold)


def threshold_ends(whole: Curve, far: Interval) -> tuple[float, float]:
    """Thresholds of the most and of the least that the false-alarm rate may be.

    There is no upper end where the least is below what a single trial is of the rate.
    """
    low = whole.threshold_for(far.high)
    if far.low < whole.others.largest_share():
        return low, math.inf
    return low, whole.threshold_for(far.low)


class ThresholdAt(_AtRate):
    """The threshold for a wanted false-alarm rate."""

    family = "threshold_at_far"
    word = "threshold"
    table = THRESHOLDS
    is_error = False

    def value(self, curve: Curve) -> float:
        return curve.threshold_for(self.rate)

    def interval(self, whole: Curve, without: Array, level: float, speakers: float) -> Interval:
        threshold = self.value(whole)
        far = rate_interval(whole.rates(threshold)[1], without[:, 1], level, speakers)
        return Interval(threshold, *threshold_ends(whole, far))


class MissesAt(_AtRate):
    """The misses at a wanted false-alarm rate."""

    family = "frr_at_far"
    word = "FRR %"
    table = POINTS
    percent = True

    def value(self, curve: Curve) -> float:
        return float(curve.rates(curve.threshold_for(self.rate))[0])

    def interval(self, whole: Curve, without: Array, level: float, speakers: float) -> Interval:
        rates = whole.rates(whole.threshold_for(self.rate))
        own, far = (rate_interval(rates[i], without[:, i], level, speakers) for i in (0, 1))
        estimate = own.estimate
        low_end, high_end = threshold_ends(whole, far)
        least = float(whole.rates(low_end)[0])
        most = 1.0 if math.isinf(high_end) else float(whole.rates(high_end)[0])
        low = estimate - math.hypot(estimate - own.low, estimate - least)
        high = estimate + math.hypot(own.high - estimate, most - estimate)
        return Interval(estimate, max(low, 0.0), min(high, 1.0))


DetectionCosts = tuple[DetectionCost, ...]
METRICS: list[Callable[[DetectionCosts, tuple[float, ...]], Iterable[Metric]]] = [
    lambda costs, far: [EER()],
    lambda costs, far: [metric(cost) for cost in costs for metric in (MinDCF, ActDCF)],
    lambda costs, far: [Cllr(), MinCllr()],
    lambda costs, far: [metric(rate) for metric in (MissesAt, ThresholdAt) for rate in far],
    lambda costs, far: map(MinDCFThreshold, costs),
]
"""Every metric that there is, in the order of tables: for detection costs and false-alarm rates, those of one sort."""


def metrics_of(costs: Costs = ("default",), far: Iterable[float] = FARS) -> list[Metric]:
    """The metrics for some operating points."""
    rates = tuple(dict.fromkeys(map(float, far)))
    for rate in rates:
        check_rate(rate)
    points = detection_costs(costs)
    return [metric for family in METRICS for metric in family(points, rates)]


def check_rate(rate: float) -> None:
    if not 0 < rate < 1:
        raise ParameterError(f"a false-alarm rate is a share in (0, 1), such as 0.001; got {rate}")
