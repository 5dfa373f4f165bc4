"""Detection costs: what misses and false alarms cost, how often targets come, and the threshold that follows.

    DCF(threshold) = miss_cost prior miss + false_alarm_cost (1 - prior) false_alarm

divided by the cost of the better of the two decisions that need no score,
min(miss_cost prior, false_alarm_cost (1 - prior)); 1 is worth nothing. *minDCF* takes the best
threshold, known afterwards; *actDCF* the one that Bayes gives in advance to
log-likelihood ratios, log(false_alarm_cost (1 - prior) / (miss_cost prior)).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from .exceptions import ParameterError


def log_odds(prior: float) -> float:
    """log(p / (1 - p)) of a prior in (0, 1)."""
    if not 0 < prior < 1:
        raise ParameterError(f"a prior lies in (0, 1); got {prior}")
    return math.log(prior) - math.log1p(-prior)


def threshold_from_costs(
    prior: float = 0.01, miss_cost: float = 1.0, false_alarm_cost: float = 1.0
) -> float:
    """The LLR at and above which accepting costs less, for calibrated natural-log LLRs.

    threshold = log(false_alarm_cost / miss_cost) - log(prior / (1 - prior)).

    Parameters
    ----------
    prior : float in (0, 1)
        Probability of a target before the score is seen.
    miss_cost, false_alarm_cost : float
        Costs of rejecting a target and of accepting a non-target.

    Examples
    --------
    >>> from mvplda.costs import threshold_from_costs
    >>> round(threshold_from_costs(0.01, miss_cost=1, false_alarm_cost=1), 3)
    4.595
    """
    if not 0 < prior < 1 or not miss_cost > 0 or not false_alarm_cost > 0:
        raise ParameterError(
            f"the prior lies in (0, 1) and costs are positive; got {(prior, miss_cost, false_alarm_cost)}"
        )
    return math.log(false_alarm_cost / miss_cost) - log_odds(prior)


@dataclass(frozen=True)
class DetectionCost:
    """One operating point.

    name : how it is called in tables
    prior : probability that a trial is a target, in (0, 1)
    miss_cost, false_alarm_cost : positive; C_miss and C_fa where NIST writes them

    Examples
    --------
    >>> from mvplda.costs import DetectionCost
    >>> print(DetectionCost("sdsv", 0.01, 10, 1))
    sdsv (C_miss=10, C_fa=1, P_target=0.01)
    """

    name: str
    prior: float
    miss_cost: float = 1.0
    false_alarm_cost: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.prior < 1:
            raise ParameterError(
                f"the prior of a target must be in (0, 1); cost {self.name!r} has {self.prior}"
            )
        if not (0 < self.miss_cost < math.inf and 0 < self.false_alarm_cost < math.inf):
            raise ParameterError(
                f"costs must be positive and finite; cost {self.name!r} has {self.triple}"
            )

    @property
    def triple(self) -> tuple[float, float, float]:
        """(C_miss, C_fa, P_target), in the order in which the field writes them."""
        return self.miss_cost, self.false_alarm_cost, self.prior

    def __str__(self) -> str:
        return f"{self.name} (C_miss={self.miss_cost:g}, C_fa={self.false_alarm_cost:g}, P_target={self.prior:g})"

    @property
    def miss_weight(self) -> float:
        """Normalised cost of missing every target."""
        return self.miss_cost * self.prior / self._best_without_score

    @property
    def false_alarm_weight(self) -> float:
        """Normalised cost of accepting every non-target."""
        return self.false_alarm_cost * (1 - self.prior) / self._best_without_score

    @property
    def _best_without_score(self) -> float:
        return min(self.miss_cost * self.prior, self.false_alarm_cost * (1 - self.prior))

    @property
    def threshold(self) -> float:
        """Bayes' threshold for natural-log likelihood ratios: accept at or above it."""
        return threshold_from_costs(self.prior, self.miss_cost, self.false_alarm_cost)

    def at(self, miss: Any, false_alarm: Any) -> Any:
        """Normalised cost of a miss rate and a false-alarm rate."""
        return self.miss_weight * miss + self.false_alarm_weight * false_alarm


PRESETS = {
    cost.name: cost
    for cost in (
        DetectionCost("default", 0.01),
        DetectionCost(".001", 0.001),
        DetectionCost("sre08", 0.01, 10),
        DetectionCost("sre10", 0.001),
        DetectionCost("sre21", 0.05),
        DetectionCost("sdsv", 0.01, 10),
        DetectionCost("voxsrc", 0.05),
    )
}
"""Operating points by name, as (C_miss, C_fa, P_target):

=========  ================  ==========================================================
default    (1, 1, 0.01)      what is used if nothing is said
.001       (1, 1, 0.001)     the same with rarer targets
sre08      (10, 1, 0.01)     NIST SRE 2008
sre10      (1, 1, 0.001)     NIST SRE 2010, core test
sre21      (1, 1, 0.05)      NIST SRE 2021
sdsv       (10, 1, 0.01)     Short-duration Speaker Verification challenge
voxsrc     (1, 1, 0.05)      VoxCeleb Speaker Recognition Challenge
=========  ================  ==========================================================
"""


def detection_cost(cost: str | DetectionCost) -> DetectionCost:
    """A preset by name, or a triple written ``"C_miss,C_fa,P_target"``.

    Examples
    --------
    >>> from mvplda.costs import detection_cost
    >>> detection_cost("voxsrc").triple
    (1.0, 1.0, 0.05)
    >>> print(detection_cost("10,1,0.02"))
    10,1,0.02 (C_miss=10, C_fa=1, P_target=0.02)
    """
    if isinstance(cost, DetectionCost):
        return cost
    if cost in PRESETS:
        return PRESETS[cost]
    try:
        miss_cost, false_alarm_cost, prior = (float(part) for part in cost.split(","))
    except (AttributeError, ValueError):
        raise ParameterError(
            f"unknown cost {cost!r}: expected one of {', '.join(PRESETS)}, "
            "or a triple C_miss,C_fa,P_target such as 1,1,0.01"
        ) from None
    return DetectionCost(cost, prior, miss_cost, false_alarm_cost)


Costs = str | DetectionCost | Iterable[str | DetectionCost]


def detection_costs(costs: Costs) -> tuple[DetectionCost, ...]:
    """Several costs; their names must differ."""
    listed = [costs] if isinstance(costs, str | DetectionCost) else costs
    found = tuple(detection_cost(cost) for cost in listed)
    names = [cost.name for cost in found]
    if len(set(names)) < len(names):
        raise ParameterError(f"costs must have different names; got {names}")
    return found
