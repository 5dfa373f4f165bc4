"""Endpoints: typed requests and answers, and the service behind them."""

# ruff: noqa: E402

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

from .. import __version__
from .._optional import need

need("fastapi")

from fastapi import APIRouter, Depends, Header, Query, Request, Response, Security
from fastapi.responses import JSONResponse, PlainTextResponse
from fastapi.security import APIKeyHeader, HTTPBearer
from fastapi.security.http import HTTPAuthorizationCredentials

from . import schemas
from .gate import Heard
from .keys import Caller
from .model import DEMO_NOTICE
from .problems import Problem, no_model
from .records import Once
from .schemas import Fields, parsed, problems, recording_body

if TYPE_CHECKING:
    from .app import Runtime

operation = APIRouter(tags=["operation"])
phrases = APIRouter(tags=["phrases"])
profiles = APIRouter(tags=["profiles"])
decisions = APIRouter(tags=["decisions"])

Top = Annotated[int, Query(ge=1, le=1000)]
After = Annotated[str | None, Query(max_length=200)]
IfMatch = Annotated[str | None, Header(max_length=100)]
IdempotencyKey = Annotated[str | None, Header(description="A repetition is answered, not done")]
OF_ALL = problems(401, 403, 422, 429, 503)
OF_PROFILE = problems(401, 403, 404, 409, 410, 422, 429, 503)
OF_SOUND = problems(400, 408, 413, 415)
SOUND_TYPES = ("application/octet-stream", "video/webm", "application/ogg")
VECTOR = [0.01, -0.02]

key_header = APIKeyHeader(name="X-API-Key", auto_error=False)
bearer = HTTPBearer(auto_error=False)


def runtime_of(request: Request) -> Runtime:
    found: Runtime = request.app.state.runtime
    return found


App = Annotated["Runtime", Depends(runtime_of)]


# -- who calls ---------------------------------------------------------------------------


def needs(role: str) -> Any:
    """A caller whose key has a role."""

    async def caller(
        request: Request,
        app: Annotated[Any, Depends(runtime_of)],
        key: Annotated[str | None, Security(key_header)] = None,
        token: Annotated[HTTPAuthorizationCredentials | None, Security(bearer)] = None,
    ) -> Caller:
        if not key and token is not None:
            key = token.credentials
        found: Caller = await app.caller(request, key)
        if not found.may(role):
            detail = f"this key may {found.role}; this call needs one that may {role}"
            raise Problem(403, "role", detail)
        return found

    return Depends(caller)


VERIFY = needs("verify")
ENROL = needs("enrol")
ADMIN = needs("admin")


async def once_of(request: Request, caller: Caller) -> Once | None:
    """The request's Idempotency-Key, with what else makes it this request."""
    name = request.headers.get("idempotency-key")
    if not name:
        return None
    kind = request.headers.get("content-type", "")
    about = f"{request.method} {request.url.path}\n{request.url.query}\n{kind}"
    return Once.of(caller, name, about, await request.body())


# -- what comes in -----------------------------------------------------------------------


