"""Streams: looks while sound arrives, one decision that equals POST verify, and streams that break off."""

from __future__ import annotations

import asyncio
import io
import json
import re
import shutil
import threading
import time
import wave
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import uvicorn
from free_ports import free_port
from service_problems import WORDS, Bench, Calls, make_bench, make_model, sqlite_store
from spoken import say
from websockets.exceptions import ConnectionClosed, ConnectionClosedError, InvalidStatus
from websockets.sync.client import connect

from mvplda.client import (
    AsyncClient,
    Client,
    NoAnswerError,
    RetryPolicy,
    ServiceError,
    StreamLook,
)
from mvplda.serve.app import server_options
from mvplda.serve.connections import TimeoutProtocol
from mvplda.serve.idempotency import IdempotentCall
from mvplda.serve.keys import Caller, KeyPolicy
from mvplda.serve.recordings import ProcessedRecording
from mvplda.serve.schemas import VerifyRequest
from mvplda.serve.settings import Settings
from mvplda.serve.tenants import put_tenant
from mvplda.serve.verifier import Attempt

# uvicorn 0.32 calls parts of websockets that are deprecated
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

RATE = 16000
BLOCK = RATE // 10
END = json.dumps({"type": "end"})


def pcm(seed: int = 1, seconds: float = 2.0) -> bytes:
    """Return generated speech as PCM."""
    sound = np.tile(say(seed), 9)[: round(seconds * RATE)]
    return np.round(20000 * sound / np.abs(sound).max()).astype("<i2").tobytes()


def wav(data: bytes) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(RATE)
        sound.writeframes(data)
    return file.getvalue()


class Voices:
    """Stands in for an extractor: all recordings are of this speaker and phrase, more clearly the longer they are."""

    def __init__(self, bench: Bench) -> None:
        self.bench, self.speaker, self.phrase = bench, 40, 0
        self.reason: str | None = None
        self.calls = 0

    def process(self, data: bytes, *prompt: Any, detects_spoofs: bool = True) -> ProcessedRecording:
        self.calls += 1
        with wave.open(io.BytesIO(data)) as file:
            seconds = file.getnframes() / file.getframerate()
            samples = np.frombuffer(file.readframes(file.getnframes()), "<i2")
        if seconds > self.bench.service.settings.longest_s:
            return ProcessedRecording(None, reason="too_long")
        rng = np.random.default_rng(len(samples))
        world = self.bench.world
        vector = world.speakers[self.speaker] + world.phrases[self.phrase]
        vector = vector + 0.05 / np.sqrt(max(seconds, 0.1)) * rng.normal(size=vector.size)
        return ProcessedRecording(
            vector.astype(np.float32),
            reason=self.reason,
            digest=str(hash(samples.tobytes())),
            speech_s=seconds,
        )


