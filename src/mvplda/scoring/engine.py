"""Scores of two sets of profiles: matrices, lists of trials, best profiles, and log-likelihoods of hypotheses."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import numpy as np
from numpy.typing import DTypeLike

from .._typing import AnyArray, FloatArray, IntArray
from ..backend import (
    cast,
    dtype_name,
    empty,
    is_torch,
    like,
    namespace,
    on_cuda,
    one_blas_thread,
    to_host,
)
from .block_ratios import Comparison
from .log_sums import (
    BestRows,
    LogRatios,
    fill_matrix,
    row_bands,
)
from .question import Hypothesis, HypothesisWeights, LogLikelihoods

SINGLE_THREAD_SCORES = 2**12
"""Number of scores from which BLAS is limited to one thread; for fewer, setting the limit takes longer than scoring."""

PAIR_CHUNK = 2**16
"""Number of trials of a list that are scored at a time."""


def fill_results(
    comparison: Comparison,
    sums: Sequence[HypothesisWeights],
    results: Sequence[AnyArray],
    threads: int | None = None,
) -> None:
    """Write log ratios (such as LLRs) of all profiles and tests into arrays.

    comparison : profiles, tests and question
    sums : numerators, and last their common denominator: {hypothesis: log weight} each
    results : one (profiles, tests) array per numerator
    threads : number of threads; None: all processors
    """
    dtype = dtype_name(results[0])
    shape = tuple(results[0].shape)
    # blocks are computed in parallel by Python threads, which BLAS threads would slow down
    with _blas_threads(shape[0] * shape[1]):
        for enrol, test in comparison.blocks():
            log_ratios = comparison.log_ratios(enrol, test, sums)
            rows = enrol.group.profiles
            columns = test.group.profiles
            # a block that covers the matrix is written in place
            if (len(rows), len(columns)) == shape and log_ratios.dtype in (None, dtype):
                _fill_block(log_ratios, results, threads)
                continue
            for band in row_bands(len(rows), len(columns)):
                scores = _score_rows(log_ratios, band, len(columns), dtype, results[0], threads)
                row_indices = like(rows[band][:, None], scores[0])
                column_indices = like(columns[None, :], scores[0])
                for result, values in zip(results, scores, strict=True):
                    result[row_indices, column_indices] = cast(values, dtype)


def _blas_threads(n_scores: int) -> AbstractContextManager[object]:
    """Return a context that limits BLAS to one thread.

    For fewer than `SINGLE_THREAD_SCORES` scores it does nothing, because the limit would take longer
    than scoring.
    """
    return nullcontext() if n_scores < SINGLE_THREAD_SCORES else one_blas_thread()


def _fill_block(
    log_ratios: LogRatios, outs: Sequence[AnyArray], threads: int | None = None
) -> None:
    """Write the log ratios of a block of trials into arrays.

    The fused CUDA kernel computes them if it supports the ratios, else `fill_matrix`.

    outs : one (rows, columns) array per numerator of the ratios
    """
    out = outs[0]
    if is_torch(out) and out.is_cuda and out.is_contiguous():
        from .cuda import JointScorer, fits

        if fits(log_ratios):
            JointScorer(log_ratios).fill(out)
            return
    fill_matrix(log_ratios, outs, threads)


def _score_rows(
    log_ratios: LogRatios,
    rows: slice,
    n_columns: int,
    dtype: DTypeLike,
    reference: AnyArray,
    threads: int | None = None,
) -> list[AnyArray]:
    """Return the log ratios of some rows of a block: one (rows, columns) array per numerator.

    rows : range of rows
    n_columns : number of columns of the block
    dtype : type of the results if the ratios do not depend on the profiles
    reference : array; the results have its library (NumPy or torch) and device
    threads : number of threads; None: all processors
    """
    shape = (rows.stop - rows.start, n_columns)
    scores: list[AnyArray] = [
        empty(shape, log_ratios.dtype or dtype, reference) for _ in log_ratios.sums[:-1]
    ]
    _fill_block(log_ratios.rows(rows), scores, threads)
    return scores


def score_pairs(
    comparison: Comparison, sums: Sequence[HypothesisWeights], pairs: IntArray
) -> list[AnyArray]:
    """Return log ratios (such as LLRs) of n listed trials: one (n,) array per numerator.

    comparison : profiles, tests and question
    sums : numerators, and last their common denominator: {hypothesis: log weight} each
    pairs : (n, 2) numbers of profile and test of each trial
    """
    shape = (len(pairs), 1)
    reference = comparison.reference
    results = [empty(shape, comparison.dtype, reference)[:, 0] for _ in sums[:-1]]
    if len(pairs) == 0:
        return results
    with _blas_threads(len(pairs)), np.errstate(divide="ignore"):
        for enrol, test in comparison.blocks():
            rows = enrol.group.positions(pairs[:, 0])
            columns = test.group.positions(pairs[:, 1])
            in_block = np.arange(len(pairs))
            if not (enrol.group.is_complete and test.group.is_complete):
                in_block = np.flatnonzero((rows >= 0) & (columns >= 0))
            if not len(in_block):
                continue
            log_ratios = comparison.log_ratios(enrol, test, sums)
            for start in range(0, len(in_block), PAIR_CHUNK):
                chunk = in_block[start : start + PAIR_CHUNK]
                scores = log_ratios.pairs(
                    like(rows[chunk], reference), like(columns[chunk], reference)
                )
                for result, values in zip(results, scores, strict=True):
                    if not isinstance(values, float):
                        values = cast(values, dtype_name(result))
                    result[like(chunk, result)] = values
    return results


def best_profiles(
    comparison: Comparison, sums: Sequence[HypothesisWeights], top: int
) -> tuple[IntArray, FloatArray]:
    """Return the profiles with the highest LLRs for each test, best first.

    The score matrix is computed in bands of rows, so that it is never stored as a whole.

    comparison : profiles, tests and question
    sums : numerator and denominator of the LLR, {hypothesis: log weight} each
    top : number of profiles per test
    return : numbers of the profiles and their LLRs, (tests, top) each; -1 and minus infinity if
        there are fewer profiles
    """
    best = BestRows(comparison.shape[1], top)
    reference = comparison.reference
    for enrol, test in comparison.blocks():
        log_ratios = comparison.log_ratios(enrol, test, sums)
        rows = enrol.group.profiles
        columns = test.group.profiles
        if on_cuda(reference):
            from .cuda import best_rows, fits

            if fits(log_ratios):
                numbers, scores = best_rows(log_ratios, min(top, len(rows)))
                best.merge(rows[to_host(numbers)], to_host(scores), columns)
                continue
        for band in row_bands(len(rows), len(columns), top):
            (band_scores,) = _score_rows(
                log_ratios, band, len(columns), comparison.dtype, reference
            )
            best.add(band_scores, rows[band], columns)
    return best.numbers, best.scores.astype(comparison.dtype)


def log_likelihoods(
    comparison: Comparison, hypotheses: Sequence[Hypothesis], pairs: IntArray | None = None
) -> LogLikelihoods:
    """Return the log-likelihood of each hypothesis minus that of the last hypothesis, in float64.

    comparison : profiles and tests
    hypotheses : at least one hypothesis; the last one gets zeros
    pairs : (n, 2) numbers of the profile and the test of n trials; None: all pairs
    return : {hypothesis: (n,), or (profiles, tests) for all pairs}
    """
    *others, last = hypotheses
    shape = comparison.shape if pairs is None else (len(pairs),)
    logs: dict[Hypothesis, AnyArray] = {}
    if others:
        sums = [{h: 0.0} for h in hypotheses]
        if pairs is None:
            values = [empty(comparison.shape, np.float64, comparison.reference) for _ in others]
            fill_results(comparison, sums, values)
        else:
            values = score_pairs(comparison, sums, pairs)
        logs |= zip(others, values, strict=True)
    logs[last] = namespace(comparison.reference).zeros(shape)
    return logs
