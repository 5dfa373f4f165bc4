"""Parallel map over processes or a Dask cluster, with results in order."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from typing import TypeVar

from .._optional import need
from ..backend import cores
from ..exceptions import ParameterError

T = TypeVar("T")
R = TypeVar("R")


def ordered_map(
    work: Callable[[T], R],
    items: Sequence[T],
    *,
    workers: int | None = None,
    scheduler: str | None = None,
) -> Iterator[R]:
    """Yield ``work(item)`` for each item, in the order of the items, computed in parallel.

    Only a few results are in memory at a time.

    Parameters
    ----------
    work : function of one item, which must be picklable: defined in a module, or a partial of such a function
    items : arguments of `work`
    workers : number of processes (default: one per core); 1 runs in this process
    scheduler : address of a Dask scheduler, whose workers replace the processes
    """
    if workers is not None and workers < 1:
        raise ParameterError(f"the number of workers must be at least 1; got {workers}")
    count = min(workers or cores(), len(items))
    if scheduler is None and count <= 1:
        yield from map(work, items)
        return
    # joblib (a dependency of scikit-learn) does not fork: a fork while another thread holds a lock can hang. It needs
    # no guard around the main module, and raises an error if a process dies.
    from joblib import Parallel, delayed, parallel_config

    with ExitStack() as stack:
        if scheduler is not None:
            stack.enter_context(need("distributed").Client(scheduler))
            stack.enter_context(parallel_config("dask"))
            count = -1
        else:
            # joblib reuses processes, which keep the working directory of their first call
            work = partial(_in_folder, os.getcwd(), work)
        in_order = Parallel(count, return_as="generator", batch_size=1, max_nbytes=None)
        yield from in_order(delayed(work)(item) for item in items)


def _in_folder(folder: str, work: Callable[[T], R], item: T) -> R:
    """Return ``work(item)``, computed with `folder` as the working directory, so that relative paths are valid."""
    os.chdir(folder)
    return work(item)
