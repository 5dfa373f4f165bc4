"""What is stored of a voice: sums of evidence by phrase, each recording's share of them, marks of recordings."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray

from ..exceptions import ParameterError
from .gate import Heard
from .keys import Vault
from .problems import Problem, conflict
from .settings import Settings
from .store import Store, Work, among
from .tables import enrollments, marks, profiles, templates

NEAR = 0.99995
"""Cosine from which on a vector is a copy of another: two takes of one phrase stay below 0.99, what another codec makes
of one recording lies above."""
CACHED = 20_000
"""Profiles whose sums stay in memory."""
DAY = 86400.0


@dataclass(frozen=True)
class Cell:
    """The recordings of one phrase in a profile: their sum, in whole numbers, and how many they are."""

    phrase: str
    total: NDArray[np.int64]
    count: int

    def __add__(self, other: Cell) -> Cell:
        return Cell(self.phrase, self.total + other.total, self.count + other.count)


def to_bytes(numbers: NDArray[np.int64]) -> bytes:
    return numbers.astype("<i8").tobytes()


def to_numbers(data: bytes) -> NDArray[np.int64]:
    return np.frombuffer(data, dtype="<i8").astype(np.int64)


def added(cells: Sequence[Cell], new: Cell) -> list[Cell]:
    """Cells with one more recording, or with one less where counts are negative."""
    sums = {cell.phrase: cell for cell in cells}
    sums[new.phrase] = sums[new.phrase] + new if new.phrase in sums else new
    return list(sums.values())


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

    def data_key(self, work: Work, name: str) -> bytes:
        wrapped = self.store.get_key(name, work)
        if wrapped is None:
            state = work.execute(sa.select(profiles.c.state).where(profiles.c.id == name)).scalar()
            raise conflict(str(state), f"the profile is {state}: nothing is stored of it")
        try:
            return self.vault.unwrap(wrapped, name)
        except ParameterError as error:
            detail = "the master key was rotated: this service must be restarted"
            raise Problem(503, "master-key", detail) from error

    # -- sums ----------------------------------------------------------------

    def cells(self, work: Work, row: Mapping[str, Any]) -> list[Cell]:
        """Sums of a profile, by phrase."""
        name = row["id"]
        with self._lock:
            version, cells = self._cache.get(name, (0, []))
            if version == row["version"]:
                self._cache.move_to_end(name)
                return cells
        cells = self._read_cells(work, name, self.data_key(work, name))
        if name in work.changed:  # not committed yet: another change may get this version
            return cells
        with self._lock:
            self._cache[name] = (row["version"], cells)
            self._cache.move_to_end(name)
            while len(self._cache) > CACHED:
                self._cache.popitem(last=False)
        return cells

    def _read_cells(self, work: Work, name: str, key: bytes) -> list[Cell]:
        query = sa.select(templates).where(templates.c.profile == name)
        return [self._cell(dict(row), key) for row in work.execute(query).mappings()]

    def _cell(self, row: Mapping[str, Any], key: bytes) -> Cell:
        data = self.vault.open(key, bytes(row["total"]), f"{row['profile']} {row['phrase']}")
        return Cell(row["phrase"], to_numbers(data), row["count"])

    def some_cells(self, work: Work, names: list[str]) -> dict[str, list[Cell]]:
        """Sums of several profiles; nothing of those whose data keys are destroyed."""
        keys = self.store.some_keys(names)
        found: dict[str, list[Cell]] = {}
        query = sa.select(templates).where(among(templates.c.profile, names))
        for row in work.execute(query).mappings():
            name = row["profile"]
            if name in keys:
                key = self.vault.unwrap(keys[name], name)
                found.setdefault(name, []).append(self._cell(dict(row), key))
        return found

    def put_cell(self, work: Work, name: str, key: bytes, cell: Cell) -> None:
        here = (templates.c.profile == name) & (templates.c.phrase == cell.phrase)
        work.execute(templates.delete().where(here))
        if cell.count:
            total = self.vault.seal(key, to_bytes(cell.total), f"{name} {cell.phrase}")
            row = {"profile": name, "phrase": cell.phrase, "count": cell.count, "total": total}
            work.execute(templates.insert().values(**row))

    def wipe(self, work: Work, name: str) -> None:
        self.forget(name)
        for table in (templates, enrollments, marks):
            work.execute(table.delete().where(table.c.profile == name))

    def forget(self, name: str) -> None:
        with self._lock:
            self._cache.pop(name, None)

    # -- shares --------------------------------------------------------------

    def put_share(
        self,
        work: Work,
        name: str,
        number: int,
        key: bytes,
        new: Cell,
        heard: Heard,
        extractor: str | None,
    ) -> None:
        where = f"{name} {number}"
        vector = None
        if self.settings.keep_vectors and heard.vector is not None:
            vector = self.vault.seal(key, heard.vector.astype("<f4").tobytes(), where)
        work.execute(
            enrollments.insert().values(
                profile=name,
                number=number,
                phrase=new.phrase,
                share=self.vault.seal(key, to_bytes(new.total), where),
                vector=vector,
                extractor=extractor,
                speech_s=heard.speech_s,
                created=work.now,
            )
        )

    def take_share(
        self, work: Work, name: str, number: int, key: bytes
    ) -> tuple[Cell, float] | None:
        """Remove a recording: what is to be added to the sum, and its seconds; None where it is not there."""
        here = (enrollments.c.profile == name) & (enrollments.c.number == number)
        row = work.row(sa.select(enrollments).where(here))
        if row is None:
            return None
        work.execute(enrollments.delete().where(here))
        share = to_numbers(self.vault.open(key, bytes(row["share"]), f"{name} {number}"))
        return Cell(row["phrase"], -share, -1), row["speech_s"]

    def enrolled(self, work: Work, name: str) -> list[dict[str, Any]]:
        """Rows of a profile's recordings, in their order."""
        query = sa.select(enrollments).where(enrollments.c.profile == name)
        ordered = query.order_by(enrollments.c.number)
        return [dict(row) for row in work.execute(ordered).mappings()]

    def vector(self, row: Mapping[str, Any], key: bytes) -> NDArray[np.float32]:
        """The kept vector of a recording."""
        where = f"{row['profile']} {row['number']}"
        data = self.vault.open(key, bytes(row["vector"]), where)
        return np.frombuffer(data, dtype="<f4")

    def replace_share(self, work: Work, row: Mapping[str, Any], key: bytes, new: Cell) -> None:
        where = f"{row['profile']} {row['number']}"
        sealed = self.vault.seal(key, to_bytes(new.total), where)
        profile = enrollments.c.profile == row["profile"]
        here = profile & (enrollments.c.number == row["number"])
        work.execute(enrollments.update().where(here).values(share=sealed))

    # -- recordings that come again ------------------------------------------

    def is_copy(self, work: Work, name: str, heard: Heard) -> bool:
        """Whether this sound, or what another codec makes of it, came before."""
        if not heard.digest or heard.vector is None:
            return False
        if self._is_marked(work, name, self.vault.mark(name, heard.digest)):
            return True
        with_vector = enrollments.c.vector.is_not(None)
        query = sa.select(enrollments).where(enrollments.c.profile == name, with_vector)
        rows = [dict(row) for row in work.execute(query).mappings()]
        if not rows:
            return False
        key = self.data_key(work, name)
        return any(cosine(self.vector(row, key), heard.vector) > NEAR for row in rows)

    def _is_marked(self, work: Work, name: str, mark: str) -> bool:
        query = sa.select(marks.c.at).where(marks.c.profile == name, marks.c.mark == mark)
        return work.execute(query).first() is not None

    def put_mark(self, work: Work, name: str, heard: Heard) -> None:
        if not heard.digest:
            return
        mark = self.vault.mark(name, heard.digest)
        if self._is_marked(work, name, mark):
            return
        oldest = work.now - self.settings.marks_days * DAY
        old = (marks.c.profile == name) & (marks.c.at < oldest)
        work.execute(marks.delete().where(old))
        work.execute(marks.insert().values(profile=name, mark=mark, at=work.now))


def cosine(a: NDArray[Any], b: NDArray[Any]) -> float:
    if len(a) != len(b):
        return 0.0
    a = a.astype(np.float64)
    b = b.astype(np.float64)
    return float(a @ b / max(float(np.linalg.norm(a) * np.linalg.norm(b)), 1e-12))
