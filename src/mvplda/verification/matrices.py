"""Score matrices of sides whose evidence differs from row to row."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..kernel.blocks import Factors, Terms, evaluate_pairs, fill_matrix, log_sum, relative_to_nothing
from ..kernel.threads import one_blas_thread
from ..labels import IntArray
from .backend import empty, is_torch, like, on_cuda
from .terms import Comparison

SCATTER_ELEMENTS = 2**22
PAIR_CHUNK, MIXED_CHUNK = 2**12, 2**9


def fill(comparison: Comparison, result: Any, threads: int | None = None) -> Any:
    """Write the LLR of every profile and test into `result`."""
    if comparison.enrol.mixed or comparison.test.mixed:
        return fill_mixed(comparison, result)
    with one_blas_thread():
        for rows, columns, terms in comparison.parts():
            if (len(rows), len(columns)) == tuple(result.shape):
                fill_whole(terms, result, threads)
            else:
                fill_part(terms, result, rows, columns, threads)
    return result


def score_pairs(comparison: Comparison, pairs: IntArray) -> Any:
    """LLRs of a list of (profile, test), without the matrix."""
    result = empty((len(pairs), 1), comparison.dtype, comparison.enrol.y)[:, 0]
    if comparison.enrol.mixed or comparison.test.mixed:
        return _score_mixed_pairs(comparison, pairs, result)
    whole = (len(comparison.enrol), len(comparison.test))
    with one_blas_thread():
        for rows, columns, terms in comparison.parts():
            if (len(rows), len(columns)) == whole:
                here, local = None, pairs
            else:
                row_at, column_at = np.full(whole[0], -1), np.full(whole[1], -1)
                row_at[rows], column_at[columns] = np.arange(len(rows)), np.arange(len(columns))
                local = np.stack([row_at[pairs[:, 0]], column_at[pairs[:, 1]]], axis=1)
                here = np.flatnonzero((local >= 0).all(axis=1))
                local = local[here]
            first, second = np.ascontiguousarray(local.T)
            for start in range(0, len(local), PAIR_CHUNK):
                some = slice(start, start + PAIR_CHUNK)
                target = some if here is None else like(here[some], result)
                result[target] = evaluate_pairs(terms, like(first[some], result), like(second[some], result))
    return result


def _score_mixed_pairs(comparison: Comparison, pairs: IntArray, result: Any) -> Any:
    """A few pairs at a time, through the small matrix of their profiles and tests."""
    for start in range(0, len(pairs), MIXED_CHUNK):
        some = pairs[start : start + MIXED_CHUNK]
        rows, r = np.unique(some[:, 0], return_inverse=True)
        columns, c = np.unique(some[:, 1], return_inverse=True)
        part = replace(comparison, enrol=comparison.enrol.take(rows), test=comparison.test.take(columns))
        matrix = fill_mixed(part, empty((len(rows), len(columns)), comparison.dtype, comparison.enrol.y))
        result[start : start + MIXED_CHUNK] = matrix[like(r.reshape(-1), result), like(c.reshape(-1), result)]
    return result


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
        band = empty((some.stop - some.start, len(columns)), _dtype_name(result), result)
        fill_whole(rows_of(terms, some), band, threads)
        result[like(rows[some][:, None], result), like(columns[None, :], result)] = band


def _dtype_name(array: Any) -> str:
    return str(array.dtype).replace("torch.", "")


def rows_of(terms: Terms, rows: slice) -> Terms:
    def cut(factors: tuple[Factors, ...]) -> tuple[Factors, ...]:
        return tuple(f if f.left is None else Factors(f.left[rows], f.right, f.log_weight) for f in factors)

    return Terms(cut(terms.numerator), cut(terms.denominator))


def fill_mixed(comparison: Comparison, result: Any) -> Any:
    """Profiles of several cells: average the likelihoods over which of them the other side meets."""
    shape = (len(comparison.enrol.kind), len(comparison.test.kind))
    halves = [empty(shape, np.float64, comparison.enrol.y) for _ in range(2)]
    for rows, columns, terms in comparison.parts():
        where = (like(rows[:, None], halves[0]), like(columns[None, :], halves[0]))
        for half, factors in zip(halves, (terms.numerator, terms.denominator), strict=True):
            half[where] = log_sum([f.block(slice(None), slice(None)) for f in factors])
    enrol, test = comparison.enrol, comparison.test
    averaged = [_log_mean(_log_mean(half, enrol.owner, len(enrol)).T, test.owner, len(test)).T for half in halves]
    result[:] = like(averaged[0] - averaged[1], result)
    return result


def _log_mean(values: Any, owner: IntArray, size: int) -> NDArray[np.float64]:
    """log of the mean of exp over the rows of every owner."""
    values = np.asarray(values.cpu() if is_torch(values) else values)
    top = np.full((size, values.shape[1]), -np.inf)
    np.maximum.at(top, owner, values)
    total = np.zeros_like(top)
    np.add.at(total, owner, np.exp(values - top[owner]))
    return np.asarray(top + np.log(total / np.bincount(owner, minlength=size)[:, None]))
