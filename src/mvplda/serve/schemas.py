"""Bodies of requests and answers, as OpenAPI describes them."""

# ruff: noqa: E402

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeVar

from .._optional import need

need("pydantic")

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from .problems import TITLES, Problem
from .verifier import Ask

PROFILE_ID = "0f6f7e2c9a5b4d3e8c1a2b3c4d5e6f70"
RESULT_ID = "5e1f0c9f3a7d4b61a1b2c3d4e5f60718"
TIME = "2026-11-15T12:00:00.000Z"
VERSION = "campplus-words-1a2b3c4d5e6f"
PASS_PHRASE = "my voice is my key"
Verdict = Literal["accept", "reject", "inconclusive"]
State = Literal["created", "enrolling", "enrolled", "stale", "expired", "opted_out", "deleted"]


class Body(BaseModel):
    """A request: unknown fields and numbers that are none are refused."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class Reply(BaseModel):
    """An answer."""

    model_config = ConfigDict(extra="allow")


# -- requests ----------------------------------------------------------------------------


class Consent(Body):
    given: bool
    at: str | None = Field(default=None, max_length=40, examples=[TIME])
    text: str | None = Field(default=None, max_length=5000, description="What the person agreed to")


class NewProfile(Body):
    userId: str | None = Field(default=None, max_length=200, examples=["ann"])
    phrase: str | None = Field(default=None, min_length=1, max_length=200, examples=[PASS_PHRASE])
    consent: Consent = Field(
        examples=[{"given": True, "text": "My voice may be used to let me in."}]
    )


class NewChallenge(Body):
    profileId: str = Field(max_length=64, examples=[PROFILE_ID])


class NewPhrase(Body):
    text: str = Field(min_length=1, max_length=200, examples=["open the garden door"])
    locale: str | None = Field(default=None, max_length=35, examples=["en-GB"])


class Recording(Body):
    """Fields beside a recording: in JSON, in a form, or in the query where the body is the recording."""

    vector: list[float] | None = Field(default=None, max_length=20_000)


class EnrolRequest(Recording):
    phrase: str | None = Field(default=None, min_length=1, max_length=200)


class VerifyRequest(Recording):
    phrase: str | None = Field(default=None, min_length=1, max_length=200)
    challengeId: str | None = Field(default=None, max_length=64)
    far: float | None = Field(default=None, gt=0, lt=1)
    prior: float | None = Field(default=None, ge=1e-12, lt=1)
    missCost: float = Field(default=1.0, ge=1e-9, le=1e9)
    falseAlarmCost: float = Field(default=1.0, ge=1e-9, le=1e9)
    countermeasureLlr: float | None = Field(
        default=None, ge=-50, le=50, description="Of a person against a machine"
    )

    def ask(self) -> Ask:
        if self.prior is None and self.model_fields_set & {"missCost", "falseAlarmCost"}:
            detail = "costs need a prior beside them: how often it is really the owner"
            raise Problem(422, "operating-point", detail)
        return Ask(
            phrase=self.phrase,
            challenge=self.challengeId,
            far=self.far,
            prior=self.prior,
            miss_cost=self.missCost,
            false_alarm_cost=self.falseAlarmCost,
            countermeasure=self.countermeasureLlr,
        )


class IdentifyRequest(Recording):
    candidates: list[str] | None = Field(default=None, max_length=10_000)
    top: int = Field(default=5, ge=1, le=100)
    priorNone: float = Field(default=0.5, gt=0, lt=1)

    @field_validator("candidates", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        """A form or a query has them divided by commas."""
        return value.split(",") if isinstance(value, str) else value


# -- answers -----------------------------------------------------------------------------


class Health(Reply):
    status: Literal["ok"]
    version: str
    modelVersion: str | None = Field(examples=[VERSION])
    extractor: str | None = Field(examples=["campplus+words"])
    demoNetwork: bool
    notice: str | None
    keysWanted: bool


class Ready(Reply):
    status: Literal["ready"]
    modelVersion: str = Field(examples=[VERSION])


class Point(Reply):
    """Thresholds, and the errors that were measured there on people who were held out."""

    wantedFar: float | None = Field(examples=[0.01])
    threshold: float = Field(examples=[4.6])
    far: float | None = Field(examples=[0.004], description="Of the worst kind of impostor")
    farInterval: list[float] | None = Field(examples=[[0.002, 0.008]])
    frr: float | None = Field(examples=[0.03])
    frrInterval: list[float] | None = Field(examples=[[0.02, 0.05]])
    farByKind: dict[str, float]
    people: int | None = Field(examples=[60])
    basis: str


class ExtractorInfo(Reply):
    name: str | None
    fingerprint: str | None
    dimension: int


class ModelInfo(Reply):
    modelVersion: str = Field(examples=[VERSION])
    extractor: ExtractorInfo
    views: list[str] = Field(examples=[["speaker", "phrase"]])
    calibration: dict[str, Any]
    calibrated: bool
    largestLlr: float | None
    operatingPoints: list[Point]
    data: dict[str, Any]
    knownPhrases: int
    notice: str | None
    threshold: float
    rejectThreshold: float
    far: float | None
    weights: dict[str, float]
    countermeasure: bool


class Phrase(Reply):
    id: str = Field(examples=["open-the-garden-door"])
    text: str = Field(examples=["open the garden door"])
    locale: str | None
    known: bool = Field(description="Seen in training, with errors that were measured for it")


class Page(Reply):
    next: str | None = Field(description="`after` of the next page")


class PhrasePage(Page):
    items: list[Phrase]


class Profile(Reply):
    profileId: str = Field(examples=[PROFILE_ID])
    userId: str | None = Field(examples=["ann"])
    state: State = Field(examples=["enrolled"])
    phrases: list[str] = Field(examples=[[PASS_PHRASE]])
    enrollmentsCount: int = Field(examples=[3])
    remainingEnrollmentsCount: int = Field(examples=[0])
    remainingByPhrase: dict[str, int] = Field(examples=[{PASS_PHRASE: 0}])
    speechLength: float = Field(examples=[5.2])
    modelVersion: str | None = Field(examples=[VERSION])
    created: str = Field(examples=[TIME])
    updated: str = Field(examples=[TIME])
    lastUsed: str | None = Field(examples=[TIME])
    expires: str | None = Field(examples=[TIME])
    etag: str = Field(examples=['"4"'])


class ProfilePage(Page):
    items: list[Profile]


class Deleted(Reply):
    profileId: str = Field(examples=[PROFILE_ID])
    state: Literal["deleted"]
    updated: str = Field(examples=[TIME])


class Quality(Reply):
    durationS: float = Field(examples=[2.1])
    speechS: float = Field(examples=[1.7])
    peakDb: float = Field(examples=[-3.0])
    levelDb: float = Field(examples=[-21.4])
    clipped: float = Field(examples=[0.0])
    snrDb: float | None = Field(examples=[31.0])
    bandwidthHz: float = Field(examples=[7900])
    warnings: list[str]


class Enrolment(Profile):
    enrollmentId: int = Field(examples=[3])
    quality: Quality | None
    phraseLlr: float | None = Field(examples=[4.0])
    consistencyLlr: float | None = Field(examples=[3.1])


class KeptEnrolment(Reply):
    enrollmentId: int
    phrase: str
    created: str
    speechLength: float
    vectorKept: bool
    extractor: str | None


class AuditEntry(Reply):
    id: str
    at: str = Field(examples=[TIME])
    caller: str
    action: str = Field(examples=["verify"])
    profileId: str | None
    resultId: str | None


class AuditPage(Page):
    items: list[AuditEntry]


class Export(Reply):
    profile: Profile
    consent: dict[str, Any] | None
    enrollments: list[KeptEnrolment]
    record: list[AuditEntry]
    kept: str


class Decision(Reply):
    resultId: str = Field(examples=[RESULT_ID])
    decision: Verdict = Field(examples=["reject"])
    reason: str | None = Field(examples=["wrong_phrase"])
    voice: Verdict | None = Field(examples=["accept"], description="Decided of the voice alone")
    words: Verdict | None = Field(examples=["reject"], description="Decided of the words alone")
    llr: float | None = Field(examples=[-4.1])
    threshold: float = Field(examples=[4.6])
    rejectThreshold: float = Field(examples=[0.0])
    posteriors: dict[str, float] | None = Field(
        examples=[{"TC": 0.016, "TW": 0.97, "IC": 0.001, "IW": 0.013}],
        description="At even odds: the owner (T) or another (I), correct (C) or wrong (W) words",
    )
    llrSpeaker: float | None = Field(examples=[4.2])
    llrPhrase: float | None = Field(examples=[-4.0])
    calibrated: bool | None
    countermeasureLlr: float | None
    operatingPoint: Point | None
    quality: Quality | None
    modelVersion: str = Field(examples=[VERSION])
    notice: str | None


class Candidate(Reply):
    profileId: str = Field(examples=[PROFILE_ID])
    userId: str | None = Field(examples=["ann"])
    llr: float = Field(examples=[5.9])
    probability: float = Field(examples=[0.97])


class Ranking(Reply):
    resultId: str = Field(examples=[RESULT_ID])
    candidates: list[Candidate]
    identified: str | None = Field(
        examples=[PROFILE_ID],
        description="The profile whose voice it is; null where none is likely enough among so many",
    )
    noneOfThem: float = Field(examples=[0.03])
    profilesCount: int = Field(examples=[12])
    reason: str | None
    quality: Quality | None
    modelVersion: str = Field(examples=[VERSION])
    notice: str | None


class Challenge(Reply):
    challengeId: str = Field(examples=[RESULT_ID])
    profileId: str = Field(examples=[PROFILE_ID])
    phrases: list[str] = Field(examples=[[PASS_PHRASE]])
    expires: str = Field(examples=[TIME])


class ProblemDetails(Reply):
    """RFC 9457."""

    type: str = Field(examples=["urn:mvplda:refused"])
    title: str = Field(examples=["Unprocessable Content"])
    status: int = Field(examples=[422])
    detail: str = Field(examples=["There is too little speech in it: say the whole phrase."])
    instance: str | None = None
    reason: str | None = Field(default=None, examples=["not_enough_speech"])


# -- helpers -----------------------------------------------------------------------------

Fields = TypeVar("Fields", bound=Recording)
Responses = dict[int | str, dict[str, Any]]


def parsed(model: type[Fields], fields: Mapping[str, Any]) -> Fields:
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        raise Problem(422, "fields", first_fault(error.errors())) from error


def first_fault(errors: Any) -> str:
    every = list(errors)
    if not every:
        return "a field does not fit"
    names = [str(name) for name in every[0].get("loc", ()) if name != "body"]
    return f"{'.'.join(names) or 'the body'}: {every[0].get('msg', 'does not fit')}"


def problems(*statuses: int) -> Responses:
    """What OpenAPI shows of refusals."""
    schema = {"$ref": "#/components/schemas/ProblemDetails"}
    content = {"application/problem+json": {"schema": schema}}
    return {
        status: {"description": TITLES.get(status, "Problem"), "content": content}
        for status in statuses
    }


def recording_body(model: type[Recording], example: Mapping[str, Any]) -> dict[str, Any]:
    """What OpenAPI shows of a call with sound: as the body itself, as a part of a form, or as a vector."""
    schema = model.model_json_schema()
    fields = {name: field for name, field in schema["properties"].items() if name != "vector"}
    audio = {
        "type": "string",
        "format": "binary",
        "description": "WAV, FLAC, Ogg, WebM/Opus",
    }
    form = {"type": "object", "properties": {"audio": audio, **fields}, "required": ["audio"]}
    plain = {name: value for name, value in example.items() if name != "vector"}
    binary = {"schema": {"type": "string", "format": "binary"}, "example": "RIFF....WAVEfmt "}
    kinds: dict[str, Any] = {f"audio/{kind}": binary for kind in ("wav", "webm", "flac", "ogg")}
    kinds["multipart/form-data"] = {"schema": form, "example": {"audio": "now.wav", **plain}}
    kinds["application/json"] = {"schema": schema, "example": dict(example)}
    return {"requestBody": {"required": True, "content": kinds}}
