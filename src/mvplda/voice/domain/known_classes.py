"""Selection of the enrolled cells from which a domain and its named classes are learnt."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..._typing import IntArray
from ...scoring.profiles import Profiles
from .posterior import EnrolledCells

MAX_CELLS = 600
"""Enrolled cells that a domain is learnt from, at most: more make no difference. Known classes are learnt from all
cells, in blocks of so many."""

MAX_NAMED_CELLS = 400
"""Cells of a block that are of its own classes, at most; the rest are others, which show the domain."""

MIN_CELLS_PER_CLASS = 8
"""Cells that a class is learnt from where all cells do not fit into one block."""


def sample_rows(rows: IntArray, most: int) -> IntArray:
    """At most so many rows, in their order: the same ones whenever it is asked."""
    if len(rows) <= most:
        return rows
    return np.sort(np.random.default_rng(0).permutation(rows)[:most])


def class_blocks(
    profiles: Profiles, some: EnrolledCells, sample: IntArray, views: tuple[str, ...], view: str
) -> list[EnrolledCells]:
    """Cells by which the named classes of a view are learnt; empty where it has none.

    Solving for all cells at once takes time by the cube of their number. More than `MAX_CELLS` are therefore learnt in
    blocks: each class is in one of them, with at most as many of its cells as make a difference, and cells of other
    classes fill the block up.

    some, sample : the cells that the domain is learnt from, and their rows
    """
    if view not in some.names:
        return []
    if len(sample) == len(profiles.owner):
        return [some]
    labels = profiles.labels[view]
    numbers, counts = np.unique(labels.codes[labels.codes >= 0], return_counts=True)
    each = max(MIN_CELLS_PER_CLASS, MAX_NAMED_CELLS // len(numbers))
    order = np.argsort(labels.codes, kind="stable")
    starts = np.searchsorted(labels.codes[order], numbers)
    cells = [
        sample_rows(order[start : start + count], each)
        for start, count in zip(starts.tolist(), counts.tolist(), strict=True)
    ]
    blocks = []
    for group in _pack(np.minimum(counts, each), MAX_NAMED_CELLS):
        rows = np.concatenate([cells[i] for i in group])
        # of the block's own classes no other cells
        others = sample[~np.isin(labels.codes[sample], numbers[group])]
        others = sample_rows(others, MAX_CELLS - len(rows))
        block = EnrolledCells.of(profiles, np.sort(np.concatenate([rows, others])), views)
        names = labels.names[numbers[group]].tolist()
        own = [block.names[view].index(name) for name in names]
        blocks.append(replace(block, own=np.array(own)))
    return blocks


def _pack(sizes: IntArray, most: int) -> list[IntArray]:
    """Numbers of things in groups, in their order, whose sizes add up to at most `most` each."""
    groups: list[list[int]] = [[]]
    total = 0
    for number, size in enumerate(sizes.tolist()):
        if groups[-1] and total + size > most:
            groups.append([])
            total = 0
        groups[-1].append(number)
        total += size
    return [np.array(group, dtype=np.int64) for group in groups]
