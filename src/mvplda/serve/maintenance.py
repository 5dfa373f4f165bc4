"""Back-up, restoring, and a new master key with a new rotation of all templates."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import sqlalchemy as sa

from ..exceptions import FileFormatError, ParameterError
from .keys import NEW_MASTER, Master, Vault, make_key_file, rotation
from .settings import Settings
from .store import Store, Work, begin
from .tables import (
    SCHEMA,
    answers,
    changes,
    data_keys,
    enrollments,
    meta,
    profiles,
    tables,
    templates,
)
from .templates import to_bytes, to_numbers

OF_PEOPLE = ("templates", "enrollments", "marks")
SKIPPED = ("answers", "changes")
"""Answers are of use for a day, and have names in them; the counter of changes is the database's own."""


# -- back-up -----------------------------------------------------------------------------


def backup(store: Store, path: Path) -> int:
    """Write all rows as lines of JSON, without data keys: where a key is destroyed, the copy is lost too."""
    from ..persistence import atomic_write

    count = 0
    with atomic_write(path) as (scratch,), scratch.open("wb") as file, store.read() as work:
        os.chmod(scratch, 0o600)
        head = {"mvplda": "backup", "schema": SCHEMA, "at": time.time()}
        file.write(json.dumps(head).encode() + b"\n")
        for table in tables.sorted_tables:
            if table.name in SKIPPED:
                continue
            for row in work.execute(table.select()).mappings():
                line = [table.name, {name: _plain(value) for name, value in row.items()}]
                file.write(json.dumps(line).encode() + b"\n")
                count += 1
    return count


def restore(store: Store, path: Path, master: str | None = None) -> tuple[int, int]:
    """Put the rows of a back-up into empty tables.

    People whose data keys are not here come back as deleted. Where the master key is another, by its mark, nothing is
    restored.

    Returns
    -------
    rows, and people who come back as deleted
    """
    keys = set(store.some_keys())
    gone: set[str] = set()
    count = 0
    with path.open(encoding="utf-8") as file, store.write() as work:
        head = json.loads(file.readline())
        if head.get("mvplda") != "backup" or head.get("schema", 0) > SCHEMA:
            raise FileFormatError(f"{path} is no back-up of this version of the service")
        if work.execute(sa.select(profiles.c.id).limit(1)).first() is not None:
            raise ParameterError("the database has profiles already: restore into an empty one")
        for table in tables.sorted_tables:
            if table is not changes:
                work.execute(table.delete())
        for name, row in _rows(file, master):
            if name == "profiles" and _is_gone(row, keys):
                gone.add(row["id"])
                nothing = {"state": "deleted", "user_id": None, "consent": None}
                row |= {**nothing, "phrases": "{}", "enrollments": 0}
            if name in OF_PEOPLE and row["profile"] in gone:
                continue
            if name == "profiles":
                work.changed.add(row["id"])
            work.execute(tables.tables[name].insert().values(**row))
            count += 1
        work.execute(changes.update().values(master=master))
        if store.is_postgres:
            last = "SELECT coalesce(max(id), 1) FROM audit"
            work.connection.exec_driver_sql(f"SELECT setval('audit_id_seq', ({last}))")
    return count, len(gone)


def _plain(value: Any) -> Any:
    if isinstance(value, (bytes, memoryview)):
        return {"hex": bytes(value).hex()}
    return value


def _rows(file: Any, master: str | None) -> Iterator[tuple[str, dict[str, Any]]]:
    """Rows of a back-up as the tables of this version take them."""
    for line in file:
        name, values = json.loads(line)
        if name in SKIPPED:
            continue
        row = {
            key: bytes.fromhex(value["hex"]) if isinstance(value, dict) else value
            for key, value in values.items()
        }
        if name == "meta" and row["name"] == "schema":
            row["value"] = str(SCHEMA)
        if name == "meta" and row["name"] == "master" and master not in (None, row["value"]):
            raise ParameterError(
                "the back-up is of a service with another master key: bring that one along"
            )
        yield name, row


def _is_gone(row: dict[str, Any], keys: set[str]) -> bool:
    return row["id"] not in keys and row["state"] not in ("opted_out", "deleted")


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
    with store.read() as work:
        secret = work.execute(sa.select(meta.c.value).where(meta.c.name == "marks")).scalar()
        mark = work.execute(sa.select(meta.c.value).where(meta.c.name == "master")).scalar()
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
        now = work.execute(changes.update().values(master=new.mark).returning(changes.c.id)).all()
        assert now
        if mark == old.mark:
            marks = (
                before.marks if secret is None else before.unwrap(bytes.fromhex(secret), "marks")
            )
            count = _turn(work, after, keys, old, new)
            work.execute(meta.delete().where(meta.c.name.in_(["master", "marks"])))
            sealed = after.wrap(marks, "marks").hex()
            work.execute(meta.insert().values(name="master", value=new.mark))
            work.execute(meta.insert().values(name="marks", value=sealed))
        else:
            count = len(keys)
    store.settle_files()
    return count


def _rewrap(store: Store, before: Vault, after: Vault) -> dict[str, bytes]:
    """Wrap every data key by the new master key; those that an interrupted rotation did are left alone."""
    keys: dict[str, bytes] = {}
    with begin(store.key_engine) as connection:
        for name, wrapped in connection.execute(sa.select(data_keys)).all():
            try:
                keys[name] = after.unwrap(bytes(wrapped), name)
                continue
            except ParameterError:
                keys[name] = before.unwrap(bytes(wrapped), name)
            here = data_keys.update().where(data_keys.c.profile == name)
            connection.execute(here.values(wrapped=after.wrap(keys[name], name)))
    return keys


def _turn(work: Work, vault: Vault, keys: dict[str, bytes], old: Master, new: Master) -> int:
    """Rotate all shares from the old rotation to the new one, and sum them anew, so that sums stay exact."""
    turns: dict[int, Any] = {}
    sums: dict[tuple[str, str], Any] = {}
    for row in work.execute(sa.select(enrollments)).mappings().all():
        name, number = row["profile"], row["number"]
        key = keys[name]
        share = to_numbers(vault.open(key, bytes(row["share"]), f"{name} {number}"))
        if len(share) not in turns:
            there = rotation(new.derived("rotation"), len(share))
            back = rotation(old.derived("rotation"), len(share)).T
            turns[len(share)] = there @ back
        turned = np.rint(turns[len(share)] @ share).astype(np.int64)
        cell = (name, row["phrase"])
        sums[cell] = sums[cell] + turned if cell in sums else turned
        here = (enrollments.c.profile == name) & (enrollments.c.number == number)
        sealed = vault.seal(key, to_bytes(turned), f"{name} {number}")
        work.execute(enrollments.update().where(here).values(share=sealed))
    for (name, phrase), total in sums.items():
        here = (templates.c.profile == name) & (templates.c.phrase == phrase)
        sealed = vault.seal(keys[name], to_bytes(total), f"{name} {phrase}")
        work.execute(templates.update().where(here).values(total=sealed))
    work.execute(profiles.update().values(version=profiles.c.version + 1))
    work.execute(answers.delete())
    work.changed |= set(work.execute(sa.select(profiles.c.id)).scalars())
    return len(keys)
