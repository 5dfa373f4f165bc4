"""What is assumed of the parameters before any data: how EM begins, maximises, and what it adds to the likelihood.

A prior is a class and a line of `PRIORS`; an estimator names it by its `kind`.
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
"""Classes of which moments are taken at a time."""


@dataclass(frozen=True)
class MaximumLikelihood:
    """No prior but the shrinkage of the noise, which is part of its model.

    Every prior has what this one has. It is made for one fit, from its data.

    kind : its name among the settings of an estimator; None: no prior
    full_rank : whether loadings are factors of full rank, so that there is no rank to choose, and the noise is full
    needless : warnings about the design that do not hold under the prior
    """

    noise: NoiseModel
    kind: ClassVar[str | None] = None
    full_rank: ClassVar[bool] = False
    needless: ClassVar[tuple[type[Warning], ...]] = ()

    @classmethod
    def of(cls, sums: Sums, noise: NoiseModel, strengths: tuple[float, ...]) -> Self:
        """The prior for these data; strengths are of every view and of the noise."""
        return cls(noise)

    def start(self, sums: Sums, ranks: tuple[int, ...], init: str, rng: Generator) -> Parameters:
        """Where EM begins."""
        begin = moment_start if init == "moments" else random_start
        return begin(sums, ranks, self.noise, rng)

    def m_step(self, sums: Sums, post: Posterior) -> Parameters:
        """The parameters that maximise expected log-likelihood and prior."""
        return m_step(sums, post, self.noise)

    def log_density(self, parameters: Parameters, sums: Sums) -> float:
        """Log prior density, up to a constant: what EM raises besides the log-likelihood."""
        return self.noise.log_prior(parameters.noise)


# The isotropic prior speaks of Psi_k = B_k B_k' and of Sigma, not of loadings, so loadings are factors of full rank. It
# belongs to vectors of one length that are not whitened (centring, then length normalisation): there the classes of a
# well-trained network vary about equally in every direction, which is what few classes cannot tell by themselves.


@dataclass(frozen=True)
class Components:
    """The mean, and the covariance of every view and of the noise, which comes last: all (D, D), on any device."""

    mean: AnyArray
    covariances: tuple[AnyArray, ...]

    @classmethod
    def of(cls, parameters: Parameters) -> Components:
        between = tuple(b @ b.T for b in parameters.loadings)
        return cls(parameters.mean, (*between, parameters.sigma.covariance))

    def parameters(self) -> Parameters:
        """As a model: loadings are roots of the covariances, of as many columns as these have directions."""
        return Parameters(self.mean, tuple(map(_root, self.covariances[:-1])), self.covariances[-1])


def _root(covariance: AnyArray) -> AnyArray:
    xp = namespace(covariance)
    values, vectors = xp.linalg.eigh((covariance + covariance.T) / 2)
    kept = values > 1e-12 * max(float(values[-1]), 1e-300)
    kept[-1] = True
    return xp.flip(vectors[:, kept] * xp.sqrt(values[kept].clip(min=0.0)), (1,))


@dataclass(frozen=True)
class IsotropicPrior:
    """Inverse Wishart priors of the covariances of every view and of the noise; the limit ranks like the cosine.

    moments : the components of the data, as moments find them
    strengths : in [0, 1], share of the target in the estimate: 0 is maximum likelihood, 1 the target itself
    """

    moments: Components
    strengths: tuple[float, ...]
    kind: ClassVar[str | None] = "isotropic"
    full_rank: ClassVar[bool] = True
    needless: ClassVar[tuple[type[Warning], ...]] = (
        UnidentifiableViewWarning,  # what the labels cannot tell apart, the prior can
        DisconnectedDesignWarning,
    )

    @classmethod
    def of(cls, sums: Sums, noise: NoiseModel, strengths: tuple[float, ...]) -> Self:
        return cls(moment_components(sums), strengths)

    @property
    def targets(self) -> tuple[float, ...]:
        """The variance that every component is drawn towards, in all directions: its mean over columns."""
        return tuple(float(np.diag(c).mean()) for c in self.moments.covariances)

    def draw(self, components: Components) -> Components:
        """Every covariance drawn towards its target: the maximum of likelihood times prior."""
        drawn = []
        for covariance, target, s in zip(
            components.covariances, self.targets, self.strengths, strict=True
        ):
            isotropic = like(s * target * np.eye(len(covariance)), covariance)
            drawn.append((1 - s) * covariance + isotropic)  # (M7)
        return Components(components.mean, tuple(drawn))

    def start(self, sums: Sums, ranks: tuple[int, ...], init: str, rng: Generator) -> Parameters:
        return self.draw(self.moments).parameters().on(sums.xp)

    def m_step(self, sums: Sums, post: Posterior) -> Parameters:
        """The M step for the classes' own effects B_k z_kc: their spread, the mean and the noise."""
        p = post.parameters
        outer = sums.xp.outer
        B = p.stacked()
        effects = B @ post.sum_z
        mean = (sums.total - effects) / sums.n
        cross = post.sum_xz @ B.T + outer(sums.total, mean)
        both = outer(effects, mean)
        explained = B @ post.sum_zz @ B.T + both + both.T + sums.n * outer(mean, mean)
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
            if 0 < s < 1:  # at 0 there is no prior, at 1 nothing is left to choose
                psi = noise_of(covariance)
                identity = like(target * np.eye(len(covariance)), covariance)
                weight = count * s / (1 - s)
                total -= 0.5 * weight * (psi.log_determinant + psi.trace(identity))  # (M8)
        return total


