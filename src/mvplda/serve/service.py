"""The service without HTTP: objects that have each other, and the transactions around them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from .index import Index
from .keys import Master, Vault
from .model import Heard, Model, hear
from .problems import Json, Problem
from .profiles import Profiles, audit_entry
from .settings import Settings
from .store import DAY, Call, Store, Work, page
from .templates import Templates
from .verifier import Ask, Verifier

SWEEP_S = 3600.0
"""Seconds between two deletions of what is too old to be kept."""


class Service:
    """Everything between the endpoints and the database.

    Parameters
    ----------
    model : None: nothing can be decided, but people can still leave
    """

    def __init__(
        self,
        store: Store,
        master: Master,
        model: Model | None,
        settings: Settings | None = None,
    ) -> None:
        settings = settings or Settings()
        store.bind(master.mark)
        if model is not None:
            model.set_secret(master.derived("rotation"))
        self.store = store
        self.model = model
        self.settings = settings
        self.countermeasure = settings.countermeasure
        vault = Vault(master, marks_secret(store, master))
        self.templates = Templates(store, vault, settings)
        self.profiles = Profiles(store, self.templates, model, settings)
        self.verifier = Verifier(self.profiles)
        self.index = Index(self.profiles)
        self._sweep_at = 0.0

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

    def change(self, call: Call, operation: Callable[..., Json], *arguments: Any) -> Json:
        """Do something in one transaction, with the answer to its repetition inside.

        Both survive a crash, or neither does.
        """
        self._sweep()
        with self.store.write(call) as work:
            answer = answer_before(work) if keep(work, None) else None
            if answer is None:
                answer = operation(work, *arguments)
                keep(work, answer)
        return answer

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
        if after and not (after.isascii() and after.isdigit() and len(after) < 10):
            raise Problem(422, "after", "after is the `next` of the page before")
        keys = {column: value for column, value in wanted.items() if value is not None}
        chosen = "".join(f" AND {column} = :{column}" for column in keys)
        query = f"SELECT * FROM audit WHERE id < :after{chosen} ORDER BY id DESC LIMIT :most"
        with self.store.read() as work:
            rows = work.all(query, after=int(after or 2**31 - 1), most=top + 1, **keys)
        return page([audit_entry(row) for row in rows], top, "id")

    def _sweep(self) -> None:
        """Now and then, delete what is too old to be kept."""
        if time.monotonic() < self._sweep_at:
            return
        self._sweep_at = time.monotonic() + SWEEP_S
        with self.store.write() as work:
            oldest = work.now - self.settings.audit_days * DAY
            work.run("DELETE FROM audit WHERE at < :oldest", oldest=oldest)
            work.run("DELETE FROM answers WHERE at < :oldest", oldest=work.now - DAY)
            # the last accepted challenge of a profile is needed for the next
            old = "DELETE FROM challenges WHERE expires < :oldest AND (used IS NULL OR used < 0)"
            work.run(old, oldest=work.now - DAY)


def marks_secret(store: Store, master: Master) -> bytes:
    """The secret of the marks of recordings, which a rotation of the master key leaves as it is."""
    vault = Vault(master)
    with store.write() as work:
        sealed = store.meta("marks", work)
        if sealed is None:
            sealed = vault.wrap(vault.marks, "marks").hex()
            work.insert("meta", name="marks", value=sealed)
    return vault.unwrap(bytes.fromhex(sealed), "marks")


# -- repeated requests -------------------------------------------------------------------


PUT_ANSWER = (
    "INSERT INTO answers (caller, name, request, body, at) "
    "VALUES (:caller, :name, :request, :body, :at) ON CONFLICT (caller, name) DO UPDATE "
    "SET request = excluded.request, body = excluded.body, at = excluded.at WHERE answers.at < :old"
)


def answer_before(work: Work) -> Json | None:
    """What the request was answered; None where it was not, or a day ago."""
    query = "SELECT * FROM answers WHERE caller = :caller AND name = :name"
    row = work.first(query, caller=work.call.caller.name, name=work.call.once)
    if row is None or row["body"] is None or row["at"] < work.now - DAY:
        return None
    if row["request"] != work.call.request:
        detail = "this Idempotency-Key came before, with another request"
        raise Problem(422, "idempotency-key", detail)
    answer: Json = json.loads(row["body"])
    return answer


def keep(work: Work, answer: Json | None) -> bool:
    """Store the answer to a request, or first that it is being answered; whether it was there already.

    A second request with the same key waits here for the first one's transaction. Who opts out has deleted the claim
    with all other answers.
    """
    call = work.call
    if call.once is None:
        return False
    # a claim takes the place of an answer that is a day old, an answer that of its claim
    old = work.now - DAY if answer is None else work.now + DAY
    body = None if answer is None else json.dumps(answer)
    row = {"caller": call.caller.name, "name": call.once, "request": call.request}
    return not work.run(PUT_ANSWER, **row, body=body, at=work.now, old=old).rowcount
