"""The root in the elimination: a view that the leaf refines, so that its classes stay apart (docs/math.md, 4.4).

A root class q has a block D_q and a coupling U_q to the rest. Both are sums over the leaf classes inside it of matrices
that depend on a leaf class's count alone, so that few of them are distinct::

    D_q depends on m_q(nu), the number of leaf classes of every count nu inside q: classes that agree form a *group* h
    U_q = T_h P_q, where T_h has a block per count that occurs in the group, and P_q holds the numbers m_q(nu, lj)

A sum over root classes then needs T_h' D_h^-1 T_h per group, and sums of products of m_q(nu, lj), which are computed
once per fit. A single U_q is computed only for the covariance of a single class.

Letters: I root classes, P patterns, H groups, h of them in a run; C distinct leaf counts, A slots of a run; J and K
classes of rest views l and m, of ranks r and q; r_a the root's rank, R latents in the rest.
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from .._typing import AnyArray, Array
from ..backend import Numpy, Torch

KEPT_ROOT_ELEMENTS = 2**27
"""Blocks of root classes are kept during an E step up to this many numbers (1 GiB), otherwise recomputed."""

KEPT_PAIRS = 2**26
"""Products of counts are kept during a fit up to this many, otherwise recomputed."""

MANY_ROWS = 8
"""Rows per group from which groups are multiplied one by one, which avoids copies of the blocks."""

WIDE_BLOCK = 24
"""Width of blocks from which groups are multiplied one by one."""

Index = NDArray[np.int64]
Pair = tuple[int, int]


@dataclass
class RootTables:
    """Co-occurrence inside root classes. C is the number of distinct leaf counts.

    Root classes whose tables are equal form a *pattern*; the patterns of a group are consecutive.

    pattern : (I,) pattern of every root class
    size : (P,) number of root classes of every pattern
    group : (P,) group of every pattern
    leaves : (H, C) m_h(nu): leaf classes of every count inside a root class of a group
    shared : per rest view (P, J_l * C) sparse, m_p(nu, lj): vectors in rest class j, by the count of their leaf class
    """

    pattern: Index
    size: Array
    group: Index
    leaves: Array
    shared: dict[int, sparse.csr_array]
    _pair_tables: dict[tuple[int, int, int, int], sparse.csr_array] = field(
        default_factory=dict, init=False, repr=False
    )
    _occurring: dict[tuple[int, int], Index] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def of(
        cls,
        parent: Index,
        n_roots: int,
        count: Index,
        n_counts: int,
        rest_tables: Mapping[int, Any],
    ) -> RootTables:
        """Return the tables of a design.

        parent, count : (T,) root class, and index of the count, of every leaf class
        rest_tables : per rest view, co-occurrence (T, J_l) of leaf classes with its classes
        """
        ones = np.ones(len(parent))
        leaves = sparse.coo_array((ones, (parent, count)), shape=(n_roots, n_counts)).tocsr()
        shared = {}
        for l, table in rest_tables.items():
            entries = table.tocoo()
            columns = entries.col.astype(np.int64) * n_counts + count[entries.row]
            coordinates = (parent[entries.row], columns)
            shape = (n_roots, table.shape[1] * n_counts)
            shared[l] = sparse.coo_array((entries.data, coordinates), shape=shape).tocsr()

        keys = row_signatures([leaves, *shared.values()])
        _, first, pattern, size = np.unique(
            keys, axis=0, return_index=True, return_inverse=True, return_counts=True
        )
        pattern_leaves = leaves[first].toarray()
        distinct, group = np.unique(pattern_leaves, axis=0, return_inverse=True)

        # Groups with similar numbers of counts become neighbours, so that the blocks of a run have about one width.
        by_width = np.argsort((distinct > 0).sum(axis=1), kind="stable")
        group = np.argsort(by_width)[group.reshape(-1)]  # argsort of an order gives positions in it
        order = np.argsort(group, kind="stable")
        return cls(
            np.argsort(order)[pattern.reshape(-1)],
            size[order].astype(np.float64),
            group[order],
            distinct[by_width],
            {l: table[first[order]] for l, table in shared.items()},
        )

    @property
    def n_groups(self) -> int:
        """Number of groups H."""
        return len(self.leaves)

    @cached_property
    def classes(self) -> Array:
        """(H,) number of root classes of every group."""
        return np.asarray(np.bincount(self.group, self.size, self.n_groups), dtype=np.float64)

    @cached_property
    def widths(self) -> Index:
        """(H,) number of distinct counts that occur in a group."""
        return np.asarray((self.leaves > 0).sum(axis=1))

    @cached_property
    def order(self) -> Index:
        """Root classes, group by group."""
        return np.argsort(self.group[self.pattern], kind="stable")

    def n_classes(self, l: int) -> int:
        """Return the number of classes of a rest view."""
        return int(self.shared[l].shape[1] // self.leaves.shape[1])

    def occurring(self, run: slice) -> Index:
        """Return (h * A,) indices of the counts that occur in every group of a run.

        A group with fewer than A counts is filled up with counts that do not occur.
        """
        key = (run.start, run.stop)
        if key not in self._occurring:
            first = np.argsort(self.leaves[run] == 0, axis=1, kind="stable")
            self._occurring[key] = first[:, : self.widths[run].max()].reshape(-1)
        return self._occurring[key]

    def pairs(self, l: int, m: int, run: slice) -> sparse.csr_array:
        """Return (h * A * A, J_l * J_m) sums over the root classes of a group of m_q(nu, lj) m_q(nu', mj').

        Each row stands for a group and two slots, nu and nu'.
        """
        key = (l, m, run.start, run.stop)
        if key in self._pair_tables:
            return self._pair_tables[key]

        A = int(self.widths[run].max())
        left = self._by_slot(l, run, A)
        right = self._by_slot(m, run, A)
        patterns = self._patterns(run)
        weighted = sparse.diags_array(self.size[patterns]) @ right
        products = (left.T @ weighted).tocoo()

        J = self.n_classes(l)
        K = self.n_classes(m)
        row, j = np.divmod(products.row.astype(np.int64), J)
        column, k = np.divmod(products.col.astype(np.int64), K)
        coordinates = (row * A + column % A, j * K + k)
        shape = ((run.stop - run.start) * A * A, J * K)
        table = sparse.coo_array((products.data, coordinates), shape=shape).tocsr()
        if self.keeps_pairs:
            self._pair_tables[key] = table
        return table

    def _by_slot(self, l: int, run: slice, A: int) -> sparse.csr_array:
        """Return (p, h * A * J_l) shared counts of the patterns of a run; slots number the counts of a group."""
        patterns = self._patterns(run)
        entries = self.shared[l][patterns].tocoo()
        j, count = np.divmod(entries.col.astype(np.int64), self.leaves.shape[1])
        group = self.group[patterns][entries.row]
        slot = (np.cumsum(self.leaves[run] > 0, axis=1) - 1)[group - run.start, count]
        J = self.n_classes(l)
        columns = ((group - run.start) * A + slot) * J + j
        shape = (patterns.stop - patterns.start, (run.stop - run.start) * A * J)
        return sparse.coo_array((entries.data, (entries.row, columns)), shape=shape).tocsr()

    def _patterns(self, run: slice) -> slice:
        """Return the patterns of a run of groups."""
        first, last = np.searchsorted(self.group, [run.start, run.stop])
        return slice(int(first), int(last))

    @property
    def keeps_pairs(self) -> bool:
        """Whether the results of `pairs` fit into memory, and are therefore stored for the whole fit."""
        return self.max_pair_entries <= KEPT_PAIRS

    @cached_property
    def max_pair_entries(self) -> float:
        """Largest number of entries that the tables of `pairs` can have together."""
        per_pattern = sum(
            (np.diff(table.indptr) for table in self.shared.values()), np.zeros(len(self.size))
        )
        classes = sum(self.n_classes(l) for l in self.shared)
        return min(float(per_pattern @ per_pattern), float(classes**2 * (self.widths**2).sum()))


def side_by_side(sizes: Mapping[int, int], start: int = 0) -> dict[int, slice]:
    """Return the slice of every view when views of these sizes follow each other."""
    ends = accumulate(sizes.values(), initial=start)
    return {k: slice(*bounds) for k, bounds in zip(sizes, pairwise(ends), strict=True)}


def row_signatures(tables: list[sparse.csr_array]) -> Array:
    """Return random projections of rows: equal for equal rows, and different otherwise.

    Different rows have equal signatures with a probability of about 2^-100.
    """
    rng = np.random.default_rng(20170406)
    return np.concatenate([table @ rng.random((table.shape[1], 2)) for table in tables], axis=1)


@dataclass(frozen=True)
class Run:
    """Consecutive groups with their blocks.

    groups : range of groups
    slots : A, number of counts that a group has blocks for
    inverse : (h, r_a, r_a) D_h^-1
    blocks : (h, r_a, w) T_h, view after view, slot after slot
    solved : (h, r_a, w) D_h^-1 T_h
    log_determinant : (h,) log |D_h|
    """

    groups: slice
    slots: int
    inverse: AnyArray
    blocks: AnyArray
    solved: AnyArray
    log_determinant: AnyArray


@dataclass(frozen=True)
class RootSums:
    """Sums of covariances of root classes.

    over_vectors, over_classes : (r_a, r_a) sums of Cov(z_q)
    by_count : (C, r_a, r_a) sum over the leaf classes of every count
    with_rest : per rest view (C, r_a, r_l), covariance with the rest classes that leaf classes of every count share
        vectors with
    """

    over_vectors: AnyArray
    over_classes: AnyArray
    by_count: AnyArray
    with_rest: dict[int, AnyArray]


@dataclass
class Root:
    """Blocks D_q of the classes of the root, factored, and their couplings U_q to the rest.

    view : index of the view
    tables : co-occurrence inside root classes
    counts : (C,) distinct leaf counts
    to_root : (C, r_a, r_a) contribution of a vector in a leaf class of every count to D
    to_rest : per rest view (C, r_a, r_l), the contribution to U
    chunk : size of temporary arrays, in numbers
    """

    view: int
    tables: RootTables
    xp: Numpy | Torch
    counts: AnyArray
    to_root: AnyArray
    to_rest: dict[int, AnyArray]
    chunk: int
    _cached_runs: list[Run] | None = field(default=None, init=False, repr=False)

    @property
    def rank(self) -> int:
        """Rank r_a of the root."""
        return self.to_root.shape[-1]

    @cached_property
    def ranks(self) -> dict[int, int]:
        """Rank of every rest view."""
        return {l: blocks.shape[-1] for l, blocks in self.to_rest.items()}

    # Blocks.

    def runs(self) -> Iterator[Run]:
        """Yield all groups, a run at a time; runs that fit into memory are kept for the next call."""
        if self._cached_runs is not None:
            yield from self._cached_runs
            return
        H = self.tables.n_groups
        widest = int(self.tables.widths.max()) * sum(self.ranks.values())
        step = max(1, self.chunk // max(self.rank, widest) ** 2)
        fits_in_memory = H * self.rank * (self.rank + 2 * widest) <= KEPT_ROOT_ELEMENTS
        runs = []
        for start in range(0, H, step):
            run = self._factored(slice(start, min(start + step, H)))
            if fits_in_memory:
                runs.append(run)
            yield run
        if fits_in_memory:
            self._cached_runs = runs

    def _factored(self, groups: slice) -> Run:
        """Return a run of groups with its factored blocks."""
        xp = self.xp
        h = groups.stop - groups.start
        A = int(self.tables.widths[groups].max())
        leaves = xp.cached(self.tables.leaves)[groups]
        data_precision = (leaves * self.counts) @ self.to_root.reshape(len(self.counts), -1)
        D = xp.eye(self.rank) + data_precision.reshape(h, self.rank, -1)
        inverse, log_determinant = xp.inverses(D)

        occurring = xp.cached(self.tables.occurring(groups))
        blocks_by_view = [xp.zeros((h, self.rank, 0))]
        for l, blocks in self.to_rest.items():
            by_slot = blocks[occurring].reshape(h, A, self.rank, self.ranks[l])
            width = A * self.ranks[l]
            blocks_by_view.append(xp.permute(by_slot, (0, 2, 1, 3)).reshape(h, self.rank, width))
        T = xp.concatenate(blocks_by_view, axis=2)
        return Run(groups, A, inverse, T, inverse @ T, log_determinant)

    @property
    def log_determinant(self) -> float:
        """Sum of log |D_q| over root classes."""
        classes = self.xp.cached(self.tables.classes)
        return sum(float(classes[run.groups] @ run.log_determinant) for run in self.runs())

    def _table(self, l: int, m: int, run: Run) -> Any:
        """Return the table of class pairs in rest views (l, m) for the root classes of a run, on the device."""
        table = self.tables.pairs(l, m, run.groups)
        return self.xp.cached_table(table) if self.tables.keeps_pairs else self.xp.table(table)

    def _columns(self, l: int, run: Run) -> slice:
        """Return the columns of a rest view in T_h."""
        return side_by_side({m: run.slots * r for m, r in self.ranks.items()})[l]

    # Elimination and means.

    def subtract_from_rest(self, rest_blocks: dict[Pair, AnyArray]) -> None:
        """Subtract the sum over root classes of U_q' D_q^-1 U_q from the blocks (J_l, r_l, J_m, r_m) of the rest."""
        xp = self.xp
        for run in self.runs():
            A = run.slots
            for (l, m), block in rest_blocks.items():
                J, r, K, q = block.shape
                left = run.blocks[:, :, self._columns(l, run)]
                products = left.mT @ run.solved[:, :, self._columns(m, run)]
                by_slots = xp.permute(products.reshape(-1, A, r, A, q), (0, 1, 3, 2, 4))
                by_slots = by_slots.reshape(-1, r * q)
                table = self._table(l, m, run).T
                # A few rows of every class at a time: a second matrix of the size of the rest may not fit into memory.
                step = max(1, self.chunk // (J * K * q))
                for x in range(0, r, step):
                    summed = table @ by_slots[:, x * q : (x + step) * q]  # (E7)
                    block[:, x : x + step] -= xp.permute(summed.reshape(J, K, -1, q), (0, 2, 1, 3))

    def rest_sums(self, right: AnyArray) -> dict[int, AnyArray]:
        """Return per rest view (J_l, r_l) the sum over root classes of U_q' D_q^-1 right_q."""
        xp = self.xp
        tables = self.tables
        by_pattern = xp.sum_by(tables.pattern, len(tables.size), right)
        solved = self._solved(by_pattern, tables.group, np.arange(len(tables.size)))
        sums = {}
        for l, blocks in self.to_rest.items():
            summed = xp.cached_table(tables.shared[l]).T @ solved  # (J C, r_a)
            by_count = summed.reshape(-1, len(self.counts), self.rank)
            sums[l] = xp.tensordot(by_count, blocks, axes=((1, 2), (0, 1)))
        return sums

    def means(self, right: AnyArray, rest_means: dict[int, AnyArray]) -> AnyArray:
        """Return (I, r_a) means D_q^-1 (right_q - U_q rest) of the root classes; `rest_means` : (J_l, r_l) per view."""
        xp = self.xp
        tables = self.tables
        explained: Any = 0.0
        for l, blocks in self.to_rest.items():
            by_count = xp.tensordot(rest_means[l], blocks, axes=((1,), (2,)))  # (J, C, r_a)
            explained += xp.cached_table(tables.shared[l]) @ by_count.reshape(-1, self.rank)
        if self.to_rest:
            right = right - explained[xp.cached(tables.pattern)]
        return self._solved(right, tables.group[tables.pattern], tables.order)

    def _solved(self, rows: AnyArray, group: Index, order: Index) -> AnyArray:
        """Return D_h^-1 times every row; `group` holds the group of each row, `order` the rows group by group."""
        xp = self.xp
        result = xp.empty_like(rows)
        ends = np.searchsorted(group[order], np.arange(self.tables.n_groups + 1))
        step = max(1, self.chunk // self.rank**2)
        for run in self.runs():
            start = int(ends[run.groups.start])
            stop = int(ends[run.groups.stop])
            if self.rank >= WIDE_BLOCK or stop - start >= MANY_ROWS * len(run.inverse):
                for g, inverse in enumerate(run.inverse, run.groups.start):
                    row_indices = xp.asarray(order[ends[g] : ends[g + 1]])
                    result[row_indices] = rows[row_indices] @ inverse
                continue
            for first in range(start, stop, step):
                members = order[first : min(first + step, stop)]
                row_indices = xp.asarray(members)
                inverses = run.inverse[xp.asarray(group[members] - run.groups.start)]
                columns = rows[row_indices][:, :, None]
                result[row_indices] = xp.matmul(inverses, columns)[:, :, 0]
        return result

    # Covariances.

    def covariance_sums(self, V: Mapping[Pair, AnyArray]) -> RootSums:
        """Return sums of covariances, given the rest's covariance V, (J_l J_m, r_l r_m) per pair of rest views."""
        xp = self.xp
        tables = self.tables
        C = len(self.counts)
        # Rows: over vectors, over classes, and over the leaf classes of every count.
        totals = xp.zeros((C + 2, self.rank**2))
        with_rest = {l: xp.zeros((C, self.rank * r)) for l, r in self.ranks.items()}
        for run in self.runs():
            h = len(run.inverse)
            A = run.slots
            leaves = xp.cached(tables.leaves)[run.groups]
            classes = xp.cached(tables.classes)[run.groups]
            # Minus the covariance of a group's root classes with P_q z_rest, summed over them.
            cross = run.solved @ self._rest_covariance(V, run)
            cov = classes[:, None, None] * run.inverse + cross @ run.solved.mT  # sum of Cov_q
            vectors = leaves @ self.counts
            weights = xp.concatenate(
                [vectors[:, None], xp.ones_like(vectors)[:, None], leaves], axis=1
            )
            totals += weights.T @ cov.reshape(h, -1)
            for l, r in self.ranks.items():
                view_cross = cross[:, :, self._columns(l, run)].reshape(h, self.rank, A, r)
                by_slot = xp.permute(view_cross, (0, 2, 1, 3)).reshape(h * A, -1)
                with_rest[l] -= xp.sum_by(tables.occurring(run.groups), C, by_slot)
        squares = totals.reshape(C + 2, self.rank, self.rank)
        by_count = {l: s.reshape(C, self.rank, self.ranks[l]) for l, s in with_rest.items()}
        return RootSums(squares[0], squares[1], squares[2:], by_count)

    def _rest_covariance(self, V: Mapping[Pair, AnyArray], run: Run) -> AnyArray:
        """Return (h, w, w) sums over a group's root classes of P_q V P_q'."""
        xp = self.xp
        h = len(run.inverse)
        A = run.slots
        width = run.blocks.shape[-1]
        Q = xp.zeros((h, width, width))
        for (l, m), blocks in V.items():
            r = self.ranks[l]
            q = self.ranks[m]
            by_slots = (self._table(l, m, run) @ blocks).reshape(h, A, A, r, q)
            block = xp.permute(by_slots, (0, 1, 3, 2, 4)).reshape(h, A * r, A * q)
            Q[:, self._columns(l, run), self._columns(m, run)] = block
            if l != m:
                Q[:, self._columns(m, run), self._columns(l, run)] = block.mT
        return Q

    @cached_property
    def _inverses(self) -> AnyArray:
        """(H, r_a, r_a) inverses of all groups; only covariances of single classes need them at once."""
        return self.xp.concatenate([run.inverse for run in self.runs()])

    def couplings(self, patterns: Index) -> tuple[AnyArray, AnyArray]:
        """Return D^-1, (p, r_a, r_a), and D^-1 U, (p, r_a, R), of root classes with these patterns."""
        xp = self.xp
        p = len(patterns)
        inverse = self._inverses[xp.asarray(self.tables.group[patterns])]
        blocks_by_view = [xp.zeros((p, self.rank, 0))]
        for l, blocks in self.to_rest.items():
            shared = xp.asarray(self.tables.shared[l][patterns].toarray())
            by_count = shared.reshape(-1, len(self.counts))
            coupling = by_count @ blocks.reshape(len(self.counts), -1)
            coupling = coupling.reshape(p, -1, self.rank, self.ranks[l])
            coupling = xp.permute(coupling, (0, 2, 1, 3)).reshape(p, self.rank, -1)
            blocks_by_view.append(coupling)
        return inverse, inverse @ xp.concatenate(blocks_by_view, axis=2)
