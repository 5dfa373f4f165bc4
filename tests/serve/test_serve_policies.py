"""Policies of API keys: what a caller may ask, and what it gets to see; keys of the environment."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

pytest.importorskip("fastapi")

from service_problems import WORDS, Bench, Calls, make_bench, sqlite_store, write_model

from mvplda.cli.program import main
from mvplda.exceptions import ParameterError
from mvplda.serve.app import create_app, open_service, open_store
from mvplda.serve.keys import KeyPolicy
from mvplda.serve.settings import Settings

# (method, path, lowest role); "" needs no key.
MATRIX = [
    ("GET", "/v1/health", ""),
    ("GET", "/v1/ready", ""),
    ("GET", "/metrics", ""),
    ("GET", "/v1/model", "verify"),
    ("GET", "/v1/key", "verify"),
    ("POST", "/v1/profiles/{}/verify", "verify"),
    ("POST", "/v1/identify", "verify"),
    ("POST", "/v1/challenges", "verify"),
    ("GET", "/v1/profiles/{}", "verify"),
    ("GET", "/v1/profiles", "enrol"),
    ("POST", "/v1/profiles", "enrol"),
    ("POST", "/v1/profiles/{}/enrollments", "enrol"),
    ("DELETE", "/v1/profiles/{}/enrollments/1", "enrol"),
    ("POST", "/v1/profiles/{}/reset", "enrol"),
    ("POST", "/v1/profiles/{}/unlock", "enrol"),
    ("POST", "/v1/profiles/{}/opt-out", "enrol"),
    ("DELETE", "/v1/profiles/{}", "enrol"),
    ("GET", "/v1/profiles/{}/export", "admin"),
    ("GET", "/v1/audit", "admin"),
]
ROLES = ("", "verify", "enrol", "admin")


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with make_bench(sqlite_store(tmp_path)) as found:
        yield found


def caller(bench: Bench, name: str, role: str, **policy: Any) -> Calls:
    """Calls with a new key."""
    key = bench.service.store.api_keys.put(name, role, policy=KeyPolicy(**policy))
    return Calls(create_app(bench.service), {"X-API-Key": key})


def owner(bench: Bench) -> list[float]:
    vector: list[float] = bench.world.say(40, 0)[0].tolist()
    return vector


# -- roles ---------------------------------------------------------------------------------


def test_every_endpoint_has_its_role(bench: Bench) -> None:
    described = bench.calls("GET", "/openapi.json").json()["paths"]
    operations = {(method.upper(), path) for path, calls in described.items() for method in calls}
    templates = {
        (
            method,
            path.replace("{}", "{profile_id}")
            .replace("/1", "/{number}")
            .replace("v/{number}", "v1"),
        )
        for method, path, _ in MATRIX
    }
    assert templates == operations
    calls = {role: caller(bench, role, role) for role in ROLES[1:]}
    calls[""] = Calls(create_app(bench.service))
    for method, path, lowest in MATRIX:
        for role in ROLES:
            options = {"json": {}} if method == "POST" else {}
            status = calls[role](method, path.format("0" * 32), **options).status_code
            if ROLES.index(role) >= ROLES.index(lowest):
                assert status not in (401, 403), (method, path, role)
            else:
                assert status == (403 if role else 401), (method, path, role)


def test_a_verify_key_reads_no_phrase(bench: Bench) -> None:
    name = bench.person(40)
    shop = caller(bench, "shop", "verify")
    found = [
        shop("GET", f"/v1/profiles/{name}").json(),
        shop("GET", "/v1/profiles", params={"userId": "speaker 40"}).json()["items"][0],
        shop("POST", f"/v1/profiles/{name}/verify", json={"vector": owner(bench)}).json(),
        shop("POST", "/v1/identify", json={"vector": owner(bench)}).json(),
    ]
    assert found[0]["phrases"] is None
    assert found[0]["state"] == "enrolled"
    assert "open the door" not in json.dumps(found)
    desk = caller(bench, "desk", "enrol")
    assert desk("GET", f"/v1/profiles/{name}").json()["phrases"] == ["open the door"]


# -- detail --------------------------------------------------------------------------------


def test_a_verdict_does_not_reveal_which_half_failed(bench: Bench) -> None:
    name = bench.person(40)
    shop = caller(bench, "shop", "verify")
    path = f"/v1/profiles/{name}/verify"
    wrong = [(41, 0), (40, 1), (41, 1)]
    found = [
        shop(
            "POST",
            path,
            json={"vector": bench.world.say(*who)[0].tolist(), "phrase": "open the door"},
        )
        for who in wrong
    ]
    answers = [{k: v for k, v in f.json().items() if k != "resultId"} for f in found]
    assert answers[0]["decision"] == "reject"
    assert answers[0] == answers[1] == answers[2]
    accepted = shop("POST", path, json={"vector": owner(bench)}).json()
    assert accepted["decision"] == "accept"
    assert {k for k, v in accepted.items() if v is not None} == {
        "resultId",
        "decision",
        "modelVersion",
    }
    # the audit has everything
    entries = bench.service.find_audit(10, 2**31 - 1, action="verify").items
    assert [dict(entry)["reason"] for entry in entries[1:4]] == [
        "both",
        "wrong_phrase",
        "wrong_speaker",
    ]
    assert all(dict(entry)["llr"] is not None for entry in entries)


def test_halves_show_the_verdict_of_each_half(bench: Bench) -> None:
    name = bench.person(40)
    bank = caller(bench, "bank", "verify", detail="halves")
    body = {"vector": bench.world.say(41, 0)[0].tolist(), "phrase": "open the door"}
    answer = bank("POST", f"/v1/profiles/{name}/verify", json=body).json()
    assert answer["reason"] == "wrong_speaker"
    assert (answer["voice"], answer["phrase"]) == ("reject", "accept")
    assert answer["llr"] is answer["posteriors"] is answer["threshold"] is None


def test_reasons_of_a_recording_are_part_of_a_verdict(bench: Bench) -> None:
    name = bench.calls.create()
    shop = caller(bench, "shop", "verify")
    answer = shop("POST", f"/v1/profiles/{name}/verify", json={"vector": owner(bench)}).json()
    assert (answer["decision"], answer["reason"]) == ("inconclusive", "not_enrolled")


def test_identification_shows_a_verdict_alone(bench: Bench) -> None:
    names = [bench.person(speaker) for speaker in (40, 41, 42)]
    body = {"vector": owner(bench)}
    everything = caller(bench, "lab", "verify", detail="evidence")(
        "POST", "/v1/identify", json=body
    ).json()
    assert len(everything["candidates"]) == 3
    answer = caller(bench, "shop", "verify")("POST", "/v1/identify", json=body).json()
    assert answer["identified"] == names[0]
    assert [c["profileId"] for c in answer["candidates"]] == [names[0]]
    assert answer["candidates"][0]["llr"] is answer["noneOfThem"] is None


# -- far and protection --------------------------------------------------------------------


def test_a_key_chooses_no_larger_far_than_its_policy_allows(bench: Bench) -> None:
    name = bench.person(40)
    path = f"/v1/profiles/{name}/verify"

    def verify(calls: Calls, far: float | None) -> Any:
        body = {"vector": owner(bench)} | ({} if far is None else {"far": far})
        return calls("POST", path, json=body)

    shop = caller(bench, "shop", "verify", detail="evidence")
    assert verify(shop, 0.01).status_code == 200
    refused = verify(shop, 0.05)
    assert (refused.status_code, refused.json()["type"]) == (403, "urn:mvplda:policy")
    assert verify(shop, 0.004).json()["threshold"] == 5.0
    bank = caller(bench, "bank", "verify", detail="evidence", far=0.004)
    assert verify(bank, 0.01).status_code == 403
    # without far, the policy is stricter than the service
    assert verify(bank, None).json()["threshold"] == 5.0
    lax = caller(bench, "lax", "verify", detail="evidence", far=0.05)
    assert verify(lax, 0.05).json()["threshold"] == 2.0
    assert verify(lax, None).json()["threshold"] == 4.0
    assert verify(caller(bench, "desk", "enrol"), 0.05).status_code == 200


@pytest.mark.parametrize("by", ["key", "service"])
def test_protection_against_recordings_is_required(tmp_path: Path, by: str) -> None:
    settings = Settings(require="challenge" if by == "service" else "none")
    with make_bench(sqlite_store(tmp_path), settings) as bench:
        name = bench.calls.create()
        for phrase, text in ((0, "open the door"), (1, "close the door")):
            for vector in bench.world.say(40, phrase, 3):
                assert bench.calls.enrol(name, vector, fields={"phrase": text}).status_code == 201
        policy = {"require": "challenge"} if by == "key" else {}
        shop = caller(bench, "shop", "verify", **policy)
        path = f"/v1/profiles/{name}/verify"
        refused = shop("POST", path, json={"vector": owner(bench), "countermeasureLlr": 3.0})
        assert (refused.status_code, refused.json()["required"]) == (403, "challenge")
        assert shop("GET", "/v1/key").json()["require"] == "challenge"
        challenge = shop("POST", "/v1/challenges", json={"profileId": name}).json()
        said = WORDS.index(challenge["phrases"][0].replace(" ", "-"))
        vector = bench.world.say(40, said)[0].tolist()
        body = {"vector": vector, "challengeId": challenge["challengeId"]}
        assert shop("POST", path, json=body).json()["decision"] == "accept"


def test_either_protection_suffices(bench: Bench) -> None:
    name = bench.person(40)
    path = f"/v1/profiles/{name}/verify"
    shop = caller(bench, "shop", "verify", require="either")
    assert shop("POST", path, json={"vector": owner(bench)}).status_code == 403
    body = {"vector": owner(bench), "countermeasureLlr": 10.0}
    assert shop("POST", path, json=body).json()["decision"] == "accept"
    machine = caller(bench, "machine", "verify", require="countermeasure")
    assert machine("POST", path, json={"vector": owner(bench)}).status_code == 403
    assert machine("POST", path, json={**body, "vector": owner(bench)}).status_code == 200


def test_a_caller_reads_its_own_policy(bench: Bench) -> None:
    found = caller(bench, "shop", "verify")("GET", "/v1/key").json()
    assert found == {
        "name": "shop", "role": "verify", "detail": "verdict", "far": 0.01, "require": "none",
    }  # fmt: skip
    found = caller(bench, "desk", "admin", far=0.004, detail="halves")("GET", "/v1/key").json()
    assert (found["detail"], found["far"]) == ("halves", 0.004)


# -- keys of the environment ---------------------------------------------------------------


def test_a_key_taken_out_of_the_environment_is_invalid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(data=tmp_path, model=write_model(tmp_path))
    shop = "shop:verify,detail=halves,far=0.004,require=either:shop-shop-shop-1"
    monkeypatch.setenv("MVPLDA_API_KEYS", f"old:admin:old-old-old-old-1 {shop}")
    old, bank = ({"X-API-Key": key} for key in ("old-old-old-old-1", "shop-shop-shop-1"))
    calls = Calls(create_app(open_service(settings)))
    assert calls("GET", "/v1/audit", headers=old).status_code == 200
    policy = calls("GET", "/v1/key", headers=bank).json()
    assert policy == {
        "name": "shop", "role": "verify", "detail": "halves", "far": 0.004, "require": "either",
    }  # fmt: skip
    with pytest.raises(ParameterError, match="comes from the environment variable MVPLDA_API_KEYS"):
        open_store(settings).api_keys.drop("old")
    monkeypatch.setenv("MVPLDA_API_KEYS", shop)
    calls = Calls(create_app(open_service(settings)))
    assert calls("GET", "/v1/audit", headers=old).status_code == 401
    assert calls("GET", "/v1/key", headers=bank).status_code == 200
    # without the last one, the service does not open itself to everybody on the machine
    monkeypatch.delenv("MVPLDA_API_KEYS")
    with pytest.raises(ParameterError, match="served with API keys"):
        open_service(settings)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("a:admin:short", "expected NAME:ROLE:KEY"),
        ("a:verify,detail=all:0123456789abcdef", "wrong option: detail"),
        ("a:verify,far=2:0123456789abcdef", "wrong option: far"),
        ("a:verify,colour=red:0123456789abcdef", "wrong option: colour"),
        ("a:admin:0123456789abcdef b:admin:0123456789abcdef", "have the same API key"),
    ],
)
def test_wrong_keys_of_the_environment_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entry: str, message: str
) -> None:
    monkeypatch.setenv("MVPLDA_API_KEYS", entry)
    with pytest.raises(ParameterError, match=message):
        open_store(Settings(data=tmp_path))


def test_keys_with_policies_are_made_on_the_command_line(tmp_path: Path) -> None:
    def run(*arguments: str) -> str:
        result = CliRunner().invoke(main, ["serve", "--data", str(tmp_path), "key", *arguments])
        assert result.exit_code == 0, result.output
        return result.output.strip()

    key = run(
        "bank", "--role", "verify", "--detail", "halves", "--far", "0.001", "--require", "challenge"
    )
    store = open_store(Settings(data=tmp_path))
    found = store.api_keys.find(key)
    assert found is not None
    assert found.policy == KeyPolicy("halves", 0.001, "challenge")
    # whoever revokes the last key wants local calls without a key again
    assert not store.api_keys.are_lost()
    assert run("bank", "--revoke") == "the key bank is revoked"
    assert not store.api_keys.are_lost()
    assert store.api_keys.names() == []
