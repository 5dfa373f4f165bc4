"""Who met whom: the part of the E step that depends on labels alone, worked out once per fit.

The posterior precision of all latents is sparse, and its pattern is the
design. It is solved by elimination (docs/math.md, section 4):

1. the *leaf*: a view whose classes are eliminated one by one (any view will do);
2. the *root*, if there is one: a view that the leaf refines (every leaf class
   lies within one root class), which therefore stays block-diagonal;
3. the *rest*: one dense system.

Leaf classes with equal counts share a factorisation, and so do root classes that hold as many leaf classes of every
count (``root``).
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
"""Largest dense system that is solved: its matrix takes 2 GiB, and there are two of them."""

DENSE_GRAM_ELEMENTS = 2**24

MANY_ENTRIES = 2.0**24
"""From so many entries of Gram tables on, filled cells are summed up in every iteration instead, if that is quick."""

FILLED = 0.1
"""From this share of filled cells on, a table is multiplied as a dense one."""


Grams = dict[tuple[int, int], Array | sparse.csr_array]
"""Tables of pairs of views, dense where they are well filled."""


@dataclass(frozen=True)
class Plan:
    """Which view is eliminated how: numbers of views, and the size of what remains."""

    leaf: int
    root: int | None
    rest: tuple[int, ...]
    dense_size: int


def short_indices(table: sparse.csr_array) -> sparse.csr_array:
    """The same table with indices of 32 bits, where they do: its products take a fifth less time."""
    if max(table.nnz, *table.shape) >= 2**31:
        return table
    indices = table.indices.astype(np.int32)
    return sparse.csr_array((table.data, indices, table.indptr.astype(np.int32)), shape=table.shape)


def refines(table: sparse.csr_array) -> bool:
    """Whether every row class lies within one column class."""
    return bool((np.diff(table.indptr) == 1).all())


def make_plan(sums: Sums, ranks: tuple[int, ...]) -> Plan:
    """The elimination that leaves the smallest rest."""
    views = range(sums.n_views)
    plans = []
    for leaf in views:
        roots = [a for a in views if a != leaf and refines(sums.together(leaf, a))]
        for root in (None, *roots):
            rest = tuple(k for k in views if k not in (leaf, root))
            size = sum(len(sums.counts[k]) * ranks[k] for k in rest)
            plans.append(Plan(leaf, root, rest, size))
    return min(plans, key=lambda plan: plan.dense_size)


@dataclass(frozen=True)
class Design:
    """Count tables of one data set, arranged for a plan.

    by_count : whether leaf classes with equal counts are kept as one Gram matrix (see ``exact``)
    """

    sums: Sums
    plan: Plan
    by_count: bool = False

    @classmethod
    def of(cls, sums: Sums, ranks: tuple[int, ...], iterations: int = 1) -> Design:
        """The design for about so many E steps."""
        plan = make_plan(sums, ranks)
        R = plan.dense_size
        if R > MAX_DENSE:
            parts = [f"{len(sums.counts[k])} classes x rank {ranks[k]}" for k in plan.rest]
            raise DesignTooLargeError(
                f"after elimination R = {' + '.join(parts)} = {R} latents remain in one dense system, whose two "
                f"matrices take {16 * R**2 / 2**30:.1f} GiB; the most is R = {MAX_DENSE}. At most one view (and views "
                "nested with it) may have many classes: lower the ranks of the others, merge rare classes, leave an "
                "interaction or a view out, or train on a subset"
            )
        return cls(sums, plan, _grams_pay(sums, plan.leaf, iterations * ranks[plan.leaf]))

    @cached_property
    def leaf_counts(self) -> tuple[Array, IntArray, Array]:
        """Distinct counts of leaf classes, which one every class has, and how many have it."""
        counts = self.sums.counts[self.plan.leaf]
        values, group, size = np.unique(counts, return_inverse=True, return_counts=True)
        return values, group.reshape(-1), size.astype(np.float64)

    @cached_property
    def leaf_tables(self) -> dict[int, sparse.csr_array]:
        """Co-occurrence of leaf classes with every other view."""
        leaf = self.plan.leaf
        others = [k for k in range(self.sums.n_views) if k != leaf]
        return {k: short_indices(self.sums.together(leaf, k)) for k in others}

    @cached_property
    def per_count_grams(self) -> tuple[AnyArray, dict[int, slice]]:
        """(C, w, w): A'A over leaf classes of every count, A = [sums, count, tables]; every table's columns."""
        values, group, _ = self.leaf_counts
        F = self.sums.sums[self.plan.leaf]
        xp = self.sums.xp
        end = self.sums.dimension + 1
        known_columns = slice(0, end)
        widths = {k: table.shape[1] for k, table in self.leaf_tables.items()}
        columns = side_by_side(widths, end)
        others = slice(end, end + sum(widths.values()))
        end = others.stop
        nothing = sparse.csr_array((len(group), 0))
        met = sparse.hstack([nothing, *self.leaf_tables.values()], format="csr")
        grams = xp.zeros((len(values), end, end))
        for c, n in enumerate(values):
            gram = grams[c]
            rows = np.flatnonzero(group == c)
            for start in range(0, len(rows), xp.gram_rows):
                some = rows[start : start + xp.gram_rows]
                counts = xp.asarray(np.full((len(some), 1), n))
                known = xp.concatenate([F[xp.asarray(some)], counts], axis=1)
                table = xp.table(met[some])
                gram[known_columns, known_columns] += known.T @ known
                gram[others, known_columns] += table.T @ known
                gram[others, others] += xp.gram(table)
            gram[known_columns, others] = gram[others, known_columns].T
        return grams, columns

    @cached_property
    def grams(self) -> Grams:
        """For rest views l <= m a (C, J_l * J_m) table: sum over leaf classes of count c of n_j n_k."""
        values, group, _ = self.leaf_counts
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
        """Entries of all `grams`, at most: a leaf class that meets k classes of the rest fills k^2 of its count."""
        met = np.sum([np.diff(self.leaf_tables[l].indptr) for l in self.plan.rest], axis=0)
        rows = float(sum(len(self.sums.counts[l]) for l in self.plan.rest))
        return min(float((met.astype(float) ** 2).sum()), len(self.leaf_counts[0]) * rows**2)

    @cached_property
    def many_cells(self) -> bool:
        """Whether leaf classes have so many counts, and so many cells each, that Gram tables would be large."""
        if not self.plan.rest or self.sums.xp is not NUMPY:
            return False
        classes = len(self.sums.counts[self.plan.leaf])
        return self.gram_entries > max(MANY_ENTRIES, MANY_ENTRIES / 2**12 * classes)

    def _product(self, left: sparse.csr_array, right: sparse.csr_array) -> sparse.csr_array:
        """left' right, through dense tables where they are well filled: there that is ten times as fast."""
        if min(left.nnz / left.shape[1], right.nnz / right.shape[1]) < FILLED * left.shape[0]:
            return sparse.csr_array(left.T @ right)
        xp = self.sums.xp
        total = xp.zeros((left.shape[1], right.shape[1]))
        for start in range(0, left.shape[0], xp.gram_rows):
            some = slice(start, start + xp.gram_rows)
            total += xp.asarray(left[some].toarray()).T @ xp.asarray(right[some].toarray())
        return sparse.csr_array(to_host(total))

    @cached_property
    def root_tables(self) -> RootTables:
        """Who meets whom inside root classes."""
        root = self.plan.root
        assert root is not None
        values, count, _ = self.leaf_counts
        parent = self.leaf_tables[root].indices.astype(np.int64)  # one column a row
        rest = {l: self.leaf_tables[l] for l in self.plan.rest}
        return RootTables.of(parent, len(self.sums.counts[root]), count, len(values), rest)


