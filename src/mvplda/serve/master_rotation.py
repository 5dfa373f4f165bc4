"""Operations on the whole database: a new master key, and the deletion of profiles without a data key."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import sqlalchemy as sa
from sqlalchemy import bindparam

from ..exceptions import ParameterError
from .audit import rewrap_audit_key
from .damage import FREE
from .database import UnreadableRows, lock_hosts
from .keys import (
    MARK_DIGITS,
    NEW_MASTER,
    NEW_MASTER_FILE,
    KeyRing,
    MasterKey,
    Vault,
    make_key_file,
)
from .schemas import DamagedProfile
from .settings import Settings
from .store import BEFORE, Store, Transaction
from .tables import (
    ANSWERS,
    CHALLENGES,
    CHANGES,
    DATA_KEYS,
    ENROLMENTS,
    MARKS,
    META,
    PROFILES,
    EnrolmentRow,
)
from .templates import Templates
from .tenants import all_stores
from .vector_table import THIS_TABLE

# Profiles that are read at a time, and that are changed in one transaction, which others wait for.
PAGE = 200
CHANGED_AT_ONCE = 20
# Seconds between two attempts on profiles that other connections hold, and after which the rotation gives up.
HELD_PAUSE_S = 0.2
HELD_LIMIT_S = 60.0

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
    .where(DATA_KEYS.c.wrapped == bindparam("before"))
    .values(wrapped=bindparam("key"))
)
NEXT_PROFILES = LIVING.where(PROFILES.c.id > bindparam("after")).order_by(PROFILES.c.id).limit(PAGE)
OUTDATED = (
    sa.select(ENROLMENTS.c.profile)
    .where(ENROLMENTS.c.profile.in_(bindparam("names", expanding=True)))
    .where(ENROLMENTS.c.master != bindparam("digits"))
    .distinct()
)
EXISTING_LIVING = LIVING.where(PROFILES.c.id.in_(bindparam("names", expanding=True)))
# the counter is the last lock of other transactions: whoever writes with the key before is refused
SET_MASTER = CHANGES.update().values(master=bindparam("mark"), number=CHANGES.c.number + 1)
# text for its ON CONFLICT, which both databases understand
PUT_META = sa.text(
    "INSERT INTO meta (name, value) VALUES (:name, :value) "
    "ON CONFLICT (name) DO UPDATE SET value = excluded.value"
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


@dataclass
class RotationReport:
    """Result of a change of the master key.

    profiles : number of profiles with the new key
    damaged : profiles with data that cannot be read, and that therefore keep the previous key
    """

    profiles: int = 0
    damaged: set[str] = field(default_factory=set)


def rotate_master_key(settings: Settings, store: Store, old: MasterKey) -> RotationReport:
    """Change the master key: wrap the data keys again, and rotate the templates by the new key.

    A copy of the database from before can still be read with the old key; the present database cannot be read with
    it or linked to the copy. Services that find both keys continue to decide and to write; others refuse. Call it
    again to finish an interrupted rotation.
    """
    new = MasterKey.from_environment(NEW_MASTER)
    new_file = settings.data / NEW_MASTER_FILE
    if new is None:
        if old.source == "environment":
            raise ParameterError(
                f"the master key comes from the environment: put the new one into {NEW_MASTER}, restart the services "
                "with both keys, and rotate"
            )
        make_key_file(new_file)
        new = MasterKey.from_file(new_file)
    if new.key == old.key:
        raise ParameterError("the new master key equals the old one: make another key")
    report = RotationReport()
    for name, found in all_stores(settings, store, is_urgent=True):
        rotated = rotate_database(found, old, new)
        report.profiles += rotated.profiles
        report.damaged |= {
            f"{profile} of tenant {name}" if name else profile for profile in rotated.damaged
        }
    if new.source == str(new_file):
        new_file.replace(old.source)
    return report


def rotate_database(store: Store, old: MasterKey, new: MasterKey) -> RotationReport:
    """Change the master key of a database beside running services.

    From the first step on, services write with the new key; every row names its key, so that both are read meanwhile.
    Profiles are then changed a few at a time. Each step may be interrupted, and is continued by the next call.
    """
    _begin(store, old, new)
    rotation = Rotation(store, KeyRing([new, old]))
    rotation.change_all()
    rotation.delete_orphans()
    _finish(store)
    return rotation.report


def _begin(store: Store, old: MasterKey, new: MasterKey) -> None:
    """Let all services write with the new key, or check that an earlier call has done so."""
    with store.write() as work:
        lock_hosts(work.connection)
        mark, before = store.meta("master", work), store.meta(BEFORE, work)
        if before is None and mark in (None, old.mark):
            work.run(PUT_META, name="master", value=new.mark)
            work.run(PUT_META, name=BEFORE, value=old.mark)
            work.run(SET_MASTER, mark=new.mark)
            rewrap_audit_key(work, store, Vault(KeyRing([new, old])))
        elif mark != new.mark or before not in (None, old.mark):
            if before is None:
                raise ParameterError(
                    "the master key differs from the one that this database was created with: rotate with that key"
                )
            raise ParameterError(
                "a change of the master key was interrupted: run it again with the same two keys, before another one"
            )
    store.master = new.mark


def _finish(store: Store) -> None:
    """Delete the previous key from the database; services then start with the new one alone."""
    with store.write() as work:
        work.run(META.delete().where(META.c.name == BEFORE))
        if store.is_postgres and work.value(THIS_TABLE) is not None:
            # they are rotated by the key before, or written again
            work.run("DELETE FROM voice_vectors")
    store.truncate_logs()


class Rotation:
    """Changes the profiles of a database from one master key to another, a few at a time."""

    def __init__(self, store: Store, masters: KeyRing) -> None:
        self.store = store
        self.report = RotationReport()
        self._digits = masters.first.mark[:MARK_DIGITS]
        self._templates = Templates(store, Vault(masters), Settings())

    def change_all(self) -> None:
        """Change all profiles; raise if other connections hold some of them for too long."""
        until = time.monotonic() + HELD_LIMIT_S
        while held := self._change_once():
            if time.monotonic() > until:
                raise ParameterError(
                    f"the change of the master key is not finished, run it again: other connections hold {held} "
                    "profiles"
                )
            time.sleep(HELD_PAUSE_S)

    def delete_orphans(self) -> None:
        """Destroy data keys without a profile that are wrapped by the previous master key.

        They remain if the creation of a profile is interrupted after its data key was written.
        """
        keys = self.store.all_keys()
        old = [name for name, wrapped in keys.items() if not self._is_new(wrapped)]
        for start in range(0, len(old), PAGE):
            names = old[start : start + PAGE]
            with self.store.write() as work:
                living = set(work.run(EXISTING_LIVING, names=names).scalars())
                for name in set(names) - living:
                    self.store.destroy_key(name, work)

    def _is_new(self, wrapped: object) -> bool:
        """Return whether a data key is wrapped by the new master key."""
        return isinstance(wrapped, bytes) and wrapped.hex().startswith(self._digits)

    def _change_once(self) -> int:
        """Change all profiles that no other connection holds, and return the number of those that are held."""
        held = 0
        self.report.profiles = 0
        for names in self._pages():
            outdated = self._outdated(names)
            for start in range(0, len(outdated), CHANGED_AT_ONCE):
                begun = time.monotonic()
                held += self._change(outdated[start : start + CHANGED_AT_ONCE])
                # SQLite has one writer: the others get as much time
                if not self.store.is_postgres:
                    time.sleep(time.monotonic() - begun)
            self.report.profiles += len(names)
        return held

    def _pages(self) -> Iterator[list[str]]:
        """Yield the names of all profiles that have data, in pages."""
        names = [""]
        while names:
            with self.store.read() as work:
                names = list(work.run(NEXT_PROFILES, after=names[-1]).scalars())
            if names:
                yield names

    def _outdated(self, names: Sequence[str]) -> list[str]:
        """Return the profiles with data of the previous master key."""
        with self.store.read() as work:
            outdated = set(work.run(OUTDATED, names=names, digits=self._digits).scalars())
        keys = self.store.all_keys(names)
        outdated |= {name for name, wrapped in keys.items() if not self._is_new(wrapped)}
        return sorted(outdated - self.report.damaged)

    def _change(self, names: Sequence[str]) -> int:
        """Change some profiles in one transaction, and return the number of those that are held."""
        try:
            with self.store.write() as work:
                free = set(work.run(FREE, names=names).scalars())
                keys = self.store.all_keys(sorted(free), work)
                recordings: dict[str, list[EnrolmentRow]] = {}
                for row in self._templates.all_enrolments(work, sorted(keys)):
                    recordings.setdefault(row.profile, []).append(row)
                data_keys = self._unwrapped(work, keys)
                for name, key in data_keys.items():
                    self._rotate(work, recordings.get(name, []), key)
                # committed first if they are in another database: keys and recordings name their master keys
                self._rewrap(work, keys, data_keys)
        except UnreadableRows:
            self.report.damaged |= set(self._templates.take_damage())
            return len(names)
        self.report.damaged |= set(self._templates.take_damage())
        return len(names) - len(free)

    def _unwrapped(self, work: Transaction, keys: Mapping[str, bytes]) -> dict[str, bytes]:
        """Return {profile: data key}; damaged ones are left out, and recorded."""
        data_keys = {}
        for name, wrapped in keys.items():
            with suppress(DamagedProfile):
                data_keys[name] = self._templates.unwrap(work, name, wrapped)
        return data_keys

    def _rotate(self, work: Transaction, rows: Sequence[EnrolmentRow], key: bytes) -> None:
        """Rotate the recordings of a profile by the new master key; report damaged recordings and skip them."""
        for row in rows:
            if row.master != self._digits:
                with suppress(DamagedProfile):
                    share = self._templates.share(row, key)
                    self._templates.replace_share(work, row, share, key)

    def _rewrap(
        self, work: Transaction, keys: Mapping[str, bytes], data_keys: Mapping[str, bytes]
    ) -> None:
        """Wrap data keys by the new master key."""
        changes: list[dict[str, object]] = [
            {"name": name, "before": keys[name], "key": self._templates.wrap(work, key, name)}
            for name, key in data_keys.items()
            if not self._is_new(keys[name])
        ]
        if changes:
            with self.store.keys(work) as work_on_keys:
                work_on_keys.run_each(SET_KEY, changes)
