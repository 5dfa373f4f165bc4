"""Voice templates: encrypted shares of sums, vectors, and marks of recordings."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray
from sqlalchemy import bindparam

from ..exceptions import ParameterError
from .cells import Cell, Integers, merge_cells
from .keys import Vault, keyed_mark
from .recordings import ProcessedRecording
from .schemas import Problem
from .settings import Settings
from .store import DAY, Store, Transaction, rotated
from .tables import ENROLMENTS, MARKS, EnrolmentRow, ProfileRow

# Vectors with a larger cosine are copies of one recording: two recordings of one phrase stay below 0.99, another
# codec's version of the same recording lies above.
COPY_COSINE = 0.99995
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
MARK_TIME = (
    sa.select(MARKS.c.at)
    .where(MARKS.c.profile == bindparam("name"))
    .where(MARKS.c.mark == bindparam("mark"))
)
DELETE_OLD_MARKS = (
    MARKS.delete()
    .where(MARKS.c.profile == bindparam("name"))
    .where(MARKS.c.at < bindparam("oldest"))
)
# text for its ON CONFLICT, which both databases understand
PUT_MARK = sa.text(
    "INSERT INTO marks (profile, mark, at) VALUES (:name, :mark, :at) ON CONFLICT DO NOTHING"
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

    def data_key(self, work: Transaction, name: str) -> bytes:
        """Return the data key of a profile, unwrapped; raise if it was destroyed."""
        wrapped = self.store.get_key(name, work)
        if wrapped is None:
            detail = "the profile has opted out: it has no stored voice"
            raise Problem(409, "state", detail, state="opted_out")
        try:
            return self.vault.unwrap(wrapped, name)
        except ParameterError as error:
            raise rotated() from error

    # -- recordings ----------------------------------------------------------

    def enrolments(self, work: Transaction, name: str) -> list[EnrolmentRow]:
        """Return the rows of a profile's recordings, in their order."""
        return work.rows(EnrolmentRow, PROFILE_ENROLMENTS, name=name)

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
        """Return the decrypted share of a recording."""
        return to_numbers(self.vault.open(key, row.share, f"{row.profile} {row.number}"))

    def vector(self, row: EnrolmentRow, key: bytes) -> NDArray[np.float32] | None:
        """Return the decrypted vector of a recording; None if it was not stored."""
        if row.vector is None:
            return None
        data = self.vault.open(key, row.vector, f"{row.profile} {row.number}")
        return np.frombuffer(data, dtype="<f4")

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
            version, cells = self._cache.get(name, (0, []))
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
        """Remove a profile from the cache."""
        with self._lock:
            self._cache.pop(name, None)

    def cells_by_profile(self, work: Transaction, names: Sequence[str]) -> dict[str, list[Cell]]:
        """Return the sums of several profiles, without those whose data keys are destroyed."""
        rows: dict[str, list[EnrolmentRow]] = {}
        for row in work.rows(EnrolmentRow, ENROLMENTS_OF, names=names):
            rows.setdefault(row.profile, []).append(row)
        cells = {}
        for name, wrapped in self.store.all_keys(list(rows)).items():
            cells[name] = self._sums(rows[name], self.vault.unwrap(wrapped, name))
        return cells

    def _sums(self, rows: Iterable[EnrolmentRow], key: bytes) -> list[Cell]:
        recordings = [Cell(row.phrase, self.share(row, key), 1, row.session) for row in rows]
        return merge_cells(recordings, per_phrase=True, per_session=True)

    # -- repeated recordings -------------------------------------------------

    def is_copy(self, work: Transaction, name: str, recording: ProcessedRecording) -> bool:
        """Return whether this recording, or another encoding of it, was sent before."""
        if not recording.digest or recording.vector is None:
            return False
        key = self.data_key(work, name)
        mark = keyed_mark(key, recording.digest)
        if work.value(MARK_TIME, name=name, mark=mark) is not None:
            return True
        vectors = (self.vector(row, key) for row in self.enrolments(work, name))
        return any(
            cosine(vector, recording.vector) > COPY_COSINE
            for vector in vectors
            if vector is not None
        )

    def put_mark(self, work: Transaction, name: str, recording: ProcessedRecording) -> None:
        """Store the mark of a recording, and delete marks that are too old."""
        if not recording.digest:
            return
        oldest = work.now - self.settings.marks_days * DAY
        work.run(DELETE_OLD_MARKS, name=name, oldest=oldest)
        mark = keyed_mark(self.data_key(work, name), recording.digest)
        work.run(PUT_MARK, name=name, mark=mark, at=work.now)


def cosine(a: NDArray[Any], b: NDArray[Any]) -> float:
    """Return the cosine of two vectors; 0 if their lengths differ."""
    if len(a) != len(b):
        return 0.0
    return float(a @ b / np.sqrt(a @ a * (b @ b)))
