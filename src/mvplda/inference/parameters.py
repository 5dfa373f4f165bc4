"""Parameters of the model: mean, loadings and noise.

Every kind of noise is a class, registered in `NOISES`. Parameters store the noise as an array, variances (D,) or a
covariance (D, D); `noise_of` wraps the array in an object with solves, log-determinant and sampling. Kinds differ in
how they are estimated. Code outside this module need not distinguish them.
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike

from .._typing import AnyArray, Array
from ..backend import Numpy, Torch, diagonal_of, namespace, to_host
from ..exceptions import DataError, NumericalError
from ..statistics import SufficientStatistics
from ..statistics.accumulator import SecondMoment
from .root import side_by_side

LOG_2PI = float(np.log(2 * np.pi))


@dataclass(frozen=True)
class Parameters:
    """x = mean + sum_k loadings[k] z_k + e,  z_k ~ N(0, I),  e ~ N(0, Sigma).

    mean : (D,)
    loadings : per view (D, r_k)
    noise : Sigma, as variances (D,) or as a covariance (D, D)
    """

    mean: AnyArray
    loadings: tuple[AnyArray, ...]
    noise: AnyArray

    @staticmethod
    def given(mean: ArrayLike, loadings: Mapping[str, ArrayLike], noise: ArrayLike) -> Parameters:
        """Return parameters from arrays; raise `DataError` if their shapes or values are invalid."""
        p = Parameters(
            np.array(mean, dtype=np.float64),
            tuple(np.array(loading, dtype=np.float64) for loading in loadings.values()),
            np.array(noise, dtype=np.float64),
        )
        D = len(p.mean)
        if p.mean.ndim != 1 or D == 0:
            raise DataError(f"the mean must have shape (D,); got {p.mean.shape}")
        if not loadings:
            raise DataError("there is no loading: pass {view: (D, rank)} for at least one view")
        for view, loading in zip(loadings, p.loadings, strict=True):
            if loading.ndim != 2 or len(loading) != D or not 1 <= loading.shape[1] <= D:
                raise DataError(
                    f"the loading of {view!r} must have shape ({D}, rank), rank 1 to {D}; got {loading.shape}"
                )
        if p.noise.shape not in ((D,), (D, D)):
            raise DataError(
                f"the noise must have shape ({D},) or ({D}, {D}) to match the mean; got {p.noise.shape}"
            )
        if not p.is_finite():
            raise DataError(
                "mean, loadings and noise must be finite; got NaN or infinity: check the arrays"
            )
        return replace(p, noise=p.sigma.checked().array)

    @cached_property
    def sigma(self) -> FullNoise:
        """Noise object with Sigma^-1 times a matrix, log |Sigma|, and random vectors."""
        return noise_of(self.noise)

    @property
    def ranks(self) -> tuple[int, ...]:
        """Rank of every view."""
        return tuple(loading.shape[1] for loading in self.loadings)

    @property
    def slices(self) -> tuple[slice, ...]:
        """Slice of every view's latents in the latents of all views side by side."""
        return tuple(side_by_side(dict(enumerate(self.ranks))).values())

    def stacked(self) -> AnyArray:
        """Return [B_1 ... B_K], (D, sum of ranks)."""
        return namespace(self.mean).concatenate(self.loadings, axis=1)

    def on(self, xp: Numpy | Torch) -> Parameters:
        """Return the parameters on the device of ``sums.xp``."""
        return self._with(xp.asarray)

    def on_host(self) -> Parameters:
        """Return the parameters as NumPy arrays."""
        return self._with(to_host)

    def _with(self, convert: Callable[[Any], Any]) -> Parameters:
        """Return the parameters with every array converted."""
        loadings = tuple(map(convert, self.loadings))
        return Parameters(convert(self.mean), loadings, convert(self.noise))

    def is_finite(self) -> bool:
        """Return whether all numbers are finite."""
        arrays = (self.mean, self.noise, *self.loadings)
        return all(bool(namespace(a).isfinite(a).all()) for a in arrays)

    def check_finite(self, when: str) -> None:
        """Raise `NumericalError` unless all numbers are finite."""
        if not self.is_finite():
            raise NumericalError(
                f"the parameters are not finite {when}: scale the vectors to about unit size, "
                "raise noise_floor, or lower the ranks"
            )


