"""NumPy and torch behind one face: the few calls of the kernel in which they differ.

The kernel takes `Sums` whose class sums are NumPy arrays, or torch tensors on some device, and asks ``sums.xp`` for
whatever the two libraries name or do differently; where they agree (``xp.log``, ``xp.linalg.eigh``) the name is
passed on. Counts and co-occurrence tables are NumPy and SciPy in both cases: `cached`, `cached_table` and
`cached_columns` bring them to the device once a fit.
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from functools import cache, partial
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray
from scipy import sparse
from scipy.linalg import cho_solve, cholesky
from scipy.linalg.lapack import dpotri
from threadpoolctl import ThreadpoolController

from ._optional import LateModule
from ._typing import AnyArray, Array, Block, Device, FloatArray, IntArray
from .exceptions import DataError, ParameterError

if TYPE_CHECKING:
    import torch
    from torch import Tensor
else:
    torch = LateModule("torch")

DENSE_TABLE_ELEMENTS = 2**28
"""Count tables that are a tenth full are kept dense on a device, up to this many numbers (2 GiB)."""


def is_torch(array: object) -> TypeGuard[Tensor]:
    return type(array).__module__.partition(".")[0] == "torch"


def to_host(array: ArrayLike) -> NDArray[Any]:
    """A NumPy array of a NumPy array or a tensor."""
    if not is_torch(array):
        return np.asarray(array)
    there = array.detach().cpu()
    if there.dtype == torch.bfloat16:  # which NumPy does not know
        there = there.float()
    return np.asarray(there)


def diagonal_of(moment: AnyArray) -> AnyArray:
    """The diagonal (D,) of a second moment, of which there may be no more than that."""
    return moment if moment.ndim == 1 else moment.diagonal()


def namespace(array: AnyArray) -> Numpy | Torch:
    """What calculates with arrays of this kind, on their device and in their precision."""
    return _torch_namespace(array.device, array.dtype) if is_torch(array) else NUMPY


def own_namespace(array: AnyArray) -> Numpy | Torch:
    """The same, but one's own: what a fit caches in it goes with it."""
    return Torch(array.device, array.dtype) if is_torch(array) else NUMPY


WIDE_BLOCK = 24
"""Blocks from this width on are inverted one by one: LAPACK needs a third of the time of a general solution."""


MIRROR_ROWS = 128
"""So many rows of a matrix are copied across its diagonal at a time."""


