"""Metrics of scores in shards, whose scores are never all in memory; the values equal those of `evaluate`.

The corners of the convex hull of the ROC lie at the scores of targets, which are few. Of the non-targets, it suffices
to know how many lie below each target score and below each Bayes threshold, and the scores around the thresholds of
the requested false-alarm rates. Each of three functions reads a shard once:

- `count_kinds` counts trials by kind, from which the kind of the targets follows;
- `summarise` returns the scores of all targets and, for each kind of non-targets, the mean contribution to Cllr and
  about `SKETCH` order statistics. These give an interval (`Bracket`) that contains the threshold of each false-alarm
  rate;
- `count_cells` counts the non-targets between the scores of targets, and returns the few scores inside the brackets.

Every error rate is exact; Cllr, which is a sum, differs by rounding only.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .._typing import FloatArray, IntArray
from ..costs import Costs, detection_costs
from ..exceptions import DataError
from ..kinds import ordered_kinds, target_kind
from .catalogue import FARS, metrics_of
from .curves import ROUNDING, Curve, Scores, SortedScores, as_scores, count_below, softplus_mean
from .evaluation import TOTAL, Evaluation, evaluation_of_curves

SKETCH = 2048
"""Number of intervals between the order statistics in the summary of a shard."""

ScoresByKind = Mapping[str, FloatArray]
Counts = NDArray[np.int64]


@dataclass(frozen=True)
class Sketch:
    """Order statistics of scores: evenly spaced elements of the sorted scores.

    size : number of scores
    ranks : (k,) indices of the elements among the sorted scores, from 0 to size - 1
    values : (k,) scores at these indices
    """

    size: int
    ranks: IntArray
    values: FloatArray

    @classmethod
    def of(cls, ordered: FloatArray) -> Sketch:
        """Return about `SKETCH` order statistics of sorted scores (n,)."""
        steps = min(SKETCH, max(len(ordered) - 1, 0))
        ranks = np.unique(np.linspace(0, len(ordered) - 1, steps + 1).astype(np.int64))
        ranks = ranks[: len(ordered)]
        return cls(len(ordered), ranks, ordered[ranks])

    def most_below(self, value: float) -> int:
        """Return an upper bound of the number of scores below a value."""
        index = int(count_below(self.values, value))
        return int(self.ranks[index]) if index < len(self.ranks) else self.size

    def fewest_up_to(self, value: float) -> int:
        """Return a lower bound of the number of scores at or below a value."""
        index = int(count_below(self.values, value, "right"))
        return int(self.ranks[index - 1]) + 1 if index else 0


@dataclass(frozen=True)
class ShardSummary:
    """Summary of the scores of a shard.

    targets : sorted scores of all targets
    cost : mean contribution to Cllr, in nats, by kind of non-target
    sketches : order statistics of the scores by kind of non-target
    """

    targets: FloatArray
    cost: dict[str, float]
    sketches: dict[str, Sketch]


@dataclass(frozen=True)
class Bracket:
    """Closed interval of scores that contains the highest score that is rejected at a false-alarm rate.

    kinds : kinds of non-targets that the rate counts: one, or all of them for the row ``Total``
    rank : number of non-targets that must be rejected at this rate, lowest scores first
    low, high : ends of the interval, which belong to it
    """

    kinds: tuple[str, ...]
    rank: int
    low: float
    high: float


@dataclass(frozen=True)
class Inside:
    """Non-targets of a shard inside and next to a bracket.

    below : number of scores below the bracket
    scores : sorted scores inside the bracket
    above : lowest score above the bracket; infinite if there is none
    n_above : number of scores that equal `above`
    """

    below: int
    scores: FloatArray
    above: float
    n_above: int


@dataclass(frozen=True)
class CellCounts:
    """Counts of the non-targets of a shard in the intervals between cuts, and the scores inside brackets.

    Cuts are ascending scores. They divide the numbers into cells: 0 for scores below the first cut, 1 for scores equal
    to it, 2 for scores between the first and the second cut, and so on.

    cells : {kind: (indices of the cells with at least one non-target, number of non-targets in
        each)}
    inside : scores inside and next to each bracket
    """

    cells: dict[str, tuple[Counts, Counts]]
    inside: list[Inside]


def count_kinds(scores: ScoresByKind) -> dict[str, int]:
    """Return the number of trials by kind, without kinds that have none."""
    return {kind: len(values) for kind, values in scores.items() if len(values)}


def summarise(scores: ScoresByKind, target: str) -> ShardSummary:
    """Return the scores of the targets of a shard, and a summary of each kind of non-target.

    scores : scores of the shard by kind
    target : name of the kind of the targets
    """
    ordered = {
        kind: np.sort(as_scores(values, kind)) for kind, values in scores.items() if len(values)
    }
    targets = ordered.pop(target, np.empty(0, np.float32))
    return ShardSummary(
        targets,
        {kind: softplus_mean(values, 1.0) for kind, values in ordered.items()},
        {kind: Sketch.of(values) for kind, values in ordered.items()},
    )


def count_cells(
    scores: ScoresByKind, target: str, cuts: FloatArray, brackets: Sequence[Bracket]
) -> CellCounts:
    """Count the non-targets of a shard in the cells between cuts, and collect those inside brackets.

    scores : scores of the shard by kind
    target : name of the kind of the targets
    cuts : ascending scores that separate the cells, see `CellCounts`
    brackets : intervals of scores, one per kind or total and false-alarm rate
    """
    ordered = {
        kind: np.sort(values) for kind, values in scores.items() if len(values) and kind != target
    }
    cells = {kind: _cell_counts(values, cuts) for kind, values in ordered.items()}
    inside = []
    for bracket in brackets:
        chosen = [ordered[kind] for kind in bracket.kinds if kind in ordered]
        values = np.sort(np.concatenate(chosen)) if chosen else np.empty(0, np.float32)
        first = int(count_below(values, bracket.low))
        end = int(count_below(values, bracket.high, "right"))
        above = float(values[end]) if end < len(values) else math.inf
        end_above = int(count_below(values, above, "right"))
        inside.append(Inside(first, values[first:end], above, end_above - end))
    return CellCounts(cells, inside)


def _cell_counts(ordered: FloatArray, cuts: FloatArray) -> tuple[Counts, Counts]:
    """Return the indices of the cells that contain scores, and the number of scores in each.

    ordered : sorted scores
    cuts : ascending scores that separate the cells, see `CellCounts`
    """
    ends = np.empty(2 * len(cuts) + 1, dtype=np.int64)
    ends[0:-1:2] = count_below(ordered, cuts)
    ends[1:-1:2] = count_below(ordered, cuts, "right")
    ends[-1] = len(ordered)
    counts = np.diff(ends, prepend=0)
    filled = np.flatnonzero(counts)
    return filled, counts[filled]


class CountedScores(SortedScores):
    """Sorted scores with weights; a score of weight w stands for w trials with similar scores."""

    def largest_share(self) -> float:
        return 1.0 / self.total


class ShardedEvaluation:
    """Evaluation of shards in two passes: `add_summaries`, then `add_counts`.

    Parameters
    ----------
    kinds : number of trials by kind in all shards together
    costs, far : detection costs and false-alarm rates, see `mvplda.metrics.evaluate`
    """

    def __init__(
        self, kinds: Mapping[str, int], costs: Costs = ("default",), far: Iterable[float] = FARS
    ) -> None:
        self.costs = detection_costs(costs)
        self.far = tuple(dict.fromkeys(map(float, far)))
        self.metrics = metrics_of(self.costs, self.far)
        by_name = dict(sorted(kinds.items()))
        self.target = target_kind(by_name)
        self.others = ordered_kinds(by_name, self.target)
        self.sizes = {kind: kinds[kind] for kind in self.others}
        if not self.others:
            raise DataError(
                f"there are no non-target scores: no trial has a kind other than {self.target!r}"
            )

    def add_summaries(self, summaries: Iterable[ShardSummary]) -> None:
        """Set the attributes `cuts` and `brackets`, which `count_cells` needs for the second pass.

        `cuts` are the scores between which non-targets are counted. `brackets` are intervals of
        scores, one per row of the table and false-alarm rate.

        summaries : results of `summarise` for all shards
        """
        targets: list[FloatArray] = []
        sketches: dict[str, list[Sketch]] = {kind: [] for kind in self.others}
        self._cost = dict.fromkeys(self.others, 0.0)
        for summary in summaries:
            targets.append(summary.targets)
            for kind, sketch in summary.sketches.items():
                sketches[kind].append(sketch)
                self._cost[kind] += summary.cost[kind] * sketch.size / self.sizes[kind]
        self.targets: Scores = np.sort(np.concatenate(targets))
        distinct = self.targets[np.append(True, self.targets[1:] != self.targets[:-1])]
        thresholds = [cost.threshold for cost in self.costs]
        self.cuts = np.unique(np.append(distinct.astype(np.float64), thresholds))
        self.brackets = [
            _bracket(kinds, far, [sketch for kind in kinds for sketch in sketches[kind]])
            for kinds in self._rows().values()
            for far in self.far
        ]

    def _rows(self) -> dict[str, tuple[str, ...]]:
        """Return {row of the table: kinds of non-targets in it}: a row per kind, and ``Total``."""
        return {**{kind: (kind,) for kind in self.others}, TOTAL: tuple(self.others)}

    def add_counts(self, shards: Iterable[CellCounts]) -> Evaluation:
        """Return the evaluation of all shards.

        shards : results of `count_cells` for all shards, with the `cuts` and `brackets` of this object
        """
        counts = {kind: np.zeros(2 * len(self.cuts) + 1, np.int64) for kind in self.others}
        inside: list[list[Inside]] = [[] for _ in self.brackets]
        for shard in shards:
            for kind, (cells, numbers) in shard.cells.items():
                counts[kind][cells] += numbers
            for collected, shard_inside in zip(inside, shard.inside, strict=True):
                collected.append(shard_inside)

        curves = {}
        target_scores = SortedScores(self.targets)
        for row, (kind, kinds) in enumerate(self._rows().items()):
            cells = np.sum([counts[name] for name in kinds], axis=0)
            brackets = range(row * len(self.far), (row + 1) * len(self.far))
            points = [
                point for k in brackets for point in _threshold_points(self.brackets[k], inside[k])
            ]
            size = sum(self.sizes[name] for name in kinds)
            cost = sum(self._cost[name] * (self.sizes[name] / size) for name in kinds)
            others = _weighted_scores(self.cuts, cells, points, cost)
            curves[kind] = Curve(target_scores, others)
        sizes = {
            kind: sum(self.sizes[name] for name in kinds) for kind, kinds in self._rows().items()
        }
        return evaluation_of_curves(
            curves, sizes, len(self.targets), self.metrics, self.costs, self.target
        )


def _bracket(kinds: tuple[str, ...], far: float, sketches: Sequence[Sketch]) -> Bracket:
    """Return an interval that contains the highest rejected non-target at a false-alarm rate.

    kinds : kinds of non-targets that the rate counts
    sketches : order statistics of their scores, from all shards
    """
    size = sum(sketch.size for sketch in sketches)
    rank = max(math.ceil((1 - far - ROUNDING) * size), 1)
    candidates = np.unique(np.concatenate([sketch.values for sketch in sketches]).astype(float))

    # `most_below` and `fewest_up_to` grow with the value, so that bisection finds both ends
    low, end = 0, len(candidates)
    while low < end:
        middle = (low + end) // 2
        if sum(sketch.most_below(candidates[middle]) for sketch in sketches) <= rank - 1:
            low = middle + 1
        else:
            end = middle
    start, high = 0, len(candidates) - 1
    while start < high:
        middle = (start + high) // 2
        if sum(sketch.fewest_up_to(candidates[middle]) for sketch in sketches) >= rank:
            high = middle
        else:
            start = middle + 1
    lower_end = float(candidates[low - 1]) if low else -math.inf
    return Bracket(kinds, rank, lower_end, float(candidates[high]))


def _threshold_points(bracket: Bracket, shards: Sequence[Inside]) -> list[tuple[float, int, int]]:
    """Return the highest score of non-targets below a threshold, and the next higher score, if any.

    bracket : interval that contains the first of these scores
    shards : scores of each shard inside and next to the bracket
    return : (score, number of lower scores, number of scores up to and including it) of each
    """
    below = sum(inside.below for inside in shards)
    scores = np.sort(np.concatenate([inside.scores for inside in shards]))
    highest = float(scores[bracket.rank - below - 1])
    first, end = (int(count_below(scores, highest, side)) for side in ("left", "right"))
    points = [(highest, below + first, below + end)]
    if end < len(scores):
        above = float(scores[end])
        n_above = int(count_below(scores, above, "right")) - end
    else:
        above = min(inside.above for inside in shards)
        n_above = sum(inside.n_above for inside in shards if inside.above == above)
    if n_above:
        points.append((above, below + end, below + end + n_above))
    return points


def _weighted_scores(
    cuts: FloatArray, cells: Counts, points: Sequence[tuple[float, int, int]], cost: float
) -> CountedScores:
    """Return weighted scores in place of the non-targets, which give the same error rates.

    Their total weight below each cut and each point equals the number of non-targets below it.

    cuts : ascending scores
    cells : number of non-targets in each cell between cuts, see `CellCounts`
    points : results of `_threshold_points`
    cost : mean contribution of the non-targets to Cllr, in nats
    """
    ends = np.cumsum(cells)
    scores, lefts, rights = np.array(points, dtype=np.float64).reshape(-1, 3).T
    scores, first = np.unique(np.append(cuts, scores), return_index=True)
    left = np.append(ends[0:-1:2], lefts)[first]
    right = np.append(ends[1:-1:2], rights)[first]
    # any score between two cuts serves for those there: the next one below the upper cut
    between = np.nextafter(scores, -np.inf)
    values = np.append(np.stack([between, scores], axis=1), np.nextafter(scores[-1], np.inf))
    numbers = np.append(
        np.stack([left - np.append(0.0, right[:-1]), right - left], axis=1), ends[-1] - right[-1]
    )
    filled = np.flatnonzero(numbers)
    return CountedScores(values[filled], numbers[filled], np.full(len(filled), cost))
