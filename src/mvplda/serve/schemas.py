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
    """Body of an answer; clients must accept further fields, which later versions may add."""

    model_config = ConfigDict(extra="allow")


# -- requests ----------------------------------------------------------------------------


class Consent(Body):
    """Consent of a person to the storage of voice templates."""

    given: bool = Field(description="Whether the person agreed; if not, no profile is created")
    text: str | None = Field(default=None, max_length=5000, description="What the person agreed to")


class NewProfile(Body):
    """Profile to be created."""

    userId: str | None = Field(
        default=None, max_length=200, examples=["ann"], description="Name of the person"
    )
    phrase: Phrase | None = Field(
        default=None,
        description="Phrase to be enrolled; default: the phrase of the first recording",
    )
    consent: Consent = Field(
        examples=[{"given": True, "text": "My voice may be used to let me in."}]
    )


class NewChallenge(Body):
    """Challenge to be created, for a profile or for the name of a person."""

    profileId: Id | None = Field(
        default=None,
        max_length=64,
        description="Profile to verify; leave it out if `userId` is sent",
        examples=["0f6f7e2c9a5b4d3e8c1a2b3c4d5e6f70"],
    )
    userId: str | None = Field(
        default=None,
        min_length=1,
        max_length=200,
        description="Name of the person, in place of `profileId`. A name without an enrolled profile gets a challenge "
        "too, whose verification is rejected like a wrong voice",
    )
    kind: ChallengeKind = Field(
        default="phrase",
        description="`phrase`: an enrolled phrase; `words`, `digits`: random English words or digits",
    )

    @model_validator(mode="after")
    def _check_name(self) -> NewChallenge:
        """Raise `ValueError` unless exactly one of profileId and userId is given."""
        if (self.profileId is None) == (self.userId is None):
            given = "neither" if self.userId is None else "both"
            raise ValueError(f"expected either profileId or userId; got {given}")
        return self


class RecordingRequest(Body):
    """Fields of a request with a recording: in JSON together with a vector, or in the query or form beside sound."""

    vector: list[float] | None = Field(
        default=None, max_length=20_000, description="Vector of the extractor, in place of sound"
    )


class EnrolRequest(RecordingRequest):
    """Recording to be enrolled."""

    phrase: Phrase | None = Field(
        default=None, description="Phrase that was said; default: the first phrase of the profile"
    )
    session: str | None = Field(
        default=None,
        min_length=1,
        max_length=200,
        description="Name of the session: recordings of one day, room and microphone. Default: the session of the "
        "previous recording, or a new session if that recording is more than an hour old",
    )


class VerifyRequest(RecordingRequest):
    """Recording to be verified."""

    phrase: Phrase | None = Field(
        default=None,
        description="Claimed phrase; default: any phrase that the profile has enrolled",
    )
    challengeId: str | None = Field(
        default=None, max_length=64, description="Challenge that the recording answers"
    )
    far: float | None = Field(
        default=None,
        gt=0,
        lt=1,
        description="Largest share of impostors that may be accepted, for the kind of trial with the largest share",
    )
    countermeasureLlr: float | None = Field(
        default=None,
        ge=-50,
        le=50,
        description="LLR of bona fide against spoofed speech, from a countermeasure of the caller",
    )


