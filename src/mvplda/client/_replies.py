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
class Quality:
    """Quality of a recording."""

    duration_s: float
    speech_s: float
    level_db: float
    snr_db: float | None
    warnings: tuple[str, ...]

    @classmethod
    def from_json(cls, found: Json | None) -> Quality | None:
        if found is None:
            return None
        return cls(
            found["durationS"],
            found["speechS"],
            found["levelDb"],
            found["snrDb"],
            tuple(found["warnings"]),
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
    def from_json(cls, found: Json) -> Profile:
        phrases = found["phrases"]
        return cls(
            found["profileId"],
            found["userId"],
            found["state"],
            None if phrases is None else tuple(phrases),
            found["enrollmentsCount"],
            found["remainingEnrollmentsCount"],
            datetime.fromisoformat(found["created"]),
            optional_time(found["lockedUntil"]),
            found,
        )


@dataclass(frozen=True)
class Enrolment:
    """Recording that was added to a profile, and the profile with it."""

    number: int
    profile: Profile
    quality: Quality | None
    raw: Json = field(repr=False, compare=False)

    @classmethod
    def from_json(cls, found: Json) -> Enrolment:
        quality = Quality.from_json(found["quality"])
        return cls(found["enrollmentId"], Profile.from_json(found), quality, found)


@dataclass(frozen=True)
class Decision:
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
    quality: Quality | None
    raw: Json = field(repr=False, compare=False)

    @property
    def is_accepted(self) -> bool:
        return self.verdict == "accept"

    @classmethod
    def from_json(cls, found: Json) -> Decision:
        return cls(
            found["resultId"],
            found["decision"],
            found["reason"],
            found["voice"],
            found["phrase"],
            found["llr"],
            Quality.from_json(found["quality"]),
            found,
        )


@dataclass(frozen=True)
class Challenge:
    """Random phrase for one verification."""

    id: str
    profile_id: str
    phrases: tuple[str, ...]
    expires: datetime

    @classmethod
    def from_json(cls, found: Json) -> Challenge:
        expires = datetime.fromisoformat(found["expires"])
        return cls(found["challengeId"], found["profileId"], tuple(found["phrases"]), expires)


@dataclass(frozen=True)
class Candidate:
    """Person whose voice a recording may have; llr and probability are None unless the key may see them."""

    profile_id: str
    user_id: str | None
    llr: float | None
    probability: float | None

    @classmethod
    def from_json(cls, found: Json) -> Candidate:
        return cls(found["profileId"], found["userId"], found["llr"], found["probability"])


@dataclass(frozen=True)
class Identification:
    """Ranked people, and the identified profile; None: nobody who is enrolled, or not certain."""

    identified: str | None
    candidates: tuple[Candidate, ...]
    reason: str | None
    raw: Json = field(repr=False, compare=False)

    @classmethod
    def from_json(cls, found: Json) -> Identification:
        candidates = tuple(Candidate.from_json(candidate) for candidate in found["candidates"])
        return cls(found["identified"], candidates, found["reason"], found)
