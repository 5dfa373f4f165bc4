"""Known classes of a deployment: the enrolled cells that they are estimated from, and whether their names are used."""

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
"""Maximum number of cells per linear system. A domain is estimated from a sample of this size, because more make no
difference; known classes are estimated from all cells, in groups of this size."""

MAX_NAMED_CELLS = 400
"""Maximum number of cells per group from the classes to estimate; the other cells serve to estimate the domain."""

MIN_CELLS_PER_CLASS = 8
"""Cells per class where not all cells fit into one group."""

NAME_TOLERANCE = 1e-9
"""Rounding error of the evidence: names are used unless every cell as a class of its own fits better than this."""

NEAREST_CLASSES = 8
"""Number of known classes considered as alternatives to the class of a profile: each costs time in every trial."""


def sample_rows(rows: IntArray, max_rows: int) -> IntArray:
    """Return a fixed random sample of at most `max_rows` rows, in their order."""
    if len(rows) <= max_rows:
        return rows
    return np.sort(np.random.default_rng(0).permutation(rows)[:max_rows])


def class_blocks(
    profiles: Profiles, cells: EnrolledCells, sample: IntArray, views: tuple[str, ...], view: str
) -> list[EnrolledCells]:
    """Return groups of cells from which the named classes of a view are estimated; empty without names.

    Time grows with the cube of the number of cells in one solve. More than `MAX_CELLS` cells are therefore split into
    groups: each class is in one group, with as many of its cells as make a difference, and cells of other classes
    fill the group up.

    cells, sample : the cells that the domain is estimated from, and their rows
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
    """Split indices, in order, into groups whose sizes sum to at most `max_total`."""
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
    """Return the posterior of the domain, and those of the named classes of each group of `class_blocks`.

    Names are used if they explain the cells at least as well as a class per cell; otherwise the list is empty.
    """
    domain = domain_posterior(block, cells)
    if not groups:
        return domain, []
    view = block.view
    with_names = [class_posteriors(block, group, domain) for group in groups]
    # names are useless if, for example, everybody calls a phrase of their own "password"
    without_names = [class_posteriors(block, group.without_names(view), domain) for group in groups]
    gain = sum(fit.evidence for fit in with_names) - sum(fit.evidence for fit in without_names)
    if gain >= -NAME_TOLERANCE:
        return domain, with_names
    return domain_posterior(block, cells.without_names(view)), []


def nearest_to_each(means: Array) -> IntArray:
    """Return the classes nearest to each class, (classes, k): likely confusions of a test.

    means : (classes, columns)
    """
    squares = np.sum(means**2, axis=1)
    nearest = []
    for start in range(0, len(means), MAX_CELLS):
        rows = np.arange(start, min(start + MAX_CELLS, len(means)))
        distances = squares - 2.0 * means[rows] @ means.T
        distances[np.arange(len(rows)), rows] = np.inf
        nearest.append(np.argsort(distances, axis=1)[:, :NEAREST_CLASSES])
    return np.concatenate(nearest)
