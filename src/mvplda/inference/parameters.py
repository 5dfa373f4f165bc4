"""The records that the kernel works on: what was seen, and what was estimated."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .._typing import Array
from ..backend import namespace, to_host
from ..exceptions import NumericalError

LOG_2PI = float(np.log(2 * np.pi))


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
        stacked: Array = namespace(self.mean).concatenate(self.loadings, axis=1)
        return stacked

    def on(self, xp: Any) -> Parameters:
        """The same where sums are (``sums.xp``)."""
        return Parameters(xp.asarray(self.mean), tuple(map(xp.asarray, self.loadings)), xp.asarray(self.noise))

    def on_host(self) -> Parameters:
        """The same as NumPy arrays."""
        return Parameters(to_host(self.mean), tuple(map(to_host, self.loadings)), to_host(self.noise))

    def check_finite(self, when: str) -> None:
        arrays = (self.mean, self.noise, *self.loadings)
        if not all(bool(namespace(a).isfinite(a).all()) for a in arrays):
            raise NumericalError(
                f"the parameters are not finite {when}: scale the vectors to ordinary size, "
                "raise noise_floor, or lower the ranks"
            )


class Precision:
    """Sigma^-1 of a diagonal or full noise, applied through one factorisation."""

    def __init__(self, noise: Array) -> None:
        self.noise, self.xp = noise, namespace(noise)
        if noise.ndim == 1:
            self.log_determinant = float(self.xp.log(noise).sum())  # log |Sigma|
        else:
            try:
                self._lower = self.xp.cholesky(noise)
            except np.linalg.LinAlgError as error:
                raise NumericalError("the noise covariance is not positive definite: raise noise_floor") from error
            self.log_determinant = 2 * float(self.xp.log(self._lower.diagonal()).sum())

    def apply(self, matrix: Array) -> Array:
        """Sigma^-1 @ matrix."""
        if self.noise.ndim == 1:
            return matrix / (self.noise[:, None] if matrix.ndim == 2 else self.noise)
        solved: Array = self.xp.cho_solve(self._lower, matrix)
        return solved

    def trace(self, scatter: Array) -> float:
        """tr(Sigma^-1 scatter), where scatter may be a diagonal alone."""
        if self.noise.ndim == 1:
            return float(((scatter if scatter.ndim == 1 else scatter.diagonal()) / self.noise).sum())
        return self.xp.trace_of_solved(self._lower, scatter)


def canonical_and_weighted(parameters: Parameters, precision: Precision) -> tuple[Parameters, Array]:
    """The same model in canonical form, and Sigma^-1 times its stacked loadings.

    A loading is only known up to a rotation of its latents. The canonical one has B_k' Sigma^-1 B_k
    diagonal and descending, and the largest entry of every column positive.
    """
    xp = precision.xp
    LB = precision.apply(parameters.stacked())
    loadings = []
    for loading, where in zip(parameters.loadings, parameters.slices, strict=True):
        gram = loading.T @ LB[:, where]
        rotation = xp.flip(xp.linalg.eigh((gram + gram.T) / 2)[1], (1,))
        turned = loading @ rotation  # (C1)
        if turned.shape[1]:
            largest = turned[xp.abs(turned).argmax(axis=0), xp.arange(turned.shape[1])]
            signs = xp.where(largest < 0, -1.0, 1.0)
            turned, rotation = turned * signs, rotation * signs
        LB[:, where] = LB[:, where] @ rotation
        loadings.append(turned)
    return replace(parameters, loadings=tuple(loadings)), LB
