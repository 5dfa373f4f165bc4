"""Statistics added and subtracted, also where the parts know different classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse

from .._typing import Array, IntArray, Names
from ..backend import diagonal_of
from ..exceptions import DataError, LabelError, ParameterError
from ..labels import ViewClasses, base_columns, parts_of, row_keys
from .accumulator import kind_of

if TYPE_CHECKING:
    from .record import SufficientStatistics

# Statistics of many parts, added at once: every class dictionary is sorted once, not once a part.
#
# Memory: the result, twice the names of all parts, and a copy of one part where its origin is another.
# Time: linear in the classes and cells of all parts, but for a merge of their sorted names.


def merge(
    parts: Sequence[SufficientStatistics], names: Sequence[str] | None = None
) -> SufficientStatistics:
    """The statistics of all vectors behind the parts; about the origin of the first.

    Parameters
    ----------
    parts : at least one; they may know different classes
    names : of the parts, for errors
    """
    if not parts:
        raise ParameterError("there are no statistics to merge: give at least one")
    first = parts[0]
    called = [f"part {i + 1}" for i in range(len(parts))] if names is None else list(names)
    for part, name in zip(parts[1:], called[1:], strict=True):
        _check_alike(first, part, f"{called[0]} and {name}")
    if len(parts) == 1:
        return first
    classes, numbers = _merge_classes(parts, called)
    views = first.views
    n, total, scatter = 0, np.zeros_like(first.total), np.zeros_like(first.scatter)
    counts = {view: np.zeros(len(classes[view])) for view in views}
    sums = {view: np.zeros((len(classes[view]), first.dimension)) for view in views}
    for part, places in zip(parts, numbers, strict=True):
        moved = part.about(first.origin)
        n, total, scatter = n + moved.n, total + moved.total, scatter + moved.scatter
        for view in views:
            counts[view][places[view]] += moved.counts[view]
            sums[view][places[view]] += moved.sums[view]
    pairs = {}
    for a, b in first.cooccurrence:
        tables = [part.together(a, b).tocoo() for part in parts]
        rows = np.concatenate([p[a][table.row] for p, table in zip(numbers, tables, strict=True)])
        columns = np.concatenate(
            [p[b][table.col] for p, table in zip(numbers, tables, strict=True)]
        )
        data = np.concatenate([table.data for table in tables])
        shape = (len(classes[a]), len(classes[b]))
        pairs[a, b] = sparse.coo_array((data, (rows, columns)), shape=shape).tocsr()
    return replace(
        first,
        n=n,
        total=total,
        scatter=scatter,
        classes=classes,
        counts=counts,
        sums=sums,
        cooccurrence=pairs,
        log_weights=sum(part.log_weights for part in parts),
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


def _merge_classes(
    parts: Sequence[SufficientStatistics], called: Sequence[str]
) -> tuple[dict[str, ViewClasses], list[dict[str, IntArray]]]:
    """The union of the classes, and per part the new numbers of its classes."""
    classes: dict[str, ViewClasses] = {}
    numbers: list[dict[str, IntArray]] = [{} for _ in parts]
    views = parts[0].views
    for column in base_columns(views):
        known = [part.classes[column] for part in parts]
        _check_kinds(column, [c.names for c in known], called)
        names, places = merge_names([c.names for c in known])
        anonymous = len(names)
        for place, c, found in zip(numbers, known, places, strict=True):
            place[column] = np.concatenate([found, anonymous + np.arange(c.anonymous)])
            anonymous += c.anonymous
        classes[column] = ViewClasses(names, anonymous - len(names))
    for view in views:
        if ":" not in view:
            continue
        columns = parts_of(view)
        cells = [
            np.stack(
                [place[c][_cells(part.classes, view)[:, i]] for i, c in enumerate(columns)], axis=1
            )
            for part, place in zip(parts, numbers, strict=True)
        ]
        rows = np.concatenate(cells)
        keys = row_keys(
            [rows[:, i] for i in range(len(columns))], [len(classes[c]) for c in columns]
        )
        _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
        classes[view] = ViewClasses(np.empty(0, dtype=np.int64), 0, rows[first])
        ends = np.cumsum([len(c) for c in cells])[:-1]
        for place, found in zip(numbers, np.split(inverse.reshape(-1), ends), strict=True):
            place[view] = found
    return classes, numbers


def merge_names(lists: Sequence[Names]) -> tuple[Names, list[IntArray]]:
    """The union of sorted lists of names, and the place of every list's names in it."""
    filled = [names for names in lists if len(names)]
    if not filled:
        return lists[0], [np.empty(0, dtype=np.int64) for _ in lists]
    if all(np.array_equal(names, filled[0]) for names in filled[1:]):
        return filled[0], [np.arange(len(names)) for names in lists]
    joined = np.concatenate(filled)
    order = np.argsort(joined, kind="stable")  # merges runs that are sorted already
    ordered = joined[order]
    new = np.concatenate([[True], ordered[1:] != ordered[:-1]])
    places = np.empty(len(joined), dtype=np.int64)
    places[order] = np.cumsum(new) - 1
    return ordered[new], np.split(places, np.cumsum([len(names) for names in lists])[:-1])


