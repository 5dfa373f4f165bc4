"""Limits, headers, counts and a log line around every request; errors as problems."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import ValidationError
from sqlalchemy.exc import DataError, DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .. import exceptions as errors
from ..persistence import write_atomically
from .schemas import Problem
from .settings import LOCAL_HOSTS, Settings

log = logging.getLogger("mvplda.serve")

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Permissions-Policy": "microphone=(self), camera=(), geolocation=()",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
SECONDS = ["0.005", "0.01", "0.025", "0.05", "0.1", "0.25", "0.5", "1", "2.5", "5", "10", "+Inf"]


class Access:
    """The application, with what surrounds every request."""

    def __init__(self, app: ASGIApp, settings: Settings, is_open: bool, metrics: Metrics) -> None:
        self.app = app
        self.settings = settings
        self.metrics = metrics
        self.hosts = LOCAL_HOSTS if is_open else None
        self.headers = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        exchange = Exchange(self, scope, receive, send)
        try:
            self._check(scope)
            await self.app(scope, exchange.receive, exchange.send)
        except Exception as error:
            if exchange.status is not None:
                raise
            answer = await refuse(Request(scope), error)
            await answer(scope, receive, exchange.send)
        finally:
            exchange.finish()

    def _check(self, scope: Scope) -> None:
        """Refuse what is too large, and what comes by another site's page or another machine's name."""
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        length = headers.get(b"content-length", "0")
        if length.isascii() and length.isdigit():
            self.check_size(int(length))
        host = headers.get(b"host", "")
        name = host
        if ":" in host and not host.endswith("]"):
            name = host.rpartition(":")[0]
        if self.hosts is not None and name not in self.hosts:
            detail = "without keys, this service is reached by the machine's own address alone"
            raise Problem(403, "host", detail)
        origin = headers.get(b"origin", f"://{host}")
        if scope["method"] not in ("GET", "HEAD") and origin.partition("://")[2] != host:
            raise Problem(403, "origin", "calls from other sites' pages are not taken")

    def check_size(self, size: int) -> None:
        most = self.settings.most_bytes
        if size > most:
            raise Problem(413, "too-large", f"a body has at most {most} bytes")


@dataclass
class Exchange:
    """One request on its way."""

    access: Access
    scope: Scope
    _receive: Receive
    _send: Send
    status: int | None = None
    _bytes: int = 0
    _complete: bool = False
    _begun: float = field(default_factory=time.monotonic)
    _id: str = field(default_factory=lambda: secrets.token_hex(16))

    async def receive(self) -> Message:
        """The next piece of the body, which is neither too large nor too slow."""
        if self._complete:
            return await self._receive()
        limit = self.access.settings.body_s
        try:
            async with asyncio.timeout_at(self._begun + limit):
                message = await self._receive()
        except TimeoutError:
            detail = f"the body did not arrive within {limit:g} s"
            raise Problem(408, "slow-body", detail) from None
        self._bytes += len(message.get("body", b""))
        self._complete = not message.get("more_body", False)
        self.access.check_size(self._bytes)
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            # the page's files are asked for anew, so that those of two versions never meet
            cached = b"no-store" if self.scope["path"].startswith("/v1") else b"no-cache"
            own = [(b"x-request-id", self._id.encode()), (b"cache-control", cached)]
            if self.status == 408:  # the rest of the body is not waited for
                own.append((b"connection", b"close"))
            message["headers"] = [*message["headers"], *self.access.headers, *own]
        await self._send(message)

    def finish(self) -> None:
        route = getattr(self.scope.get("route"), "path", "other")
        took = time.monotonic() - self._begun
        labels = f'route="{route}",status="{self.status}"'
        self.access.metrics.count("mvplda_requests_total", labels)
        self.access.metrics.observe("mvplda_request_seconds", took, f'route="{route}"')
        state = self.scope.get("state", {})
        fields = {
            "requestId": self._id,
            "method": self.scope["method"],
            "path": self.scope["path"],
            "route": route,
            "status": self.status,
            "ms": round(1000 * took, 1),
            "caller": state.get("caller"),
            "profile": self.scope.get("path_params", {}).get("profile_id"),
            "decision": state.get("decision"),
        }
        log.info("request", extra={"fields": fields})


# -- errors ------------------------------------------------------------------------------


async def refuse(request: Request, error: Exception) -> JSONResponse:
    """Whatever goes wrong is answered by the details of a problem."""
    problem = problem_of(error)
    body = problem.body(request.url.path)
    kind = "application/problem+json"
    return JSONResponse(body, problem.status_code, problem.headers, media_type=kind)


def problem_of(error: Exception) -> Problem:
    if isinstance(error, Problem):
        return error
    if isinstance(error, HTTPException):
        problem = Problem(error.status_code, "http", str(error.detail))
        problem.headers = error.headers
        return problem
    if isinstance(error, (RequestValidationError, ValidationError)):
        return invalid(error.errors())
    if isinstance(error, errors.DataError):
        return Problem(422, "vector", str(error))
    if isinstance(error, DataError):
        return Problem(422, "fields", "a value has characters that cannot be stored")
    if isinstance(error, (DBAPIError, PoolTimeout)):
        text = str(getattr(error, "orig", error))
        log.error("database", extra={"fields": {"error_text": text}})
        if "full" in text or "No space" in text:
            return Problem(507, "storage", "there is no room left to write: nothing was changed")
        detail = "the database does not answer: nothing was changed"
        if "lock" in text:
            detail = "another connection holds a lock in the database: nothing was changed"
        return Problem(503, "database", detail, wait=2)
    log.error("unexpected", exc_info=error)
    return Problem(500, "unexpected", "something went wrong here, and is in the log")


def invalid(faults: Sequence[Any]) -> Problem:
    """The first of several faults of a request."""
    first = faults[0]
    names = [str(name) for name in first["loc"] if name != "body"]
    status = 400 if first["type"] == "json_invalid" else 422
    return Problem(status, "fields", f"{'.'.join(names) or 'the body'}: {first['msg']}")


# -- counts and logs ---------------------------------------------------------------------


class Metrics:
    """Counters, in the text format of Prometheus; a histogram is several of them. One thread counts.

    folder : where the processes of one service put their counts, so that each can return the sum of all
    """

    def __init__(self, folder: str | None = None) -> None:
        self._counts: defaultdict[str, float] = defaultdict(float)
        self._folder = Path(folder) if folder else None
        self._written = 0.0

    def count(self, name: str, labels: str, by: float = 1) -> None:
        """labels : as they stand between braces"""
        self._counts[f"{name}{{{labels}}}"] += by

    def observe(self, name: str, seconds: float, labels: str) -> None:
        for bound in SECONDS:
            self.count(f"{name}_bucket", f'{labels},le="{bound}"', seconds <= float(bound))
        self.count(f"{name}_count", labels)
        self.count(f"{name}_sum", labels, seconds)
        if time.monotonic() > self._written + 1:
            self.write()

    def write(self) -> None:
        """Let the other processes of the service see what was counted here."""
        self._written = time.monotonic()
        if self._folder is not None:
            text = json.dumps(self._counts)
            write_atomically(self._folder / f"{os.getpid()}.json", text.encode())

    def text(self, gauges: dict[str, float]) -> str:
        """Of all processes of the service; what others counted within the last second may be missing."""
        texts = [json.dumps(self._counts)]
        if self._folder is not None:
            self.write()
            texts = [path.read_text(encoding="utf-8") for path in self._folder.glob("*.json")]
        values: Counter[str] = Counter()
        for text in texts:
            values.update(json.loads(text))
        values.update(gauges)
        return "".join(f"{name} {value:.12g}\n" for name, value in sorted(values.items()))


class JsonLines(logging.Formatter):
    """One line of JSON per record; `fields` that a call gives as extra stand beside the message."""

    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "at": round(record.created, 3),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            fields["error"] = self.formatException(record.exc_info)
        return json.dumps(fields, default=str)
