"""Common interface to NumPy and torch for the inference code, which runs on both.

The code calls the methods of an object ``xp``: a `Numpy`, or a `Torch` for tensors on a device. It
defines the functions that the two libraries name or define differently, and passes on those that
are the same in both (``xp.log``, ``xp.linalg.eigh``). Counts of vectors are always NumPy or SciPy
arrays: `cached`, `cached_table` and `cached_columns` copy them to the device once per fit.
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from functools import cache, partial
from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray
from scipy import sparse
from scipy.linalg import cho_solve, cholesky
from scipy.linalg.lapack import dpotri
from threadpoolctl import ThreadpoolController

from ._optional import LateModule
from ._typing import AnyArray, Array, CountTable, Device, IntArray
from .exceptions import ParameterError

if TYPE_CHECKING:
    import torch
    from torch import Tensor
else:
    torch = LateModule("torch")

HostArray = TypeVar("HostArray")

Kind = TypeVar("Kind", bound=AnyArray)
"""NumPy array or torch tensor: the result of a function is of the same library as its argument."""

DENSE_TABLE_ELEMENTS = 2**28
"""Largest number of elements (2 GiB) of a table of counts that is stored densely on a device; see `Torch.table`."""


def is_torch(array: object) -> TypeGuard[Tensor]:
    """Return whether an array is a torch tensor, without importing torch."""
    return type(array).__module__.partition(".")[0] == "torch"


def to_host(array: ArrayLike) -> NDArray[Any]:
    """Return an array or tensor as a NumPy array."""
    if not is_torch(array):
        return np.asarray(array)
    tensor = array.detach().cpu()
    if tensor.dtype == torch.bfloat16:  # NumPy has no such type
        tensor = tensor.float()
    return np.asarray(tensor)


def diagonal_of(moment: AnyArray) -> AnyArray:
    """Return the diagonal (D,) of a second moment, which is a matrix (D, D) or already its diagonal (D,)."""
    return moment if moment.ndim == 1 else moment.diagonal()


def namespace(array: AnyArray) -> Numpy | Torch:
    """Return `NUMPY`, or for a tensor the shared `Torch` of its device and precision."""
    return _torch_namespace(array.device, array.dtype) if is_torch(array) else NUMPY


def own_namespace(array: AnyArray) -> Numpy | Torch:
    """Return `NUMPY` for an array, or a new `Torch` for a tensor's device and precision.

    Unlike that of `namespace`, this `Torch` has a cache of its own, so that its `cached` methods
    can be used. The cache is freed with the object.
    """
    return Torch(array.device, array.dtype) if is_torch(array) else NUMPY


WIDE_BLOCK = 24
"""Number of rows from which matrices are inverted one by one by Cholesky, in a third of the time of `solve`."""


MIRROR_ROWS = 128
"""Number of rows of a matrix that are copied across its diagonal at a time."""


class Numpy:
    """Linear algebra in NumPy and SciPy, on the host, in float64.

    gram_rows : number of rows that are added to a Gram matrix at a time
    block_elements : number of elements of the matrices that are processed at a time, so that they stay in the cache
    per_count_gram_elements : largest number of elements that all Gram matrices of a fit may have
        together; a fit that needs more stores one row per class instead (`mvplda.inference.leaf`)
    """

    gram_rows = 2048
    block_elements = 2**19
    per_count_gram_elements = 2**23

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    def asarray(self, array: HostArray) -> HostArray:
        """Return the array unchanged; `Torch.asarray` copies it to its device."""
        return array

    cached = asarray  # for an array that does not change during a fit
    cached_table = (
        asarray  # for a table of counts that is multiplied from the left, itself or transposed
    )
    table = asarray  # for a table of counts that is used once
    permute = staticmethod(np.transpose)

    def cached_columns(self, counts: Array | sparse.csr_array, columns: slice) -> CountTable:
        """Return some columns of a table of counts; `Torch` copies them to its device once.

        counts : dense or sparse table on the host
        columns : range of the columns
        """
        return counts[:, columns]

    def gram(self, table: Any) -> Array:
        """Return the product of the transposed table and the table as a dense matrix."""
        return (table.T @ table).toarray()

    def diagonal(self, matrix: AnyArray) -> Array:
        """Return the diagonal of a matrix as a view; writing to it changes the matrix."""
        return np.einsum("ii->i", matrix)

    def split_axes(self, matrix: AnyArray, r: int, q: int) -> Array:
        """Return a writable view (rows / r, r, columns / q, q) of a matrix (rows, columns)."""
        s, t = np.asarray(matrix).strides
        shape = (matrix.shape[0] // r, r, matrix.shape[1] // q, q)
        return np.lib.stride_tricks.as_strided(matrix, shape, (r * s, s, q * t, t))

    def sum_by(self, group: IntArray, size: int, rows: AnyArray) -> Array:
        """Return the sums of the rows of each group, (size, columns).

        group : (n,) group of each row, from 0 to size - 1
        size : number of groups
        rows : (n, columns)
        """
        return one_hot(group, size) @ rows

    def cholesky(self, matrix: AnyArray, *, overwrite: bool = False) -> Array:
        """Return the lower Cholesky factor of a symmetric matrix; raise LinAlgError if it is not positive definite.

        overwrite : whether the memory of the matrix may be reused for the result
        """
        column_major = matrix.T  # LAPACK's order of a symmetric matrix, without a copy
        return cholesky(column_major, lower=True, overwrite_a=overwrite, check_finite=False)

    def cho_solve(self, lower: AnyArray, right: AnyArray) -> Array:
        """Return the solution x of (L L') x = right.

        lower : lower Cholesky factor L
        """
        return cho_solve((lower, True), right, check_finite=False)

    def inverse(self, lower: AnyArray, *, overwrite: bool = False) -> Array:
        """Return the inverse of L L'.

        lower : lower Cholesky factor L
        overwrite : whether the memory of L may be reused for the result
        """
        # dpotri computes the lower half, in a third of the time of solving for every unit vector
        inverse = dpotri(lower, lower=1, overwrite_c=overwrite)[0]
        # The upper half is filled in place: allocating another large matrix takes longer than filling it.
        for start in range(0, len(inverse), MIRROR_ROWS):
            rows = slice(start, start + MIRROR_ROWS)
            square = inverse[rows, rows]
            square += np.tril(square, -1).T
            inverse[rows, rows.stop :] = inverse[rows.stop :, rows].T
        return inverse

    def inverses(self, blocks: AnyArray) -> tuple[Array, Array]:
        """Return the inverses (g, r, r) of positive definite matrices (g, r, r), and their log-determinants (g,)."""
        r = blocks.shape[-1]
        if r < WIDE_BLOCK:
            identity = np.broadcast_to(np.eye(r), blocks.shape)
            solved = np.linalg.solve(blocks, identity)
            return np.asarray(solved, np.float64), np.linalg.slogdet(blocks)[1]
        inverse = np.empty(blocks.shape)
        log_determinant = np.empty(len(blocks))
        for i, block in enumerate(blocks):
            lower = self.cholesky(block)
            inverse[i] = self.inverse(lower)
            log_determinant[i] = 2 * np.log(lower.diagonal()).sum()
        return inverse, log_determinant


class Torch:
    """Linear algebra in torch, on one device and in one precision, with the methods of `Numpy`.

    Arrays that the `cached` methods copy to the device stay there as long as this object exists.
    """

    gram_rows = 2**17
    block_elements = 2**24
    per_count_gram_elements = 2**27

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        self.device = device
        self.dtype = dtype
        self._cache: dict[Hashable, tuple[object, Any]] = {}

    def __getattr__(self, name: str) -> Any:
        function = getattr(torch, name)
        if name in ("zeros", "empty", "eye"):
            return partial(function, device=self.device, dtype=self.dtype)
        return function

    def asarray(self, array: AnyArray) -> Tensor:
        if is_torch(array):
            return array
        dtype = self.dtype if np.asarray(array).dtype.kind == "f" else None
        # Tensors cannot be read-only, so that read-only arrays are copied.
        writable = np.require(array, requirements=["C", "W"])
        return torch.as_tensor(writable, device=self.device, dtype=dtype)

    def _cached_by_id(self, host: object, key: Hashable, compute: Callable[[], object]) -> Any:
        """Return `compute()`, which is called once per object `host` and key and then cached."""
        if (id(host), key) not in self._cache:
            # A reference to the host object prevents reuse of its id.
            self._cache[id(host), key] = (host, compute())
        return self._cache[id(host), key][1]

    def cached(self, array: AnyArray | sparse.csr_array) -> Any:
        if is_torch(array):
            return array
        convert: Any = self.table if sparse.issparse(array) else self.asarray
        return self._cached_by_id(array, None, partial(convert, array))

    cached_table = cached

    def cached_columns(self, counts: Array | sparse.csr_array, columns: slice) -> CountTable:
        if isinstance(counts, np.ndarray):
            return self.cached(counts)[:, columns]
        key = (columns.start, columns.stop)
        return self._cached_by_id(counts, key, lambda: self.table(counts[:, columns]))

    def table(self, counts: sparse.csr_array) -> CountTable:
        size = counts.shape[0] * counts.shape[1]
        if counts.nnz > 0.1 * size and size <= DENSE_TABLE_ELEMENTS:
            return SparseTable(counts, self).matrix.to_dense()
        return SparseTable(counts, self)

    def gram(self, table: Any) -> AnyArray:
        if is_torch(table):
            return table.T @ table
        return self.asarray((table.host.T @ table.host).toarray())

    def arange(self, size: int) -> AnyArray:
        return torch.arange(size, device=self.device)

    def vdot(self, a: AnyArray, b: AnyArray) -> AnyArray:
        return (a * b).sum()

    def tensordot(self, a: AnyArray, b: AnyArray, axes: int | Sequence[Sequence[int]]) -> AnyArray:
        return torch.tensordot(a, b, dims=axes)

    def split_axes(self, matrix: Any, r: int, q: int) -> AnyArray:
        return matrix.view(matrix.shape[0] // r, r, matrix.shape[1] // q, q)

    def sum_by(self, group: IntArray, size: int, rows: AnyArray) -> AnyArray:
        # A product with 0 and 1: concurrent additions to one row would be in no fixed order, and so round differently.
        table = self._cached_by_id(
            group, "one hot", lambda: self.table(one_hot(group, size).tocsr())
        )
        return table @ rows

    def cholesky(self, matrix: AnyArray, *, overwrite: bool = False) -> AnyArray:
        try:
            return torch.linalg.cholesky(matrix)
        except RuntimeError as error:
            raise np.linalg.LinAlgError(str(error)) from error

    def cho_solve(self, lower: Any, right: Any) -> AnyArray:
        if right.ndim == 1:
            return torch.cholesky_solve(right[:, None], lower)[:, 0]
        return torch.cholesky_solve(right, lower)

    def inverse(self, lower: Any, *, overwrite: bool = False) -> AnyArray:
        return torch.cholesky_inverse(lower)

    def inverses(self, blocks: Any) -> tuple[AnyArray, AnyArray]:
        lower: Any = self.cholesky(blocks)
        diagonal = torch.diagonal(lower, dim1=-2, dim2=-1)
        return torch.cholesky_inverse(lower), 2 * torch.log(diagonal).sum(dim=-1)


class SparseTable:
    """Sparse table of counts on a device; its transpose is made when it is first used.

    counts : table on the host
    xp : library object with the device and the precision
    """

    def __init__(self, counts: sparse.csr_array, xp: Torch) -> None:
        self.host = counts
        self._xp = xp
        entries = counts.tocoo()
        coordinates = np.stack([entries.row, entries.col]).astype(np.int64)
        with warnings.catch_warnings():
            # torch 2.11 and 2.12 warn even if the checks are declined.
            warnings.filterwarnings("ignore", "Sparse invariant checks", UserWarning)
            self.matrix = torch.sparse_coo_tensor(
                xp.asarray(coordinates),
                xp.asarray(entries.data.astype(np.float64)),
                counts.shape,
                check_invariants=False,
            ).coalesce()
        self._transposed: SparseTable | None = None

    @property
    def T(self) -> SparseTable:
        """Transposed table."""
        if self._transposed is None:
            self._transposed = SparseTable(self.host.T.tocsr(), self._xp)
        return self._transposed

    def __matmul__(self, right: Tensor) -> Tensor:
        return torch.sparse.mm(self.matrix, right if right.ndim == 2 else right[:, None])


def one_hot(group: IntArray, size: int, dtype: DTypeLike = np.float64) -> sparse.csc_array:
    """Return a sparse table (size, n) with a 1 in each column, in the row that `group` (n,) gives, and 0 elsewhere."""
    n = len(group)
    ends = np.arange(n + 1)
    return sparse.csc_array((np.ones(n, dtype=dtype), group, ends), shape=(size, n))


NUMPY = Numpy()


@cache
def _torch_namespace(device: torch.device, dtype: torch.dtype) -> Torch:
    """Return a `Torch` that is shared by all callers; its `cached` methods must not be used, see `own_namespace`."""
    return Torch(device, dtype)


# Differences between NumPy arrays and torch tensors outside of the kernel: devices, dtypes, sums by owner.


def as_device(device: Device) -> torch.device:
    """Return the torch device with a name such as "cuda:1"; raise `ParameterError` if it does not exist."""
    try:
        return torch.empty(0, device=device).device
    except (RuntimeError, AssertionError, TypeError) as error:
        raise ParameterError(
            f"the device {device!r} cannot be used: {error}. Pass 'cpu', 'cuda', 'cuda:1' or another device that "
            "exists here, or None to use NumPy"
        ) from error


def on_device(array: AnyArray, device: Device) -> Tensor:
    """Return an array or tensor as a tensor on a device; NumPy arrays of floats become float64."""
    target = as_device(device)
    if is_torch(array):
        return array.to(target)
    return _torch_namespace(target, torch.float64).asarray(array)


def on_cuda(array: object) -> bool:
    """Return whether an array is a tensor on a CUDA device."""
    return is_torch(array) and bool(array.is_cuda)


def like(array: AnyArray, reference: object) -> AnyArray:
    """Return a NumPy array as a tensor on the device of `reference` if that is a tensor, else unchanged."""
    if is_torch(reference):
        return torch.as_tensor(array, device=reference.device)
    return array


def empty(shape: tuple[int, int], dtype: DTypeLike, reference: object) -> AnyArray:
    """Return an uninitialised array: a tensor on the device of `reference` if that is a tensor, else a NumPy array."""
    if is_torch(reference):
        return torch.empty(
            shape, dtype=getattr(torch, np.dtype(dtype).name), device=reference.device
        )
    return np.empty(shape, dtype=dtype)


def dtype_name(array: AnyArray) -> str:
    """Return the name of the dtype of an array or tensor, such as "float32"."""
    return _plain_name(array.dtype)


@cache
def _plain_name(dtype: object) -> str:
    """Return the name of a dtype of NumPy or torch; cached, because NumPy is slow at it."""
    return str(dtype).removeprefix("torch.")


def cast(array: AnyArray, dtype: str) -> AnyArray:
    """Return an array or tensor in another dtype; without a copy if it has this dtype already."""
    if is_torch(array):
        return array.to(getattr(torch, dtype))
    return np.asarray(array).astype(dtype, copy=False)


def largest(array: AnyArray) -> float:
    """Return the largest element; 0 for an empty array, NaN if any element is NaN."""
    return float(to_host(array.max())) if len(array) else 0.0


def sum_rows(y: Kind, owner: IntArray, size: int) -> Kind:
    """Return the sums (size, r) of the rows of `y` (n, r) that have the same owner.

    owner : (n,) owner of each row, from 0 to size - 1
    size : number of owners
    """
    if is_torch(y):
        zeros = torch.zeros((size, y.shape[1]), dtype=y.dtype, device=y.device)
        numbers = torch.as_tensor(owner, device=y.device)
        total: Any = zeros.index_add_(0, numbers, y)
    else:
        total = one_hot(owner, size) @ y
    return total


# Numbers of threads.
#
# BLAS threads pay off for large products only; for small matrices they wait for each other, and on a busy machine they
# can make a loop of small solves ten times slower.

LARGE_WORK = 4e9
"""Number of floating-point operations in one call from which several BLAS threads are faster than one."""

THREADED_FROM = 2**20
"""Number of elements of a result from which several Python threads compute it."""


def one_blas_thread() -> AbstractContextManager[Any]:
    """Return a context in which BLAS uses a single thread."""
    return _blas().limit(limits=1, user_api="blas")


def threads_for(operations: float) -> AbstractContextManager[Any]:
    """Return a context in which BLAS uses all its threads for large work, and one thread for small work.

    operations : number of floating-point operations of the work
    """
    if operations >= LARGE_WORK:
        return nullcontext()
    return one_blas_thread()


def in_parallel(
    work: Callable[[int], None], starts: Sequence[int], size: int, threads: int | None
) -> None:
    """Call ``work(start)`` for each start, with a single BLAS thread per call.

    The calls run on several Python threads if the result has at least `THREADED_FROM` elements,
    else one by one.

    size : number of elements of the result, which the calls fill together
    threads : number of Python threads for a large result; None: one per core
    """
    n_threads = threads or cores()
    with one_blas_thread():
        if n_threads == 1 or size < THREADED_FROM:
            for start in starts:
                work(start)
        else:
            with ThreadPoolExecutor(n_threads) as pool:
                list(pool.map(work, starts))


def cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@cache
def _blas() -> ThreadpoolController:
    """Return the controller of the threads of BLAS libraries; making one takes time, so that it is cached."""
    return ThreadpoolController()
