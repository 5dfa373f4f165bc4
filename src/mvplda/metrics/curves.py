"""Error rates over all thresholds, from sorted scores.

A *miss* is a target with a score below the threshold, a *false alarm* is a non-target with a score at or above the
threshold. Scores are natural-log likelihood ratios.

Targets and non-targets are sorted separately, in their original precision. The corners of the convex hull of the ROC
lie at scores of targets, which are few.
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import isotonic_regression
from scipy.special import ndtr

from .._typing import Array, FloatArray
from ..exceptions import DataError

Scores = FloatArray
Ranks = NDArray[np.intp]
ROUNDING = 1e-12
"""Tolerance of comparisons of rates."""
CHUNK = 1 << 18
"""Number of scores that are converted to float64 at a time."""


def as_scores(values: ArrayLike, name: str) -> Scores:
    """Return scores as a flat array (n,), float32 or float64; raise `DataError` for NaN, text, or no scores.

    name : adjective of the scores in errors, such as "target"
    """
    array: Scores = np.asarray(values).reshape(-1)
    if array.dtype not in (np.float32, np.float64):
        try:
            array = array.astype(np.float32 if array.dtype == np.float16 else np.float64)
        except (TypeError, ValueError) as error:
            raise DataError(
                f"{name} scores must be numbers; got an array of {array.dtype}"
            ) from error
    if len(array) == 0:
        raise DataError(f"there are no {name} scores: at least one is needed")
    # The minimum propagates NaN without a mask of the length of the scores.
    if np.isnan(array.min()):
        count = int(np.isnan(array).sum())
        raise DataError(
            f"{count} {name} score(s) are NaN; every score must be a number (infinite is allowed)"
        )
    return array


def softplus(scores: Scores) -> Array:
    """Compute log(1 + exp(score)) of each score, in float64 and without overflow."""
    x = scores.astype(np.float64)
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def softplus_mean(scores: Scores, sign: float) -> float:
    """Compute the mean of log(1 + exp(sign * score)), in float64, a chunk of scores at a time."""
    starts = range(0, len(scores), CHUNK)
    total = sum(float(softplus(sign * scores[i : i + CHUNK]).sum()) for i in starts)
    return total / len(scores)


def count_below(
    ordered: Scores, thresholds: ArrayLike, side: Literal["left", "right"] = "left"
) -> Ranks:
    """Count the scores below each threshold (side "left"), or at or below it (side "right").

    For float32 scores, a float64 threshold is rounded up (side "left") or down to the next float32 number. This gives
    the same counts without a float64 copy of the scores.

    ordered : sorted scores, (n,)
    """
    exact = np.asarray(thresholds)
    with np.errstate(over="ignore"):
        rounded = exact.astype(ordered.dtype)
    if rounded.dtype != exact.dtype:
        is_wrong, direction = (rounded < exact, np.inf)
        if side == "right":
            is_wrong, direction = (rounded > exact, -np.inf)
        neighbour = np.nextafter(rounded, np.asarray(direction, rounded.dtype))
        rounded = np.where(is_wrong, neighbour, rounded)
    return np.asarray(np.searchsorted(ordered, rounded, side=side))


@dataclass(frozen=True)
class SortedScores:
    """Sorted scores of targets or of non-targets, with weights.

    scores : (n,) ascending
    weights : (n,) weight of each score; None: 1 each
    costs : (n,) contribution of each score to Cllr, in nats; None: computed when needed
    """

    scores: Scores
    weights: Array | None = None
    costs: Array | None = None

    @cached_property
    def below(self) -> Array:
        """Cumulative weights (n + 1,): element k is the total weight of the k lowest scores."""
        if self.weights is None:
            return np.arange(len(self.scores) + 1.0)
        return np.append(0.0, np.cumsum(self.weights))

    @property
    def total(self) -> float:
        """Total weight of all scores."""
        return float(self.below[-1])

    def share_below(self, thresholds: ArrayLike) -> Array:
        """Compute the weight of the scores below each threshold, as a share of the total weight.

        A threshold of +infinity is above every score, infinite ones too: the share is 1.
        """
        rejected = count_below(self.scores, thresholds)
        rejected = np.where(np.equal(thresholds, np.inf), len(self.scores), rejected)
        return np.asarray(self.below[rejected] / self.total)

    def largest_share(self) -> float:
        """Return the largest weight of a single score as a share of the total."""
        return (1.0 if self.weights is None else float(np.max(self.weights))) / self.total

    def cost(self, sign: float) -> float:
        """Compute the weighted mean of the contributions to Cllr, in nats.

        sign : -1 for targets, +1 for non-targets
        """
        if self.costs is None or self.weights is None:
            return softplus_mean(self.scores, sign)
        with np.errstate(invalid="ignore"):
            mean = float(np.dot(self.weights, self.costs)) / self.total
        if np.isnan(mean):
            # A weight of 0 removes a trial, even one of infinite cost.
            counted_costs = np.where(self.weights > 0, self.costs, 0.0)
            mean = float(np.dot(counted_costs, self.weights)) / self.total
        return mean


def ranks_at_targets(targets: Scores, nontargets: Scores) -> list[Ranks]:
    """Count the targets, and the non-targets, below each possible corner of the convex hull of the ROC.

    Corners lie just below and just above each distinct target score. Between them, the order of non-targets has no
    effect on the hull.

    targets, nontargets : sorted scores

    Returns
    -------
    number of targets below each corner, and number of non-targets below each corner, (2 * distinct target scores,)
    """
    values = targets[np.append(True, targets[1:] != targets[:-1])]
    both = [
        (count_below(a, values), count_below(a, values, "right")) for a in (targets, nontargets)
    ]
    return [np.stack(pair, axis=1).reshape(-1) for pair in both]


class Curve:
    """Sorted and weighted scores of targets and non-targets, from which all metrics are computed.

    targets, others : scores of targets, and of non-targets
    ranks : result of `ranks_at_targets` for these scores; None: computed when needed
    """

    def __init__(
        self, targets: SortedScores, others: SortedScores, ranks: list[Ranks] | None = None
    ) -> None:
        self.targets = targets
        self.others = others
        self._ranks = ranks

    def rates(self, thresholds: ArrayLike) -> tuple[Array, Array]:
        """Compute the miss rate and the false-alarm rate at each threshold.

        Scores at or above a threshold are accepted. Both results have the shape of `thresholds`.
        """
        accepted = 1 - self.others.share_below(thresholds)
        return self.targets.share_below(thresholds), np.asarray(accepted)

    @cached_property
    def hull(self) -> Hull:
        """Convex hull of the ROC; equal scores of targets and non-targets lie on the same step."""
        sides = (self.targets, self.others)
        ranks = self._ranks or ranks_at_targets(self.targets.scores, self.others.scores)
        # Nothing is rejected at the first corner, everything at the last.
        corners = [
            side.below[np.concatenate([[0], side_ranks, [-1]])]
            for side, side_ranks in zip(sides, ranks, strict=True)
        ]
        return Hull(*hull_corners(np.stack(corners)))

    def threshold_for(self, false_alarm: float) -> float:
        """Return the lowest score that can be a threshold with at most this false-alarm rate.

        The result is -infinity if every score may be accepted, and +infinity if none may.
        """
        rejected_weight = (1 - false_alarm - ROUNDING) * self.others.total
        if rejected_weight <= 0:
            return -np.inf
        # Reject the lowest non-targets of at least this weight, and all scores that tie with the last of them.
        count = int(np.searchsorted(self.others.below, rejected_weight))
        highest = self.others.scores[count - 1]
        ranks = [count_below(side.scores, highest, "right") for side in (self.targets, self.others)]
        above = [*self.targets.scores[ranks[0] :][:1], *self.others.scores[ranks[1] :][:1]]
        return float(min(above, default=np.inf))

    def cllr(self) -> float:
        """Compute the cost of log-likelihood ratios, in bits."""
        return (self.targets.cost(-1.0) + self.others.cost(1.0)) / (2 * math.log(2))

    def eer(self) -> float:
        """Compute the equal error rate of the convex hull of the ROC."""
        return self.hull.eer()

    def min_cllr(self) -> float:
        """Compute the least Cllr of any calibration that keeps the order of the scores, in bits."""
        return self.hull.min_cllr()

    def steps(self, max_points: int | None = 2000) -> tuple[Array, Array, Array]:
        """Return ascending thresholds with their miss rates and false-alarm rates, to draw the curve (not its hull).

        The last threshold is infinite: everything is rejected.

        max_points : approximate number of thresholds, chosen evenly on the probit axes of a DET plot; None: all
            distinct scores
        """
        arrays = [self.targets.scores, self.others.scores]
        if max_points is not None and sum(map(len, arrays)) > max_points:
            levels = ndtr(np.linspace(-6, 6, max(2, max_points // 2)))
            levels = np.concatenate([[0.0], levels, [1.0]])
            arrays = [array[(levels * (len(array) - 1)).astype(np.intp)] for array in arrays]
        thresholds = np.unique(np.concatenate(arrays).astype(np.float64))
        miss, false_alarm = self.rates(thresholds)
        # At an infinite threshold, scores of +infinity are rejected too.
        return np.append(thresholds, np.inf), np.append(miss, 1.0), np.append(false_alarm, 0.0)


class ScoreCurve(Curve):
    """Miss and false-alarm rates over all thresholds.

    Parameters
    ----------
    targets, nontargets : array-like
        Scores, of any shape; float32 stays float32.

    Examples
    --------
    >>> from mvplda.metrics import ScoreCurve
    >>> curve = ScoreCurve([2.0, 3.0, 1.0, 4.0], [0.0, -1.0, 1.5, -2.0])
    >>> curve.eer(), curve.rates(1.2)
    (0.125, (array(0.25), array(0.25)))
    """

    def __init__(self, targets: ArrayLike, nontargets: ArrayLike) -> None:
        accepted = np.sort(as_scores(targets, "target"))
        super().__init__(
            SortedScores(accepted), SortedScores(np.sort(as_scores(nontargets, "non-target")))
        )


def eer(targets: ArrayLike, nontargets: ArrayLike) -> float:
    """Compute the equal error rate, at which the convex hull of the ROC has miss = false alarm.

    Examples
    --------
    >>> from mvplda.metrics import eer
    >>> eer([2.0, 3.0, 1.0, 4.0], [0.0, -1.0, 1.5, -2.0])
    0.125
    """
    return ScoreCurve(targets, nontargets).eer()


def cllr(targets: ArrayLike, nontargets: ArrayLike) -> float:
    """Compute the cost of log-likelihood ratios, in bits: 0 is perfect, 1 is the cost of LLRs of 0."""
    # Cllr does not depend on the order, so that the scores are not sorted.
    sides = [
        SortedScores(as_scores(targets, "target")),
        SortedScores(as_scores(nontargets, "non-target")),
    ]
    return Curve(sides[0], sides[1]).cllr()


def min_cllr(targets: ArrayLike, nontargets: ArrayLike) -> float:
    """Compute the least Cllr of any calibration that keeps the order of the scores, in bits."""
    return ScoreCurve(targets, nontargets).min_cllr()


# The convex hull of the ROC.
#
# As a threshold rises through the sorted scores, the pairs (targets below, non-targets
# below) trace the ROC. Pooling adjacent violators (PAV) joins neighbouring groups of
# scores while the higher group has a smaller share of targets; the corners between
# the remaining pools are the lower convex hull. EER, minDCF and minCllr depend only
# on these corners.


def hull_corners(below: Array) -> Array:
    """Return the corners of the convex hull of the points of a ROC.

    below : (2, points) weight of the targets, and of the non-targets, below each threshold, ascending from nothing to
        everything; the result (2, corners) is a selection of these points
    """
    steps = np.diff(below)
    filled = steps.sum(axis=0) > 0  # scores of weight zero are not a step
    below = below[:, np.append(True, filled)]
    targets, nontargets = steps[:, filled]
    total = targets + nontargets
    return below[:, isotonic_regression(targets / total, weights=total).blocks]


@dataclass(frozen=True)
class Hull:
    """Corners of the convex hull of the ROC, from accepting every trial to rejecting every trial.

    targets_below : (corners,) number, or weight, of rejected targets; ascending from 0 to the total
    nontargets_below : (corners,) number, or weight, of rejected non-targets
    """

    targets_below: Array
    nontargets_below: Array

    @property
    def miss(self) -> Array:
        """Share of rejected targets at each corner, ascending from 0 to 1."""
        return self.targets_below / self.targets_below[-1]

    @property
    def false_alarm(self) -> Array:
        """Share of accepted non-targets at each corner, descending from 1 to 0."""
        return 1 - self.nontargets_below / self.nontargets_below[-1]

    def eer(self) -> float:
        """Compute the rate at which miss = false alarm, by linear interpolation between two corners."""
        gap = self.miss - self.false_alarm  # ascending from -1 to 1
        i = int(np.searchsorted(gap, 0.0))
        if gap[i] == 0:
            return float(self.miss[i])
        share = -gap[i - 1] / (gap[i] - gap[i - 1])
        left, right = self.miss[i - 1 : i + 1]
        return float(left + share * (right - left))

    def least(self, miss_weight: ArrayLike, false_alarm_weight: ArrayLike) -> tuple[Array, Ranks]:
        """Return the minimum of miss_weight * miss + false_alarm_weight * false_alarm, and the index of its corner.

        A linear cost has its minimum at a corner of the hull. If the weights are arrays, both results have their
        shape.
        """
        misses = np.multiply.outer(miss_weight, self.miss)
        costs = misses + np.multiply.outer(false_alarm_weight, self.false_alarm)
        return costs.min(-1), costs.argmin(-1)

    def min_cllr(self) -> float:
        """Compute Cllr, in bits, after the best monotonic recalibration (pool adjacent violators).

        Scores between two corners of the hull form a pool, and are replaced by its likelihood ratio. A pool
        with shares m of the targets and f of the non-targets has the ratio m / f and the cost
        (m log2(1 + f/m) + f log2(1 + m/f)) / 2.
        """
        shares = np.stack([np.diff(self.miss), -np.diff(self.false_alarm)])
        m, f = shares[:, (shares > 0).all(axis=0)]  # a pool of one class costs nothing
        cost = m * np.log1p(f / m) + f * np.log1p(m / f)
        return float(cost.sum() / (2 * np.log(2)))
