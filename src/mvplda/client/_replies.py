"""Answers of the service as records; fields that are not listed are in `raw`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

Json = Mapping[str, Any]
Verdict = Literal["accept", "reject", "inconclusive"]


def optional_time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


@dataclass(frozen=True)
class RecordingQuality:
    """Quality of a recording."""

    duration_s: float
    speech_s: float
    level_db: float
    snr_db: float | None
    warnings: tuple[str, ...]

    @classmethod
    def from_json(cls, reply: Json | None) -> RecordingQuality | None:
        if reply is None:
            return None
        return cls(
            reply["durationS"],
            reply["speechS"],
            reply["levelDb"],
            reply["snrDb"],
            tuple(reply["warnings"]),
        )


@dataclass(frozen=True)
class Profile:
    """Profile of a person.

    phrases : None for a key of the role verify
    remaining : recordings that are needed before the first phrase is enrolled
    """

    id: str
    user_id: str | None
    state: str
    phrases: tuple[str, ...] | None
    enrolments: int
    remaining: int
    created: datetime
    locked_until: datetime | None
    raw: Json = field(repr=False, compare=False)

    @property
    def is_enrolled(self) -> bool:
        return self.state == "enrolled"

    @classmethod
    def from_json(cls, reply: Json) -> Profile:
        phrases = reply["phrases"]
        return cls(
            reply["profileId"],
            reply["userId"],
            reply["state"],
            None if phrases is None else tuple(phrases),
            reply["enrollmentsCount"],
            reply["remainingEnrollmentsCount"],
            datetime.fromisoformat(reply["created"]),
            optional_time(reply["lockedUntil"]),
            reply,
        )


@dataclass(frozen=True)
class Enrolment:
    """Recording that was added to a profile, and the profile with it."""

    number: int
    profile: Profile
    quality: RecordingQuality | None
    raw: Json = field(repr=False, compare=False)

    @classmethod
    def from_json(cls, reply: Json) -> Enrolment:
        quality = RecordingQuality.from_json(reply["quality"])
        return cls(reply["enrollmentId"], Profile.from_json(reply), quality, reply)


@dataclass(frozen=True)
class VerificationDecision:
    """Decision about a claimed person and phrase.

    reason : code, as in the service's documentation; None for an acceptance
    voice, phrase, llr : None unless the key may see them
    """

    result_id: str
    verdict: Verdict
    reason: str | None
    voice: Verdict | None
    phrase: Verdict | None
    llr: float | None
    quality: RecordingQuality | None
    raw: Json = field(repr=False, compare=False)

    @property
    def is_accepted(self) -> bool:
        return self.verdict == "accept"

    @classmethod
    def from_json(cls, reply: Json) -> VerificationDecision:
        return cls(
            reply["resultId"],
            reply["decision"],
            reply["reason"],
            reply["voice"],
            reply["phrase"],
            reply["llr"],
            RecordingQuality.from_json(reply["quality"]),
            reply,
        )


@dataclass(frozen=True)
class ProfileChallenge:
    """Random phrase for one verification."""

    id: str
    profile_id: str
    phrases: tuple[str, ...]
    expires: datetime

    @classmethod
    def from_json(cls, reply: Json) -> ProfileChallenge:
        expires = datetime.fromisoformat(reply["expires"])
        return cls(reply["challengeId"], reply["profileId"], tuple(reply["phrases"]), expires)


@dataclass(frozen=True)
class SpeakerCandidate:
    """Person whose voice a recording may have; llr and probability are None unless the key may see them."""

    profile_id: str
    user_id: str | None
    llr: float | None
    probability: float | None

    @classmethod
    def from_json(cls, reply: Json) -> SpeakerCandidate:
        return cls(reply["profileId"], reply["userId"], reply["llr"], reply["probability"])


@dataclass(frozen=True)
class SpeakerIdentification:
    """Ranked people, and the identified profile; None: nobody who is enrolled, or not certain."""

    identified: str | None
    candidates: tuple[SpeakerCandidate, ...]
    reason: str | None
    raw: Json = field(repr=False, compare=False)

    @classmethod
    def from_json(cls, reply: Json) -> SpeakerIdentification:
        candidates = tuple(
            SpeakerCandidate.from_json(candidate) for candidate in reply["candidates"]
        )
        return cls(reply["identified"], candidates, reply["reason"], reply)
