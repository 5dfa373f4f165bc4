"""Confidence intervals over speakers.

Percentiles of a bootstrap promise too much here. There are few speakers, so quantiles of
the normal are too small. Error rates lie near zero, so what is not known lies above
rather than below. And a convex hull flatters the scores that it was drawn around, so
that EER, minDCF and minCllr of few speakers are too low on average, at 20 speakers by a
tenth, and resamples cannot know.

The intervals are therefore those of a jackknife: with e the estimate and e_i that without
speaker i, n speakers in all,

    y = log(e + c),  y_i = log(e_i + c),  c = 2 e / n
    variance = (n - 1)/n sum_i (y_i - mean y_i)^2
    bias     = (n - 1) (mean y_i - y)

the interval goes from the lower of y and y - bias, less t standard errors, to the higher of
the two and t standard errors more, and back from the logarithm. The offset c keeps finite
what becomes zero without one speaker. t is Student's, of as many degrees of freedom as the
variance has: n - 1, or fewer, 3 (sum d_i^2)^2 / sum d_i^4 - 1 (at least 4), where a few
speakers make most of it. More than MOST_GROUPS speakers are left out a group at a time.

Where nothing went wrong there is nothing to vary. The rule of three tells what may be:
speakers who were not met can be 3 in n, at 95 %, and at worst all their trials fail. No
interval of EER, minDCF or minCllr reaches further above its estimate than that. What a single
error costs in Cllr has no bound; but Cllr is minCllr and what poor calibration loses, and its
interval reaches at least as far up as that of minCllr and the loss.

Not every measure can have an interval. What actDCF costs is decided by false alarms so
rare that few speakers have any, and those who have none say nothing about those who do. The
same holds of a minDCF whose false alarms weigh so much that a single trial moves it by more
than COARSEST. ``python -m benchmarks intervals`` measures how often the intervals hold the truth.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import entr, stdtrit

from .._typing import Array
from ..exceptions import DataError, LabelError, ParameterError
from .costs import DetectionCost, detection_costs
from .curves import Hull, Scores, count_below, pool
from .evaluation import EQUAL, TOTAL
from .kinds import as_masks, split_by_kind

Costs = str | DetectionCost | Iterable[str | DetectionCost]

MOST_GROUPS = 200
"""More speakers than these are left out a group at a time, which is precise enough and keeps time in bounds."""

COARSEST = 0.1
"""A minDCF that one trial moves by more than this has no interval."""


@dataclass(frozen=True)
class Interval:
    """A measure, its confidence interval and its standard error."""

    estimate: float
    low: float
    high: float
    standard_error: float


@dataclass(frozen=True)
class Intervals:
    """Intervals by kind and measure (``eer``, ``min_dcf/default``, ...); a measure that can have none is left out."""

    intervals: dict[str, dict[str, Interval]]
    level: float
    n_speakers: int

    def definition(self) -> str:
        """What the intervals are, in one sentence."""
        return (
            f"[low, high]: {100 * self.level:g} % interval of a jackknife over the {self.n_speakers} speakers; "
            f"none for actDCF, nor for a minDCF that one trial moves by more than {COARSEST:g}."
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; what is not finite is None."""
        kinds = {kind: {name: plain(item) for name, item in row.items()} for kind, row in self.intervals.items()}
        return {
            "level": self.level,
            "n_speakers": self.n_speakers,
            "definition": self.definition(),
            "kinds": kinds,
        }


def plain(record: Any) -> dict[str, float | None]:
    """The numbers of a record; what is not finite is None."""
    return {name: float(value) if math.isfinite(value) else None for name, value in vars(record).items()}


def check_level(level: float) -> None:
    if not 0 < level < 1:
        raise ParameterError(f"the level of an interval must be in (0, 1), such as 0.95; got {level}")


def jackknife_interval(
    estimate: float, without: Array, level: float = 0.95, *, most: float = math.inf, unseen: float = math.inf
) -> Interval:
    """The interval of an error rate or cost, from its values without each speaker or group.

    most : what the measure cannot exceed
    unseen : what speakers who were not met may add to it
    """
    n = len(without)
    away = (n - 1) * (without - without.mean())
    standard_error = float(np.sqrt((away**2).sum() / (n * (n - 1))))
    if estimate <= 0:
        return Interval(estimate, 0.0, min(unseen, most), standard_error)
    offset = 2 * estimate / n
    y, y_without = np.log(estimate + offset), np.log(without + offset)
    d = y_without - y_without.mean()
    squares = float((d**2).sum())
    spread = math.sqrt((n - 1) / n * squares)
    correction = (n - 1) * (y - y_without.mean())
    fourth = float((d**4).sum())
    freedom = min(n - 1.0, max(4.0, 3 * squares**2 / fourth - 1)) if fourth > 0 else n - 1.0
    reach = float(stdtrit(freedom, (1 + level) / 2)) * spread
    low = math.exp(y + min(correction, 0.0) - reach) - offset
    high = math.exp(min(y + max(correction, 0.0) + reach, 700.0)) - offset
    return Interval(estimate, max(low, 0.0), max(estimate, min(high, estimate + unseen, most)), standard_error)


