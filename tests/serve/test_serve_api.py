"""The endpoints, states and reasons of the service, on vectors that were drawn; on SQLite and on PostgreSQL."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

pytest.importorskip("fastapi")

import sqlalchemy as sa
from service_problems import (
    MASTER_KEY,
    ME,
    WORDS,
    Bench,
    Calls,
    make_bench,
    make_model,
    sqlite_store,
)

from mvplda.serve.app import create_app
from mvplda.serve.recordings import ProcessedRecording
from mvplda.serve.schemas import VerifyReply, VerifyRequest
from mvplda.serve.service import Service
from mvplda.serve.settings import Settings
from mvplda.serve.store import Store
from mvplda.serve.verifier import Attempt

CASES = {"TC": (40, 0), "TW": (40, 1), "IC": (41, 0), "IW": (41, 1)}


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request, tmp_path):
    if request.param == "sqlite":
        return sqlite_store(tmp_path)
    return Store(request.getfixturevalue("postgres").new_database())


@pytest.fixture
def bench(store):
    with make_bench(store) as found:
        yield found


@pytest.fixture
def small(tmp_path):
    """On SQLite alone, for what does not touch the database's own ways."""
    with make_bench(sqlite_store(tmp_path)) as found:
        yield found


def get(bench: Bench, name: str, rest: str = "") -> Any:
    return bench.calls("GET", f"/v1/profiles/{name}{rest}").json()


def test_four_things_can_happen_and_the_answer_says_which(bench):
    name = bench.person(40)
    found = {
        kind: bench.calls.verify(name, bench.world.say(*who)[0], phrase="Open the door!").json()
        for kind, who in CASES.items()
    }
    assert [found[kind]["decision"] for kind in found] == ["accept", "reject", "reject", "reject"]
    assert [found[kind]["reason"] for kind in found] == [
        None,
        "wrong_phrase",
        "wrong_speaker",
        "both",
    ]
    for kind, answer in found.items():
        assert max(answer["posteriors"], key=answer["posteriors"].get) == kind
        assert sum(answer["posteriors"].values()) == pytest.approx(1)
        assert (answer["llrSpeaker"] > 0) == (kind[0] == "T")
        assert (answer["llrPhrase"] > 0) == (kind[1] == "C")
        assert answer["operatingPoint"]["frrInterval"][0] <= answer["operatingPoint"]["frr"]
    record = bench.calls("GET", "/v1/audit", params={"resultId": found["IC"]["resultId"]}).json()[
        "items"
    ]
    assert [entry["reason"] for entry in record] == ["wrong_speaker"]
    assert "vector" not in json.dumps(record)


def test_a_profile_goes_from_created_to_enrolled_and_back(bench):
    name = bench.calls.create()
    states = [(get(bench, name)["state"], get(bench, name)["remainingEnrollmentsCount"])]
    for vector in bench.world.say(40, 0, 3):
        answer = bench.calls.enrol(name, vector)
        states.append((answer.json()["state"], answer.json()["remainingEnrollmentsCount"]))
    assert states == [("created", 3), ("enrolling", 2), ("enrolling", 1), ("enrolled", 0)]
    assert answer.json()["consistencyLlr"] > 0
    assert answer.json()["phraseLlr"] > 0
    assert bench.calls.verify(name, bench.world.say(40, 0)[0]).json()["decision"] == "accept"
    assert (
        bench.calls("DELETE", f"/v1/profiles/{name}/enrollments/2").json()["state"] == "enrolling"
    )
    assert bench.calls.verify(name, bench.world.say(40, 0)[0]).json()["reason"] == "not_enrolled"
    assert bench.calls("POST", f"/v1/profiles/{name}/reset").json()["state"] == "created"
    assert bench.calls("DELETE", f"/v1/profiles/{name}/enrollments/2").status_code == 404


def test_an_enrolment_that_is_taken_out_leaves_nothing_behind(bench):
    vectors = bench.world.say(40, 0, 4)
    name, other = bench.calls.create(), bench.calls.create()
    for vector in vectors:
        bench.calls.enrol(name, vector)
    for vector in vectors[[3, 0, 2]]:
        bench.calls.enrol(other, vector)
    bench.calls("DELETE", f"/v1/profiles/{name}/enrollments/2")

    def total(profile: str) -> bytes:
        service = bench.service
        with service.store.read() as work:
            (cell,) = service.templates.cells(work, service.profiles.row(work, profile))
        return cell.total.tobytes()

    assert total(name) == total(other)
    test = bench.world.say(40, 0)[0]
    assert (
        bench.calls.verify(name, test).json()["llr"]
        == bench.calls.verify(other, test).json()["llr"]
    )


