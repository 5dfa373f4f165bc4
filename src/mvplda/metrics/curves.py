"""Sorted scores, from which every error rate follows.

Conventions are NIST's: a *miss* is a target below the threshold, a *false
alarm* a non-target at or above it; scores are natural-log likelihood ratios.

Targets and non-targets are sorted apart, in the precision in which they came.
The hull of the ROC needs the distinct scores of targets only, of which there are few.
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import isotonic_regression
from scipy.special import ndtr

from .._typing import Array, FloatArray
from ..exceptions import DataError

Scores = FloatArray
Ranks = NDArray[np.intp]
ROUNDING = 1e-12  # a rate that is more by less than this is no more
STRETCH = 1 << 18  # scores turned to float64 at a time


def as_scores(values: ArrayLike, name: str) -> Scores:
    """A flat array, float32 or float64, with something in it and without NaN."""
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
    # A minimum carries NaN, and needs no array of flags as long as the scores.
    if np.isnan(array.min()):
        count = int(np.isnan(array).sum())
        raise DataError(
            f"{count} {name} score(s) are NaN; every score must be a number (infinite is allowed)"
        )
    return array


def softplus(scores: Scores) -> Array:
    """log(1 + exp(score)) in float64."""
    x = scores.astype(np.float64)
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def softplus_mean(scores: Scores, sign: float) -> float:
    """Mean of log(1 + exp(sign * score)), summed in float64 a stretch at a time."""
    starts = range(0, len(scores), STRETCH)
    total = sum(float(softplus(sign * scores[i : i + STRETCH]).sum()) for i in starts)
    return total / len(scores)


def count_below(
    ordered: Scores, thresholds: ArrayLike, side: Literal["left", "right"] = "left"
) -> Ranks:
    """How many sorted scores lie below every threshold ("right": at or below it).

    A float64 threshold meets float32 scores as the next float32 that is not below
    (not above) it: same counts, and no float64 copy of the scores.
    """
    exact = np.asarray(thresholds)
    with np.errstate(over="ignore"):
        near = exact.astype(ordered.dtype)
    if near.dtype != exact.dtype:
        beyond, away = (near < exact, np.inf) if side == "left" else (near > exact, -np.inf)
        near = np.where(beyond, np.nextafter(near, np.asarray(away, near.dtype)), near)
    return np.asarray(np.searchsorted(ordered, near, side=side))


@dataclass(frozen=True)
class SortedScores:
    """Sorted scores of targets or of non-targets.

    weights : of every score; 1 each unless given
    costs : what every score costs in Cllr, in nat, where this was computed before
    """

    scores: Scores
    weights: Array | None = None
    costs: Array | None = None

    @cached_property
    def below(self) -> Array:
        """(scores + 1,) what so many of the lowest scores weigh."""
        if self.weights is None:
            return np.arange(len(self.scores) + 1.0)
        return np.append(0.0, np.cumsum(self.weights))

    @property
    def total(self) -> float:
        return float(self.below[-1])

    def share_below(self, thresholds: ArrayLike) -> Array:
        """What is rejected at every threshold, as a share of all: what lies below it; everything at +infinity."""
        rejected = count_below(self.scores, thresholds)
        rejected = np.where(np.equal(thresholds, np.inf), len(self.scores), rejected)
        return np.asarray(self.below[rejected] / self.total)

    def largest_share(self) -> float:
        """How much of the whole a single trial is at most."""
        return (1.0 if self.weights is None else float(np.max(self.weights))) / self.total

    def cost(self, sign: float) -> float:
        """Mean cost in Cllr, in nat; targets have the sign -1."""
        if self.costs is None or self.weights is None:
            return softplus_mean(self.scores, sign)
        with np.errstate(invalid="ignore"):
            mean = float(np.dot(self.weights, self.costs)) / self.total
        if np.isnan(mean):  # 0 * infinity is a trial that is not there
            there = np.where(self.weights > 0, self.costs, 0.0)
            mean = float(np.dot(there, self.weights)) / self.total
        return mean


def ranks_at_targets(targets: Scores, others: Scores) -> list[Ranks]:
    """How many targets, and how many others, lie below each corner that the hull of the ROC can have.

    Corners can lie below and above every distinct target score, nowhere else: non-targets between two
    targets are one group whatever their order, and so are all scores that tie with a target.
    """
    values = targets[np.append(True, targets[1:] != targets[:-1])]
    both = [(count_below(a, values), count_below(a, values, "right")) for a in (targets, others)]
    return [np.stack(pair, axis=1).reshape(-1) for pair in both]


class Curve:
    """What every metric is computed from: sorted scores of targets and non-targets, and what they weigh.

    ranks : of `ranks_at_targets`, where these were computed before
    """

    def __init__(
        self, targets: SortedScores, others: SortedScores, ranks: list[Ranks] | None = None
    ) -> None:
        self.targets = targets
        self.others = others
        self._ranks = ranks

    def rates(self, thresholds: ArrayLike) -> tuple[Array, Array]:
        """Miss and false-alarm rates when scores at or above a threshold are accepted."""
        accepted = 1 - self.others.share_below(thresholds)
        return self.targets.share_below(thresholds), np.asarray(accepted)

    @cached_property
    def hull(self) -> Hull:
        """The convex hull of the ROC, ties pooled."""
        sides = (self.targets, self.others)
        ranks = self._ranks or ranks_at_targets(self.targets.scores, self.others.scores)
        # the first point is where nothing is rejected, the last where all is
        corners = [
            side.below[np.concatenate([[0], own, [-1]])]
            for side, own in zip(sides, ranks, strict=True)
        ]
        return Hull(*hull_corners(np.stack(corners)))

    def threshold_for(self, false_alarm: float) -> float:
        """The lowest threshold with at most this false-alarm rate: the lowest score that is accepted."""
        least = (1 - false_alarm - ROUNDING) * self.others.total
        if least <= 0:
            return -np.inf
        # so many of the lowest non-targets must be rejected, and all that tie with the last of them
        count = int(np.searchsorted(self.others.below, least))
        highest = self.others.scores[count - 1]
        ranks = [count_below(side.scores, highest, "right") for side in (self.targets, self.others)]
        above = [*self.targets.scores[ranks[0] :][:1], *self.others.scores[ranks[1] :][:1]]
        return float(min(above, default=np.inf))

    def cllr(self) -> float:
        """Cost of log-likelihood ratios, in bits."""
        return (self.targets.cost(-1.0) + self.others.cost(1.0)) / (2 * math.log(2))

    def eer(self) -> float:
        """Equal error rate of the convex hull."""
        return self.hull.eer()

    def min_cllr(self) -> float:
        """Cllr after the best rising recalibration."""
        return self.hull.min_cllr()

    def steps(self, max_points: int | None = 2000) -> tuple[Array, Array, Array]:
        """Thresholds, miss and false-alarm rates of the raw curve (not its hull), thresholds rising.

        With ``max_points`` the thresholds are scores taken evenly on the probit axes of a DET
        plot, about that many; every point is exact. ``None`` gives every distinct score.
        The last threshold is infinite: all is rejected. Against the thresholds, 1 - misses and the false
        alarms are a Tippett plot.
        """
        arrays = [self.targets.scores, self.others.scores]
        if max_points is not None and sum(map(len, arrays)) > max_points:
            levels = ndtr(np.linspace(-6, 6, max(2, max_points // 2)))
            levels = np.concatenate([[0.0], levels, [1.0]])
            arrays = [array[(levels * (len(array) - 1)).astype(np.intp)] for array in arrays]
        thresholds = np.unique(np.concatenate(arrays).astype(np.float64))
        miss, false_alarm = self.rates(thresholds)
        # scores of +infinity, if any, are rejected too
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
    """Equal error rate: where the convex hull of the ROC meets miss = false alarm.

    Examples
    --------
    >>> from mvplda.metrics import eer
    >>> eer([2.0, 3.0, 1.0, 4.0], [0.0, -1.0, 1.5, -2.0])
    0.125
    """
    return ScoreCurve(targets, nontargets).eer()


def cllr(targets: ArrayLike, nontargets: ArrayLike) -> float:
    """Cost of log-likelihood ratios, in bits: 0 is perfect, 1 is saying nothing."""
    # which need not be sorted
    sides = [
        SortedScores(as_scores(targets, "target")),
        SortedScores(as_scores(nontargets, "non-target")),
    ]
    return Curve(sides[0], sides[1]).cllr()


def min_cllr(targets: ArrayLike, nontargets: ArrayLike) -> float:
    """Cllr after the best rising recalibration: what order alone is worth."""
    return ScoreCurve(targets, nontargets).min_cllr()


# The convex hull of the ROC: pooled blocks of scores, and what follows from them.
#
# Sort all scores, and walk a threshold up through them. The pairs (targets below,
# non-targets below) trace the ROC. Pooling adjacent violators (PAV) joins
# neighbouring groups of scores as long as a higher group holds a smaller share of
# targets; the corners between the pools that remain are the lower convex hull.
# EER, minDCF and minCllr depend on nothing but these corners.


def hull_corners(below: Array) -> Array:
    """The corners of the convex hull among points (targets below, non-targets below) that rise in both rows.

    The first point is where nothing is rejected, the last where all is.
    """
    steps = np.diff(below)
    filled = steps.sum(axis=0) > 0  # scores of weight zero are no step at all
    below = below[:, np.append(True, filled)]
    targets, others = steps[:, filled]
    total = targets + others
    return below[:, isotonic_regression(targets / total, weights=total).blocks]


@dataclass(frozen=True)
class Hull:
    """Corners of the ROC's convex hull, from accepting every trial to rejecting every trial.

    targets_below : (corners,) number, or weight, of the targets rejected; rises from 0 to all
    nontargets_below : (corners,) the same of the non-targets
    """

    targets_below: Array
    nontargets_below: Array

    @property
    def miss(self) -> Array:
        """Share of the targets rejected at every corner, rising from 0 to 1."""
        return self.targets_below / self.targets_below[-1]

    @property
    def false_alarm(self) -> Array:
        """Share of the non-targets accepted at every corner, falling from 1 to 0."""
        return 1 - self.nontargets_below / self.nontargets_below[-1]

    def eer(self) -> float:
        """Where the hull meets miss = false alarm."""
        gap = self.miss - self.false_alarm  # rises from -1 to 1
        i = int(np.searchsorted(gap, 0.0))
        if gap[i] == 0:
            return float(self.miss[i])
        share = -gap[i - 1] / (gap[i] - gap[i - 1])
        left, right = self.miss[i - 1 : i + 1]
        return float(left + share * (right - left))

    def least(self, miss_weight: ArrayLike, false_alarm_weight: ArrayLike) -> tuple[Array, Any]:
        """Least of miss_weight miss + false_alarm_weight false_alarm, and the corner where it is reached.

        A linear cost is least at a corner of the hull, so nothing else need be tried.
        Weights may be arrays; the answer then has their shape.
        """
        misses = np.multiply.outer(miss_weight, self.miss)
        costs = misses + np.multiply.outer(false_alarm_weight, self.false_alarm)
        return costs.min(-1), costs.argmin(-1)

    def min_cllr(self) -> float:
        """Cllr, in bits, when every pool says its own likelihood ratio.

        A pool with shares m of the targets and f of the non-targets says m / f, and costs
        m log2(1 + f/m) + f log2(1 + m/f), halved.
        """
        shares = np.stack([np.diff(self.miss), -np.diff(self.false_alarm)])
        m, f = shares[:, (shares > 0).all(axis=0)]  # a pure pool costs nothing: it is right
        cost = m * np.log1p(f / m) + f * np.log1p(m / f)
        return float(cost.sum() / (2 * np.log(2)))
