"""Statistics added and subtracted, also where the parts know different classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse

from .._typing import IntArray, Names
from ..backend import diagonal_of
from ..exceptions import DataError, LabelError, ParameterError
from ..labels import ViewClasses, base_columns, parts_of, row_keys
from .accumulator import kind_of

if TYPE_CHECKING:
    from .record import SufficientStatistics

CLOSE = 1e-4
"""Vectors of two statistics are the same up to this part of their spread (float32, about other origins)."""


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
    called = [f"part {i + 1}" for i in range(len(parts))] if names is None else list(names)
    for part, name in zip(parts[1:], called[1:], strict=True):
        _check_alike(parts[0], part, f"{called[0]} and {name}")
    if len(parts) == 1:
        return parts[0]
    classes, numbers = _merge_classes(parts, called)
    return _signed_sum(parts, [1] * len(parts), classes, numbers)


def subtract(whole: SufficientStatistics, part: SufficientStatistics) -> SufficientStatistics:
    """The statistics of the vectors of `whole` that are not in `part`, as though these had never been in.

    What is left of a sum carries the rounding of both: with float64 vectors about 1e-16 of what was there before, with
    float32 vectors about 1e-7.

    Raises
    ------
    DataError, LabelError
        Something in `part` is not in `whole`: a class, a cell, or more vectors of one.
    """
    called = ("the whole", "the part to subtract")
    _check_alike(whole, part, " and ".join(called))
    if part.n >= whole.n:
        raise DataError(
            f"{part.n} vectors cannot be taken out of {whole.n}: at least one must be left"
        )
    part = part.about(whole.origin)
    unlabelled = {
        column: _same_vectors(whole, part, column) for column in base_columns(whole.views)
    }
    classes, numbers = _merge_classes([whole, part], called, unlabelled)
    _check_known(whole, part, classes, numbers[1])
    result = _signed_sum([whole, part], [1, -1], classes, numbers)
    spread = np.sqrt(whole.variance + (whole.total / whole.n) ** 2)
    kept: dict[str, IntArray] = {}
    for view in whole.views:
        counts = result.counts[view]
        worst = int(counts.argmin())
        if counts[worst] < 0:
            raise DataError(
                f"{-counts[worst]:.0f} vector(s) too many are to be subtracted of {class_name(whole, view, worst)}, "
                f"which has {whole.counts[view][worst]:.0f}: they were not all added"
            )
        gone = np.flatnonzero(counts == 0)
        left = np.abs(result.sums[view][gone]) > CLOSE * spread * whole.counts[view][gone, None]
        if left.any():
            which = class_name(whole, view, int(gone[left.any(axis=1).argmax()]))
            raise DataError(
                f"the vectors to subtract of {which} are not those that were added: their sums differ"
            )
        kept[view] = np.flatnonzero(counts)
    pairs = {}
    for (a, b), table in result.cooccurrence.items():
        table.eliminate_zeros()
        if table.nnz and table.data.min() < 0:
            entries = table.tocoo()
            at = int(entries.data.argmin())
            first = class_name(whole, a, int(entries.row[at]))
            second = class_name(whole, b, int(entries.col[at]))
            raise DataError(
                f"{-entries.data[at]:.0f} vector(s) too many are to be subtracted of {first} and {second} together"
            )
        pairs[a, b] = table[kept[a]][:, kept[b]].tocsr()
    if (diagonal_of(result.scatter) < -CLOSE * whole.n * spread**2).any():
        raise DataError(
            "the vectors to subtract are not among those that were added: their squares are larger"
        )
    return replace(
        result,
        classes=remaining_classes(whole.views, whole.classes, kept),
        counts={view: result.counts[view][rows] for view, rows in kept.items()},
        sums={view: result.sums[view][rows] for view, rows in kept.items()},
        cooccurrence=pairs,
    )


def _signed_sum(
    parts: Sequence[SufficientStatistics],
    signs: Sequence[int],
    classes: dict[str, ViewClasses],
    numbers: Sequence[Mapping[str, IntArray]],
) -> SufficientStatistics:
    """The sum of all parts, each times its sign; `numbers` are those of every part's classes among all `classes`."""
    first = parts[0]
    n = 0
    log_weights = 0.0
    total = np.zeros_like(first.total)
    scatter = np.zeros_like(first.scatter)
    counts = {view: np.zeros(len(classes[view])) for view in first.views}
    sums = {view: np.zeros((len(classes[view]), first.dimension)) for view in first.views}
    entries: dict[tuple[str, str], list[sparse.coo_array]] = {
        pair: [] for pair in first.cooccurrence
    }
    for part, sign, places in zip(parts, signs, numbers, strict=True):
        moved = part.about(first.origin)
        n += sign * moved.n
        log_weights += sign * moved.log_weights
        total += sign * moved.total
        scatter += sign * moved.scatter
        for view in first.views:
            counts[view][places[view]] += sign * moved.counts[view]
            own = moved.sums[view]
            sums[view][places[view]] += (
                own if sign > 0 else -own
            )  # without a copy where they are added
        for a, b in entries:
            table = part.together(a, b).tocoo()
            where = (places[a][table.row], places[b][table.col])
            shape = (len(classes[a]), len(classes[b]))
            entries[a, b].append(sparse.coo_array((sign * table.data, where), shape=shape))
    pairs = {}
    for pair, tables in entries.items():
        rows = np.concatenate([table.row for table in tables])
        columns = np.concatenate([table.col for table in tables])
        data = np.concatenate([table.data for table in tables])
        pairs[pair] = sparse.coo_array((data, (rows, columns)), shape=tables[0].shape).tocsr()
    return replace(
        first,
        n=n,
        total=total,
        scatter=scatter,
        classes=classes,
        counts=counts,
        sums=sums,
        cooccurrence=pairs,
        log_weights=log_weights,
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
    parts: Sequence[SufficientStatistics],
    called: Sequence[str],
    unlabelled: Mapping[str, IntArray] | None = None,
) -> tuple[dict[str, ViewClasses], list[dict[str, IntArray]]]:
    """The union of the classes, and per part the new numbers of its classes.

    unlabelled : by column, which vectors without label of the first part those of the second are; None: others
    """
    classes: dict[str, ViewClasses] = {}
    numbers: list[dict[str, IntArray]] = [{} for _ in parts]
    views = parts[0].views
    for column in base_columns(views):
        known = [part.classes[column] for part in parts]
        _check_kinds(column, known, called)
        names, places = merge_names([c.names for c in known])
        end = len(names)
        for i, (place, c, found) in enumerate(zip(numbers, known, places, strict=True)):
            anonymous = end + np.arange(c.anonymous)
            if i and unlabelled is not None:
                anonymous = len(names) + unlabelled[column]
            else:
                end += c.anonymous
            place[column] = np.concatenate([found, anonymous])
        classes[column] = ViewClasses(names, end - len(names))
    for view in views:
        if ":" not in view:
            continue
        columns = parts_of(view)
        cells = []
        for part, place in zip(parts, numbers, strict=True):
            own = _cells(part.classes, view)
            cells.append(np.stack([place[c][own[:, i]] for i, c in enumerate(columns)], axis=1))
        rows = np.concatenate(cells)
        keys = row_keys(list(rows.T), [len(classes[c]) for c in columns])
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