def test_an_enrolment_of_another_voice_or_phrase_is_refused_and_changes_nothing(bench):
    name = bench.person(40)
    before = get(bench, name)
    for who, reason in (((41, 0), "wrong_speaker"), ((40, 1), "wrong_phrase")):
        answer = bench.calls.enrol(name, bench.world.say(*who)[0])
        assert (answer.status_code, answer.json()["reason"]) == (422, reason)
        assert answer.headers["content-type"] == "application/problem+json"
    assert get(bench, name) == before


def test_after_a_bad_first_take_the_right_ones_are_kept(bench):
    name = bench.calls.create()
    bench.calls.enrol(name, bench.world.say(40, 1)[0])
    right = bench.world.say(40, 0, 4)
    states = [bench.calls.enrol(name, vector).status_code for vector in right[:2]]
    assert states == [422, 201]
    record = bench.calls("GET", "/v1/audit", params={"action": "refuse-enrolment"}).json()["items"]
    assert [entry["reason"] for entry in record if entry["profileId"] == name] == ["wrong_phrase"]
    # a second phrase, too, can be enrolled after a bad first take of it
    enrolled = bench.person(44)
    fields = {"phrase": "close the window"}
    bench.calls.enrol(enrolled, bench.world.say(44, 3)[0], fields=fields)
    states = [
        bench.calls.enrol(enrolled, vector, fields=fields).status_code
        for vector in bench.world.say(44, 2, 2)
    ]
    assert states == [422, 201]
    # what is enrolled is held to
    for vector in bench.world.say(44, 1, 3):
        assert bench.calls.enrol(enrolled, vector).status_code == 422


def test_no_consent_no_profile(small):
    answer = small.calls("POST", "/v1/profiles", json={"consent": {"given": False}})
    assert (answer.status_code, answer.json()["type"]) == (422, "urn:mvplda:no-consent")
    assert small.calls("GET", "/v1/profiles").json() == {"items": [], "next": None}


def test_characters_that_a_database_cannot_hold_are_refused(bench):
    answer = bench.calls(
        "POST", "/v1/profiles", json={"userId": "a\x00b", "consent": {"given": True}}
    )
    assert answer.status_code in (201, 422)
    assert bench.calls("GET", "/v1/profiles/a%00b").status_code in (404, 422)


def test_lists_come_in_pages(bench):
    names = sorted(bench.calls.create(user=f"u{i}") for i in range(5))
    found, after = [], ""
    while after is not None:
        page = bench.calls("GET", "/v1/profiles", params={"top": 2, "after": after}).json()
        found += [item["profileId"] for item in page["items"]]
        after = page["next"]
    assert found == names
    assert [
        p["userId"]
        for p in bench.calls("GET", "/v1/profiles", params={"userId": "u3"}).json()["items"]
    ] == ["u3"]
    pages = [bench.calls("GET", "/v1/audit", params={"top": 3}).json()]
    pages.append(
        bench.calls("GET", "/v1/audit", params={"top": 3, "after": pages[0]["next"]}).json()
    )
    ids = [int(item["id"]) for page in pages for item in page["items"]]
    assert ids == sorted(ids, reverse=True)
    assert len(ids) == 5


def test_changes_at_once_are_all_kept(bench):
    name = bench.calls.create()
    vectors = bench.world.say(40, 0, 12)
    with ThreadPoolExecutor(6) as pool:
        answers = list(
            pool.map(lambda vector: bench.calls.enrol(name, vector).status_code, vectors)
        )
    assert answers == [201] * 12
    assert get(bench, name)["enrollmentsCount"] == 12
    single = vectors.astype(np.float32)
    with bench.service.store.read() as work:
        (cell,) = bench.service.templates.cells(work, bench.service.profiles.row(work, name))
    expected = sum(bench.model.contributions(v[None])[0] for v in single)
    # the rotation of stored contributions is rounded, to units of 2^-32
    assert np.abs(cell.total - expected).max() < 50


