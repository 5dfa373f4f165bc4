"""Priors of the parameters: each provides a starting point of EM, an M step, and a log density.

Every prior is a class, registered in `PRIORS` under its `kind`, its name in the settings of an
estimator.
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations
from typing import ClassVar, Self

import numpy as np
from numpy.random import Generator
from scipy.optimize import nnls

from .._typing import AnyArray, Array
from ..backend import like, namespace, to_host
from ..exceptions import DisconnectedDesignWarning, UnidentifiableViewWarning
from ..statistics.accumulator import Sums
from .em import Posterior, m_step, moment_start, random_start
from .parameters import NoiseModel, Parameters, noise_of

MOMENT_ROWS = 2**16
"""Number of classes per step when moments are summed; limits temporary memory."""


@dataclass(frozen=True)
class MaximumLikelihood:
    """Maximum likelihood without a prior of the loadings; the noise model may shrink the noise.

    The class also defines the interface of all priors. An instance belongs to one data set.

    noise : kind, bounds and prior of the noise
    kind : name of the prior in the settings of an estimator; None: no prior
    full_rank : True if loadings have as many columns as the dimension, so that there is no rank to
        choose, and the noise is full
    needless : categories of warnings about training data that do not apply with this prior
    """

    noise: NoiseModel
    kind: ClassVar[str | None] = None
    full_rank: ClassVar[bool] = False
    needless: ClassVar[tuple[type[Warning], ...]] = ()

    @classmethod
    def of(cls, sums: Sums, noise: NoiseModel, strengths: tuple[float, ...]) -> Self:
        """Return the prior for a data set.

        sums : statistics of the data
        noise : kind, bounds and prior of the noise
        strengths : strength of the prior of each view, and last of the noise; not used here
        """
        return cls(noise)

    def start(self, sums: Sums, ranks: tuple[int, ...], init: str, rng: Generator) -> Parameters:
        """Return the starting point of EM.

        sums : statistics of the data
        ranks : rank of each view
        init : "moments" or "random"
        rng : source of random numbers
        """
        initialise = moment_start if init == "moments" else random_start
        return initialise(sums, ranks, self.noise, rng)

    def m_step(self, sums: Sums, post: Posterior) -> Parameters:
        """Return the parameters that maximise expected log-likelihood plus log prior density.

        sums : statistics of the data
        post : posterior of the E step
        """
        return m_step(sums, post, self.noise)

    def log_density(self, parameters: Parameters, sums: Sums) -> float:
        """Return the log prior density of the parameters, up to a constant."""
        return self.noise.log_prior(parameters.noise)


# The isotropic prior is a density of Psi_k = B_k B_k' and of Sigma, so loadings are factors of full rank. It suits
# vectors of unit length that are not whitened (centring, then length normalisation): there the classes of a
# well-trained network vary about equally in every direction, which cannot be estimated from a few training classes.


@dataclass(frozen=True)
class Components:
    """Mean and covariances of the model, as arrays of the host or of a device.

    mean : (D,)
    covariances : (D, D) covariance of every view's effects, and last that of the noise
    """

    mean: AnyArray
    covariances: tuple[AnyArray, ...]

    @classmethod
    def of(cls, parameters: Parameters) -> Components:
        """Return the components of a model; the covariance of a view is loading times loading'."""
        between = tuple(b @ b.T for b in parameters.loadings)
        return cls(parameters.mean, (*between, parameters.sigma.covariance))

    def parameters(self) -> Parameters:
        """Return the model with these components; its loadings are matrix roots of the covariances."""
        return Parameters(self.mean, tuple(map(_root, self.covariances[:-1])), self.covariances[-1])


def _root(covariance: AnyArray) -> AnyArray:
    """Return B (D, rank) with B B' = `covariance`; its columns get shorter from left to right."""
    xp = namespace(covariance)
    values, vectors = xp.linalg.eigh((covariance + covariance.T) / 2)
    positive = values > 1e-12 * max(float(values[-1]), 1e-300)
    positive[-1] = True  # a loading has at least one column
    return xp.flip(vectors[:, positive] * xp.sqrt(values[positive].clip(min=0.0)), (1,))


