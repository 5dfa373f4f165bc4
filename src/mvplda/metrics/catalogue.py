"""All metrics, with their confidence intervals. Tables, pages, JSON and comparisons iterate over the list `METRICS`.

To add a metric, write a subclass of `Metric` and add it to `METRICS`.

Interval of an operating point
------------------------------
A threshold is a quantile of scores: without one speaker it does not change, or jumps to the next score, so that a
jackknife of the threshold itself is useless. The false-alarm rate at a fixed threshold has a jackknife interval as
below. The thresholds with the false-alarm rates at its two ends are the interval of the threshold (Woodruff, 1952). The
miss rate at a given false-alarm rate has two sources of error: the misses at a fixed threshold, with a jackknife
interval, and the position of the threshold, measured by the misses at both ends of its interval. Their lengths add as
squares.

A false-alarm rate f is measured only with at least 3 / f trials: with fewer, it cannot be distinguished from zero (rule
of three).

Interval of an error rate or cost, by a jackknife over speakers
---------------------------------------------------------------
Intervals from the percentiles of a bootstrap are too narrow, for three reasons. With few speakers, quantiles of the
normal distribution are too small. Error rates are near zero, so that the true rate lies above the estimate more often
than below. EER, minDCF and minCllr are measured on the convex hull of the same scores, and are too low on average (by a
tenth for 20 speakers); resampling does not show this bias.

The intervals are therefore computed by a jackknife. With e the estimate, e_i the estimate without speaker i, and n
speakers,

    y = log(e + c),  y_i = log(e_i + c),  c = 2 e / n
    variance = (n - 1)/n sum_i (y_i - mean y_i)^2
    bias     = (n - 1) (mean y_i - y)

The interval extends from t standard errors below the lower of y and y - bias to t + g standard errors above the higher
of y and y - f bias, transformed back from the logarithm. f is 1 except for metrics of a convex hull: their bias falls
as n^(-2/3), and the jackknife estimates 2/3 of such a bias, so that f = 3/2. The offset c keeps the logarithm finite if
the error rate is zero without one speaker. t is Student's, with the degrees of freedom of the variance: n - 1, or
fewer, 3 (sum d_i^2)^2 / sum d_i^4 - 1 (at least 4), if a few speakers contribute most of it; d_i = mean y_i - y_i.

If a few speakers err far more than the others (goats as targets, wolves as impostors), a group with fewer of them has
fewer errors *and* a smaller variance, and the true rate lies above the interval more often than below. The upper end is
therefore extended by g = (2 t^2 + 1)/6 sum d_i^3 / (sum d_i^2)^(3/2), the first term of the Cornish-Fisher expansion
for the t statistic of a skewed sample, if it is positive.

Both corrections are large if one speaker makes most of the errors: if one of 29 speakers makes half of them, the upper
end is the bound of the rule of three below. A formula with a lower upper end (docs/tried.md) covered the true rate too
rarely.

The number of speakers n in the offset c, in the n - 1 degrees of freedom and in the rule of three below is an effective
number, (sum of trials)^2 / (sum of squares of the trials per speaker): fifty speakers of whom five make most of the
trials count as little more than five. It is the smallest of three: speakers with targets, enrolled speakers in
non-targets, and tested speakers in non-targets. Five enrolled speakers with a hundred impostors therefore count as
five.

Without any error there is no variance. The rule of three bounds the error rate: at 95 % confidence the sample lacks at
most the share 3 / n of the population, and in the worst case all trials of these speakers fail. No interval of EER,
minDCF or minCllr reaches further above its estimate. The cost of a single error in Cllr has no bound; but Cllr is
minCllr plus the calibration loss, and its interval reaches at least as far up as the interval of minCllr plus that
loss.

Coverage of 95 % intervals
--------------------------
In 200 simulated evaluations of each population of ``benchmarks.interval_coverage`` (50 of those with
50 speakers or 12 phrases); the lowest coverage, if a row stands for several populations or numbers of speakers:

==============================================  ========  ================  ========  ========
population (speakers)                           EER       minDCF, prior .1  Cllr      minCllr
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

No method can repair the last row: one in five groups of ten impostors contains no wolf, and its scores give no sign
that wolves exist. The true rate then lies above the interval. Measure with more impostors, not with more trials.
minCllr of a model without phrase information is too low if there are few phrases, because its hull is fitted to few
targets and few trials of the right speaker with a wrong phrase.

Not every metric can have an interval. The false alarms that determine actDCF are so rare that most speakers have none,
and their trials carry no information about the others. The same holds for a minDCF whose false alarms weigh so much
that a single trial moves it by more than COARSEST.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import entr, stdtrit

from .._typing import Array
from ..costs import Costs, DetectionCost, detection_costs
from ..exceptions import ParameterError
from .curves import Curve

COARSEST = 0.1
"""Largest change of a minDCF by a single trial for which an interval is given."""

LEVEL = 0.95
"""Confidence level of intervals: how often they should cover the value for all speakers of the population."""

FARS = (0.01, 0.001, 0.0001)
"""Default false-alarm rates at which misses and thresholds are shown."""

ERRORS = "Errors and costs"
POINTS = "Operating points"
THRESHOLDS = "Thresholds"
"""Titles of the tables of metrics."""

Probe = Callable[[Curve], tuple[float | Array, ...]]
"""Function of a curve that returns one or more numbers; their values with each speaker left out give an interval."""


HULL_BIAS = 1.5
"""Factor from the jackknife estimate of a bias to the bias, if it falls as n^(-2/3) with n speakers."""


@dataclass(frozen=True)
class Interval:
    """Estimate of a metric with its confidence interval.

    estimate : value of the metric for all speakers
    low, high : ends of the interval
    standard_error : standard error of the jackknife; NaN if there is none
    """

    estimate: float
    low: float
    high: float
    standard_error: float = math.nan


def unseen_share(speakers: float) -> float:
    """Return the share of a population that a random sample can miss entirely (rule of three).

    A larger part of the population would be in the sample with a probability of at least `LEVEL`.
    The result is about 3 / `speakers`.

    speakers : number of speakers in the sample
    """
    return float(1 - (1 - LEVEL) ** (1 / speakers))


def effective_number(sizes: ArrayLike) -> float:
    """Return the effective number of speakers: (sum of sizes)^2 / (sum of squared sizes).

    It is the number of speakers if all have the same number of trials, and smaller otherwise.

    sizes : number of trials of each speaker
    """
    trials = np.asarray(sizes, dtype=np.float64)
    return float(trials.sum() ** 2 / (trials**2).sum())


def jackknife_interval(
    estimate: float,
    without: Array,
    *,
    speakers: float | None = None,
    upper_bound: float = math.inf,
    unseen_error: float = math.inf,
    of_hull: bool = False,
) -> Interval:
    """Compute the interval of an error rate or cost from its values with each speaker or group left out in turn.

    The formula is in the module's docstring.

    estimate : value of the metric for all speakers
    without : (n,) values of the metric, each without one speaker or group
    speakers : effective number of speakers; None, or a number above n: n
    upper_bound : largest possible value of the metric
    unseen_error : largest increase of the metric by speakers that the sample lacks
    of_hull : whether the metric is derived from the convex hull of the ROC, whose bias is larger
    """
    n = len(without)
    counted = float(n) if speakers is None else min(float(n), speakers)
    deviations = (n - 1) * (without - without.mean())
    standard_error = float(np.sqrt((deviations**2).sum() / (n * (n - 1))))
    if estimate <= 0:
        return Interval(estimate, 0.0, min(unseen_error, upper_bound), standard_error)

    offset = 2 * estimate / counted
    y = np.log(estimate + offset)
    y_without = np.log(without + offset)
    correction = (n - 1) * (y - y_without.mean())
    # Positive for speakers who increase the error rate.
    d = y_without.mean() - y_without
    squares = float((d**2).sum())

    degrees_of_freedom = counted - 1.0
    skewness = 0.0
    if squares > 0:
        # Satterthwaite: a variance that a few speakers dominate has fewer degrees of freedom.
        from_kurtosis = 3 * squares**2 / float((d**4).sum()) - 1
        degrees_of_freedom = min(degrees_of_freedom, max(4.0, from_kurtosis))
        skewness = max(0.0, float((d**3).sum()) / squares**1.5)
    t = float(stdtrit(degrees_of_freedom, (1 + LEVEL) / 2))
    t_above = t + skewness * (2 * t**2 + 1) / 6
    spread = math.sqrt((n - 1) / n * squares)

    low = math.exp(y + min(correction, 0.0) - t * spread) - offset
    correction_above = max(correction, 0.0)
    if of_hull:
        correction_above *= HULL_BIAS
    high = math.exp(min(y + correction_above + t_above * spread, 700.0)) - offset
    high = max(estimate, min(high, estimate + unseen_error, upper_bound))
    low = min(max(low, 0.0), estimate)  # rounding must not raise it above the estimate
    return Interval(estimate, low, high, standard_error)


def rate_interval(estimate: float | Array, without: Array, speakers: float) -> Interval:
    """Compute the interval of an error rate, which is a share of trials.

    The upper end allows for speakers who are not in the sample: in the worst case, all their trials are errors.

    estimate : error rate for all speakers
    without : (n,) error rates, each without one speaker or group
    speakers : effective number of speakers
    """
    missing = unseen_share(speakers)
    return jackknife_interval(
        float(estimate), without, speakers=speakers, upper_bound=1.0, unseen_error=missing
    )


class Metric:
    """Base class of metrics: a number from the scores of targets and non-targets, its interval and its display.

    Attributes
    ----------
    name : name in Python and JSON; ``family/point`` if the metric exists for several operating points
    heading : heading of the column of the metric
    table : title of the table that shows the metric
    percent : whether the metric is a share, shown in percent
    headline : whether tables of several systems show the metric
    needs_llr : whether the scores must be likelihood ratios
    is_error : whether lower values are better, so that systems can be compared by the metric
    upper_bound : largest possible value
    of_hull : whether the metric is derived from the convex hull of the ROC
    unknown : text in place of an unknown value
    notes : sentences that define the metric, for the foot of a table
    """

    name: str
    heading: str
    table: str = ERRORS
    percent: bool = False
    headline: bool = False
    needs_llr: bool = False
    is_error: bool = True
    upper_bound: float = math.inf
    of_hull: bool = False
    unknown: str = "-"
    notes: tuple[str, ...] = ()

    def value(self, curve: Curve) -> float:
        """Compute the metric from the sorted scores of targets and non-targets."""
        raise NotImplementedError

    def has_enough_trials(self, curve: Curve) -> bool:
        """Return whether there are enough trials to compute the metric."""
        return True

    def unseen_error(self, missing: float) -> float:
        """Return the largest possible increase of the metric if all speakers were in the sample.

        missing : share of the population that is not in the sample; all trials of these speakers
            are assumed to be errors
        """
        return math.inf

    def probe(self, whole: Curve) -> Probe | None:
        """Return a function of a curve that returns the numbers from which `interval` is computed.

        The caller evaluates it for curves without one speaker (or group) each, and passes the
        results to `interval`. Return None if the metric has no interval.

        whole : scores of all speakers
        """
        return lambda curve: (self.value(curve),)

    def interval(self, whole: Curve, without: Array, speakers: float) -> Interval:
        """Compute the interval of the metric.

        whole : scores of all speakers
        without : (groups, values) finite results of `probe`, each without one speaker or group
        speakers : effective number of speakers
        """
        return jackknife_interval(
            float(self.value(whole)),
            without[:, 0],
            speakers=speakers,
            upper_bound=self.upper_bound,
            unseen_error=self.unseen_error(unseen_share(speakers)),
            of_hull=self.of_hull,
        )

    def show(self, value: float) -> str:
        """Return a value of the metric as text for a table."""
        if math.isnan(value):
            return self.unknown
        if self.percent:
            return f"{100 * value:.2f}"
        return f"{value:.3f}" if value < 1000 or math.isinf(value) else ">=1000"


class EER(Metric):
    """Equal error rate: the point of the convex hull of the ROC where miss rate and false-alarm rate are equal."""

    name = "eer"
    heading = "EER %"
    percent = True
    headline = True
    upper_bound = 0.5
    of_hull = True
    notes = ("EER: where the convex hull of the ROC meets miss = false alarm.",)

    def value(self, curve: Curve) -> float:
        return curve.eer()

    def unseen_error(self, missing: float) -> float:
        return missing


class _DetectionCostMetric(Metric):
    """Base class of normalised detection costs at one operating point."""

    family: ClassVar[str]
    label: ClassVar[str]

    def __init__(self, cost: DetectionCost) -> None:
        self.cost = cost
        self.name = f"{self.family}/{cost.name}"
        self.heading = f"{self.label} {cost.name}"
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
    label = "minDCF"
    headline = True
    upper_bound = 1.0
    of_hull = True

    def value(self, curve: Curve) -> float:
        weights = (self.cost.miss_weight, self.cost.false_alarm_weight)
        return float(curve.hull.least(*weights)[0])

    def unseen_error(self, missing: float) -> float:
        return missing * max(self.cost.miss_weight, self.cost.false_alarm_weight)

    def probe(self, whole: Curve) -> Probe | None:
        miss = self.cost.miss_weight * whole.targets.largest_share()
        false_alarm = self.cost.false_alarm_weight * whole.others.largest_share()
        if max(miss, false_alarm) > COARSEST:
            return None
        return Metric.probe(self, whole)


class ActDCF(_DetectionCostMetric):
    """Normalised detection cost at Bayes' threshold, which the cost and the prior determine."""

    family = "act_dcf"
    label = "actDCF"
    needs_llr = True

    def value(self, curve: Curve) -> float:
        return float(self.cost.at(*curve.rates(self.cost.threshold)))


