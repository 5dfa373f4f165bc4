"""Naming: for a recording, the choice of one profile among several, or of none."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from .._typing import Array
from .operating_points import OperatingPoint, point_for, promised_far, promised_point

MIN_PROBABILITY = 1e-15
"""Smallest probability whose logarithm is computed."""

NAMING_FAR = 0.02
"""Default share of strangers that may be named as one of the profiles."""


def naming_point(
    points: Sequence[OperatingPoint],
    count: int,
    *,
    far: float | None = None,
    threshold: float | None = None,
    outlier_probability: float = 0.0,
    default_far: float = NAMING_FAR,
) -> OperatingPoint:
    """Return the operating point at which one of several profiles is named.

    A stranger has one chance per profile to be accepted. To name at most the share `far` of
    strangers, each of n profiles may accept far / n of them, and the point measured for that share
    is used. If no point was measured for so small a share, the thresholds of the strictest point,
    measured for the share f, rise by log(n f / far). With calibrated LLRs the share of impostors
    then falls by at least the factor n f / far. A given `threshold` rises by log n.

    The returned thresholds apply to LLRs without an outlier probability, see `name_among`.

    Parameters
    ----------
    points : the model's points for a single profile
    count : number of profiles
    far : share of strangers that may be named; None: `default_far`
    threshold : LLR for a single profile, instead of `far`
    outlier_probability : outlier probability of the calibration, which bounds the LLRs of points
        without halves
    default_far : share of strangers if `far` is None

    Returns
    -------
    OperatingPoint

    Examples
    --------
    >>> points = [OperatingPoint(4.0, far=0.01), OperatingPoint(6.0, far=0.001)]
    >>> [round(naming_point(points, count).threshold, 2) for count in (1, 2, 20, 200)]
    [4.0, 4.0, 6.0, 8.3]
    """
    n_profiles = max(1, count)
    if threshold is not None:
        point = point_for(far=far, threshold=threshold)
        return _raised(point, math.log(n_profiles), outlier_probability)
    promised = [point for point in points if point.far is not None]
    if far is not None:
        # check: raises an error if no point was measured for this share
        point_for(promised, far=far)
    rate = (default_far if far is None else far) / n_profiles
    strictest = promised_point(promised, rate)
    if strictest is None and points:
        return _raised(points[0], math.log(n_profiles), outlier_probability)
    if strictest is None:
        return point_for(far=rate)
    excess = max(0.0, math.log(promised_far(strictest) / rate))
    return _raised(strictest, excess, outlier_probability)


def _raised(point: OperatingPoint, excess: float, outlier_probability: float) -> OperatingPoint:
    """Return a point with thresholds raised by `excess`, for LLRs without an outlier probability.

    outlier_probability : outlier probability in the LLRs to which the point's joint threshold
        applies
    """
    if point.halves:
        if excess == 0:
            return point
        halves = {
            view: replace(half, accept=half.accept + excess, measured=None)
            for view, half in point.halves.items()
        }
        return OperatingPoint.from_halves(halves, people=point.people, basis=point.basis)
    limit = float(without_outliers(np.asarray(point.threshold), outlier_probability)) + excess
    if limit == point.threshold:
        return point
    return OperatingPoint(limit, point.reject, people=point.people, basis=point.basis)


@dataclass(frozen=True, eq=False)
class NamingResult:
    """Result of naming: the profile that a recording belongs to, and the probabilities of all profiles.

    best : index of the named profile; None: no profile is named
    probabilities : (n,) posterior probability of each profile
    none : posterior probability that the recording belongs to none of the profiles
    """

    best: int | None
    probabilities: Array
    none: float


def name_among(
    llrs: ArrayLike,
    point: OperatingPoint,
    *,
    none: float = 0.5,
    count: int | None = None,
    outlier_probability: float = 0.0,
    halves: Mapping[str, Array] | None = None,
) -> NamingResult:
    """Name the most probable of several profiles, if it is probable enough.

    A profile is named if its LLRs reach the thresholds of the point, which grow with the number of
    profiles (`naming_point`), and if its probability is above one half. The outlier probability of
    a calibration belongs to the recording, not to each profile. So LLRs are passed without it, and
    it enters the probabilities once.

    Parameters
    ----------
    llrs : (n,) LLR of the recording against each profile, without an outlier probability
        (`Answer.inlier_llr`); -inf excludes a profile
    point : operating point for this number of profiles
    none : prior probability that the recording belongs to none of the profiles
    count : number of candidate profiles; None: those with a finite LLR
    outlier_probability : outlier probability of the calibration
    halves : {view: (n,) LLRs of this view alone}, for points with a threshold per view; None:
        `llrs` are used for each

    Returns
    -------
    NamingResult

    Examples
    --------
    >>> point = naming_point([OperatingPoint(4.6)], 3)
    >>> name_among([9.0, -3.0, -5.0], point).best
    0
    >>> name_among([5.0, -3.0, -5.0], point).best is None
    True
    """
    scores = np.asarray(llrs, dtype=np.float64)
    is_candidate = np.isfinite(scores)
    n_candidates = max(1, np.count_nonzero(is_candidate) if count is None else count)
    is_accepted = scores >= point.threshold
    if point.halves:
        half_llrs = dict.fromkeys(point.halves, scores) if halves is None else halves
        margins = [half_llrs[view] - half.accept for view, half in point.halves.items()]
        is_accepted = np.min(margins, axis=0) >= 0

    # Bayes with equal priors for the profiles; an outlier leaves the prior as it is.
    prior = np.append(is_candidate * (1 - none) / n_candidates, none)
    log_prior = math.log1p(-none) - math.log(n_candidates)
    log_joint = np.append(scores + log_prior, math.log(none))
    posterior = np.exp(log_joint - np.logaddexp.reduce(log_joint))
    posterior = (1 - outlier_probability) * posterior + outlier_probability * prior / prior.sum()

    eligible = np.flatnonzero(is_accepted & is_candidate & (posterior[:-1] > 0.5))
    best = next(iter(eligible.tolist()), None)
    return NamingResult(best, posterior[:-1], float(posterior[-1]))


def without_outliers(llrs: Array, outlier_probability: float) -> Array:
    """Return LLRs as they were before an outlier probability was mixed in, at even prior odds.

    With outlier probability d, an LLR with posterior p comes from a posterior q with p = (1 - d) q
    + d / 2. The logit of q is returned.

    llrs : LLRs of any shape
    outlier_probability : d
    """
    if outlier_probability == 0:
        return llrs
    # Both posteriors are computed directly, because 1 - p loses the digits of the smaller one.
    posteriors = expit(np.stack([llrs, -llrs]))
    shares = (posteriors - outlier_probability / 2) / (1 - outlier_probability)
    log_for, log_against = np.log(np.maximum(shares, MIN_PROBABILITY))
    return np.asarray(np.where(np.isneginf(llrs), -np.inf, log_for - log_against))
