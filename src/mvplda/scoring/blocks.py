"""Score matrices in cache-sized blocks: products, then a log-sum-exp.

A pair form over two groups is a thin product: the sides' factors carry their own terms as two more columns,
[E, row, 1] [T, 1, column]'.  Every function works on NumPy arrays and on torch tensors alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from .._typing import AnyArray, FloatArray, IntArray
from ..backend import cast, dtype_name, in_parallel, is_torch, namespace

BLOCK = 512
"""Rows and columns of the blocks in which a matrix is made."""

THIN_ROWS, SMALL_PRODUCT = 32, 10**6
"""Of thin factors so many rows are multiplied at a time: products of fewer multiplications are not packed by BLAS."""

LOWEST = -120.0
"""Powers of two below this are no ordinary float32 numbers: slow to make, and too small to count."""

LOG2_E, LN_2 = 1.0 / math.log(2.0), math.log(2.0)


TINY = 1e-280
"""Sums of powers below this may have lost some of them."""


@dataclass(frozen=True)
class Several:
    """Worlds of one product that differ by what they add to rows and columns: log sum of exp(row + column).

    rows, columns : (P, worlds), (T, worlds) in float64, at most 0
    """

    rows: Any
    columns: Any

    def cut(self, rows: Any) -> Several:
        return Several(self.rows[rows], self.columns)

    def block(self, rows: Any, columns: Any) -> Any:
        """Of all pairs of some rows and columns."""
        a = self.rows[rows]
        b = self.columns[columns]
        xp = namespace(a)
        total = xp.exp(a) @ xp.exp(b).T
        lost = total < TINY
        if bool(lost.any()):
            # the largest row and the largest column lie in different worlds: add these pairs up with care
            i, j = xp.where(lost)
            exact = _log_sum_rows(a[i] + b[j])
            total[lost] = 1.0
            logs = xp.log(total)
            logs[lost] = exact
            return logs
        return xp.log(total)

    def pairs(self, rows: Any, columns: Any) -> Any:
        """Of a list of pairs."""
        return _log_sum_rows(self.rows[rows] + self.columns[columns])


def _log_sum_rows(values: Any) -> Any:
    if is_torch(values):
        return values.logsumexp(1)
    top = values.max(axis=1)
    return top + np.log(np.exp(values - top[:, None]).sum(axis=1))


@dataclass(frozen=True)
class Factors:
    """One term over all pairs of two groups of profiles: left @ right', or a constant.

    left : (P, rho + 2), right : (T, rho + 2); None where the term is the constant 0
    log_weight : of the term; already inside left where there is a left
    several : what is added for worlds that share the product
    """

    left: Any
    right: Any
    log_weight: float
    several: Several | None = None

    def block(self, rows: slice, columns: slice) -> Any:
        if self.left is None:
            return self.log_weight
        # BLAS may set the flag of an invalid number on its way to a valid product
        with np.errstate(invalid="ignore"):
            value = self.left[rows] @ self.right[columns].T
        if self.several is not None:
            more = self.several.block(rows, columns)
            value += cast(more, dtype_name(value))
        return value


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
                return dtype_name(f.left)
        return None

    def rows(self, rows: slice) -> Terms:
        """The terms of some rows."""
        sides = []
        for side in (self.numerator, self.denominator):
            cut = []
            for f in side:
                if f.left is None:
                    cut.append(f)
                    continue
                several = None if f.several is None else f.several.cut(rows)
                cut.append(Factors(f.left[rows], f.right, f.log_weight, several))
            sides.append(tuple(cut))
        return Terms(*sides)


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


def fill_matrix(terms: Terms, out: AnyArray, threads: int | None = None) -> None:
    """Write the LLR of every row and column into `out`, block by block."""
    n_rows, n_columns = out.shape
    if not isinstance(out, np.ndarray):
        for start in range(0, n_rows, step := max(1, 2**26 // max(n_columns, 1))):
            rows = slice(start, min(start + step, n_rows))
            out[rows] = evaluate_block(terms, rows, slice(0, n_columns))
        return
    shape = _shape_of(terms)
    if shape == (1, 0):
        only = terms.numerator[0]

        def fill(start: int) -> None:
            rows = slice(start, min(start + BLOCK, n_rows))
            np.matmul(only.left[rows], only.right.T, out=out[rows])

        in_parallel(fill, range(0, n_rows, BLOCK), out.size, threads)
        return

    strips = [slice(left, min(left + BLOCK, n_columns)) for left in range(0, n_columns, BLOCK)]
    if shape == (1, 2):
        factors = *terms.numerator, *_products(terms.denominator)
        scales = (1.0, LOG2_E, LOG2_E)
        lefts = [f.left * out.dtype.type(scale) for f, scale in zip(factors, scales, strict=True)]
        turned = [[np.ascontiguousarray(f.right[columns].T) for f in factors] for columns in strips]

    def fill_blocks(start: int) -> None:
        rows = slice(start, min(start + BLOCK, n_rows))
        work = np.full((4, BLOCK * BLOCK if shape == (1, 2) else 0), LOWEST, dtype=out.dtype)
        for strip, columns in enumerate(strips):
            if shape == (1, 2):
                _two_against_one(
                    [left[rows] for left in lefts], turned[strip], work, out[rows, columns]
                )
            else:
                out[rows, columns] = evaluate_block(terms, rows, columns)

    in_parallel(fill_blocks, range(0, n_rows, BLOCK), out.size, threads)


def _shape_of(terms: Terms) -> tuple[int, int] | None:
    """Products above and below, where the only other hypothesis below has the term 0; else None."""
    above = _products(terms.numerator)
    below = _products(terms.denominator)
    others = [f.log_weight for f in terms.denominator if f.left is None]
    if len(above) != len(terms.numerator) or others != [0.0]:
        return None
    if any(f.several is not None for f in (*above, *below)):
        return None
    return len(above), len(below)


def _products(factors: tuple[Factors, ...]) -> list[Factors]:
    return [f for f in factors if f.left is not None]


def _two_against_one(
    lefts: Sequence[FloatArray], rights: Sequence[FloatArray], work: FloatArray, out: FloatArray
) -> None:
    """out = n - log(1 + exp a + exp b), from the factors of n, and of a and b times log2 e.

    work : (4, numbers of a block), the last row of them LOWEST
    """
    a, b = work[:2, : out.size]
    for left, right, product in zip(lefts[1:], rights[1:], (a, b), strict=True):
        _multiply(left, right, product.reshape(out.shape))
    negligible = (
        -4.0 - np.finfo(out.dtype).nmant
    )  # powers that do not change a number as large as 1
    counts = a > negligible
    counts |= b > negligible
    if (
        8 * np.count_nonzero(counts) < out.size
    ):  # most pairs of a large matrix share nothing: their ratio is n
        some = np.flatnonzero(counts)
        against = _log_of_sum(a.take(some), b.take(some), *work[2:, : len(some)])
        a.fill(0.0)
        a[some] = against
    else:
        _log_of_sum(a, b, *work[2:, : out.size])
    _multiply(lefts[0], rights[0], out)
    out -= a.reshape(out.shape)


def _log_of_sum(a: FloatArray, b: FloatArray, low: FloatArray, lowest: FloatArray) -> FloatArray:
    """log(1 + exp a + exp b) of a and b times log2 e, into a; b and low are overwritten.

    In the passes that NumPy does fastest: powers of two, and no scalar operands where `lowest` can be one.
    """
    top: FloatArray | None = None
    if max(a.max(initial=0.0), b.max(initial=0.0)) > np.finfo(a.dtype).maxexp - 8:
        # powers would overflow: the larger of the two and 1 is taken out
        np.minimum(a, b, out=low)
        np.maximum(a, b, out=a)
        top = np.maximum(a, 0.0, out=b)
        low -= top
        np.negative(np.abs(a, out=a), out=a)
        b = low
    for exponents in (a, b):
        np.maximum(exponents, lowest, out=exponents)
        np.exp2(exponents, out=exponents)
    a += b
    a += 1.0
    np.log2(a, out=a)
    if top is not None:
        a += top
    a *= LN_2
    return a


def _multiply(left: FloatArray, right: FloatArray, out: FloatArray) -> None:
    """out = left right."""
    whole = len(left) // THIN_ROWS * THIN_ROWS if THIN_ROWS * right.size < SMALL_PRODUCT else 0
    if whole:
        stacked = (-1, THIN_ROWS)
        np.matmul(
            left[:whole].reshape(*stacked, left.shape[1]),
            right,
            out=out[:whole].reshape(*stacked, out.shape[1]),
        )
    np.matmul(left[whole:], right, out=out[whole:])


class PairEvaluation:
    """Gives the LLRs of single pairs, some of so many: gathered rows of the factors and their dot products."""

    def __init__(self, terms: Terms, trials: int) -> None:
        self.terms = terms
        factors = [*_products(terms.numerator), *_products(terms.denominator)]
        self.lefts = [f.left for f in factors]
        self.rights = [f.right for f in factors]
        self.owners: list[FloatArray | None] = [None] * len(factors)
        widths = [left.shape[1] for left in self.lefts]
        numbers = sum(m.shape[0] * m.shape[1] for m in (*self.lefts, *self.rights))
        on_host = all(isinstance(matrix, np.ndarray) for matrix in self.lefts)
        if on_host and len(factors) > 1 and numbers <= min(JOINED_NUMBERS, trials * sum(widths)):
            # of a long list every trial takes one row of either side, in which all factors stand
            each = np.eye(len(factors), dtype=self.lefts[0].dtype)
            self.owners = [np.repeat(each, widths, axis=0)]
            self.lefts = [np.hstack(self.lefts)]
            self.rights = [np.hstack(self.rights)]

    def __call__(self, rows: Any, columns: Any) -> Any:
        dots: list[Any] = []
        for left, right, owner in zip(self.lefts, self.rights, self.owners, strict=True):
            dots += list(_row_dots(left, right, owner, rows, columns))
        values = iter(dots)
        sums = []
        for side in (self.terms.numerator, self.terms.denominator):
            terms: list[Any] = []
            for f in side:
                if f.left is None:
                    terms.append(f.log_weight)
                    continue
                value = next(values)
                if f.several is not None:
                    value = value + cast(f.several.pairs(rows, columns), dtype_name(value))
                terms.append(value)
            sums.append(log_sum(terms))
        return sums[0] - sums[1]


def _row_dots(left: Any, right: Any, owner: FloatArray | None, rows: Any, columns: Any) -> Any:
    """(terms, n) dot products of rows of two factors; with an owner, of the columns of every term."""
    if not isinstance(left, np.ndarray):
        return (left[rows] * right[columns]).sum(-1)[None]
    found = np.empty((1 if owner is None else owner.shape[1], len(rows)), dtype=left.dtype)
    space = np.empty((2, min(GATHERED, len(rows)), left.shape[1]), dtype=left.dtype)
    for start in range(0, len(rows), GATHERED):
        some = slice(start, start + GATHERED)
        a, b = space[:, : len(rows[some])]
        left.take(
            rows[some], 0, out=a, mode="clip"
        )  # the pairs are checked; to check them again takes a copy
        right.take(columns[some], 0, out=b, mode="clip")
        if owner is None:
            np.einsum("ij,ij->i", a, b, out=found[0, some])
        else:
            a *= b
            found[:, some] = (a @ owner).T
    return found


SCATTER_ELEMENTS = 2**22
"""Numbers of a band of rows that is made at a time, where a matrix is not written in place."""

GATHERED = 2**11
"""Trials of which rows are gathered at a time, while they are in the cache."""

JOINED_NUMBERS = 2**24
"""Factors are put side by side for a list of trials up to this many numbers (64 MiB)."""


def best_of(scores: AnyArray, numbers: IntArray, top: int) -> tuple[IntArray, FloatArray]:
    """(tests, top) numbers and scores of the best rows of a (rows, tests) matrix."""
    scores = np.asarray(scores.cpu() if is_torch(scores) else scores).T
    if top < scores.shape[1]:
        some = np.argpartition(-scores, top - 1, axis=1)[:, :top]
    else:
        some = np.broadcast_to(np.arange(scores.shape[1]), scores.shape)
    values = np.take_along_axis(scores, some, axis=1)
    order = np.argsort(-values, axis=1, kind="stable")
    return numbers[np.take_along_axis(some, order, axis=1)], np.take_along_axis(
        values, order, axis=1
    )


def best_in_bands(
    matrix: Callable[[IntArray], FloatArray],
    n_profiles: int,
    n_tests: int,
    top: int,
    dtype: DTypeLike,
) -> tuple[IntArray, FloatArray]:
    """(tests, top) numbers and scores of the best profiles of a matrix that is made some rows at a time."""
    numbers: IntArray = np.empty((n_tests, 0), dtype=np.int64)
    scores: FloatArray = np.empty((n_tests, 0), dtype=dtype)
    step = max(top, SCATTER_ELEMENTS // n_tests)
    for start in range(0, n_profiles, step):
        rows = np.arange(start, min(start + step, n_profiles))
        numbers, scores = merge_best(
            numbers, scores, *best_of(matrix(rows), rows, min(top, len(rows))), top
        )
    return numbers, scores


def merge_best(
    a: IntArray, a_scores: FloatArray, b: IntArray, b_scores: FloatArray, top: int
) -> tuple[IntArray, FloatArray]:
    numbers, scores = np.concatenate([a, b], axis=1), np.concatenate([a_scores, b_scores], axis=1)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :top]
    return np.take_along_axis(numbers, order, axis=1), np.take_along_axis(scores, order, axis=1)
