"""Who met whom: the part of the E step that depends on labels alone, worked out once a fit.

The posterior precision of all latents is sparse, and its pattern is the
design. It is solved by elimination (docs/math.md, section 4):

1. the *leaf*: a view whose classes are eliminated one by one (any view will do);
2. the *root*, if there is one: a view that the leaf refines (every leaf class
   lies within one root class), which therefore stays block-diagonal;
3. the *rest*: one dense system, or, where that is too large, a product over classes (``variational``).

Leaf classes with equal counts share a factorisation, and so do root classes that hold as many leaf classes of every
count (``root``).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations_with_replacement, pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from .._typing import AnyArray, Array
from ..backend import to_host
from ..exceptions import DesignTooLargeError
from ..statistics.accumulator import Sums
from .root import RootTables, row_signatures

Method = Literal["auto", "exact", "variational"]

MAX_DENSE = 16_384
"""Largest dense system that the exact path solves (its matrix takes 2 GiB)."""

AUTO_OPERATIONS = 2 * 3840.0**3
"""Work of an E step up to which "auto" is exact: two seconds of one thread, as benchmarks/crossed.py measures it."""

AUTO_GRAM_ENTRIES = 2.0**26
"""Entries of Gram tables up to which "auto" is exact: 1 GiB."""

DENSE_GRAM_ELEMENTS = 2**24


@dataclass(frozen=True)
class Plan:
    """Which view is eliminated how: numbers of views, and the size of what remains.

    factorised : whether what remains is not solved densely, but taken as independent class by class
    """

    leaf: int
    root: int | None
    rest: tuple[int, ...]
    dense_size: int
    factorised: bool = False

    @property
    def measure(self) -> str:
        """What the E step gives."""
        return "lower bound of the log-likelihood" if self.factorised else "log-likelihood"

    def describe(self, views: tuple[str, ...]) -> str:
        """How the E step is solved, in words."""
        steps = [f"eliminating {views[self.leaf]}"]
        if self.root is not None:
            steps.append(f"then {views[self.root]}")
        if self.rest:
            names = ", ".join(views[k] for k in self.rest)
            solved = (
                "class by class (a bound)"
                if self.factorised
                else f"one dense system of size {self.dense_size}"
            )
            steps.append(f"then {solved} ({names})")
        return ("variational, " if self.factorised else "exact, ") + ", ".join(steps)


def refines(table: sparse.csr_array) -> bool:
    """Whether every row class lies within one column class."""
    return bool((np.diff(table.indptr) == 1).all())


def make_plan(sums: Sums[AnyArray], ranks: tuple[int, ...]) -> Plan:
    """The elimination that leaves the smallest rest."""
    sizes = [len(c) * r for c, r in zip(sums.counts, ranks, strict=True)]
    best: Plan | None = None
    for leaf in range(sums.n_views):
        roots = [a for a in range(sums.n_views) if a != leaf and refines(sums.together(leaf, a))]
        for root in (None, *roots):
            rest = tuple(k for k in range(sums.n_views) if k not in (leaf, root))
            plan = Plan(leaf, root, rest, sum(sizes[k] for k in rest))
            if best is None or plan.dense_size < best.dense_size:
                best = plan
    assert best is not None
    return best


@dataclass(frozen=True)
class Design:
    """Count tables of one data set, arranged for a plan.

    by_count : whether leaf classes with equal counts are kept as one Gram matrix (see ``exact``)
    """

    sums: Sums[AnyArray]
    plan: Plan
    by_count: bool = False

    @classmethod
    def of(
        cls,
        sums: Sums[AnyArray],
        ranks: tuple[int, ...],
        iterations: int = 1,
        method: Method = "exact",
    ) -> Design:
        """The design for about so many E steps."""
        plan = make_plan(sums, ranks)
        if method == "variational":
            return cls(sums, replace(plan, factorised=True))
        # One Gram matrix a count instead of a row a leaf class (docs/math.md, 5.2), where making it is repaid.
        n, D = sums.counts[plan.leaf], sums.dimension
        width = D + 1 + sum(len(c) for c in sums.counts) - len(n)
        elements = len(np.unique(n)) * width**2
        step = (
            2 * iterations * ranks[plan.leaf]
        )  # operations an element of a Gram matrix; twice as many of a sum
        pays = len(n) * D**2 + step * elements < 2 * step * len(n) * D
        design = cls(sums, plan, pays and elements <= sums.xp.per_count_gram_elements)
        if method == "auto" and not exact_pays(design, ranks):
            return cls(sums, replace(plan, factorised=True))
        if plan.dense_size > MAX_DENSE:
            raise DesignTooLargeError(
                f"after elimination {plan.dense_size} latents remain in one dense system, more than {MAX_DENSE}: "
                "at most one view (and views nested with it) may have many classes; use algorithm='variational', "
                "lower the ranks of the others, or leave a view out"
            )
        return design

    @cached_property
    def leaf_counts(self) -> tuple[Array, NDArray[np.int64], Array]:
        """Distinct counts of leaf classes, which one every class has, and how many have it."""
        values, group, size = np.unique(
            self.sums.counts[self.plan.leaf], return_inverse=True, return_counts=True
        )
        return values, group.reshape(-1), size.astype(np.float64)

    @cached_property
    def leaf_tables(self) -> dict[int, sparse.csr_array]:
        """Co-occurrence of leaf classes with every other view."""
        leaf = self.plan.leaf
        return {k: self.sums.together(leaf, k) for k in range(self.sums.n_views) if k != leaf}

    @cached_property
    def per_count_grams(self) -> tuple[AnyArray, dict[int, slice]]:
        """(C, w, w): A'A over leaf classes of every count, A = [sums, count, tables]; every table's columns."""
        values, group, _ = self.leaf_counts
        F, tables, end = self.sums.sums[self.plan.leaf], self.leaf_tables, self.sums.dimension + 1
        columns = {}
        for k, table in tables.items():
            start, end = end, end + table.shape[1]
            columns[k] = slice(start, end)
        met = sparse.hstack([sparse.csr_array((len(group), 0)), *tables.values()], format="csr")
        own = slice(0, self.sums.dimension + 1)
        others = slice(own.stop, end)
        xp = self.sums.xp
        grams: AnyArray = xp.zeros((len(values), end, end))
        for gram, n, c in zip(grams, values, range(len(values)), strict=True):
            rows = np.flatnonzero(group == c)
            for start in range(0, len(rows), xp.gram_rows):
                some = rows[start : start + xp.gram_rows]
                known = xp.concatenate(
                    [F[xp.asarray(some)], xp.asarray(np.full((len(some), 1), n))], axis=1
                )
                table = xp.table(met[some])
                gram[own, own] += known.T @ known
                gram[others, own] += table.T @ known
                gram[others, others] += xp.gram(table)
            gram[own, others] = gram[others, own].T
        return grams, columns

    @cached_property
    def grams(self) -> dict[tuple[int, int], Array | sparse.csr_array]:
        """For rest views l <= m a (C, J_l * J_m) table: sum over leaf classes of count c of n_j n_k."""
        values, group, _ = self.leaf_counts
        order = np.argsort(group, kind="stable")
        bounds = np.searchsorted(group[order], np.arange(len(values) + 1))
        if (there := self._dense_grams(order, bounds)) is not None:
            return there
        tables, parts = (
            {l: self.leaf_tables[l][order] for l in self.plan.rest},
            [slice(*ends) for ends in pairwise(bounds)],
        )
        grams: dict[tuple[int, int], Array | sparse.csr_array] = {}
        for l, m in combinations_with_replacement(self.plan.rest, 2):
            products = [tables[l][part].T @ tables[m][part] for part in parts]
            gram = sparse.vstack([product.reshape((1, -1)) for product in products], format="csr")
            size = gram.shape[0] * gram.shape[1]
            grams[l, m] = (
                gram.toarray() if gram.nnz > 0.1 * size and size <= DENSE_GRAM_ELEMENTS else gram
            )
        return grams

    def _dense_grams(
        self, order: NDArray[np.int64], bounds: NDArray[np.int64]
    ) -> dict[tuple[int, int], Array | sparse.csr_array] | None:
        """The same by products of dense tables, where these are on a device anyway."""
        xp, sizes = self.sums.xp, {l: len(self.sums.counts[l]) for l in self.plan.rest}
        tables = {l: xp.cached_table(self.leaf_tables[l]) for l in self.plan.rest}
        size = (len(bounds) - 1) * sum(sizes.values()) ** 2
        if size > DENSE_GRAM_ELEMENTS or not all(map(xp.is_dense, tables.values())):
            return None
        grams = {
            (l, m): xp.zeros((len(bounds) - 1, sizes[l] * sizes[m]))
            for l in sizes
            for m in sizes
            if l <= m
        }
        for c in range(len(bounds) - 1):
            rows = xp.asarray(order[bounds[c] : bounds[c + 1]])
            some = {l: table[rows] for l, table in tables.items()}
            for (l, m), gram in grams.items():
                gram[c] = (some[l].T @ some[m]).reshape(-1)
        return {pair: to_host(gram) for pair, gram in grams.items()}

    @cached_property
    def cooccurrence(self) -> SparseCooccurrence:
        """The tables of a factorised posterior."""
        values, group, _ = self.leaf_counts
        return sparse_cooccurrence(
            self.leaf_tables, group, len(values), self.plan.root, self.plan.rest
        )

    @cached_property
    def root_tables(self) -> RootTables:
        """Who meets whom inside root classes."""
        root = self.plan.root
        assert root is not None
        values, count, _ = self.leaf_counts
        parent = self.leaf_tables[root].indices.astype(np.int64)  # one column a row
        rest = {l: self.leaf_tables[l] for l in self.plan.rest}
        return RootTables.of(parent, len(self.sums.counts[root]), count, len(values), rest)


def step_operations(design: Design, ranks: tuple[int, ...]) -> float:
    """About how many floating-point operations one EM iteration takes."""
    sums = design.sums
    D = float(sums.dimension)
    products = sum(
        4 * len(n) * D * r + 2 * len(n) * r**2 for n, r in zip(sums.counts, ranks, strict=True)
    )
    full = D**2 * (D + 2 * sum(ranks)) if sums.has_products else 0.0
    return (
        products
        + full
        + (0.0 if design.plan.factorised else 2 * float(design.plan.dense_size) ** 3)
    )


def exact_pays(design: Design, ranks: tuple[int, ...]) -> bool:
    """Whether the exact solution of a design costs little enough that nobody should do with less."""
    plan, sums = design.plan, design.sums
    R, limit = float(plan.dense_size), AUTO_OPERATIONS * float(sums.xp.speed)
    dense = 2 * R**3
    if dense > limit or R > MAX_DENSE:
        return False
    if R == 0:
        return True
    # A leaf class that meets k classes of the rest fills at most k^2 entries of the Gram table of its count.
    met = np.sum(
        [np.diff(design.leaf_tables[l].indptr).astype(np.float64) for l in plan.rest], axis=0
    )
    rows = sum(len(sums.counts[l]) for l in plan.rest)
    entries = min(float(met @ met), len(design.leaf_counts[0]) * float(rows) ** 2)
    if entries > AUTO_GRAM_ENTRIES:
        return False
    if plan.root is None:
        return True
    tables = design.root_tables
    if tables.entries > AUTO_GRAM_ENTRIES:
        return False
    rest = {l: ranks[l] for l in plan.rest}
    return dense + tables.operations(ranks[plan.root], rest) <= limit


# Who met whom, where no dense table is affordable: the sparse tables of a factorised posterior.
#
# Everything here depends on labels alone, is made once a fit, and takes memory
# in proportion to classes and filled cells.


Index = NDArray[np.int64]


@dataclass(frozen=True)
class RootPairs:
    """Root classes q and classes j of one rest view that meet.

    root, rest : (P,) the classes of every pair, in the order of q
    met : (P, C) sparse: vectors of a pair, by the count of their leaf class
    alike : (K,) a pair of every kind: those of a kind have equal U_qj and D_q
    kinds : (J, K) sparse: pairs of every kind that a rest class is in
    of_entry : (nnz,) the pair that every entry (t, j) of the leaf's table belongs to
    """

    root: Index
    rest: Index
    met: sparse.csr_array
    alike: Index
    kinds: sparse.csr_array
    of_entry: Index


@dataclass(frozen=True)
class SparseCooccurrence:
    """Tables of a design whose rest is not solved densely.

    squares : per rest view (C, J) sparse: sum over leaf classes of a count of n_tj^2
    leaves : (I, C) sparse: leaf classes of every count inside a root class; None without a root
    pairs : per rest view, the pairs of root and rest classes; empty without a root
    """

    squares: dict[int, sparse.csr_array]
    leaves: sparse.csr_array | None
    pairs: dict[int, RootPairs]


def sparse_cooccurrence(
    tables: dict[int, sparse.csr_array],
    group: Index,
    n_counts: int,
    root: int | None,
    rest: tuple[int, ...],
) -> SparseCooccurrence:
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
        # Of Gamma_nu only the diagonal is needed: classes of the rest are taken as independent (5.6).
        squares[l] = sparse.coo_array(
            (entries.data**2, (group[entries.row], entries.col)), (n_counts, J)
        ).tocsr()
        if leaves is not None:
            keys, of_entry = np.unique(parent[entries.row] * J + entries.col, return_inverse=True)
            of_entry = of_entry.reshape(-1)
            met = sparse.coo_array(
                (entries.data, (of_entry, group[entries.row])), (len(keys), n_counts)
            ).tocsr()
            q, j = np.divmod(keys, J)
            signatures = row_signatures([leaves[q, :], met])
            _, alike, kind = np.unique(signatures, axis=0, return_index=True, return_inverse=True)
            places = (j, kind.reshape(-1))
            kinds = sparse.coo_array((np.ones(len(j)), places), shape=(J, len(alike))).tocsr()
            pairs[l] = RootPairs(q, j, met, alike, kinds, of_entry)
    return SparseCooccurrence(squares, leaves, pairs)


def add_rows(total: Array, numbers: Index, rows: Array) -> None:
    """total[numbers[i]] += rows[i], with repeated numbers."""
    present, local = np.unique(numbers, return_inverse=True)
    ones, ends = np.ones(len(numbers)), np.arange(len(numbers) + 1)
    one_hot = sparse.csc_array((ones, local.reshape(-1), ends), shape=(len(present), len(numbers)))
    total[present] += np.asarray(one_hot @ rows)
