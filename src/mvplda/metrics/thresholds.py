"""Errors at a threshold: one for a wanted false-alarm rate and what it costs, groups of people, identification."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtrit

from .._typing import Array, FloatArray, IntArray, Json
from ..coded import Coded
from ..exceptions import DataError, ParameterError
from ..kinds import Kinds, as_masks, target_kind
from .catalogue import LEVEL, Interval, check_rate, effective_number, rate_interval, unseen_share
from .curves import ScoreCurve
from .evaluation import TOTAL
from .intervals import (
    Codes,
    WeightedTrials,
    finite_numbers,
    leave_out,
    speaker_codes,
    trial_label_codes,
    weighted_trials,
)


@dataclass(frozen=True)
class ThresholdPoint:
    """A threshold, the errors there by kind, and how little the speakers can show.

    threshold : the lowest score that is accepted; infinite if no score is high enough
    wanted : the false-alarm rate that the threshold is for, of every kind of impostor
    worst : the kind that needs the highest threshold
    far : false-alarm rate of every kind at the threshold
    frr : miss rate at the threshold
    least_far : the least false-alarm rate of the worst kind that so many speakers could show
    speakers : how many speakers count for the worst kind, see :mod:`mvplda.metrics.catalogue`
    """

    threshold: float
    wanted: float
    worst: str
    far: dict[str, Interval]
    frr: Interval
    least_far: float
    speakers: float

    def warning(self) -> str | None:
        """What to say where there are too few speakers to show the wanted rate; None where there are enough."""
        if self.wanted >= self.least_far:
            return None
        return (
            f"too few: with {self.speakers:.0f} speakers you cannot show a false-alarm rate below "
            f"{100 * self.least_far:.2g} %, and the threshold is for {100 * self.wanted:g} %; "
            "use the threshold as a first guess, and measure again with more speakers"
        )


def threshold_for(
    scores: ArrayLike,
    kinds: Kinds,
    far: float,
    enrol_speakers: ArrayLike,
    test_speakers: ArrayLike,
    *,
    lowest: float = -math.inf,
) -> ThresholdPoint:
    """The lowest threshold at which no kind of impostor is accepted more often than ``far``.

    Parameters
    ----------
    scores, kinds, enrol_speakers, test_speakers
        As for :func:`speaker_intervals`.
    far : float
        The wanted false-alarm rate, a share in (0, 1). Non-targets at +infinity, more than this share of a kind,
        are refused: every threshold accepts them.
    lowest : float
        The threshold is not below this; all rates are those at the threshold that is returned.

    Notes
    -----
    The rates are intervals over speakers at the threshold, which stays where it is. By the rule of three
    n speakers of whom none was accepted wrongly may be so lucky with a rate of 3 / n: less than that
    cannot be shown.

    Examples
    --------
    >>> import numpy as np
    >>> from mvplda.metrics import threshold_for
    >>> who = np.arange(30)
    >>> point = threshold_for(np.eye(30), np.eye(30, dtype=bool), 0.01, who, who)
    >>> point.threshold, point.worst, round(point.least_far, 3)
    (1.0, 'nontarget', 0.095)
    >>> print(point.warning())  # doctest: +ELLIPSIS
    too few: with 30 speakers you cannot show a false-alarm rate below 9.5 %, and the threshold is for 1 %; ...
    """
    check_rate(far)
    rows = weighted_trials(scores, kinds, (enrol_speakers, test_speakers))
    del rows[TOTAL]
    thresholds = {kind: trials.whole().threshold_for(far) for kind, trials in rows.items()}
    worst = max(thresholds, key=lambda kind: thresholds[kind])
    if math.isinf(max(thresholds[worst], lowest)):
        _refuse_infinite(rows, far)
    threshold = max(thresholds[worst], lowest)
    rates = {kind: _rates_at(threshold, trials) for kind, trials in rows.items()}
    speakers = rows[worst].speakers()[1]
    return ThresholdPoint(
        threshold=threshold,
        wanted=far,
        worst=worst,
        far={kind: both[1] for kind, both in rates.items()},
        frr=rates[worst][0],
        least_far=unseen_share(speakers),
        speakers=speakers,
    )


def _refuse_infinite(rows: Mapping[str, WeightedTrials], far: float) -> None:
    """Refuse non-targets at +infinity, which reach any threshold: the lowest accepted score is +infinity, too."""
    for kind, trials in rows.items():
        highest = trials.nontargets.scores
        count = int(np.count_nonzero(np.isposinf(highest)))
        if count > far * len(highest):
            raise DataError(
                f"{count} of {len(highest)} {kind} score(s) are +infinity, which every threshold accepts: no threshold "
                f"keeps false alarms to {100 * far:g} %. Give finite scores, or leave these trials out"
            )


def _rates_at(threshold: float, trials: WeightedTrials) -> list[Interval]:
    """Miss and false-alarm rate at a threshold that stays where it is, with their intervals."""
    rates = trials.whole().rates(threshold)
    without = trials.without(lambda curve: curve.rates(threshold))
    if without is None:  # all trials of a side are of one speaker or group
        return [Interval(float(rate), 0.0, 1.0) for rate in rates]
    each = zip(rates, np.array(without).T, trials.speakers(), strict=True)
    return [rate_interval(rate, own, speakers) for rate, own, speakers in each]


# Errors of groups of people, and how far the groups lie apart.


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

    def to_dict(self) -> Json:
        """Plain values for JSON; what is not finite is None."""
        rates = {"frr": self.frr, "far": self.far, "largest_ratio": self.largest_ratio}
        tables = {
            name: {key: finite_numbers(x) for key, x in row.items()} for name, row in rates.items()
        }
        return {"threshold": self.threshold, **tables, "between": self.between}


class _Rates(NamedTuple):
    """One error rate of one group: of all speakers, then without each of them; of how many trials and speakers."""

    values: Array
    trials: int
    speakers: float

    def interval(self) -> Interval:
        """The rate; of one speaker, or of none, anything is possible."""
        if np.isnan(self.values).any():
            return Interval(float(self.values[0]), 0.0, 1.0)
        return rate_interval(self.values[0], self.values[1:], self.speakers)


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
) -> GroupErrors:
    """Misses and false alarms of every group at a common threshold.

    Parameters
    ----------
    scores, kinds, enrol_speakers, test_speakers
        As for :func:`speaker_intervals`.
    threshold : float
        The lowest score that is accepted.
    enrol_groups, test_groups : array-like
        The groups of the people on both sides (sex, age, language ...), labelled like the speakers.

    Notes
    -----
    The interval of a ratio is a jackknife over speakers of its logarithm. The worst and the best of
    several groups were chosen by their rates: with k pairs of groups the interval is of the level
    1 - 0.05 / k, so that it holds for whichever pair is chosen.

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
    array = np.asarray(scores)
    masks = as_masks(kinds, array.shape)
    targets = masks[target_kind(masks)]
    others = np.any(list(masks.values()), axis=0) & ~targets
    first, second, n_speakers = speaker_codes(enrol_speakers, test_speakers, array.shape)
    names, enrolled, tested = trial_label_codes(enrol_groups, test_groups, array.shape, "groups")
    present = np.unique(enrolled[targets]).tolist()
    if len(present) < 2:
        found = [names[group] for group in present]
        raise DataError(f"groups are compared with each other: give at least 2; got {found}")
    accepted = array >= threshold
    within = others & (enrolled == tested) & (second < n_speakers)
    rates: dict[str, dict[str, Interval]] = {}
    ratios = {}
    between = {}
    for name, those, wrong in (("frr", targets, ~accepted), ("far", within, accepted)):
        every = {}
        for group in present:
            mask = those & (enrolled == group)
            errors = wrong[mask].astype(np.float64)
            every[str(names[group])] = _rates(errors, first[mask], second[mask], n_speakers)
        rates[name] = {group: own.interval() for group, own in every.items()}
        known = {group: own for group, own in every.items() if own.trials}
        if len(known) > 1:
            between[name], ratios[name] = _largest_ratio(known)
    return GroupErrors(float(threshold), rates["frr"], rates["far"], ratios, between)