class StreamBench:
    """A service with sound at a port of its own, and an enrolled person."""

    def __init__(self, bench: Bench, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bench, self.port = bench, port
        self.app = bench.calls.app.state.runtime
        bench.model.extractor = SimpleNamespace(rate=RATE, name="drawn", fingerprint="0")
        self.voices = Voices(bench)
        monkeypatch.setattr(bench.service, "process", self.voices.process)
        self.name = bench.person(40)

    def open(self, query: str = "", name: str | None = None, **options: Any) -> Any:
        path = f"/v1/profiles/{name or self.name}/stream?{query}"
        return connect(f"ws://127.0.0.1:{self.port}{path}", **{"compression": None, **options})

    def stream(self, data: bytes, query: str = "", **options: Any) -> list[dict[str, Any]]:
        """Return all messages about a stream, which is sent in blocks."""
        with self.open(query, **options) as socket:
            with suppress(ConnectionClosed):
                for start in range(0, len(data), 2 * BLOCK):
                    socket.send(data[start : start + 2 * BLOCK])
                socket.send(END)
            return list(messages(socket))

    def post(self, data: bytes, query: str = "", **options: Any) -> dict[str, Any]:
        headers = {"content-type": "audio/wav", **options}
        path = f"/v1/profiles/{self.name}/verify?{query}"
        return dict(self.bench.calls("POST", path, content=wav(data), headers=headers).json())

    def audit(self, action: str = "verify") -> list[dict[str, Any]]:
        answer = self.bench.calls("GET", f"/v1/audit?action={action}")
        return list(answer.json()["items"])

    def profile(self) -> dict[str, Any]:
        return dict(self.bench.calls("GET", f"/v1/profiles/{self.name}").json())

    def wait_for(self, check: Callable[[], object]) -> None:
        """Wait until the service has done something."""
        until = time.monotonic() + 20
        while not check():
            assert time.monotonic() < until
            time.sleep(0.02)


def messages(socket: Any) -> Iterator[dict[str, Any]]:
    """Yield messages until the service closes the stream."""
    while True:
        try:
            yield json.loads(socket.recv(timeout=30))
        except ConnectionClosed as closed:
            yield {"type": "close", "code": closed.rcvd and closed.rcvd.code}
            return


@contextmanager
def serving(app: Any, settings: Settings) -> Iterator[tuple[uvicorn.Server, int]]:
    """Serve an application at a port, in a thread, with the options of the service."""
    TimeoutProtocol.settings, TimeoutProtocol.bodies = settings, app.state.runtime.bodies
    port = free_port()
    server = uvicorn.Server(uvicorn.Config(app, **server_options(settings) | {"port": port}))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            time.sleep(0.01)
        yield server, port
    finally:
        server.should_exit = True
        thread.join(30)


def new_bench(tmp_path: Any, monkeypatch: Any, **options: Any) -> Iterator[StreamBench]:
    settings = Settings(**options)
    with (
        make_bench(sqlite_store(tmp_path), settings, make_model()) as bench,
        serving(bench.calls.app, settings) as (_, port),
    ):
        yield StreamBench(bench, port, monkeypatch)


@pytest.fixture
def bench(tmp_path, monkeypatch):
    yield from new_bench(tmp_path, monkeypatch, profile_rate=0)


@pytest.mark.parametrize(("speaker", "phrase"), [(40, 0), (40, 1), (41, 0), (41, 1)])
def test_a_stream_and_a_recording_of_the_same_sound_have_the_same_answer(
    tmp_path, monkeypatch, speaker, phrase
):
    replies = []
    for way in ("stream", "post"):
        (tmp_path / way).mkdir()
        for bench in new_bench(tmp_path / way, monkeypatch):
            bench.voices.speaker, bench.voices.phrase = speaker, phrase
            if way == "stream":
                *looks, reply, close = bench.stream(pcm(), "early=false&far=0.05")
            else:
                reply = bench.post(pcm(), "far=0.05")
            replies.append(reply | {"type": "", "resultId": ""})
    assert replies[0] == replies[1]
    assert replies[0]["decision"] == ("accept" if (speaker, phrase) == (40, 0) else "reject")
    assert len(looks) >= 2
    assert close == {"type": "close", "code": 1000}
    assert {look["type"] for look in looks} == {"look"}
    assert all(np.isfinite(look["llrSpeaker"]) for look in looks)


def test_two_looks_that_agree_decide_a_stream(bench):
    *looks, decision, close = bench.stream(pcm(seconds=4.0))
    assert (decision["decision"], close["code"]) == ("accept", 1000)
    assert len(looks) == 2
    assert decision["quality"] is None or decision["quality"]["durationS"] < 4
    [entry] = bench.audit()
    assert (entry["looks"], entry["decision"]) == (2, "accept")


def test_looks_reject_a_voice_but_not_a_phrase(bench):
    bench.voices.phrase = 1
    *looks, decision, _ = bench.stream(pcm(seconds=4.0))
    assert (decision["decision"], decision["reason"]) == ("reject", "wrong_phrase")
    assert len(looks) > 3
    bench.voices.speaker, bench.voices.phrase = 41, 0
    *looks, decision, _ = bench.stream(pcm(2, seconds=4.0))
    assert (decision["decision"], decision["voice"]) == ("reject", "reject")
    assert len(looks) == 2


def test_the_strictest_point_accepts_at_the_end_only(bench):
    # several looks at the strictest point would be several chances
    *looks, decision, _ = bench.stream(pcm(seconds=3.0), "far=0.004")
    assert decision["decision"] == "accept"
    assert len(looks) > 3


def test_a_pause_ends_a_stream_unless_its_client_asks_to_decide_at_the_end(bench):
    bench.voices.phrase = 1
    silence = bytes(3 * 2 * RATE)
    with bench.open() as socket:
        for part in (pcm(seconds=1.2), silence):
            for start in range(0, len(part), 2 * BLOCK):
                socket.send(part[start : start + 2 * BLOCK])
        assert [message["type"] for message in messages(socket)][-2:] == ["decision", "close"]
    with bench.open("early=false") as socket:
        for part in (pcm(2, seconds=1.2), silence):
            for start in range(0, len(part), 2 * BLOCK):
                socket.send(part[start : start + 2 * BLOCK])
        received = [json.loads(socket.recv(timeout=10)) for _ in range(2)]
        assert {message["type"] for message in received} == {"look"}
        with pytest.raises(TimeoutError):
            socket.recv(timeout=0.5)
        socket.send(END)
        assert next(messages(socket))["type"] == "decision"


def test_the_service_can_be_set_to_decide_at_the_end_only(tmp_path, monkeypatch):
    for bench in new_bench(tmp_path, monkeypatch, early_decisions=False):
        *looks, decision, _ = bench.stream(pcm(seconds=4.0), "early=true")
        assert (len(looks) > 4, decision["decision"]) == (True, "accept")


# -- streams that break off -----------------------------------------------------------------


def looked_at(bench: StreamBench, socket: Any) -> None:
    """Send speech until the service has looked at it."""
    data = pcm(3, seconds=1.0)
    for start in range(0, len(data), 2 * BLOCK):
        socket.send(data[start : start + 2 * BLOCK])
    assert json.loads(socket.recv(timeout=30))["type"] == "look"


def test_a_stream_that_breaks_off_after_a_look_is_an_attempt(bench):
    bench.voices.speaker = 41
    with bench.open("early=false") as socket:
        looked_at(bench, socket)
        socket.socket.close()
    bench.wait_for(bench.audit)
    [entry] = bench.audit()
    assert (entry["decision"], entry["looks"]) == ("reject", 1)


@pytest.mark.parametrize("code", [1000, 1001, 1012, 4000])
def test_no_close_code_of_a_client_makes_looks_free(bench, code):
    bench.voices.speaker = 41
    with bench.open("early=false") as socket:
        looked_at(bench, socket)
        socket.close(code)
    bench.wait_for(bench.audit)
    assert bench.audit()[0]["decision"] == "reject"


def test_sound_that_is_unusable_at_the_end_does_not_make_looks_free(tmp_path, monkeypatch):
    for bench in new_bench(tmp_path, monkeypatch, lock_after=2, longest_s=3.0, profile_rate=0):
        bench.voices.speaker = 41
        for seed in (4, 5):
            *looks, decision, _ = bench.stream(pcm(seed, seconds=4.0), "early=false")
            assert any(look["llr"] is not None for look in looks)
            assert (decision["decision"], decision["reason"]) == ("inconclusive", "too_long")
        assert bench.profile()["state"] == "enrolled"
        assert bench.profile()["lockedUntil"] is not None


def test_one_stream_on_a_profile_at_a_time_has_evidence(bench):
    with bench.open("early=false") as first:
        looked_at(bench, first)
        looks = [look for look in bench.stream(pcm(4), "early=false") if look["type"] == "look"]
        assert looks
        assert {look["llr"] for look in looks} == {None}
        first.socket.close()
    bench.wait_for(lambda: len(bench.audit()) == 2)
    assert sorted(entry["looks"] for entry in bench.audit()) == [0, 1]
    bench.wait_for(lambda: not bench.app.looked_at)
    assert bench.stream(pcm(5), "early=false")[0]["llr"] is not None


def test_waiting_recordings_do_not_make_looks_free(bench):
    bench.voices.speaker = 41
    settings = bench.app.settings
    with bench.open("early=false") as socket:
        looked_at(bench, socket)
        bench.app._load["recordings"] += settings.at_once + settings.waiting
        socket.socket.close()
        bench.wait_for(bench.audit)
    assert bench.audit()[0]["decision"] == "reject"


def test_a_stream_with_looks_is_counted_though_its_call_was_answered(bench):
    service, caller = bench.bench.service, Caller("me", "admin")
    call = IdempotentCall.of(caller, "key", b"stream", profile=bench.name)
    bench.voices.speaker = 41
    for seconds in (1.0, 2.0, 1.5):
        recording = bench.voices.process(wav(pcm(7, seconds)))
        looks = None if seconds == 1.5 else 1
        attempt = Attempt(caller, bench.name, recording, VerifyRequest(), call=call, looks=looks)
        [reply] = service.verify([attempt])
        assert reply.decision == "reject"
    # the repeated call without looks gets the stored answer
    assert len(bench.audit()) == 2


def test_a_full_address_does_not_fail_while_its_oldest_stream_is_looked_at(tmp_path, monkeypatch):
    for bench in new_bench(tmp_path, monkeypatch, address_bodies=1):
        refuse_during_a_look(bench, monkeypatch)


def refuse_during_a_look(bench: StreamBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Open a stream that exceeds the limit of its address while the first stream is looked at."""
    begun, proceed = threading.Event(), threading.Event()
    process = bench.voices.process

    def wait_and_process(*arguments: Any, **options: Any) -> ProcessedRecording:
        begun.set()
        assert proceed.wait(30)
        return process(*arguments, **options)

    monkeypatch.setattr(bench.bench.service, "process", wait_and_process)
    with bench.open("early=false") as first:
        first.send(pcm(3, seconds=1.0))
        assert begun.wait(30)
        [exchange] = bench.app.bodies._requests
        with bench.open("early=false") as second:
            second.send(END)
            bench.wait_for(lambda: exchange._stopped)
            proceed.set()
            assert next(messages(second))["type"] == "decision"
        assert [m["type"] for m in messages(first)][-2:] == ["problem", "close"]


def test_a_stream_that_breaks_off_before_a_look_changes_nothing(bench):
    for data in (b"", pcm(seconds=0.3)):
        with bench.open("early=false") as socket:
            socket.send(data)
            socket.socket.close()
    bench.wait_for(lambda: bench.app.metrics.streams._value.get() == 0)
    assert bench.audit() == []


def test_rejected_streams_lock_a_profile_and_end_others(tmp_path, monkeypatch):
    for bench in new_bench(tmp_path, monkeypatch, lock_after=2, profile_rate=0):
        bench.voices.speaker = 41
        with bench.open("early=false") as waiting:
            looked_at(bench, waiting)
            for seed in (4, 5):
                assert bench.stream(pcm(seed))[-2]["decision"] == "reject"
            waiting.send(pcm(6, seconds=1.5))
            problem, close = list(messages(waiting))[-2:]
        assert (problem["problem"], close["code"]) == ("urn:mvplda:locked", 4429)
        problem, close = bench.stream(pcm(7))
        assert (problem["status"], problem["problem"]) == (429, "urn:mvplda:locked")
        assert problem["retryAfter"] > 0
        assert len(bench.audit()) == 2


def test_streams_use_up_the_rate_of_a_profile(tmp_path, monkeypatch):
    for bench in new_bench(tmp_path, monkeypatch, profile_rate=2):
        for seed in (1, 2):
            assert bench.stream(pcm(seed))[-2]["decision"] == "accept"
        problem, close = bench.stream(pcm(3))
        assert (problem["problem"], close["code"]) == ("urn:mvplda:rate", 4429)


@pytest.mark.parametrize(
    "garbage", ["{", "[]", '{"type": "stop"}', "[" * 100_000, b"odd", '{"type": "end", "x": 1}']
)
def test_garbage_ends_a_stream(bench, garbage):
    with bench.open() as socket:
        socket.send(garbage)
        problem, close = messages(socket)
    assert (problem["status"], close["code"]) == (422, 4422)
    assert bench.audit() == []


def test_garbage_after_a_look_does_not_undo_it(bench):
    bench.voices.speaker = 41
    with bench.open("early=false") as socket:
        looked_at(bench, socket)
        socket.send("{")
        problem, _ = list(messages(socket))[-2:]
    assert problem["status"] == 422
    assert [entry["decision"] for entry in bench.audit()] == ["reject"]


@pytest.mark.parametrize("query", ["rate=7999", "rate=x", "far=2", "vector=1", "early=perhaps"])
def test_wrong_fields_are_refused(bench, query):
    problem, close = bench.stream(b"", query)
    assert (problem["status"], close["code"]) == (422, 4422)


def test_a_stream_that_is_too_long_is_decided_like_such_a_recording(bench):
    bench.voices.phrase = 1
    *_, decision, close = bench.stream(pcm(seconds=16.0), "early=false")
    assert (decision["decision"], decision["reason"]) == ("inconclusive", "too_long")
    assert close["code"] == 1000


def test_a_message_that_is_too_large_closes_the_stream(bench):
    with bench.open() as socket:
        with suppress(ConnectionClosed):
            socket.send(bytes(2**20 + 2))
        assert list(messages(socket))[-1]["code"] == 1009


def test_a_slow_stream_is_ended(tmp_path, monkeypatch):
    for bench in new_bench(tmp_path, monkeypatch, body_s=1.0):
        with bench.open() as socket:
            problem, close = messages(socket)
        assert (problem["problem"], close["code"]) == ("urn:mvplda:slow-body", 4408)
        with bench.open("early=false") as socket:
            looked_at(bench, socket)
            assert next(messages(socket))["status"] == 408
        assert len(bench.audit()) == 1


def test_streams_of_an_address_are_limited(tmp_path, monkeypatch):
    for bench in new_bench(tmp_path, monkeypatch, address_bodies=2):
        with bench.open() as first, bench.open() as second, bench.open() as third:
            assert next(messages(first))["problem"] == "urn:mvplda:busy"
            for socket in (second, third):
                socket.send(END)
                assert next(messages(socket))["type"] == "decision"


def test_looks_leave_out_busy_processors_and_do_not_fail(bench):
    bench.app._load["recordings"] = bench.app.settings.at_once
    *looks, decision, _ = bench.stream(pcm())
    assert {look["llr"] for look in looks} == {None}
    assert decision["decision"] == "accept"
    assert bench.audit()[0]["looks"] == 0


def test_a_stream_stays_open_longer_than_headers_may_take(tmp_path, monkeypatch):
    for bench in new_bench(tmp_path, monkeypatch, header_s=0.3):
        with bench.open("early=false") as socket:
            time.sleep(0.8)
            socket.send(pcm())
            socket.send(END)
            assert list(messages(socket))[-2]["decision"] == "accept"


def test_a_shut_down_ends_streams_without_a_decision(tmp_path, monkeypatch):
    with make_bench(sqlite_store(tmp_path), Settings(), make_model()) as found:
        with serving(found.calls.app, Settings()) as (server, port):
            bench = StreamBench(found, port, monkeypatch)
            with bench.open("early=false") as socket:
                looked_at(bench, socket)
                server.should_exit = True
                assert list(messages(socket))[-1]["code"] == 1012
        with found.service.store.read() as work:
            actions = work.run("SELECT action FROM audit").scalars().all()
        assert "verify" not in actions


# -- who may stream -------------------------------------------------------------------------


def refused(bench: StreamBench, query: str = "", **options: Any) -> tuple[int, dict[str, Any]]:
    """Return the status and the problem of a handshake that is refused."""
    with pytest.raises(InvalidStatus) as found, bench.open(query, **options):
        pass
    response = found.value.response
    return response.status_code, json.loads(response.body)


@pytest.fixture
def keyed(tmp_path, monkeypatch):
    """A service with a key of the role verify, of a small share of impostors."""
    for bench in new_bench(tmp_path, monkeypatch, profile_rate=0):
        keys = bench.bench.service.store.api_keys
        bench.keys = {
            "verdict": keys.put("shop", "verify", policy=KeyPolicy("verdict", 0.01)),
            "evidence": keys.put("bank", "verify", policy=KeyPolicy("evidence", 0.05)),
            "challenge": keys.put("desk", "verify", policy=KeyPolicy(require="challenge")),
            "countermeasure": keys.put(
                "post", "verify", policy=KeyPolicy(require="countermeasure")
            ),
        }
        bench.app.callers.is_open = False
        bench.bench.calls.headers["X-API-Key"] = keys.put("chief", "admin")
        yield bench


def key(value: str) -> dict[str, Any]:
    return {"additional_headers": {"X-API-Key": value}}


def test_a_stream_needs_a_key(keyed):
    assert refused(keyed)[0] == 401
    status, problem = refused(keyed, **key("wrong"))
    assert (status, problem["type"]) == (401, "urn:mvplda:key")
    bearer = {"additional_headers": {"Authorization": f"Bearer {keyed.keys['verdict']}"}}
    assert keyed.stream(pcm(), **bearer)[-2]["decision"] == "accept"


def test_browsers_send_the_key_as_a_subprotocol(keyed):
    protocols = ["mvplda", f"mvplda-key.{keyed.keys['evidence']}"]
    with keyed.open(subprotocols=protocols) as socket:
        assert socket.subprotocol == "mvplda"
        socket.send(pcm())
        socket.send(END)
        assert list(messages(socket))[-2]["decision"] == "accept"
    assert refused(keyed, subprotocols=["mvplda", "mvplda-key.wrong"])[0] == 401


def test_pages_of_other_sites_are_refused(keyed):
    status, problem = refused(keyed, origin="https://other.example", **key(keyed.keys["verdict"]))
    assert (status, problem["type"]) == (403, "urn:mvplda:origin")


def test_a_key_sees_of_looks_what_it_sees_of_decisions(keyed):
    *looks, decision, _ = keyed.stream(pcm(), **key(keyed.keys["verdict"]))
    assert {look[name] for look in looks for name in ("llr", "llrSpeaker", "llrPhrase")} == {None}
    assert (decision["decision"], decision["llr"]) == ("accept", None)
    *looks, decision, _ = keyed.stream(pcm(2), **key(keyed.keys["evidence"]))
    assert None not in {look["llrSpeaker"] for look in looks}


def test_a_key_chooses_no_larger_share_of_impostors(keyed):
    problem, _ = keyed.stream(pcm(), "far=0.05", **key(keyed.keys["verdict"]))
    assert (problem["status"], problem["problem"]) == (403, "urn:mvplda:policy")
    assert keyed.stream(pcm(), "far=0.05", **key(keyed.keys["evidence"]))[-1]["code"] == 1000


def test_required_protection_is_required_of_streams(keyed):
    problem, _ = keyed.stream(pcm(), **key(keyed.keys["challenge"]))
    assert (problem["status"], problem["required"]) == (403, "challenge")
    problem, _ = keyed.stream(pcm(), **key(keyed.keys["countermeasure"]))
    assert (problem["status"], problem["required"]) == (403, "countermeasure")


def test_a_challenge_is_answered_by_a_stream_once(bench):
    for vector in bench.bench.world.say(40, 1, 3):
        fields = {"phrase": "close the door"}
        assert bench.bench.calls.enrol(bench.name, vector, fields=fields).status_code == 201
    asked = bench.bench.calls("POST", "/v1/challenges", json={"profileId": bench.name}).json()
    # phrases of the drawn model need no enrolment
    bench.voices.phrase = [word.replace("-", " ") for word in WORDS].index(asked["phrases"][0])
    query = f"challengeId={asked['challengeId']}"
    assert bench.stream(pcm(), query)[-2]["decision"] == "accept"
    problem, _ = bench.stream(pcm(2), query)
    assert problem["problem"] == "urn:mvplda:challenge-used"


def test_a_name_that_nobody_has_is_answered_like_a_wrong_voice(keyed):
    calls = Calls(keyed.bench.calls.app, {"X-API-Key": keyed.keys["verdict"]})
    for vector in keyed.bench.world.say(40, 1, 3):
        keyed.bench.calls.enrol(keyed.name, vector, fields={"phrase": "close the door"})
    keyed.voices.speaker = 41
    found = []
    for number, user in enumerate(("speaker 40", "nobody")):
        asked = calls("POST", "/v1/challenges", json={"userId": user}).json()
        data = pcm(number, seconds=2.5)
        query = f"challengeId={asked['challengeId']}"
        answers = keyed.stream(data, query, name=asked["profileId"], **key(keyed.keys["verdict"]))
        found.append([{**answer, "resultId": "", "seconds": 0, "speechS": 0} for answer in answers])
    assert found[0] == found[1]
    assert found[0][-2]["decision"] == "reject"


def test_a_repeated_stream_has_the_decision_of_the_first(bench):
    options = {"additional_headers": {"Idempotency-Key": "once"}}
    first, _ = bench.stream(pcm(), **options)[-2:]
    bench.voices.speaker = 41
    again, close = bench.stream(b"", **options)
    assert again == first
    assert close["code"] == 1000
    by_query, _ = bench.stream(b"", "idempotencyKey=once")
    assert by_query == first
    problem, _ = bench.stream(b"", "far=0.05", **options)
    assert problem["problem"] == "urn:mvplda:idempotency-key"
    assert len(bench.audit()) == 1


def test_one_call_is_one_stream_at_a_time(bench):
    with bench.open("idempotencyKey=once") as socket:
        problem, close = bench.stream(b"", "idempotencyKey=once")
        assert (problem["problem"], close["code"]) == ("urn:mvplda:in-progress", 4409)
        socket.send(END)
        assert next(messages(socket))["type"] == "decision"


def test_missing_people_and_paths_are_refused(bench):
    problem, close = bench.stream(pcm(), name="0" * 32)
    assert (problem["status"], close["code"]) == (404, 4404)
    with pytest.raises(InvalidStatus) as found:
        connect(f"ws://127.0.0.1:{bench.port}/v1/other")
    assert found.value.response.status_code == 404


def test_a_tenant_streams_to_its_own_people_only(tmp_path, monkeypatch):
    for bench in new_bench(tmp_path, monkeypatch, profile_rate=0):
        store = bench.bench.service.store
        for tenant in ("acme", "globex"):
            put_tenant(store, bench.app.settings, tenant, {})
        values = {
            name: store.api_keys.put(name, "admin", tenant=name) for name in ("acme", "globex")
        }
        bench.app.callers.is_open = False
        calls = Calls(bench.bench.calls.app, {"X-API-Key": values["acme"]})
        name = calls.create("open the door", "ann")
        for vector in bench.bench.world.say(40, 0, 3):
            assert calls.enrol(name, vector).status_code == 201
        tenant = bench.app._tenants.find("acme")
        monkeypatch.setattr(tenant, "process", bench.voices.process)
        assert bench.stream(pcm(), name=name, **key(values["acme"]))[-2]["decision"] == "accept"
        problem, _ = bench.stream(pcm(2), name=name, **key(values["globex"]))
        assert problem["status"] == 404
        problem, _ = bench.stream(pcm(3), **key(values["acme"]))
        assert problem["status"] == 404


def test_metrics_count_streams_looks_and_decisions(bench):
    bench.stream(pcm())
    text = bench.app.metrics.text().decode()
    assert "mvplda_looks_total 2.0" in text
    assert 'mvplda_decisions_total{decision="accept",reason=""} 1.0' in text
    route = 'route="/v1/profiles/{profile_id}/stream",status="101"'
    bench.wait_for(
        lambda: f"mvplda_requests_total{{{route}}} 1.0" in bench.app.metrics.text().decode()
    )
    assert "mvplda_streams 0.0" in text


# -- the clients of Python -----------------------------------------------------------------------


def blocks(data: bytes) -> Iterator[bytes]:
    for start in range(0, len(data), 2 * BLOCK):
        yield data[start : start + 2 * BLOCK]


def client_of(bench: StreamBench, kind: Any = Client, key: str | None = None) -> Any:
    retries = RetryPolicy(first_wait_s=0.05)
    return kind(f"http://127.0.0.1:{bench.port}", key, retries=retries)


def test_the_client_streams_blocks(bench):
    looks: list[StreamLook] = []
    with client_of(bench) as voice:
        decision = voice.verify_stream(bench.name, blocks(pcm(seconds=4.0)), on_look=looks.append)
        assert decision.is_accepted
        assert [round(look.speech_s, 1) for look in looks] == [0.6, 1.2]
        assert looks[0].llr_speaker > 0
        whole = voice.verify_stream(
            bench.name, blocks(pcm(2)), early=False, far=0.05, phrase="open the door"
        )
        assert whole.raw["operatingPoint"]["wantedFar"] == 0.05
        with pytest.raises(ServiceError, match="404 not-found"):
            voice.verify_stream("0" * 32, blocks(pcm()))
        with pytest.raises(ServiceError, match="422 fields") as refused_call:
            voice.verify_stream(bench.name, blocks(pcm()), rate=1)
        assert refused_call.value.retry_after is None


def test_the_asynchronous_client_streams_blocks(bench):
    async def some() -> AsyncIterator[bytes]:
        for block in blocks(pcm(seconds=4.0)):
            await asyncio.sleep(0.001)
            yield block

    async def stream() -> list[str]:
        async with client_of(bench, AsyncClient) as voice:
            first = await voice.verify_stream(bench.name, some())
            second = await voice.verify_stream(bench.name, blocks(pcm(2)))
            with pytest.raises(ServiceError, match="422 fields"):
                await voice.verify_stream(bench.name, blocks(pcm()), far=2.0)
            return [first.verdict, second.verdict]

    assert asyncio.run(stream()) == ["accept", "accept"]
    with client_of(bench) as voice, pytest.raises(TypeError, match="AsyncClient"):
        voice.verify_stream(bench.name, some())


def test_clients_with_a_wrong_key_are_refused(keyed):
    with client_of(keyed, key="wrong") as voice, pytest.raises(ServiceError, match="401 key"):
        voice.verify_stream(keyed.name, blocks(pcm()))
    with client_of(keyed, key=keyed.keys["verdict"]) as voice:
        assert voice.verify_stream(keyed.name, blocks(pcm())).is_accepted

    async def stream() -> None:
        async with client_of(keyed, AsyncClient, "wrong") as voice:
            await voice.verify_stream(keyed.name, blocks(pcm()))

    with pytest.raises(ServiceError, match="401 key"):
        asyncio.run(stream())


class Broken:
    """Connection that is lost once the service has decided."""

    def __init__(self, connect: Any) -> None:
        self.connect, self.count = connect, 0

    def __call__(self, **options: Any) -> Any:
        self.count += 1
        found = self.connect(**options)
        if self.count == 1:
            receive = found.recv

            def recv(timeout: float) -> Any:
                message = receive(timeout=timeout)
                if json.loads(message)["type"] == "decision":
                    found.socket.close()
                    raise ConnectionClosedError(None, None)
                return message

            found.recv = recv
        return found


def test_the_client_finds_a_decision_that_was_lost(bench, monkeypatch):
    broken = Broken(connect)
    monkeypatch.setattr("websockets.sync.client.connect", broken)
    with client_of(bench) as voice:
        assert voice.verify_stream(bench.name, blocks(pcm())).is_accepted
    assert broken.count >= 2
    assert len(bench.audit()) == 1


def test_a_client_without_a_service_has_no_answer(bench):
    bench.port = free_port()
    with (
        client_of(bench) as voice,
        pytest.raises(NoAnswerError, match="before the service decided"),
    ):
        voice.verify_stream(bench.name, blocks(pcm()))


# -- the page ------------------------------------------------------------------------------------

PAGE = Path(__file__).parents[2] / "docs" / "stream.md"


def block(language: str) -> str:
    """Return the block of the page in a language."""
    [found] = re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
    return str(found)


def test_the_python_of_the_page_runs(bench, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("now.pcm").write_bytes(pcm(seconds=3.0))
    code = block("python").replace("http://127.0.0.1:8765", f"http://127.0.0.1:{bench.port}")
    exec(code, {"key": None, "profile_id": bench.name})
    *looks, verdict = capsys.readouterr().out.split()
    assert verdict == "accept"
    assert all(float(look) > 0 for look in looks)


SCRIPT = """async ([url, key, numbers]) => {
  const looks = [];
  const sound = Int16Array.from(numbers);
  async function* blocks() {
    for (let start = 0; start < sound.length; start += 1600) {
      yield sound.subarray(start, start + 1600);
    }
  }
  try {
    const decision = await verifyStream(url, key, blocks(), (look) => looks.push(look));
    return [decision.decision, looks.length];
  } catch (error) {
    return [error.message, looks.length];
  }
}"""


@pytest.mark.slow
def test_the_javascript_of_the_page_runs_in_a_browser(keyed):
    playwright = pytest.importorskip("playwright.sync_api")
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("there is no Chromium")
    url = f"127.0.0.1:{keyed.port}"
    address = f"ws://{url}/v1/profiles/{keyed.name}/stream"
    numbers = np.frombuffer(pcm(seconds=3.0), "<i2").tolist()
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page()
        page.goto(f"http://{url}/")
        page.evaluate(f"() => {{ {block('js')} window.verifyStream = verifyStream; }}")
        value = keyed.keys["evidence"]
        assert page.evaluate(SCRIPT, [address, value, numbers]) == ["accept", 2]
        refused, _ = page.evaluate(SCRIPT, [address, "wrong", numbers])
        assert "refused" in refused
        unknown = address.replace(keyed.name, "0" * 32)
        assert page.evaluate(SCRIPT, [unknown, value, numbers])[0].startswith("404: ")
        browser.close()
