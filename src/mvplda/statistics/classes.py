"""Classes that appear batch by batch, and sums and differences of statistics with different classes.

`GrowingClasses` numbers class names in order of appearance and sorts them at the end. `merge` and
`subtract` combine the statistics of several shards (parts of a data set).
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
"""Largest difference of class sums that counts as rounding, as a fraction of the spread of the vectors.

It allows for float32 vectors and for statistics about different origins.
"""

ClassNumbers = dict[str, IntArray]
"""Class numbers, {label column or view: array}: one per vector of a batch, or one per class of a shard in a union."""


@dataclass(frozen=True)
class LabelCodes:
    """Labels of n vectors in one label column.

    names : distinct class names
    codes : (n,) position of each vector's class name in `names`; -1: no label
    """

    names: Names
    codes: IntArray


def label_codes(values: Labels) -> LabelCodes:
    """Return labels as names and codes.

    values : (n,) label of each vector, as a list, array or table column; missing values and
        empty texts are no label
    """
    table = encode_labels({"labels": values})
    names = table.classes["labels"].names
    codes = table.codes["labels"]
    return LabelCodes(names, np.where(codes < len(names), codes, -1))


class GrowingClasses:
    """Classes of views, numbered in order of appearance and sorted at the end.

    views : names of the views; interactions such as ``speaker:phrase`` included
    """

    def __init__(self, views: Sequence[str]) -> None:
        keys = dict.fromkeys([*base_columns(views), *views])
        self._numbers_of: dict[str, dict[Hashable, int]] = {key: {} for key in keys}

    def number(self, labels: Mapping[str, LabelCodes]) -> ClassNumbers:
        """Return the class numbers of n vectors in every label column and view.

        New class names get the next free numbers. A vector without a label gets a number of its own.

        labels : {label column: labels of the n vectors}
        return : {label column or view: (n,) class numbers}
        """
        codes: ClassNumbers = {}
        for key in self._numbers_of:
            if ":" in key:
                cells, cell_index = distinct_rows([codes[column] for column in parts_of(key)])
                codes[key] = self._numbers(key, map(tuple, cells.tolist()))[cell_index]
                continue

            column_codes = labels[key]
            absent = column_codes.codes < 0
            present, name_index, _ = distinct(column_codes.codes[~absent])
            names = column_codes.names[present]
            # Python's values are faster to look up, but dates would lose their type.
            values = list(names) if names.dtype.kind in "Mm" else names.tolist()
            codes[key] = np.empty(len(absent), dtype=np.int64)
            codes[key][~absent] = self._numbers(key, values)[name_index]
            # A vector without label is a class of its own: every NaN object is a new key.
            codes[key][absent] = self._numbers(key, [float("nan") for _ in range(absent.sum())])
        return codes

    def _numbers(self, key: str, values: Iterable[Hashable]) -> IntArray:
        """Return the numbers of classes in one label column or view; new classes get new numbers.

        key : label column or view
        values : names, or for interactions tuples of class numbers
        """
        numbers = self._numbers_of[key]
        return np.array(
            [numbers.setdefault(value, len(numbers)) for value in values], dtype=np.int64
        )

    def sorted(self) -> tuple[Classes, ClassNumbers]:
        """Return all classes in sorted order, and the number that each had in order of appearance.

        return : {label column or view: sorted classes}, and {label column or view: (classes,)
            numbers that `number` returned}
        """
        classes: Classes = {}
        ranks: ClassNumbers = {}
        for key, numbers in self._numbers_of.items():
            # base views come first in the dict, so that their ranks are ready
            if ":" in key:
                cells = np.array(list(numbers))
                columns = [ranks[column][cells[:, i]] for i, column in enumerate(parts_of(key))]
                rows, ranks[key] = distinct_rows(columns)
                classes[key] = interaction(rows)
            else:
                # None instead of NaN: NumPy would convert whole numbers beside NaN to floats.
                values = [None if value != value else value for value in numbers]
                table = encode_labels({key: values})
                classes[key] = table.classes[key]
                ranks[key] = table.codes[key]
        return classes, {key: np.argsort(key_ranks) for key, key_ranks in ranks.items()}


KINDS = {"U": "text", "S": "bytes", "M": "dates", "m": "durations"}
"""Plain names of label types by NumPy's kind; all other kinds are numbers."""


