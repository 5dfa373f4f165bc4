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
    """Return the operating point for comparing a recording with several profiles (1:N).

    Each profile can accept a stranger by mistake. To limit the strangers that any of n profiles
    accepts to the share `far`, each profile may accept only the share far / n. The point that was
    measured for this share is used. If no point was measured for so small a share, the thresholds
    of the strictest point, measured for a share f, are raised by log(n f / far); calibrated LLRs
    exceed them for at most far / n of the strangers. A given `threshold` is raised by log n.

    Pass LLRs without an outlier probability with the returned point, see `name_among`.

    Parameters
    ----------
    points : the model's operating points for a single profile
    count : number n of profiles
    far : share of strangers for whom a profile may be returned by mistake; None: `default_far`
    threshold : LLR that accepts a single profile, instead of `far`
    outlier_probability : outlier probability of the calibration. A joint threshold was measured on
        LLRs that include it, and is converted to LLRs without it; thresholds per view were not
    default_far : value of `far` if it is None

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
        return _raise_thresholds(point, math.log(n_profiles), outlier_probability)
    promised = [point for point in points if point.far is not None]
    if far is not None:
        # check: raises an error if no point was measured for this share
        point_for(promised, far=far)
    rate = (default_far if far is None else far) / n_profiles
    strictest = promised_point(promised, rate)
    if strictest is None and points:
        return _raise_thresholds(points[0], math.log(n_profiles), outlier_probability)
    if strictest is None:
        return point_for(far=rate)
    excess = max(0.0, math.log(promised_far(strictest) / rate))
    return _raise_thresholds(strictest, excess, outlier_probability)


def _raise_thresholds(
    point: OperatingPoint, excess: float, outlier_probability: float
) -> OperatingPoint:
    """Return a point with higher acceptance thresholds, for LLRs without an outlier probability.

    excess : number that is added to the threshold, or to the threshold of each view
    outlier_probability : outlier probability in the LLRs for which a joint threshold was chosen;
        it is removed from the threshold
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
    halves : {view: (n,) LLRs of this view alone}, compared with the point's threshold of the view.
        None: `llrs` are compared with all thresholds

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
