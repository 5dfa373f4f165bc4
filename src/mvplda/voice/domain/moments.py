"""Estimates of variances by the method of moments, and the directions in which channels move vectors."""

from __future__ import annotations

import numpy as np

from ..._typing import Array, IntArray, Names
from ...backend import sum_rows
from ...scoring.pair_terms import row_products
from .unit_terms import MAX_VARIANCE

MAX_CHANNEL_DIRECTIONS = 40
"""Maximum number of channel directions per extractor (rows of R in `channel_directions`). Chosen on held-out
corpora."""

VARIANCE_KEYS = ("own", "other", "cell", "take", "domain")
"""Keys of the variances in model files: own is the view that the extractor models, such as phrase; other is the other
view, such as speaker; cell is a combination of both; take is a recording."""

USUAL_DOMAIN_VARIANCE = 0.1
"""Default variance between domains, used if the training vectors are all of one domain."""


def channel_directions(u: Array, recordings: Names, domains: Names) -> Array:
    """Return R (directions, D), which reduces the effect of channels on a vector u: u - R'R u.

    R scales down the directions in which copies of a recording differ most. Let S be the covariance of copies about
    the mean of their recording, averaged over domains, and v its mean eigenvalue. Noise with the covariance S + v I
    becomes white if vectors are scaled by sqrt(v / (s + v)) along each eigenvector of S, whose eigenvalue is s. See
    "Channels" in docs/math.md, section 9.11.

    Parameters
    ----------
    u : (n, D) unit-length vectors
    recordings : (n,) original recording of each vector, equal for its copies
    domains : (n,) domain of each vector; each domain numbers its recordings separately

    Returns
    -------
    (k, D) scaled directions, with k at most `MAX_CHANNEL_DIRECTIONS` and D / 2; k = 0 if there are no copies
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
    u: Array, labels: Names, other_labels: Names | None, domains: Names, delta: float | None
) -> tuple[Array, dict[str, float]]:
    """Estimate the mean of one extractor's vectors, and the variances of the effects in them.

    Effects are those of classes, cells, recordings and domains. Mean and variances are estimated
    within each domain, by the method of moments, and averaged over domains. A total variance is
    the sum over the D columns.

    Parameters
    ----------
    u : (n, D) unit-length vectors
    labels : (n,) labels of the view that the extractor models
    other_labels : (n,) labels of the other view; None: the model has one view
    domains : (n,) domain of each vector
    delta : total variance between domains; None: estimated

    Returns
    -------
    (D,) mean over the domains' means, and {key of `VARIANCE_KEYS`: total variance}
    """
    means, components = [], []
    second = np.zeros(len(u)) if other_labels is None else other_labels
    for domain in np.unique(domains):
        rows = domains == domain
        # centred per domain, so that differences between domains do not count as variance of people
        centre = u[rows].mean(axis=0)
        means.append(centre)
        centred = u[rows] - centre
        # scaled about their domain, as when scoring
        scaled = centred / np.maximum(np.linalg.norm(centred, axis=1, keepdims=True), 1e-12)
        components.append(
            variance_components(scaled - scaled.mean(axis=0), labels[rows], second[rows])
        )
    variances = np.mean(components, axis=0)
    if other_labels is None:
        # every class has one cell: the variance of cells is that of the classes
        variances = variances[[2, 1, 0, 3]]
    if delta is None:
        # the variance between domains needs two of them
        delta = USUAL_DOMAIN_VARIANCE
        if len(means) > 1:
            delta = float(np.sum(np.var(means, axis=0, ddof=1)))
    totals = np.clip([*variances, delta], 1e-6, MAX_VARIANCE)
    return np.mean(means, axis=0), dict(zip(VARIANCE_KEYS, totals.tolist(), strict=True))


def variance_components(
    X: Array, first_labels: Names, second_labels: Names
) -> tuple[float, float, float, float]:
    """Estimate the variances of the effects of two crossed views, of cells and of recordings.

    They follow from means of the product x.y over pairs of vectors with the same class in the first
    view, in the second view, or in both. Classes and cells can have different numbers of vectors;
    every class has the same weight.

    Parameters
    ----------
    X : (n, D) vectors with mean zero
    first_labels, second_labels : (n,) labels of the first and of the second view

    Returns
    -------
    variances of first view, second view, cells (combinations of both views) and recordings, each summed over columns
    """
    first = np.unique(first_labels, return_inverse=True)[1].reshape(-1)
    second = np.unique(second_labels, return_inverse=True)[1].reshape(-1)
    cell = np.unique(first * (second.max() + 1) + second, return_inverse=True)[1].reshape(-1)
    example = np.unique(cell, return_index=True)[1]
    sums, counts = _sums(X, cell)
    within = _mean_product(X, np.ones(len(X)), cell, sums, counts)
    first_variance = _mean_product(sums, counts, first[example], *_sums(X, first))
    second_variance = _mean_product(sums, counts, second[example], *_sums(X, second))
    total = float(np.sum(X * X)) / len(X)
    # pairs of one cell share both classes as well; recordings have the remainder
    return (
        first_variance,
        second_variance,
        within - first_variance - second_variance,
        total - within,
    )


def _sums(X: Array, codes: IntArray) -> tuple[Array, Array]:
    """Return the (classes, D) sum and the (classes,) number of the vectors of each class.

    X, codes : (n, D) vectors, and (n,) number of each vector's class
    """
    counts = np.bincount(codes)
    return sum_rows(X, codes, len(counts)), counts.astype(np.float64)


def _mean_product(
    members: Array, sizes: Array, classes: IntArray, totals: Array, counts: Array
) -> float:
    """Return the mean product x.y over pairs of vectors of the same class.

    A class consists of members, which are cells or single vectors. The vectors x and y of a pair
    belong to different members. Every class with at least two members has the same weight. The
    result is 0 if there is no pair.

    members, sizes : (n, D) sum and (n,) number of the vectors of each member
    classes : (n,) class of each member
    totals, counts : (classes, D) sum and (classes,) number of the vectors of each class
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