def canonical_and_weighted(parameters: Parameters) -> tuple[Parameters, AnyArray]:
    """Return the same model in canonical form, and Sigma^-1 times its stacked loadings.

    A loading is identified up to a rotation of its latents. In canonical form B_k' Sigma^-1 B_k is diagonal with
    descending entries, and the largest entry of every column of B_k is positive.
    """
    LB = parameters.sigma.solve(parameters.stacked())
    loadings = []
    for loading, latents in zip(parameters.loadings, parameters.slices, strict=True):
        rotation = _rotation(loading, LB[:, latents])
        loadings.append(loading @ rotation)  # (C1)
        # Rotation of Sigma^-1 B saves another solve.
        LB[:, latents] = LB[:, latents] @ rotation
    return replace(parameters, loadings=tuple(loadings)), LB


def _rotation(loading: AnyArray, weighted: AnyArray) -> Any:
    """Return the canonical axes of a loading's latents, as columns; `weighted` is Sigma^-1 times the loading."""
    xp = namespace(loading)
    gram = loading.T @ weighted
    rotation = xp.flip(xp.linalg.eigh((gram + gram.T) / 2)[1], (1,))
    rotated = loading @ rotation
    if not rotated.shape[1]:
        return rotation
    # Eigenvectors have arbitrary signs.
    largest = rotated[xp.abs(rotated).argmax(axis=0), xp.arange(rotated.shape[1])]
    return rotation * xp.where(largest < 0, -1.0, 1.0)


class FullNoise:
    """Noise e ~ N(0, Sigma) with an arbitrary covariance.

    kind : name of the kind in the settings of an estimator
    second_moment : second moment of the vectors that `estimate` needs
    array : Sigma as `Parameters` stores it, here (D, D)
    """

    kind: ClassVar[str] = "full"
    second_moment: ClassVar[SecondMoment] = "full"

    def __init__(self, array: AnyArray) -> None:
        self.array = array
        self.xp = namespace(array)

    @classmethod
    def estimate(cls, scatter: AnyArray, n: float, model: NoiseModel) -> AnyArray:
        """Return the array that maximises the likelihood of n residuals, given their scatter or its diagonal."""
        n_eff = n + model.weight
        xp = namespace(scatter)
        residual = xp.diag(scatter) if scatter.ndim == 1 else scatter
        # The mean of the matrix and its transpose is exactly symmetric.
        sigma = residual + residual.T
        sigma /= 2 * n_eff
        xp.diagonal(sigma)[:] += model.weight * model.target / n_eff  # (M3)
        if _exceeds(sigma, model.floor):
            return sigma
        # The floor holds in every direction: in units of the floor no eigenvalue may be below 1.
        scale = xp.sqrt(model.floor)
        unit = xp.outer(scale, scale)
        values, vectors = xp.linalg.eigh(sigma / unit)
        raised = (vectors * values.clip(min=1.0)) @ vectors.T
        return raised * unit

    @property
    def variances(self) -> AnyArray:
        """Diagonal of Sigma, (D,)."""
        return diagonal_of(self.array)

    @property
    def covariance(self) -> AnyArray:
        """Sigma, (D, D)."""
        return self.array

    @cached_property
    def lower(self) -> AnyArray:
        """Lower triangular L with L L' = Sigma, (D, D)."""
        try:
            lower = self.xp.cholesky(self.array)
        except np.linalg.LinAlgError as error:
            raise NumericalError(
                "the noise covariance is not positive definite: raise noise_floor"
            ) from error
        return lower

    @cached_property
    def log_determinant(self) -> float:
        """Value of log |Sigma|."""
        return 2 * float(self.xp.log(self.lower.diagonal()).sum())

    def solve(self, matrix: AnyArray) -> AnyArray:
        """Return Sigma^-1 @ matrix."""
        return self.xp.cho_solve(self.lower, matrix)

    def trace(self, scatter: AnyArray) -> float:
        """Return tr(Sigma^-1 scatter); scatter is (D, D), or (D,) for a diagonal matrix."""
        inverse = self.xp.inverse(self.lower)
        if scatter.ndim == 1:
            return float(inverse.diagonal() @ scatter)
        return float(self.xp.vdot(inverse, scatter))

    def draw(self, n: int, rng: Generator) -> Array:
        """Return n random vectors, (n, D), on the host."""
        return rng.standard_normal((n, len(self.array))) @ to_host(self.lower).T

    def checked(self) -> Self:
        """Return the noise, made exactly symmetric; raise `DataError` unless Sigma is positive definite."""
        array = to_host(self.array)
        if not np.allclose(array, array.T, rtol=1e-6, atol=1e-9 * np.abs(array).max()):
            raise DataError("the noise covariance is not symmetric: pass a symmetric (D, D) matrix")
        symmetric = type(self)((self.array + self.array.T) / 2)
        try:
            np.linalg.cholesky(to_host(symmetric.array))
        except np.linalg.LinAlgError:
            raise DataError(
                "the noise covariance is not positive definite: pass a covariance of full rank"
            ) from None
        return symmetric