class Numpy:
    """NumPy and SciPy, on the host, in float64."""

    gram_rows = 2048
    block_elements = 2**19  # of stacked blocks that are worked on at a time: they stay in the cache
    per_count_gram_elements = 2**23

    def __getattr__(self, name: str) -> Block:
        return getattr(np, name)

    def asarray(self, array: Block) -> Block:
        """An array on the device: here it is already."""
        return array

    cached = asarray  # one that stays the same during a fit
    cached_table = asarray  # a count table for products from the left, itself or transposed
    table = asarray  # one that is needed once
    permute = staticmethod(np.transpose)

    def cached_columns(self, counts: Array | sparse.csr_array, columns: slice) -> Block:
        """Some columns of a count table, dense or sparse."""
        return counts[:, columns]

    def gram(self, table: sparse.csr_array) -> Block:
        """table' table, dense."""
        return (table.T @ table).toarray()

    def diagonal(self, matrix: AnyArray) -> Block:
        """The diagonal, to write to."""
        return np.einsum("ii->i", matrix)

    def split_axes(self, matrix: AnyArray, r: int, q: int) -> Block:
        """(J r, K q) as a writable (J, r, K, q)."""
        s, t = np.asarray(matrix).strides
        shape = (matrix.shape[0] // r, r, matrix.shape[1] // q, q)
        return np.lib.stride_tricks.as_strided(matrix, shape, (r * s, s, q * t, t))

    def sum_by(self, group: IntArray, size: int, rows: AnyArray) -> Block:
        """Sums of the rows of every group."""
        return one_hot(group, size) @ rows

    def cholesky(self, matrix: AnyArray, *, overwrite: bool = False) -> Block:
        """Lower factor of a symmetric matrix, or LinAlgError."""
        return cholesky(
            matrix.T, lower=True, overwrite_a=overwrite, check_finite=False
        )  # .T is LAPACK's order

    def cho_solve(self, lower: AnyArray, right: AnyArray) -> Block:
        return cho_solve((lower, True), right, check_finite=False)

    def inverse(self, lower: AnyArray, *, overwrite: bool = False) -> Block:
        """(L L')^-1: the half that LAPACK makes costs a third of solving for every unit vector."""
        inverse = dpotri(lower, lower=1, overwrite_c=overwrite)[0]
        # The other half is filled in place: to get memory for another large matrix takes longer than to fill it.
        for start in range(0, len(inverse), MIRROR_ROWS):
            rows = slice(start, start + MIRROR_ROWS)
            square = inverse[rows, rows]
            square += np.tril(square, -1).T
            inverse[rows, rows.stop :] = inverse[rows.stop :, rows].T
        return inverse

    def inverses(self, blocks: AnyArray) -> tuple[Block, Block]:
        """(g, r, r) inverses of positive definite blocks, and their log-determinants (g,)."""
        r = blocks.shape[-1]
        if r < WIDE_BLOCK:
            identity = np.broadcast_to(np.eye(r), blocks.shape)
            return np.linalg.solve(blocks, identity), np.linalg.slogdet(blocks)[1]
        inverse = np.empty(blocks.shape)
        log_determinant = np.empty(len(blocks))
        for i, block in enumerate(blocks):
            lower = self.cholesky(block)
            inverse[i] = self.inverse(lower)
            log_determinant[i] = 2 * np.log(lower.diagonal()).sum()
        return inverse, log_determinant


class Torch:
    """torch, on one device, in one precision.

    What the methods that are called `cached` bring to the device stays there as long as this object lives.
    """

    gram_rows = 2**17
    block_elements = 2**24
    per_count_gram_elements = 2**27

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        self.device = device
        self.dtype = dtype
        self._kept: dict[Hashable, tuple[object, Block]] = {}

    def __getattr__(self, name: str) -> Block:
        function = getattr(torch, name)
        if name in ("zeros", "empty", "eye"):
            return partial(function, device=self.device, dtype=self.dtype)
        return function

    def asarray(self, array: Block) -> Block:
        if is_torch(array):
            return array
        dtype = self.dtype if np.asarray(array).dtype.kind == "f" else None
        owned = np.require(
            array, requirements=["C", "W"]
        )  # tensors cannot be read-only: those arrays are copied
        return torch.as_tensor(owned, device=self.device, dtype=dtype)

    def _once(self, host: object, key: Hashable, make: Callable[[], Block]) -> Block:
        if (id(host), key) not in self._kept:
            self._kept[id(host), key] = (
                host,
                make(),
            )  # the host's copy is held, so that its id stays its own
        return self._kept[id(host), key][1]

    def cached(self, array: Block) -> Block:
        if is_torch(array):
            return array
        make = self.table if sparse.issparse(array) else self.asarray
        return self._once(array, None, partial(make, array))

    cached_table = cached

    def cached_columns(self, counts: Array | sparse.csr_array, columns: slice) -> Block:
        if isinstance(counts, np.ndarray):
            return self.cached(counts)[:, columns]
        return self._once(
            counts, (columns.start, columns.stop), lambda: self.table(counts[:, columns])
        )

    def table(self, counts: sparse.csr_array) -> Block:
        size = counts.shape[0] * counts.shape[1]
        if counts.nnz > 0.1 * size and size <= DENSE_TABLE_ELEMENTS:
            return SparseTable(counts, self).matrix.to_dense()
        return SparseTable(counts, self)

    def gram(self, table: Block) -> Block:
        if is_torch(table):
            return table.T @ table
        return self.asarray((table.host.T @ table.host).toarray())

    def arange(self, size: int) -> Block:
        return torch.arange(size, device=self.device)

    def vdot(self, a: Block, b: Block) -> Block:
        return (a * b).sum()

    def tensordot(self, a: Block, b: Block, axes: Block) -> Block:
        return torch.tensordot(a, b, dims=axes)

    def split_axes(self, matrix: Block, r: int, q: int) -> Block:
        return matrix.view(matrix.shape[0] // r, r, matrix.shape[1] // q, q)

    def sum_by(self, group: IntArray, size: int, rows: Block) -> Block:
        # A product with 0 and 1: additions to one row by many threads would come in any order.
        table = self._once(group, "one hot", lambda: self.table(one_hot(group, size).tocsr()))
        return table @ rows

    def cholesky(self, matrix: Block, *, overwrite: bool = False) -> Block:
        try:
            return torch.linalg.cholesky(matrix)
        except RuntimeError as error:
            raise np.linalg.LinAlgError(str(error)) from error

    def cho_solve(self, lower: Block, right: Block) -> Block:
        if right.ndim == 1:
            return torch.cholesky_solve(right[:, None], lower)[:, 0]
        return torch.cholesky_solve(right, lower)

    def inverse(self, lower: Block, *, overwrite: bool = False) -> Block:
        return torch.cholesky_inverse(lower)

    def inverses(self, blocks: Block) -> tuple[Block, Block]:
        lower = self.cholesky(blocks)
        diagonal = torch.diagonal(lower, dim1=-2, dim2=-1)
        return torch.cholesky_inverse(lower), 2 * torch.log(diagonal).sum(dim=-1)


class SparseTable:
    """Counts in coordinates on a device, sorted by row; the transposed table is sorted once too."""

    def __init__(self, counts: sparse.csr_array, xp: Torch) -> None:
        self.host = counts
        self._xp = xp
        entries = counts.tocoo()
        where = np.stack([entries.row, entries.col]).astype(np.int64)
        with (
            warnings.catch_warnings()
        ):  # torch 2.11 and 2.12 warn also where the checks were declined
            warnings.filterwarnings("ignore", "Sparse invariant checks", UserWarning)
            self.matrix = torch.sparse_coo_tensor(
                xp.asarray(where),
                xp.asarray(entries.data.astype(np.float64)),
                counts.shape,
                check_invariants=False,
            ).coalesce()
        self._transposed: SparseTable | None = None

    @property
    def T(self) -> SparseTable:
        if self._transposed is None:
            self._transposed = SparseTable(self.host.T.tocsr(), self._xp)
        return self._transposed

    def __matmul__(self, right: Tensor) -> Block:
        return torch.sparse.mm(self.matrix, right if right.ndim == 2 else right[:, None])


def one_hot(group: IntArray, size: int, dtype: DTypeLike = np.float64) -> sparse.csc_array:
    """(size, n): 1 where a column is of the group of its row."""
    n = len(group)
    ends = np.arange(n + 1)
    return sparse.csc_array((np.ones(n, dtype=dtype), group, ends), shape=(size, n))


NUMPY = Numpy()


@cache
def _torch_namespace(device: torch.device, dtype: torch.dtype) -> Torch:
    """Holds nothing but the names: what a fit keeps lives in the namespace of its `Sums`."""
    return Torch(device, dtype)


# Where NumPy arrays and torch tensors differ outside of the kernel: devices, dtypes, sums by owner.


def as_device(device: Device) -> torch.device:
    """A torch device that exists."""
    try:
        return torch.empty(0, device=device).device
    except (RuntimeError, AssertionError, TypeError) as error:
        raise ParameterError(
            f"device {device!r} cannot be used: {error}. Give 'cuda', 'cuda:1', 'cpu' or a torch device that is "
            "there, or None for NumPy"
        ) from error


def on_device(array: AnyArray, device: Device) -> Tensor:
    """An array or tensor as a tensor on a device; an array's numbers become float64."""
    where = as_device(device)
    if is_torch(array):
        return array.to(where)
    return _torch_namespace(where, torch.float64).asarray(array)


def on_cuda(array: object) -> bool:
    return is_torch(array) and bool(array.is_cuda)


def like(array: ArrayLike, reference: ArrayLike) -> Block:
    """A NumPy array as the reference's kind, on its device."""
    if is_torch(reference):
        return torch.as_tensor(array, device=reference.device)
    return array


def empty(shape: tuple[int, int], dtype: DTypeLike, reference: ArrayLike) -> Block:
    if is_torch(reference):
        return torch.empty(
            shape, dtype=getattr(torch, np.dtype(dtype).name), device=reference.device
        )
    return np.empty(shape, dtype=dtype)


def dtype_name(array: AnyArray) -> str:
    return _plain_name(array.dtype)


@cache
def _plain_name(dtype: object) -> str:
    """Kept, for NumPy takes longer to name a dtype than to score a pair."""
    return str(dtype).removeprefix("torch.")


def cast(array: AnyArray, dtype: str) -> Block:
    """The array in another dtype; itself where it has that one."""
    if is_torch(array):
        return array.to(getattr(torch, dtype))
    return np.asarray(array).astype(dtype, copy=False)


def largest(array: AnyArray) -> float:
    """The largest element, 0 of nothing; NaN where one is NaN."""
    return float(to_host(array.max())) if len(array) else 0.0


def sum_rows(y: AnyArray, owner: IntArray, size: int) -> Block:
    """(size, r): sums of the rows that have the same owner."""
    if is_torch(y):
        total = torch.zeros((size, y.shape[1]), dtype=y.dtype, device=y.device)
        return total.index_add_(0, like(owner, y), y)
    return one_hot(owner, size) @ y


# How many threads to use.
#
# BLAS threads pay on large products only; on small matrices they wait for each
# other, and on a busy machine they can make a loop of small solves ten times slower.

LARGE_WORK = 4e9
"""Floating-point operations between Python calls from which BLAS's own threads help."""

THREADED_FROM = 2**20


def one_blas_thread() -> AbstractContextManager[Any]:
    return _blas().limit(limits=1, user_api="blas")


def threads_for(operations: float) -> AbstractContextManager[Any]:
    """BLAS as it is set for large work, one thread for small."""
    if operations >= LARGE_WORK:
        return nullcontext()
    return one_blas_thread()


def in_parallel(
    work: Callable[[int], None], starts: Sequence[int], size: int, threads: int | None
) -> None:
    """Run blocks on Python threads over single-threaded BLAS."""
    n_threads = threads or cores()
    with one_blas_thread():
        if n_threads == 1 or size < THREADED_FROM:
            for start in starts:
                work(start)
        else:
            with ThreadPoolExecutor(n_threads) as pool:
                list(pool.map(work, starts))


def cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController()


def not_masked(X: ArrayLike) -> ArrayLike:
    """The same vectors, unless some of their numbers are masked: NumPy would give the numbers behind the mask."""
    if isinstance(X, np.ma.MaskedArray) and np.ma.is_masked(X):
        raise DataError(
            "some numbers of the vectors are masked: leave their rows out, or fill them"
        )
    return X


def check_shape(vectors: NDArray[Any] | Tensor) -> None:
    """Refuse what is no table (n, D) of numbers."""
    if vectors.ndim != 2:
        raise DataError(
            f"vectors are an array (n, D); got shape {tuple(vectors.shape)}. Reshape your data to two dimensions"
        )
    if 0 in vectors.shape:
        raise DataError(f"there is nothing in vectors of shape {tuple(vectors.shape)}")


def as_vectors(X: ArrayLike) -> NDArray[Any]:
    """Vectors as a float32 or float64 array (n, D)."""
    if sparse.issparse(X):
        raise DataError(
            "the vectors are a sparse matrix, which is not supported: give a dense array, X.toarray()"
        )
    vectors = np.asarray(not_masked(X))
    check_shape(vectors)
    if vectors.dtype.kind not in "fiub":
        raise DataError(f"vectors are real numbers; got {vectors.dtype}")
    if vectors.dtype not in (np.float32, np.float64):
        vectors = vectors.astype(np.float32 if vectors.dtype == np.float16 else np.float64)
    return vectors


def checked_vectors(estimator: object, X: ArrayLike, *, reset: bool, least: int = 1) -> FloatArray:
    """The same as scikit-learn checks it for an estimator, which keeps width and names or is held to them."""
    from sklearn.utils.validation import (
        validate_data,
    )  # slow to import, and statistics do without it

    try:
        return validate_data(
            estimator,
            not_masked(X),
            reset=reset,
            dtype=[np.float64, np.float32],
            ensure_min_samples=least,
        )
    except DataError:
        raise
    except ValueError as error:
        raise DataError(str(error)) from error


def check_feature_names(estimator: object, X: Any, *, reset: bool) -> None:
    """Keep the column names of a table, or refuse a table with other names or another order.

    reset : keep the names of `X`, and forget earlier ones; arrays have no names
    """
    from sklearn.utils.validation import validate_data  # slow to import

    if reset:
        for name in ("feature_names_in_", "n_features_in_"):
            estimator.__dict__.pop(name, None)
    if not hasattr(X, "columns"):
        return
    try:
        validate_data(estimator, X, reset=reset, skip_check_array=True)
    except (TypeError, ValueError) as error:
        raise DataError(str(error)) from error
