"""What a set of vectors says about the latents of its cell, and what two sets say together.

Seen from the latents z of one cell (all views side by side), the vectors of a
side are the function  exp(y'z - z'Nz/2)  up to a constant (docs/math.md, section 9)::

    y = B' Sigma^-1 (f - n mu)        N = n G,   G = B' Sigma^-1 B

A side that holds several cells has the latents of all its classes side by side, and the evidence of its cells adds up
on them: N is then another matrix, and nothing else changes. Parameters may be torch tensors: then everything here is
one, and can be differentiated by them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import solve_triangular

from .._typing import AnyArray, Array
from ..backend import as_vectors, is_torch, like, namespace
from ..exceptions import DataError
from ..inference.parameters import Parameters

Index = NDArray[np.int64]


@dataclass(frozen=True)
class LatentSpace:
    """The way from vectors to evidence.

    projection : (D, r)  Sigma^-1 B
    offset : (r,)  B' Sigma^-1 mu
    gram : (r, r)  G
    whitened : (D, r)  Sigma^-1/2 B, where there are more latents than columns; otherwise None
    """

    projection: Any
    offset: Any
    gram: Any
    whitened: Any = None

    @classmethod
    def of(cls, p: Parameters[Any]) -> LatentSpace:
        B = p.stacked()
        LB = p.sigma.solve(B)
        gram = B.T @ LB
        gram = (gram + gram.T) / 2
        if isinstance(gram, np.ndarray):
            size = np.sqrt(np.diag(gram))
            gram[np.abs(gram) <= 1e-13 * np.outer(size, size)] = (
                0.0  # rounding, where the parameters are canonical
            )
        wide = B.shape[1] > len(B)
        return cls(
            LB, p.mean @ LB, gram, namespace(B).solve_lower(p.sigma.lower, B) if wide else None
        )

    @cached_property
    def unfold(self) -> Any:
        """(r, D) gives the whitened sum of vectors back from their evidence, where there are more latents."""
        # the loadings may leave directions out, however many they are: no term depends on those
        return namespace(self.whitened).linalg.pinv(self.whitened, rcond=1e-10)


@dataclass(frozen=True)
class PairTerm:
    """log p(e, t | h) - log p(e) - log p(t) as a quadratic form of the two sides' y.

    value = (y_e left)(y_t right)' + y_e row y_e' + y_t column y_t' + constant

    left, right : (r_e, rho), (r_t, rho), rho the number of latents that h shares
    row, column : (r_e, r_e), (r_t, r_t) symmetric; or (rho,), and the form is the squares of ``y left`` so weighted
    basis : (r, D) where the form is one of ``y basis``, which is narrower; otherwise None
    """

    left: Any
    right: Any
    row: Any
    column: Any
    constant: Any
    basis: Any = None

    @cached_property
    def diagonals(self) -> dict[str, Array]:
        """The diagonals of those matrices that have nothing else: of a canonical model with one view, all."""
        if is_torch(self.left):
            return {}
        square = {
            name: m
            for name in ("left", "right", "row", "column")
            if (m := getattr(self, name)).shape == (len(m),) * 2
        }
        return {
            name: np.diag(m).copy()
            for name, m in square.items()
            if np.count_nonzero(m) == np.count_nonzero(np.diag(m))
        }


def reduce_evidence(N: AnyArray, keep: Index) -> tuple[Any, Any]:
    """Evidence on some latents when the others are integrated out.

    Returns (rho, rho) N_kept and the map M, (r, rho), with y_kept = y M.
    """
    r, xp = len(N), namespace(N)
    others = np.setdiff1d(np.arange(r), keep)
    M = xp.zeros((r, len(keep)))
    M[keep, np.arange(len(keep))] = 1.0
    if len(others) == 0:
        return N[np.ix_(keep, keep)], M
    lower = xp.cholesky(xp.eye(len(others)) + N[np.ix_(others, others)])
    gain = xp.cho_solve(lower, N[np.ix_(others, keep)])
    M[others] = -gain  # (V2)
    kept = N[np.ix_(keep, keep)] - N[np.ix_(keep, others)] @ gain
    return (kept + kept.T) / 2, M


def log_evidence_matrix(N: AnyArray) -> tuple[Any, Any]:
    """(r, r) W and constant k with  log of the integral of evidence x prior = y W y' + k."""
    xp = namespace(N)
    lower = xp.cholesky(xp.eye(len(N)) + N)
    W = 0.5 * xp.cho_solve(lower, xp.eye(len(N)))
    return (W + W.T) / 2, -xp.log(lower.diagonal()).sum()  # (V1)


