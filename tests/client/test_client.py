"""The clients of the service: typed answers, retries that are done once, and the page that describes them."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

pytest.importorskip("fastapi")

from service_problems import Bench, make_bench, sqlite_store

from mvplda.client import (
    AsyncClient,
    Client,
    NoAnswerError,
    RefusedRecordingError,
    RetryPolicy,
    ServiceError,
)
from mvplda.client import _client as client_module
from mvplda.serve.recordings import ProcessedRecording
from mvplda.serve.settings import Settings

PAGE = Path(__file__).parents[2] / "docs" / "client.md"
FAST = RetryPolicy(first_wait_s=0.001)
URL = "http://localhost"


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """A service whose recordings are the bytes of vectors; those of no vector are too noisy."""
    with make_bench(sqlite_store(tmp_path), Settings(profile_rate=0)) as found:

        def process(data: bytes, *options: object) -> ProcessedRecording:
            if len(data) != 48:
                return ProcessedRecording(None, reason="too_noisy")
            return found.service.accept_vector(np.frombuffer(data, dtype="<f4"))

        monkeypatch.setattr(found.service, "process", process)
        yield found


def bridge(bench: Bench) -> Callable[[httpx.Request], httpx.Response]:
    """Return a handler that calls the application in this process."""

    def handle(request: httpx.Request) -> httpx.Response:
        path = request.url.raw_path.decode()
        options = {"content": request.read(), "headers": dict(request.headers)}
        answer = bench.calls(request.method, path, **options)
        return httpx.Response(
            answer.status_code, headers=answer.headers, content=answer.content, request=request
        )

    return handle


def sync_client(bench: Bench, **options: Any) -> Client:
    return Client(URL, transport=httpx.MockTransport(bridge(bench)), retries=FAST, **options)


def sound(vector: np.ndarray) -> bytes:
    return vector.astype("<f4").tobytes()


def test_a_person_is_enrolled_verified_found_and_deleted(bench: Bench, tmp_path: Path) -> None:
    with sync_client(bench) as voice:
        ann = voice.create_profile("ann", phrase="open the door", consent="on paper")
        assert (ann.state, ann.phrases, ann.remaining) == ("created", ("open the door",), 3)
        first, second, third = bench.world.say(40, 0, 3)
        assert voice.enrol(ann.id, sound(first)).number == 1
        path = tmp_path / "2.wav"
        path.write_bytes(sound(second))
        voice.enrol(ann.id, path, phrase="open the door", session="monday")
        enrolment = voice.enrol(ann.id, vector=third)
        assert enrolment.profile.is_enrolled
        decision = voice.verify(ann.id, sound(bench.world.say(40, 0)[0]), far=0.01)
        assert decision.is_accepted
        assert decision.llr == decision.raw["llr"]
        assert voice.verify(ann.id, sound(bench.world.say(41, 0)[0])).voice == "reject"
        found = voice.identify(vector=bench.world.say(40, 0)[0], candidates=[ann.id], top=1)
        assert (found.identified, found.candidates[0].user_id) == (ann.id, "ann")
        assert voice.identify(sound(bench.world.say(40, 0)[0]), candidates=[ann.id]).identified
        challenge = voice.challenge(ann.id)
        assert challenge.profile_id == ann.id
        assert voice.unlock(ann.id).locked_until is None
        assert [person.id for person in voice.profiles(search="an")] == [ann.id]
        assert [*voice.profiles(user_id="bob")] == []
        with pytest.raises(RefusedRecordingError) as refused:
            voice.enrol(ann.id, b"noise")
        assert refused.value.reason == "too_noisy"
        assert voice.reset(ann.id).enrolments == 0
        assert voice.opt_out(ann.id).state == "opted_out"
        voice.delete(ann.id)
        voice.delete(ann.id)
        with pytest.raises(ServiceError, match="410 deleted"):
            voice.profile(ann.id)
        with pytest.raises(TypeError, match="expected either sound"):
            voice.verify(ann.id)


def test_both_clients_have_the_same_methods_and_answers(bench: Bench) -> None:
    import inspect

    names = [name for name in vars(Client) if not name.startswith("_")]
    for name in names:
        one, other = (inspect.signature(getattr(kind, name)) for kind in (Client, AsyncClient))
        assert one.parameters == other.parameters, name
    name = bench.person(40)
    test = bench.world.say(40, 0)[0]

    async def call() -> Any:
        transport = httpx.ASGITransport(app=bench.calls.app)
        async with AsyncClient(URL, transport=transport, retries=FAST) as voice:
            people = [person async for person in voice.profiles()]
            profile = await voice.profile(name)
            decision = await voice.verify(name, vector=test)
            await voice.delete(name)
            return people, profile, decision

    people, profile, decision = asyncio.run(call())
    assert people == [profile]
    assert profile.is_enrolled
    assert decision.is_accepted


def test_pages_of_profiles_are_followed(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = {bench.calls.create("open the door", f"person {k}") for k in range(5)}
    page = client_module.calls.profiles
    monkeypatch.setattr(client_module.calls, "profiles", partial(page, top=2))
    assert {person.id for person in sync_client(bench).profiles()} == ids


def test_a_call_whose_answer_is_lost_is_done_once(bench: Bench) -> None:
    handle, attempts = bridge(bench), []

    def lose(request: httpx.Request) -> httpx.Response:
        answer = handle(request)
        attempts.append(request.headers.get("Idempotency-Key"))
        if len(attempts) % 2:
            raise httpx.ReadTimeout("the answer is lost", request=request)
        return answer

    voice = Client(URL, transport=httpx.MockTransport(lose), retries=FAST)
    ann = voice.create_profile("ann", phrase="open the door", consent="on paper")
    assert len(attempts) == 2
    assert attempts[0] == attempts[1]
    for vector in bench.world.say(40, 0, 3):
        voice.enrol(ann.id, vector=vector)
    assert voice.verify(ann.id, vector=bench.world.say(40, 0)[0]).is_accepted
    voice.delete(ann.id)
    actions = [row.action for row in bench.service.find_audit(100, 2**31 - 1).items]
    assert sorted(actions) == ["create", "delete", "enrol", "enrol", "enrol", "verify"]
    assert len(set(attempts[:-2])) == 5


def test_refusals_that_pass_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr(client_module.time, "sleep", waits.append)
    answers = [
        httpx.Response(503, headers={"Retry-After": "2"}, json={"type": "urn:mvplda:busy"}),
        httpx.Response(502, content=b"<html>bad gateway</html>"),
        httpx.Response(200, json={"items": [], "next": None}),
    ]
    voice = Client(URL, transport=httpx.MockTransport(lambda _: answers.pop(0)))
    assert [*voice.profiles()] == []
    assert waits[0] == 2
    assert 0 < waits[1] <= 0.6


def test_refusals_that_last_are_raised_at_once(bench: Bench) -> None:
    count = 0

    def locked(request: httpx.Request) -> httpx.Response:
        nonlocal count
        count += 1
        body = {"type": "urn:mvplda:locked", "detail": "locked", "status": 429}
        return httpx.Response(429, headers={"Retry-After": "60"}, json=body)

    voice = Client(URL, transport=httpx.MockTransport(locked))
    with pytest.raises(ServiceError) as refused:
        voice.profile("a")
    assert (count, refused.value.kind, refused.value.retry_after) == (1, "locked", 60)


def test_a_service_that_never_answers_is_named() -> None:
    def fail(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("connection refused", request=request)

    voice = Client(URL, transport=httpx.MockTransport(fail), retries=FAST)
    with pytest.raises(
        NoAnswerError, match="did not answer GET profiles/a in 4 attempts: connection refused"
    ):
        voice.profile("a")


def test_the_module_needs_nothing_before_a_client_is_made() -> None:
    code = "import sys, mvplda.client; print({'httpx', 'numpy', 'fastapi'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_the_page_runs_as_it_stands(
    bench: Bench,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for path, vector in zip(
        ("1", "2", "3", "now", "other"), bench.world.say(40, 0, 5), strict=True
    ):
        (tmp_path / f"{path}.wav").write_bytes(sound(vector))
    monkeypatch.chdir(tmp_path)
    transports = {
        "Client": httpx.MockTransport(bridge(bench)),
        "AsyncClient": httpx.ASGITransport(app=bench.calls.app),
    }
    for name, transport in transports.items():
        monkeypatch.setattr(httpx, name, partial(getattr(httpx, name), transport=transport))
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, Any] = {"key": None}
    for block in blocks:
        exec(block, names)
    assert capsys.readouterr().out.split("\n")[:-1] == [
        "welcome",
        "404 not-found",
        names["ann"].id,
    ]