@dataclass(frozen=True)
class IsotropicPrior:
    """Inverse Wishart priors of the covariances of every view and of the noise, with isotropic modes.

    Each covariance is shrunk towards its target: a multiple of the identity with the same mean
    variance as the moment estimate. If all strengths are 1, scores of one view rank trials as the
    cosine does.

    moments : moment estimates of the components
    strengths : how far each estimate is moved to its target, per view and last for the noise; 0:
        maximum likelihood, 1: the target itself
    """

    moments: Components
    strengths: tuple[float, ...]
    kind: ClassVar[str | None] = "isotropic"
    full_rank: ClassVar[bool] = True
    needless: ClassVar[tuple[type[Warning], ...]] = (
        UnidentifiableViewWarning,  # the prior identifies components that the labels do not separate
        DisconnectedDesignWarning,
    )

    @classmethod
    def of(cls, sums: Sums, noise: NoiseModel, strengths: tuple[float, ...]) -> Self:
        return cls(moment_components(sums), strengths)

    @property
    def targets(self) -> tuple[float, ...]:
        """Variance of each covariance's isotropic target: mean diagonal of its moment estimate."""
        return tuple(float(np.diag(c).mean()) for c in self.moments.covariances)

    def draw(self, components: Components) -> Components:
        """Return components whose covariances are shrunk towards their targets, by their strengths.

        If `components` maximise the expected log-likelihood, the result maximises the sum of
        expected log-likelihood and log prior density.
        """
        shrunk = []
        for covariance, target, s in zip(
            components.covariances, self.targets, self.strengths, strict=True
        ):
            isotropic = like(s * target * np.eye(len(covariance)), covariance)
            shrunk.append((1 - s) * covariance + isotropic)  # (M7)
        return Components(components.mean, tuple(shrunk))

    def start(self, sums: Sums, ranks: tuple[int, ...], init: str, rng: Generator) -> Parameters:
        return self.draw(self.moments).parameters().on(sums.xp)

    def m_step(self, sums: Sums, post: Posterior) -> Parameters:
        """Return the parameters that maximise expected log-likelihood plus log prior density.

        The covariance of a view is the covariance of its class effects (loading times latents)
        under the posterior, shrunk towards its target.
        """
        p = post.parameters
        outer = sums.xp.outer
        B = p.stacked()
        effects = B @ post.sum_z
        mean = (sums.total - effects) / sums.n
        cross = post.sum_xz @ B.T + outer(sums.total, mean)
        effect_mean = outer(effects, mean)
        effect_squares = B @ post.sum_zz @ B.T
        # Sum over vectors of E[(mean + B z)(mean + B z)'].
        explained = effect_squares + effect_mean + effect_mean.T + sums.n * outer(mean, mean)
        noise = (sums.scatter - cross - cross.T + explained) / sums.n  # (M9)

        spreads = []
        for k, loading in enumerate(p.loadings):
            centre, spread = post.class_moments(k, len(sums.counts[k]))
            spreads.append(loading @ spread @ loading.T)  # (M10)
            mean = mean + loading @ centre
        return self.draw(Components(mean, (*spreads, (noise + noise.T) / 2))).parameters()

    def log_density(self, parameters: Parameters, sums: Sums) -> float:
        counts = (*map(len, sums.counts), sums.n)
        covariances = Components.of(parameters).covariances
        total = 0.0
        for covariance, target, s, count in zip(
            covariances, self.targets, self.strengths, counts, strict=True
        ):
            if 0 < s < 1:  # at 0 there is no prior, at 1 the covariance is fixed
                psi = noise_of(covariance)
                identity = like(target * np.eye(len(covariance)), covariance)
                weight = count * s / (1 - s)
                total -= 0.5 * weight * (psi.log_determinant + psi.trace(identity))  # (M8)
        return total


PRIORS: dict[str | None, type[MaximumLikelihood | IsotropicPrior]] = {
    prior.kind: prior for prior in (MaximumLikelihood, IsotropicPrior)
}
"""Classes of priors, by their name in the settings of an estimator."""


