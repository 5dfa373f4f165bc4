"""Voice templates: encrypted shares of sums, and vectors."""

from __future__ import annotations

import logging
import threading
from collections import Counter, OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray
from sqlalchemy import bindparam
from sqlalchemy.exc import DBAPIError

from .cells import Cell, Integers, merge_cells
from .database import UnreadableRows, is_corruption
from .keys import UnknownMasterKey, Vault
from .recordings import ProcessedRecording
from .schemas import DamagedProfile, Problem
from .settings import Settings
from .store import Store, Transaction, rotated
from .tables import ENROLMENTS, MARKS, EnrolmentRow, ProfileRow

log = logging.getLogger("mvplda.serve")

# Maximum number of profiles with sums in memory.
CACHED = 20_000

PROFILE_ENROLMENTS = (
    sa.select(ENROLMENTS)
    .where(ENROLMENTS.c.profile == bindparam("name"))
    .order_by(ENROLMENTS.c.number)
)
ENROLMENTS_OF = sa.select(ENROLMENTS).where(
    ENROLMENTS.c.profile.in_(bindparam("names", expanding=True))
)
SET_SHARE = (
    ENROLMENTS.update()
    .where(ENROLMENTS.c.profile == bindparam("name"))
    .where(ENROLMENTS.c.number == bindparam("position"))
    .values(share=bindparam("sealed"))
)
DELETE_ENROLMENTS = ENROLMENTS.delete().where(ENROLMENTS.c.profile == bindparam("name"))
DELETE_MARKS = MARKS.delete().where(MARKS.c.profile == bindparam("name"))


def to_bytes(numbers: Integers) -> bytes:
    return numbers.astype("<i8").tobytes()


def to_numbers(data: bytes) -> Integers:
    return np.frombuffer(data, dtype="<i8").astype(np.int64)


