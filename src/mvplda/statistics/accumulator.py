"""Statistics gathered batch by batch, of vectors that never lie in memory together.

Held: one float64 row a class and view, the counts of cells, the second moment and a block of
vectors. The classes are numbered as they appear and sorted at the end, when the class sums
are held twice for a moment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from .._typing import Array, IntArray
from .._validation import as_vectors
from ..exceptions import DataError, LabelError, ParameterError
from ..labels import ViewClasses, base_columns, check_view_names, encode_labels, parts_of, row_keys
from .record import SecondMoment, SufficientStatistics, kind_of
from .sums import add_squares, all_finite, class_sums, rows_of_block, too_large, whole

SHIFT = 32
PENDING = 2**18
AMID = 4096


@dataclass(frozen=True)
class LabelCodes:
    """Labels of a batch in one column: the names that may occur, and which one every vector has (-1: none)."""

    names: NDArray[Any]
    codes: IntArray


def label_codes(values: Any, *, missing: Any = None) -> LabelCodes:
    """Labels in any form, numbered."""
    table = encode_labels({"labels": values}, missing=missing)
    names, codes = table.classes["labels"].names, table.codes["labels"]
    return LabelCodes(names, np.where(codes < len(names), codes, -1))


def common_origin(X: Any) -> Array:
    """A point amid the first vectors that float32 and float64 hold alike, so that parts about it add without loss."""
    vectors = np.asarray(as_vectors(X)[:AMID], dtype=np.float64)
    finite = vectors[np.isfinite(vectors).all(axis=1)]
    with np.errstate(over="ignore"):
        mean = finite.mean(axis=0).astype(np.float32) if len(finite) else np.zeros(vectors.shape[1], np.float32)
    return np.where(np.isfinite(mean), mean, 0.0).astype(np.float64)


class Accumulator:
    """Sums that grow with every batch; `result` makes statistics of them.

    Parameters
    ----------
    views : the views, interactions included
    origin : (D,) the point that sums are taken about, as `common_origin` gives it
    second_moment : ``"full"`` or ``"diagonal"``
    """

    def __init__(self, views: Sequence[str], origin: Array, second_moment: SecondMoment = "full") -> None:
        if second_moment not in ("full", "diagonal"):
            raise ParameterError(f"second_moment is 'full' or 'diagonal'; got {second_moment!r}")
        check_view_names(views)
        self.views = tuple(views)
        self.columns = base_columns(views)
        self.origin = np.asarray(origin, dtype=np.float64)
        self.n = 0
        D = len(self.origin)
        self._scatter = np.zeros((D, D) if second_moment == "full" else D)
        self._names = {column: _Names(column) for column in self.columns}
        self._cells = {view: _Cells() for view in views if ":" in view}
        self._sums = {view: _Sums(D) for view in views}
        self._pairs = {(a, b): _Pairs() for i, a in enumerate(views) for b in views[i + 1 :]}

    def add(self, X: Any, labels: Mapping[str, LabelCodes]) -> IntArray:
        """Add the vectors of a batch, and return the rows left out because they are not finite."""
        vectors = as_vectors(X)
        n, dimension = vectors.shape
        if dimension != len(self.origin):
            raise DataError(f"the vectors have width {dimension}; those before have {len(self.origin)}")
        for column in self.columns:
            if len(labels[column].codes) != n:
                raise LabelError(f"there are {n} vectors and {len(labels[column].codes)} labels of {column!r}")
        lookup = {column: np.full(len(labels[column].names), -1) for column in self.columns}
        rows = rows_of_block(vectors.itemsize, dimension)
        shift = self.origin.astype(vectors.dtype)
        space = np.empty((min(rows, n), dimension), dtype=vectors.dtype)
        bad: list[IntArray] = []
        for start in range(0, n, rows):
            some = vectors[start : start + rows]
            codes = {column: labels[column].codes[start : start + rows] for column in self.columns}
            with np.errstate(over="ignore", invalid="ignore"):
                block = np.subtract(some, shift, out=space[: len(some)])
                suspect = not np.isfinite(block.sum())
            if suspect:
                finite = np.isfinite(block).all(axis=1)
                bad.append(start + np.flatnonzero(~finite))
                block, codes = block[finite], {column: code[finite] for column, code in codes.items()}
            if len(block):
                self._add_block(block, {c: self._names[c].number(labels[c].names, codes[c], lookup[c]) for c in codes})
        return np.concatenate(bad) if bad else np.empty(0, dtype=np.int64)

    def _add_block(self, block: NDArray[Any], codes: dict[str, IntArray]) -> None:
        with np.errstate(over="ignore", invalid="ignore"):
            add_squares(self._scatter, block)
        if not all_finite(self._scatter):
            raise too_large("some vectors", block.dtype)
        for view, cells in self._cells.items():
            parts = [codes[part] for part in parts_of(view)]
            codes[view] = cells.number(parts, [len(self._names[part]) for part in parts_of(view)])
        for view in self.views:
            self._sums[view].add(*class_sums(codes[view], block))
        for (a, b), pairs in self._pairs.items():
            pairs.add(codes[a], codes[b])
        self.n += len(block)

    def result(self) -> SufficientStatistics:
        """The statistics of everything that was added. The accumulator is empty afterwards."""
        if self.n == 0:
            raise DataError("no vector was added: there are no statistics")
        orders: dict[str, IntArray] = {}
        classes: dict[str, ViewClasses] = {}
        ranks: dict[str, IntArray] = {}
        for column, names in self._names.items():
            classes[column], orders[column] = names.sorted()
            ranks[column] = _inverse(orders[column])
        for view, cells in self._cells.items():
            table = np.stack([ranks[p][cells.column(i)] for i, p in enumerate(parts_of(view))], axis=1)
            orders[view] = np.lexsort(table.T[::-1])
            classes[view] = ViewClasses(np.empty(0, dtype=np.int64), 0, table[orders[view]])
            ranks[view] = _inverse(orders[view])
        counts, sums = {}, {}
        for view in self.views:
            counts[view], sums[view] = self._sums.pop(view).ordered(orders[view])
        pairs = {
            (a, b): table.counts(ranks[a], ranks[b], (len(orders[a]), len(orders[b])))
            for (a, b), table in self._pairs.items()
        }
        total = sums[self.views[0]].sum(axis=0)
        scatter, n, self.n = whole(self._scatter), self.n, 0
        return SufficientStatistics(self.views, n, self.origin, total, scatter, classes, counts, sums, pairs)


class _Names:
    """Classes of a label column by order of appearance; a vector without label is a class of its own."""

    def __init__(self, column: str) -> None:
        self.column = column
        self.known: dict[Any, int] = {}
        self.kinds: set[str] = set()
        self.parts: list[NDArray[Any]] = []
        self.places: list[IntArray] = []
        self.anonymous: list[IntArray] = []
        self.size = 0

    def __len__(self) -> int:
        return self.size

    def number(self, names: NDArray[Any], codes: IntArray, lookup: IntArray) -> IntArray:
        """Class numbers of vectors; `lookup` holds those of the batch's names that were met before (else -1)."""
        absent = codes < 0
        named = codes[~absent]
        fresh = np.unique(named[lookup[named] < 0])
        if len(fresh):
            self._look_up(names, fresh, lookup)
        numbers = np.empty(len(codes), dtype=np.int64)
        numbers[~absent] = lookup[named]
        if absent.any():
            alone = self.size + np.arange(int(absent.sum()))
            numbers[absent] = alone
            self.anonymous.append(alone)
            self.size += len(alone)
        return numbers

    def _look_up(self, names: NDArray[Any], fresh: IntArray, lookup: IntArray) -> None:
        self.kinds.add(kind_of(names))
        if len(self.kinds) > 1:
            raise LabelError(f"labels of {self.column!r} are {' and '.join(sorted(self.kinds))}: give them one type")
        values = names[fresh].tolist()
        new = [i for i, value in enumerate(values) if value not in self.known]
        for i in new:
            self.known[values[i]] = self.size
            self.size += 1
        lookup[fresh] = [self.known[value] for value in values]
        if new:
            self.parts.append(names[fresh[new]])
            self.places.append(lookup[fresh[new]])

    def sorted(self) -> tuple[ViewClasses, IntArray]:
        """The classes, named ones in sorted order first, and the number each had by appearance."""
        names = np.concatenate(self.parts) if self.parts else np.empty(0)
        order = np.argsort(names, kind="stable")
        alone = np.concatenate([*self.anonymous, np.empty(0, dtype=np.int64)])
        places = np.concatenate([*self.places, np.empty(0, dtype=np.int64)])
        return ViewClasses(names[order], len(alone)), np.concatenate([places[order], alone])


