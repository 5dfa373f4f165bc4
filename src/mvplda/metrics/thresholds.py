"""Threshold for a false-alarm rate, and error rates of groups of people, of identification, and of several attempts."""

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
    """Threshold for a false-alarm rate, with the error rates there.

    threshold : lowest accepted score; infinite if no score is high enough
    requested_far : requested largest false-alarm rate of each kind of impostor
    worst : kind of impostor that requires the highest threshold
    far : false-alarm rate at the threshold by kind of impostor
    frr : miss rate at the threshold
    least_far : smallest false-alarm rate of the worst kind that can be measured with this number of speakers
    speakers : effective number of speakers of the worst kind, see :mod:`mvplda.metrics.catalogue`
    """

    threshold: float
    requested_far: float
    worst: str
    far: dict[str, Interval]
    frr: Interval
    least_far: float
    speakers: float

    def warning(self) -> str | None:
        """Return a warning if there are too few speakers to show the requested rate, else None."""
        if self.requested_far >= self.least_far:
            return None
        return (
            f"too few speakers: {self.speakers:.0f} speakers cannot show a false-alarm rate below "
            f"{100 * self.least_far:.2g} %, and the threshold is for {100 * self.requested_far:g} %; "
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
    """Return the lowest threshold at which no kind of impostor is accepted more often than ``far``.

    Parameters
    ----------
    scores, kinds, enrol_speakers, test_speakers
        As for :func:`speaker_intervals`.
    far : float
        Largest false-alarm rate, a share in (0, 1). If more than this share of a kind has scores of +infinity, which
        every threshold accepts, `DataError` is raised.
    lowest : float
        Lower bound of the threshold; all rates are those at the returned threshold.

    Notes
    -----
    The intervals are over speakers at a fixed threshold. By the rule of three, n speakers without a false
    alarm are compatible with a rate of up to 3 / n: smaller rates cannot be shown.

    Examples
    --------
    >>> import numpy as np
    >>> from mvplda.metrics import threshold_for
    >>> who = np.arange(30)
    >>> point = threshold_for(np.eye(30), np.eye(30, dtype=bool), 0.01, who, who)
    >>> point.threshold, point.worst, round(point.least_far, 3)
    (1.0, 'nontarget', 0.095)
    >>> print(point.warning())  # doctest: +ELLIPSIS
    too few speakers: 30 speakers cannot show a false-alarm rate below 9.5 %, and the threshold is for 1 %; ...
    """
    check_rate(far)
    rows = weighted_trials(scores, kinds, (enrol_speakers, test_speakers))
    del rows[TOTAL]
    thresholds = {kind: trials.whole().threshold_for(far) for kind, trials in rows.items()}
    worst = max(thresholds, key=lambda kind: thresholds[kind])
    if math.isinf(max(thresholds[worst], lowest)):
        _refuse_infinite(rows, far)
    threshold = max(thresholds[worst], lowest)
    if np.isposinf(np.asarray(scores, dtype=np.float64)).any():
        # such scores are accepted at every threshold, so that the largest finite one shows their rates
        threshold = min(threshold, float(np.finfo(np.float64).max))
    rates = {kind: _rates_at(threshold, trials) for kind, trials in rows.items()}
    speakers = rows[worst].speakers()[1]
    return ThresholdPoint(
        threshold=threshold,
        requested_far=far,
        worst=worst,
        far={kind: far_interval for kind, (_, far_interval) in rates.items()},
        frr=rates[worst][0],
        least_far=unseen_share(speakers),
        speakers=speakers,
    )


def _refuse_infinite(rows: Mapping[str, WeightedTrials], far: float) -> None:
    """Raise `DataError` if more than the share `far` of a kind of non-targets has scores of +infinity.

    Every threshold accepts such scores.
    """
    for kind, trials in rows.items():
        scores = trials.nontargets.scores
        count = int(np.count_nonzero(np.isposinf(scores)))
        if count > far * len(scores):
            raise DataError(
                f"{count} of {len(scores)} {kind} score(s) are +infinity, which every threshold accepts: no threshold "
                f"limits false alarms to {100 * far:g} %. Pass finite scores, or leave these trials out"
            )


def _rates_at(threshold: float, trials: WeightedTrials) -> list[Interval]:
    """Return the miss rate and the false-alarm rate at a fixed threshold, with their intervals."""
    rates = trials.whole().rates(threshold)
    without = trials.without(lambda curve: curve.rates(threshold))
    if without is None:
        # One speaker or group has all trials of a side.
        return [Interval(float(rate), 0.0, 1.0) for rate in rates]
    replicates = np.array(without).T
    return [
        rate_interval(rate, rate_without, speakers)
        for rate, rate_without, speakers in zip(rates, replicates, trials.speakers(), strict=True)
    ]


# Errors of groups of people, and ratios between the groups.


@dataclass(frozen=True)
class GroupErrors:
    """Error rates of groups of people at a common threshold.

    threshold : lowest accepted score
    frr : miss rate of the targets of each group, by name of the group
    far : false-alarm rate of the trials between two different people of one group, by name of the group
    largest_ratio : for "frr" and for "far", the rate of the worst group over that of the best group. Half an error is
        added to each group, so that a group without errors does not make the ratio infinite
    between : for "frr" and for "far", the names of the worst and of the best group
    """

    threshold: float
    frr: dict[str, Interval]
    far: dict[str, Interval]
    largest_ratio: dict[str, Interval]
    between: dict[str, tuple[str, str]]

    def to_dict(self) -> Json:
        """Return the results as plain values for JSON; numbers that are not finite become None."""
        rates = {"frr": self.frr, "far": self.far, "largest_ratio": self.largest_ratio}
        tables = {
            name: {key: finite_numbers(x) for key, x in row.items()} for name, row in rates.items()
        }
        return {"threshold": self.threshold, **tables, "between": self.between}


class _GroupRate(NamedTuple):
    """Error rate of a group of people.

    values : rate of all speakers, then the rates without each speaker in turn; NaN if no trials are left
    trials : number of trials
    speakers : effective number of speakers
    """

    values: Array
    trials: int
    speakers: float

    def interval(self) -> Interval:
        """Return the rate with its interval, which is 0 to 1 if a single speaker has all trials."""
        if np.isnan(self.values).any():
            return Interval(float(self.values[0]), 0.0, 1.0)
        return rate_interval(self.values[0], self.values[1:], self.speakers)


def _group_rate(errors: Array, first: Codes, second: Codes, n_speakers: int) -> _GroupRate:
    """Compute the error rate of a group from its n trials.

    errors : (n,) 1 for an error, 0 for none
    first, second : (n,) codes of the speakers of both sides, see `speaker_codes`
    n_speakers : number of speakers of all groups
    """
    values = []
    for multiplicity in (np.ones(n_speakers + 1), *leave_out(n_speakers)):
        weights = multiplicity[first] * multiplicity[second]
        total = float(weights.sum())
        values.append(float(weights @ errors) / total if total > 0 else math.nan)
    tested = np.where(second == n_speakers, first, second)
    trials_per_speaker = [np.bincount(codes) for codes in (first, tested) if len(errors)]
    speakers = min(map(effective_number, trials_per_speaker), default=0.0)
    return _GroupRate(np.array(values), len(errors), speakers)


def group_errors(
    scores: ArrayLike,
    kinds: Kinds,
    threshold: float,
    enrol_speakers: ArrayLike,
    test_speakers: ArrayLike,
    enrol_groups: ArrayLike,
    test_groups: ArrayLike,
) -> GroupErrors:
    """Compute the miss and false-alarm rates of each group at a common threshold.

    Parameters
    ----------
    scores, kinds, enrol_speakers, test_speakers
        As for :func:`speaker_intervals`.
    threshold : float
        Lowest accepted score.
    enrol_groups, test_groups : array-like
        Groups of the people on both sides (sex, age, language ...), in the format of the speakers.

    Notes
    -----
    The interval of a ratio is a jackknife over speakers of its logarithm. The worst and the best of
    several groups are selected by their rates. The confidence level is therefore 1 - 0.05 / k for k pairs of
    groups, so that the interval is valid for whichever pair is selected.

    Examples
    --------
    >>> import numpy as np
    >>> from mvplda.metrics import group_errors
    >>> who, group = np.arange(20), np.repeat(["a", "b"], 10)
    >>> scores = np.eye(20)
    >>> scores[0, 0] = 0.0  # one miss, of group a
    >>> errors = group_errors(scores, np.eye(20, dtype=bool), 0.5, who, who, group, group)
    >>> errors.frr["a"].estimate, errors.frr["b"].estimate, round(errors.largest_ratio["frr"].estimate, 6)
    (0.1, 0.0, 3.0)
    """
    array = np.asarray(scores)
    masks = as_masks(kinds, array.shape)
    targets = masks[target_kind(masks)]
    nontargets = np.any(list(masks.values()), axis=0) & ~targets
    first, second, n_speakers = speaker_codes(enrol_speakers, test_speakers, array.shape)
    names, enrolled, tested = trial_label_codes(enrol_groups, test_groups, array.shape, "groups")
    present = np.unique(enrolled[targets]).tolist()
    if len(present) < 2:
        group_names = [names[group] for group in present]
        raise DataError(
            f"expected at least 2 groups with targets, to compare them; got {group_names}"
        )
    accepted = array >= threshold
    # False alarms between two different people of one group.
    within = nontargets & (enrolled == tested) & (second < n_speakers)

    rates: dict[str, dict[str, Interval]] = {}
    ratios = {}
    between = {}
    for name, trials, is_error in (("frr", targets, ~accepted), ("far", within, accepted)):
        group_rates = {}
        for group in present:
            mask = trials & (enrolled == group)
            errors = is_error[mask].astype(np.float64)
            rate = _group_rate(errors, first[mask], second[mask], n_speakers)
            group_rates[str(names[group])] = rate
        rates[name] = {group: rate.interval() for group, rate in group_rates.items()}
        measured = {group: rate for group, rate in group_rates.items() if rate.trials}
        if len(measured) > 1:
            between[name], ratios[name] = _largest_ratio(measured)
    return GroupErrors(float(threshold), rates["frr"], rates["far"], ratios, between)


def _largest_ratio(rates: dict[str, _GroupRate]) -> tuple[tuple[str, str], Interval]:
    """Return the names of the worst and of the best group, and the ratio of their rates with its interval.

    rates : rate by name of the group
    """
    logs = {group: np.log(rate.values + 0.5 / rate.trials) for group, rate in rates.items()}
    worst = max(logs, key=lambda group: logs[group][0])
    best = min(logs, key=lambda group: logs[group][0])
    pair = (worst, best)
    ratios = logs[worst] - logs[best]
    estimate = float(ratios[0])
    without = ratios[1:]
    if np.isnan(without).any():
        return pair, Interval(math.exp(estimate), 0.0, math.inf)
    n = len(without)
    error = math.sqrt((n - 1) / n * float(((without - without.mean()) ** 2).sum()))
    fewest_speakers = min(rates[group].speakers for group in pair)
    degrees_of_freedom = max(fewest_speakers - 1.0, 1.0)
    # Bonferroni correction for the number of pairs of groups.
    tail = (1 - LEVEL) / math.comb(len(rates), 2) / 2
    t = float(stdtrit(degrees_of_freedom, 1 - tail))
    low, high = (math.exp(min(estimate + sign * t * error, 700.0)) for sign in (-1, 1))
    return pair, Interval(math.exp(estimate), low, high)


# Errors of identification, one against many.


def identification_curve(scores: ArrayLike, targets: ArrayLike, searches: ArrayLike) -> ScoreCurve:
    """Compute the false-negative and false-positive identification rates (FNIR, FPIR of ISO/IEC 19795-1).

    A search compares a test with all profiles. The search of an enrolled speaker is a miss if the right profile scores
    below the threshold, or if another profile scores at least as high. The search of a speaker who is not enrolled is a
    false positive if any profile reaches the threshold.

    Parameters
    ----------
    scores : (n,) scores of the trials
    targets : (n,) whether profile and test are of the same speaker
    searches : (n,) id of the test of each trial; trials with the same test are one search

    Returns
    -------
    ScoreCurve
        Curve with FNIR as misses and FPIR as false alarms: ``curve.rates(threshold)``, ``curve.threshold_for(fpir)``.

    Examples
    --------
    >>> from mvplda.metrics import identification_curve
    >>> same, tests = [True, False, False, True, False, False], ["a", "a", "b", "b", "eve", "eve"]
    >>> curve = identification_curve([3.0, 1.0, 0.0, 2.0, 1.0, -1.0], same, tests)
    >>> [float(rate) for rate in curve.rates(2.5)]  # b is missed, eve is not identified
    [0.5, 0.0]
    """
    array = np.asarray(scores)
    same = np.asarray(targets, dtype=bool)
    test = Coded.of(searches).codes
    best = np.full((2, test.max() + 1), -np.inf)
    np.maximum.at(best, (same.astype(int), test), array)
    is_enrolled = np.isin(np.arange(best.shape[1]), test[same])
    if is_enrolled.all() or not is_enrolled.any():
        raise DataError(
            f"{is_enrolled.sum()} of {len(is_enrolled)} searches are of enrolled people: pass some "
            "of enrolled people, for the FNIR, and some of others, for the FPIR"
        )
    best_nontarget, best_target = best
    # The right profile must score higher than all others, at any threshold.
    identified = np.where(best_nontarget < best_target, best_target, -np.inf)
    return ScoreCurve(identified[is_enrolled], best_nontarget[~is_enrolled])


# Errors if a claimant may try more than once.


def transactions(
    scores: ArrayLike, kinds: ArrayLike, profiles: ArrayLike, attempts_of: ArrayLike, most: int = 3
) -> tuple[IntArray, FloatArray]:
    """Combine trials into transactions, which are accepted if one of the first `most` attempts is.

    Parameters
    ----------
    scores, kinds : (n,) scores and kinds of the trials, in the order of the attempts
    profiles : (n,) profile of each trial
    attempts_of : (n,) transaction of each trial, such as the session of its test
    most : largest number of attempts per transaction

    Returns
    -------
    rows : index of the first trial of each transaction
    best : highest score among the attempts of each transaction; the transaction is accepted at a
        threshold if this score reaches it

    Examples
    --------
    >>> from mvplda.metrics import transactions
    >>> rows, best = transactions([-1.0, 2.0, 0.5], ["target"] * 3, ["ann"] * 3, ["mon", "mon", "tue"], most=2)
    >>> rows.tolist(), best.tolist()
    ([0, 2], [2.0, 0.5])
    """
    if most < 1:
        raise ParameterError(f"most must be at least 1 attempt per transaction; got {most}")
    array = np.asarray(scores)
    codes = np.stack([Coded.of(labels).codes for labels in (profiles, attempts_of)])
    _, rows, transaction = np.unique(codes, axis=1, return_index=True, return_inverse=True)
    kind = Coded.of(kinds).codes
    if (kind != kind[rows][transaction]).any():
        raise DataError(
            "a transaction has attempts of several kinds: give one transaction only attempts by one "
            "person for one profile"
        )
    # Number the attempts of each transaction in their order.
    order = np.argsort(transaction, kind="stable")
    ordered = transaction[order]
    attempt = np.empty_like(order)
    attempt[order] = np.arange(len(order)) - np.searchsorted(ordered, ordered)

    is_allowed = attempt < most
    best = np.full(len(rows), -np.inf, array.dtype)
    np.maximum.at(best, transaction[is_allowed], array[is_allowed])
    return rows, best
