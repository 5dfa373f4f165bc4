"""Operations on the whole database: the change of the master key, and the deletion of profiles without a data key."""

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

# Number of profiles that are read at a time, and that are changed in one transaction, for which others wait.
PAGE = 200
CHANGED_AT_ONCE = 20
# Seconds between two tries of profiles that other connections have locked, and after which the rotation gives up.
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
# other transactions lock the counter last, and are refused there if they wrote with the previous master key
SET_MASTER = CHANGES.update().values(master=bindparam("mark"), number=CHANGES.c.number + 1)
# text for its ON CONFLICT, which both databases understand
PUT_META = sa.text(
    "INSERT INTO meta (name, value) VALUES (:name, :value) "
    "ON CONFLICT (name) DO UPDATE SET value = excluded.value"
)


def delete_keyless_profiles(store: Store) -> tuple[int, int]:
    """Delete profiles without a data key, such as deleted ones that a restored copy of the database brought back.

    Names, consents and templates of these profiles are erased; without a data key the templates cannot be decrypted.
    Data keys without a profile, which a crash can leave behind, are destroyed.

    Returns
    -------
    number of deleted profiles, and number of destroyed data keys
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

    Parameters
    ----------
    profiles : number of profiles that have data, damaged ones included
    damaged : ids of profiles that keep the previous key, because their data cannot be read
    """

    profiles: int = 0
    damaged: set[str] = field(default_factory=set)


def rotate_master_key(settings: Settings, store: Store, old: MasterKey) -> RotationReport:
    """Change the master key of a service and its tenants: encrypt data keys and rotate templates with a new key.

    An earlier copy of the database can still be read with the old key. The changed database can neither be read with
    the old key nor linked to the copy. Running services that have both keys continue; others refuse calls. Call this
    function again to finish an interrupted change.

    Parameters
    ----------
    settings : data folder and databases of the tenants
    store : database of the service
    old : present master key; the new one comes from the environment, or else from a new file with a random key

    Returns
    -------
    number of changed profiles, and ids of damaged ones

    Raises
    ------
    ParameterError : if the new key is missing or equals the old one, or if another change was interrupted
    """
    new = MasterKey.from_environment(NEW_MASTER)
    new_file = settings.data / NEW_MASTER_FILE
    if new is None:
        if old.source == "environment":
            raise ParameterError(
                f"the master key comes from the environment: set {NEW_MASTER} to the new key, restart all services "
                "with both keys, and run `mvplda serve rotate` again"
            )
        make_key_file(new_file)
        new = MasterKey.from_file(new_file)
    if new.key == old.key:
        raise ParameterError(
            f"the new master key equals the old one: set {NEW_MASTER} to another key (openssl rand -base64 32)"
        )
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
    """Change the master key of one database from `old` to `new`, also while services run.

    Services first start to write with the new key. Every row names its master key, so that rows of both keys can be
    read. Profiles are then changed a few at a time. If the change is interrupted, the next call continues it.
    """
    _begin(store, old, new)
    rotation = Rotation(store, KeyRing([new, old]))
    rotation.change_all()
    rotation.delete_orphans()
    _finish(store)
    return rotation.report


def _begin(store: Store, old: MasterKey, new: MasterKey) -> None:
    """Note both master keys in the database, so that all services write with the new one.

    Do nothing if an interrupted call with the same keys has done so.

    Raises
    ------
    ParameterError : if `old` is not the key of the database, or if a change with other keys was interrupted
    """
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
                    "the given master key differs from the one that this database was created with: use that key"
                )
            raise ParameterError(
                "an earlier change of the master key was interrupted: first run `mvplda serve rotate` with the two "
                "keys of that change"
            )
    store.master = new.mark


def _finish(store: Store) -> None:
    """Delete the mark of the previous key from the database, so that services start with the new key alone."""
    with store.write() as work:
        work.run(META.delete().where(META.c.name == BEFORE))
        if store.is_postgres and work.value(THIS_TABLE) is not None:
            # these vectors are rotated by the previous key; the next search writes them again
            work.run("DELETE FROM voice_vectors")
    store.truncate_logs()


