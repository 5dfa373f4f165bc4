"""Endpoints: typed requests and answers, and the service behind them."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import PlainTextResponse
from fastapi.routing import APIRoute
from fastapi.security import APIKeyHeader
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic_core import to_json

from .. import __version__
from . import schemas
from .keys import Caller
from .model import DEMO_NOTICE, ProcessedRecording
from .schemas import Json, Problem, RecordingRequest, problems, recording_body
from .verifier import Attempt

if TYPE_CHECKING:
    from .app import Runtime


Top = Annotated[int, Query(ge=1, le=1000)]
Text = Annotated[str | None, Query(max_length=200)]
router = APIRouter(
    generate_unique_id_function=lambda route: route.name,
    responses=problems(400, 401, 403, 404, 408, 409, 410, 413, 415, 422, 429, 503, 507),
)
SOUND_TYPES = ("application/octet-stream", "video/webm", "application/ogg")
VECTOR = {"vector": [0.01, -0.02], "phrase": schemas.PASS_PHRASE}
Fields = TypeVar("Fields", bound=RecordingRequest)


def runtime_of(request: Request) -> Runtime:
    runtime: Runtime = request.app.state.runtime
    return runtime


async def shared(request: Request) -> Runtime:
    """As a dependency, which is async: others are called in a thread, and that costs more than the call."""
    return runtime_of(request)


App = Annotated["Runtime", Depends(shared)]


# -- what comes in -----------------------------------------------------------------------


class RequiredRole(APIKeyHeader):
    """A call with a key that has a role."""

    def __init__(self, role: str) -> None:
        super().__init__(name="X-API-Key", scheme_name="APIKeyHeader", auto_error=False)
        self.role = role

    async def __call__(self, request: Request) -> Caller:  # type: ignore[override]
        key = request.headers.get("X-API-Key")
        found = await runtime_of(request).caller(request, key)
        if not found.may(self.role):
            detail = f"this key may {found.role}; this call needs one that may {self.role}"
            raise Problem(403, "role", detail)
        return found


class DirectRoute(APIRoute):
    """Called with the request, its path and its caller: what FastAPI does to find these takes longer than a score."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        async def handle(request: Request) -> Response:
            caller = await MAY_VERIFY(request)
            answer: Response = await self.endpoint(request, **request.path_params, caller=caller)
            return answer

        return handle


MAY_VERIFY = RequiredRole("verify")
VERIFY = Depends(MAY_VERIFY)
ENROL = Depends(RequiredRole("enrol"))
ADMIN = Depends(RequiredRole("admin"))


async def recording(
    request: Request, wanted: type[Fields], *admit: Any
) -> tuple[ProcessedRecording, Fields]:
    """What a call brought: sound, which is the body, with other fields in the query; or JSON with a vector.

    admit : what says why sound is not heard at all, with its arguments
    """
    app = runtime_of(request)
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    body = await request.body()
    fields: Json = dict(request.query_params)
    if kind == "application/json":
        asked = wanted.model_validate_json(body)
        if fields:
            asked = wanted.model_validate(fields | asked.model_dump(exclude_unset=True))
        if asked.vector is None:
            raise Problem(422, "body", "send sound as the body itself, or JSON with a vector")
        if not app.settings.vectors:
            raise Problem(422, "vectors", "this service takes sound, and no vectors")
        return app.service.accept_vector(asked.vector), asked
    if not kind.startswith("audio/") and kind not in SOUND_TYPES:
        detail = f"send audio/*, application/octet-stream or application/json; got {kind[:50]!r}"
        raise Problem(415, "media-type", detail)
    asked = wanted.model_validate(fields)
    if admit:
        problem = await app.change(*admit)
        if problem is not None:
            raise problem
    return await app.run_heavy(app.service.hear, body), asked


# -- decisions, first: a call is compared with one path after the other ----------------------


