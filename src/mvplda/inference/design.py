"""Design of a data set: what the E step derives from the labels alone, computed once per fit.

Latents are the unknown vectors of the classes, one vector per class. Their joint posterior
precision matrix is sparse. It is inverted by block elimination (docs/math.md, section 4), in three
steps:

1. the *leaf*: a view whose classes are eliminated first, one by one;
2. the *root*, if there is one: a view whose classes each consist of whole leaf classes, as speakers
   consist of (speaker, phrase) cells. It stays block-diagonal after the leaf's elimination;
3. the *rest*: the latents of all other views, solved as one dense system.

Leaf classes with the same number of vectors have the same posterior covariance given the other
views, so that it is computed once per distinct number. Root classes share computations if they
contain equal numbers of leaf classes of each size (see ``root``).
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
"""Largest dense system that is solved, in latents; each of its two matrices then takes 2 GiB."""

DENSE_GRAM_ELEMENTS = 2**24
"""Largest number of elements for which a table of count products (`Design.grams`) may be stored as a dense array."""

MANY_ENTRIES = 2.0**24
"""Number of entries of `Design.grams` above which the E step may multiply sparse count tables instead."""

FILLED = 0.1
"""Share of nonzero entries from which a sparse table is multiplied as a dense matrix."""


Grams = dict[tuple[int, int], Array | sparse.csr_array]
"""Tables of count products by pair of views (see `Design.grams`): dense if they are well filled, else sparse."""


@dataclass(frozen=True)
class Plan:
    """Order in which views are eliminated from the posterior precision of all latents.

    leaf : index of the view that is eliminated first
    root : index of the view that is eliminated second; None: no view can be
    rest : indices of all other views, which are solved last as one dense system
    dense_size : number of latents in this system, the sum of classes times rank
    """

    leaf: int
    root: int | None
    rest: tuple[int, ...]
    dense_size: int


def short_indices(table: sparse.csr_array) -> sparse.csr_array:
    """Return the table with 32-bit indices if they suffice, which makes products faster."""
    if max(table.nnz, *table.shape) >= 2**31:
        return table
    indices = table.indices.astype(np.int32)
    return sparse.csr_array((table.data, indices, table.indptr.astype(np.int32)), shape=table.shape)


def refines(table: sparse.csr_array) -> bool:
    """Return whether one view refines another: each of its classes lies in one class of the other.

    An example is a view of (speaker, phrase) cells, which refines the view of speakers.

    table : (classes of the view, classes of the other view) numbers of shared vectors
    """
    return bool((np.diff(table.indptr) == 1).all())


def make_plan(sums: Sums, ranks: tuple[int, ...]) -> Plan:
    """Return the order of eliminating views that leaves the smallest dense system.

    sums : statistics of the data
    ranks : rank of each view
    """
    views = range(sums.n_views)
    plans = []
    for leaf in views:
        # Each leaf class must lie in one root class: otherwise elimination of the leaf couples root classes.
        roots = [a for a in views if a != leaf and refines(sums.together(leaf, a))]
        for root in (None, *roots):
            rest = tuple(k for k in views if k not in (leaf, root))
            size = sum(len(sums.counts[k]) * ranks[k] for k in rest)
            plans.append(Plan(leaf, root, rest, size))
    return min(plans, key=lambda plan: plan.dense_size)


@dataclass(frozen=True)
class Design:
    """Data that the E step derives from the labels alone, for one order of eliminating views.

    They are mainly tables of how many vectors classes of different views share, and are computed
    once per fit.

    sums : statistics of the data
    plan : order of elimination
    by_count : whether the E step represents all classes of the leaf (the view eliminated first)
        with equal numbers of vectors by one Gram matrix (`LeafGrams`), not by a row per class
        (`LeafRows`)
    """

    sums: Sums
    plan: Plan
    by_count: bool = False

    @classmethod
    def of(cls, sums: Sums, ranks: tuple[int, ...], iterations: int = 1) -> Design:
        """Return the design of a data set with the order and the storage that make EM fastest.

        Parameters
        ----------
        sums : statistics of the data
        ranks : rank of each view
        iterations : expected number of E steps; with many, it pays to compute Gram matrices of the
            leaf classes first (`per_count_grams`)

        Raises
        ------
        DesignTooLargeError
            The dense system would have more than `MAX_DENSE` latents.
        """
        plan = make_plan(sums, ranks)
        R = plan.dense_size
        if R > MAX_DENSE:
            terms = [f"{len(sums.counts[k])} classes x rank {ranks[k]}" for k in plan.rest]
            raise DesignTooLargeError(
                f"training needs a dense system of R = {' + '.join(terms)} = {R} latents, whose two "
                f"matrices take {16 * R**2 / 2**30:.1f} GiB; the limit is R = {MAX_DENSE}. At most one view (and views "
                "nested with it) may have many classes: lower the ranks of the others, merge rare classes, leave an "
                "interaction or a view out, or train on a subset"
            )
        return cls(sums, plan, _grams_pay(sums, plan.leaf, iterations * ranks[plan.leaf]))

    @cached_property
    def leaf_counts(self) -> tuple[Array, IntArray, Array]:
        """Sizes of leaf classes, which are their numbers of vectors, as three arrays.

        The arrays are the distinct sizes (C,), the position of each leaf class's size among them
        (leaf classes,), and how many leaf classes have each size (C,). The leaf is the view that is
        eliminated first.
        """
        counts = self.sums.counts[self.plan.leaf]
        values, group, size = np.unique(counts, return_inverse=True, return_counts=True)
        return values, group.reshape(-1), size.astype(np.float64)

    @cached_property
    def leaf_tables(self) -> dict[int, sparse.csr_array]:
        """Number of vectors that each leaf class shares with each class of another view.

        {view k: (leaf classes, classes of k) sparse}, for all views except the leaf, which is the
        view that is eliminated first.
        """
        leaf = self.plan.leaf
        views = [k for k in range(self.sums.n_views) if k != leaf]
        return {k: short_indices(self.sums.together(leaf, k)) for k in views}

    @cached_property
    def per_count_grams(self) -> tuple[AnyArray, dict[int, slice]]:
        """Gram matrices A'A of the leaf classes, (C, w, w), and {other view: its columns in A}.

        The leaf is the view that is eliminated first. There is one A for each of the C distinct
        sizes (numbers of vectors) of leaf classes. Its rows are the leaf classes of this size. Its
        w columns are the sum of the class's vectors (D columns), their number (1), and the numbers
        of vectors shared with each class of the other views (`leaf_tables`).
        """
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
        """Sums of products of shared counts, {(l, m): (C, classes of l * classes of m)}, l <= m.

        l and m are rest views (solved last, together), and C is the number of distinct sizes of
        leaf classes (the leaf is the view eliminated first). Let n_tj be the number of vectors that
        leaf class t and class j of a rest view share. The entry for a size, a class j of l and a
        class k of m is the sum of n_tj n_tk over all leaf classes t of this size.
        """
        values, group, _ = self.leaf_counts
        # Formula E5 weights a leaf class by its size alone, so leaf classes of equal size share a row.
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
        """Upper bound of the number of nonzero entries in all tables of `grams`.

        A class of the leaf (the view eliminated first) that shares vectors with k classes of the
        rest (the views solved last) adds at most k^2 entries.
        """
        per_class = np.sum([np.diff(self.leaf_tables[l].indptr) for l in self.plan.rest], axis=0)
        rows = float(sum(len(self.sums.counts[l]) for l in self.plan.rest))
        return min(float((per_class.astype(float) ** 2).sum()), len(self.leaf_counts[0]) * rows**2)

    @cached_property
    def many_cells(self) -> bool:
        """Whether the tables of `grams` are so large that sparse products may be faster.

        They are large if leaf classes have many distinct sizes, and share vectors with many rest
        classes each. False on a GPU and without rest views. The leaf is the view eliminated first;
        the rest are the views solved last, together.
        """
        if not self.plan.rest or self.sums.xp is not NUMPY:
            return False
        classes = len(self.sums.counts[self.plan.leaf])
        return self.gram_entries > max(MANY_ENTRIES, MANY_ENTRIES / 2**12 * classes)

    def _product(self, left: sparse.csr_array, right: sparse.csr_array) -> sparse.csr_array:
        """Return left' right as a sparse array, (columns of left, columns of right).

        Tables with a proportion of at least `FILLED` nonzero entries are multiplied as dense
        matrices, which is faster.
        """
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
        """Tables of the root classes: their leaf classes, and the vectors shared with rest classes.

        Views are eliminated in this order: the leaf, the root, the rest together.
        """
        root = self.plan.root
        assert root is not None
        values, count, _ = self.leaf_counts
        parent = self.leaf_tables[root].indices.astype(np.int64)  # a leaf row has one column
        rest_tables = {l: self.leaf_tables[l] for l in self.plan.rest}
        n_roots = len(self.sums.counts[root])
        return RootTables.of(parent, n_roots, count, len(values), rest_tables)


def _grams_pay(sums: Sums, leaf: int, solves: int) -> bool:
    """Return whether a Gram matrix per size of leaf classes is cheaper than a row per leaf class.

    The size of a class is its number of vectors; the leaf is the view that is eliminated first. See
    docs/math.md, 5.2.

    sums : statistics of the data
    leaf : index of the leaf view
    solves : number of E steps times the rank of the leaf
    """
    n = sums.counts[leaf]
    D = sums.dimension
    width = D + 1 + sum(len(c) for c in sums.counts) - len(n)
    elements = len(np.unique(n)) * width**2
    # An element of a Gram matrix takes two operations per solution, and an element of the sums four.
    pays = len(n) * D**2 + 2 * solves * elements < 4 * solves * len(n) * D
    return pays and elements <= sums.xp.per_count_gram_elements


def step_operations(design: Design, ranks: tuple[int, ...]) -> float:
    """Return an estimate of the number of floating-point operations of one EM iteration.

    design : design of the data
    ranks : rank of each view
    """
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
    """Return the requested and the used rank of each view, two dicts {view: rank}.

    The used rank is the requested rank or `largest_rank`, whichever is smaller.

    Parameters
    ----------
    statistics : statistics of the training data
    requested : rank per view; None stands for the largest possible rank
    full : True if the prior requires ranks equal to the dimension; the ranks in `requested` are
        then ignored

    Raises
    ------
    ParameterError
        A requested rank is not a positive whole number.
    LabelError
        A view has fewer than two labelled classes.
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
    """Return the largest useful rank of a view: labelled classes - 1, and at most the dimension.

    Raise `LabelError` if the view has fewer than two labelled classes.
    """
    classes = labelled_classes(statistics, view)
    if classes < 2:
        names = statistics.classes[view].names
        number = "one class" if classes else "no class"
        name = f" ({names.tolist()[0]!r})" if len(names) else ""
        raise LabelError(
            f"view {view!r} has {number}{name} in the training data; expected at least 2 classes, because a single "
            "class cannot be separated from the mean. Leave the view out, or add vectors of other classes"
        )
    return min(classes - 1, statistics.dimension)