class MinCllr(Metric):
    """Least Cllr of any calibration that keeps the order of the scores."""

    name = "min_cllr"
    heading = "minCllr"
    headline = True
    upper_bound = 1.0
    of_hull = True

    notes = ("Cllr, minCllr: bits.",)

    def value(self, curve: Curve) -> float:
        return curve.min_cllr()

    def unseen_error(self, missing: float) -> float:
        share = min(missing, 0.5)
        return float((entr(share) + entr(1 - share)) / math.log(2))


class Cllr(Metric):
    """Cost of log-likelihood ratios over all priors, in bits: 0 is perfect, 1 is no information."""

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
        """Compute the interval; its upper end is at least that of minCllr plus the calibration loss Cllr - minCllr."""
        interval = super().interval(whole, without, speakers)
        min_cllr = MinCllr().interval(whole, without[:, 1:], speakers)
        calibration_loss = max(0.0, interval.estimate - min_cllr.estimate)
        return replace(interval, high=max(interval.high, min_cllr.high + calibration_loss))


class _AtRate(Metric):
    """Base class of the metrics at a given false-alarm rate: the threshold for this rate, and the miss rate there."""

    unknown = "too few"
    family: ClassVar[str]
    label: ClassVar[str]

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self.name = f"{self.family}/{rate:g}"
        self.heading = f"{self.label} at FAR {100 * rate:g} %"

    notes = (
        "FAR: false alarms as a share of the non-targets; FRR: misses as a share of the targets.",
        "At a FAR: at the lowest threshold whose false-alarm rate is not higher; scores at or above it are accepted. "
        "Too few: by the rule of three a FAR of f needs 3 / f non-targets.",
    )

    def has_enough_trials(self, curve: Curve) -> bool:
        return 3 * curve.others.largest_share() <= self.rate * (1 + 1e-9)

    def probe(self, whole: Curve) -> Probe | None:
        threshold = whole.threshold_for(self.rate)
        return lambda curve: curve.rates(threshold)


