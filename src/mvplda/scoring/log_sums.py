"""Log-sums over assignments of classes, computed in cache-sized blocks: matrix products, then a log-sum-exp.

The pair terms (log-ratios) of one assignment over two groups of profiles are one thin matrix
product, [E, row, 1] [T, 1, column]'. E has a row per profile and T a row per test; two more columns
add the one-sided terms `row` and `column`. Matrices, lists of trials and searches for the best
profiles evaluate the same sums, `LogRatios`, and differ only in how products are computed. All
functions accept NumPy arrays and torch tensors.
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from .._typing import AnyArray, FloatArray, IntArray
from ..backend import cast, dtype_name, in_parallel, is_torch, namespace, to_host

BLOCK = 512
"""Number of rows, and of columns, of a block of a score matrix that is computed at a time."""

LOG2_E = 1.0 / math.log(2.0)

MAX_EXPONENT = 80.0
"""Largest absolute exponent of exp: a larger positive one overflows float32, a larger negative one is cut off."""

MIN_RELIABLE_SUM = 1e-280
"""Smallest sum of exponentials that is exact: smaller ones may have lost terms to underflow."""

BAND_NUMBERS = 2**22
"""Number of elements of a band of rows, if the matrix is not written in place."""

GATHER_CHUNK = 2**11
"""Number of trials whose rows are gathered at a time, so that both gathered blocks fit in the cache."""

RowIndex = slice | AnyArray
"""Selection of rows: a slice, or an array of row numbers."""


@dataclass(frozen=True)
class OffsetSum:
    """Log-sum over assignments w that share a matrix product, for profile i and test j.

    The value is log sum over w of exp(rows[i, w] + columns[j, w]). It is added to the product.

    rows : (profiles, assignments) float64, at most 0
    columns : (tests, assignments) float64, at most 0
    """

    rows: AnyArray
    columns: AnyArray

    def block(self, rows: RowIndex, columns: RowIndex) -> AnyArray:
        """Return the log-sum for every pair of the given rows and columns, (rows, columns)."""
        a = self.rows[rows]
        b = self.columns[columns]
        xp = namespace(a)
        # one matrix product replaces a sum per pair; nothing overflows, because all exponents are at most 0
        total = xp.exp(a) @ xp.exp(b).T
        is_lost = total < MIN_RELIABLE_SUM
        total[is_lost] = 1.0
        logs = xp.log(total)
        # underflow occurs where the largest row and column offsets belong to different assignments: use logs there
        if bool(is_lost.any()):
            i, j = xp.where(is_lost)
            logs[is_lost] = _log_sum_rows(a[i] + b[j])
        return logs

    def pairs(self, rows: RowIndex, columns: RowIndex) -> AnyArray:
        """Return the log-sum for n pairs of a row and a column, (n,)."""
        return _log_sum_rows(self.rows[rows] + self.columns[columns])


def _log_sum_rows(values: AnyArray) -> AnyArray:
    """Return, for each row of `values` (n, columns), the log of the sum of exponentials, (n,)."""
    if is_torch(values):
        return values.logsumexp(1)
    return log_sum([column.copy() for column in np.asarray(values).T])


@dataclass(frozen=True)
class TermProduct:
    """Sum of pair terms (log-ratios) of P profiles and T tests as a matrix product, left @ right', (P, T).

    A term that depends on the profile alone, or on the test alone, is a further column of its factor.

    left : (P, width) factor of the profiles
    right : (T, width) factor of the tests
    offsets : if several assignments of the test's classes to enrolled classes have the same product: the log of the
        sum of their weights, which is added to the product; None: there is one assignment
    """

    left: AnyArray
    right: AnyArray
    offsets: OffsetSum | None = None

    def block(self, rows: RowIndex, columns: RowIndex) -> AnyArray:
        """Return the values for every pair of the given rows and columns, (rows, columns)."""
        value = self.left[rows] @ self.right[columns].T
        if self.offsets is not None:
            value += cast(self.offsets.block(rows, columns), dtype_name(value))
        return value

    def pairs(self, rows: AnyArray, columns: AnyArray) -> AnyArray:
        """Return the values for n pairs of a row and a column, (n,)."""
        value = _row_dots(self.left, self.right, rows, columns)
        if self.offsets is not None:
            value += cast(self.offsets.pairs(rows, columns), dtype_name(value))
        return value

    def rows(self, rows: slice) -> TermProduct:
        """Return the product restricted to a slice of the profiles (rows of `left`)."""
        offsets = self.offsets and replace(self.offsets, rows=self.offsets.rows[rows])
        return TermProduct(self.left[rows], self.right, offsets)


@dataclass(frozen=True)
class AssignmentSum:
    """Log-sum over assignments of classes: log(sum over products of exp(product) + exp(constant)).

    products : pair terms (log-ratios) of the assignments that share classes
    constant : log weight of the assignments that share nothing; None: there are none
    """

    products: tuple[TermProduct, ...]
    constant: float | None = None

    def evaluate(self, value_of: Callable[[TermProduct], AnyArray]) -> AnyArray | float:
        """Return the log-sum: an array, or a number if there are no products.

        value_of : function that multiplies the factors of a product, for example for one block
        """
        if not self.products:
            # without any assignment the sum is 0, and its log minus infinity
            return -math.inf if self.constant is None else self.constant
        return log_sum([value_of(product) for product in self.products], self.constant)


class LogRatios:
    """Log ratios of one or more numerators to a common denominator, for two groups of profiles.

    Numerators and denominator are sums over assignments of classes. A likelihood ratio has one
    numerator. Relative log-likelihoods of hypotheses have one numerator per hypothesis but the last.

    sums : the numerators, then the denominator
    products : matrix products of all sums
    """

    def __init__(self, *sums: AssignmentSum) -> None:
        self.sums = sums
        self.products = tuple(product for term_sum in sums for product in term_sum.products)

    @property
    def dtype(self) -> str | None:
        """Type of the factors, such as "float32"; None if there are no matrix products."""
        return dtype_name(self.products[0].left) if self.products else None

    @property
    def product_counts(self) -> tuple[int, int] | None:
        """Numbers of matrix products in numerator and denominator, or None if the ratio is not simple.

        Fast implementations exist for simple ratios only. They have a single numerator, without a
        constant; the constant of the denominator is 0; and no product has offsets.
        """
        numerator, *_, denominator = self.sums
        if len(self.sums) > 2 or numerator.constant is not None or denominator.constant != 0.0:
            return None
        if any(product.offsets for product in self.products):
            return None
        return len(numerator.products), len(denominator.products)

    def rows(self, rows: slice) -> LogRatios:
        """Return the ratios restricted to a slice of the profiles (rows)."""
        return LogRatios(
            *(
                replace(term_sum, products=tuple(p.rows(rows) for p in term_sum.products))
                for term_sum in self.sums
            )
        )

    def ratios(self, value_of: Callable[[TermProduct], AnyArray]) -> list[AnyArray | float]:
        """Return the log ratio of each numerator to the denominator: arrays, or numbers if constant.

        value_of : function that multiplies the factors of a product, for a block or a list of pairs
        """
        *values, reference = [term_sum.evaluate(value_of) for term_sum in self.sums]
        if isinstance(reference, float) and reference == 0.0:
            return values
        for k in range(len(values)):
            values[k] -= reference  # (V4)
        return values

    def block(self, rows: RowIndex, columns: RowIndex) -> list[AnyArray | float]:
        """Return, per numerator, the log ratios of all pairs of these rows and columns, (rows, columns)."""
        return self.ratios(lambda product: product.block(rows, columns))

    def pairs(self, rows: AnyArray, columns: AnyArray) -> list[AnyArray | float]:
        """Return, per numerator, the log ratios of n pairs of a row and a column, (n,)."""
        return self.ratios(lambda product: product.pairs(rows, columns))


def _row_dots(left: AnyArray, right: AnyArray, rows: AnyArray, columns: AnyArray) -> AnyArray:
    """Return the dot product of left[rows[i]] and right[columns[i]] for each i, (n,).

    rows, columns : (n,) row numbers in `left` and in `right`
    """
    if not isinstance(left, np.ndarray):
        return (left[rows] * right[columns]).sum(-1)
    dots = np.empty(len(rows), dtype=left.dtype)
    # reuse two buffers that stay in the cache
    buffers = np.empty((2, min(GATHER_CHUNK, len(rows)), left.shape[1]), dtype=left.dtype)
    for start in range(0, len(rows), GATHER_CHUNK):
        chunk = slice(start, start + GATHER_CHUNK)
        a, b = buffers[:, : len(rows[chunk])]
        # the pairs are valid: mode="clip" skips NumPy's own check, which would buffer the output
        np.take(left, rows[chunk], 0, out=a, mode="clip")
        np.take(right, columns[chunk], 0, out=b, mode="clip")
        np.einsum("ij,ij->i", a, b, out=dots[chunk])
    return dots


def log_sum(arrays: Sequence[AnyArray], constant: float | None = None) -> AnyArray:
    """Return the elementwise log(sum over arrays a of exp(a) + exp(constant)).

    NumPy arrays are overwritten.

    arrays : at least one array, all of the same shape
    constant : number; None: no constant in the sum
    """
    # a single term needs no exponentials; this is the usual case of one-view models
    first = arrays[0]
    if len(arrays) == 1 and constant is None:
        return first
    if is_torch(first):
        xp = namespace(first)
        constants = [] if constant is None else [xp.full_like(first, constant)]
        return xp.logsumexp(xp.stack([*arrays, *constants]), 0)
    values: list[FloatArray] = [np.asarray(array) for array in arrays]
    shift: FloatArray | None = None
    total: FloatArray | float
    if (
        constant is not None
        and constant > -20.0
        and max(array.max() for array in values) < MAX_EXPONENT
    ):
        # no shift: nothing overflows, and terms below -MAX_EXPONENT vanish beside the constant
        floor: FloatArray | float = np.full_like(
            first, -MAX_EXPONENT
        )  # an array, because NumPy is slower with a scalar
        total = math.exp(constant)
        for array in values:
            np.maximum(array, floor, out=array)
    else:
        # shift by the largest term; it is finite, so that terms that are all -inf stay -inf
        lowest = float(np.finfo(first.dtype).min)
        floor = lowest if constant is None else max(constant, lowest)
        shift = np.asarray(np.maximum(values[0], floor))
        for array in values[1:]:
            np.maximum(shift, array, out=shift)
        total = 0.0 if constant is None else np.exp(constant - shift)
        for array in values:
            array -= shift
    # exp2 and log2 are faster in NumPy than exp and log
    for array in values:
        array *= LOG2_E
        np.exp2(array, out=array)
        total = np.add(array, total, out=array)
    # `total` is the last array, which the loop overwrote
    logs = values[-1]
    np.log2(logs, out=logs)
    logs *= 1.0 / LOG2_E
    if shift is not None:
        logs += shift
    return logs


# -- matrices ------------------------------------------------------------------------------------------------


def fill_matrix(
    log_ratios: LogRatios, outs: Sequence[AnyArray], threads: int | None = None
) -> None:
    """Write the log ratios of all rows and columns into arrays, block by block.

    outs : one (rows, columns) array per numerator
    threads : number of threads; None: all processors
    """
    n_rows, n_columns = outs[0].shape
    if is_torch(outs[0]):
        step = max(1, 2**26 // max(n_columns, 1))
        for start in range(0, n_rows, step):
            rows = slice(start, start + step)
            for out, values in zip(outs, log_ratios.block(rows, slice(None)), strict=True):
                out[rows] = values
        return
    # blocks with few columns get more rows, so that all blocks have a similar size
    step = BLOCK * max(1, BLOCK // max(n_columns, 1))
    is_single_product = log_ratios.product_counts == (1, 0)

    def fill_rows(start: int) -> None:
        rows = slice(start, start + step)
        # BLAS may raise the flag of an invalid number for a valid product; log 0 stands for the impossible
        with np.errstate(invalid="ignore", divide="ignore"):
            if is_single_product:
                product = log_ratios.products[0]
                np.matmul(product.left[rows], product.right.T, out=outs[0][rows])
                return
            for left in range(0, n_columns, BLOCK):
                columns = slice(left, left + BLOCK)
                for out, values in zip(outs, log_ratios.block(rows, columns), strict=True):
                    out[rows, columns] = values

    if n_rows <= step:
        fill_rows(0)
    else:
        in_parallel(fill_rows, range(0, n_rows, step), n_rows * n_columns, threads)


# -- the best rows -------------------------------------------------------------------------------------------


class BestRows:
    """Best rows of every column of a score matrix that is computed in bands of rows.

    numbers : (columns, top) row numbers, best first; -1 where there are fewer rows
    scores : (columns, top) their scores; minus infinity where there are fewer rows
    """

    def __init__(self, n_columns: int, top: int) -> None:
        self.numbers: IntArray = np.full((n_columns, top), -1)
        self.scores: FloatArray = np.full((n_columns, top), -np.inf)

    def add(self, scores: AnyArray, rows: IntArray, columns: RowIndex = slice(None)) -> None:
        """Compare further rows of the score matrix with the best rows so far.

        scores : (rows, columns) scores of the further rows
        rows : (rows,) row numbers of the further rows
        columns : the columns that `scores` covers
        """
        values = to_host(scores).T
        top = self.numbers.shape[1]
        # preselect without order: sorting all rows would take longer than scoring them
        positions = np.broadcast_to(np.arange(values.shape[1]), values.shape)
        if top < values.shape[1]:
            positions = np.argpartition(-values, top - 1, axis=1)[:, :top]
            values = np.take_along_axis(values, positions, axis=1)
        self.merge(rows[positions], values, columns)

    def merge(self, numbers: IntArray, scores: FloatArray, columns: RowIndex = slice(None)) -> None:
        """Compare n candidates per column with the best rows so far.

        numbers : (columns, n) row numbers of the candidates
        scores : (columns, n) scores of the candidates
        columns : the columns that `numbers` and `scores` cover
        """
        all_scores = np.concatenate([self.scores[columns], scores], axis=1)
        # a stable sort, so that equal scores keep the order of the profiles whatever the bands are
        order = np.argsort(-all_scores, axis=1, kind="stable")[:, : self.numbers.shape[1]]
        self.scores[columns] = np.take_along_axis(all_scores, order, axis=1)
        all_numbers = np.concatenate([self.numbers[columns], numbers], axis=1)
        self.numbers[columns] = np.take_along_axis(all_numbers, order, axis=1)


def row_bands(n_rows: int, n_columns: int, min_rows: int = 1) -> list[slice]:
    """Divide the rows of a matrix into consecutive slices.

    A slice has at most `BAND_NUMBERS` elements, but at least `min_rows` rows unless it is the last.
    """
    step = max(min_rows, BAND_NUMBERS // max(n_columns, 1))
    return [slice(start, min(start + step, n_rows)) for start in range(0, n_rows, step)]
