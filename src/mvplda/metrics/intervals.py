"""Confidence intervals over speakers, by a jackknife, and whether one system beats another, by a paired bootstrap.

The formulas of the intervals are in :mod:`mvplda.metrics.catalogue`.

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

``python -m benchmarks intervals`` measures how often the intervals hold the truth.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri, stdtr, stdtrit

from .._progress import Progress
from .._typing import Array, RandomState
from ..costs import Costs
from ..exceptions import DataError, LabelError, ParameterError
from ..kinds import Coded, Kinds, Mask, as_masks
from .catalogue import COARSEST, FARS, Interval, Metric, metrics_of
from .curves import ROUNDING, Curve, Hull, Scores, count_below, pool
from .evaluation import EQUAL, TOTAL, split_by_kind

Codes = NDArray[np.int32]

MOST_GROUPS = 200
"""More speakers than these are left out a group at a time, which is precise enough and keeps time in bounds."""


@dataclass(frozen=True)
class Intervals:
    """Intervals by kind and metric (``eer``, ``min_dcf/default``, ...); a metric that can have none is left out."""

    intervals: dict[str, dict[str, Interval]]
    level: float
    n_speakers: int
    too_few: tuple[str, ...] = ()
    """Kinds without any interval: all targets, or all non-targets, hang on one speaker or group."""

    def of(self, kind: str, name: str) -> Interval | None:
        """The interval of a metric of a kind, where there is one."""
        return self.intervals.get(kind, {}).get(name)

    def definition(self) -> str:
        """What the intervals are, in one sentence."""
        said = (
            f"[low, high]: {100 * self.level:g} % interval of a jackknife over the {self.n_speakers} speakers; "
            f"none for actDCF, nor for a minDCF that one trial moves by more than {COARSEST:g}."
        )
        if self.too_few:
            said += (
                f" None for {', '.join(self.too_few)}: without one speaker no targets or no such non-targets are left, "
                "so there are too few speakers."
            )
        return said

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; what is not finite is None."""
        kinds = {
            kind: {name: plain(item) for name, item in row.items()}
            for kind, row in self.intervals.items()
        }
        return {
            "level": self.level,
            "n_speakers": self.n_speakers,
            "definition": self.definition(),
            "too_few_speakers": list(self.too_few),
            "kinds": kinds,
        }


def plain(record: Any) -> dict[str, float | None]:
    """The numbers of a record; what is not finite is None."""
    return {
        name: float(value) if math.isfinite(value) else None for name, value in vars(record).items()
    }


def check_level(level: float) -> None:
    if not 0 < level < 1:
        raise ParameterError(
            f"the level of an interval must be in (0, 1), such as 0.95; got {level}"
        )


def _groups(n_speakers: int) -> Array:
    """How often every speaker comes when each, or each group, is left out; (groups, speakers + 1)."""
    group = np.arange(n_speakers) % math.ceil(n_speakers / math.ceil(n_speakers / MOST_GROUPS))
    kept = np.ones(
        (group.max() + 1, n_speakers + 1)
    )  # the last stands for "the same person", see speaker_codes
    kept[group, np.arange(n_speakers)] = 0.0
    return kept


def _row(
    trials: WeightedTrials, metrics: Sequence[Metric], kept: Array, level: float
) -> dict[str, Interval] | None:
    """Intervals of one row of the table; None if all its targets or non-targets are of one speaker or group."""
    n_speakers = kept.shape[1] - 1
    speakers = trials.speakers(n_speakers)
    whole = trials.under(np.ones(n_speakers + 1))
    assert whole is not None
    probes = {
        m: probe for m in metrics if m.enough(whole) and (probe := m.probe(whole)) is not None
    }
    without: dict[Metric, list[tuple[Any, ...]]] = {metric: [] for metric in probes}
    for multiplicity in kept:
        curve = trials.under(multiplicity)
        if curve is None:
            return None
        for metric, probe in probes.items():
            without[metric].append(probe(curve))
    found = {}
    for metric in probes:
        values = np.array(without[metric], dtype=np.float64)
        if np.isfinite(metric.value(whole)) and np.isfinite(values).all():
            interval = metric.interval(whole, values, level, speakers)
            if interval is not None:
                found[metric.name] = interval
    return found