def _largest_ratio(rates: dict[str, _Rates]) -> tuple[tuple[str, str], Interval]:
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
    t = float(stdtrit(max(fewest - 1.0, 1.0), 1 - (1 - LEVEL) / math.comb(len(rates), 2) / 2))
    low, high = (math.exp(min(estimate + sign * t * error, 700.0)) for sign in (-1, 1))
    return both, Interval(math.exp(estimate), low, high)


# Errors of identification, one against many.


def identification_curve(scores: ArrayLike, targets: ArrayLike, searches: ArrayLike) -> ScoreCurve:
    """False-negative and false-positive identification rates (FNIR, FPIR of ISO/IEC 19795-1) over all thresholds.

    A search is a test against all profiles. One whose speaker is enrolled is missed where the right profile scores
    below the threshold, or another profile scores as high. Another is a false positive where any profile reaches it.

    Parameters
    ----------
    scores : (n,) of trials
    targets : (n,) whether profile and test are of the same speaker
    searches : (n,) the test of every trial

    Returns
    -------
    ScoreCurve
        Its misses are FNIR, its false alarms FPIR: ``curve.rates(threshold)``, ``curve.threshold_for(fpir)``.

    Examples
    --------
    >>> from mvplda.metrics import identification_curve
    >>> same, tests = [True, False, False, True, False, False], ["a", "a", "b", "b", "eve", "eve"]
    >>> curve = identification_curve([3.0, 1.0, 0.0, 2.0, 1.0, -1.0], same, tests)
    >>> [float(rate) for rate in curve.rates(2.5)]  # b is missed, eve is not taken for anybody
    [0.5, 0.0]
    """
    array = np.asarray(scores)
    same = np.asarray(targets, dtype=bool)
    test = Coded.of(searches).codes
    best = np.full((2, test.max() + 1), -np.inf)
    np.maximum.at(best, (same.astype(int), test), array)
    known = np.isin(np.arange(best.shape[1]), test[same])
    if known.all() or not known.any():
        raise DataError(
            f"of {len(known)} searches {known.sum()} are of people who are enrolled: FNIR needs such searches, FPIR "
            "needs searches of people who are not enrolled"
        )
    return ScoreCurve(np.where(best[0] < best[1], best[1], -np.inf)[known], best[0][~known])


