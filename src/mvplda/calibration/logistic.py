"""Weighted logistic regression: a convex cost, its exact gradient and curvature, Newton's method."""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve
from scipy.special import expit

from ..exceptions import NumericalError, SeparableScoresWarning
from ..kernel.records import Array

LARGEST_WEIGHT = 1e4
"""On inputs of unit variance, weights beyond this mean that the optimum lies at infinity."""


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


def newton(
    inputs: Array, signs: Array, mass: Array, offset: float, ridge: float = 0.0, max_iter: int = 100, tol: float = 1e-12
) -> Array | None:
    """The weights of least cost, or None where they run away to infinity."""
    weights = np.zeros(inputs.shape[1])
    cost, gradient = logistic_cost(weights, inputs, signs, mass, offset, ridge)
    for _ in range(max_iter):
        hessian = curvature(weights, inputs, mass, offset, ridge)
        hessian[np.diag_indices_from(hessian)] += 1e-14 * max(float(np.trace(hessian)), 1e-300)
        step = -solve(hessian, gradient, assume_a="sym")
        decrease = -float(gradient @ step)
        if not np.isfinite(decrease):
            return None
        if decrease <= tol * max(cost, 1e-300):
            return weights
        length, trial = 1.0, cost
        while length > 1e-12:
            trial, trial_gradient = logistic_cost(weights + length * step, inputs, signs, mass, offset, ridge)
            if trial <= cost - 1e-4 * length * decrease:
                break
            length /= 2
        else:
            return weights  # rounding is all that is left to gain
        weights, cost, gradient = weights + length * step, trial, trial_gradient
        if ridge == 0 and _out_of_reach(weights, inputs, signs, offset):
            return None
    return None if ridge == 0 else weights


def _out_of_reach(weights: Array, inputs: Array, signs: Array, offset: float) -> bool:
    if np.abs(weights[:-1]).max(initial=0.0) > LARGEST_WEIGHT:
        return True
    return bool((signs * (inputs @ weights + offset)).min() > 0)  # all on their own side: scaling up always helps


def _apart(features: Array, targets: NDArray[np.bool_]) -> bool:
    """Whether one score alone separates the trials, in either direction; they may touch."""
    if features.shape[1] != 1:
        return False
    a, b = features[targets, 0], features[~targets, 0]
    if max(a.max(), b.max()) == min(a.min(), b.min()):
        return False  # one value for all: the slope is 0
    return bool(a.min() >= b.max() or a.max() <= b.min())


def fit_logistic(
    features: Array, targets: NDArray[np.bool_], mass: Array, offset: float, ridge: float
) -> tuple[Array, float]:
    """Slopes (m,) and intercept of the LLR that costs least.

    Parameters
    ----------
    features : (n, m)
    targets : (n,) bool
    mass : (n,) weights of the trials; those of the targets sum to the prior, the others to the rest
    offset : log odds of the prior
    ridge : used only where the features separate the trials, on features of unit variance
    """
    centre, scale = features.mean(axis=0), features.std(axis=0)
    scale = np.where(scale > 1e-12 * np.maximum(np.abs(centre), 1e-300), scale, 1.0)
    inputs = np.column_stack([(features - centre) / scale, np.ones(len(features))])
    signs = np.where(targets, 1.0, -1.0)
    weights = None if _apart(features, targets) else newton(inputs, signs, mass, offset)
    if weights is None:
        warnings.warn(
            f"the training scores separate targets from non-targets, so the best slope is infinite: a ridge of {ridge} "
            "keeps it finite. More or harder trials would calibrate better",
            SeparableScoresWarning,
            stacklevel=4,
        )
        weights = newton(inputs, signs, mass, offset, ridge)
    if weights is None or not np.isfinite(weights).all():
        raise NumericalError("the calibration is not finite: scale the scores to ordinary size")
    slopes = weights[:-1] / scale
    return slopes, float(weights[-1] - slopes @ centre)
