"""Variance estimates by moments, and the directions in which channels move vectors."""

from __future__ import annotations

import numpy as np

from ..._typing import Array, IntArray, Names
from ...backend import sum_rows
from ...scoring.pair_terms import row_products

MAX_CHANNEL_DIRECTIONS = 40
"""Directions of a block in which rooms and channels move vectors, that are kept: the largest. Chosen on corpora that
were left out."""

VARIANCE_KEYS = ("own", "other", "cell", "take", "domain")


def channel_directions(u: Array, takes: Names, domains: Names) -> Array:
    """(directions, D) R, so that u - R' R u scales down the directions in which copies of one recording differ.

    Their covariance S, the mean over domains, is noise beside one of v in every direction: along its eigenvector of
    variance s vectors are scaled by sqrt(v / (s + v)), where v is the mean of s.
    """
    parts = []
    for domain in np.unique(domains):
        rows = domains == domain
        # takes may be numbered anew in every domain
        codes = np.unique(takes[rows], return_inverse=True)[1].reshape(-1)
        sums, counts = _sums(u[rows], codes)
        apart = u[rows] - (sums / counts[:, None])[codes]
        parts.append(apart.T @ apart / len(apart))
    s, V = np.linalg.eigh(np.mean(parts, axis=0))
    kept = min(MAX_CHANNEL_DIRECTIONS, len(s) // 2)
    # no copies, or copies that are alike
    if not kept or s.mean() < 1e-12:
        return np.zeros((0, len(s)))
    scales = np.sqrt(s.mean() / (s.clip(min=0) + s.mean()))
    # relative to the directions that are not kept: lengths become 1 again
    ratio = scales[-kept:] / np.exp(np.log(scales[:-kept]).mean())
    return np.asarray((V[:, -kept:] * np.sqrt(1.0 - ratio.clip(max=1.0))).T)


def variance_components(X: Array, own: Names, rest: Names) -> tuple[float, float, float, float]:
    """Total variances of the classes of two crossed views, of their cells, and of takes, from centred vectors.

    Means of x . y over pairs that share one view, the other, or both, so that any numbers of takes will do; every
    class weighs the same.
    """
    first = np.unique(own, return_inverse=True)[1].reshape(-1)
    second = np.unique(rest, return_inverse=True)[1].reshape(-1)
    cell = np.unique(first * (second.max() + 1) + second, return_inverse=True)[1].reshape(-1)
    example = np.unique(cell, return_index=True)[1]
    sums, counts = _sums(X, cell)
    within = _pairs(X, np.ones(len(X)), cell, sums, counts)
    of_first = _pairs(sums, counts, first[example], *_sums(X, first))
    of_second = _pairs(sums, counts, second[example], *_sums(X, second))
    total = float(np.sum(X * X)) / len(X)
    # what a cell has beyond its two classes
    return of_first, of_second, within - of_first - of_second, total - within


def _sums(X: Array, codes: IntArray) -> tuple[Array, Array]:
    counts = np.bincount(codes)
    return sum_rows(X, codes, len(counts)), counts.astype(np.float64)


def _pairs(parts: Array, sizes: Array, of: IntArray, totals: Array, counts: Array) -> float:
    """Mean of x . y over pairs from different parts of one class, where a class is the total of its parts."""
    pairs = counts**2 - np.bincount(of, sizes**2, minlength=len(counts))
    several = pairs > 0
    if not several.any():
        return 0.0
    products = row_products(totals, totals)
    products = products - np.bincount(of, row_products(parts, parts), minlength=len(counts))
    # every class weighs the same, whatever the number of its pairs
    return float(np.mean(products[several] / pairs[several]))
