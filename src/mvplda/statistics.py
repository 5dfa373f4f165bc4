"""Sufficient statistics of labelled vectors: all that training ever sees of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg.blas import dsyrk

from .exceptions import DataError, LabelError, ParameterError
from .kernel.records import Array, Sums
from .labels import IntArray, LabelTable, ViewClasses, base_columns, encode_labels, parts_of, row_keys

SecondMoment = Literal["full", "diagonal"]
BLOCK_BYTES = 4 * 2**20


@dataclass(frozen=True)
class SufficientStatistics:
    """Counts, sums and second moments of labelled vectors; they add up.

    The statistics of two shards added with ``+`` are those of all their
    vectors together, also where the shards know different classes. Sums are
    kept about ``origin``, a point amid the data, so that vectors far from
    zero lose no digits.

    Attributes
    ----------
    views : names of the views
    n : number of vectors
    origin : (D,) the point that sums and second moments are taken about
    total : (D,) sum of x - origin
    scatter : (D, D) or (D,) second moment of x - origin, or its diagonal
    classes : per view and label column, its classes
    counts, sums : per view, vectors and sum of x - origin in every class
    cooccurrence : for every pair of views, a sparse table of counts
    """

    views: tuple[str, ...]
    n: int
    origin: Array
    total: Array
    scatter: Array
    classes: dict[str, ViewClasses]
    counts: dict[str, Array]
    sums: dict[str, Array]
    cooccurrence: dict[tuple[str, str], sparse.csr_array]

    @classmethod
    def from_arrays(
        cls,
        X: Any,
        labels: Any,
        *,
        views: Sequence[str] | None = None,
        second_moment: SecondMoment = "full",
        missing: Any = None,
        origin: Any = None,
    ) -> SufficientStatistics:
        """One pass over the vectors, in blocks, accumulating in float64.

        Parameters
        ----------
        X : array (n, D); float32 is multiplied as float32 and summed as float64
        labels : dict, DataFrame or array, one label a vector and view
        views : the views, interactions included (default: every label column)
        second_moment : ``"full"`` for any noise, ``"diagonal"`` is enough for diagonal noise
        missing : a value that stands for "no label", besides None and NaN
        origin : (D,) point amid the data; default: the mean of the first block

        Examples
        --------
        >>> import numpy as np
        >>> from mvplda import SufficientStatistics
        >>> X = np.arange(12.0).reshape(6, 2)
        >>> labels = {"speaker": list("aabbcc"), "phrase": [1, 2, 1, 2, 1, 2]}
        >>> whole = SufficientStatistics.from_arrays(X, labels)
        >>> whole.n, whole.counts["speaker"]
        (6, array([2., 2., 2.]))
        """
        if second_moment not in ("full", "diagonal"):
            raise ParameterError(f"second_moment is 'full' or 'diagonal'; got {second_moment!r}")
        vectors = as_vectors(X)
        table = labels if isinstance(labels, LabelTable) else encode_labels(labels, views, missing=missing)
        n, dimension = vectors.shape
        if len(table) != n:
            raise LabelError(f"there are {n} vectors and {len(table)} labels: give one label a vector")
        rows = max(256, BLOCK_BYTES // (vectors.itemsize * dimension))
        if origin is None:
            with np.errstate(over="ignore", invalid="ignore"):
                origin = np.asarray(vectors[:rows], dtype=np.float64).mean(axis=0)
            origin = np.where(np.isfinite(origin), origin, 0.0)
        else:
            origin = np.asarray(origin, dtype=np.float64)
            if origin.shape != (dimension,):
                raise DataError(f"origin has shape {origin.shape}, the vectors need ({dimension},)")
        counts = {v: _count(table.codes[v], len(table.classes[v])) for v in table.views}
        sums = {v: np.zeros((len(counts[v]), dimension)) for v in table.views}
        scatter = np.zeros((dimension, dimension) if second_moment == "full" else dimension)
        shift = origin.astype(vectors.dtype)
        origin = shift.astype(np.float64)
        space = np.empty((min(rows, n), dimension), dtype=vectors.dtype)
        for start in range(0, n, rows):
            some = vectors[start : start + rows]
            with np.errstate(over="ignore", invalid="ignore"):
                block = np.subtract(some, shift, out=space[: len(some)])
                _add_squares(scatter, block)
            if not np.isfinite(scatter if scatter.ndim == 1 else scatter.diagonal()).all():
                _complain_of_rows(block, start)
            for view in table.views:
                _add_class_sums(sums[view], table.codes[view][start : start + rows], block)
        if second_moment == "full":
            scatter = np.tril(scatter) + np.tril(scatter, -1).T
        total = sums[table.views[0]].sum(axis=0)
        pairs = {
            (a, b): _cooccurrence(table.codes[a], table.codes[b], len(counts[a]), len(counts[b]))
            for i, a in enumerate(table.views)
            for b in table.views[i + 1 :]
        }
        return cls(table.views, n, origin, total, scatter, table.classes, counts, sums, pairs)

    @property
    def dimension(self) -> int:
        return len(self.total)

    @property
    def variance(self) -> Array:
        """(D,) variance of every column."""
        squares = self.scatter if self.scatter.ndim == 1 else np.diag(self.scatter)
        return np.maximum(squares / self.n - (self.total / self.n) ** 2, 0.0)

    @property
    def constant_columns(self) -> IntArray:
        """Columns with no variance but what rounding makes: of their own numbers, or of the others'."""
        variance = self.variance
        rounding = (1e-13 * self.origin) ** 2 + 1e-13 * (self.total / self.n) ** 2
        if variance.any():
            rounding += 1e-24 * np.median(variance[variance > 0])
        return np.flatnonzero(variance <= rounding)

    @property
    def second_moment(self) -> SecondMoment:
        return "full" if self.scatter.ndim == 2 else "diagonal"

    def __add__(self, other: SufficientStatistics) -> SufficientStatistics:
        if not isinstance(other, SufficientStatistics):
            return NotImplemented
        if self.dimension != other.dimension:
            raise DataError(f"statistics of width {self.dimension} and {other.dimension} cannot be added")
        if set(self.views) != set(other.views):
            raise LabelError(f"statistics of views {self.views} and {other.views} cannot be added")
        if self.second_moment != other.second_moment:
            raise ParameterError("statistics with full and with diagonal second moments cannot be added")
        other = other.about(self.origin)
        classes, mine, yours = _merge_classes(self, other)
        counts: dict[str, Array] = {}
        sums: dict[str, Array] = {}
        for view in self.views:
            counts[view] = np.zeros(len(classes[view]))
            sums[view] = np.zeros((len(classes[view]), self.dimension))
            for part, numbers in ((self, mine[view]), (other, yours[view])):
                counts[view][numbers] += part.counts[view]
                sums[view][numbers] += part.sums[view]
        pairs = {}
        for (a, b), table in self.cooccurrence.items():
            shape = (len(classes[a]), len(classes[b]))
            theirs = other.together(a, b)
            pairs[a, b] = _renumber(table, mine[a], mine[b], shape) + _renumber(theirs, yours[a], yours[b], shape)
        return SufficientStatistics(
            self.views,
            self.n + other.n,
            self.origin,
            self.total + other.total,
            self.scatter + other.scatter,
            classes,
            counts,
            sums,
            pairs,
        )

    def together(self, a: str, b: str) -> sparse.csr_array:
        """Co-occurrence counts of two views, in either order."""
        if (a, b) in self.cooccurrence:
            return self.cooccurrence[a, b]
        return self.cooccurrence[b, a].T.tocsr()

    def about(self, origin: Array) -> SufficientStatistics:
        """The same statistics about another origin."""
        shift = self.origin - origin
        if not shift.any():
            return self
        if self.scatter.ndim == 1:
            scatter = self.scatter + 2 * shift * self.total + self.n * shift**2
        else:
            cross = np.outer(shift, self.total)
            scatter = self.scatter + cross + cross.T + self.n * np.outer(shift, shift)
        sums = {v: self.sums[v] + self.counts[v][:, None] * shift for v in self.views}
        return SufficientStatistics(
            self.views,
            self.n,
            origin,
            self.total + self.n * shift,
            scatter,
            self.classes,
            self.counts,
            sums,
            self.cooccurrence,
        )

    def for_views(self, views: Sequence[str], second_moment: SecondMoment) -> Sums:
        """What the kernel needs for these views, in this order."""
        missing = [v for v in views if v not in self.counts]
        if missing:
            raise LabelError(
                f"the statistics have no view {missing[0]!r}, only {list(self.views)}: "
                "name it in views= when they are gathered"
            )
        if second_moment == "full" and self.scatter.ndim == 1:
            raise ParameterError("full noise needs statistics gathered with second_moment='full'")
        scatter = np.diag(self.scatter) if second_moment == "diagonal" and self.scatter.ndim == 2 else self.scatter
        pairs = {(k, l): self.together(views[k], views[l]) for k in range(len(views)) for l in range(k + 1, len(views))}
        return Sums(
            self.n,
            self.total,
            scatter,
            tuple(self.counts[v] for v in views),
            tuple(self.sums[v] for v in views),
            pairs,
        )


