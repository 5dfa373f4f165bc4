"""Statistics added and subtracted, also where the parts know different classes.

Either is one relabelling of all parts to the union of their classes, then a sum with signs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse
from scipy.spatial import KDTree

from .._typing import IntArray, Names
from ..backend import to_host
from ..exceptions import DataError, LabelError, ParameterError
from ..labels import ViewClasses, base_columns, distinct_rows, interaction, parts_of
from .accumulator import kind_of

if TYPE_CHECKING:
    from .record import SufficientStatistics

CLOSE = 1e-4
"""Vectors of two statistics are the same up to this part of their spread (float32, about other origins)."""

Places = dict[str, IntArray]
"""Of every column and view, the number of every class of a part in the union."""


def merge(
    parts: Sequence[SufficientStatistics], names: Sequence[str] | None = None
) -> SufficientStatistics:
    """The statistics of all vectors behind the parts; about the origin of the first.

    Every class dictionary is sorted once, not once per part. Time is linear in the classes and cells of all parts, but
    for a merge of their sorted names.

    Parameters
    ----------
    parts : at least one; they may know different classes
    names : of the parts, for errors
    """
    if not parts:
        raise ParameterError("there are no statistics to merge: give at least one")
    if len(parts) == 1:
        return parts[0]
    called = names or [f"part {i + 1}" for i in range(len(parts))]
    return _signed_sum(parts, [1] * len(parts), called)


def subtract(whole: SufficientStatistics, part: SufficientStatistics) -> SufficientStatistics:
    """The statistics of the vectors of `whole` that are not in `part`, as though these had never been in.

    What is left of a sum carries the rounding of both: with float64 vectors about 1e-16 of what was there before, with
    float32 vectors about 1e-7.

    Raises
    ------
    DataError
        Something in `part` is not in `whole`: a class, a cell, or more vectors of one.
    LabelError
        A vector in `part` that has no label is not in `whole`.
    """
    if part.n >= whole.n:
        raise DataError(
            f"{part.n} vectors cannot be taken out of {whole.n}: at least one must be left"
        )
    _check_alike(whole, part, "the whole and the part to subtract")
    moved = part.about(whole.origin)
    same = {column: _same_vectors(whole, moved, column) for column in base_columns(whole.views)}
    result = _signed_sum([whole, moved], [1, -1], ["the whole", "the part to subtract"], same)
    for view, counts in result.counts.items():
        _check_taken(counts.min(), class_name(result.classes, view, int(counts.argmin())))
    for (a, b), table in result.cooccurrence.items():
        cells = table.tocoo()
        worst = int(cells.data.argmin())
        first = class_name(result.classes, a, int(cells.row[worst]))
        second = class_name(result.classes, b, int(cells.col[worst]))
        _check_taken(cells.data[worst], f"{first} and {second} together")
        table.eliminate_zeros()
    spread = np.sqrt(whole.variance + (whole.total / whole.n) ** 2)
    for view, counts in result.counts.items():
        # No class is new here, so that those of the whole have kept their numbers.
        added = whole.counts[view][:, None] * spread
        left = (counts == 0) & (np.abs(result.sums[view]) > CLOSE * added).any(axis=1)
        if left.any():
            which = class_name(result.classes, view, int(left.argmax()))
            raise DataError(
                f"the vectors to subtract of {which} are not those that were added: their sums differ"
            )
    return without_empty_classes(result)


def _same_vectors(whole: SufficientStatistics, part: SufficientStatistics, column: str) -> IntArray:
    """For vectors without label, each a class of its own: which of those of `whole` they are, by their sums."""
    if part.classes[column].anonymous == 0:
        return np.empty(0, dtype=np.int64)
    if column not in whole.views:
        raise LabelError(
            f"vector(s) to subtract have no label of {column!r} and cannot be found again: "
            f"that needs {column!r} among the views"
        )
    added, theirs = (
        to_host(own.sums[column])[len(own.classes[column].names) :] for own in (whole, part)
    )
    reach = CLOSE * np.sqrt((whole.variance + (whole.total / whole.n) ** 2).sum())
    distance, nearest = KDTree(added).query(theirs)
    if (distance > reach).any() or len(np.unique(nearest)) < len(theirs):
        raise LabelError(
            f"a vector to subtract that has no label of {column!r} is not among those added"
        )
    return np.asarray(nearest)


def _check_taken(count: float, which: str) -> None:
    if count < 0:
        raise DataError(
            f"{-count:.0f} vector(s) too many are to be subtracted of {which}: they were not all added"
        )


def _signed_sum(
    parts: Sequence[SufficientStatistics],
    signs: Sequence[int],
    called: Sequence[str],
    same: Places | None = None,
) -> SufficientStatistics:
    """The sum of all parts, each times its sign; `same` as in `_union_of_classes`."""
    first = parts[0]
    for part, name in zip(parts[1:], called[1:], strict=True):
        _check_alike(first, part, f"{called[0]} and {name}")
    classes, numbers = _union_of_classes(parts, called, same)
    n = 0
    total = np.zeros_like(first.total)
    scatter = np.zeros_like(first.scatter)
    counts = {view: np.zeros(len(classes[view])) for view in first.views}
    sums = {view: np.zeros((len(classes[view]), first.dimension)) for view in first.views}
    pairs = {}
    for part, sign, places in zip(parts, signs, numbers, strict=True):
        moved = part.about(first.origin)
        n += sign * moved.n
        total += sign * moved.total
        scatter += sign * moved.scatter
        for view in first.views:
            counts[view][places[view]] += sign * moved.counts[view]
            own = to_host(moved.sums[view])
            sums[view][places[view]] += own if sign > 0 else -own  # no copy where they are added
    for a, b in first.cooccurrence:
        tables = [part.together(a, b).tocoo() for part in parts]
        rows = [places[a][table.row] for places, table in zip(numbers, tables, strict=True)]
        columns = [places[b][table.col] for places, table in zip(numbers, tables, strict=True)]
        data = [sign * table.data for sign, table in zip(signs, tables, strict=True)]
        where = (np.concatenate(rows), np.concatenate(columns))
        shape = (len(classes[a]), len(classes[b]))
        pairs[a, b] = sparse.coo_array((np.concatenate(data), where), shape=shape).tocsr()
    return replace(
        first,
        n=n,
        total=total,
        scatter=scatter,
        classes=classes,
        counts=counts,
        sums=sums,
        cooccurrence=pairs,
    )


def _check_alike(a: SufficientStatistics, b: SufficientStatistics, which: str) -> None:
    if a.dimension != b.dimension:
        raise DataError(
            f"statistics of width {a.dimension} and {b.dimension} cannot be added ({which})"
        )
    if set(a.views) != set(b.views):
        raise LabelError(f"statistics of views {a.views} and {b.views} cannot be added ({which})")
    if a.second_moment != b.second_moment:
        raise ParameterError(
            f"statistics with full and with diagonal second moments cannot be added ({which})"
        )


def _union_of_classes(
    parts: Sequence[SufficientStatistics], called: Sequence[str], same: Places | None
) -> tuple[dict[str, ViewClasses], list[Places]]:
    """The union of the classes, and per part the new numbers of its classes.

    same : by column, which vectors without label of the first part those of the second are; None: others
    """
    classes: dict[str, ViewClasses] = {}
    numbers: list[Places] = [{} for _ in parts]
    views = parts[0].views
    for column in base_columns(views):
        known = [part.classes[column] for part in parts]
        _check_kinds(column, known, called)
        names, named = merge_names([own.names for own in known])
        # vectors without label are classes of their own, part after part
        ends = list(accumulate((own.anonymous for own in known), initial=len(names)))
        alone = [np.arange(*pair) for pair in pairwise(ends)]
        if same is not None:
            alone[1] = alone[0][same[column]]
        classes[column] = ViewClasses(names, len(np.unique(np.concatenate(alone))))
        for places, own_named, own_alone in zip(numbers, named, alone, strict=True):
            places[column] = np.concatenate([own_named, own_alone])
    for view in views:
        if ":" not in view:
            continue
        cells = []
        for part, places in zip(parts, numbers, strict=True):
            own = cells_of(part.classes[view])
            columns = [places[c][own[:, i]] for i, c in enumerate(parts_of(view))]
            cells.append(np.stack(columns, axis=1))
        union, which = distinct_rows(list(np.concatenate(cells).T))
        classes[view] = interaction(union)
        for places, found in zip(numbers, _split(which, cells), strict=True):
            places[view] = found
    return classes, numbers


def merge_names(lists: Sequence[Names]) -> tuple[Names, list[IntArray]]:
    """The union of sorted lists of names, and the place of every list's names in it."""
    filled = [names for names in lists if len(names)]
    joined = np.concatenate(filled or lists[:1])
    # Asked for the first places, NumPy sorts stably, and that merges runs that are sorted already.
    union, _, places = np.unique(joined, return_index=True, return_inverse=True)
    return union, _split(places.reshape(-1), lists)


