"""The one place that knows engines: the same work for every item, and a tree that puts results together.

The tree joins `FAN_IN` neighbours at a time and depends on the number of items alone, so the
order of all additions is the same on every engine and however the work was spread.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, nullcontext, suppress
from threading import Lock
from typing import Any, Generic, Literal, TypeVar

from .._optional import need
from ..backend import cores, one_blas_thread
from ..exceptions import ParameterError

Engine = Literal["serial", "threads", "processes", "dask"]
ENGINES = ("serial", "threads", "processes", "dask")
FAN_IN = 8

T = TypeVar("T")
R = TypeVar("R")
Work = Callable[[T], R]
Combine = Callable[[list[R]], R]

logger = logging.getLogger(__name__)


def map_reduce(
    work: Work[T, R],
    items: Sequence[T],
    combine: Combine[R],
    *,
    done: Callable[[R], object] | None = None,
    **options: Any,
) -> R:
    """``combine`` over a tree of ``work(item)``.

    Parameters
    ----------
    work, items, options : as in `ordered_map`
    done : called here with the result of every item
    """
    tree = Tree(combine)
    for result in ordered_map(work, items, **options):
        if done is not None:
            done(result)
        tree.add(result)
    return tree.finish()


def ordered_map(
    work: Work[T, R],
    items: Sequence[T],
    *,
    engine: Engine = "serial",
    workers: int | None = None,
    scheduler: str | None = None,
    retries: int = 2,
    on_lost: Callable[[T], R] | None = None,
) -> Iterator[R]:
    """``work(item)`` in the order of the items, a few of which are under way or waiting at any time.

    Parameters
    ----------
    work : a function of a module, or a partial of one, so that it can travel
    engine : where the work is done
    workers : threads or processes; default: one a core
    scheduler : address of a Dask scheduler; default: a cluster of processes on this machine
    retries : how often an item is tried again when its process was lost; errors of the work itself are raised
    on_lost : gives the result of an item that ends the process which works on it, however often it is
        tried; None raises `BrokenProcessPool`
    """
    _check(engine, workers)
    if scheduler is not None and engine != "dask":
        raise ParameterError(f"scheduler= is for engine='dask'; the engine is {engine!r}")
    count = max(1, min(workers or cores(), len(items)))
    if engine == "serial":
        yield from map(work, items)
    elif engine == "threads":
        yield from _in_pool(ThreadPoolExecutor(count), work, items, count, cancel_futures=True)
    elif engine == "processes":
        yield from _in_processes(work, items, count, retries, on_lost)
    else:
        yield from _on_dask(work, items, count, scheduler)


def _check(engine: str, workers: int | None) -> None:
    if engine not in ENGINES:
        raise ParameterError(f"engine is one of {list(ENGINES)}; got {engine!r}")
    if workers is not None and workers < 1:
        raise ParameterError(f"workers is at least 1; got {workers}")


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


def _in_processes(
    work: Work[T, R],
    items: Sequence[T],
    workers: int,
    retries: int,
    on_lost: Callable[[T], R] | None,
) -> Iterator[R]:
    """In processes that are replaced when they are lost; what was under way then is tried again, item by item."""
    start = 0
    while start < len(items):
        try:
            for result in _in_pool(
                _processes(workers), work, items[start:], workers, kill_workers=True
            ):
                start += 1
                yield result
            return
        except BrokenProcessPool:
            pass
        logger.warning(
            "a worker process was lost: item %d and those after it are tried again", start
        )
        for item in items[start : start + _under_way(workers)]:
            start += 1
            yield _alone(work, item, retries, on_lost)


def _alone(work: Work[T, R], item: T, retries: int, on_lost: Callable[[T], R] | None) -> R:
    """One item in a process of its own, and in another when that is lost."""
    for _ in range(retries):
        with suppress(BrokenProcessPool):
            return next(_in_pool(_processes(1), work, [item], 1, kill_workers=True))
    if on_lost is None:
        raise BrokenProcessPool("an item of work ended every process that worked on it")
    return on_lost(item)


def _processes(workers: int) -> Any:
    # loky's, a part of joblib, which scikit-learn brings: they are not forked (a fork in the middle of another
    # thread's work can hang), need no guard around the main module, and leave a word when one dies
    from joblib.externals.loky import ProcessPoolExecutor  # type: ignore[import-untyped]

    return ProcessPoolExecutor(max_workers=workers)


def _under_way(workers: int) -> int:
    """Items that a pool holds: no more than its own queue takes, for what waits beyond is not taken back in peace."""
    return 2 * workers


def _in_pool(
    pool: Any, work: Work[T, R], items: Sequence[T], workers: int, **ending: bool
) -> Iterator[R]:
    """Results in the order of the items; the pool is ended with the last, or when nobody waits for more.

    ending : what the pool's ``shutdown`` needs so that nothing that was begun goes on
    """
    waiting: deque[Any] = deque()
    try:
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) == _under_way(workers):
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(**ending)


def _on_dask(
    work: Work[T, R], items: Sequence[T], workers: int, scheduler: str | None
) -> Iterator[R]:
    distributed = need("distributed")
    cluster = nullcontext(scheduler)
    if scheduler is None:
        cluster = distributed.LocalCluster(
            n_workers=workers, threads_per_worker=1, dashboard_address=None
        )
    with cluster as address, distributed.Client(address) as client:
        threads = max(1, sum(client.ncores().values()))
        yield from _in_pool(client.get_executor(pure=False), work, items, threads, wait=False)


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
