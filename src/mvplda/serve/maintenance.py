"""A new master key with a new rotation of all templates, and people whose data keys are gone."""

from __future__ import annotations

import numpy as np

from .._typing import Array
from ..exceptions import ParameterError
from .keys import NEW_MASTER, Master, Vault, make_key_file, rotation
from .settings import Settings
from .store import Store, Work
from .templates import Templates, to_numbers


def sweep(store: Store) -> int:
    """Mark people as deleted whose data keys are not here, as after a copy of the database was restored.

    Their names and consents are erased with what cannot be decrypted any more. How many they are.
    """
    keys = store.all_keys()
    with store.write() as work:
        query = "SELECT id FROM profiles WHERE state NOT IN ('opted_out', 'deleted')"
        gone = [row["id"] for row in work.all(query) if row["id"] not in keys]
        work.changed |= set(gone)
        for name in gone:
            nothing = {"state": "deleted", "user_id": None, "consent": None, "phrases": "{}"}
            work.update("profiles", name, **nothing, enrollments=0, updated=work.now)
            for table in ("enrollments", "marks", "challenges"):
                work.run(f"DELETE FROM {table} WHERE profile = :name", name=name)
        work.run("DELETE FROM answers")
    store.settle_files()
    return len(gone)


def rotate(settings: Settings, store: Store, old: Master) -> int:
    """Change the master key: data keys are wrapped anew, templates get the rotation of the new key.

    Whoever has the old key and a copy of the database from before still reads that copy; what the database holds now
    cannot be linked to it or read by the old key. Services that still run with the old key refuse to decide. An
    interrupted rotation is finished by the next call.
    How many profiles there are.
    """
    new = Master.from_environment(NEW_MASTER)
    waiting = settings.data / "master.key.new"
    if new is None:
        if old.where == "environment":
            raise ParameterError(
                f"the master key comes from the environment: put the new one into {NEW_MASTER}, "
                "rotate, then start services with it"
            )
        make_key_file(waiting)
        new = Master.from_file(waiting)
    if new.key == old.key:
        raise ParameterError("the new master key is the old one")
    count = rotate_database(store, old, new)
    if new.where == str(waiting):
        waiting.replace(old.where)
    return count


def rotate_database(store: Store, old: Master, new: Master) -> int:
    mark = store.meta("master")
    if mark not in (None, old.mark, new.mark):
        raise ParameterError(
            "the master key is another one than that which this database was made with"
        )
    before = Vault(old)
    after = Vault(new)
    keys = _rewrap(store, before, after)
    store.master = None
    with store.write() as work:
        if store.is_postgres:
            work.connection.exec_driver_sql("SET LOCAL statement_timeout = 0")
            work.connection.exec_driver_sql("SET LOCAL lock_timeout = '60s'")
        # nobody changes a profile meanwhile: the counter is the last lock of others, and the first here
        work.run("UPDATE changes SET master = :master", master=new.mark)
        if mark == old.mark:
            sealed = store.meta("marks", work)
            marks = before.marks
            if sealed is not None:
                marks = before.unwrap(bytes.fromhex(sealed), "marks")
            _turn(work, Templates(store, after, Settings()), keys, old, new)
            work.run("DELETE FROM meta WHERE name IN ('master', 'marks')")
            work.insert("meta", name="master", value=new.mark)
            work.insert("meta", name="marks", value=after.wrap(marks, "marks").hex())
    store.settle_files()
    return len(keys)


def _rewrap(store: Store, before: Vault, after: Vault) -> dict[str, bytes]:
    """Wrap every data key by the new master key; those that an interrupted rotation did are left alone."""
    keys: dict[str, bytes] = {}
    with store.keys() as work:
        for name, wrapped in store.all_keys().items():
            try:
                keys[name] = after.unwrap(wrapped, name)
                continue
            except ParameterError:
                keys[name] = before.unwrap(wrapped, name)
            update = "UPDATE data_keys SET wrapped = :wrapped WHERE profile = :name"
            work.run(update, wrapped=after.wrap(keys[name], name), name=name)
    return keys


def _turn(
    work: Work, templates: Templates, keys: dict[str, bytes], old: Master, new: Master
) -> None:
    """Rotate all shares from the old rotation to the new one."""
    turns: dict[int, Array] = {}
    for row in work.all("SELECT * FROM enrollments"):
        key = keys[row["profile"]]
        share = to_numbers(templates.opened(row, "share", key))
        if len(share) not in turns:
            there = rotation(new.derived("rotation"), len(share))
            back = rotation(old.derived("rotation"), len(share)).T
            turns[len(share)] = there @ back
        turned = np.rint(turns[len(share)] @ share).astype(np.int64)
        templates.replace(work, row, turned, key)
    work.run("UPDATE profiles SET version = version + 1")
    work.run("DELETE FROM answers")
    work.changed |= set(work.run("SELECT id FROM profiles").scalars())
