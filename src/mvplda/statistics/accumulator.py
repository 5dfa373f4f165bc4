"""Sums of labelled vectors that grow block by block.

An `Accumulator` identifies classes by number; ``SufficientStatistics.of`` adds their names.
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from scipy.linalg.blas import dsyrk

from .._typing import AnyArray, Array, IntArray
from ..backend import (
    Numpy,
    Torch,
    diagonal_of,
    dtype_name,
    like,
    namespace,
    one_hot,
    own_namespace,
    to_host,
)
from ..exceptions import DataError, LabelError, ParameterError
from ..labels import check_view_names, distinct
from ..vector_checks import as_vectors

SecondMoment = Literal["full", "diagonal"]
"""Kind of second moments: a full matrix, or only its diagonal."""

BLOCK_BYTES = 4 * 2**20
"""Number of bytes of vectors that are summed at a time, so that they stay in the processor's cache."""

SHIFT = 32
"""Number of bits for the second class number in the key of a cell (pair of classes)."""

PENDING = 2**18
"""Number of counts of cells (pairs of classes) after which counts of equal cells are merged."""


@dataclass(frozen=True)
class Sums:
    """Sufficient statistics of n labelled vectors x, the input of EM.

    An origin near the data was subtracted from all vectors.

    n : number of vectors
    total : (D,) sum of x
    scatter : sum of x x' (D, D), or its diagonal (D,)
    counts : per view (classes,) number of vectors in each class
    sums : per view (classes, D) sum of x in each class
    cooccurrence : {(k, l): (classes of view k, classes of view l) sparse}, for k < l: number of
        vectors with each pair of classes

    `total`, `scatter` and `sums` may be torch tensors, all on one device; the E and M steps then
    run on that device. Counts are always NumPy arrays, because the design is computed from them.
    """

    n: int
    total: AnyArray
    scatter: AnyArray
    counts: tuple[Array, ...]
    sums: tuple[AnyArray, ...]
    cooccurrence: dict[tuple[int, int], sparse.csr_array]

    @property
    def n_views(self) -> int:
        """Number of views."""
        return len(self.counts)

    @property
    def dimension(self) -> int:
        """Number of dimensions D of the vectors."""
        return len(self.total)

    @cached_property
    def xp(self) -> Numpy | Torch:
        """Backend of these sums: NumPy, or a torch device (see ``backend``)."""
        return own_namespace(self.total)

    def on_host(self) -> Sums:
        """Return the same sums as NumPy arrays."""
        sums = tuple(to_host(class_sums) for class_sums in self.sums)
        total = to_host(self.total)
        return Sums(self.n, total, to_host(self.scatter), self.counts, sums, self.cooccurrence)

    def together(self, k: int, l: int) -> sparse.csr_array:
        """Return how many vectors have each pair of classes of views k and l.

        return : (classes of k, classes of l) sparse; k may be smaller or larger than l
        """
        if k < l:
            return self.cooccurrence[k, l]
        return self.cooccurrence[l, k].T.tocsr()

    @property
    def has_products(self) -> bool:
        """Whether the scatter is a full matrix (D, D), not only its diagonal."""
        return self.scatter.ndim == 2

    def product(self, left: AnyArray, right: AnyArray) -> AnyArray:
        """Return left right' (D, D) of two matrices (D, m), in the form of the scatter.

        If the scatter is only a diagonal, compute only the diagonal (D,) of the product.
        """
        if self.has_products:
            return left @ right.T
        return self.xp.einsum("dm,dm->d", left, right)

    def scatter_about(self, mean: AnyArray) -> AnyArray:
        """Return the sum over vectors x of (x - mean)(x - mean)', (D, D).

        If the scatter is only a diagonal, return only the diagonal (D,) of the result.
        """
        if not self.has_products:
            return self.scatter - 2 * mean * self.total + self.n * mean**2
        # each of the two mixed terms gets half of n mean mean'
        cross = self.xp.outer(self.total - self.n / 2 * mean, mean)
        return self.scatter - cross - cross.T


def origin_near(vectors: Array) -> Array:
    """Return the mean (D,) of vectors (n, D), with 0 in place of NaN and infinity."""
    with np.errstate(over="ignore", invalid="ignore"):
        mean = vectors.mean(axis=0)
    return np.where(np.isfinite(mean), mean, 0.0)