@pytest.mark.parametrize("how", ["opt-out", "delete"])
def test_people_leave_at_once_and_nothing_of_their_voice_stays(bench, how):
    name = bench.person(40)
    if how == "delete":
        assert bench.calls("DELETE", f"/v1/profiles/{name}").json()["state"] == "deleted"
        assert bench.calls("GET", f"/v1/profiles/{name}").status_code == 410
        assert bench.calls.verify(name, bench.world.say(40, 0)[0]).status_code == 410
        assert name not in json.dumps(bench.calls("GET", "/v1/profiles").json())
    else:
        assert bench.calls("POST", f"/v1/profiles/{name}/opt-out").json()["state"] == "opted_out"
        answer = bench.calls.verify(name, bench.world.say(40, 0)[0]).json()
        assert (answer["decision"], answer["reason"], answer["llr"]) == (
            "inconclusive",
            "opted_out",
            None,
        )
        assert bench.calls.enrol(name, bench.world.say(40, 0)[0]).status_code == 409
    assert bench.service.store.get_key(name) is None
    with bench.service.store.read() as work:
        for table in ("marks", "enrollments"):
            assert work.run(f"SELECT * FROM {table} WHERE profile = :name", name=name).all() == []
        row = work.run("SELECT * FROM profiles WHERE id = :name", name=name).mappings().one()
    assert (row["user_id"] is None) == (how == "delete")


def test_what_is_kept_of_a_person_can_be_read(bench):
    name = bench.person(40)
    get(bench, name, "/export")
    kept = get(bench, name, "/export")
    assert kept["consent"]["text"] == "yes"
    assert [e["enrollmentId"] for e in kept["enrollments"]] == [1, 2, 3]
    assert {e["action"] for e in kept["record"]} == {"create", "enrol", "export"}


def test_an_unused_profile_expires(bench):
    name = bench.person(40)
    bench.clock.now += 366 * 86400
    assert get(bench, name)["state"] == "expired"
    assert bench.calls.verify(name, bench.world.say(40, 0)[0]).json()["reason"] == "expired"
    assert bench.calls.enrol(name, bench.world.say(40, 0)[0]).status_code == 409
    assert bench.calls("POST", f"/v1/profiles/{name}/reset").json()["state"] == "created"


@pytest.mark.parametrize("kept", [True, False], ids=["vectors kept", "not kept"])
def test_a_changed_model_makes_profiles_stale_and_never_wrong(tmp_path, kept):
    with make_bench(sqlite_store(tmp_path), Settings(keep_vectors=kept)) as bench:
        name = bench.person(40)
        changed = make_model(seed=5)
        assert changed.fingerprint != bench.model.fingerprint
        store = sqlite_store(tmp_path)
        store.clock = bench.clock
        service = Service(store, MASTER_KEY, changed, Settings())
        calls = Calls(create_app(service, is_open=True))
        assert calls("GET", f"/v1/profiles/{name}").json()["state"] == "stale"
        answer = calls.verify(name, bench.world.say(40, 0)[0]).json()
        if kept:
            fresh = calls.create()
            for vector in bench.world.say(40, 0, 3):
                calls.enrol(fresh, vector)
            assert answer["decision"] == "accept"
            assert calls("GET", f"/v1/profiles/{name}").json()["state"] == "enrolled"
        else:
            assert (answer["decision"], answer["reason"]) == ("inconclusive", "model_changed")
            assert calls.enrol(name, bench.world.say(40, 0)[0]).status_code == 409
        service.store.close()


def test_a_challenge_is_used_once_and_soon(bench):
    name = bench.person(40)
    made = bench.calls("POST", "/v1/challenges", json={"profileId": name}).json()
    spoken = made["phrases"][0].replace(" ", "-")
    right = bench.world.say(40, WORDS.index(spoken))[0]
    answer = bench.calls.verify(name, right, challengeId=made["challengeId"]).json()
    assert answer["decision"] == "accept"
    again = bench.calls.verify(name, right, challengeId=made["challengeId"])
    assert (again.status_code, again.json()["type"]) == (409, "urn:mvplda:challenge-used")
    late = bench.calls("POST", "/v1/challenges", json={"profileId": name}).json()
    bench.clock.now += 61
    answer = bench.calls.verify(name, right, challengeId=late["challengeId"])
    assert (answer.status_code, answer.json()["type"]) == (409, "urn:mvplda:challenge-expired")
    assert bench.calls.verify(name, right, challengeId="nothing").status_code == 409


