"""The audit, answers to repeated requests, and the list of phrases."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from .keys import Caller
from .problems import Problem
from .store import Store, Work
from .tables import answers, audit, phrases

if TYPE_CHECKING:
    from .model import Model

REPEAT_S = 86400.0
"""Seconds for which an answer is kept for the request's repetition."""


def slug(text: str) -> str:
    """A phrase as a label: ``my-voice-is-my-key``; case, stress marks and stops do not count."""
    letters = (c if c.isalnum() else " " for c in text.casefold().replace("'", ""))
    return "-".join("".join(letters).split())


def label_of(phrase: str) -> str:
    label = slug(phrase)
    if not label or len(phrase) > 200:
        raise Problem(422, "phrase", "a phrase has words, and at most 200 characters")
    return label


def iso(at: float | None) -> str | None:
    if at is None:
        return None
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def page(items: Sequence[dict[str, Any]], top: int, by: str) -> dict[str, Any]:
    """One page of a list; `next` is what `after` names for the next one."""
    following = str(items[top - 1][by]) if len(items) > top else None
    return {"items": list(items[:top]), "next": following}


# -- audit -------------------------------------------------------------------------------


class Audit:
    """What was done and decided, by whom: without sound and without vectors."""

    def note(
        self,
        work: Work,
        caller: Caller,
        action: str,
        profile: str | None = None,
        result: str | None = None,
        detail: Mapping[str, Any] | None = None,
    ) -> None:
        work.execute(
            audit.insert().values(
                at=work.now,
                caller=caller.name,
                action=action,
                profile=profile,
                result_id=result,
                detail=json.dumps(detail or {}),
            )
        )

    def find(self, work: Work, top: int, after: str | None, **wanted: str | None) -> dict[str, Any]:
        """Newest first; `wanted` are values of columns."""
        query = sa.select(audit).order_by(audit.c.id.desc()).limit(top + 1)
        for column, value in wanted.items():
            if value is not None:
                query = query.where(audit.c[column] == value)
        if after:
            if not (after.isascii() and after.isdigit()) or len(after) > 15:
                raise Problem(422, "after", "after is the `next` of the page before")
            query = query.where(audit.c.id < int(after))
        rows = work.execute(query).mappings()
        return page([audit_entry(dict(row)) for row in rows], top, "id")

    def of_profile(self, work: Work, name: str) -> list[dict[str, Any]]:
        query = sa.select(audit).where(audit.c.profile == name).order_by(audit.c.id)
        return [audit_entry(dict(row)) for row in work.execute(query).mappings()]


def audit_entry(row: Mapping[str, Any]) -> dict[str, Any]:
    detail = json.loads(row["detail"])
    return {
        "id": str(row["id"]),
        "at": iso(row["at"]),
        "caller": row["caller"],
        "action": row["action"],
        "profileId": row["profile"],
        "resultId": row["result_id"],
        **detail,
    }


# -- repeated requests -------------------------------------------------------------------


@dataclass(frozen=True)
class Once:
    """A request with an Idempotency-Key: it is done once, and answered as often as it comes.

    The answer is stored in the transaction of the work: both survive a crash, or neither does.
    """

    caller: str
    name: str
    request: str

    @classmethod
    def of(cls, caller: Caller, name: str, about: str, body: bytes) -> Once:
        if len(name) > 200:
            raise Problem(422, "idempotency-key", "an Idempotency-Key has at most 200 characters")
        digest = hashlib.sha256(about.encode() + b"\n" + body).hexdigest()
        return cls(caller.name, name, f"{about.partition(chr(10))[0]} {digest}")

    def before(self, work: Work) -> dict[str, Any] | None:
        """What was answered; None where it was not yet."""
        row = work.row(sa.select(answers).where(self._here()))
        if row is None or row["body"] is None or row["at"] < work.now - REPEAT_S:
            return None
        if row["request"] != self.request:
            raise Problem(
                422, "idempotency-key", "this Idempotency-Key came before, with another request"
            )
        answer: dict[str, Any] = json.loads(row["body"])
        return answer

    def claim(self, work: Work) -> dict[str, Any] | None:
        """Take the name for this transaction; a request that has it already is waited for, and its answer returned."""
        insert = (
            postgresql.insert if work.connection.dialect.name == "postgresql" else sqlite.insert
        )
        expired = (answers.c.at < work.now - REPEAT_S) & self._here()
        work.execute(answers.delete().where(expired))
        row = {"caller": self.caller, "name": self.name, "request": self.request, "at": work.now}
        if work.execute(insert(answers).values(**row).on_conflict_do_nothing()).rowcount:
            return None
        return self.before(work)

    def keep(self, work: Work, answer: Mapping[str, Any]) -> None:
        """Store the answer; who opts out has deleted the claim with all other answers."""
        row = {"caller": self.caller, "name": self.name, "request": self.request, "at": work.now}
        work.execute(answers.delete().where(self._here()))
        work.execute(answers.insert().values(**row, body=json.dumps(answer)))

    def _here(self) -> sa.ColumnElement[bool]:
        return (answers.c.caller == self.caller) & (answers.c.name == self.name)


# -- phrases -----------------------------------------------------------------------------


class Phrases:
    """Phrases that operators put here, and those that the model was trained with."""

    def __init__(self, store: Store, audit: Audit, model: Model | None) -> None:
        self.store = store
        self.audit = audit
        self.model = model

    def find(self, top: int, after: str | None) -> dict[str, Any]:
        with self.store.read() as work:
            rows = work.execute(sa.select(phrases)).mappings().all()
        entries = {row["id"]: {"text": row["text"], "locale": row["locale"]} for row in rows}
        known: dict[str, str] = {} if self.model is None else self.model.known_phrases
        for label, text in known.items():
            entries.setdefault(label, {"text": text, "locale": None})
        names = sorted(name for name in entries if not after or name > after)
        items = [{"id": name, **entries[name], "known": name in known} for name in names[: top + 1]]
        return page(items, top, "id")

    def put(
        self, name: str, text: str, locale: str | None, caller: Caller
    ) -> tuple[dict[str, Any], bool]:
        """Store a phrase; whether it is new."""
        label = label_of(text)
        if label != name:
            detail = f"the id of this phrase is {label!r}, made of its words; got {name!r}"
            raise Problem(422, "phrase", detail)
        with self.store.write() as work:
            here = phrases.update().where(phrases.c.id == name)
            is_new = not work.execute(here.values(text=text, locale=locale)).rowcount
            if is_new:
                row = {"id": name, "text": text, "locale": locale, "created": work.now}
                work.execute(phrases.insert().values(**row))
            self.audit.note(work, caller, "put-phrase", detail={"phrase": name})
        known = self.model is not None and name in self.model.known_phrases
        return {"id": name, "text": text, "locale": locale, "known": known}, is_new

    def delete(self, name: str, caller: Caller) -> None:
        with self.store.write() as work:
            if not work.execute(phrases.delete().where(phrases.c.id == name)).rowcount:
                raise Problem(404, "not-found", f"there is no phrase {name!r} that was put here")
            self.audit.note(work, caller, "delete-phrase", detail={"phrase": name})