async def verify(request: Request, profile_id: str, caller: Caller = VERIFY) -> Response:
    """Is it the owner, and are these the words? accept, reject with a reason, or inconclusive."""
    app = runtime_of(request)
    app.has("verify")
    admit = app.service.verifier.admit
    heard, asked = await recording(request, schemas.VerifyRequest, caller, admit, profile_id)
    decided = await app.batches.verify(Attempt(caller, profile_id, heard, asked))
    app.metrics.decisions.labels(decided["decision"], decided["reason"] or "").inc()
    request.state.decision = decided["decision"]
    return Response(to_json(decided), media_type="application/json")


router.add_api_route(
    "/v1/profiles/{profile_id}/verify",
    verify,
    methods=["POST"],
    response_model=schemas.VerifyReply,
    openapi_extra=recording_body(schemas.VerifyRequest, VECTOR),
    route_class_override=DirectRoute,
)


@router.post(
    "/v1/identify",
    response_model=schemas.IdentifyReply,
    openapi_extra=recording_body(schemas.IdentifyRequest, {"vector": [0.01, -0.02], "top": 3}),
)
async def identify(request: Request, app: App, caller: Caller = VERIFY) -> Json:
    """Whose voice is it, of all or of some `candidates`? With the probability that it is none of them."""
    app.has("identify")
    heard, asked = await recording(request, schemas.IdentifyRequest)
    arguments = (heard, asked.candidates, asked.top, asked.priorNone, caller)
    return await app.run_heavy(app.service.index.identify, *arguments)


@router.post("/v1/challenges", status_code=201, response_model=schemas.Challenge)
async def challenge(app: App, body: schemas.NewChallenge, caller: Caller = VERIFY) -> Json:
    """A phrase to be said now: single use, for a minute."""
    app.has("verify")
    make = app.service.verifier.challenge
    return await app.change(caller, make, body.profileId)


# -- operation ---------------------------------------------------------------------------


@router.get("/v1/health", response_model=schemas.Health)
async def health(app: App) -> Json:
    """That it runs, and what runs."""
    model = app.service.model
    return {
        "status": "ok",
        "version": __version__,
        "modelVersion": model.version,
        "extractor": model.extractor_name,
        "demoNetwork": model.notice == DEMO_NOTICE,
        "notice": model.notice,
        "keysWanted": not app.is_open,
    }


# by this answer the schema of all refusals comes into OpenAPI
@router.get(
    "/v1/ready",
    response_model=schemas.Ready,
    responses={503: {"model": schemas.ProblemDetails, **problems(503)[503]}},
)
async def ready(app: App) -> Json:
    """That it can decide: the database answers, a model is loaded, and all voices for 1:N are in memory."""
    await app.ready()
    return {"status": "ready", "modelVersion": app.service.model.version}


@router.get("/metrics", response_class=PlainTextResponse)
async def metrics(app: App) -> Response:
    """Counters in the text format of Prometheus."""
    return Response(app.metrics.text(), media_type=CONTENT_TYPE_LATEST)


@router.get("/v1/model", response_model=schemas.ModelInfo)
async def get_model(app: App, caller: Caller = VERIFY) -> Json:
    """What decides here: views, calibration, errors with intervals, and what data they come from."""
    return app.service.describe()


@router.get("/v1/audit", response_model=schemas.AuditPage)
async def get_audit(
    app: App,
    caller: Caller = ADMIN,
    top: Top = 100,
    after: Annotated[int, Query(ge=0, lt=2**31)] = 2**31 - 1,
    profileId: Text = None,
    resultId: Text = None,
    action: Text = None,
) -> Json:
    """What was done and decided, newest first, without sound and without vectors."""
    wanted = {"profile": profileId, "result_id": resultId, "action": action}
    return await app.run(lambda: app.service.find_audit(top, after, **wanted))


# -- profiles ----------------------------------------------------------------------------


