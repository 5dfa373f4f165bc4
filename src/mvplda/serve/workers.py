"""Worker processes: one that fails to start logs the error and tries again after increasing pauses."""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn, TypeVar

from sqlalchemy.exc import SQLAlchemyError

from ..exceptions import MvpldaError
from .schemas import Problem

log = logging.getLogger("mvplda.serve")
Started = TypeVar("Started")
# Errors of a start that may succeed later: the database is away, a file is being replaced, the disk is full.
START_ERRORS = (MvpldaError, SQLAlchemyError, Problem, OSError)
# Shortest and longest pause between two attempts to start.
PAUSES_S = (1.0, 30.0)
# Seconds after which the whole service ends if no worker has ever started.
START_LIMIT_S = 60.0
# Seconds in which starts are counted, and their number per worker without a pause.
RECENT_S = 60.0
FREE_STARTS = 2
# Exit status of a service that cannot start; the same as that of uvicorn.
START_FAILURE = 3


class WorkerStarts:
    """Starts of the workers of one service, in files of a folder that they share.

    Parameters
    ----------
    workers : number of worker processes
    """

    def __init__(self, folder: Path, workers: int) -> None:
        self._log = folder / "starts"
        self._serving = folder / "serving"
        self._failed = folder / "failed"
        self._workers = workers

    @property
    def has_failed(self) -> bool:
        """Whether the service ended because no worker could start."""
        return self._failed.exists()

    def run(self, start: Callable[[], Started]) -> Started:
        """Return the result of a start; it is repeated after errors, and ends the service if no worker can start."""
        self._wait_after_crashes()
        began = time.monotonic()
        pause, longest = PAUSES_S
        while True:
            try:
                started = start()
                self._serving.touch()
                return started
            except START_ERRORS as error:
                reason = getattr(error, "detail", None) or error
                log.error("a worker cannot start, next attempt in %g s: %s", pause, reason)
            if time.monotonic() - began > START_LIMIT_S and not self._serving.exists():
                self._end()
            time.sleep(pause)
            pause = min(2 * pause, longest)

    def _end(self) -> NoReturn:
        """End all workers and their parent."""
        log.error("no worker can start: the service ends with status %d", START_FAILURE)
        self._failed.touch()
        os.kill(os.getppid(), signal.SIGTERM)
        raise SystemExit(START_FAILURE)

    def _wait_after_crashes(self) -> None:
        """Wait before a start if workers ended again and again, such as killed for want of memory."""
        now = time.time()
        with self._log.open("a", encoding="utf-8") as file:
            file.write(f"{now}\n")
        lines = self._log.read_text(encoding="utf-8").split()
        recent = sum(float(line) > now - RECENT_S for line in lines)
        excess = recent - FREE_STARTS * self._workers
        if excess <= 0:
            return
        shortest, longest = PAUSES_S
        pause = min(shortest * 2.0 ** min(excess - 1, 10), longest)
        log.error("workers started %d times within a minute: the next one in %g s", recent, pause)
        time.sleep(pause)
