"""Names of classes as they come batch by batch, and statistics added and subtracted whose classes differ.

`GrowingClasses` numbers names as they appear and sorts them at the end.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse

from .._typing import IntArray, Labels, Names
from ..backend import to_host
from ..exceptions import DataError, LabelError, ParameterError
from ..labels import (
    Classes,
    ViewClasses,
    base_columns,
    distinct,
    distinct_rows,
    encode_labels,
    interaction,
    parts_of,
)

if TYPE_CHECKING:
    from .record import SufficientStatistics

CLOSE = 1e-4
"""Vectors of two statistics are the same up to this part of their spread (float32, about other origins)."""

Places = dict[str, IntArray]
"""Of every column and view, numbers of classes: of a batch's vectors, of a part's classes in a union."""


@dataclass(frozen=True)
class LabelCodes:
    """Labels of a batch in one column: the names that may occur, and which one every vector has (-1: none)."""

    names: Names
    codes: IntArray


def label_codes(values: Labels) -> LabelCodes:
    """Labels in any form, numbered; an empty text is no label."""
    table = encode_labels({"labels": values})
    names = table.classes["labels"].names
    codes = table.codes["labels"]
    return LabelCodes(names, np.where(codes < len(names), codes, -1))


class GrowingClasses:
    """Classes of views, numbered by order of appearance; at the end, sorted."""

    def __init__(self, views: Sequence[str]) -> None:
        keys = dict.fromkeys([*base_columns(views), *views])
        self._known: dict[str, dict[Hashable, int]] = {key: {} for key in keys}

    def number(self, labels: Mapping[str, LabelCodes]) -> Places:
        """Class numbers of a batch's vectors in every label column and view."""
        codes: Places = {}
        for key in self._known:
            if ":" in key:
                cells, places = distinct_rows([codes[part] for part in parts_of(key)])
                codes[key] = self._numbers(key, map(tuple, cells.tolist()))[places]
                continue
            given = labels[key]
            absent = given.codes < 0
            present, places, _ = distinct(given.codes[~absent])
            names = given.names[present]
            # Python's values are quicker to look up; of dates they would be bare numbers
            values = list(names) if names.dtype.kind in "Mm" else names.tolist()
            codes[key] = np.empty(len(absent), dtype=np.int64)
            codes[key][~absent] = self._numbers(key, values)[places]
            # no NaN is another one: a vector without label is a class of its own
            codes[key][absent] = self._numbers(key, [float("nan") for _ in range(absent.sum())])
        return codes

    def _numbers(self, key: str, values: Iterable[Hashable]) -> IntArray:
        known = self._known[key]
        return np.array([known.setdefault(value, len(known)) for value in values], dtype=np.int64)

    def sorted(self) -> tuple[Classes, Places]:
        """The classes of every column and view in sorted order, and the number each had by appearance."""
        classes: Classes = {}
        ranks: Places = {}
        for key, known in self._known.items():
            if ":" in key:
                cells = np.array(list(known))
                parts = [ranks[part][cells[:, i]] for i, part in enumerate(parts_of(key))]
                rows, ranks[key] = distinct_rows(parts)
                classes[key] = interaction(rows)
            else:
                # None, beside which whole numbers stay whole
                values = [None if value != value else value for value in known]
                table = encode_labels({key: values})
                classes[key] = table.classes[key]
                ranks[key] = table.codes[key]
        return classes, {key: np.argsort(own) for key, own in ranks.items()}


KINDS = {"U": "text", "S": "bytes", "M": "dates", "m": "durations"}


def check_kinds(column: str, lists: Sequence[Names], called: Sequence[str]) -> None:
    """Refuse names of classes that are text here and numbers there; called : where, for the error."""
    found: dict[str, str] = {}
    for names, where in zip(lists, called, strict=True):
        if len(names):
            found.setdefault(KINDS.get(names.dtype.kind, "numbers"), where)
    if len(found) > 1:
        raise LabelError(
            f"labels of {column!r} are {' and '.join(found)} ({', '.join(found.values())}): give them one type"
        )


# Classes of several statistics.


def union_of_classes(
    views: Sequence[str], parts: Sequence[Classes], called: Sequence[str]
) -> tuple[Classes, list[Places]]:
    """The union of the classes of some statistics, and per part the new numbers of its classes.

    called : names of the parts, for errors
    """
    classes: Classes = {}
    numbers: list[Places] = [{} for _ in parts]
    for column in base_columns(views):
        known = [part[column] for part in parts]
        lists = [own.names for own in known]
        check_kinds(column, lists, called)
        names, named = merge_names(lists)
        # vectors without label are classes of their own, part after part
        end = len(names)
        for places, own, own_named in zip(numbers, known, named, strict=True):
            places[column] = np.append(own_named, np.arange(end, end + own.anonymous))
            end += own.anonymous
        classes[column] = ViewClasses(names, end - len(names))
    for view in views:
        if ":" not in view:
            continue
        cells = []
        for part, places in zip(parts, numbers, strict=True):
            numbered = cells_of(part[view])
            columns = [places[c][numbered[:, i]] for i, c in enumerate(parts_of(view))]
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


