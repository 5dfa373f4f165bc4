"""One person's fault stays one person's: damaged, held, slow and hostile, counted for everybody else.

Times are measured by ``benchmarks/service_isolation.py``; here only answers are counted.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")

import httpx
import sqlalchemy as sa
from service_problems import MASTER_KEY, Calls, World, make_model, make_world, sqlite_store
from test_serve_transactions import listening

from mvplda.serve import app as serve_app
from mvplda.serve.app import create_app
from mvplda.serve.database import RowHeld
from mvplda.serve.service import Service
from mvplda.serve.settings import Settings
from mvplda.serve.store import Store

FREE = {"key_rate": 0, "profile_rate": 0, "lock_after": 10**9, "least_llr": -100.0}
# for a machine that is busy with other tests
PATIENT = {**FREE, "answer_s": 60.0}
LOCK = sa.text("SELECT * FROM profiles WHERE id = :id FOR UPDATE")


class Crowd:
    """People of a running service, and calls for them."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self.store = store
        self.service = Service(store, MASTER_KEY, make_model(), settings)
        self.calls = Calls(create_app(self.service, is_open=True))
        self.world: World = make_world()
        self.url = ""
        self.names = []
        for speaker in range(40, 44):
            name = self.calls.create(user=f"speaker {speaker}")
            for vector in self.world.say(speaker, 0, 3):
                assert self.calls.enrol(name, vector).status_code == 201
            self.names.append(name)

    def post(self, path: str, **options: Any) -> int:
        return httpx.post(f"{self.url}{path}", timeout=60, **options).status_code

    def verify(self, person: int) -> int:
        body = {"vector": self.world.say(40 + person, 0)[0].tolist()}
        return self.post(f"/v1/profiles/{self.names[person]}/verify", json=body)

    def enrol(self, person: int) -> int:
        body = {"vector": self.world.say(40 + person, 0)[0].tolist()}
        return self.post(f"/v1/profiles/{self.names[person]}/enrollments", json=body)

    def others(self, rounds: int = 5) -> Counter[int]:
        """Statuses of verifications, enrolments and listings of everybody but the first person, of all at once."""
        statuses: Counter[int] = Counter()
        for _ in range(rounds):
            for person in (1, 2, 3):
                statuses[self.verify(person)] += 1
        statuses[self.enrol(1)] += 1
        statuses[httpx.get(f"{self.url}/v1/ready", timeout=60).status_code] += 1
        statuses[httpx.get(f"{self.url}/v1/profiles", timeout=60).status_code] += 1
        return statuses


@contextmanager
def crowd(store: Store, settings: Settings) -> Iterator[Crowd]:
    people = Crowd(store, settings)
    with listening(people.calls.app, settings) as port:
        people.url = f"http://127.0.0.1:{port}"
        yield people


@contextmanager
def background(work: Callable[[], int], threads: int) -> Iterator[Counter[int]]:
    """Calls of several threads until the end of the block; their statuses are complete after it."""
    statuses: Counter[int] = Counter()
    stop = threading.Event()

    def run() -> None:
        while not stop.is_set():
            statuses[work()] += 1

    running = [threading.Thread(target=run) for _ in range(threads)]
    for thread in running:
        thread.start()
    try:
        yield statuses
    finally:
        stop.set()
        for thread in running:
            thread.join(60)


@contextmanager
def held(store: Store, name: str) -> Iterator[None]:
    """Another session holds the row of a profile."""
    with store.database.engine.connect() as connection, connection.begin():
        connection.execute(LOCK, {"id": name}).all()
        yield


@pytest.mark.slow
def test_a_held_row_delays_and_refuses_nobody_else(postgres):
    settings = Settings(lock_timeout_s=20.0, threads=2, **PATIENT)
    with crowd(Store(postgres.new_database(), None, settings), settings) as people:
        with held(people.store, people.names[0]):
            with (
                background(lambda: people.verify(0), 6) as verified,
                background(lambda: people.enrol(0), 6) as enrolled,
            ):
                time.sleep(0.5)
                assert people.others() == {200: 17, 201: 1}
                # nobody else had to wait until the first attempts on the held profile were given up
                assert not verified
                assert not enrolled
            assert set(verified) | set(enrolled) == {503}
        # free again, whatever waited
        assert people.verify(0) == 200
        assert people.enrol(0) == 201


