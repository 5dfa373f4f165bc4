"""The one place that knows processes and clusters: the same work for every item, and a tree that puts results together.

The tree joins `FAN_IN` neighbours at a time and depends on the number of items alone, so the
order of all additions is the same however the work was spread.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from typing import Any, Generic, TypeVar

from .._optional import need
from ..backend import cores
from ..exceptions import ParameterError

FAN_IN = 8
RETRIES = 2
"""How often an item is tried again when its process was lost; errors of the work itself are raised."""

T = TypeVar("T")
R = TypeVar("R")

logger = logging.getLogger(__name__)


def ordered_map(
    work: Callable[[T], R],
    items: Sequence[T],
    *,
    workers: int | None = None,
    scheduler: str | None = None,
) -> Iterator[R]:
    """``work(item)`` in the order of the items, a few of which are under way or waiting at any time.

    Parameters
    ----------
    work : a function of a module, or a partial of one, so that it can travel
    workers : processes; 1 works here; default: one per core
    scheduler : address of a Dask scheduler, whose workers do the work instead
    """
    if workers is not None and workers < 1:
        raise ParameterError(f"workers is at least 1; got {workers}")
    count = min(workers or cores(), len(items))
    if scheduler is not None:
        distributed = need("distributed")
        with distributed.Client(scheduler) as client:
            threads = max(1, sum(client.ncores().values()))
            yield from _in_pool(client.get_executor(pure=False), work, items, threads, wait=False)
    elif count <= 1:
        yield from map(work, items)
    else:
        yield from _in_processes(work, items, count)


def _in_processes(work: Callable[[T], R], items: Sequence[T], workers: int) -> Iterator[R]:
    """In processes that are replaced when they are lost; what was under way then is tried again."""
    # loky's, a part of joblib, which scikit-learn brings: they are not forked (a fork in the middle of another
    # thread's work can hang), need no guard around the main module, and report when one dies
    from joblib.externals.loky import ProcessPoolExecutor  # type: ignore[import-untyped]

    done = 0
    lost = 0
    while done < len(items):
        pool = ProcessPoolExecutor(max_workers=workers)
        try:
            for result in _in_pool(pool, work, items[done:], workers, kill_workers=True):
                done += 1
                lost = 0
                yield result
        except BrokenProcessPool:
            lost += 1
            if lost > RETRIES:
                raise
            logger.warning("a worker process was lost: items from %d on are tried again", done)


def _in_pool(
    pool: Any, work: Callable[[T], R], items: Sequence[T], workers: int, **ending: bool
) -> Iterator[R]:
    """Results in the order of the items; the pool is ended with the last, or when nobody waits for more.

    ending : what the pool's ``shutdown`` needs so that nothing that was begun goes on
    """
    waiting: deque[Any] = deque()
    try:
        for item in items:
            waiting.append(pool.submit(work, item))
            # No more than the pool's own queue takes: what waits beyond is not cancelled cleanly.
            if len(waiting) == 2 * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(**ending)


class Tree(Generic[R]):
    """Results in their order, joined `FAN_IN` at a time; at most that many wait on each level."""

    def __init__(self, combine: Callable[[list[R]], R]) -> None:
        self.combine = combine
        self.levels: list[list[R]] = []

    def add(self, item: R) -> None:
        for level in self.levels:
            level.append(item)
            if len(level) < FAN_IN:
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
