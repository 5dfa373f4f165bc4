"""The endpoints: HTTP in, what the service says out."""

# ruff: noqa: E402

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

from .. import __version__
from .._optional import need

need("fastapi")
need("python_multipart")

from anyio import CapacityLimiter, to_thread
from fastapi import Depends, FastAPI, Header, Query, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from fastapi.staticfiles import StaticFiles
from starlette.formparsers import MultiPartParser

from .audio import Heard
from .bodies import (
    CONSISTENCY,
    PROFILE,
    QUALITY,
    RANKED,
    VERDICT,
    Enrolled,
    Fields,
    Identified,
    NewChallenge,
    NewPhrase,
    NewProfile,
    Verified,
    answered,
    parsed,
    problems,
    sound_body,
)
from .guard import Door, Guard, tell_errors
from .keys import Caller
from .repeats import Repeats
from .service import Problem, Service
from .watch import Metrics

__all__ = ["Door", "create_app"]

PAGE_FOLDER = Path(__file__).with_name("page")
Top = Annotated[int, Query(ge=1, le=1000)]
After = Annotated[str | None, Query(max_length=200)]
IfMatch = Annotated[str | None, Header(max_length=100)]


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
    plain = CapacityLimiter(
        8
    )  # each may hold two of the pool's 20 connections; more threads only wait for each other
    model = service.model
    # the parser of forms would write what is larger than this to a file
    MultiPartParser.spool_max_size = max(MultiPartParser.spool_max_size, door.most_bytes)

    async def do(work: Callable[..., Any], *arguments: Any, heavy: bool = False) -> Any:
        if heavy and limiter.statistics().tasks_waiting >= door.waiting:
            raise Problem(
                503, "busy", "too many recordings are waiting: come back in a moment", wait=1
            )
        return await to_thread.run_sync(
            lambda: work(*arguments), limiter=limiter if heavy else plain
        )

    once = Repeats(service, do).once

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
                wait = service.key_rates.wait(
                    f"nobody {request.client.host if request.client else ''}"
                )
                if wait:
                    raise Problem(429, "rate", "too many calls without a key", wait=wait)
                raise Problem(
                    401, "key", "send an API key: the header X-API-Key, or Authorization: Bearer"
                )
            wait = service.key_rates.wait(found.name)
            if wait:
                raise Problem(429, "rate", "too many calls with this key", wait=wait)
            if not found.may(role):
                raise Problem(
                    403, "role", f"this key may {found.role}; this call wants one that may {role}"
                )
            return found

        return Depends(caller)

    async def sound(request: Request, wanted: type[Fields]) -> tuple[list[Heard], Fields]:
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
            except (
                ValueError,
                KeyError,
            ) as error:  # of the parser; what starlette says itself passes
                raise Problem(400, "form", f"the form cannot be read: {error}") from error
            for name, value in form.multi_items():
                if isinstance(value, str):
                    fields[name] = value
                elif name == "audio":
                    sounds.append(await value.read())
        elif kind.startswith("audio/") or kind in (
            "application/octet-stream",
            "video/webm",
            "application/ogg",
        ):
            sounds.append(await request.body())
        else:
            kinds = f"send audio/*, multipart/form-data or application/json; got {kind[:50]!r}"
            raise Problem(415, "media-type", kinds)
        asked = parsed(wanted, fields)
        vectors = asked.heard()
        if vectors and not door.vectors:
            raise Problem(422, "vectors", "this service takes sound, and no vectors")
        if bool(vectors) == bool(sounds):
            raise Problem(
                422, "body", "send sound (a part called audio, or the body itself), or a vector"
            )
        heard = [await do(service.hear, data, heavy=True) for data in sounds]
        return heard or [await do(service.heard_vector, vector) for vector in vectors], asked

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
            {
                "mvplda_recordings_in_work": waiting.borrowed_tokens,
                "mvplda_recordings_waiting": waiting.tasks_waiting,
            }
        )

    @app.get("/v1/model", tags=["model"], responses=problems(401, 403, 429, 503))
    async def get_model(caller: Caller = Verifier) -> dict[str, Any]:
        """What decides here: views, calibration, priors, errors with intervals, and what data they come from."""
        if model is None:
            raise Problem(503, "no-model", "no model is loaded", wait=30)
        return {**model.describe(), **service.line()}

    @app.get("/v1/phrases", tags=["phrases"], responses=problems(401, 403, 422, 429))
    async def get_phrases(
        caller: Caller = Verifier, top: Top = 100, after: After = None
    ) -> dict[str, Any]:
        """Phrases that were put here and those that the model knows; `known`: it was seen in training."""
        found: dict[str, Any] = await do(service.list_phrases, top, after)
        return found

    @app.put(
        "/v1/phrases/{phrase_id}",
        tags=["phrases"],
        responses=answered(201, "Created") | problems(401, 403, 422, 429),
    )
    async def put_phrase(phrase_id: str, body: NewPhrase, caller: Caller = Admin) -> Response:
        """Put a phrase on the list; its id is its words, in small letters, with hyphens."""
        found, new = await do(service.put_phrase, phrase_id, body.text, body.locale, caller)
        return JSONResponse(found, 201 if new else 200)

    @app.delete(
        "/v1/phrases/{phrase_id}",
        tags=["phrases"],
        status_code=204,
        responses=problems(401, 403, 404, 429),
    )
    async def delete_phrase(phrase_id: str, caller: Caller = Admin) -> Response:
        """Take a phrase off the list; profiles keep it."""
        await do(service.delete_phrase, phrase_id, caller)
        return Response(status_code=204)

    @app.post(
        "/v1/profiles",
        tags=["profiles"],
        status_code=201,
        responses=answered(201, "Created", {**PROFILE, "state": "created"})
        | problems(400, 401, 403, 409, 422, 429),
    )
    async def create(request: Request, body: NewProfile, caller: Caller = Enroller) -> Response:
        """Make a profile of a person who has agreed to it."""

        async def work() -> Response:
            consent = body.consent.model_dump()
            return profile_answer(
                await do(service.create, body.userId, body.phrase, consent, caller), 201
            )

        return await once(request, caller, work)

    @app.get(
        "/v1/profiles",
        tags=["profiles"],
        responses=answered(200, "A page", {"items": [PROFILE], "next": None})
        | problems(401, 403, 422, 429),
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

    @app.get(
        "/v1/profiles/{profile_id}",
        tags=["profiles"],
        responses=answered(200, "It", PROFILE) | known,
    )
    async def get_profile(profile_id: str, caller: Caller = Verifier) -> Response:
        """State, counts and times of a profile; never a vector."""
        return profile_answer(await do(service.get, profile_id))

    @app.post(
        "/v1/profiles/{profile_id}/enrollments",
        tags=["profiles"],
        status_code=201,
        openapi_extra=sound_body(
            Enrolled, {"vector": [0.01, -0.02], "phrase": "my voice is my key"}
        ),
        responses=answered(
            201, "Added", {"enrollmentId": 3, **PROFILE, "quality": QUALITY, **CONSISTENCY}
        )
        | known
        | problems(400, 413, 415, 503),
    )
    async def enrol(
        request: Request, profile_id: str, caller: Caller = Enroller, if_match: IfMatch = None
    ) -> Response:
        """Add a recording, or a vector; what is refused (422, with a reason) leaves the profile as it was."""

        async def work() -> Response:
            heard, asked = await sound(request, Enrolled)
            if len(heard) != 1:
                raise Problem(422, "recordings", "send one recording a call")
            return profile_answer(
                await do(service.enrol, profile_id, heard[0], asked.phrase, caller, if_match), 201
            )

        return await once(request, caller, work)

    @app.delete(
        "/v1/profiles/{profile_id}/enrollments/{number}", tags=["profiles"], responses=known
    )
    async def remove(
        profile_id: str, number: int, caller: Caller = Enroller, if_match: IfMatch = None
    ) -> Response:
        """Take a recording out of the profile, exactly."""
        if not 0 < number < 2**31:
            raise Problem(404, "not-found", "there is no such enrolment")
        return profile_answer(
            await do(service.remove_enrolment, profile_id, number, caller, if_match)
        )

    @app.post("/v1/profiles/{profile_id}/reset", tags=["profiles"], responses=known)
    async def reset(
        profile_id: str, caller: Caller = Enroller, if_match: IfMatch = None
    ) -> Response:
        """Take all recordings out."""
        return profile_answer(await do(service.reset, profile_id, caller, if_match))

    @app.post("/v1/profiles/{profile_id}/opt-out", tags=["profiles"], responses=known)
    async def opt_out(
        profile_id: str, caller: Caller = Enroller, if_match: IfMatch = None
    ) -> Response:
        """Erase the voice at once, and keep the name as one who does not want to be verified."""
        return profile_answer(await do(service.leave, profile_id, caller, "opted_out", if_match))

    @app.delete("/v1/profiles/{profile_id}", tags=["profiles"], responses=known)
    async def delete(
        profile_id: str, caller: Caller = Enroller, if_match: IfMatch = None
    ) -> dict[str, Any]:
        """Erase everything at once; what stays is that there was a profile, and when it went."""
        found = await do(service.leave, profile_id, caller, "deleted", if_match)
        return {"profileId": found["profileId"], "state": "deleted", "updated": found["updated"]}

    @app.get("/v1/profiles/{profile_id}/export", tags=["profiles"], responses=known)
    async def export(profile_id: str, caller: Caller = Admin) -> dict[str, Any]:
        """What is kept of a person."""
        found: dict[str, Any] = await do(service.export, profile_id, caller)
        return found

    @app.post(
        "/v1/profiles/{profile_id}/verify",
        tags=["decisions"],
        openapi_extra=sound_body(
            Verified, {"vector": [0.01, -0.02], "phrase": "my voice is my key", "far": 0.01}
        ),
        responses=answered(200, "Decided", VERDICT) | known | problems(400, 413, 415, 503),
    )
    async def verify(request: Request, profile_id: str, caller: Caller = Verifier) -> Response:
        """Is it the owner, and are these the words? accept, reject with a reason, or inconclusive."""

        async def work() -> Response:
            heard, asked = await sound(request, Verified)
            found = await do(service.verify, profile_id, heard, asked.ask(), caller)
            metrics.count(
                "mvplda_decisions_total",
                decision=found["decision"],
                reason=str(found["reason"] or ""),
            )
            return JSONResponse(found)

        return await once(request, caller, work)

    @app.post(
        "/v1/identify",
        tags=["decisions"],
        openapi_extra=sound_body(Identified, {"vector": [0.01, -0.02], "top": 3}),
        responses=answered(200, "Ranked", RANKED)
        | problems(400, 401, 403, 413, 415, 422, 429, 503),
    )
    async def identify(request: Request, caller: Caller = Verifier) -> Response:
        """Whose voice is it, of all or of some `candidates`? With the probability that it is none of them."""
        heard, asked = await sound(request, Identified)
        if len(heard) != 1:
            raise Problem(422, "recordings", "send one recording a call")
        arguments = (heard[0], asked.candidates, asked.top, asked.priorNone, caller)
        return JSONResponse(await do(service.identify, *arguments, heavy=True))

    @app.post(
        "/v1/challenges", tags=["decisions"], status_code=201, responses=known | problems(400)
    )
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
        found: dict[str, Any] = await do(
            service.list_audit, top, after, profileId, resultId, action
        )
        return found

    tell_errors(app)
    if PAGE_FOLDER.is_dir():
        app.mount("/", StaticFiles(directory=PAGE_FOLDER, html=True), name="page")
    app.add_middleware(Guard, door=door, metrics=metrics)
    return app