def speaker_intervals(
    scores: ArrayLike,
    kinds: Kinds,
    enrol_speakers: ArrayLike,
    test_speakers: ArrayLike,
    costs: Costs = ("default",),
    *,
    far: Iterable[float] = FARS,
    frr: Iterable[float] = (),
    target: str | None = None,
    equal_weights: bool = False,
    weights: Mapping[str, float] | None = None,
    level: float = 0.95,
) -> Intervals:
    """Confidence intervals of the metrics by kind, by a jackknife over speakers.

    Parameters
    ----------
    scores, kinds, costs, far, frr, target, equal_weights
        As for :func:`evaluate`.
    enrol_speakers, test_speakers : array-like
        The true speakers of every trial; or, if ``scores`` is (enrol, test), of every row
        and of every column.
    weights : mapping, optional
        How many trials one of a kind stands for, where only some were drawn of it; 1 each unless given.
    level : float
        How often the interval is to hold the value of all speakers that there might have been.

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
    check_level(level)
    metrics = metrics_of(costs, far, frr)
    first, second, n_speakers = speaker_codes(enrol_speakers, test_speakers, np.shape(scores))
    rows = weighted_trials(scores, kinds, (first, second), target, equal_weights, weights)
    kept = _groups(n_speakers)
    found = {trials: _row(trials, metrics, kept, level) for trials in dict.fromkeys(rows.values())}
    too_few = tuple(kind for kind, trials in rows.items() if found[trials] is None)
    return Intervals(
        {kind: found[trials] or {} for kind, trials in rows.items()}, level, n_speakers, too_few
    )


# Trials that are sorted once, and weighed many times.


def speaker_codes(
    enrol: ArrayLike, test: ArrayLike, shape: tuple[int, ...]
) -> tuple[Codes, Codes, int]:
    """Numbers of the two speakers of every trial, and how many speakers there are.

    Labels are one a trial, or, for a matrix of scores, one a row and one a column. Where
    the two are the same person the second number is that of a speaker drawn exactly once,
    so that the weight is always the product of two multiplicities.
    """
    sides = [side if isinstance(side, Coded) else np.asarray(side) for side in (enrol, test)]
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
    tables = [side.names if isinstance(side, Coded) else side.reshape(-1) for side in sides]
    names, codes = np.unique(np.concatenate(tables), return_inverse=True)
    numbers = np.split(codes.astype(np.int32), [len(tables[0])])
    first, second = (
        number[side.codes] if isinstance(side, Coded) else number.reshape(side.shape)
        for number, side in zip(numbers, sides, strict=True)
    )
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
    kinds: _KindWeights | None = None

    def weights(self, multiplicity: Array) -> Array:
        w = multiplicity.take(self.first)  # twice as fast as indexing
        w *= multiplicity.take(self.second)
        if self.kinds is not None:
            w *= self.kinds.factors(w).take(self.kinds.codes)
        return w


@dataclass(frozen=True)
class _KindWeights:
    """What the kinds in a row of several kinds weigh, whoever is left out or drawn.

    codes : number of the kind of every trial
    wanted : (kinds,) what all trials of a kind weigh together
    """

    codes: NDArray[np.intp]
    wanted: Array

    def factors(self, weights: Array) -> Array:
        """What the trials of every kind are multiplied by, so that the kind weighs what it is to weigh.

        With other speakers there would be other trials, but the question would stay: so many
        impostors of this kind for so many of that. A kind of which no trial is left has no factor
        that could keep its share; the others keep theirs to each other.
        """
        totals = np.bincount(self.codes, weights=weights, minlength=len(self.wanted))
        with np.errstate(divide="ignore"):
            return np.where(totals > 0, self.wanted / totals, 0.0)


def _side(
    scores: Scores,
    first: Codes,
    second: Codes,
    sign: float,
    kinds: _KindWeights | None = None,
) -> _Side:
    order = np.argsort(scores)
    ordered = scores[order]
    x = sign * ordered.astype(np.float64)
    cost = np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))
    if kinds is not None:
        kinds = _KindWeights(kinds.codes[order], kinds.wanted)
    return _Side(ordered, first[order], second[order], cost, kinds)


class WeightedTrials:
    """One row of the table, ready to be measured under any multiplicities of the speakers."""

    def __init__(self, targets: _Side, nontargets: _Side) -> None:
        self.targets, self.nontargets = targets, nontargets
        values, first = np.unique(targets.scores, return_index=True)
        ends = np.append(first[1:], len(targets.scores))
        n = nontargets.scores
        around = np.stack(
            [np.searchsorted(n, values), np.searchsorted(n, values, side="right")], axis=1
        )
        self.target_points = np.concatenate(
            [[0], np.stack([first, ends], axis=1).reshape(-1), ends[-1:]]
        )
        self.nontarget_points = np.concatenate([[0], around.reshape(-1), [len(n)]])

    def speakers(self, n_speakers: int) -> int:
        """How many speakers count: the fewest who have targets, who are enrolled or who are tested in non-targets."""
        n = self.nontargets
        tested = np.where(n.second == n_speakers, n.first, n.second)
        return min(
            int(np.count_nonzero(np.bincount(side)))
            for side in (self.targets.first, n.first, tested)
        )

    def under(self, multiplicity: Array) -> WeightedCurve | None:
        """The curve if speaker i comes ``multiplicity[i]`` times; None if a side has no weight."""
        t, n = self.targets.weights(multiplicity), self.nontargets.weights(multiplicity)
        curve = WeightedCurve(self, t, n)
        return curve if curve.all_targets > 0 and curve.all_nontargets > 0 else None


class WeightedCurve(Curve):
    """Miss and false-alarm rates of trials that weigh something each."""

    def __init__(
        self, trials: WeightedTrials, target_weights: Array, nontarget_weights: Array
    ) -> None:
        self.trials = trials
        self.targets, self.parts = trials.targets.scores, [trials.nontargets.scores]
        self.target_weights, self.nontarget_weights = target_weights, nontarget_weights
        self.targets_below, self.nontargets_below = (
            _below(target_weights),
            _below(nontarget_weights),
        )
        self.all_targets, self.all_nontargets = (
            float(self.targets_below[-1]),
            float(self.nontargets_below[-1]),
        )

    @cached_property
    def hull(self) -> Hull:
        points = self.trials.target_points, self.trials.nontarget_points
        return Hull(*pool(self.targets_below[points[0]], self.nontargets_below[points[1]]))

    def rates(self, thresholds: ArrayLike) -> tuple[Array, Array]:
        miss = self.targets_below[count_below(self.targets, thresholds)] / self.all_targets
        rejected = self.nontargets_below[count_below(self.parts[0], thresholds)]
        return np.asarray(miss), np.asarray(1 - rejected / self.all_nontargets)

    def cllr(self) -> float:
        t = _mean(self.target_weights, self.trials.targets.cost, self.all_targets)
        n = _mean(self.nontarget_weights, self.trials.nontargets.cost, self.all_nontargets)
        return float((t + n) / (2 * np.log(2)))

    def largest_shares(self) -> tuple[float, float]:
        return (
            float(self.target_weights.max() / self.all_targets),
            float(self.nontarget_weights.max() / self.all_nontargets),
        )

    def _rejected_targets(self, rate: float) -> int:
        return (
            int(
                np.searchsorted(
                    self.targets_below, (rate + ROUNDING) * self.all_targets, side="right"
                )
            )
            - 1
        )

    def _first_too_many(self, rate: float) -> float:
        rejected = int(
            np.searchsorted(self.nontargets_below, (1 - rate - ROUNDING) * self.all_nontargets)
        )
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
    """Every row of the table by kind, in the order of :func:`evaluate`; kinds without trials are left out.

    ``weights`` is how many trials one of a kind stands for; 1 each unless given.
    """
    for kind, weight in (weights or {}).items():
        if not 0 < weight < math.inf:
            raise ParameterError(
                f"weights: one trial of {kind!r} stands for a positive number of trials, 1 unless some were drawn; "
                f"got {weight}"
            )
    array = np.asarray(scores)
    masks: Mapping[str, Mask] = as_masks(kinds, array.shape)
    chosen, targets, parts = split_by_kind(array, masks, target)
    first, second = speakers
    left = _side(targets, first[masks[chosen]], second[masks[chosen]], -1.0)
    present = [kind for kind, part in parts.items() if len(part)]
    rows = {
        kind: WeightedTrials(left, _side(parts[kind], first[masks[kind]], second[masks[kind]], 1.0))
        for kind in present
    }
    if len(present) == 1:  # the total is that kind
        rows |= dict.fromkeys((TOTAL, EQUAL) if equal_weights else (TOTAL,), rows[present[0]])
        return rows
    pooled = [np.concatenate([side[masks[kind]] for kind in present]) for side in (first, second)]
    values = np.concatenate([parts[kind] for kind in present])
    sizes = [len(parts[kind]) for kind in present]
    codes = np.repeat(np.arange(len(present)), sizes)
    each = [1.0 if weights is None else float(weights.get(kind, 1.0)) for kind in present]
    wanted = {TOTAL: np.array(each) * sizes}
    if equal_weights:
        wanted[EQUAL] = np.ones(len(present))
    for name, weight in wanted.items():
        side = _side(values, pooled[0], pooled[1], 1.0, _KindWeights(codes, weight))
        rows[name] = WeightedTrials(left, side)
    return rows


# Whether one system beats another: a paired bootstrap over speakers.
#
# A convex hull flatters the scores that it was drawn around, and the hull of a resample,
# with its repeated trials, does so twice. In a difference of two systems the flattery
# cancels, so percentiles will do; in a single system's error rate it does not.
#
# Replicates of n speakers spread too little, by sqrt(1 - 1/n), and what is known of their
# spread is worth Student's t of n - 1 degrees of freedom. Percentiles are expanded by both: an
# end for which the normal asks z is taken where t sqrt(n / (n - 1)) is. The p-value is in step. Where
# impostors are not enrolled, n is the number of speakers who count (:mod:`mvplda.metrics.catalogue`).


KNOWN = 0.9
"""Where fewer of the resamples than these have both targets and non-targets, there are too few speakers for a test."""


@dataclass(frozen=True)
class PairedTest:
    """One metric of two systems on the same trials.

    difference : a - b; below zero, A is better, for every metric is an error
    low, high : interval of the difference
    p_value : two-sided, of no difference
    ratio_low, ratio_high : interval of a / b
    """

    a: float
    b: float
    difference: float
    low: float
    high: float
    p_value: float
    level: float
    ratio_low: float
    ratio_high: float

    @property
    def ratio(self) -> float:
        """a / b."""
        return self.a / self.b if self.b else math.nan

    @property
    def verdict(self) -> str:
        """``"A"`` or ``"B"`` if one is better at this level, else ``"undecided"``."""
        if not self.p_value < 1 - self.level:
            return "undecided"
        return "A" if self.difference < 0 else "B"


@dataclass(frozen=True)
class Comparison:
    """Paired tests by kind and metric."""

    tests: dict[str, dict[str, PairedTest]]
    level: float
    n_resamples: int
    n_speakers: int

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; what is not finite is None."""
        return {
            "level": self.level,
            "n_resamples": self.n_resamples,
            "n_speakers": self.n_speakers,
            "kinds": {
                kind: {name: {**plain(test), "verdict": test.verdict} for name, test in row.items()}
                for kind, row in self.tests.items()
            },
        }


