"""Scores in cache-sized blocks: products, then a log-sum-exp.

A pair form over two groups is a thin product: the sides' factors carry their own terms as two more columns,
[E, row, 1] [T, 1, column]'.  Every function works on NumPy arrays and on torch tensors alike. A matrix, a list
of trials and the best profiles are the same sums, `Terms.llr`, of products that are made in three ways.
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .._typing import AnyArray, FloatArray, IntArray
from ..backend import cast, dtype_name, in_parallel, is_torch, namespace, to_host

BLOCK = 512
"""Rows and columns of the blocks in which a matrix is made."""

LOG2_E = 1.0 / math.log(2.0)

MAX_EXPONENT = 80.0
"""The power of a larger exponent is no float32 number, that of a lower one than minus this none of full precision."""

MIN_RELIABLE_SUM = 1e-280
"""Sums of powers below this may have lost some of them."""

BAND_NUMBERS = 2**22
"""Numbers of a band of rows that is made at a time, where a matrix is not written in place."""

GATHER_CHUNK = 2**11
"""Trials of which rows are gathered at a time, while they are in the cache."""

RowIndex = slice | AnyArray
"""Some rows: a slice, or their numbers."""


@dataclass(frozen=True)
class OffsetSum:
    """Worlds of one product that differ by what they add to rows and columns: log sum of exp(row + column).

    rows, columns : (P, worlds), (T, worlds) in float64, at most 0
    """

    rows: AnyArray
    columns: AnyArray

    def block(self, rows: RowIndex, columns: RowIndex) -> AnyArray:
        """Of all pairs of some rows and columns."""
        a = self.rows[rows]
        b = self.columns[columns]
        xp = namespace(a)
        # one product instead of a sum over worlds for every pair: both factors are at most 1
        total = xp.exp(a) @ xp.exp(b).T
        lost = total < MIN_RELIABLE_SUM
        total[lost] = 1.0
        logs = xp.log(total)
        if bool(lost.any()):
            # the largest row and the largest column lie in different worlds: add these pairs up with care
            i, j = xp.where(lost)
            logs[lost] = _log_sum_rows(a[i] + b[j])
        return logs

    def pairs(self, rows: RowIndex, columns: RowIndex) -> AnyArray:
        """Of a list of pairs."""
        return _log_sum_rows(self.rows[rows] + self.columns[columns])


def _log_sum_rows(values: AnyArray) -> AnyArray:
    if is_torch(values):
        return values.logsumexp(1)
    return log_sum([column.copy() for column in np.asarray(values).T])


@dataclass(frozen=True)
class TermProduct:
    """One pair form over all pairs of two groups of profiles: left @ right'.

    left, right : (P, rho + 2), (T, rho + 2)
    several : what is added for worlds that share the product
    """

    left: AnyArray
    right: AnyArray
    several: OffsetSum | None = None

    def block(self, rows: RowIndex, columns: RowIndex) -> AnyArray:
        value = self.left[rows] @ self.right[columns].T
        if self.several is not None:
            value += cast(self.several.block(rows, columns), dtype_name(value))
        return value

    def pairs(self, rows: AnyArray, columns: AnyArray) -> AnyArray:
        """Of a list of trials."""
        value = _row_dots(self.left, self.right, rows, columns)
        if self.several is not None:
            value += cast(self.several.pairs(rows, columns), dtype_name(value))
        return value

    def rows(self, rows: slice) -> TermProduct:
        several = self.several and replace(self.several, rows=self.several.rows[rows])
        return TermProduct(self.left[rows], self.right, several)


@dataclass(frozen=True)
class AssignmentSum:
    """log of the sum of exp(products), and of exp(constant) where there is one: worlds that share nothing."""

    products: tuple[TermProduct, ...]
    constant: float | None = None

    def evaluate(self, each: Callable[[TermProduct], AnyArray]) -> AnyArray | float:
        if not self.products:
            # a side of the ratio without any world is impossible
            return -math.inf if self.constant is None else self.constant
        return log_sum([each(product) for product in self.products], self.constant)


class LogRatios:
    """Log sums over worlds of two groups of profiles; the last is what all others are relative to.

    A likelihood ratio has two of them. The log-likelihoods of hypotheses have one for each.
    """

    def __init__(self, *sums: AssignmentSum) -> None:
        self.sums = sums
        self.products = tuple(product for one in sums for product in one.products)

    @property
    def dtype(self) -> str | None:
        """Name of the factors' dtype; None where nothing but constants is left."""
        return dtype_name(self.products[0].left) if self.products else None

    @property
    def shape(self) -> tuple[int, int] | None:
        """Of a ratio that quick ways can make, its products above and below: nothing shared is 0, and below."""
        numerator, *_, denominator = self.sums
        if len(self.sums) > 2 or numerator.constant is not None or denominator.constant != 0.0:
            return None
        # the quick ways know nothing of sums inside a product
        if any(product.several for product in self.products):
            return None
        return len(numerator.products), len(denominator.products)

    def rows(self, rows: slice) -> LogRatios:
        """The terms of some rows."""
        made = [replace(s, products=tuple(p.rows(rows) for p in s.products)) for s in self.sums]
        return LogRatios(*made)

    def ratios(self, each: Callable[[TermProduct], AnyArray]) -> list[AnyArray | float]:
        """All sums but the last, relative to it, of whatever pairs `each` gives the products."""
        *values, reference = [one.evaluate(each) for one in self.sums]
        if isinstance(reference, float) and reference == 0.0:
            return values
        for k in range(len(values)):
            values[k] -= reference  # (V4)
        return values

    def block(self, rows: RowIndex, columns: RowIndex) -> list[AnyArray | float]:
        return self.ratios(lambda product: product.block(rows, columns))

    def pairs(self, rows: AnyArray, columns: AnyArray) -> list[AnyArray | float]:
        return self.ratios(lambda product: product.pairs(rows, columns))


