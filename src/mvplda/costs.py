"""Detection costs: what misses and false alarms cost, how often targets come, and the threshold that follows; spoofs.

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

import numpy as np

from ._typing import Operand
from .backend import cast, dtype_name, is_torch, like, namespace
from .exceptions import DataError, ParameterError


def log_odds(prior: float) -> float:
    """log(p / (1 - p)) of a prior in (0, 1)."""
    if not 0 < prior < 1:
        raise ParameterError(f"a prior lies in (0, 1); got {prior}")
    return math.log(prior) - math.log1p(-prior)


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
        costs = (self.miss_cost, self.false_alarm_cost)
        if not 0 < self.prior < 1 or not all(0 < cost < math.inf for cost in costs):
            raise ParameterError(
                f"the prior of a target lies in (0, 1), costs are positive and finite; got {self}"
            )

    def __str__(self) -> str:
        return f"{self.name} (C_miss={self.miss_cost:g}, C_fa={self.false_alarm_cost:g}, P_target={self.prior:g})"

    @property
    def miss_weight(self) -> float:
        """Normalised cost of missing every target."""
        return max(1.0, 1 / self._ratio)

    @property
    def false_alarm_weight(self) -> float:
        """Normalised cost of accepting every non-target."""
        return max(1.0, self._ratio)

    @property
    def _ratio(self) -> float:
        """Of the costs of the two decisions that need no score: accept all, reject all."""
        return self.false_alarm_cost * (1 - self.prior) / (self.miss_cost * self.prior)

    @property
    def threshold(self) -> float:
        """Bayes' threshold for natural-log likelihood ratios: accept at or above it."""
        return math.log(self.false_alarm_cost / self.miss_cost) - log_odds(self.prior)

    def at(self, miss: Operand, false_alarm: Operand) -> Operand:
        """Normalised cost of a miss rate and a false-alarm rate."""
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
"""Operating points by name."""


Costs = str | DetectionCost | Iterable[str | DetectionCost]


def detection_cost(cost: str | DetectionCost) -> DetectionCost:
    """A preset by name, or a triple written ``"C_miss,C_fa,P_target"``.

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
            f"unknown cost {cost!r}: expected one of {', '.join(PRESETS)}, "
            "or a triple C_miss,C_fa,P_target such as 1,1,0.01"
        ) from None
    return DetectionCost(cost, prior, miss_cost, false_alarm_cost)


def detection_costs(costs: Costs) -> tuple[DetectionCost, ...]:
    """Several costs; of those with one name, the last."""
    if isinstance(costs, str | DetectionCost):
        costs = [costs]
    return tuple({cost.name: cost for cost in map(detection_cost, costs)}.values())


# Spoofs: a replay or an imitation of the target by a machine. A countermeasure listens for traces of that, and gives
# a log-likelihood ratio c = log p(traces | a person) / p(traces | spoof). Of the vectors of a spoof the worst is
# assumed, that nothing tells them from those of the target; docs/math.md, section 9.9, derives the formula.


def with_countermeasure(llr: Any, countermeasure: Any, spoof_prior: float = 0.5) -> Any:
    """LLRs of target against everything that should be rejected, spoofs among it.

    Parameters
    ----------
    llr : (profiles, tests) or (trials,), array or torch tensor
        Calibrated natural-log likelihood ratios against ordinary non-targets.
    countermeasure : one for every test, of a matrix, or for every trial
        Calibrated natural-log likelihood ratios of a person's voice against a spoof: low is suspicious.
    spoof_prior : float
        Share of spoofs among the trials that should be rejected.

    Examples
    --------
    >>> from mvplda.costs import with_countermeasure
    >>> with_countermeasure([5.0, 5.0, -5.0], [8.0, -3.0, 8.0], 0.2).round(2).tolist()
    [5.21, -1.39, -4.78]
    """
    scores: Any = llr if is_torch(llr) else np.asarray(llr)
    if "float" not in str(scores.dtype):
        scores = scores.astype(np.float64)
    traces = np.asarray(countermeasure, dtype=np.float64)
    share = check_share(spoof_prior)
    shape = tuple(scores.shape)
    if traces.shape not in ((), shape[-1:], shape):
        raise DataError(
            f"a countermeasure says one number a test: {shape[-1:]} for these scores; got {traces.shape}"
        )
    xp = namespace(scores)
    if np.isnan(traces).any() or xp.isnan(scores).any():
        raise DataError("scores or the countermeasure's ratios contain NaN")
    traces = cast(like(traces, scores), dtype_name(scores)) + 0.0 * scores.clip(-1, 1)
    # one of the two says nothing, be it infinite
    if share in (0, 1):
        return traces if share else scores + 0.0
    return -xp.logaddexp(np.log1p(-share) - scores, np.log(share) - traces)  # (V13)


def check_share(spoof_prior: float) -> float:
    """A share of spoofs among the trials that should be rejected."""
    if not 0 <= spoof_prior <= 1:
        raise ParameterError(f"spoof_prior is a share, from 0 to 1; got {spoof_prior!r}")
    return float(spoof_prior)
