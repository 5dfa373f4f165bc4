"""People come, are told of, see what is kept of them, and leave: consent first, and erasure at once."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from .desk import Problem, iso, page, said_audit
from .enrolment import NOTHING
from .keys import Caller
from .store import answers, audit, challenges, enrollments, profiles
from .templates import Templates


class Lifecycle(Templates):
    def create(
        self, user: str | None, phrase: str | None, consent: Mapping[str, Any], caller: Caller
    ) -> dict[str, Any]:
        if not consent.get("given"):
            agreed = "Nothing is kept of a person who has not agreed: consent.given must be true."
            raise Problem(422, "no-consent", agreed)
        label = None if phrase is None else self._label(phrase)
        now, name = self.clock(), secrets.token_hex(16)
        self.store.put_key(name, self.vault.new_key(name)[1])
        row = {
            "id": name,
            "user_id": user,
            "phrases": json.dumps({} if label is None else {label: phrase}),
            "consent": json.dumps({**consent, "at": consent.get("at") or iso(now)}),
            "version": 1,
            "next_number": 1,
            "failures": 0,
            "locked_until": None,
            "created": now,
            "updated": now,
            **self._after(()),
            **NOTHING,
        }
        with self.store.write() as connection:
            connection.execute(profiles.insert().values(**row))
            self._note(connection, caller, "create", name)
            (said,) = self._said(connection, row)
        return said

    def get(self, name: str) -> dict[str, Any]:
        with self.store.read() as connection:
            (said,) = self._said(connection, self._row(connection, name))
        return said

    def list_profiles(self, top: int, after: str | None, user: str | None = None) -> dict[str, Any]:
        query = (
            sa.select(profiles)
            .where(profiles.c.state != "deleted")
            .order_by(profiles.c.id)
            .limit(top + 1)
        )
        if after:
            query = query.where(profiles.c.id > after)
        if user is not None:
            query = query.where(profiles.c.user_id == user)
        with self.store.read() as connection:
            found = [dict(row) for row in connection.execute(query).mappings()]
            return page(self._said(connection, *found), top, "profileId")

    def count(self, state: str | None = None) -> int:
        """How many profiles there are, or of those, how many in a state."""
        query = (
            sa.select(sa.func.count()).select_from(profiles).where(profiles.c.state != "deleted")
        )
        if state == "stale":
            query = query.where(profiles.c.model != self._model().store_version)
        elif state is not None:
            query = query.where(profiles.c.state == state)
        with self.store.read() as connection:
            return int(connection.execute(query).scalar_one())

    def leave(
        self, name: str, caller: Caller, state: str, etag: str | None = None
    ) -> dict[str, Any]:
        """Opt out or be deleted: at once, from any state, whether or not there is a model."""
        with self.store.write() as connection:
            row = self._row(connection, name, etag, lock=True)
            self.store.destroy_key(
                name, connection
            )  # first: whatever happens then, nothing opens any more
            self._wipe(connection, name)
            connection.execute(challenges.delete().where(challenges.c.profile == name))
            connection.execute(
                answers.delete().where(
                    answers.c.request.contains(name) | answers.c.body.contains(name)
                )
            )
            gone = {"user_id": None, "consent": None} if state == "deleted" else {}
            self._update(
                connection,
                row,
                **self._after(()) | {"state": state},
                **NOTHING,
                phrases="{}",
                **gone,
            )
            self._note(connection, caller, "delete" if state == "deleted" else "opt-out", name)
            (said,) = self._said(connection, row)
        self.store.settle_files()
        return said

    def export(self, name: str, caller: Caller) -> dict[str, Any]:
        """What is kept of a person, in words; vectors are said to be there, and are not shown."""
        with self.store.write() as connection:
            row = self._row(connection, name)
            query = (
                sa.select(enrollments)
                .where(enrollments.c.profile == name)
                .order_by(enrollments.c.number)
            )
            listed = [
                {
                    "enrollmentId": entry["number"],
                    "phrase": entry["phrase"],
                    "created": iso(entry["created"]),
                    "speechLength": entry["speech_s"],
                    "vectorKept": entry["vector"] is not None,
                    "extractor": entry["extractor"],
                }
                for entry in connection.execute(query).mappings()
            ]
            self._note(connection, caller, "export", name)
            records = sa.select(audit).where(audit.c.profile == name).order_by(audit.c.id)
            record = [said_audit(entry) for entry in connection.execute(records).mappings()]
            (said,) = self._said(connection, row)
        kept = "Sums of numbers made of your recordings, encrypted and turned by a secret key; no sound. "
        if any(entry["vectorKept"] for entry in listed):
            kept += "The numbers of each recording are kept too, encrypted."
        consent = json.loads(row["consent"] or "null")
        return {
            "profile": said,
            "consent": consent,
            "enrollments": listed,
            "record": record,
            "kept": kept,
        }