def test_last_times_recording_is_a_wrong_phrase_next_time(bench):
    name, last = bench.person(40), None
    for _ in range(4):
        for heard in ([last] if last else []) + ["what is asked for"]:
            made = bench.calls("POST", "/v1/challenges", json={"profileId": name}).json()
            label = made["phrases"][0].replace(" ", "-")
            assert label != last
            for _ in range(5):
                bench.clock.now += 1
                vector = bench.world.say(40, WORDS.index(heard if heard == last else label))[0]
                answer = bench.calls.verify(name, vector, challengeId=made["challengeId"]).json()
                # an inconclusive answer leaves the challenge open
                if answer["decision"] != "inconclusive":
                    break
            expected = ("reject", "wrong_phrase") if heard == last else ("accept", None)
            assert (answer["decision"], answer["reason"]) == expected
        last = label


def test_phrases_of_training_are_listed(small):
    listed = small.calls("GET", "/v1/model").json()["knownPhrases"]
    assert listed == sorted(word.replace("-", " ") for word in WORDS)


def test_who_is_it(bench):
    names = {speaker: bench.person(speaker, text="my voice is my key") for speaker in (40, 41, 42)}
    found = bench.calls(
        "POST", "/v1/identify", json={"vector": bench.world.say(41, 1)[0].tolist(), "top": 2}
    ).json()
    assert found["candidates"][0]["profileId"] == names[41]
    assert found["candidates"][0]["probability"] > 0.9
    assert len(found["candidates"]) == 2
    stranger = bench.calls(
        "POST", "/v1/identify", json={"vector": bench.world.say(50, 0)[0].tolist()}
    ).json()
    assert stranger["noneOfThem"] > 0.9
    bench.calls("DELETE", f"/v1/profiles/{names[41]}")
    gone = bench.calls(
        "POST", "/v1/identify", json={"vector": bench.world.say(41, 1)[0].tolist()}
    ).json()
    assert names[41] not in json.dumps(gone)
    body = {"vector": bench.world.say(40, 7)[0].tolist(), "candidates": [names[42]]}
    assert [
        c["profileId"] for c in bench.calls("POST", "/v1/identify", json=body).json()["candidates"]
    ] == [names[42]]


def test_nobody_is_identified_among_nobody(bench):
    name = bench.person(40)
    ask = {"vector": bench.world.say(40, 0)[0].tolist()}
    assert bench.calls("POST", "/v1/identify", json=ask).json()["profilesCount"] == 1
    bench.calls("DELETE", f"/v1/profiles/{name}")
    found = bench.calls("POST", "/v1/identify", json=ask).json()
    assert (found["candidates"], found["noneOfThem"]) == ([], 1.0)


def test_a_share_of_false_acceptances_sets_the_threshold(small):
    name, vector = small.person(40), small.world.say(40, 0)[0]
    strict = small.calls.verify(name, vector, far=0.004).json()
    assert strict["threshold"] == 5.0  # from which on the upper end of what was measured is no more
    promise = small.calls.verify(name, vector, far=1e-9)
    assert promise.status_code == 422
    assert "cannot promise" in promise.json()["detail"]


def test_a_countermeasure_is_a_fifth_account(small):
    name, vector = small.person(40), small.world.say(40, 0)[0]
    found = small.calls.verify(name, vector, countermeasureLlr=-6.0).json()
    assert (found["decision"], found["reason"]) == ("reject", "suspected_replay")
    assert found["posteriors"]["spoof"] > 0.9
    assert small.calls.verify(name, vector, countermeasureLlr=6.0).json()["decision"] == "accept"


def test_rejections_in_a_row_lock_a_profile(bench):
    name = bench.person(40)
    for _ in range(5):
        assert bench.calls.verify(name, bench.world.say(41, 0)[0]).json()["decision"] == "reject"
    locked = bench.calls.verify(name, bench.world.say(40, 0)[0])
    assert (locked.status_code, locked.json()["type"]) == (429, "urn:mvplda:locked")
    assert 0 < int(locked.headers["retry-after"]) <= 60
    bench.clock.now += 61
    assert bench.calls.verify(name, bench.world.say(40, 0)[0]).json()["decision"] == "accept"
    # an acceptance ends the row: four more rejections do not lock, the fifth does
    for _ in range(5):
        assert bench.calls.verify(name, bench.world.say(41, 0)[0]).json()["decision"] == "reject"
    assert bench.calls.verify(name, bench.world.say(40, 0)[0]).status_code == 429


