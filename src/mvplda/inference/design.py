"""Design of a data set: the part of the E step that depends on labels alone, computed once per fit.

The posterior precision of all latents is sparse, and its pattern is the design. It is solved by elimination
(docs/math.md, section 4):

1. the *leaf*: a view whose classes are eliminated one by one (any view will do);
2. the *root*, if there is one: a view that the leaf refines (every leaf class lies within one root class), which
   therefore stays block-diagonal;
3. the *rest*: one dense system.

Leaf classes with equal counts share a factorisation, and so do root classes that hold the same numbers of leaf classes
of every count (``root``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, combinations_with_replacement

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from .._typing import AnyArray, Array, IntArray, Ranks
from ..backend import NUMPY, to_host
from ..exceptions import (
    DesignTooLargeError,
    DisconnectedDesignWarning,
    LabelError,
    ParameterError,
    RankCappedWarning,
    UnidentifiableViewWarning,
)
from ..labels import parts_of
from ..statistics import SufficientStatistics
from ..statistics.accumulator import Sums
from .root import RootTables, side_by_side

MAX_DENSE = 16_384
"""Size of the largest dense system that is solved: its matrix takes 2 GiB, and there are two of them."""

DENSE_GRAM_ELEMENTS = 2**24
"""Size of the largest Gram table that may be stored densely."""

MANY_ENTRIES = 2.0**24
"""Size above which Gram tables may be replaced by sums over filled cells in every iteration, if that is faster."""

FILLED = 0.1
"""Share of filled cells from which a table is multiplied as a dense matrix."""


Grams = dict[tuple[int, int], Array | sparse.csr_array]
"""Tables of pairs of views, dense if they are well filled."""


@dataclass(frozen=True)
class Plan:
    """Order of elimination.

    leaf, root, rest : indices of the views; root is None if the leaf refines no other view
    dense_size : number of latents in the rest
    """

    leaf: int
    root: int | None
    rest: tuple[int, ...]
    dense_size: int


def short_indices(table: sparse.csr_array) -> sparse.csr_array:
    """Return the table with 32-bit indices if they suffice: its products take a fifth less time."""
    if max(table.nnz, *table.shape) >= 2**31:
        return table
    indices = table.indices.astype(np.int32)
    return sparse.csr_array((table.data, indices, table.indptr.astype(np.int32)), shape=table.shape)


def refines(table: sparse.csr_array) -> bool:
    """Return whether every row class lies within one column class."""
    return bool((np.diff(table.indptr) == 1).all())


def make_plan(sums: Sums, ranks: tuple[int, ...]) -> Plan:
    """Return the plan of elimination that leaves the smallest dense system."""
    views = range(sums.n_views)
    plans = []
    for leaf in views:
        # A root must be refined by the leaf, or its classes would be coupled after the leaf's elimination.
        roots = [a for a in views if a != leaf and refines(sums.together(leaf, a))]
        for root in (None, *roots):
            rest = tuple(k for k in views if k not in (leaf, root))
            size = sum(len(sums.counts[k]) * ranks[k] for k in rest)
            plans.append(Plan(leaf, root, rest, size))
    return min(plans, key=lambda plan: plan.dense_size)


@dataclass(frozen=True)
class Design:
    """Count tables of a data set, arranged for a plan.

    by_count : whether leaf classes with equal counts are represented by one Gram matrix (see ``exact``)
    """

    sums: Sums
    plan: Plan
    by_count: bool = False

    @classmethod
    def of(cls, sums: Sums, ranks: tuple[int, ...], iterations: int = 1) -> Design:
        """Return the design that is fastest for about `iterations` E steps."""
        plan = make_plan(sums, ranks)
        R = plan.dense_size
        if R > MAX_DENSE:
            terms = [f"{len(sums.counts[k])} classes x rank {ranks[k]}" for k in plan.rest]
            raise DesignTooLargeError(
                f"after elimination R = {' + '.join(terms)} = {R} latents remain in one dense system, whose two "
                f"matrices take {16 * R**2 / 2**30:.1f} GiB; the limit is R = {MAX_DENSE}. At most one view (and views "
                "nested with it) may have many classes: lower the ranks of the others, merge rare classes, leave an "
                "interaction or a view out, or train on a subset"
            )
        return cls(sums, plan, _grams_pay(sums, plan.leaf, iterations * ranks[plan.leaf]))

    @cached_property
    def leaf_counts(self) -> tuple[Array, IntArray, Array]:
        """Distinct counts of leaf classes, index of the count of every class, and number of classes per count."""
        counts = self.sums.counts[self.plan.leaf]
        values, group, size = np.unique(counts, return_inverse=True, return_counts=True)
        return values, group.reshape(-1), size.astype(np.float64)

    @cached_property
    def leaf_tables(self) -> dict[int, sparse.csr_array]:
        """Co-occurrence of leaf classes with every other view."""
        leaf = self.plan.leaf
        views = [k for k in range(self.sums.n_views) if k != leaf]
        return {k: short_indices(self.sums.together(leaf, k)) for k in views}

    @cached_property
    def per_count_grams(self) -> tuple[AnyArray, dict[int, slice]]:
        """A'A over the leaf classes of every count, (C, w, w), A = [sums, count, tables]; and the tables' columns."""
        values, group, _ = self.leaf_counts
        F = self.sums.sums[self.plan.leaf]
        xp = self.sums.xp

        # Columns of A: first the dense ones, sums and count, then the sparse tables.
        dense_end = self.sums.dimension + 1
        dense_columns = slice(0, dense_end)
        widths = {k: table.shape[1] for k, table in self.leaf_tables.items()}
        columns = side_by_side(widths, dense_end)
        end = dense_end + sum(widths.values())
        table_columns = slice(dense_end, end)
        no_columns = sparse.csr_array((len(group), 0))
        tables = sparse.hstack([no_columns, *self.leaf_tables.values()], format="csr")

        grams = xp.zeros((len(values), end, end))
        for c, n in enumerate(values):
            gram = grams[c]
            rows = np.flatnonzero(group == c)
            for start in range(0, len(rows), xp.gram_rows):
                chunk = rows[start : start + xp.gram_rows]
                counts = xp.asarray(np.full((len(chunk), 1), n))
                dense = xp.concatenate([F[xp.asarray(chunk)], counts], axis=1)
                table = xp.table(tables[chunk])
                gram[dense_columns, dense_columns] += dense.T @ dense
                gram[table_columns, dense_columns] += table.T @ dense
                gram[table_columns, table_columns] += xp.gram(table)
            gram[dense_columns, table_columns] = gram[table_columns, dense_columns].T
        return grams, columns

    @cached_property
    def grams(self) -> Grams:
        """Products of counts, as tables (C, J_l * J_m) for rest views l <= m.

        For a leaf class let n_lj be its number of vectors in class j of view l. The row of the count c is the sum of
        n_lj n_mk over all leaf classes with c vectors in all.
        """
        values, group, _ = self.leaf_counts
        # delta depends on the count alone, so that leaf classes of equal count share one row of the table.
        members = [np.flatnonzero(group == c) for c in range(len(values))]
        grams: Grams = {}
        for l, m in combinations_with_replacement(self.plan.rest, 2):
            left = self.leaf_tables[l]
            right = self.leaf_tables[m]
            products = [self._product(left[rows], right[rows]) for rows in members]
            gram = sparse.vstack([p.reshape((1, -1)) for p in products], format="csr")
            size = gram.shape[0] * gram.shape[1]
            if gram.nnz > FILLED * size and size <= DENSE_GRAM_ELEMENTS:
                gram = gram.toarray()
            grams[l, m] = gram
        return grams

    @cached_property
    def gram_entries(self) -> float:
        """Upper bound of the number of entries of all `grams`.

        A leaf class that shares vectors with k classes of the rest fills k^2 entries of its count.
        """
        per_class = np.sum([np.diff(self.leaf_tables[l].indptr) for l in self.plan.rest], axis=0)
        rows = float(sum(len(self.sums.counts[l]) for l in self.plan.rest))
        return min(float((per_class.astype(float) ** 2).sum()), len(self.leaf_counts[0]) * rows**2)

    @cached_property
    def many_cells(self) -> bool:
        """Whether Gram tables would be large: leaf classes have many distinct counts, and many cells each."""
        if not self.plan.rest or self.sums.xp is not NUMPY:
            return False
        classes = len(self.sums.counts[self.plan.leaf])
        return self.gram_entries > max(MANY_ENTRIES, MANY_ENTRIES / 2**12 * classes)

    def _product(self, left: sparse.csr_array, right: sparse.csr_array) -> sparse.csr_array:
        """Return left' right; nearly full tables are multiplied as dense matrices, which is ten times as fast."""
        if min(left.nnz / left.shape[1], right.nnz / right.shape[1]) < FILLED * left.shape[0]:
            return sparse.csr_array(left.T @ right)
        xp = self.sums.xp
        total = xp.zeros((left.shape[1], right.shape[1]))
        for start in range(0, left.shape[0], xp.gram_rows):
            rows = slice(start, start + xp.gram_rows)
            total += xp.asarray(left[rows].toarray()).T @ xp.asarray(right[rows].toarray())
        return sparse.csr_array(to_host(total))

    @cached_property
    def root_tables(self) -> RootTables:
        """Co-occurrence inside root classes."""
        root = self.plan.root
        assert root is not None
        values, count, _ = self.leaf_counts
        parent = self.leaf_tables[root].indices.astype(np.int64)  # a leaf row has one column
        rest_tables = {l: self.leaf_tables[l] for l in self.plan.rest}
        n_roots = len(self.sums.counts[root])
        return RootTables.of(parent, n_roots, count, len(values), rest_tables)