def labelled_classes(statistics: SufficientStatistics, view: str) -> int:
    """Return the number of classes of a view that have a label.

    A class of an interaction (``speaker:phrase``) counts if it has a label in every base view. A
    vector without a label forms a class of its own, which does not count because it supports no
    rank.
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
    """Description of a training set as text.

    lines : lines about the whole set, each view and each pair of views
    messages : texts of the warnings about the set
    """

    lines: tuple[str, ...]
    messages: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join([*self.lines, *(f"  ! {message}" for message in self.messages)])


Problem = tuple[type[Warning], str]
"""Category and text of a warning, (category, text)."""


def diagnose(
    statistics: SufficientStatistics,
    requested: Mapping[str, int],
    ranks: Mapping[str, int],
    plan: Plan,
) -> tuple[list[str], list[Problem]]:
    """Describe the training data, and find effects that a fit cannot separate.

    Parameters
    ----------
    statistics : statistics of the training data
    requested : {view: rank that the user requested}
    ranks : {view: rank that the fit uses}
    plan : order of eliminating the views

    Returns
    -------
    lines : list of str, the description
    problems : list of (warning category, text): lowered ranks, and effects that cannot be separated
    """
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
    if plan.dense_size:
        lines.append(f"  solved exactly; dense system of {plan.dense_size} latents")
    return lines, problems


def _diagnose_view(
    statistics: SufficientStatistics, view: str, requested: int, rank: int
) -> tuple[str, list[Problem]]:
    """Return a line that describes a view, and (category, text) of warnings about it.

    requested, rank : rank of the view that the user requested, and that the fit uses
    """
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
        text = (
            f"every class of view {view!r} has only one vector: the variance between its classes cannot be separated "
            "from the noise. Add vectors of the same classes, or leave the view out"
        )
        problems.append((UnidentifiableViewWarning, text))
    return line, problems


def _diagnose_pair(
    statistics: SufficientStatistics, a: str, b: str
) -> tuple[list[str], list[Problem]]:
    """Describe how the classes of views `a` and `b` overlap.

    return : lines of text, and (category, text) of warnings
    """
    lines: list[str] = []
    problems: list[Problem] = []
    # Two views that refine each other have the same classes, up to names.
    table = statistics.together(a, b)
    nested = [refines(table), refines(table.T.tocsr())]
    if all(nested) and min(table.shape) > 1:
        text = (
            f"views {a!r} and {b!r} divide the vectors into the same classes: only the sum of their "
            "covariances can be estimated, not each covariance. Leave one of the views out"
        )
        problems.append((UnidentifiableViewWarning, text))
    if ":" in a + b:
        return lines, problems

    # Graph: the classes of both views are nodes; two classes that share vectors are joined by an edge.
    graph: sparse.coo_array = sparse.block_array([[None, table], [table.T, None]])  # type: ignore[list-item]
    components = int(connected_components(graph, directed=False)[0])
    joined = "connected" if components == 1 else f"{components} separate parts"
    lines.append(f"  {a} x {b}: {table.nnz / np.prod(table.shape):.1%} of cells filled, {joined}")
    if components > 1 and not any(nested):
        text = (
            f"the training data fall into {components} parts that share no class of views {a!r} and {b!r}: "
            "differences between the parts cannot be attributed to one view or the other. Add vectors that "
            "combine classes of different parts"
        )
        problems.append((DisconnectedDesignWarning, text))
    return lines, problems
