"""Order of the processes that write to one SQLite database, so that none waits for ever."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .schemas import Problem

try:
    import fcntl
except ImportError:  # Windows: processes take turns as SQLite's polling has it
    fcntl = None  # type: ignore[assignment]

# Seconds between two looks whether the turn has come.
POLL_S = 0.002


def too_many_writers() -> Problem:
    detail = "too many calls are waiting to write: nothing was changed"
    return Problem(503, "database", detail, wait=2)


class Turns:
    """Lets an urgent process write next, beside others that write without a pause.

    SQLite has no queue of waiting processes. A process that waits for its lock polls it, and never finds it free if the
    threads of another process pass it on to each other.

    Parameters
    ----------
    path : file of the database; its turns are locks of a file beside it
    is_urgent : whether this process goes before all others that are not
    """

    def __init__(self, path: Path, is_urgent: bool) -> None:
        # closing another handle of the database's own file would drop the locks of SQLite
        self._path = path.with_name(f"{path.name}-turn")
        self._is_urgent = is_urgent

    @contextmanager
    def next(self, limit_s: float) -> Iterator[None]:
        """Wait until no urgent process writes; raise a `Problem` after a while.

        An urgent process keeps its turn until the end of the block.
        """
        if fcntl is None:
            yield
            return
        handle = os.open(self._path, os.O_RDONLY | os.O_CREAT, 0o600)
        try:
            self._lock(handle, time.monotonic() + limit_s)
            if not self._is_urgent:
                fcntl.flock(handle, fcntl.LOCK_UN)
            yield
        finally:
            os.close(handle)

    def _lock(self, handle: int, until: float) -> None:
        kind = fcntl.LOCK_EX if self._is_urgent else fcntl.LOCK_SH
        while True:
            try:
                return fcntl.flock(handle, kind | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > until:
                    raise too_many_writers() from None
            time.sleep(POLL_S)