def _check_kinds(column: str, known: Sequence[ViewClasses], called: Sequence[str]) -> None:
    kinds = [
        (kind_of(c.names), name) for c, name in zip(known, called, strict=True) if len(c.names)
    ]
    for kind, name in kinds[1:]:
        if kind != kinds[0][0]:
            raise LabelError(
                f"classes of view {column!r} are {kinds[0][0]} in one part and {kind} in the other "
                f"({kinds[0][1]}, {name}): gather both parts with labels of one type"
            )


def _check_known(
    whole: SufficientStatistics,
    part: SufficientStatistics,
    classes: Mapping[str, ViewClasses],
    numbers: Mapping[str, IntArray],
) -> None:
    """Refuse classes of a part that are not in the whole, so that both together have more."""
    for view in (*base_columns(whole.views), *whole.views):
        more = len(classes[view]) - len(whole.classes[view])
        if more:
            mine = {class_name(whole, view, c) for c in range(len(whole.classes[view]))}
            theirs = [class_name(part, view, c) for c in range(len(numbers[view]))]
            first = next(name for name in theirs if name not in mine)
            raise LabelError(
                f"{more} class(es) of {view!r} to subtract are not there, the first is {first}"
            )


def _cells(classes: Mapping[str, ViewClasses], view: str) -> IntArray:
    """Class numbers of the parts of every class of an interaction."""
    cells = classes[view].cells
    assert cells is not None
    return cells


def class_name(statistics: SufficientStatistics, view: str, number: int) -> str:
    """A class in words."""
    classes = statistics.classes[view]
    if classes.cells is not None:
        cell = zip(parts_of(view), classes.cells[number], strict=True)
        return " with ".join(class_name(statistics, column, int(c)) for column, c in cell)
    name = repr(classes.names[number].item()) if number < len(classes.names) else "without label"
    return f"{view} {name}"


def _same_vectors(whole: SufficientStatistics, part: SufficientStatistics, column: str) -> IntArray:
    """For vectors without label, each a class of its own: which of those of `whole` they are, by their sums."""
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
        found.append(nearest)
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