def _draw(
    systems: list[dict[str, WeightedTrials]],
    metrics: Sequence[Metric],
    n_speakers: int,
    n_resamples: int,
    random_state: RandomState,
    verbose: bool,
) -> tuple[list[dict[str, Array]], list[dict[str, Array]]]:
    """Estimates and replicates of every system, all systems on the same resamples; NaN of what is not known."""
    rng = np.random.default_rng(random_state)
    once = np.ones(n_speakers + 1)  # the last one stands for "the same person", see speaker_codes
    estimates = [
        {kind: _measure(trials, metrics, once, True) for kind, trials in row.items()}
        for row in systems
    ]
    replicates: list[dict[str, list[Array]]] = [{kind: [] for kind in system} for system in systems]
    progress = Progress("bootstrap over speakers", n_resamples) if verbose else None
    every = 1 if progress is not None and progress.in_place else max(1, n_resamples // 10)
    for b in range(n_resamples):
        drawn = np.bincount(
            rng.integers(n_speakers, size=n_speakers), minlength=n_speakers + 1
        ).astype(np.float64)
        drawn[-1] = 1.0
        for system, rows in zip(systems, replicates, strict=True):
            measured = {
                trials: _measure(trials, metrics, drawn)
                for trials in dict.fromkeys(system.values())
            }
            for kind, trials in system.items():
                rows[kind].append(measured[trials])
        if progress is not None and ((b + 1) % every == 0 or b + 1 == n_resamples):
            progress.step(b + 1)
    return estimates, [{kind: np.array(rows[kind]) for kind in rows} for rows in replicates]


def _measure(
    trials: WeightedTrials, metrics: Sequence[Metric], times: Array, checked: bool = False
) -> Array:
    curve = trials.under(times)
    if curve is None:
        return np.full(len(metrics), np.nan)
    return np.array([m.value(curve) if not checked or m.enough(curve) else np.nan for m in metrics])


def _check_settings(level: float, n_resamples: int) -> None:
    check_level(level)
    if n_resamples < 2:
        raise ParameterError(
            f"a bootstrap needs at least 2 resamples, better some hundreds; got {n_resamples}"
        )


def _quantiles(values: Array, level: float, speakers: int) -> tuple[float, float]:
    """Expanded percentiles of the replicates that had both targets and non-targets."""
    known = values[~np.isnan(values)]
    z = stdtrit(speakers - 1, (1 + level) / 2) * math.sqrt(speakers / (speakers - 1))
    low, high = np.quantile(
        known, [ndtr(-z), ndtr(z)], method="nearest" if np.isinf(known).any() else "linear"
    )
    return float(low), float(high)


def _p_value(differences: Array, speakers: int) -> float:
    """Two-sided, of no difference; the observed trials count as one more resample."""
    known = differences[~np.isnan(differences)]
    tail = min(int((known <= 0).sum()), int((known >= 0).sum()))
    z = ndtri(min(0.5, (tail + 1) / (len(known) + 1)))
    return float(2 * stdtr(speakers - 1, z / math.sqrt(speakers / (speakers - 1))))


def _ratios(a: Array, b: Array) -> Array:
    """a / b of replicates; without an error of B, no error of A is one, and any is infinitely more."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where((a == 0) & (b == 0), 1.0, a / b)


def compare_systems(
    scores_a: ArrayLike,
    scores_b: ArrayLike,
    kinds: Kinds,
    enrol_speakers: ArrayLike,
    test_speakers: ArrayLike,
    costs: Costs = ("default",),
    *,
    far: Iterable[float] = FARS,
    frr: Iterable[float] = (),
    target: str | None = None,
    equal_weights: bool = False,
    weights: Mapping[str, float] | None = None,
    n_resamples: int = 1000,
    level: float = 0.95,
    random_state: RandomState = None,
    verbose: bool = False,
) -> Comparison:
    """Whether system A beats system B on the same trials.

    Both are measured on the same resamples of the speakers, so that what is hard for both
    cancels in the difference. The p-value rests on the smaller share of differences on
    either side of zero.

    Parameters
    ----------
    scores_a, scores_b
        Of the same trials.
    kinds, enrol_speakers, test_speakers, costs, far, frr, target, equal_weights, weights, level
        As for :func:`speaker_intervals`.
    n_resamples : int
        How often the speakers are drawn; 1000 fix either end of an interval to about 2 % of its width.
    random_state : int, Generator or None
        Seed of the draws.
    verbose : bool
        Show progress on standard error.

    Notes
    -----
    Time is linear in trials times resamples (a million trials of two or three kinds
    take a few hundredths of a second a resample); the scores are sorted once.
    """
    _check_settings(level, n_resamples)
    shapes = np.shape(scores_a), np.shape(scores_b)
    if shapes[0] != shapes[1]:
        raise DataError(
            f"a paired test needs the same trials of both systems; got shapes {shapes[0]} and {shapes[1]}"
        )
    metrics = [metric for metric in metrics_of(costs, far, frr) if metric.is_error]
    first, second, n_speakers = speaker_codes(enrol_speakers, test_speakers, shapes[0])
    systems = [
        weighted_trials(s, kinds, (first, second), target, equal_weights, weights)
        for s in (scores_a, scores_b)
    ]
    estimates, replicates = _draw(systems, metrics, n_speakers, n_resamples, random_state, verbose)
    tests: dict[str, dict[str, PairedTest]] = {}
    for kind, trials in systems[0].items():
        tests[kind] = {}
        speakers = trials.speakers(n_speakers)
        for i, name in enumerate(metric.name for metric in metrics):
            a, b = (float(estimate[kind][i]) for estimate in estimates)
            with np.errstate(invalid="ignore"):  # both infinite: no difference is known
                differences = replicates[0][kind][:, i] - replicates[1][kind][:, i]
            known = 0.0 if speakers < 2 else np.mean(~np.isnan(differences))
            if not (math.isfinite(a) and math.isfinite(b)) or known < KNOWN:
                unknown = math.nan
                tests[kind][name] = PairedTest(
                    a, b, unknown, unknown, unknown, unknown, level, unknown, unknown
                )
                continue
            low, high = _quantiles(differences, level, speakers)
            p_value = _p_value(differences, speakers)
            ratios = _ratios(replicates[0][kind][:, i], replicates[1][kind][:, i])
            ends = _quantiles(ratios, level, speakers)
            tests[kind][name] = PairedTest(a, b, a - b, low, high, p_value, level, *ends)
    return Comparison(tests, level, n_resamples, n_speakers)
