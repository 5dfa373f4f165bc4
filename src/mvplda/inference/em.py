"""Expectation maximisation: where it begins, the E and the M step, the loop, and the EM that the paper prints."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.random import Generator
from scipy.linalg import cho_factor, cho_solve

from .._typing import AnyArray, Array
from ..backend import NUMPY, diagonal_of, namespace, to_host
from ..statistics.accumulator import Sums
from .design import Design, refines
from .exact import Elimination, LeafGrams, LeafRows, ViewSums, set_both, sums_of_rows
from .parameters import LOG_2PI, NoiseModel, Parameters, canonical_and_weighted


def m_step(sums: Sums, post: Posterior, noise: NoiseModel) -> Parameters:
    """All loadings and the mean in one solve, then the noise, then minimum divergence."""
    r = len(post.sum_z)
    xp = sums.xp
    # Regression of x on [z; 1], whose sums R = sum E[z z'] and C = sum x E[z]' the E step gives; the last column of W
    # is the mean (docs/math.md, 6.1).
    R = xp.empty((r + 1, r + 1))
    R[:r, :r] = post.sum_zz
    R[:r, r] = post.sum_z
    R[r, :r] = post.sum_z
    R[r, r] = sums.n
    C = xp.concatenate([post.sum_xz, sums.total[:, None]], axis=1)
    W = xp.cho_solve(xp.cholesky(R), C.T).T  # (M1)
    noise_array = noise.estimate(sums.scatter - sums.product(W, C), sums.n)  # (M2)
    mean = W[:, r] + 0.0
    loadings = []
    for k, where in enumerate(post.parameters.slices):
        loading = W[:, where]
        # The same model with latents whose posterior is standard normal on average: their mean goes into the
        # model's mean, the root of their spread into the loading (6.3).
        centre, spread = post.class_moments(k, len(sums.counts[k]))
        mean += loading @ centre  # (M4)
        loadings.append(loading @ xp.cholesky(spread))  # (M5)
    return Parameters(mean, tuple(loadings), noise_array)


@dataclass(frozen=True)
class Iteration:
    """What a callback sees after every iteration."""

    number: int
    log_likelihood: float
    gain_per_vector: float


@dataclass(frozen=True)
class Fit:
    """The end of a fit.

    design : of the data
    model : canonical parameters, where the sums are
    history : log-likelihoods before every iteration and at the end; empty where there was none
    objectives : the same with the prior's part, which is what EM raises
    converged : whether the last gain was below the tolerance
    """

    design: Design
    model: Parameters
    history: tuple[float, ...] = ()
    objectives: Array = field(default_factory=lambda: np.empty(0))
    converged: bool = False

    @property
    def n_iter(self) -> int:
        return max(0, len(self.history) - 1)

    @cached_property
    def parameters(self) -> Parameters:
        """The model on the host."""
        return self.model.on_host()

    @cached_property
    def posterior(self) -> Posterior:
        """Of the training classes under the model: one more E step, unless EM has left it here."""
        return posterior(self.design, self.model)

    @property
    def log_likelihoods(self) -> Array:
        """(iterations + 1,)"""
        return np.array(self.history or (self.posterior.log_likelihood,))


class Objective(Protocol):
    """What EM maximises besides the likelihood, and how: see ``priors``."""

    def m_step(self, sums: Sums, post: Posterior) -> Parameters: ...

    def log_density(self, parameters: Parameters, sums: Sums) -> float: ...


def fit_em(
    design: Design,
    start: Parameters,
    prior: Objective,
    *,
    max_iter: int,
    tol: float,
    callback: Callable[[Iteration], object] | None = None,
) -> Fit:
    """Alternate E and M steps until the objective gains less than `tol` nat a vector.

    Without iterations there is no E step either: whatever of it is asked of the fit is worked out then.
    """
    sums = design.sums
    if max_iter == 0:
        return Fit(design, canonical_and_weighted(start)[0])
    current = posterior(design, start)
    history = [current.log_likelihood]
    objectives = [current.log_likelihood + prior.log_density(start, sums)]
    converged = False
    for number in range(1, max_iter + 1):
        parameters = prior.m_step(sums, current)
        parameters.check_finite(f"after iteration {number}")
        current = posterior(design, parameters)
        history.append(current.log_likelihood)
        objectives.append(current.log_likelihood + prior.log_density(parameters, sums))
        gain = (objectives[-1] - objectives[-2]) / sums.n
        if callback is not None:
            callback(Iteration(number, current.log_likelihood, gain))
        if abs(gain) < tol:
            converged = True
            break
    fit = Fit(design, current.parameters, tuple(history), np.array(objectives), converged)
    fit.__dict__["posterior"] = current
    return fit


# The E step: posterior moments of all latents, and the log-likelihood.


@dataclass(frozen=True)
class Posterior:
    """Moments of all latents given the data.

    parameters : the model, in the coordinates that the latents are in (canonical)
    view_sums : per view, sums of E[z_kc] over vectors and over classes
    squares : (r, r) sum over vectors of E[z] E[z]', views side by side
    log_likelihood : of the data
    """

    parameters: Parameters
    view_sums: tuple[ViewSums, ...]
    squares: AnyArray
    log_likelihood: float
    elimination: Elimination
    leaf: LeafRows | LeafGrams
    others: dict[int, AnyArray]

    @cached_property
    def covariance_sums(self) -> tuple[AnyArray, tuple[AnyArray, ...]]:
        """Over vectors and over classes. Only an M step needs them, and they cost as much as all else."""
        return self.elimination.covariance_sums()

    @cached_property
    def sum_zz(self) -> AnyArray:
        """(r, r) sum over vectors of E[z z'], views side by side."""
        return self.covariance_sums[0] + self.squares

    @property
    def sum_z(self) -> AnyArray:
        """(r,) sum over vectors of E[z], views side by side."""
        return namespace(self.squares).concatenate([s.z for s in self.view_sums])

    @property
    def sum_xz(self) -> AnyArray:
        """(D, r) sum over vectors of x E[z]'."""
        return namespace(self.squares).concatenate([s.xz for s in self.view_sums], axis=1)

    def class_moments(self, k: int, n_classes: int) -> tuple[AnyArray, AnyArray]:
        """Mean over classes of E[z_kc], (r_k,), and the spread of z_kc about it, (r_k, r_k)."""
        centre = self.view_sums[k].class_z / n_classes
        second = (self.view_sums[k].class_zz + self.covariance_sums[1][k]) / n_classes
        return centre, second - namespace(second).outer(centre, centre)

    @cached_property
    def means(self) -> tuple[Array, ...]:
        """Per view (C_k, r_k), E[z_kc], on the host."""
        views = range(len(self.view_sums))
        return tuple(
            to_host(self.others[k] if k in self.others else self.leaf.means()) for k in views
        )

    def covariances(self, view: int) -> Array:
        """Cov(z_kc) of every class of a view, (C_k, r_k, r_k), on the host."""
        return np.ascontiguousarray(to_host(self.elimination.covariances(view)))


def posterior(design: Design, parameters: Parameters) -> Posterior:
    """Posterior of all latents given the sums of the data."""
    sums = design.sums
    e = design.plan.leaf
    xp = sums.xp
    counts = [xp.cached(n) for n in sums.counts]
    p, LB = canonical_and_weighted(parameters)
    where = p.slices
    G = p.stacked().T @ LB
    at_mean = p.mean @ LB
    system = Elimination(design, G, where)
    leaf = (LeafGrams if design.by_count else LeafRows)(
        design, system.delta, LB[:, where[e]], at_mean[where[e]]
    )
    b = {
        k: sums.sums[k] @ LB[:, where[k]] - xp.outer(counts[k], at_mean[where[k]])  # (E2)
        for k in range(sums.n_views)
        if k != e
    }
    # the leaf's own means stay in `leaf`, where classes of one count may be one matrix
    means = system.solve(leaf, b)
    by_view = {k: sums_of_rows(sums.sums[k], counts[k], mean) for k, mean in means.items()}
    by_view[e] = leaf.sums()
    view_sums = tuple(by_view[k] for k in range(sums.n_views))
    zz = xp.zeros_like(G)  # sum over vectors of E[z] E[z]'
    for k in range(sums.n_views):
        zz[where[k], where[k]] = view_sums[k].zz
        for l in range(k + 1, sums.n_views):
            # Over vectors, classes c of k and d of l meet N_kl(c, d) times; `sums_within` has that product done for the leaf.
            if k == e:
                cross = leaf.sums_within(l).T @ means[l]
            elif l == e:
                cross = means[k].T @ leaf.sums_within(k)
            else:
                cross = means[k].T @ (xp.cached_table(sums.cooccurrence[k, l]) @ means[l])
            set_both(zz, where[k], where[l], cross)
    # b' Lambda^-1 b as 2 b'm - m' Lambda m: rounding errors of the means m then enter squared
    explained = -float(xp.vdot(G, zz))
    for s, w in zip(view_sums, where, strict=True):
        explained += 2 * float(xp.vdot(LB[:, w], s.xz) - at_mean[w] @ s.z)
        explained -= float(xp.trace(s.class_zz))
    log_likelihood = -0.5 * (  # (E9)
        sums.n * (sums.dimension * LOG_2PI + parameters.sigma.log_determinant)
        + parameters.sigma.trace(sums.scatter_about(p.mean))
        + system.log_determinant
        - explained
    )
    return Posterior(p, view_sums, zz, log_likelihood, system, leaf, means)


# Where EM begins: moments of the data, or chance.


def weighted_effects(sums: Sums) -> list[AnyArray]:
    """Per view (C_k, D) class means, less the mean and the effects of the views that it refines, times root count."""
    grand = sums.total / sums.n
    xp = sums.xp
    counts = [xp.cached(n) for n in sums.counts]
    effects: dict[int, AnyArray] = {}
    for k in sorted(range(sums.n_views), key=lambda k: len(sums.counts[k])):
        means = sums.sums[k] / counts[k][:, None]
        means -= grand
        for l, coarser in effects.items():
            table = sums.together(k, l)
            if len(coarser) < len(means) and refines(table):
                own = coarser / xp.sqrt(counts[l])[:, None]
                means -= own[xp.asarray(table.indices)]
        means *= xp.sqrt(counts[k])[:, None]
        effects[k] = means
    return [effects[k] for k in range(sums.n_views)]


def moment_start(
    sums: Sums, ranks: tuple[int, ...], noise: NoiseModel, rng: Generator
) -> Parameters:
    """Loadings from the between-class scatter of every view, the noise from what it leaves.

    Directions are chosen in the metric of the noise, and the part of the class
    means' scatter that the noise alone would cause is taken off.
    """
    xp = sums.xp
    mean = sums.total / sums.n
    scatter = sums.scatter_about(mean)
    effects = weighted_effects(sums)
    between = [sums.product(e.T, e.T) for e in effects]
    freedom = sums.n - 1.0 - sum(len(n_c) - 1 for n_c in sums.counts)
    total = diagonal_of(scatter) / sums.n
    within = diagonal_of(scatter - sum(between)) / max(freedom, 0.1 * sums.n)
    within = xp.maximum(within, xp.maximum(0.01 * total, noise.floor))  # (S1)
    scale = xp.sqrt(within)
    loadings = []
    unit = float(np.sqrt(sums.n)) * scale
    for effect, square, r in zip(effects, between, ranks, strict=True):
        gram = square / xp.outer(unit, unit) if sums.has_products else None
        effect /= unit
        singular, directions = _top_svd(effect, r, rng, gram)
        caused = (len(effect) - 1) / sums.n
        variance = xp.maximum(singular**2 - caused, 0.1 * singular**2)  # (S2)
        loading = xp.zeros((sums.dimension, r))
        loading[:, : len(variance)] = (xp.sqrt(variance)[:, None] * directions).T * scale[:, None]
        chance = xp.asarray(rng.standard_normal((sums.dimension, r)))
        loadings.append(loading + 1e-3 * scale[:, None] * chance)
    return Parameters(mean, tuple(loadings), noise.estimate(sums.n * within, sums.n))


def random_start(
    sums: Sums, ranks: tuple[int, ...], noise: NoiseModel, rng: Generator
) -> Parameters:
    """Random loadings that share half of the variance between them."""
    xp = sums.xp
    mean = sums.total / sums.n
    variances = xp.maximum(diagonal_of(sums.scatter_about(mean)) / sums.n, noise.floor)
    scale = xp.sqrt(variances / (2 * max(sum(ranks), 1)))
    loadings = tuple(
        scale[:, None] * xp.asarray(rng.standard_normal((sums.dimension, r))) for r in ranks
    )
    return Parameters(mean, loadings, noise.estimate(sums.n / 2 * variances, sums.n))


def _top_svd(
    matrix: AnyArray, r: int, rng: Generator, gram: AnyArray | None = None
) -> tuple[AnyArray, AnyArray]:
    """The r largest singular values and their right vectors, whose largest entry is positive; gram = matrix'matrix."""
    wide = matrix.shape[0] <= matrix.shape[1]
    xp = namespace(matrix)
    if xp is NUMPY and min(matrix.shape) > 16 * (r + 10):
        from sklearn.utils.extmath import randomized_svd  # slow to import

        seed = int(rng.integers(2**31))

        _, s, vt = randomized_svd(matrix, r, n_iter=3, flip_sign=False, random_state=seed)
    else:  # of the squares: half of the digits is enough for a start
        if gram is None or wide:
            gram = matrix @ matrix.T if wide else matrix.T @ matrix
        values, vectors = xp.linalg.eigh(gram)
        s = xp.sqrt(xp.flip(values, (0,))[:r].clip(min=0.0))
        vt = xp.flip(vectors, (1,))[:, :r].T
        if wide:
            vt = vt @ matrix / xp.where(s > 0, s, 1.0)[:, None]
    largest = vt[xp.arange(len(vt)), xp.abs(vt).argmax(axis=1)]
    return s, vt * xp.where(largest < 0, -1.0, 1.0)[:, None]


# The EM of the paper's appendix (arXiv 1704.06061), as printed, for comparison.
#
# Its E step infers (u_i, v_j) from the vectors of cell (i, j) alone, as if no speaker said two phrases; its M step
# updates the loadings one after the other. See docs/errata.md for what is wrong with it, and for the readings that are
# open. The likelihood that is reported beside it is the model's own, and may fall.


@dataclass(frozen=True)
class PublishedEM:
    """The M step as published; stands where a prior does.

    cells : the statistics with the cell as the only view
    body : the E step of the paper's body, whose precision lacks the number of vectors, for that of its appendix
    together : both loadings from one solve, in place of one after the other
    """

    cells: Sums
    noise: NoiseModel
    body: bool = False
    together: bool = False

    def m_step(self, sums: Sums, post: Posterior) -> Parameters:
        p = post.parameters.on_host()
        cells = self.cells
        means, R = cell_moments(cells, p, self.body)
        mean = cells.total / cells.n  # (P2)
        C = cells.sums[0].T @ means - np.outer(mean, cells.counts[0] @ means)
        loadings = list(p.loadings)
        for k, own in enumerate(p.slices):  # (P3) one view after the other
            target = C[:, own].copy()
            for l, other in enumerate(p.slices):
                if l != k:
                    target -= loadings[l] @ R[other, own]
            loadings[k] = cho_solve(cho_factor(R[own, own]), target.T).T
        if self.together:
            B = cho_solve(cho_factor(R), C.T).T
            loadings = [B[:, own] for own in p.slices]
        B = np.concatenate(loadings, axis=1)
        sigma = self.noise.estimate(cells.scatter_about(mean) - cells.product(B, C), cells.n)
        return Parameters(mean, tuple(loadings), to_host(sigma))  # (P4)

    def log_density(self, parameters: Parameters, sums: Sums) -> float:
        return self.noise.log_prior(parameters.noise)


def cell_moments(cells: Sums, p: Parameters, body: bool = False) -> tuple[Array, Array]:
    """E[z_ij] of every cell, and sum over vectors of E[z z'], where z_ij = (u_i, v_j)."""
    B = p.stacked()
    LB = p.sigma.solve(B)
    values, Q = np.linalg.eigh(B.T @ LB)
    n = cells.counts[0][:, None]
    weight = np.ones((1, 1)) if body else n
    shrink = 1.0 / (1.0 + weight * np.maximum(values, 0.0))
    b = (cells.sums[0] - n * p.mean) @ LB
    means = ((b @ Q) * shrink) @ Q.T  # (P1)
    R = means.T @ (n * means) + (Q * (n * shrink).sum(axis=0)) @ Q.T
    return means, R
