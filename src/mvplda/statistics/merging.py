"""Statistics of many parts, added at once: every class dictionary is sorted once, not once a part.

Memory: the result, twice the names of all parts, and a copy of one part where its origin is another.
Time: linear in the classes and cells of all parts, but for a merge of their sorted names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ..exceptions import DataError, LabelError, ParameterError
from ..labels import IntArray, ViewClasses, base_columns, parts_of, row_keys
from .record import SufficientStatistics


def merge(parts: Sequence[SufficientStatistics], names: Sequence[str] | None = None) -> SufficientStatistics:
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
        columns = np.concatenate([p[b][table.col] for p, table in zip(numbers, tables, strict=True)])
        data = np.concatenate([table.data for table in tables])
        shape = (len(classes[a]), len(classes[b]))
        pairs[a, b] = sparse.coo_array((data, (rows, columns)), shape=shape).tocsr()
    return SufficientStatistics(views, n, first.origin, total, scatter, classes, counts, sums, pairs)


def _check_alike(a: SufficientStatistics, b: SufficientStatistics, which: str) -> None:
    if a.dimension != b.dimension:
        raise DataError(f"statistics of width {a.dimension} and {b.dimension} cannot be added ({which})")
    if set(a.views) != set(b.views):
        raise LabelError(f"statistics of views {a.views} and {b.views} cannot be added ({which})")
    if a.second_moment != b.second_moment:
        raise ParameterError(f"statistics with full and with diagonal second moments cannot be added ({which})")


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
            np.stack([place[c][cells_of(part, view)[:, i]] for i, c in enumerate(columns)], axis=1)
            for part, place in zip(parts, numbers, strict=True)
        ]
        rows = np.concatenate(cells)
        keys = row_keys([rows[:, i] for i in range(len(columns))], [len(classes[c]) for c in columns])
        _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
        classes[view] = ViewClasses(np.empty(0, dtype=np.int64), 0, rows[first])
        ends = np.cumsum([len(c) for c in cells])[:-1]
        for place, found in zip(numbers, np.split(inverse.reshape(-1), ends), strict=True):
            place[view] = found
    return classes, numbers


def merge_names(lists: Sequence[NDArray[Any]]) -> tuple[NDArray[Any], list[IntArray]]:
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


def _check_kinds(column: str, lists: Sequence[NDArray[Any]], called: Sequence[str]) -> None:
    kinds = [(kind_of(names), name) for names, name in zip(lists, called, strict=True) if len(names)]
    for kind, name in kinds[1:]:
        if kind != kinds[0][0]:
            raise LabelError(
                f"classes of view {column!r} are {kinds[0][0]} in one part and {kind} in the other "
                f"({kinds[0][1]}, {name}): gather both parts with labels of one type"
            )


def kind_of(names: NDArray[Any]) -> str:
    """What the names of classes are, in a word."""
    return {"U": "text", "S": "bytes", "M": "dates", "m": "durations"}.get(names.dtype.kind, "numbers")


def cells_of(statistics: SufficientStatistics, view: str) -> IntArray:
    """Class numbers of the parts of every class of an interaction."""
    cells = statistics.classes[view].cells
    assert cells is not None
    return cells
