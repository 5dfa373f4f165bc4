"""Limit of the time that a call spends waiting for the database."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar

from .schemas import Problem

# Seconds for which the present call may still wait; every call runs in a context of its own.
REMAINING_S: ContextVar[float] = ContextVar("REMAINING_S")
# Seconds that each further step still gets after the limit, such as the entry of the audit about the failed call.
LEAST_S = 0.05


@asynccontextmanager
async def database_wait(limit_s: float) -> AsyncIterator[None]:
    """Limit the time for the block, which waits for the database; raise a `Problem` (503) beyond it.

    limit_s : seconds for all blocks with this limit in the present call together
    """
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
    """Return the problem (503) of a call for which the database does not answer in time.

    is_unchanged : whether it is certain that the call changed nothing; the text of the problem states which
    """
    outcome = "nothing was changed"
    if not is_unchanged:
        outcome = (
            "it is unknown whether anything was changed; read the data before you repeat a change"
        )
    return Problem(503, "database", f"the database does not answer: {outcome}", wait=2)
