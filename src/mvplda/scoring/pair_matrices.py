"""Matrices of a pair term (log-ratio of two sides of a trial): computed from evidence on latents,
from vectors, and as the paper published them.
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .._typing import Array, IntArray
from ..backend import NUMPY


class PairTermMatrices(NamedTuple):
    """Pair term of two sides as a quadratic form: log p(e, t | assignment) - log p(e) - log p(t).

    e and t are the data of the enrolment and the test, y_e (r_e,) and y_t (r_t,) their evidence as
    row vectors:

    value = (y_e left)(y_t right)' + y_e row y_e' + y_t column y_t' + constant

    left : (r_e, m) with m the number of latents or dimensions that couple the two sides
    right : (r_t, m), or (r_t,) for a diagonal matrix
    row, column : (r_e, r_e) and (r_t, r_t), symmetric
    constant : number
    """

    left: Array
    right: Array
    row: Array
    column: Array
    constant: float

    def scaled(self, scale_e: Array, scale_t: Array) -> PairTermMatrices:
        """Return the term in which y_e scale_e replaces y_e, and y_t scale_t replaces y_t."""
        row = scale_e @ self.row @ scale_e.T
        column = scale_t @ self.column @ scale_t.T
        return PairTermMatrices(
            scale_e @ self.left, scale_t @ self.right, row, column, self.constant
        )


def log_evidence_matrix(N: Array) -> tuple[Array, float]:
    """Return W (r, r) and k such that y W y' + k is the log marginal likelihood of evidence y.

    The marginal likelihood is the integral over z of exp(y'z - z'Nz/2) N(z; 0, I), with latents z
    and their evidence matrix N (r, r) (V1 in docs/math.md).
    """
    lower = NUMPY.cholesky(np.eye(len(N)) + N)
    W = 0.5 * NUMPY.cho_solve(lower, np.eye(len(N)))
    return symmetric_part(W), -float(np.log(lower.diagonal()).sum())  # (V1)


def reduce_evidence(N: Array, keep: IntArray) -> tuple[Array, Array]:
    """Integrate all latents except those in `keep` out of an evidence matrix.

    N : (r, r) evidence matrix
    keep : (m,) indices of the latents to keep
    return : evidence matrix of the kept latents (m, m), and the map M (r, m) that reduces evidence
        y to y M
    """
    others = np.setdiff1d(np.arange(len(N)), keep)
    M = np.zeros((len(N), len(keep)))
    M[keep, np.arange(len(keep))] = 1.0
    if len(others) == 0:
        return N[np.ix_(keep, keep)], M
    # Schur complement of the block of the others
    lower = NUMPY.cholesky(np.eye(len(others)) + N[np.ix_(others, others)])
    gain = NUMPY.cho_solve(lower, N[np.ix_(others, keep)])
    M[others] = -gain  # (V2)
    N_kept = N[np.ix_(keep, keep)] - N[np.ix_(keep, others)] @ gain
    return symmetric_part(N_kept), M


def latent_term(N_e: Array, N_t: Array, keep_e: IntArray, keep_t: IntArray) -> PairTermMatrices:
    """Return the pair term (log-ratio) of two sides that share some latents.

    N_e, N_t : evidence matrices of the two sides
    keep_e, keep_t : indices of the shared latents on each side, in the same order
    """
    # integrate out the latents that are not shared, on each side (V2)
    kept_e, M_e = reduce_evidence(N_e, keep_e)
    kept_t, M_t = reduce_evidence(N_t, keep_t)
    term = reduced_term(kept_e, kept_t)
    return term.scaled(M_e, M_t)


def reduced_term(kept_e: Array, kept_t: Array) -> PairTermMatrices:
    """Return the pair term (log-ratio) of two sides whose evidence was reduced to the shared latents.

    kept_e, kept_t : (m, m) evidence matrices of the two sides on the shared latents
    """
    # evidence on the same latents adds up: log p(e, t) has W of the sum, and the cross term is 2 y_e W y_t'
    joint, k_joint = log_evidence_matrix(kept_e + kept_t)
    W_e, k_e = log_evidence_matrix(kept_e)
    W_t, k_t = log_evidence_matrix(kept_t)
    # 2 W = root root': a root on either side keeps the factors thin and of equal size
    root = NUMPY.cholesky(2 * joint)
    return PairTermMatrices(root, root, joint - W_e, joint - W_t, k_joint - k_e - k_t)  # (V3)


def vector_term(A: Array, B: Array, R: Array) -> PairTermMatrices:
    """Return the pair term of two jointly Gaussian vectors e and t: log p(e | t) - log p(e).

    A, B : (D, D) covariances of e and of t
    R : (D, D) cross-covariance of e and t
    """
    lower_e = NUMPY.cholesky(A)
    lower_t = NUMPY.cholesky(B)
    # given t, e has the mean t gain; its covariance is positive definite even if the two share all latents
    gain = NUMPY.cho_solve(lower_t, R.T)
    lower = NUMPY.cholesky(A - R @ gain)
    cross = NUMPY.cho_solve(lower, gain.T)
    row = (NUMPY.inverse(lower_e) - NUMPY.inverse(lower)) / 2
    column = -gain @ cross / 2
    constant = float(np.log(lower_e.diagonal()).sum() - np.log(lower.diagonal()).sum())
    return PairTermMatrices(cross, np.ones(len(B)), row, symmetric_part(column), constant)  # (V12)


def predictive_term(kept: Array, shared: Array, B: Array) -> tuple[PairTermMatrices, Array]:
    """Return the pair term (log-ratio) of a vector and a profile of several cells.

    Without the profile, the vector has the distribution N(0, B). Given the profile's evidence y
    (row vector) on the m shared latents z, it has N(y loading, B - shared shared' + S), with S the
    posterior covariance of `shared` z.

    kept : (m, m) evidence matrix of the profile on the shared latents
    shared : (D, m) loading of the shared latents
    B : (D, D) covariance of the vector
    return : the term, a function of y loading and the vector; and the loading, (m, D)
    """
    lower = NUMPY.cholesky(np.eye(len(kept)) + kept)
    loading = NUMPY.cho_solve(lower, shared.T)
    lower_t = NUMPY.cholesky(B)
    # S = shared loading
    lower = NUMPY.cholesky(symmetric_part(B + shared @ (loading - shared.T)))
    precision = symmetric_part(NUMPY.inverse(lower))
    column = (NUMPY.inverse(lower_t) - precision) / 2
    constant = float(np.log(lower_t.diagonal()).sum() - np.log(lower.diagonal()).sum())
    term = PairTermMatrices(
        precision, np.ones(len(B)), -precision / 2, symmetric_part(column), constant
    )
    return term, loading  # (V2), (V12)


def published_term(N_e: Array, N_t: Array, scale: Array) -> PairTermMatrices:
    """Return the paper's pair term (log-ratio) of a hypothesis that shares one of two views.

    In the covariance that the paper printed, all four blocks are equal and count the covariance of
    the shared view twice (docs/errata.md). So the term is computed as if both views were shared,
    with the loading of the shared view multiplied by sqrt 2.

    N_e, N_t : (r, r) evidence matrices of the two sides
    scale : (r,) sqrt 2 for latents of the shared view, else 1
    """
    joint, k_joint = log_evidence_matrix(scale[:, None] * (N_e + N_t) * scale)
    W_e, k_e = log_evidence_matrix(N_e)
    W_t, k_t = log_evidence_matrix(N_t)
    joint = scale[:, None] * joint * scale
    root = NUMPY.cholesky(2 * joint)
    return PairTermMatrices(root, root, joint - W_e, joint - W_t, k_joint - k_e - k_t)  # (V8)


def symmetric_part(matrix: Array) -> Array:
    """Return the mean of a square matrix and its transpose."""
    return (matrix + matrix.T) / 2
