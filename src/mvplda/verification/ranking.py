"""The best profiles of every test."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..kernel.blocks import Terms, fill_matrix, relative_to_nothing
from ..labels import IntArray
from .backend import empty, is_torch, on_cuda
from .matrices import SCATTER_ELEMENTS, fill_mixed, rows_of
from .terms import Comparison


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


def best_profiles(comparison: Comparison, top: int) -> tuple[IntArray, NDArray[Any]]:
    """(tests, top) numbers and LLRs of the best profiles, holding one band of the matrix at a time."""
    if comparison.enrol.mixed or comparison.test.mixed:
        shape = (len(comparison.enrol), len(comparison.test))
        scores = fill_mixed(comparison, empty(shape, comparison.dtype, comparison.enrol.y))
        return best_of(scores, np.arange(shape[0]), top)
    n_tests = len(comparison.test)
    numbers = np.full((n_tests, top), -1, dtype=np.int64)
    scores = np.full((n_tests, top), -np.inf)
    for rows, columns, terms in comparison.parts():
        for here, best in _bands(comparison, rows, len(columns), terms, top):
            numbers[columns], scores[columns] = _merge_best(numbers[columns], scores[columns], here, best, top)
    return numbers, scores.astype(comparison.dtype)


def _bands(
    comparison: Comparison, rows: IntArray, n_columns: int, terms: Terms, top: int
) -> Iterator[tuple[IntArray, NDArray[Any]]]:
    """The best of every band of rows; of all rows at once where the fused kernel fits."""
    if on_cuda(comparison.enrol.y):
        fused = _fused_best(terms, min(top, len(rows)))
        if fused is not None:
            yield rows[fused[0]], fused[1]
            return
    step = max(top, SCATTER_ELEMENTS // n_columns)
    for start in range(0, len(rows), step):
        some = slice(start, min(start + step, len(rows)))
        band = empty((some.stop - some.start, n_columns), comparison.dtype, comparison.enrol.y)
        fill_matrix(rows_of(terms, some), band)
        yield best_of(band, rows[some], min(top, band.shape[0]))


def _fused_best(terms: Terms, top: int) -> tuple[IntArray, NDArray[Any]] | None:
    """The best rows by the fused kernel, where it fits."""
    from .cuda import best_rows, fits

    terms = relative_to_nothing(terms)
    if not fits(terms):
        return None
    numbers, scores = best_rows(terms, top)
    return numbers.cpu().numpy(), scores.cpu().numpy()


def _merge_best(
    a: IntArray, a_scores: NDArray[Any], b: IntArray, b_scores: NDArray[Any], top: int
) -> tuple[IntArray, NDArray[Any]]:
    numbers, scores = np.concatenate([a, b], axis=1), np.concatenate([a_scores, b_scores], axis=1)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :top]
    return np.take_along_axis(numbers, order, axis=1), np.take_along_axis(scores, order, axis=1)
