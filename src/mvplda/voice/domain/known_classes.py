"""Known classes of a deployment, such as phrases that are enrolled by name.

This module selects the enrolled cells from which the classes are estimated, and decides whether the names are used. A
cell is one combination of classes, such as one speaker with one phrase.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..._typing import Array, IntArray
from ...scoring.profiles import Profiles
from .posterior import (
    Block,
    ClassPosteriors,
    DomainPosterior,
    EnrolledCells,
    class_posteriors,
    domain_posterior,
)

MAX_CELLS = 600
"""Maximum number of cells (combinations of a speaker and a phrase) per linear system. The effect of a recording domain
is estimated from a sample of this size, because more cells make no difference; the means of phrases are estimated in
groups of this size."""

MAX_NAMED_CELLS = 400
"""Maximum number of cells (combinations of a speaker and a phrase) per group that belong to the phrases to estimate;
the group is filled up to `MAX_CELLS` with cells of other phrases."""

MIN_CELLS_PER_CLASS = 8
"""Number of speakers per phrase from which the phrase is estimated if there are many phrases; more if there are few."""

NAME_TOLERANCE = 1e-9
"""Tolerance for rounding errors when log-likelihoods of the enrolled recordings are compared: with named phrases, and
with separate phrases per speaker. Names are used if the first is at most this much smaller."""

NEAREST_CLASSES = 8
"""Number of known classes that a trial considers as alternatives to the class of the profile. Each costs time."""


def sample_rows(rows: IntArray, max_rows: int) -> IntArray:
    """Return a random sample of at most `max_rows` of the given rows, in ascending order; always the same sample."""
    if len(rows) <= max_rows:
        return rows
    return np.sort(np.random.default_rng(0).permutation(rows)[:max_rows])


def class_blocks(
    profiles: Profiles, cells: EnrolledCells, sample: IntArray, views: tuple[str, ...], view: str
) -> list[EnrolledCells]:
    """Return groups of enrolled cells from which named classes, such as phrases, are estimated.

    A cell is one combination of classes, such as one speaker with one phrase. Each group is one
    linear system, and the time to solve it grows with the cube of the number of cells. Therefore
    no group has more than about `MAX_CELLS` cells. Every class is estimated in one group, from a
    sample of its cells; cells of other classes complete the group.

    Parameters
    ----------
    profiles : enrolled profiles, with one row per cell
    cells : cells from which the recording domain is estimated: all cells, or a sample
    sample : rows of these cells in the profiles
    views : views of the model
    view : view whose classes are estimated

    Returns
    -------
    groups of cells; `[cells]` if `sample` contains all cells; empty if the classes have no names
    """
    if view not in cells.names:
        return []
    if len(sample) == len(profiles.owner):
        return [cells]
    labels = profiles.labels[view]
    numbers, counts = np.unique(labels.codes[labels.codes >= 0], return_counts=True)
    cells_per_class = max(MIN_CELLS_PER_CLASS, MAX_NAMED_CELLS // len(numbers))
    order = np.argsort(labels.codes, kind="stable")
    starts = np.searchsorted(labels.codes[order], numbers)
    class_rows = [
        sample_rows(order[start : start + count], cells_per_class)
        for start, count in zip(starts.tolist(), counts.tolist(), strict=True)
    ]
    groups = []
    for classes in _pack(np.minimum(counts, cells_per_class), MAX_NAMED_CELLS):
        rows = np.concatenate([class_rows[i] for i in classes])
        # no further cells of these classes
        context = sample[~np.isin(labels.codes[sample], numbers[classes])]
        context = sample_rows(context, MAX_CELLS - len(rows))
        group = EnrolledCells.of(profiles, np.sort(np.concatenate([rows, context])), views)
        names = labels.names[numbers[classes]].tolist()
        targets = [group.names[view].index(name) for name in names]
        groups.append(replace(group, target_classes=np.array(targets)))
    return groups


def _pack(sizes: IntArray, max_total: int) -> list[IntArray]:
    """Split a list of classes into groups of consecutive classes with at most `max_total` cells.

    sizes : (n,) number of cells of each class; a class with more than `max_total` is a group alone

    Returns
    -------
    indices of the classes in each group
    """
    groups: list[list[int]] = [[]]
    total = 0
    for number, size in enumerate(sizes.tolist()):
        if groups[-1] and total + size > max_total:
            groups.append([])
            total = 0
        groups[-1].append(number)
        total += size
    return [np.array(group, dtype=np.int64) for group in groups]


def adapt_block(
    block: Block, cells: EnrolledCells, groups: list[EnrolledCells]
) -> tuple[DomainPosterior, list[ClassPosteriors]]:
    """Compute the posteriors of the recording domain and of named classes, such as phrases.

    Names are used if they explain the enrolled cells (combinations of a speaker and a phrase) at least as well as
    separate classes, one per cell.

    Parameters
    ----------
    block : columns of one extractor with its trained parameters
    cells : enrolled cells from which the domain is estimated
    groups : groups of cells from `class_blocks`

    Returns
    -------
    posterior of the domain, and posteriors of the named classes per group; an empty list if names are not used
    """
    domain = domain_posterior(block, cells)
    if not groups:
        return domain, []
    view = block.view
    with_names = [class_posteriors(block, group, domain) for group in groups]
    # names are useless if, for example, every person gives the name "password" to a different phrase
    without_names = [class_posteriors(block, group.without_names(view), domain) for group in groups]
    gain = sum(fit.evidence for fit in with_names) - sum(fit.evidence for fit in without_names)
    if gain >= -NAME_TOLERANCE:
        return domain, with_names
    return domain_posterior(block, cells.without_names(view)), []


def nearest_to_each(means: Array) -> IntArray:
    """Return, for each known class, the other known classes with the nearest means.

    means : (classes, columns) mean of each class

    Returns
    -------
    (classes, k) indices of the nearest other classes by Euclidean distance, nearest first, k at most `NEAREST_CLASSES`
    """
    squares = np.sum(means**2, axis=1)
    nearest = []
    for start in range(0, len(means), MAX_CELLS):
        rows = np.arange(start, min(start + MAX_CELLS, len(means)))
        distances = squares - 2.0 * means[rows] @ means.T
        distances[np.arange(len(rows)), rows] = np.inf
        nearest.append(np.argsort(distances, axis=1)[:, :NEAREST_CLASSES])
    return np.concatenate(nearest)