def check_kinds(column: str, lists: Sequence[Names], sources: Sequence[str]) -> None:
    """Raise `LabelError` if shards have class names of different types: text, numbers, dates.

    column : name of the label column, for the message
    lists : class names of each shard (part of a data set)
    sources : name of each shard, for the message
    """
    source_of_kind: dict[str, str] = {}
    for names, source in zip(lists, sources, strict=True):
        if len(names):
            source_of_kind.setdefault(KINDS.get(names.dtype.kind, "numbers"), source)
    if len(source_of_kind) > 1:
        raise LabelError(
            f"labels of {column!r} are {' and '.join(source_of_kind)} ({', '.join(source_of_kind.values())}): "
            "convert them to one type"
        )


# Classes of several statistics.


def union_of_classes(
    views: Sequence[str], shard_classes: Sequence[Classes], sources: Sequence[str]
) -> tuple[Classes, list[ClassNumbers]]:
    """Return the union of the classes of several shards, and each shard's class numbers in it.

    views : names of the views
    shard_classes : per shard, {view or label column: its classes}
    sources : names of the shards, for error messages
    return : {view or label column: union of the classes}, and per shard {view or label column:
        (classes of the shard,) numbers in the union}
    """
    classes: Classes = {}
    numbers: list[ClassNumbers] = [{} for _ in shard_classes]
    for column in base_columns(views):
        column_classes = [shard[column] for shard in shard_classes]
        lists = [view_classes.names for view_classes in column_classes]
        check_kinds(column, lists, sources)
        names, name_numbers = merge_names(lists)
        # Vectors without label stay classes of their own, shard after shard.
        end = len(names)
        for shard_numbers, view_classes, shard_names in zip(
            numbers, column_classes, name_numbers, strict=True
        ):
            anonymous = np.arange(end, end + view_classes.anonymous)
            shard_numbers[column] = np.append(shard_names, anonymous)
            end += view_classes.anonymous
        classes[column] = ViewClasses(names, end - len(names))

    # interactions follow, because their cells hold the new numbers of base classes
    for view in views:
        if ":" not in view:
            continue
        cells = []
        for shard, shard_numbers in zip(shard_classes, numbers, strict=True):
            shard_cells = cells_of(shard[view])
            columns = [shard_numbers[c][shard_cells[:, i]] for i, c in enumerate(parts_of(view))]
            cells.append(np.stack(columns, axis=1))
        union, cell_numbers = distinct_rows(list(np.concatenate(cells).T))
        classes[view] = interaction(union)
        for shard_numbers, shard_cells in zip(numbers, _split(cell_numbers, cells), strict=True):
            shard_numbers[view] = shard_cells
    return classes, numbers


def merge_names(lists: Sequence[Names]) -> tuple[Names, list[IntArray]]:
    """Return the sorted union of sorted lists of names, and per list the positions of its names."""
    filled = [names for names in lists if len(names)]
    joined = np.concatenate(filled or lists[:1])
    # With return_index NumPy sorts stably, which merges runs that are sorted already.
    union, _, positions = np.unique(joined, return_index=True, return_inverse=True)
    return union, _split(positions.reshape(-1), lists)


def _split(values: IntArray, lists: Sequence[Names]) -> list[IntArray]:
    """Divide an array into consecutive pieces that have the lengths of the lists."""
    return np.split(values, np.cumsum([len(names) for names in lists])[:-1])


def cells_of(classes: ViewClasses) -> IntArray:
    """Return the class numbers in base views of each class of a view, (classes, base views).

    An interaction such as ``speaker:phrase`` has one column per base view. A base view has a single
    column, 0, 1, ...
    """
    if classes.cells is None:
        return np.arange(len(classes))[:, None]
    return classes.cells