def test_a_locked_profile_is_unlocked_and_nothing_is_erased(bench):
    name = bench.person(40)
    for _ in range(5):
        bench.calls.verify(name, bench.world.say(41, 0)[0])
    assert bench.calls.verify(name, bench.world.say(40, 0)[0]).status_code == 429
    refused = bench.calls("GET", "/v1/audit", params={"action": "refuse"}).json()["items"]
    assert [(entry["profileId"], entry["reason"]) for entry in refused] == [(name, "locked")]
    unlocked = bench.calls("POST", f"/v1/profiles/{name}/unlock").json()
    assert (unlocked["state"], unlocked["enrollmentsCount"]) == ("enrolled", 3)
    assert bench.calls.verify(name, bench.world.say(40, 0)[0]).json()["decision"] == "accept"


def test_people_are_found_by_the_beginning_of_their_names(bench):
    for user in ("Ann Lee", "Bob_1", "bobby", "ann%", "Zo\u00eb", "ANN", None):
        bench.calls.create(user=user)

    def found(search, **params):
        params = {"search": search, **params}
        page = bench.calls("GET", "/v1/profiles", params=params).json()
        names = [item["userId"] for item in page["items"]]
        return names, page["next"]

    assert found("ann") == (["ANN", "Ann Lee", "ann%"], None)
    assert found("aNN ") == (["Ann Lee"], None)
    assert found("bob_") == (["Bob_1"], None)
    assert found("zo\u00eb") == (["Zo\u00eb"], None)
    for nobody in ("%", "_", "ee", "nobody"):
        assert found(nobody) == ([], None)
    names, after = [], None
    while True:
        page, after = found("", top=2, **({} if after is None else {"after": after}))
        names += page
        if after is None:
            break
    assert names == ["ANN", "Ann Lee", "ann%", "Bob_1", "bobby", "Zo\u00eb"]


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_an_index_finds_names(kind, tmp_path, request):
    store = sqlite_store(tmp_path)
    if kind == "postgresql":
        store = Store(request.getfixturevalue("postgres").new_database())
    with make_bench(store) as bench:
        for number in range(60):
            bench.calls.create(user=f"Person {number:02}")
        plans = []

        def explain(connection, cursor, statement, parameters, context, many):
            if "lower(profiles.user_id)" in statement and not plans:
                explained = "EXPLAIN " if kind == "postgresql" else "EXPLAIN QUERY PLAN "
                with store.read() as work:
                    if kind == "postgresql":
                        # a table of 60 rows is read faster without an index
                        work.connection.exec_driver_sql("SET LOCAL enable_seqscan = off")
                    plans.append("")
                    rows = work.connection.exec_driver_sql(explained + statement, parameters)
                    plans[0] = str(rows.all())

        sa.event.listen(store.database.engine, "before_cursor_execute", explain)
        answer = bench.calls("GET", "/v1/profiles", params={"search": "person 1", "top": 5})
        assert [item["userId"] for item in answer.json()["items"]] == [
            f"Person {number}" for number in range(10, 15)
        ]
        assert "profiles_name" in plans[0]


def test_attempts_on_many_people_at_once_are_decided_as_one_by_one(bench):
    names = [bench.person(speaker) for speaker in range(40, 46)]
    vectors = [
        bench.world.say(speaker, 0)[0].astype(np.float32) for speaker in (40, 41, 9, 43, 8, 45)
    ]
    attempts = [
        Attempt(ME, name, ProcessedRecording(vector), VerifyRequest())
        for name, vector in zip(names, vectors, strict=True)
    ]
    attempts[3] = Attempt(ME, "nobody", ProcessedRecording(vectors[3]), VerifyRequest())
    attempts[5] = Attempt(
        ME, names[5], ProcessedRecording(vectors[5]), VerifyRequest(phrase="close the door")
    )
    together = bench.service.verify(attempts)
    alone = [bench.service.verify([attempt])[0] for attempt in attempts]
    assert [getattr(outcome, "status_code", 200) for outcome in together] == [200] * 3 + [
        404,
        200,
        200,
    ]
    for one, other in zip(together, alone, strict=True):
        if isinstance(one, VerifyReply) and isinstance(other, VerifyReply):
            assert one.decision == other.decision
            assert one.llr == pytest.approx(other.llr, rel=1e-5, abs=1e-5) or one.llr is None
    # what no extractor makes is refused, and nothing else
    attempts[0] = Attempt(ME, names[0], ProcessedRecording(np.nan * vectors[0]), VerifyRequest())
    outcomes = bench.service.verify(attempts)
    assert isinstance(outcomes[0], Exception)
    assert [isinstance(outcome, VerifyReply) for outcome in outcomes[1:]] == [
        True,
        True,
        False,
        True,
        True,
    ]