def pair_term(N_e: AnyArray, N_t: AnyArray, keep_e: Index, keep_t: Index) -> PairTerm:
    """The term of sharing latents keep_e of one side, which are latents keep_t of the other, and no others."""
    if len(keep_e) == 0:
        (r_e, r_t) = (len(N_e), len(N_t))
        return PairTerm(
            np.zeros((r_e, 0)), np.zeros((r_t, 0)), np.zeros((r_e, r_e)), np.zeros((r_t, r_t)), 0.0
        )
    # What h does not share is integrated out side by side (V2). What is left adds up where both sides have the same
    # latents: log p(e, t) has W of the sum, log p(e) and log p(t) have their own, and the cross term is 2 y_e W y_t'.
    kept_e, M_e = reduce_evidence(N_e, keep_e)
    kept_t, M_t = reduce_evidence(N_t, keep_t)
    joint, k_joint = log_evidence_matrix(kept_e + kept_t)
    own_e, k_e = log_evidence_matrix(kept_e)
    own_t, k_t = log_evidence_matrix(kept_t)
    root = namespace(N_e).cholesky(2 * joint)
    return PairTerm(  # (V3)
        M_e @ root,
        M_t @ root,
        M_e @ (joint - own_e) @ M_e.T,
        M_t @ (joint - own_t) @ M_t.T,
        k_joint - k_e - k_t,
    )


def wide_term(space: LatentSpace, n_e: float, n_t: float, keep: Index) -> PairTerm:
    """The term of sharing some latents of two single cells, where a model has more latents than columns.

    The whitened mean of a side has the covariance A + I/n, and the two share R, the part of A that `keep` makes: D x D
    matrices, and a product of rank D at most, however many latents there are.
    """
    W, xp = space.whitened, namespace(space.whitened)
    A, R, one = W @ W.T, W[:, keep] @ W[:, keep].T, xp.eye(len(W))
    lower_e, lower_t = (xp.cholesky(A + one / n) for n in (n_e, n_t))
    if is_torch(
        W
    ):  # whose gradient does without singular vectors: p(e | t) against p(e), both of the mean of e
        gain = xp.cho_solve(lower_t, R)
        joint = xp.cholesky(A + one / n_e - R @ gain)
        cross = xp.cho_solve(joint, gain.T) / (n_e * n_t)
        row = (xp.cho_solve(lower_e, one) - xp.cho_solve(joint, one)) / (2 * n_e**2)
        constant = xp.log(lower_e.diagonal()).sum() - xp.log(joint.diagonal()).sum()
        return PairTerm(cross, one, row, -gain @ cross * (n_e / (2 * n_t)), constant, space.unfold)
    # Seen from their canonical variables u and v, the sides have unit variances and the correlations c, and all that
    # they say together is (c u v - c^2 (u^2 + v^2) / 2) / (1 - c^2): the forms are sums of squares (9.7).
    half = solve_triangular(lower_e, R, lower=True)
    left, c, right = np.linalg.svd(solve_triangular(lower_t, half.T, lower=True).T)
    c = np.minimum(c[c > 1e-15 * c[0]], 1.0 - np.finfo(np.float64).epsneg)
    scale = np.sqrt(c / ((1.0 - c) * (1.0 + c)))
    left = solve_triangular(lower_e, left[:, : len(c)], lower=True, trans=1) * (scale / n_e)
    right = solve_triangular(lower_t, right[: len(c)].T, lower=True, trans=1) * (scale / n_t)
    constant = -0.5 * float(np.log1p(-c).sum() + np.log1p(c).sum())
    return PairTerm(left, right, -c / 2, -c / 2, constant, space.unfold)  # (V12)