# Moment estimates of the variance components. They start EM, and strengths can be chosen from them without a fit.


def moment_components(sums: Sums) -> Components:
    """Return moment estimates of the covariances of all views and of the noise, as NumPy arrays.

    With these covariances, the expected scatter of the class means of every view and the expected
    total scatter equal those of the data. Components that the labels cannot separate (a view with a
    single class, or with one vector per class) get equal proportions of the variance, isotropic.
    """
    n = sums.n
    D = sums.dimension
    total = to_host(sums.total)
    grand = np.outer(total, total) / n
    scatters = [
        _scatter_of_means(s, c) - grand for s, c in zip(sums.sums, sums.counts, strict=True)
    ]
    scatters.append(to_host(sums.scatter) - grand)
    M = _moment_matrix(sums)
    scale = np.maximum(np.abs(M).max(axis=1), 1e-300)
    sizes = _component_sizes(M / scale[:, None], scatters, scale, n)
    mix = np.linalg.pinv(M / scale[:, None], rcond=1e-6) / scale

    # Scale the solution of the moment equations for each component to the trace in `sizes`.
    smallest_size = 1e-6 * np.trace(scatters[-1]) / (n - 1)
    covariances = []
    for k, size in enumerate(sizes):
        values, vectors = np.linalg.eigh(sum(m * s for m, s in zip(mix[k], scatters, strict=True)))
        values = values.clip(min=0.0)
        isotropic = values.sum() <= 1e-9 * max(size, 1e-300)
        size = max(size, smallest_size)
        shape = np.eye(D) / D if isotropic else (vectors * (values / values.sum())) @ vectors.T
        covariances.append(size * shape)
    covariances[-1] = covariances[-1] + smallest_size / D * np.eye(D)
    return Components(total / n, tuple(covariances))


def _moment_matrix(sums: Sums) -> Array:
    """Return the coefficients M of the moment equations, (K + 1, K + 1) for K views.

    Scatter j is that of the class means of view j, or the total scatter for j = K. Covariance k is
    that of view k, or of the noise for k = K. The expected scatter j is the sum over k of M[j, k]
    times covariance k.
    """
    n = sums.n
    K = sums.n_views
    M = np.full((K + 1, K + 1), float(n))
    for j, l in permutations(range(K), 2):
        M[j, l] = (sums.together(j, l).power(2).sum(axis=1) / sums.counts[j]).sum()
    M[:, :K] -= [float((c**2).sum()) / n for c in sums.counts]  # (S3)
    M[:, K] = [*map(len, sums.counts), n]
    M[:, K] -= 1
    return M


def _component_sizes(M: Array, scatters: list[Array], scale: Array, n: int) -> Array:
    """Return the trace of the covariance of each view and of the noise, (components,), at least 0.

    It is the least-squares solution of the traces of the moment equations. A small ridge favours
    equal traces, so that components that the equations do not separate get equal traces.

    M : (components, components) coefficients from `_moment_matrix`, with rows divided by `scale`
    scatters : the (D, D) scatter of each row of M
    scale : (components,) divisors of the rows
    n : number of vectors
    """
    components = len(M)
    traces = np.array([np.trace(s) for s in scatters])
    equal_share = traces[-1] / (n - 1) / components
    ridge = 1e-4
    sizes, _ = nnls(
        np.concatenate([M, ridge * np.eye(components)]),
        np.concatenate([traces / scale, np.full(components, ridge * equal_share)]),
    )
    return sizes


def _scatter_of_means(sums: AnyArray, counts: Array) -> Array:
    """Return the sum over classes of size * mean mean', a NumPy array (D, D).

    sums : (classes, D) sum of the vectors of each class
    counts : (classes,) sizes, the numbers of vectors
    """
    scatter = np.zeros((sums.shape[1],) * 2)
    for start in range(0, len(sums), MOMENT_ROWS):
        class_sums = sums[start : start + MOMENT_ROWS]
        class_counts = like(counts[start : start + MOMENT_ROWS, None], class_sums)
        scatter += to_host((class_sums / class_counts).T @ class_sums)
    return scatter
