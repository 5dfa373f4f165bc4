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

THIN_ROWS, SMALL_PRODUCT = 32, 10**6
"""Of thin factors so many rows are multiplied at a time: products of fewer multiplications are not packed by BLAS."""

LOWEST = -120.0
"""Powers of two below this are no ordinary float32 numbers: slow to make, and too small to count."""

LOG2_E, LN_2 = 1.0 / math.log(2.0), math.log(2.0)

TINY = 1e-280
"""Sums of powers below this may have lost some of them."""

SCATTER_ELEMENTS = 2**22
"""Numbers of a band of rows that is made at a time, where a matrix is not written in place."""

GATHERED = 2**11
"""Trials of which rows are gathered at a time, while they are in the cache."""

JOINED_NUMBERS = 2**24
"""Factors are put side by side for a list of trials up to this many numbers (64 MiB)."""

Index = slice | AnyArray
"""Some rows: a slice, or their numbers."""


@dataclass(frozen=True)
class Several:
    """Worlds of one product that differ by what they add to rows and columns: log sum of exp(row + column).

    rows, columns : (P, worlds), (T, worlds) in float64, at most 0
    """

    rows: AnyArray
    columns: AnyArray

    def block(self, rows: Index, columns: Index) -> AnyArray:
        """Of all pairs of some rows and columns."""
        a = self.rows[rows]
        b = self.columns[columns]
        xp = namespace(a)
        # one product instead of a sum over worlds for every pair: both factors are at most 1
        total = xp.exp(a) @ xp.exp(b).T
        lost = total < TINY
        total[lost] = 1.0
        logs: AnyArray = xp.log(total)
        if bool(lost.any()):
            # the largest row and the largest column lie in different worlds: add these pairs up with care
            i, j = xp.where(lost)
            logs[lost] = _log_sum_rows(a[i] + b[j])
        return logs

    def pairs(self, rows: Index, columns: Index) -> AnyArray:
        """Of a list of pairs."""
        return _log_sum_rows(self.rows[rows] + self.columns[columns])


def _log_sum_rows(values: AnyArray) -> AnyArray:
    if is_torch(values):
        return values.logsumexp(1)
    return log_sum([column.copy() for column in np.asarray(values).T])


@dataclass(frozen=True)
class Product:
    """One pair form over all pairs of two groups of profiles: left @ right'.

    left, right : (P, rho + 2), (T, rho + 2)
    several : what is added for worlds that share the product
    """

    left: AnyArray
    right: AnyArray
    several: Several | None = None

    def block(self, rows: Index, columns: Index) -> AnyArray:
        value = self.left[rows] @ self.right[columns].T
        if self.several is not None:
            value += cast(self.several.block(rows, columns), dtype_name(value))
        return value

    def rows(self, rows: slice) -> Product:
        several = self.several and replace(self.several, rows=self.several.rows[rows])
        return Product(self.left[rows], self.right, several)


@dataclass(frozen=True)
class LogSum:
    """log of the sum of exp(products), and of exp(constant) where there is one: worlds that share nothing."""

    products: tuple[Product, ...]
    constant: float | None = None

    def evaluate(self, each: Callable[[Product], AnyArray]) -> AnyArray | float:
        if not self.products:
            # a side of the ratio without any world is impossible
            return -math.inf if self.constant is None else self.constant
        return log_sum([each(product) for product in self.products], self.constant)


@dataclass(frozen=True)
class Terms:
    """The likelihood ratio of two groups of profiles."""

    numerator: LogSum
    denominator: LogSum

    @property
    def products(self) -> tuple[Product, ...]:
        return (*self.numerator.products, *self.denominator.products)

    @property
    def dtype(self) -> str | None:
        """Name of the factors' dtype; None where nothing but constants is left."""
        return dtype_name(self.products[0].left) if self.products else None

    @property
    def shape(self) -> tuple[int, int] | None:
        """Products above and below, for the quick ways: no worlds share a product, nothing shared is 0 and below."""
        if self.numerator.constant is not None or self.denominator.constant != 0.0:
            return None
        # the quick ways know nothing of sums inside a product
        if any(product.several for product in self.products):
            return None
        return len(self.numerator.products), len(self.denominator.products)

    def rows(self, rows: slice) -> Terms:
        """The terms of some rows."""
        sums = (self.numerator, self.denominator)
        return Terms(*(replace(s, products=tuple(p.rows(rows) for p in s.products)) for s in sums))

    def llr(self, each: Callable[[Product], AnyArray]) -> AnyArray | float:
        """Of whatever pairs `each` gives the products."""
        return self.numerator.evaluate(each) - self.denominator.evaluate(each)  # (V4)

    def block(self, rows: Index, columns: Index) -> AnyArray | float:
        return self.llr(lambda product: product.block(rows, columns))


