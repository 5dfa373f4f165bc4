"""Typed bodies of requests and replies, from which OpenAPI is generated."""

from __future__ import annotations

import math
from collections.abc import Mapping
from http import HTTPStatus
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
from starlette.exceptions import HTTPException

from .._typing import Json

PASS_PHRASE = "my voice is my key"
Id = Annotated[str, Field(examples=["0f6f7e2c9a5b4d3e8c1a2b3c4d5e6f70"])]
Time = Annotated[str, Field(examples=["2026-11-15T12:00:00.000Z"])]
Version = Annotated[str, Field(examples=["campplus-words-1a2b3c4d5e6f"])]
User = Annotated[str | None, Field(examples=["ann"])]
Phrase = Annotated[str, Field(min_length=1, max_length=200, examples=[PASS_PHRASE])]
Number = Annotated[float, Field(examples=[4.6])]
Share = Annotated[float, Field(examples=[0.01])]
Verdict = Literal["accept", "reject", "inconclusive"]
State = Literal[
    "created", "enrolling", "enrolled", "stale", "expired", "damaged", "opted_out", "deleted"
]


Detail = Literal["verdict", "halves", "evidence"]
ChallengeKind = Literal["phrase", "words", "digits"]
Require = Literal["none", "challenge", "countermeasure", "either"]


