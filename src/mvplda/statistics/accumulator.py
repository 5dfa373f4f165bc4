"""Sums of labelled vectors that grow block by block.

An `Accumulator` knows classes by their numbers alone; ``SufficientStatistics.of`` gives them their names. Where
the names come batch by batch, `GrowingClasses` numbers them as they appear and sorts them at the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any, Generic, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from scipy.linalg.blas import dsyrk

from .._typing import A, A_co, AnyArray, Array, IntArray, Names
from ..backend import (
    Numpy,
    Torch,
    as_vectors,
    diagonal_of,
    dtype_name,
    like,
    namespace,
    own_namespace,
    to_host,
)
from ..exceptions import DataError, LabelError, ParameterError
from ..labels import (
    ViewClasses,
    base_columns,
    check_view_names,
    distinct,
    encode_labels,
    parts_of,
    row_keys,
)

SecondMoment = Literal["full", "diagonal"]
OnError = Literal["raise", "skip"]

BLOCK_BYTES = 4 * 2**20
"""Bytes of vectors that are summed at a time, while they are in the cache."""

SHIFT = 32
PENDING = 2**18
AMID = 4096


@dataclass(frozen=True)
class Sums(Generic[A_co]):
    """Sufficient statistics of n labelled vectors, about a common origin: what EM reads.

    n : number of vectors, and the sum of their weights
    total : (D,) sum of x
    scatter : (D,) or (D, D) sum of x^2 or of x x'
    counts : per view (C_k,), vectors in every class
    sums : per view (C_k, D), sum of x over every class
    cooccurrence : for k < l a sparse (C_k, C_l), vectors in class c of k and class d of l
    log_weights : sum of the logarithms of the vectors' weights

    `total`, `scatter` and `sums` may be torch tensors, all on one device; then the
    whole E and M steps run there. Counts stay NumPy: the design is made from them.
    """

    n: int
    total: A_co
    scatter: A_co
    counts: tuple[Array, ...]
    sums: tuple[A_co, ...]
    cooccurrence: dict[tuple[int, int], sparse.csr_array]
    log_weights: float = 0.0

    @property
    def n_views(self) -> int:
        return len(self.counts)

    @property
    def dimension(self) -> int:
        return len(self.total)

    @cached_property
    def xp(self) -> Numpy | Torch:
        """What calculates with these sums (see ``backend``)."""
        return own_namespace(self.total)

    def on_host(self) -> Sums:
        """The same as NumPy arrays."""
        total, scatter, *sums = map(to_host, (self.total, self.scatter, *self.sums))
        return Sums(
            self.n,
            total,
            scatter,
            self.counts,
            tuple(sums),
            self.cooccurrence,
            self.log_weights,
        )

    def together(self, k: int, l: int) -> sparse.csr_array:
        """Co-occurrence N_kl for any order of two different views."""
        return self.cooccurrence[k, l] if k < l else self.cooccurrence[l, k].T.tocsr()

    @property
    def has_products(self) -> bool:
        """Whether the scatter is a matrix, not its diagonal alone."""
        return self.scatter.ndim == 2

    def product(self, left: A, right: A) -> A:
        """left right' of two (D, m), or only its diagonal, as the scatter is."""
        if self.has_products:
            return left @ right.T
        diagonal: A = self.xp.einsum("dm,dm->d", left, right)
        return diagonal

    def scatter_about(self, mean: AnyArray) -> A_co:
        """Sum of (x - mean)(x - mean)', or of its diagonal."""
        if not self.has_products:
            return self.scatter - 2 * mean * self.total + self.n * mean**2
        cross: A_co = self.xp.outer(self.total - self.n / 2 * mean, mean)
        return self.scatter - cross - cross.T


def amid(vectors: Array) -> Array:
    """A point amid vectors: the mean of those that are finite."""
    with np.errstate(over="ignore", invalid="ignore"):
        mean = vectors.mean(axis=0)
        if not np.isfinite(mean).all():
            finite = vectors[np.isfinite(vectors).all(axis=1)]
            mean = finite.mean(axis=0) if len(finite) else np.zeros_like(mean)
    return np.where(np.isfinite(mean), mean, 0.0)


def common_origin(X: ArrayLike) -> Array:
    """A point amid the first vectors that float32 and float64 hold alike, so that parts about it add without loss."""
    with np.errstate(over="ignore"):
        mean = amid(np.asarray(as_vectors(X)[:AMID], dtype=np.float64)).astype(np.float32)
    return np.where(np.isfinite(mean), mean, 0.0).astype(np.float64)


