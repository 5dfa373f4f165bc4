"""Confidence intervals over speakers, and whether one system beats another.

What is drawn, and what a drawn trial weighs, is told in :mod:`mvplda.metrics.resampling`.

The intervals are bias-corrected percentiles. A convex hull flatters the scores that it
was drawn around, and the hull of a resample, with its repeated trials, does so twice;
plain percentiles therefore lie too low. With z0 the normal quantile of the share of
replicates below the estimate, the interval goes from the replicates' quantile
Phi(2 z0 - z) to Phi(2 z0 + z), z being that of the level. In a paired difference the
flattery cancels, and its interval is of plain percentiles, in step with the p-value.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from ..exceptions import DataError, ParameterError
from ..kernel.records import Array
from ..progress import Progress
from .costs import DetectionCost, detection_costs
from .resampling import WeightedCurve, measure_names, speaker_codes, weighted_curves

Costs = str | DetectionCost | Iterable[str | DetectionCost]


@dataclass(frozen=True)
class Interval:
    """A measure, its confidence interval and its standard error."""

    estimate: float
    low: float
    high: float
    standard_error: float


@dataclass(frozen=True)
class Intervals:
    """Intervals by kind and measure (``eer``, ``min_dcf/default``, ...).

    replicates : by kind, (n_resamples, measures) in the order of ``measures``
    """

    intervals: dict[str, dict[str, Interval]]
    measures: list[str]
    replicates: dict[str, Array]
    level: float
    n_resamples: int
    n_speakers: int

    def definition(self) -> str:
        """What the intervals are, in one sentence."""
        return (
            f"[low, high]: {100 * self.level:g} % bias-corrected bootstrap interval, {self.n_resamples} resamples "
            f"of the {self.n_speakers} speakers."
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, without the replicates; what is not finite is None."""
        kinds = {kind: {name: _plain(item) for name, item in row.items()} for kind, row in self.intervals.items()}
        return {
            "level": self.level,
            "n_resamples": self.n_resamples,
            "n_speakers": self.n_speakers,
            "definition": self.definition(),
            "kinds": kinds,
        }


@dataclass(frozen=True)
class PairedTest:
    """One measure of two systems on the same trials.

    difference : a - b; below zero, A is better, for every measure is an error
    low, high : interval of the difference
    p_value : two-sided, of no difference
    ratio_low, ratio_high : interval of a / b
    """

    a: float
    b: float
    difference: float
    low: float
    high: float
    p_value: float
    level: float
    ratio_low: float
    ratio_high: float

    @property
    def ratio(self) -> float:
        """a / b."""
        return self.a / self.b if self.b else math.nan

    @property
    def verdict(self) -> str:
        """``"A"`` or ``"B"`` if one is better at this level, else ``"undecided"``."""
        if not self.p_value < 1 - self.level:
            return "undecided"
        return "A" if self.difference < 0 else "B"


@dataclass(frozen=True)
class Comparison:
    """Paired tests by kind and measure."""

    tests: dict[str, dict[str, PairedTest]]
    level: float
    n_resamples: int
    n_speakers: int

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; what is not finite is None."""
        return {
            "level": self.level,
            "n_resamples": self.n_resamples,
            "n_speakers": self.n_speakers,
            "kinds": {
                kind: {name: {**_plain(test), "verdict": test.verdict} for name, test in row.items()}
                for kind, row in self.tests.items()
            },
        }


def _plain(record: Interval | PairedTest) -> dict[str, float | None]:
    return {name: float(value) if math.isfinite(value) else None for name, value in vars(record).items()}


def _draw(
    systems: list[dict[str, WeightedCurve]], n_speakers: int, n_resamples: int, random_state: Any, verbose: bool
) -> tuple[list[dict[str, Array]], list[dict[str, Array]]]:
    """Estimates and replicates of every system, all systems on the same resamples."""
    rng = np.random.default_rng(random_state)
    once = np.ones(n_speakers + 1)  # the last one stands for "the same person", see speaker_codes
    estimates = [{kind: curve.measure(once) for kind, curve in system.items()} for system in systems]
    replicates: list[dict[str, list[Array]]] = [{kind: [] for kind in system} for system in systems]
    progress = Progress("bootstrap over speakers", n_resamples) if verbose else None
    every = 1 if progress is not None and progress.in_place else max(1, n_resamples // 10)
    for b in range(n_resamples):
        drawn = np.bincount(rng.integers(n_speakers, size=n_speakers), minlength=n_speakers + 1).astype(np.float64)
        drawn[-1] = 1.0
        for system, rows in zip(systems, replicates, strict=True):
            measured = {id(curve): curve.measure(drawn) for curve in dict.fromkeys(system.values())}
            for kind, curve in system.items():
                rows[kind].append(measured[id(curve)])
        if progress is not None and ((b + 1) % every == 0 or b + 1 == n_resamples):
            progress.step(b + 1)
    return estimates, [{kind: np.array(rows[kind]) for kind in rows} for rows in replicates]


def _check_settings(level: float, n_resamples: int) -> None:
    if not 0 < level < 1:
        raise ParameterError(f"the level of an interval must be in (0, 1), such as 0.95; got {level}")
    if n_resamples < 2:
        raise ParameterError(f"a bootstrap needs at least 2 resamples, better some hundreds; got {n_resamples}")


def _quantiles(values: Array, level: float, kind: str, estimate: float | None = None) -> tuple[float, float]:
    """Percentiles of the replicates that had both targets and non-targets, bias-corrected if an estimate is given."""
    known = values[~np.isnan(values)]
    if len(known) < 0.9 * len(values):
        raise DataError(
            f"{len(values) - len(known)} of {len(values)} resamples have no target or no {kind} trial: "
            "there are too few speakers for intervals of this kind"
        )
    z = ndtri((1 + level) / 2)
    shift = 0.0
    if estimate is not None:
        below = ((known < estimate).sum() + 0.5 * (known == estimate).sum() + 0.5) / (len(known) + 1)
        shift = 2 * ndtri(below)
    ends = [ndtr(shift - z), ndtr(shift + z)]
    low, high = np.quantile(known, ends, method="nearest" if np.isinf(known).any() else "linear")
    return float(low), float(high)


def _ratios(a: Array, b: Array) -> Array:
    """a / b of replicates; without an error of B, no error of A is one, and any is infinitely more."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where((a == 0) & (b == 0), 1.0, a / b)


