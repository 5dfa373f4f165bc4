"""The threshold for a wanted false-alarm rate of the worst kind of impostor, and what it costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..exceptions import ParameterError
from ..kinds import Kinds
from .catalogue import threshold_ends
from .evaluation import TOTAL
from .intervals import plain
from .jackknife import Interval, check_level, rate_interval, unmet
from .weighted import WeightedTrials, weighted_trials


@dataclass(frozen=True)
class ThresholdPoint:
    """A threshold, the errors there by kind, and how little the speakers can show.

    threshold : the lowest score that is accepted; infinite if no score is high enough
    low, high : interval of the threshold
    wanted : the false-alarm rate that was asked for, of every kind of impostor
    worst : the kind that needs the highest threshold
    far : false-alarm rate of every kind at the threshold
    frr : miss rate at the threshold
    least_far : the least false-alarm rate of the worst kind that so many speakers could show
    speakers : how many speakers count for the worst kind, see :mod:`mvplda.metrics.jackknife`
    level : how often the intervals are to hold
    """

    threshold: float
    low: float
    high: float
    wanted: float
    worst: str
    far: dict[str, Interval]
    frr: Interval
    least_far: float
    speakers: float
    level: float

    @property
    def too_few(self) -> bool:
        """Whether there are too few speakers to show the wanted rate."""
        return self.wanted < self.least_far

    def warning(self) -> str | None:
        """What to say where there are too few speakers; None where there are enough."""
        if not self.too_few:
            return None
        return (
            f"too few: with {self.speakers:.0f} speakers you cannot show a false-alarm rate below "
            f"{100 * self.least_far:.2g} %, and {100 * self.wanted:g} % was asked for; "
            "use the threshold as a first guess, and measure again with more speakers"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; what is not finite is None."""
        return {
            **plain(self),
            "worst": self.worst,
            "far": {kind: plain(rate) for kind, rate in self.far.items()},
            "frr": plain(self.frr),
            "too_few": self.too_few,
            "warning": self.warning(),
        }


def threshold_for(
    scores: ArrayLike,
    kinds: Kinds,
    far: float,
    enrol_speakers: ArrayLike,
    test_speakers: ArrayLike,
    *,
    target: str | None = None,
    level: float = 0.95,
) -> ThresholdPoint:
    """The lowest threshold at which no kind of impostor is accepted more often than ``far``.

    Parameters
    ----------
    scores, kinds, enrol_speakers, test_speakers, target, level
        As for :func:`speaker_intervals`.
    far : float
        The wanted false-alarm rate, a share in (0, 1).

    Notes
    -----
    The rates are intervals over speakers at the threshold, which stays where it is. The interval of
    the threshold goes from where the worst kind's rate would be at its upper end to where it would be
    at its lower end. By the rule of three n speakers of whom none was accepted wrongly may be so
    lucky with a rate of 3 / n: less than that cannot be shown.

    Examples
    --------
    >>> import numpy as np
    >>> from mvplda.metrics import threshold_for
    >>> who = np.arange(30)
    >>> point = threshold_for(np.eye(30), np.eye(30, dtype=bool), 0.01, who, who)
    >>> point.threshold, point.worst, round(point.least_far, 3)
    (1.0, 'nontarget', 0.095)
    >>> print(point.warning())  # doctest: +ELLIPSIS
    too few: with 30 speakers you cannot show a false-alarm rate below 9.5 %, and 1 % was asked for; ...
    """
    if not 0 < far < 1:
        raise ParameterError(f"a false-alarm rate is a share in (0, 1), such as 0.001; got {far}")
    check_level(level)
    rows = weighted_trials(scores, kinds, (enrol_speakers, test_speakers), target)
    del rows[TOTAL]
    thresholds = {kind: trials.whole().threshold_for(far) for kind, trials in rows.items()}
    worst = max(thresholds, key=lambda kind: thresholds[kind])
    threshold = thresholds[worst]
    rates = {kind: _rates_at(threshold, trials, level) for kind, trials in rows.items()}
    low, high = threshold_ends(rows[worst].whole(), rates[worst][1])
    speakers = rows[worst].speakers()[1]
    return ThresholdPoint(
        threshold=threshold,
        low=min(low, threshold),
        high=max(high, threshold),
        wanted=far,
        worst=worst,
        far={kind: both[1] for kind, both in rates.items()},
        frr=rates[worst][0],
        least_far=unmet(level, speakers),
        speakers=speakers,
        level=level,
    )


def _rates_at(threshold: float, trials: WeightedTrials, level: float) -> list[Interval]:
    """Miss and false-alarm rate at a threshold that stays where it is, with their intervals."""
    rates = trials.whole().rates(threshold)
    without = trials.without(lambda curve: curve.rates(threshold))
    if without is None:  # all trials of a side are of one speaker or group
        return [Interval(float(rate), 0.0, 1.0) for rate in rates]
    each = zip(rates, np.array(without).T, trials.speakers(), strict=True)
    return [rate_interval(rate, own, level, speakers) for rate, own, speakers in each]