def substitute(N: Array, shift: Array, scale: Array) -> tuple[Array, Array, Array, Array, float]:
    """Evidence seen from z~, where z = shift + scale z~: a latent whose prior is N(shift, scale scale').

    Returns N~, and maps with  y~ = y scale - offset,  log factor = y . shift + constant.
    """
    N_new = scale.T @ N @ scale
    return (
        (N_new + N_new.T) / 2,
        scale,
        scale.T @ (N @ shift),
        shift,
        -0.5 * float(shift @ N @ shift),
    )  # (V6)


@dataclass(frozen=True)
class Factors:
    """One term over all pairs of two groups of sides: left @ right', or a constant.

    left : (P, rho + 2), right : (T, rho + 2); None where the term is the constant 0
    log_weight : of the hypothesis; already inside left where there is a left
    """

    left: Any
    right: Any
    log_weight: float

    def block(self, rows: slice, columns: slice) -> Any:
        if self.left is None:
            return self.log_weight
        return self.left[rows] @ self.right[columns].T


@dataclass(frozen=True)
class Terms:
    """Numerator and denominator terms of one score matrix."""

    numerator: tuple[Factors, ...]
    denominator: tuple[Factors, ...]

    @property
    def dtype(self) -> str | None:
        """Name of the factors' dtype; None where all terms are constant."""
        for f in (*self.numerator, *self.denominator):
            if f.left is not None:
                return str(f.left.dtype).removeprefix("torch.")
        return None


def log_sum(terms: Sequence[Any]) -> Any:
    """log sum exp of blocks and constants, all but one pass in place: NumPy blocks are overwritten."""
    arrays = [t for t in terms if not isinstance(t, float)]
    constants = [t for t in terms if isinstance(t, float)]
    constant = float(np.logaddexp.reduce(constants)) if constants else None
    if not arrays:
        return constant
    if isinstance(arrays[0], np.ndarray):
        return _log_sum_numpy(arrays, constant)
    return _log_sum_torch(arrays, constant)


def _log_sum_numpy(arrays: list[Any], constant: float | None) -> Any:
    if len(arrays) == 1 and constant is None:
        return arrays[0]
    top = arrays[0].copy()
    for array in arrays[1:]:
        np.maximum(top, array, out=top)
    if constant is not None:
        np.maximum(top, constant, out=top)
    total = np.zeros_like(top) if constant is None else np.exp(constant - top)
    for array in arrays:
        array -= top
        total += np.exp(array, out=array)
    np.log(total, out=total)
    total += top
    return total


def _log_sum_torch(arrays: list[Any], constant: float | None) -> Any:
    xp = namespace(arrays[0])
    if constant is not None:
        arrays = [*arrays, xp.full_like(arrays[0], constant)]
    return xp.logsumexp(xp.stack(arrays), 0)


PROJECT_ELEMENTS = 2**22


def project(X: ArrayLike, space: LatentSpace) -> Any:
    """Evidence y of every vector, (n, r) in float64."""
    width = len(space.projection)
    if is_torch(X):
        if X.ndim != 2 or X.shape[1] != width:
            raise DataError(f"vectors have shape (n, {width}) for this model; got {tuple(X.shape)}")
        y = X.double() @ like(space.projection, X) - like(space.offset, X)
        finite = bool(y.isfinite().all())
    else:
        vectors = as_vectors(X)
        if vectors.shape[1] != width:
            raise DataError(
                f"X has {vectors.shape[1]} features, but this model is expecting {width} features as input"
            )
        y = np.empty((len(vectors), space.projection.shape[1]))
        step = max(1, PROJECT_ELEMENTS // width)
        for start in range(0, len(vectors), step):
            block = vectors[start : start + step].astype(np.float64, copy=False)
            np.matmul(block, space.projection, out=y[start : start + step])
        y -= space.offset
        finite = bool(np.isfinite(y).all())
    if not finite:
        bad = np.flatnonzero(~np.isfinite(np.asarray(y.cpu() if is_torch(y) else y)).all(axis=1))
        raise DataError(f"Input X contains NaN or infinity, first in row {bad[0]}")
    return y