async def recording(request: Request, app: Runtime, wanted: type[Fields]) -> tuple[Heard, Fields]:
    """What a call brought: sound in the body or in a form, or a vector; and its other fields."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    fields: dict[str, Any] = dict(request.query_params)
    sounds: list[bytes] = []
    if kind == "application/json":
        fields |= await json_fields(request)
    elif kind == "multipart/form-data":
        texts, sounds = await form_fields(request)
        fields |= texts
    elif kind.startswith("audio/") or kind in SOUND_TYPES:
        sounds = [await request.body()]
    else:
        detail = f"send audio/*, multipart/form-data or application/json; got {kind[:50]!r}"
        raise Problem(415, "media-type", detail)
    asked = parsed(wanted, fields)
    if asked.vector is not None and not app.settings.vectors:
        raise Problem(422, "vectors", "this service takes sound, and no vectors")
    if len(sounds) + (asked.vector is not None) != 1:
        detail = "send one recording (a part called audio, or the body itself), or one vector"
        raise Problem(422, "body", detail)
    if asked.vector is not None:
        return app.service.take_vector(asked.vector), asked
    return await app.run_heavy(app.service.hear, sounds[0]), asked


async def json_fields(request: Request) -> dict[str, Any]:
    try:
        body = json.loads(await request.body())
    except (ValueError, RecursionError) as error:
        raise Problem(400, "json", f"the body is no JSON: {error}") from error
    if not isinstance(body, dict):
        raise Problem(422, "json", "the body is a JSON object")
    return body


async def form_fields(request: Request) -> tuple[dict[str, str], list[bytes]]:
    try:
        form = await request.form(max_files=5, max_fields=20)
    except (ValueError, KeyError) as error:  # of the parser; errors of HTTP pass
        raise Problem(400, "form", f"the form cannot be read: {error}") from error
    texts = {}
    sounds = []
    for name, value in form.multi_items():
        if isinstance(value, str):
            texts[name] = value
        elif name == "audio":
            sounds.append(await value.read())
    return texts, sounds


def with_etag(profile: dict[str, Any], status: int = 200) -> JSONResponse:
    headers = {"ETag": profile["etag"]}
    if status == 201:
        headers["Location"] = f"/v1/profiles/{profile['profileId']}"
    return JSONResponse(profile, status, headers)


# -- operation ---------------------------------------------------------------------------


@operation.get("/v1/health", response_model=schemas.Health)
async def health(app: App) -> Any:
    """That it runs, and what runs."""
    model = app.service.model
    return {
        "status": "ok",
        "version": __version__,
        "modelVersion": None if model is None else model.version,
        "extractor": None if model is None else model.extractor_name,
        "demoNetwork": model is not None and model.notice == DEMO_NOTICE,
        "notice": None if model is None else model.notice,
        "keysWanted": not app.is_open,
    }


@operation.get("/v1/ready", response_model=schemas.Ready, responses=problems(503))
async def ready(app: App) -> Any:
    """That it can decide: the database answers, and a model is loaded."""
    await app.ping()
    if app.service.model is None:
        raise no_model()
    return {"status": "ready", "modelVersion": app.service.model.version}


@operation.get("/metrics", response_class=PlainTextResponse)
async def metrics(app: App) -> str:
    """Counters in the text format of Prometheus."""
    return app.metrics.text(app.gauges())


@operation.get("/v1/model", response_model=schemas.ModelInfo, responses=OF_ALL)
async def get_model(app: App, caller: Caller = VERIFY) -> Any:
    """What decides here: views, calibration, errors with intervals, and what data they come from."""
    return app.service.describe()


@operation.get("/v1/audit", response_model=schemas.AuditPage, responses=OF_ALL)
async def get_audit(
    app: App,
    caller: Caller = ADMIN,
    top: Top = 100,
    after: After = None,
    profileId: Annotated[str | None, Query(max_length=64)] = None,
    resultId: Annotated[str | None, Query(max_length=64)] = None,
    action: Annotated[str | None, Query(max_length=40)] = None,
) -> Any:
    """What was done and decided, newest first, without sound and without vectors."""

    def read() -> dict[str, Any]:
        wanted = {"profile": profileId, "result_id": resultId, "action": action}
        with app.service.store.read() as work:
            return app.service.audit.find(work, top, after, **wanted)

    return await app.run(read)


# -- phrases -----------------------------------------------------------------------------


@phrases.get("/v1/phrases", response_model=schemas.PhrasePage, responses=OF_ALL)
async def get_phrases(
    app: App, caller: Caller = VERIFY, top: Top = 100, after: After = None
) -> Any:
    """Phrases that were put here and those of the model; `known`: seen in training."""
    return await app.run(app.service.phrases.find, top, after)


@phrases.put(
    "/v1/phrases/{phrase_id}",
    response_model=schemas.Phrase,
    responses={201: {"model": schemas.Phrase}, **OF_ALL},
)
async def put_phrase(
    app: App, phrase_id: str, body: schemas.NewPhrase, caller: Caller = ADMIN
) -> Response:
    """Put a phrase on the list; its id is its words, in small letters, with hyphens."""
    put = app.service.phrases.put
    phrase, is_new = await app.run(put, phrase_id, body.text, body.locale, caller)
    return JSONResponse(phrase, 201 if is_new else 200)


@phrases.delete("/v1/phrases/{phrase_id}", status_code=204, responses=problems(404) | OF_ALL)
async def delete_phrase(app: App, phrase_id: str, caller: Caller = ADMIN) -> Response:
    """Take a phrase off the list; profiles keep it."""
    await app.run(app.service.phrases.delete, phrase_id, caller)
    return Response(status_code=204)


# -- profiles ----------------------------------------------------------------------------


@profiles.post(
    "/v1/profiles",
    status_code=201,
    response_model=schemas.Profile,
    responses=problems(400, 409) | OF_ALL,
)
async def create_profile(
    request: Request,
    app: App,
    body: schemas.NewProfile,
    caller: Caller = ENROL,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Make a profile of a person who has agreed to it."""
    service = app.service
    once = await once_of(request, caller)
    consent = body.consent.model_dump()
    create = service.profiles.create
    made = await app.run(service.change, once, create, body.userId, body.phrase, consent, caller)
    return with_etag(made, 201)