def _grams_pay(sums: Sums, leaf: int, solves: int) -> bool:
    """Return whether one Gram matrix per count is cheaper than a row per leaf class (docs/math.md, 5.2)."""
    n = sums.counts[leaf]
    D = sums.dimension
    width = D + 1 + sum(len(c) for c in sums.counts) - len(n)
    elements = len(np.unique(n)) * width**2
    # An element of a Gram matrix takes two operations per solution, and an element of the sums four.
    pays = len(n) * D**2 + 2 * solves * elements < 4 * solves * len(n) * D
    return pays and elements <= sums.xp.per_count_gram_elements


def step_operations(design: Design, ranks: tuple[int, ...]) -> float:
    """Return an estimate of the floating-point operations of one EM iteration."""
    sums = design.sums
    D = float(sums.dimension)
    total = 2 * float(design.plan.dense_size) ** 3  # factor and inverse of the dense system
    for n, r in zip(sums.counts, ranks, strict=True):
        total += 4 * len(n) * D * r
    if sums.has_products:
        # Full noise: factor of Sigma, products with the loadings, scatter of the residuals.
        total += D**2 * (D + 2 * sum(ranks))
    return total


# Ranks that classes can support.


def choose_ranks(
    statistics: SufficientStatistics, requested: Ranks, *, full: bool = False
) -> tuple[dict[str, int], dict[str, int]]:
    """Return the requested rank and the rank used of every view: at most classes - 1, and at most the dimension.

    requested : rank per view; None stands for the largest possible rank
    full : whether a prior makes the ranks as large as the dimension, regardless of the classes
    """
    if full:
        full_ranks = dict.fromkeys(requested, statistics.dimension)
        return full_ranks, full_ranks
    requested_ranks = {}
    used_ranks = {}
    for view, request in requested.items():
        limit = largest_rank(statistics, view)
        rank = limit if request is None else request
        if isinstance(rank, bool) or not isinstance(rank, (int, np.integer)) or rank < 1:
            raise ParameterError(
                f"the rank of view {view!r} must be a positive whole number; got {rank!r}"
            )
        requested_ranks[view] = int(rank)
        used_ranks[view] = min(int(rank), limit)
    return requested_ranks, used_ranks


