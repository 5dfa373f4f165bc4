"""Handling of every HTTP request: limits, security headers, metrics, log line, and errors as problem details."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from pydantic import ValidationError
from pydantic_core import ErrorDetails
from sqlalchemy.exc import DataError, DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from .. import exceptions as errors
from .addresses import client_address
from .database import database_problem
from .idempotency import IdempotentCall
from .keys import Caller
from .schemas import Problem
from .settings import LOCAL_HOSTS

if TYPE_CHECKING:
    from .app import Runtime

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
STREAM_PROTOCOL, KEY_PROTOCOL = "mvplda", "mvplda-key."
"""Subprotocol of streams; beginning of a subprotocol that carries an API key."""
PROXY_HEADERS = (b"forwarded", b"via", b"x-real-ip")
# Environment variable with the folder where worker processes write their metrics.
MULTIPROCESS = "PROMETHEUS_MULTIPROC_DIR"
disable_created_metrics()


class AccessMiddleware:
    """ASGI middleware that checks every request, adds security headers to its answer, counts it and logs it.

    Parameters
    ----------
    app : application that answers the admitted requests
    runtime : state of the service: settings, metrics, limits of request bodies, and API keys
    """

    def __init__(self, app: ASGIApp, runtime: Runtime) -> None:
        self.app = app
        self.settings = runtime.settings
        self.metrics = runtime.metrics
        self.bodies = runtime.bodies
        self.callers = runtime.callers
        self.headers = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await self._open_stream(StreamExchange(self, scope, receive, send))
            return
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        exchange = Exchange(self, scope, receive, send)
        scope["exchange"] = exchange
        try:
            await self._check(exchange)
            await self.app(scope, exchange.receive, exchange.send)
        except Exception as error:
            if exchange.status is not None:
                raise
            answer = await refuse(Request(scope), error)
            await answer(scope, receive, exchange.send)
        finally:
            exchange.finish()

    async def _open_stream(self, exchange: StreamExchange) -> None:
        """Check the handshake of a WebSocket like any call, and pass the stream on to its endpoint."""
        scope = exchange.scope
        scope["exchange"] = exchange
        take_key(scope)
        try:
            await self._check(exchange)
            await self.app(scope, exchange.receive, exchange.send)
        except Problem as problem:
            await end_with_problem(WebSocket(scope, exchange.receive, exchange.send), problem)
        finally:
            exchange.finish()

    async def _check(self, exchange: Exchange) -> None:
        """Raise a `Problem` if a request must be refused before its body is read.

        Refused are requests with too large a Content-Length (413), calls from web pages of other sites (403), too many
        calls without a key from one address (429), and calls from other machines if the service has no API keys (403).
        """
        scope = exchange.scope
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        exchange.check_length(headers.get(b"content-length", "0"))
        host = headers.get(b"host", "")
        problem = remote_problem(scope, headers)
        if self.callers.is_open and problem is not None and await self.callers.needs_no_key():
            raise problem
        if b"x-api-key" not in headers and b"authorization" not in headers:
            self.callers.count_keyless(exchange)
        origin = headers.get(b"origin", f"://{host}")
        is_read = scope["type"] == "http" and scope["method"] in ("GET", "HEAD")
        if not is_read and origin.partition("://")[2] != host:
            raise Problem(403, "origin", "calls from the pages of other sites are refused")


def remote_problem(scope: Scope, headers: Mapping[bytes, str]) -> Problem | None:
    """Return the refusal of a call from another machine to a service without API keys; None for a local call.

    A call counts as local if its header Host names this machine and no proxy has forwarded it.
    """
    host = headers.get(b"host", "")
    name = host
    if ":" in host and not host.endswith("]"):
        name = host.rpartition(":")[0]
    if name not in LOCAL_HOSTS:
        detail = "without API keys, this service answers at the machine's own address only"
        return Problem(403, "host", detail)
    # nginx calls with HTTP/1.0 unless it is configured otherwise, and adds none of the proxy headers
    is_forwarded = scope.get("http_version") == "1.0" or any(
        header in PROXY_HEADERS or header.startswith(b"x-forwarded-") for header in headers
    )
    if not is_forwarded:
        return None
    detail = (
        "without API keys, this service refuses calls through a proxy, because they come from other machines: "
        "make a key with `mvplda serve key NAME --role admin`"
    )
    return Problem(403, "proxy", detail)


@dataclass(eq=False)
class Exchange:
    """HTTP request in progress: reads its body within the limits, sends its answer, and logs both.

    Parameters
    ----------
    access : middleware with the settings, metrics and limits
    scope : ASGI scope of the request
    status : HTTP status of the answer; None until the answer begins
    caller : owner of the API key; None until the key is checked
    runtime : state of the caller's tenant; None until the key is checked
    call : the call with its Idempotency-Key; None: the request has no such key
    address : address of the client, see `client_address`
    """

    access: AccessMiddleware
    scope: Scope
    _receive: Receive
    _send: Send
    status: int | None = None
    caller: Caller | None = None
    runtime: Runtime | None = None
    call: IdempotentCall | None = None
    address: str = ""
    _limit: int = 0
    _length: int = 0
    _bytes: int = 0
    _complete: bool = False
    _stopped: bool = False
    _timeout: asyncio.Timeout | None = None
    _begun: float = field(default_factory=time.monotonic)
    _id: str = field(default_factory=lambda: secrets.token_hex(16))

    def __post_init__(self) -> None:
        self.address = client_address(self.scope)
        self._limit = self.access.settings.most_bytes

    def check_length(self, header: str) -> None:
        """Note the length in `header`, the value of Content-Length; raise a `Problem` (413) if it is too large."""
        if header.isascii() and header.isdigit():
            self._length = int(header)
        self._check_size(self._length)

    def limit_body(self, size: int) -> None:
        """Lower the limit of the body to `size` bytes; raise a `Problem` (413) if its Content-Length is larger."""
        self._limit = min(self._limit, size)
        self._check_size(self._length)

    def _check_size(self, size: int) -> None:
        """Raise a `Problem` (413) if `size`, in bytes, exceeds the limit of the body."""
        if size > self._limit:
            detail = (
                f"the body of this call may have {self._limit} bytes at most; got {size} or more"
            )
            raise Problem(413, "too-large", detail)

    async def receive(self) -> Message:
        """Return the next ASGI message with a chunk of the body.

        Raises
        ------
        Problem : 413 if the body is too large, 408 if it is incomplete after ``body_s`` seconds, 503 if `stop_reading`
            was called
        """
        if self._complete:
            return await self._receive()
        limit = self.access.settings.body_s
        bodies = self.access.bodies
        bodies.add(self)
        try:
            async with asyncio.timeout_at(self._begun + limit) as self._timeout:
                message = await self._receive()
        except TimeoutError:
            raise self._problem() from None
        finally:
            self._timeout = None
        if self._stopped:
            raise self._problem()
        size = self._size(message)
        self._bytes += size
        self._complete = self._is_last(message)
        if self._complete:
            bodies.remove(self)
        else:
            bodies.count(self, size)
        self._check_size(self._bytes)
        return message

    def _problem(self) -> Problem:
        """Return the refusal of a body: 503 after `stop_reading`, otherwise 408 because it did not arrive in time."""
        if self._stopped:
            detail = (
                "too many request bodies arrive at the same time, and this one was among the slowest: "
                "send it again"
            )
            return Problem(503, "busy", detail, wait=1)
        self._stopped = True
        limit = self.access.settings.body_s
        detail = f"expected the complete body of the request within {limit:g} s; it did not arrive"
        return Problem(408, "slow-body", detail)

    def _size(self, message: Message) -> int:
        """Return the number of bytes of the body that a message contains."""
        return len(message.get("body", b""))

    def _is_last(self, message: Message) -> bool:
        """Return whether a message contains the end of the body."""
        return not message.get("more_body", False)

    def stop_reading(self) -> None:
        """Refuse the request (503) instead of waiting for the rest of its body.

        `UnfinishedBodies` calls this if too many requests have an unfinished body.
        """
        self._stopped = True
        if self._timeout is not None:
            self._timeout.reschedule(0.0)

    async def send(self, message: Message) -> None:
        """Pass on an ASGI message of the answer; add the security headers and the id of the request to its headers."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            # browsers check the page's files each time, so that files of two versions are never mixed
            cached = b"no-store" if self.scope["path"].startswith("/v1") else b"no-cache"
            headers = [(b"x-request-id", self._id.encode()), (b"cache-control", cached)]
            if self._stopped:
                # the rest of the body is not read
                headers.append((b"connection", b"close"))
            message["headers"] = [*message["headers"], *self.access.headers, *headers]
        await self._send(message)

    def finish(self) -> None:
        """Count the finished request in the metrics, and write its line to the log."""
        self.access.bodies.remove(self)
        route = getattr(self.scope.get("route"), "path", "other")
        duration_s = time.monotonic() - self._begun
        metrics = self.access.metrics
        metrics.requests.labels(route, self.status).inc()
        metrics.seconds.labels(route).observe(duration_s)
        state = self.scope.get("state", {})
        fields = {
            "requestId": self._id,
            "method": self.scope.get("method", "GET"),
            "path": self.scope["path"],
            "route": route,
            "status": self.status,
            "ms": round(1000 * duration_s, 1),
            "caller": self.caller and self.caller.name,
            "profile": self.scope.get("path_params", {}).get("profile_id"),
            "decision": state.get("decision"),
        }
        if self.status in (401, 403, 408, 429):
            # other calls are logged without their address, which is personal
            fields["address"] = self.address
        log.info("request", extra={"fields": fields})


