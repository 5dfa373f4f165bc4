"""Batches of verifications: attempts that wait at the same time are decided together, in one transaction.

A profile is *held* if another connection to the database has locked its row. Attempts on held profiles are repeated
separately, so that they do not delay others.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .database import BATCH_THREADS, RowHeld
from .deadlines import database_wait
from .schemas import VerifyReply
from .verifier import Attempt

if TYPE_CHECKING:
    from .service import Service

# Largest number of verifications that are decided in one transaction.
BATCH_LIMIT = 64
# Largest number of batches at the same time, besides that of held profiles. Another batch starts when the running ones
# have finished, or take longer than STUCK_S seconds.
LANES = BATCH_THREADS - 1
STUCK_S = 0.05
# Longest pause after a batch, in seconds. Its callers may send their next request in it: larger batches cost less.
PAUSE_S = 0.006
# Shortest and longest pause between two tries of attempts on held profiles, in seconds.
HELD_S = (0.01, 0.1)


@dataclass(eq=False)
class Entry:
    """Waiting attempt to be verified, with the future for its reply.

    Parameters
    ----------
    attempt : profile, recording and fields of the request
    decided : future for the reply
    until : time of `time.monotonic` at which the attempt is refused if its profile is still held
    """

    attempt: Attempt
    decided: asyncio.Future[VerifyReply]
    until: float

    @property
    def name(self) -> str:
        """Id of the claimed profile."""
        return self.attempt.name


class Batches:
    """Decides waiting verifications together: one transaction, one call of the scorer, one commit.

    A *lane* is a task that decides one batch after the other. Attempts on held profiles are taken out of the batch, and
    repeated by a separate task.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._settings = service.settings
        self._threads = ThreadPoolExecutor(BATCH_THREADS)
        self._waiting: list[Entry] = []
        self._busy: set[str] = set()
        self._lanes = 0
        self._expected = 0
        self._complete: asyncio.Event | None = None
        self._held: dict[str, list[Entry]] = {}
        # the loop has weak references to tasks only
        self._tasks: set[asyncio.Task[None]] = set()

    async def verify(self, attempt: Attempt) -> VerifyReply:
        """Queue an attempt and return its reply when it is decided.

        Raises
        ------
        Problem : if the attempt is refused, or if the database does not answer in time
        """
        until = time.monotonic() + self._settings.lock_timeout_s
        entry = Entry(attempt, asyncio.get_running_loop().create_future(), until)
        if attempt.name in self._held:
            self._held[attempt.name].append(entry)
        else:
            self._waiting.append(entry)
            if self._complete is not None and len(self._waiting) >= self._expected:
                self._complete.set()
            self._start_lane()
        async with database_wait(self._settings.answer_s):
            return await entry.decided

    def _start_lane(self) -> None:
        """Start a lane if attempts wait and no lane is running.

        If lanes are running, another one is started after `STUCK_S` seconds unless they have taken the oldest attempt.
        """
        if not self._waiting:
            return
        if self._lanes == 0:
            self._start(self._run_lane())
        else:
            asyncio.get_running_loop().call_later(STUCK_S, self._start_another, self._waiting[0])

    def _start_another(self, entry: Entry) -> None:
        """Start another lane if `entry` still waits, which shows that all running lanes are stuck."""
        if entry in self._waiting and self._lanes < LANES:
            self._start(self._run_lane())

    def _start(self, work: Coroutine[None, None, None]) -> None:
        """Run a coroutine as a task of the event loop."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run_lane(self) -> None:
        """Decide batches one after the other until no attempts wait."""
        self._lanes += 1
        try:
            while batch := self._next():
                await self._decide(batch)
                if len(batch) > 1 and self._lanes == 1:
                    await self._gather(min(len(batch) + len(self._waiting), BATCH_LIMIT))
        finally:
            self._lanes -= 1

    def _next(self) -> list[Entry]:
        """Remove the next batch from the waiting attempts, and return it.

        It has at most one attempt per profile, and at most `BATCH_LIMIT` attempts. It is empty if no attempt can be
        decided now.
        """
        batch: dict[str, Entry] = {}
        later = []
        for entry in self._waiting:
            if entry.decided.done():  # the caller has disconnected
                continue
            if entry.name in batch or entry.name in self._busy or len(batch) == BATCH_LIMIT:
                later.append(entry)
            else:
                batch[entry.name] = entry
        self._waiting = later
        return list(batch.values())

    async def _decide(self, batch: Sequence[Entry]) -> None:
        """Decide a batch and answer its callers, except for attempts on held profiles, which `_retry` repeats."""
        names = {entry.name for entry in batch}
        self._busy |= names
        attempts = [entry.attempt for entry in batch]
        loop = asyncio.get_running_loop()
        try:
            outcomes = await loop.run_in_executor(self._threads, self._service.verify, attempts)
        finally:
            self._busy -= names
        for entry, outcome in zip(batch, outcomes, strict=True):
            if isinstance(outcome, RowHeld) and time.monotonic() < entry.until:
                self._hold(entry)
            else:
                answer(entry, outcome)

    async def _gather(self, expected: int) -> None:
        """Wait until `expected` attempts are waiting, but at most `PAUSE_S` seconds, so that the next batch is large.

        Callers that were just answered often send their next request at once.
        """
        if len(self._waiting) >= expected:
            return
        self._expected = expected
        complete = self._complete = asyncio.Event()
        timer = asyncio.get_running_loop().call_later(PAUSE_S, complete.set)
        await complete.wait()
        timer.cancel()
        self._complete = None

    # -- held profiles -------------------------------------------------------

    def _hold(self, entry: Entry) -> None:
        """Queue an attempt on a held profile to be repeated, before later attempts on the same profile."""
        if not self._held:
            self._start(self._retry())
        self._held.setdefault(entry.name, []).insert(0, entry)

    async def _retry(self) -> None:
        """Repeat attempts on held profiles until each is decided or refused; no thread waits for locks."""
        pause, longest = HELD_S
        while self._held:
            await asyncio.sleep(pause)
            pause = min(2 * pause, longest)
            now = time.monotonic()
            batch: list[Entry] = []
            for name, entries in list(self._held.items()):
                open_entries = [entry for entry in entries if not entry.decided.done()]
                for entry in open_entries:
                    if now > entry.until:
                        answer(entry, RowHeld())
                self._held[name] = [entry for entry in open_entries if now <= entry.until]
                if not self._held[name]:
                    del self._held[name]
                elif len(batch) < BATCH_LIMIT and name not in self._busy:
                    batch.append(self._held[name].pop(0))
            if batch:
                await self._decide(batch)
            self._release(batch)

    def _release(self, batch: Sequence[Entry]) -> None:
        """Move the attempts on profiles that are no longer held back to the usual queue, and start a lane.

        batch : attempts that were just repeated; the profile of one that is not queued again is no longer held
        """
        for entry in batch:
            entries = self._held.get(entry.name, [])
            if entry not in entries:
                self._waiting += entries
                self._held.pop(entry.name, None)
        self._start_lane()


def answer(entry: Entry, outcome: VerifyReply | Exception) -> None:
    """Pass a reply or an error to the caller of an attempt, unless the caller has disconnected."""
    if entry.decided.done():
        return
    if isinstance(outcome, Exception):
        entry.decided.set_exception(outcome)
    else:
        entry.decided.set_result(outcome)
