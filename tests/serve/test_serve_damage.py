"""Damaged profiles: left out, answered with 409 for themselves alone, named, and found by a check."""

from __future__ import annotations

import logging
from typing import Any

import pytest

pytest.importorskip("fastapi")

import sqlalchemy as sa
from click.testing import CliRunner
from service_problems import MASTER_KEY, Bench, Calls, make_bench, make_model, sqlite_store

from mvplda.cli import main
from mvplda.serve.app import create_app
from mvplda.serve.damage import check_database
from mvplda.serve.keys import Vault
from mvplda.serve.service import Service
from mvplda.serve.settings import Settings
from mvplda.serve.store import Store
from mvplda.serve.tables import DATA_KEYS, ENROLMENTS, PROFILES
from mvplda.serve.templates import Templates

FREE = Settings(key_rate=0, profile_rate=0, lock_after=10**9, least_llr=-100.0)


@pytest.fixture(params=["sqlite", "postgresql"])
def bench(request, tmp_path):
    store = sqlite_store(tmp_path)
    if request.param == "postgresql":
        store.close()
        store = Store(request.getfixturevalue("postgres").new_database())
    with make_bench(store, FREE) as made:
        yield made


def flip(data: bytes, position: int = 40) -> bytes:
    """One bit of stored data is changed."""
    changed = bytearray(data)
    changed[position] ^= 1
    return bytes(changed)


def damage(bench: Bench, name: str, what: str) -> Any:
    """Change one stored value of a profile behind the service, and return the value before."""
    store = bench.service.store
    table, key, column = {
        "share": (ENROLMENTS, "profile", "share"),
        "vector": (ENROLMENTS, "profile", "vector"),
        "data key": (DATA_KEYS, "profile", "wrapped"),
        "mark of the master key": (DATA_KEYS, "profile", "wrapped"),
        "phrases": (PROFILES, "id", "phrases"),
    }[what]
    database = store.key_database if table is DATA_KEYS else store.database
    chosen = table.c[key] == name
    if table is ENROLMENTS:
        chosen &= table.c.number == 2
    with database.begin() as connection:
        before = connection.execute(sa.select(table.c[column]).where(chosen)).scalar()
        after = "{" if what == "phrases" else flip(before, 3 if what.startswith("mark") else 40)
        connection.execute(table.update().where(chosen).values({column: after}))
    return before


def restarted(bench: Bench) -> Calls:
    """Another instance on the same database, with nothing in memory."""
    service = Service(bench.service.store, MASTER_KEY, make_model(), FREE)
    return Calls(create_app(service, is_open=True))


def states(calls: Calls, bench: Bench, people: dict[str, int]) -> dict[str, int]:
    return {
        name: calls.verify(name, bench.world.say(speaker, 0)[0]).status_code
        for name, speaker in people.items()
    }


@pytest.mark.parametrize("what", ["share", "data key", "mark of the master key"])
def test_one_damaged_row_is_one_persons_fault(bench, what, caplog):
    people = {bench.person(40 + k): 40 + k for k in range(4)}
    broken, *others = people
    damage(bench, broken, what)
    calls = restarted(bench)
    with caplog.at_level(logging.ERROR, logger="mvplda.serve"):
        assert states(calls, bench, people) == {broken: 409, **dict.fromkeys(others, 200)}
    named = [record.fields["profile"] for record in caplog.records if "damaged" in record.message]
    assert named == [broken]
    answer = calls.verify(broken, bench.world.say(40, 0)[0]).json()
    assert (answer["type"], answer["state"]) == ("urn:mvplda:damaged", "damaged")
    assert calls("GET", f"/v1/profiles/{broken}").json()["state"] == "damaged"
    listed = calls("GET", "/v1/profiles").json()["items"]
    assert [item["state"] for item in listed if item["profileId"] == broken] == ["damaged"]
    found = calls.app.state.runtime.service.find_audit(10, 10**6, action="damaged").items
    assert [entry.profileId for entry in found] == [broken]
    # the fifth person is enrolled, although the domain is computed from everybody
    assert bench.person(44)
    ready = calls("GET", "/v1/ready")
    assert ready.status_code == 200
    assert "mvplda_damaged_profiles 1.0" in calls("GET", "/metrics").text
    heard = {"vector": bench.world.say(41, 0)[0].tolist(), "top": 10}
    candidates = calls("POST", "/v1/identify", json=heard).json()["candidates"]
    assert {row["profileId"] for row in candidates} >= set(others)
    assert broken not in {row["profileId"] for row in candidates}


def test_identification_finds_and_marks_damage_by_itself(bench):
    broken, other = bench.person(40), bench.person(41)
    damage(bench, broken, "share")
    calls = restarted(bench)
    heard = {"vector": bench.world.say(41, 0)[0].tolist()}
    answer = calls("POST", "/v1/identify", json=heard).json()
    assert [row["profileId"] for row in answer["candidates"]] == [other]
    assert calls("GET", f"/v1/profiles/{broken}").json()["state"] == "damaged"


