"""Parameters of the model: mean, loadings and noise.

`Parameters` stores the noise as an array: variances (D,), or a covariance (D, D). `noise_of` wraps
the array in an object with solves, log-determinant and sampling. Every kind of noise (diagonal or
full) is a class, registered in `NOISES`, with its own estimate. Code outside this module does not
need to distinguish the kinds.
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
"""Natural logarithm of 2 pi."""


@dataclass(frozen=True)
class Parameters:
    """Parameters of the model x = mean + sum over views k of B_k z_k + e, with z_k ~ N(0, I) and e ~ N(0, Sigma).

    mean : (D,)
    loadings : per view B_k, (D, rank of the view)
    noise : Sigma, as variances (D,) or as a covariance (D, D)
    """

    mean: AnyArray
    loadings: tuple[AnyArray, ...]
    noise: AnyArray

    @staticmethod
    def given(mean: ArrayLike, loadings: Mapping[str, ArrayLike], noise: ArrayLike) -> Parameters:
        """Return parameters from arrays whose shapes and values are checked.

        Parameters
        ----------
        mean : (D,)
        loadings : {view: (D, rank)}, rank 1 to D
        noise : variances (D,) or covariance (D, D)

        Raises
        ------
        DataError
            Shapes do not match, a number is not finite, or the noise is not positive definite.
        """
        p = Parameters(
            np.array(mean, dtype=np.float64),
            tuple(np.array(loading, dtype=np.float64) for loading in loadings.values()),
            np.array(noise, dtype=np.float64),
        )
        D = len(p.mean)
        if p.mean.ndim != 1 or D == 0:
            raise DataError(f"the mean must have shape (D,); got {p.mean.shape}")
        if not loadings:
            raise DataError(
                "loadings is empty: pass at least one view with its loading, {view: array (D, rank)}"
            )
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
                "mean, loadings and noise must be finite; got NaN or infinite numbers in at least one of the arrays"
            )
        return replace(p, noise=p.sigma.checked().array)

    @cached_property
    def sigma(self) -> FullNoise:
        """Noise as an object with methods for Sigma^-1 times a matrix, log |Sigma| and sampling."""
        return noise_of(self.noise)

    @property
    def ranks(self) -> tuple[int, ...]:
        """Rank of every view: number of columns of its loading."""
        return tuple(loading.shape[1] for loading in self.loadings)

    @property
    def slices(self) -> tuple[slice, ...]:
        """Per view, the slice of its latents in the vector that joins the latents of all views."""
        return tuple(side_by_side(dict(enumerate(self.ranks))).values())

    def stacked(self) -> AnyArray:
        """Return the loadings of all views side by side, (D, sum of ranks)."""
        return namespace(self.mean).concatenate(self.loadings, axis=1)

    def on(self, xp: Numpy | Torch) -> Parameters:
        """Return the parameters as arrays of the backend `xp` (NumPy, or a torch device)."""
        return self._with(xp.asarray)

    def on_host(self) -> Parameters:
        """Return the parameters as NumPy arrays."""
        return self._with(to_host)

    def _with(self, convert: Callable[[Any], Any]) -> Parameters:
        """Return the parameters with `convert` applied to every array."""
        loadings = tuple(map(convert, self.loadings))
        return Parameters(convert(self.mean), loadings, convert(self.noise))

    def is_finite(self) -> bool:
        """Return whether all numbers of mean, loadings and noise are finite."""
        arrays = (self.mean, self.noise, *self.loadings)
        return all(bool(namespace(a).isfinite(a).all()) for a in arrays)

    def check_finite(self, when: str) -> None:
        """Raise `NumericalError` unless all numbers are finite.

        when : time of the check for the message, such as "after iteration 3"
        """
        if not self.is_finite():
            raise NumericalError(
                f"the model's parameters are NaN or infinite {when}: scale the vectors to about unit size, "
                "raise noise_floor, or lower the ranks"
            )


def canonical_and_weighted(parameters: Parameters) -> tuple[Parameters, AnyArray]:
    """Return the model in canonical form, and Sigma^-1 times its loadings (D, sum of ranks).

    The data determine a loading B_k only up to a rotation of its latents. In canonical form B_k'
    Sigma^-1 B_k is diagonal with descending entries, and the largest entry of every column of B_k
    is positive.
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
    """Return the rotation (rank, rank) of a loading's latents that makes the loading canonical.

    The form is that of `canonical_and_weighted`.

    loading : B (D, rank)
    weighted : Sigma^-1 B (D, rank), with Sigma the noise covariance
    """
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
    """Noise e ~ N(0, Sigma) with an arbitrary covariance Sigma; base class of all noise classes.

    kind : name of the noise in the settings of an estimator, such as "full"
    second_moment : second moments of the vectors that `estimate` needs, "full" or "diagonal"
    array : Sigma as `Parameters` stores it, here (D, D)
    """

    kind: ClassVar[str] = "full"
    second_moment: ClassVar[SecondMoment] = "full"

    def __init__(self, array: AnyArray) -> None:
        self.array = array
        self.xp = namespace(array)

    @classmethod
    def estimate(cls, scatter: AnyArray, n: float, model: NoiseModel) -> AnyArray:
        """Return the noise array, above its lower bound, of largest likelihood times prior density.

        scatter : sum of squared residuals, (D, D) or its diagonal (D,)
        n : number of residuals
        model : lower bound and prior of the noise
        """
        n_eff = n + model.weight
        xp = namespace(scatter)
        residual = xp.diag(scatter) if scatter.ndim == 1 else scatter
        # average with the transpose, for exact symmetry
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
        """Noise variance of each dimension, (D,)."""
        return diagonal_of(self.array)

    @property
    def covariance(self) -> AnyArray:
        """Noise covariance Sigma, (D, D)."""
        return self.array

    @cached_property
    def lower(self) -> AnyArray:
        """Lower triangular Cholesky factor of the noise covariance, (D, D)."""
        try:
            lower = self.xp.cholesky(self.array)
        except np.linalg.LinAlgError as error:
            raise NumericalError(
                "the fitted noise covariance is not positive definite: raise noise_floor, or pass more vectors"
            ) from error
        return lower

    @cached_property
    def log_determinant(self) -> float:
        """Log-determinant of the noise covariance."""
        return 2 * float(self.xp.log(self.lower.diagonal()).sum())

    def solve(self, matrix: AnyArray) -> AnyArray:
        """Return the inverse noise covariance times a matrix (D, columns) or a vector (D,)."""
        return self.xp.cho_solve(self.lower, matrix)

    def trace(self, scatter: AnyArray) -> float:
        """Return the trace of Sigma^-1 scatter, with Sigma the noise covariance.

        scatter : (D, D), or (D,) for a diagonal matrix
        """
        inverse = self.xp.inverse(self.lower)
        if scatter.ndim == 1:
            return float(inverse.diagonal() @ scatter)
        return float(self.xp.vdot(inverse, scatter))

    def draw(self, n: int, rng: Generator) -> Array:
        """Return n random noise vectors, (n, D), on the host."""
        return rng.standard_normal((n, len(self.array))) @ to_host(self.lower).T

    def checked(self) -> Self:
        """Return a copy with an exactly symmetric covariance.

        Raise `DataError` unless the covariance is nearly symmetric and positive definite.
        """
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
    """Noise with independent dimensions: Sigma is diagonal, and the array holds its variances, (D,)."""

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
"""Classes of noise, by their name in the settings of an estimator."""


