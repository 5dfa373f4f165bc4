"""Delay of all other callers while one person's data are damaged or locked, or while one caller is slow or hostile.

``python -m benchmarks.service_isolation [-o results/service] [--seconds 3] [--rounds 5]``. Clients verify from vectors
with the default model, each with a pause of 20 ms between its calls; rounds without and with the fault alternate, and
the ratio is that of the medians of their 99th percentiles. Every call of everybody else must be answered with 200.
"""

# ruff: noqa: E402

from __future__ import annotations

import argparse
import http.client
import json
import os
import socket
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]

import numpy as np
import service_postgres
import sqlalchemy as sa
from service_client import Client

from benchmarks.service import PORT, Body, add, enrolled, load, start
from mvplda.serve.settings import Settings
from mvplda.serve.store import Store
from mvplda.serve.tables import ENROLMENTS

CLIENTS = 8
PAUSE_S = 0.02
SLOW = 200
JSON = {"Content-Type": "application/json"}
Fault = Callable[["World"], Any]


class World:
    """A running service with people; the first one is the person with the fault."""

    def __init__(self, folder: Path, database: str | None) -> None:
        self.rng = np.random.default_rng(0)
        self.names, self.width = enrolled(Client(f"http://127.0.0.1:{PORT}"), 17, self.rng)
        settings = Settings(data=folder, database=database)
        self.store = Store(settings.database_url, settings.key_url, settings)
        self.others: list[Body] = [
            (f"/v1/profiles/{name}/verify", JSON["Content-Type"], self.vector())
            for name in self.names[1:]
        ]

    def vector(self) -> bytes:
        return json.dumps({"vector": self.rng.normal(size=self.width).tolist()}).encode()


@contextmanager
def callers(calls: list[tuple[str, bytes]], count: int) -> Iterator[Counter[int]]:
    """Callers that send the same calls again and again; their statuses are complete after the block."""
    statuses: Counter[int] = Counter()
    stop = threading.Event()

    def work(turn: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=60)
        while not stop.wait(PAUSE_S):
            path, body = calls[turn % len(calls)]
            turn += 1
            try:
                connection.request("POST", path, body, JSON)
                answer = connection.getresponse()
                answer.read()
                statuses[answer.status] += 1
            except (http.client.HTTPException, OSError):
                connection.close()
                statuses[0] += 1

    threads = [threading.Thread(target=work, args=(k,), daemon=True) for k in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield statuses
    finally:
        stop.set()
        for thread in threads:
            thread.join()


@contextmanager
def damaged(world: World) -> Iterator[Counter[int]]:
    """A bit of a recording is flipped, and its owner is verified by four callers."""
    name = world.names[0]
    chosen = sa.and_(ENROLMENTS.c.profile == name, ENROLMENTS.c.number == 2)
    with world.store.write() as work:
        share = bytearray(work.value(sa.select(ENROLMENTS.c.share).where(chosen)))
        share[40] ^= 1
        work.run(ENROLMENTS.update().where(chosen).values(share=bytes(share)))
        work.run("UPDATE profiles SET version = version + 1 WHERE id = :id", id=name)
    with callers([(f"/v1/profiles/{name}/verify", world.vector())], 4) as statuses:
        yield statuses
    with world.store.write() as work:
        share[40] ^= 1
        work.run(ENROLMENTS.update().where(chosen).values(share=bytes(share)))
        work.run(
            "UPDATE profiles SET version = version + 1, damaged = NULL WHERE id = :id", id=name
        )


@contextmanager
def held(world: World) -> Iterator[Counter[int]]:
    """Another session holds a row, and its owner is verified by four callers."""
    name = world.names[0]
    query = sa.text("SELECT 1 FROM profiles WHERE id = :id FOR UPDATE")
    with world.store.database.engine.connect() as connection, connection.begin():
        connection.execute(query, {"id": name}).all()
        with callers([(f"/v1/profiles/{name}/verify", world.vector())], 4) as statuses:
            yield statuses


@contextmanager
def slow(world: World) -> Iterator[Counter[int]]:
    """Two hundred callers stop in the middle of their bodies."""
    head = (
        f"POST /v1/profiles/{world.names[0]}/verify HTTP/1.1\r\nHost: 127.0.0.1:{PORT}\r\n"
        f"Content-Type: application/json\r\nContent-Length: 50000\r\n\r\n{'[' * 1000}"
    )
    with ExitStack() as stack:
        for _ in range(SLOW):
            line = stack.enter_context(socket.create_connection(("127.0.0.1", PORT)))
            line.sendall(head.encode())
        yield Counter()


@contextmanager
def hostile(world: World) -> Iterator[Counter[int]]:
    """Four callers send calls that are wrong in every way."""
    mine = f"/v1/profiles/{world.names[0]}"
    numbers = [1e308] * world.width
    wrong = [
        (f"{mine}/verify", json.dumps({"vector": numbers}).encode()),
        (f"{mine}/verify", json.dumps({"vector": [1.0]}).encode()),
        (f"{mine}/verify", b"{" * 50_000),
        (f"{mine}/verify", json.dumps({"vector": [0.0] * world.width}).encode()),
        ("/v1/identify", b"\xff" * 9000),
        ("/v1/challenges", json.dumps({"profileId": mine}).encode()),
        ("/v1/profiles/" + "x" * 3000 + "/verify", b"[]"),
    ]
    with callers(wrong, 4) as statuses:
        yield statuses


def measure(world: World, kind: str, fault: Fault, seconds: float, rounds: int) -> dict[str, Any]:
    times: dict[bool, list[float]] = {False: [], True: []}
    failed = 0
    statuses: Counter[int] = Counter()
    for _ in range(rounds):
        for is_broken in (False, True):
            with ExitStack() as stack:
                theirs = stack.enter_context(fault(world)) if is_broken else Counter()
                found = load(world.others, CLIENTS, seconds, PAUSE_S)
            statuses += theirs
            failed += int(found["failed"])
            times[is_broken].append(found["p99_ms"])
    usual, broken = (float(np.median(times[is_broken])) for is_broken in (False, True))
    row = {
        "database": kind,
        "fault": fault.__name__,
        "p99 usual_ms": usual,
        "p99 beside it_ms": broken,
        "ratio": broken / usual,
        "others refused": failed,
        "answers to the fault": ", ".join(
            f"{n:,} x {status}" for status, n in sorted(statuses.items())
        ),
    }
    print(row, flush=True)
    return row


def run(kind: str, database: str | None, seconds: float, rounds: int) -> list[dict[str, Any]]:
    faults: list[Fault] = [damaged, slow, hostile]
    if database is not None:
        faults.insert(1, held)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        process = start(folder, database=database, demo=False)
        try:
            world = World(folder, database)
            load(world.others, CLIENTS, seconds, PAUSE_S)
            rows = [measure(world, kind, fault, seconds, rounds) for fault in faults]
            world.store.close()
            return rows
        finally:
            process.terminate()
            process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=3.0, help="of each round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("-o", "--output", type=Path, help="folder of results to add to")
    chosen = parser.parse_args()
    rows = run("sqlite", None, chosen.seconds, chosen.rounds)
    with service_postgres.running() as postgres:
        if postgres is not None:
            rows += run("postgresql", postgres.new_database(), chosen.seconds, chosen.rounds)
    if chosen.output is not None:
        add(chosen.output, {"everybody else beside a fault": rows})


if __name__ == "__main__":
    main()