def largest_rank(statistics: SufficientStatistics, view: str) -> int:
    """Return the largest rank that the classes of a view can support."""
    classes = labelled_classes(statistics, view)
    if classes < 2:
        names = statistics.classes[view].names
        number = "one class" if classes else "no class"
        name = f" ({names.tolist()[0]!r})" if len(names) else ""
        raise LabelError(
            f"view {view!r} has {number}{name}; expected at least 2 classes, because a single class cannot be "
            "separated from the mean. Leave the view out, or add data"
        )
    return min(classes - 1, statistics.dimension)


def labelled_classes(statistics: SufficientStatistics, view: str) -> int:
    """Return the number of classes of a view with a label; classes of an interaction need one in each base view.

    A vector without a label is a class of its own. Such classes have one vector each, and support no rank.
    """
    classes = statistics.classes[view]
    if classes.cells is None:
        return len(classes.names)
    labelled = np.ones(len(classes), dtype=bool)
    for column, base_view in enumerate(parts_of(view)):
        # Classes without label have the numbers after the named ones.
        labelled &= classes.cells[:, column] < len(statistics.classes[base_view].names)
    return int(labelled.sum())


# Summary of the labels, and effects that no fit can separate.


@dataclass(frozen=True)
class Diagnostics:
    """Description of a data set: one line per view and pair of views, and the text of every warning."""

    lines: tuple[str, ...]
    messages: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join([*self.lines, *(f"  ! {message}" for message in self.messages)])


