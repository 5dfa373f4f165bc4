"""Whether one system beats another on the same trials: a paired bootstrap over speakers.

A convex hull flatters the scores that it was drawn around, and the hull of a resample,
with its repeated trials, does so twice. In a difference of two systems the flattery
cancels, so percentiles will do; in a single system's error rate it does not.

Replicates of n speakers spread too little, by sqrt(1 - 1/n), and what is known of their
spread is worth Student's t of n - 1 degrees of freedom. Percentiles are expanded by both: an
end for which the normal asks z is taken where t sqrt(n / (n - 1)) is. The p-value is in step. Where
impostors are not enrolled, n is the number of speakers who count (:mod:`mvplda.metrics.jackknife`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri, stdtr, stdtrit

from .._progress import Progress
from .._typing import Array, RandomState
from ..costs import Costs
from ..exceptions import DataError, ParameterError
from ..kinds import Kinds
from .catalogue import FARS, Metric, metrics_of
from .intervals import plain
from .jackknife import check_level
from .weighted import WeightedTrials, speaker_codes, weighted_trials

KNOWN = 0.9
"""Where fewer of the resamples than these have both targets and non-targets, there are too few speakers for a test."""


@dataclass(frozen=True)
class PairedTest:
    """One metric of two systems on the same trials.

    difference : a - b; below zero, A is better, for every metric is an error
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
    """Paired tests by kind and metric."""

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
                kind: {name: {**plain(test), "verdict": test.verdict} for name, test in row.items()}
                for kind, row in self.tests.items()
            },
        }


def _draw(
    systems: list[dict[str, WeightedTrials]],
    metrics: Sequence[Metric],
    n_speakers: int,
    n_resamples: int,
    random_state: RandomState,
    verbose: bool,
) -> tuple[list[dict[str, Array]], list[dict[str, Array]]]:
    """Estimates and replicates of every system, all systems on the same resamples; NaN of what is not known."""
    rng = np.random.default_rng(random_state)
    once = np.ones(n_speakers + 1)  # the last one stands for "the same person", see speaker_codes
    estimates = [
        {kind: _measure(trials, metrics, once, True) for kind, trials in row.items()}
        for row in systems
    ]
    replicates: list[dict[str, list[Array]]] = [{kind: [] for kind in system} for system in systems]
    progress = Progress("bootstrap over speakers", n_resamples) if verbose else None
    every = 1 if progress is not None and progress.in_place else max(1, n_resamples // 10)
    for b in range(n_resamples):
        drawn = np.bincount(
            rng.integers(n_speakers, size=n_speakers), minlength=n_speakers + 1
        ).astype(np.float64)
        drawn[-1] = 1.0
        for system, rows in zip(systems, replicates, strict=True):
            measured = {
                trials: _measure(trials, metrics, drawn)
                for trials in dict.fromkeys(system.values())
            }
            for kind, trials in system.items():
                rows[kind].append(measured[trials])
        if progress is not None and ((b + 1) % every == 0 or b + 1 == n_resamples):
            progress.step(b + 1)
    return estimates, [{kind: np.array(rows[kind]) for kind in rows} for rows in replicates]


def _measure(
    trials: WeightedTrials, metrics: Sequence[Metric], times: Array, checked: bool = False
) -> Array:
    curve = trials.under(times)
    if curve is None:
        return np.full(len(metrics), np.nan)
    return np.array([m.value(curve) if not checked or m.enough(curve) else np.nan for m in metrics])


def _check_settings(level: float, n_resamples: int) -> None:
    check_level(level)
    if n_resamples < 2:
        raise ParameterError(
            f"a bootstrap needs at least 2 resamples, better some hundreds; got {n_resamples}"
        )


def _quantiles(values: Array, level: float, speakers: float) -> tuple[float, float]:
    """Expanded percentiles of the replicates that had both targets and non-targets."""
    known = values[~np.isnan(values)]
    z = stdtrit(speakers - 1, (1 + level) / 2) * math.sqrt(speakers / (speakers - 1))
    low, high = np.quantile(
        known, [ndtr(-z), ndtr(z)], method="nearest" if np.isinf(known).any() else "linear"
    )
    return float(low), float(high)


def _p_value(differences: Array, speakers: float) -> float:
    """Two-sided, of no difference; the observed trials count as one more resample."""
    known = differences[~np.isnan(differences)]
    tail = min(int((known <= 0).sum()), int((known >= 0).sum()))
    z = float(ndtri(min(0.5, (tail + 1) / (len(known) + 1))))
    return float(2 * stdtr(speakers - 1, z / math.sqrt(speakers / (speakers - 1))))


def _ratios(a: Array, b: Array) -> Array:
    """a / b of replicates; without an error of B, no error of A is one, and any is infinitely more."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where((a == 0) & (b == 0), 1.0, a / b)


def compare_systems(
    scores_a: ArrayLike,
    scores_b: ArrayLike,
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
    n_resamples: int = 1000,
    level: float = 0.95,
    random_state: RandomState = None,
    verbose: bool = False,
) -> Comparison:
    """Whether system A beats system B on the same trials.

    Both are measured on the same resamples of the speakers, so that what is hard for both
    cancels in the difference. The p-value rests on the smaller share of differences on
    either side of zero.

    Parameters
    ----------
    scores_a, scores_b
        Of the same trials.
    kinds, enrol_speakers, test_speakers, costs, far, frr, target, equal_weights, weights, level
        As for :func:`speaker_intervals`.
    n_resamples : int
        How often the speakers are drawn; 1000 fix either end of an interval to about 2 % of its width.
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
    shapes = np.shape(scores_a), np.shape(scores_b)
    if shapes[0] != shapes[1]:
        raise DataError(
            f"a paired test needs the same trials of both systems; got shapes {shapes[0]} and {shapes[1]}"
        )
    metrics = [metric for metric in metrics_of(costs, far, frr) if metric.is_error]
    first, second, n_speakers = speaker_codes(enrol_speakers, test_speakers, shapes[0])
    systems = [
        weighted_trials(s, kinds, (first, second), target, equal_weights, weights)
        for s in (scores_a, scores_b)
    ]
    estimates, replicates = _draw(systems, metrics, n_speakers, n_resamples, random_state, verbose)
    tests: dict[str, dict[str, PairedTest]] = {}
    for kind, trials in systems[0].items():
        tests[kind] = {}
        speakers = min(trials.speakers(n_speakers))
        for i, name in enumerate(metric.name for metric in metrics):
            a, b = (float(estimate[kind][i]) for estimate in estimates)
            with np.errstate(invalid="ignore"):  # both infinite: no difference is known
                differences = replicates[0][kind][:, i] - replicates[1][kind][:, i]
            known = 0.0 if speakers < 2 else np.mean(~np.isnan(differences))
            if not (math.isfinite(a) and math.isfinite(b)) or known < KNOWN:
                unknown = math.nan
                tests[kind][name] = PairedTest(
                    a, b, unknown, unknown, unknown, unknown, level, unknown, unknown
                )
                continue
            low, high = _quantiles(differences, level, speakers)
            p_value = _p_value(differences, speakers)
            ratios = _ratios(replicates[0][kind][:, i], replicates[1][kind][:, i])
            ends = _quantiles(ratios, level, speakers)
            tests[kind][name] = PairedTest(a, b, a - b, low, high, p_value, level, *ends)
    return Comparison(tests, level, n_resamples, n_speakers)
