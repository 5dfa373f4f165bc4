"""Score matrices in cache-sized blocks: products, then a log-sum-exp.

A term of hypothesis h is a thin product: the sides' factors carry their own
quadratic terms as two more columns,  [E, row, 1] [T, 1, column]'.  Every
function works on NumPy arrays and on torch tensors alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from .._typing import AnyArray, FloatArray, IntArray
from ..backend import cast, dtype_name, empty, in_parallel, is_torch, like, on_cuda, one_blas_thread
from .evidence import Factors, Terms, log_sum
from .terms import Comparison

BLOCK = 512
"""Rows and columns of the blocks in which a matrix is made."""

THIN_ROWS, SMALL_PRODUCT = 32, 10**6
"""Of thin factors so many rows are multiplied at a time: products of fewer multiplications are not packed by BLAS."""

LOWEST = -120.0
"""Powers of two below this are no ordinary float32 numbers: slow to make, and too small to count."""

LOG2_E, LN_2 = 1.0 / math.log(2.0), math.log(2.0)


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
    above, below = _products(terms.numerator), _products(terms.denominator)
    others = [f.log_weight for f in terms.denominator if f.left is None]
    return (
        (len(above), len(below)) if len(above) == len(terms.numerator) and others == [0.0] else None
    )


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


def evaluate_pairs(terms: Terms, trials: int) -> Callable[[Any, Any], Any]:
    """What gives the LLRs of single pairs, some of so many: gathered rows of the factors and their dot products."""
    sides = terms.numerator, terms.denominator
    factors = [*_products(terms.numerator), *_products(terms.denominator)]
    lefts, rights = [f.left for f in factors], [f.right for f in factors]
    owners: list[FloatArray | None] = [None] * len(factors)
    numbers = sum(matrix.shape[0] * matrix.shape[1] for matrix in (*lefts, *rights))
    on_host = all(isinstance(matrix, np.ndarray) for matrix in lefts)
    if (
        on_host
        and len(factors) > 1
        and numbers <= min(JOINED_NUMBERS, trials * sum(m.shape[1] for m in lefts))
    ):
        # of a long list every trial takes one row of either side, in which all factors stand
        owners = [
            np.repeat(
                np.eye(len(factors), dtype=lefts[0].dtype), [m.shape[1] for m in lefts], axis=0
            )
        ]
        lefts, rights = [np.hstack(lefts)], [np.hstack(rights)]

    def values(rows: Any, columns: Any) -> Any:
        found = iter(
            [
                v
                for sides in zip(lefts, rights, owners, strict=True)
                for v in _row_dots(*sides, rows, columns)
            ]
        )
        for_same, against = (
            [f.log_weight if f.left is None else next(found) for f in side] for side in sides
        )
        return log_sum(for_same) - log_sum(against)

    return values


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
PAIR_CHUNK = 2**16
GATHERED = 2**11
"""Trials of which rows are gathered at a time, while they are in the cache."""

JOINED_NUMBERS = 2**24
"""Factors are put side by side for a list of trials up to this many numbers (64 MiB)."""


def fill(comparison: Comparison, result: AnyArray, threads: int | None = None) -> Any:
    """Write the LLR of every profile and test into `result`."""
    with one_blas_thread():
        for rows, columns, terms in comparison.parts():
            if (len(rows), len(columns)) == tuple(result.shape) and terms.dtype in (
                None,
                dtype_name(result),
            ):
                fill_whole(terms, result, threads)
            else:
                fill_part(terms, result, rows, columns, threads)
    return result


def score_pairs(comparison: Comparison, pairs: IntArray) -> Any:
    """LLRs of a list of (profile, test), without the matrix."""
    result = empty((len(pairs), 1), comparison.dtype, comparison.reference)[:, 0]
    if len(pairs) == 0:
        return result
    with one_blas_thread():
        for here, rows, columns, terms in comparison.parts_of_pairs(pairs):
            rows, columns = np.ascontiguousarray(rows), np.ascontiguousarray(columns)
            evaluate = evaluate_pairs(terms, len(here))
            for start in range(0, len(here), PAIR_CHUNK):
                some = slice(start, start + PAIR_CHUNK)
                target = some if len(here) == len(pairs) else like(here[some], result)
                scores = evaluate(like(rows[some], result), like(columns[some], result))
                result[target] = (
                    scores if isinstance(scores, float) else cast(scores, dtype_name(result))
                )
    return result


def best_profiles(comparison: Comparison, top: int) -> tuple[IntArray, FloatArray]:
    """(tests, top) numbers and LLRs of the best profiles, holding one band of the matrix at a time."""
    n_tests = comparison.shape[1]
    numbers: IntArray = np.empty((n_tests, 0), dtype=np.int64)
    scores: FloatArray = np.empty((n_tests, 0))
    for rows, columns, terms in comparison.parts():
        for here, best in _bands(comparison, rows, len(columns), terms, top):
            if len(columns) == n_tests and not numbers.shape[1]:
                numbers, scores = here, best  # the first of all tests
                continue
            if numbers.shape[1] < top:
                more = ((0, 0), (0, top - numbers.shape[1]))
                numbers = np.pad(numbers, more, constant_values=-1)
                scores = np.pad(scores, more, constant_values=-np.inf)
            numbers[columns], scores[columns] = merge_best(
                numbers[columns], scores[columns], here, best, top
            )
    return numbers, scores.astype(comparison.dtype)


def fill_whole(terms: Terms, result: AnyArray, threads: int | None) -> None:
    """Every row and column of terms: by the fused kernel on CUDA where it fits, in blocks elsewhere."""
    if is_torch(result) and result.is_cuda and result.is_contiguous():
        from .cuda import JointScorer, fits

        if fits(terms):
            JointScorer(terms).fill(result)
            return
    fill_matrix(terms, result, threads)


def fill_part(
    terms: Terms, result: AnyArray, rows: IntArray, columns: IntArray, threads: int | None
) -> None:
    """Write some rows and columns of a matrix, a band at a time."""
    step = max(1, SCATTER_ELEMENTS // len(columns))
    for start in range(0, len(rows), step):
        some = slice(start, min(start + step, len(rows)))
        band = empty(
            (some.stop - some.start, len(columns)), terms.dtype or dtype_name(result), result
        )
        fill_whole(_rows_of(terms, some), band, threads)
        where = like(rows[some][:, None], result), like(columns[None, :], result)
        result[where] = cast(band, dtype_name(result))


def _rows_of(terms: Terms, rows: slice) -> Terms:
    def cut(factors: tuple[Factors, ...]) -> tuple[Factors, ...]:
        return tuple(
            f if f.left is None else Factors(f.left[rows], f.right, f.log_weight) for f in factors
        )

    return Terms(cut(terms.numerator), cut(terms.denominator))


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


def _bands(
    comparison: Comparison, rows: IntArray, n_columns: int, terms: Terms, top: int
) -> Iterator[tuple[IntArray, FloatArray]]:
    """The best of every band of rows; of all rows at once where the fused kernel fits."""
    if on_cuda(comparison.reference):
        fused = _fused_best(terms, min(top, len(rows)))
        if fused is not None:
            yield rows[fused[0]], fused[1]
            return
    step = max(top, SCATTER_ELEMENTS // n_columns)
    for start in range(0, len(rows), step):
        some = slice(start, min(start + step, len(rows)))
        dtype = terms.dtype or comparison.dtype
        band = empty((some.stop - some.start, n_columns), dtype, comparison.reference)
        fill_matrix(_rows_of(terms, some), band)
        yield best_of(band, rows[some], min(top, band.shape[0]))


def _fused_best(terms: Terms, top: int) -> tuple[IntArray, FloatArray] | None:
    """The best rows by the fused kernel, where it fits."""
    from .cuda import best_rows, fits

    if not fits(terms):
        return None
    numbers, scores = best_rows(terms, top)
    return numbers.cpu().numpy(), scores.cpu().numpy()


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
