"""Vectors taken out of statistics, as though they had never been in.

What is left of a sum after a subtraction carries the rounding of both: with float64 vectors
about 1e-16 of what was there before, with float32 vectors about 1e-7.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy import sparse

from .._typing import Array, IntArray
from ..exceptions import DataError, LabelError
from ..labels import ViewClasses, base_columns, parts_of, row_keys
from .record import SufficientStatistics, _check_alike, cells_of, kind_of

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
        raise DataError(f"{part.n} vectors cannot be taken out of {whole.n}: at least one must be left")
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
            raise DataError(f"the vectors to subtract of {which} are not those that were added: their sums differ")
        kept[view] = np.flatnonzero(~gone)
    pairs = {}
    for a, b in whole.cooccurrence:
        theirs = part.together(a, b).tocoo()
        places = (numbers[a][theirs.row], numbers[b][theirs.col])
        table = whole.cooccurrence[a, b]
        difference = (table - sparse.coo_array((theirs.data, places), shape=table.shape).tocsr()).tocsr()
        if difference.nnz and difference.data.min() < 0:
            worst = difference.tocoo()
            at = int(worst.data.argmin())
            which = f"{class_name(whole, a, int(worst.row[at]))} and {class_name(whole, b, int(worst.col[at]))}"
            raise DataError(f"{-worst.data[at]:.0f} vector(s) too many are to be subtracted of {which} together")
        difference = difference[kept[a]][:, kept[b]].tocsr()
        difference.eliminate_zeros()
        pairs[a, b] = difference
    scatter = whole.scatter - part.scatter
    squares = scatter if scatter.ndim == 1 else scatter.diagonal()
    if (squares < -CLOSE * whole.n * spread**2).any():
        raise DataError("the vectors to subtract are not among those that were added: their squares are larger")
    return SufficientStatistics(
        whole.views,
        whole.n - part.n,
        whole.origin,
        whole.total - part.total,
        scatter,
        _remaining_classes(whole, kept),
        {view: counts[view][kept[view]] for view in whole.views},
        {view: sums[view][kept[view]] for view in whole.views},
        pairs,
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
        named = np.searchsorted(mine.names, theirs.names) if len(mine.names) else np.zeros(len(theirs.names), np.int64)
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
    mine = cells_of(whole, view)
    theirs = np.stack([numbers[c][cells_of(part, view)[:, i]] for i, c in enumerate(columns)], axis=1)
    both = np.concatenate([mine, theirs])
    keys = row_keys([both[:, i] for i in range(len(columns))], [len(whole.classes[c]) for c in columns])
    order = np.argsort(keys[: len(mine)])
    ordered = keys[: len(mine)][order]
    found = np.minimum(np.searchsorted(ordered, keys[len(mine) :]), len(mine) - 1)
    known = ordered[found] == keys[len(mine) :]
    if not known.all():
        first = int((~known).argmax())
        cell = zip(columns, theirs[first], strict=True)
        which = " with ".join(class_name(whole, column, int(c)) for column, c in cell)
        raise LabelError(f"{int((~known).sum())} class(es) of {view!r} to subtract are not there, the first is {which}")
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
            raise LabelError(f"a vector to subtract that has no label of {column!r} is not among those added")
        free[nearest] = False
        found.append(first + nearest)
    return np.array(found, dtype=np.int64)


def _remaining_classes(whole: SufficientStatistics, kept: dict[str, IntArray]) -> dict[str, ViewClasses]:
    classes: dict[str, ViewClasses] = {}
    ranks: dict[str, IntArray] = {}
    for column in base_columns(whole.views):
        if column in kept:
            left = kept[column]
        else:  # known from the cells alone
            cells = [(v, parts_of(v).index(column)) for v in whole.views if column in parts_of(v)]
            left = np.unique(np.concatenate([cells_of(whole, v)[kept[v], i] for v, i in cells]))
        names = whole.classes[column].names
        named = left[left < len(names)]
        classes[column] = ViewClasses(names[named], len(left) - len(named))
        ranks[column] = np.zeros(len(whole.classes[column]), dtype=np.int64)
        ranks[column][left] = np.arange(len(left))
    for view in whole.views:
        if ":" in view:
            cells_left = cells_of(whole, view)[kept[view]]
            cells_new = np.stack([ranks[c][cells_left[:, i]] for i, c in enumerate(parts_of(view))], axis=1)
            classes[view] = replace(whole.classes[view], cells=cells_new)
    return classes
