"""Back-up, restoring, and a new master key with a new rotation of all templates."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import sqlalchemy as sa

from ..exceptions import FileFormatError, ParameterError
from ..persistence import atomic_write
from .keys import NEW_MASTER, Master, Vault, make_key_file, rotation
from .problems import Json
from .settings import Settings
from .store import (
    SCHEMA,
    Store,
    Work,
    answers,
    changes,
    data_keys,
    enrollments,
    meta,
    profiles,
    tables,
)
from .templates import Templates, to_numbers

OF_PEOPLE = ("enrollments", "marks")
SKIPPED = ("answers", "changes")
"""Answers are of use for a day, and have names in them; the counter of changes is the database's own."""


# -- back-up -----------------------------------------------------------------------------


def backup(store: Store, path: Path) -> int:
    """Write all rows as lines of JSON, without data keys: where a key is destroyed, the copy is lost too."""
    count = 0
    with atomic_write(path) as (scratch,), scratch.open("w") as file, store.read() as work:
        os.chmod(scratch, 0o600)
        print(json.dumps({"mvplda": "backup", "schema": SCHEMA, "at": time.time()}), file=file)
        for table in tables.sorted_tables:
            if table.name in SKIPPED:
                continue
            for row in work.all(table.select()):
                print(json.dumps([table.name, row], default=as_hex), file=file)
                count += 1
    return count


def as_hex(value: Any) -> Json:
    return {"hex": bytes(value).hex()}


def restore(store: Store, path: Path, master: str | None = None) -> tuple[int, int]:
    """Put the rows of a back-up into empty tables.

    People whose data keys are not here come back as deleted. Where the master key is another, by its mark, nothing is
    restored.

    Returns
    -------
    rows, and people who come back as deleted
    """
    keys = store.some_keys()
    gone: set[str] = set()
    count = 0
    with path.open(encoding="utf-8") as file, store.write() as work:
        head = json.loads(file.readline())
        if head.get("mvplda") != "backup" or head.get("schema", 0) > SCHEMA:
            raise FileFormatError(f"{path} is no back-up of this version of the service")
        if work.first(sa.select(profiles.c.id)) is not None:
            raise ParameterError("the database has profiles already: restore into an empty one")
        for table in tables.sorted_tables:
            if table is not changes:
                work.delete(table)
        for name, row in rows_of(file, master):
            if name == "profiles":
                if row["id"] not in keys and row["state"] not in ("opted_out", "deleted"):
                    gone.add(row["id"])
                    nothing = {"state": "deleted", "user_id": None, "consent": None}
                    row |= {**nothing, "phrases": "{}", "enrollments": 0}
                work.changed.add(row["id"])
            if name in OF_PEOPLE and row["profile"] in gone:
                continue
            work.insert(tables.tables[name], **row)
            count += 1
        work.update(changes, {}, master=master)
        if store.is_postgres:
            last = "SELECT coalesce(max(id), 1) FROM audit"
            work.connection.exec_driver_sql(f"SELECT setval('audit_id_seq', ({last}))")
    return count, len(gone)


def rows_of(file: Iterable[str], master: str | None) -> Iterator[tuple[str, Json]]:
    """Rows of a back-up as the tables of this version take them."""
    for line in file:
        name, values = json.loads(line)
        if name not in tables.tables:
            continue
        row = {
            key: bytes.fromhex(value["hex"]) if isinstance(value, dict) else value
            for key, value in values.items()
        }
        if row.get("name") == "schema" and name == "meta":
            row["value"] = str(SCHEMA)
        if row.get("name") == "master" and name == "meta" and master not in (None, row["value"]):
            raise ParameterError(
                "the back-up is of a service with another master key: bring that one along"
            )
        yield name, row


# -- rotation ----------------------------------------------------------------------------


def rotate(settings: Settings, store: Store, old: Master) -> tuple[int, str]:
    """Change the master key: data keys are wrapped anew, templates get the rotation of the new key.

    Whoever has the old key and a copy of the database from before still reads that copy; what the database holds now
    cannot be linked to it or read by the old key. Services that still run with the old key refuse to decide. An
    interrupted rotation is finished by the next call.

    Returns
    -------
    profiles, and where the new key is
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
        return count, old.where
    return count, new.where


def rotate_database(store: Store, old: Master, new: Master) -> int:
    mark = store.value("master")
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
        work.update(changes, {}, master=new.mark)
        if mark == old.mark:
            sealed = store.value("marks", work)
            marks = before.marks
            if sealed is not None:
                marks = before.unwrap(bytes.fromhex(sealed), "marks")
            _turn(work, Templates(store, after, Settings()), keys, old, new)
            work.update(meta, {"name": "master"}, value=new.mark)
            work.delete(meta, name="marks")
            work.insert(meta, name="marks", value=after.wrap(marks, "marks").hex())
    store.settle_files()
    return len(keys)


def _rewrap(store: Store, before: Vault, after: Vault) -> dict[str, bytes]:
    """Wrap every data key by the new master key; those that an interrupted rotation did are left alone."""
    keys: dict[str, bytes] = {}
    with store.keys() as connection:
        for name, wrapped in connection.execute(sa.select(data_keys)).all():
            try:
                keys[name] = after.unwrap(bytes(wrapped), name)
                continue
            except ParameterError:
                keys[name] = before.unwrap(bytes(wrapped), name)
            here = data_keys.update().where(data_keys.c.profile == name)
            connection.execute(here.values(wrapped=after.wrap(keys[name], name)))
    return keys


def _turn(
    work: Work, templates: Templates, keys: dict[str, bytes], old: Master, new: Master
) -> None:
    """Rotate all shares from the old rotation to the new one."""
    turns: dict[int, Any] = {}
    for row in work.all(sa.select(enrollments)):
        key = keys[row["profile"]]
        share = to_numbers(templates.opened(row, "share", key))
        if len(share) not in turns:
            there = rotation(new.derived("rotation"), len(share))
            back = rotation(old.derived("rotation"), len(share)).T
            turns[len(share)] = there @ back
        turned = np.rint(turns[len(share)] @ share).astype(np.int64)
        templates.replace(work, row, turned, key)
    work.execute(profiles.update().values(version=profiles.c.version + 1))
    work.delete(answers)
    work.changed |= set(work.execute(sa.select(profiles.c.id)).scalars())
