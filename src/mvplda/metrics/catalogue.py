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
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from numpy.typing import ArrayLike
from scipy.special import entr

from .._typing import Array
from ..costs import Costs, DetectionCost, detection_cost, detection_costs
from ..exceptions import ParameterError
from .curves import Curve, ScoreCurve
from .jackknife import Interval, jackknife_interval, unmet

COARSEST = 0.1
"""A minDCF that one trial moves by more than this has no interval."""

FARS = (0.01, 0.001, 0.0001)
"""The false-alarm rates at which misses and thresholds are shown unless others are asked for."""

ERRORS, POINTS, THRESHOLDS = "Errors and costs", "Operating points", "Thresholds"
"""Titles of the tables that metrics stand in."""


class Metric:
    """One number about targets and non-targets, and how it is shown.

    name : in Python, JSON and CSV; ``family/point`` of a metric that there is for several operating points
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

    def probe(self, whole: Curve) -> Callable[[Curve], tuple[Any, ...]] | None:
        """What the interval needs to know of the trials without every speaker; None if there is no interval."""
        return lambda curve: (self.value(curve),)

    def interval(
        self, whole: Curve, without: Array, level: float, speakers: float
    ) -> Interval | None:
        """The interval of its value of the whole curve.

        without : (groups, numbers of the probe), finite
        level : how often the interval is to hold
        speakers : how many of them count, see above
        """
        estimate = float(self.value(whole))
        unseen = self.unseen(unmet(level, speakers))
        return jackknife_interval(
            estimate,
            without[:, 0],
            level,
            speakers=speakers,
            most=self.most,
            unseen=unseen,
            of_hull=self.of_hull,
        )

    def show(self, value: float) -> str:
        """The number in a table."""
        if math.isnan(value):
            return self.unknown
        if self.percent:
            return f"{100 * value:.2f}"
        return f"{value:.3f}" if value < 1000 or math.isinf(value) else ">=1000"

    def show_ends(self, interval: Interval | None, form: str = " [{}, {}]") -> str:
        """The interval in a table, nothing if there is none."""
        return (
            ""
            if interval is None
            else form.format(self.show(interval.low), self.show(interval.high))
        )


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
        self.name, self.heading = f"{self.family}/{cost.name}", f"{self.word} {cost.name}"

    def notes(self) -> tuple[str, ...]:
        return (
            "minDCF, actDCF: divided by the best decision without a score; "
            "actDCF at Bayes' threshold for natural-log likelihood ratios.",
            f"DCF {self.cost}, threshold {self.cost.threshold:.4f}.",
        )


class MinDCF(_DetectionCostMetric):
    """Least normalised detection cost over all thresholds."""

    family = "min_dcf"
    word = "minDCF"
    headline = True
    most = 1.0
    of_hull = True

    def value(self, curve: Curve) -> float:
        return float(curve.hull.least(self.cost.miss_weight, self.cost.false_alarm_weight)[0])

    def unseen(self, missing: float) -> float:
        return missing * max(self.cost.miss_weight, self.cost.false_alarm_weight)

    def probe(self, whole: Curve) -> Callable[[Curve], tuple[Any, ...]] | None:
        of_target, of_other = whole.largest_shares()
        coarse = (
            max(self.cost.miss_weight * of_target, self.cost.false_alarm_weight * of_other)
            > COARSEST
        )
        return None if coarse else super().probe(whole)


class ActDCF(_DetectionCostMetric):
    """Normalised detection cost at Bayes' threshold."""

    family = "act_dcf"
    word = "actDCF"
    needs_llr = True

    def value(self, curve: Curve) -> float:
        return float(self.cost.at(*curve.rates(self.cost.threshold)))

    def probe(self, whole: Curve) -> None:
        return None


