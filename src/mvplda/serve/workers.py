"""Start of worker processes: after an error, a worker logs it and tries again after increasing pauses."""

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
# Errors after which a later start may succeed: the database is down, a file is being replaced, the disk is full.
START_ERRORS = (MvpldaError, SQLAlchemyError, Problem, OSError)
# Shortest and longest pause between two attempts to start.
PAUSES_S = (1.0, 30.0)
# Seconds after which the whole service ends if no worker has started by then.
START_LIMIT_S = 60.0
# Seconds over which starts are counted, and number of starts per worker in this time that need no pause.
RECENT_S = 60.0
FREE_STARTS = 2
# Exit status of a service that cannot start; the same as that of uvicorn.
START_FAILURE = 3


class WorkerStarts:
    """Record of the starts of a service's workers, in files of a folder that they share.

    Parameters
    ----------
    folder : folder of the files, the same for all workers of the service
    workers : number of worker processes of the service
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
        """Call start() until it raises no error, with increasing pauses, and return its result.

        If no worker of the service has started after `START_LIMIT_S` seconds, the whole service ends.
        """
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
                log.error("a worker process cannot start, next try in %g s: %s", pause, reason)
            if time.monotonic() - began > START_LIMIT_S and not self._serving.exists():
                self._end()
            time.sleep(pause)
            pause = min(2 * pause, longest)

    def _end(self) -> NoReturn:
        """End all worker processes and their parent process."""
        log.error(
            "no worker process could start within %g s: the service ends with status %d",
            START_LIMIT_S,
            START_FAILURE,
        )
        self._failed.touch()
        os.kill(os.getppid(), signal.SIGTERM)
        raise SystemExit(START_FAILURE)

    def _wait_after_crashes(self) -> None:
        """Wait before a start if too many workers were started in the last minute, because they keep ending.

        They end, for example, for lack of memory.
        """
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
        log.error(
            "worker processes keep ending and were started %d times within a minute: next start in %g s",
            recent,
            pause,
        )
        time.sleep(pause)