def _check_kinds(column: str, lists: Sequence[Names], called: Sequence[str]) -> None:
    kinds = [
        (kind_of(names), name) for names, name in zip(lists, called, strict=True) if len(names)
    ]
    for kind, name in kinds[1:]:
        if kind != kinds[0][0]:
            raise LabelError(
                f"classes of view {column!r} are {kinds[0][0]} in one part and {kind} in the other "
                f"({kinds[0][1]}, {name}): gather both parts with labels of one type"
            )


def _cells(classes: Mapping[str, ViewClasses], view: str) -> IntArray:
    """Class numbers of the parts of every class of an interaction."""
    cells = classes[view].cells
    assert cells is not None
    return cells


# Vectors taken out of statistics, as though they had never been in.
#
# What is left of a sum after a subtraction carries the rounding of both: with float64 vectors
# about 1e-16 of what was there before, with float32 vectors about 1e-7.


CLOSE = 1e-4
"""Vectors of two statistics are the same up to this part of their spread (float32, about other origins)."""


def subtract(whole: SufficientStatistics, part: SufficientStatistics) -> SufficientStatistics:
    """The statistics of the vectors of `whole` that are not in `part`.

    Raises
    ------
    DataError, LabelError
        Something in `part` is not in `whole`: a class, a cell, or more vectors of one.
    """
    _check_alike(whole, part, "the whole and the part to subtract")
    part = part.about(whole.origin)
    if part.n >= whole.n:
        raise DataError(
            f"{part.n} vectors cannot be taken out of {whole.n}: at least one must be left"
        )
    numbers = _places(whole, part)
    counts: dict[str, Array] = {}
    sums: dict[str, Array] = {}
    kept: dict[str, IntArray] = {}
    spread = np.sqrt(whole.variance + (whole.total / whole.n) ** 2)
    for view in whole.views:
        counts[view], sums[view] = whole.counts[view].copy(), whole.sums[view].copy()
        np.subtract.at(counts[view], numbers[view], part.counts[view])
        np.subtract.at(sums[view], numbers[view], part.sums[view])
        if counts[view].min() < 0:
            _refuse(whole, view, int(counts[view].argmin()), -counts[view].min())
        gone = counts[view] == 0
        left = np.abs(sums[view][gone]) > CLOSE * spread * whole.counts[view][gone][:, None]
        if left.any():
            which = class_name(whole, view, int(np.flatnonzero(gone)[left.any(axis=1).argmax()]))
            raise DataError(
                f"the vectors to subtract of {which} are not those that were added: their sums differ"
            )
        kept[view] = np.flatnonzero(~gone)
    pairs = {}
    for a, b in whole.cooccurrence:
        theirs = part.together(a, b).tocoo()
        places = (numbers[a][theirs.row], numbers[b][theirs.col])
        table = whole.cooccurrence[a, b]
        difference = (
            table - sparse.coo_array((theirs.data, places), shape=table.shape).tocsr()
        ).tocsr()
        if difference.nnz and difference.data.min() < 0:
            worst = difference.tocoo()
            at = int(worst.data.argmin())
            which = f"{class_name(whole, a, int(worst.row[at]))} and {class_name(whole, b, int(worst.col[at]))}"
            raise DataError(
                f"{-worst.data[at]:.0f} vector(s) too many are to be subtracted of {which} together"
            )
        difference = difference[kept[a]][:, kept[b]].tocsr()
        difference.eliminate_zeros()
        pairs[a, b] = difference
    scatter = whole.scatter - part.scatter
    if (diagonal_of(scatter) < -CLOSE * whole.n * spread**2).any():
        raise DataError(
            "the vectors to subtract are not among those that were added: their squares are larger"
        )
    return replace(
        whole,
        n=whole.n - part.n,
        total=whole.total - part.total,
        scatter=scatter,
        classes=remaining_classes(whole.views, whole.classes, kept),
        counts={view: counts[view][kept[view]] for view in whole.views},
        sums={view: sums[view][kept[view]] for view in whole.views},
        cooccurrence=pairs,
        log_weights=whole.log_weights - part.log_weights,
    )


def class_name(statistics: SufficientStatistics, view: str, number: int) -> str:
    """A class in words."""
    classes = statistics.classes[view]
    if classes.cells is not None:
        cell = zip(parts_of(view), classes.cells[number], strict=True)
        return " with ".join(class_name(statistics, column, int(c)) for column, c in cell)
    name = repr(classes.names[number].item()) if number < len(classes.names) else "without label"
    return f"{view} {name}"


def _refuse(whole: SufficientStatistics, view: str, number: int, excess: float) -> None:
    raise DataError(
        f"{excess:.0f} vector(s) too many are to be subtracted of {class_name(whole, view, number)}, "
        f"which has {whole.counts[view][number]:.0f}: they were not all added"
    )


