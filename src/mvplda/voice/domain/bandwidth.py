"""Estimate of the bandwidth of recordings: a telephone transmits a narrow band, a microphone a wide one.

Profiles store no sound, but vectors depend on the bandwidth. A logistic regression on the evidence (the vectors as
`DomainPLDA` projects them) estimates the bandwidth of each side of a trial.
"""

from __future__ import annotations

import numpy as np
from scipy.special import expit

from ..._typing import Array, BoolArray, IntArray, Names
from ...backend import like, to_host
from ...exceptions import LabelError
from ...scoring.profiles import Profiles

DIFFERENT_BANDS = "narrow band on one side"
"""Name of a quality measure of trials: the probability that one side has a narrow band and the other a wide one."""

REGULARISATION = 10.0
"""Inverse strength of the regularisation of the weights (`C` of scikit-learn's `LogisticRegression`)."""


def fit_band_weights(evidence: Array, is_narrow: BoolArray, domains: Names) -> Array:
    """Fit a logistic regression of the band (narrow or wide) on the evidence.

    The log odds of a narrow band are the sum of coefficient times evidence over columns, plus a
    constant.

    Every domain has the same influence; within a domain, narrow and wide bands have the same influence.

    Parameters
    ----------
    evidence : (n, D) projected vectors; the columns of all extractors should have a similar scale
    is_narrow : (n,) whether each recording has a narrow band
    domains : (n,) domain of each recording

    Returns
    -------
    (D + 1,) coefficients of the columns, the constant last

    Raises
    ------
    LabelError
        All recordings have the same bandwidth.
    """
    if is_narrow.all() or not is_narrow.any():
        raise LabelError(
            "is_narrow must contain both True (narrow band) and False (wide band), because both are compared; all "
            f"{len(is_narrow)} recordings are {'narrow' if is_narrow.all() else 'wide'}"
        )
    # slow to import, and only a fit needs it
    from sklearn.linear_model import LogisticRegression

    _, groups, counts = np.unique(
        np.stack([np.unique(domains, return_inverse=True)[1], is_narrow.astype(np.int64)]),
        axis=1,
        return_inverse=True,
        return_counts=True,
    )
    weights = (len(domains) / len(counts)) / counts[groups.reshape(-1)]
    regression = LogisticRegression(C=REGULARISATION, max_iter=1000)
    regression.fit(evidence, is_narrow, sample_weight=weights)
    return np.append(regression.coef_[0], regression.intercept_)


def narrow_probability(profiles: Profiles, weights: Array) -> Array:
    """Return, for each of P profiles, the probability that its recordings have a narrow band, (P,).

    profiles : profiles with the evidence of their recordings, whose mean is used
    weights : (D + 1,) coefficients from `fit_band_weights`
    """
    starts = np.searchsorted(profiles.owner, np.arange(len(profiles)))
    # the constant counts once per recording
    sums = to_host(profiles.y @ like(weights[:-1], profiles.y)) + weights[-1] * profiles.weights
    means = np.add.reduceat(sums, starts) / np.add.reduceat(profiles.weights, starts)
    return np.asarray(expit(means))


def different_bands(
    enrol: Profiles, test: Profiles, weights: Array, profiles: IntArray, tests: IntArray
) -> Array:
    """Return the probability that one side of a trial has a narrow band and the other a wide one.

    Parameters
    ----------
    enrol, test : profiles of the two sides
    weights : (D + 1,) coefficients from `fit_band_weights`
    profiles, tests : number of each trial's profile in `enrol` and of its test in `test`; arrays of
        the same shape

    Returns
    -------
    probability per trial, in the shape of `profiles`
    """
    enrolled = narrow_probability(enrol, weights)[profiles]
    tested = narrow_probability(test, weights)[tests]
    return np.asarray(enrolled * (1.0 - tested) + tested * (1.0 - enrolled))
