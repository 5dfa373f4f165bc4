"""Confidence intervals of every metric by kind of trial, by a jackknife over speakers; and the trials that are sorted
once, and weighed again for every choice of speakers.

The formulas are in :mod:`mvplda.metrics.catalogue` and :mod:`mvplda.metrics.catalogue`;
``python -m benchmarks intervals`` measures how often the intervals hold the truth.

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
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._typing import Array, Json, Names
from ..coded import Coded
from ..costs import Costs
from ..exceptions import LabelError, ParameterError
from ..kinds import Kinds, as_masks
from .catalogue import COARSEST, FARS, LEVEL, Interval, Metric, effective_number, metrics_of
from .curves import Curve, Scores, SortedScores, ranks_at_targets, softplus
from .evaluation import TOTAL, split_by_kind

Codes = NDArray[np.int32]
SpeakerLabels = tuple[ArrayLike, ArrayLike]

MOST_GROUPS = 200
"""More speakers than these are left out in groups, which is precise enough and bounds the time."""


def trial_label_codes(
    enrol: ArrayLike, test: ArrayLike, shape: tuple[int, ...], what: str
) -> tuple[list[Any], Codes, Codes]:
    """The names on both sides, and the numbers of those that every trial has on either.

    There is one label for every trial, or, for a matrix of scores, one for every row and for every column.
    """
    tables: list[tuple[Names, NDArray[np.integer]]] = []
    for side in (enrol, test):
        if isinstance(side, Coded):
            tables.append((side.names, side.codes))
        else:
            labels = np.asarray(side)
            own, numbers_of = np.unique(labels, return_inverse=True)
            tables.append((own, numbers_of.reshape(labels.shape)))
    names = np.union1d(tables[0][0], tables[1][0])
    numbers = []
    for axis, (own, codes) in enumerate(tables):
        # numbers before they are spread over a matrix of trials: labels may be long
        each = np.searchsorted(names, own).astype(np.int32)[codes]
        if len(shape) == 2 and each.shape == (shape[axis],):
            each = np.broadcast_to(np.expand_dims(each, 1 - axis), shape)
        if each.shape != shape:
            raise LabelError(
                f"{('enrol', 'test')[axis]}_{what} must label every trial {shape} or every profile or test; "
                f"got {each.shape}"
            )
        numbers.append(each)
    return names.tolist(), numbers[0], numbers[1]


def speaker_codes(
    enrol: ArrayLike, test: ArrayLike, shape: tuple[int, ...]
) -> tuple[Codes, Codes, int]:
    """Numbers of the two speakers of every trial, and how many speakers there are.

    Where the two are the same person the second number is that of a speaker drawn exactly once, so that the weight is
    always the product of two multiplicities.
    """
    names, first, second = trial_label_codes(enrol, test, shape, "speakers")
    return first, np.where(first == second, np.int32(len(names)), second), len(names)


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
class SortedTrials:
    """Sorted scores of targets or of non-targets, with the speakers of every trial in that order.

    costs : of every trial in Cllr
    kinds : number of the kind of every trial, where there are several
    wanted : (kinds,) what all trials of a kind weigh together, whoever is left out or drawn
    """

    scores: Scores
    first: Codes
    second: Codes
    costs: Array
    kinds: NDArray[np.intp] | None
    wanted: Array

    def side(self, multiplicity: Array) -> SortedScores:
        """With what every trial weighs if speaker i comes ``multiplicity[i]`` times."""
        w = multiplicity.take(self.first)  # twice as fast as indexing
        w *= multiplicity.take(self.second)
        if self.kinds is not None:
            # Where no trial of a kind is left, the other kinds keep their shares to each other.
            totals = np.bincount(self.kinds, weights=w, minlength=len(self.wanted))
            factors = np.zeros(len(totals))
            np.divide(self.wanted, totals, out=factors, where=totals > 0)
            w *= factors.take(self.kinds)
        return SortedScores(self.scores, w, self.costs)


class WeightedTrials:
    """One row of the table, ready to be measured under any multiplicities of the speakers."""

    def __init__(self, targets: SortedTrials, nontargets: SortedTrials, n_speakers: int) -> None:
        self.targets = targets
        self.nontargets = nontargets
        self.n_speakers = n_speakers
        self._ranks = ranks_at_targets(targets.scores, nontargets.scores)

    def speakers(self) -> tuple[float, float]:
        """How many speakers count, for misses and for false alarms.

        Those who have targets; the fewer of those who are enrolled and who are tested in
        non-targets. Each is an effective number, less where trials are very unequally shared.
        """
        whole = self.whole()
        n = self.nontargets
        tested = np.where(n.second == self.n_speakers, n.first, n.second)
        having, enrolled, others = (
            effective_number(np.bincount(who, side.weights))
            for who, side in (
                (self.targets.first, whole.targets),
                (n.first, whole.others),
                (tested, whole.others),
            )
        )
        return having, min(enrolled, others)

    def under(self, multiplicity: Array) -> Curve | None:
        """The curve if speaker i comes ``multiplicity[i]`` times; None if a side has no weight."""
        targets = self.targets.side(multiplicity)
        others = self.nontargets.side(multiplicity)
        if targets.total <= 0 or others.total <= 0:
            return None
        return Curve(targets, others, self._ranks)

    def whole(self) -> Curve:
        """The curve if every speaker comes once."""
        curve = self.under(np.ones(self.n_speakers + 1))
        assert curve is not None
        return curve

    def without(self, measure: Callable[[Curve], Any]) -> list[Any] | None:
        """What is measured without each speaker or group; None if one has all targets or all non-targets."""
        measured = []
        for kept in leave_out(self.n_speakers):
            curve = self.under(kept)
            if curve is None:
                return None
            measured.append(measure(curve))
        return measured


def weighted_trials(
    scores: ArrayLike,
    kinds: Kinds,
    speakers: SpeakerLabels,
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
    masks = as_masks(kinds, array.shape)
    chosen, targets, parts = split_by_kind(array, masks)
    first, second, n_speakers = speaker_codes(*speakers, array.shape)

    def spoken(scores: Scores, names: list[str], sign: float) -> SortedTrials:
        order = np.argsort(scores)
        whose = [
            np.concatenate([codes[masks[kind]] for kind in names]) for codes in (first, second)
        ]
        sizes = [int(masks[kind].sum()) for kind in names]
        wanted = np.array([float(weights.get(kind, 1.0)) for kind in names]) * sizes
        return SortedTrials(
            scores[order],
            whose[0][order],
            whose[1][order],
            softplus(sign * scores[order]),
            np.repeat(np.arange(len(names)), sizes)[order] if len(names) > 1 else None,
            wanted,
        )

    left = spoken(targets, [chosen], -1.0)
    present = [kind for kind, part in parts.items() if len(part)]
    rows = {
        kind: WeightedTrials(left, spoken(parts[kind], [kind], 1.0), n_speakers) for kind in present
    }
    rows[TOTAL] = rows[present[0]]
    if len(present) > 1:
        values = np.concatenate([parts[kind] for kind in present])
        rows[TOTAL] = WeightedTrials(left, spoken(values, present, 1.0), n_speakers)
    return rows


# The intervals of the tables.


@dataclass(frozen=True)
class Intervals:
    """Intervals by kind and metric (``eer``, ``min_dcf/default``, ...); a metric that can have none is left out."""

    intervals: dict[str, dict[str, Interval]]
    n_speakers: int
    too_few: tuple[str, ...] = ()
    """Kinds without any interval: all targets, or all non-targets, hang on one speaker or group."""

    def of(self, kind: str, name: str) -> Interval | None:
        """The interval of a metric of a kind, where there is one."""
        return self.intervals.get(kind, {}).get(name)

    def definition(self) -> str:
        """What the intervals are, in one sentence."""
        said = (
            f"[low, high]: {100 * LEVEL:g} % interval of a jackknife over the {self.n_speakers} speakers; "
            f"none for actDCF, nor for a minDCF that one trial moves by more than {COARSEST:g}."
        )
        if self.too_few:
            said += (
                f" None for {', '.join(self.too_few)}: without one speaker no targets or no such non-targets are left, "
                "so there are too few speakers."
            )
        return said

    def to_dict(self) -> Json:
        """Plain values for JSON; what is not finite is None."""
        kinds = {
            kind: {name: finite_numbers(item) for name, item in row.items()}
            for kind, row in self.intervals.items()
        }
        return {
            "level": LEVEL,
            "n_speakers": self.n_speakers,
            "definition": self.definition(),
            "too_few_speakers": list(self.too_few),
            "kinds": kinds,
        }


def finite_numbers(record: Any) -> dict[str, float | None]:
    """The numbers of a record; what is not finite is None."""
    numbers = {
        name: value for name, value in vars(record).items() if isinstance(value, int | float)
    }
    return {name: float(x) if math.isfinite(x) else None for name, x in numbers.items()}


def _row(trials: WeightedTrials, metrics: Sequence[Metric]) -> dict[str, Interval] | None:
    """Intervals of one row of the table; None if all its targets or non-targets are of one speaker or group."""
    speakers = min(trials.speakers())
    whole = trials.whole()
    chosen = {
        m: probe for m in metrics if m.enough(whole) and (probe := m.probe(whole)) is not None
    }
    without = trials.without(lambda curve: [probe(curve) for probe in chosen.values()])
    if without is None:
        return None
    intervals = {}
    for metric, measured in zip(chosen, zip(*without, strict=True), strict=True):
        values = np.array(measured, dtype=np.float64)
        if np.isfinite(metric.value(whole)) and np.isfinite(values).all():
            intervals[metric.name] = metric.interval(whole, values, speakers)
    return intervals


def speaker_intervals(
    scores: ArrayLike,
    kinds: Kinds,
    enrol_speakers: ArrayLike,
    test_speakers: ArrayLike,
    costs: Costs = ("default",),
    *,
    far: Iterable[float] = FARS,
    weights: Mapping[str, float] | None = None,
) -> Intervals:
    """Confidence intervals of the metrics by kind, by a jackknife over speakers.

    Parameters
    ----------
    scores, kinds, costs, far
        As for :func:`evaluate`.
    enrol_speakers, test_speakers : array-like
        The true speakers of every trial; or, if ``scores`` is (enrol, test), of every row
        and of every column.
    weights : mapping, optional
        How many trials one of a kind stands for, where only some were drawn of it; 1 each unless given.

    Notes
    -----
    Nothing is drawn: the same scores give the same intervals. Time is linear in trials
    times speakers, up to 200 (a million trials of two or three kinds take a few hundredths
    of a second a speaker); the scores are sorted once.

    Examples
    --------
    >>> import numpy as np
    >>> from mvplda.metrics import speaker_intervals
    >>> who = np.arange(10)
    >>> found = speaker_intervals(np.eye(10), np.eye(10, dtype=bool), who, who).intervals["Total"]["eer"]
    >>> found.estimate, found.low, round(found.high, 2)  # no error, but only ten speakers
    (0.0, 0.0, 0.26)
    """
    metrics = metrics_of(costs, far)
    rows = weighted_trials(scores, kinds, (enrol_speakers, test_speakers), weights)
    # a row that stands twice, the only kind and the total, is measured once
    each = {trials: _row(trials, metrics) for trials in dict.fromkeys(rows.values())}
    too_few = tuple(kind for kind, trials in rows.items() if each[trials] is None)
    n_speakers = next(iter(rows.values())).n_speakers
    return Intervals({kind: each[rows[kind]] or {} for kind in rows}, n_speakers, too_few)