# Sums of statistics with equal or different classes.


def merge(
    shards: Sequence[SufficientStatistics], names: Sequence[str] | None = None
) -> SufficientStatistics:
    """Return the statistics of all vectors of several shards (parts of a data set).

    The origin is that of the first shard. The time is linear in the number of classes and pairs of
    classes of all shards, except for merging their sorted names.

    Parameters
    ----------
    shards : statistics, at least one; their classes may differ
    names : names of the shards, for error messages

    Returns
    -------
    SufficientStatistics
    """
    if not shards:
        raise ParameterError("shards is empty: pass at least one set of statistics to merge")
    if len(shards) == 1:
        return shards[0]
    sources = names or [f"part {i + 1}" for i in range(len(shards))]
    return _signed_sum(shards, [1] * len(shards), sources)


def subtract(whole: SufficientStatistics, removed: SufficientStatistics) -> SufficientStatistics:
    """Return the statistics of `whole` without the vectors of `removed`.

    All vectors of `removed` must be among those of `whole`, and must have labels. Otherwise the
    result is wrong, or `DataError` or `LabelError` is raised: not every mistake can be detected.

    The result has the rounding errors of both sums: relative to the larger sum, about 1e-16 with
    float64 vectors and 1e-7 with float32 vectors.
    """
    if any(removed.classes[column].anonymous for column in base_columns(removed.views)):
        raise LabelError(
            "some of the vectors to subtract have no label, so their classes cannot be identified: subtract only "
            "vectors that have labels"
        )
    result = _signed_sum([whole, removed], [1, -1], ["the whole", "the part to subtract"])

    tables = [table.data for table in result.cooccurrence.values()]
    fewest = min(float(counts.min(initial=0)) for counts in (*result.counts.values(), *tables))
    # a negative count shows that the vectors were never added, or were subtracted before
    if fewest < 0:
        raise DataError(
            f"at least one class, or combination of classes, has {abs(fewest):.0f} vector(s) fewer than would be "
            "subtracted from it: subtract only vectors that were added, and each only once"
        )
    if result.n < 1:
        raise DataError("all vectors would be subtracted: at least one must remain")

    # A class that loses all its vectors must have a sum of about zero.
    spread = np.sqrt(whole.variance + (whole.total / whole.n) ** 2)
    for view, counts in result.counts.items():
        # `removed` adds no class, so that the classes of `whole` keep their numbers.
        tolerance = CLOSE * whole.counts[view][:, None] * spread
        if (np.abs(result.sums[view]) > tolerance)[counts == 0].any():
            raise DataError(
                f"the vectors to subtract are not those that were added: the sums of classes of view {view!r} differ. "
                "Subtract the same vectors with the same labels"
            )
    return without_empty_classes(result)


def _signed_sum(
    shards: Sequence[SufficientStatistics], signs: Sequence[int], sources: Sequence[str]
) -> SufficientStatistics:
    """Return the sum of the statistics of several shards, each multiplied by its sign.

    Raise `DataError`, `LabelError` or `ParameterError` if the shards do not fit together.

    signs : 1 to add a shard, -1 to subtract it
    sources : names of the shards, for error messages
    """
    first = shards[0]
    for shard, source in zip(shards, sources, strict=True):
        _check_same_form(first, shard, f"{sources[0]} and {source}")
    shard_classes = [shard.classes for shard in shards]
    classes, numbers = union_of_classes(first.views, shard_classes, sources)

    total = np.zeros_like(first.total)
    scatter = np.zeros_like(first.scatter)
    counts = {view: np.zeros(len(classes[view])) for view in first.views}
    sums = {view: np.zeros((len(classes[view]), first.dimension)) for view in first.views}
    signed = list(zip(shards, signs, numbers, strict=True))
    for shard, sign, class_numbers in signed:
        # sums about different origins cannot be added
        moved = shard.about(first.origin)
        total += sign * moved.total
        scatter += sign * moved.scatter
        for view in first.views:
            counts[view][class_numbers[view]] += sign * moved.counts[view]
            sums[view][class_numbers[view]] += sign * to_host(moved.sums[view])

    pairs: dict[tuple[str, str], sparse.csr_array] = {}
    for a, b in first.cooccurrence:
        shape = (len(classes[a]), len(classes[b]))
        pairs[a, b] = sparse.csr_array(shape)
        for shard, sign, class_numbers in signed:
            table = shard.together(a, b).tocoo()
            coordinates = (class_numbers[a][table.row], class_numbers[b][table.col])
            signed_table = sparse.csr_array((sign * table.data, coordinates), shape=shape)
            pairs[a, b] = pairs[a, b] + signed_table
    return replace(
        first,
        n=sum(sign * shard.n for shard, sign, _ in signed),
        total=total,
        scatter=scatter,
        classes=classes,
        counts=counts,
        sums=sums,
        cooccurrence=pairs,
        sources={},
    )