class StreamExchange(Exchange):
    """WebSocket in progress; the sizes of all its messages together are limited like the body of a request."""

    async def receive(self) -> Message:
        if self._stopped:
            raise self._problem()
        return await super().receive()

    def _size(self, message: Message) -> int:
        return len(message.get("bytes") or message.get("text") or b"")

    def _is_last(self, message: Message) -> bool:
        return bool(message["type"] == "websocket.disconnect")

    async def send(self, message: Message) -> None:
        """Send a message; raise `WebSocketDisconnect` if the client does not read it within ``header_s`` seconds."""
        kind = message["type"]
        if kind == "websocket.accept":
            self.status = 101
        elif kind == "websocket.http.response.start":
            self.status = message["status"]
        elif kind == "websocket.close" and self.status is None:
            self.status = 403
        if kind in ("websocket.accept", "websocket.http.response.start"):
            headers = [(b"x-request-id", self._id.encode()), (b"cache-control", b"no-store")]
            message["headers"] = [*message.get("headers", ()), *self.access.headers, *headers]
        try:
            async with asyncio.timeout(self.access.settings.header_s):
                await self._send(message)
        except TimeoutError:
            raise WebSocketDisconnect(1006, "the client does not read") from None


# -- streams -----------------------------------------------------------------------------


