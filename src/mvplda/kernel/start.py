"""Where EM begins: moments of the data, or chance."""

from __future__ import annotations

import numpy as np
from sklearn.utils.extmath import randomized_svd

from .design import refines
from .em import NoiseModel
from .records import Array, Parameters, Sums

ROWS = 4096


def weighted_effects(sums: Sums) -> list[Array]:
    """Per view (C_k, D) class means, less the mean and the effects of the views that it refines, times root count."""
    grand = sums.total / sums.n
    effects: dict[int, Array] = {}
    for k in sorted(range(sums.n_views), key=lambda k: len(sums.counts[k])):
        means = sums.sums[k] / sums.counts[k][:, None]
        means -= grand
        for l, coarser in effects.items():
            table = sums.together(k, l)
            if len(coarser) < len(means) and refines(table):
                root = np.sqrt(sums.counts[l])[:, None]
                for start in range(0, len(means), ROWS):  # of all rows at once, a copy would be as large as the sums
                    parents = table.indices[start : start + ROWS]
                    means[start : start + ROWS] -= coarser[parents] / root[parents]
        means *= np.sqrt(sums.counts[k])[:, None]
        effects[k] = means
    return [effects[k] for k in range(sums.n_views)]


def from_moments(sums: Sums, ranks: tuple[int, ...], noise: NoiseModel, rng: np.random.Generator) -> Parameters:
    """Loadings from the between-class scatter of every view, the noise from what it leaves.

    Directions are chosen in the metric of the noise, and the part of the class
    means' scatter that the noise alone would cause is taken off.
    """
    mean = sums.total / sums.n
    residual = sums.scatter_about(mean)
    freedom = sums.n - 1.0
    effects = weighted_effects(sums)
    between = [e.T @ e if residual.ndim == 2 else np.einsum("cd,cd->d", e, e) for e in effects]
    residual = residual - sum(between)
    freedom -= sum(len(n_c) - 1 for n_c in sums.counts)
    total = sums.scatter_about(mean)
    total = (np.diag(total) if total.ndim == 2 else total) / sums.n
    within = (np.diag(residual) if residual.ndim == 2 else residual) / max(freedom, 0.1 * sums.n)
    within = np.maximum(within, np.maximum(0.01 * total, noise.floor))  # (S1)
    scale = np.sqrt(within)
    loadings = []
    unit = np.sqrt(sums.n) * scale
    for effect, square, r in zip(effects, between, ranks, strict=True):
        gram = square / np.outer(unit, unit) if square.ndim == 2 else None
        effect /= unit
        singular, directions = _top_svd(effect, r, rng, gram)
        caused = (len(effect) - 1) / sums.n
        variance = np.maximum(singular**2 - caused, 0.1 * singular**2)  # (S2)
        loading = np.zeros((sums.dimension, r))
        loading[:, : len(variance)] = (np.sqrt(variance)[:, None] * directions).T * scale[:, None]
        loadings.append(loading + 1e-3 * scale[:, None] * rng.standard_normal(loading.shape))
    sigma = noise.estimate(sums.n * (np.diag(within) if noise.kind == "full" else within), sums.n)
    return Parameters(mean, tuple(loadings), sigma)


def from_chance(sums: Sums, ranks: tuple[int, ...], noise: NoiseModel, rng: np.random.Generator) -> Parameters:
    """Random loadings that share half of the variance between them."""
    mean = sums.total / sums.n
    total = sums.scatter_about(mean)
    variances = np.maximum((np.diag(total) if total.ndim == 2 else total) / sums.n, noise.floor)
    scale = np.sqrt(variances / (2 * max(sum(ranks), 1)))
    loadings = tuple(scale[:, None] * rng.standard_normal((sums.dimension, r)) for r in ranks)
    sigma = noise.estimate(sums.n / 2 * (np.diag(variances) if noise.kind == "full" else variances), sums.n)
    return Parameters(mean, loadings, sigma)


def _top_svd(matrix: Array, r: int, rng: np.random.Generator, gram: Array | None = None) -> tuple[Array, Array]:
    """The r largest singular values and their right vectors, whose largest entry is positive; gram = matrix'matrix."""
    wide = matrix.shape[0] <= matrix.shape[1]
    if min(matrix.shape) > 16 * (r + 10):
        seed = int(rng.integers(2**31))
        _, s, vt = randomized_svd(matrix, r, n_iter=3, flip_sign=False, random_state=seed)
    else:  # of the squares: half of the digits is enough for a start
        if gram is None or wide:
            gram = matrix @ matrix.T if wide else matrix.T @ matrix
        values, vectors = np.linalg.eigh(gram)
        s = np.sqrt(np.maximum(values[: -r - 1 : -1], 0.0))
        vt = vectors[:, : -r - 1 : -1].T
        if wide:
            vt = vt @ matrix / np.where(s > 0, s, 1.0)[:, None]
    largest = np.take_along_axis(vt, np.abs(vt).argmax(axis=1, keepdims=True), axis=1)
    return s, vt * np.where(largest < 0, -1.0, 1.0)
