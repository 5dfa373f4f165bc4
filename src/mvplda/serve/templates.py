"""What is stored of a voice: shares of sums, marks of recordings; their domain; and a new master key for all of it."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..exceptions import ParameterError
from ..models.deployment import Deployable
from .keys import NEW_MASTER, MasterKey, TemplateRotation, Vault, keyed_mark, make_key_file
from .model import Cell, Integers, Model, ProcessedRecording, merge_cells
from .schemas import Json, Problem
from .settings import Settings
from .store import DAY, Store, Transaction, rotated

# Cosine from which on a vector is a copy of another: two takes of one phrase stay below 0.99, what another
# codec makes of one recording lies above.
COPY_COSINE = 0.99995
# Profiles whose sums stay in memory.
CACHED = 20_000
# Profiles that the domain is computed from: more make no difference.
DOMAIN_PROFILES = 200


def to_bytes(numbers: Integers) -> bytes:
    return numbers.astype("<i8").tobytes()


def to_numbers(data: bytes) -> Integers:
    return np.frombuffer(data, dtype="<i8").astype(np.int64)


class Templates:
    """Encrypted by the data key of their profile, each for its own row.

    Sums are cached by profile and version: every change of a profile has a new version.
    """

    def __init__(self, store: Store, vault: Vault, settings: Settings) -> None:
        self.store = store
        self.vault = vault
        self.settings = settings
        self._lock = threading.Lock()
        self._cache: OrderedDict[str, tuple[int, list[Cell]]] = OrderedDict()

    def data_key(self, work: Transaction, name: str) -> bytes:
        wrapped = self.store.get_key(name, work)
        if wrapped is None:
            detail = "the profile is opted_out: nothing is stored of it"
            raise Problem(409, "state", detail, state="opted_out")
        try:
            return self.vault.unwrap(wrapped, name)
        except ParameterError as error:
            raise rotated() from error

    # -- recordings ----------------------------------------------------------

    def enrolled(self, work: Transaction, name: str) -> list[Json]:
        """Rows of a profile's recordings, in their order."""
        query = "SELECT * FROM enrollments WHERE profile = :name ORDER BY number"
        return work.all(query, name=name)

    def put(
        self,
        work: Transaction,
        row: Json,
        cell: Cell,
        heard: ProcessedRecording,
        extractor: str | None,
    ) -> None:
        """Store a recording of a profile."""
        name = row["id"]
        number = row["next_number"]
        key = self.data_key(work, name)
        where = f"{name} {number}"
        vector = None
        if self.settings.keep_vectors and heard.vector is not None:
            vector = self.vault.seal(key, heard.vector.astype("<f4").tobytes(), where)
        work.insert(
            "enrollments",
            profile=name,
            number=number,
            phrase=cell.phrase,
            sitting=cell.sitting,
            share=self.vault.seal(key, to_bytes(cell.total), where),
            vector=vector,
            extractor=extractor,
            speech_s=heard.speech_s,
            created=work.now,
        )

    def replace(self, work: Transaction, row: Json, share: Integers, key: bytes) -> None:
        """Put another share in the place of that of a recording."""
        where = f"{row['profile']} {row['number']}"
        sealed = self.vault.seal(key, to_bytes(share), where)
        update = (
            "UPDATE enrollments SET share = :share WHERE profile = :profile AND number = :number"
        )
        work.run(update, share=sealed, profile=row["profile"], number=row["number"])

    def opened(self, row: Json, column: str, key: bytes) -> bytes:
        return self.vault.open(key, row[column], f"{row['profile']} {row['number']}")

    def vector(self, row: Json, key: bytes) -> NDArray[np.float32]:
        """The kept vector of a recording."""
        return np.frombuffer(self.opened(row, "vector", key), dtype="<f4")

    def wipe(self, work: Transaction, name: str) -> None:
        self.forget(name)
        work.run("DELETE FROM enrollments WHERE profile = :name", name=name)
        work.run("DELETE FROM marks WHERE profile = :name", name=name)

    # -- sums ----------------------------------------------------------------

    def cells(self, work: Transaction, row: Json) -> list[Cell]:
        """Sums of a profile, by phrase."""
        name = row["id"]
        with self._lock:
            version, cells = self._cache.get(name, (0, []))
            if version == row["version"]:
                self._cache.move_to_end(name)
                return cells
        rows = self.enrolled(work, name)
        cells = self._sums(rows, self.data_key(work, name)) if rows else []
        if name in work.changed:  # not committed yet: another change may get this version
            return cells
        with self._lock:
            self._cache[name] = (row["version"], cells)
            if len(self._cache) > CACHED:
                self._cache.popitem(last=False)
        return cells

    def forget(self, name: str) -> None:
        with self._lock:
            self._cache.pop(name, None)

    def cells_by_profile(self, work: Transaction, names: Sequence[str]) -> dict[str, list[Cell]]:
        """Sums of several profiles; nothing of those whose data keys are destroyed."""
        rows: dict[str, list[Json]] = {}
        for row in work.all("SELECT * FROM enrollments WHERE profile IN :names", names=names):
            rows.setdefault(row["profile"], []).append(row)
        cells = {}
        for name, wrapped in self.store.all_keys(list(rows)).items():
            cells[name] = self._sums(rows[name], self.vault.unwrap(wrapped, name))
        return cells

    def _sums(self, rows: Iterable[Json], key: bytes) -> list[Cell]:
        takes = []
        for row in rows:
            share = to_numbers(self.opened(row, "share", key))
            takes.append(Cell(row["phrase"], share, 1, row["sitting"]))
        return merge_cells(takes, phrases=True, apart=True)

    # -- recordings that come again ------------------------------------------

    def is_copy(self, work: Transaction, name: str, heard: ProcessedRecording) -> bool:
        """Whether this sound, or what another codec makes of it, came before."""
        if not heard.digest or heard.vector is None:
            return False
        key = self.data_key(work, name)
        query = "SELECT at FROM marks WHERE profile = :name AND mark = :mark"
        if work.value(query, name=name, mark=keyed_mark(key, heard.digest)) is not None:
            return True
        return any(
            cosine(self.vector(row, key), heard.vector) > COPY_COSINE
            for row in self.enrolled(work, name)
            if row["vector"] is not None
        )

    def put_mark(self, work: Transaction, name: str, heard: ProcessedRecording) -> None:
        if not heard.digest:
            return
        oldest = work.now - self.settings.marks_days * DAY
        old = "DELETE FROM marks WHERE profile = :name AND at < :oldest"
        work.run(old, name=name, oldest=oldest)
        new = "INSERT INTO marks (profile, mark, at) VALUES (:name, :mark, :at) ON CONFLICT DO NOTHING"
        mark = keyed_mark(self.data_key(work, name), heard.digest)
        work.run(new, name=name, mark=mark, at=work.now)