def test_keys_have_roles(small):
    calls = {role: Calls(create_app(small.service)) for role in ("", "verify", "enrol", "admin")}
    for role in ("verify", "enrol", "admin"):
        key = small.service.store.api_keys.put(role, role)
        calls[role].headers = {"X-API-Key": key}
    assert {r: c("GET", "/v1/profiles").status_code for r, c in calls.items()} == dict(
        zip(calls, (401, 403, 200, 200), strict=True)
    )
    body = {"consent": {"given": True}}
    assert [calls[r]("POST", "/v1/profiles", json=body).status_code for r in calls] == [
        401,
        403,
        201,
        201,
    ]
    assert [calls[r]("GET", "/v1/audit").status_code for r in calls] == [401, 403, 403, 200]
    assert [calls[r]("GET", "/v1/health").status_code for r in calls] == [200] * 4
    calls[""].headers = {"X-API-Key": "mvp_wrong"}
    assert calls[""]("GET", "/v1/profiles").status_code == 401
    with small.service.store.read() as work:
        stored = repr(work.run("SELECT * FROM api_keys").all())
    assert calls["verify"].headers["X-API-Key"] not in stored


def test_calls_are_limited_by_key_and_by_profile(tmp_path):
    with make_bench(sqlite_store(tmp_path), Settings(key_rate=30, profile_rate=4)) as bench:
        name = bench.person(40)
        found = [bench.calls.verify(name, bench.world.say(40, 0)[0]).status_code for _ in range(6)]
        assert found == [200] * 4 + [429] * 2
        last = [bench.calls("GET", "/v1/profiles") for _ in range(30)][-1]
        assert last.status_code == 429
        assert int(last.headers["retry-after"]) >= 1
        entries = bench.service.find_audit(10, 2**31 - 1, action="refuse").items
        found = {(entry.profileId, entry.reason): entry.count for entry in entries}
        # refusals of the key are counted once per second
        assert found == {(name, "rate"): 2, (None, "rate"): 1}


def test_attempts_are_paid_off_with_time_and_none_are_saved_up(tmp_path):
    with make_bench(sqlite_store(tmp_path), Settings(key_rate=0, profile_rate=4)) as bench:
        name = bench.person(40)

        def statuses(n: int) -> list[int]:
            replies = [bench.calls.verify(name, bench.world.say(40, 0)[0]) for _ in range(n)]
            return [reply.status_code for reply in replies]

        assert statuses(5) == [200] * 4 + [429]
        # each attempt costs a quarter of a minute
        bench.clock.now += 14
        assert statuses(1) == [429]
        bench.clock.now += 2
        assert statuses(2) == [200, 429]
        bench.clock.now += 3600
        assert statuses(5) == [200] * 4 + [429]
        # times that were written by a fast clock do not close the profile for an hour
        bench.clock.now -= 3600
        assert statuses(5) == [200] * 4 + [429]


def test_headers_of_safety_and_closed_doors(small):
    answer = small.calls("GET", "/v1/health")
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"
    assert "access-control-allow-origin" not in answer.headers
    other = {"Origin": "http://elsewhere.example"}
    assert (
        small.calls(
            "POST", "/v1/profiles", json={"consent": {"given": True}}, headers=other
        ).status_code
        == 403
    )
    assert (
        "access-control-allow-origin"
        not in small.calls("OPTIONS", "/v1/profiles", headers=other).headers
    )
    assert (
        small.calls("GET", "/v1/profiles", headers={"Host": "elsewhere.example"}).status_code == 403
    )


