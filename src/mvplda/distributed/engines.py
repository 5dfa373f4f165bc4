"""The one place that knows processes and clusters: the same work for every item, and a tree that puts results together.

The tree joins `FAN_IN` neighbours at a time and depends on the number of items alone, so the
order of all additions is the same however the work was spread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Generic, TypeVar

from .._optional import need
from ..backend import cores
from ..exceptions import ParameterError

FAN_IN = 8

T = TypeVar("T")
R = TypeVar("R")


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
    if scheduler is None and count <= 1:
        yield from map(work, items)
        return
    # joblib, which scikit-learn brings: its processes are not forked (a fork in the middle of another thread's work
    # can hang) and need no guard around the main module; one that dies is an error
    from joblib import Parallel, delayed, parallel_config  # type: ignore[import-untyped]

    with ExitStack() as stack:
        if scheduler is not None:
            stack.enter_context(need("distributed").Client(scheduler))
            stack.enter_context(parallel_config("dask"))
            count = -1
        in_order = Parallel(count, return_as="generator", batch_size=1, max_nbytes=None)
        yield from in_order(delayed(work)(item) for item in items)


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
