"""Crashes between two commits, clocks that differ, locks that stay, and half-sent requests."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import contextmanager

import numpy as np
import pytest

pytest.importorskip("fastapi")

import httpx
import sqlalchemy as sa
from service_problems import (
    MASTER_KEY,
    Calls,
    decide,
    make_bench,
    make_model,
    make_world,
    sqlite_store,
)

from mvplda.serve.app import create_app
from mvplda.serve.connections import TimeoutProtocol
from mvplda.serve.recordings import ProcessedRecording
from mvplda.serve.schemas import VerifyRequest
from mvplda.serve.service import Service
from mvplda.serve.settings import Settings
from mvplda.serve.store import Store


@contextmanager
def listening(app, settings):
    import uvicorn

    TimeoutProtocol.settings = settings
    TimeoutProtocol.bodies = app.state.runtime.bodies
    config = uvicorn.Config(app, port=0, log_level="error", http=TimeoutProtocol)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.02)
        assert thread.is_alive()
    yield server.servers[0].sockets[0].getsockname()[1]
    server.should_exit = True
    thread.join(20)


class Killed(Exception):
    pass


@contextmanager
def killed_at(engine, commit: int):
    """The database takes so many commits, and none after them, as if the process had been killed."""
    seen = []

    def count(connection):
        seen.append(1)
        if len(seen) > commit:
            raise Killed

    sa.event.listen(engine, "commit", count)
    try:
        yield
    finally:
        sa.event.remove(engine, "commit", count)


REQUESTS = {
    "create": ("/v1/profiles", {"userId": "bob", "consent": {"given": True}}),
    "enrol": ("/v1/profiles/{}/enrollments", "vector"),
    "verify": ("/v1/profiles/{}/verify", "vector"),
    "reset": ("/v1/profiles/{}/reset", None),
    "opt-out": ("/v1/profiles/{}/opt-out", None),
    "challenge": ("/v1/challenges", "profile"),
}


@pytest.mark.parametrize("request_name", REQUESTS)
def test_a_request_that_a_crash_interrupted_is_done_or_not_and_never_half(tmp_path, request_name):
    """Whatever commit was the last one; the request can then be repeated."""
    for commit in range(4):
        folder = tmp_path / str(commit)
        folder.mkdir()
        with make_bench(sqlite_store(folder)) as bench:
            name = bench.person(40)
            place, body = REQUESTS[request_name]
            if body == "vector":
                body = {"vector": bench.world.say(40, 0)[0].tolist()}
            elif body == "profile":
                body = {"profileId": name}
            with killed_at(bench.service.store.database.engine, commit):
                bench.calls("POST", place.format(name), json=body)
            with bench.service.store.read() as work:
                people = work.value("SELECT count(*) FROM profiles")
                takes = work.value("SELECT count(*) FROM enrollments")
                query = "SELECT count(*) FROM audit WHERE action = :action"
                noted = work.value(query, action=request_name)
            done = noted > {"create": 1, "enrol": 3}.get(request_name, 0)
            assert people == 1 + (done and request_name == "create")
            expected = {"enrol": 4, "reset": 0, "opt-out": 0}.get(request_name, 3)
            assert takes == (expected if done else 3)
            again = Calls(
                create_app(Service(bench.service.store, MASTER_KEY, bench.model), is_open=True)
            )
            answer = again("POST", place.format(name), json=body)
            assert answer.status_code // 100 == 2, answer.text


def test_who_was_enrolled_by_a_host_whose_clock_is_behind_is_identified(tmp_path):
    with make_bench(sqlite_store(tmp_path)) as bench:
        bench.person(41)
        ask = {"vector": bench.world.say(40, 0)[0].tolist()}
        bench.calls("POST", "/v1/identify", json=ask)
        late = sqlite_store(tmp_path)
        late.clock = lambda: bench.clock.now - 3600
        other = Calls(create_app(Service(late, MASTER_KEY, make_model()), is_open=True))
        name = other.create()
        for vector in bench.world.say(40, 0, 3):
            assert other.enrol(name, vector).status_code == 201
        found = bench.calls("POST", "/v1/identify", json=ask).json()
        assert found["candidates"][0]["profileId"] == name
        late.close()


def test_locks_follow_the_clock_of_the_database(postgres, monkeypatch):
    store = Store(postgres.new_database())
    service = Service(store, MASTER_KEY, make_model(), Settings(lock_after=2))
    world = make_world()
    calls = Calls(create_app(service, is_open=True))
    name = calls.create()
    for vector in world.say(40, 0, 3):
        calls.enrol(name, vector)
    for vector in world.say(41, 0, 2):
        assert calls.verify(name, vector).json()["decision"] == "reject"
    real = time.time()
    monkeypatch.setattr(time, "time", lambda: real + 7200)  # of another host
    assert calls.verify(name, world.say(40, 0)[0]).json()["type"] == "urn:mvplda:locked"
    store.close()


@pytest.mark.slow
def test_a_lock_that_stays_stalls_neither_readiness_nor_others(postgres):
    settings = Settings(
        lock_timeout_s=8.0, threads=2, answer_s=60.0
    )  # five calls wait three times as long
    store = Store(postgres.new_database(), None, settings)
    service = Service(store, MASTER_KEY, make_model(), settings)
    world = make_world()
    calls = Calls(create_app(service, is_open=True))
    name = calls.create()
    for vector in world.say(40, 0, 3):
        calls.enrol(name, vector)
    vectors = world.say(40, 0, 5)
    answers = []

    def ask(address, vector):
        body = {"vector": vector.tolist()}
        answers.append(httpx.post(f"{address}/v1/profiles/{name}/verify", json=body, timeout=60))

    with listening(calls.app, settings) as port:
        address = f"http://127.0.0.1:{port}"
        with store.database.engine.connect() as connection, connection.begin():
            row = sa.text("SELECT * FROM profiles WHERE id = :id FOR UPDATE")
            connection.execute(row, {"id": name}).all()
            threads = [threading.Thread(target=ask, args=[address, one]) for one in vectors]
            for thread in threads:
                thread.start()
            assert httpx.get(f"{address}/v1/ready", timeout=60).status_code == 200
            assert len(answers) < 5, "readiness waited until all the others gave up"
            for thread in threads:
                thread.join(60)
        assert [answer.status_code for answer in answers] == [503] * 5
        ask(address, vectors[0])
        assert answers[-1].json()["decision"] == "accept"


# -- half-sent requests --------------------------------------------------------------------


def test_half_sent_requests_keep_nobody_out(tmp_path):
    settings = Settings(connections=20, header_s=30, body_s=1)
    with (
        make_bench(sqlite_store(tmp_path), settings) as bench,
        listening(bench.calls.app, settings) as port,
    ):
        half = [socket.create_connection(("127.0.0.1", port)) for _ in range(40)]
        for one in half:
            one.sendall(b"POST /v1/identify HTTP/1.1\r\nHost: localhost\r\n")
        answer = httpx.get(f"http://127.0.0.1:{port}/v1/health", timeout=30)
        assert answer.status_code == 200
        slow = socket.create_connection(("127.0.0.1", port))
        head = (
            b"POST /v1/identify HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        )
        slow.sendall(head + b"Content-Length: 50\r\n\r\n{")
        slow.settimeout(30)
        assert b" 408 " in slow.recv(100)
        for one in (*half, slow):
            one.close()


def test_a_head_that_never_ends_is_not_waited_for(tmp_path):
    settings = Settings(header_s=0.3)
    with (
        make_bench(sqlite_store(tmp_path), settings) as bench,
        listening(bench.calls.app, settings) as port,
        socket.create_connection(("127.0.0.1", port)) as half,
    ):
        half.settimeout(30)
        half.sendall(b"GET /v1/health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"200" in half.recv(10_000)
        half.sendall(b"GET /v1/health HTTP/1.1\r\n")  # and no more on the same connection
        while half.recv(10_000):
            pass  # ends when the service closes it


# -- sound ---------------------------------------------------------------------------------


def test_sound_by_which_nothing_was_decided_may_come_again(tmp_path):
    with make_bench(sqlite_store(tmp_path)) as bench:
        name = bench.person(40)
        sound = ProcessedRecording(
            bench.world.say(40, 0)[0].astype(np.float32), None, None, "a digest", 1.0
        )
        mistyped = decide(bench.service, name, sound, VerifyRequest(phrase="open the dor"))
        assert (mistyped["decision"], mistyped["reason"]) == ("inconclusive", "not_enrolled")
        right = decide(bench.service, name, sound, VerifyRequest(phrase="open the door"))
        assert right["decision"] == "accept"
        again = decide(bench.service, name, sound, VerifyRequest(phrase="open the door"))
        assert again["reason"] == "suspected_replay"
