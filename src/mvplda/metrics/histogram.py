"""Measures from counts, for scores that do not fit in memory or never meet in one place.

Every batch is counted into bins of equal width and forgotten. At the edges of the
bins the ROC is known exactly; inside a bin the order is not. Counting a bin as one
tie is the worst order, all its non-targets below its targets the best: the two
hulls bracket the exact one, so EER, minDCF and minCllr come with bounds that the
exact value cannot leave. The bounds are narrow where a bin holds few of the scores;
more bins narrow them. Cllr is a sum and needs no bins.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._typing import Array
from ..exceptions import DataError, ParameterError
from .costs import DetectionCost, detection_cost
from .curves import STRETCH, Hull, Scores, as_scores, pool, reject_nan, softplus_mean


@dataclass(frozen=True)
class Bounds:
    """The exact value is in [low, high]; ``value`` is the middle, wrong by at most ``error``."""

    low: float
    high: float

    @property
    def value(self) -> float:
        return (self.low + self.high) / 2

    @property
    def error(self) -> float:
        return (self.high - self.low) / 2


class ScoreHistogram:
    """Counts of target and non-target scores in bins, with one open bin at either end.

    Parameters
    ----------
    low, high : float
        Where the bins begin and end. Scores outside are counted in the open bins, and
        make the bounds wider only if targets and non-targets meet there.
    bins : int
        How many there are between; the memory is 16 bytes each.

    Examples
    --------
    >>> from mvplda.metrics import ScoreHistogram
    >>> histogram = ScoreHistogram()
    >>> for batch in ([2.0, 3.0], [1.0, 4.0]):
    ...     histogram.add(batch, is_target=True)
    >>> histogram.add([0.0, -1.0, 1.5, -2.0], is_target=False)
    >>> histogram.eer()
    Bounds(low=0.125, high=0.125)
    """

    def __init__(self, low: float = -100.0, high: float = 100.0, bins: int = 400_000) -> None:
        if not (np.isfinite(low) and np.isfinite(high) and low < high and bins >= 1):
            raise ParameterError(f"bins need finite low < high and at least one bin; got {low}, {high}, {bins}")
        self.low, self.high, self.bins = float(low), float(high), int(bins)
        self.counts: NDArray[np.int64] = np.zeros((2, self.bins + 2), dtype=np.int64)  # non-targets, targets
        self._cost = np.zeros(2)  # sums of the softplus of the scores, for Cllr

    @property
    def resolution(self) -> float:
        """Width of a bin."""
        return (self.high - self.low) / self.bins

    @property
    def n_targets(self) -> int:
        return int(self.counts[1].sum())

    @property
    def n_nontargets(self) -> int:
        return int(self.counts[0].sum())

    def _bin(self, scores: Any) -> NDArray[np.intp]:
        """The bin of a score. It never falls when the score rises, whatever the rounding."""
        place = np.floor((np.asarray(scores, np.float64) - self.low) / self.resolution) + 1
        return np.asarray(np.clip(place, 0, self.bins + 1), dtype=np.intp)

    def add(self, scores: Any, is_target: Any) -> None:
        """Count a batch: ``is_target`` is one boolean for all of it, or one for every score."""
        batch = np.asarray(scores)
        if batch.size == 0:
            return
        if np.ndim(is_target) == 0:
            self._add(as_scores(batch, "batch of"), int(bool(is_target)))
            return
        flags = np.asarray(is_target)
        if flags.dtype != bool or flags.shape != batch.shape:
            raise DataError(
                f"is_target must be a boolean, or booleans of the shape of the scores, {batch.shape}; "
                f"got {flags.dtype} of shape {flags.shape}"
            )
        for row, part in enumerate((batch[~flags], batch[flags])):
            if part.size:
                self._add(as_scores(part, "batch of"), row)

    def _add(self, scores: Scores, row: int) -> None:
        reject_nan(scores, ("non-target", "target")[row])
        for start in range(0, len(scores), STRETCH):
            places = self._bin(scores[start : start + STRETCH])
            self.counts[row] += np.bincount(places, minlength=self.bins + 2)
        self._cost[row] += len(scores) * softplus_mean(scores, -1.0 if row else 1.0)

    def merge(self, other: ScoreHistogram) -> ScoreHistogram:
        """A new histogram of the scores of both, which must have the same bins."""
        if (self.low, self.high, self.bins) != (other.low, other.high, other.bins):
            mine, theirs = (f"{h.bins} in [{h.low:g}, {h.high:g}]" for h in (self, other))
            raise ParameterError(f"histograms must have the same bins to be merged; got {mine} and {theirs}")
        merged = ScoreHistogram(self.low, self.high, self.bins)
        merged.counts = self.counts + other.counts
        merged._cost = self._cost + other._cost
        return merged

    def _edges(self) -> tuple[Array, Array]:
        """Targets and non-targets below every edge, from nothing to all."""
        if not self.n_targets or not self.n_nontargets:
            raise DataError(
                "both targets and non-targets are needed; "
                f"{self.n_targets} target and {self.n_nontargets} non-target scores were added"
            )
        filled = self.counts.any(axis=0)
        nontargets, targets = np.cumsum(self.counts[:, filled], axis=1).astype(np.float64)
        return np.concatenate([[0.0], targets]), np.concatenate([[0.0], nontargets])

    def hulls(self) -> tuple[Hull, Hull]:
        """The convex hull if every bin is in its best order, and if every bin is one tie."""
        targets, nontargets = self._edges()
        best_targets = np.repeat(targets, 2)[:-1]  # within a bin first all its non-targets ...
        best_nontargets = np.repeat(nontargets, 2)[1:]  # ... then all its targets
        return Hull(*pool(best_targets, best_nontargets)), Hull(*pool(targets, nontargets))

    def eer(self) -> Bounds:
        """Equal error rate of the convex hull."""
        best, tied = self.hulls()
        return Bounds(best.eer(), tied.eer())

    def min_dcf(self, cost: str | DetectionCost = "default") -> Bounds:
        """Least normalised detection cost."""
        cost = detection_cost(cost)
        best, tied = (float(hull.least(cost.miss_weight, cost.false_alarm_weight)[0]) for hull in self.hulls())
        return Bounds(best, tied)

    def act_dcf(self, cost: str | DetectionCost = "default") -> Bounds:
        """Normalised detection cost at Bayes' threshold; what is in the threshold's bin may be on either side."""
        cost = detection_cost(cost)
        self._edges()
        place = int(self._bin(cost.threshold))
        below, inside = self.counts[:, :place].sum(axis=1), self.counts[:, place]
        miss = np.array([below[1], below[1] + inside[1]]) / self.n_targets
        false_alarm = 1 - np.array([below[0] + inside[0], below[0]]) / self.n_nontargets
        return Bounds(*(float(value) for value in cost.at(miss, false_alarm)))

    def min_cllr(self) -> Bounds:
        """Cllr after the best rising recalibration."""
        best, tied = self.hulls()
        return Bounds(best.min_cllr(), tied.min_cllr())

    def cllr(self) -> float:
        """Cllr in bits; exact, for the sums are kept."""
        self._edges()
        return float((self._cost[1] / self.n_targets + self._cost[0] / self.n_nontargets) / (2 * np.log(2)))
