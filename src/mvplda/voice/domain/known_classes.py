"""Selection of the enrolled cells from which a domain and its named classes are estimated."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..._typing import IntArray
from ...scoring.profiles import Profiles
from .posterior import EnrolledCells

MAX_CELLS = 600
"""Maximum number of cells per linear system. A domain is estimated from a sample of this size, because more make no
difference; known classes are estimated from all cells, in groups of this size."""

MAX_NAMED_CELLS = 400
"""Maximum number of cells per group from the classes to estimate; the other cells serve to estimate the domain."""

MIN_CELLS_PER_CLASS = 8
"""Cells per class where not all cells fit into one group."""


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
