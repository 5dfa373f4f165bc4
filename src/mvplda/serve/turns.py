"""Turns of processes that write to the same SQLite database, so that none of them waits for ever."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .schemas import Problem

try:
    import fcntl
except ImportError:  # Windows: the order of the processes is left to SQLite's polling
    fcntl = None  # type: ignore[assignment]

# Seconds between two checks whether this process may write.
POLL_S = 0.002


def too_many_writers() -> Problem:
    """Return the problem (503) of a call that waited too long for other writers of an SQLite database."""
    detail = "too many calls are waiting to write to the database: nothing was changed, send the call again"
    return Problem(503, "database", detail, wait=2)


class Turns:
    """Gives urgent processes, such as commands of the operator, precedence over processes that write without a pause.

    SQLite has no queue of waiting processes. A process that waits polls SQLite's lock, and may never find it free while
    the threads of another process pass it on to each other.

    Parameters
    ----------
    path : file of the database; the turns use locks of another file beside it
    is_urgent : whether this process writes before all processes that are not urgent
    """

    def __init__(self, path: Path, is_urgent: bool) -> None:
        # a file of its own: closing another handle of the database's file would release the locks of SQLite
        self._path = path.with_name(f"{path.name}-turn")
        self._is_urgent = is_urgent

    @contextmanager
    def next(self, limit_s: float) -> Iterator[None]:
        """Wait until no other urgent process writes; an urgent process makes others wait until the end of the block.

        Raises
        ------
        Problem : 503 if the turn has not come within `limit_s` seconds
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
        """Lock the file of turns, exclusively if this process is urgent.

        handle : open file
        until : time of `time.monotonic` after which a `Problem` (503) is raised
        """
        kind = fcntl.LOCK_EX if self._is_urgent else fcntl.LOCK_SH
        while True:
            try:
                return fcntl.flock(handle, kind | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > until:
                    raise too_many_writers() from None
            time.sleep(POLL_S)
