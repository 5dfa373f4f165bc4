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

from .._typing import Array
from ..costs import Costs
from ..kinds import Kinds
from .catalogue import COARSEST, FARS, Metric, metrics_of
from .jackknife import Interval, check_level
from .weighted import WeightedTrials, leave_out, speaker_codes, weighted_trials


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
    trials: WeightedTrials, metrics: Sequence[Metric], kept: Array, level: float
) -> dict[str, Interval] | None:
    """Intervals of one row of the table; None if all its targets or non-targets are of one speaker or group."""
    n_speakers = kept.shape[1] - 1
    speakers = min(trials.speakers(n_speakers))
    whole = trials.whole(n_speakers)
    probes = {
        m: probe for m in metrics if m.enough(whole) and (probe := m.probe(whole)) is not None
    }
    without: dict[Metric, list[tuple[Any, ...]]] = {metric: [] for metric in probes}
    for multiplicity in kept:
        curve = trials.under(multiplicity)
        if curve is None:
            return None
        for metric, probe in probes.items():
            without[metric].append(probe(curve))
    found = {}
    for metric in probes:
        values = np.array(without[metric], dtype=np.float64)
        if np.isfinite(metric.value(whole)) and np.isfinite(values).all():
            interval = metric.interval(whole, values, level, speakers)
            if interval is not None:
                found[metric.name] = interval
    return found


def speaker_intervals(
    scores: ArrayLike,
    kinds: Kinds,
    enrol_speakers: ArrayLike,
    test_speakers: ArrayLike,
    costs: Costs = ("default",),
    *,
    far: Iterable[float] = FARS,
    frr: Iterable[float] = (),
    target: str | None = None,
    equal_weights: bool = False,
    weights: Mapping[str, float] | None = None,
    level: float = 0.95,
) -> Intervals:
    """Confidence intervals of the metrics by kind, by a jackknife over speakers.

    Parameters
    ----------
    scores, kinds, costs, far, frr, target, equal_weights
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
    metrics = metrics_of(costs, far, frr)
    first, second, n_speakers = speaker_codes(enrol_speakers, test_speakers, np.shape(scores))
    rows = weighted_trials(scores, kinds, (first, second), target, equal_weights, weights)
    kept = leave_out(n_speakers)
    found = {trials: _row(trials, metrics, kept, level) for trials in dict.fromkeys(rows.values())}
    too_few = tuple(kind for kind, trials in rows.items() if found[trials] is None)
    return Intervals(
        {kind: found[trials] or {} for kind, trials in rows.items()}, level, n_speakers, too_few
    )
