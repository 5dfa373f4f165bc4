"""From a prior and costs to a threshold: Bayes' rule, in one place."""

from __future__ import annotations

import math

from .exceptions import ParameterError


def log_odds(prior: float) -> float:
    """log(p / (1 - p)) of a prior in (0, 1)."""
    if not 0 < prior < 1:
        raise ParameterError(f"a prior lies in (0, 1); got {prior}")
    return math.log(prior) - math.log1p(-prior)


def threshold_from_costs(prior: float = 0.01, miss_cost: float = 1.0, false_alarm_cost: float = 1.0) -> float:
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
