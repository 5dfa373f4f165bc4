"""Confidence intervals of every metric by kind of trial, by a jackknife over speakers.

The formulas are in :mod:`mvplda.metrics.jackknife` and :mod:`mvplda.metrics.catalogue`;
``python -m benchmarks intervals`` measures how often the intervals hold the truth.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..costs import Costs
from ..kinds import Kinds
from .catalogue import COARSEST, FARS, Metric, metrics_of
from .jackknife import Interval, check_level
from .weighted import WeightedTrials, weighted_trials


@dataclass(frozen=True)
class Intervals:
    """Intervals by kind and metric (``eer``, ``min_dcf/default``, ...); a metric that can have none is left out."""

    intervals: dict[str, dict[str, Interval]]
    level: float
    n_speakers: int
    too_few: tuple[str, ...] = ()
    """Kinds without any interval: all targets, or all non-targets, hang on one speaker or group."""

    def of(self, kind: str, name: str) -> Interval | None:
        """The interval of a metric of a kind, where there is one."""
        return self.intervals.get(kind, {}).get(name)

    def definition(self) -> str:
        """What the intervals are, in one sentence."""
        said = (
            f"[low, high]: {100 * self.level:g} % interval of a jackknife over the {self.n_speakers} speakers; "
            f"none for actDCF, nor for a minDCF that one trial moves by more than {COARSEST:g}."
        )
        if self.too_few:
            said += (
                f" None for {', '.join(self.too_few)}: without one speaker no targets or no such non-targets are left, "
                "so there are too few speakers."
            )
        return said

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; what is not finite is None."""
        kinds = {
            kind: {name: plain(item) for name, item in row.items()}
            for kind, row in self.intervals.items()
        }
        return {
            "level": self.level,
            "n_speakers": self.n_speakers,
            "definition": self.definition(),
            "too_few_speakers": list(self.too_few),
            "kinds": kinds,
        }


def plain(record: Any) -> dict[str, float | None]:
    """The numbers of a record; what is not finite is None."""
    numbers = {
        name: value for name, value in vars(record).items() if isinstance(value, int | float)
    }
    return {name: float(x) if math.isfinite(x) else None for name, x in numbers.items()}


def _row(
    trials: WeightedTrials, metrics: Sequence[Metric], level: float
) -> dict[str, Interval] | None:
    """Intervals of one row of the table; None if all its targets or non-targets are of one speaker or group."""
    speakers = min(trials.speakers())
    whole = trials.whole()
    chosen = {
        m: probe for m in metrics if m.enough(whole) and (probe := m.probe(whole)) is not None
    }
    without = trials.without(lambda curve: [probe(curve) for probe in chosen.values()])
    if without is None:
        return None
    intervals = {}
    for metric, measured in zip(chosen, zip(*without, strict=True), strict=True):
        values = np.array(measured, dtype=np.float64)
        if np.isfinite(metric.value(whole)) and np.isfinite(values).all():
            intervals[metric.name] = metric.interval(whole, values, level, speakers)
    return intervals


def speaker_intervals(
    scores: ArrayLike,
    kinds: Kinds,
    enrol_speakers: ArrayLike,
    test_speakers: ArrayLike,
    costs: Costs = ("default",),
    *,
    far: Iterable[float] = FARS,
    target: str | None = None,
    weights: Mapping[str, float] | None = None,
    level: float = 0.95,
) -> Intervals:
    """Confidence intervals of the metrics by kind, by a jackknife over speakers.

    Parameters
    ----------
    scores, kinds, costs, far, target
        As for :func:`evaluate`.
    enrol_speakers, test_speakers : array-like
        The true speakers of every trial; or, if ``scores`` is (enrol, test), of every row
        and of every column.
    weights : mapping, optional
        How many trials one of a kind stands for, where only some were drawn of it; 1 each unless given.
    level : float
        How often the interval is to hold the value of all speakers that there might have been.

    Notes
    -----
    Nothing is drawn: the same scores give the same intervals. Time is linear in trials
    times speakers, up to 200 (a million trials of two or three kinds take a few hundredths
    of a second a speaker); the scores are sorted once.

    Examples
    --------
    >>> import numpy as np
    >>> from mvplda.metrics import speaker_intervals
    >>> who = np.arange(10)
    >>> found = speaker_intervals(np.eye(10), np.eye(10, dtype=bool), who, who).intervals["Total"]["eer"]
    >>> found.estimate, found.low, round(found.high, 2)  # no error, but only ten speakers
    (0.0, 0.0, 0.26)
    """
    check_level(level)
    metrics = metrics_of(costs, far)
    rows = weighted_trials(scores, kinds, (enrol_speakers, test_speakers), target, weights)
    # a row that stands twice, the only kind and the total, is measured once
    each = {trials: _row(trials, metrics, level) for trials in dict.fromkeys(rows.values())}
    too_few = tuple(kind for kind, trials in rows.items() if each[trials] is None)
    n_speakers = next(iter(rows.values())).n_speakers
    return Intervals({kind: each[rows[kind]] or {} for kind in rows}, level, n_speakers, too_few)