def test_damaged_phrases_do_not_hide_the_list_of_people(bench):
    broken, other = bench.person(40), bench.person(41)
    damage(bench, broken, "phrases")
    items = bench.calls("GET", "/v1/profiles").json()["items"]
    assert {item["profileId"]: item["state"] for item in items} == {
        broken: "damaged",
        other: "enrolled",
    }
    assert bench.calls.enrol(broken, bench.world.say(40, 0)[0]).status_code == 409
    assert bench.calls.enrol(other, bench.world.say(41, 0)[0]).status_code == 201


@pytest.mark.parametrize("what", ["share", "data key", "phrases"])
def test_a_damaged_profile_can_be_reset_and_deleted(bench, what):
    first, second = bench.person(40), bench.person(41)
    for name in (first, second):
        damage(bench, name, what)
    calls = restarted(bench)
    for name, speaker in ((first, 40), (second, 41)):
        assert calls.enrol(name, bench.world.say(speaker, 0)[0]).status_code == 409
        assert calls.verify(name, bench.world.say(speaker, 0)[0]).status_code == 409
    assert calls("POST", f"/v1/profiles/{first}/reset").json()["state"] == "created"
    for vector in bench.world.say(40, 0, 3):
        enrolled = calls.enrol(first, vector, fields={"phrase": "open the door"})
        assert enrolled.status_code == 201, enrolled.text
    assert calls.verify(first, bench.world.say(40, 0)[0]).json()["decision"] == "accept"
    assert calls("DELETE", f"/v1/profiles/{second}").json()["state"] == "deleted"


def test_removing_the_damaged_recording_repairs_the_profile(bench):
    broken = bench.person(40)
    assert bench.calls.enrol(broken, bench.world.say(40, 0)[0]).status_code == 201
    damage(bench, broken, "share")
    calls = restarted(bench)
    assert calls.verify(broken, bench.world.say(40, 0)[0]).status_code == 409
    assert calls("DELETE", f"/v1/profiles/{broken}/enrollments/2").json()["state"] == "enrolled"
    assert calls.verify(broken, bench.world.say(40, 0)[0]).json()["decision"] == "accept"


def check(bench: Bench):
    store = bench.service.store
    return check_database(store, Templates(store, Vault(MASTER_KEY), FREE))


@pytest.mark.parametrize("what", ["share", "vector", "data key", "phrases"])
def test_the_check_opens_every_row_and_corrects_marks(bench, what):
    people = [bench.person(40 + k) for k in range(3)]
    clean = check(bench)
    assert (clean.profiles, clean.recordings) == (3, 9)
    assert [clean.damaged, clean.keyless, clean.repaired, clean.held] == [{}, [], [], []]
    before = damage(bench, people[1], what)
    expected = "recording 2" if what in ("share", "vector") else what
    for _ in range(2):  # found and marked; found again
        assert check(bench).damaged == {people[1]: [expected]}
    assert bench.calls("GET", f"/v1/profiles/{people[1]}").json()["state"] == "damaged"
    # restored from a back-up
    store = bench.service.store
    table, column, key = {
        "data key": (DATA_KEYS, "wrapped", "profile"),
        "phrases": (PROFILES, "phrases", "id"),
    }.get(what, (ENROLMENTS, what, "profile"))
    database = store.key_database if table is DATA_KEYS else store.database
    with database.begin() as connection:
        chosen = table.c[key] == people[1]
        if table is ENROLMENTS:
            chosen &= table.c.number == 2
        connection.execute(table.update().where(chosen).values({column: before}))
    assert check(bench).repaired == [people[1]]
    answer = bench.calls.verify(people[1], bench.world.say(41, 0)[0])
    assert answer.json()["decision"] == "accept"


def test_the_check_names_profiles_without_a_data_key(bench):
    name = bench.person(40)
    bench.service.store.destroy_key(name)
    assert check(bench).keyless == [name]
    answer = restarted(bench).verify(name, bench.world.say(40, 0)[0])
    assert (answer.status_code, answer.json()["type"]) == (409, "urn:mvplda:no-data-key")


def test_a_held_row_is_marked_later(postgres):
    with make_bench(Store(postgres.new_database()), FREE) as bench:
        broken, other = bench.person(40), bench.person(41)
        damage(bench, broken, "share")
        calls = restarted(bench)
        service = calls.app.state.runtime.service
        with service.store.database.engine.connect() as connection, connection.begin():
            row = sa.select(PROFILES).where(PROFILES.c.id == broken).with_for_update()
            connection.execute(row).all()
            heard = {"vector": bench.world.say(41, 0)[0].tolist()}
            answer = calls("POST", "/v1/identify", json=heard).json()
            assert [found["profileId"] for found in answer["candidates"]] == [other]
            assert calls("GET", f"/v1/profiles/{broken}").json()["state"] == "enrolled"
            assert check(bench).held == [broken]
        service._mark_at = 0.0
        service.mark_damaged()
        assert calls("GET", f"/v1/profiles/{broken}").json()["state"] == "damaged"