class Accumulator:
    """Sums that grow with every block of vectors: one pass over NumPy arrays, accumulating in float64.

    float32 vectors are multiplied as float32 and summed as float64. `DeviceAccumulator` is the same for tensors.

    Parameters
    ----------
    dimension : width of the vectors
    classes : of every view, interactions included, the number of its classes; or only the views, and there is
        room for classes as their numbers appear
    second_moment : ``"full"`` for any noise, ``"diagonal"`` is enough for diagonal noise
    origin : (D,) point amid the data; default: the mean of the first block
    """

    block_bytes = BLOCK_BYTES

    def __init__(
        self,
        dimension: int,
        classes: Mapping[str, int] | Sequence[str],
        *,
        second_moment: SecondMoment = "full",
        origin: Any = None,
    ) -> None:
        if second_moment not in ("full", "diagonal"):
            raise ParameterError(f"second_moment is 'full' or 'diagonal'; got {second_moment!r}")
        if not classes:
            raise ParameterError("there is no view: name at least one")
        self.sizes = dict(classes) if isinstance(classes, Mapping) else dict.fromkeys(classes, 0)
        self.views = tuple(self.sizes)
        check_view_names(self.views)
        self.origin = None if origin is None else np.asarray(origin, dtype=np.float64)
        if self.origin is not None and self.origin.shape != (dimension,):
            raise DataError(
                f"origin has shape {self.origin.shape}, the vectors need ({dimension},)"
            )
        self.dimension = dimension
        self.second_moment = second_moment
        self._begin()

    def _begin(self) -> None:
        self.n = 0
        self._rows = 0
        self._log_weights = 0.0
        self._scatter: Any = None
        self._space: Any = np.empty(0)
        self._counts = [np.zeros(size) for size in self.sizes.values()]
        self._sums: list[Any] = []
        self._pairs = {pair: _Pairs() for pair in combinations(range(len(self.views)), 2)}

    def add(
        self,
        X: ArrayLike,
        codes: Mapping[str, Any],
        *,
        on_error: OnError = "raise",
        weights: Array | None = None,
    ) -> IntArray:
        """Add vectors (n, D) with the class numbers of every view, each (n,).

        Vectors that hold NaN or infinity are an error, or with ``on_error="skip"`` are left out; their rows are
        returned.
        """
        vectors = self._vectors(X)
        n, width = vectors.shape
        if width != self.dimension:
            raise DataError(f"the vectors have width {width}; those before have {self.dimension}")
        numbers = [self._numbers(view, codes, n) for view in self.views]
        if not self._sums:
            D = self.dimension
            self._sums = [self._zeros(vectors, size, D) for size in self.sizes.values()]
            self._scatter = self._zeros(vectors, *[D] * (2 if self.second_moment == "full" else 1))
        rows = max(256, self.block_bytes // (vectors.itemsize * width))
        shift = self._shift(vectors[:rows])
        left_out: list[IntArray] = []
        for start in range(0, n, rows):
            part = slice(start, start + rows)
            here = [own[part] for own in numbers]
            each = None if weights is None else weights[part]
            block = self._centred(vectors[part], shift)
            squares = self._squares(block, each)
            if not _are_finite(squares):
                # Sums of squares are finite exactly where all numbers are, and none is too large.
                finite = to_host(namespace(block).isfinite(block).all(axis=1))
                bad = start + np.flatnonzero(~finite)
                if len(bad) and on_error == "raise":
                    raise DataError(
                        f"Input X contains NaN or infinity, first in row {self._rows + bad[0]}: "
                        "remove such vectors or repair them"
                    )
                left_out.append(bad)
                kept = np.flatnonzero(finite)
                block = block[kept]
                here = [own[kept] for own in here]
                each = None if each is None else each[kept]
                squares = self._squares(block, each)
                if not _are_finite(squares):
                    first = self._rows + start
                    raise DataError(
                        f"vectors {first} to {first + len(finite) - 1} are too large: their squares overflow "
                        f"{dtype_name(block)}; scale the vectors down"
                    )
            if len(block):
                self._add_block(block, squares, here, each)
        out = np.concatenate([np.empty(0, dtype=np.int64), *left_out])
        if len(out) < n:
            if len(out):
                kept = np.delete(np.arange(n), out)
                numbers = [own[kept] for own in numbers]
                weights = None if weights is None else weights[kept]
            for (k, l), pairs in self._pairs.items():
                columns = int(numbers[l].max()) + 1
                pairs.add(*self._counted(numbers[k] * columns + numbers[l], weights), columns)
            if weights is not None:
                self._log_weights += float(np.log(weights).sum())
        self._rows += n
        return out

    def _vectors(self, X: ArrayLike) -> Any:
        return as_vectors(X)

    def _numbers(self, view: str, codes: Mapping[str, Any], n: int) -> Any:
        if view not in codes:
            raise LabelError(
                f"there are no class numbers of view {view!r}, only of {sorted(codes)}"
            )
        if len(codes[view]) != n:
            raise LabelError(f"there are {n} vectors and {len(codes[view])} labels of {view!r}")
        return codes[view]

    def _zeros(self, vectors: Any, *shape: int) -> Any:
        """Sums to begin with, where the vectors are."""
        return np.zeros(shape)

    def _shift(self, first: Any) -> Any:
        """The origin in the precision of some vectors, or as it is, where that would not be the same point."""
        if self.origin is None:
            self.origin = amid(to_host(first).astype(np.float64))
        shift = self.origin.astype(dtype_name(first))
        if self.n == 0:
            self.origin = shift.astype(np.float64)
        return like(shift if (shift == self.origin).all() else self.origin, first)

    def _centred(self, vectors: Any, shift: Any) -> Any:
        n = len(vectors)
        if self._space.dtype != shift.dtype or len(self._space) < n:  # kept: new pages take time
            self._space = np.empty((n, self.dimension), dtype=shift.dtype)
        with np.errstate(over="ignore", invalid="ignore"):
            return np.subtract(vectors, shift, out=self._space[:n])

    def _squares(self, block: Any, weights: Array | None) -> Any:
        """Sums of the squares of a block's columns, or of their products, of which the lower triangle is enough."""
        if weights is not None:
            block = block * np.sqrt(weights.astype(block.dtype))[:, None]
        with np.errstate(over="ignore", invalid="ignore"):
            if self.second_moment == "diagonal":
                return np.einsum("nd,nd->d", block, block)
            if block.dtype == np.float64:
                return dsyrk(1.0, block.T).T
            return block.T @ block

    def _add_block(
        self, block: Any, squares: Any, numbers: Sequence[Any], weights: Array | None
    ) -> None:
        self._scatter += squares
        for k, codes in enumerate(numbers):
            self._add_classes(k, codes, block, weights)
        self.n += len(block)

    def _add_classes(self, k: int, codes: Any, block: Any, weights: Array | None) -> None:
        n = len(codes)
        size = int(codes.max()) + 1
        which: slice | IntArray = slice(0, size)
        if size > len(self._counts[k]):
            # large arrays grow where they are, without a copy
            room = max(size, len(self._counts[k]) * 5 // 4)
            self._counts[k].resize(room, refcheck=False)
            self._sums[k].resize((room, self.dimension), refcheck=False)
        if size > n:  # more classes than vectors: only those that are there
            which, codes, _ = distinct(codes)
        counts = np.bincount(codes, weights)
        each = np.ones(n) if weights is None else weights
        shape = (len(counts), n)
        ends = np.arange(n + 1)
        one_hot = sparse.csc_array((each.astype(block.dtype), codes, ends), shape=shape)
        self._counts[k][which] += counts
        self._sums[k][which] += one_hot @ block

    def _counted(self, keys: Any, weights: Array | None) -> tuple[Any, Any]:
        """Distinct keys in sorted order, and the number of each, or the sum of its weights."""
        if int(keys.max()) < 8 * len(keys):  # of a small table, counting is faster than sorting
            every = np.bincount(keys)
            cells = np.flatnonzero(every)
            return cells, (every if weights is None else np.bincount(keys, weights))[cells]
        if weights is None:
            return np.unique(keys, return_counts=True)
        cells, inverse = np.unique(keys, return_inverse=True)
        return cells, np.bincount(inverse.reshape(-1), weights)

    def result(self) -> Sums[AnyArray]:
        """The sums, with classes in the order of their numbers. The accumulator is empty afterwards."""
        scatter = self._scatter
        if self.second_moment == "full":
            lower = namespace(scatter).tril(scatter)
            scatter = lower + lower.T
            namespace(scatter).diagonal(scatter)[:] /= 2
        sizes = [len(counts) for counts in self._counts]
        tables = {(k, l): met.table((sizes[k], sizes[l])) for (k, l), met in self._pairs.items()}
        result = Sums(
            self.n,
            self._sums[0].sum(axis=0),
            scatter,
            tuple(self._counts),
            tuple(self._sums),
            tables,
            self._log_weights,
        )
        self._begin()
        return result


def _are_finite(squares: Any) -> bool:
    return bool(namespace(squares).isfinite(diagonal_of(squares)).all())


class _Pairs:
    """How often classes of two views meet; counts of the same pair are put together now and then."""

    def __init__(self) -> None:
        self.keys: list[IntArray] = []
        self.numbers: list[Any] = []
        self.pending = 0
        self.settled = 0

    def add(self, cells: IntArray, numbers: Any, columns: int) -> None:
        """Cells (row * columns + column) of a block, each once, in sorted order."""
        self.keys.append(((cells // columns) << SHIFT) | (cells % columns))
        self.numbers.append(numbers)
        self.pending += len(cells)
        if self.pending > PENDING + self.settled:
            self._settle()

    def _settle(self) -> None:
        if len(self.keys) > 1:
            keys = np.concatenate(self.keys)
            order = np.argsort(keys, kind="stable")  # merges runs that are sorted already
            keys = keys[order]
            first = np.flatnonzero(np.diff(keys, prepend=-1))
            self.keys = [keys[first]]
            self.numbers = [np.add.reduceat(np.concatenate(self.numbers)[order], first)]
        self.pending = 0
        self.settled = len(self.keys[0])

    def table(self, shape: tuple[int, int]) -> sparse.csr_array:
        self._settle()
        rows = self.keys[0] >> SHIFT
        columns = self.keys[0] & (2**SHIFT - 1)
        ends = np.searchsorted(rows, np.arange(shape[0] + 1))  # the keys are sorted
        return sparse.csr_array((self.numbers[0].astype(np.float64), columns, ends), shape=shape)


# Names of classes that come batch by batch.


@dataclass(frozen=True)
class LabelCodes:
    """Labels of a batch in one column: the names that may occur, and which one every vector has (-1: none)."""

    names: Names
    codes: IntArray


def label_codes(values: Any, *, missing: Any = None) -> LabelCodes:
    """Labels in any form, numbered."""
    table = encode_labels({"labels": values}, missing=missing)
    names, codes = table.classes["labels"].names, table.codes["labels"]
    return LabelCodes(names, np.where(codes < len(names), codes, -1))


class GrowingClasses:
    """Classes of views by order of appearance; at the end, sorted."""

    def __init__(self, views: Sequence[str]) -> None:
        self.columns = base_columns(views)
        self._names = {column: _Names(column) for column in self.columns}
        self._cells = {view: _Cells() for view in views if ":" in view}

    def number(self, labels: Mapping[str, LabelCodes]) -> dict[str, IntArray]:
        """Class numbers of a batch's vectors in every label column and view."""
        codes = {column: self._names[column].number(labels[column]) for column in self.columns}
        for view, cells in self._cells.items():
            parts = parts_of(view)
            codes[view] = cells.number(
                [codes[p] for p in parts], [len(self._names[p]) for p in parts]
            )
        return codes

    def sorted(self) -> tuple[dict[str, ViewClasses], dict[str, IntArray]]:
        """The classes of every column and view in sorted order, and the number each had by appearance."""
        classes: dict[str, ViewClasses] = {}
        order: dict[str, IntArray] = {}
        ranks: dict[str, IntArray] = {}
        for column, names in self._names.items():
            classes[column], order[column] = names.sorted()
            ranks[column] = np.empty_like(order[column])
            ranks[column][order[column]] = np.arange(len(order[column]))
        for view, cells in self._cells.items():
            table = np.stack(
                [ranks[p][cells.column(i)] for i, p in enumerate(parts_of(view))], axis=1
            )
            order[view] = np.lexsort(table.T[::-1])
            classes[view] = ViewClasses(np.empty(0, dtype=np.int64), 0, table[order[view]])
        return classes, order


def kind_of(names: Names) -> str:
    """What the names of classes are, in a word."""
    return {"U": "text", "S": "bytes", "M": "dates", "m": "durations"}.get(
        names.dtype.kind, "numbers"
    )


class _Names:
    """Classes of a label column by order of appearance; a vector without label is a class of its own."""

    def __init__(self, column: str) -> None:
        self.column = column
        self.known: dict[Any, int] = {}
        self.kinds: set[str] = set()
        self.parts: list[Names] = []
        self.places: list[IntArray] = []
        self.anonymous: list[IntArray] = []
        self.size = 0

    def __len__(self) -> int:
        return self.size

    def number(self, labels: LabelCodes) -> IntArray:
        """Class numbers of the vectors of a batch."""
        names, codes = labels.names, labels.codes
        absent = codes < 0
        lookup = np.full(len(names) + 1, -1)  # of a missing label, too
        present = np.flatnonzero(np.bincount(codes + 1, minlength=1)[1:])
        if len(present):
            self._look_up(names, present, lookup)
        numbers = lookup[codes]
        if absent.any():
            alone = self.size + np.arange(int(absent.sum()))
            numbers[absent] = alone
            self.anonymous.append(alone)
            self.size += len(alone)
        return numbers

    def _look_up(self, names: Names, fresh: IntArray, lookup: IntArray) -> None:
        """Number the names at some places, the new ones after all that are known."""
        self.kinds.add(kind_of(names))
        if len(self.kinds) > 1:
            raise LabelError(
                f"labels of {self.column!r} are {' and '.join(sorted(self.kinds))}: give them one type"
            )
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