def take_key(scope: Scope) -> None:
    """Copy the API key of a WebSocket from its subprotocol ``mvplda-key.KEY`` to the header X-API-Key.

    Browsers cannot set headers of a WebSocket. A key in the header has precedence.
    """
    names = {name for name, _ in scope["headers"]}
    keys = [name for name in scope["subprotocols"] if name.startswith(KEY_PROTOCOL)]
    if keys and b"x-api-key" not in names:
        key = keys[0].removeprefix(KEY_PROTOCOL).encode()
        scope["headers"] = [*scope["headers"], (b"x-api-key", key)]


async def end_with_problem(websocket: WebSocket, problem: Problem) -> None:
    """Refuse a WebSocket with a problem.

    Before the handshake is accepted, the problem is the HTTP answer. Afterwards, it is sent as a message of the type
    ``problem``, and the WebSocket is closed with 4000 plus the HTTP status as its code.
    """
    body = problem.body(websocket.url.path)
    if websocket.application_state is WebSocketState.CONNECTED:
        wait = (problem.headers or {}).get("Retry-After")
        message = {**body, "type": "problem", "problem": body["type"]}
        if wait is not None:
            message["retryAfter"] = int(wait)
        await websocket.send_json(message)
        await websocket.close(4000 + problem.status_code)
        return
    kind = "application/problem+json"
    answer = JSONResponse(body, problem.status_code, problem.headers, media_type=kind)
    await websocket.send_denial_response(answer)


# -- errors ------------------------------------------------------------------------------


async def refuse(request: Request, error: Exception) -> JSONResponse:
    """Return the answer to a request that raised an error: JSON with problem details (RFC 9457)."""
    problem = problem_of(error)
    body = problem.body(request.url.path)
    kind = "application/problem+json"
    return JSONResponse(body, problem.status_code, problem.headers, media_type=kind)


