"""The root view in the elimination of latents (docs/math.md, 4.4).

The leaf view is eliminated first; every class of the root view consists of whole leaf classes, as a
speaker consists of (speaker, phrase) cells. So root classes stay independent of each other given
the remaining views (the rest). Root class q has a diagonal block D_q (r_a, r_a) of the posterior
precision, with r_a the root's rank, and a coupling U_q (r_a, R) to the R latents of the rest.

Both are sums over the leaf classes inside q. The term of a leaf class depends only on its size nu
(number of vectors) and on the vectors it shares with rest classes. So root classes share
computations::

    group    root classes with equal m_q(nu), the number of leaf classes of size nu inside q, for
             every nu; they share D_q
    pattern  root classes of a group with equal m_q(nu, lj), the number of vectors that q shares with
             class j of rest view l, within leaf classes of size nu; they share U_q
    run      consecutive groups that are processed together
    slot     one of A places for sizes nu in each group of a run; A is the most sizes that occur in
             one of these groups

U_q = T_h P_q for q in group h: T_h (r_a, w) depends on the group alone, with one block per rest
view and slot; P_q holds the numbers m_q(nu, lj). Sums over root classes need T_h' D_h^-1 T_h per
group, and sums of products of the m_q(nu, lj) (`RootTables.pairs`), which are computed once per
fit. A single U_q is needed only for the covariance of a single class.

Further letters: I root classes, P patterns, H groups, h groups of a run; C distinct sizes of leaf
classes; J and K classes of rest views l and m, whose ranks are r and q.
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
"""Largest number of elements (1 GiB) for which the blocks of all runs are stored during an E step; else recomputed.

The root is the view that is eliminated second. A run is a range of consecutive groups.
"""

KEPT_PAIRS = 2**26
"""Largest number of entries for which `RootTables.pairs` stores its tables during a fit; else they are recomputed."""

MANY_ROWS = 8
"""Number of rows per group from which `Root` multiplies group by group, which avoids copies of the groups' blocks.

The root is the view that is eliminated second. A group holds root classes with equally many leaf
classes of every size.
"""

WIDE_BLOCK = 24
"""Rank of the root from which `Root` multiplies group by group.

