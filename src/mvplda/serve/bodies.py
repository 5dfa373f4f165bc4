"""What goes in and comes out over HTTP: bodies, problems, and the examples that OpenAPI shows of them."""

# ruff: noqa: E402

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from .._optional import need

need("pydantic")

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from .service import Ask, Problem


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class Consent(Body):
    given: bool
    at: str | None = Field(None, max_length=40, examples=["2026-11-15T12:00:00Z"])
    text: str | None = Field(None, max_length=5000, description="What the person agreed to")


class NewProfile(Body):
    userId: str | None = Field(None, max_length=200, examples=["ann"])
    phrase: str | None = Field(None, min_length=1, max_length=200, examples=["my voice is my key"])
    consent: Consent = Field(
        examples=[{"given": True, "text": "My voice may be used to let me in."}]
    )


class NewChallenge(Body):
    profileId: str = Field(max_length=64, examples=["0f6f7e2c9a5b4d3e8c1a2b3c4d5e6f70"])
    count: int = Field(1, ge=1, le=3)


class NewPhrase(Body):
    text: str = Field(min_length=1, max_length=200, examples=["open the garden door"])
    locale: str | None = Field(None, max_length=35, examples=["en-GB"])


class Sound(Body):
    """Fields beside a recording: in JSON, in a form, or in the query where the body is the recording."""

    vector: list[float] | None = Field(None, max_length=20_000)

    def heard(self) -> list[list[float]]:
        return [] if self.vector is None else [self.vector]


class Enrolled(Sound):
    phrase: str | None = Field(None, min_length=1, max_length=200)


class Verified(Sound):
    vectors: list[list[float]] | None = Field(
        None, max_length=3, description="Answers to a challenge, in its order"
    )
    phrase: str | None = Field(None, min_length=1, max_length=200)
    challengeId: str | None = Field(None, max_length=64)
    far: float | None = Field(None, gt=0, lt=1)
    prior: float | None = Field(None, ge=1e-12, lt=1)
    missCost: float = Field(1.0, ge=1e-9, le=1e9)
    falseAlarmCost: float = Field(1.0, ge=1e-9, le=1e9)
    countermeasureLlr: float | None = Field(
        None, ge=-50, le=50, description="Of a person against a machine"
    )

    def heard(self) -> list[list[float]]:
        return [*super().heard(), *(self.vectors or [])]

    def ask(self) -> Ask:
        if self.prior is None and self.model_fields_set & {"missCost", "falseAlarmCost"}:
            raise Problem(
                422,
                "operating-point",
                "costs want a prior beside them: how often it is really the owner",
            )
        costs = self.missCost, self.falseAlarmCost
        return Ask(
            self.phrase, self.challengeId, self.far, self.prior, *costs, self.countermeasureLlr
        )


class Identified(Sound):
    candidates: list[str] | None = Field(None, max_length=10_000)
    top: int = Field(5, ge=1, le=100)
    priorNone: float = Field(0.5, gt=0, lt=1)

    @field_validator("candidates", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        """A form or a query has them divided by commas."""
        return value.split(",") if isinstance(value, str) else value


Fields = TypeVar("Fields", bound=Sound)


def parsed(model: type[Fields], fields: Mapping[str, Any]) -> Fields:
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        raise Problem(422, "fields", first_fault(error.errors())) from error


def first_fault(errors: Any) -> str:
    found = list(errors)
    if not found:
        return "a field does not fit"
    place = ".".join(str(part) for part in found[0].get("loc", ()) if part != "body")
    return f"{place or 'the body'}: {found[0].get('msg', 'does not fit')}"


def sound_body(model: type[Sound], example: Mapping[str, Any]) -> dict[str, Any]:
    """What OpenAPI says of a call that brings sound: as the body itself, as a part of a form, or as a vector."""
    schema = model.model_json_schema()
    fields = {
        name: field for name, field in schema["properties"].items() if not name.startswith("vector")
    }
    audio = {
        "type": "string",
        "format": "binary",
        "description": "WAV, FLAC, Ogg, WebM/Opus; may be repeated",
    }
    form = {"type": "object", "properties": {"audio": audio, **fields}, "required": ["audio"]}
    plain = {name: value for name, value in example.items() if not name.startswith("vector")}
    binary = {"schema": {"type": "string", "format": "binary"}, "example": "RIFF....WAVEfmt "}
    kinds: dict[str, Any] = {f"audio/{kind}": binary for kind in ("wav", "webm", "flac", "ogg")}
    kinds["multipart/form-data"] = {"schema": form, "example": {"audio": "now.wav", **plain}}
    kinds["application/json"] = {"schema": schema, "example": dict(example)}
    return {"requestBody": {"required": True, "content": kinds}}


PROFILE = {
    "profileId": "0f6f7e2c9a5b4d3e8c1a2b3c4d5e6f70",
    "userId": "ann",
    "state": "enrolled",
    "phrases": ["my voice is my key"],
    "enrollmentsCount": 3,
    "remainingEnrollmentsCount": 0,
    "remainingByPhrase": {"my voice is my key": 0},
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
CONSISTENCY = {"phraseLlr": 4.0, "consistencyLlr": 3.1}
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
    "countermeasureLlr": None,
    "operatingPoint": {
        "far": 0.004,
        "farInterval": [0.002, 0.008],
        "frr": 0.03,
        "frrInterval": [0.02, 0.05],
        "farByKind": {"TW": 0.001, "IC": 0.009, "IW": 0.0},
    },
    "quality": QUALITY,
    "modelVersion": "campplus-words-1a2b3c4d5e6f",
    "notice": None,
}
RANKED = {
    "resultId": "5e1f0c9f3a7d4b61a1b2c3d4e5f60718",
    "candidates": [
        {
            "profileId": "0f6f7e2c9a5b4d3e8c1a2b3c4d5e6f70",
            "userId": "ann",
            "llr": 5.9,
            "probability": 0.97,
        },
        {
            "profileId": "7a1b2c3d4e5f60718293a4b5c6d7e8f9",
            "userId": "bob",
            "llr": -1.2,
            "probability": 0.0008,
        },
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
    return {
        status: {"description": TITLES.get(status, "Problem"), "content": content}
        for status in statuses
    }


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
