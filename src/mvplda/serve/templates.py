"""What is kept of a voice: sums by phrase, each recording's share in them, and marks of sound that was heard."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray
from sqlalchemy.engine import Connection

from .audio import Heard
from .desk import DAY, Desk, Problem
from .keys import Caller
from .model import Cell
from .store import enrollments, marks, templates

NEAR = 0.99995
"""Cosine of two vectors from which on the second recording is a copy of the first: two takes of one phrase stay below
0.99, and what another codec makes of one recording lies above."""
MARKS_DAYS = 90.0
"""So long sound that was heard is remembered, to know it again."""


class Templates(Desk):
    """Sealed with the data key of their profile, which opens them in their own place only."""

    def _data_key(self, name: str) -> bytes:
        wrapped = self.store.get_key(name)
        if wrapped is None:
            with self.store.read() as connection:
                state = self._row(connection, name)["state"]
            raise Problem(
                409, "state", f"the profile is {state}: nothing is kept of it", state=state
            )
        return self.vault.unwrap(wrapped, name)

    def _cells(self, connection: Connection, name: str, key: bytes) -> list[Cell]:
        found = []
        for row in connection.execute(
            sa.select(templates).where(templates.c.profile == name)
        ).mappings():
            data = self.vault.open(key, bytes(row["total"]), f"{name} {row['phrase']}")
            found.append(Cell(row["phrase"], np.frombuffer(data, "<i8"), row["count"]))
        return found

    def _put_cell(self, connection: Connection, name: str, key: bytes, cell: Cell) -> None:
        here = (templates.c.profile == name) & (templates.c.phrase == cell.phrase)
        connection.execute(templates.delete().where(here))
        if cell.count:
            total = self.vault.seal(
                key, cell.total.astype("<i8").tobytes(), f"{name} {cell.phrase}"
            )
            row = {"profile": name, "phrase": cell.phrase, "count": cell.count, "total": total}
            connection.execute(templates.insert().values(**row))

    def _wipe(self, connection: Connection, name: str) -> None:
        for table in (templates, enrollments, marks):
            connection.execute(table.delete().where(table.c.profile == name))

    def _after(self, cells: Iterable[Cell]) -> dict[str, Any]:
        """What a changed sum makes of the profile."""
        counts = [cell.count for cell in cells]
        most = max(counts, default=0)
        state = (
            "created" if not most else "enrolled" if most >= self.rules.required else "enrolling"
        )
        return {"state": state, "enrollments": sum(counts)}

    def _kept(self, connection: Connection, name: str) -> Sequence[Any]:
        """Recordings of a profile whose vectors make it anew with the model of today; empty where one is missing."""
        query = (
            sa.select(enrollments)
            .where(enrollments.c.profile == name)
            .order_by(enrollments.c.number)
        )
        rows = connection.execute(query).mappings().all()
        source = self._model().extractor_name
        return (
            [] if any(row["vector"] is None or row["extractor"] != source for row in rows) else rows
        )

    def _again(self, connection: Connection, row: dict[str, Any], key: bytes) -> dict[str, Any]:
        """Enrol kept vectors once more, with the model of today."""
        model, name = self._model(), row["id"]
        kept = self._kept(connection, name)
        if not kept:
            said = (
                "the extractor or the model has changed since: reset the profile, and enrol again"
            )
            raise Problem(409, "model-changed", said, state="stale")
        sums: dict[str, Cell] = {}
        for entry in kept:
            where = f"{name} {entry['number']}"
            vector = np.frombuffer(self.vault.open(key, bytes(entry["vector"]), where), dtype="<f4")
            new = Cell(entry["phrase"], model.prepare(vector[None])[0], 1)
            sums[new.phrase] = sums[new.phrase] + new if new.phrase in sums else new
            here = (enrollments.c.profile == name) & (enrollments.c.number == entry["number"])
            sealed = self.vault.seal(key, new.total.astype("<i8").tobytes(), where)
            connection.execute(enrollments.update().where(here).values(share=sealed))
        connection.execute(templates.delete().where(templates.c.profile == name))
        for cell in sums.values():
            self._put_cell(connection, name, key, cell)
        self._update(connection, row, **self._after(sums.values()), **self._made_with())
        self._note(connection, Caller("service", "admin"), "enrol-again", name)
        return row

    def _made_with(self) -> dict[str, Any]:
        model = self._model()
        return {
            "model": model.store_version,
            "model_version": model.version,
            "extractor": model.extractor_name,
        }

    # -- sound that comes again ------------------------------------------------------

    def _is_copy(self, connection: Connection, name: str, key: bytes, heard: Heard) -> bool:
        if not heard.digest:
            return False
        mark, vector = self.vault.mark(name, heard.digest), self._vector(heard)
        if connection.execute(
            sa.select(marks.c.at).where(marks.c.profile == name, marks.c.mark == mark)
        ).first():
            return True
        query = sa.select(enrollments.c.number, enrollments.c.vector).where(
            enrollments.c.profile == name
        )
        for number, sealed in connection.execute(query.where(enrollments.c.vector.is_not(None))):
            other = np.frombuffer(
                self.vault.open(key, bytes(sealed), f"{name} {number}"), dtype="<f4"
            )
            if len(other) == len(vector) and cosine(other, vector) > NEAR:
                return True
        return False

    def _mark(self, connection: Connection, name: str, heard: Heard) -> None:
        if not heard.digest:
            return
        mark = self.vault.mark(name, heard.digest)
        here = (marks.c.profile == name) & (marks.c.mark == mark)
        if connection.execute(sa.select(marks.c.at).where(here)).first() is None:
            old = (marks.c.profile == name) & (marks.c.at < self.clock() - MARKS_DAYS * DAY)
            connection.execute(marks.delete().where(old))
            connection.execute(marks.insert().values(profile=name, mark=mark, at=self.clock()))


def cosine(a: NDArray[Any], b: NDArray[Any]) -> float:
    a, b = a.astype(np.float64), b.astype(np.float64)
    return float(a @ b / max(float(np.linalg.norm(a) * np.linalg.norm(b)), 1e-12))
