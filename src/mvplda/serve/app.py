"""The endpoints: HTTP in, what the service says out, and everything that stands in front of them."""

# ruff: noqa: E402

from __future__ import annotations

import hashlib
import json
import logging
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from .. import __version__
from .._optional import need

need("fastapi")
need("python_multipart")

import sqlalchemy as sa
from anyio import CapacityLimiter, to_thread
from fastapi import Depends, FastAPI, Header, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse
from fastapi.staticfiles import StaticFiles
from pydantic import BaseModel, ConfigDict, Field, field_validator
from sqlalchemy.exc import DataError, DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartParser
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..exceptions import MvpldaError
from .audio import Heard
from .keys import Caller
from .service import Ask, Problem, Service
from .store import answers
from .watch import Metrics

log = logging.getLogger("mvplda.serve")
PAGE_FOLDER = Path(__file__).with_name("page")
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
ANSWER_DAYS = 1.0


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


Top = Annotated[int, Query(ge=1, le=1000)]
After = Annotated[str | None, Query(max_length=200)]
IfMatch = Annotated[str | None, Header(max_length=100)]

# -- bodies --------------------------------------------------------------------------------


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=False)


class Consent(Body):
    given: bool
    at: str | None = Field(None, max_length=40, examples=["2026-11-15T12:00:00Z"])
    text: str | None = Field(None, max_length=5000, description="What the person agreed to")


class NewProfile(Body):
    userId: str | None = Field(None, max_length=200, examples=["ann"])
    phrase: str | None = Field(None, min_length=1, max_length=200, examples=["my voice is my key"])
    consent: Consent


class NewChallenge(Body):
    profileId: str = Field(max_length=64)
    count: int = Field(1, ge=1, le=5)


class NewPhrase(Body):
    text: str = Field(min_length=1, max_length=200, examples=["open the garden door"])
    locale: str | None = Field(None, max_length=35, examples=["en-GB"])