Problem = tuple[type[Warning], str]
"""Category and text of a warning."""


def diagnose(
    statistics: SufficientStatistics,
    requested: Mapping[str, int],
    ranks: Mapping[str, int],
    plan: Plan,
) -> tuple[list[str], list[Problem]]:
    """Describe the data in lines, and return a warning for each effect that a fit cannot identify."""
    lines = [f"{statistics.n} vectors of dimension {statistics.dimension}"]
    problems: list[Problem] = []
    for view, rank in ranks.items():
        line, view_problems = _diagnose_view(statistics, view, requested[view], rank)
        lines.append(line)
        problems += view_problems
    for a, b in combinations(ranks, 2):
        pair_lines, pair_problems = _diagnose_pair(statistics, a, b)
        lines += pair_lines
        problems += pair_problems
    lines.append(f"  solved exactly; dense system of {plan.dense_size} latents")
    return lines, problems


def _diagnose_view(
    statistics: SufficientStatistics, view: str, requested: int, rank: int
) -> tuple[str, list[Problem]]:
    """Return the line that describes a view, and the warnings about it."""
    problems: list[Problem] = []
    counts = statistics.counts[view]
    classes = labelled_classes(statistics, view)
    unlabelled = len(counts) - classes
    without = f" and {unlabelled} without label" if unlabelled else ""
    line = (
        f"  {view}: {classes} classes{without}, {counts.min():g}/{np.median(counts):g}/{counts.max():g} vectors "
        f"each (least/median/most), rank {rank}"
    )
    if requested > rank:
        limit = f"{len(statistics.total)} dimensions"
        if rank == classes - 1:
            limit = f"{classes} classes"
        text = f"view {view!r}: rank {requested} lowered to {rank}, the largest rank that {limit} can support"
        problems.append((RankCappedWarning, text))
    if counts.max() <= 1:
        text = f"every class of view {view!r} has one vector: its loading cannot be separated from the noise"
        problems.append((UnidentifiableViewWarning, text))
    return line, problems


def _diagnose_pair(
    statistics: SufficientStatistics, a: str, b: str
) -> tuple[list[str], list[Problem]]:
    """Return lines that describe a pair of views, and the warnings about it."""
    lines: list[str] = []
    problems: list[Problem] = []
    # Two views that refine each other have the same classes, up to names.
    table = statistics.together(a, b)
    nested = [refines(table), refines(table.T.tocsr())]
    if all(nested) and min(table.shape) > 1:
        text = (
            f"views {a!r} and {b!r} divide the vectors into the same classes: only the sum of their "
            "covariances can be estimated, not each of them"
        )
        problems.append((UnidentifiableViewWarning, text))
    if ":" in a + b:
        return lines, problems

    # Classes of both views are nodes, filled cells are edges.
    graph: sparse.coo_array = sparse.block_array([[None, table], [table.T, None]])  # type: ignore[list-item]
    components = int(connected_components(graph, directed=False)[0])
    joined = "connected" if components == 1 else f"{components} separate parts"
    lines.append(f"  {a} x {b}: {table.nnz / np.prod(table.shape):.1%} of cells filled, {joined}")
    if components > 1 and not any(nested):
        text = (
            f"views {a!r} and {b!r} fall into {components} parts that share no class: differences "
            "between the parts cannot be attributed to one view or the other"
        )
        problems.append((DisconnectedDesignWarning, text))
    return lines, problems
