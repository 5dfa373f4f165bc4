"""Sums of labelled vectors that grow block by block.

An `Accumulator` knows classes by their numbers alone; ``SufficientStatistics.of`` gives them their names.
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from scipy.linalg.blas import dsyrk

from .._typing import AnyArray, Array, Block, IntArray
from ..backend import (
    Numpy,
    Torch,
    as_vectors,
    diagonal_of,
    dtype_name,
    like,
    namespace,
    one_hot,
    own_namespace,
    to_host,
)
from ..exceptions import DataError, LabelError, ParameterError
from ..labels import (
    check_view_names,
    distinct,
)

SecondMoment = Literal["full", "diagonal"]

BLOCK_BYTES = 4 * 2**20
"""Bytes of vectors that are summed at a time, while they are in the cache."""

SHIFT = 32
PENDING = 2**18


@dataclass(frozen=True)
class Sums:
    """Sufficient statistics of n labelled vectors, about a common origin: what EM reads.

    n : number of vectors
    total : (D,) sum of x
    scatter : (D,) or (D, D) sum of x^2 or of x x'
    counts : per view (C_k,), vectors in every class
    sums : per view (C_k, D), sum of x over every class
    cooccurrence : for k < l a sparse (C_k, C_l), vectors in class c of k and class d of l

    `total`, `scatter` and `sums` may be torch tensors, all on one device; then the
    whole E and M steps run there. Counts stay NumPy: the design is made from them.
    """

    n: int
    total: AnyArray
    scatter: AnyArray
    counts: tuple[Array, ...]
    sums: tuple[AnyArray, ...]
    cooccurrence: dict[tuple[int, int], sparse.csr_array]

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
        sums = tuple(to_host(own) for own in self.sums)
        total = to_host(self.total)
        return Sums(self.n, total, to_host(self.scatter), self.counts, sums, self.cooccurrence)

    def together(self, k: int, l: int) -> sparse.csr_array:
        """Co-occurrence N_kl for any order of two different views."""
        if k < l:
            return self.cooccurrence[k, l]
        return self.cooccurrence[l, k].T.tocsr()

    @property
    def has_products(self) -> bool:
        """Whether the scatter is a matrix, not its diagonal alone."""
        return self.scatter.ndim == 2

    def product(self, left: AnyArray, right: AnyArray) -> AnyArray:
        """left right' of two (D, m), or only its diagonal, as the scatter is."""
        if self.has_products:
            return left @ right.T
        return self.xp.einsum("dm,dm->d", left, right)

    def scatter_about(self, mean: AnyArray) -> AnyArray:
        """Sum of (x - mean)(x - mean)', or of its diagonal."""
        if not self.has_products:
            return self.scatter - 2 * mean * self.total + self.n * mean**2
        cross = self.xp.outer(self.total - self.n / 2 * mean, mean)
        return self.scatter - cross - cross.T


def amid(vectors: Array) -> Array:
    """A point amid vectors: their mean, where it is finite."""
    with np.errstate(over="ignore", invalid="ignore"):
        mean = vectors.mean(axis=0)
    return np.where(np.isfinite(mean), mean, 0.0)


