"""Remains of deleted people: in the files of PostgreSQL and of the data keys, before and after scrubbing."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")

import sqlalchemy as sa
from click.testing import CliRunner
from service_problems import Bench, make_bench, sqlite_store

from mvplda.cli import main
from mvplda.exceptions import ParameterError
from mvplda.serve.database import Database
from mvplda.serve.erasure import move_keys, scrub_store
from mvplda.serve.settings import Settings
from mvplda.serve.store import Store
from mvplda.serve.tables import DATA_KEYS, ENROLMENTS, META

COMPOSE = Path(__file__).parents[2] / "deploy" / "compose.yaml"
USER = "Zebedee-Quixote-77"
PHRASE = "purple walrus tango"
CONSENT = "consent text of zebedee"
CREATION = {"userId": USER, "phrase": PHRASE, "consent": {"given": True, "text": CONSENT}}


@pytest.fixture
def database(postgres: Any) -> tuple[Any, str]:
    """A server with the option of deploy/compose.yaml, and a new database of it."""
    url = postgres.new_database()
    options = re.findall(r"-c, ([a-z_]+)=(\w+)", COMPOSE.read_text(encoding="utf-8"))
    assert options, "compose.yaml sets no option of PostgreSQL"
    with Database(url, Settings()).engine.connect() as found:
        connection = found.execution_options(isolation_level="AUTOCOMMIT")
        for name, value in options:
            connection.exec_driver_sql(f"ALTER SYSTEM SET {name} = '{value}'")
        connection.exec_driver_sql("SELECT pg_reload_conf()")
    time.sleep(0.2)
    return postgres, url


def secret_bytes(bench: Bench, name: str) -> dict[str, bytes]:
    """Return what is stored of a person."""
    store = bench.service.store
    with store.read() as work:
        row = work.run(sa.select(ENROLMENTS).where(ENROLMENTS.c.profile == name)).first()
        assert row is not None
    wrapped = store.get_key(name)
    assert wrapped is not None
    return {
        "userId": USER.encode(),
        "phrase": PHRASE.encode(),
        "label": PHRASE.replace(" ", "-").encode(),
        "consent": CONSENT.encode(),
        "share": row.share[:40],
        "vector": row.vector[:40],
        "wrapped data key": wrapped[:40],
    }


def found_in(folder: Path, secrets: dict[str, bytes]) -> set[str]:
    """Return the names of secrets that some file of a folder contains."""
    found = set()
    for path in folder.rglob("*"):
        try:
            data = path.read_bytes()
        except (IsADirectoryError, FileNotFoundError):
            continue
        found |= {name for name, secret in secrets.items() if secret in data}
    return found


def enrolled_person(bench: Bench) -> str:
    """Create the person who is deleted later; the answers of these calls are stored as well."""
    call = {"Idempotency-Key": "creation"}
    name = bench.calls("POST", "/v1/profiles", json=CREATION, headers=call).json()["profileId"]
    for number, vector in enumerate(bench.world.say(41, 0, 3)):
        answer = bench.calls.enrol(name, vector, headers={"Idempotency-Key": f"enrolment {number}"})
        assert answer.status_code == 201, answer.text
    return str(name)


def write_to_files(bench: Bench) -> None:
    """Let PostgreSQL collect statistics and write all rows to its files."""
    with bench.service.store.database.engine.connect() as found:
        connection = found.execution_options(isolation_level="AUTOCOMMIT")
        for step in ("ANALYZE", "CHECKPOINT"):
            connection.exec_driver_sql(step)


@pytest.mark.slow
def test_deletion_leaves_nothing_usable_in_the_files_of_postgres(
    database: Any, tmp_path: Path
) -> None:
    server, url = database
    files = server.folder / "data"
    with make_bench(Store(url, f"sqlite:///{tmp_path / 'keys.sqlite'}")) as bench:
        other = bench.person(40)
        name = enrolled_person(bench)
        secrets = secret_bytes(bench, name)
        write_to_files(bench)
        everywhere = set(secrets)
        assert found_in(files, secrets) == everywhere - {"wrapped data key"}
        assert found_in(tmp_path, secrets) == {"wrapped data key"}
        assert bench.calls("DELETE", f"/v1/profiles/{name}").status_code == 200
        # the key is overwritten at once: without it, share and vector are random bytes
        assert "wrapped data key" not in found_in(files, secrets) | found_in(tmp_path, secrets)
        # PostgreSQL still has the rest, until it is scrubbed
        write_to_files(bench)
        assert {"userId", "phrase", "share"} <= found_in(files, secrets)
        report = scrub_store(bench.service.store)
        assert report.remains == []
        assert found_in(files, secrets) == set()
        answer = bench.calls.verify(other, bench.world.say(40, 0)[0]).json()
        assert answer["decision"] == "accept"


@pytest.mark.slow
def test_keys_in_the_log_of_postgres_stay_until_it_is_scrubbed(database: Any) -> None:
    """Default without --key-database: the docs state that the wrapped key remains."""
    server, url = database
    files = server.folder / "data"
    with make_bench(Store(url)) as bench:
        name = enrolled_person(bench)
        secrets = secret_bytes(bench, name)
        bench.calls("DELETE", f"/v1/profiles/{name}")
        write_to_files(bench)
        assert "wrapped data key" in found_in(files, secrets)
        scrub_store(bench.service.store)
        assert found_in(files, secrets) == set()


def test_scrub_names_what_it_cannot_remove(postgres: Any) -> None:
    url = postgres.new_database()
    store = Store(url)
    with store.database.engine.connect() as found:
        connection = found.execution_options(isolation_level="AUTOCOMMIT")
        connection.exec_driver_sql("ALTER SYSTEM SET wal_recycle = on")
        connection.exec_driver_sql("SELECT pg_reload_conf()")
    time.sleep(0.2)
    remains = "\n".join(scrub_store(store).remains)
    assert "wal_recycle = off" in remains
    assert "move-keys" in remains
    store.close()


def test_scrub_names_what_the_role_may_not_do(postgres: Any) -> None:
    url = postgres.new_database()
    name = url.rpartition("/")[2]
    with Database(url, Settings()).engine.connect() as found:
        connection = found.execution_options(isolation_level="AUTOCOMMIT")
        connection.exec_driver_sql("CREATE ROLE limited LOGIN")
        connection.exec_driver_sql(f"ALTER DATABASE {name} OWNER TO limited")
    with make_bench(Store(url.replace("//postgres@", "//limited@"))) as bench:
        bench.person(40)
        report = scrub_store(bench.service.store)
        assert "profiles" in report.tables
        remains = "\n".join(report.remains)
        for step in ("DELETE FROM pg_catalog.pg_statistic", "CHECKPOINT", "SELECT pg_switch_wal()"):
            assert f"lacks the privilege for: {step}" in remains


# -- the database of the data keys -----------------------------------------------------------


def test_another_key_database_is_refused(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'data.sqlite'}"
    with make_bench(Store(url, f"sqlite:///{tmp_path / 'keys.sqlite'}")) as bench:
        bench.person(40)
    with pytest.raises(ParameterError, match="does not have the data keys of these profiles"):
        Store(url, f"sqlite:///{tmp_path / 'others.sqlite'}")
    # a copy of the keys from before there were marks is the same database
    keys = Database(f"sqlite:///{tmp_path / 'keys.sqlite'}", Settings())
    with keys.begin() as connection:
        connection.exec_driver_sql("DROP TABLE key_mark")
    Store(url, f"sqlite:///{tmp_path / 'keys.sqlite'}").close()


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_data_keys_move_into_a_database_of_their_own(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = f"sqlite:///{tmp_path / 'data.sqlite'}"
    if kind == "postgresql":
        url = request.getfixturevalue("postgres").new_database()
    with make_bench(Store(url)) as bench:
        name = bench.person(40)
        keys = bench.service.store.all_keys()
        with bench.service.store.write() as work:
            # as before there were marks
            work.run(META.delete().where(META.c.name == "key database"))
    key_url = f"sqlite:///{tmp_path / 'keys.sqlite'}"
    with pytest.raises(ParameterError, match="mvplda serve move-keys"):
        Store(url, key_url)
    options = ["--data", str(tmp_path), "--database", url, "--key-database", key_url]
    done = CliRunner().invoke(main, ["serve", *options, "move-keys"])
    assert (done.output, done.exit_code) == ("moved 1 data keys\n", 0), done.output
    with make_bench(Store(url, key_url)) as bench:
        assert bench.service.store.all_keys() == keys
        with bench.service.store.read() as work:
            assert work.run(sa.select(DATA_KEYS)).all() == []
        answer = bench.calls.verify(name, bench.world.say(40, 0)[0]).json()
        assert answer["decision"] == "accept"
    # a host that was not told about it
    with pytest.raises(ParameterError, match="does not have the data keys of these profiles"):
        Store(url)


def test_an_interrupted_move_of_keys_is_completed(tmp_path: Path) -> None:
    store = Store(f"sqlite:///{tmp_path / 'data.sqlite'}")
    target = Database(f"sqlite:///{tmp_path / 'keys.sqlite'}", Settings())
    rows = [{"profile": name, "wrapped": name.encode()} for name in ("ann", "bob")]
    with store.database.begin() as connection:
        connection.execute(DATA_KEYS.insert(), rows)
    assert move_keys(store, target) == 2
    with store.database.begin() as connection:
        connection.execute(DATA_KEYS.insert(), rows)
    assert move_keys(store, target) == 2
    with store.database.begin() as connection:
        connection.execute(DATA_KEYS.insert(), [{"profile": "ann", "wrapped": b"another"}])
    with pytest.raises(ParameterError, match="data keys of other profiles"):
        move_keys(store, target)
    with store.database.begin() as connection:
        assert len(connection.execute(sa.select(DATA_KEYS)).all()) == 1
    store.close()


def test_scrubbing_sqlite_empties_its_log(tmp_path: Path) -> None:
    with make_bench(sqlite_store(tmp_path)) as bench:
        name = enrolled_person(bench)
        secrets = secret_bytes(bench, name)
        assert found_in(tmp_path, secrets) == set(secrets)
        bench.calls("DELETE", f"/v1/profiles/{name}")
        assert found_in(tmp_path, secrets) == set()
        assert scrub_store(bench.service.store).remains == []