class Templates:
    """Stores templates, encrypted by the data key of their profile and bound to their row.

    Sums are cached by profile and version: every change of a profile has a new version.
    """

    def __init__(self, store: Store, vault: Vault, settings: Settings) -> None:
        self.store = store
        self.vault = vault
        self.settings = settings
        self._lock = threading.Lock()
        self._cache: OrderedDict[str, tuple[int, list[Cell]]] = OrderedDict()
        self._damage: dict[str, str] = {}

    def data_key(self, work: Transaction, name: str) -> bytes:
        """Return the data key of a profile, unwrapped; raise if it was destroyed or is damaged."""
        wrapped = self.store.get_key(name, work)
        if wrapped is None:
            detail = (
                "the profile has no data key: its deletion was interrupted, or data keys were not restored. "
                "Delete it, or restore its data key"
            )
            raise Problem(409, "no-data-key", detail)
        return self.unwrap(work, name, wrapped)

    def unwrap(self, work: Transaction, name: str, wrapped: bytes) -> bytes:
        """Return a data key, unwrapped; raise if it is damaged."""
        try:
            return self.vault.unwrap(wrapped, name)
        except UnknownMasterKey as error:
            if self.store.is_master(work, error.mark):
                raise rotated() from error
            raise self.damage(name, "data key") from error
        except ValueError as error:
            raise self.damage(name, "data key") from error

    # -- damaged data --------------------------------------------------------

    def damage(self, name: str, what: str) -> DamagedProfile:
        """Record that data of a profile cannot be read, and return the problem to raise."""
        with self._lock:
            is_new = name not in self._damage
            self._damage[name] = what
            self._cache.pop(name, None)
        if is_new:
            log.error("damaged profile", extra={"fields": {"profile": name, "what": what}})
        return DamagedProfile(what)

    def take_damage(self) -> dict[str, str]:
        """Return {profile: damaged data} of profiles that are not marked yet, and forget them."""
        with self._lock:
            found, self._damage = self._damage, {}
        return found

    def put_damage_back(self, found: dict[str, str]) -> None:
        """Record damage again that could not be stored."""
        with self._lock:
            self._damage = found | self._damage

    # -- recordings ----------------------------------------------------------

    def enrolments(self, work: Transaction, name: str) -> list[EnrolmentRow]:
        """Return the rows of a profile's recordings, in their order; raise if one is damaged."""
        with self._unreadable([name]):
            rows = work.rows(EnrolmentRow, PROFILE_ENROLMENTS, name=name)
        for row in rows:
            if not row.is_readable():
                raise self.damage(name, f"recording {row.number}")
        return rows

    def all_enrolments(self, work: Transaction, names: Sequence[str]) -> list[EnrolmentRow]:
        """Return the rows of the recordings of several profiles, also damaged ones."""
        with self._unreadable(names):
            return work.rows(EnrolmentRow, ENROLMENTS_OF, names=names)

    @contextmanager
    def _unreadable(self, names: Sequence[str]) -> Iterator[None]:
        """Find the profiles whose rows the database itself cannot read, where a query of several fails.

        Raises `UnreadableRows`; the transaction is repeated without them.
        """
        try:
            yield
        except DBAPIError as error:
            if not is_corruption(error):
                raise
            for name in names:
                try:
                    with self.store.read() as work:
                        work.rows(EnrolmentRow, PROFILE_ENROLMENTS, name=name)
                except DBAPIError as problem:
                    if not is_corruption(problem):
                        raise
                    self.damage(name, "recordings")
            raise UnreadableRows from error

    def put(
        self,
        work: Transaction,
        profile: ProfileRow,
        cell: Cell,
        recording: ProcessedRecording,
        extractor: str | None,
    ) -> None:
        """Store a recording of a profile."""
        number = profile.next_number
        key = self.data_key(work, profile.id)
        address = f"{profile.id} {number}"
        vector = None
        if self.settings.keep_vectors and recording.vector is not None:
            vector = self.vault.seal(key, recording.vector.astype("<f4").tobytes(), address)
        row = EnrolmentRow(
            profile=profile.id,
            number=number,
            phrase=cell.phrase,
            session=cell.session,
            share=self.vault.seal(key, to_bytes(cell.total), address),
            vector=vector,
            extractor=extractor,
            speech_s=recording.speech_s,
            created=work.now,
        )
        work.run(ENROLMENTS.insert(), **row._asdict())

    def replace_share(
        self, work: Transaction, row: EnrolmentRow, share: Integers, key: bytes
    ) -> None:
        """Store another share for a recording."""
        sealed = self.vault.seal(key, to_bytes(share), f"{row.profile} {row.number}")
        work.run(SET_SHARE, sealed=sealed, name=row.profile, position=row.number)

    def share(self, row: EnrolmentRow, key: bytes) -> Integers:
        """Return the decrypted share of a recording; raise if it is damaged."""
        data = self._open(row, row.share, key)
        if len(data) % 8:
            raise self.damage(row.profile, f"recording {row.number}")
        return to_numbers(data)

    def vector(self, row: EnrolmentRow, key: bytes) -> NDArray[np.float32] | None:
        """Return the decrypted vector of a recording; None if it was not stored."""
        if row.vector is None:
            return None
        data = self._open(row, row.vector, key)
        if len(data) % 4:
            raise self.damage(row.profile, f"recording {row.number}")
        return np.frombuffer(data, dtype="<f4")

    def _open(self, row: EnrolmentRow, data: bytes, key: bytes) -> bytes:
        try:
            return self.vault.open(key, data, f"{row.profile} {row.number}")
        except ValueError as error:
            raise self.damage(row.profile, f"recording {row.number}") from error

    def wipe(self, work: Transaction, name: str) -> None:
        """Delete the recordings of a profile and their marks."""
        self.forget(name)
        work.run(DELETE_ENROLMENTS, name=name)
        work.run(DELETE_MARKS, name=name)

    # -- sums ----------------------------------------------------------------

    def cells(self, work: Transaction, profile: ProfileRow) -> list[Cell]:
        """Return the sums of a profile, one cell per phrase and session."""
        name = profile.id
        with self._lock:
            version, cells = self._cache.get(name, (-1, []))
            if version == profile.version:
                self._cache.move_to_end(name)
                return cells
        rows = self.enrolments(work, name)
        cells = self._sums(rows, self.data_key(work, name)) if rows else []
        if name in work.changed:
            # not committed yet: if this transaction fails, another change gets the same version
            return cells
        with self._lock:
            self._cache[name] = (profile.version, cells)
            if len(self._cache) > CACHED:
                self._cache.popitem(last=False)
        return cells

    def forget(self, name: str) -> None:
        """Remove a profile from the cache, and damage of it that is not marked yet."""
        with self._lock:
            self._cache.pop(name, None)
            self._damage.pop(name, None)

    def cells_by_profile(self, work: Transaction, names: Sequence[str]) -> dict[str, list[Cell]]:
        """Return the sums of several profiles.

        Those whose data keys are destroyed or whose data are damaged are left out.
        """
        rows: dict[str, list[EnrolmentRow]] = {}
        for row in self.all_enrolments(work, names):
            rows.setdefault(row.profile, []).append(row)
        cells = {}
        for name, wrapped in self.store.all_keys(list(rows), work).items():
            with suppress(DamagedProfile):
                cells[name] = self._sums(rows[name], self.unwrap(work, name, wrapped))
        return cells

    def _sums(self, rows: Sequence[EnrolmentRow], key: bytes) -> list[Cell]:
        recordings = [Cell(row.phrase, self.share(row, key), 1, row.session) for row in rows]
        ranks = Counter(len(cell.total) for cell in recordings)
        for row, cell in zip(rows, recordings, strict=True):
            if len(cell.total) != ranks.most_common(1)[0][0]:
                raise self.damage(row.profile, f"recording {row.number}")
        return merge_cells(recordings, per_phrase=True, per_session=True)
