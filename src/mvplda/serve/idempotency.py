"""Repeated calls: the answer to the first call is stored in its transaction, and returned for each repetition.

As in the IETF's draft "The Idempotency-Key HTTP Header Field", a client sends a header ``Idempotency-Key`` with a
random value per call, and the same value when it sends the same call again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import sqlalchemy as sa
from pydantic_core import to_json
from sqlalchemy import bindparam

from . import schemas
from .keys import Caller
from .schemas import Problem, Reply
from .store import Transaction
from .tables import ANSWERS

Answer = Reply | Problem
LARGEST_KEY = 255
# text for its ON CONFLICT, which both databases understand
CLAIM = sa.text(
    "INSERT INTO answers (id, digest, at) VALUES (:id, :digest, :now) ON CONFLICT DO NOTHING"
)
FORGET_OLD = (
    ANSWERS.delete()
    .where(ANSWERS.c.id == bindparam("answer"))
    .where(ANSWERS.c.at < bindparam("oldest"))
)
STORED = sa.select(ANSWERS.c.digest, ANSWERS.c.kind, ANSWERS.c.body).where(
    ANSWERS.c.id == bindparam("answer")
)
STORED_YOUNG = STORED.where(ANSWERS.c.at >= bindparam("oldest"))
PUT_ANSWER = (
    ANSWERS.update()
    .where(ANSWERS.c.id == bindparam("answer"))
    .values(
        kind=bindparam("answer_kind"),
        body=bindparam("answer_body"),
        profile=bindparam("answer_profile"),
    )
)
RELEASE = ANSWERS.delete().where(ANSWERS.c.id == bindparam("answer"))
DELETE_ANSWERS = ANSWERS.delete().where(ANSWERS.c.profile == bindparam("name"))
# PostgreSQL: false if another transaction works on the same call
TRY_LOCK = sa.text("SELECT pg_try_advisory_xact_lock(:number)")


@dataclass(frozen=True)
class IdempotentCall:
    """Call with an Idempotency-Key, which its client may send again.

    Parameters
    ----------
    id : hash of the caller's name and its Idempotency-Key
    digest : hash of the whole request
    profile : id of the profile in the path of the request; None: the path has none
    """

    id: str
    digest: str
    profile: str | None = None

    @classmethod
    def of(
        cls, caller: Caller, key: str, *request: bytes, profile: str | None = None
    ) -> IdempotentCall:
        """Return the call of a request with an Idempotency-Key.

        Parameters
        ----------
        caller : owner of the API key
        key : value of the header Idempotency-Key
        request : parts of the request: path, query, content type and body
        profile : id of the profile in the path of the request; None: the path has none

        Raises
        ------
        Problem : 400 if the key is empty or too long
        """
        if not 1 <= len(key) <= LARGEST_KEY:
            detail = f"expected an Idempotency-Key of 1 to {LARGEST_KEY} characters; got {len(key)} characters"
            raise Problem(400, "idempotency-key", detail)
        digest = hashlib.sha256()
        for part in request:
            digest.update(len(part).to_bytes(8, "big") + part)
        owner = hashlib.sha256(f"{caller.name}\n{key}".encode())
        return cls(owner.hexdigest(), digest.hexdigest(), profile)


class IdempotentCalls:
    """Stores the answers to calls with an Idempotency-Key for a while.

    Parameters
    ----------
    seconds : seconds for which an answer is stored
    is_postgres : whether the database is PostgreSQL, where other hosts may work on the same call
    """

    def __init__(self, seconds: float, is_postgres: bool) -> None:
        self._seconds = seconds
        self._is_postgres = is_postgres
        self._in_progress: set[str] = set()

    @contextmanager
    def in_progress(self, call: IdempotentCall | None) -> Iterator[None]:
        """Mark a call as in progress in this process during the block; None: do nothing.

        Raises a `Problem` (409) if the call is already in progress.
        """
        if call is None:
            yield
            return
        if call.id in self._in_progress:
            raise busy()
        self._in_progress.add(call.id)
        try:
            yield
        finally:
            self._in_progress.discard(call.id)

    def find(self, work: Transaction, call: IdempotentCall) -> Answer | None:
        """Return the stored answer to a call; None if the call is new."""
        oldest = work.now - self._seconds
        return stored_answer(call, work.run(STORED_YOUNG, answer=call.id, oldest=oldest).first())

    def claim(self, work: Transaction, call: IdempotentCall | None) -> Answer | None:
        """Reserve the Idempotency-Key of a new call for this transaction, or return the answer to a repeated call.

        Returns
        -------
        the stored answer; None if the call is new, or if `call` is None (a request without an Idempotency-Key)

        Raises
        ------
        Problem : 409 if another transaction works on the call, 422 if its key was sent with another request
        """
        if call is None:
            return None
        if self._is_postgres:
            number = int.from_bytes(bytes.fromhex(call.id[:16]), "big", signed=True)
            if not work.value(TRY_LOCK, number=number):
                raise busy()
        work.run(FORGET_OLD, answer=call.id, oldest=work.now - self._seconds)
        if work.run(CLAIM, id=call.id, digest=call.digest, now=work.now).rowcount:
            return None
        return stored_answer(call, work.run(STORED, answer=call.id).first())

    def release(self, work: Transaction, call: IdempotentCall | None) -> None:
        """Undo `claim` for a call that was not executed, so that its client can send it again."""
        if call is not None:
            work.run(RELEASE, answer=call.id)

    def put(self, work: Transaction, call: IdempotentCall | None, answer: object) -> None:
        """Store the answer to a call after `claim`; it is erased together with the profile that it is about."""
        if call is None:
            return
        if isinstance(answer, Problem):
            kind, body = "Problem", json.dumps(answer.body(""))
        else:
            kind, body = type(answer).__name__, to_json(answer).decode()
        profile = call.profile or getattr(answer, "profileId", None)
        work.run(
            PUT_ANSWER, answer=call.id, answer_kind=kind, answer_body=body, answer_profile=profile
        )


def stored_answer(call: IdempotentCall, row: sa.Row[tuple[str, str, str]] | None) -> Answer | None:
    """Return the answer in a row of the table ``answers``; None if `row` is None.

    Raises a `Problem` (422) if the first request with the Idempotency-Key of `call` was another one.
    """
    if row is None:
        return None
    if row.digest != call.digest:
        detail = "this Idempotency-Key was sent before with another request: make a new random key for each call"
        raise Problem(422, "idempotency-key", detail)
    if row.kind == "Problem":
        fields = json.loads(row.body)
        status, kind, detail = (fields.pop(name) for name in ("status", "type", "detail"))
        del fields["title"], fields["instance"]
        return Problem(status, kind.removeprefix("urn:mvplda:"), detail, **fields)
    reply: Reply = getattr(schemas, row.kind).model_validate_json(row.body)
    return reply


def busy() -> Problem:
    """Return the refusal (409) of a repeated call, because the first one is still in progress."""
    detail = "a call with this Idempotency-Key is still in progress: wait, then send it again"
    return Problem(409, "in-progress", detail, wait=1)
