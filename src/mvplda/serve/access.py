"""Who may call, how often, and what a request may be; headers of every answer; errors as problems."""

# ruff: noqa: E402

from __future__ import annotations

import logging
import math
import threading
import time
import uuid
from collections import OrderedDict
from typing import Any

from .._optional import need

need("fastapi")

import anyio
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from sqlalchemy.exc import DataError, DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..exceptions import MvpldaError
from .metrics import Metrics
from .problems import Problem
from .schemas import first_fault
from .settings import Settings

log = logging.getLogger("mvplda.serve")

LOCAL = {"localhost", "127.0.0.1", "[::1]", "::1", "testserver"}
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
PLAIN_HEADERS = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
METHODS = {"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"}
BUCKETS = 10_000
"""Names whose rates are remembered at once, the latest ones."""


class Rates:
    """Token buckets by name: so many per minute, and as many at once; 0 or infinity is no limit."""

    def __init__(self, per_minute: float) -> None:
        self.per_minute = per_minute
        self._lock = threading.Lock()
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait(self, name: str, now: float | None = None) -> float:
        """0 where the call may go on, else the seconds after which it may."""
        if not self.per_minute or math.isinf(self.per_minute):
            return 0.0
        now = time.monotonic() if now is None else now
        with self._lock:
            left, at = self._left.pop(name, (self.per_minute, now))
            left = min(self.per_minute, left + (now - at) * self.per_minute / 60)
            if left < 1:
                self._left[name] = (left, now)
                return (1 - left) * 60 / self.per_minute
            self._left[name] = (left - 1, now)
            while len(self._left) > BUCKETS:
                self._left.popitem(last=False)
            return 0.0


def problem_answer(problem: Problem, instance: str = "") -> JSONResponse:
    headers = {}
    if problem.wait is not None:
        headers["Retry-After"] = str(max(1, math.ceil(problem.wait)))
    return JSONResponse(
        problem.body(instance), problem.status, headers, media_type="application/problem+json"
    )


