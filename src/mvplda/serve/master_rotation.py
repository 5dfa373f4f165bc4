"""Operations on the whole database: a new master key, and the deletion of profiles without a data key."""

from __future__ import annotations

import numpy as np
import sqlalchemy as sa
from sqlalchemy import bindparam

from ..exceptions import ParameterError
from .keys import NEW_MASTER, MasterKey, TemplateRotation, Vault, make_key_file
from .settings import Settings
from .store import SET_MASTER, Store, Transaction
from .tables import ANSWERS, CHALLENGES, DATA_KEYS, ENROLMENTS, MARKS, META, PROFILES, EnrolmentRow
from .templates import Templates

LIVING = sa.select(PROFILES.c.id).where(PROFILES.c.state.not_in(["opted_out", "deleted"]))
ERASE_PROFILE = (
    PROFILES.update()
    .where(PROFILES.c.id == bindparam("name"))
    .values(
        state="deleted",
        user_id=None,
        consent=None,
        phrases="{}",
        enrollments=0,
        updated=bindparam("now"),
    )
)
SET_KEY = (
    DATA_KEYS.update()
    .where(DATA_KEYS.c.profile == bindparam("name"))
    .values(wrapped=bindparam("key"))
)


def delete_keyless_profiles(store: Store) -> tuple[int, int]:
    """Delete profiles without a data key, as after a copy of the database was restored.

    Their names and consents are erased together with the templates that can no longer be decrypted. Data keys
    without a profile, which a crash may leave, are destroyed. Returns the numbers of both.
    """
    keys = store.all_keys()
    with store.write() as work:
        living = set(work.run(LIVING).scalars())
        keyless = living - set(keys)
        work.changed |= keyless
        for name in keyless:
            work.run(ERASE_PROFILE, name=name, now=work.now)
            for table in (ENROLMENTS, MARKS, CHALLENGES, ANSWERS):
                work.run(table.delete().where(table.c.profile == name))
    orphans = set(keys) - living
    for name in orphans:
        store.destroy_key(name)
    store.truncate_logs()
    return len(keyless), len(orphans)


def rotate_master_key(settings: Settings, store: Store, old: MasterKey) -> int:
    """Change the master key: wrap the data keys again, and rotate the templates by the new key.

    A copy of the database from before can still be read with the old key; the present database cannot be read with
    it or linked to the copy. Services that still run with the old key refuse to decide. Call it again to finish an
    interrupted rotation. Returns the number of profiles.
    """
    new = MasterKey.from_environment(NEW_MASTER)
    new_file = settings.data / "master.key.new"
    if new is None:
        if old.source == "environment":
            raise ParameterError(
                f"the master key comes from the environment: put the new one into {NEW_MASTER}, "
                "rotate, then start services with it"
            )
        make_key_file(new_file)
        new = MasterKey.from_file(new_file)
    if new.key == old.key:
        raise ParameterError("the new master key equals the old one: make another key")
    count = rotate_database(store, old, new)
    if new.source == str(new_file):
        new_file.replace(old.source)
    return count


def rotate_database(store: Store, old: MasterKey, new: MasterKey) -> int:
    """Change the master key of a database; return the number of profiles."""
    mark = store.meta("master")
    if mark not in (None, old.mark, new.mark):
        raise ParameterError(
            "the master key differs from the one that this database was created with: rotate with that key"
        )
    keys = _rewrap(store, Vault(old), Vault(new))
    store.master = None
    with store.write() as work:
        if store.is_postgres:
            work.run("SET LOCAL statement_timeout = 0")
            work.run("SET LOCAL lock_timeout = '60s'")
        # the counter is the last lock of other transactions, and the first one here: nobody changes a profile
        work.run(SET_MASTER, mark=new.mark)
        if mark == old.mark:
            _rotate_shares(work, Templates(store, Vault(new), Settings()), keys, old, new)
            work.run(META.update().where(META.c.name == "master").values(value=new.mark))
    store.truncate_logs()
    return len(keys)


def _rewrap(store: Store, before: Vault, after: Vault) -> dict[str, bytes]:
    """Wrap every data key by the new master key, except those that an interrupted rotation has wrapped."""
    keys: dict[str, bytes] = {}
    with store.keys() as work:
        for name, wrapped in store.all_keys().items():
            try:
                keys[name] = after.unwrap(wrapped, name)
                continue
            except ParameterError:
                keys[name] = before.unwrap(wrapped, name)
            work.run(SET_KEY, key=after.wrap(keys[name], name), name=name)
    return keys


def _rotate_shares(
    work: Transaction,
    templates: Templates,
    keys: dict[str, bytes],
    old: MasterKey,
    new: MasterKey,
) -> None:
    """Change all shares from the old rotation to the new one."""
    rotations: dict[int, tuple[TemplateRotation, TemplateRotation]] = {}
    for row in work.rows(EnrolmentRow, sa.select(ENROLMENTS)):
        key = keys[row.profile]
        share = templates.share(row, key)
        rank = len(share)
        if rank not in rotations:
            rotations[rank] = (
                TemplateRotation(old.derived("rotation"), rank),
                TemplateRotation(new.derived("rotation"), rank),
            )
        before, after = rotations[rank]
        rotated_share = after.apply(before.undo(share[None].astype(np.float64)))[0]
        templates.replace_share(work, row, np.rint(rotated_share).astype(np.int64), key)
    work.run(PROFILES.update().values(version=PROFILES.c.version + 1))
    work.changed |= set(work.run(sa.select(PROFILES.c.id)).scalars())
