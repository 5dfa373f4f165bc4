"""The interval of an error rate or cost, by a jackknife over speakers.

Percentiles of a bootstrap promise too much here. There are few speakers, so quantiles of
the normal are too small. Error rates lie near zero, so what is not known lies above
rather than below. And a convex hull flatters the scores that it was drawn around, so
that EER, minDCF and minCllr of few speakers are too low on average, at 20 speakers by a
tenth, and resamples cannot know.

The intervals are therefore those of a jackknife: with e the estimate and e_i that without
speaker i, n speakers in all,

    d_i   = mean e_i - e_i,  c = 2 e / n
    error = sqrt((n - 1)/n sum_i d_i^2)
    bias  = (n - 1) (mean e_i - e)

the interval goes, on the scale of log(e + c), from the lower of e and e - bias, less t errors, to the higher
of e and e - f bias, and t errors more. On that scale an error is error / (e + c): the logarithms of e_i are not
taken, since one speaker without whom half of the errors are gone would not double them by coming twice.
f is 1 but for what is read off a convex hull: there the bias falls as n^(-2/3), of which leaving one out shows 2/3,
so f = 3/2. t is Student's, of as many degrees of freedom as the variance has: n - 1, or fewer,
3 (sum d_i^2)^2 / sum d_i^4 - 1 (at least 4), where a few speakers make most of it.

Where a few speakers err far more than the others (goats as targets, wolves as impostors), a group that
happens to have fewer of them errs less *and* varies less: the truth lies above more often than below.
The upper end therefore reaches further by g = (2 t^2 + 1)/6 sum d_i^3 / (sum d_i^2)^(3/2) errors, the first
term of Cornish and Fisher's expansion for the t statistic of a skewed sample, where that is positive. Of what is read
off a hull these are counted on the scale of e, and the higher of the two ends taken: a logarithm and the expansion
both allow for skewness, and together they would make of one speaker in 29 who has half of the errors an upper end of
seven times the estimate. If such speakers are 1 in 29, they may be 1 in 6 (Clopper and Pearson): three times.

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
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtrit

from .._typing import Array
from ..exceptions import ParameterError

HULL_BIAS = 1.5
"""A bias of order n^(-2/3) is so many times what a jackknife finds of it."""


@dataclass(frozen=True)
class Interval:
    """A metric, its confidence interval, and its standard error where the jackknife gives one."""

    estimate: float
    low: float
    high: float
    standard_error: float = math.nan


def unmet(level: float, speakers: float) -> float:
    """The share of all speakers of whom not one may be among so many, at this level: the rule of three."""
    return float(1 - (1 - level) ** (1 / speakers))


def effective_number(sizes: ArrayLike) -> float:
    """How many speakers with equally many trials vary as much as those with so many trials each."""
    trials = np.asarray(sizes, dtype=np.float64)
    return float(trials.sum() ** 2 / (trials**2).sum())


def jackknife_interval(
    estimate: float,
    without: Array,
    level: float = 0.95,
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
    standard_error = math.sqrt((n - 1) * float(np.var(without)))
    if estimate <= 0:
        return Interval(estimate, 0.0, min(unseen, most), standard_error)
    d = without.mean() - without  # above zero: without this speaker there are fewer errors
    squares = float((d**2).sum())
    freedom = counted - 1.0
    skewness = 0.0
    if squares > 0:
        freedom = min(freedom, max(4.0, 3 * squares**2 / float((d**4).sum()) - 1))
        skewness = max(0.0, float((d**3).sum()) / squares**1.5)
    t = float(stdtrit(freedom, (1 + level) / 2))
    above = t + skewness * (2 * t**2 + 1) / 6
    correction = (n - 1) * (estimate - float(without.mean()))
    upwards = max(correction, 0.0)
    # the offset keeps away from zero what becomes zero without one speaker
    offset = 2 * estimate / counted
    scale = estimate + offset
    low = scale * math.exp((min(correction, 0.0) - t * standard_error) / scale) - offset
    highest = estimate
    if of_hull:
        upwards *= HULL_BIAS
        highest += upwards + above * standard_error
        above = t
    high = scale * math.exp(min((upwards + above * standard_error) / scale, 700.0)) - offset
    high = max(high, highest)
    high = max(estimate, min(high, estimate + unseen, most))
    low = min(max(low, 0.0), estimate)  # rounding must not lift it above what was measured
    return Interval(estimate, low, high, standard_error)


def rate_interval(
    estimate: float | Array, without: Array, level: float, speakers: float
) -> Interval:
    """The interval of a share of trials: at worst all trials of speakers who were not met fail."""
    missing = unmet(level, speakers)
    return jackknife_interval(
        float(estimate), without, level, speakers=speakers, most=1.0, unseen=missing
    )


def check_level(level: float) -> None:
    if not 0 < level < 1:
        raise ParameterError(
            f"the level of an interval must be in (0, 1), such as 0.95; got {level}"
        )