def cosine(a: NDArray[Any], b: NDArray[Any]) -> float:
    if len(a) != len(b):
        return 0.0
    return float(a @ b / np.sqrt(a @ a * (b @ b)))


class DomainCache:
    """The service's model, deployed on the sums that are stored; computed anew when these change.

    The sums are those of the first profiles in the order of their names, which are random, and of the model in use.
    The domain therefore depends on nothing but the database: all processes have the same, and nothing of somebody who
    leaves stays in it. In a large database few changes are in the sample, so that most cost one query.
    """

    def __init__(self, model: Model, templates: Templates) -> None:
        self.model = model
        self.templates = templates
        self._lock = threading.Lock()
        self._number = -1
        self._sample: list[tuple[str, int]] = []
        self._deployed = model

    def deployed(self, work: Transaction, number: int | None = None) -> Model:
        """The model in the domain of the profiles that a transaction sees.

        number : of the last change, where it was read already
        """
        if not isinstance(self.model.scorer, Deployable):
            return self.model
        if number is None:
            number = int(work.value("SELECT number FROM changes"))
        with self._lock:
            if number == self._number:
                return self._deployed
            sample = self.sample(work)
            deployed = self._deployed
            if sample != self._sample:
                names = [name for name, _ in sample]
                cells = self.templates.cells_by_profile(work, names)
                deployed = self.model.deployed([cells[name] for name in names if name in cells])
            if work.changed:  # not committed yet: others do not see it
                return deployed
            self._number = number
            self._sample = sample
            self._deployed = deployed
        return deployed

    def sample(self, work: Transaction) -> list[tuple[str, int]]:
        """(profile, version) of those whose sums are in use."""
        query = (
            "SELECT id, version FROM profiles WHERE model = :model AND enrollments > 0 "
            "ORDER BY id LIMIT :most"
        )
        rows = work.run(query, model=self.model.fingerprint, most=DOMAIN_PROFILES)
        return [(row.id, row.version) for row in rows]


