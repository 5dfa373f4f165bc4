"""Calls that are sent twice with one Idempotency-Key; on SQLite and on PostgreSQL."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")

from service_problems import (
    MASTER_KEY,
    ME,
    Bench,
    Calls,
    make_bench,
    make_model,
    sqlite_store,
)

from mvplda.serve.app import create_app
from mvplda.serve.idempotency import IdempotentCall
from mvplda.serve.keys import KeyPolicy
from mvplda.serve.schemas import NewProfile, Problem
from mvplda.serve.service import Service
from mvplda.serve.store import Store, Transaction

NEW = {"userId": "ann", "phrase": "open the door", "consent": {"given": True}}


@pytest.fixture(params=["sqlite", "postgresql"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    if request.param == "sqlite":
        store = sqlite_store(tmp_path)
    else:
        store = Store(request.getfixturevalue("postgres").new_database())
    with make_bench(store) as found:
        yield found


def post(bench: Bench, path: str, body: Any, key: str = "one", calls: Calls | None = None) -> Any:
    headers = {"Idempotency-Key": key}
    return (calls or bench.calls)("POST", path, json=body, headers=headers)


def count(bench: Bench, table: str) -> int:
    with bench.service.store.read() as work:
        return int(work.value(f"SELECT count(*) FROM {table}"))


def test_a_profile_is_made_once(bench: Bench) -> None:
    first, second = post(bench, "/v1/profiles", NEW), post(bench, "/v1/profiles", NEW)
    assert (first.status_code, first.json()) == (second.status_code, second.json())
    assert count(bench, "profiles") == 1
    other = post(bench, "/v1/profiles", {**NEW, "userId": "bob"})
    assert (other.status_code, other.json()["type"]) == (422, "urn:mvplda:idempotency-key")
    assert post(bench, "/v1/profiles", NEW, "two").json()["profileId"] != first.json()["profileId"]
    assert count(bench, "profiles") == 2


def test_a_key_belongs_to_its_caller(bench: Bench) -> None:
    calls = []
    for name in ("shop", "desk"):
        key = bench.service.store.api_keys.put(name, "enrol")
        calls.append(Calls(create_app(bench.service), {"X-API-Key": key}))
    found = {post(bench, "/v1/profiles", NEW, "one", who).json()["profileId"] for who in calls}
    assert len(found) == 2


def test_recordings_are_enrolled_and_decided_once(bench: Bench) -> None:
    name = bench.person(40)
    vector = {"vector": bench.world.say(40, 0)[0].tolist()}
    enrolled = [post(bench, f"/v1/profiles/{name}/enrollments", vector).json() for _ in range(2)]
    assert enrolled[0] == enrolled[1]
    assert enrolled[0]["enrollmentsCount"] == 4
    test = {"vector": bench.world.say(40, 0)[0].tolist()}
    path = f"/v1/profiles/{name}/verify"
    decided = [post(bench, path, test, "two").json() for _ in range(2)]
    assert decided[0] == decided[1]
    assert decided[0]["decision"] == "accept"
    assert len(bench.service.find_audit(100, 2**31 - 1, action="verify").items) == 1
    # another key is another call
    assert post(bench, path, test, "three").json()["resultId"] != decided[0]["resultId"]


def test_a_repeated_answer_shows_what_the_policy_allows(bench: Bench) -> None:
    name = bench.person(40)
    key = bench.service.store.api_keys.put("shop", "verify", policy=KeyPolicy("verdict"))
    shop = Calls(create_app(bench.service), {"X-API-Key": key})
    body = {"vector": bench.world.say(40, 0)[0].tolist()}
    found = [post(bench, f"/v1/profiles/{name}/verify", body, "one", shop).json() for _ in range(2)]
    assert found[0] == found[1]
    assert found[0]["llr"] is None


def test_a_refused_recording_is_refused_the_same_way(bench: Bench) -> None:
    name = bench.person(40)
    body = {"vector": bench.world.say(41, 0)[0].tolist()}
    path = f"/v1/profiles/{name}/enrollments"
    first, second = post(bench, path, body), post(bench, path, body)
    assert first.status_code == 422
    assert first.json() == second.json()
    assert first.json()["reason"] == "wrong_speaker"
    entries = bench.service.find_audit(100, 2**31 - 1, action="refuse-enrolment").items
    assert len(entries) == 1


def test_rejections_are_counted_once(bench: Bench) -> None:
    name = bench.person(40)
    body = {"vector": bench.world.say(41, 0)[0].tolist()}
    for _ in range(10):
        assert post(bench, f"/v1/profiles/{name}/verify", body).json()["decision"] == "reject"
    assert bench.calls("GET", f"/v1/profiles/{name}").json()["lockedUntil"] is None


def test_a_call_that_failed_can_be_sent_again(bench: Bench) -> None:
    path = "/v1/challenges"
    name = bench.calls.create()
    assert post(bench, path, {"profileId": name}).status_code == 409
    for vector in bench.world.say(40, 0, 3):
        bench.calls.enrol(name, vector)
    first = post(bench, path, {"profileId": name})
    assert first.status_code == 201
    assert post(bench, path, {"profileId": name}).json() == first.json()
    assert count(bench, "challenges") == 1


def test_a_locked_attempt_can_be_sent_again(bench: Bench) -> None:
    name = bench.person(40)
    path = f"/v1/profiles/{name}/verify"
    for _ in range(5):
        bench.calls.verify(name, bench.world.say(41, 0)[0])
    body = {"vector": bench.world.say(40, 0)[0].tolist()}
    assert post(bench, path, body).status_code == 429
    bench.clock.now += 61
    assert post(bench, path, body).json()["decision"] == "accept"


def test_answers_expire_and_are_erased_with_their_person(bench: Bench) -> None:
    name = post(bench, "/v1/profiles", NEW).json()["profileId"]
    vector = {"vector": bench.world.say(40, 0)[0].tolist()}
    post(bench, f"/v1/profiles/{name}/enrollments", vector, "two")
    assert count(bench, "answers") == 2
    bench.calls("DELETE", f"/v1/profiles/{name}")
    assert count(bench, "answers") == 0
    first = post(bench, "/v1/profiles", NEW).json()
    bench.clock.now += 86_401
    assert post(bench, "/v1/profiles", NEW).json()["profileId"] != first["profileId"]
    post(bench, "/v1/profiles", NEW, "three")
    bench.clock.now += 86_401
    bench.service._clean_up_at = 0.0
    bench.calls.create()
    assert count(bench, "answers") == 0


@pytest.mark.parametrize("key", ["", "x" * 256])
def test_a_key_has_a_length(bench: Bench, key: str) -> None:
    answer = post(bench, "/v1/profiles", NEW, key)
    assert answer.status_code in (400, 422)
    assert count(bench, "profiles") == 0


def test_the_same_call_at_the_same_time_is_refused(bench: Bench) -> None:
    """Once in this process, and once in another one on the same database."""
    begun, go_on = threading.Event(), threading.Event()
    create = bench.service.profiles.create

    def slow(work: Transaction, *arguments: Any) -> Any:
        begun.set()
        assert go_on.wait(20)
        return create(work, *arguments)

    bench.service.profiles.create = slow
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(post, bench, "/v1/profiles", NEW)
        assert begun.wait(20)
        second = post(bench, "/v1/profiles", NEW)
        assert (second.status_code, second.json()["type"]) == (409, "urn:mvplda:in-progress")
        if bench.service.store.is_postgres:
            store = Store(bench.service.store.database.engine.url.render_as_string(False))
            other = Service(store, MASTER_KEY, make_model())
            call = IdempotentCall.of(ME, "another key")
            claimed = threading.Event()

            def claim_first() -> None:
                with bench.service.store.write(ME) as work:
                    assert bench.service.idempotency.claim(work, call) is None
                    claimed.set()
                    assert go_on.wait(20)

            with ThreadPoolExecutor(1) as more:
                holder = more.submit(claim_first)
                assert claimed.wait(20)
                body = NewProfile.model_validate(NEW)
                with pytest.raises(Problem) as refusal:
                    other.change_once(
                        call, ME, other.profiles.create, body.userId, body.phrase, body.consent
                    )
                assert refusal.value.status_code == 409
                go_on.set()
                holder.result(20)
            store.close()
        go_on.set()
        answer = first.result(20)
    bench.service.profiles.create = create
    assert post(bench, "/v1/profiles", NEW).json() == answer.json()
    assert count(bench, "profiles") == 1


def test_the_header_is_described(bench: Bench) -> None:
    paths = bench.calls("GET", "/openapi.json").json()["paths"]
    described = {
        path
        for path, operations in paths.items()
        for parameter in operations.get("post", {}).get("parameters", [])
        if parameter["name"] == "Idempotency-Key" and parameter["in"] == "header"
    }
    posts = {path for path, operations in paths.items() if "post" in operations}
    assert described == posts - {"/v1/identify"}
