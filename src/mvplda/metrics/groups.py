"""Errors of groups of people at one threshold, and how far the groups lie apart."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtrit

from .._typing import Array
from ..exceptions import DataError, LabelError
from ..kinds import Kinds, as_masks, target_kind
from .intervals import plain
from .jackknife import Interval, check_level, effective_number, jackknife_interval, unmet
from .weighted import Codes, leave_out, speaker_codes


@dataclass(frozen=True)
class GroupErrors:
    """Both error rates of every group at a threshold that is the same for all.

    frr : {group: misses among the targets of its people}
    far : {group: false alarms among the trials between two different people of the group}
    largest_ratio : {"frr", "far": the rate of the worst group over that of the best}; a rate counts
        half an error more in it, so that no error is not infinitely better
    between : {"frr", "far": the worst group and the best}
    """

    threshold: float
    frr: dict[str, Interval]
    far: dict[str, Interval]
    largest_ratio: dict[str, Interval]
    between: dict[str, tuple[str, str]]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; what is not finite is None."""
        rates = {"frr": self.frr, "far": self.far, "largest_ratio": self.largest_ratio}
        tables = {name: {key: plain(x) for key, x in row.items()} for name, row in rates.items()}
        return {"threshold": self.threshold, **tables, "between": self.between}


@dataclass(frozen=True)
class _Trials:
    """The trials that make one error rate of one group, with the speakers of each."""

    wrong: Array
    first: Codes
    second: Codes

    def rate(self, multiplicity: Array) -> float:
        """The share that is wrong if speaker i comes ``multiplicity[i]`` times; NaN of none."""
        weights = multiplicity[self.first] * multiplicity[self.second]
        total = float(weights.sum())
        return float(weights @ self.wrong) / total if total > 0 else math.nan

    def speakers(self, n_speakers: int) -> float:
        """How many speakers count, on the side that has fewer."""
        tested = np.where(self.second == n_speakers, self.first, self.second)
        sides = (np.bincount(self.first), np.bincount(tested))
        return min(effective_number(side) for side in sides)


def group_errors(
    scores: ArrayLike,
    kinds: Kinds,
    threshold: float,
    enrol_speakers: ArrayLike,
    test_speakers: ArrayLike,
    enrol_groups: ArrayLike,
    test_groups: ArrayLike,
    *,
    target: str | None = None,
    level: float = 0.95,
) -> GroupErrors:
    """Misses and false alarms of every group at a common threshold.

    Parameters
    ----------
    scores, kinds, enrol_speakers, test_speakers, target, level
        As for :func:`speaker_intervals`.
    threshold : float
        The lowest score that is accepted.
    enrol_groups, test_groups : array-like
        The groups of the people on both sides (sex, age, language ...), labelled like the speakers.

    Notes
    -----
    The interval of a ratio is a jackknife over speakers of its logarithm. The worst and the best of
    several groups were chosen by their rates: with k pairs of groups the interval is of the level
    1 - (1 - level) / k, so that it holds for whichever pair is chosen.

    Examples
    --------
    >>> import numpy as np
    >>> from mvplda.metrics import group_errors
    >>> who, group = np.arange(20), np.repeat(["a", "b"], 10)
    >>> scores = np.eye(20)
    >>> scores[0, 0] = 0.0  # one miss, of group a
    >>> found = group_errors(scores, np.eye(20, dtype=bool), 0.5, who, who, group, group)
    >>> found.frr["a"].estimate, found.frr["b"].estimate, round(found.largest_ratio["frr"].estimate, 6)
    (0.1, 0.0, 3.0)
    """
    check_level(level)
    array = np.asarray(scores)
    masks = as_masks(kinds, array.shape)
    targets = masks[target_kind(masks, target)]
    others = np.zeros(array.shape, dtype=bool)
    for mask in masks.values():
        others |= mask
    others &= ~targets
    first, second, n_speakers = speaker_codes(enrol_speakers, test_speakers, array.shape)
    enrolled, tested = (
        _for_every_trial(labels, axis, array.shape)
        for axis, labels in enumerate((enrol_groups, test_groups))
    )
    names = [str(name) for name in np.unique(enrolled[targets])]
    if len(names) < 2:
        raise DataError(f"groups are compared with each other: give at least 2; got {names}")
    accepted = array >= threshold
    wrong = {"frr": targets & ~accepted, "far": others & accepted}
    within = others & (enrolled == tested) & (second < n_speakers)
    rates: dict[str, dict[str, Interval]] = {}
    ratios = {}
    between = {}
    for name, those in {"frr": targets, "far": within}.items():
        trials = {}
        for group in names:
            mask = those & (enrolled == group)
            errors = wrong[name][mask].astype(np.float64)
            trials[group] = _Trials(errors, first[mask], second[mask])
        rates[name] = {group: _rate(own, n_speakers, level) for group, own in trials.items()}
        known = {group: own for group, own in trials.items() if len(own.wrong)}
        if len(known) > 1:
            between[name], ratios[name] = _largest_ratio(known, n_speakers, level)
    return GroupErrors(float(threshold), rates["frr"], rates["far"], ratios, between)