def as_vectors(X: Any) -> NDArray[Any]:
    """Vectors as a float32 or float64 array (n, D)."""
    vectors = np.asarray(X)
    if vectors.ndim != 2:
        raise DataError(f"vectors are an array (n, D); got shape {vectors.shape}. Reshape your data to two dimensions")
    if vectors.shape[0] == 0 or vectors.shape[1] == 0:
        raise DataError(f"there is nothing in vectors of shape {vectors.shape}")
    if vectors.dtype.kind not in "fiub":
        raise DataError(f"vectors are real numbers; got {vectors.dtype}")
    if vectors.dtype not in (np.float32, np.float64):
        vectors = vectors.astype(np.float32 if vectors.dtype == np.float16 else np.float64)
    return vectors


def _complain_of_rows(block: NDArray[Any], start: int) -> None:
    bad = np.flatnonzero(~np.isfinite(block).all(axis=1))
    if len(bad) == 0:
        raise DataError(
            f"vectors {start} to {start + len(block) - 1} are too large: their squares overflow {block.dtype}; "
            "scale the vectors down"
        )
    raise DataError(
        f"Input X contains NaN or infinity, first in row {start + bad[0]}: remove such vectors or repair them"
    )


def _count(codes: IntArray, size: int) -> Array:
    return np.bincount(codes, minlength=size).astype(np.float64)