class Accumulator:
    """Sums of labelled vectors, accumulated in float64 in one pass over blocks of NumPy arrays.

    float32 vectors are multiplied as float32 and summed as float64. `DeviceAccumulator` does the
    same for tensors.

    Parameters
    ----------
    dimension : number of dimensions of the vectors
    classes : {view: number of classes}, interactions included. If only the names of the views are
        given, the number of classes grows as larger class numbers appear
    second_moment : ``"full"`` for any noise; ``"diagonal"`` suffices for diagonal noise
    """

    block_bytes = BLOCK_BYTES

    def __init__(
        self,
        dimension: int,
        classes: Mapping[str, int] | Sequence[str],
        *,
        second_moment: SecondMoment = "full",
    ) -> None:
        if second_moment not in ("full", "diagonal"):
            raise ParameterError(
                f"second_moment must be 'full' or 'diagonal'; got {second_moment!r}"
            )
        if not classes:
            raise ParameterError("classes is empty: pass the name of at least one view")
        self.sizes = dict(classes) if isinstance(classes, Mapping) else dict.fromkeys(classes, 0)
        self.views = tuple(self.sizes)
        check_view_names(self.views)
        self.origin: Array | None = None  # the mean of the first block
        self.dimension = dimension
        self.second_moment = second_moment
        self._reset()

    def _reset(self) -> None:
        """Set all sums to zero, but keep the origin."""
        self.n = 0
        self._rows = 0
        self._scatter: AnyArray = np.empty(0)
        self._counts = [np.zeros(size) for size in self.sizes.values()]
        self._sums: list[Any] = []
        self._pairs = {pair: _Pairs() for pair in combinations(range(len(self.views)), 2)}

    @np.errstate(over="ignore", invalid="ignore")
    def add(self, X: ArrayLike, codes: Mapping[str, AnyArray]) -> None:
        """Add vectors with their class numbers.

        Parameters
        ----------
        X : (n, D) vectors
        codes : {view: (n,) class numbers}, for every view

        Raises
        ------
        DataError
            Vectors do not have `dimension` columns, or contain NaN, infinity or numbers whose
            squares overflow.
        LabelError
            Class numbers are missing.
        """
        vectors = self._vectors(X)
        n, D = vectors.shape
        if self.dimension != D:
            raise DataError(
                f"vectors must have {self.dimension} dimensions, as those added before; got {D}"
            )
        numbers = [self._numbers(view, codes, n) for view in self.views]
        if not self._sums:
            self._sums = [self._zeros(vectors, size, D) for size in self.sizes.values()]
            shape = (D, D) if self.second_moment == "full" else (D,)
            self._scatter = self._zeros(vectors, *shape)

        rows = max(256, self.block_bytes // (vectors.itemsize * D))
        shift = self._shift(vectors[:rows])
        buffer = (
            vectors[:rows] - shift
        )  # reused for every block, because new memory pages take time
        for start in range(0, n, rows):
            chunk = vectors[start : start + rows]
            block = namespace(chunk).subtract(chunk, shift, out=buffer[: len(chunk)])
            squares = self._squares(block)
            # Sums of squares are finite exactly if all numbers are finite and none is too large.
            if not bool(namespace(squares).isfinite(diagonal_of(squares)).all()):
                self._raise_not_finite(block, start)
            # after the check, so that an error leaves no trace of the block in the sums
            self._scatter += squares
            for k, view_numbers in enumerate(numbers):
                self._add_classes(k, view_numbers[start : start + rows], block)
            self.n += len(block)

        self._rows += n
        for (k, l), pairs in self._pairs.items():
            pairs.add(*self._cells(numbers[k], numbers[l]))

    def _raise_not_finite(self, block: AnyArray, start: int) -> None:
        """Raise `DataError` for a block whose sum of squares is not finite.

        The message names the first vector with NaN or infinity. If there is none, squares overflow,
        and it names the rows of the block.

        block : (rows, D) vectors
        start : position of the block's first row in the array that is being added
        """
        first = self._rows + start
        finite = to_host(namespace(block).isfinite(block).all(axis=1))
        if not finite.all():
            raise DataError(
                f"Input X contains NaN or infinity, first in row {first + int(finite.argmin())}: "
                "remove or repair such vectors"
            )
        raise DataError(
            f"vectors {first} to {first + len(block) - 1} are too large: their squares overflow "
            f"{dtype_name(block)}; scale the vectors down"
        )

    def _vectors(self, X: Any) -> Any:
        """Return vectors as a float array (n, D); raise `DataError` for other shapes and types."""
        return as_vectors(X)

    def _numbers(self, view: str, codes: Mapping[str, AnyArray], n: int) -> AnyArray:
        """Return the class numbers of a view, (n,); raise `LabelError` unless there are n."""
        if view not in codes:
            raise LabelError(
                f"there are no class numbers of view {view!r}, only of {sorted(codes)}: pass codes for every view"
            )
        if len(codes[view]) != n:
            raise LabelError(
                f"there are {n} vectors and {len(codes[view])} labels of {view!r}: pass one label per vector"
            )
        return codes[view]

    def _zeros(self, vectors: Any, *shape: int) -> AnyArray:
        """Return float64 zeros of this shape, on the device of the vectors."""
        return np.zeros(shape)

    def _shift(self, first: Any) -> Any:
        """Return the origin (D,) to subtract from vectors; set it if these are the first vectors.

        The result has the precision of the vectors, unless rounding to it would change the origin:
        then it is float64.

        first : (rows, D) first rows of the array that is being added
        """
        if self.origin is None:
            self.origin = origin_near(to_host(first).astype(np.float64))
        shift = self.origin.astype(dtype_name(first))
        if self.n == 0:
            self.origin = shift.astype(np.float64)
        exact = (shift == self.origin).all()
        return like(shift if exact else self.origin, first)

    def _squares(self, block: Any) -> AnyArray:
        """Return the sum of x x' over the vectors x of a block.

        It is the diagonal (D,), or a matrix (D, D) of which only the lower triangle is valid.
        """
        if self.second_moment == "diagonal":
            return np.einsum("nd,nd->d", block, block)
        if block.dtype == np.float64:
            # BLAS computes a single triangle, which takes half of the time of the full product.
            return dsyrk(1.0, block.T).T
        return block.T @ block

    def _add_classes(self, k: int, codes: Any, block: Any) -> None:
        """Add a block of vectors to the counts and sums of the classes of view k.

        codes : (rows,) class numbers
        block : (rows, D) vectors
        """
        first = int(codes.min())
        size = int(codes.max()) + 1
        if size > len(self._counts[k]):
            # `resize` extends large arrays in place, without a copy.
            capacity = max(size, len(self._counts[k]) * 5 // 4)
            self._counts[k].resize(capacity, refcheck=False)
            self._sums[k].resize((capacity, self.dimension), refcheck=False)
        # Blocks of sorted vectors hold few classes: address the range that occurs, or if it has more classes than
        # vectors, the classes that occur.
        classes: slice | IntArray = slice(first, size)
        if size - first > len(codes):
            classes, codes, _ = distinct(codes)
        else:
            codes = codes - first
        counts = np.bincount(codes)
        self._counts[k][classes] += counts
        self._sums[k][classes] += one_hot(codes, len(counts), block.dtype) @ block

    def _cells(self, rows: Any, columns: Any) -> tuple[IntArray, IntArray]:
        """Return the distinct pairs of class numbers of two views, and how often each pair occurs.

        A pair is stored as the integer key ``row << SHIFT | column``.

        rows, columns : (n,) class numbers in the first and in the second view
        return : (pairs,) sorted keys, and (pairs,) numbers of vectors
        """
        # one integer per cell sorts faster than a pair
        cells, _, counts = distinct((rows.astype(np.int64) << SHIFT) | columns)
        return cells, counts

    def result(self) -> Sums:
        """Return the sums of all added vectors, a row per class number, and reset the accumulator."""
        scatter = self._scatter
        if self.second_moment == "full":
            # Only the lower triangle is valid: mirror it, which doubles the diagonal.
            lower = namespace(scatter).tril(scatter)
            scatter = lower + lower.T
            namespace(scatter).diagonal(scatter)[:] /= 2
        sizes = [len(counts) for counts in self._counts]
        tables = {
            (k, l): pairs.table((sizes[k], sizes[l])) for (k, l), pairs in self._pairs.items()
        }
        # each vector is in exactly one class per view, so the class sums of one view add up to the total
        total = self._sums[0].sum(axis=0)
        counts = tuple(self._counts)
        result = Sums(self.n, total, scatter, counts, tuple(self._sums), tables)
        self._reset()
        return result


class _Pairs:
    """Number of vectors with each pair of classes of two views.

    Pairs are stored as integer keys (see `Accumulator._cells`). Equal keys of different blocks are
    merged when about as many new keys as merged ones have been added.
    """

    def __init__(self) -> None:
        self.batches: list[tuple[IntArray, IntArray]] = []
        self.pending = 0

    def add(self, keys: IntArray, counts: IntArray) -> None:
        """Add the numbers of vectors of a block.

        keys : (pairs,) distinct keys of pairs of classes
        counts : (pairs,) numbers of vectors
        """
        self.batches.append((keys, counts))
        self.pending += len(keys)
        # Merging only after as many new cells as merged ones keeps the total time linear, up to a logarithm.
        if self.pending > PENDING + len(self.batches[0][0]):
            self.batches = [self._merged()]
            self.pending = 0

    def _merged(self) -> tuple[IntArray, IntArray]:
        """Return the distinct keys (pairs of classes), sorted, and the number of vectors of each."""
        keys, counts = map(np.concatenate, zip(*self.batches, strict=True))
        order = np.argsort(keys, kind="stable")  # merges runs that are sorted already
        first = np.flatnonzero(np.diff(keys[order], prepend=-1))
        return keys[order][first], np.add.reduceat(counts[order], first)

    def table(self, shape: tuple[int, int]) -> sparse.csr_array:
        """Return the numbers of vectors as a sparse table, (classes, classes of the other view)."""
        keys, counts = self._merged()
        columns = keys & (2**SHIFT - 1)
        # Keys are sorted by row, so that the rows of a CSR table end where the next row begins.
        ends = np.searchsorted(keys >> SHIFT, np.arange(shape[0] + 1))
        return sparse.csr_array((counts.astype(np.float64), columns, ends), shape=shape)