@router.post("/v1/profiles", status_code=201, response_model=schemas.ProfileReply)
async def create_profile(app: App, body: schemas.NewProfile, caller: Caller = ENROL) -> Json:
    """Make a profile of a person who has agreed to it."""
    create = app.service.profiles.create
    consent = body.consent.model_dump()
    return await app.change(caller, create, body.userId, body.phrase, consent)


@router.get("/v1/profiles", response_model=schemas.ProfilePage)
async def get_profiles(
    app: App,
    caller: Caller = VERIFY,
    top: Top = 100,
    after: Text = None,
    userId: Text = None,
    search: Text = None,
) -> Json:
    """Profiles, page by page: all, those of a `userId`, or those whose userId holds `search`; never a vector."""
    if userId is None and not caller.may("enrol"):
        raise Problem(403, "role", "a key that may only verify finds people by their whole userId")
    return await app.run(app.service.profiles.find, top, after, userId, search)


@router.get("/v1/profiles/{profile_id}", response_model=schemas.ProfileReply)
async def get_profile(app: App, profile_id: str, caller: Caller = VERIFY) -> Json:
    """State, counts and times of a profile; never a vector."""
    return await app.run(app.service.profiles.get, profile_id)


@router.post(
    "/v1/profiles/{profile_id}/enrollments",
    status_code=201,
    response_model=schemas.EnrolReply,
    openapi_extra=recording_body(schemas.EnrolRequest, VECTOR),
)
async def enrol(request: Request, app: App, profile_id: str, caller: Caller = ENROL) -> Json:
    """Add a recording, or a vector; what is refused (422, with a reason) leaves the profile as it was."""
    heard, asked = await recording(request, schemas.EnrolRequest)
    add = app.service.profiles.enrol
    answer = await app.change(caller, add, profile_id, heard, asked.phrase, asked.sitting)
    # what does not fit is refused after the audit has it
    if isinstance(answer, Problem):
        raise answer
    return answer


@router.delete(
    "/v1/profiles/{profile_id}/enrollments/{number}", response_model=schemas.ProfileReply
)
async def remove_enrolment(app: App, profile_id: str, number: int, caller: Caller = ENROL) -> Json:
    """Take a recording out of the profile, exactly."""
    if not 0 < number < 2**31:
        raise Problem(404, "not-found", "there is no such enrolment")
    remove = app.service.profiles.remove
    return await app.change(caller, remove, profile_id, number)


@router.post("/v1/profiles/{profile_id}/reset", response_model=schemas.ProfileReply)
async def reset(app: App, profile_id: str, caller: Caller = ENROL) -> Json:
    """Take all recordings out."""
    reset = app.service.profiles.reset
    return await app.change(caller, reset, profile_id)


@router.post("/v1/profiles/{profile_id}/unlock", response_model=schemas.ProfileReply)
async def unlock(app: App, profile_id: str, caller: Caller = ENROL) -> Json:
    """Let attempts in again after rejections locked the profile; nothing is erased."""
    unlock = app.service.profiles.unlock
    return await app.change(caller, unlock, profile_id)


@router.post("/v1/profiles/{profile_id}/opt-out", response_model=schemas.ProfileReply)
async def opt_out(app: App, profile_id: str, caller: Caller = ENROL) -> Json:
    """Erase the voice at once, and keep the name as one who does not want to be verified."""
    return await app.run(app.service.leave, profile_id, "opted_out", caller)


@router.delete("/v1/profiles/{profile_id}", response_model=schemas.ProfileReply)
async def delete_profile(app: App, profile_id: str, caller: Caller = ENROL) -> Json:
    """Erase everything at once; what stays is that there was a profile, and when it went."""
    return await app.run(app.service.leave, profile_id, "deleted", caller)


@router.get("/v1/profiles/{profile_id}/export", response_model=schemas.Export)
async def export(app: App, profile_id: str, caller: Caller = ADMIN) -> Json:
    """What is stored of a person."""
    return await app.change(caller, app.service.profiles.export, profile_id)
