"""Weighted logistic regression: a convex cost, its exact gradient and curvature."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit

from ..exceptions import NumericalError, SeparableScoresWarning
from ..kernel.records import Array

LLR_DEVIATION = 30.0
"""Standard deviation over all trials that calibrated LLRs may well have: the prior of slopes."""


def logistic_cost(
    weights: Array, inputs: Array, signs: Array, mass: Array, offset: float, ridge: float = 0.0
) -> tuple[float, Array]:
    """Cost sum_i mass_i log(1 + exp(-sign_i (inputs_i . weights + offset))) + ridge / 2 |slopes|^2, and its gradient.

    The last column of the inputs is the constant; the ridge leaves its weight alone.
    """
    margin = signs * (inputs @ weights + offset)
    slopes = np.append(weights[:-1], 0.0)
    cost = float(mass @ np.logaddexp(0.0, -margin)) + ridge / 2 * float(slopes @ slopes)
    gradient = -inputs.T @ (mass * signs * expit(-margin)) + ridge * slopes
    return cost, gradient


def curvature(weights: Array, inputs: Array, mass: Array, offset: float, ridge: float = 0.0) -> Array:
    """Matrix of second derivatives of `logistic_cost`."""
    p = expit(inputs @ weights + offset)
    hessian = (inputs * (mass * p * (1 - p))[:, None]).T @ inputs
    hessian[np.arange(len(weights) - 1), np.arange(len(weights) - 1)] += ridge
    return np.asarray(hessian)


def least_cost(inputs: Array, signs: Array, mass: Array, offset: float, ridge: float = 0.0) -> Array | None:
    """The weights of least cost, or None where they run away to infinity."""
    search: Any = minimize  # its stubs know no Hessian beside a cost that brings its gradient
    found = search(
        lambda w: logistic_cost(w, inputs, signs, mass, offset, ridge),
        np.zeros(inputs.shape[1]),
        jac=True,
        hess=lambda w: curvature(w, inputs, mass, offset, ridge),
        method="trust-exact",
        options={"gtol": 1e-10, "maxiter": 300},
    )
    weights = np.asarray(found.x)
    if not np.isfinite(weights).all():
        return None
    if ridge == 0 and (signs * (inputs @ weights + offset)).min() > 0:
        return None  # all on their own side: scaling up always helps
    # Rounding of the cost can hold the search up just before its goal: then the gradient is small all the same.
    return weights if np.abs(found.jac).max() < 1e-7 else None


def _apart(features: Array, targets: NDArray[np.bool_]) -> bool:
    """Whether one score alone separates the trials, in either direction; they may touch."""
    if features.shape[1] != 1:
        return False
    a, b = features[targets, 0], features[~targets, 0]
    if max(a.max(), b.max()) == min(a.min(), b.min()):
        return False  # one value for all: the slope is 0
    return bool(a.min() >= b.max() or a.max() <= b.min())


def fit_logistic(
    features: Array, targets: NDArray[np.bool_], mass: Array, offset: float, ridge: float, speakers: float | None = None
) -> tuple[Array, float]:
    """Slopes (m,) and intercept of the LLR that costs least.

    Where the number of speakers is known, the slopes have a prior: on features of unit variance (which are then
    as large as the deviation of the LLRs) a Gaussian of mean 0 and deviation `LLR_DEVIATION`. The trials weigh
    against it as two of every speaker, a target and a non-target, however many there are: those of one speaker
    say nearly the same. Few speakers so make LLRs less sure, many leave the plain fit, and separable scores
    have a finite optimum.

    Parameters
    ----------
    features : (n, m)
    targets : (n,) bool
    mass : (n,) weights of the trials; those of the targets sum to the prior, the others to the rest
    offset : log odds of the prior
    ridge : used only where the features separate the trials and `speakers` is None, on features of unit variance
    speakers : how many the trials are worth
    """
    centre, scale = features.mean(axis=0), features.std(axis=0)
    scale = np.where(scale > 1e-12 * np.maximum(np.abs(centre), 1e-300), scale, 1.0)
    inputs = np.column_stack([(features - centre) / scale, np.ones(len(features))])
    signs = np.where(targets, 1.0, -1.0)
    if speakers is not None:
        # The deviation that the prior is about is that of trials as they are weighed, not as they are counted.
        spread = np.sqrt(mass @ np.square(inputs[:, :-1] - mass @ inputs[:, :-1]))
        scale = scale * np.where(spread > 0, spread, 1.0)
        inputs[:, :-1] = (features - centre) / scale
        weights = least_cost(inputs, signs, mass, offset, 1 / (2 * speakers * LLR_DEVIATION**2))
    else:
        weights = None if _apart(features, targets) else least_cost(inputs, signs, mass, offset)
    if weights is None:
        warnings.warn(
            f"the training scores separate targets from non-targets, so the best slope is infinite: a ridge of {ridge} "
            "keeps it finite. More or harder trials would calibrate better",
            SeparableScoresWarning,
            stacklevel=4,
        )
        weights = least_cost(inputs, signs, mass, offset, ridge)
    if weights is None or not np.isfinite(weights).all():
        raise NumericalError("the calibration is not finite: scale the scores to ordinary size")
    slopes = weights[:-1] / scale
    return slopes, float(weights[-1] - slopes @ centre)