def cells_of(classes: ViewClasses) -> IntArray:
    """(classes, parts) class numbers of the parts; a base view is its own only part."""
    if classes.cells is None:
        return np.arange(len(classes))[:, None]
    return classes.cells


# Statistics added, also where the parts know different classes.


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
    """
    if any(part.classes[column].anonymous for column in base_columns(part.views)):
        raise LabelError("vectors to subtract have no label, and cannot be found again by a name")
    result = _signed_sum([whole, part], [1, -1], ["the whole", "the part to subtract"])
    tables = [table.data for table in result.cooccurrence.values()]
    fewest = min(float(counts.min(initial=0)) for counts in (*result.counts.values(), *tables))
    if fewest < 0 or result.n < 1:
        raise DataError(
            f"{-fewest:.0f} vector(s) too many are to be subtracted of a class or a cell, or nothing is left: "
            "only what was added can be subtracted"
        )
    spread = np.sqrt(whole.variance + (whole.total / whole.n) ** 2)
    for view, counts in result.counts.items():
        # no class is new here, so that those of the whole have kept their numbers
        most = CLOSE * whole.counts[view][:, None] * spread
        if (np.abs(result.sums[view]) > most)[counts == 0].any():
            raise DataError(
                f"the vectors to subtract are not those that were added: sums of classes of {view!r} differ"
            )
    return without_empty_classes(result)


def _signed_sum(
    parts: Sequence[SufficientStatistics], signs: Sequence[int], called: Sequence[str]
) -> SufficientStatistics:
    """The sum of all parts, each times its sign."""
    first = parts[0]
    for part, name in zip(parts, called, strict=True):
        _check_alike(first, part, f"{called[0]} and {name}")
    classes, numbers = union_of_classes(first.views, [part.classes for part in parts], called)
    total = np.zeros_like(first.total)
    scatter = np.zeros_like(first.scatter)
    counts = {view: np.zeros(len(classes[view])) for view in first.views}
    sums = {view: np.zeros((len(classes[view]), first.dimension)) for view in first.views}
    signed = list(zip(parts, signs, numbers, strict=True))
    for part, sign, places in signed:
        moved = part.about(first.origin)
        total += sign * moved.total
        scatter += sign * moved.scatter
        for view in first.views:
            counts[view][places[view]] += sign * moved.counts[view]
            sums[view][places[view]] += sign * to_host(moved.sums[view])
    pairs: dict[tuple[str, str], sparse.csr_array] = {}
    for a, b in first.cooccurrence:
        shape = (len(classes[a]), len(classes[b]))
        pairs[a, b] = sparse.csr_array(shape)
        for part, sign, places in signed:
            table = part.together(a, b).tocoo()
            where = (places[a][table.row], places[b][table.col])
            pairs[a, b] = pairs[a, b] + sparse.csr_array((sign * table.data, where), shape=shape)
    return replace(
        first,
        n=sum(sign * part.n for part, sign, _ in signed),
        total=total,
        scatter=scatter,
        classes=classes,
        counts=counts,
        sums=sums,
        cooccurrence=pairs,
        sources={},
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


def without_empty_classes(statistics: SufficientStatistics) -> SufficientStatistics:
    """The same statistics without classes that have no vector, numbered anew."""
    kept = {view: np.flatnonzero(counts) for view, counts in statistics.counts.items()}
    if all(len(rows) == len(statistics.counts[view]) for view, rows in kept.items()):
        return statistics
    cells = {view: cells_of(statistics.classes[view])[rows] for view, rows in kept.items()}
    classes: Classes = {}
    used: Places = {}
    for column in base_columns(statistics.views):
        # every vector has a class in any view that the column is part of
        view = next(view for view in cells if column in parts_of(view))
        used[column] = np.unique(cells[view][:, parts_of(view).index(column)])
        names = statistics.classes[column].names
        named = used[column][used[column] < len(names)]
        classes[column] = ViewClasses(names[named], len(used[column]) - len(named))
    for view, numbers in cells.items():
        if ":" in view:
            for i, column in enumerate(parts_of(view)):
                numbers[:, i] = np.searchsorted(used[column], numbers[:, i])
            classes[view] = interaction(numbers)
    return selected(statistics, kept, classes)


def selected(
    statistics: SufficientStatistics,
    rows: Places,
    classes: Classes,
) -> SufficientStatistics:
    """The same statistics with these classes of every view, in this order."""
    pairs = {}
    for (a, b), table in statistics.cooccurrence.items():
        pairs[a, b] = table[rows[a]][:, rows[b]].tocsr()
        pairs[a, b].sort_indices()
    return replace(
        statistics,
        classes=classes,
        counts={view: statistics.counts[view][own] for view, own in rows.items()},
        sums={view: statistics.sums[view][own] for view, own in rows.items()},
        cooccurrence=pairs,
    )