@pytest.mark.slow
def test_an_attempt_on_a_held_row_is_decided_as_soon_as_it_is_free(postgres):
    settings = Settings(lock_timeout_s=30.0, **PATIENT)
    with crowd(Store(postgres.new_database(), None, settings), settings) as people:
        with held(people.store, people.names[0]):
            statuses: list[int] = []
            threads = [
                threading.Thread(target=lambda: statuses.append(people.verify(0))) for _ in range(5)
            ]
            for thread in threads:
                thread.start()
            assert people.others(1) == {200: 5, 201: 1}
            assert not statuses
        for thread in threads:
            thread.join(60)
        assert statuses == [200] * 5


def test_a_stuck_batch_does_not_stop_the_next(tmp_path):
    """A batch that waits for whatever reason, here an event, holds up no other person."""
    settings = Settings(**PATIENT)
    release = threading.Event()
    with crowd(sqlite_store(tmp_path), settings) as people:
        verify = people.service.verify
        stuck = people.names[0]

        def wait(attempts):
            if attempts[0].name == stuck:
                assert release.wait(60)
            return verify(attempts)

        people.service.verify = wait
        first = threading.Thread(target=people.verify, args=[0])
        first.start()
        assert people.others(1) == {200: 5, 201: 1}
        assert first.is_alive()
        release.set()
        first.join(20)


def test_a_held_attempt_is_refused_after_the_lock_timeout(tmp_path):
    settings = Settings(lock_timeout_s=2.0, **PATIENT)
    with crowd(sqlite_store(tmp_path), settings) as people:
        verify = people.service.verify
        taken: Counter[str] = Counter()

        def skip(attempts):
            names = [attempt.name for attempt in attempts]
            taken.update(names)
            outcomes = [
                RowHeld() if attempt.name == people.names[0] else None for attempt in attempts
            ]
            decided = iter(verify([a for a, o in zip(attempts, outcomes, strict=True) if not o]))
            return [outcome or next(decided) for outcome in outcomes]

        people.service.verify = skip
        assert people.verify(0) == 503
        assert people.others(1) == {200: 5, 201: 1}
        # a pause of 0.1 s between most attempts
        assert 3 <= taken[people.names[0]] <= 30


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_slow_person_takes_no_thread_from_others(kind, tmp_path, request):
    """Bodies that arrive slowly, and recordings that take long to process."""
    settings = Settings(at_once=1, waiting=2, body_s=30, address_bodies=20, **PATIENT)
    url = f"sqlite:///{tmp_path / 'data.sqlite'}"
    if kind == "postgresql":
        url = request.getfixturevalue("postgres").new_database()
    with crowd(Store(url, None, settings), settings) as people:
        port = int(people.url.rpartition(":")[2])
        head = (
            f"POST /v1/profiles/{people.names[0]}/verify HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
            "Content-Type: application/json\r\nContent-Length: 50\r\n\r\n{"
        )
        slow = [socket.create_connection(("127.0.0.1", port)) for _ in range(40)]
        release = threading.Event()
        process = people.service.process

        def wait(data):
            assert release.wait(60)
            return process(data)

        people.service.process = wait
        threads = [
            threading.Thread(
                target=people.post,
                args=[f"/v1/profiles/{people.names[0]}/verify"],
                kwargs={"content": b"sound", "headers": {"Content-Type": "audio/wav"}},
            )
            for _ in range(3)
        ]
        try:
            for line in slow:
                line.sendall(head.encode())
            for thread in threads:
                thread.start()
            assert people.others(2) == {200: 8, 201: 1}
        finally:
            release.set()
            for thread in threads:
                thread.join(20)
            for line in slow:
                line.close()


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_hostile_person_is_refused_alone(kind, tmp_path, request):
    """Floods of calls that are wrong in every way."""
    settings = Settings(**PATIENT)
    url = f"sqlite:///{tmp_path / 'data.sqlite'}"
    if kind == "postgresql":
        url = request.getfixturevalue("postgres").new_database()
    with crowd(Store(url, None, settings), settings) as people:
        mine = f"/v1/profiles/{people.names[0]}"
        numbers = [1e308] * people.service.model.width
        wrong: list[tuple[str, dict[str, Any]]] = [
            (f"{mine}/verify", {"json": {"vector": numbers}}),
            (f"{mine}/verify", {"json": {"vector": [1.0]}}),
            (f"{mine}/verify", {"json": {"vector": numbers, "far": 2}}),
            (f"{mine}/verify", {"content": b"{" * 5000, "headers": {"Content-Type": "audio/x"}}),
            (f"{mine}/verify", {"json": {"vector": [0.0] * people.service.model.width}}),
            ("/v1/identify", {"content": b"\xff" * 9000}),
            ("/v1/challenges", {"json": {"profileId": people.names[0]}}),
        ]
        turn = iter(range(10**9))

        def call() -> int:
            path, options = wrong[next(turn) % len(wrong)]
            return people.post(path, **options)

        with background(call, 4) as statuses:
            assert people.others() == {200: 17, 201: 1}
        assert statuses.total() > 0
        assert max(statuses) < 500