# Errors where a claimant may try more than once.


def transactions(
    scores: ArrayLike, kinds: Kinds, profiles: ArrayLike, attempts_of: ArrayLike, most: int = 3
) -> tuple[IntArray, FloatArray]:
    """Trials as attempts of transactions, which are accepted where one of the first `most` attempts is.

    Parameters
    ----------
    scores, kinds : (n,) of trials, in the order in which they were made
    profiles : (n,) the profile of every trial
    attempts_of : (n,) the transaction that every trial is an attempt of, such as the session of its test

    Returns
    -------
    rows : the first trial of every transaction
    best : the best score among its attempts, which is at or above a threshold where one of them is

    Examples
    --------
    >>> from mvplda.metrics import transactions
    >>> rows, best = transactions([-1.0, 2.0, 0.5], ["target"] * 3, ["ann"] * 3, ["mon", "mon", "tue"], most=2)
    >>> rows.tolist(), best.tolist()
    ([0, 2], [2.0, 0.5])
    """
    if most < 1:
        raise ParameterError(f"a transaction has at least one attempt; got {most}")
    array = np.asarray(scores)
    codes = np.stack([Coded.of(one).codes for one in (profiles, attempts_of)])
    _, rows, which = np.unique(codes, axis=1, return_index=True, return_inverse=True)
    kind = Coded.of(kinds).codes
    if (kind != kind[rows][which]).any():
        raise DataError(
            "a transaction has attempts of several kinds: all are of one person's claim"
        )
    order = np.argsort(which, kind="stable")
    number = np.empty_like(order)
    number[order] = np.arange(len(order)) - np.searchsorted(which[order], which[order])
    allowed = number < most
    best = np.full(len(rows), -np.inf, array.dtype)
    np.maximum.at(best, which[allowed], array[allowed])
    return rows, best