def test_bodies_that_are_too_large_or_nonsense_are_refused(small):
    name = small.calls.create()
    place = f"/v1/profiles/{name}/verify"
    large = small.calls(
        "POST", place, content=b"x" * (5 * 2**20), headers={"Content-Type": "audio/wav"}
    )
    assert (large.status_code, large.headers["content-type"]) == (413, "application/problem+json")

    async def dribble():
        for _ in range(6):
            yield b"x" * 2**20

    assert (
        small.calls(
            "POST", place, content=dribble(), headers={"Content-Type": "audio/wav"}
        ).status_code
        == 413
    )
    nonsense: list[tuple[int, dict[str, Any]]] = [
        (400, {"content": b"{", "headers": {"Content-Type": "application/json"}}),
        (422, {"content": b"[1]", "headers": {"Content-Type": "application/json"}}),
        (422, {"json": {"vector": [float(i) for i in range(5)]}}),
        (422, {"json": {"vector": [1e300] * 12}}),
        (422, {"json": {"vector": [0.0] * 12}}),
        (422, {"json": {"vector": [1.0] * 12, "surprise": 1}}),
        (422, {"json": {}}),
        (415, {"content": b"x", "headers": {"Content-Type": "text/plain"}}),
        (422, {"content": b"", "headers": {"Content-Type": "audio/wav"}}),
        (400, {"content": b"--x", "headers": {"Content-Type": "multipart/form-data; boundary=x"}}),
    ]
    for status, options in nonsense:
        answer = small.calls("POST", place, **options)
        assert answer.status_code == status, (options, answer.text)
        assert answer.headers["content-type"] == "application/problem+json"
    assert small.calls("GET", "/v1/audit", params={"after": "²"}).status_code == 422
    assert small.calls("GET", "/v1/nothing").headers["content-type"] == "application/problem+json"


def test_openapi_has_every_endpoint_with_examples(small):
    told = small.calls("GET", "/openapi.json").json()
    found = told["paths"]
    schemas = {
        name: schema.get("properties", {}) for name, schema in told["components"]["schemas"].items()
    }
    assert {
        "/v1/health", "/v1/ready", "/metrics", "/v1/model", "/v1/key", "/v1/profiles",
        "/v1/profiles/{profile_id}", "/v1/profiles/{profile_id}/enrollments",
        "/v1/profiles/{profile_id}/enrollments/{number}", "/v1/profiles/{profile_id}/reset",
        "/v1/profiles/{profile_id}/verify", "/v1/profiles/{profile_id}/opt-out",
        "/v1/profiles/{profile_id}/unlock", "/v1/profiles/{profile_id}/export",
        "/v1/identify", "/v1/challenges", "/v1/audit",
    } == set(found)  # fmt: skip
    for path, calls in found.items():
        for call in calls.values():
            for kind, body in call.get("requestBody", {"content": {}})["content"].items():
                own = body["schema"].get("properties", {}) or schemas.get(
                    body["schema"].get("$ref", "")[21:], {}
                )
                assert "example" in body or any("examples" in field for field in own.values()), (
                    path,
                    kind,
                )
    verify = found["/v1/profiles/{profile_id}/verify"]["post"]
    answer = verify["responses"]["200"]["content"]["application/json"]["schema"]
    assert answer == {"$ref": "#/components/schemas/VerifyReply"}
    assert schemas["VerifyReply"]["reason"]["examples"] == ["wrong_phrase"]
    assert set(told["components"]["securitySchemes"]) == {"APIKeyHeader", "Bearer"}
    types = {"application/octet-stream", "multipart/form-data", "application/json"}
    assert set(verify["requestBody"]["content"]) == types


def test_metrics_count_requests_and_decisions(small):
    name = small.person(40)
    small.calls.verify(name, small.world.say(40, 0)[0])
    text = small.calls("GET", "/metrics").text
    assert 'mvplda_decisions_total{decision="accept",reason=""} 1.0' in text
    assert 'route="/v1/profiles/{profile_id}/verify"' in text
    assert name not in text


def test_the_model_says_what_its_thresholds_come_from(small):
    found = small.calls("GET", "/v1/model").json()
    assert found["data"]["name"] == "drawn"
    assert found["operatingPoints"][0]["frrInterval"]
    assert found["threshold"] == 4.0
    assert found["largestLlr"] > found["threshold"]


def test_each_further_rejection_doubles_the_lock(bench):
    name = bench.person(40)
    for _ in range(4):
        assert bench.calls.verify(name, bench.world.say(41, 0)[0]).json()["decision"] == "reject"
    for seconds in (60, 120, 240, 480, 960):
        rejected = bench.calls.verify(name, bench.world.say(41, 0)[0])
        assert rejected.json()["decision"] == "reject"
        bench.clock.now += seconds - 1
        locked = bench.calls.verify(name, bench.world.say(40, 0)[0])
        assert (locked.status_code, locked.headers["retry-after"]) == (429, "1"), seconds
        bench.clock.now += 2
