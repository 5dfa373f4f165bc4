"""Sufficient statistics of labelled vectors: all that training ever sees of them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from .._typing import Array, IntArray
from .._validation import as_vectors
from ..backend import is_torch
from ..exceptions import DataError, LabelError, ParameterError
from ..labels import LabelTable, ViewClasses, base_columns, encode_labels, parts_of, row_keys
from .sums import Sums, add_squares, all_finite, class_sums, rows_of_block, too_large, whole

SecondMoment = Literal["full", "diagonal"]

HARDLY_VARIES = 1e-12
"""A variance below this fraction of the others' is what rounding of float32 numbers leaves, not data."""


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
        X : array (n, D); float32 is multiplied as float32 and summed as float64. Of a torch tensor
            the sums are made on its device, and class sums stay there until they are read
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
        table = labels if isinstance(labels, LabelTable) else encode_labels(labels, views, missing=missing)
        if is_torch(X):
            from .device import gather

            return gather(X, table, second_moment=second_moment, origin=origin)
        vectors = as_vectors(X)
        n, dimension = vectors.shape
        if len(table) != n:
            raise LabelError(f"there are {n} vectors and {len(table)} labels: give one label a vector")
        rows = rows_of_block(vectors.itemsize, dimension)
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
                add_squares(scatter, block)
            if not all_finite(scatter):
                _complain_of_rows(block, start)
            for view in table.views:
                present, some_sums, _ = class_sums(table.codes[view][start : start + rows], block)
                sums[view][present] += some_sums
        scatter = whole(scatter)
        total = sums[table.views[0]].sum(axis=0)
        pairs = {
            (a, b): _cooccurrence(table.codes[a], table.codes[b], len(counts[a]), len(counts[b]))
            for i, a in enumerate(table.views)
            for b in table.views[i + 1 :]
        }
        return cls(table.views, n, origin, total, scatter, table.classes, counts, sums, pairs)

    @classmethod
    def from_files(
        cls,
        paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        labels: Mapping[str, str | os.PathLike[str]] | None = None,
        views: Sequence[str] | None = None,
        **options: Any,
    ) -> SufficientStatistics:
        """From shards on disk, batch by batch: they may be larger than memory.

        Parameters
        ----------
        paths : files ending in .parquet, .arrow, .npy, .npz, .scp or .ark
        labels : per label column where it is found: a column of the table, or a file
        views : the views, interactions included (default: every column of `labels`)
        options : of `mvplda.distributed.gather`, which also tells what was skipped: engine, scheduler, work_dir, ...

        Examples
        --------
        >>> import tempfile, pathlib
        >>> import numpy as np
        >>> from mvplda import SufficientStatistics
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> np.save(folder / "x.npy", np.arange(12.0).reshape(6, 2))
        >>> np.save(folder / "x.speaker.npy", np.array(list("aabbcc")))
        >>> SufficientStatistics.from_files(folder / "x.npy", views=["speaker"]).counts
        {'speaker': array([2., 2., 2.])}
        """
        from ..distributed import gather

        return gather(paths, labels, views, **options).statistics

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the statistics to a ``.safetensors`` file, all or nothing."""
        from .storage import save_statistics

        save_statistics(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> SufficientStatistics:
        """Read statistics that `save` wrote; damaged and foreign files give a `FileFormatError`."""
        from .storage import load_statistics

        return load_statistics(path)

    def to_bytes(self) -> bytes:
        """What `save` writes, for a message or a column of a table."""
        from .storage import statistics_bytes

        return statistics_bytes(self)

    @classmethod
    def from_bytes(cls, data: bytes) -> SufficientStatistics:
        """The statistics that `to_bytes` wrote."""
        from .storage import statistics_of_bytes

        return statistics_of_bytes(data)

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
        """Columns with no variance but what rounding makes: of their own numbers, or of the others'.

        The model ignores them: a vector that is not constant there, after all, says nothing by it.
        """
        rounding = (1e-13 * self.origin) ** 2 + 1e-13 * (self.total / self.n) ** 2
        return np.flatnonzero(hardly_vary(self.variance, rounding))

    @property
    def second_moment(self) -> SecondMoment:
        return "full" if self.scatter.ndim == 2 else "diagonal"

    def __add__(self, other: SufficientStatistics) -> SufficientStatistics:
        if not isinstance(other, SufficientStatistics):
            return NotImplemented

        return merge([self, other])

    def __sub__(self, other: SufficientStatistics) -> SufficientStatistics:
        """The statistics without the vectors of `other`, all of which must be among them.

        Classes that lose their last vector vanish: a fit is as though they had never been there.
        """
        if not isinstance(other, SufficientStatistics):
            return NotImplemented
        from .subtraction import subtract

        return subtract(self, other)

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


def hardly_vary(variances: Array, rounding: Array) -> NDArray[np.bool_]:
    """Which columns vary by no more than the rounding of their own numbers (a variance), or of the others'."""
    varying = variances[variances > rounding]
    least = HARDLY_VARIES * np.median(varying) if len(varying) else 0.0
    return np.asarray(variances <= rounding + least)


def _complain_of_rows(block: NDArray[Any], start: int) -> None:
    bad = np.flatnonzero(~np.isfinite(block).all(axis=1))
    if len(bad) == 0:
        raise too_large(f"vectors {start} to {start + len(block) - 1}", block.dtype)
    raise DataError(
        f"Input X contains NaN or infinity, first in row {start + bad[0]}: remove such vectors or repair them"
    )


def _count(codes: IntArray, size: int) -> Array:
    return np.bincount(codes, minlength=size).astype(np.float64)


def _cooccurrence(a: IntArray, b: IntArray, size_a: int, size_b: int) -> sparse.csr_array:
    table = sparse.coo_array((np.ones(len(a)), (a, b)), shape=(size_a, size_b)).tocsr()
    table.sum_duplicates()
    return table


# Statistics of many parts, added at once: every class dictionary is sorted once, not once a part.
#
# Memory: the result, twice the names of all parts, and a copy of one part where its origin is another.
# Time: linear in the classes and cells of all parts, but for a merge of their sorted names.


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
