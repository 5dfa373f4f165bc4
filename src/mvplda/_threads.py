"""How many threads to use.

BLAS threads pay on large products only; on small matrices they wait for each
other, and on a busy machine they can make a loop of small solves ten times slower.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController

LARGE_WORK = 4e9
"""Floating-point operations between Python calls from which BLAS's own threads help."""

THREADED_FROM = 2**20


def one_blas_thread() -> AbstractContextManager[Any]:
    limited: AbstractContextManager[Any] = _blas().limit(limits=1, user_api="blas")
    return limited


def threads_for(operations: float) -> AbstractContextManager[Any]:
    """BLAS as it is set for large work, one thread for small."""
    return nullcontext() if operations >= LARGE_WORK else one_blas_thread()


def in_parallel(work: Callable[[int], None], starts: Sequence[int], size: int, threads: int | None) -> None:
    """Run blocks on Python threads over single-threaded BLAS."""
    n_threads = threads or cores()
    with one_blas_thread():
        if n_threads == 1 or size < THREADED_FROM:
            for start in starts:
                work(start)
        else:
            with ThreadPoolExecutor(n_threads) as pool:
                list(pool.map(work, starts))


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController()
