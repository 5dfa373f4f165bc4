"""Whether one system beats another on the same trials: a paired bootstrap over speakers.

A convex hull flatters the scores that it was drawn around, and the hull of a resample,
with its repeated trials, does so twice. In a difference of two systems the flattery
cancels, so percentiles will do; in a single system's error rate it does not.

Replicates of n speakers spread too little, by sqrt(1 - 1/n), and what is known of their
spread is worth Student's t of n - 1 degrees of freedom. Percentiles are expanded by both: an
end for which the normal asks z is taken where t sqrt(n / (n - 1)) is. The p-value is in step. Where
impostors are not enrolled, n is the number of speakers who count (:mod:`mvplda.metrics.catalogue`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri, stdtr, stdtrit

from .._typing import Array, Json, RandomState
from ..costs import Costs
from ..exceptions import DataError, ParameterError
from ..kinds import Kinds
from .catalogue import LEVEL, metrics_of
from .intervals import WeightedTrials, finite_numbers, weighted_trials

MIN_DEFINED_SHARE = 0.9
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
    difference: float = math.nan
    low: float = math.nan
    high: float = math.nan
    p_value: float = math.nan
    ratio_low: float = math.nan
    ratio_high: float = math.nan

    @property
    def ratio(self) -> float:
        """a / b."""
        return self.a / self.b if self.b else math.nan

    @property
    def verdict(self) -> str:
        """``"A"`` or ``"B"`` if one is better, else ``"undecided"``."""
        if not self.p_value < 1 - LEVEL:
            return "undecided"
        return "A" if self.difference < 0 else "B"


@dataclass(frozen=True)
class SystemComparison:
    """Paired tests by kind and metric."""

    tests: dict[str, dict[str, PairedTest]]
    n_resamples: int
    n_speakers: int

    def to_dict(self) -> Json:
        """Plain values for JSON; what is not finite is None."""
        return {
            "level": LEVEL,
            "n_resamples": self.n_resamples,
            "n_speakers": self.n_speakers,
            "kinds": {
                kind: {
                    name: {**finite_numbers(test), "verdict": test.verdict}
                    for name, test in row.items()
                }
                for kind, row in self.tests.items()
            },
        }


def _quantiles(values: Array, speakers: float) -> tuple[float, float]:
    """Expanded percentiles of the replicates that had both targets and non-targets."""
    known = values[~np.isnan(values)]
    z = stdtrit(speakers - 1, (1 + LEVEL) / 2) * math.sqrt(speakers / (speakers - 1))
    low, high = np.quantile(
        known, [ndtr(-z), ndtr(z)], method="nearest" if np.isinf(known).any() else "linear"
    )
    return float(low), float(high)


def compare_systems(
    scores_a: ArrayLike,
    scores_b: ArrayLike,
    kinds: Kinds,
    enrol_speakers: ArrayLike,
    test_speakers: ArrayLike,
    costs: Costs = ("default",),
    *,
    weights: Mapping[str, float] | None = None,
    n_resamples: int = 1000,
    random_state: RandomState = None,
) -> SystemComparison:
    """Whether system A beats system B on the same trials.

    Both are measured on the same resamples of the speakers, so that what is hard for both
    cancels in the difference. The p-value rests on the smaller share of differences on
    either side of zero.

    Parameters
    ----------
    scores_a, scores_b
        Of the same trials.
    kinds, enrol_speakers, test_speakers, costs, weights
        As for :func:`speaker_intervals`.
    n_resamples : int
        How often the speakers are drawn; 1000 fix either end of an interval to about 2 % of its width.
    random_state : int, Generator or None
        Seed of the draws.

    Notes
    -----
    Time is linear in trials times resamples (a million trials of two or three kinds
    take a few hundredths of a second a resample); the scores are sorted once.
    """
    if n_resamples < 2:
        raise ParameterError(
            f"a bootstrap needs at least 2 resamples, better some hundreds; got {n_resamples}"
        )
    if np.shape(scores_a) != np.shape(scores_b):
        raise DataError(
            f"a paired test needs the same trials of both systems; got shapes {np.shape(scores_a)} and "
            f"{np.shape(scores_b)}"
        )
    metrics = [metric for metric in metrics_of(costs, ()) if metric.is_error]
    sides = (enrol_speakers, test_speakers)
    systems = [weighted_trials(s, kinds, sides, weights) for s in (scores_a, scores_b)]
    n_speakers = next(iter(systems[0].values())).n_speakers
    rng = np.random.default_rng(random_state)
    # the first is the list as it is; the last speaker stands for "the same person", see speaker_codes
    times = np.ones((n_resamples + 1, n_speakers + 1))
    for row in times[1:]:
        row[:-1] = np.bincount(rng.integers(n_speakers, size=n_speakers), minlength=n_speakers)

    @cache  # the only kind is the total, too
    def measured(trials: WeightedTrials) -> Array:
        values = np.full((len(times), len(metrics)), np.nan)
        for b, multiplicity in enumerate(times):
            curve = trials.under(multiplicity)
            if curve is not None:
                values[b] = [metric.value(curve) for metric in metrics]
        return values

    tests: dict[str, dict[str, PairedTest]] = {}
    for kind, trials in systems[0].items():
        pairs = zip(measured(trials).T, measured(systems[1][kind]).T, strict=True)
        speakers = min(trials.speakers())
        tests[kind] = {
            metric.name: _paired(*pair, speakers)
            for metric, pair in zip(metrics, pairs, strict=True)
        }
    return SystemComparison(tests, n_resamples, n_speakers)


def _paired(a: Array, b: Array, speakers: float) -> PairedTest:
    """The test of a metric, from its values of both systems: of all speakers, then of every resample."""
    with np.errstate(invalid="ignore", divide="ignore"):  # both infinite: no difference is known
        differences = a - b
        # without an error of B, no error of A is one, and any is infinitely more
        ratios = np.where((a == 0) & (b == 0), 1.0, a / b)
    known = np.mean(~np.isnan(differences[1:]))
    if not np.isfinite(a[0]) or not np.isfinite(b[0]) or speakers < 2 or known < MIN_DEFINED_SHARE:
        return PairedTest(float(a[0]), float(b[0]))
    low, high = _quantiles(differences[1:], speakers)
    # two-sided, of no difference; the observed trials count as one more resample
    drawn = differences[1:][~np.isnan(differences[1:])]
    tail = min(int((drawn <= 0).sum()), int((drawn >= 0).sum()))
    z = float(ndtri(min(0.5, (tail + 1) / (len(drawn) + 1))))
    p_value = float(2 * stdtr(speakers - 1, z / math.sqrt(speakers / (speakers - 1))))
    ends = _quantiles(ratios[1:], speakers)
    return PairedTest(float(a[0]), float(b[0]), float(differences[0]), low, high, p_value, *ends)
