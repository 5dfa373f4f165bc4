"""Variance estimates by moments, and the directions in which channels move vectors."""

from __future__ import annotations

import numpy as np

from ..._typing import Array, IntArray, Names
from ...backend import sum_rows
from ...scoring.pair_terms import row_products
from .unit_terms import MAX_VARIANCE

MAX_CHANNEL_DIRECTIONS = 40
"""Most directions of a block that are scaled down because channels move vectors along them. Chosen on held-out
corpora."""

VARIANCE_KEYS = ("own", "other", "cell", "take", "domain")
"""Keys in files: classes of the block's view, of the other view, cells, recordings, domains."""

USUAL_DOMAIN_VARIANCE = 0.1
"""Variance between domains where the training vectors are of one domain."""


def channel_directions(u: Array, recordings: Names, domains: Names) -> Array:
    """Return R (directions, D), so that u - R'R u scales down the directions in which copies of a recording differ.

    With S the covariance of copies about their recording, averaged over domains, noise of the covariance S + v I
    becomes white if vectors are scaled along the eigenvector of the eigenvalue s by sqrt(v / (s + v)); v is the mean
    eigenvalue. See "Channels" in docs/math.md, section 9.11.
    """
    covariances = []
    for domain in np.unique(domains):
        rows = domains == domain
        # every domain may number its recordings from 0
        codes = np.unique(recordings[rows], return_inverse=True)[1].reshape(-1)
        sums, counts = _sums(u[rows], codes)
        deviations = u[rows] - (sums / counts[:, None])[codes]
        covariances.append(deviations.T @ deviations / len(deviations))
    s, V = np.linalg.eigh(np.mean(covariances, axis=0))
    n_directions = min(MAX_CHANNEL_DIRECTIONS, len(s) // 2)
    # without copies, or if copies are equal, no direction stands out
    if not n_directions or s.mean() < 1e-12:
        return np.zeros((0, len(s)))
    scales = np.sqrt(s.mean() / (s.clip(min=0) + s.mean()))
    # relative to the mean scale of the other directions, because lengths become 1 again
    ratio = scales[-n_directions:] / np.exp(np.log(scales[:-n_directions]).mean())
    return np.asarray((V[:, -n_directions:] * np.sqrt(1.0 - ratio.clip(max=1.0))).T)


def block_moments(
    u: Array, own: Names, other: Names | None, domains: Names, delta: float | None
) -> tuple[Array, dict[str, float]]:
    """Estimate the mean of one block and its total variances by moments within each domain, averaged over domains.

    Parameters
    ----------
    u : (n, D) unit-length vectors
    own, other : labels of the block's view and of the other view; None: there is one view
    delta : variance between domains; None: estimated
    """
    means, components = [], []
    second = np.zeros(len(u)) if other is None else other
    for domain in np.unique(domains):
        rows = domains == domain
        # centred per domain, so that differences between domains do not count as variance of people
        centre = u[rows].mean(axis=0)
        means.append(centre)
        centred = u[rows] - centre
        # scaled about their domain, as when scoring
        scaled = centred / np.maximum(np.linalg.norm(centred, axis=1, keepdims=True), 1e-12)
        components.append(
            variance_components(scaled - scaled.mean(axis=0), own[rows], second[rows])
        )
    variances = np.mean(components, axis=0)
    if other is None:
        # every class has one cell: the variance of cells is that of the classes
        variances = variances[[2, 1, 0, 3]]
    if delta is None:
        # the variance between domains needs two of them
        delta = USUAL_DOMAIN_VARIANCE
        if len(means) > 1:
            delta = float(np.sum(np.var(means, axis=0, ddof=1)))
    totals = np.clip([*variances, delta], 1e-6, MAX_VARIANCE)
    return np.mean(means, axis=0), dict(zip(VARIANCE_KEYS, totals.tolist(), strict=True))


def variance_components(X: Array, own: Names, other: Names) -> tuple[float, float, float, float]:
    """Estimate total variances of the classes of two crossed views, of cells and of recordings, from centred vectors.

    They are means of x.y over pairs that share one view, the other, or both: no balanced design is needed. Every class
    has the same weight.
    """
    first = np.unique(own, return_inverse=True)[1].reshape(-1)
    second = np.unique(other, return_inverse=True)[1].reshape(-1)
    cell = np.unique(first * (second.max() + 1) + second, return_inverse=True)[1].reshape(-1)
    example = np.unique(cell, return_index=True)[1]
    sums, counts = _sums(X, cell)
    within = _mean_product(X, np.ones(len(X)), cell, sums, counts)
    first_variance = _mean_product(sums, counts, first[example], *_sums(X, first))
    second_variance = _mean_product(sums, counts, second[example], *_sums(X, second))
    total = float(np.sum(X * X)) / len(X)
    # of pairs of one cell, less its two classes; the remainder is that of recordings
    return (
        first_variance,
        second_variance,
        within - first_variance - second_variance,
        total - within,
    )


def _sums(X: Array, codes: IntArray) -> tuple[Array, Array]:
    """Return the sum (classes, D) and the number (classes,) of the vectors of each class."""
    counts = np.bincount(codes)
    return sum_rows(X, codes, len(counts)), counts.astype(np.float64)


def _mean_product(
    members: Array, sizes: Array, classes: IntArray, totals: Array, counts: Array
) -> float:
    """Return the mean of x.y over pairs from different members of a class, averaged over classes.

    members, sizes : (n, D) sums and (n,) numbers of vectors, such as of cells or of single vectors
    classes : (n,) class of each member; totals and counts are the sums of its members
    """
    pairs = counts**2 - np.bincount(classes, sizes**2, minlength=len(counts))
    has_pairs = pairs > 0
    if not has_pairs.any():
        return 0.0
    products = row_products(totals, totals)
    products = products - np.bincount(
        classes, row_products(members, members), minlength=len(counts)
    )
    return float(np.mean(products[has_pairs] / pairs[has_pairs]))