class BadBody(HTTPException):
    """A body that is too large or too slow: frameworks pass HTTP errors on where they hide others."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        super().__init__(problem.status)


class Access:
    """Around every request: limits of size and time, headers, counts and a log line."""

    def __init__(self, app: ASGIApp, settings: Settings, is_open: bool, metrics: Metrics) -> None:
        self.app = app
        self.settings = settings
        self.is_open = is_open
        self.metrics = metrics
        self.hosts = LOCAL | set(settings.hostnames)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        call = Call(self, scope, receive, send)
        try:
            refusal = self._refusal(scope)
            if refusal is not None:
                await problem_answer(refusal)(scope, receive, call.send)
            else:
                await self.app(scope, call.receive, call.send)
        except Exception as error:
            if call.status is not None:
                raise
            answer = await unexpected(Request(scope), error)
            await answer(scope, receive, call.send)
        finally:
            call.finish()

    def _refusal(self, scope: Scope) -> Problem | None:
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        length = headers.get(b"content-length", "0")
        if length.isascii() and length.isdigit() and int(length) > self.settings.most_bytes:
            return too_large(self.settings)
        host = headers.get(b"host", "")
        name = host
        if ":" in host and not host.endswith("]"):
            name = host.rpartition(":")[0]
        if self.is_open and name not in self.hosts:
            detail = "without keys, this service is reached by the machine's own address alone"
            return Problem(403, "host", detail)
        origin = headers.get(b"origin")
        changes_nothing = scope["method"] in ("GET", "HEAD")
        if origin is not None and not changes_nothing and origin.partition("://")[2] != host:
            return Problem(403, "origin", "calls from other sites' pages are not taken")
        return None


class Call:
    """One request on its way."""

    def __init__(self, access: Access, scope: Scope, receive: Receive, send: Send) -> None:
        self.access = access
        self.scope = scope
        self.status: int | None = None
        self._receive = receive
        self._send = send
        self._begun = time.perf_counter()
        self._bytes = 0
        self._complete = False
        self._id = uuid.uuid4().hex

    async def receive(self) -> Message:
        """The next piece of the body, which is neither too large nor too slow."""
        settings = self.access.settings
        if self._complete:
            return await self._receive()
        left = settings.body_s - (time.perf_counter() - self._begun)
        try:
            with anyio.fail_after(max(left, 0.001)):
                message = await self._receive()
        except TimeoutError:
            detail = f"the body did not arrive within {settings.body_s:g} s"
            raise BadBody(Problem(408, "slow-body", detail)) from None
        self._bytes += len(message.get("body", b""))
        self._complete = not message.get("more_body", False)
        if self._bytes > settings.most_bytes:
            raise BadBody(too_large(settings))
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            # the page's files are asked for anew, so that those of two versions never meet
            cached = b"no-store" if self.scope["path"].startswith("/v1") else b"no-cache"
            own = [(b"x-request-id", self._id.encode()), (b"cache-control", cached)]
            if self.access.settings.tls:
                own.append((b"strict-transport-security", b"max-age=31536000"))
            if self.status == 408:  # the rest of the body is not waited for
                own.append((b"connection", b"close"))
            message["headers"] = [*message["headers"], *PLAIN_HEADERS, *own]
        await self._send(message)

    def finish(self) -> None:
        route = getattr(self.scope.get("route"), "path", "other")
        status = self.status or 500
        took = time.perf_counter() - self._begun
        # names that callers make up are not counted by
        method = self.scope["method"] if self.scope["method"] in METHODS else "other"
        metrics = self.access.metrics
        metrics.count("mvplda_requests_total", route=route, method=method, status=str(status))
        metrics.observe("mvplda_request_seconds", took, route=route)
        if log.isEnabledFor(logging.INFO):
            state = self.scope.get("state", {})
            fields = {
                "requestId": self._id,
                "method": self.scope["method"],
                "route": route,
                "status": status,
                "ms": round(1000 * took, 1),
                "caller": state.get("caller"),
                "profile": self.scope.get("path_params", {}).get("profile_id"),
                "decision": state.get("decision"),
            }
            log.info("request", extra=fields)


def too_large(settings: Settings) -> Problem:
    return Problem(413, "too-large", f"a body has at most {settings.most_bytes} bytes")


# -- errors ------------------------------------------------------------------------------


def handle_errors(app: FastAPI) -> None:
    """Whatever goes wrong is answered by the details of a problem."""
    handlers: dict[Any, Any] = {
        Problem: refused,
        HTTPException: http_error,
        RequestValidationError: invalid,
        DBAPIError: database_error,
        PoolTimeout: database_error,
        MvpldaError: unexpected,
        Exception: unexpected,
    }
    for kind, handler in handlers.items():
        app.add_exception_handler(kind, handler)


async def refused(request: Request, error: Problem) -> Response:
    return problem_answer(error, request.url.path)


async def http_error(request: Request, error: HTTPException) -> Response:
    if isinstance(error, BadBody):
        return problem_answer(error.problem, request.url.path)
    detail = error.detail if isinstance(error.detail, str) else "this cannot be done"
    answer = problem_answer(Problem(error.status_code, "http", detail), request.url.path)
    answer.headers.update(error.headers or {})
    return answer


async def invalid(request: Request, error: RequestValidationError) -> Response:
    broken = any(fault.get("type") == "json_invalid" for fault in error.errors())
    problem = Problem(400 if broken else 422, "fields", first_fault(error.errors()))
    return problem_answer(problem, request.url.path)


async def database_error(request: Request, error: Exception) -> Response:
    if isinstance(error, DataError):
        problem = Problem(422, "fields", "a value has characters that cannot be stored")
        return problem_answer(problem, request.url.path)
    text = str(getattr(error, "orig", error))
    log.error("database", extra={"error_text": text})
    problem = Problem(503, "database", "the database does not answer: nothing was changed", wait=2)
    if "full" in text or "No space" in text:
        problem = Problem(507, "storage", "there is no room left to write: nothing was changed")
    return problem_answer(problem, request.url.path)


async def unexpected(request: Request, error: Exception) -> Response:
    log.error("unexpected", exc_info=error)
    problem = Problem(500, "unexpected", "something went wrong here, and is in the log")
    return problem_answer(problem, request.url.path)