class Rotation:
    """Change of the profiles of one database from the previous master key to the new one, a few at a time.

    Parameters
    ----------
    store : database
    masters : the new master key, followed by the previous one

    Attributes
    ----------
    report : number of changed profiles, and ids of damaged ones
    """

    def __init__(self, store: Store, masters: KeyRing) -> None:
        self.store = store
        self.report = RotationReport()
        self._digits = masters.first.mark[:MARK_DIGITS]
        self._templates = Templates(store, Vault(masters), Settings())

    def change_all(self) -> None:
        """Change all profiles.

        Raises
        ------
        ParameterError : if other connections lock some profiles for longer than `HELD_LIMIT_S` seconds
        """
        until = time.monotonic() + HELD_LIMIT_S
        while held := self._change_once():
            if time.monotonic() > until:
                raise ParameterError(
                    f"the change of the master key is not finished, because other connections have locked {held} "
                    "profiles: run `mvplda serve rotate` again"
                )
            time.sleep(HELD_PAUSE_S)

    def delete_orphans(self) -> None:
        """Destroy data keys of the previous master key that belong to no profile.

        Such a key remains if the creation of a profile is interrupted after its data key was written.
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
        """Return whether an encrypted data key was encrypted with the new master key."""
        return isinstance(wrapped, bytes) and wrapped.hex().startswith(self._digits)

    def _change_once(self) -> int:
        """Change all profiles that are not locked by another connection; return how many were locked."""
        held = 0
        self.report.profiles = 0
        for names in self._pages():
            outdated = self._outdated(names)
            for start in range(0, len(outdated), CHANGED_AT_ONCE):
                begun = time.monotonic()
                held += self._change(outdated[start : start + CHANGED_AT_ONCE])
                # SQLite has one writer: other processes get as much time as this one
                if not self.store.is_postgres:
                    time.sleep(time.monotonic() - begun)
            self.report.profiles += len(names)
        return held

    def _pages(self) -> Iterator[list[str]]:
        """Yield the ids of all profiles that have data, in lists of at most `PAGE`."""
        names = [""]
        while names:
            with self.store.read() as work:
                names = list(work.run(NEXT_PROFILES, after=names[-1]).scalars())
            if names:
                yield names

    def _outdated(self, names: Sequence[str]) -> list[str]:
        """Return the ids, out of `names`, of undamaged profiles that still have data under the previous master key."""
        with self.store.read() as work:
            outdated = set(work.run(OUTDATED, names=names, digits=self._digits).scalars())
        keys = self.store.all_keys(names)
        outdated |= {name for name, wrapped in keys.items() if not self._is_new(wrapped)}
        return sorted(outdated - self.report.damaged)

    def _change(self, names: Sequence[str]) -> int:
        """Change the profiles `names` in one transaction; return how many were not changed because they are locked."""
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
                # data keys in another database are committed first; until then, both name their own master keys
                self._rewrap(work, keys, data_keys)
        except UnreadableRows:
            self.report.damaged |= set(self._templates.take_damage())
            return len(names)
        self.report.damaged |= set(self._templates.take_damage())
        return len(names) - len(free)

    def _unwrapped(self, work: Transaction, keys: Mapping[str, bytes]) -> dict[str, bytes]:
        """Return {profile id: decrypted data key}; damaged data keys are left out, and noted by `Templates.damage`.

        keys : {profile id: encrypted data key}
        """
        data_keys = {}
        for name, wrapped in keys.items():
            with suppress(DamagedProfile):
                data_keys[name] = self._templates.unwrap(work, name, wrapped)
        return data_keys

    def _rotate(self, work: Transaction, rows: Sequence[EnrolmentRow], key: bytes) -> None:
        """Store the contributions of recordings again, rotated by the new master key; damaged ones stay as they are.

        rows : recordings of one profile
        key : decrypted data key of the profile
        """
        for row in rows:
            if row.master != self._digits:
                with suppress(DamagedProfile):
                    contribution = self._templates.contribution(row, key)
                    self._templates.replace_contribution(work, row, contribution, key)

    def _rewrap(
        self, work: Transaction, keys: Mapping[str, bytes], data_keys: Mapping[str, bytes]
    ) -> None:
        """Store data keys encrypted with the new master key.

        keys : {profile id: encrypted data key}
        data_keys : {profile id: decrypted data key}
        """
        changes: list[dict[str, object]] = [
            {"name": name, "before": keys[name], "key": self._templates.wrap(work, key, name)}
            for name, key in data_keys.items()
            if not self._is_new(keys[name])
        ]
        if changes:
            with self.store.keys(work) as work_on_keys:
                work_on_keys.run_each(SET_KEY, changes)