# -- a database that does not answer ---------------------------------------------------------


@pytest.mark.slow
def test_a_frozen_database_is_an_answer_in_time(postgres):
    settings = Settings(answer_s=2.0, statement_timeout_s=3.0, connect_timeout_s=1.0, **FREE)
    with crowd(Store(postgres.new_database(), None, settings), settings) as people:
        with people.store.read() as work:
            query = "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
            backends = [int(pid) for pid in work.run(query).scalars()]
        # their parent would start further ones
        status = Path(f"/proc/{backends[0]}/stat").read_text()
        processes = [int(status.rpartition(")")[2].split()[1]), *backends]
        for pid in processes:
            os.kill(pid, signal.SIGSTOP)
        try:
            calls = [
                lambda: people.verify(1),
                lambda: people.enrol(2),
                lambda: people.post(f"/v1/profiles/{people.names[3]}/reset"),
                lambda: httpx.get(f"{people.url}/v1/profiles", timeout=60).status_code,
            ]
            threads = []
            statuses: list[int] = []
            for call in calls * 4:
                thread = threading.Thread(target=lambda call=call: statuses.append(call()))
                thread.start()
                threads.append(thread)
            for thread in threads:
                # the deadline of the calls, and time for a busy machine
                thread.join(30)
            assert statuses == [503] * len(threads)
            assert httpx.get(f"{people.url}/v1/health", timeout=60).status_code == 200
        finally:
            for pid in processes:
                os.kill(pid, signal.SIGCONT)
        # the deadline of 2 s may still be too short for some calls on a busy machine
        until = time.monotonic() + 60
        while people.others(1) != {200: 5, 201: 1}:
            assert time.monotonic() < until


def test_what_a_deadline_leaves_is_told(tmp_path):
    """A call that had begun may have changed something; one that had not has not."""
    settings = Settings(answer_s=1.5, threads=1, **FREE)
    service = Service(sqlite_store(tmp_path), MASTER_KEY, make_model(), settings)
    release = threading.Event()

    async def ask() -> list[str]:
        runtime = serve_app.Runtime(service, is_open=True)
        work = [asyncio.create_task(runtime.run(release.wait, 20)) for _ in range(2)]
        done = await asyncio.gather(*work, return_exceptions=True)
        return [str(getattr(problem, "detail", problem)) for problem in done]

    try:
        first, second = asyncio.run(ask())
    finally:
        release.set()
        service.store.close()
    assert "unknown whether" in first
    assert "nothing was changed" in second