def _split(values: IntArray, lists: Sequence[Names]) -> list[IntArray]:
    return np.split(values, np.cumsum([len(own) for own in lists])[:-1])


def _check_kinds(column: str, known: Sequence[ViewClasses], called: Sequence[str]) -> None:
    named = [
        (kind_of(c.names), name) for c, name in zip(known, called, strict=True) if len(c.names)
    ]
    for kind, name in named[1:]:
        first, other = named[0]
        if kind != first:
            raise LabelError(
                f"classes of view {column!r} are {first} in one part and {kind} in the other ({other}, {name}): "
                "gather both parts with labels of one type"
            )


def cells_of(classes: ViewClasses) -> IntArray:
    """(classes, parts) class numbers of the parts; a base view is its own only part."""
    if classes.cells is None:
        return np.arange(len(classes))[:, None]
    return classes.cells


def class_name(classes: Mapping[str, ViewClasses], view: str, number: int) -> str:
    """A class in words."""
    known = classes[view]
    if known.cells is not None:
        cell = zip(parts_of(view), known.cells[number], strict=True)
        return " with ".join(class_name(classes, column, int(c)) for column, c in cell)
    name = repr(known.names[number].item()) if number < len(known.names) else "without label"
    return f"{view} {name}"


def without_empty_classes(statistics: SufficientStatistics) -> SufficientStatistics:
    """The same statistics without classes that have no vector, numbered anew."""
    kept = {view: np.flatnonzero(counts) for view, counts in statistics.counts.items()}
    if all(len(rows) == len(statistics.counts[view]) for view, rows in kept.items()):
        return statistics
    cells = {view: cells_of(statistics.classes[view])[rows] for view, rows in kept.items()}
    classes: dict[str, ViewClasses] = {}
    used: dict[str, IntArray] = {}
    for column in base_columns(statistics.views):
        # every vector has a class in any view that the column is part of
        view = next(v for v in (column, *cells) if v in cells and column in parts_of(v))
        used[column] = np.unique(cells[view][:, parts_of(view).index(column)])
        names = statistics.classes[column].names
        named = used[column][used[column] < len(names)]
        classes[column] = ViewClasses(names[named], len(used[column]) - len(named))
    for view in statistics.views:
        if ":" in view:
            columns = [
                np.searchsorted(used[c], cells[view][:, i]) for i, c in enumerate(parts_of(view))
            ]
            classes[view] = interaction(np.stack(columns, axis=1))
    return replace(
        statistics,
        classes=classes,
        counts={view: statistics.counts[view][rows] for view, rows in kept.items()},
        sums={view: statistics.sums[view][rows] for view, rows in kept.items()},
        cooccurrence={
            (a, b): table[kept[a]][:, kept[b]].tocsr()
            for (a, b), table in statistics.cooccurrence.items()
        },
    )