@pytest.mark.parametrize(
    "changed", ["detail = '{'", """detail = '{"at": 5}'""", """detail = '{"id": "7"}'"""]
)
def test_a_damaged_audit_entry_hides_no_other(bench, changed):
    name = bench.person(40)
    with bench.service.store.write() as work:
        work.run(
            f"UPDATE audit SET {changed.replace(':', chr(92) + ':')} WHERE id = (SELECT min(id) FROM audit)"
        )
    items = bench.calls("GET", f"/v1/audit?profileId={name}").json()["items"]
    assert len(items) == 4
    assert items[-1]["damaged"] is True
    assert bench.calls("GET", f"/v1/profiles/{name}/export").status_code == 200


@pytest.mark.parametrize("changed", ["caller = X'ff'", "action = X'ff'"])
def test_an_audit_entry_of_another_type_hides_no_other(tmp_path, changed):
    with make_bench(sqlite_store(tmp_path), FREE) as bench:
        name = bench.person(40)
        with bench.service.store.write() as work:
            work.run(f"UPDATE audit SET {changed} WHERE id = (SELECT min(id) FROM audit)")
        items = bench.calls("GET", f"/v1/audit?profileId={name}").json()["items"]
        assert [item.get("damaged", False) for item in items] == [False, False, False, True]


def test_the_command_check_names_damage_and_ends_with_a_status(tmp_path, monkeypatch):
    monkeypatch.setenv("MVPLDA_MASTER_KEY", "bW1tbW1tbW1tbW1tbW1tbW1tbW1tbW1tbW1tbW1tbW0=")
    store = Store(
        f"sqlite:///{tmp_path / 'mvplda.sqlite'}", f"sqlite:///{tmp_path / 'keys.sqlite'}"
    )
    with make_bench(store, FREE) as bench:
        name = bench.person(40)
        run = ["serve", "--data", str(tmp_path), "check"]
        result = CliRunner().invoke(main, run)
        assert (result.exit_code, result.output) == (0, "opened 1 profiles with 3 recordings\n")
        damage(bench, name, "share")
        result = CliRunner().invoke(main, run)
        assert result.exit_code == 1
        assert f"damaged: {name}: recording 2" in result.output
        monkeypatch.setenv("MVPLDA_MASTER_KEY", "b" * 43 + "=")
        result = CliRunner().invoke(main, run)
        assert "master key differs" in result.output


# -- any changed value -----------------------------------------------------------------------

LENGTHS = [b"", b"x", b"y" * 27, b"z" * 60, b"z" * 68, b"z" * 500]
BITS = ["bit 0", "bit 9", "bit -1", "shortened"]
TIMES = [1e300, -1e300, float("inf")]
CHANGES: dict[str, list[Any]] = {
    "enrollments.share": [*LENGTHS, *BITS],
    "enrollments.vector": [*LENGTHS, *BITS, None],
    "enrollments.phrase": ["another"],
    "enrollments.number": [77],
    "enrollments.created": [1e300],
    "enrollments.speech_s": [float("inf")],
    "data_keys.wrapped": [*LENGTHS, *BITS],
    "profiles.phrases": ["{", "[]", "null", '{"a": 3}', '{"a": null}', "3", "{}"],
    "profiles.consent": ["{", "[]", "3", None],
    "profiles.state": ["enrolmed"],
    "profiles.model": [None, "x"],
    "profiles.speech_s": [float("inf"), -1e300],
    "profiles.change": [-5, 2**62],
    **{f"profiles.{name}": TIMES for name in ("created", "last_used", "locked_until")},
    **{f"profiles.{name}": [-5, 0, 2**31 - 1] for name in ("version", "next_number", "failures")},
}
# SQLite stores any type in any column
TEXTS = ["enrollments.share", "enrollments.created", "data_keys.wrapped", "profiles.created"]
TEXTS += ["profiles.version", "profiles.change", "profiles.rate_until"]


def change(bench: Bench, name: str, column: str, value: Any) -> None:
    """Change a value behind the service."""
    store = bench.service.store
    table, _, column = column.partition(".")
    database = store.key_database if table == "data_keys" else store.database
    chosen = f"{'id' if table == 'profiles' else 'profile'} = '{name}'"
    if table == "enrollments":
        chosen += " AND number = 2"
    with database.begin() as connection:
        query = f"SELECT {column} FROM {table} WHERE {chosen}"
        before = connection.exec_driver_sql(query).scalar()
        if value == "shortened":
            value = before[:-8]
        elif str(value).startswith("bit "):
            value = flip(before, int(value.split()[1]))
        statement = sa.text(f"UPDATE {table} SET {column} = :value WHERE {chosen}")
        connection.execute(statement, {"value": value})