def _check_same_form(a: SufficientStatistics, b: SufficientStatistics, pair: str) -> None:
    """Check that two statistics can be added.

    Raise `DataError` for different dimensions, `LabelError` for different views, and
    `ParameterError` for different second moments (full or diagonal).

    pair : names of the two statistics, for the message
    """
    if a.dimension != b.dimension:
        raise DataError(
            f"statistics must have equal dimensions to be merged or subtracted; got {a.dimension} and {b.dimension} "
            f"({pair})"
        )
    if set(a.views) != set(b.views):
        raise LabelError(
            f"statistics must have the same views to be merged or subtracted; got {a.views} and {b.views} ({pair})"
        )
    if a.second_moment != b.second_moment:
        raise ParameterError(
            "statistics must have the same second_moment to be merged or subtracted; got "
            f"{a.second_moment!r} and {b.second_moment!r} ({pair})"
        )


def without_empty_classes(statistics: SufficientStatistics) -> SufficientStatistics:
    """Return the statistics without classes that have no vector, and renumber the others."""
    filled = {view: np.flatnonzero(counts) for view, counts in statistics.counts.items()}
    if all(len(rows) == len(statistics.counts[view]) for view, rows in filled.items()):
        return statistics

    cells = {view: cells_of(statistics.classes[view])[rows] for view, rows in filled.items()}
    classes: Classes = {}
    used: ClassNumbers = {}
    for column in base_columns(statistics.views):
        # Every vector has a class in each view that contains the column, so that any such view will do.
        view = next(view for view in cells if column in parts_of(view))
        used[column] = np.unique(cells[view][:, parts_of(view).index(column)])
        names = statistics.classes[column].names
        labelled = used[column][used[column] < len(names)]
        classes[column] = ViewClasses(names[labelled], len(used[column]) - len(labelled))
    for view, numbers in cells.items():
        # classes of an interaction hold numbers of base classes, which have changed
        if ":" in view:
            for i, column in enumerate(parts_of(view)):
                numbers[:, i] = np.searchsorted(used[column], numbers[:, i])
            classes[view] = interaction(numbers)
    return selected(statistics, filled, classes)


def selected(
    statistics: SufficientStatistics,
    rows: ClassNumbers,
    classes: Classes,
) -> SufficientStatistics:
    """Return the statistics with only the given classes, in the given order.

    Only class counts, class sums and tables change; the other classes should have no vectors.

    rows : {view: numbers of the classes to keep}
    classes : {view or label column: classes of the result}
    """
    pairs = {}
    for (a, b), table in statistics.cooccurrence.items():
        pairs[a, b] = table[rows[a]][:, rows[b]].tocsr()
        # the selection of columns may leave the indices unsorted
        pairs[a, b].sort_indices()
    return replace(
        statistics,
        classes=classes,
        counts={view: statistics.counts[view][view_rows] for view, view_rows in rows.items()},
        sums={view: statistics.sums[view][view_rows] for view, view_rows in rows.items()},
        cooccurrence=pairs,
    )
