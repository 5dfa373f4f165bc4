"""Score matrices in cache-sized blocks: products, then a log-sum-exp.

A term of hypothesis h is a thin product: the sides' factors carry their own
quadratic terms as two more columns,  [E, row, 1] [T, 1, column]'.  Every
function works on NumPy arrays and on torch tensors alike.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .arrays import namespace
from .threads import in_parallel

BLOCK_ROWS, BLOCK_COLUMNS = 512, 512
BAND_ROWS = 512
LOWEST = -120.0
"""Powers of two below this are no ordinary float32 numbers: slow to make, and too small to count."""

LOG2_E, LN_2 = 1.0 / math.log(2.0), math.log(2.0)


@dataclass(frozen=True)
class Factors:
    """One term over all pairs of two groups of sides: left @ right', or a constant.

    left : (P, rho + 2), right : (T, rho + 2); None where the term is the constant 0
    log_weight : of the hypothesis; already inside left where there is a left
    """

    left: Any
    right: Any
    log_weight: float

    def block(self, rows: slice, columns: slice) -> Any:
        if self.left is None:
            return self.log_weight
        return self.left[rows] @ self.right[columns].T


@dataclass(frozen=True)
class Terms:
    """Numerator and denominator terms of one score matrix."""

    numerator: tuple[Factors, ...]
    denominator: tuple[Factors, ...]

    @property
    def dtype(self) -> str | None:
        """Name of the factors' dtype; None where all terms are constant."""
        for f in (*self.numerator, *self.denominator):
            if f.left is not None:
                return str(f.left.dtype).removeprefix("torch.")
        return None


def log_sum(terms: Sequence[Any]) -> Any:
    """log sum exp of blocks and constants, all but one pass in place: NumPy blocks are overwritten."""
    arrays = [t for t in terms if not isinstance(t, float)]
    constants = [t for t in terms if isinstance(t, float)]
    constant = float(np.logaddexp.reduce(constants)) if constants else None
    if not arrays:
        return constant
    if isinstance(arrays[0], np.ndarray):
        return _log_sum_numpy(arrays, constant)
    return _log_sum_torch(arrays, constant)


def _log_sum_numpy(arrays: list[Any], constant: float | None) -> Any:
    if len(arrays) == 1 and constant is None:
        return arrays[0]
    top = arrays[0].copy()
    for array in arrays[1:]:
        np.maximum(top, array, out=top)
    if constant is not None:
        np.maximum(top, constant, out=top)
    total = np.zeros_like(top) if constant is None else np.exp(constant - top)
    for array in arrays:
        array -= top
        total += np.exp(array, out=array)
    np.log(total, out=total)
    total += top
    return total


def _log_sum_torch(arrays: list[Any], constant: float | None) -> Any:
    xp = namespace(arrays[0])
    if constant is not None:
        arrays = [*arrays, xp.full_like(arrays[0], constant)]
    return xp.logsumexp(xp.stack(arrays), 0)


def evaluate_block(terms: Terms, rows: slice, columns: slice) -> Any:
    """LLRs of some rows and columns."""
    for_same = log_sum([f.block(rows, columns) for f in terms.numerator])
    return for_same - log_sum([f.block(rows, columns) for f in terms.denominator])  # (V4)


