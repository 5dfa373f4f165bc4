"""The records that the kernel works on: what was seen, and what was estimated."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from .._typing import Array
from ..backend import Numpy, Torch, namespace, to_host
from ..exceptions import NumericalError
from .noise import Noise, noise_of

LOG_2PI = float(np.log(2 * np.pi))


@dataclass(frozen=True)
class Parameters:
    """x = mean + sum_k loadings[k] z_k + e,  z_k ~ N(0, I),  e ~ N(0, Sigma).

    mean : (D,)
    loadings : per view (D, r_k)
    noise : Sigma, its variances (D,) or its covariance (D, D)
    """

    mean: Array
    loadings: tuple[Array, ...]
    noise: Array

    @cached_property
    def sigma(self) -> Noise:
        """The noise, and what is asked of it: Sigma^-1 times a matrix, log |Sigma|, drawn vectors."""
        return noise_of(self.noise)

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

    def on(self, xp: Numpy | Torch) -> Parameters:
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


def canonical_and_weighted(parameters: Parameters) -> tuple[Parameters, Array]:
    """The same model in canonical form, and Sigma^-1 times its stacked loadings.

    A loading is only known up to a rotation of its latents. The canonical one has B_k' Sigma^-1 B_k
    diagonal and descending, and the largest entry of every column positive.
    """
    xp = parameters.sigma.xp
    LB = parameters.sigma.solve(parameters.stacked())
    loadings = []
    for loading, where in zip(parameters.loadings, parameters.slices, strict=True):
        gram = loading.T @ LB[:, where]
        rotation = xp.flip(xp.linalg.eigh((gram + gram.T) / 2)[1], (1,))
        rotated = loading @ rotation  # (C1)
        if rotated.shape[1]:
            largest = rotated[xp.abs(rotated).argmax(axis=0), xp.arange(rotated.shape[1])]
            signs = xp.where(largest < 0, -1.0, 1.0)
            rotated, rotation = rotated * signs, rotation * signs
        LB[:, where] = LB[:, where] @ rotation
        loadings.append(rotated)
    return replace(parameters, loadings=tuple(loadings)), LB
