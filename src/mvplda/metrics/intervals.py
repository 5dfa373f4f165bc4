"""Confidence intervals of all metrics by kind of trial, by a jackknife over speakers.

The formulas are in :mod:`mvplda.metrics.catalogue`; ``python -m benchmarks intervals`` measures the
coverage of the intervals. Trials are sorted once and reweighted for each selection of speakers.

A jackknife leaves out each speaker in turn; a bootstrap draws as many speakers as there are, with
replacement. If speaker i is present m_i times in a selection,

- a trial between two different speakers i and j has the weight m_i m_j, one for each pair of copies;
- a trial of speaker i with itself (target, or right speaker and wrong phrase) has the weight m_i, one
  for each copy. A trial between two copies of one speaker would be a target that counts as an
  impostor; there are none.

Speakers, not trials, are resampled because trials that share a speaker are correlated: an evaluation
with a million trials of a hundred speakers has a hundred independent speakers. Both sides share one
pool, because a speaker in enrolment and in test is one person; speakers of a single side are in the
pool too.

If several kinds of impostors are pooled, each kind keeps its share. The share of wrong phrases among
all impostors depends on the list of trials (about 1 / speakers if all are crossed): it would grow in
every replicate without a speaker, and appear as a bias of the estimate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

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

T = TypeVar("T")

Codes = NDArray[np.int32]
SpeakerLabels = tuple[ArrayLike, ArrayLike]

MAX_GROUPS = 200
"""Largest number of selections of speakers in a jackknife: if there are more speakers, groups are left out."""


def trial_label_codes(
    enrol: ArrayLike, test: ArrayLike, shape: tuple[int, ...], argument: str
) -> tuple[list[object], Codes, Codes]:
    """Encode the labels of both sides of each trial.

    Parameters
    ----------
    enrol, test : one label per trial; or, for a matrix of scores, one per row (enrol) and one per column (test)
    shape : shape of the scores
    argument : name of the arguments in errors without "enrol_" or "test_", such as "speakers"

    Returns
    -------
    distinct labels of both sides, sorted
    code of the enrolment label of each trial, in the given shape: index into the distinct labels
    code of the test label of each trial, in the given shape
    """
    tables: list[tuple[Names, NDArray[np.integer]]] = []
    for side in (enrol, test):
        if isinstance(side, Coded):
            tables.append((side.names, side.codes))
        else:
            labels = np.asarray(side)
            distinct, inverse = np.unique(labels, return_inverse=True)
            tables.append((distinct, inverse.reshape(labels.shape)))
    names = np.union1d(tables[0][0], tables[1][0])
    trial_codes = []
    for axis, (side_names, side_codes) in enumerate(tables):
        # Codes, not labels, are broadcast to the matrix of trials, because labels may be long.
        codes = np.searchsorted(names, side_names).astype(np.int32)[side_codes]
        if len(shape) == 2 and codes.shape == (shape[axis],):
            codes = np.broadcast_to(np.expand_dims(codes, 1 - axis), shape)
        if codes.shape != shape:
            side = ("enrol", "test")[axis]
            expected = f"one label per trial, shape {shape}"
            if len(shape) == 2:
                expected += f", or one per {('row', 'column')[axis]}, shape ({shape[axis]},)"
            raise LabelError(f"{side}_{argument} must have {expected}; got the shape {codes.shape}")
        trial_codes.append(codes)
    return names.tolist(), trial_codes[0], trial_codes[1]


def speaker_codes(
    enrol: ArrayLike, test: ArrayLike, shape: tuple[int, ...]
) -> tuple[Codes, Codes, int]:
    """Encode the speakers of both sides of each trial.

    Returns
    -------
    code of the enrolled speaker of each trial
    code of the tested speaker of each trial; if both are the same person, the code is `n`, an extra speaker who is
        present once in every selection. The weight of a trial is thus always a product of two multiplicities
    n : number of speakers
    """
    names, first, second = trial_label_codes(enrol, test, shape, "speakers")
    return first, np.where(first == second, np.int32(len(names)), second), len(names)


def leave_out(n_speakers: int) -> Array:
    """Return the multiplicities (groups, n_speakers + 1) of speakers in a jackknife.

    Each row is a selection: 0 for the speaker, or group of speakers, that is left out, and 1 for the others. The last
    column is that of the extra speaker of `speaker_codes`.
    """
    group_size = math.ceil(n_speakers / MAX_GROUPS)
    group = np.arange(n_speakers) % math.ceil(n_speakers / group_size)
    multiplicities = np.ones((group.max() + 1, n_speakers + 1))
    multiplicities[group, np.arange(n_speakers)] = 0.0
    return multiplicities


@dataclass(frozen=True)
class SortedTrials:
    """Sorted scores of n targets or non-targets, with the speakers of each trial.

    scores : (n,) ascending
    first, second : (n,) codes of the speakers of both sides, see `speaker_codes`
    costs : (n,) contribution of each trial to Cllr, in nats
    kinds : (n,) code of the kind of each trial; None: a single kind
    kind_weights : (kinds,) total weight of each kind, which is the same for every selection of speakers
    """

    scores: Scores
    first: Codes
    second: Codes
    costs: Array
    kinds: NDArray[np.intp] | None
    kind_weights: Array

    def side(self, multiplicity: Array) -> SortedScores:
        """Return the scores with their weights in a selection of speakers.

        multiplicity : (speakers + 1,) number of times that each speaker is present, see `speaker_codes`
        """
        # take is twice as fast as indexing
        weights = multiplicity.take(self.first)
        weights *= multiplicity.take(self.second)
        if self.kinds is not None:
            # If a kind has no trials left, the other kinds keep their proportions.
            totals = np.bincount(self.kinds, weights=weights, minlength=len(self.kind_weights))
            scale = np.zeros(len(totals))
            np.divide(self.kind_weights, totals, out=scale, where=totals > 0)
            weights *= scale.take(self.kinds)
        return SortedScores(self.scores, weights, self.costs)


class WeightedTrials:
    """Targets and non-targets of one row of a table, whose curve can be computed for any selection of speakers."""

    def __init__(self, targets: SortedTrials, nontargets: SortedTrials, n_speakers: int) -> None:
        self.targets = targets
        self.nontargets = nontargets
        self.n_speakers = n_speakers
        self._ranks = ranks_at_targets(targets.scores, nontargets.scores)

    def speakers(self) -> tuple[float, float]:
        """Return the effective numbers of speakers for misses and for false alarms.

        For misses, it counts the speakers with targets. For false alarms, it counts the enrolled and the tested
        speakers of non-targets, and takes the smaller number.
        """
        whole = self.whole()
        nontargets = self.nontargets
        is_same_person = nontargets.second == self.n_speakers
        tested_codes = np.where(is_same_person, nontargets.first, nontargets.second)
        with_targets, enrolled, tested = (
            effective_number(np.bincount(codes, side.weights))
            for codes, side in (
                (self.targets.first, whole.targets),
                (nontargets.first, whole.others),
                (tested_codes, whole.others),
            )
        )
        return with_targets, min(enrolled, tested)

    def under(self, multiplicity: Array) -> Curve | None:
        """Return the curve of a selection of speakers; None if it has no targets or no non-targets.

        multiplicity : (speakers + 1,) number of times that each speaker is present, see `speaker_codes`
        """
        targets = self.targets.side(multiplicity)
        others = self.nontargets.side(multiplicity)
        if targets.total <= 0 or others.total <= 0:
            return None
        return Curve(targets, others, self._ranks)

    def whole(self) -> Curve:
        """Return the curve of all trials, in which every speaker is present once."""
        curve = self.under(np.ones(self.n_speakers + 1))
        assert curve is not None
        return curve

    def without(self, measure: Callable[[Curve], T]) -> list[T] | None:
        """Return the results of a function for the curves without each speaker, or group of speakers, in turn.

        Return None if one of the curves has no targets or no non-targets.

        measure : function of a curve
        """
        values = []
        for multiplicity in leave_out(self.n_speakers):
            curve = self.under(multiplicity)
            if curve is None:
                return None
            values.append(measure(curve))
        return values


def weighted_trials(
    scores: ArrayLike,
    kinds: Kinds,
    speakers: SpeakerLabels,
    weights: Mapping[str, float] | None = None,
) -> dict[str, WeightedTrials]:
    """Return the trials of each row of the table of :func:`evaluate`, by kind, without rows that have no trials.

    scores, kinds : scores and kinds of the trials, as for :func:`evaluate`
    speakers : speakers of the enrolment and of the test side
    weights : by kind, the number of trials that each listed trial stands for, if trials were sampled; 1 by default
    """
    weights = weights or {}
    for kind, weight in weights.items():
        if not 0 < weight < math.inf:
            raise ParameterError(
                f"weights[{kind!r}] is the number of trials that each trial of this kind stands for (1 unless trials "
                f"were sampled), and must be positive and finite; got {weight}"
            )
    array = np.asarray(scores)
    masks = as_masks(kinds, array.shape)
    target, targets, nontargets = split_by_kind(array, masks)
    first, second, n_speakers = speaker_codes(*speakers, array.shape)

    def sort_trials(scores: Scores, names: list[str], sign: float) -> SortedTrials:
        """Return the trials of the kinds `names`, sorted by score; `sign` is -1 for targets, +1 for non-targets."""
        order = np.argsort(scores)
        sizes = [int(masks[kind].sum()) for kind in names]
        kind_codes = None
        if len(names) > 1:
            kind_codes = np.repeat(np.arange(len(names)), sizes)[order]
        return SortedTrials(
            scores=scores[order],
            first=np.concatenate([first[masks[kind]] for kind in names])[order],
            second=np.concatenate([second[masks[kind]] for kind in names])[order],
            costs=softplus(sign * scores[order]),
            kinds=kind_codes,
            kind_weights=np.array([float(weights.get(kind, 1.0)) for kind in names]) * sizes,
        )

    sorted_targets = sort_trials(targets, [target], -1.0)
    present = [kind for kind, kind_scores in nontargets.items() if len(kind_scores)]
    rows = {}
    for kind in present:
        sorted_kind = sort_trials(nontargets[kind], [kind], 1.0)
        rows[kind] = WeightedTrials(sorted_targets, sorted_kind, n_speakers)
    rows[TOTAL] = rows[present[0]]
    if len(present) > 1:
        pooled = np.concatenate([nontargets[kind] for kind in present])
        sorted_pool = sort_trials(pooled, present, 1.0)
        rows[TOTAL] = WeightedTrials(sorted_targets, sorted_pool, n_speakers)
    return rows


# The intervals of the tables.


@dataclass(frozen=True)
class Intervals:
    """Confidence intervals over speakers.

    intervals : interval by kind of trial and name of the metric (``eer``, ``min_dcf/default``, ...), without metrics
        that have none
    n_speakers : number of speakers
    """

    intervals: dict[str, dict[str, Interval]]
    n_speakers: int
    too_few: tuple[str, ...] = ()
    """Kinds without intervals: a single speaker or group has all targets or all non-targets."""

    def of(self, kind: str, name: str) -> Interval | None:
        """Return the interval of the metric `name` for a kind of trial, or None if it has none."""
        return self.intervals.get(kind, {}).get(name)

    def definition(self) -> str:
        """Return one or two sentences that define the intervals, for the foot of a table."""
        text = (
            f"[low, high]: {100 * LEVEL:g} % interval of a jackknife over the {self.n_speakers} speakers; "
            f"none for actDCF, nor for a minDCF that one trial moves by more than {COARSEST:g}."
        )
        if self.too_few:
            text += (
                f" None for {', '.join(self.too_few)}: without one speaker no targets or no such non-targets are left, "
                "so there are too few speakers."
            )
        return text

    def to_dict(self) -> Json:
        """Return the results as plain values for JSON; numbers that are not finite become None."""
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


def finite_numbers(record: object) -> dict[str, float | None]:
    """Return the numeric fields of a record by name, for JSON; numbers that are not finite become None."""
    numbers = {
        name: value for name, value in vars(record).items() if isinstance(value, int | float)
    }
    return {name: float(x) if math.isfinite(x) else None for name, x in numbers.items()}


def _metric_intervals(
    trials: WeightedTrials, metrics: Sequence[Metric]
) -> dict[str, Interval] | None:
    """Compute the intervals of metrics, {name of the metric: interval}.

    Metrics without an interval are left out. Return None if one speaker, or group of speakers, has
    all the targets or all the non-targets.

    trials : targets, and the non-targets of one row of a table
    """
    speakers = min(trials.speakers())
    whole = trials.whole()
    probes = {}
    for metric in metrics:
        probe = metric.probe(whole)
        if probe is not None and metric.has_enough_trials(whole):
            probes[metric] = probe
    without = trials.without(lambda curve: [probe(curve) for probe in probes.values()])
    if without is None:
        return None
    intervals = {}
    for metric, replicates in zip(probes, zip(*without, strict=True), strict=True):
        values = np.array(replicates, dtype=np.float64)
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
    """Compute confidence intervals of the metrics by kind, by a jackknife over speakers.

    Parameters
    ----------
    scores, kinds, costs, far
        As for :func:`evaluate`.
    enrol_speakers, test_speakers : array-like
        The true speakers of each trial; or, if ``scores`` is a matrix (enrol, test), the speaker of each row
        and of each column.
    weights : mapping, optional
        By kind, the number of trials that each listed trial stands for, if trials were sampled; 1 by default.

    Notes
    -----
    The jackknife is deterministic: the same scores give the same intervals. Time is proportional to
    the trials times the speakers; more than 200 speakers are left out in 200 groups. A million trials of
    two or three kinds take a few hundredths of a second per speaker; the scores are sorted once.

    Examples
    --------
    >>> import numpy as np
    >>> from mvplda.metrics import speaker_intervals
    >>> who = np.arange(10)
    >>> interval = speaker_intervals(np.eye(10), np.eye(10, dtype=bool), who, who).intervals["Total"]["eer"]
    >>> interval.estimate, interval.low, round(interval.high, 2)  # no error, but only ten speakers
    (0.0, 0.0, 0.26)
    """
    metrics = metrics_of(costs, far)
    rows = weighted_trials(scores, kinds, (enrol_speakers, test_speakers), weights)
    # A single kind of non-target shares its trials with the total: they are measured once.
    row_intervals = {
        trials: _metric_intervals(trials, metrics) for trials in dict.fromkeys(rows.values())
    }
    too_few = tuple(kind for kind, trials in rows.items() if row_intervals[trials] is None)
    n_speakers = next(iter(rows.values())).n_speakers
    return Intervals({kind: row_intervals[rows[kind]] or {} for kind in rows}, n_speakers, too_few)