def _row_dots(of_left: AnyArray, of_right: AnyArray, rows: Any, columns: Any) -> AnyArray:
    """(n,) dot products of rows of two factors."""
    if is_torch(of_left):
        return (of_left[rows] * of_right[columns]).sum(-1)
    left = np.asarray(of_left)
    right = np.asarray(of_right)
    dots = np.empty(len(rows), dtype=left.dtype)
    # gathered rows are overwritten again and again, so that they stay in the cache
    space = np.empty((2, min(GATHER_CHUNK, len(rows)), left.shape[1]), dtype=left.dtype)
    for start in range(0, len(rows), GATHER_CHUNK):
        some = slice(start, start + GATHER_CHUNK)
        a, b = space[:, : len(rows[some])]
        # the pairs are checked; to check them again takes a copy
        left.take(rows[some], 0, out=a, mode="clip")
        right.take(columns[some], 0, out=b, mode="clip")
        np.einsum("ij,ij->i", a, b, out=dots[some])
    return dots


def log_sum(arrays: Sequence[AnyArray], constant: float | None = None) -> AnyArray:
    """log sum exp of arrays and a constant, all but one pass in place: NumPy arrays are overwritten."""
    # a single term needs no powers, and is most of what one-view models ask for
    first = arrays[0]
    if len(arrays) == 1 and constant is None:
        return first
    if is_torch(first):
        xp = namespace(first)
        more = [] if constant is None else [xp.full_like(first, constant)]
        return xp.logsumexp(xp.stack([*arrays, *more]), 0)
    values = [np.asarray(array) for array in arrays]
    top: Any = 0.0
    if (
        constant is not None
        and constant > -20.0
        and max(array.max() for array in values) < MAX_EXPONENT
    ):
        # beside the constant small powers count for nothing, and none overflows; an array, for scalars are slower
        floor = np.full_like(first, -MAX_EXPONENT)
        total: Any = math.exp(constant)
        for array in values:
            np.maximum(array, floor, out=array)
    else:
        # the largest is taken out, not below the lowest number: what is impossible everywhere stays minus infinity
        lowest = np.finfo(first.dtype).min
        least = lowest if constant is None else max(constant, lowest)
        top = np.asarray(np.maximum(values[0], least))
        for array in values[1:]:
            np.maximum(top, array, out=top)
        total = 0.0 if constant is None else np.exp(constant - top)
        for array in values:
            array -= top
    # powers and logarithms of two are those that NumPy is fastest at
    for array in values:
        array *= LOG2_E
        np.exp2(array, out=array)
        total = np.add(array, total, out=array)
    np.log2(total, out=total)
    total *= 1.0 / LOG2_E
    if not isinstance(top, float):
        total += top
    return total


