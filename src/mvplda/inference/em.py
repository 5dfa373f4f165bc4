"""Expectation maximisation: the M step, minimum divergence, and the loop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from .._typing import Array
from ..backend import namespace, to_host
from ..statistics.accumulator import Sums
from .design import Design
from .exact import Elimination, Leaf, ViewSums, leaf_given_data, sums_of_rows
from .noise import NoiseModel, noise_of
from .parameters import LOG_2PI, Parameters, canonical_and_weighted
from .variational import FactorisedElimination


def m_step(
    sums: Sums, post: Posterior, noise: NoiseModel, shrinkage: tuple[float, ...], *, min_divergence: bool = True
) -> Parameters:
    """All loadings and the mean in one solve, then the noise, then minimum divergence.

    `shrinkage` holds tau_k of every view, the weight of the penalty on B_k (see `signal_penalty`).
    """
    r, xp = len(post.sum_z), sums.xp
    tau = np.concatenate([np.repeat(shrinkage, post.parameters.ranks), [0.0]])
    R = xp.empty((r + 1, r + 1))
    R[:r, :r], R[:r, r], R[r, :r], R[r, r] = post.sum_zz, post.sum_z, post.sum_z, sums.n
    C = xp.concatenate([post.sum_xz, sums.total[:, None]], axis=1)
    R += xp.diag(xp.asarray(tau))
    W = xp.solve_positive(R, C.T).T  # (M1)
    noise_array = noise.estimate(sums.scatter - sums.product(W, C), sums.n)  # (M2)
    sigma = noise_of(noise_array)
    mean = W[:, r] + 0.0
    loadings = []
    for k, where in enumerate(post.parameters.slices):
        loading = W[:, where]
        if min_divergence:
            n_classes = len(sums.counts[k])
            centre = post.view_sums[k].class_z / n_classes
            second = (post.view_sums[k].class_zz + post.class_covariance[k]) / n_classes
            mean += loading @ centre  # (M4)
            spread = second - xp.outer(centre, centre)
            if shrinkage[k] > 0:
                spread = _shrunk_spread(spread, loading.T @ sigma.solve(loading), shrinkage[k] / n_classes)
            loading = loading @ xp.cholesky(spread)  # (M5)
        loadings.append(loading)
    return Parameters(mean, tuple(loadings), noise_array)


def _shrunk_spread(spread: Array, gram: Array, weight: float) -> Array:
    """K with  weight K G K + K = S  for S = spread, G = gram: minimum divergence under the penalty."""
    xp = namespace(spread)
    values, vectors = xp.linalg.eigh((gram + gram.T) / 2)
    roots = xp.sqrt(values.clip(min=1e-12 * max(float(values[-1]), 1e-300)))
    inner = (vectors * roots).T @ spread @ (vectors * roots)
    s, u = xp.linalg.eigh((inner + inner.T) / 2)
    k = 2 * s / (1 + xp.sqrt(1 + 4 * weight * s.clip(min=0.0)))  # (M6)
    half = (vectors / roots) @ u
    shrunk: Array = (half * k) @ half.T
    return shrunk


def signal_penalty(parameters: Parameters, shrinkage: tuple[float, ...]) -> float:
    """-1/2 sum_k tau_k tr(B_k' Sigma^-1 B_k): keeps views from claiming too much signal to noise."""
    if not any(shrinkage):
        return 0.0
    sigma = parameters.sigma
    traces = [float(sigma.xp.vdot(b, sigma.solve(b))) for b in parameters.loadings]
    return -0.5 * float(np.dot(shrinkage, traces))


@dataclass(frozen=True)
class Iteration:
    """What a callback sees after every iteration."""

    number: int
    log_likelihood: float
    gain_per_vector: float
    parameters: Parameters


@dataclass(frozen=True)
class Fit:
    """The end of a fit.

    parameters : canonical, on the host
    log_likelihoods : of the parameters before every iteration, and of the last ones
    objectives : the same with priors and penalties, which is what EM raises
    converged : whether the last gain was below the tolerance
    posterior : of the training classes, under `parameters`
    """

    parameters: Parameters
    log_likelihoods: Array
    objectives: Array
    converged: bool
    posterior: Posterior


def fit_em(
    design: Design,
    start: Parameters,
    noise: NoiseModel,
    *,
    max_iter: int,
    tol: float,
    min_divergence: bool = True,
    shrinkage: tuple[float, ...] | None = None,
    step: Callable[[Posterior], Parameters] | None = None,
    log_prior: Callable[[Parameters], float] | None = None,
    callback: Callable[[Iteration], object] | None = None,
) -> Fit:
    """Alternate E and M steps until the objective gains less than `tol` nat a vector.

    `step` replaces the M step (for other algorithms); the likelihood stays exact. `log_prior` replaces what the
    objective adds to it.
    """
    sums = design.sums
    tau = shrinkage or (0.0,) * sums.n_views
    update = step or (lambda post: m_step(sums, post, noise, tau, min_divergence=min_divergence))
    added = log_prior or (lambda p: noise.log_prior(p.noise) + signal_penalty(p, tau))
    current = posterior(design, start)
    history = [current.log_likelihood]
    objective = current.log_likelihood + added(start)
    objectives = [objective]
    converged = False
    for number in range(1, max_iter + 1):
        parameters = update(current)
        parameters.check_finite(f"after iteration {number}")
        current = posterior(design, parameters)
        history.append(current.log_likelihood)
        previous, objective = objective, current.log_likelihood + added(parameters)
        objectives.append(objective)
        gain = (objective - previous) / sums.n
        if callback is not None:
            callback(Iteration(number, current.log_likelihood, gain, current.parameters.on_host()))
        if abs(gain) < tol:
            converged = True
            break
    return Fit(current.parameters.on_host(), np.array(history), np.array(objectives), converged, current)


# The E step: posterior moments of all latents, and the log-likelihood, or a bound of it.


@dataclass(frozen=True)
class Posterior:
    """Moments of all latents given the data.

    parameters : the model, in the coordinates that the latents are in (canonical)
    view_sums : per view, sums of E[z_kc] over vectors and over classes
    sum_zz : (r, r) sum over vectors of E[z z'], views side by side
    class_covariance : per view (r_k, r_k), sum over classes of Cov(z_kc)
    log_likelihood : of the data, exact; where the plan is factorised, a lower bound of it
    """

    parameters: Parameters
    view_sums: tuple[ViewSums, ...]
    sum_zz: Array
    class_covariance: tuple[Array, ...]
    log_likelihood: float
    elimination: Elimination | FactorisedElimination
    leaf: Leaf
    others: dict[int, Array]

    @property
    def sum_z(self) -> Array:
        """(r,) sum over vectors of E[z], views side by side."""
        z: Array = namespace(self.sum_zz).concatenate([s.z for s in self.view_sums])
        return z

    @property
    def sum_xz(self) -> Array:
        """(D, r) sum over vectors of x E[z]'."""
        xz: Array = namespace(self.sum_zz).concatenate([s.xz for s in self.view_sums], axis=1)
        return xz

    @cached_property
    def means(self) -> tuple[Array, ...]:
        """Per view (C_k, r_k), E[z_kc], on the host."""
        views = range(len(self.view_sums))
        return tuple(to_host(self.others[k] if k in self.others else self.leaf.means()) for k in views)

    def covariances(self, view: int) -> Array:
        """Cov(z_kc) of every class of a view, (C_k, r_k, r_k), on the host."""
        return np.ascontiguousarray(to_host(self.elimination.covariances(view)))


def posterior(design: Design, parameters: Parameters) -> Posterior:
    """Posterior of all latents given the sums of the data."""
    sums, e, xp = design.sums, design.plan.leaf, design.sums.xp
    counts = [xp.cached(n) for n in sums.counts]
    p, LB = canonical_and_weighted(parameters)
    B, where = p.stacked(), p.slices
    G = B.T @ LB
    at_mean = p.mean @ LB
    system = (FactorisedElimination if design.plan.factorised else Elimination)(design, G, where)
    leaf = leaf_given_data(design, system.delta, LB[:, where[e]], at_mean[where[e]])
    b = {
        k: sums.sums[k] @ LB[:, where[k]] - xp.outer(counts[k], at_mean[where[k]])  # (E2)
        for k in range(sums.n_views)
        if k != e
    }
    means = system.solve(leaf, b)
    view_sums = tuple(
        leaf.sums() if k == e else sums_of_rows(sums.sums[k], counts[k], means[k]) for k in range(sums.n_views)
    )
    zz = xp.zeros_like(G)  # sum over vectors of E[z] E[z]'
    for k in range(sums.n_views):
        zz[where[k], where[k]] = view_sums[k].zz
        for l in range(k + 1, sums.n_views):
            if e in (k, l):
                cross = leaf.met(l).T @ means[l] if k == e else means[k].T @ leaf.met(k)
            else:
                cross = means[k].T @ (xp.cached_table(sums.cooccurrence[k, l]) @ means[l])
            zz[where[k], where[l]], zz[where[l], where[k]] = cross, cross.T
    covariance_sum, class_covariance = system.covariance_sums()
    # b' Lambda^-1 b as 2 b'm - m' Lambda m: rounding errors of the means m then enter squared
    explained = -float(xp.vdot(G, zz))
    for s, w in zip(view_sums, where, strict=True):
        explained += 2 * float(xp.vdot(LB[:, w], s.xz) - at_mean[w] @ s.z) - float(xp.trace(s.class_zz))
    log_likelihood = -0.5 * (  # (E9)
        sums.n * (sums.dimension * LOG_2PI + parameters.sigma.log_determinant)
        + parameters.sigma.trace(sums.scatter_about(p.mean))
        + system.log_determinant
        - explained
    )
    return Posterior(p, view_sums, covariance_sum + zz, class_covariance, log_likelihood, system, leaf, means)
