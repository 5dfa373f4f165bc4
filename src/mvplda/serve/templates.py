"""Voice templates of recordings: their vectors, and what each contributes to the sum of its profile.

The *contribution* of a recording is its evidence in whole numbers. The column ``share`` stores it, encrypted.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter, OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray
from sqlalchemy import bindparam
from sqlalchemy.exc import DBAPIError

from .._typing import Array
from .cells import Cell, Integers, merge_cells
from .database import UnreadableRows, is_corruption
from .keys import MARK_DIGITS, TemplateRotation, UnknownMasterKey, Vault, rotation_matrix
from .recordings import ProcessedRecording
from .schemas import DamagedProfile, Problem
from .settings import Settings
from .store import Store, Transaction, rotated
from .tables import ENROLMENTS, MARKS, EnrolmentRow, ProfileRow

log = logging.getLogger("mvplda.serve")

# {(digits of a master key, length of the sums): [(profile id, rotated sum)]}
SumGroups = dict[tuple[str, int], list[tuple[str, Cell]]]
# Largest size of the cached sums in bytes.
CACHE_BYTES = 100 * 2**20

PROFILE_ENROLMENTS = (
    sa.select(ENROLMENTS)
    .where(ENROLMENTS.c.profile == bindparam("name"))
    .order_by(ENROLMENTS.c.number)
)
ENROLMENTS_OF = sa.select(ENROLMENTS).where(
    ENROLMENTS.c.profile.in_(bindparam("names", expanding=True))
)
# Vectors are a third of the data, and sums do not need them.
WITHOUT_VECTORS = ENROLMENTS_OF.with_only_columns(
    *(sa.null() if column.name == "vector" else column for column in ENROLMENTS.c)
)
SET_SHARE = (
    ENROLMENTS.update()
    .where(ENROLMENTS.c.profile == bindparam("name"))
    .where(ENROLMENTS.c.number == bindparam("position"))
    .values(share=bindparam("sealed"), master=bindparam("digits"))
)
DELETE_ENROLMENTS = ENROLMENTS.delete().where(ENROLMENTS.c.profile == bindparam("name"))
DELETE_MARKS = MARKS.delete().where(MARKS.c.profile == bindparam("name"))


def to_bytes(numbers: Integers) -> bytes:
    """Return whole numbers as bytes: 64 bits each, little-endian."""
    return numbers.astype("<i8").tobytes()


def to_numbers(data: bytes) -> Integers:
    """Return the whole numbers that `to_bytes` wrote."""
    return np.frombuffer(data, dtype="<i8").astype(np.int64)


class Templates:
    """Stores the templates of recordings, encrypted with the data key of their profile.

    The sum of a profile is the sum of its recordings' contributions, see `Model.contributions`. Contributions are
    stored rotated by a secret orthogonal matrix, which is derived from the master key that their row names. Sums are
    rotated back when they are read, so that no scorer has to support the rotation. Sums are cached by profile and
    version; every change of a profile increases its version.

    Parameters
    ----------
    store : database
    vault : encryption and master keys
    settings : the setting ``keep_vectors`` decides whether vectors are stored
    """

    def __init__(self, store: Store, vault: Vault, settings: Settings) -> None:
        self.store = store
        self.vault = vault
        self.settings = settings
        self._lock = threading.Lock()
        self._cache: OrderedDict[str, tuple[int, list[Cell]]] = OrderedDict()
        self._cached_bytes = 0
        self._damage: dict[str, str] = {}
        self._rotations: dict[tuple[str, int], TemplateRotation] = {}

    def data_key(self, work: Transaction, name: str) -> bytes:
        """Return the decrypted data key of the profile `name`.

        Raises
        ------
        Problem : 409 if the profile has no data key, or if the key is damaged; 503 if its master key is missing
        """
        wrapped = self.store.get_key(name, work)
        if wrapped is None:
            detail = (
                "the data key of this profile is missing, because its deletion was interrupted or data keys were not "
                "restored: delete the profile, or restore its data key"
            )
            raise Problem(409, "no-data-key", detail)
        return self.unwrap(work, name, wrapped)

    def unwrap(self, work: Transaction, name: str, wrapped: bytes) -> bytes:
        """Return the data key of the profile `name`, decrypted from `wrapped`.

        Raises a `Problem` if the key is damaged (409), or if its master key is missing (503).
        """
        try:
            return self.vault.unwrap(wrapped, name)
        except UnknownMasterKey as error:
            if self.store.is_master(work, error.mark):
                raise rotated() from error
            raise self.damage(name, "data key") from error
        except ValueError as error:
            raise self.damage(name, "data key") from error

    def wrap(self, work: Transaction, key: bytes, name: str) -> bytes:
        """Return the data key of the profile `name`, encrypted with the master key of a transaction."""
        try:
            return self.vault.wrap(key, name, work.master)
        except UnknownMasterKey as error:
            raise rotated() from error

    # -- rotation ------------------------------------------------------------

    def index_rotation(self, mark: str | None, width: int) -> Array:
        """Return the (width, width) orthogonal matrix that rotates vectors for the search in the database.

        Profiles and tests are rotated by the same matrix, so that their inner products stay the same.

        mark : identifier of the master key from which the matrix is derived; None: the first of the master keys with
            which this process was started
        """
        master = self.vault.masters.first if mark is None else self.vault.masters.find(mark)
        if master is None:
            raise rotated()
        return rotation_matrix(master.derived("rotation") + b" index", width)

    def _digits(self, work: Transaction) -> str:
        """Return the digits by which stored rows name a transaction's master key: the first of its mark."""
        return (work.master or self.vault.masters.first.mark)[:MARK_DIGITS]

    def _rotation(self, digits: str, rank: int) -> TemplateRotation:
        """Return the rotation of contributions that the master key with a mark beginning with `digits` determines.

        rank : length of a contribution

        Raises
        ------
        UnknownMasterKey : if this process does not have the key
        """
        rotation = self._rotations.get((digits, rank))
        if rotation is None:
            master = self.vault.masters.find(digits)
            if master is None:
                raise UnknownMasterKey(digits)
            rotation = TemplateRotation(master.derived("rotation"), rank)
            self._rotations[digits, rank] = rotation
        return rotation

    def _rotation_of(self, row: EnrolmentRow, rank: int) -> TemplateRotation:
        """Return the rotation by which the contribution in `row`, of length `rank`, is stored.

        Raises a `Problem` (503) if the database has the master key that the row names but this process does not, and
        `DamagedProfile` (409) if neither has it.
        """
        try:
            return self._rotation(str(row.master), rank)
        except UnknownMasterKey as error:
            with self.store.read() as work:
                if self.store.is_master(work, error.mark):
                    raise rotated() from error
            raise self.damage(row.profile, f"recording {row.number}") from error

    def _rotated(self, digits: str, contribution: Integers) -> bytes:
        """Return a contribution as bytes, rotated by the master key whose mark begins with `digits`."""
        try:
            rotation = self._rotation(digits, len(contribution))
        except UnknownMasterKey as error:
            raise rotated() from error
        return to_bytes(np.rint(rotation.apply(contribution[None].astype(np.float64)))[0])

    # -- damaged data --------------------------------------------------------

    def damage(self, name: str, what: str) -> DamagedProfile:
        """Note, in memory and in the log, that data of the profile `name` cannot be read; return the error to raise.

        what : name of the data, such as "recording 2"
        """
        with self._lock:
            is_new = name not in self._damage
            self._damage[name] = what
            self._drop(name)
        if is_new:
            log.error("damaged profile", extra={"fields": {"profile": name, "what": what}})
        return DamagedProfile(what)

    def take_damage(self) -> dict[str, str]:
        """Return {profile id: name of the damaged data} as `damage` noted them, and forget them."""
        with self._lock:
            found, self._damage = self._damage, {}
        return found

    def put_damage_back(self, found: dict[str, str]) -> None:
        """Note damage again that `take_damage` returned and that could not be marked in the database."""
        with self._lock:
            self._damage = found | self._damage

    # -- recordings ----------------------------------------------------------

    def enrolments(self, work: Transaction, name: str) -> list[EnrolmentRow]:
        """Return the rows of the recordings of the profile `name`, oldest first.

        Raises `DamagedProfile` if a row is damaged.
        """
        with self._unreadable([name]):
            rows = work.rows(EnrolmentRow, PROFILE_ENROLMENTS, name=name)
        for row in rows:
            if not row.is_readable():
                raise self.damage(name, f"recording {row.number}")
        return rows

    def spoof_scores(self, work: Transaction, name: str) -> list[float]:
        """Return the spoof detector's raw scores of a profile's recordings; one enrolled without it has none."""
        scores = [row.spoof_score for row in self.enrolments(work, name)]
        return [score for score in scores if score is not None]

    def all_enrolments(
        self, work: Transaction, names: Sequence[str], with_vectors: bool = True
    ) -> list[EnrolmentRow]:
        """Return the rows of the recordings of several profiles, including rows with damaged values.

        names : ids of the profiles
        with_vectors : whether to read the encrypted vectors too
        """
        query = ENROLMENTS_OF if with_vectors else WITHOUT_VECTORS
        with self._unreadable(names):
            return work.rows(EnrolmentRow, query, names=names)

    @contextmanager
    def _unreadable(self, names: Sequence[str]) -> Iterator[None]:
        """Find the damaged profiles if the query in the block fails because the database cannot read some rows.

        These profiles are noted by `damage`. `UnreadableRows` is then raised, so that the transaction is repeated
        without them. Other errors are passed on.

        names : ids of the profiles that the query reads
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
        """Store a recording of a profile, encrypted.

        Parameters
        ----------
        profile : profile; the recording gets its ``next_number``
        cell : contribution of the recording, with its phrase and session
        recording : vector, seconds of speech and score of the spoof detector
        extractor : name of the extractor; None: unknown
        """
        number = profile.next_number
        key = self.data_key(work, profile.id)
        address = f"{profile.id} {number}"
        vector = None
        if self.settings.keep_vectors and recording.vector is not None:
            vector = self.vault.seal(key, recording.vector.astype("<f4").tobytes(), address)
        digits = self._digits(work)
        row = EnrolmentRow(
            profile=profile.id,
            number=number,
            phrase=cell.phrase,
            session=cell.session,
            share=self.vault.seal(key, self._rotated(digits, cell.total), address),
            vector=vector,
            extractor=extractor,
            speech_s=recording.speech_s,
            created=work.now,
            master=digits,
            spoof_score=recording.spoof_score,
        )
        work.run(ENROLMENTS.insert(), **row._asdict())

    def replace_contribution(
        self, work: Transaction, row: EnrolmentRow, contribution: Integers, key: bytes
    ) -> None:
        """Replace the stored contribution of the recording in `row`; encrypt it with the data key `key`."""
        digits = self._digits(work)
        address = f"{row.profile} {row.number}"
        sealed = self.vault.seal(key, self._rotated(digits, contribution), address)
        values = {"sealed": sealed, "digits": digits}
        work.run(SET_SHARE, **values, name=row.profile, position=row.number)

    def contribution(self, row: EnrolmentRow, key: bytes) -> Integers:
        """Return the (rank,) contribution of a recording, decrypted with the data key `key` and rotated back."""
        stored = self._stored_contribution(row, key)
        return rotated_back(self._rotation_of(row, len(stored)), [stored])[0]

    def _stored_contribution(self, row: EnrolmentRow, key: bytes) -> Integers:
        """Return the (rank,) contribution of a recording, decrypted but still rotated.

        Raises `DamagedProfile` if it is damaged.
        """
        data = self._open(row, row.share, key)
        if len(data) % 8:
            raise self.damage(row.profile, f"recording {row.number}")
        return to_numbers(data)

    def vector(self, row: EnrolmentRow, key: bytes) -> NDArray[np.float32] | None:
        """Return the (width,) vector of a recording, decrypted with the data key `key`; None if it was not stored."""
        if row.vector is None:
            return None
        data = self._open(row, row.vector, key)
        if len(data) % 4:
            raise self.damage(row.profile, f"recording {row.number}")
        return np.frombuffer(data, dtype="<f4")

    def _open(self, row: EnrolmentRow, data: bytes, key: bytes) -> bytes:
        """Return `data` of a row, decrypted with the data key `key`; raise `DamagedProfile` if that fails."""
        try:
            return self.vault.open(key, data, f"{row.profile} {row.number}")
        except ValueError as error:
            raise self.damage(row.profile, f"recording {row.number}") from error

    def wipe(self, work: Transaction, name: str) -> None:
        """Delete the recordings of the profile `name`, and the marks by which copies of them are recognised."""
        self.forget(name)
        work.run(DELETE_ENROLMENTS, name=name)
        work.run(DELETE_MARKS, name=name)

    # -- sums ----------------------------------------------------------------

    def cells(self, work: Transaction, profile: ProfileRow) -> list[Cell]:
        """Return the decrypted sums of a profile, one cell per phrase and session; empty without recordings."""
        name = profile.id
        with self._lock:
            version, cells = self._cache.get(name, (-1, []))
            if version == profile.version:
                self._cache.move_to_end(name)
                return cells
        rows = self.enrolments(work, name)
        cells = []
        if rows:
            stored: SumGroups = {}
            group_sums(stored, name, self._stored_sums(rows, self.data_key(work, name)))
            cells = self._rotated_back(stored)[name]
        if name in work.changed:
            # not committed yet: if this transaction fails, another change gets the same version
            return cells
        with self._lock:
            self._drop(name)
            self._cache[name] = (profile.version, cells)
            self._cached_bytes += sum(cell.total.nbytes for cell in cells)
            while self._cached_bytes > CACHE_BYTES:
                self._drop(next(iter(self._cache)))
        return cells

    def forget(self, name: str) -> None:
        """Remove the profile `name` from the cache, and what `damage` noted about it."""
        with self._lock:
            self._drop(name)
            self._damage.pop(name, None)

    def _drop(self, name: str) -> None:
        """Remove the profile `name` from the cache; the caller must hold `_lock`."""
        _, cells = self._cache.pop(name, (0, []))
        self._cached_bytes -= sum(cell.total.nbytes for cell in cells)

    def cells_by_profile(self, work: Transaction, names: Sequence[str]) -> dict[str, list[Cell]]:
        """Return {profile id: cells} of several profiles.

        Profiles whose data keys are destroyed or whose data are damaged are left out.
        """
        rows: dict[str, list[EnrolmentRow]] = {}
        for row in self.all_enrolments(work, names, with_vectors=False):
            rows.setdefault(row.profile, []).append(row)
        keys = self.store.all_keys(list(rows), work)
        stored: SumGroups = {}
        for name, wrapped in keys.items():
            with suppress(DamagedProfile):
                group_sums(
                    stored, name, self._stored_sums(rows[name], self.unwrap(work, name, wrapped))
                )
        return self._rotated_back(stored)

    def _rotated_back(self, stored: SumGroups) -> dict[str, list[Cell]]:
        """Return {profile id: its sums}, rotated back, one cell per phrase and session.

        stored : rotated sums in groups of one master key and length; one matrix product rotates a group back
        """
        cells: dict[str, list[Cell]] = {}
        for (digits, rank), members in stored.items():
            rotation = self._rotation(digits, rank)
            totals = rotated_back(rotation, [cell.total for _, cell in members])
            for (name, cell), total in zip(members, totals, strict=True):
                cells.setdefault(name, []).append(replace(cell, total=total))
        # while the master key is changed, a phrase of a profile may have sums of two master keys
        return {
            name: merge_cells(sums, per_phrase=True, per_session=True)
            for name, sums in cells.items()
        }

    def _stored_sums(self, rows: Sequence[EnrolmentRow], key: bytes) -> list[tuple[str, Cell]]:
        """Return the rotated sums of a profile: one (digits of the master key, cell) per key, phrase and session.

        rows : all recordings of the profile
        key : data key of the profile

        Raises `DamagedProfile` if a recording is damaged.
        """
        contributions = [self._stored_contribution(row, key) for row in rows]
        rank = Counter(map(len, contributions)).most_common(1)[0][0]
        recordings: dict[str, list[Cell]] = {}
        for row, contribution in zip(rows, contributions, strict=True):
            if len(contribution) != rank:
                raise self.damage(row.profile, f"recording {row.number}")
            self._rotation_of(row, rank)
            cell = Cell(row.phrase, contribution, 1, row.session)
            recordings.setdefault(row.master, []).append(cell)
        return [
            (digits, cell)
            for digits, cells in recordings.items()
            for cell in merge_cells(cells, per_phrase=True, per_session=True)
        ]


def group_sums(groups: SumGroups, name: str, sums: Sequence[tuple[str, Cell]]) -> None:
    """Add the rotated sums of the profile `name` to the groups of their master key and length.

    groups : {(digits of a master key, length of the sums): [(profile id, rotated sum)]}, changed in place
    sums : (digits of the master key, rotated sum) of the profile
    """
    for digits, cell in sums:
        groups.setdefault((digits, len(cell.total)), []).append((name, cell))


def rotated_back(rotation: TemplateRotation, sums: Sequence[Integers]) -> list[Integers]:
    """Undo the `rotation` of sums, and round them to whole numbers."""
    plain = rotation.undo(np.stack(sums).astype(np.float64))
    return list(np.rint(plain).astype(np.int64))