def fill_matrix(terms: Terms, out: Any, threads: int | None = None) -> None:
    """Write the LLR of every row and column into `out`, block by block."""
    n_rows, n_columns = out.shape
    if not isinstance(out, np.ndarray):
        for start in range(0, n_rows, step := max(1, 2**26 // max(n_columns, 1))):
            rows = slice(start, min(start + step, n_rows))
            out[rows] = evaluate_block(terms, rows, slice(0, n_columns))
        return
    terms = relative_to_nothing(terms)
    shape = _shape_of(terms)
    if shape == (1, 0):
        only = terms.numerator[0]

        def fill(start: int) -> None:
            rows = slice(start, min(start + BAND_ROWS, n_rows))
            np.matmul(only.left[rows], only.right.T, out=out[rows])

        in_parallel(fill, range(0, n_rows, BAND_ROWS), out.size, threads)
        return

    binary = [Factors(f.left * out.dtype.type(LOG2_E), f.right, 0.0) for f in _products(terms.denominator)]

    def fill_blocks(start: int) -> None:
        block = min(BLOCK_ROWS, n_rows - start), min(BLOCK_COLUMNS, n_columns)
        work = [np.zeros(block, dtype=out.dtype) for _ in range(6)]
        work[5][:] = LOWEST
        for first in range(start, min(start + BAND_ROWS, n_rows), BLOCK_ROWS):
            rows = slice(first, min(first + BLOCK_ROWS, start + BAND_ROWS, n_rows))
            for left in range(0, n_columns, BLOCK_COLUMNS):
                columns = slice(left, min(left + BLOCK_COLUMNS, n_columns))
                target = out[rows, columns]
                if shape == (1, 2):
                    blocks = [w[: target.shape[0], : target.shape[1]] for w in work]
                    _two_against_one((terms.numerator[0], *binary), rows, columns, blocks, target)
                else:
                    target[:] = evaluate_block(terms, rows, columns)

    in_parallel(fill_blocks, range(0, n_rows, BAND_ROWS), out.size, threads)


def relative_to_nothing(terms: Terms) -> Terms:
    """Divide all terms by the weight of the hypothesis that nothing is shared, whose term is then log 1."""
    constants = [f.log_weight for f in terms.denominator if f.left is None]
    if len(constants) != 1 or constants[0] == 0.0:
        return terms

    def divided(f: Factors) -> Factors:
        if f.left is None:
            return Factors(None, None, f.log_weight - constants[0])
        left = f.left + 0
        left[:, -2] -= constants[0]
        return Factors(left, f.right, f.log_weight)

    return Terms(tuple(map(divided, terms.numerator)), tuple(map(divided, terms.denominator)))


def _shape_of(terms: Terms) -> tuple[int, int] | None:
    """Products above and below, where the only other hypothesis below has the term 0; else None."""
    above, below = _products(terms.numerator), _products(terms.denominator)
    others = [f.log_weight for f in terms.denominator if f.left is None]
    return (len(above), len(below)) if len(above) == len(terms.numerator) and others == [0.0] else None


def _products(factors: tuple[Factors, ...]) -> list[Factors]:
    return [f for f in factors if f.left is not None]


def _two_against_one(factors: tuple[Factors, ...], rows: slice, columns: slice, work: list[Any], out: Any) -> None:
    """out = n - log(1 + exp a + exp b), from the factors of n, and of a and b times log2 e.

    Sorted, so that two exponentials suffice, and in the passes that NumPy does fastest: powers of two,
    and no scalar operands in minima and maxima.
    """
    n, a, b, low, zero, lowest = work
    for f, block in zip(factors, (n, a, b), strict=True):
        np.matmul(f.left[rows], f.right[columns].T, out=block)
    np.minimum(a, b, out=low)
    np.maximum(a, b, out=a)
    np.maximum(a, zero, out=b)  # the largest of a, b and 0
    low -= b
    np.abs(a, out=a)
    np.negative(a, out=a)
    np.maximum(a, lowest, out=a)
    np.maximum(low, lowest, out=low)
    np.exp2(a, out=a)
    np.exp2(low, out=low)
    a += low
    a += out.dtype.type(1)
    np.log2(a, out=a)
    a += b
    a *= out.dtype.type(LN_2)
    np.subtract(n, a, out=out)


def evaluate_pairs(terms: Terms, rows: Any, columns: Any) -> Any:
    """LLRs of single pairs: gathered factors and their dot products."""

    def values(factors: Factors) -> Any:
        if factors.left is None:
            return factors.log_weight
        if isinstance(factors.left, np.ndarray):
            return np.einsum("ij,ij->i", factors.left.take(rows, 0), factors.right.take(columns, 0))
        return (factors.left[rows] * factors.right[columns]).sum(-1)

    for_same = log_sum([values(f) for f in terms.numerator])
    return for_same - log_sum([values(f) for f in terms.denominator])
