"""Sums of labelled vectors: what EM reads, and those over a block that fits in the cache."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg.blas import dsyrk

from .._typing import Array, IntArray
from ..backend import NUMPY, Torch, diagonal_of, is_torch, to_host
from ..exceptions import DataError

# Sums over a block of vectors that fits in the cache.


BLOCK_BYTES = 4 * 2**20


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
    return bool(np.isfinite(diagonal_of(scatter)).all())


def class_sums(codes: IntArray, block: NDArray[Any]) -> tuple[IntArray, NDArray[Any], IntArray]:
    """Classes that occur in a block, and the sum and the number of their vectors."""
    present, local, counts = np.unique(codes, return_inverse=True, return_counts=True)
    ones, ends = np.ones(len(codes), dtype=block.dtype), np.arange(len(codes) + 1)
    one_hot = sparse.csc_array((ones, local.reshape(-1), ends), shape=(len(present), len(codes)))
    return present, one_hot @ block, counts


def too_large(where: str, dtype: Any) -> DataError:
    return DataError(f"{where} are too large: their squares overflow {dtype}; scale the vectors down")


@dataclass(frozen=True)
class Sums:
    """Sufficient statistics of n labelled vectors, about a common origin.

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
    total: Array
    scatter: Array
    counts: tuple[Array, ...]
    sums: tuple[Array, ...]
    cooccurrence: dict[tuple[int, int], sparse.csr_array]

    @property
    def n_views(self) -> int:
        return len(self.counts)

    @property
    def dimension(self) -> int:
        return len(self.total)

    @cached_property
    def xp(self) -> Any:
        """What calculates with these sums (see ``backend``)."""
        return Torch(self.total.device, self.total.dtype) if is_torch(self.total) else NUMPY

    def on_host(self) -> Sums:
        """The same as NumPy arrays."""
        sums = tuple(map(to_host, self.sums))
        return replace(self, total=to_host(self.total), scatter=to_host(self.scatter), sums=sums)

    def together(self, k: int, l: int) -> sparse.csr_array:
        """Co-occurrence N_kl for any order of two different views."""
        return self.cooccurrence[k, l] if k < l else self.cooccurrence[l, k].T.tocsr()

    @property
    def has_products(self) -> bool:
        """Whether the scatter is a matrix, not its diagonal alone."""
        return self.scatter.ndim == 2

    def product(self, left: Array, right: Array) -> Array:
        """left right' of two (D, m), or only its diagonal, as the scatter is."""
        both: Array = left @ right.T if self.has_products else self.xp.einsum("dm,dm->d", left, right)
        return both

    def scatter_about(self, mean: Array) -> Array:
        """Sum of (x - mean)(x - mean)', or of its diagonal."""
        if not self.has_products:
            return self.scatter - 2 * mean * self.total + self.n * mean**2
        cross: Array = self.xp.outer(self.total - self.n / 2 * mean, mean)
        return self.scatter - cross - cross.T
