"""Sorted scores, from which every error rate follows.

Conventions are NIST's: a *miss* is a target below the threshold, a *false
alarm* a non-target at or above it; scores are natural-log likelihood ratios.

Targets and non-targets are sorted apart, in the precision in which they came;
the ROC is then pooled a stretch of targets at a time, so that a hundred million
scores take their own size once more and little else.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import isotonic_regression
from scipy.special import ndtr

from .._typing import Array, FloatArray
from ..exceptions import DataError, ParameterError
from ..kinds import Kinds

Scores = FloatArray
ROUNDING = 1e-12  # a rate that is more by less than this is no more
STRETCH = 1 << 18  # targets pooled at a time, and scores turned to float64 at a time


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
    return array


def reject_nan(array: Scores, name: str) -> None:
    """NaN is an error. (A minimum carries it, and needs no array of flags as long as the scores.)"""
    if np.isnan(array.min()):
        count = int(np.isnan(array).sum())
        raise DataError(
            f"{count} {name} score(s) are NaN; every score must be a number (infinite is allowed)"
        )


def softplus_mean(scores: Scores, sign: float) -> float:
    """Mean of log(1 + exp(sign * score)), summed in float64 a stretch at a time."""
    total = 0.0
    for start in range(0, len(scores), STRETCH):
        x = sign * scores[start : start + STRETCH].astype(np.float64)
        total += float((np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))).sum())
    return total / len(scores)


def count_below(ordered: Scores, thresholds: ArrayLike, side: Any = "left") -> NDArray[np.intp]:
    """How many sorted scores lie below every threshold ("right": at or below it).

    A float64 threshold meets float32 scores as the next float32 that is not below
    (not above) it: same counts, and no float64 copy of the scores.
    """
    exact = np.asarray(thresholds)
    with np.errstate(over="ignore"):
        near = exact.astype(ordered.dtype)
    if near.dtype != exact.dtype:
        if side == "left":
            near = np.where(near < exact, np.nextafter(near, np.asarray(np.inf, near.dtype)), near)
        else:
            near = np.where(near > exact, np.nextafter(near, np.asarray(-np.inf, near.dtype)), near)
    return np.asarray(np.searchsorted(ordered, near, side=side))


class Curve(ABC):
    """What every metric is computed from: sorted scores of targets and non-targets, and what they weigh.

    targets : sorted scores
    parts : sorted scores of the non-targets, one array or several
    """

    targets: Scores
    parts: list[Scores]

    @property
    @abstractmethod
    def hull(self) -> Hull:
        """The convex hull of the ROC, ties pooled."""

    @abstractmethod
    def rates(self, thresholds: ArrayLike) -> tuple[Array, Array]:
        """Miss and false-alarm rates when scores at or above a threshold are accepted."""

    @abstractmethod
    def cllr(self) -> float:
        """Cost of log-likelihood ratios, in bits."""

    @abstractmethod
    def largest_shares(self) -> tuple[float, float]:
        """How much of the miss rate, and of the false-alarm rate, a single trial is at most."""

    @abstractmethod
    def _rejected_targets(self, rate: float) -> int:
        """How many of the lowest targets weigh ``rate`` at most."""

    @abstractmethod
    def _first_too_many(self, rate: float) -> float:
        """The highest non-target that weighs more than ``rate`` with all above it; -infinity if none does."""

    def threshold_for(
        self, *, miss: float | None = None, false_alarm: float | None = None
    ) -> float:
        """The highest threshold with at most this miss rate, or the lowest with at most this false-alarm rate.

        It is the lowest score that is accepted.
        """
        if false_alarm is not None:
            limit = self._first_too_many(false_alarm)
            return limit if limit == -np.inf else self._lowest_above(limit)
        assert miss is not None
        rejected = self._rejected_targets(miss)
        return float(self.targets[rejected]) if rejected < len(self.targets) else np.inf

    def _lowest_above(self, value: Any) -> float:
        """The lowest score above a value."""
        arrays = [self.targets, *self.parts]
        ranks = [int(count_below(array, value, "right")) for array in arrays]
        above = [
            float(array[rank])
            for array, rank in zip(arrays, ranks, strict=True)
            if rank < len(array)
        ]
        return min(above, default=np.inf)

    def eer(self) -> float:
        """Equal error rate of the convex hull."""
        return self.hull.eer()

    def min_cllr(self) -> float:
        """Cllr after the best rising recalibration."""
        return self.hull.min_cllr()


class ScoreCurve(Curve):
    """Miss and false-alarm rates over all thresholds.

    Parameters
    ----------
    targets, nontargets : array-like
        Scores, of any shape; float32 stays float32. ``nontargets`` may be a mapping of
        kinds to scores: the kinds are pooled.
    weights : mapping, optional
        Weight of one trial of every kind of non-targets; 1 each unless given. The false-alarm
        rate is then the weighted share.

    Examples
    --------
    >>> from mvplda.metrics import ScoreCurve
    >>> curve = ScoreCurve([2.0, 3.0, 1.0, 4.0], [0.0, -1.0, 1.5, -2.0])
    >>> curve.eer(), curve.rates(1.2)
    (0.125, (array(0.25), array(0.25)))
    """

    weights: list[float]

    def __init__(
        self, targets: ArrayLike, nontargets: Kinds, *, weights: Mapping[Any, float] | None = None
    ) -> None:
        self.targets = sorted_scores(targets, "target")
        if isinstance(nontargets, Mapping):
            self.parts = [
                sorted_scores(part, f"non-target ({kind})") for kind, part in nontargets.items()
            ]
            self.weights = [1.0 if weights is None else float(weights[kind]) for kind in nontargets]
        else:
            self.parts, self.weights = [sorted_scores(nontargets, "non-target")], [1.0]
        self._check()

    @classmethod
    def from_sorted(
        cls, targets: Scores, parts: Sequence[Scores], weights: Sequence[float] | None = None
    ) -> ScoreCurve:
        """A curve of scores already sorted and checked; nothing is copied."""
        curve = cls.__new__(cls)
        curve.targets, curve.parts = targets, list(parts)
        curve.weights = (
            [1.0] * len(parts) if weights is None else [float(weight) for weight in weights]
        )
        curve._check()
        return curve

    def _check(self) -> None:
        if not self.parts:
            raise DataError("there are no non-target scores: at least one is needed")
        if not all(0 < weight < np.inf for weight in self.weights):
            raise ParameterError(
                f"weights of non-target kinds must be positive and finite; got {self.weights}"
            )

    @property
    def n_targets(self) -> int:
        return len(self.targets)

    @property
    def n_nontargets(self) -> int:
        return sum(map(len, self.parts))

    @cached_property
    def hull(self) -> Hull:
        pieces = [pool(t, n) for t, n in self._points()]
        targets_below = np.concatenate([np.zeros(1), *(t for t, _ in pieces)])
        nontargets_below = np.concatenate([np.zeros(1), *(n for _, n in pieces)])
        return Hull(*pool(targets_below, nontargets_below))

    def _points(self) -> Iterator[tuple[Array, Array]]:
        """Stretches of the ROC: the point below and the point above every distinct target score.

        Non-targets between two targets are one group whatever their order, and so are all
        scores that tie with a target; other points cannot be corners.
        """
        ordered, start = self.targets, 0
        while start < len(ordered):
            stop = min(start + STRETCH, len(ordered))
            stop = int(
                np.searchsorted(ordered, ordered[stop - 1], side="right")
            )  # no tie is cut in two
            stretch = ordered[start:stop]
            first = np.flatnonzero(np.concatenate([[True], stretch[1:] != stretch[:-1]]))
            below, upto = self._nontargets_around(stretch[first])
            targets_below = np.empty(2 * len(first))
            targets_below[0::2] = start + first
            targets_below[1::2] = start + np.append(first[1:], len(stretch))
            nontargets_below = np.empty(2 * len(first))
            nontargets_below[0::2], nontargets_below[1::2] = below, upto
            yield targets_below, nontargets_below
            start = stop
        yield np.array([float(len(ordered))]), np.array([self._all_nontargets])

    @property
    def _all_nontargets(self) -> float:
        return sum(
            weight * len(part) for weight, part in zip(self.weights, self.parts, strict=True)
        )

    def _nontargets_around(self, values: Scores) -> tuple[Array, Array]:
        """Weight of the non-targets below, and at or below, each of some rising values."""
        below, upto = np.zeros(len(values)), np.zeros(len(values))
        for part, weight in zip(self.parts, self.weights, strict=True):
            lo = int(count_below(part, values[0]))  # a window that fits the cache
            window = part[lo : int(count_below(part, values[-1], "right"))]
            under = count_below(window, values)
            over = under.copy()
            inside = np.flatnonzero(under < len(window))
            tied = inside[window[under[inside]] == values[inside]]
            over[tied] = count_below(window, values[tied], "right")
            below += weight * (lo + under)
            upto += weight * (lo + over)
        return below, upto

    def rates(self, thresholds: ArrayLike) -> tuple[Array, Array]:
        miss = count_below(self.targets, thresholds) / len(self.targets)
        rejected = sum(
            w * count_below(part, thresholds)
            for w, part in zip(self.weights, self.parts, strict=True)
        )
        return np.asarray(miss), np.asarray(1 - rejected / self._all_nontargets)

    def steps(self, max_points: int | None = 2000) -> tuple[Array, Array, Array]:
        """Thresholds, miss and false-alarm rates of the raw curve (not its hull), thresholds rising.

        With ``max_points`` the thresholds are scores taken evenly on the probit axes of a DET
        plot, about that many; every point is exact. ``None`` gives every distinct score.
        The last threshold is infinite: all is rejected.
        """
        arrays = [self.targets, *self.parts]
        if max_points is None or self.n_targets + self.n_nontargets <= max_points:
            thresholds = np.concatenate(arrays)
        else:
            levels = ndtr(np.linspace(-6, 6, max(2, max_points // len(arrays))))
            levels = np.concatenate([[0.0], levels, [1.0]])
            thresholds = np.concatenate(
                [array[(levels * (len(array) - 1)).astype(np.intp)] for array in arrays]
            )
        thresholds = np.append(np.unique(thresholds.astype(np.float64)), np.inf)
        miss, false_alarm = self.rates(thresholds)
        miss[-1], false_alarm[-1] = 1.0, 0.0  # scores of +infinity, if any, are rejected too
        return thresholds, miss, false_alarm

    def largest_shares(self) -> tuple[float, float]:
        return 1 / len(self.targets), max(self.weights) / self._all_nontargets

    def _rejected_targets(self, rate: float) -> int:
        return int((rate + ROUNDING) * len(self.targets))

    def _first_too_many(self, rate: float) -> float:
        budget = (rate + ROUNDING) * self._all_nontargets
        # of every kind as many as the budget could hold if there were no other, and one more
        sizes = [
            min(len(part), int(budget / w) + 1)
            for part, w in zip(self.parts, self.weights, strict=True)
        ]
        tops = [part[len(part) - size :] for part, size in zip(self.parts, sizes, strict=True)]
        values = np.concatenate(tops)
        order = np.argsort(values)[::-1]
        weights = np.repeat(self.weights, sizes)[order]
        too_many = np.flatnonzero(np.cumsum(weights) > budget)
        return float(values[order[too_many[0]]]) if len(too_many) else -np.inf

    def cllr(self) -> float:
        parts = [
            (w * len(p), softplus_mean(p, 1.0))
            for w, p in zip(self.weights, self.parts, strict=True)
        ]
        false = sum(weight * mean for weight, mean in parts) / sum(weight for weight, _ in parts)
        return float((softplus_mean(self.targets, -1.0) + false) / (2 * np.log(2)))


def sorted_scores(values: ArrayLike, name: str) -> Scores:
    """A sorted copy; NaN, which sorts last, is an error."""
    ordered = np.sort(as_scores(values, name))
    if np.isnan(ordered[-1]):
        reject_nan(ordered, name)
    return ordered


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
    targets, nontargets = as_scores(targets, "target"), as_scores(nontargets, "non-target")
    reject_nan(targets, "target")
    reject_nan(nontargets, "non-target")
    return float((softplus_mean(targets, -1.0) + softplus_mean(nontargets, 1.0)) / (2 * np.log(2)))


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


def pool(targets_below: Array, nontargets_below: Array) -> tuple[Array, Array]:
    """The corners of the convex hull among points that rise in both coordinates.

    The first point is where nothing is rejected so far, the last where all of this
    stretch is. Pooling a stretch first and the whole afterwards gives the same
    corners as pooling at once, so long curves can be pooled piece by piece.
    """
    targets, nontargets = np.diff(targets_below), np.diff(nontargets_below)
    total = targets + nontargets
    filled = total > 0
    if not filled.all():  # scores of weight zero are no step at all
        targets, total = targets[filled], total[filled]
        keep = np.concatenate([[True], filled])
        targets_below, nontargets_below = targets_below[keep], nontargets_below[keep]
    if len(total) == 0:
        return targets_below[:1], nontargets_below[:1]
    corners = isotonic_regression(targets / total, weights=total).blocks
    return targets_below[corners], nontargets_below[corners]


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
        return np.asarray(self.targets_below / self.targets_below[-1])

    @property
    def false_alarm(self) -> Array:
        """Share of the non-targets accepted at every corner, falling from 1 to 0."""
        return np.asarray(1 - self.nontargets_below / self.nontargets_below[-1])

    def eer(self) -> float:
        """Where the hull meets miss = false alarm."""
        miss, false_alarm = self.miss, self.false_alarm
        gap = miss - false_alarm  # rises from -1 to 1
        i = int(np.searchsorted(gap, 0.0))
        if gap[i] == 0:
            return float(miss[i])
        share = -gap[i - 1] / (gap[i] - gap[i - 1])
        return float(miss[i - 1] + share * (miss[i] - miss[i - 1]))

    def least(self, miss_weight: ArrayLike, false_alarm_weight: ArrayLike) -> tuple[Array, Any]:
        """Least of miss_weight miss + false_alarm_weight false_alarm, and the corner where it is reached.

        A linear cost is least at a corner of the hull, so nothing else need be tried.
        Weights may be arrays; the answer then has their shape.
        """
        a, b = np.broadcast_arrays(
            np.asarray(miss_weight, float), np.asarray(false_alarm_weight, float)
        )
        costs = a[..., None] * self.miss + b[..., None] * self.false_alarm
        return costs.min(-1), costs.argmin(-1)

    def min_cllr(self) -> float:
        """Cllr, in bits, when every pool says its own likelihood ratio.

        A pool with shares m of the targets and f of the non-targets says m / f, and costs
        m log2(1 + f/m) + f log2(1 + m/f), halved.
        """
        m, f = np.diff(self.miss), -np.diff(self.false_alarm)
        mixed = (m > 0) & (f > 0)  # a pure pool says +-infinity, rightly, and costs nothing
        m, f = m[mixed], f[mixed]
        cost = m * np.log1p(f / m) + f * np.log1p(m / f)
        return float(cost.sum() / (2 * np.log(2)))


@dataclass(frozen=True)
class BayesErrorRates:
    """Error probability of Bayes decisions over the prior, both costs 1.

    log_odds : (G,) log(prior / (1 - prior))
    actual : (G,) deciding by score >= -log_odds
    minimum : (G,) deciding by the best threshold for every prior
    default : (G,) deciding without a score, min(prior, 1 - prior)

    ``actual - minimum`` is the loss to poor calibration; ``actual > default`` means that
    the scores do harm at that prior.
    """

    log_odds: Array
    actual: Array
    minimum: Array
    default: Array

    def normalised(self) -> tuple[Array, Array]:
        """Actual and minimum, divided by the default."""
        return self.actual / self.default, self.minimum / self.default


def bayes_error_rates(
    targets: ArrayLike, nontargets: ArrayLike, log_odds_grid: ArrayLike | None = None
) -> BayesErrorRates:
    """Actual, least and default Bayes error over a grid of prior log-odds (-10 to 10 unless given).

    Examples
    --------
    >>> from mvplda.metrics import bayes_error_rates
    >>> rates = bayes_error_rates([2.0, 3.0, 1.0, 4.0], [0.0, -1.0, 1.5, -2.0], [0.0])
    >>> float(rates.actual[0]), float(rates.minimum[0]), float(rates.default[0])
    (0.25, 0.125, 0.5)
    """
    curve = targets if isinstance(targets, ScoreCurve) else ScoreCurve(targets, nontargets)
    grid = (
        np.linspace(-10, 10, 201)
        if log_odds_grid is None
        else np.asarray(log_odds_grid, np.float64).reshape(-1)
    )
    if not np.isfinite(grid).all():
        raise ParameterError("prior log-odds must be finite; leave out priors of 0 and 1")
    prior, rest = 1 / (1 + np.exp(-grid)), 1 / (1 + np.exp(grid))
    miss, false_alarm = curve.rates(-grid)
    return BayesErrorRates(
        log_odds=grid,
        actual=prior * miss + rest * false_alarm,
        minimum=curve.hull.least(prior, rest)[0],
        default=np.minimum(prior, rest),
    )
