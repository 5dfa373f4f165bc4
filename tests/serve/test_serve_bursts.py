"""Calls of one key that come all at once are counted once each."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

pytest.importorskip("fastapi")

from mvplda.serve.app import Runtime
from mvplda.serve.keys import Caller
from mvplda.serve.settings import Settings


def test_a_burst_takes_no_more_calls_than_it_makes() -> None:
    taken: list[int] = []

    def spend(name: str, calls: int, rate: float) -> float:
        time.sleep(0.01)
        taken.append(calls)
        return 0.0

    service = SimpleNamespace(settings=Settings(), store=SimpleNamespace(spend=spend))

    async def burst() -> None:
        runtime = Runtime(cast("Any", service), is_open=False)
        await asyncio.gather(*(runtime._spend(Caller("shop", "verify")) for _ in range(100)))

    asyncio.run(burst())
    assert sum(taken) == 100