def noise_of(array: AnyArray) -> FullNoise:
    """Return the noise object of an array.

    array : variances (D,) for `DiagonalNoise`, or a covariance (D, D) for `FullNoise`
    """
    return DiagonalNoise(array) if array.ndim == 1 else FullNoise(array)


def _exceeds(sigma: AnyArray, floor: AnyArray) -> bool:
    """Return whether the covariance (D, D) minus diag(floor), with floor (D,), is positive definite."""
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
    """Kind, lower bound and prior of the noise.

    kind : "diagonal" or "full", a key of `NOISES`
    floor : (D,) lower bound of the noise variances. For full noise it holds in every direction:
        Sigma - diag(floor) has no negative eigenvalue
    target : (D,) noise variances of the prior
    weight : weight of the prior as a number of vectors; 0: maximum likelihood
    """

    kind: str
    floor: AnyArray
    target: AnyArray
    weight: float = 0.0

    @classmethod
    def of(
        cls, kind: str, floor: float, statistics: SufficientStatistics, shrinkage: float
    ) -> NoiseModel:
        """Return the noise model for a data set.

        Parameters
        ----------
        kind : "diagonal" or "full"
        floor : lower bound of the noise, as a fraction of the variance of each dimension
        statistics : statistics of the training data
        shrinkage : weight of the prior in [0, 1), as a fraction of the total weight of prior and
            data

        Raises
        ------
        DataError
            All vectors are equal, or their variance is too small for floating-point numbers.
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
                f"the largest variance of a dimension of the vectors is {varying.max()}, too small for floating-point "
                "numbers: multiply the vectors by a constant, so that they have about unit size"
            )
        # Any positive value serves for constant columns; the median keeps the noise covariance well conditioned.
        variance[constant] = np.median(varying)
        return cls(kind, floor * variance, variance, statistics.n * shrinkage / (1 - shrinkage))

    def on(self, xp: Numpy | Torch) -> NoiseModel:
        """Return the noise model with arrays of the backend `xp` (NumPy, or a torch device)."""
        return replace(self, floor=xp.asarray(self.floor), target=xp.asarray(self.target))

    def estimate(self, scatter: AnyArray, n: float) -> AnyArray:
        """Return the noise array, above its lower bound, of largest likelihood times prior density.

        scatter : sum of squared residuals, (D, D) or its diagonal (D,)
        n : number of residuals
        """
        return NOISES[self.kind].estimate(scatter, n, self)

    def log_prior(self, noise: AnyArray) -> float:
        """Return the log of the unnormalised prior density of a noise array; 0 without a prior."""
        if self.weight == 0:
            return 0.0
        sigma = noise_of(noise)
        return -0.5 * self.weight * (sigma.log_determinant + sigma.trace(self.target))