class Body(BaseModel):
    """Body of a request; unknown fields, NaN and infinity are refused."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class Reply(BaseModel):
    """Body of an answer."""

    model_config = ConfigDict(extra="allow")


# -- requests ----------------------------------------------------------------------------


class Consent(Body):
    given: bool
    text: str | None = Field(default=None, max_length=5000, description="What the person agreed to")


class NewProfile(Body):
    userId: str | None = Field(default=None, max_length=200, examples=["ann"])
    phrase: Phrase | None = None
    consent: Consent = Field(
        examples=[{"given": True, "text": "My voice may be used to let me in."}]
    )


class NewChallenge(Body):
    profileId: Id | None = Field(
        default=None,
        max_length=64,
        description="Profile to verify, unless `userId` names it",
        examples=["0f6f7e2c9a5b4d3e8c1a2b3c4d5e6f70"],
    )
    userId: str | None = Field(
        default=None,
        min_length=1,
        max_length=200,
        description="Name of the person in place of `profileId`. A name without an enrolled profile gets a challenge "
        "too: its verification ends like that of a wrong voice",
    )
    kind: ChallengeKind = Field(
        default="phrase",
        description="An enrolled phrase, or random English words or digits that need no enrolment",
    )

    @model_validator(mode="after")
    def _check_name(self) -> NewChallenge:
        if (self.profileId is None) == (self.userId is None):
            raise ValueError("expected either a profileId or a userId")
        return self


class RecordingRequest(Body):
    """Fields that come with a recording: in JSON, or in the query if the body is the recording."""

    vector: list[float] | None = Field(default=None, max_length=20_000)


class EnrolRequest(RecordingRequest):
    phrase: Phrase | None = None
    session: str | None = Field(
        default=None,
        min_length=1,
        max_length=200,
        description="Name of the room, microphone and day; without it, recordings within an hour are one session",
    )


class VerifyRequest(RecordingRequest):
    phrase: Phrase | None = None
    challengeId: str | None = Field(default=None, max_length=64)
    far: float | None = Field(default=None, gt=0, lt=1)
    countermeasureLlr: float | None = Field(
        default=None, ge=-50, le=50, description="LLR of bona fide against spoofed speech"
    )


class IdentifyRequest(RecordingRequest):
    candidates: list[str] | None = Field(default=None, max_length=10_000)
    top: int = Field(default=5, ge=1, le=100)
    priorNone: float = Field(default=0.5, gt=0, lt=1)

    @field_validator("candidates", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        """Split the comma-separated list of a query."""
        return value.split(",") if isinstance(value, str) else value


# -- replies -----------------------------------------------------------------------------


class Health(Reply):
    status: Literal["ok"]
    version: str
    modelVersion: Version
    extractor: str | None
    demoNetwork: bool
    notice: str | None
    keysWanted: bool


class Ready(Reply):
    status: Literal["ready"]
    modelVersion: Version


class HalfLimits(Reply):
    """Thresholds of the LLR of the speaker or the phrase alone."""

    accept: Number
    reject: float


class HalfPoint(HalfLimits):
    """Thresholds of the speaker or the phrase alone, and the error rates that were measured at them."""

    farByKind: dict[str, Share]
    frr: Share | None
    people: int | None


class HalfReply(HalfPoint):
    """Decision about the speaker or the phrase alone: its LLR, verdict, thresholds and measured error rates."""

    llr: Number
    decision: Verdict


class KeyReply(Reply):
    """The API key of a call: its name, its role and its policy."""

    name: str = Field(examples=["shop"])
    role: str = Field(examples=["verify"])
    detail: Detail = Field(description="What the key sees of a decision")
    far: Share | None = Field(description="Largest `far` of a verification; null: any")
    require: Require = Field(description="Required of each verification")


class OperatingPointReply(Reply):
    """Thresholds, and the error rates that were measured at them on held-out people."""

    wantedFar: Share | None
    threshold: Number
    far: Share | None = Field(description="FAR of the worst kind of trial")
    farInterval: list[Share] | None
    frr: Share | None
    frrInterval: list[Share] | None
    farByKind: dict[str, Share] = Field(
        examples=[{"TW": 0.001, "IC": 0.004, "IW": 0.0}],
        description="FAR per kind of trial to be rejected, as in `posteriors`",
    )
    people: int | None
    basis: str
    halves: dict[str, HalfPoint] = Field(
        description="Thresholds of speaker and phrase; empty if `threshold` decides"
    )


class ExtractorInfo(Reply):
    name: str | None
    fingerprint: str | None
    dimension: int


class ModelCard(Reply):
    """The model, its calibration and its measured error rates."""

    modelVersion: Version
    extractor: ExtractorInfo
    views: list[str]
    calibration: Json
    calibrated: bool
    largestLlr: float | None
    operatingPoints: list[OperatingPointReply]
    data: Json
    knownPhrases: list[Phrase] = Field(description="Phrases of training, which need no enrolment")
    challengeKinds: list[ChallengeKind] = Field(
        description="Kinds of challenges; words and digits need the decoder of a recogniser"
    )
    notice: str | None


class ModelInfo(ModelCard):
    """The model, and its default operating point."""

    threshold: Number
    rejectThreshold: float
    far: Share | None


class Page(Reply):
    next: str | None = Field(description="`after` of the next page")


class ProfileReply(Reply):
    profileId: Id
    userId: User
    state: State
    phrases: list[Phrase] | None = Field(description="Null for a key of the role verify")
    enrollmentsCount: int
    remainingEnrollmentsCount: int
    remainingByPhrase: dict[str, int] | None = Field(
        description="Null for a key of the role verify"
    )
    speechLength: float
    modelVersion: Version | None
    created: Time
    updated: Time
    lastUsed: Time | None
    expires: Time | None
    lockedUntil: Time | None = Field(
        description="End of the lock after consecutive rejections; null: not locked"
    )


class ProfilePage(Page):
    items: list[ProfileReply]


class QualityReply(Reply):
    durationS: float
    speechS: float
    peakDb: float
    levelDb: float
    clipped: float
    snrDb: float | None
    bandwidthHz: float
    warnings: list[str]


class EnrolReply(ProfileReply):
    enrollmentId: int
    quality: QualityReply | None
    phraseLlr: Number | None
    consistencyLlr: Number | None


class StoredEnrolment(Reply):
    enrollmentId: int
    phrase: str
    created: Time
    speechLength: float
    session: str
    vectorKept: bool
    extractor: str | None
    spoofScore: float | None = None


class AuditEntry(Reply):
    id: str
    at: Time
    caller: str
    action: str
    profileId: Id | None
    resultId: Id | None


class AuditPage(Page):
    items: list[AuditEntry]


class Export(Reply):
    profile: ProfileReply
    consent: Json | None
    enrollments: list[StoredEnrolment]
    record: list[AuditEntry]
    kept: str


class VerifyReply(Reply):
    """A decision and its evidence.

    Fields of the evidence are null if nothing was scored, or if the policy of the key does not include them.
    """

    resultId: Id
    decision: Verdict
    reason: str | None = Field(examples=["wrong_phrase"])
    advice: str | None = Field(
        default=None, description="What to do next, if more speech would help a decision"
    )
    voice: Verdict | None = Field(default=None, description="Verdict about the speaker alone")
    phrase: Verdict | None = Field(default=None, description="Verdict about the phrase alone")
    llr: Number | None = None
    threshold: Number | None = Field(description="Threshold of `llr`; null if `halves` decide")
    rejectThreshold: float | None
    posteriors: dict[str, float] | None = Field(
        default=None,
        examples=[{"TC": 0.016, "TW": 0.97, "IC": 0.001, "IW": 0.013}],
        description="At even odds: target (T) or impostor (I), correct (C) or wrong (W) phrase",
    )
    llrSpeaker: Number | None = None
    llrPhrase: Number | None = None
    promptLogProbability: float | None = Field(
        default=None, description="Log probability of prompted words, given the recording"
    )
    halves: dict[str, HalfReply] | None = Field(
        default=None,
        description="Decisions about `speaker` and `phrase`; null if `threshold` decides about `llr`",
    )
    calibrated: bool | None = None
    countermeasureLlr: float | None
    operatingPoint: OperatingPointReply | None
    quality: QualityReply | None
    modelVersion: Version
    notice: str | None


class Candidate(Reply):
    profileId: Id
    userId: User
    llr: Number | None
    probability: float | None


class IdentifyReply(Reply):
    resultId: Id
    candidates: list[Candidate]
    identified: Id | None = Field(
        description="The identified profile; null if none is likely enough among so many"
    )
    noneOfThem: float | None
    profilesCount: int
    reason: str | None
    quality: QualityReply | None
    modelVersion: Version
    notice: str | None


class Challenge(Reply):
    challengeId: Id
    profileId: Id
    kind: Literal["phrase", "words"] = Field(description="`words` also for digits")
    phrases: list[Phrase]
    expires: Time


class ProblemDetails(Reply):
    """Details of a problem (RFC 9457)."""

    type: str = Field(examples=["urn:mvplda:refused"])
    title: str
    status: int
    detail: str
    instance: str | None = None
    reason: str | None = Field(default=None, examples=["not_enough_speech"])


class Problem(HTTPException):
    """Refused or failed call, with its HTTP status.

    kind : short name, which becomes the ``type`` of the answer
    detail : sentence for people
    wait : seconds after which the call may be repeated
    fields : further fields of the answer, such as ``reason``
    """

    def __init__(
        self, status: int, kind: str, detail: str, *, wait: float | None = None, **fields: object
    ) -> None:
        headers = None if wait is None else {"Retry-After": str(max(1, math.ceil(wait)))}
        super().__init__(status, detail, headers)
        self.kind = kind
        self.fields = fields

    def body(self, instance: str) -> Json:
        return {
            "type": f"urn:mvplda:{self.kind}",
            "title": HTTPStatus(self.status_code).phrase,
            "status": self.status_code,
            "detail": self.detail,
            "instance": instance,
            **self.fields,
        }


class DamagedProfile(Problem):
    """The stored data of one profile cannot be read; all others are unaffected.

    what : the damaged data, such as "recording 2"
    """

    def __init__(self, what: str) -> None:
        detail = (
            f"the stored data of this profile are damaged ({what}): the operator can restore them, "
            "reset the profile or delete it"
        )
        super().__init__(409, "damaged", detail, state="damaged")
        self.what = what


# -- descriptions for OpenAPI ------------------------------------------------------------------


def problems(*statuses: int) -> dict[int | str, Json]:
    """Return the refusals of an endpoint for OpenAPI."""
    schema = {"$ref": "#/components/schemas/ProblemDetails"}
    content = {"application/problem+json": {"schema": schema}}
    return {
        status: {"description": HTTPStatus(status).phrase, "content": content}
        for status in statuses
    }


def recording_body(model: type[RecordingRequest], example: Mapping[str, object]) -> Json:
    """Describe a call for OpenAPI: sound as the body (audio/* or octets) or in a form, or a vector in JSON."""
    schema = model.model_json_schema()
    fields = {name: field for name, field in schema["properties"].items() if name != "vector"}
    sound = {"type": "string", "format": "binary"}
    form = {"type": "object", "required": ["sound"], "properties": {"sound": sound, **fields}}
    content = {
        "application/octet-stream": {"schema": sound, "example": "RIFF....WAVEfmt "},
        "multipart/form-data": {"schema": form, "example": {"sound": "RIFF....WAVEfmt "}},
        "application/json": {"schema": schema, "example": example},
    }
    # if the body is sound, other fields come in the query
    query = [{"name": name, "in": "query", "schema": field} for name, field in fields.items()]
    return {"requestBody": {"required": True, "content": content}, "parameters": query}
