"""Bandwidth of recordings, estimated from their evidence: a telephone carries a narrow band, a microphone a wide one.

Profiles keep no sound, but the evidence of their recordings depends on the band, so a logistic regression on it
estimates the band of each side of a trial.
"""

from __future__ import annotations

import numpy as np
from scipy.special import expit

from ..._typing import Array, BoolArray, IntArray, Names
from ...backend import like, to_host
from ...exceptions import LabelError
from ...scoring.profiles import Profiles

DIFFERENT_BANDS = "narrow band on one side"
"""Condition of a trial: the probability that one side has a narrow band and the other a wide one."""

REGULARISATION = 10.0
"""Inverse strength of the prior of the weights."""


def fit_band_weights(evidence: Array, is_narrow: BoolArray, domains: Names) -> Array:
    """Fit the log odds of a narrow band: a weighted sum of the evidence, plus a constant.

    Every domain has the same influence, and within a domain both bands have the same.

    evidence : (n, D), with a similar scale in all blocks

    Returns
    -------
    (D + 1,) weights, the constant last
    """
    if is_narrow.all() or not is_narrow.any():
        raise LabelError(
            "expected recordings with a narrow band and recordings with a wide one; all have the same"
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
    """Return the probability of a narrow band per profile, (P,), computed from the mean of its recordings."""
    starts = np.searchsorted(profiles.owner, np.arange(len(profiles)))
    # the constant counts once per recording
    sums = to_host(profiles.y @ like(weights[:-1], profiles.y)) + weights[-1] * profiles.weights
    means = np.add.reduceat(sums, starts) / np.add.reduceat(profiles.weights, starts)
    return np.asarray(expit(means))


def different_bands(
    enrol: Profiles, test: Profiles, weights: Array, profiles: IntArray, tests: IntArray
) -> Array:
    """Return the condition `DIFFERENT_BANDS` of each trial.

    profiles, tests : (trials,) row of the trial's profile in `enrol`, and of its test in `test`
    """
    enrolled = narrow_probability(enrol, weights)[profiles]
    tested = narrow_probability(test, weights)[tests]
    return np.asarray(enrolled * (1.0 - tested) + tested * (1.0 - enrolled))