def threshold_ends(whole: Curve, far: Interval) -> tuple[float, float]:
    """Return the interval of a threshold: the thresholds at the upper and lower end of its false-alarm rate.

    The upper end of the threshold is infinite if the lower end of the rate is below one false
    alarm divided by the number of non-targets.

    whole : scores of all speakers
    far : false-alarm rate at the threshold with its interval
    """
    low = whole.threshold_for(far.high)
    if far.low < whole.others.largest_share():
        return low, math.inf
    return low, whole.threshold_for(far.low)


class ThresholdAt(_AtRate):
    """Lowest threshold whose false-alarm rate does not exceed a given rate."""

    family = "threshold_at_far"
    label = "threshold"
    table = THRESHOLDS
    is_error = False

    def value(self, curve: Curve) -> float:
        return curve.threshold_for(self.rate)

    def interval(self, whole: Curve, without: Array, speakers: float) -> Interval:
        threshold = self.value(whole)
        far = rate_interval(whole.rates(threshold)[1], without[:, 1], speakers)
        return Interval(threshold, *threshold_ends(whole, far))


class MissesAt(_AtRate):
    """Miss rate at the threshold for a given false-alarm rate."""

    family = "frr_at_far"
    label = "FRR %"
    table = POINTS
    percent = True

    def value(self, curve: Curve) -> float:
        return float(curve.rates(curve.threshold_for(self.rate))[0])

    def interval(self, whole: Curve, without: Array, speakers: float) -> Interval:
        rates = whole.rates(whole.threshold_for(self.rate))
        frr, far = (rate_interval(rates[i], without[:, i], speakers) for i in (0, 1))
        estimate = frr.estimate
        # Misses at both ends of the threshold's interval.
        low_threshold, high_threshold = threshold_ends(whole, far)
        frr_low = float(whole.rates(low_threshold)[0])
        frr_high = 1.0
        if math.isfinite(high_threshold):
            frr_high = float(whole.rates(high_threshold)[0])
        # The two sources of error are combined as squares.
        low = estimate - math.hypot(estimate - frr.low, estimate - frr_low)
        high = estimate + math.hypot(frr.high - estimate, frr_high - estimate)
        return Interval(estimate, max(low, 0.0), min(high, 1.0))


