"""What stands in front of every endpoint: limits, headers of safety, counts and log lines; and how errors are told."""

# ruff: noqa: E402

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass
from typing import Any

from .._optional import need

need("fastapi")

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from sqlalchemy.exc import DataError, DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..exceptions import MvpldaError
from .bodies import TITLES, first_fault
from .desk import Problem, log
from .watch import Metrics

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
METHODS = {"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"}
DOCS = {"/docs", "/openapi.json"}


@dataclass(frozen=True)
class Door:
    """What is let in.

    open : no keys: whoever reaches the machine's own address may do everything
    hosts : names by which this service is called, besides the machine's own
    most_bytes : of a body
    at_once : recordings that are worked on at the same time; as many again wait
    vectors : whether vectors are taken, and not only sound
    tls : it is reached by HTTPS, and says so
    """

    open: bool = False
    hosts: tuple[str, ...] = ()
    most_bytes: int = 4 * 2**20
    at_once: int = 4
    waiting: int = 64
    vectors: bool = True
    tls: bool = False


def problem(found: Problem, instance: str = "") -> JSONResponse:
    body = {
        "type": f"urn:mvplda:{found.kind}",
        "title": TITLES.get(found.status, "Problem"),
        "status": found.status,
        "detail": found.detail,
        **({"instance": instance} if instance else {}),
        **found.more,
    }
    headers = {} if found.wait is None else {"Retry-After": str(max(1, int(found.wait + 0.999)))}
    return JSONResponse(body, found.status, headers, media_type="application/problem+json")


class TooLarge(HTTPException):
    """Told to whoever reads a body, which frameworks pass on where they hide other errors."""

    def __init__(self, most: int) -> None:
        self.problem = Problem(413, "too-large", f"a body has at most {most} bytes")
        super().__init__(413)


class Guard:
    """Limits of size, headers of safety, counts and log lines, around every request."""

    def __init__(self, app: ASGIApp, door: Door, metrics: Metrics) -> None:
        self.app, self.door, self.metrics = app, door, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        begun, seen, status, answering = time.perf_counter(), 0, 500, False
        request_id = uuid.uuid4().hex

        async def limited() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > self.door.most_bytes:
                raise TooLarge(self.door.most_bytes)
            return message

        async def dressed(message: Message) -> None:
            nonlocal status, answering
            if message["type"] == "http.response.start":
                status, answering = message["status"], True
                own = {**HEADERS, "X-Request-Id": request_id}
                if scope["path"] in DOCS:
                    own.pop("Content-Security-Policy")
                # the page's files are asked for anew, so that those of two versions never meet
                own["Cache-Control"] = "no-store" if scope["path"].startswith("/v1") else "no-cache"
                if self.door.tls:
                    own["Strict-Transport-Security"] = "max-age=31536000"
                message["headers"] = [
                    *message["headers"],
                    *((k.lower().encode(), v.encode()) for k, v in own.items()),
                ]
            await send(message)

        try:
            refused = self._refused(scope)
            if refused is not None:
                await problem(refused)(scope, receive, dressed)
            else:
                await self.app(scope, limited, dressed)
        except Exception as error:
            if answering:
                raise
            await (await unexpected(Request(scope), error))(scope, receive, dressed)
        finally:
            route = getattr(scope.get("route"), "path", "other")
            took = time.perf_counter() - begun
            method = (
                scope["method"] if scope["method"] in METHODS else "other"
            )  # what callers make up is not kept
            self.metrics.count(
                "mvplda_requests_total", route=route, method=method, status=str(status)
            )
            self.metrics.observe("mvplda_request_seconds", took, route=route)
            said = {
                "requestId": request_id,
                "method": scope["method"],
                "route": route,
                "status": status,
            }
            log.info("request", extra={**said, "ms": round(1000 * took, 1)})

    def _refused(self, scope: Scope) -> Problem | None:
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        length = headers.get(b"content-length", "0")
        if length.isascii() and length.isdigit() and int(length) > self.door.most_bytes:
            return TooLarge(self.door.most_bytes).problem
        host = headers.get(b"host", "")
        name = host.rpartition(":")[0] if ":" in host and not host.endswith("]") else host
        if self.door.open and name not in LOCAL | set(self.door.hosts):
            return Problem(
                403,
                "host",
                "without keys, this service is reached by the machine's own address alone",
            )
        origin = headers.get(b"origin")
        if (
            origin is not None
            and origin.partition("://")[2] != host
            and scope["method"] not in ("GET", "HEAD")
        ):
            return Problem(403, "origin", "calls from other sites' pages are not taken")
        return None


# -- errors -------------------------------------------------------------------------------


def tell_errors(app: FastAPI) -> None:
    """Whatever goes wrong is answered with the details of a problem."""
    app.add_exception_handler(Problem, lambda request, error: problem(error, request.url.path))
    for kind, tell in (
        (HTTPException, http),
        (RequestValidationError, invalid),
        (DBAPIError, database),
        (PoolTimeout, database),
        (MvpldaError, unexpected),
        (Exception, unexpected),
    ):
        app.add_exception_handler(kind, tell)


async def http(request: Request, error: Any) -> Response:
    detail = error.detail if isinstance(error.detail, str) else "this cannot be done"
    found = (
        error.problem if isinstance(error, TooLarge) else Problem(error.status_code, "http", detail)
    )
    answer = problem(found, request.url.path)
    answer.headers.update(error.headers or {})
    return answer


async def invalid(request: Request, error: Any) -> Response:
    broken = any(found.get("type") == "json_invalid" for found in error.errors())
    return problem(
        Problem(400 if broken else 422, "fields", first_fault(error.errors())), request.url.path
    )


async def database(request: Request, error: Any) -> Response:
    if isinstance(error, DataError):
        return problem(
            Problem(422, "fields", "a value has characters that cannot be stored"), request.url.path
        )
    text = str(getattr(error, "orig", error))
    log.error("database", extra={"error_text": text})
    if "full" in text or "No space" in text:
        return problem(
            Problem(507, "storage", "there is no room left to write: nothing was changed"),
            request.url.path,
        )
    return problem(
        Problem(503, "database", "the database does not answer: nothing was changed", wait=2),
        request.url.path,
    )


async def unexpected(request: Request, error: Exception) -> Response:
    log.error("unexpected", exc_info=error)
    return problem(
        Problem(500, "unexpected", "something went wrong here, and is in the log"), request.url.path
    )
