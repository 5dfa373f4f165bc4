"""Score matrices, lists of trials and the best profiles, part by part."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..kernel.blocks import Factors, Terms, evaluate_pairs, fill_matrix, relative_to_nothing
from ..kernel.threads import one_blas_thread
from ..labels import IntArray
from .backend import dtype_name, empty, is_torch, like, on_cuda
from .terms import Comparison

SCATTER_ELEMENTS = 2**22
PAIR_CHUNK = 2**12


def fill(comparison: Comparison, result: Any, threads: int | None = None) -> Any:
    """Write the LLR of every profile and test into `result`."""
    with one_blas_thread():
        for rows, columns, terms in comparison.parts():
            if (len(rows), len(columns)) == tuple(result.shape) and terms.dtype in (None, dtype_name(result)):
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
            for start in range(0, len(here), PAIR_CHUNK):
                some = slice(start, start + PAIR_CHUNK)
                target = some if len(here) == len(pairs) else like(here[some], result)
                result[target] = evaluate_pairs(terms, like(rows[some], result), like(columns[some], result))
    return result


def best_profiles(comparison: Comparison, top: int) -> tuple[IntArray, NDArray[Any]]:
    """(tests, top) numbers and LLRs of the best profiles, holding one band of the matrix at a time."""
    n_tests = comparison.shape[1]
    numbers: IntArray = np.empty((n_tests, 0), dtype=np.int64)
    scores: NDArray[Any] = np.empty((n_tests, 0))
    for rows, columns, terms in comparison.parts():
        for here, best in _bands(comparison, rows, len(columns), terms, top):
            if len(columns) == n_tests and not numbers.shape[1]:
                numbers, scores = here, best  # the first of all tests
                continue
            if numbers.shape[1] < top:
                more = ((0, 0), (0, top - numbers.shape[1]))
                numbers = np.pad(numbers, more, constant_values=-1)
                scores = np.pad(scores, more, constant_values=-np.inf)
            numbers[columns], scores[columns] = merge_best(numbers[columns], scores[columns], here, best, top)
    return numbers, scores.astype(comparison.dtype)


def fill_whole(terms: Terms, result: Any, threads: int | None) -> None:
    """Every row and column of terms: by the fused kernel on CUDA where it fits, in blocks elsewhere."""
    if on_cuda(result) and result.is_contiguous():
        from .cuda import JointScorer, fits

        if fits(terms := relative_to_nothing(terms)):
            JointScorer(terms).fill(result)
            return
    fill_matrix(terms, result, threads)


def fill_part(terms: Terms, result: Any, rows: IntArray, columns: IntArray, threads: int | None) -> None:
    """Write some rows and columns of a matrix, a band at a time."""
    step = max(1, SCATTER_ELEMENTS // len(columns))
    for start in range(0, len(rows), step):
        some = slice(start, min(start + step, len(rows)))
        band = empty((some.stop - some.start, len(columns)), terms.dtype or dtype_name(result), result)
        fill_whole(_rows_of(terms, some), band, threads)
        where = like(rows[some][:, None], result), like(columns[None, :], result)
        result[where] = band if not is_torch(band) else band.to(result.dtype)


def _rows_of(terms: Terms, rows: slice) -> Terms:
    def cut(factors: tuple[Factors, ...]) -> tuple[Factors, ...]:
        return tuple(f if f.left is None else Factors(f.left[rows], f.right, f.log_weight) for f in factors)

    return Terms(cut(terms.numerator), cut(terms.denominator))


def best_of(scores: Any, numbers: IntArray, top: int) -> tuple[IntArray, NDArray[Any]]:
    """(tests, top) numbers and scores of the best rows of a (rows, tests) matrix."""
    scores = np.asarray(scores.cpu() if is_torch(scores) else scores).T
    if top < scores.shape[1]:
        some = np.argpartition(-scores, top - 1, axis=1)[:, :top]
    else:
        some = np.broadcast_to(np.arange(scores.shape[1]), scores.shape)
    values = np.take_along_axis(scores, some, axis=1)
    order = np.argsort(-values, axis=1, kind="stable")
    return numbers[np.take_along_axis(some, order, axis=1)], np.take_along_axis(values, order, axis=1)


def _bands(
    comparison: Comparison, rows: IntArray, n_columns: int, terms: Terms, top: int
) -> Iterator[tuple[IntArray, NDArray[Any]]]:
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


def _fused_best(terms: Terms, top: int) -> tuple[IntArray, NDArray[Any]] | None:
    """The best rows by the fused kernel, where it fits."""
    from .cuda import best_rows, fits

    terms = relative_to_nothing(terms)
    if not fits(terms):
        return None
    numbers, scores = best_rows(terms, top)
    return numbers.cpu().numpy(), scores.cpu().numpy()


def merge_best(
    a: IntArray, a_scores: NDArray[Any], b: IntArray, b_scores: NDArray[Any], top: int
) -> tuple[IntArray, NDArray[Any]]:
    numbers, scores = np.concatenate([a, b], axis=1), np.concatenate([a_scores, b_scores], axis=1)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :top]
    return np.take_along_axis(numbers, order, axis=1), np.take_along_axis(scores, order, axis=1)