def log_sum(arrays: Sequence[AnyArray], constant: float | None = None) -> AnyArray:
    """log sum exp of arrays and a constant, all but one pass in place: NumPy arrays are overwritten."""
    # a single term needs no powers, and is most of what one-view models ask for
    first = arrays[0]
    if len(arrays) == 1 and constant is None:
        return first
    if is_torch(first):
        xp = namespace(first)
        more = [] if constant is None else [xp.full_like(first, constant)]
        total: AnyArray = xp.logsumexp(xp.stack([*arrays, *more]), 0)
        return total
    # not below the lowest number, so that what is impossible everywhere stays minus infinity
    lowest = np.finfo(first.dtype).min
    values = [np.asarray(array) for array in arrays]
    top = np.asarray(np.maximum(values[0], lowest if constant is None else max(constant, lowest)))
    for array in values[1:]:
        np.maximum(top, array, out=top)
    # the largest is taken out first: no power overflows, and at least one is 1
    powers = np.zeros_like(top) if constant is None else np.asarray(np.exp(constant - top))
    for array in values:
        array -= top
        powers += np.exp(array, out=array)
    np.log(powers, out=powers)
    powers += top
    return powers


# -- matrices ------------------------------------------------------------------------------------------------


def fill_matrix(terms: Terms, out: AnyArray, threads: int | None = None) -> None:
    """Write the LLR of every row and column into `out`, block by block."""
    n_rows, n_columns = out.shape
    if is_torch(out):
        step = max(1, 2**26 // max(n_columns, 1))
        for start in range(0, n_rows, step):
            rows = slice(start, start + step)
            out[rows] = terms.block(rows, slice(None))  # type: ignore[assignment]
        return
    result = np.asarray(out)
    work = _work_of(terms, result)
    # few columns take more rows, so that a block stays as large as the cache likes it
    step = BLOCK * max(1, BLOCK // max(n_columns, 1))

    def fill_rows(start: int) -> None:
        # BLAS may set the flag of an invalid number on its way to a valid product; log 0 is what is ruled out
        with np.errstate(invalid="ignore", divide="ignore"):
            work(slice(start, start + step))

    in_parallel(fill_rows, range(0, n_rows, step), result.size, threads)


def _work_of(terms: Terms, out: FloatArray) -> Callable[[slice], None]:
    """What makes some rows of the matrix, strip by strip of the columns: in quick ways where there are such."""
    strips = [slice(left, left + BLOCK) for left in range(0, out.shape[1], BLOCK)]
    products = terms.products
    if terms.shape == (1, 0):

        def multiply(rows: slice) -> None:
            np.matmul(products[0].left[rows], products[0].right.T, out=out[rows])

        return multiply
    if terms.shape == (1, 2):
        scales = [out.dtype.type(scale) for scale in (1.0, LOG2_E, LOG2_E)]
        lefts = [p.left * scale for p, scale in zip(products, scales, strict=True)]
        # a strip is multiplied with every block of rows: it is laid out once
        turned = [[np.ascontiguousarray(p.right[strip].T) for p in products] for strip in strips]

        def compare(rows: slice) -> None:
            # every thread has its own space, which all its strips share
            work = np.full((4, BLOCK * BLOCK), LOWEST, dtype=out.dtype)
            for columns, rights in zip(strips, turned, strict=True):
                _two_against_one([left[rows] for left in lefts], rights, work, out[rows, columns])

        return compare

    def evaluate(rows: slice) -> None:
        for columns in strips:
            out[rows, columns] = terms.block(rows, columns)

    return evaluate


def _two_against_one(
    lefts: Sequence[FloatArray], rights: Sequence[FloatArray], work: FloatArray, out: FloatArray
) -> None:
    """out = n - log(1 + exp a + exp b), from the factors of n, and of a and b times log2 e.

    work : (4, numbers of a block), the last row of them LOWEST
    """
    a, b = work[:2, : out.size]
    for left, right, product in zip(lefts[1:], rights[1:], (a, b), strict=True):
        _multiply(left, right, product.reshape(out.shape))
    # powers that do not change a number as large as 1
    negligible = -4.0 - np.finfo(out.dtype).nmant
    counts = a > negligible
    counts |= b > negligible
    if 8 * np.count_nonzero(counts) < out.size:
        # most pairs of a large matrix share nothing: their ratio is n
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
    whole = 0
    # BLAS packs large products, which costs more than thin ones take
    if THIN_ROWS * right.size < SMALL_PRODUCT:
        whole = len(left) // THIN_ROWS * THIN_ROWS
    if whole:
        stacked = left[:whole].reshape(-1, THIN_ROWS, left.shape[1])
        np.matmul(stacked, right, out=out[:whole].reshape(-1, THIN_ROWS, out.shape[1]))
    np.matmul(left[whole:], right, out=out[whole:])


# -- lists of trials -----------------------------------------------------------------------------------------


class PairEvaluation:
    """Gives the LLRs of single pairs, some of so many: gathered rows of the factors and their dot products."""

    def __init__(self, terms: Terms, trials: int) -> None:
        self.terms = terms
        products = terms.products
        self.joined: Product | None = None
        widths = [product.left.shape[1] for product in products]
        numbers = sum(
            (len(p.left) + len(p.right)) * w for p, w in zip(products, widths, strict=True)
        )
        on_host = bool(products) and not is_torch(products[0].left)
        if not on_host or len(products) < 2 or numbers > min(JOINED_NUMBERS, trials * sum(widths)):
            return
        # what is impossible is minus infinity in a column's own term, and would be NaN among the other products
        if all(np.isfinite(product.right[:, -1]).all() for product in products):
            # of a long list every trial takes one row of either side, in which all factors stand
            lefts = np.hstack([np.asarray(product.left) for product in products])
            self.joined = Product(lefts, np.hstack([np.asarray(p.right) for p in products]))
            self.owner = np.repeat(np.eye(len(products), dtype=lefts.dtype), widths, axis=0)

    def __call__(self, rows: AnyArray, columns: AnyArray) -> AnyArray | float:
        made: list[AnyArray] = []
        if self.joined is not None:
            made = list(_row_dots(self.joined, rows, columns, self.owner))
        else:
            made = [_row_dots(product, rows, columns)[0] for product in self.terms.products]
        values = iter(made)

        def each(product: Product) -> AnyArray:
            value = next(values)
            if product.several is not None:
                value = value + cast(product.several.pairs(rows, columns), dtype_name(value))
            return value

        return self.terms.llr(each)


def _row_dots(
    product: Product, rows: Any, columns: Any, owner: FloatArray | None = None
) -> AnyArray:
    """(terms, n) dot products of rows of two factors; with an owner, of the columns of every term."""
    if is_torch(product.left):
        return (product.left[rows] * product.right[columns]).sum(-1)[None]
    left = np.asarray(product.left)
    right = np.asarray(product.right)
    dots = np.empty((1 if owner is None else owner.shape[1], len(rows)), dtype=left.dtype)
    # gathered rows are overwritten again and again, so that they stay in the cache
    space = np.empty((2, min(GATHERED, len(rows)), left.shape[1]), dtype=left.dtype)
    for start in range(0, len(rows), GATHERED):
        some = slice(start, start + GATHERED)
        a, b = space[:, : len(rows[some])]
        # the pairs are checked; to check them again takes a copy
        left.take(rows[some], 0, out=a, mode="clip")
        right.take(columns[some], 0, out=b, mode="clip")
        if owner is None:
            np.einsum("ij,ij->i", a, b, out=dots[0, some])
        else:
            a *= b
            dots[:, some] = (a @ owner).T
    return dots


# -- the best rows -------------------------------------------------------------------------------------------


class Best:
    """The best rows of every column of a matrix that is made some rows at a time.

    numbers, scores : (columns, top), best first; -1 and minus infinity where there are not so many
    """

    def __init__(self, n_columns: int, top: int) -> None:
        self.numbers: IntArray = np.full((n_columns, top), -1)
        self.scores: FloatArray = np.full((n_columns, top), -np.inf)

    def add(self, scores: AnyArray, rows: IntArray, columns: Index = slice(None)) -> None:
        """Take in the scores (rows, columns) of some rows and columns."""
        values = to_host(scores).T
        top = self.numbers.shape[1]
        # sorting all rows would cost more than the scores: only the best are ordered
        places = np.broadcast_to(np.arange(values.shape[1]), values.shape)
        if top < values.shape[1]:
            places = np.argpartition(-values, top - 1, axis=1)[:, :top]
            values = np.take_along_axis(values, places, axis=1)
        self.merge(rows[places], values, columns)

    def merge(self, numbers: IntArray, scores: FloatArray, columns: Index = slice(None)) -> None:
        every = np.concatenate([self.scores[columns], scores], axis=1)
        # equal scores keep the order of the profiles, whatever the bands are
        order = np.argsort(-every, axis=1, kind="stable")[:, : self.numbers.shape[1]]
        self.scores[columns] = np.take_along_axis(every, order, axis=1)
        names = np.concatenate([self.numbers[columns], numbers], axis=1)
        self.numbers[columns] = np.take_along_axis(names, order, axis=1)


def bands(n_rows: int, n_columns: int, least: int = 1) -> list[slice]:
    """Rows of a matrix, as many at a time as may be held."""
    step = max(least, SCATTER_ELEMENTS // max(n_columns, 1))
    return [slice(start, min(start + step, n_rows)) for start in range(0, n_rows, step)]