def problem_of(error: Exception) -> Problem:
    """Return the `Problem` with which a call that raised `error` is answered.

    Errors of the database and unexpected errors are logged.
    """
    if isinstance(error, Problem):
        return error
    unreadable = unreadable_body(error)
    if unreadable is not None:
        return unreadable
    if isinstance(error, HTTPException):
        problem = Problem(error.status_code, "http", str(error.detail))
        problem.headers = error.headers
        return problem
    if isinstance(error, (RequestValidationError, ValidationError)):
        return invalid(error.errors())
    if isinstance(error, errors.DataError):
        return Problem(422, "vector", str(error))
    if isinstance(error, DataError):
        detail = "a text of the request has characters that the database cannot store, such as a zero byte"
        return Problem(422, "fields", detail)
    if isinstance(error, (DBAPIError, PoolTimeout)):
        text = str(getattr(error, "orig", error))
        log.error("database", extra={"fields": {"error_text": text}})
        return database_problem(error)
    log.error("unexpected", exc_info=error)
    return Problem(
        500,
        "unexpected",
        "an unexpected error occurred in the service: its operator finds the details in the log",
    )


def unreadable_body(error: Exception) -> Problem | None:
    """Return the problem of a body that is nested too deeply for JSON, or is not UTF-8; None for any other error.

    FastAPI reports both faults by the same exception; the original error is the cause (``__cause__``) of it.
    """
    causes = (error, error.__cause__)
    if any(isinstance(cause, RecursionError) for cause in causes):
        detail = "the body: expected JSON; its lists or objects are nested too deeply"
        return Problem(400, "fields", detail)
    if isinstance(error, HTTPException) and isinstance(error.__cause__, UnicodeDecodeError):
        return Problem(400, "fields", "the body: expected JSON in UTF-8; got other bytes")
    return None


def invalid(faults: Sequence[ErrorDetails]) -> Problem:
    """Return the problem of a request with wrong fields: 400 for malformed JSON, otherwise 422.

    faults : faults that pydantic found in the request; the problem names the first
    """
    first = faults[0]
    names = [str(name) for name in first["loc"] if name != "body"]
    status = 400 if first["type"] == "json_invalid" else 422
    return Problem(status, "fields", f"{'.'.join(names) or 'the body'}: {first['msg']}")


# -- counts and logs ---------------------------------------------------------------------


class Metrics:
    """Metrics of the service for Prometheus.

    They count the calls of this process. If the environment variable named by `MULTIPROCESS` is set to a folder, they
    count those of all worker processes that use the folder. prometheus_client reads that variable when it is imported.
    """

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        registry = self._registry
        self.requests = Counter(
            "mvplda_requests", "Requests", ["route", "status"], registry=registry
        )
        self.seconds = Histogram(
            "mvplda_request_seconds", "Duration of requests", ["route"], registry=registry
        )
        self.decisions = Counter(
            "mvplda_decisions", "Decisions", ["decision", "reason"], registry=registry
        )
        self.recordings = Gauge(
            "mvplda_recordings",
            "Recordings in progress or waiting",
            multiprocess_mode="livesum",
            registry=registry,
        )
        self.streams = Gauge(
            "mvplda_streams",
            "Streams in progress",
            multiprocess_mode="livesum",
            registry=registry,
        )
        self.looks = Counter("mvplda_looks", "Looks at streams before their end", registry=registry)
        self.damaged = Gauge(
            "mvplda_damaged_profiles",
            "Profiles with unreadable stored data, counted at the last call of /v1/ready",
            multiprocess_mode="livemax",
            registry=registry,
        )
        if MULTIPROCESS in os.environ:
            self._registry = CollectorRegistry()
            MultiProcessCollector(self._registry)
            forget_killed(Path(os.environ[MULTIPROCESS]))

    def text(self) -> bytes:
        """Return all metrics in the text format of Prometheus."""
        return generate_latest(self._registry)


def forget_killed(folder: Path) -> None:
    """Remove the gauges of killed worker processes from the folder of metrics.

    Otherwise the recordings that they were processing would count as in progress for ever.
    """
    processes = Path("/proc")
    for path in folder.glob("gauge_live*.db"):
        number = path.stem.rpartition("_")[2]
        if processes.exists() and not (processes / number).exists():
            mark_process_dead(number)
