"""The root's part of the elimination: a view that the leaf refines, whose classes stay apart (docs/math.md, 4.4).

A root class q has a block D_q and a coupling U_q to the rest. Both are sums over the leaf classes inside it of matrices
that depend on a leaf class's count alone, so that few of them are distinct::

    D_q depends on m_q(nu), how many leaf classes of every count nu it holds: classes that agree are a *group* h
    U_q = T_h P_q, where T_h has a block for every count that occurs in the group, and P_q is m_q(nu, lj): numbers

Whatever is summed over root classes then needs a group's T_h' D_h^-1 T_h, and sums of products of m_q(nu, lj), which
are made once a fit. No U_q is made, but where the covariance of every single class is asked for.
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
"""Blocks of root classes are kept for the whole E step up to this many numbers (1 GiB), else made anew."""

KEPT_PAIRS = 2**26
"""Products of counts are kept for the whole fit up to this many, else made anew."""

MANY_ROWS = 8
WIDE_BLOCK = 24
"""From so many rows a group, or from this width on, groups are multiplied one by one: blocks are not copied then."""

Index = NDArray[np.int64]
Pair = tuple[int, int]


@dataclass(frozen=True)
class RootTables:
    """Who meets whom inside root classes. C is the number of distinct leaf counts.

    Root classes whose tables are equal are of one *pattern*; the patterns of a group follow each other.

    pattern : (I,) of every root class
    size : (P,) root classes of every pattern
    group : (P,) of every pattern
    leaves : (H, C) m_h(nu): leaf classes of every count inside a root class of a group
    met : per rest view (P, J_l * C) sparse, m_p(nu, lj): vectors in rest class j, by the count of their leaf class
    """

    pattern: Index
    size: Array
    group: Index
    leaves: Array
    met: dict[int, sparse.csr_array]
    _kept: dict[tuple[int, int, int, int], sparse.csr_array] = field(default_factory=dict)
    _occurring: dict[tuple[int, int], Index] = field(default_factory=dict)

    @classmethod
    def of(
        cls, parent: Index, n_roots: int, count: Index, n_counts: int, rest: Mapping[int, Any]
    ) -> RootTables:
        """parent, count : (T,) root class and number of the count of every leaf class; rest : their tables (T, J_l)."""
        ones = np.ones(len(parent))
        leaves = sparse.coo_array((ones, (parent, count)), shape=(n_roots, n_counts)).tocsr()
        met = {}
        for l, table in rest.items():
            entries = table.tocoo()
            columns = entries.col.astype(np.int64) * n_counts + count[entries.row]
            places = (parent[entries.row], columns)
            shape = (n_roots, table.shape[1] * n_counts)
            met[l] = sparse.coo_array((entries.data, places), shape=shape).tocsr()
        keys = row_signatures([leaves, *met.values()])
        _, first, pattern, size = np.unique(
            keys, axis=0, return_index=True, return_inverse=True, return_counts=True
        )
        own = leaves[first].toarray()
        distinct, group = np.unique(own, axis=0, return_inverse=True)
        # groups with about as many counts side by side, so that those of one run are as wide
        by_width = np.argsort((distinct > 0).sum(axis=1), kind="stable")
        # of an order, argsort gives the places
        group = np.argsort(by_width)[group.reshape(-1)]
        order = np.argsort(group, kind="stable")
        return cls(
            np.argsort(order)[pattern.reshape(-1)],
            size[order].astype(np.float64),
            group[order],
            distinct[by_width],
            {l: table[first[order]] for l, table in met.items()},
        )

    @property
    def n_groups(self) -> int:
        return len(self.leaves)

    @cached_property
    def classes(self) -> Array:
        """(H,) root classes of every group."""
        return np.asarray(np.bincount(self.group, self.size, self.n_groups), dtype=np.float64)

    @cached_property
    def widths(self) -> Index:
        """(H,) how many distinct counts occur in a group."""
        return np.asarray((self.leaves > 0).sum(axis=1))

    def occurring(self, run: slice) -> Index:
        """(h * A,) the numbers of the counts that occur in every group; where these are fewer than A, others, too."""
        key = (run.start, run.stop)
        if key not in self._occurring:
            first = np.argsort(self.leaves[run] == 0, axis=1, kind="stable")
            self._occurring[key] = first[:, : self.widths[run].max()].reshape(-1)
        return self._occurring[key]

    @cached_property
    def order(self) -> Index:
        """Root classes, group by group."""
        return np.argsort(self.group[self.pattern], kind="stable")

    def pairs(self, l: int, m: int, run: slice) -> sparse.csr_array:
        """(h * A * A, J_l * J_m): sums over the root classes of a group of m_q(nu, lj) m_q(nu', mj').

        Rows are groups and two slots, for nu and nu'.
        """
        key = (l, m, run.start, run.stop)
        if key in self._kept:
            return self._kept[key]
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
        places = (row * A + column % A, j * K + k)
        shape = ((run.stop - run.start) * A * A, J * K)
        table = sparse.coo_array((products.data, places), shape=shape).tocsr()
        if self.keeps_pairs:
            self._kept[key] = table
        return table

    def _by_slot(self, l: int, run: slice, A: int) -> sparse.csr_array:
        """(p, h * A * J_l): the table of some patterns, a group's counts numbered by their slots."""
        patterns = self._patterns(run)
        entries = self.met[l][patterns].tocoo()
        j, count = np.divmod(entries.col.astype(np.int64), self.leaves.shape[1])
        group = self.group[patterns][entries.row]
        slot = (np.cumsum(self.leaves[run] > 0, axis=1) - 1)[group - run.start, count]
        J = self.n_classes(l)
        columns = ((group - run.start) * A + slot) * J + j
        shape = (patterns.stop - patterns.start, (run.stop - run.start) * A * J)
        return sparse.coo_array((entries.data, (entries.row, columns)), shape=shape).tocsr()

    def _patterns(self, run: slice) -> slice:
        first, last = np.searchsorted(self.group, [run.start, run.stop])
        return slice(int(first), int(last))

    def n_classes(self, l: int) -> int:
        return int(self.met[l].shape[1] // self.leaves.shape[1])

    @property
    def keeps_pairs(self) -> bool:
        return self.entries <= KEPT_PAIRS

    @cached_property
    def entries(self) -> float:
        """Entries of all `pairs`, at most."""
        met = sum((np.diff(table.indptr) for table in self.met.values()), np.zeros(len(self.size)))
        classes = sum(self.n_classes(l) for l in self.met)
        return min(float(met @ met), float(classes**2 * (self.widths**2).sum()))


def side_by_side(sizes: Mapping[int, int], start: int = 0) -> dict[int, slice]:
    """Where views of these sizes stand, one after the other."""
    ends = accumulate(sizes.values(), initial=start)
    return {k: slice(*ends_of) for k, ends_of in zip(sizes, pairwise(ends), strict=True)}


def row_signatures(tables: list[sparse.csr_array]) -> Array:
    """Numbers that are equal exactly when the rows of all tables are (but for a chance of about 2^-100)."""
    rng = np.random.default_rng(20170406)
    return np.concatenate([table @ rng.random((table.shape[1], 2)) for table in tables], axis=1)


@dataclass(frozen=True)
class Run:
    """Groups with their blocks.

    groups : which
    slots : A, counts that a group has blocks for
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


@dataclass
class Root:
    """The root's classes, factored.

    view : its number
    counts : (C,) distinct leaf counts
    own : (C, r_a, r_a) what a vector in a leaf class of every count adds to D
    rest : per rest view (C, r_a, r_l), the same of U
    chunk : numbers that are worked on at a time
    """

    view: int
    tables: RootTables
    xp: Numpy | Torch
    counts: AnyArray
    own: AnyArray
    rest: dict[int, AnyArray]
    chunk: int
    _kept: list[Run] | None = None

    @property
    def rank(self) -> int:
        return self.own.shape[-1]

    @cached_property
    def ranks(self) -> dict[int, int]:
        """Of the rest."""
        return {l: blocks.shape[-1] for l, blocks in self.rest.items()}

    def runs(self) -> Iterator[Run]:
        """All groups, some at a time."""
        if self._kept is not None:
            yield from self._kept
            return
        H = self.tables.n_groups
        widest = int(self.tables.widths.max()) * sum(self.ranks.values())
        step = max(1, self.chunk // max(self.rank, widest) ** 2)
        keeps = H * self.rank * (self.rank + 2 * widest) <= KEPT_ROOT_ELEMENTS
        kept = []
        for start in range(0, H, step):
            run = self._factored(slice(start, min(start + step, H)))
            if keeps:
                kept.append(run)
            yield run
        if keeps:
            self._kept = kept

    def _factored(self, groups: slice) -> Run:
        xp = self.xp
        h = groups.stop - groups.start
        A = int(self.tables.widths[groups].max())
        leaves = xp.cached(self.tables.leaves)[groups]
        own = (leaves * self.counts) @ self.own.reshape(len(self.counts), -1)
        inverse, log_determinant = xp.inverses(xp.eye(self.rank) + own.reshape(h, self.rank, -1))
        occurring = xp.cached(self.tables.occurring(groups))
        parts = [xp.zeros((h, self.rank, 0))]
        for l, blocks in self.rest.items():
            some = blocks[occurring].reshape(h, A, self.rank, self.ranks[l])
            parts.append(xp.permute(some, (0, 2, 1, 3)).reshape(h, self.rank, A * self.ranks[l]))
        T = xp.concatenate(parts, axis=2)
        return Run(groups, A, inverse, T, inverse @ T, log_determinant)

    @property
    def log_determinant(self) -> float:
        """Sum of log |D_q| over root classes."""
        classes = self.xp.cached(self.tables.classes)
        return sum(float(classes[run.groups] @ run.log_determinant) for run in self.runs())

    def _table(self, l: int, m: int, run: Run) -> Any:
        table = self.tables.pairs(l, m, run.groups)
        return self.xp.cached_table(table) if self.tables.keeps_pairs else self.xp.table(table)

    def _columns(self, l: int, run: Run) -> slice:
        """Of a rest view in T_h."""
        return side_by_side({m: run.slots * r for m, r in self.ranks.items()})[l]

    def take_off(self, rest: dict[Pair, AnyArray]) -> None:
        """Take the sum over root classes of U_q' D_q^-1 U_q off (J_l, r_l, J_m, r_m), per pair of rest views."""
        xp = self.xp
        for run in self.runs():
            A = run.slots
            for (l, m), block in rest.items():
                J, r, K, q = block.shape
                left = run.blocks[:, :, self._columns(l, run)]
                part = left.mT @ run.solved[:, :, self._columns(m, run)]
                by_slots = xp.permute(part.reshape(-1, A, r, A, q), (0, 1, 3, 2, 4))
                by_slots = by_slots.reshape(-1, r * q)
                table = self._table(l, m, run).T
                # some rows of every class at a time: another matrix of the size of the rest may be too much
                step = max(1, self.chunk // (J * K * q))
                for x in range(0, r, step):
                    taken = table @ by_slots[:, x * q : (x + step) * q]  # (E7)
                    block[:, x : x + step] -= xp.permute(taken.reshape(J, K, -1, q), (0, 2, 1, 3))

    def taken_sums(self, right: AnyArray) -> dict[int, AnyArray]:
        """Per rest view (J_l, r_l), the sum over root classes of U_q' D_q^-1 right_q."""
        xp = self.xp
        tables = self.tables
        by_pattern = xp.sum_by(tables.pattern, len(tables.size), right)
        solved = self._solved(by_pattern, tables.group, np.arange(len(tables.size)))
        sums = {}
        for l, blocks in self.rest.items():
            met = xp.cached_table(tables.met[l]).T @ solved  # (J C, r_a)
            by_count = met.reshape(-1, len(self.counts), self.rank)
            sums[l] = xp.tensordot(by_count, blocks, axes=((1, 2), (0, 1)))
        return sums

    def means(self, right: AnyArray, rest: dict[int, AnyArray]) -> AnyArray:
        """(I, r_a): D_q^-1 (right_q - U_q rest) of every root class, given (J_l, r_l) of the rest."""
        xp = self.xp
        tables = self.tables
        explained: Any = 0.0
        for l, blocks in self.rest.items():
            by_count = xp.tensordot(rest[l], blocks, axes=((1,), (2,)))  # (J, C, r_a)
            explained += xp.cached_table(tables.met[l]) @ by_count.reshape(-1, self.rank)
        if self.rest:
            right = right - explained[xp.cached(tables.pattern)]
        return self._solved(right, tables.group[tables.pattern], tables.order)

    def _solved(self, rows: AnyArray, group: Index, order: Index) -> AnyArray:
        """D_h^-1 of every row of a group; `order` is that of the rows, group by group."""
        xp = self.xp
        result = xp.empty_like(rows)
        ends = np.searchsorted(group[order], np.arange(self.tables.n_groups + 1))
        step = max(1, self.chunk // self.rank**2)
        for run in self.runs():
            start = int(ends[run.groups.start])
            stop = int(ends[run.groups.stop])
            if self.rank >= WIDE_BLOCK or stop - start >= MANY_ROWS * len(run.inverse):
                for g, inverse in enumerate(run.inverse, run.groups.start):
                    some = xp.asarray(order[ends[g] : ends[g + 1]])
                    result[some] = rows[some] @ inverse
                continue
            for first in range(start, stop, step):
                members = order[first : min(first + step, stop)]
                some = xp.asarray(members)
                own = run.inverse[xp.asarray(group[members] - run.groups.start)]
                result[some] = xp.matmul(own, rows[some][:, :, None])[:, :, 0]
        return result

    def covariance_sums(
        self, V: Mapping[Pair, AnyArray]
    ) -> tuple[AnyArray, AnyArray, AnyArray, dict[int, AnyArray]]:
        """Sums of covariances of root classes, given V of the rest, (J_l J_m, r_l r_m) per pair of views.

        With themselves: over vectors and over classes, (r_a, r_a), and over the leaf classes of every count,
        (C, r_a, r_a); per rest view with what leaf classes of every count meet, (C, r_a, r_l).
        """
        xp = self.xp
        tables = self.tables
        C = len(self.counts)
        alone = xp.zeros((C + 2, self.rank**2))
        with_rest = {l: xp.zeros((C, self.rank * r)) for l, r in self.ranks.items()}
        for run in self.runs():
            h = len(run.inverse)
            A = run.slots
            leaves = xp.cached(tables.leaves)[run.groups]
            classes = xp.cached(tables.classes)[run.groups]
            # minus the covariance of a group's root classes with P_q z_rest, summed over them
            met = run.solved @ self._rest_covariance(V, run)
            cov = classes[:, None, None] * run.inverse + met @ run.solved.mT  # sum of Cov_q
            vectors = leaves @ self.counts
            weights = xp.concatenate(
                [vectors[:, None], xp.ones_like(vectors)[:, None], leaves], axis=1
            )
            alone += weights.T @ cov.reshape(h, -1)
            for l, r in self.ranks.items():
                part = met[:, :, self._columns(l, run)].reshape(h, self.rank, A, r)
                by_slot = xp.permute(part, (0, 2, 1, 3)).reshape(h * A, -1)
                with_rest[l] -= xp.sum_by(tables.occurring(run.groups), C, by_slot)
        over_vectors, over_classes, *_ = squares = alone.reshape(C + 2, self.rank, self.rank)
        by_count = {l: s.reshape(C, self.rank, self.ranks[l]) for l, s in with_rest.items()}
        return over_vectors, over_classes, squares[2:], by_count

    def _rest_covariance(self, V: Mapping[Pair, AnyArray], run: Run) -> AnyArray:
        """(h, w, w): the sum over a group's root classes of P_q V P_q'."""
        xp = self.xp
        h = len(run.inverse)
        A = run.slots
        width = run.blocks.shape[-1]
        Q = xp.zeros((h, width, width))
        for (l, m), blocks in V.items():
            r = self.ranks[l]
            q = self.ranks[m]
            by_slots = (self._table(l, m, run) @ blocks).reshape(h, A, A, r, q)
            part = xp.permute(by_slots, (0, 1, 3, 2, 4)).reshape(h, A * r, A * q)
            Q[:, self._columns(l, run), self._columns(m, run)] = part
            if l != m:
                Q[:, self._columns(m, run), self._columns(l, run)] = part.mT
        return Q

    @cached_property
    def _inverses(self) -> AnyArray:
        """(H, r_a, r_a), of all groups: only covariances of single classes need them at once."""
        return self.xp.concatenate([run.inverse for run in self.runs()])

    def couplings(self, patterns: Index) -> tuple[AnyArray, AnyArray]:
        """D^-1 (p, r_a, r_a) and D^-1 U (p, r_a, R) of some patterns."""
        xp = self.xp
        p = len(patterns)
        inverse = self._inverses[xp.asarray(self.tables.group[patterns])]
        parts = [xp.zeros((p, self.rank, 0))]
        for l, blocks in self.rest.items():
            met = xp.asarray(self.tables.met[l][patterns].toarray()).reshape(-1, len(self.counts))
            made = met @ blocks.reshape(len(self.counts), -1)
            made = made.reshape(p, -1, self.rank, self.ranks[l])
            parts.append(xp.permute(made, (0, 2, 1, 3)).reshape(p, self.rank, -1))
        return inverse, inverse @ xp.concatenate(parts, axis=2)