PRIORS: dict[str | None, type[MaximumLikelihood | IsotropicPrior]] = {
    prior.kind: prior for prior in (MaximumLikelihood, IsotropicPrior)
}
"""Every prior that an estimator can be asked for, by name."""


# Moments: variance components of any design in one pass, the start of EM and all that a choice of strengths needs.


def moment_components(sums: Sums) -> Components:
    """Covariances that match the scatter of class means of every view, and the whole scatter, in expectation.

    They are on the host, wherever the sums are. What the labels cannot tell apart (a view with one class, one vector
    a class) is an equal share of the variance, in every direction.
    """
    n = sums.n
    K = sums.n_views
    D = sums.dimension
    total = to_host(sums.total)
    grand = np.outer(total, total) / n
    scatters = [
        _scatter_of_means(s, c) - grand for s, c in zip(sums.sums, sums.counts, strict=True)
    ]
    scatters.append(to_host(sums.scatter) - grand)
    M = np.full((K + 1, K + 1), float(n))
    for j, l in permutations(range(K), 2):
        M[j, l] = (sums.together(j, l).power(2).sum(axis=1) / sums.counts[j]).sum()
    M[:, :K] -= [float((c**2).sum()) / n for c in sums.counts]  # (S3)
    M[:, K] = [*map(len, sums.counts), n]
    M[:, K] -= 1
    scale = np.maximum(np.abs(M).max(axis=1), 1e-300)
    traces = np.array([np.trace(s) for s in scatters])
    share = traces[-1] / (n - 1) / (K + 1)
    small = 1e-4
    sizes, _ = nnls(
        np.concatenate([M / scale[:, None], small * np.eye(K + 1)]),
        np.concatenate([traces / scale, np.full(K + 1, small * share)]),
    )
    mix = np.linalg.pinv(M / scale[:, None], rcond=1e-6) / scale
    covariances = []
    for k, size in enumerate(sizes):
        values, vectors = np.linalg.eigh(sum(m * s for m, s in zip(mix[k], scatters, strict=True)))
        values = values.clip(min=0.0)
        isotropic = values.sum() <= 1e-9 * max(size, 1e-300)
        size = max(size, 1e-6 * traces[-1] / (n - 1))
        shape = np.eye(D) / D if isotropic else (vectors * (values / values.sum())) @ vectors.T
        covariances.append(size * shape)
    floor = 1e-6 * traces[-1] / (n - 1) / D
    covariances[-1] = covariances[-1] + floor * np.eye(D)
    return Components(total / n, tuple(covariances))


def _scatter_of_means(sums: AnyArray, counts: Array) -> Array:
    """(D, D) on the host: sum over classes of n_c mean mean', some classes at a time, without a copy of them all."""
    scatter = np.zeros((sums.shape[1],) * 2)
    for start in range(0, len(sums), MOMENT_ROWS):
        some = sums[start : start + MOMENT_ROWS]
        scatter += to_host((some / like(counts[start : start + MOMENT_ROWS, None], some)).T @ some)
    return scatter