# -- matrices ------------------------------------------------------------------------------------------------


def fill_matrix(terms: LogRatios, outs: Sequence[AnyArray], threads: int | None = None) -> None:
    """Write what the terms are of every row and column, block by block: one result for each sum but the last."""
    n_rows, n_columns = outs[0].shape
    if is_torch(outs[0]):
        step = max(1, 2**26 // max(n_columns, 1))
        for start in range(0, n_rows, step):
            rows = slice(start, start + step)
            for out, values in zip(outs, terms.block(rows, slice(None)), strict=True):
                out[rows] = values
        return
    # few columns take more rows, so that a block stays as large as the cache likes it
    step = BLOCK * max(1, BLOCK // max(n_columns, 1))
    is_product = terms.shape == (1, 0)

    def fill_rows(start: int) -> None:
        rows = slice(start, start + step)
        # BLAS may set the flag of an invalid number on its way to a valid product; log 0 is what is ruled out
        with np.errstate(invalid="ignore", divide="ignore"):
            if is_product:
                product = terms.products[0]
                np.matmul(product.left[rows], product.right.T, out=outs[0][rows])
                return
            for left in range(0, n_columns, BLOCK):
                columns = slice(left, left + BLOCK)
                for out, values in zip(outs, terms.block(rows, columns), strict=True):
                    out[rows, columns] = values

    if n_rows <= step:
        fill_rows(0)
    else:
        in_parallel(fill_rows, range(0, n_rows, step), n_rows * n_columns, threads)


# -- the best rows -------------------------------------------------------------------------------------------


class BestRows:
    """The best rows of every column of a matrix that is made some rows at a time.

    numbers, scores : (columns, top), best first; -1 and minus infinity where there are not so many
    """

    def __init__(self, n_columns: int, top: int) -> None:
        self.numbers: IntArray = np.full((n_columns, top), -1)
        self.scores: FloatArray = np.full((n_columns, top), -np.inf)

    def add(self, scores: AnyArray, rows: IntArray, columns: RowIndex = slice(None)) -> None:
        """Take in the scores (rows, columns) of some rows and columns."""
        values = to_host(scores).T
        top = self.numbers.shape[1]
        # sorting all rows would cost more than the scores: only the best are ordered
        places = np.broadcast_to(np.arange(values.shape[1]), values.shape)
        if top < values.shape[1]:
            places = np.argpartition(-values, top - 1, axis=1)[:, :top]
            values = np.take_along_axis(values, places, axis=1)
        self.merge(rows[places], values, columns)

    def merge(self, numbers: IntArray, scores: FloatArray, columns: RowIndex = slice(None)) -> None:
        every = np.concatenate([self.scores[columns], scores], axis=1)
        # equal scores keep the order of the profiles, whatever the bands are
        order = np.argsort(-every, axis=1, kind="stable")[:, : self.numbers.shape[1]]
        self.scores[columns] = np.take_along_axis(every, order, axis=1)
        names = np.concatenate([self.numbers[columns], numbers], axis=1)
        self.numbers[columns] = np.take_along_axis(names, order, axis=1)


def row_bands(n_rows: int, n_columns: int, least: int = 1) -> list[slice]:
    """Rows of a matrix, as many at a time as may be held."""
    step = max(least, BAND_NUMBERS // max(n_columns, 1))
    return [slice(start, min(start + step, n_rows)) for start in range(0, n_rows, step)]
