"""The few places where NumPy arrays and torch tensors differ."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from ..exceptions import DataError
from ..kernel.arrays import is_torch as is_torch
from ..kernel.evidence import LatentSpace
from ..labels import IntArray
from ..statistics import as_vectors

PROJECT_ELEMENTS = 2**22


def on_cuda(array: Any) -> bool:
    return is_torch(array) and bool(array.is_cuda)


def like(array: Any, reference: Any) -> Any:
    """A NumPy array as the reference's kind, on its device."""
    if is_torch(reference):
        import torch

        return torch.as_tensor(array, device=reference.device)
    return array


def empty(shape: tuple[int, int], dtype: Any, reference: Any) -> Any:
    if is_torch(reference):
        import torch

        return torch.empty(shape, dtype=getattr(torch, np.dtype(dtype).name), device=reference.device)
    return np.empty(shape, dtype=dtype)


def dtype_name(array: Any) -> str:
    return str(array.dtype).removeprefix("torch.")


def cast(array: Any, dtype: str) -> Any:
    """The array in another dtype; itself where it has that one."""
    if is_torch(array):
        import torch

        return array.to(getattr(torch, dtype))
    return array.astype(dtype, copy=False)


def largest(array: Any) -> float:
    """The largest element, 0 of nothing; NaN where one is NaN."""
    return float(array.max()) if len(array) else 0.0


def project(X: Any, space: LatentSpace) -> Any:
    """Evidence y of every vector, (n, r) in float64."""
    width = len(space.projection)
    if is_torch(X):
        if X.ndim != 2 or X.shape[1] != width:
            raise DataError(f"vectors have shape (n, {width}) for this model; got {tuple(X.shape)}")
        y = X.double() @ like(space.projection, X) - like(space.offset, X)
        finite = bool(y.isfinite().all())
    else:
        vectors = as_vectors(X)
        if vectors.shape[1] != width:
            raise DataError(f"X has {vectors.shape[1]} features, but this model is expecting {width} features as input")
        y = np.empty((len(vectors), space.projection.shape[1]))
        step = max(1, PROJECT_ELEMENTS // width)
        for start in range(0, len(vectors), step):
            block = vectors[start : start + step].astype(np.float64, copy=False)
            np.matmul(block, space.projection, out=y[start : start + step])
        y -= space.offset
        finite = bool(np.isfinite(y).all())
    if not finite:
        bad = np.flatnonzero(~np.isfinite(np.asarray(y.cpu() if is_torch(y) else y)).all(axis=1))
        raise DataError(f"Input X contains NaN or infinity, first in row {bad[0]}")
    return y


def sum_rows(y: Any, owner: IntArray, size: int) -> Any:
    """(size, r): sums of the rows that have the same owner."""
    if is_torch(y):
        import torch

        total = torch.zeros((size, y.shape[1]), dtype=y.dtype, device=y.device)
        return total.index_add_(0, like(owner, y), y)
    one_hot = sparse.csr_array((np.ones(len(owner)), (owner, np.arange(len(owner)))), shape=(size, len(owner)))
    return one_hot @ y
