"""What is estimated: mean, loadings and noise.

A kind of noise is a class, and a line of `NOISES`. A noise is kept as an array, its variances (D,) or its covariance
(D, D); what is to be known of it is asked of the object that `noise_of` makes of the array. Kinds differ in how they
are estimated. Nothing outside this module asks which kind or which array it has.
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
    noise : Sigma, its variances (D,) or its covariance (D, D)
    """

    mean: AnyArray
    loadings: tuple[AnyArray, ...]
    noise: AnyArray

    @staticmethod
    def given(mean: ArrayLike, loadings: Mapping[str, ArrayLike], noise: ArrayLike) -> Parameters:
        """Parameters from arrays that are checked to fit together."""
        p = Parameters(
            np.array(mean, dtype=np.float64),
            tuple(np.array(loading, dtype=np.float64) for loading in loadings.values()),
            np.array(noise, dtype=np.float64),
        )
        D = p.mean.size
        if p.mean.ndim != 1 or D == 0:
            raise DataError(f"the mean has shape (D,); got {p.mean.shape}")
        if not loadings:
            raise DataError("there is no loading: give {view: (D, rank)} for at least one view")
        for view, loading in zip(loadings, p.loadings, strict=True):
            if loading.ndim != 2 or len(loading) != D or not 1 <= loading.shape[1] <= D:
                raise DataError(
                    f"the loading of {view!r} has shape ({D}, rank), rank 1 to {D}; got {loading.shape}"
                )
        if p.noise.shape not in ((D,), (D, D)):
            raise DataError(
                f"the noise has shape ({D},) or ({D}, {D}), as the mean has width {D}; got {p.noise.shape}"
            )
        if not p.is_finite():
            raise DataError("the parameters are not all finite")
        return replace(p, noise=p.sigma.checked().array)

    @cached_property
    def sigma(self) -> FullNoise:
        """The noise, and what is asked of it: Sigma^-1 times a matrix, log |Sigma|, drawn vectors."""
        return noise_of(self.noise)

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(loading.shape[1] for loading in self.loadings)

    @property
    def slices(self) -> tuple[slice, ...]:
        """Where every view's latents stand among all of them side by side."""
        return tuple(side_by_side(dict(enumerate(self.ranks))).values())

    def stacked(self) -> AnyArray:
        """[B_1 ... B_K], (D, sum of ranks)."""
        return namespace(self.mean).concatenate(self.loadings, axis=1)

    def on(self, xp: Numpy | Torch) -> Parameters:
        """The same where sums are (``sums.xp``)."""
        return self._with(xp.asarray)

    def on_host(self) -> Parameters:
        """The same as NumPy arrays."""
        return self._with(to_host)

    def _with(self, place: Callable[[Any], Any]) -> Parameters:
        return Parameters(place(self.mean), tuple(map(place, self.loadings)), place(self.noise))

    def is_finite(self) -> bool:
        arrays = (self.mean, self.noise, *self.loadings)
        return all(bool(namespace(a).isfinite(a).all()) for a in arrays)

    def check_finite(self, when: str) -> None:
        if not self.is_finite():
            raise NumericalError(
                f"the parameters are not finite {when}: scale the vectors to ordinary size, "
                "raise noise_floor, or lower the ranks"
            )


def canonical_and_weighted(parameters: Parameters) -> tuple[Parameters, AnyArray]:
    """The same model in canonical form, and Sigma^-1 times its stacked loadings.

    A loading is only known up to a rotation of its latents. The canonical one has B_k' Sigma^-1 B_k
    diagonal and descending, and the largest entry of every column positive.
    """
    LB = parameters.sigma.solve(parameters.stacked())
    loadings = []
    for loading, where in zip(parameters.loadings, parameters.slices, strict=True):
        rotation = _rotation(loading, LB[:, where])
        loadings.append(loading @ rotation)  # (C1)
        LB[:, where] = LB[:, where] @ rotation
    return replace(parameters, loadings=tuple(loadings)), LB


def _rotation(loading: AnyArray, weighted: AnyArray) -> Any:
    """The canonical axes of a loading's latents, as columns; `weighted` is Sigma^-1 times the loading."""
    xp = namespace(loading)
    gram = loading.T @ weighted
    rotation = xp.flip(xp.linalg.eigh((gram + gram.T) / 2)[1], (1,))
    rotated = loading @ rotation
    if not rotated.shape[1]:
        return rotation
    largest = rotated[xp.abs(rotated).argmax(axis=0), xp.arange(rotated.shape[1])]
    return rotation * xp.where(largest < 0, -1.0, 1.0)


