"""Trials that are sorted once, and weighed again for every choice of speakers.

What would the evaluation have been with other speakers? A bootstrap draws as many as
there are, with replacement; a jackknife leaves some out. Speaker i comes m_i times,
and brings his trials along:

- a trial between different speakers i and j exists once for every pair of copies, so
  it weighs m_i m_j;
- a trial of speaker i with itself (target, or right speaker and wrong phrase) exists
  once for every copy, so it weighs m_i. Trials between two copies of one speaker
  would be targets dressed as impostors; they are left out.

Speakers, not trials, are drawn or left out because trials that share a speaker rise and fall
together: an evaluation with a million trials of a hundred speakers has a hundred
independent speakers. Both sides are drawn from one pool since a speaker seen in enrolment and in
test is one person; speakers of one side only are in the pool too.

Where several kinds of impostors are pooled, every kind keeps its share. The share of wrong
phrases among all impostors is a matter of the list of trials, about 1 / speakers in a crossed one:
without a speaker it would grow in every replicate alike, and look like a bias of the estimate.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._typing import Array
from ..exceptions import LabelError, ParameterError
from ..kinds import Coded, Kinds, Mask, as_masks
from .curves import ROUNDING, Curve, Hull, Scores, count_below, pool
from .evaluation import EQUAL, TOTAL, split_by_kind
from .jackknife import effective_number

Codes = NDArray[np.int32]

MOST_GROUPS = 200
"""More speakers than these are left out in groups, which is precise enough and bounds the time."""


def speaker_codes(
    enrol: ArrayLike, test: ArrayLike, shape: tuple[int, ...]
) -> tuple[Codes, Codes, int]:
    """Numbers of the two speakers of every trial, and how many speakers there are.

    There is one label for every trial, or, for a matrix of scores, one for every row and for
    every column. Where the two are the same person the second number is that of a speaker drawn
    exactly once, so that the weight is always the product of two multiplicities.
    """
    sides = [side if isinstance(side, Coded) else np.asarray(side) for side in (enrol, test)]
    axes = [shape[:1], shape[1:]] if len(shape) == 2 else [shape, shape]
    for side, labels, axis in zip(("enrol", "test"), sides, axes, strict=True):
        if labels.shape not in (shape, axis):
            raise LabelError(
                f"{side}_speakers must label every trial {shape} or every profile or test {axis}; "
                f"got {labels.shape}"
            )
    if sides[0].dtype.kind != sides[1].dtype.kind:
        raise LabelError(
            "speakers must have one type on both sides; "
            f"got {sides[0].dtype} (enrol) and {sides[1].dtype} (test)"
        )
    tables = [side.names if isinstance(side, Coded) else side.reshape(-1) for side in sides]
    names, numbers = np.unique(np.concatenate(tables), return_inverse=True)
    split = np.split(numbers.astype(np.int32), [len(tables[0])])
    first, second = (
        own[side.codes] if isinstance(side, Coded) else own.reshape(side.shape)
        for own, side in zip(split, sides, strict=True)
    )
    if first.shape != shape:
        first = np.broadcast_to(first[:, None], shape)
    if second.shape != shape:
        second = np.broadcast_to(second[None, :], shape)
    drawn_once = np.int32(len(names))
    return first, np.where(first == second, drawn_once, second), len(names)


def leave_out(n_speakers: int) -> Array:
    """How often every speaker comes when each, or each group, is left out; (groups, speakers + 1).

    The last column stands for "the same person", see `speaker_codes`.
    """
    in_a_group = math.ceil(n_speakers / MOST_GROUPS)
    group = np.arange(n_speakers) % math.ceil(n_speakers / in_a_group)
    kept = np.ones((group.max() + 1, n_speakers + 1))
    kept[group, np.arange(n_speakers)] = 0.0
    return kept


@dataclass(frozen=True)
class KindWeights:
    """What the kinds weigh in a row of several kinds, whoever is left out or drawn.

    codes : number of the kind of every trial
    wanted : (kinds,) what all trials of a kind weigh together
    """

    codes: NDArray[np.intp]
    wanted: Array

    def factors(self, weights: Array) -> Array:
        """What the trials of every kind are multiplied by, so that the kind keeps its weight.

        Where no trial of a kind is left, nothing can keep its share; the other kinds keep theirs
        to each other.
        """
        totals = np.bincount(self.codes, weights=weights, minlength=len(self.wanted))
        factors = np.zeros(len(totals))
        np.divide(self.wanted, totals, out=factors, where=totals > 0)
        return factors


@dataclass(frozen=True)
class Side:
    """Sorted scores of targets or of non-targets, with the speakers of every trial in that order."""

    scores: Scores
    first: Codes
    second: Codes
    cost: Array  # softplus, for Cllr
    kinds: KindWeights | None = None

    def weights(self, multiplicity: Array) -> Array:
        """What every trial weighs if speaker i comes ``multiplicity[i]`` times."""
        w = multiplicity.take(self.first)  # twice as fast as indexing
        w *= multiplicity.take(self.second)
        if self.kinds is not None:
            w *= self.kinds.factors(w).take(self.kinds.codes)
        return w


def _side(
    scores: Scores, first: Codes, second: Codes, sign: float, kinds: KindWeights | None = None
) -> Side:
    order = np.argsort(scores)
    ordered = scores[order]
    x = sign * ordered.astype(np.float64)
    cost = np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))
    if kinds is not None:
        kinds = KindWeights(kinds.codes[order], kinds.wanted)
    return Side(ordered, first[order], second[order], cost, kinds)


class WeightedTrials:
    """One row of the table, ready to be measured under any multiplicities of the speakers."""

    def __init__(self, targets: Side, nontargets: Side) -> None:
        self.targets = targets
        self.nontargets = nontargets
        # Corners of the ROC can lie below and above every distinct target score, nowhere else.
        values, first = np.unique(targets.scores, return_index=True)
        ends = np.append(first[1:], len(targets.scores))
        n = nontargets.scores
        below = np.searchsorted(n, values)
        upto = np.searchsorted(n, values, side="right")
        of_targets = np.stack([first, ends], axis=1).reshape(-1)
        of_nontargets = np.stack([below, upto], axis=1).reshape(-1)
        self.target_points = np.concatenate([[0], of_targets, ends[-1:]])
        self.nontarget_points = np.concatenate([[0], of_nontargets, [len(n)]])

    def speakers(self, n_speakers: int) -> tuple[float, float]:
        """How many speakers count, for misses and for false alarms.

        Those who have targets; the fewer of those who are enrolled and who are tested in
        non-targets. Each is an effective number, less where trials are very unequally shared.
        """
        once = np.ones(n_speakers + 1)
        targets = self.targets.weights(once)
        others = self.nontargets.weights(once)
        n = self.nontargets
        tested = np.where(n.second == n_speakers, n.first, n.second)
        with_targets = effective_number(np.bincount(self.targets.first, targets))
        enrolled = effective_number(np.bincount(n.first, others))
        impostors = effective_number(np.bincount(tested, others))
        return with_targets, min(enrolled, impostors)

    def under(self, multiplicity: Array) -> WeightedCurve | None:
        """The curve if speaker i comes ``multiplicity[i]`` times; None if a side has no weight."""
        of_targets = self.targets.weights(multiplicity)
        of_nontargets = self.nontargets.weights(multiplicity)
        curve = WeightedCurve(self, of_targets, of_nontargets)
        if curve.all_targets <= 0 or curve.all_nontargets <= 0:
            return None
        return curve

    def whole(self, n_speakers: int) -> WeightedCurve:
        """The curve if every speaker comes once."""
        curve = self.under(np.ones(n_speakers + 1))
        assert curve is not None
        return curve


class WeightedCurve(Curve):
    """Miss and false-alarm rates of trials that weigh something each."""

    def __init__(
        self, trials: WeightedTrials, target_weights: Array, nontarget_weights: Array
    ) -> None:
        self.trials = trials
        self.targets = trials.targets.scores
        self.parts = [trials.nontargets.scores]
        self.target_weights = target_weights
        self.nontarget_weights = nontarget_weights
        self.targets_below = _below(target_weights)
        self.nontargets_below = _below(nontarget_weights)
        self.all_targets = float(self.targets_below[-1])
        self.all_nontargets = float(self.nontargets_below[-1])

    @cached_property
    def hull(self) -> Hull:
        targets = self.targets_below[self.trials.target_points]
        nontargets = self.nontargets_below[self.trials.nontarget_points]
        return Hull(*pool(targets, nontargets))

    def rates(self, thresholds: ArrayLike) -> tuple[Array, Array]:
        missed = self.targets_below[count_below(self.targets, thresholds)]
        rejected = self.nontargets_below[count_below(self.parts[0], thresholds)]
        miss = np.asarray(missed / self.all_targets)
        return miss, np.asarray(1 - rejected / self.all_nontargets)

    def cllr(self) -> float:
        t = _mean(self.target_weights, self.trials.targets.cost, self.all_targets)
        n = _mean(self.nontarget_weights, self.trials.nontargets.cost, self.all_nontargets)
        return float((t + n) / (2 * np.log(2)))

    def largest_shares(self) -> tuple[float, float]:
        of_targets = float(self.target_weights.max() / self.all_targets)
        return of_targets, float(self.nontarget_weights.max() / self.all_nontargets)

    def _rejected_targets(self, rate: float) -> int:
        most = (rate + ROUNDING) * self.all_targets
        return int(np.searchsorted(self.targets_below, most, side="right")) - 1

    def _first_too_many(self, rate: float) -> float:
        least = (1 - rate - ROUNDING) * self.all_nontargets
        rejected = int(np.searchsorted(self.nontargets_below, least))
        return float(self.parts[0][rejected - 1]) if rejected else -np.inf


def _below(weights: Array) -> Array:
    """What lies below every trial, and all together."""
    below = np.empty(len(weights) + 1)
    below[0] = 0.0
    np.cumsum(weights, out=below[1:])
    return below


def _mean(weights: Array, cost: Array, total: float) -> float:
    with np.errstate(invalid="ignore"):
        mean = float(weights @ cost) / total
    if math.isnan(mean):  # 0 * infinity is a trial that is not there
        return float(np.where(weights > 0, cost, 0.0) @ weights) / total
    return mean


def weighted_trials(
    scores: ArrayLike,
    kinds: Kinds,
    speakers: tuple[Codes, Codes],
    target: str | None,
    equal_weights: bool,
    weights: Mapping[str, float] | None = None,
) -> dict[str, WeightedTrials]:
    """Every row of the table by kind, in the order of :func:`evaluate`, without empty kinds.

    ``weights`` is how many trials one of a kind stands for; 1 each unless given.
    """
    weights = weights or {}
    for kind, weight in weights.items():
        if not 0 < weight < math.inf:
            raise ParameterError(
                f"weights: one trial of {kind!r} stands for a positive number of trials, "
                f"1 unless some were drawn; got {weight}"
            )
    array = np.asarray(scores)
    masks: Mapping[str, Mask] = as_masks(kinds, array.shape)
    chosen, targets, parts = split_by_kind(array, masks, target)
    first, second = speakers
    left = _side(targets, first[masks[chosen]], second[masks[chosen]], -1.0)
    present = [kind for kind, part in parts.items() if len(part)]
    rows = {}
    for kind in present:
        mask = masks[kind]
        rows[kind] = WeightedTrials(left, _side(parts[kind], first[mask], second[mask], 1.0))
    totals = (TOTAL, EQUAL) if equal_weights else (TOTAL,)
    if len(present) == 1:  # the total is that kind
        return rows | dict.fromkeys(totals, rows[present[0]])
    values = np.concatenate([parts[kind] for kind in present])
    firsts, seconds = (
        np.concatenate([side[masks[kind]] for kind in present]) for side in (first, second)
    )
    sizes = [len(parts[kind]) for kind in present]
    codes = np.repeat(np.arange(len(present)), sizes)
    for name in totals:
        wanted = np.ones(len(present))
        if name == TOTAL:
            wanted = np.array([float(weights.get(kind, 1.0)) for kind in present]) * sizes
        side = _side(values, firsts, seconds, 1.0, KindWeights(codes, wanted))
        rows[name] = WeightedTrials(left, side)
    return rows