def _grams_pay(sums: Sums, leaf: int, solves: int) -> bool:
    """Whether one Gram matrix per count, instead of a row per leaf class (docs/math.md, 5.2), is repaid."""
    n = sums.counts[leaf]
    D = sums.dimension
    width = D + 1 + sum(len(c) for c in sums.counts) - len(n)
    elements = len(np.unique(n)) * width**2
    # an element of a Gram matrix takes two operations per solution, and one of the sums four
    pays = len(n) * D**2 + 2 * solves * elements < 4 * solves * len(n) * D
    return pays and elements <= sums.xp.per_count_gram_elements


def step_operations(design: Design, ranks: tuple[int, ...]) -> float:
    """About how many floating-point operations one EM iteration takes."""
    sums = design.sums
    D = float(sums.dimension)
    total = 2 * float(design.plan.dense_size) ** 3
    for n, r in zip(sums.counts, ranks, strict=True):
        total += 4 * len(n) * D * r
    if sums.has_products:
        total += D**2 * (D + 2 * sum(ranks))
    return total


# Ranks that classes can hold.


def choose_ranks(
    statistics: SufficientStatistics, wanted: Ranks, *, full: bool = False
) -> tuple[dict[str, int], dict[str, int]]:
    """The rank asked for and the rank used of every view: at most classes - 1, and at most the dimension.

    full : whether a prior makes the ranks as large as the dimension, whatever the classes
    """
    if full:
        every = dict.fromkeys(wanted, statistics.dimension)
        return every, every
    asked = {}
    used = {}
    for view, wish in wanted.items():
        most = largest_rank(statistics, view)
        rank = most if wish is None else wish
        if isinstance(rank, bool) or not isinstance(rank, (int, np.integer)) or rank < 1:
            raise ParameterError(
                f"the rank of view {view!r} is a positive whole number; got {rank!r}"
            )
        asked[view] = int(rank)
        used[view] = min(int(rank), most)
    return asked, used