class FullNoise:
    """What no view explains, e ~ N(0, Sigma): any covariance, and Sigma^-1 through one factorisation.

    kind : its name among the settings of an estimator
    second_moment : what of the vectors' second moment an estimate needs

    array : (D, D), or (D,) of a subclass: as estimators keep it
    """

    kind: ClassVar[str] = "full"
    second_moment: ClassVar[SecondMoment] = "full"

    def __init__(self, array: AnyArray) -> None:
        self.array = array
        self.xp = namespace(array)

    @classmethod
    def estimate(cls, scatter: AnyArray, n: float, model: NoiseModel) -> AnyArray:
        """The array that maximises the likelihood of n residuals with this scatter, or with this diagonal of it."""
        n_eff = n + model.weight
        xp = namespace(scatter)
        residual = xp.diag(scatter) if scatter.ndim == 1 else scatter
        sigma = residual + residual.T
        sigma /= 2 * n_eff
        xp.diagonal(sigma)[:] += model.weight * model.target / n_eff  # (M3)
        if _exceeds(sigma, model.floor):
            return sigma
        # In units of the floor no eigenvalue may be below 1.
        scale = xp.sqrt(model.floor)
        unit = xp.outer(scale, scale)
        values, vectors = xp.linalg.eigh(sigma / unit)
        raised = (vectors * values.clip(min=1.0)) @ vectors.T
        return raised * unit

    @property
    def variances(self) -> AnyArray:
        """(D,) the diagonal of Sigma."""
        return diagonal_of(self.array)

    @property
    def covariance(self) -> AnyArray:
        """(D, D) Sigma."""
        return self.array

    @cached_property
    def lower(self) -> AnyArray:
        """(D, D) L with L L' = Sigma."""
        try:
            lower = self.xp.cholesky(self.array)
        except np.linalg.LinAlgError as error:
            raise NumericalError(
                "the noise covariance is not positive definite: raise noise_floor"
            ) from error
        return lower

    @cached_property
    def log_determinant(self) -> float:
        """log |Sigma|"""
        return 2 * float(self.xp.log(self.lower.diagonal()).sum())

    def solve(self, matrix: AnyArray) -> AnyArray:
        """Sigma^-1 @ matrix."""
        return self.xp.cho_solve(self.lower, matrix)

    def trace(self, scatter: AnyArray) -> float:
        """tr(Sigma^-1 scatter), where scatter may be a diagonal alone."""
        inverse = self.xp.inverse(self.lower)
        if scatter.ndim == 1:
            return float(inverse.diagonal() @ scatter)
        return float(self.xp.vdot(inverse, scatter))

    def draw(self, n: int, rng: Generator) -> Array:
        """(n, D) drawn vectors, on the host."""
        return rng.standard_normal((n, len(self.array))) @ to_host(self.lower).T

    def checked(self) -> Self:
        """The same noise if it is one, symmetric to the last bit; otherwise a `DataError`."""
        array = to_host(self.array)
        if not np.allclose(array, array.T, rtol=1e-6, atol=1e-9 * np.abs(array).max()):
            raise DataError("the noise covariance is not symmetric")
        symmetric = type(self)((self.array + self.array.T) / 2)
        try:
            np.linalg.cholesky(to_host(symmetric.array))
        except np.linalg.LinAlgError:
            raise DataError("the noise covariance is not positive definite") from None
        return symmetric


class DiagonalNoise(FullNoise):
    """Independent columns: variances (D,)."""

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
            raise DataError(f"noise variances are positive; the least is {self.array.min()}")
        return self


NOISES: dict[str, type[FullNoise]] = {noise.kind: noise for noise in (DiagonalNoise, FullNoise)}
"""Every kind of noise that an estimator can be asked for, by name."""


def noise_of(array: AnyArray) -> FullNoise:
    """The noise that an array stands for: variances (D,), or a covariance (D, D)."""
    return DiagonalNoise(array) if array.ndim == 1 else FullNoise(array)


def _exceeds(sigma: AnyArray, floor: AnyArray) -> bool:
    """Whether a covariance is above the floor in every direction."""
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
    """What the noise may look like.

    kind : a name among `NOISES`
    floor : (D,) no noise variance falls below it (of a full noise: in no direction,
        where lengths are measured in units of the floor)
    target, weight : a prior that counts as `weight` vectors whose noise variances
        were `target`, (D,); weight 0 is maximum likelihood
    """

    kind: str
    floor: AnyArray
    target: AnyArray
    weight: float = 0.0

    @classmethod
    def of(
        cls, kind: str, floor: float, statistics: SufficientStatistics, shrinkage: float
    ) -> NoiseModel:
        """What some data allow: the floor and the shrinkage are fractions of the columns' variances."""
        variance = statistics.variance
        constant = statistics.constant_columns
        if len(constant) == len(variance):
            raise DataError(
                "all vectors are the same, or so small that their squares vanish: there is no variance to explain"
            )
        varying = np.delete(variance, constant)
        if varying.max() < 1e-280:
            raise DataError(
                f"the largest variance of a column is {varying.max()}: scale the vectors up"
            )
        variance[constant] = np.median(varying)
        return cls(kind, floor * variance, variance, statistics.n * shrinkage / (1 - shrinkage))

    def on(self, xp: Numpy | Torch) -> NoiseModel:
        """The same where the sums are (``sums.xp``)."""
        return replace(self, floor=xp.asarray(self.floor), target=xp.asarray(self.target))

    def estimate(self, scatter: AnyArray, n: float) -> AnyArray:
        """The noise that maximises the likelihood of a residual scatter, or of its diagonal, within the bounds."""
        return NOISES[self.kind].estimate(scatter, n, self)

    def log_prior(self, noise: AnyArray) -> float:
        """Log of the (unnormalised) prior density of a noise; 0 without one."""
        if self.weight == 0:
            return 0.0
        sigma = noise_of(noise)
        return -0.5 * self.weight * (sigma.log_determinant + sigma.trace(self.target))