DetectionCosts = tuple[DetectionCost, ...]
METRICS: list[Callable[[DetectionCosts, tuple[float, ...]], Iterable[Metric]]] = [
    lambda costs, far: [EER()],
    lambda costs, far: [metric(cost) for cost in costs for metric in (MinDCF, ActDCF)],
    lambda costs, far: [Cllr(), MinCllr()],
    lambda costs, far: [metric(rate) for metric in (MissesAt, ThresholdAt) for rate in far],
]
"""Functions of the detection costs and the false-alarm rates that return metrics, in the order of tables."""


def metrics_of(costs: Costs = ("default",), far: Iterable[float] = FARS) -> list[Metric]:
    """Return all metrics for these detection costs and false-alarm rates, in the order of tables.

    costs : detection costs of minDCF and actDCF, see `mvplda.costs.detection_costs`
    far : false-alarm rates in (0, 1) at which the threshold and the miss rate are measured
    """
    rates = tuple(dict.fromkeys(map(float, far)))
    for rate in rates:
        check_rate(rate)
    points = detection_costs(costs)
    return [metric for family in METRICS for metric in family(points, rates)]


def check_rate(rate: float) -> None:
    """Raise `ParameterError` unless a false-alarm rate lies in (0, 1)."""
    if not 0 < rate < 1:
        raise ParameterError(
            f"a false-alarm rate must be a share in (0, 1), such as 0.001; got {rate}"
        )
