"""Recordings go into a profile and come out of it again: both exactly, for a profile is a sum."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from .audio import Heard
from .decisions import odds
from .desk import Problem
from .keys import Caller
from .model import Cell
from .store import enrollments
from .templates import Templates


class Enrolment(Templates):
    def enrol(
        self, name: str, heard: Heard, phrase: str | None, caller: Caller, etag: str | None = None
    ) -> dict[str, Any]:
        """Add a recording to a profile, or say why it is left as it was."""
        model = self._model()
        if heard.reason is not None:
            raise self._refused(heard.reason, heard)
        vector = self._vector(heard)
        share = model.prepare(vector[None])[0]
        key = self._data_key(name)
        with self.store.write() as connection:
            row = self._row(connection, name, etag, lock=True)
            state = self._state(row)
            if state in ("opted_out", "expired"):
                raise Problem(
                    409, "state", f"the profile is {state}: nothing can be enrolled", state=state
                )
            if state == "stale":
                row = self._again(connection, row, key)
            if row["enrollments"] >= self.rules.most:
                full = f"the profile has {self.rules.most} enrolments already: take one out, or reset it"
                raise Problem(409, "full", full)
            texts: dict[str, str] = json.loads(row["phrases"])
            label = self._label(phrase) if phrase is not None else next(iter(texts), None)
            if label is None:
                raise Problem(422, "phrase", "say which phrase was said: the profile names none")
            cells, new = self._cells(connection, name, key), Cell(label, share, 1)
            if (
                self._is_copy(connection, name, key, heard)
                or (heard.countermeasure or 0.0) < self.rules.least_llr
            ):
                raise self._refused("suspected_replay", heard)
            llrs = self._consistency(cells, new)
            for which, reason in (
                ("phraseLlr", "wrong_phrase"),
                ("consistencyLlr", "wrong_speaker"),
            ):
                value = llrs[which]
                if value is not None and value < self.rules.least_llr:
                    raise self._refused(reason, heard, **llrs)
            number, now = row["next_number"], self.clock()
            self._put_share(connection, name, number, key, new, vector, heard)
            after = [cell + new if cell.phrase == label else cell for cell in cells]
            after += [] if len({cell.phrase for cell in [*cells, new]}) == len(cells) else [new]
            self._put_cell(
                connection, name, key, next(cell for cell in after if cell.phrase == label)
            )
            texts.setdefault(label, phrase or label)
            changes = {"phrases": json.dumps(texts), "next_number": number + 1, "last_used": now}
            changes |= {
                **self._after(after),
                **self._made_with(),
                "speech_s": row["speech_s"] + heard.speech_s,
            }
            self._update(connection, row, **changes)
            self._mark(connection, name, heard)
            self._note(
                connection,
                caller,
                "enrol",
                name,
                detail={"enrollmentId": number, "quality": heard.quality},
            )
            (said,) = self._said(connection, row)
        return {"enrollmentId": number, **said, "quality": heard.quality, **llrs}

    def remove_enrolment(
        self, name: str, number: int, caller: Caller, etag: str | None = None
    ) -> dict[str, Any]:
        """Take one recording out of the sum, exactly."""
        key = self._data_key(name)
        with self.store.write() as connection:
            row = self._row(connection, name, etag, lock=True)
            here = (enrollments.c.profile == name) & (enrollments.c.number == number)
            found = connection.execute(sa.select(enrollments).where(here)).mappings().first()
            if found is None:
                raise Problem(404, "not-found", f"there is no enrolment {number} of this profile")
            share = np.frombuffer(
                self.vault.open(key, bytes(found["share"]), f"{name} {number}"), dtype="<i8"
            )
            out = Cell(found["phrase"], -share, -1)
            cells = [
                cell + out if cell.phrase == out.phrase else cell
                for cell in self._cells(connection, name, key)
            ]
            self._put_cell(
                connection, name, key, next(cell for cell in cells if cell.phrase == out.phrase)
            )
            connection.execute(enrollments.delete().where(here))
            speech = max(0.0, row["speech_s"] - found["speech_s"])
            self._update(connection, row, **self._after(cells), speech_s=speech)
            self._note(
                connection, caller, "remove-enrolment", name, detail={"enrollmentId": number}
            )
            (said,) = self._said(connection, row)
        return said

    def reset(self, name: str, caller: Caller, etag: str | None = None) -> dict[str, Any]:
        """Take all recordings out; who they were of, their phrase and consent stay."""
        with self.store.write() as connection:
            row = self._row(connection, name, etag, lock=True)
            if row["state"] == "opted_out":
                raise Problem(409, "state", "the profile has opted out", state="opted_out")
            self._wipe(connection, name)
            self._update(
                connection, row, **self._after(()), **NOTHING, failures=0, locked_until=None
            )
            self._note(connection, caller, "reset", name)
            (said,) = self._said(connection, row)
        return said

    def _put_share(
        self,
        connection: Connection,
        name: str,
        number: int,
        key: bytes,
        new: Cell,
        vector: Any,
        heard: Heard,
    ) -> None:
        where, kept = f"{name} {number}", vector.astype("<f4").tobytes()
        connection.execute(
            enrollments.insert().values(
                profile=name,
                number=number,
                phrase=new.phrase,
                share=self.vault.seal(key, new.total.astype("<i8").tobytes(), where),
                vector=self.vault.seal(key, kept, where) if self.rules.keep_vectors else None,
                extractor=self._model().extractor_name,
                speech_s=heard.speech_s,
                created=self.clock(),
            )
        )

    def _consistency(self, cells: Sequence[Cell], new: Cell) -> dict[str, float | None]:
        """How well a new enrolment fits those before it: in its words, and in its voice."""
        if not cells:
            return {"phraseLlr": None, "consistencyLlr": None}
        model, same = self._model(), [cell for cell in cells if cell.phrase == new.phrase]
        found = odds(model.evidence(same or cells, [new], bool(same)), model.doubt)
        return {
            "phraseLlr": found.llr_phrase if same else None,
            "consistencyLlr": found.llr_speaker,
        }


NOTHING = {
    "speech_s": 0.0,
    "model": None,
    "model_version": None,
    "extractor": None,
    "last_used": None,
}
"""Of a profile that holds no recording."""