@pytest.mark.slow
def test_whatever_value_is_changed_nobody_else_is_touched(bench):
    tried = [(column, value) for column, values in CHANGES.items() for value in values]
    if not bench.service.store.is_postgres:
        tried += [(column, "a text") for column in TEXTS]
    others = [bench.person(40), bench.person(42)]
    heard = {"vector": bench.world.say(40, 0)[0].tolist(), "top": 10}
    for column, value in tried:
        broken = bench.person(41)
        change(bench, broken, column, value)
        calls = restarted(bench)
        answers = [
            calls.verify(others[0], bench.world.say(40, 0)[0]),
            calls.verify(others[1], bench.world.say(42, 0)[0]),
            calls("GET", "/v1/ready"),
            calls("GET", "/v1/profiles"),
        ]
        assert [answer.status_code for answer in answers] == [200] * 4, (column, value)
        assert None not in [answer.json()["llr"] for answer in answers[:2]]
        candidates = calls("POST", "/v1/identify", json=heard).json()["candidates"]
        assert {row["profileId"] for row in candidates} >= set(others), (column, value)
        mine = [
            calls.verify(broken, bench.world.say(41, 0)[0]),
            calls("GET", f"/v1/profiles/{broken}"),
            calls.enrol(broken, bench.world.say(41, 0)[0]),
            calls("GET", f"/v1/profiles/{broken}/export"),
            calls("POST", "/v1/challenges", json={"profileId": broken}),
        ]
        assert max(answer.status_code for answer in mine) < 500, (column, value)
        check(bench)
        repaired = [
            calls("POST", f"/v1/profiles/{broken}/reset"),
            calls("DELETE", f"/v1/profiles/{broken}"),
        ]
        assert [answer.status_code for answer in repaired] == [200, 200], (column, value)


@pytest.mark.parametrize(
    "column",
    [
        "profiles.user_id",
        "profiles.phrases",
        "profiles.consent",
        "profiles.last_phrase",
        "enrollments.phrase",
        "enrollments.session",
    ],
)
def test_text_that_is_no_utf8_is_one_persons_fault(tmp_path, column):
    with make_bench(sqlite_store(tmp_path), FREE) as bench:
        broken, other = bench.person(40), bench.person(41)
        table, name = column.split(".")
        key = "id" if table == "profiles" else "profile"
        with bench.service.store.database.begin() as connection:
            connection.exec_driver_sql(
                f"UPDATE {table} SET {name} = CAST(X'61ff62' AS TEXT) WHERE {key} = '{broken}'"
            )
        calls = restarted(bench)
        said = bench.world.say(41, 0)[0]
        assert calls.verify(other, said).status_code == 200
        found = calls("POST", "/v1/identify", json={"vector": said.tolist()})
        assert found.status_code == 200
        assert found.json()["identified"] == other
        assert calls("GET", "/v1/profiles?top=1000").status_code == 200
        assert calls.verify(broken, bench.world.say(40, 0)[0]).status_code < 500
        assert calls("GET", f"/v1/profiles/{broken}").status_code < 500


def test_rows_that_postgresql_cannot_read_are_left_out(postgres):
    with make_bench(Store(postgres.new_database()), FREE) as bench:
        broken, other = bench.person(40), bench.person(41)
        others = [c.name for c in ENROLMENTS.columns if c.name != "share"]
        with bench.service.store.database.begin() as connection:
            # the error that PostgreSQL reports for a page or a long value that is lost
            connection.exec_driver_sql(
                "CREATE FUNCTION lost() RETURNS bytea LANGUAGE plpgsql AS "
                "'BEGIN RAISE EXCEPTION USING ERRCODE = ''XX001''; END'"
            )
            connection.exec_driver_sql("ALTER TABLE enrollments RENAME TO stored")
            connection.exec_driver_sql(
                f"CREATE VIEW enrollments AS SELECT {', '.join(others)}, "
                f"CASE WHEN profile = '{broken}' THEN lost() ELSE share END AS share FROM stored"
            )
        calls = restarted(bench)
        assert states(calls, bench, {other: 41, broken: 40}) == {other: 200, broken: 409}
        heard = {"vector": bench.world.say(41, 0)[0].tolist()}
        answer = calls("POST", "/v1/identify", json=heard).json()
        assert [row["profileId"] for row in answer["candidates"]] == [other]
        for _ in range(2):
            assert check(bench).damaged == {broken: ["recordings"]}
        assert calls("DELETE", f"/v1/profiles/{broken}").json()["state"] == "deleted"
        assert check(bench).damaged == {}
