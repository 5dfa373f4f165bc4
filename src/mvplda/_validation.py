"""Checks of vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from .exceptions import DataError


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
