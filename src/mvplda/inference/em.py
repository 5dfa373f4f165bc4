"""Expectation maximisation: E step, M step, the loop, starting points, and EM as printed in the paper.

Letters, as in docs/math.md: n vectors x of dimension D. View k has the loading B_k (D, r_k) and one
latent vector z_kc (r_k,) per class c. z (r,) joins the latents of all views for one vector x. L is
Sigma^-1, the inverse noise covariance. `e` is the leaf view, which the E step eliminates first (see
``design``).
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.random import Generator
from scipy.linalg import cho_factor, cho_solve

from .._typing import AnyArray, Array
from ..backend import NUMPY, diagonal_of, namespace, to_host
from ..statistics.accumulator import Sums
from .design import Design, refines
from .exact import Elimination, set_both
from .leaf import LeafGrams, LeafRows, ViewSums, sums_of_rows
from .parameters import LOG_2PI, NoiseModel, Parameters, canonical_and_weighted

# The loop.


class Objective(Protocol):
    """Interface of the function that EM maximises: log-likelihood plus log prior density.

    The classes of ``priors`` implement it.
    """

    def m_step(self, sums: Sums, post: Posterior) -> Parameters:
        """Return the parameters that maximise the expected objective.

        sums : statistics of the data
        post : posterior of the E step, over which the expectation is taken
        """
        ...

    def log_density(self, parameters: Parameters, sums: Sums) -> float:
        """Return the log prior density of the parameters, up to a constant."""
        ...


@dataclass(frozen=True)
class Iteration:
    """Progress of EM, passed to a callback after every iteration.

    number : number of the iteration, from 1
    log_likelihood : log-likelihood of the training data after this iteration
    gain_per_vector : increase of the objective in this iteration, divided by the number of vectors
    """

    number: int
    log_likelihood: float
    gain_per_vector: float


class Fit:
    """Result of EM.

    Parameters
    ----------
    design : design of the training data
    model : fitted parameters in canonical form, on the device of the statistics
    log_likelihoods : log-likelihood of the training data at the start and after each iteration,
        iterations + 1 numbers; empty if EM made no E step
    objectives : log-likelihood plus log prior density at the start and after each iteration; it
        never falls, except with `PublishedEM`
    converged : whether the gain per vector of the last iteration was below the tolerance
    last_posterior : posterior of the last E step; None if EM made no E step
    """

    def __init__(
        self,
        design: Design,
        model: Parameters,
        *,
        log_likelihoods: Sequence[float] = (),
        objectives: Sequence[float] = (),
        converged: bool = False,
        last_posterior: Posterior | None = None,
    ) -> None:
        self.design = design
        self.model = model
        self.objectives: Array = np.array(objectives, dtype=np.float64)
        self.converged = converged
        self._history = tuple(log_likelihoods)
        self._posterior = last_posterior

    @property
    def n_iter(self) -> int:
        """Number of EM iterations."""
        return max(0, len(self._history) - 1)

    @cached_property
    def parameters(self) -> Parameters:
        """Fitted parameters as NumPy arrays."""
        return self.model.on_host()

    @property
    def posterior(self) -> Posterior:
        """Posterior of the training classes' latents.

        It is that of the last E step, or computed on first access if EM made none.
        """
        if self._posterior is None:
            self._posterior = posterior(self.design, self.model)
        return self._posterior

    @property
    def log_likelihoods(self) -> Array:
        """Log-likelihood of the training data at the start and after each iteration of EM.

        It has iterations + 1 numbers.
        """
        return np.array(self._history or (self.posterior.log_likelihood,))


def fit_em(
    design: Design,
    start: Parameters,
    prior: Objective,
    *,
    max_iter: int,
    tol: float,
    callback: Callable[[Iteration], object] | None = None,
) -> Fit:
    """Alternate E and M steps until the objective gains less than `tol` per vector.

    Parameters
    ----------
    design : design of the training data
    start : parameters to start from
    prior : objective with its M step
    max_iter : largest number of iterations; if it is 0, no E step is made, and the result is
        `start` in canonical form
    tol : EM stops if an iteration changes the objective by less than this, in nats per vector
    callback : function that is called with the progress after every iteration

    Returns
    -------
    Fit
    """
    sums = design.sums
    if max_iter == 0:
        return Fit(design, canonical_and_weighted(start)[0])

    post = posterior(design, start)
    log_likelihoods = [post.log_likelihood]
    objectives = [post.log_likelihood + prior.log_density(start, sums)]
    converged = False

    for number in range(1, max_iter + 1):
        parameters = prior.m_step(sums, post)
        parameters.check_finite(f"after iteration {number}")
        post = posterior(design, parameters)

        log_likelihoods.append(post.log_likelihood)
        objectives.append(post.log_likelihood + prior.log_density(parameters, sums))
        gain = (objectives[-1] - objectives[-2]) / sums.n
        if callback is not None:
            callback(Iteration(number, post.log_likelihood, gain))
        if abs(gain) < tol:
            converged = True
            break

    return Fit(
        design,
        post.parameters,
        log_likelihoods=log_likelihoods,
        objectives=objectives,
        converged=converged,
        last_posterior=post,
    )


# The E step: posterior moments of all latents, and the log-likelihood.


@dataclass(frozen=True)
class Posterior:
    """Posterior moments of the latents of all classes, given the data.

    z_kc (r_k,) is the latent vector of class c of view k; z (r,) joins the latents of all views for
    one vector; E is the posterior expectation. The leaf is the view that the E step eliminates
    first.

    parameters : the model in canonical form, in whose coordinates the latents are
    view_sums : per view, sums of the posterior means E[z_kc] over vectors and over classes
    squares : (r, r) sum over vectors of E[z] E[z]'
    log_likelihood : log-likelihood of the data
    elimination : factored posterior precision of all latents
    leaf : posterior means of the leaf view
    solved_means : {view k: (classes, r_k) posterior means}, for every view except the leaf
    """

    parameters: Parameters
    view_sums: tuple[ViewSums, ...]
    squares: AnyArray
    log_likelihood: float
    elimination: Elimination
    leaf: LeafRows | LeafGrams
    solved_means: dict[int, AnyArray]

    @cached_property
    def covariance_sums(self) -> tuple[AnyArray, tuple[AnyArray, ...]]:
        """Posterior covariances of latents, summed over vectors, (r, r), and over classes.

        The second item has one sum over classes per view k, (r_k, r_k). Computed on first access,
        because only an M step needs them, and they take as long as everything else in an E step.
        """
        return self.elimination.covariance_sums()

    @cached_property
    def sum_zz(self) -> AnyArray:
        """Sum over vectors of the posterior second moment E[z z'], (r, r).

        z joins the latents of all views for one vector.
        """
        return self.covariance_sums[0] + self.squares

    @property
    def sum_z(self) -> AnyArray:
        """Sum over vectors of the posterior mean E[z], (r,).

        z joins the latents of all views for one vector.
        """
        return namespace(self.squares).concatenate([s.z for s in self.view_sums])

    @property
    def sum_xz(self) -> AnyArray:
        """Sum over vectors x of x E[z]', (D, r).

        E[z] is the posterior mean of the latents of x in all views, side by side.
        """
        return namespace(self.squares).concatenate([s.xz for s in self.view_sums], axis=1)

    def class_moments(self, k: int, n_classes: int) -> tuple[AnyArray, AnyArray]:
        """Return mean (rank,) and covariance (rank, rank) of latents over the classes of view k.

        The covariance is that of the posterior means plus the average posterior covariance.
        """
        centre = self.view_sums[k].class_z / n_classes
        second = (self.view_sums[k].class_zz + self.covariance_sums[1][k]) / n_classes
        return centre, second - namespace(second).outer(centre, centre)

    @cached_property
    def means(self) -> tuple[Array, ...]:
        """Posterior means of the latents as NumPy arrays, one (classes, rank) per view."""
        means = []
        for k in range(len(self.view_sums)):
            view_means = self.solved_means[k] if k in self.solved_means else self.leaf.means()
            means.append(to_host(view_means))
        return tuple(means)

    def covariances(self, view: int) -> Array:
        """Return the posterior covariance of each class of a view, NumPy (classes, rank, rank)."""
        return np.ascontiguousarray(to_host(self.elimination.covariances(view)))


def posterior(design: Design, parameters: Parameters) -> Posterior:
    """Run the E step: return the posterior of all latents, with the log-likelihood.

    design : design of the data, with its sums
    parameters : the model
    """
    sums = design.sums
    xp = sums.xp
    e = design.plan.leaf
    counts = [xp.cached(n) for n in sums.counts]

    p, LB = canonical_and_weighted(parameters)
    slices = p.slices
    G = p.stacked().T @ LB
    mean_LB = p.mean @ LB
    system = Elimination(design, G, slices)

    # The leaf's means stay in `leaf`, which may hold one Gram matrix for all classes of equal size.
    leaf_kind = LeafGrams if design.by_count else LeafRows
    leaf = leaf_kind(design, system.delta, LB[:, slices[e]], mean_LB[slices[e]])
    right = {
        k: sums.sums[k] @ LB[:, slices[k]] - xp.outer(counts[k], mean_LB[slices[k]])  # (E2)
        for k in range(sums.n_views)
        if k != e
    }
    means = system.solve(leaf, right)

    sums_by_view = {k: sums_of_rows(sums.sums[k], counts[k], mean) for k, mean in means.items()}
    sums_by_view[e] = leaf.sums()
    view_sums = tuple(sums_by_view[k] for k in range(sums.n_views))
    squares = _sum_of_squared_means(design, slices, view_sums, leaf, means)

    # The form 2 b'm - m' Lambda m of b' Lambda^-1 b makes errors of the means m enter squared.
    explained = -float(xp.vdot(G, squares))
    for s, latents in zip(view_sums, slices, strict=True):
        explained += 2 * float(xp.vdot(LB[:, latents], s.xz) - mean_LB[latents] @ s.z)
        explained -= float(xp.trace(s.class_zz))
    log_likelihood = -0.5 * (  # (E9)
        sums.n * (sums.dimension * LOG_2PI + parameters.sigma.log_determinant)
        + parameters.sigma.trace(sums.scatter_about(p.mean))
        + system.log_determinant
        - explained
    )
    return Posterior(p, view_sums, squares, log_likelihood, system, leaf, means)


def _sum_of_squared_means(
    design: Design,
    slices: tuple[slice, ...],
    view_sums: tuple[ViewSums, ...],
    leaf: LeafRows | LeafGrams,
    means: dict[int, AnyArray],
) -> AnyArray:
    """Return the sum over vectors of m m', (r, r).

    m (r,) joins the posterior means of a vector's latents in all views.

    slices : position of each view's latents in z
    view_sums : sums of the posterior means per view
    leaf : posterior means of the leaf, the view that is eliminated first
    means : {view: (classes, rank) posterior means} of the other views
    """
    sums = design.sums
    xp = sums.xp
    e = design.plan.leaf
    r = sum(s.stop - s.start for s in slices)
    squares = xp.zeros((r, r))
    for k in range(sums.n_views):
        squares[slices[k], slices[k]] = view_sums[k].zz
        for l in range(k + 1, sums.n_views):
            # Class c of view k and class d of view l share N_kl(c, d) vectors. For the leaf, `sums_within` has this
            # product already.
            if k == e:
                cross = leaf.sums_within(l).T @ means[l]
            elif l == e:
                cross = means[k].T @ leaf.sums_within(k)
            else:
                cross = means[k].T @ (xp.cached_table(sums.cooccurrence[k, l]) @ means[l])
            set_both(squares, slices[k], slices[l], cross)
    return squares


# The M step.


def m_step(sums: Sums, post: Posterior, noise: NoiseModel) -> Parameters:
    """Return new parameters by the M step of maximum likelihood.

    Loadings and mean are estimated in one solve, then the noise. Last, a change of coordinates
    makes the latents standard normal on average (minimum divergence).

    sums : statistics of the data
    post : posterior of the E step
    noise : kind, bounds and prior of the noise
    """
    r = len(post.sum_z)
    xp = sums.xp

    # Regression of x on [z; 1] with coefficients W (D, r + 1), from R = sum E[z z'] and C = sum x E[z]', both with
    # the 1 appended to z; the last column of W is the mean (docs/math.md, 6.1).
    R = xp.empty((r + 1, r + 1))
    R[:r, :r] = post.sum_zz
    R[:r, r] = post.sum_z
    R[r, :r] = post.sum_z
    R[r, r] = sums.n
    C = xp.concatenate([post.sum_xz, sums.total[:, None]], axis=1)
    W = xp.cho_solve(xp.cholesky(R), C.T).T  # (M1)
    noise_array = noise.estimate(sums.scatter - sums.product(W, C), sums.n)  # (M2)

    # Minimum divergence (6.3): change coordinates so that the latents' posterior is standard normal on average. The
    # mean of the latents moves into the model's mean, the root of their spread into the loading. Without this step EM
    # takes many more iterations.
    mean = W[:, r] + 0.0
    loadings = []
    for k, latents in enumerate(post.parameters.slices):
        loading = W[:, latents]
        centre, spread = post.class_moments(k, len(sums.counts[k]))
        mean += loading @ centre  # (M4)
        loadings.append(loading @ xp.cholesky(spread))  # (M5)
    return Parameters(mean, tuple(loadings), noise_array)


# Starting points of EM: moments of the data, or random numbers.


def weighted_effects(sums: Sums) -> list[AnyArray]:
    """Return class effects times the square roots of the class sizes, one (classes, D) per view.

    The effect of a class is its mean minus the mean of all vectors. Effects of coarser views whose
    classes contain the class, such as the speaker of a (speaker, phrase) cell, are subtracted too.
    """
    grand = sums.total / sums.n
    xp = sums.xp
    counts = [xp.cached(n) for n in sums.counts]
    effects: dict[int, AnyArray] = {}
    coarsest_first = sorted(range(sums.n_views), key=lambda k: len(sums.counts[k]))
    for k in coarsest_first:
        means = sums.sums[k] / counts[k][:, None]
        means -= grand
        for l, coarser in effects.items():
            table = sums.together(k, l)
            if len(coarser) < len(means) and refines(table):
                coarser_effects = coarser / xp.sqrt(counts[l])[:, None]
                means -= coarser_effects[xp.asarray(table.indices)]
        means *= xp.sqrt(counts[k])[:, None]
        effects[k] = means
    return [effects[k] for k in range(sums.n_views)]


def moment_start(
    sums: Sums, ranks: tuple[int, ...], noise: NoiseModel, rng: Generator
) -> Parameters:
    """Return starting parameters from moments of the data.

    Dimensions are divided by the standard deviation of the noise. There, the loadings of a view are
    the main directions of the scatter of its class effects, minus the scatter that the noise alone
    would cause. The noise is the variance within classes.

    sums : statistics of the data
    ranks : rank of each view
    noise : kind, bounds and prior of the noise
    rng : source of the small random numbers that are added to the loadings
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
    unit = float(np.sqrt(sums.n)) * scale
    loadings = []
    for effect, square, r in zip(effects, between, ranks, strict=True):
        gram = square / xp.outer(unit, unit) if sums.has_products else None
        effect /= unit
        singular, directions = _top_svd(effect, r, rng, gram)
        noise_variance = (len(effect) - 1) / sums.n
        variance = xp.maximum(singular**2 - noise_variance, 0.1 * singular**2)  # (S2)
        loading = xp.zeros((sums.dimension, r))
        loading[:, : len(variance)] = (xp.sqrt(variance)[:, None] * directions).T * scale[:, None]
        # EM keeps columns that are exactly zero at zero: start a little beside it.
        jitter = xp.asarray(rng.standard_normal((sums.dimension, r)))
        loadings.append(loading + 1e-3 * scale[:, None] * jitter)
    return Parameters(mean, tuple(loadings), noise.estimate(sums.n * within, sums.n))


def random_start(
    sums: Sums, ranks: tuple[int, ...], noise: NoiseModel, rng: Generator
) -> Parameters:
    """Return random starting parameters, whose loadings together explain half of the variance.

    sums : statistics of the data
    ranks : rank of each view
    noise : kind, bounds and prior of the noise
    rng : source of random numbers
    """
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
    """Return the r largest singular values of a matrix, and their right singular vectors.

    The entry of largest magnitude in every singular vector is positive.

    rng : source of random numbers for the approximate method of large matrices
    gram : matrix' matrix, if it is available
    return : singular values (r,), and singular vectors as rows, (r, columns of the matrix)
    """
    wide = matrix.shape[0] <= matrix.shape[1]
    xp = namespace(matrix)
    if xp is NUMPY and min(matrix.shape) > 16 * (r + 10):
        from sklearn.utils.extmath import randomized_svd  # slow to import

        seed = int(rng.integers(2**31))
        _, s, vt = randomized_svd(matrix, r, n_iter=3, flip_sign=False, random_state=seed)
    else:
        # Eigenvectors of the squared matrix have half of the digits, which suffice for a start.
        if wide:
            gram = matrix @ matrix.T
        elif gram is None:
            gram = matrix.T @ matrix
        values, vectors = xp.linalg.eigh(gram)
        s = xp.sqrt(xp.flip(values, (0,))[:r].clip(min=0.0))
        vt = xp.flip(vectors, (1,))[:, :r].T
        if wide:
            vt = vt @ matrix / xp.where(s > 0, s, 1.0)[:, None]
    largest = vt[xp.arange(len(vt)), xp.abs(vt).argmax(axis=1)]
    return s, vt * xp.where(largest < 0, -1.0, 1.0)[:, None]


# The EM of the paper's appendix (arXiv 1704.06061), as printed, for comparison.
#
# Its E step infers (u_i, v_j) from the vectors of cell (i, j) alone, as if every speaker had one phrase; its M step
# updates the loadings one after the other. docs/errata.md describes its errors and the readings that remain open. The
# log-likelihood reported with it is that of the model, and may fall.


@dataclass(frozen=True)
class PublishedEM:
    """M step as published in the paper's appendix; pass it to `fit_em` as the prior.

    cells : statistics with one view, whose classes are the cells (combinations of speaker and
        phrase)
    noise : kind, bounds and prior of the noise
    body : True for the E step in the body of the paper, not in its appendix. There, the posterior
        precision does not depend on the number of vectors
    together : True to estimate both loadings in one solve, False one after the other
    """

    cells: Sums
    noise: NoiseModel
    body: bool = False
    together: bool = False

    def m_step(self, sums: Sums, post: Posterior) -> Parameters:
        """Return new parameters by the M step as published; it uses `cells` in place of `sums`."""
        p = post.parameters.on_host()
        cells = self.cells
        means, R = cell_moments(cells, p, self.body)
        mean = cells.total / cells.n  # (P2)
        C = cells.sums[0].T @ means - np.outer(mean, cells.counts[0] @ means)

        loadings = list(p.loadings)
        for k, latents in enumerate(p.slices):  # (P3) one view after the other
            target = C[:, latents].copy()
            for l, other_latents in enumerate(p.slices):
                if l != k:
                    target -= loadings[l] @ R[other_latents, latents]
            loadings[k] = cho_solve(cho_factor(R[latents, latents]), target.T).T
        if self.together:
            B = cho_solve(cho_factor(R), C.T).T
            loadings = [B[:, latents] for latents in p.slices]

        B = np.concatenate(loadings, axis=1)
        sigma = self.noise.estimate(cells.scatter_about(mean) - cells.product(B, C), cells.n)
        return Parameters(mean, tuple(loadings), to_host(sigma))  # (P4)

    def log_density(self, parameters: Parameters, sums: Sums) -> float:
        """Return the log prior density of the noise, up to a constant; loadings have no prior."""
        return self.noise.log_prior(parameters.noise)


def cell_moments(cells: Sums, p: Parameters, body: bool = False) -> tuple[Array, Array]:
    """Return posterior moments of the latents as the paper computes them.

    The posterior of a cell (combination of speaker and phrase) uses its own vectors only.

    cells : statistics with the cell as the only view
    p : parameters of the two views
    body : True for the E step in the body of the paper, see `PublishedEM`
    return : E[z] of every cell, (cells, r), and the sum over vectors of E[z z'], (r, r); z joins
        the latents of both views
    """
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
