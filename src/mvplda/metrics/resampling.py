"""Measures of weighted trials, sorted once and weighed many times.

What would the evaluation have been with other speakers? A bootstrap draws as many as
there are, with replacement; a jackknife leaves some out. Speaker i comes m_i times,
and brings his trials along:

- a trial between different speakers i and j exists once for every pair of copies, so
  it weighs m_i m_j;
- a trial of speaker i with itself (target, or right speaker and wrong phrase) exists
  once for every copy, so it weighs m_i. Trials between two copies of one speaker
  would be targets dressed as impostors; they are left out.

Speakers, not trials, are drawn or left out because trials that share a speaker rise and fall
together: an evaluation with a million trials of a hundred speakers knows a hundred
speakers. Both sides are drawn from one pool since a speaker seen in enrolment and in
test is one person; speakers of one side only are simply in the pool too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..exceptions import DataError, LabelError
from ..kernel.records import Array
from .costs import DetectionCost
from .curves import Scores, count_below
from .evaluation import EQUAL, TOTAL
from .hull import Hull, pool
from .kinds import as_masks, split_by_kind

Codes = NDArray[np.int32]


def speaker_codes(enrol: Any, test: Any, shape: tuple[int, ...]) -> tuple[Codes, Codes, int]:
    """Numbers of the two speakers of every trial, and how many speakers there are.

    Labels are one a trial, or, for a matrix of scores, one a row and one a column. Where
    the two are the same person the second number is that of a speaker drawn exactly once,
    so that the weight is always the product of two multiplicities.
    """
    sides = [np.asarray(enrol), np.asarray(test)]
    wanted = [shape[:1], shape[1:]] if len(shape) == 2 else [shape, shape]
    for side, labels, axis in zip(("enrol", "test"), sides, wanted, strict=True):
        if labels.shape not in (shape, axis):
            raise LabelError(
                f"{side}_speakers must label every trial {shape} or every profile or test {axis}; got {labels.shape}"
            )
    if sides[0].dtype.kind != sides[1].dtype.kind:
        raise LabelError(
            f"speakers must have one type on both sides; got {sides[0].dtype} (enrol) and {sides[1].dtype} (test)"
        )
    names, codes = np.unique(np.concatenate([side.reshape(-1) for side in sides]), return_inverse=True)
    if len(names) < 2:
        raise DataError("intervals over speakers need at least two speakers; got one")
    numbers: Codes = codes.astype(np.int32)
    first: Codes = numbers[: sides[0].size].reshape(sides[0].shape)
    second: Codes = numbers[sides[0].size :].reshape(sides[1].shape)
    if first.shape != shape:
        first = np.broadcast_to(first[:, None], shape)
    if second.shape != shape:
        second = np.broadcast_to(second[None, :], shape)
    return first, np.where(first == second, np.int32(len(names)), second), len(names)


@dataclass(frozen=True)
class _Side:
    """Sorted scores of one side of a curve, with the speakers of every trial in that order."""

    scores: Scores
    first: Codes
    second: Codes
    cost: Array  # softplus, for Cllr
    base: Array | None = None  # what every trial weighs when every speaker comes once; 1 each if it is not given
    group: NDArray[np.intp] | None = None  # kind of every trial, if kinds are to weigh the same

    def weights(self, multiplicity: Array) -> Array:
        w = multiplicity[self.first] * multiplicity[self.second]
        if self.base is not None:
            w *= self.base
        if self.group is not None:
            totals = np.bincount(self.group, weights=w)
            with np.errstate(divide="ignore", invalid="ignore"):
                w *= np.where(totals > 0, 1 / totals, 0.0)[self.group]
        return w


def _side(scores: Scores, first: Codes, second: Codes, sign: float, base: Any = None, group: Any = None) -> _Side:
    order = np.argsort(scores)
    ordered = scores[order]
    x = sign * ordered.astype(np.float64)
    cost = np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))
    base, group = (None if array is None else array[order] for array in (base, group))
    return _Side(ordered, first[order], second[order], cost, base, group)


class WeightedCurve:
    """One row of the table, ready to be measured under any multiplicities of the speakers."""

    def __init__(self, targets: _Side, nontargets: _Side, costs: Sequence[DetectionCost]) -> None:
        self.targets, self.nontargets, self.costs = targets, nontargets, costs
        values, first = np.unique(targets.scores, return_index=True)
        ends = np.append(first[1:], len(targets.scores))
        n = nontargets.scores
        around = np.stack([np.searchsorted(n, values), np.searchsorted(n, values, side="right")], axis=1)
        self.target_points = np.concatenate([[0], np.stack([first, ends], axis=1).reshape(-1), ends[-1:]])
        self.nontarget_points = np.concatenate([[0], around.reshape(-1), [len(n)]])
        self.at_threshold = [
            (int(count_below(targets.scores, c.threshold)), int(count_below(n, c.threshold))) for c in costs
        ]

    def largest_shares(self, multiplicity: Array) -> tuple[float, float]:
        """How much of the miss rate, and of the false-alarm rate, a single trial is."""
        t, n = self.targets.weights(multiplicity), self.nontargets.weights(multiplicity)
        return float(t.max() / t.sum()), float(n.max() / n.sum())

    def measure(self, multiplicity: Array) -> Array:
        """eer, minDCF of every cost, actDCF of every cost, Cllr, minCllr; NaN if a side has no weight."""
        t, n = self.targets.weights(multiplicity), self.nontargets.weights(multiplicity)
        t_below, n_below = (np.concatenate([[0.0], np.cumsum(w)]) for w in (t, n))
        t_all, n_all = float(t_below[-1]), float(n_below[-1])
        if t_all == 0 or n_all == 0:
            return np.full(3 + 2 * len(self.costs), np.nan)
        hull = Hull(*pool(t_below[self.target_points], n_below[self.nontarget_points]))
        least = [float(hull.least(c.miss_weight, c.false_alarm_weight)[0]) for c in self.costs]
        actual = [
            c.at(t_below[i] / t_all, 1 - n_below[j] / n_all)
            for c, (i, j) in zip(self.costs, self.at_threshold, strict=True)
        ]
        cllr = (_mean(t, self.targets.cost, t_all) + _mean(n, self.nontargets.cost, n_all)) / (2 * np.log(2))
        return np.array([hull.eer(), *least, *actual, cllr, hull.min_cllr()])


def _mean(weights: Array, cost: Array, total: float) -> float:
    if np.isinf(cost).any():  # 0 * infinity is a trial that is not there
        return float(np.where(weights > 0, cost, 0.0) @ np.where(weights > 0, weights, 1.0) / total)
    return float(weights @ cost / total)


def measure_names(costs: Sequence[DetectionCost]) -> list[str]:
    """The names of what :meth:`WeightedCurve.measure` gives, in order."""
    least, actual = ([f"{kind}_dcf/{cost.name}" for cost in costs] for kind in ("min", "act"))
    return ["eer", *least, *actual, "cllr", "min_cllr"]


def weighted_curves(
    scores: Any,
    kinds: Any,
    speakers: tuple[Codes, Codes],
    costs: Sequence[DetectionCost],
    target: str | None,
    equal_weights: bool,
    weights: Mapping[str, float] | None = None,
) -> dict[str, WeightedCurve]:
    """Every row of the table by kind, in the order of :func:`evaluate`; kinds without trials are left out.

    ``weights`` is how many trials one of a kind stands for; 1 each unless given.
    """
    array = np.asarray(scores)
    masks: Mapping[str, NDArray[np.bool_]] = as_masks(kinds, array.shape)
    chosen, targets, parts = split_by_kind(array, masks, target)
    first, second = speakers
    left = _side(targets, first[masks[chosen]], second[masks[chosen]], -1.0)
    present = [kind for kind, part in parts.items() if len(part)]
    curves = {
        kind: WeightedCurve(left, _side(parts[kind], first[masks[kind]], second[masks[kind]], 1.0), costs)
        for kind in present
    }
    if len(present) == 1:  # the total is that kind
        curves |= dict.fromkeys((TOTAL, EQUAL) if equal_weights else (TOTAL,), curves[present[0]])
        return curves
    pooled = [np.concatenate([side[masks[kind]] for kind in present]) for side in (first, second)]
    values = np.concatenate([parts[kind] for kind in present])
    sizes = [len(parts[kind]) for kind in present]
    each = [1.0 if weights is None else float(weights.get(kind, 1.0)) for kind in present]
    base = np.repeat(each, sizes) if len(set(each)) > 1 else None
    curves[TOTAL] = WeightedCurve(left, _side(values, pooled[0], pooled[1], 1.0, base), costs)
    if equal_weights:
        group = np.repeat(np.arange(len(present)), sizes)
        curves[EQUAL] = WeightedCurve(left, _side(values, pooled[0], pooled[1], 1.0, group=group), costs)
    return curves