def _bounds(name: str, costs: Mapping[str, DetectionCost], missing: float) -> tuple[float, float]:
    """The most that a measure can be, and what a share ``missing`` of speakers may add if all their trials fail."""
    if name == "eer":
        return 0.5, missing
    if name == "min_cllr":
        share = min(missing, 0.5)
        return 1.0, float((entr(share) + entr(1 - share)) / math.log(2))
    if name in costs:
        return 1.0, missing * max(costs[name].miss_weight, costs[name].false_alarm_weight)
    return math.inf, math.inf


def _without_each(curves: Iterable[WeightedCurve], n_speakers: int) -> dict[WeightedCurve, Array]:
    """Measures of every curve without every speaker, or group of speakers; (groups, measures)."""
    group = np.arange(n_speakers) % math.ceil(n_speakers / math.ceil(n_speakers / MOST_GROUPS))
    kept = np.ones((group.max() + 1, n_speakers + 1))  # the last stands for "the same person", see speaker_codes
    kept[group, np.arange(n_speakers)] = 0.0
    return {curve: np.array([curve.measure(row) for row in kept]) for curve in dict.fromkeys(curves)}


def _raise_cllr(row: dict[str, Interval]) -> None:
    """Cllr is minCllr and what poor calibration loses: it reaches at least as far up as the two together."""
    if "cllr" in row:
        cllr, least = row["cllr"], row["min_cllr"]
        row["cllr"] = replace(cllr, high=max(cllr.high, least.high + max(0.0, cllr.estimate - least.estimate)))


def speaker_intervals(
    scores: Any,
    kinds: Any,
    enrol_speakers: Any,
    test_speakers: Any,
    costs: Costs = ("default",),
    *,
    target: str | None = None,
    equal_weights: bool = False,
    weights: Mapping[str, float] | None = None,
    level: float = 0.95,
) -> Intervals:
    """Confidence intervals of the measures by kind, by a jackknife over speakers.

    Parameters
    ----------
    scores, kinds, costs, target, equal_weights
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
    found = detection_costs(costs)
    first, second, n_speakers = speaker_codes(enrol_speakers, test_speakers, np.shape(scores))
    curves = weighted_curves(scores, kinds, (first, second), found, target, equal_weights, weights)
    without = _without_each(curves.values(), n_speakers)
    by_name = {f"min_dcf/{cost.name}": cost for cost in found}
    missing = 1 - (1 - level) ** (1 / n_speakers)
    once = np.ones(n_speakers + 1)
    intervals: dict[str, dict[str, Interval]] = {}
    for kind, curve in curves.items():
        if np.isnan(without[curve]).any():
            raise DataError(
                f"all target or all {kind} trials are of one speaker or group: "
                "there are too few speakers for intervals of this kind"
            )
        shares = curve.largest_shares(once)
        intervals[kind] = {}
        for name, estimate, values in zip(measure_names(found), curve.measure(once), without[curve].T, strict=True):
            if name.startswith("act_dcf/") or not (np.isfinite(estimate) and np.isfinite(values).all()):
                continue
            if name in by_name:
                cost = by_name[name]
                if max(cost.miss_weight * shares[0], cost.false_alarm_weight * shares[1]) > COARSEST:
                    continue
            most, unseen = _bounds(name, by_name, missing)
            intervals[kind][name] = jackknife_interval(float(estimate), values, level, most=most, unseen=unseen)
        _raise_cllr(intervals[kind])
    return Intervals(intervals, level, n_speakers)


# Measures of weighted trials, sorted once and weighed many times.
#
# What would the evaluation have been with other speakers? A bootstrap draws as many as
# there are, with replacement; a jackknife leaves some out. Speaker i comes m_i times,
# and brings his trials along:
#
# - a trial between different speakers i and j exists once for every pair of copies, so
#   it weighs m_i m_j;
# - a trial of speaker i with itself (target, or right speaker and wrong phrase) exists
#   once for every copy, so it weighs m_i. Trials between two copies of one speaker
#   would be targets dressed as impostors; they are left out.
#
# Speakers, not trials, are drawn or left out because trials that share a speaker rise and fall
# together: an evaluation with a million trials of a hundred speakers knows a hundred
# speakers. Both sides are drawn from one pool since a speaker seen in enrolment and in
# test is one person; speakers of one side only are simply in the pool too.


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
