"""The service without HTTP: objects that have each other, and the transactions around them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from .index import Index
from .keys import Master, Vault
from .model import Countermeasure, Heard, Model, hear
from .problems import Json, Problem
from .profiles import Profiles, audit_entry
from .settings import Settings
from .store import DAY, Call, Store, Work, answers, audit, challenges, matches, meta, page
from .templates import Templates
from .verifier import Ask, Verifier

SWEEP_S = 3600.0
"""Seconds between two deletions of what is too old to be kept."""


class Service:
    """Everything between the endpoints and the database.

    Parameters
    ----------
    model : None: nothing can be decided, but people can still leave
    countermeasure : samples and rate in, LLR of a person against a machine out
    """

    def __init__(
        self,
        store: Store,
        master: Master,
        model: Model | None,
        settings: Settings | None = None,
        countermeasure: Countermeasure | None = None,
    ) -> None:
        settings = settings or Settings()
        store.bind(master.mark)
        if model is not None:
            model.set_secret(master.derived("rotation"))
        self.store = store
        self.model = model
        self.settings = settings
        self.countermeasure = countermeasure
        vault = Vault(master, marks_secret(store, master))
        self.templates = Templates(store, vault, settings)
        self.profiles = Profiles(store, self.templates, model, settings)
        self.verifier = Verifier(self.profiles)
        self._index = None if model is None else Index(self.profiles)
        self._sweep_at = 0.0

    @property
    def index(self) -> Index:
        return self._index or Index(self.profiles)  # which refuses without a model

    # -- what comes in -------------------------------------------------------

    def hear(self, data: bytes) -> Heard:
        """The vector of a recording, or why there is none."""
        extractor = self.profiles.model.extractor
        if extractor is None:
            raise Problem(422, "no-extractor", "this service has no extractor: send vectors")
        return hear(extractor, data, self.settings, self.countermeasure)

    def take_vector(self, vector: Any) -> Heard:
        # where a countermeasure is wanted, what it did not hear decides nothing
        reason = None if self.countermeasure is None else "countermeasure_failed"
        return Heard(self.profiles.model.take(vector), reason=reason)

    # -- transactions --------------------------------------------------------

    def answered(self, call: Call) -> Json | None:
        """What a repeated request was answered, before any work is done for it again."""
        if call.once is None:
            return None
        with self.store.read(call) as work:
            return answer_before(work)

    def change(self, call: Call, operation: Callable[..., Json], *arguments: Any) -> Json:
        """Do something in one transaction, with the answer to its repetition inside.

        Both survive a crash, or neither does.
        """
        self._sweep()
        with self.store.write(call) as work:
            answer = claim(work)
            if answer is None:
                answer = operation(work, *arguments)
                keep(work, answer)
        return answer

    def verify(self, name: str, heard: Heard, ask: Ask, call: Call) -> Json:
        return self.change(call, self.verifier.verify, name, heard, ask)

    def enrol(self, name: str, heard: Heard, phrase: str | None, call: Call) -> Json:
        return self.change(call, self.profiles.enrol, name, heard, phrase)

    def leave(self, name: str, state: str, call: Call) -> Json:
        answer = self.change(call, self.profiles.leave, name, state)
        self.store.settle_files()
        return answer

    def describe(self) -> Json:
        """What GET /v1/model returns: the model, and where a call gives no operating point."""
        spoofs = self.countermeasure is not None
        point = self.verifier.point(Ask(), 0.0 if spoofs else None)
        return {
            **self.profiles.model.describe(),
            "threshold": point.threshold,
            "rejectThreshold": point.reject,
            "far": point.far,
            "countermeasure": spoofs,
        }

    def find_audit(self, top: int, after: str | None, **wanted: str | None) -> Json:
        """Newest first; `wanted` are values of columns."""
        keys = {column: value for column, value in wanted.items() if value is not None}
        query = sa.select(audit).where(matches(audit, keys)).order_by(audit.c.id.desc())
        if after:
            if not (after.isascii() and after.isdigit()) or len(after) > 15:
                raise Problem(422, "after", "after is the `next` of the page before")
            query = query.where(audit.c.id < int(after))
        with self.store.read() as work:
            rows = work.all(query.limit(top + 1))
        return page([audit_entry(row) for row in rows], top, "id")

    def _sweep(self) -> None:
        """Now and then, delete what is too old to be kept."""
        if time.monotonic() < self._sweep_at:
            return
        self._sweep_at = time.monotonic() + SWEEP_S
        with self.store.write() as work:
            oldest = work.now - self.settings.audit_days * DAY
            work.execute(audit.delete().where(audit.c.at < oldest))
            work.execute(answers.delete().where(answers.c.at < work.now - DAY))
            # the last accepted challenge of a profile is needed for the next
            unanswered = challenges.c.used.is_(None) | (challenges.c.used < 0)
            old = challenges.c.expires < work.now - DAY
            work.execute(challenges.delete().where(old & unanswered))


def marks_secret(store: Store, master: Master) -> bytes:
    """The secret of the marks of recordings, which a rotation of the master key leaves as it is."""
    vault = Vault(master)
    with store.write() as work:
        sealed = store.value("marks", work)
        if sealed is None:
            sealed = vault.wrap(vault.marks, "marks").hex()
            work.insert(meta, name="marks", value=sealed)
    return vault.unwrap(bytes.fromhex(sealed), "marks")


# -- repeated requests -------------------------------------------------------------------


def key_of(work: Work) -> Json:
    return {"caller": work.call.caller.name, "name": work.call.once}


def answer_before(work: Work) -> Json | None:
    """What the request was answered; None where it was not, or a day ago."""
    row = work.first(sa.select(answers).where(matches(answers, key_of(work))))
    if row is None or row["body"] is None or row["at"] < work.now - DAY:
        return None
    if row["request"] != work.call.request:
        detail = "this Idempotency-Key came before, with another request"
        raise Problem(422, "idempotency-key", detail)
    answer: Json = json.loads(row["body"])
    return answer


def claim(work: Work) -> Json | None:
    """Take the key of a request; one that has it already is waited for, and its answer returned."""
    if work.call.once is None:
        return None
    postgres = work.connection.dialect.name == "postgresql"
    insert = postgresql.insert if postgres else sqlite.insert
    old = matches(answers, key_of(work)) & (answers.c.at < work.now - DAY)
    work.execute(answers.delete().where(old))
    row = {**key_of(work), "request": work.call.request, "at": work.now}
    if work.execute(insert(answers).values(**row).on_conflict_do_nothing()).rowcount:
        return None
    return answer_before(work)


def keep(work: Work, answer: Json) -> None:
    """Store the answer; who opts out has deleted the claim with all other answers."""
    if work.call.once is None:
        return
    work.delete(answers, **key_of(work))
    row = {**key_of(work), "request": work.call.request, "at": work.now}
    work.insert(answers, **row, body=json.dumps(answer))