@profiles.get("/v1/profiles", response_model=schemas.ProfilePage, responses=OF_ALL)
async def get_profiles(
    app: App,
    caller: Caller = VERIFY,
    top: Top = 100,
    after: After = None,
    userId: Annotated[str | None, Query(max_length=200)] = None,
) -> Any:
    """All profiles, page by page; never a vector."""
    return await app.run(app.service.profiles.find, top, after, userId)


@profiles.get("/v1/profiles/{profile_id}", response_model=schemas.Profile, responses=OF_PROFILE)
async def get_profile(app: App, profile_id: str, caller: Caller = VERIFY) -> Response:
    """State, counts and times of a profile; never a vector."""
    return with_etag(await app.run(app.service.profiles.get, profile_id))


@profiles.post(
    "/v1/profiles/{profile_id}/enrollments",
    status_code=201,
    response_model=schemas.Enrolment,
    openapi_extra=recording_body(
        schemas.EnrolRequest, {"vector": VECTOR, "phrase": schemas.PASS_PHRASE}
    ),
    responses=OF_PROFILE | OF_SOUND,
)
async def enrol(
    request: Request,
    app: App,
    profile_id: str,
    caller: Caller = ENROL,
    if_match: IfMatch = None,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Add a recording, or a vector; what is refused (422, with a reason) leaves the profile as it was."""
    service = app.service
    once = await once_of(request, caller)
    added = await app.run(service.answered, once) if once else None
    if added is None:
        heard, asked = await recording(request, app, schemas.EnrolRequest)
        phrase = asked.phrase
        added = await app.run(service.enrol, profile_id, heard, phrase, caller, if_match, once)
    return with_etag(added, 201)


@profiles.delete(
    "/v1/profiles/{profile_id}/enrollments/{number}",
    response_model=schemas.Profile,
    responses=OF_PROFILE,
)
async def remove_enrolment(
    app: App, profile_id: str, number: int, caller: Caller = ENROL, if_match: IfMatch = None
) -> Response:
    """Take a recording out of the profile, exactly."""
    if not 0 < number < 2**31:
        raise Problem(404, "not-found", "there is no such enrolment")
    service = app.service
    remove = service.profiles.remove
    left = await app.run(service.change, None, remove, profile_id, number, caller, if_match)
    return with_etag(left)


@profiles.post(
    "/v1/profiles/{profile_id}/reset", response_model=schemas.Profile, responses=OF_PROFILE
)
async def reset(
    request: Request,
    app: App,
    profile_id: str,
    caller: Caller = ENROL,
    if_match: IfMatch = None,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Take all recordings out."""
    service = app.service
    once = await once_of(request, caller)
    left = await app.run(service.change, once, service.profiles.reset, profile_id, caller, if_match)
    return with_etag(left)


@profiles.post(
    "/v1/profiles/{profile_id}/opt-out", response_model=schemas.Profile, responses=OF_PROFILE
)
async def opt_out(
    request: Request,
    app: App,
    profile_id: str,
    caller: Caller = ENROL,
    if_match: IfMatch = None,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Erase the voice at once, and keep the name as one who does not want to be verified."""
    once = await once_of(request, caller)
    leave = app.service.leave
    left = await app.run(leave, profile_id, "opted_out", caller, if_match, once)
    return with_etag(left)


@profiles.delete("/v1/profiles/{profile_id}", response_model=schemas.Deleted, responses=OF_PROFILE)
async def delete_profile(
    app: App, profile_id: str, caller: Caller = ENROL, if_match: IfMatch = None
) -> Any:
    """Erase everything at once; what stays is that there was a profile, and when it went."""
    left = await app.run(app.service.leave, profile_id, "deleted", caller, if_match)
    return {"profileId": left["profileId"], "state": "deleted", "updated": left["updated"]}


@profiles.get(
    "/v1/profiles/{profile_id}/export", response_model=schemas.Export, responses=OF_PROFILE
)
async def export(app: App, profile_id: str, caller: Caller = ADMIN) -> Any:
    """What is stored of a person."""
    service = app.service
    return await app.run(service.change, None, service.profiles.export, profile_id, caller)


# -- decisions ---------------------------------------------------------------------------


@decisions.post(
    "/v1/profiles/{profile_id}/verify",
    response_model=schemas.Decision,
    openapi_extra=recording_body(
        schemas.VerifyRequest, {"vector": VECTOR, "phrase": schemas.PASS_PHRASE, "far": 0.01}
    ),
    responses=OF_PROFILE | OF_SOUND,
)
async def verify(
    request: Request,
    app: App,
    profile_id: str,
    caller: Caller = VERIFY,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Is it the owner, and are these the words? accept, reject with a reason, or inconclusive."""
    service = app.service
    once = await once_of(request, caller)
    decided = await app.run(service.answered, once) if once else None
    if decided is None:
        heard, asked = await recording(request, app, schemas.VerifyRequest)
        wait = app.profile_rates.wait(profile_id)
        if wait:
            raise Problem(429, "rate", "there are too many attempts on this profile", wait=wait)
        decided = await app.run(service.verify, profile_id, heard, asked.ask(), caller, once)
        reason = str(decided["reason"] or "")
        decision = decided["decision"]
        app.metrics.count("mvplda_decisions_total", decision=decision, reason=reason)
    request.state.decision = decided["decision"]
    return JSONResponse(decided)


@decisions.post(
    "/v1/identify",
    response_model=schemas.Ranking,
    openapi_extra=recording_body(schemas.IdentifyRequest, {"vector": VECTOR, "top": 3}),
    responses=OF_ALL | OF_SOUND,
)
async def identify(request: Request, app: App, caller: Caller = VERIFY) -> Response:
    """Whose voice is it, of all or of some `candidates`? With the probability that it is none of them."""
    heard, asked = await recording(request, app, schemas.IdentifyRequest)
    arguments = (heard, asked.candidates, asked.top, asked.priorNone, caller)
    return JSONResponse(await app.run_heavy(app.service.index.identify, *arguments))


@decisions.post(
    "/v1/challenges",
    status_code=201,
    response_model=schemas.Challenge,
    responses=OF_PROFILE | problems(400),
)
async def challenge(
    request: Request,
    app: App,
    body: schemas.NewChallenge,
    caller: Caller = VERIFY,
    idempotency_key: IdempotencyKey = None,
) -> Any:
    """A phrase to be said now: single use, for a minute."""
    service = app.service
    once = await once_of(request, caller)
    make = service.challenges.make
    return await app.run(service.change, once, make, body.profileId, caller)
