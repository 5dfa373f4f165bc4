"""Sufficient statistics of labelled vectors: all that training ever sees of them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ..exceptions import DataError, LabelError, ParameterError
from ..kernel.arrays import is_torch
from ..kernel.records import Array, Sums
from ..labels import IntArray, LabelTable, ViewClasses, encode_labels
from .blocks import add_squares, all_finite, as_vectors, class_sums, rows_of_block, too_large, whole

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
            from ..gpu import gather

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
        options : of `mvplda.shards.gather`, which also tells what was skipped: engine, scheduler, work_dir, ...

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
        from ..shards import gather

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
        from .merging import merge

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
