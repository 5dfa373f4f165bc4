"""Decoy challenges: the answers about a name do not reveal whether its voice is enrolled."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

pytest.importorskip("fastapi")

from service_problems import WORDS, Bench, Calls, make_bench, sqlite_store

from mvplda.serve.app import create_app
from mvplda.serve.decoys import Decoys
from mvplda.serve.keys import Caller
from mvplda.serve.recordings import ProcessedRecording
from mvplda.serve.schemas import VerifyReply, VerifyRequest
from mvplda.serve.settings import Settings
from mvplda.serve.verifier import Attempt

TEXTS = ("open the door", "close the door")
# Fields of an answer that differ between two answers of one kind.
RANDOM = ("resultId", "challengeId", "profileId", "expires")


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """A service that requires challenges, with three enrolled people and the calls of a log-in page."""
    with make_bench(sqlite_store(tmp_path), Settings(require="challenge", lock_after=2)) as found:
        for speaker in (40, 41, 42):
            enrol(found, speaker, TEXTS)
        key = found.service.store.api_keys.put("login", "verify")
        found.calls = Calls(create_app(found.service), {"X-API-Key": key})
        yield found


def enrol(bench: Bench, speaker: int, texts: tuple[str, ...]) -> str:
    name: str = bench.calls.create(texts[0], f"speaker {speaker}")
    for number, text in enumerate(texts):
        for vector in bench.world.say(speaker, number, 3):
            assert bench.calls.enrol(name, vector, fields={"phrase": text}).status_code == 201
    return name


def ask(bench: Bench, user: str) -> dict[str, Any]:
    answer = bench.calls("POST", "/v1/challenges", json={"userId": user})
    assert answer.status_code == 201, answer.text
    body: dict[str, Any] = answer.json()
    return body


def say(bench: Bench, challenge: dict[str, Any], speaker: int) -> httpx.Response:
    label = challenge["phrases"][0].replace(" ", "-")
    vector = bench.world.say(speaker, WORDS.index(label) if label in WORDS else 0)[0]
    body = {"vector": vector.tolist(), "challengeId": challenge["challengeId"]}
    return bench.calls("POST", f"/v1/profiles/{challenge['profileId']}/verify", json=body)


def plain(answer: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in answer.items() if name not in RANDOM}


def test_an_unknown_name_is_answered_like_a_wrong_voice(bench: Bench) -> None:
    known, unknown = ask(bench, "speaker 40"), ask(bench, "nobody")
    assert set(known) == set(unknown)
    assert [len(known[name]) for name in RANDOM[1:]] == [len(unknown[name]) for name in RANDOM[1:]]
    wrong, decoy = say(bench, known, 50), say(bench, unknown, 50)
    assert (wrong.status_code, decoy.status_code) == (200, 200)
    assert plain(wrong.json()) == plain(decoy.json())
    assert decoy.json()["decision"] == "reject"
    # the owner is accepted by the same calls
    assert say(bench, ask(bench, "speaker 40"), 40).json()["decision"] == "accept"


def test_a_decoy_stays_open_until_it_is_answered_or_expires(bench: Bench) -> None:
    first = ask(bench, "nobody")
    assert ask(bench, "nobody") == first
    bench.clock.now += 61
    expired = say(bench, first, 50)
    assert (expired.status_code, expired.json()["type"]) == (409, "urn:mvplda:challenge-expired")
    second = ask(bench, "nobody")
    assert second["challengeId"] != first["challengeId"]
    assert second["profileId"] == first["profileId"]
    assert ask(bench, "no one")["profileId"] != first["profileId"]
    assert say(bench, second, 50).json()["decision"] == "reject"
    assert ask(bench, "nobody")["challengeId"] != second["challengeId"]


def test_people_without_a_challenge_get_decoys_too(bench: Bench) -> None:
    admin = {"X-API-Key": bench.service.store.api_keys.put("desk", "admin")}
    login, bench.calls = bench.calls, Calls(create_app(bench.service), admin)
    empty = bench.calls.create(TEXTS[0], "speaker 44")
    twins = [bench.calls.create(TEXTS[0], "twin") for _ in range(2)]
    bench.calls = login
    assert ask(bench, "speaker 44")["profileId"] != empty
    assert ask(bench, "twin")["profileId"] not in twins
    # two rejections lock a profile: a locked name is answered like any other
    for _ in range(2):
        say(bench, ask(bench, "speaker 41"), 50)
    locked = ask(bench, "speaker 41")
    answer = say(bench, locked, 41)
    assert (answer.status_code, answer.json()["decision"]) == (200, "reject")
    # the audit has the reasons
    entries = bench.service.find_audit(100, 2**31 - 1, action="challenge").items
    reasons = [getattr(entry, "reason", None) for entry in entries]
    assert {"state", "ambiguous_name", "locked"} <= set(reasons)


def test_an_unusable_recording_does_not_end_a_decoy(bench: Bench) -> None:
    challenge = ask(bench, "nobody")
    request = VerifyRequest(challengeId=challenge["challengeId"])
    quiet = ProcessedRecording(None, reason="too_quiet")
    attempt = Attempt(Caller("login", "verify"), challenge["profileId"], quiet, request)
    reply = bench.service.verify([attempt])[0]
    assert isinstance(reply, VerifyReply)
    assert (reply.decision, reply.reason) == ("inconclusive", "too_quiet")
    assert ask(bench, "nobody") == challenge


def test_a_phrase_of_one_person_is_not_a_decoy(bench: Bench) -> None:
    admin = {"X-API-Key": bench.service.store.api_keys.put("desk", "admin")}
    bench.calls = Calls(create_app(bench.service), admin)
    enrol(bench, 45, (TEXTS[0], "a secret of my own"))
    decoys = Decoys(bench.service.profiles)
    with bench.service.store.read() as work:
        texts = {text for n in range(20) for text in decoys._texts(work, f"nobody {n}").values()}
    assert set(TEXTS) <= texts
    assert "a secret of my own" not in texts


def test_a_challenge_needs_one_name(bench: Bench) -> None:
    for body in ({}, {"userId": "ann", "profileId": "0" * 32}):
        answer = bench.calls("POST", "/v1/challenges", json=body)
        assert answer.status_code == 422
        assert "expected either profileId or userId" in answer.json()["detail"]


def test_an_id_without_a_decoy_is_unknown(bench: Bench) -> None:
    challenge = {**ask(bench, "nobody"), "challengeId": "0" * 32}
    assert say(bench, challenge, 50).status_code == 404
