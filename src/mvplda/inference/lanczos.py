"""Conjugate gradients: a linear system that is known only by what it does to a vector."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.linalg import eigh_tridiagonal

from .._typing import Array


@dataclass(frozen=True)
class Solved:
    """Where the iterations ended.

    x : (R,) the solution
    iterations : how many products with the matrix it took
    error : about (x - x*)' M (x - x*), by the preconditioned residual
    converged : whether the error is below the tolerance
    steps, ratios : lengths of the steps, and ratios of the errors after and before each
    """

    x: Array
    iterations: int
    error: float
    converged: bool
    steps: list[float]
    ratios: list[float]


def conjugate_gradients(
    apply: Callable[[Array], Array],
    precondition: Callable[[Array], Array],
    b: Array,
    *,
    tolerance: float,
    max_iter: int,
) -> Solved:
    """Solve M x = b for a positive definite M = `apply`; `precondition` is about M^-1.

    Stops when r' P r, for the residual r and the preconditioner P, is at most `tolerance`. It is an
    estimate of the error in the metric of M, which is what a log-density loses by it.
    """
    x = np.zeros_like(b)
    r = b.copy()
    s = precondition(r)
    direction = s.copy()
    error = float(r @ s)
    iterations = 0
    steps, ratios = [], []
    while error > tolerance and iterations < max_iter:
        moved = apply(direction)
        curvature = float(direction @ moved)
        if not curvature > 0:  # rounding has eaten the direction
            break
        step = error / curvature
        x += step * direction
        r -= step * moved
        s = precondition(r)
        previous, error = error, float(r @ s)
        steps.append(step)
        ratios.append(error / previous)
        direction *= ratios[-1]
        direction += s  # (I6)
        iterations += 1
    return Solved(x, iterations, error, error <= tolerance, steps, ratios)


def excess_log(
    apply: Callable[[Array], Array], precondition: Callable[[Array], Array], probe: Array, products: int
) -> float:
    """z' (A - I - log A) z for A = P^(1/2) M P^(1/2), where `probe` is P^(-1/2) z.

    The steps of conjugate gradients are those of Lanczos' method in disguise: they give a small
    tridiagonal matrix whose eigenvalues and first components are a quadrature rule of A.
    """
    size = float(probe @ precondition(probe))
    found = conjugate_gradients(apply, precondition, probe, tolerance=1e-14 * size, max_iter=products)
    if not found.steps:
        return 0.0
    alpha, beta = np.array(found.steps), np.array(found.ratios[:-1])
    diagonal = 1 / alpha
    diagonal[1:] += beta / alpha[:-1]
    values, vectors = eigh_tridiagonal(diagonal, np.sqrt(beta) / alpha[:-1])
    values = np.maximum(values, 1e-300)
    return size * float(vectors[0] ** 2 @ (values - 1 - np.log(values)))  # (I7)