def _places(whole: SufficientStatistics, part: SufficientStatistics) -> dict[str, IntArray]:
    """The number in `whole` of every class of `part`."""
    numbers: dict[str, IntArray] = {}
    for column in base_columns(whole.views):
        mine, theirs = whole.classes[column], part.classes[column]
        named = (
            np.searchsorted(mine.names, theirs.names)
            if len(mine.names)
            else np.zeros(len(theirs.names), np.int64)
        )
        if len(theirs.names) and len(mine.names) and kind_of(mine.names) != kind_of(theirs.names):
            raise LabelError(
                f"classes of view {column!r} are {kind_of(mine.names)}, those to subtract are {kind_of(theirs.names)}"
            )
        known = np.zeros(len(theirs.names), dtype=bool)
        inside = named < len(mine.names)
        known[inside] = mine.names[named[inside]] == theirs.names[inside]
        if not known.all():
            raise LabelError(
                f"{int((~known).sum())} class(es) of view {column!r} to subtract are not there, "
                f"the first is {theirs.names[~known][0].item()!r}"
            )
        numbers[column] = np.concatenate([named, _same_vectors(whole, part, column)])
    for view in whole.views:
        if ":" in view:
            numbers[view] = _cell_places(whole, part, view, numbers)
    return numbers


def _cell_places(
    whole: SufficientStatistics, part: SufficientStatistics, view: str, numbers: dict[str, IntArray]
) -> IntArray:
    columns = parts_of(view)
    mine = _cells(whole.classes, view)
    theirs = np.stack(
        [numbers[c][_cells(part.classes, view)[:, i]] for i, c in enumerate(columns)], axis=1
    )
    both = np.concatenate([mine, theirs])
    keys = row_keys(
        [both[:, i] for i in range(len(columns))], [len(whole.classes[c]) for c in columns]
    )
    order = np.argsort(keys[: len(mine)])
    ordered = keys[: len(mine)][order]
    found = np.minimum(np.searchsorted(ordered, keys[len(mine) :]), len(mine) - 1)
    known = ordered[found] == keys[len(mine) :]
    if not known.all():
        first = int((~known).argmax())
        cell = zip(columns, theirs[first], strict=True)
        which = " with ".join(class_name(whole, column, int(c)) for column, c in cell)
        raise LabelError(
            f"{int((~known).sum())} class(es) of {view!r} to subtract are not there, the first is {which}"
        )
    return order[found]


def _same_vectors(whole: SufficientStatistics, part: SufficientStatistics, column: str) -> IntArray:
    """For vectors without label, each a class of its own: which ones of `whole` they are, by their numbers."""
    theirs = part.classes[column]
    if theirs.anonymous == 0:
        return np.empty(0, dtype=np.int64)
    if column not in whole.views:
        raise LabelError(
            f"{theirs.anonymous} vector(s) to subtract have no label of {column!r} and cannot be found again: "
            f"that needs {column!r} among the views"
        )
    first = len(whole.classes[column].names)
    pool = whole.sums[column][first:]
    free = np.ones(len(pool), dtype=bool)
    reach = CLOSE**2 * float((whole.variance + (whole.total / whole.n) ** 2).sum())
    found = []
    for row in part.sums[column][len(theirs.names) :]:
        distance = np.where(free, np.einsum("nd,nd->n", pool - row, pool - row), np.inf)
        nearest = int(distance.argmin()) if len(distance) else -1
        if nearest < 0 or distance[nearest] > reach:
            raise LabelError(
                f"a vector to subtract that has no label of {column!r} is not among those added"
            )
        free[nearest] = False
        found.append(first + nearest)
    return np.array(found, dtype=np.int64)


def remaining_classes(
    views: Sequence[str], known: Mapping[str, ViewClasses], kept: Mapping[str, IntArray]
) -> dict[str, ViewClasses]:
    """The classes of every view with these numbers, numbered anew, and those of the columns that they need."""
    classes: dict[str, ViewClasses] = {}
    ranks: dict[str, IntArray] = {}
    for column in base_columns(views):
        if column in kept:
            left = kept[column]
        else:  # known from the cells alone
            cells = [(v, parts_of(v).index(column)) for v in views if column in parts_of(v)]
            left = np.unique(np.concatenate([_cells(known, v)[kept[v], i] for v, i in cells]))
        names = known[column].names
        named = left[left < len(names)]
        classes[column] = ViewClasses(names[named], len(left) - len(named))
        ranks[column] = np.zeros(len(known[column]), dtype=np.int64)
        ranks[column][left] = np.arange(len(left))
    for view in views:
        if ":" in view:
            cells_left = _cells(known, view)[kept[view]]
            cells_new = np.stack(
                [ranks[c][cells_left[:, i]] for i, c in enumerate(parts_of(view))], axis=1
            )
            classes[view] = replace(known[view], cells=cells_new)
    return classes
