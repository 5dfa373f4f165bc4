"""The records that the kernel works on: what was seen, and what was estimated."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import cho_solve, cholesky
from scipy.linalg.lapack import dpotri

from ..exceptions import NumericalError

Array = NDArray[np.float64]
LOG_2PI = float(np.log(2 * np.pi))


@dataclass(frozen=True)
class Sums:
    """Sufficient statistics of n labelled vectors, about a common origin.

    n : number of vectors
    total : (D,) sum of x
    scatter : (D,) or (D, D) sum of x^2 or of x x'
    counts : per view (C_k,), vectors in every class
    sums : per view (C_k, D), sum of x over every class
    cooccurrence : for k < l a sparse (C_k, C_l), vectors in class c of k and class d of l
    """

    n: int
    total: Array
    scatter: Array
    counts: tuple[Array, ...]
    sums: tuple[Array, ...]
    cooccurrence: dict[tuple[int, int], sparse.csr_array]

    @property
    def n_views(self) -> int:
        return len(self.counts)

    @property
    def dimension(self) -> int:
        return len(self.total)

    def together(self, k: int, l: int) -> sparse.csr_array:
        """Co-occurrence N_kl for any order of two different views."""
        return self.cooccurrence[k, l] if k < l else self.cooccurrence[l, k].T.tocsr()

    def scatter_about(self, mean: Array) -> Array:
        """Sum of (x - mean)(x - mean)', or of its diagonal."""
        if self.scatter.ndim == 1:
            return self.scatter - 2 * mean * self.total + self.n * mean**2
        cross = np.outer(self.total - self.n / 2 * mean, mean)
        return self.scatter - cross - cross.T


@dataclass(frozen=True)
class Parameters:
    """x = mean + sum_k loadings[k] z_k + e,  z_k ~ N(0, I),  e ~ N(0, noise).

    mean : (D,)
    loadings : per view (D, r_k)
    noise : (D,) variances, or (D, D) covariance
    """

    mean: Array
    loadings: tuple[Array, ...]
    noise: Array

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(loading.shape[1] for loading in self.loadings)

    @property
    def slices(self) -> tuple[slice, ...]:
        """Where every view's latents stand among all of them side by side."""
        ends = np.cumsum(self.ranks)
        return tuple(slice(int(e - r), int(e)) for e, r in zip(ends, self.ranks, strict=True))

    def stacked(self) -> Array:
        """[B_1 ... B_K], (D, sum of ranks)."""
        return np.concatenate(self.loadings, axis=1)

    def check_finite(self, when: str) -> None:
        arrays = (self.mean, self.noise, *self.loadings)
        if not all(np.isfinite(a).all() for a in arrays):
            raise NumericalError(
                f"the parameters are not finite {when}: scale the vectors to ordinary size, "
                "raise noise_floor, or lower the ranks"
            )


class Precision:
    """Sigma^-1 of a diagonal or full noise, applied through one factorisation."""

    def __init__(self, noise: Array) -> None:
        self.noise = noise
        if noise.ndim == 1:
            self.log_determinant = float(np.log(noise).sum())  # log |Sigma|
        else:
            try:
                self._lower = cholesky(noise.T, lower=True, check_finite=False)  # .T is LAPACK's order
            except np.linalg.LinAlgError as error:
                raise NumericalError("the noise covariance is not positive definite: raise noise_floor") from error
            self.log_determinant = 2 * float(np.log(np.diag(self._lower)).sum())

    def apply(self, matrix: Array) -> Array:
        """Sigma^-1 @ matrix."""
        if self.noise.ndim == 1:
            return matrix / (self.noise[:, None] if matrix.ndim == 2 else self.noise)
        solved: Array = cho_solve((self._lower, True), matrix, check_finite=False)
        return solved

    def trace(self, scatter: Array) -> float:
        """tr(Sigma^-1 scatter), where scatter may be a diagonal alone."""
        if self.noise.ndim == 1:
            return float(((scatter if scatter.ndim == 1 else np.diag(scatter)) / self.noise).sum())
        half = lower_of_inverse(self._lower)
        if scatter.ndim == 1:
            return float(half.diagonal() @ scatter)
        return float(2 * np.vdot(half.T, scatter) - half.diagonal() @ scatter.diagonal())


def lower_of_inverse(lower: Array) -> Array:
    """Lower triangle of (L L')^-1 for a triangle L: a third of the work of solving for every unit vector."""
    half: Array = dpotri(lower, lower=1)[0]
    return half


def canonical_and_weighted(parameters: Parameters, precision: Precision) -> tuple[Parameters, Array]:
    """The same model in canonical form, and Sigma^-1 times its stacked loadings.

    A loading is only known up to a rotation of its latents. The canonical one has B_k' Sigma^-1 B_k
    diagonal and descending, and the largest entry of every column positive.
    """
    LB = precision.apply(parameters.stacked())
    loadings = []
    for loading, where in zip(parameters.loadings, parameters.slices, strict=True):
        gram = loading.T @ LB[:, where]
        rotation = np.linalg.eigh((gram + gram.T) / 2)[1][:, ::-1]
        turned = loading @ rotation  # (C1)
        if turned.size:
            largest = turned[np.abs(turned).argmax(axis=0), np.arange(turned.shape[1])]
            signs = np.where(largest < 0, -1.0, 1.0)
            turned, rotation = turned * signs, rotation * signs
        LB[:, where] = LB[:, where] @ rotation
        loadings.append(turned)
    return replace(parameters, loadings=tuple(loadings)), LB
