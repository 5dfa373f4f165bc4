"""Where EM begins: moments of the data, or chance."""

from __future__ import annotations

import numpy as np

from .._typing import Array
from ..backend import diagonal_of, namespace
from ..exceptions import DataError
from ..statistics.accumulator import Sums
from .design import refines
from .noise import NOISES, NoiseModel
from .parameters import Parameters

ROWS = 4096


def weighted_effects(sums: Sums) -> list[Array]:
    """Per view (C_k, D) class means, less the mean and the effects of the views that it refines, times root count."""
    grand, xp = sums.total / sums.n, sums.xp
    counts = [xp.cached(n) for n in sums.counts]
    effects: dict[int, Array] = {}
    for k in sorted(range(sums.n_views), key=lambda k: len(sums.counts[k])):
        means = sums.sums[k] / counts[k][:, None]
        means -= grand
        for l, coarser in effects.items():
            table = sums.together(k, l)
            if len(coarser) < len(means) and refines(table):
                root = xp.sqrt(counts[l])[:, None]
                for start in range(0, len(means), ROWS):  # of all rows at once, a copy would be as large as the sums
                    parents = xp.asarray(table.indices[start : start + ROWS])
                    means[start : start + ROWS] -= coarser[parents] / root[parents]
        means *= xp.sqrt(counts[k])[:, None]
        effects[k] = means
    return [effects[k] for k in range(sums.n_views)]


def moment_start(sums: Sums, ranks: tuple[int, ...], noise: NoiseModel, rng: np.random.Generator) -> Parameters:
    """Loadings from the between-class scatter of every view, the noise from what it leaves.

    Directions are chosen in the metric of the noise, and the part of the class
    means' scatter that the noise alone would cause is taken off.
    """
    mean, xp = sums.total / sums.n, sums.xp
    residual = sums.scatter_about(mean)
    freedom = sums.n - 1.0
    effects = weighted_effects(sums)
    between = [sums.product(e.T, e.T) for e in effects]
    residual = residual - sum(between)
    freedom -= sum(len(n_c) - 1 for n_c in sums.counts)
    total = diagonal_of(sums.scatter_about(mean)) / sums.n
    within = diagonal_of(residual) / max(freedom, 0.1 * sums.n)
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


def random_start(sums: Sums, ranks: tuple[int, ...], noise: NoiseModel, rng: np.random.Generator) -> Parameters:
    """Random loadings that share half of the variance between them."""
    mean, xp = sums.total / sums.n, sums.xp
    variances = xp.maximum(diagonal_of(sums.scatter_about(mean)) / sums.n, noise.floor)
    scale = xp.sqrt(variances / (2 * max(sum(ranks), 1)))
    loadings = tuple(scale[:, None] * xp.asarray(rng.standard_normal((sums.dimension, r))) for r in ranks)
    return Parameters(mean, loadings, noise.estimate(sums.n / 2 * variances, sums.n))


def _top_svd(matrix: Array, r: int, rng: np.random.Generator, gram: Array | None = None) -> tuple[Array, Array]:
    """The r largest singular values and their right vectors, whose largest entry is positive; gram = matrix'matrix."""
    wide, xp = matrix.shape[0] <= matrix.shape[1], namespace(matrix)
    if min(matrix.shape) > 16 * (r + 10):
        s, vt = xp.randomized_svd(matrix, r, int(rng.integers(2**31)))
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


# Where EM goes on from: the parameters of an earlier fit, for data that have changed since.


NEW_COLUMN = 0.1
"""Length of a loading's new columns, against the noise: EM cannot leave zero."""


def warm_parameters(
    earlier: Parameters, ranks: tuple[int, ...], kind: str, origin: Array, rng: np.random.Generator
) -> Parameters:
    """Earlier parameters about an origin, with these ranks and this kind of noise.

    The weakest columns are left out where the ranks are smaller now, and small ones of chance
    are added where they are larger.
    """
    if len(earlier.mean) != len(origin):
        raise DataError(f"the statistics have width {len(origin)}, the model {len(earlier.mean)}")
    scale = np.sqrt(earlier.sigma.variances)[:, None]
    loadings = []
    for loading, rank in zip(earlier.loadings, ranks, strict=True):
        strongest = np.argsort(-np.linalg.norm(loading / scale, axis=0), kind="stable")[:rank]
        more = NEW_COLUMN * scale * rng.standard_normal((len(loading), rank - len(strongest)))
        loadings.append(np.concatenate([loading[:, np.sort(strongest)], more], axis=1))
    return Parameters(earlier.mean - origin, tuple(loadings), NOISES[kind].nearest(earlier.sigma))