def largest_rank(statistics: SufficientStatistics, view: str) -> int:
    """As much rank as the classes of a view can hold."""
    classes = labelled_classes(statistics, view)
    if classes < 2:
        names = statistics.classes[view].names
        number = "one class" if classes else "no class"
        name = f" ({names.tolist()[0]!r})" if len(names) else ""
        raise LabelError(
            f"view {view!r} has {number}{name}; a view needs at least 2 classes to be told from the mean. "
            "Leave it out, or add data"
        )
    return min(classes - 1, statistics.dimension)


def labelled_classes(statistics: SufficientStatistics, view: str) -> int:
    """How many classes of a view have a name, of an interaction in all its parts.

    A vector without a label is a class of its own, about which nothing else is known: such classes
    have one vector each, and hold no rank.
    """
    classes = statistics.classes[view]
    if classes.cells is None:
        return len(classes.names)
    named = np.ones(len(classes), dtype=bool)
    for column, part in enumerate(parts_of(view)):
        named &= classes.cells[:, column] < len(statistics.classes[part].names)
    return int(named.sum())


# What labels are like, and what no fit can tell apart.


@dataclass(frozen=True)
class Diagnostics:
    """What a data set is like, a line for every view and pair of views, and every warning, in words."""

    lines: tuple[str, ...]
    messages: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join([*self.lines, *(f"  ! {message}" for message in self.messages)])


Problem = tuple[type[Warning], str]


def diagnose(
    statistics: SufficientStatistics, asked: Mapping[str, int], ranks: Mapping[str, int], plan: Plan
) -> tuple[list[str], list[Problem]]:
    """What a data set is like, in lines, and whatever a fit cannot tell apart, each with the kind of its warning."""
    lines = [f"{statistics.n} vectors of dimension {statistics.dimension}"]
    problems: list[Problem] = []
    for view, rank in ranks.items():
        counts = statistics.counts[view]
        classes = labelled_classes(statistics, view)
        unlabelled = len(counts) - classes
        without = f" and {unlabelled} without label" if unlabelled else ""
        lines.append(
            f"  {view}: {classes} classes{without}, {counts.min():g}/{np.median(counts):g}/{counts.max():g} vectors "
            f"each (least/median/most), rank {rank}"
        )
        if asked[view] > rank:
            holds = (
                f"{classes} classes"
                if rank == classes - 1
                else f"{len(statistics.total)} dimensions"
            )
            text = (
                f"view {view!r}: rank {asked[view]} lowered to {rank}, as much as {holds} can hold"
            )
            problems.append((RankCappedWarning, text))
        if counts.max() <= 1:
            text = f"every class of view {view!r} has one vector: its loading cannot be told from the noise"
            problems.append((UnidentifiableViewWarning, text))
    for a, b in combinations(ranks, 2):
        table = statistics.together(a, b)
        nested = [refines(table), refines(table.T.tocsr())]
        if all(nested) and min(table.shape) > 1:
            text = (
                f"views {a!r} and {b!r} sort the vectors into the same classes: only the sum of their "
                "covariances is known, not its parts"
            )
            problems.append((UnidentifiableViewWarning, text))
        if ":" in a + b:
            continue
        graph: sparse.coo_array = sparse.block_array([[None, table], [table.T, None]])  # type: ignore[list-item]
        parts = int(connected_components(graph, directed=False)[0])
        joined = "connected" if parts == 1 else f"{parts} separate parts"
        lines.append(
            f"  {a} x {b}: {table.nnz / np.prod(table.shape):.1%} of cells filled, {joined}"
        )
        if parts > 1 and not any(nested):
            text = (
                f"views {a!r} and {b!r} fall into {parts} parts that share no class: what differs "
                "between the parts cannot be divided between the two views"
            )
            problems.append((DisconnectedDesignWarning, text))
    lines.append(f"  solved exactly; dense system of {plan.dense_size} latents")
    return lines, problems
