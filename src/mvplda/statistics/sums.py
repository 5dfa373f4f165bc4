"""Sums over a block of vectors that fits in the cache."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg.blas import dsyrk

from ..exceptions import DataError
from ..kernel.records import Array
from ..labels import IntArray

BLOCK_BYTES = 4 * 2**20


def as_vectors(X: Any) -> NDArray[Any]:
    """Vectors as a float32 or float64 array (n, D)."""
    if sparse.issparse(X):
        raise DataError("the vectors are a sparse matrix, which is not supported: give a dense array, X.toarray()")
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


def rows_of_block(itemsize: int, dimension: int) -> int:
    return max(256, BLOCK_BYTES // (itemsize * dimension))


def add_squares(scatter: Array, block: NDArray[Any]) -> None:
    """Add the squares of a block's columns, or their products: to the lower triangle at least."""
    if scatter.ndim == 1:
        scatter += np.einsum("nd,nd->d", block, block)
    elif block.dtype == np.float64:
        dsyrk(1.0, block.T, beta=1.0, c=scatter.T, overwrite_c=True)  # in place: both are in Fortran's order
    else:
        scatter += block.T @ block


def whole(scatter: Array) -> Array:
    """Both triangles of what `add_squares` summed."""
    return scatter if scatter.ndim == 1 else np.tril(scatter) + np.tril(scatter, -1).T


def all_finite(scatter: Array) -> bool:
    """Whether every square that was added is a number."""
    return bool(np.isfinite(scatter if scatter.ndim == 1 else scatter.diagonal()).all())


def class_sums(codes: IntArray, block: NDArray[Any]) -> tuple[IntArray, NDArray[Any], IntArray]:
    """Classes that occur in a block, and the sum and the number of their vectors."""
    present, local, counts = np.unique(codes, return_inverse=True, return_counts=True)
    ones, ends = np.ones(len(codes), dtype=block.dtype), np.arange(len(codes) + 1)
    one_hot = sparse.csc_array((ones, local.reshape(-1), ends), shape=(len(present), len(codes)))
    return present, one_hot @ block, counts


def too_large(where: str, dtype: Any) -> DataError:
    return DataError(f"{where} are too large: their squares overflow {dtype}; scale the vectors down")
