"""A request that comes twice is done once: answers kept by their Idempotency-Key, for a day."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import sqlalchemy as sa
from fastapi import Request, Response

from .desk import DAY, Desk, Problem
from .keys import Caller
from .store import answers

Do = Callable[..., Awaitable[Any]]
"""Runs what waits for the database beside the loop."""


class Repeats:
    def __init__(self, desk: Desk, do: Do) -> None:
        self.store, self.clock, self.do = desk.store, desk.clock, do

    async def once(
        self, request: Request, caller: Caller, work: Callable[[], Awaitable[Response]]
    ) -> Response:
        """Do it, or answer what was answered when the same Idempotency-Key came before."""
        name = request.headers.get("idempotency-key")
        if not name:
            return await work()
        if len(name) > 200:
            raise Problem(422, "idempotency-key", "an Idempotency-Key has at most 200 characters")
        about = f"{request.url.query}\n{request.headers.get('content-type', '')}\n".encode()
        mark = f"{request.method} {request.url.path} {hashlib.sha256(about + await request.body()).hexdigest()}"
        before = await self.do(self._claim, caller.name, name, mark)
        if before is not None:
            return Response(before["body"], before["status"], json.loads(before["headers"]))
        try:
            answer = await work()
        except BaseException:
            await self.do(self._forget, caller.name, name)
            raise
        headers = {
            k: v for k, v in answer.headers.items() if k in ("content-type", "etag", "location")
        }
        said = {
            "status": answer.status_code,
            "body": bytes(answer.body).decode(),
            "headers": json.dumps(headers),
        }
        await self.do(self._settle, caller.name, name, said)
        return answer

    def _claim(self, caller: str, name: str, mark: str) -> Mapping[str, Any] | None:
        now = self.clock()
        with self.store.write() as connection:
            connection.execute(answers.delete().where(answers.c.at < now - DAY))
            row = (
                connection.execute(sa.select(answers).where(_here(caller, name))).mappings().first()
            )
            if row is not None and row["request"] != mark:
                raise Problem(
                    422, "idempotency-key", "this Idempotency-Key came before, with another request"
                )
            if row is not None and row["status"] is None and row["at"] > now - 60:
                raise Problem(409, "in-progress", "the same request is being worked on", wait=1)
            if row is not None and row["status"] is not None:
                return dict(row)
            if row is not None:
                connection.execute(answers.delete().where(_here(caller, name)))
            connection.execute(
                answers.insert().values(caller=caller, name=name, request=mark, at=now)
            )
        return None

    def _settle(self, caller: str, name: str, said: Mapping[str, Any]) -> None:
        with self.store.write() as connection:
            connection.execute(answers.update().where(_here(caller, name)).values(**said))

    def _forget(self, caller: str, name: str) -> None:
        with self.store.write() as connection:
            connection.execute(answers.delete().where(_here(caller, name)))


def _here(caller: str, name: str) -> sa.ColumnElement[bool]:
    return (answers.c.caller == caller) & (answers.c.name == name)