The root is the view that is eliminated second. A group holds root classes with equally many leaf
classes of every size.
"""

Index = NDArray[np.int64]
Pair = tuple[int, int]


@dataclass
class RootTables:
    """Numbers of leaf classes and of shared vectors inside each root class, by size of the leaf class.

    Root classes with equal numbers form a *pattern*, and patterns with equal rows of `leaves` a
    *group* (see the module). Patterns are sorted by group. There are I root classes, P patterns, H
    groups, and C distinct sizes nu of leaf classes.

    pattern : (I,) pattern of every root class
    size : (P,) number of root classes of every pattern
    group : (P,) group of every pattern
    leaves : (H, C) number of leaf classes of each size inside one root class of each group
    shared : {rest view: (P, classes * C) sparse}, number of vectors of each class of the rest view
        inside one root class of each pattern, by the size of their leaf class
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
        """Return the tables from the root class and the size of each leaf class.

        Views are eliminated in this order: the leaf, the root, the rest together.

        parent : (T,) root class of each of T leaf classes
        n_roots : number of root classes
        count : (T,) index of the size of each leaf class, among the distinct sizes
        n_counts : number of distinct sizes
        rest_tables : {rest view: (T, classes) sparse}, numbers of vectors that leaf classes share
            with the view's classes
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

        # Sort groups by their numbers of distinct sizes, so that the blocks of a run have about the same width.
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
        """Number of groups of root classes, H.

        The root is the view that is eliminated second. A group holds root classes with equally many
        leaf classes of every size.
        """
        return len(self.leaves)

    @cached_property
    def classes(self) -> Array:
        """Number of root classes in every group, (H,).

        The root is the view that is eliminated second. A group holds root classes with equally many
        leaf classes of every size.
        """
        return np.asarray(np.bincount(self.group, self.size, self.n_groups), dtype=np.float64)

    @cached_property
    def widths(self) -> Index:
        """Number of distinct sizes of leaf classes that occur in every group, (H,).

        The leaf is the view eliminated first, the root the view eliminated second. A group holds
        root classes with equally many leaf classes of every size.
        """
        return np.asarray((self.leaves > 0).sum(axis=1))

    @cached_property
    def order(self) -> Index:
        """Indices of the root classes, sorted by group: (I,).

        The root is the view that is eliminated second. A group holds root classes with equally many
        leaf classes of every size.
        """
        return np.argsort(self.group[self.pattern], kind="stable")

    def n_classes(self, l: int) -> int:
        """Return the number of classes of rest view l.

        The rest are the views that are solved last, together.
        """
        return int(self.shared[l].shape[1] // self.leaves.shape[1])

    def occurring(self, run: slice) -> Index:
        """Return, for each of the h groups of a run, which sizes of leaf classes occur in it.

        The leaf is the view eliminated first, the root the view eliminated second. A group holds
        root classes with equally many leaf classes of every size. A run is a range of consecutive
        groups.

        return : (h * A,) indices of sizes, A per group, where A is the largest number of sizes in
            one group; a group with fewer sizes also has indices of sizes that do not occur in it
        """
        key = (run.start, run.stop)
        if key not in self._occurring:
            first = np.argsort(self.leaves[run] == 0, axis=1, kind="stable")
            self._occurring[key] = first[:, : self.widths[run].max()].reshape(-1)
        return self._occurring[key]

    def pairs(self, l: int, m: int, run: slice) -> sparse.csr_array:
        """Return, for every group of root classes, sums of products of the numbers of shared vectors.

        m_q(nu, lj) is the number of vectors that root class q shares with class j of rest view l,
        within leaf classes of size nu (`shared`). For each pair of sizes nu and nu', and of classes
        j of l and k of m, an entry is the sum of m_q(nu, lj) m_q(nu', mk) over the root classes q
        of a group.

        Views are eliminated in this order: the leaf, the root, the rest together. A group holds
        root classes with equally many leaf classes of every size.

        l, m : rest views with J and K classes
        run : range of h groups
        return : (h * A * A, J * K) sparse, with A the most sizes that occur in one group; a row per
            group and pair (nu, nu'), a column per pair (j, k)
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
        """Return how many vectors root classes of each pattern share with classes of rest view l.

        The root is the view eliminated second; the rest are the views solved last, together. A
        group holds root classes with equally many leaf classes of every size. A pattern holds those
        of a group that also share equal numbers of vectors with all rest classes.

        run : range of h groups, with p patterns
        A : largest number of sizes of leaf classes that occur in one of these groups
        return : (p, h * A * J) sparse, with columns for h groups, A sizes and J classes of l; a
            pattern has entries only in the columns of its own group
        """
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
        """Return the range of the patterns in a range of groups.

        Root classes of one pattern have equal counts in all tables; a group consists of consecutive
        patterns. The root is the view that is eliminated second.
        """
        first, last = np.searchsorted(self.group, [run.start, run.stop])
        return slice(int(first), int(last))

    @property
    def keeps_pairs(self) -> bool:
        """Whether the tables of `pairs` are small enough to be stored for the whole fit."""
        return self.max_pair_entries <= KEPT_PAIRS

    @cached_property
    def max_pair_entries(self) -> float:
        """Upper bound of the number of entries in all tables of `pairs` together."""
        per_pattern = sum(
            (np.diff(table.indptr) for table in self.shared.values()), np.zeros(len(self.size))
        )
        classes = sum(self.n_classes(l) for l in self.shared)
        return min(float(per_pattern @ per_pattern), float(classes**2 * (self.widths**2).sum()))


def side_by_side(sizes: Mapping[int, int], start: int = 0) -> dict[int, slice]:
    """Return {view: slice} for blocks of views that follow each other without gaps.

    sizes : {view: size of its block}, in the order of the blocks
    start : start of the first block
    """
    ends = accumulate(sizes.values(), initial=start)
    return {k: slice(*bounds) for k, bounds in zip(sizes, pairwise(ends), strict=True)}


def row_signatures(tables: list[sparse.csr_array]) -> Array:
    """Return a signature of each row, by which equal rows of the joined tables can be found.

    It consists of two random projections per table, (rows, 2 * tables). Equal rows have equal
    signatures; different rows have equal signatures with a probability of about 2^-100.

    tables : sparse tables with the same number of rows
    """
    rng = np.random.default_rng(20170406)
    return np.concatenate([table @ rng.random((table.shape[1], 2)) for table in tables], axis=1)


@dataclass(frozen=True)
class Run:
    """Consecutive groups of root classes with their blocks; symbols are those of the module.

    Views are eliminated in this order: the leaf, the root, the rest together. A group holds root
    classes with equally many leaf classes of every size. h is the number of groups, r_a the root's
    rank, and w the width of a group's block: slots times the sum of the ranks of the rest views.

    groups : range of groups
    slots : number of leaf-class sizes for which each group has a block
    inverse : (h, r_a, r_a) D_h^-1, covariance of a root class given the rest
    blocks : (h, r_a, w) T_h, coupling to the rest per slot; the views follow each other, and within
        a view its slots
    solved : (h, r_a, w) D_h^-1 T_h
    log_determinant : (h,) log-determinant of D_h
    """

    groups: slice
    slots: int
    inverse: AnyArray
    blocks: AnyArray
    solved: AnyArray
    log_determinant: AnyArray


@dataclass(frozen=True)
class RootSums:
    """Sums of the posterior covariances of the root's latents.

    Views are eliminated in this order: the leaf, the root, the rest together. C is the number of
    distinct sizes of leaf classes, r_a the root's rank.

    over_vectors : (r_a, r_a) sum over vectors
    over_classes : (r_a, r_a) sum over root classes
    by_count : (C, r_a, r_a) sum over the leaf classes of each size, each with the covariance of its
        root class
    with_rest : {rest view: (C, r_a, rank)} covariance between root and rest classes, summed over
        the vectors that they share, by size of the vectors' leaf classes
    """

    over_vectors: AnyArray
    over_classes: AnyArray
    by_count: AnyArray
    with_rest: dict[int, AnyArray]


@dataclass
class Root:
    """Factored blocks D_q of the root classes, and their couplings U_q to the rest.

    Symbols are those of the module. Views are eliminated in this order: the leaf, the root, the
    rest together.

    view : index of the root view
    tables : numbers of leaf classes and shared vectors inside root classes
    xp : backend of the arrays
    counts : (C,) distinct sizes of leaf classes
    to_root : (C, r_a, r_a) contribution of one vector to D_q, by the size of its leaf class
    to_rest : {rest view: (C, r_a, rank)} contribution of one vector to U_q, by the size of its leaf
        class
    chunk : largest number of elements of temporary arrays, approximately
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
        """Rank of the root view, r_a.

        The root is the view that is eliminated second.
        """
        return self.to_root.shape[-1]

    @cached_property
    def ranks(self) -> dict[int, int]:
        """Rank of every rest view, {view: rank}.

        The rest are the views that are solved last, together.
        """
        return {l: blocks.shape[-1] for l, blocks in self.to_rest.items()}

    # Blocks.

    def runs(self) -> Iterator[Run]:
        """Yield all runs in order; if they fit into memory, store them for later calls.

        The root is the view that is eliminated second. A group holds root classes with equally many
        leaf classes of every size. A run is a range of consecutive groups.
        """
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
        """Return a range of groups as a run, with inverses and log-determinants of blocks D_h.

        The root is the view that is eliminated second. A group holds root classes with equally many
        leaf classes of every size. A run is a range of consecutive groups.
        """
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
        """Sum of the log-determinants of the root classes' blocks of the posterior precision.

        The root is the view that is eliminated second.
        """
        classes = self.xp.cached(self.tables.classes)
        return sum(float(classes[run.groups] @ run.log_determinant) for run in self.runs())

    def _table(self, l: int, m: int, run: Run) -> Any:
        """Return the table of `RootTables.pairs` for rest views l and m and a run, on the device.

        The root is the view eliminated second; the rest are the views solved last, together. A
        group holds root classes with equally many leaf classes of every size. A run is a range of
        consecutive groups.
        """
        table = self.tables.pairs(l, m, run.groups)
        return self.xp.cached_table(table) if self.tables.keeps_pairs else self.xp.table(table)

    def _columns(self, l: int, run: Run) -> slice:
        """Return the columns of rest view l in the coupling blocks `Run.blocks`.

        The root is the view eliminated second; the rest are the views solved last, together. A run
        is a range of consecutive groups.
        """
        return side_by_side({m: run.slots * r for m, r in self.ranks.items()})[l]

    # Elimination and means.

    def subtract_from_rest(self, rest_blocks: dict[Pair, AnyArray]) -> None:
        """Subtract the sum over root classes q of U_q' D_q^-1 U_q from the precision of the rest.

        The root is the view eliminated second; the rest are the views solved last, together. Root
        class q has the block D_q (r_a, r_a) of the posterior precision, and the coupling U_q (r_a,
        R) to the R latents of the rest.

        rest_blocks : {(l, m): (classes of l, rank of l, classes of m, rank of m)} blocks; changed
            in place
        """
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
                # Process a few latents of every class at a time: a second matrix of the rest may exceed memory.
                step = max(1, self.chunk // (J * K * q))
                for x in range(0, r, step):
                    summed = table @ by_slots[:, x * q : (x + step) * q]  # (E7)
                    block[:, x : x + step] -= xp.permute(summed.reshape(J, K, -1, q), (0, 2, 1, 3))

    def rest_sums(self, right: AnyArray) -> dict[int, AnyArray]:
        """Return the sum over root classes q of U_q' D_q^-1 b_q, for all latents of the rest.

        Elimination of the root subtracts it from the right-hand side of the rest.

        The root is the view eliminated second; the rest are the views solved last, together. Root
        class q has the block D_q (r_a, r_a) of the posterior precision, and the coupling U_q (r_a,
        R) to the R latents of the rest.

        right : (I, r_a) right-hand side b_q of each of I root classes
        return : {rest view: (classes, rank)}
        """
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
        """Return the posterior means D_q^-1 (b_q - U_q m) of the root classes q, (I, r_a).

        m are the posterior means of the rest. The root is the view eliminated second; the rest are
        the views solved last, together. Root class q has the block D_q (r_a, r_a) of the posterior
        precision, and the coupling U_q (r_a, R) to the R latents of the rest.

        right : (I, r_a) right-hand side b_q of each of I root classes
        rest_means : {rest view: (classes, rank)} posterior means
        """
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
        """Return every row multiplied by the inverse block D_h^-1 of its group h, (rows, r_a).

        D_h (r_a, r_a) is the block of the posterior precision that the root classes of a group have
        in common. The root is the view that is eliminated second.

        rows : (rows, r_a) one row per root class or pattern
        group : (rows,) group of each row
        order : (rows,) indices of the rows sorted by group
        """
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
        """Return sums of the posterior covariances of the root's latents.

        The root is the view eliminated second; the rest are the views solved last, together.

        V : {(l, m): (classes of l * classes of m, rank of l * rank of m)} blocks of the rest's
            covariance
        """
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
            # negative covariance of the latents of q with P_q times those of the rest, summed over q in the group
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
        """Return the sum over each group's root classes q of P_q V P_q', (h, w, w) for a run of h groups.

        P_q holds the numbers of vectors that root class q shares with the classes of the rest, in
        the w columns of `Run.blocks`; V is the posterior covariance of the rest. The root is the
        view eliminated second; the rest are the views solved last, together. A group holds root
        classes with equally many leaf classes of every size. A run is a range of consecutive
        groups.

        V : {(l, m): (classes of l * classes of m, rank of l * rank of m)} blocks of the rest's
            covariance
        """
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
        """Inverse blocks D_h^-1 of the posterior precision for all groups h of root classes, (H, r_a, r_a).

        Only covariances of single classes need all of them at once. The root is the view that is
        eliminated second; a group holds root classes with equal blocks.
        """
        return self.xp.concatenate([run.inverse for run in self.runs()])

    def couplings(self, patterns: Index) -> tuple[AnyArray, AnyArray]:
        """Return D_q^-1 and D_q^-1 U_q for one root class q of each pattern.

        The root is the view eliminated second; the rest are the views solved last, together. Root
        class q has the block D_q (r_a, r_a) of the posterior precision, and the coupling U_q (r_a,
        R) to the R latents of the rest. Root classes of one pattern have equal blocks and
        couplings.

        patterns : (p,) indices of patterns
        return : (p, r_a, r_a) and (p, r_a, R)
        """
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
