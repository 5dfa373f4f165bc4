"""Limit of the time that a call waits for the database."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar

from .schemas import Problem

# Seconds that the running call may still wait; every call runs in a context of its own.
REMAINING_S: ContextVar[float] = ContextVar("REMAINING_S")
# A call that has waited for too long still gets so long for each further step, such as an entry of the audit.
LEAST_S = 0.05


@asynccontextmanager
async def database_wait(limit_s: float) -> AsyncIterator[None]:
    """Limit the seconds that a call waits for the database, over all its steps; raise a `Problem` beyond it."""
    remaining = REMAINING_S.get(limit_s)
    begun = time.monotonic()
    try:
        async with asyncio.timeout(remaining):
            yield
    except TimeoutError:
        raise no_answer(is_unchanged=False) from None
    finally:
        REMAINING_S.set(max(LEAST_S, remaining - (time.monotonic() - begun)))


def no_answer(is_unchanged: bool) -> Problem:
    """Return the problem of a call for which the database does not answer in time."""
    outcome = "nothing was changed"
    if not is_unchanged:
        outcome = "it is unknown whether anything was changed, look before you repeat a change"
    return Problem(503, "database", f"the database does not answer: {outcome}", wait=2)