class Asked(Body):
    """Fields of a verification, in JSON, in a form or in the query."""

    vector: list[float] | None = Field(None, max_length=20_000)
    vectors: list[list[float]] | None = Field(None, max_length=5)
    phrase: str | None = Field(None, min_length=1, max_length=200)
    challengeId: str | None = Field(None, max_length=64)
    far: float | None = Field(None, gt=0, lt=1)
    prior: float | None = Field(None, ge=1e-12, lt=1)
    missCost: float = Field(1.0, ge=1e-9, le=1e9)
    falseAlarmCost: float = Field(1.0, ge=1e-9, le=1e9)
    spoofLlr: float | None = Field(None, ge=-50, le=50)
    candidates: list[str] | None = Field(None, max_length=10_000)
    top: int = Field(5, ge=1, le=100)
    priorNone: float = Field(0.5, gt=0, lt=1)

    @field_validator("candidates", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        """A form or a query has them divided by commas."""
        return value.split(",") if isinstance(value, str) else value

    def ask(self) -> Ask:
        if self.prior is None and self.model_fields_set & {"missCost", "falseAlarmCost"}:
            raise Problem(422, "operating-point", "costs want a prior beside them: how often it is really the owner")
        return Ask(
            self.phrase, self.challengeId, self.far, self.prior, self.missCost, self.falseAlarmCost, self.spoofLlr
        )


NUMBER = {"type": "number", "exclusiveMinimum": 0}
TEXT = {"type": "string", "maxLength": 200}
FORM = {
    "type": "object",
    "properties": {
        "audio": {"type": "string", "format": "binary", "description": "WAV, FLAC, Ogg, WebM/Opus; may be repeated"},
        "phrase": TEXT,
        "challengeId": TEXT,
        "far": NUMBER,
        "prior": NUMBER,
        "missCost": NUMBER,
        "falseAlarmCost": NUMBER,
    },
}
BINARY = {"schema": {"type": "string", "format": "binary"}}
SOUND = {
    "requestBody": {
        "required": True,
        "content": {
            "audio/wav": BINARY,
            "audio/webm": BINARY,
            "audio/flac": BINARY,
            "audio/ogg": BINARY,
            "multipart/form-data": {"schema": FORM},
            "application/json": {
                "schema": {
                    "type": "object",
                    "properties": {
                        "vector": {"type": "array", "items": {"type": "number"}},
                        "phrase": TEXT,
                        "far": NUMBER,
                    },
                },
                "example": {"vector": [0.01, -0.02], "phrase": "my voice is my key", "far": 0.01},
            },
        },
    }
}
PROFILE = {
    "profileId": "0f6f7e2c9a5b4d3e8c1a2b3c4d5e6f70",
    "userId": "ann",
    "state": "enrolled",
    "phrases": ["my voice is my key"],
    "enrollmentsCount": 3,
    "remainingEnrollmentsCount": 0,
    "speechLength": 5.2,
    "modelVersion": "campplus-words-1a2b3c4d5e6f",
    "created": "2026-11-15T12:00:00.000Z",
    "updated": "2026-11-15T12:01:00.000Z",
    "lastUsed": "2026-11-15T12:01:00.000Z",
    "expires": "2027-11-15T12:01:00.000Z",
    "etag": '"4"',
}
QUALITY = {
    "durationS": 2.1,
    "speechS": 1.7,
    "peakDb": -3.0,
    "levelDb": -21.4,
    "clipped": 0.0,
    "snrDb": 31.0,
    "bandwidthHz": 7900,
    "warnings": [],
}
VERDICT = {
    "resultId": "5e1f0c9f3a7d4b61a1b2c3d4e5f60718",
    "decision": "reject",
    "reason": "wrong_phrase",
    "llr": -4.1,
    "threshold": 4.6,
    "rejectThreshold": 0.0,
    "posteriors": {"TC": 0.016, "TW": 0.97, "IC": 0.001, "IW": 0.013},
    "prior": 0.5,
    "llrSpeaker": 4.2,
    "llrPhrase": -4.0,
    "operatingPoint": {"far": 0.004, "farInterval": [0.002, 0.008], "frr": 0.03, "frrInterval": [0.02, 0.05]},
    "quality": QUALITY,
    "modelVersion": "campplus-words-1a2b3c4d5e6f",
    "notice": None,
}
RANKED = {
    "resultId": "5e1f0c9f3a7d4b61a1b2c3d4e5f60718",
    "candidates": [
        {"profileId": "0f6f7e2c9a5b4d3e8c1a2b3c4d5e6f70", "userId": "ann", "llr": 5.9, "probability": 0.97},
        {"profileId": "7a1b2c3d4e5f60718293a4b5c6d7e8f9", "userId": "bob", "llr": -1.2, "probability": 0.0008},
    ],
    "noneOfThem": 0.03,
    "profilesCount": 12,
    "reason": None,
    "quality": QUALITY,
    "modelVersion": "campplus-words-1a2b3c4d5e6f",
    "notice": None,
}
REFUSAL = {
    "type": "urn:mvplda:refused",
    "title": "Unprocessable Content",
    "status": 422,
    "detail": "There is too little speech in it: say the whole phrase.",
    "reason": "not_enough_speech",
    "quality": {**QUALITY, "speechS": 0.2, "warnings": ["short"]},
}


Responses = dict[int | str, dict[str, Any]]


def answered(status: int, description: str, example: Any = None) -> Responses:
    content = {"application/json": {"example": example}} if example else {}
    return {status: {"description": description, "content": content}}


def problems(*statuses: int) -> Responses:
    content = {"application/problem+json": {"example": REFUSAL}}
    return {status: {"description": TITLES.get(status, "Problem"), "content": content} for status in statuses}


TITLES = {
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    409: "Conflict",
    410: "Gone",
    413: "Content Too Large",
    415: "Unsupported Media Type",
    422: "Unprocessable Content",
    429: "Too Many Requests",
    500: "Internal Server Error",
    503: "Service Unavailable",
    507: "Insufficient Storage",
}


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


# -- the guard -----------------------------------------------------------------------------


class TooLarge(Exception):
    pass


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
                raise TooLarge
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
                message["headers"] = [*message["headers"], *((k.lower().encode(), v.encode()) for k, v in own.items())]
            await send(message)

        try:
            refused = self._refused(scope)
            if refused is not None:
                await problem(refused)(scope, receive, dressed)
            else:
                await self.app(scope, limited, dressed)
        except TooLarge:
            await self._large()(scope, receive, dressed)
        except Exception as error:
            if answering:
                raise
            await (await _unexpected(Request(scope), error))(scope, receive, dressed)
        finally:
            route = getattr(scope.get("route"), "path", "other")
            took = time.perf_counter() - begun
            method = scope["method"] if scope["method"] in METHODS else "other"  # what callers make up is not kept
            self.metrics.count("mvplda_requests_total", route=route, method=method, status=str(status))
            self.metrics.observe("mvplda_request_seconds", took, route=route)
            said = {"requestId": request_id, "method": scope["method"], "route": route, "status": status}
            log.info("request", extra={**said, "ms": round(1000 * took, 1)})

    def _large(self) -> JSONResponse:
        return problem(Problem(413, "too-large", f"a body has at most {self.door.most_bytes} bytes"))

    def _refused(self, scope: Scope) -> Problem | None:
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        length = headers.get(b"content-length", "0")
        if length.isascii() and length.isdigit() and int(length) > self.door.most_bytes:
            return Problem(413, "too-large", f"a body has at most {self.door.most_bytes} bytes")
        host = headers.get(b"host", "")
        name = host.rpartition(":")[0] if ":" in host and not host.endswith("]") else host
        if self.door.open and name not in LOCAL | set(self.door.hosts):
            return Problem(403, "host", "without keys, this service is reached by the machine's own address alone")
        origin = headers.get(b"origin")
        if origin is not None and origin.partition("://")[2] != host and scope["method"] not in ("GET", "HEAD"):
            return Problem(403, "origin", "calls from other sites' pages are not taken")
        return None


# -- the application -------------------------------------------------------------------------


def create_app(service: Service, door: Door | None = None) -> FastAPI:
    """The service as an ASGI application."""
    door, metrics = door or Door(), Metrics()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        service.store.close()  # SQLite then writes what is in its log, and nothing of who left stays there

    app = FastAPI(
        title="mvplda",
        lifespan=lifespan,
        version=__version__,
        summary="Speaker and phrase, verified by one calibrated likelihood ratio.",
        docs_url="/docs",
        redoc_url=None,
        separate_input_output_schemas=False,
    )
    app.state.service, app.state.metrics = service, metrics
    limiter = CapacityLimiter(door.at_once)
    plain = CapacityLimiter(8)  # each may hold two of the pool's 20 connections; more threads only wait for each other
    model = service.model
    # the parser of forms would write what is larger than this to a file
    MultiPartParser.spool_max_size = max(MultiPartParser.spool_max_size, door.most_bytes)

    async def do(work: Callable[..., Any], *arguments: Any, heavy: bool = False) -> Any:
        if heavy and limiter.statistics().tasks_waiting >= door.waiting:
            raise Problem(503, "busy", "too many recordings are waiting: come back in a moment", wait=1)
        return await to_thread.run_sync(lambda: work(*arguments), limiter=limiter if heavy else plain)

    def asks(role: str) -> Any:
        async def caller(
            request: Request,
            x_api_key: Annotated[str | None, Header(max_length=200)] = None,
            authorization: Annotated[str | None, Header(max_length=300)] = None,
        ) -> Caller:
            key = x_api_key or (authorization or "").removeprefix("Bearer ").strip()
            found = Caller("local", "admin") if door.open and not key else None
            if key:
                found = await do(service.store.find_caller, key)
            if found is None:
                wait = service.key_rates.wait(f"nobody {request.client.host if request.client else ''}")
                if wait:
                    raise Problem(429, "rate", "too many calls without a key", wait=wait)
                raise Problem(401, "key", "send an API key: the header X-API-Key, or Authorization: Bearer")
            wait = service.key_rates.wait(found.name)
            if wait:
                raise Problem(429, "rate", "too many calls with this key", wait=wait)
            if not found.may(role):
                raise Problem(403, "role", f"this key may {found.role}; this call wants one that may {role}")
            return found

        return Depends(caller)

    async def sound(request: Request) -> tuple[list[Heard], Asked]:
        """What a call brought: sound in the body or in a form, or vectors; and its other fields."""
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        fields: dict[str, Any] = dict(request.query_params)
        sounds: list[bytes] = []
        if kind == "application/json":
            try:
                body = json.loads(await request.body())
            except (ValueError, RecursionError) as error:
                raise Problem(400, "json", f"the body is no JSON: {error}") from error
            if not isinstance(body, dict):
                raise Problem(422, "json", "the body is a JSON object")
            fields |= body
        elif kind == "multipart/form-data":
            try:
                form = await request.form(max_files=5, max_fields=20)
            except (ValueError, KeyError) as error:  # of the parser; what starlette says itself passes
                raise Problem(400, "form", f"the form cannot be read: {error}") from error
            for name, value in form.multi_items():
                if isinstance(value, str):
                    fields[name] = value
                elif name == "audio":
                    sounds.append(await value.read())
        elif kind.startswith("audio/") or kind in ("application/octet-stream", "video/webm", "application/ogg"):
            sounds.append(await request.body())
        else:
            raise Problem(
                415, "media-type", f"send audio/*, multipart/form-data or application/json; got {kind[:50]!r}"
            )
        asked = parsed(Asked, fields)
        vectors = asked.vectors or ([asked.vector] if asked.vector is not None else [])
        if vectors and not door.vectors:
            raise Problem(422, "vectors", "this service takes sound, and no vectors")
        if bool(vectors) == bool(sounds):
            raise Problem(422, "body", "send sound (a part called audio, or the body itself), or a vector")
        heard = [await do(service.hear, data, heavy=True) for data in sounds]
        return heard or [await do(service.heard_vector, vector) for vector in vectors], asked

    async def once(request: Request, caller: Caller, work: Callable[[], Awaitable[Response]]) -> Response:
        """Do it, or answer what was answered when the same Idempotency-Key came before."""
        name = request.headers.get("idempotency-key")
        if not name:
            return await work()
        if len(name) > 200:
            raise Problem(422, "idempotency-key", "an Idempotency-Key has at most 200 characters")
        about = f"{request.url.query}\n{request.headers.get('content-type', '')}\n".encode()
        mark = f"{request.method} {request.url.path} {hashlib.sha256(about + await request.body()).hexdigest()}"
        before = await do(claim, caller.name, name, mark)
        if before is not None:
            return Response(before["body"], before["status"], json.loads(before["headers"]))
        try:
            answer = await work()
        except BaseException:
            await do(forget, caller.name, name)
            raise
        headers = {k: v for k, v in answer.headers.items() if k in ("content-type", "etag", "location")}
        await do(settle, caller.name, name, answer.status_code, bytes(answer.body).decode(), json.dumps(headers))
        return answer

    def claim(caller: str, name: str, mark: str) -> Mapping[str, Any] | None:
        now = service.clock()
        here = (answers.c.caller == caller) & (answers.c.name == name)
        with service.store.write() as connection:
            connection.execute(answers.delete().where(answers.c.at < now - ANSWER_DAYS * 86400))
            row = connection.execute(sa.select(answers).where(here)).mappings().first()
            if row is not None and row["request"] != mark:
                raise Problem(422, "idempotency-key", "this Idempotency-Key came before, with another request")
            if row is not None and row["status"] is None and row["at"] > now - 60:
                raise Problem(409, "in-progress", "the same request is being worked on", wait=1)
            if row is not None and row["status"] is not None:
                return dict(row)
            if row is not None:
                connection.execute(answers.delete().where(here))
            connection.execute(answers.insert().values(caller=caller, name=name, request=mark, at=now))
        return None

    def settle(caller: str, name: str, status: int, body: str, headers: str) -> None:
        here = (answers.c.caller == caller) & (answers.c.name == name)
        with service.store.write() as connection:
            connection.execute(answers.update().where(here).values(status=status, body=body, headers=headers))

    def forget(caller: str, name: str) -> None:
        with service.store.write() as connection:
            connection.execute(answers.delete().where((answers.c.caller == caller) & (answers.c.name == name)))

    def profile_answer(found: dict[str, Any], status: int = 200) -> JSONResponse:
        headers = {"ETag": found["etag"]}
        if status == 201:
            headers["Location"] = f"/v1/profiles/{found['profileId']}"
        return JSONResponse(found, status, headers)

    Verifier, Enroller, Admin = (asks(role) for role in ("verify", "enrol", "admin"))

    @app.get("/v1/health", tags=["operation"])
    async def health() -> dict[str, Any]:
        """That it runs, and what runs."""
        return {
            "status": "ok",
            "version": __version__,
            "modelVersion": None if model is None else model.version,
            "extractor": None if model is None else model.extractor_name,
            "demoNetwork": bool(model is not None and model.about.get("demoNetwork")),
            "notice": None if model is None else model.about.get("notice"),
            "keysWanted": not door.open,
        }

    @app.get("/v1/ready", tags=["operation"], responses=problems(503))
    async def ready() -> dict[str, Any]:
        """That it can decide: the database answers, and a model is there."""
        await do(service.store.ping)
        if model is None:
            raise Problem(503, "no-model", "no model is loaded", wait=30)
        return {"status": "ready", "modelVersion": model.version}

    @app.get("/metrics", tags=["operation"], response_class=PlainTextResponse)
    async def text() -> str:
        """Counters in the text format of Prometheus."""
        waiting = limiter.statistics()
        return metrics.text(
            {"mvplda_recordings_in_work": waiting.borrowed_tokens, "mvplda_recordings_waiting": waiting.tasks_waiting}
        )

    @app.get("/v1/model", tags=["model"], responses=problems(401, 403, 429, 503))
    async def get_model(caller: Caller = Verifier) -> dict[str, Any]:
        """What decides here: views, calibration, priors, errors with intervals, and what data they come from."""
        if model is None:
            raise Problem(503, "no-model", "no model is loaded", wait=30)
        return {**model.describe(), **service.line()}

    @app.get("/v1/phrases", tags=["phrases"], responses=problems(401, 403, 422, 429))
    async def get_phrases(caller: Caller = Verifier, top: Top = 100, after: After = None) -> dict[str, Any]:
        """Phrases that were put here and those that the model knows; `known`: it was seen in training."""
        found: dict[str, Any] = await do(service.list_phrases, top, after)
        return found

    @app.put(
        "/v1/phrases/{phrase_id}", tags=["phrases"], responses=answered(201, "Created") | problems(401, 403, 422, 429)
    )
    async def put_phrase(phrase_id: str, body: NewPhrase, caller: Caller = Admin) -> Response:
        """Put a phrase on the list; its id is its words, in small letters, with hyphens."""
        found, new = await do(service.put_phrase, phrase_id, body.text, body.locale, caller)
        return JSONResponse(found, 201 if new else 200)

    @app.delete("/v1/phrases/{phrase_id}", tags=["phrases"], status_code=204, responses=problems(401, 403, 404, 429))
    async def delete_phrase(phrase_id: str, caller: Caller = Admin) -> Response:
        """Take a phrase off the list; profiles keep it."""
        await do(service.delete_phrase, phrase_id, caller)
        return Response(status_code=204)

    @app.post(
        "/v1/profiles",
        tags=["profiles"],
        status_code=201,
        responses=answered(201, "Created", {**PROFILE, "state": "created"}) | problems(400, 401, 403, 409, 422, 429),
    )
    async def create(request: Request, body: NewProfile, caller: Caller = Enroller) -> Response:
        """Make a profile of a person who has agreed to it."""

        async def work() -> Response:
            consent = body.consent.model_dump()
            return profile_answer(await do(service.create, body.userId, body.phrase, consent, caller), 201)

        return await once(request, caller, work)

    @app.get(
        "/v1/profiles",
        tags=["profiles"],
        responses=answered(200, "A page", {"items": [PROFILE], "next": None}) | problems(401, 403, 422, 429),
    )
    async def get_profiles(
        caller: Caller = Verifier,
        top: Top = 100,
        after: After = None,
        userId: Annotated[str | None, Query(max_length=200)] = None,
    ) -> dict[str, Any]:
        """All profiles, page by page; never a vector."""
        found: dict[str, Any] = await do(service.list_profiles, top, after, userId)
        return found

    known = problems(401, 403, 404, 409, 410, 422, 429)

    @app.get("/v1/profiles/{profile_id}", tags=["profiles"], responses=answered(200, "It", PROFILE) | known)
    async def get_profile(profile_id: str, caller: Caller = Verifier) -> Response:
        """State, counts and times of a profile; never a vector."""
        return profile_answer(await do(service.get, profile_id))

    @app.post(
        "/v1/profiles/{profile_id}/enrollments",
        tags=["profiles"],
        status_code=201,
        openapi_extra=SOUND,
        responses=answered(201, "Added", {"enrollmentId": 1, **PROFILE, "quality": QUALITY, "phraseLlr": 4.0})
        | known
        | problems(400, 413, 415, 503),
    )
    async def enrol(request: Request, profile_id: str, caller: Caller = Enroller, if_match: IfMatch = None) -> Response:
        """Add a recording, or a vector; what is refused (422, with a reason) leaves the profile as it was."""

        async def work() -> Response:
            heard, asked = await sound(request)
            if len(heard) != 1:
                raise Problem(422, "recordings", "send one recording a call")
            return profile_answer(await do(service.enrol, profile_id, heard[0], asked.phrase, caller, if_match), 201)

        return await once(request, caller, work)

    @app.delete("/v1/profiles/{profile_id}/enrollments/{number}", tags=["profiles"], responses=known)
    async def remove(profile_id: str, number: int, caller: Caller = Enroller, if_match: IfMatch = None) -> Response:
        """Take a recording out of the profile, exactly."""
        if not 0 < number < 2**31:
            raise Problem(404, "not-found", "there is no such enrolment")
        return profile_answer(await do(service.remove_enrolment, profile_id, number, caller, if_match))

    @app.post("/v1/profiles/{profile_id}/reset", tags=["profiles"], responses=known)
    async def reset(profile_id: str, caller: Caller = Enroller, if_match: IfMatch = None) -> Response:
        """Take all recordings out."""
        return profile_answer(await do(service.reset, profile_id, caller, if_match))

    @app.post("/v1/profiles/{profile_id}/opt-out", tags=["profiles"], responses=known)
    async def opt_out(profile_id: str, caller: Caller = Enroller) -> Response:
        """Erase the voice at once, and keep the name as one who does not want to be verified."""
        return profile_answer(await do(service.leave, profile_id, caller, "opted_out"))

    @app.delete("/v1/profiles/{profile_id}", tags=["profiles"], responses=known)
    async def delete(profile_id: str, caller: Caller = Enroller) -> dict[str, Any]:
        """Erase everything at once; what stays is that there was a profile, and when it went."""
        found = await do(service.leave, profile_id, caller, "deleted")
        return {"profileId": found["profileId"], "state": "deleted", "updated": found["updated"]}

    @app.get("/v1/profiles/{profile_id}/export", tags=["profiles"], responses=known)
    async def export(profile_id: str, caller: Caller = Admin) -> dict[str, Any]:
        """What is kept of a person."""
        found: dict[str, Any] = await do(service.export, profile_id, caller)
        return found

    @app.post(
        "/v1/profiles/{profile_id}/verify",
        tags=["decisions"],
        openapi_extra=SOUND,
        responses=answered(200, "Decided", VERDICT) | known | problems(400, 413, 415, 503),
    )
    async def verify(request: Request, profile_id: str, caller: Caller = Verifier) -> Response:
        """Is it the owner, and are these the words? accept, reject with a reason, or inconclusive."""

        async def work() -> Response:
            heard, asked = await sound(request)
            found = await do(service.verify, profile_id, heard, asked.ask(), caller)
            metrics.count("mvplda_decisions_total", decision=found["decision"], reason=str(found["reason"] or ""))
            return JSONResponse(found)

        return await once(request, caller, work)

    @app.post(
        "/v1/identify",
        tags=["decisions"],
        openapi_extra=SOUND,
        responses=answered(200, "Ranked", RANKED) | problems(400, 401, 403, 413, 415, 422, 429, 503),
    )
    async def identify(request: Request, caller: Caller = Verifier) -> Response:
        """Whose voice is it, of all or of some `candidates`? With the probability that it is none of them."""
        heard, asked = await sound(request)
        if len(heard) != 1:
            raise Problem(422, "recordings", "send one recording a call")
        arguments = (heard[0], asked.candidates, asked.top, asked.priorNone, caller)
        return JSONResponse(await do(service.identify, *arguments, heavy=True))

    @app.post("/v1/challenges", tags=["decisions"], status_code=201, responses=known | problems(400))
    async def challenge(body: NewChallenge, caller: Caller = Verifier) -> Response:
        """Phrases to be said now: single use, for a minute."""
        return JSONResponse(await do(service.challenge, body.profileId, body.count, caller), 201)

    @app.get("/v1/audit", tags=["operation"], responses=problems(401, 403, 422, 429))
    async def get_audit(
        caller: Caller = Admin,
        top: Top = 100,
        after: After = None,
        profileId: Annotated[str | None, Query(max_length=64)] = None,
        resultId: Annotated[str | None, Query(max_length=64)] = None,
        action: Annotated[str | None, Query(max_length=40)] = None,
    ) -> dict[str, Any]:
        """What was done and decided, newest first, without sound and without vectors."""
        found: dict[str, Any] = await do(service.list_audit, top, after, profileId, resultId, action)
        return found

    app.add_exception_handler(Problem, lambda request, error: problem(error, request.url.path))
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(MvpldaError, _unexpected)
    app.add_exception_handler(DBAPIError, _database)
    app.add_exception_handler(PoolTimeout, _database)
    app.add_exception_handler(Exception, _unexpected)
    if PAGE_FOLDER.is_dir():
        app.mount("/", StaticFiles(directory=PAGE_FOLDER, html=True), name="page")
    app.add_middleware(Guard, door=door, metrics=metrics)
    return app


def parsed(model: type[Any], fields: Mapping[str, Any]) -> Any:
    from pydantic import ValidationError

    try:
        return model.model_validate(fields)
    except ValidationError as error:
        raise Problem(422, "fields", _first(error.errors())) from error


def _first(errors: Any) -> str:
    found = list(errors)
    if not found:
        return "a field does not fit"
    place = ".".join(str(part) for part in found[0].get("loc", ()) if part != "body")
    return f"{place or 'the body'}: {found[0].get('msg', 'does not fit')}"


async def _http(request: Request, error: Any) -> Response:
    detail = error.detail if isinstance(error.detail, str) else "this cannot be done"
    answer = problem(Problem(error.status_code, "http", detail), request.url.path)
    answer.headers.update(error.headers or {})
    return answer


async def _invalid(request: Request, error: Any) -> Response:
    broken = any(found.get("type") == "json_invalid" for found in error.errors())
    return problem(Problem(400 if broken else 422, "fields", _first(error.errors())), request.url.path)


async def _database(request: Request, error: Any) -> Response:
    if isinstance(error, DataError):
        return problem(Problem(422, "fields", "a value has characters that cannot be stored"), request.url.path)
    text = str(getattr(error, "orig", error))
    log.error("database", extra={"error_text": text})
    if "full" in text or "No space" in text:
        return problem(Problem(507, "storage", "there is no room left to write: nothing was changed"), request.url.path)
    return problem(
        Problem(503, "database", "the database does not answer: nothing was changed", wait=2), request.url.path
    )


async def _unexpected(request: Request, error: Exception) -> Response:
    log.error("unexpected", exc_info=error)
    return problem(Problem(500, "unexpected", "something went wrong here, and is in the log"), request.url.path)
