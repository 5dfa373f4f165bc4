"""Who met whom, where no dense table is affordable: the sparse tables of a factorised posterior.

Everything here depends on labels alone, is made once a fit, and takes memory
in proportion to classes and filled cells.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from .records import Array

Index = NDArray[np.int64]


@dataclass(frozen=True)
class RootPairs:
    """Root classes q and classes j of one rest view that meet.

    root, rest : (P,) the classes of every pair, in the order of q
    met : (P, C) sparse: vectors of a pair, by the count of their leaf class
    of_entry : (nnz,) the pair that every entry (t, j) of the leaf's table belongs to
    """

    root: Index
    rest: Index
    met: sparse.csr_array
    of_entry: Index


@dataclass(frozen=True)
class Crossing:
    """Tables of a design whose rest is not solved densely.

    squares : per rest view (C, J) sparse: sum over leaf classes of a count of n_tj^2
    leaves : (I, C) sparse: leaf classes of every count inside a root class; None without a root
    pairs : per rest view, the pairs of root and rest classes; empty without a root
    """

    squares: dict[int, sparse.csr_array]
    leaves: sparse.csr_array | None
    pairs: dict[int, RootPairs]


def crossing_of(
    tables: dict[int, sparse.csr_array], group: Index, n_counts: int, root: int | None, rest: tuple[int, ...]
) -> Crossing:
    """The tables for leaf classes with these co-occurrences, whose counts are of these groups."""
    squares, pairs = {}, {}
    leaves = None
    if root is not None:
        parent = tables[root].indices.astype(np.int64)  # one column a row
        shape = (tables[root].shape[1], n_counts)
        leaves = sparse.coo_array((np.ones(len(group)), (parent, group)), shape=shape).tocsr()
    for l in rest:
        entries = tables[l].tocoo()
        J = tables[l].shape[1]
        squares[l] = sparse.coo_array((entries.data**2, (group[entries.row], entries.col)), (n_counts, J)).tocsr()
        if root is not None:
            keys, of_entry = np.unique(parent[entries.row] * J + entries.col, return_inverse=True)
            of_entry = of_entry.reshape(-1)
            met = sparse.coo_array((entries.data, (of_entry, group[entries.row])), (len(keys), n_counts)).tocsr()
            q, j = np.divmod(keys, J)
            pairs[l] = RootPairs(q, j, met, of_entry)
    return Crossing(squares, leaves, pairs)


def add_rows(total: Array, numbers: Index, rows: Array) -> None:
    """total[numbers[i]] += rows[i], with repeated numbers."""
    present, local = np.unique(numbers, return_inverse=True)
    ones, ends = np.ones(len(numbers)), np.arange(len(numbers) + 1)
    one_hot = sparse.csc_array((ones, local.reshape(-1), ends), shape=(len(present), len(numbers)))
    total[present] += np.asarray(one_hot @ rows)