class MinDCFThreshold(_DetectionCostMetric):
    """The lowest score that is accepted at minDCF."""

    family = "min_dcf_threshold"
    word = "threshold of minDCF"
    table = None
    is_error = False

    def notes(self) -> tuple[str, ...]:
        return ()

    def value(self, curve: Curve) -> float:
        _, corner = curve.hull.least(self.cost.miss_weight, self.cost.false_alarm_weight)
        return curve.threshold_for(false_alarm=float(curve.hull.false_alarm[corner]))

    def probe(self, whole: Curve) -> None:
        return None


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

    def probe(self, whole: Curve) -> Callable[[Curve], tuple[Any, ...]] | None:
        return lambda curve: (curve.cllr(), curve.min_cllr())

    def interval(
        self, whole: Curve, without: Array, level: float, speakers: float
    ) -> Interval | None:
        """It reaches at least as far up as minCllr and what poor calibration loses."""
        own = jackknife_interval(self.value(whole), without[:, 0], level, speakers=speakers)
        least = MinCllr().interval(whole, without[:, 1:], level, speakers)
        assert least is not None
        return replace(
            own, high=max(own.high, least.high + max(0.0, own.estimate - least.estimate))
        )


class _AtRate(Metric):
    """What follows from a wanted rate of one error: a threshold, and both rates there.

    wanted : 0, a miss rate; 1, a false-alarm rate
    """

    unknown = "too few"
    family: ClassVar[str]
    words: ClassVar[str]

    def __init__(self, rate: float, wanted: int = 1) -> None:
        self.rate, self.wanted = rate, wanted
        self.word, other = ("FAR", "FRR") if wanted else ("FRR", "FAR")
        self.name = f"{self.family.format(self.word, other).lower()}/{rate:g}"
        self.heading = self.words.format(self.word, other, f"{self.word} {100 * rate:g} %")

    def notes(self) -> tuple[str, ...]:
        error, trials, way = (
            ("misses", "targets", "highest"),
            ("false alarms", "non-targets", "lowest"),
        )[self.wanted]
        return (
            "FAR: false alarms as a share of the non-targets; FRR: misses as a share of the targets.",
            f"At a {self.word}: at the {way} threshold that gives no more {error}; scores at or above it are accepted. "
            f"Too few: by the rule of three a {self.word} of f needs 3 / f {trials}.",
        )

    def enough(self, curve: Curve) -> bool:
        return 3 * curve.largest_shares()[self.wanted] <= self.rate * (1 + 1e-9)

    def threshold(self, curve: Curve, rate: float | None = None) -> float:
        rate = self.rate if rate is None else rate
        return (
            curve.threshold_for(false_alarm=rate) if self.wanted else curve.threshold_for(miss=rate)
        )

    def probe(self, whole: Curve) -> Callable[[Curve], tuple[Any, ...]] | None:
        threshold = self.threshold(whole)
        return lambda curve: curve.rates(threshold)

    def _rates(
        self, whole: Curve, without: Array, level: float, speakers: float
    ) -> tuple[Interval, Interval]:
        """Intervals of both rates at the threshold, which stays where it is: the wanted one and the other."""
        rates = whole.rates(self.threshold(whole))
        found = [
            jackknife_interval(
                float(rate),
                without[:, i],
                level,
                speakers=speakers,
                most=1.0,
                unseen=unmet(level, speakers),
            )
            for i, rate in enumerate(rates)
        ]
        return found[self.wanted], found[1 - self.wanted]

    def _ends(self, whole: Curve, wanted: Interval) -> tuple[float, float]:
        """Thresholds of the least and of the most that the wanted rate may be; infinite if no trial tells."""
        beyond = (-math.inf, math.inf)[self.wanted]
        told = wanted.low >= whole.largest_shares()[self.wanted]
        return self.threshold(whole, wanted.low) if told else beyond, self.threshold(
            whole, wanted.high
        )


class ThresholdAt(_AtRate):
    """The threshold for a wanted rate of one error."""

    family = "threshold_at_{}"
    words = "threshold at {2}"
    table = THRESHOLDS
    is_error = False

    def value(self, curve: Curve) -> float:
        return self.threshold(curve)

    def interval(
        self, whole: Curve, without: Array, level: float, speakers: float
    ) -> Interval | None:
        wanted, _ = self._rates(whole, without, level, speakers)
        low, high = sorted(self._ends(whole, wanted))
        return Interval(self.value(whole), low, high)


