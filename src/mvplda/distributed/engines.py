"""The one place that knows engines: the same work for every item, and a tree that puts results together.

The tree joins `FAN_IN` neighbours at a time and depends on the number of items alone, so the
order of all additions is the same on every engine and however the work was spread.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, nullcontext
from multiprocessing import get_context
from threading import Lock
from typing import Any, Generic, Literal, TypeVar

from .._optional import need
from .._threads import one_blas_thread
from ..exceptions import ParameterError

Engine = Literal["serial", "threads", "processes", "dask"]
ENGINES = ("serial", "threads", "processes", "dask")
FAN_IN = 8

T = TypeVar("T")
R = TypeVar("R")
Work = Callable[[T], R]
Combine = Callable[[list[R]], R]
Done = Callable[[R | None], object]

logger = logging.getLogger(__name__)


def map_reduce(
    work: Work[T, R],
    items: Sequence[T],
    combine: Combine[R],
    *,
    engine: Engine = "serial",
    workers: int | None = None,
    scheduler: str | None = None,
    retries: int = 2,
    done: Done[R] | None = None,
) -> R:
    """``combine`` over a tree of ``work(item)``.

    Parameters
    ----------
    work, combine : functions of a module, or partials of them, so that they can travel
    engine : where the work is done
    workers : threads or processes; default: one a core
    scheduler : address of a Dask scheduler; default: a cluster of processes on this machine
    retries : how often an item is tried again when its worker was lost; errors of the work itself are raised
    done : called here with the result of every item, or with None where that stays with the worker
    """
    if engine not in ENGINES:
        raise ParameterError(f"engine is one of {list(ENGINES)}; got {engine!r}")
    if scheduler is not None and engine != "dask":
        raise ParameterError(f"scheduler= is for engine='dask'; the engine is {engine!r}")
    if workers is not None and workers < 1:
        raise ParameterError(f"workers is at least 1; got {workers}")
    count = min(workers or _cores(), len(items))
    heard: Done[R] = done or (lambda _: None)
    if engine == "dask":
        return _on_dask(work, items, combine, scheduler, count, retries, heard)
    results: Iterator[R]
    if engine == "serial":
        results = map(work, items)
    elif engine == "threads":
        results = _in_order(lambda: ThreadPoolExecutor(count), work, items, count, 0)
    else:
        # not forked: a fork in the middle of another thread's work can hang
        context = get_context("spawn")
        results = _in_order(lambda: ProcessPoolExecutor(count, context), work, items, count, retries)
    tree = Tree(combine)
    for result in results:
        heard(result)
        tree.add(result)
    return tree.finish()


class Tree(Generic[R]):
    """Results in their order, joined `FAN_IN` at a time; at most that many wait on each level."""

    def __init__(self, combine: Combine[R], fan_in: int = FAN_IN) -> None:
        self.combine, self.fan_in = combine, fan_in
        self.levels: list[list[R]] = []

    def add(self, item: R) -> None:
        for level in self.levels:
            level.append(item)
            if len(level) < self.fan_in:
                return
            item = self.combine(level)
            level.clear()
        self.levels.append([item])

    def finish(self) -> R:
        rest: list[R] = []
        for level in self.levels:
            group = level + rest
            rest = group if len(group) < 2 else [self.combine(group)]
        return rest[0]


def _in_order(
    pool_of: Callable[[], Executor], work: Work[T, R], items: Sequence[T], workers: int, retries: int
) -> Iterator[R]:
    """Results in the order of the items, a few of which are under way or waiting at any time."""
    start, lost = 0, 0
    while start < len(items):
        pool = pool_of()
        waiting: deque[Future[R]] = deque()
        try:
            following = start
            while start < len(items):
                while following < len(items) and len(waiting) <= workers:
                    waiting.append(pool.submit(work, items[following]))
                    following += 1
                yield waiting[0].result()
                waiting.popleft()
                start, lost = start + 1, 0
        except BrokenProcessPool:
            lost += 1
            if lost > retries:
                raise
            logger.warning("a worker process was lost: item %d and those after it are tried again", start)
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _on_dask(
    work: Work[T, R],
    items: Sequence[T],
    combine: Combine[R],
    scheduler: str | None,
    workers: int,
    retries: int,
    done: Done[R],
) -> R:
    distributed = need("distributed")
    local = (
        distributed.LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None)
        if scheduler is None
        else nullcontext(scheduler)
    )
    with local as address, distributed.Client(address) as client:
        level = [client.submit(work, item, retries=retries, pure=False) for item in items]
        waiting = distributed.as_completed(level)
        while len(level) > 1:
            groups = [level[i : i + FAN_IN] for i in range(0, len(level), FAN_IN)]
            level = [g[0] if len(g) == 1 else client.submit(combine, g, retries=retries, pure=False) for g in groups]
            del groups
        for future in waiting:  # which lets go of them: results that were joined are not kept
            if future.status == "error":
                break
            done(None)
        result: R = level[0].result()
        return result


_lock = Lock()
_users = 0
_limit: Any = None


@contextmanager
def one_thread_each() -> Iterator[None]:
    """One BLAS thread for as long as any worker is in such a block: workers are the parallelism, and the
    order of additions inside a product does not depend on how many threads were free."""
    global _users, _limit
    with _lock:
        if _users == 0:
            _limit = one_blas_thread()
            _limit.__enter__()
        _users += 1
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0:
                _limit.__exit__(None, None, None)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