# -- keys that are gone, and a new master key ----------------------------------------------


def delete_keyless_profiles(store: Store) -> tuple[int, int]:
    """Mark people as deleted whose data keys are not here, as after a copy of the database was restored.

    Their names and consents are erased with what cannot be decrypted any more. Data keys of nobody, which a crash may
    leave, are destroyed. How many of each there were.
    """
    keys = store.all_keys()
    with store.write() as work:
        query = "SELECT id FROM profiles WHERE state NOT IN ('opted_out', 'deleted')"
        people = set(work.run(query).scalars())
        gone = people - set(keys)
        work.changed |= gone
        for name in gone:
            nothing = {"state": "deleted", "user_id": None, "consent": None, "phrases": "{}"}
            work.update("profiles", name, **nothing, enrollments=0, updated=work.now)
            for table in ("enrollments", "marks", "challenges"):
                work.run(f"DELETE FROM {table} WHERE profile = :name", name=name)
    orphans = set(keys) - people
    for name in orphans:
        store.destroy_key(name)
    store.settle_files()
    return len(gone), len(orphans)


def rotate_master_key(settings: Settings, store: Store, old: MasterKey) -> int:
    """Change the master key: data keys are wrapped anew, templates get the rotation of the new key.

    Whoever has the old key and a copy of the database from before still reads that copy; what the database holds now
    cannot be linked to it or read by the old key. Services that still run with the old key refuse to decide. An
    interrupted rotation is finished by the next call.
    How many profiles there are.
    """
    new = MasterKey.from_environment(NEW_MASTER)
    waiting = settings.data / "master.key.new"
    if new is None:
        if old.where == "environment":
            raise ParameterError(
                f"the master key comes from the environment: put the new one into {NEW_MASTER}, "
                "rotate, then start services with it"
            )
        make_key_file(waiting)
        new = MasterKey.from_file(waiting)
    if new.key == old.key:
        raise ParameterError("the new master key is the old one")
    count = rotate_database(store, old, new)
    if new.where == str(waiting):
        waiting.replace(old.where)
    return count


def rotate_database(store: Store, old: MasterKey, new: MasterKey) -> int:
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
            _turn(work, Templates(store, after, Settings()), keys, old, new)
            update = "UPDATE meta SET value = :mark WHERE name = 'master'"
            work.run(update, mark=new.mark)
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
    work: Transaction, templates: Templates, keys: dict[str, bytes], old: MasterKey, new: MasterKey
) -> None:
    """Rotate all shares from the old rotation to the new one."""
    turns: dict[int, tuple[TemplateRotation, TemplateRotation]] = {}
    for row in work.all("SELECT * FROM enrollments"):
        key = keys[row["profile"]]
        share = to_numbers(templates.opened(row, "share", key))
        if len(share) not in turns:
            before, after = (
                TemplateRotation(one.derived("rotation"), len(share)) for one in (old, new)
            )
            turns[len(share)] = before, after
        before, after = turns[len(share)]
        turned = after.there(before.back(share[None].astype(np.float64)))[0]
        templates.replace(work, row, np.rint(turned).astype(np.int64), key)
    work.run("UPDATE profiles SET version = version + 1")
    work.changed |= set(work.run("SELECT id FROM profiles").scalars())
