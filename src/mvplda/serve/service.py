"""What the service does, without HTTP: all its rooms together, the list of phrases, and the record of decisions."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from .desk import Problem, Rules, page, said_audit
from .enrolment import Enrolment
from .identification import Identification
from .keys import Caller
from .lifecycle import Lifecycle
from .store import audit, phrases
from .verification import Ask, Verification

__all__ = ["Ask", "Problem", "Rules", "Service"]


class Service(Lifecycle, Enrolment, Verification, Identification):
    """Everything between the endpoints and the database."""

    def list_phrases(self, top: int, after: str | None) -> dict[str, Any]:
        with self.store.read() as connection:
            rows = list(connection.execute(sa.select(phrases)).mappings())
        found = {row["id"]: {"text": row["text"], "locale": row["locale"]} for row in rows}
        for label, text in ({} if self.model is None else self.model.texts).items():
            found.setdefault(label, {"text": text, "locale": "en"})
        known = self._known()
        items = [
            {"id": i, **found[i], "known": i in known}
            for i in sorted(found)
            if not after or i > after
        ]
        return page(items[: top + 1], top, "id")

    def put_phrase(
        self, name: str, text: str, locale: str | None, caller: Caller
    ) -> tuple[dict[str, Any], bool]:
        label = self._label(text)
        if label != name:
            raise Problem(
                422,
                "phrase",
                f"the id of this phrase is {label!r}, made of its words; got {name!r}",
            )
        with self.store.write() as connection:
            there = (
                connection.execute(sa.select(phrases.c.id).where(phrases.c.id == name)).first()
                is not None
            )
            if there:
                connection.execute(
                    phrases.update().where(phrases.c.id == name).values(text=text, locale=locale)
                )
            else:
                connection.execute(
                    phrases.insert().values(id=name, text=text, locale=locale, created=self.clock())
                )
            self._note(connection, caller, "put-phrase", detail={"phrase": name})
        return {
            "id": name,
            "text": text,
            "locale": locale,
            "known": name in self._known(),
        }, not there

    def delete_phrase(self, name: str, caller: Caller) -> None:
        with self.store.write() as connection:
            if not connection.execute(phrases.delete().where(phrases.c.id == name)).rowcount:
                raise Problem(404, "not-found", f"there is no phrase {name!r} that was put here")
            self._note(connection, caller, "delete-phrase", detail={"phrase": name})

    def list_audit(
        self,
        top: int,
        after: str | None,
        profile: str | None,
        result: str | None,
        action: str | None,
    ) -> dict[str, Any]:
        """The record, newest first."""
        query = sa.select(audit).order_by(audit.c.id.desc()).limit(top + 1)
        for column, wanted in (
            (audit.c.profile, profile),
            (audit.c.result_id, result),
            (audit.c.action, action),
        ):
            if wanted is not None:
                query = query.where(column == wanted)
        if after:
            if not (after.isascii() and after.isdigit()) or len(after) > 15:
                raise Problem(422, "after", "after is the `next` of the page before")
            query = query.where(audit.c.id < int(after))
        with self.store.read() as connection:
            items = [
                {**said_audit(row), "id": str(row["id"])}
                for row in connection.execute(query).mappings()
            ]
        return page(items, top, "id")