class Accumulator:
    """Sums that grow with every block of vectors: one pass over NumPy arrays, accumulating in float64.

    float32 vectors are multiplied as float32 and summed as float64. `DeviceAccumulator` is the same for tensors.

    Parameters
    ----------
    dimension : width of the vectors
    classes : of every view, interactions included, the number of its classes; or only the views, and there is
        room for classes as their numbers appear
    second_moment : ``"full"`` for any noise, ``"diagonal"`` is enough for diagonal noise
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
            raise ParameterError(f"second_moment is 'full' or 'diagonal'; got {second_moment!r}")
        if not classes:
            raise ParameterError("there is no view: name at least one")
        self.sizes = dict(classes) if isinstance(classes, Mapping) else dict.fromkeys(classes, 0)
        self.views = tuple(self.sizes)
        check_view_names(self.views)
        self.origin: Array | None = None  # the mean of the first block
        self.dimension = dimension
        self.second_moment = second_moment
        self._begin()

    def _begin(self) -> None:
        self.n = 0
        self._rows = 0
        self._scatter: Block = np.empty(0)
        self._counts = [np.zeros(size) for size in self.sizes.values()]
        self._sums: list[Block] = []
        self._pairs = {pair: _Pairs() for pair in combinations(range(len(self.views)), 2)}

    @np.errstate(over="ignore", invalid="ignore")
    def add(self, X: ArrayLike, codes: Mapping[str, Block]) -> None:
        """Add vectors (n, D) with the class numbers of every view, each (n,)."""
        vectors = self._vectors(X)
        n, D = vectors.shape
        if self.dimension != D:
            raise DataError(f"the vectors have width {D}; those before have {self.dimension}")
        numbers = [self._numbers(view, codes, n) for view in self.views]
        if not self._sums:
            self._sums = [self._zeros(vectors, size, D) for size in self.sizes.values()]
            shape = (D, D) if self.second_moment == "full" else (D,)
            self._scatter = self._zeros(vectors, *shape)
        rows = max(256, self.block_bytes // (vectors.itemsize * D))
        shift = self._shift(vectors[:rows])
        space = vectors[:rows] - shift  # used again for every block: new pages take time
        for start in range(0, n, rows):
            some = vectors[start : start + rows]
            block = namespace(some).subtract(some, shift, out=space[: len(some)])
            squares = self._squares(block)
            # Sums of squares are finite exactly where all numbers are, and none is too large.
            if not bool(namespace(squares).isfinite(diagonal_of(squares)).all()):
                self._refuse(block, start)
            self._scatter += squares
            for k, own in enumerate(numbers):
                self._add_classes(k, own[start : start + rows], block)
            self.n += len(block)
        self._rows += n
        for (k, l), pairs in self._pairs.items():
            pairs.add(*self._cells(numbers[k], numbers[l]))

    def _refuse(self, block: Block, start: int) -> None:
        """The error that names the first vector that is not finite, or the block whose squares overflow."""
        first = self._rows + start
        finite = to_host(namespace(block).isfinite(block).all(axis=1))
        if not finite.all():
            raise DataError(
                f"Input X contains NaN or infinity, first in row {first + int(finite.argmin())}: "
                "remove such vectors or repair them"
            )
        raise DataError(
            f"vectors {first} to {first + len(block) - 1} are too large: their squares overflow "
            f"{dtype_name(block)}; scale the vectors down"
        )

    def _vectors(self, X: ArrayLike) -> Block:
        return as_vectors(X)

    def _numbers(self, view: str, codes: Mapping[str, Block], n: int) -> Block:
        if view not in codes:
            raise LabelError(
                f"there are no class numbers of view {view!r}, only of {sorted(codes)}"
            )
        if len(codes[view]) != n:
            raise LabelError(
                f"there are {n} vectors and {len(codes[view])} labels of {view!r}: give one label a vector"
            )
        return codes[view]

    def _zeros(self, vectors: Block, *shape: int) -> Block:
        """Sums to begin with, where the vectors are."""
        return np.zeros(shape)

    def _shift(self, first: Block) -> Block:
        """The origin in the precision of some vectors, or as it is, where that would not be the same point."""
        if self.origin is None:
            self.origin = amid(to_host(first).astype(np.float64))
        shift = self.origin.astype(dtype_name(first))
        if self.n == 0:
            self.origin = shift.astype(np.float64)
        same = (shift == self.origin).all()
        return like(shift if same else self.origin, first)

    def _squares(self, block: Block) -> Block:
        """Sums of the squares of a block's columns, or of their products, of which the lower triangle is enough."""
        if self.second_moment == "diagonal":
            return np.einsum("nd,nd->d", block, block)
        if block.dtype == np.float64:
            return dsyrk(1.0, block.T).T
        return block.T @ block

    def _add_classes(self, k: int, codes: Block, block: Block) -> None:
        size = int(codes.max()) + 1
        if size > len(self._counts[k]):
            # large arrays grow where they are, without a copy
            room = max(size, len(self._counts[k]) * 5 // 4)
            self._counts[k].resize(room, refcheck=False)
            self._sums[k].resize((room, self.dimension), refcheck=False)
        which: slice | IntArray = slice(0, size)
        if size > len(codes):  # more classes than vectors: only those that are there
            which, codes, _ = distinct(codes)
        counts = np.bincount(codes)
        self._counts[k][which] += counts
        self._sums[k][which] += one_hot(codes, len(counts), block.dtype) @ block

    def _cells(self, rows: Block, columns: Block) -> tuple[IntArray, IntArray]:
        """Distinct pairs of class numbers, each as ``row << SHIFT | column``, and how often each occurs."""
        cells, _, counts = distinct((rows.astype(np.int64) << SHIFT) | columns)
        return cells, counts

    def result(self) -> Sums:
        """The sums, with classes in the order of their numbers. The accumulator is empty afterwards."""
        scatter = self._scatter
        if self.second_moment == "full":
            lower = namespace(scatter).tril(scatter)
            scatter = lower + lower.T
            namespace(scatter).diagonal(scatter)[:] /= 2
        sizes = [len(counts) for counts in self._counts]
        tables = {(k, l): met.table((sizes[k], sizes[l])) for (k, l), met in self._pairs.items()}
        total = self._sums[0].sum(axis=0)
        counts = tuple(self._counts)
        result = Sums(self.n, total, scatter, counts, tuple(self._sums), tables)
        self._begin()
        return result


class _Pairs:
    """How often classes of two views meet; counts of the same pair are put together now and then."""

    def __init__(self) -> None:
        self.parts: list[tuple[IntArray, IntArray]] = []
        self.pending = 0

    def add(self, keys: IntArray, counts: IntArray) -> None:
        """Cells of a block, each once."""
        self.parts.append((keys, counts))
        self.pending += len(keys)
        if self.pending > PENDING + len(self.parts[0][0]):
            self.parts = [self._settled()]
            self.pending = 0

    def _settled(self) -> tuple[IntArray, IntArray]:
        keys, counts = map(np.concatenate, zip(*self.parts, strict=True))
        order = np.argsort(keys, kind="stable")  # merges runs that are sorted already
        first = np.flatnonzero(np.diff(keys[order], prepend=-1))
        return keys[order][first], np.add.reduceat(counts[order], first)

    def table(self, shape: tuple[int, int]) -> sparse.csr_array:
        keys, counts = self._settled()
        columns = keys & (2**SHIFT - 1)
        ends = np.searchsorted(keys >> SHIFT, np.arange(shape[0] + 1))  # the keys are sorted
        return sparse.csr_array((counts.astype(np.float64), columns, ends), shape=shape)
