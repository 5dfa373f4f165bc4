"""Paired test of two systems on the same trials, by a bootstrap over speakers.

EER, minDCF and minCllr are measured on the convex hull of the same scores, and are too low on average; on a resample,
which repeats trials, they are even lower. In the difference of two systems this bias cancels, so that percentiles of a
bootstrap are valid for a difference. For the error rate of a single system they are not valid.

The spread of replicates of n speakers is too small by sqrt(1 - 1/n), and it is estimated with
n - 1 degrees of freedom. The percentiles are widened for both: the normal quantile z is replaced
by t sqrt(n / (n - 1)) with Student's t. The p-value is computed in the same way. If impostors are
not enrolled, n is the effective number of speakers (:mod:`mvplda.metrics.catalogue`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal

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
"""Smallest share of resamples with both targets and non-targets; below it there are too few speakers for a test."""


@dataclass(frozen=True)
class PairedTest:
    """Test of one metric of two systems, A and B, on the same trials; NaN where there are too few speakers.

    a, b : value of the metric of each system
    difference : a - b; negative if A is better, because all tested metrics are error rates or costs
    low, high : interval of the difference
    p_value : two-sided p-value of the hypothesis that there is no difference
    ratio_low, ratio_high : interval of the ratio a / b
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
        """Ratio a / b of the values of the two systems; NaN if b is 0."""
        return self.a / self.b if self.b else math.nan

    @property
    def verdict(self) -> str:
        """``"A"`` or ``"B"`` if one system is significantly better, else ``"undecided"``."""
        if not self.p_value < 1 - LEVEL:
            return "undecided"
        return "A" if self.difference < 0 else "B"


@dataclass(frozen=True)
class SystemComparison:
    """Paired tests of two systems.

    tests : test by kind of trial and name of the metric
    n_resamples : number of draws of the speakers
    n_speakers : number of speakers
    """

    tests: dict[str, dict[str, PairedTest]]
    n_resamples: int
    n_speakers: int

    def to_dict(self) -> Json:
        """Return the results as plain values for JSON; numbers that are not finite become None."""
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
    """Return the ends of an interval: widened percentiles of the values of resamples.

    values : (resamples,) values; NaN for resamples without targets or non-targets, which are ignored
    speakers : effective number of speakers
    """
    defined = values[~np.isnan(values)]
    z = stdtrit(speakers - 1, (1 + LEVEL) / 2) * math.sqrt(speakers / (speakers - 1))
    # Interpolation between infinite values is undefined.
    method: Literal["nearest", "linear"] = "nearest" if np.isinf(defined).any() else "linear"
    low, high = np.quantile(defined, [ndtr(-z), ndtr(z)], method=method)
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
    """Test whether system A has lower errors than system B on the same trials.

    Both systems are measured on the same resamples of the speakers, so that speakers who are difficult for both do not
    matter for the difference. The p-value is based on the share of resamples in which the difference has the other
    sign.

    Parameters
    ----------
    scores_a, scores_b
        Scores of the same trials, of any shape.
    kinds, enrol_speakers, test_speakers, costs, weights
        As for :func:`speaker_intervals`.
    n_resamples : int
        Number of draws of the speakers; with 1000, the ends of an interval vary by about 2 % of its width.
    random_state : int, Generator or None
        Seed of the draws.

    Notes
    -----
    Time is linear in trials times resamples (a million trials of two or three kinds
    take a few hundredths of a second per resample); the scores are sorted once.
    """
    if n_resamples < 2:
        raise ParameterError(
            f"a bootstrap needs at least 2 resamples, better several hundred; got {n_resamples}"
        )
    if np.shape(scores_a) != np.shape(scores_b):
        raise DataError(
            f"a paired test needs the same trials of both systems; got shapes {np.shape(scores_a)} and "
            f"{np.shape(scores_b)}"
        )
    metrics = [metric for metric in metrics_of(costs, ()) if metric.is_error]
    sides = (enrol_speakers, test_speakers)
    systems = [weighted_trials(scores, kinds, sides, weights) for scores in (scores_a, scores_b)]
    n_speakers = next(iter(systems[0].values())).n_speakers
    rng = np.random.default_rng(random_state)
    # Row 0 keeps all speakers; the last column stands for "the same person", see speaker_codes.
    multiplicities = np.ones((n_resamples + 1, n_speakers + 1))
    for row in multiplicities[1:]:
        row[:-1] = np.bincount(rng.integers(n_speakers, size=n_speakers), minlength=n_speakers)

    @cache  # a single kind of non-target shares its trials with the total
    def replicates(trials: WeightedTrials) -> Array:
        """Return the values (resamples + 1, metrics) of one system, first for all speakers, then for each resample.

        A resample without targets or without non-targets has NaN.
        """
        values = np.full((len(multiplicities), len(metrics)), np.nan)
        for b, multiplicity in enumerate(multiplicities):
            curve = trials.under(multiplicity)
            if curve is not None:
                values[b] = [metric.value(curve) for metric in metrics]
        return values

    tests: dict[str, dict[str, PairedTest]] = {}
    for kind, trials in systems[0].items():
        values_a = replicates(trials).T
        values_b = replicates(systems[1][kind]).T
        speakers = min(trials.speakers())
        tests[kind] = {
            metric.name: paired_test(a, b, speakers)
            for metric, a, b in zip(metrics, values_a, values_b, strict=True)
        }
    return SystemComparison(tests, n_resamples, n_speakers)


def paired_test(a: Array, b: Array, speakers: float) -> PairedTest:
    """Test whether two systems differ in one metric.

    a, b : (resamples + 1,) values of the metric of each system, first for all speakers, then for each resample
    speakers : effective number of speakers
    """
    # The difference of two infinite values is undefined; the ratio of two zeros counts as 1.
    with np.errstate(invalid="ignore", divide="ignore"):
        differences = a - b
        ratios = np.where((a == 0) & (b == 0), 1.0, a / b)
    is_finite = np.isfinite(a[0]) and np.isfinite(b[0])
    defined_share = np.mean(~np.isnan(differences[1:]))
    if not is_finite or speakers < 2 or defined_share < MIN_DEFINED_SHARE:
        return PairedTest(float(a[0]), float(b[0]))

    low, high = _quantiles(differences[1:], speakers)
    # The observed trials count as one more resample.
    drawn = differences[1:][~np.isnan(differences[1:])]
    tail = min(int((drawn <= 0).sum()), int((drawn >= 0).sum()))
    z = float(ndtri(min(0.5, (tail + 1) / (len(drawn) + 1))))
    p_value = float(2 * stdtr(speakers - 1, z / math.sqrt(speakers / (speakers - 1))))

    ratio_low, ratio_high = _quantiles(ratios[1:], speakers)
    return PairedTest(
        a=float(a[0]),
        b=float(b[0]),
        difference=float(differences[0]),
        low=low,
        high=high,
        p_value=p_value,
        ratio_low=ratio_low,
        ratio_high=ratio_high,
    )
