"""A new master key beside running services: nobody is lost, interruptions are continued, the old key is worthless."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("fastapi")

import sqlalchemy as sa
from click.testing import CliRunner
from service_problems import (
    MASTER_KEY,
    ME,
    World,
    decide,
    make_bench,
    make_model,
    make_world,
    sqlite_store,
)

from mvplda.cli import main
from mvplda.exceptions import ParameterError
from mvplda.serve import master_rotation
from mvplda.serve.database import RowHeld
from mvplda.serve.keys import MARK_DIGITS, KeyRing, MasterKey, Vault
from mvplda.serve.master_rotation import Rotation, rotate_database
from mvplda.serve.recordings import ProcessedRecording
from mvplda.serve.schemas import Consent, Problem, VerifyRequest
from mvplda.serve.service import Service
from mvplda.serve.settings import Settings
from mvplda.serve.store import Store
from mvplda.serve.tables import DATA_KEYS, ENROLMENTS

NEW_KEY = MasterKey(b"n" * 32, "test")
FREE = Settings(key_rate=0, profile_rate=0, lock_after=10**9, least_llr=-100.0, lock_timeout_s=60.0)


def master_key(number: int) -> MasterKey:
    return MasterKey(bytes([number]) * 32, "test")


def service_of(store: Store, *masters: MasterKey) -> Service:
    """A service with some master keys, which finds no others."""
    return Service(store, KeyRing(masters), make_model(), FREE)


def change(service: Service, *arguments: Any) -> Any:
    """Change a profile, again if another connection holds it, as the endpoints do."""
    while True:
        try:
            return service.change(ME, *arguments)
        except RowHeld:
            time.sleep(0.01)


def enrolled(service: Service, world: World, speaker: int) -> str:
    name = change(service, service.profiles.create, None, "open the door", Consent(given=True))
    for vector in world.say(speaker, 0, 3).astype(np.float32):
        change(service, service.profiles.enrol, name.profileId, ProcessedRecording(vector), None)
    return str(name.profileId)


def is_known(service: Service, world: World, name: str, speaker: int) -> bool:
    """Return whether a profile can be read, and belongs to a speaker."""
    vector = world.say(speaker, 0)[0].astype(np.float32)
    return bool(decide(service, name, ProcessedRecording(vector), VerifyRequest())["llr"] > 0)


def marks(store: Store) -> set[str]:
    """Marks of the master keys of everything that is stored."""
    with store.read() as work:
        digits = set(work.run(sa.select(ENROLMENTS.c.master)).scalars())
    return digits | {key.hex()[:MARK_DIGITS] for key in store.all_keys().values()}


@pytest.fixture(params=["sqlite", "postgresql"])
def make_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """A function that opens the same database again."""
    opened: list[Store] = []

    def opener(url: str | None) -> Any:
        def open_again(is_urgent: bool = False) -> Store:
            urls = (url, None)
            if url is None:
                urls = tuple(f"sqlite:///{tmp_path / name}.sqlite" for name in ("data", "keys"))
            opened.append(Store(*urls, FREE, is_urgent=is_urgent))
            return opened[-1]

        return open_again

    url = None
    if request.param == "postgresql":
        url = request.getfixturevalue("postgres").new_database()
    yield opener(url)
    for store in opened:
        store.close()


def test_nobody_is_lost_while_people_enrol(make_store):
    world = make_world()
    keys = [master_key(number) for number in range(1, 5)]
    service = service_of(make_store(), *keys)
    people: dict[str, int] = {}
    failures: list[Exception] = []
    stop = threading.Event()

    def work(speaker: int) -> None:
        # a generator of numbers is for one thread
        own_world = make_world(speaker)
        own_world.speakers, own_world.phrases = world.speakers, world.phrases
        try:
            while not stop.is_set():
                people[enrolled(service, own_world, speaker)] = speaker
        except Exception as error:
            failures.append(error)

    for speaker in range(40, 43):
        people[enrolled(service, world, speaker)] = speaker
    threads = [threading.Thread(target=work, args=(speaker,)) for speaker in range(43, 46)]
    for thread in threads:
        thread.start()
    try:
        counts = [
            rotate_database(make_store(is_urgent=True), old, new).profiles
            for old, new in pairwise(keys)
        ]
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert failures == []
    assert counts[0] >= 3
    assert len(people) > counts[-1] - 1 > 3
    assert rotate_database(make_store(), keys[-2], keys[-1]).profiles == len(people)
    assert marks(make_store()) == {keys[-1].mark[:MARK_DIGITS]}
    # the service that ran meanwhile, and one that has the last key alone
    for each in (service, service_of(make_store(), keys[-1])):
        assert all(is_known(each, world, name, speaker) for name, speaker in people.items())


def test_the_old_key_is_worthless_afterwards_and_no_decision_changes(tmp_path):
    with make_bench(sqlite_store(tmp_path)) as bench:
        name = bench.person(40)
        vectors = bench.world.say(40, 0, 2).astype(np.float32)
        sound = ProcessedRecording(vectors[0], None, None, "a digest", 1.0)
        before = decide(bench.service, name, sound, VerifyRequest())
        assert before["decision"] == "accept"
        store = sqlite_store(tmp_path)
        shares = stored(store)
        assert rotate_database(store, MASTER_KEY, NEW_KEY).profiles == 1
        assert not set(shares) & set(stored(store))
        # a service that has the old key alone
        with pytest.raises(Problem, match="must restart it with the new key"):
            bench.service.change(ME, bench.service.profiles.reset, name)
        create = bench.service.profiles.create
        with pytest.raises(Problem, match="must restart it with the new key"):
            bench.service.change(ME, create, "eve", None, Consent(given=True))
        with pytest.raises(ParameterError, match="differs from"):
            Service(sqlite_store(tmp_path), MASTER_KEY, make_model())
        store.clock = bench.clock
        service = Service(store, NEW_KEY, make_model())
        again = decide(service, name, ProcessedRecording(vectors[0]), VerifyRequest())
        assert again["llr"] == pytest.approx(before["llr"], abs=1e-6)
        # recordings from before the rotation are still recognised
        assert decide(service, name, sound, VerifyRequest())["reason"] == "suspected_replay"
        for number in (1, 2, 3):  # sums are exact still: nothing is left of them
            left = service.change(ME, service.profiles.remove, name, number)
        assert left.state == "created"
        store.close()


def stored(store: Store) -> Any:
    with store.read() as work:
        return work.run("SELECT share FROM enrollments ORDER BY number").all()


@pytest.mark.parametrize("step", ["_rotate", "_rewrap", "delete_orphans"])
def test_an_interrupted_rotation_is_named_and_continued(make_store, step, monkeypatch):
    world = make_world()
    service = service_of(make_store(), MASTER_KEY, NEW_KEY)
    people = {enrolled(service, world, speaker): speaker for speaker in (40, 41, 42)}
    monkeypatch.setattr(master_rotation, "CHANGED_AT_ONCE", 1)
    calls = []
    run_step = getattr(Rotation, step)

    def interrupted(*arguments: Any) -> Any:
        calls.append(arguments)
        if len(calls) == 2 or step == "delete_orphans":
            raise KeyboardInterrupt
        return run_step(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(Rotation, step, interrupted)
        with pytest.raises(KeyboardInterrupt):
            rotate_database(make_store(), MASTER_KEY, NEW_KEY)
    # services that have both keys go on, also those that start now
    for each in (service, service_of(make_store(), MASTER_KEY, NEW_KEY)):
        for name, speaker in people.items():
            assert is_known(each, world, name, speaker)
        people[enrolled(each, world, 43)] = 43
    for lonely in (MASTER_KEY, NEW_KEY):
        with pytest.raises(ParameterError, match="mvplda serve rotate"):
            service_of(make_store(), lonely)
    with pytest.raises(ParameterError, match="was interrupted: first run"):
        rotate_database(make_store(), NEW_KEY, master_key(3))
    for _ in range(2):
        assert rotate_database(make_store(), MASTER_KEY, NEW_KEY).profiles == len(people)
    alone = service_of(make_store(), NEW_KEY)
    for name, speaker in people.items():
        assert is_known(alone, world, name, speaker)


def test_damaged_and_forgotten_keys_stop_no_rotation(make_store):
    world = make_world()
    store = make_store()
    service = service_of(store, MASTER_KEY)
    broken, keyless, whole = (enrolled(service, world, speaker) for speaker in (40, 41, 42))
    with store.write() as work:
        chosen = sa.and_(ENROLMENTS.c.profile == broken, ENROLMENTS.c.number == 2)
        work.run(ENROLMENTS.update().where(chosen).values(share=b"x" * 124))
    store.destroy_key(keyless)
    with store.keys() as keys:  # of a creation that was interrupted between two databases
        wrapped = Vault(MASTER_KEY).wrap(b"k" * 32, "nobody")
        keys.run(DATA_KEYS.insert(), profile="nobody", wrapped=wrapped)
    report = rotate_database(make_store(), MASTER_KEY, NEW_KEY)
    assert (report.profiles, report.damaged) == (3, {broken})
    assert set(store.all_keys()) == {broken, whole}
    service = service_of(make_store(), NEW_KEY)
    assert is_known(service, world, whole, 42)
    with pytest.raises(Problem, match="recording 2"):
        is_known(service, world, broken, 40)
    # the damage was in one recording: without it the profile is whole
    service.change(ME, service.profiles.remove, broken, 2)
    enrol = service.profiles.enrol
    recording = ProcessedRecording(world.say(40, 0)[0].astype(np.float32))
    service.change(ME, enrol, broken, recording, None)
    assert is_known(service, world, broken, 40)
    assert rotate_database(make_store(), NEW_KEY, master_key(3)).damaged == set()


def test_a_profile_that_is_held_is_changed_later(make_store, monkeypatch):
    world = make_world()
    store = make_store()
    service = service_of(store, MASTER_KEY, NEW_KEY)
    if not store.is_postgres:
        pytest.skip("SQLite locks no rows")
    name, other = enrolled(service, world, 40), enrolled(service, world, 41)
    monkeypatch.setattr(master_rotation, "HELD_LIMIT_S", 0.0)
    monkeypatch.setattr(master_rotation, "HELD_PAUSE_S", 0.0)
    with store.database.engine.begin() as holder:
        holder.execute(sa.text("SELECT 1 FROM profiles WHERE id = :id FOR UPDATE"), {"id": name})
        with pytest.raises(ParameterError, match="have locked 1 profiles"):
            rotate_database(make_store(), MASTER_KEY, NEW_KEY)
        assert marks(store) == {key.mark[:MARK_DIGITS] for key in (MASTER_KEY, NEW_KEY)}
        assert is_known(service, world, other, 41)
    rotate_database(make_store(), MASTER_KEY, NEW_KEY)
    assert marks(store) == {NEW_KEY.mark[:MARK_DIGITS]}
    assert is_known(service_of(make_store(), NEW_KEY), world, name, 40)


def test_the_command_says_that_it_is_not_finished(tmp_path, monkeypatch):
    monkeypatch.delenv("MVPLDA_MASTER_KEY", raising=False)
    folder = tmp_path / "data"
    MasterKey.find(folder)
    settings = Settings(data=folder)
    store = Store(settings.database_url, settings.key_url)
    service = service_of(store, MasterKey.find(folder))
    name = enrolled(service, make_world(), 40)
    command = ["serve", "--data", str(folder), "rotate"]
    with monkeypatch.context() as patched:
        patched.setattr(Rotation, "_rotate", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))
        result = CliRunner().invoke(main, command)
    assert result.exit_code == 1
    assert "run `mvplda serve rotate` again" in result.output
    assert (folder / "master.key.new").exists()
    # the service has the key that the command made
    from mvplda.serve.app import open_masters

    both = open_masters(settings, create=False)
    again = Service(store, both, make_model(), FREE)
    assert is_known(again, make_world(), name, 40)
    result = CliRunner().invoke(main, command)
    assert result.output.startswith("1 profiles are encrypted with the new master key")
    assert not (folder / "master.key.new").exists()
    alone = Service(store, MasterKey.find(folder), make_model(), FREE)
    assert is_known(alone, make_world(), name, 40)
    store.close()


def test_rows_from_before_have_the_mark_of_the_master_key(tmp_path):
    """Tables of version 5, which named the master key in no recording."""
    world = make_world()
    store = sqlite_store(tmp_path)
    service = service_of(store, MASTER_KEY)
    name = enrolled(service, world, 40)
    with store.database.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE enrollments DROP COLUMN master")
        connection.exec_driver_sql("ALTER TABLE profiles ADD COLUMN master TEXT")
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '5'")
    store.close()
    store = sqlite_store(tmp_path)
    assert marks(store) == {MASTER_KEY.mark[:MARK_DIGITS]}
    assert is_known(service_of(store, MASTER_KEY), world, name, 40)
    store.close()