def speaker_bootstrap(
    scores: Any,
    kinds: Any,
    enrol_speakers: Any,
    test_speakers: Any,
    costs: Costs = ("default",),
    *,
    target: str | None = None,
    equal_weights: bool = False,
    n_resamples: int = 1000,
    level: float = 0.95,
    random_state: Any = None,
    verbose: bool = False,
) -> Intervals:
    """Confidence intervals of every measure by kind, by a bootstrap over speakers.

    Parameters
    ----------
    scores, kinds, costs, target, equal_weights
        As for :func:`evaluate`.
    enrol_speakers, test_speakers : array-like
        The true speakers of every trial; or, if ``scores`` is (enrol, test), of every row
        and of every column.
    n_resamples : int
        How often the speakers are drawn; 1000 fix either end of an interval to about 2 % of its width.
    level : float
        The share of the replicates that the interval holds.
    random_state : int, Generator or None
        Seed of the draws.
    verbose : bool
        Show progress on standard error.

    Notes
    -----
    Time is linear in trials times resamples (a million trials of two or three kinds
    take a few hundredths of a second a resample); the scores are sorted once.
    """
    _check_settings(level, n_resamples)
    found = detection_costs(costs)
    first, second, n_speakers = speaker_codes(enrol_speakers, test_speakers, np.shape(scores))
    curves = weighted_curves(scores, kinds, (first, second), found, target, equal_weights)
    (estimates,), (replicates,) = _draw([curves], n_speakers, n_resamples, random_state, verbose)
    names = measure_names(found)
    intervals: dict[str, dict[str, Interval]] = {}
    for kind in curves:
        intervals[kind] = {}
        for i, name in enumerate(names):
            values = replicates[kind][:, i]
            low, high = _quantiles(values, level, kind, float(estimates[kind][i]))
            finite = values[np.isfinite(values)]
            spread = float(finite.std(ddof=1)) if len(finite) > 1 else math.nan
            intervals[kind][name] = Interval(float(estimates[kind][i]), low, high, spread)
    return Intervals(intervals, names, replicates, level, n_resamples, n_speakers)


def compare_systems(
    scores_a: Any,
    scores_b: Any,
    kinds: Any,
    enrol_speakers: Any,
    test_speakers: Any,
    costs: Costs = ("default",),
    *,
    target: str | None = None,
    equal_weights: bool = False,
    n_resamples: int = 1000,
    level: float = 0.95,
    random_state: Any = None,
    verbose: bool = False,
) -> Comparison:
    """Whether system A beats system B on the same trials.

    Both are measured on the same resamples of the speakers, so that what is hard for both
    cancels in the difference. The p-value is twice the smaller share of differences on
    either side of zero, the observed trials counted as one more resample; it is never
    below 2 / (n_resamples + 1). Parameters are those of :func:`speaker_bootstrap`.
    """
    _check_settings(level, n_resamples)
    shapes = np.shape(scores_a), np.shape(scores_b)
    if shapes[0] != shapes[1]:
        raise DataError(f"a paired test needs the same trials of both systems; got shapes {shapes[0]} and {shapes[1]}")
    found = detection_costs(costs)
    first, second, n_speakers = speaker_codes(enrol_speakers, test_speakers, shapes[0])
    systems = [weighted_curves(s, kinds, (first, second), found, target, equal_weights) for s in (scores_a, scores_b)]
    estimates, replicates = _draw(systems, n_speakers, n_resamples, random_state, verbose)
    tests: dict[str, dict[str, PairedTest]] = {}
    for kind in systems[0]:
        tests[kind] = {}
        for i, name in enumerate(measure_names(found)):
            a, b = (float(estimate[kind][i]) for estimate in estimates)
            with np.errstate(invalid="ignore"):  # both infinite: no difference is known
                differences = replicates[0][kind][:, i] - replicates[1][kind][:, i]
            if not (math.isfinite(a) and math.isfinite(b)):
                unknown = math.nan
                tests[kind][name] = PairedTest(a, b, unknown, unknown, unknown, unknown, level, unknown, unknown)
                continue
            low, high = _quantiles(differences, level, kind)
            known = differences[~np.isnan(differences)]
            tail = min(int((known <= 0).sum()), int((known >= 0).sum()))
            p_value = min(1.0, 2 * (tail + 1) / (len(known) + 1))
            ratios = _quantiles(_ratios(replicates[0][kind][:, i], replicates[1][kind][:, i]), level, kind)
            tests[kind][name] = PairedTest(a, b, a - b, low, high, p_value, level, *ratios)
    return Comparison(tests, level, n_resamples, n_speakers)
