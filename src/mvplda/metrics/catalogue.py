"""The metrics, each an object, in one list: tables, pages, JSON, intervals and comparisons walk that list.

A new metric is a subclass of `Metric`, and a line in `METRICS`.

Interval of an operating point
------------------------------
A threshold is a quantile of scores, which a jackknife moves in steps. The false-alarm rate at a
threshold that stays where it is has a jackknife interval as above; the thresholds of its two ends
are the interval of the threshold (Woodruff, 1952). The miss rate at a wanted false-alarm rate
has two sources of error: the misses at that threshold, with an interval of their own, and where
the threshold lies, which the misses at its two ends tell. Their lengths add as squares.

A rate that no trial could tell from zero is not stated: by the rule of three a false-alarm rate f
needs 3 / f trials.

Interval of an error rate or cost, by a jackknife over speakers
---------------------------------------------------------------
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
y and y - f bias, and t + g standard errors more, and back from the logarithm. f is 1 but for what is
read off a convex hull: there the bias falls as n^(-2/3), of which leaving one out shows 2/3, so f = 3/2.
The offset c keeps finite what becomes zero without one speaker. t is Student's, of as many degrees of freedom as the
variance has: n - 1, or fewer, 3 (sum d_i^2)^2 / sum d_i^4 - 1 (at least 4), where a few
speakers make most of it, d_i = mean y_i - y_i.

Where a few speakers err far more than the others (goats as targets, wolves as impostors), a group that
happens to have fewer of them errs less *and* varies less: the truth lies above more often than below.
The upper end therefore reaches further by g = (2 t^2 + 1)/6 sum d_i^3 / (sum d_i^2)^(3/2), the first
term of Cornish and Fisher's expansion for the t statistic of a skewed sample, where that is positive.

Both allow for much where one speaker makes most of the errors: of 29 speakers of whom one has half of them, the
upper end is what the rule of three below allows. A formula that gives less (docs/tried.md) held the truth too rarely.

Speakers do not all count alike. Five who are enrolled and a hundred who only pretend are five for the
misses, and five of the two sides of every false alarm; fifty of whom five make most of the trials are
little more than five. In the offset c, in n - 1 degrees of freedom and in the rule of three below, n is
therefore the least of three effective numbers, (sum of trials)^2 / (sum of squares of a speaker's
trials): of speakers who have targets, who are enrolled in non-targets, and who are tested in them.

Where nothing went wrong there is nothing to vary. The rule of three tells what may be:
speakers who were not met can be 3 in n, at 95 %, and at worst all their trials fail. No
interval of EER, minDCF or minCllr reaches further above its estimate than that. What a single
error costs in Cllr has no bound; but Cllr is minCllr and what poor calibration loses, and its
interval reaches at least as far up as that of minCllr and the loss.

How often 95 % intervals held the truth
---------------------------------------
In 200 simulated evaluations of each of the worlds of ``benchmarks.interval_coverage`` (50 of those with
50 speakers or 12 phrases); the least where there are several worlds or numbers of speakers:

==============================================  ========  ================  ========  ========
world (speakers)                                EER       minDCF, prior .1  Cllr      minCllr
==============================================  ========  ================  ========  ========
weak, strong, many, few errors: the least       97.5 %    97.0 %            97.5 %    98.0 %
one in ten speakers is a goat (12, 20)          95.0 %    98.5 %            94.0 %    96.0 %
one in ten speakers is a wolf (12, 20)          94.5 %    90.0 %            92.5 %    96.0 %
very unequal numbers of tests (50)              100 %     98 %              98 %      100 %
Total, voices alone, 12 phrases (20)            94 %      92 %              100 %     96 %
Total, voices alone, 3 phrases (20)             89.5 %    94.5 %            97.0 %    84.5 %
Total, voices and phrases, 12 phrases (20)      98 %      98 %              100 %     98 %
Total, voices and phrases, 3 phrases (20)       95.0 %    97.5 %            97.0 %    89.5 %
40 enrolled, 10 other impostors, 15 % wolves    86.0 %    78.0 %            81.5 %    87.5 %
==============================================  ========  ================  ========  ========

The last world cannot be mended: one group of ten impostors in five has no wolf, and nothing in its scores
tells that there are any. Truth then lies above the interval. Measure with more impostors, not with more
trials. minCllr of a model that does not tell phrases, with few phrases, is too low for the same reason as ever:
its hull is drawn around few targets and few right speakers with a wrong phrase.

Not every metric can have an interval. What actDCF costs is decided by false alarms so
rare that few speakers have any, and those who have none say nothing about those who do. The
same holds of a minDCF whose false alarms weigh so much that a single trial moves it by more
than COARSEST.
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
from ..costs import Costs, DetectionCost, detection_costs
from ..exceptions import ParameterError
from .curves import Curve

COARSEST = 0.1
"""A minDCF that one trial moves by more than this has no interval."""

LEVEL = 0.95
"""How often intervals are to hold the value of all speakers that there might have been."""

FARS = (0.01, 0.001, 0.0001)
"""The false-alarm rates at which misses and thresholds are shown unless others are asked for."""

ERRORS = "Errors and costs"
POINTS = "Operating points"
THRESHOLDS = "Thresholds"
"""Titles of the tables that metrics stand in."""

Probe = Callable[[Curve], tuple[Any, ...]]


HULL_BIAS = 1.5
"""A bias of order n^(-2/3) is so many times what a jackknife finds of it."""


@dataclass(frozen=True)
class Interval:
    """A metric, its confidence interval, and its standard error where the jackknife gives one."""

    estimate: float
    low: float
    high: float
    standard_error: float = math.nan


def unseen_share(speakers: float) -> float:
    """The share of all speakers of whom not one may be among so many: the rule of three."""
    return float(1 - (1 - LEVEL) ** (1 / speakers))


def effective_number(sizes: ArrayLike) -> float:
    """How many speakers with equally many trials vary as much as those with so many trials each."""
    trials = np.asarray(sizes, dtype=np.float64)
    return float(trials.sum() ** 2 / (trials**2).sum())


def jackknife_interval(
    estimate: float,
    without: Array,
    *,
    speakers: float | None = None,
    most: float = math.inf,
    unseen: float = math.inf,
    of_hull: bool = False,
) -> Interval:
    """The interval of an error rate or cost, from its values without each speaker or group.

    speakers : how many count, if fewer than were left out
    most : what the metric cannot exceed
    unseen : what speakers who were not met may add to it
    of_hull : whether it is read off a convex hull, which flatters the scores that it was drawn around
    """
    n = len(without)
    counted = float(n) if speakers is None else min(float(n), speakers)
    away = (n - 1) * (without - without.mean())
    standard_error = float(np.sqrt((away**2).sum() / (n * (n - 1))))
    if estimate <= 0:
        return Interval(estimate, 0.0, min(unseen, most), standard_error)
    offset = 2 * estimate / counted
    y = np.log(estimate + offset)
    y_without = np.log(without + offset)
    correction = (n - 1) * (y - y_without.mean())
    d = y_without.mean() - y_without  # above zero: without this speaker there are fewer errors
    squares = float((d**2).sum())
    freedom = counted - 1.0
    skewness = 0.0
    if squares > 0:
        freedom = min(freedom, max(4.0, 3 * squares**2 / float((d**4).sum()) - 1))
        skewness = max(0.0, float((d**3).sum()) / squares**1.5)
    t = float(stdtrit(freedom, (1 + LEVEL) / 2))
    above = t + skewness * (2 * t**2 + 1) / 6
    spread = math.sqrt((n - 1) / n * squares)
    low = math.exp(y + min(correction, 0.0) - t * spread) - offset
    upwards = HULL_BIAS * max(correction, 0.0) if of_hull else max(correction, 0.0)
    high = math.exp(min(y + upwards + above * spread, 700.0)) - offset
    high = max(estimate, min(high, estimate + unseen, most))
    low = min(max(low, 0.0), estimate)  # rounding must not lift it above what was measured
    return Interval(estimate, low, high, standard_error)


def rate_interval(estimate: float | Array, without: Array, speakers: float) -> Interval:
    """The interval of a share of trials: at worst all trials of speakers who were not met fail."""
    missing = unseen_share(speakers)
    return jackknife_interval(float(estimate), without, speakers=speakers, most=1.0, unseen=missing)


class Metric:
    """One number about targets and non-targets, and how it is shown.

    name : in Python and JSON; ``family/point`` of a metric that there is for several operating points
    heading : of its column
    table : title of the table that it stands in
    percent : a share, shown in percent
    headline : also shown of every system where several stand in one table
    needs_llr : means nothing unless scores are likelihood ratios
    is_error : the less the better, so that systems can be compared by it
    most : what it cannot exceed
    of_hull : read off the convex hull of the ROC
    unknown : what is shown if it is not known
    notes : what it is, in sentences to stand below a table
    """

    name: str
    heading: str
    table: str = ERRORS
    percent: bool = False
    headline: bool = False
    needs_llr: bool = False
    is_error: bool = True
    most: float = math.inf
    of_hull: bool = False
    unknown: str = "-"
    notes: tuple[str, ...] = ()

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

    def interval(self, whole: Curve, without: Array, speakers: float) -> Interval:
        """The interval of its value of the whole curve.

        without : (groups, numbers of the probe), finite
        speakers : how many of them count, see above
        """
        return jackknife_interval(
            float(self.value(whole)),
            without[:, 0],
            speakers=speakers,
            most=self.most,
            unseen=self.unseen(unseen_share(speakers)),
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
    notes = ("EER: where the convex hull of the ROC meets miss = false alarm.",)

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
        self.notes = (
            "minDCF, actDCF: divided by the best decision without a score; "
            "actDCF at Bayes' threshold for natural-log likelihood ratios.",
            f"DCF {self.cost}, threshold {self.cost.threshold:.4f}.",
        )

    def probe(self, whole: Curve) -> Probe | None:
        return None


class MinDCF(_DetectionCostMetric):
    """Least normalised detection cost over all thresholds."""

    family = "min_dcf"
    word = "minDCF"
    headline = True
    most = 1.0
    of_hull = True

    def value(self, curve: Curve) -> float:
        weights = (self.cost.miss_weight, self.cost.false_alarm_weight)
        return float(curve.hull.least(*weights)[0])

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


class MinCllr(Metric):
    """Cllr after the best rising recalibration."""

    name = "min_cllr"
    heading = "minCllr"
    headline = True
    most = 1.0
    of_hull = True

    notes = ("Cllr, minCllr: bits.",)

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

    def interval(self, whole: Curve, without: Array, speakers: float) -> Interval:
        """It reaches at least as far up as minCllr and what poor calibration loses."""
        own = super().interval(whole, without, speakers)
        least = MinCllr().interval(whole, without[:, 1:], speakers)
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

    notes = (
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

    def interval(self, whole: Curve, without: Array, speakers: float) -> Interval:
        threshold = self.value(whole)
        far = rate_interval(whole.rates(threshold)[1], without[:, 1], speakers)
        return Interval(threshold, *threshold_ends(whole, far))


class MissesAt(_AtRate):
    """The misses at a wanted false-alarm rate."""

    family = "frr_at_far"
    word = "FRR %"
    table = POINTS
    percent = True

    def value(self, curve: Curve) -> float:
        return float(curve.rates(curve.threshold_for(self.rate))[0])

    def interval(self, whole: Curve, without: Array, speakers: float) -> Interval:
        rates = whole.rates(whole.threshold_for(self.rate))
        own, far = (rate_interval(rates[i], without[:, i], speakers) for i in (0, 1))
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
