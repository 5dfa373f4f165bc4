"""Detection costs: what misses and false alarms cost, and how often targets come.

    DCF(threshold) = miss_cost prior miss + false_alarm_cost (1 - prior) false_alarm

divided by the cost of the better of the two decisions that need no score,
min(miss_cost prior, false_alarm_cost (1 - prior)); 1 is worth nothing. *minDCF* takes the best
threshold, known afterwards; *actDCF* the one that Bayes gives in advance to
log-likelihood ratios, log(false_alarm_cost (1 - prior) / (miss_cost prior)).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._typing import Array
from ..costs import threshold_from_costs
from ..exceptions import ParameterError
from .curves import ScoreCurve


@dataclass(frozen=True)
class DetectionCost:
    """One operating point.

    name : how it is called in tables
    prior : probability that a trial is a target, in (0, 1)
    miss_cost, false_alarm_cost : positive; C_miss and C_fa where NIST writes them

    Examples
    --------
    >>> from mvplda.metrics import DetectionCost
    >>> print(DetectionCost("sdsv", 0.01, 10, 1))
    sdsv (C_miss=10, C_fa=1, P_target=0.01)
    """

    name: str
    prior: float
    miss_cost: float = 1.0
    false_alarm_cost: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.prior < 1:
            raise ParameterError(f"the prior of a target must be in (0, 1); cost {self.name!r} has {self.prior}")
        for cost in (self.miss_cost, self.false_alarm_cost):
            if not 0 < cost < np.inf:
                raise ParameterError(f"costs must be positive and finite; cost {self.name!r} has {self.triple}")

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

    @property
    def effective_prior(self) -> float:
        """The prior that, with both costs 1, asks for the same decisions."""
        return float(1 / (1 + np.exp(self.threshold)))

    def at(self, miss: Any, false_alarm: Any) -> Any:
        """Normalised cost of a miss rate and a false-alarm rate."""
        return self.miss_weight * miss + self.false_alarm_weight * false_alarm


PRESETS = {
    cost.name: cost
    for cost in (
        DetectionCost("default", 0.01),
        DetectionCost(".001", 0.001),
        DetectionCost("sre08", 0.01, 10, 1),
        DetectionCost("sre10", 0.001),
        DetectionCost("sre21", 0.05),
        DetectionCost("sdsv", 0.01, 10, 1),
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
    >>> from mvplda.metrics import detection_cost
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


@dataclass(frozen=True)
class BayesErrorRates:
    """Error probability of Bayes decisions over the prior, both costs 1.

    log_odds : (G,) log(prior / (1 - prior))
    actual : (G,) deciding by score >= -log_odds
    minimum : (G,) deciding by the best threshold for every prior
    default : (G,) deciding without a score, min(prior, 1 - prior)

    ``actual - minimum`` is the loss to poor calibration; ``actual > default`` means that
    the scores do harm at that prior.
    """

    log_odds: Array
    actual: Array
    minimum: Array
    default: Array

    def normalised(self) -> tuple[Array, Array]:
        """Actual and minimum, divided by the default."""
        return self.actual / self.default, self.minimum / self.default


def bayes_error_rates(targets: Any, nontargets: Any, log_odds_grid: Any = None) -> BayesErrorRates:
    """Actual, least and default Bayes error over a grid of prior log-odds (-10 to 10 unless given).

    Examples
    --------
    >>> from mvplda.metrics import bayes_error_rates
    >>> rates = bayes_error_rates([2.0, 3.0, 1.0, 4.0], [0.0, -1.0, 1.5, -2.0], [0.0])
    >>> float(rates.actual[0]), float(rates.minimum[0]), float(rates.default[0])
    (0.25, 0.125, 0.5)
    """
    curve = targets if isinstance(targets, ScoreCurve) else ScoreCurve(targets, nontargets)
    grid = np.linspace(-10, 10, 201) if log_odds_grid is None else np.asarray(log_odds_grid, np.float64).reshape(-1)
    if not np.isfinite(grid).all():
        raise ParameterError("prior log-odds must be finite; leave out priors of 0 and 1")
    prior, rest = 1 / (1 + np.exp(-grid)), 1 / (1 + np.exp(grid))
    miss, false_alarm = curve.rates(-grid)
    return BayesErrorRates(
        log_odds=grid,
        actual=prior * miss + rest * false_alarm,
        minimum=curve.hull.least(prior, rest)[0],
        default=np.minimum(prior, rest),
    )
