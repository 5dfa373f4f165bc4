"""What comes at once: calls of one key, and instances that start on one database."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from types import SimpleNamespace
from typing import Any, cast

import pytest

pytest.importorskip("fastapi")

from mvplda.serve.app import Runtime, open_store
from mvplda.serve.keys import Caller, KeyRing, MasterKey
from mvplda.serve.settings import Settings


def test_a_burst_takes_no_more_calls_than_it_makes() -> None:
    taken: list[int] = []

    def spend(name: str, calls: int, rate: float) -> float:
        time.sleep(0.01)
        taken.append(calls)
        return 0.0

    service = SimpleNamespace(
        settings=Settings(), store=SimpleNamespace(api_keys=SimpleNamespace(spend=spend))
    )

    async def burst() -> None:
        runtime = Runtime(cast("Any", service), is_open=False)
        await asyncio.gather(
            *(runtime.callers._spend(Caller("shop", "verify"), runtime) for _ in range(100))
        )

    asyncio.run(burst())
    assert sum(taken) == 100


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_instances_that_start_at_once_share_keys(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(
        "MVPLDA_API_KEYS", "shop:verify:0123456789abcdef desk:enrol:fedcba9876543210"
    )
    database = None
    if kind == "postgresql":
        database = request.getfixturevalue("postgres").new_database()
    settings = Settings(data=tmp_path, database=database)
    master = MasterKey(b"m" * 32, "a test")
    together = Barrier(6)

    def start(_: int) -> list[str]:
        together.wait()
        store = open_store(settings)
        store.bind(KeyRing([master]))
        found = sorted(store.api_keys.names())
        store.close()
        return found

    # on a new database, and on one that has everything
    for _ in range(2):
        with ThreadPoolExecutor(6) as pool:
            found = list(pool.map(start, range(6)))
        assert found == [["desk", "shop"]] * 6