class RateThere(_AtRate):
    """The wanted rate as it is at its threshold: what speakers who were not met may see of it."""

    family = "{}_there"
    words = "{} % there"
    table = None
    percent = True
    is_error = False

    def value(self, curve: Curve) -> float:
        return float(curve.rates(self.threshold(curve))[self.wanted])

    def interval(
        self, whole: Curve, without: Array, level: float, speakers: float
    ) -> Interval | None:
        return self._rates(whole, without, level, speakers)[0]


class OtherRateAt(_AtRate):
    """The rate of the other error at a wanted rate of one: misses at a false-alarm rate, or the other way round."""

    family = "{1}_at_{0}"
    words = "{1} % at {2}"
    table = POINTS
    percent = True

    def value(self, curve: Curve) -> float:
        return float(curve.rates(self.threshold(curve))[1 - self.wanted])

    def interval(
        self, whole: Curve, without: Array, level: float, speakers: float
    ) -> Interval | None:
        wanted, other = self._rates(whole, without, level, speakers)
        estimate = other.estimate
        most, least = (
            1.0 if math.isinf(end) else float(whole.rates(end)[1 - self.wanted])
            for end in self._ends(whole, wanted)
        )
        low = estimate - math.hypot(estimate - other.low, estimate - least)
        high = estimate + math.hypot(other.high - estimate, most - estimate)
        return Interval(estimate, max(low, 0.0), min(high, 1.0))


@dataclass(frozen=True)
class Points:
    """Operating points that were asked for: detection costs, false-alarm rates and miss rates."""

    costs: tuple[DetectionCost, ...]
    far: tuple[float, ...]
    frr: tuple[float, ...]


METRICS: list[Callable[[Points], Iterable[Metric]]] = [
    lambda points: [EER()],
    lambda points: [metric(cost) for cost in points.costs for metric in (MinDCF, ActDCF)],
    lambda points: [Cllr(), MinCllr()],
    lambda points: [OtherRateAt(rate) for rate in points.far],
    lambda points: [OtherRateAt(rate, 0) for rate in points.frr],
    lambda points: [metric(rate) for metric in (ThresholdAt, RateThere) for rate in points.far],
    lambda points: [metric(rate, 0) for metric in (ThresholdAt, RateThere) for rate in points.frr],
    lambda points: [MinDCFThreshold(cost) for cost in points.costs],
]
"""Every metric that there is, in the order of tables: for the operating points, the metrics of one sort."""


def metrics_of(
    costs: Costs = ("default",), far: Iterable[float] = FARS, frr: Iterable[float] = ()
) -> list[Metric]:
    """The metrics for some operating points."""
    points = Points(
        detection_costs(costs), *(tuple(dict.fromkeys(map(float, rates))) for rates in (far, frr))
    )
    for rate in (*points.far, *points.frr):
        if not 0 < rate < 1:
            raise ParameterError(
                f"a false-alarm or miss rate is a share in (0, 1), such as 0.001; got {rate}"
            )
    return [metric for family in METRICS for metric in family(points)]


def min_dcf(
    targets: ArrayLike, nontargets: ArrayLike, cost: str | DetectionCost = "default"
) -> float:
    """Least normalised detection cost over all thresholds.

    Examples
    --------
    >>> from mvplda.metrics import min_dcf
    >>> min_dcf([2.0, 3.0, 1.0, 4.0], [0.0, -1.0, 1.5, -2.0])  # reject below 2: one miss in four
    0.25
    """
    return MinDCF(detection_cost(cost)).value(ScoreCurve(targets, nontargets))


def act_dcf(
    targets: ArrayLike, nontargets: ArrayLike, cost: str | DetectionCost = "default"
) -> float:
    """Normalised detection cost of log-likelihood ratios at Bayes' threshold."""
    return ActDCF(detection_cost(cost)).value(ScoreCurve(targets, nontargets))
