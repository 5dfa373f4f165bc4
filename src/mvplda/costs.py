"""Detection costs: the cost of a miss and of a false alarm with a prior of targets, and presets of evaluations."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

from ._typing import FloatArray
from .exceptions import ParameterError

Rates = TypeVar("Rates", float, FloatArray)
"""Error rate at one threshold, or an array of them."""


@dataclass(frozen=True)
class DetectionCost:
    """Detection cost: the cost of a miss, the cost of a false alarm, and the prior probability of a target.

    Parameters
    ----------
    name : name in tables
    prior : probability that a trial is a target, in (0, 1)
    miss_cost, false_alarm_cost : positive costs of a single error, C_miss and C_fa in NIST's terms

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
                f"the prior of targets (P_target) must lie between 0 and 1; got {self.prior:g} in the detection cost "
                f"{self.name}"
            )
        for role, cost in (("C_miss", self.miss_cost), ("C_fa", self.false_alarm_cost)):
            if not 0 < cost < math.inf:
                raise ParameterError(
                    f"{role} must be positive and finite; got {cost:g} in the detection cost {self.name}"
                )

    def __str__(self) -> str:
        return f"{self.name} (C_miss={self.miss_cost:g}, C_fa={self.false_alarm_cost:g}, P_target={self.prior:g})"

    @property
    def miss_weight(self) -> float:
        """Factor of the miss rate in the normalised cost, which `at` computes."""
        return max(1.0, 1 / self._ratio)

    @property
    def false_alarm_weight(self) -> float:
        """Factor of the false-alarm rate in the normalised cost, which `at` computes."""
        return max(1.0, self._ratio)

    @property
    def _ratio(self) -> float:
        """Expected cost of accepting every trial, divided by that of rejecting every trial."""
        return self.false_alarm_cost * (1 - self.prior) / (self.miss_cost * self.prior)

    @property
    def threshold(self) -> float:
        """Threshold of calibrated natural-log LLRs, from which accepting has the lower expected cost."""
        log_odds = math.log(self.prior) - math.log1p(-self.prior)
        return math.log(self.false_alarm_cost / self.miss_cost) - log_odds

    def at(self, miss: Rates, false_alarm: Rates) -> Rates:
        """Compute the normalised cost at a miss rate and a false-alarm rate, numbers or arrays.

        A cost of 1 is that of the better of two decisions without scores: accept every trial, or
        reject every trial.
        """
        return self.miss_weight * miss + self.false_alarm_weight * false_alarm


PRESETS = {
    cost.name: cost
    for cost in (
        DetectionCost("default", 0.01),
        DetectionCost("sre08", 0.01, 10),  # NIST SRE 2008
        DetectionCost("sre10", 0.001),  # NIST SRE 2010, core test
        DetectionCost("sre21", 0.05),  # NIST SRE 2021
        DetectionCost("sdsv", 0.01, 10),  # Short-duration Speaker Verification challenge
        DetectionCost("voxsrc", 0.05),  # VoxCeleb Speaker Recognition Challenge
    )
}
"""Detection costs of public evaluations by name."""


Costs = str | DetectionCost | Iterable[str | DetectionCost]


def detection_cost(cost: str | DetectionCost) -> DetectionCost:
    """Return a detection cost: a preset by its name, or from a text ``"C_miss,C_fa,P_target"``.

    Examples
    --------
    >>> from mvplda.costs import detection_cost
    >>> print(detection_cost("10,1,0.02"))
    10,1,0.02 (C_miss=10, C_fa=1, P_target=0.02)
    """
    if isinstance(cost, DetectionCost):
        return cost
    if cost in PRESETS:
        return PRESETS[cost]
    try:
        miss_cost, false_alarm_cost, prior = map(float, cost.split(","))
    except (AttributeError, ValueError):
        raise ParameterError(
            f"unknown detection cost {cost!r}: expected one of {', '.join(PRESETS)}, "
            "or three numbers C_miss,C_fa,P_target such as 1,1,0.01"
        ) from None
    return DetectionCost(cost, prior, miss_cost, false_alarm_cost)


def detection_costs(costs: Costs) -> tuple[DetectionCost, ...]:
    """Return detection costs, each from `detection_cost`; of equal names, only the last is kept."""
    if isinstance(costs, str | DetectionCost):
        costs = [costs]
    return tuple({cost.name: cost for cost in map(detection_cost, costs)}.values())