class DiagonalNoise(FullNoise):
    """Noise with independent columns; the array holds the variances, (D,)."""

    kind = "diagonal"
    second_moment = "diagonal"

    @classmethod
    def estimate(cls, scatter: AnyArray, n: float, model: NoiseModel) -> AnyArray:
        prior = model.weight * model.target
        variances = (diagonal_of(scatter) + prior) / (n + model.weight)  # (M3)
        return namespace(variances).maximum(variances, model.floor)

    @property
    def covariance(self) -> AnyArray:
        return self.xp.diag(self.array)

    @cached_property
    def lower(self) -> AnyArray:
        return self.xp.diag(self.xp.sqrt(self.array))

    @cached_property
    def log_determinant(self) -> float:
        return float(self.xp.log(self.array).sum())

    def solve(self, matrix: AnyArray) -> AnyArray:
        return matrix / (self.array[:, None] if matrix.ndim == 2 else self.array)

    def trace(self, scatter: AnyArray) -> float:
        return float((diagonal_of(scatter) / self.array).sum())

    def checked(self) -> Self:
        if self.array.min() <= 0:
            raise DataError(f"noise variances must be positive; the smallest is {self.array.min()}")
        return self


NOISES: dict[str, type[FullNoise]] = {noise.kind: noise for noise in (DiagonalNoise, FullNoise)}
"""Kinds of noise, by the name in the settings of an estimator."""


def noise_of(array: AnyArray) -> FullNoise:
    """Return the noise object of an array of variances (D,) or of a covariance (D, D)."""
    return DiagonalNoise(array) if array.ndim == 1 else FullNoise(array)


def _exceeds(sigma: AnyArray, floor: AnyArray) -> bool:
    """Return whether a covariance is above the floor in every direction."""
    xp = namespace(sigma)
    above = sigma + 0.0
    xp.diagonal(above)[:] -= floor
    try:
        xp.cholesky(above, overwrite=True)
    except np.linalg.LinAlgError:
        return False
    return True


@dataclass(frozen=True)
class NoiseModel:
    """Kind, bounds and prior of the noise.

    kind : a key of `NOISES`
    floor : (D,) lower bound of the noise variances (for full noise in every direction, with lengths measured in units
        of the floor)
    target, weight : a prior worth `weight` vectors with noise variances `target`, (D,); weight 0 is maximum likelihood
    """

    kind: str
    floor: AnyArray
    target: AnyArray
    weight: float = 0.0

    @classmethod
    def of(
        cls, kind: str, floor: float, statistics: SufficientStatistics, shrinkage: float
    ) -> NoiseModel:
        """Return the noise model of a data set.

        floor : lower bound as a fraction of the variance of each column
        shrinkage : weight of the prior, as a fraction of the total weight of prior and data
        """
        variance = statistics.variance
        constant = statistics.constant_columns
        if len(constant) == len(variance):
            raise DataError(
                "all vectors are equal, or so small that their squares underflow: there is no variance to explain. "
                "Pass vectors that vary, scaled to about unit size"
            )
        varying = np.delete(variance, constant)
        if varying.max() < 1e-280:
            raise DataError(
                f"the largest variance of a column is {varying.max()}: scale the vectors up"
            )
        # Any positive value serves for constant columns; the median keeps the noise covariance well conditioned.
        variance[constant] = np.median(varying)
        return cls(kind, floor * variance, variance, statistics.n * shrinkage / (1 - shrinkage))

    def on(self, xp: Numpy | Torch) -> NoiseModel:
        """Return the noise model on the device of ``sums.xp``."""
        return replace(self, floor=xp.asarray(self.floor), target=xp.asarray(self.target))

    def estimate(self, scatter: AnyArray, n: float) -> AnyArray:
        """Return the noise that maximises likelihood and prior within the bounds, from n residuals.

        scatter : sum of squared residuals, (D, D) or its diagonal (D,)
        """
        return NOISES[self.kind].estimate(scatter, n, self)

    def log_prior(self, noise: AnyArray) -> float:
        """Return the log of the (unnormalised) prior density of a noise; 0 without a prior."""
        if self.weight == 0:
            return 0.0
        sigma = noise_of(noise)
        return -0.5 * self.weight * (sigma.log_determinant + sigma.trace(self.target))
