"""Naming: the choice of one profile among several for a recording, or of none."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from .._typing import Array
from .operating_points import OperatingPoint, promised_far

MIN_PROBABILITY = 1e-15
"""Smallest probability whose logarithm is taken."""

NAMING_FAR = 0.02
"""False-acceptance rate of the point used for naming, if the model has one.

The threshold rises with the number of profiles, so that fewer than 3 % of strangers are named on corpora that were not
used for the default model (results/strangers).
"""


def naming_options(
    points: Sequence[OperatingPoint], **options: float | None
) -> dict[str, float | None]:
    """Return the options of `point_for` for naming; without options, `NAMING_FAR` if a point was chosen for it."""
    is_unset = all(value is None for value in options.values())
    if is_unset and any(promised_far(point) <= NAMING_FAR for point in points):
        return {"far": NAMING_FAR}
    return options


@dataclass(frozen=True, eq=False)
class NamingResult:
    """The profile that a recording belongs to, and the probabilities of all profiles.

    best : index of the named profile; None: no profile is named
    probabilities : (n,) posterior probability of each profile
    none : posterior probability that the recording belongs to none of them
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
) -> NamingResult:
    """Name the most probable of several profiles, if it is probable enough.

    Each of n profiles gives a stranger one more chance to be accepted. To keep the share of strangers that are named,
    the threshold rises by log n. The named profile is more probable than all others and "none of them" together.

    The outlier probability of a calibration belongs to the recording, not to each profile. It is removed from the LLRs,
    which it limits, and enters the probabilities once.

    Parameters
    ----------
    llrs : (n,) LLR of the recording against each profile; -inf excludes a profile
    point : operating point for a single profile
    none : prior probability that the recording belongs to none of the profiles
    count : number of candidate profiles; None: those with a finite LLR
    outlier_probability : that of the calibration of the LLRs

    Examples
    --------
    >>> name_among([9.0, -3.0, -5.0], OperatingPoint(4.6)).best
    0
    >>> name_among([5.0, -3.0, -5.0], OperatingPoint(4.6)).best is None
    True
    """
    limited_llrs = np.asarray(llrs, dtype=np.float64)
    is_candidate = np.isfinite(limited_llrs)
    n_candidates = max(1, np.count_nonzero(is_candidate) if count is None else count)
    log_count = math.log(n_candidates)

    scores = without_outliers(limited_llrs, outlier_probability)
    limit = without_outliers(np.asarray(point.threshold), outlier_probability)
    threshold = limit + log_count

    # Bayes with equal priors for the profiles; an outlier leaves the prior as it is.
    prior = np.append(is_candidate * (1 - none) / n_candidates, none)
    log_joint = np.append(scores + math.log1p(-none) - log_count, math.log(none))
    posterior = np.exp(log_joint - np.logaddexp.reduce(log_joint))
    posterior = (1 - outlier_probability) * posterior + outlier_probability * prior / prior.sum()

    eligible = np.flatnonzero((scores >= threshold) & (posterior[:-1] > 0.5))
    best = next(iter(eligible.tolist()), None)
    return NamingResult(best, posterior[:-1], float(posterior[-1]))


def without_outliers(llrs: Array, outlier_probability: float) -> Array:
    """Return LLRs at even odds as they were before an outlier probability was mixed in.

    With d the outlier probability, p = (1 - d) q + d / 2 is the posterior of an LLR; the logit of q is returned.
    """
    if outlier_probability == 0:
        return llrs
    # Both posteriors are computed directly, because 1 - p loses the digits of the smaller one.
    posteriors = expit(np.stack([llrs, -llrs]))
    shares = (posteriors - outlier_probability / 2) / (1 - outlier_probability)
    log_for, log_against = np.log(np.maximum(shares, MIN_PROBABILITY))
    return np.asarray(np.where(np.isneginf(llrs), -np.inf, log_for - log_against))
