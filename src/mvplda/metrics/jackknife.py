"""The interval of an error rate or cost, by a jackknife over speakers.

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
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from .._typing import Array
from ..exceptions import ParameterError


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


def check_level(level: float) -> None:
    if not 0 < level < 1:
        raise ParameterError(
            f"the level of an interval must be in (0, 1), such as 0.95; got {level}"
        )
