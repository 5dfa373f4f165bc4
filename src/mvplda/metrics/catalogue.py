"""The metrics, each an object, in one list: tables, pages, JSON, intervals and comparisons walk that list.

A new metric is a subclass of `Metric`, and a line in `METRICS`.

Interval of an error rate or cost
---------------------------------
Percentiles of a bootstrap promise too much here. There are few speakers, so quantiles of
the normal are too small. Error rates lie near zero, so what is not known lies above
rather than below. And a convex hull flatters the scores that it was drawn around, so
that EER, minDCF and minCllr of few speakers are too low on average, at 20 speakers by a
tenth, and resamples cannot know.

The intervals are therefore those of a jackknife: with e the estimate and e_i that without
speaker i, n speakers in all,

    y = log(e + c),  y_i = log(e_i + c),  c = 2 e / n
    variance = (n - 1)/n sum_i (y_i - mean y_i)^2
    bias     = (n - 1) (mean y_i - y)

the interval goes from the lower of y and y - bias, less t standard errors, to the higher of
the two and t standard errors more, and back from the logarithm. The offset c keeps finite
what becomes zero without one speaker. t is Student's, of as many degrees of freedom as the
variance has: n - 1, or fewer, 3 (sum d_i^2)^2 / sum d_i^4 - 1 (at least 4), where a few
speakers make most of it.

Where impostors are not enrolled, speakers do not all count alike: five who are enrolled and a
hundred who only pretend are five for the misses, and five of the two sides of every false alarm. In
the offset c, in n - 1 degrees of freedom and in the rule of three below, n is therefore the least of
three numbers: of speakers who have targets, who are enrolled in non-targets, and who are tested in them.

Where nothing went wrong there is nothing to vary. The rule of three tells what may be:
speakers who were not met can be 3 in n, at 95 %, and at worst all their trials fail. No
interval of EER, minDCF or minCllr reaches further above its estimate than that. What a single
error costs in Cllr has no bound; but Cllr is minCllr and what poor calibration loses, and its
interval reaches at least as far up as that of minCllr and the loss.

Not every metric can have an interval. What actDCF costs is decided by false alarms so
rare that few speakers have any, and those who have none say nothing about those who do. The
same holds of a minDCF whose false alarms weigh so much that a single trial moves it by more
than COARSEST.

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

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import entr, stdtrit

from .._typing import Array
from ..costs import Costs, DetectionCost, detection_cost, detection_costs
from ..exceptions import ParameterError
from .curves import Curve, ScoreCurve

COARSEST = 0.1
"""A minDCF that one trial moves by more than this has no interval."""

FARS = (0.01, 0.001, 0.0001)
"""The false-alarm rates at which misses and thresholds are shown unless others are asked for."""

ERRORS, POINTS, THRESHOLDS = "Errors and costs", "Operating points", "Thresholds"
"""Titles of the tables that metrics stand in."""


@dataclass(frozen=True)
class Interval:
    """A metric, its confidence interval, and its standard error where the jackknife gives one."""

    estimate: float
    low: float
    high: float
    standard_error: float = math.nan


def unmet(level: float, speakers: int) -> float:
    """The share of all speakers of whom not one may be among so many, at this level: the rule of three."""
    return float(1 - (1 - level) ** (1 / speakers))


def jackknife_interval(
    estimate: float,
    without: Array,
    level: float = 0.95,
    *,
    speakers: int | None = None,
    most: float = math.inf,
    unseen: float = math.inf,
) -> Interval:
    """The interval of an error rate or cost, from its values without each speaker or group.

    speakers : how many count, if fewer than were left out
    most : what the metric cannot exceed
    unseen : what speakers who were not met may add to it
    """
    n = len(without)
    counted = n if speakers is None else min(n, speakers)
    away = (n - 1) * (without - without.mean())
    standard_error = float(np.sqrt((away**2).sum() / (n * (n - 1))))
    if estimate <= 0:
        return Interval(estimate, 0.0, min(unseen, most), standard_error)
    offset = 2 * estimate / counted
    y, y_without = np.log(estimate + offset), np.log(without + offset)
    d = y_without - y_without.mean()
    squares = float((d**2).sum())
    spread = math.sqrt((n - 1) / n * squares)
    correction = (n - 1) * (y - y_without.mean())
    fourth = float((d**4).sum())
    freedom = (
        min(counted - 1.0, max(4.0, 3 * squares**2 / fourth - 1)) if fourth > 0 else counted - 1.0
    )
    reach = float(stdtrit(freedom, (1 + level) / 2)) * spread
    low = math.exp(y + min(correction, 0.0) - reach) - offset
    high = math.exp(min(y + max(correction, 0.0) + reach, 700.0)) - offset
    return Interval(
        estimate, max(low, 0.0), max(estimate, min(high, estimate + unseen, most)), standard_error
    )


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
        self, whole: Curve, without: Array, level: float, speakers: int
    ) -> Interval | None:
        """The interval of its value of the whole curve.

        without : (groups, numbers of the probe), finite
        level : how often the interval is to hold
        speakers : how many of them count, see above
        """
        estimate = float(self.value(whole))
        unseen = self.unseen(unmet(level, speakers))
        return jackknife_interval(
            estimate, without[:, 0], level, speakers=speakers, most=self.most, unseen=unseen
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

    name, heading, percent, headline, most = "eer", "EER %", True, True, 0.5

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

    family, word, headline, most = "min_dcf", "minDCF", True, 1.0

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

    family, word, needs_llr = "act_dcf", "actDCF", True

    def value(self, curve: Curve) -> float:
        return float(self.cost.at(*curve.rates(self.cost.threshold)))

    def probe(self, whole: Curve) -> None:
        return None


class MinDCFThreshold(_DetectionCostMetric):
    """The lowest score that is accepted at minDCF."""

    family, word, table, is_error = "min_dcf_threshold", "threshold of minDCF", None, False

    def notes(self) -> tuple[str, ...]:
        return ()

    def value(self, curve: Curve) -> float:
        _, corner = curve.hull.least(self.cost.miss_weight, self.cost.false_alarm_weight)
        return curve.threshold_for(false_alarm=float(curve.hull.false_alarm[corner]))

    def probe(self, whole: Curve) -> None:
        return None


class MinCllr(Metric):
    """Cllr after the best rising recalibration."""

    name, heading, headline, most = "min_cllr", "minCllr", True, 1.0

    def notes(self) -> tuple[str, ...]:
        return ("Cllr, minCllr: bits.",)

    def value(self, curve: Curve) -> float:
        return curve.min_cllr()

    def unseen(self, missing: float) -> float:
        share = min(missing, 0.5)
        return float((entr(share) + entr(1 - share)) / math.log(2))


class Cllr(Metric):
    """Cost of log-likelihood ratios."""

    name, heading, headline, needs_llr = "cllr", "Cllr", True, True
    notes = MinCllr.notes

    def value(self, curve: Curve) -> float:
        return curve.cllr()

    def probe(self, whole: Curve) -> Callable[[Curve], tuple[Any, ...]] | None:
        return lambda curve: (curve.cllr(), curve.min_cllr())

    def interval(
        self, whole: Curve, without: Array, level: float, speakers: int
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
        self, whole: Curve, without: Array, level: float, speakers: int
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

    family, words, table, is_error = "threshold_at_{}", "threshold at {2}", THRESHOLDS, False

    def value(self, curve: Curve) -> float:
        return self.threshold(curve)

    def interval(
        self, whole: Curve, without: Array, level: float, speakers: int
    ) -> Interval | None:
        wanted, _ = self._rates(whole, without, level, speakers)
        low, high = sorted(self._ends(whole, wanted))
        return Interval(self.value(whole), low, high)


class RateThere(_AtRate):
    """The wanted rate as it is at its threshold: what speakers who were not met may see of it."""

    family, words, table, percent, is_error = "{}_there", "{} % there", None, True, False

    def value(self, curve: Curve) -> float:
        return float(curve.rates(self.threshold(curve))[self.wanted])

    def interval(
        self, whole: Curve, without: Array, level: float, speakers: int
    ) -> Interval | None:
        return self._rates(whole, without, level, speakers)[0]


class OtherRateAt(_AtRate):
    """The rate of the other error at a wanted rate of one: misses at a false-alarm rate, or the other way round."""

    family, words, table, percent = "{1}_at_{0}", "{1} % at {2}", POINTS, True

    def value(self, curve: Curve) -> float:
        return float(curve.rates(self.threshold(curve))[1 - self.wanted])

    def interval(
        self, whole: Curve, without: Array, level: float, speakers: int
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