def _for_every_trial(labels: ArrayLike, axis: int, shape: tuple[int, ...]) -> NDArray[np.str_]:
    groups = np.asarray(labels).astype(np.str_)
    if groups.shape == shape:
        return groups
    if len(shape) == 2 and groups.shape == (shape[axis],):
        return np.broadcast_to(np.expand_dims(groups, 1 - axis), shape)
    raise LabelError(
        f"groups must label every trial {shape} or every profile or test; got {groups.shape}"
    )


def _rate(trials: _Trials, n_speakers: int, level: float) -> Interval:
    """A rate with its interval; of one speaker, or of none, anything is possible."""
    if not len(trials.wrong):
        return Interval(math.nan, 0.0, 1.0)
    estimate = trials.rate(np.ones(n_speakers + 1))
    without = np.array([trials.rate(kept) for kept in leave_out(n_speakers)])
    if np.isnan(without).any():
        return Interval(estimate, 0.0, 1.0)
    speakers = trials.speakers(n_speakers)
    unseen = unmet(level, speakers)
    return jackknife_interval(estimate, without, level, speakers=speakers, most=1.0, unseen=unseen)


def _largest_ratio(
    trials: dict[str, _Trials], n_speakers: int, level: float
) -> tuple[tuple[str, str], Interval]:
    """The worst group and the best, and the ratio of their rates."""

    def log_rates(multiplicity: Array) -> dict[str, float]:
        rates = {}
        for group, own in trials.items():
            rates[group] = math.log(own.rate(multiplicity) + 0.5 / len(own.wrong))
        return rates

    whole = log_rates(np.ones(n_speakers + 1))
    worst = max(whole, key=lambda group: whole[group])
    best = min(whole, key=lambda group: whole[group])
    estimate = whole[worst] - whole[best]
    without = np.array(
        [
            rates[worst] - rates[best]
            for rates in (log_rates(kept) for kept in leave_out(n_speakers))
        ]
    )
    if np.isnan(without).any():
        return (worst, best), Interval(math.exp(estimate), 0.0, math.inf)
    n = len(without)
    error = math.sqrt((n - 1) / n * float(((without - without.mean()) ** 2).sum()))
    pairs = len(list(combinations(trials, 2)))
    fewest = min(trials[worst].speakers(n_speakers), trials[best].speakers(n_speakers))
    t = float(stdtrit(max(fewest - 1.0, 1.0), 1 - (1 - level) / pairs / 2))
    low, high = (math.exp(min(estimate + sign * t * error, 700.0)) for sign in (-1, 1))
    return (worst, best), Interval(math.exp(estimate), low, high)