def _add_squares(scatter: Array, block: NDArray[Any]) -> None:
    """Add the squares of a block's columns, or their products: to the lower triangle at least."""
    if scatter.ndim == 1:
        scatter += np.einsum("nd,nd->d", block, block)
    elif block.dtype == np.float64:
        dsyrk(1.0, block.T, beta=1.0, c=scatter.T, overwrite_c=True)  # in place: both are in Fortran's order
    else:
        scatter += block.T @ block


def _add_class_sums(sums: Array, codes: IntArray, block: NDArray[Any]) -> None:
    present, local = np.unique(codes, return_inverse=True)
    ones, ends = np.ones(len(codes), dtype=block.dtype), np.arange(len(codes) + 1)
    one_hot = sparse.csc_array((ones, local.reshape(-1), ends), shape=(len(present), len(codes)))
    sums[present] += one_hot @ block


def _cooccurrence(a: IntArray, b: IntArray, size_a: int, size_b: int) -> sparse.csr_array:
    table = sparse.coo_array((np.ones(len(a)), (a, b)), shape=(size_a, size_b)).tocsr()
    table.sum_duplicates()
    return table


def _renumber(table: sparse.csr_array, rows: IntArray, columns: IntArray, shape: tuple[int, int]) -> sparse.csr_array:
    entries = table.tocoo()
    return sparse.coo_array((entries.data, (rows[entries.row], columns[entries.col])), shape=shape).tocsr()


def _merge_classes(
    a: SufficientStatistics, b: SufficientStatistics
) -> tuple[dict[str, ViewClasses], dict[str, IntArray], dict[str, IntArray]]:
    """The union of the classes, and the new numbers of a's and of b's classes."""
    classes: dict[str, ViewClasses] = {}
    mine: dict[str, IntArray] = {}
    yours: dict[str, IntArray] = {}
    for name in base_columns(a.views):
        x, y = a.classes[name], b.classes[name]
        if len(x.names) and len(y.names) and _kind(x.names) != _kind(y.names):
            raise LabelError(
                f"classes of view {name!r} are {_kind(x.names)} in one part and {_kind(y.names)} in the other: "
                "gather both parts with labels of one type"
            )
        names = (
            np.unique(np.concatenate([x.names, y.names]))
            if len(x.names) and len(y.names)
            else (x.names if len(x.names) else y.names)
        )
        classes[name] = ViewClasses(names, x.anonymous + y.anonymous)
        first = len(names)
        mine[name] = np.concatenate([np.searchsorted(names, x.names), first + np.arange(x.anonymous)])
        yours[name] = np.concatenate([np.searchsorted(names, y.names), first + x.anonymous + np.arange(y.anonymous)])
    for view in a.views:
        if ":" not in view:
            continue
        parts = parts_of(view)
        cells = [
            np.stack([numbers[p][_cells(s, view)[:, i]] for i, p in enumerate(parts)], axis=1)
            for s, numbers in ((a, mine), (b, yours))
        ]
        rows = np.concatenate(cells)
        keys = row_keys([rows[:, i] for i in range(len(parts))], [len(classes[p]) for p in parts])
        _, first_rows, inverse = np.unique(keys, return_index=True, return_inverse=True)
        classes[view] = ViewClasses(np.empty(0, dtype=np.int64), 0, rows[first_rows])
        mine[view], yours[view] = np.split(inverse.reshape(-1), [len(cells[0])])
    return classes, mine, yours


def _kind(names: NDArray[Any]) -> str:
    return {"U": "text", "S": "bytes", "M": "dates", "m": "durations"}.get(names.dtype.kind, "numbers")


def _cells(statistics: SufficientStatistics, view: str) -> IntArray:
    cells = statistics.classes[view].cells
    assert cells is not None
    return cells
