"""Errors of groups of people at one threshold, and how far the groups lie apart."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtrit

from .._typing import Array
from ..exceptions import DataError
from ..kinds import Kinds, as_masks, target_kind
from .intervals import plain
from .jackknife import Interval, check_level, effective_number, rate_interval
from .weighted import Codes, for_every_trial, leave_out, speaker_codes


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


class _Rates(NamedTuple):
    """One error rate of one group: of all speakers, then without each of them; of how many trials and speakers."""

    values: Array
    trials: int
    speakers: float

    def interval(self, level: float) -> Interval:
        """The rate; of one speaker, or of none, anything is possible."""
        if np.isnan(self.values).any():
            return Interval(float(self.values[0]), 0.0, 1.0)
        return rate_interval(self.values[0], self.values[1:], level, self.speakers)


def _rates(wrong: Array, first: Codes, second: Codes, n_speakers: int) -> _Rates:
    """The share of trials that is wrong; NaN where none is left."""
    values = []
    for times in (np.ones(n_speakers + 1), *leave_out(n_speakers)):
        weights = times[first] * times[second]
        total = float(weights.sum())
        values.append(float(weights @ wrong) / total if total > 0 else math.nan)
    tested = np.where(second == n_speakers, first, second)
    sides = [np.bincount(side) for side in (first, tested) if len(wrong)]
    return _Rates(np.array(values), len(wrong), min(map(effective_number, sides), default=0.0))


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
    others = np.any(list(masks.values()), axis=0) & ~targets
    first, second, n_speakers = speaker_codes(enrol_speakers, test_speakers, array.shape)
    enrolled = for_every_trial(enrol_groups, 0, array.shape, "groups")
    tested = for_every_trial(test_groups, 1, array.shape, "groups")
    names = np.unique(np.asarray(enrolled)[targets]).tolist()
    if len(names) < 2:
        raise DataError(f"groups are compared with each other: give at least 2; got {names}")
    accepted = array >= threshold
    within = others & (np.asarray(enrolled) == np.asarray(tested)) & (second < n_speakers)
    rates: dict[str, dict[str, Interval]] = {}
    ratios = {}
    between = {}
    for name, those, wrong in (("frr", targets, ~accepted), ("far", within, accepted)):
        every = {}
        for group in names:
            mask = those & (enrolled == group)
            errors = wrong[mask].astype(np.float64)
            every[str(group)] = _rates(errors, first[mask], second[mask], n_speakers)
        rates[name] = {group: own.interval(level) for group, own in every.items()}
        known = {group: own for group, own in every.items() if own.trials}
        if len(known) > 1:
            between[name], ratios[name] = _largest_ratio(known, level)
    return GroupErrors(float(threshold), rates["frr"], rates["far"], ratios, between)


def _largest_ratio(rates: dict[str, _Rates], level: float) -> tuple[tuple[str, str], Interval]:
    """The worst group and the best, and the ratio of their rates."""
    logs = {group: np.log(own.values + 0.5 / own.trials) for group, own in rates.items()}
    worst = max(logs, key=lambda group: logs[group][0])
    best = min(logs, key=lambda group: logs[group][0])
    both = (worst, best)
    ratios = logs[worst] - logs[best]
    estimate = float(ratios[0])
    without = ratios[1:]
    if np.isnan(without).any():
        return both, Interval(math.exp(estimate), 0.0, math.inf)
    n = len(without)
    error = math.sqrt((n - 1) / n * float(((without - without.mean()) ** 2).sum()))
    fewest = min(rates[group].speakers for group in both)
    t = float(stdtrit(max(fewest - 1.0, 1.0), 1 - (1 - level) / math.comb(len(rates), 2) / 2))
    low, high = (math.exp(min(estimate + sign * t * error, 700.0)) for sign in (-1, 1))
    return both, Interval(math.exp(estimate), low, high)