class IdentifyRequest(RecordingRequest):
    """Recording whose speaker is to be identified."""

    candidates: list[str] | None = Field(
        default=None,
        max_length=10_000,
        description="Ids of the profiles to choose from, in the query separated by commas; default: all",
    )
    top: int = Field(
        default=5, ge=1, le=100, description="Largest number of candidates in the answer"
    )
    priorNone: float = Field(
        default=0.5,
        gt=0,
        lt=1,
        description="Prior probability that the speaker owns none of the profiles to choose from",
    )

    @field_validator("candidates", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        """Split a text of ids separated by commas, as sent in a query; return any other value unchanged."""
        return value.split(",") if isinstance(value, str) else value


# -- replies -----------------------------------------------------------------------------


class Health(Reply):
    """Status and versions of the service."""

    status: Literal["ok"]
    version: str = Field(description="Version of mvplda")
    modelVersion: Version
    extractor: str | None = Field(description="Name of the extractor; null if it is unknown")
    demoNetwork: bool = Field(
        description="Whether the extractor is the demonstration network, which must not decide about people"
    )
    notice: str | None = Field(description="Warning to show to users")
    keysWanted: bool = Field(description="Whether calls need an API key")


class Ready(Reply):
    """Answer of a service that is ready for calls."""

    status: Literal["ready"]
    modelVersion: Version


class HalfLimits(Reply):
    """Thresholds for one half of a decision: the LLR of the speaker alone, or of the phrase alone."""

    accept: Number = Field(description="The half is accepted from this LLR")
    reject: float = Field(description="The half is rejected below this LLR")


class HalfPoint(HalfLimits):
    """Thresholds for one half of a decision, speaker or phrase, and the error rates measured at them."""

    farByKind: dict[str, Share] = Field(
        description="Per kind of trial that should be rejected, the share of trials that are accepted"
    )
    frr: Share | None = Field(description="Share of owners that are not accepted")
    people: int | None = Field(description="Number of people in the measurement")


class HalfReply(HalfPoint):
    """Decision about one half, speaker or phrase: its LLR, verdict, thresholds and measured error rates."""

    llr: Number
    decision: Verdict


class KeyReply(Reply):
    """The API key of a call: its name, its role and its policy."""

    name: str = Field(examples=["shop"])
    role: str = Field(examples=["verify"])
    detail: Detail = Field(
        description="Fields of a decision that the key may see: the verdict, also those of voice and phrase "
        "(`halves`), or all (`evidence`)"
    )
    far: Share | None = Field(description="Largest `far` that a verification may have; null: any")
    require: Require = Field(
        description="Protection against replayed and synthetic voices that each verification must have"
    )


class OperatingPointReply(Reply):
    """Thresholds, and the error rates that were measured at them on held-out people."""

    wantedFar: Share | None = Field(
        description="Smallest share of accepted impostors (FAR) for which these thresholds were chosen"
    )
    threshold: Number = Field(description="A trial is accepted from this LLR")
    far: Share | None = Field(
        description="Measured FAR of the kind of trial with the most false acceptances"
    )
    farInterval: list[Share] | None = Field(description="95 % interval of `far` over people")
    frr: Share | None = Field(description="Measured share of owners that are not accepted")
    frrInterval: list[Share] | None = Field(description="95 % interval of `frr` over people")
    farByKind: dict[str, Share] = Field(
        examples=[{"TW": 0.001, "IC": 0.004, "IW": 0.0}],
        description="Measured FAR per kind of trial that should be rejected; kinds as in `posteriors`",
    )
    people: int | None = Field(description="Number of people in the measurement")
    basis: str = Field(description="How the thresholds were chosen, in words")
    halves: dict[str, HalfPoint] = Field(
        description="Thresholds of `speaker` and `phrase`; empty if `threshold` decides about both"
    )


class ExtractorInfo(Reply):
    """The network that computes vectors from sound."""

    name: str | None
    fingerprint: str | None = Field(description="Hash of the network's weights and recipe")
    dimension: int = Field(description="Length of the vectors")


class ModelCard(Reply):
    """The model, its calibration and its measured error rates."""

    modelVersion: Version
    extractor: ExtractorInfo
    views: list[str] = Field(
        description="Views that the model compares, such as `speaker` and `phrase`"
    )
    calibration: Json = Field(description="Calibration per question")
    calibrated: bool = Field(description="Whether LLRs of the service's question are calibrated")
    largestLlr: float | None = Field(description="Largest possible LLR; null: no limit")
    operatingPoints: list[OperatingPointReply]
    data: Json = Field(description="Card of the model: training data and measurements")
    knownPhrases: list[Phrase] = Field(description="Phrases of training, which need no enrolment")
    challengeKinds: list[ChallengeKind] = Field(
        description="Kinds of challenges that the service can check; words and digits need the decoder of a recogniser"
    )
    notice: str | None = Field(description="Warning to show to users")


class ModelInfo(ModelCard):
    """The model, and its default operating point."""

    threshold: Number
    rejectThreshold: float
    far: Share | None


class Page(Reply):
    """One page of a list."""

    next: str | None = Field(
        description="Value of `after` with which the next page is read; null: this is the last page"
    )


class ProfileReply(Reply):
    """State of a profile, without its vectors."""

    profileId: Id
    userId: User = Field(description="Name of the person")
    state: State
    phrases: list[Phrase] | None = Field(
        description="Phrases of the profile; null if the API key has the role verify"
    )
    enrollmentsCount: int = Field(description="Number of recordings")
    remainingEnrollmentsCount: int = Field(
        description="Number of recordings that are still needed to enrol a first phrase"
    )
    remainingByPhrase: dict[str, int] | None = Field(
        description="Number of recordings that are still needed per phrase; null if the API key has the role verify"
    )
    speechLength: float = Field(description="Seconds of speech in all recordings")
    modelVersion: Version | None = Field(
        description="Model that computed the templates; null: no recordings"
    )
    created: Time
    updated: Time
    lastUsed: Time | None = Field(description="Time of the last enrolment or acceptance")
    expires: Time | None = Field(description="Time at which the profile expires if it is not used")
    lockedUntil: Time | None = Field(
        description="Time until which the profile is locked after rejections; null: not locked"
    )


class ProfilePage(Page):
    """One page of profiles."""

    items: list[ProfileReply]


class QualityReply(Reply):
    """Measured quality of a recording."""

    durationS: float = Field(description="Length in seconds")
    speechS: float = Field(description="Seconds of speech")
    peakDb: float = Field(description="Level of the loudest sample, in dB relative to full scale")
    levelDb: float = Field(description="Mean level of the speech, in dB relative to full scale")
    clipped: float = Field(description="Share of clipped samples")
    snrDb: float | None = Field(description="Signal-to-noise ratio in dB; null: not measurable")
    bandwidthHz: float = Field(
        description="Highest frequency within 60 dB of the loudest one, in Hz"
    )
    warnings: list[str]


class EnrolReply(ProfileReply):
    """Profile after an enrolment, and the new recording."""

    enrollmentId: int
    quality: QualityReply | None = Field(description="Null for a vector or an unreadable file")
    phraseLlr: Number | None = Field(
        description="LLR of the same phrase as in earlier recordings; null if there is none with this phrase"
    )
    consistencyLlr: Number | None = Field(
        description="LLR of the same speaker as in earlier recordings; null if there is none"
    )


class StoredEnrolment(Reply):
    """Stored recording of a profile, without its vector."""

    enrollmentId: int
    phrase: str
    created: Time
    speechLength: float = Field(description="Seconds of speech")
    session: str
    vectorKept: bool = Field(description="Whether its vector is stored")
    extractor: str | None
    spoofScore: float | None = Field(
        default=None, description="Raw score of the detector of spoofs; null: the detector was off"
    )


class AuditEntry(Reply):
    """Entry of the audit; further fields depend on its action."""

    id: str
    at: Time
    caller: str = Field(description="Name of the caller's API key")
    action: str
    profileId: Id | None
    resultId: Id | None


class AuditPage(Page):
    """One page of the audit."""

    items: list[AuditEntry]


class Export(Reply):
    """All stored data of a person, without vectors."""

    profile: ProfileReply
    consent: Json | None
    enrollments: list[StoredEnrolment]
    record: list[AuditEntry] = Field(description="Entries of the audit about the profile")
    kept: str = Field(description="List of stored data that are not in this export")


class VerifyReply(Reply):
    """A decision and its evidence.

    Fields of the evidence are null if the recording was not scored, or if the policy of the API key hides them.
    """

    resultId: Id = Field(description="Id of the decision in the audit")
    decision: Verdict
    reason: str | None = Field(
        examples=["wrong_phrase"], description="Reason of a rejection or an inconclusive answer"
    )
    advice: str | None = Field(
        default=None,
        description="Advice to enrol more recordings or to use a longer phrase; null if there is enough speech",
    )
    voice: Verdict | None = Field(default=None, description="Verdict about the speaker alone")
    phrase: Verdict | None = Field(default=None, description="Verdict about the phrase alone")
    llr: Number | None = Field(
        default=None,
        description="LLR of the claim: the owner says the claimed phrase, against all other hypotheses",
    )
    threshold: Number | None = Field(
        description="The claim is accepted from this `llr`; null if `halves` decide"
    )
    rejectThreshold: float | None = Field(
        description="The claim is rejected below this `llr`; null if `halves` decide"
    )
    posteriors: dict[str, float] | None = Field(
        default=None,
        examples=[{"TC": 0.016, "TW": 0.97, "IC": 0.001, "IW": 0.013}],
        description="Probability per kind of trial, with a prior of 0.5 for TC: target (T) or impostor (I), "
        "correct (C) or wrong (W) phrase",
    )
    llrSpeaker: Number | None = Field(default=None, description="LLR of the same speaker")
    llrPhrase: Number | None = Field(default=None, description="LLR of the same phrase")
    promptLogProbability: float | None = Field(
        default=None, description="Log probability of prompted words, given the recording"
    )
    halves: dict[str, HalfReply] | None = Field(
        default=None,
        description="Decisions about `speaker` and `phrase`; null if `threshold` decides about `llr`",
    )
    calibrated: bool | None = Field(default=None, description="Whether the LLRs are calibrated")
    countermeasureLlr: float | None = Field(
        description="LLR of bona fide against spoofed speech, from the caller or the spoof detector of the service; "
        "null: from neither"
    )
    operatingPoint: OperatingPointReply | None = Field(
        description="Thresholds of the decision with their measured error rates; null if none were measured"
    )
    quality: QualityReply | None = Field(description="Null for a vector or an unreadable file")
    modelVersion: Version
    notice: str | None = Field(description="Warning to show to users")


class Candidate(Reply):
    """Profile whose owner is possibly the speaker."""

    profileId: Id
    userId: User = Field(description="Name of the owner; null if the API key must not see it")
    llr: Number | None = Field(description="LLR of the same speaker")
    probability: float | None = Field(
        description="Probability that the speaker is the owner of this profile"
    )


class IdentifyReply(Reply):
    """Result of an identification."""

    resultId: Id = Field(description="Id of the result in the audit")
    candidates: list[Candidate] = Field(description="Most probable profiles, best first")
    identified: Id | None = Field(
        description="Id of the identified profile; null if no profile is probable enough among all that were searched"
    )
    noneOfThem: float | None = Field(
        description="Probability that the speaker owns none of the searched profiles"
    )
    profilesCount: int = Field(description="Number of searched profiles")
    reason: str | None = Field(
        description="Reason code if the recording cannot be used; null otherwise"
    )
    quality: QualityReply | None = Field(description="Null for a vector or an unreadable file")
    modelVersion: Version
    notice: str | None = Field(description="Warning to show to users")


class Challenge(Reply):
    """Phrase or words that must be said in the next verification."""

    challengeId: Id
    profileId: Id
    kind: Literal["phrase", "words"] = Field(
        description="`phrase`: an enrolled phrase; `words`: random words or digits"
    )
    phrases: list[Phrase] = Field(description="List of one text, the phrase or the words to say")
    expires: Time


class ProblemDetails(Reply):
    """Details of a problem (RFC 9457)."""

    type: str = Field(examples=["urn:mvplda:refused"], description="Code of the problem")
    title: str = Field(description='Standard text of the HTTP status, such as "Not Found"')
    status: int = Field(description="HTTP status")
    detail: str = Field(description="Explanation for people")
    instance: str | None = Field(default=None, description="Path of the call")
    reason: str | None = Field(default=None, examples=["not_enough_speech"])


class Problem(HTTPException):
    """Exception with which a call is refused or fails; it becomes an answer with problem details (RFC 9457).

    Parameters
    ----------
    status : HTTP status
    kind : code of the problem, such as "locked"; the answer has it as its ``type``, ``urn:mvplda:locked``
    detail : explanation for people: what was expected, what came, and what to do
    wait : seconds after which the call may be repeated (header Retry-After); None: no header
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
        """Return the problem details as JSON; `instance` is the path of the call."""
        return {
            "type": f"urn:mvplda:{self.kind}",
            "title": HTTPStatus(self.status_code).phrase,
            "status": self.status_code,
            "detail": self.detail,
            "instance": instance,
            **self.fields,
        }


class DamagedProfile(Problem):
    """Problem (409) of a call about a profile whose stored data cannot be read.

    Parameters
    ----------
    what : name of the damaged data, such as "recording 2"
    """

    def __init__(self, what: str) -> None:
        detail = (
            f"the stored data of this profile cannot be read ({what}): the operator of the service can restore the "
            "database, or reset or delete the profile"
        )
        super().__init__(409, "damaged", detail, state="damaged")
        self.what = what


# -- descriptions for OpenAPI ------------------------------------------------------------------


def problems(*statuses: int) -> dict[int | str, Json]:
    """Return {status: description in OpenAPI} of the refusals of an endpoint, for the given HTTP statuses."""
    schema = {"$ref": "#/components/schemas/ProblemDetails"}
    content = {"application/problem+json": {"schema": schema}}
    return {
        status: {"description": HTTPStatus(status).phrase, "content": content}
        for status in statuses
    }


def recording_body(model: type[RecordingRequest], example: Mapping[str, object]) -> Json:
    """Return the OpenAPI description of a call with a recording.

    The body is sound, a form with sound, or JSON with a vector.

    model : fields of the request
    example : example of the body in JSON
    """
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