class _Cells:
    """Classes of an interaction by order of appearance."""

    def __init__(self) -> None:
        self.known: dict[tuple[int, ...], int] = {}

    def number(self, parts: Sequence[IntArray], sizes: Sequence[int]) -> IntArray:
        _, first, local = np.unique(row_keys(parts, sizes), return_index=True, return_inverse=True)
        known = self.known
        cells = zip(*(part[first].tolist() for part in parts), strict=True)
        numbers = np.array([known.setdefault(cell, len(known)) for cell in cells], dtype=np.int64)
        return numbers[local.reshape(-1)]

    def column(self, i: int) -> IntArray:
        return np.fromiter((cell[i] for cell in self.known), dtype=np.int64, count=len(self.known))


class _Sums:
    """Counts and sums of classes, with room for more."""

    def __init__(self, dimension: int) -> None:
        self.counts = np.zeros(0)
        self.sums = np.zeros((0, dimension))

    def add(self, present: IntArray, sums: NDArray[Any], counts: IntArray) -> None:
        size = int(present[-1]) + 1
        if size > len(self.counts):
            room = max(size, len(self.counts) + len(self.counts) // 4)
            self.counts.resize(room, refcheck=False)  # large arrays grow where they are, without a copy
            self.sums.resize((room, self.sums.shape[1]), refcheck=False)
        self.counts[present] += counts
        self.sums[present] += sums

    def ordered(self, order: IntArray) -> tuple[Array, Array]:
        return self.counts[order], self.sums[order]


class _Pairs:
    """How often classes of two views meet; counts of the same pair are put together now and then."""

    def __init__(self) -> None:
        self.keys: list[IntArray] = []
        self.numbers: list[IntArray] = []
        self.pending, self.settled = 0, 0

    def add(self, a: IntArray, b: IntArray) -> None:
        keys, numbers = np.unique((a << SHIFT) | b, return_counts=True)
        self.keys.append(keys)
        self.numbers.append(numbers)
        self.pending += len(keys)
        if self.pending > PENDING + self.settled:
            self._settle()

    def _settle(self) -> None:
        keys, inverse = np.unique(np.concatenate(self.keys), return_inverse=True)
        numbers = np.bincount(inverse.reshape(-1), weights=np.concatenate(self.numbers), minlength=len(keys))
        self.keys, self.numbers = [keys], [numbers.astype(np.int64)]
        self.pending, self.settled = 0, len(keys)

    def counts(self, rows: IntArray, columns: IntArray, shape: tuple[int, int]) -> sparse.csr_array:
        self._settle()
        a, b = rows[self.keys[0] >> SHIFT], columns[self.keys[0] & (2**SHIFT - 1)]
        return sparse.coo_array((self.numbers[0].astype(np.float64), (a, b)), shape=shape).tocsr()


def _inverse(order: IntArray) -> IntArray:
    ranks = np.empty_like(order)
    ranks[order] = np.arange(len(order))
    return ranks
