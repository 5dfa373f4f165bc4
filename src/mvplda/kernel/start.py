"""Where EM begins: moments of the data, or chance."""

from __future__ import annotations

import numpy as np
from sklearn.utils.extmath import randomized_svd

from .design import refines
from .em import NoiseModel
from .records import Array, Parameters, Sums


def class_effects(sums: Sums, k: int) -> Array:
    """(C_k, D) class means of a view, less the mean and the effects of the views that it refines."""
    grand = sums.total / sums.n
    means = sums.sums[k] / sums.counts[k][:, None] - grand
    for l in range(sums.n_views):
        if l != k and len(sums.counts[l]) < len(sums.counts[k]):
            table = sums.together(k, l)
            if refines(table):
                means -= (sums.sums[l] / sums.counts[l][:, None] - grand)[table.indices]
    return means


def from_moments(sums: Sums, ranks: tuple[int, ...], noise: NoiseModel, rng: np.random.Generator) -> Parameters:
    """Loadings from the between-class scatter of every view, the noise from what it leaves.

    Directions are chosen in the metric of the noise, and the part of the class
    means' scatter that the noise alone would cause is taken off.
    """
    mean = sums.total / sums.n
    residual = sums.scatter_about(mean)
    freedom = sums.n - 1.0
    effects = [class_effects(sums, k) for k in range(sums.n_views)]
    for n_c, effect in zip(sums.counts, effects, strict=True):
        between = n_c @ effect**2 if residual.ndim == 1 else effect.T @ (n_c[:, None] * effect)
        residual = residual - between
        freedom -= len(n_c) - 1
    total = sums.scatter_about(mean)
    total = (np.diag(total) if total.ndim == 2 else total) / sums.n
    within = (np.diag(residual) if residual.ndim == 2 else residual) / max(freedom, 0.1 * sums.n)
    within = np.maximum(within, np.maximum(0.01 * total, noise.floor))  # (S1)
    scale = np.sqrt(within)
    loadings = []
    for n_c, effect, r in zip(sums.counts, effects, ranks, strict=True):
        root_counts = np.sqrt(n_c / sums.n)[:, None]
        singular, directions = _top_svd(root_counts * effect / scale, r, rng)
        caused = (len(n_c) - 1) / sums.n
        variance = np.maximum(singular**2 - caused, 0.1 * singular**2)  # (S2)
        loading = np.zeros((sums.dimension, r))
        loading[:, : len(variance)] = (np.sqrt(variance)[:, None] * directions).T * scale[:, None]
        loadings.append(loading + 1e-3 * scale[:, None] * rng.standard_normal(loading.shape))
    sigma = noise.estimate(np.diag(within) if noise.kind == "full" else within, 1.0)
    return Parameters(mean, tuple(loadings), sigma)


def from_chance(sums: Sums, ranks: tuple[int, ...], noise: NoiseModel, rng: np.random.Generator) -> Parameters:
    """Random loadings that share half of the variance between them."""
    mean = sums.total / sums.n
    total = sums.scatter_about(mean)
    variances = np.maximum((np.diag(total) if total.ndim == 2 else total) / sums.n, noise.floor)
    scale = np.sqrt(variances / (2 * max(sum(ranks), 1)))
    loadings = tuple(scale[:, None] * rng.standard_normal((sums.dimension, r)) for r in ranks)
    sigma = noise.estimate(np.diag(variances / 2) if noise.kind == "full" else variances / 2, 1.0)
    return Parameters(mean, loadings, sigma)


def _top_svd(matrix: Array, r: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """The r largest singular values and their right vectors, whose largest entry is positive."""
    if min(matrix.shape) > 4 * (r + 10):
        seed = int(rng.integers(2**31))
        _, s, vt = randomized_svd(matrix, r, n_iter=3, flip_sign=False, random_state=seed)
    else:
        _, s, vt = np.linalg.svd(matrix, full_matrices=False)
    largest = np.take_along_axis(vt, np.abs(vt).argmax(axis=1, keepdims=True), axis=1)
    return s[:r], (vt * np.where(largest < 0, -1.0, 1.0))[:r]
