"""Answers of the service as records; the attribute `raw` of most records has all fields of the answer as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

Json = Mapping[str, Any]
Verdict = Literal["accept", "reject", "inconclusive"]


def optional_time(text: str | None) -> datetime | None:
    """Return the time in a text in ISO 8601; None if `text` is None."""
    return None if text is None else datetime.fromisoformat(text)


@dataclass(frozen=True)
class RecordingQuality:
    """Measured quality of a recording.

    Parameters
    ----------
    duration_s : length in seconds
    speech_s : seconds of speech in the recording
    level_db : mean level of the speech, in dB relative to full scale
    snr_db : signal-to-noise ratio in dB; None: it cannot be measured
    warnings : codes of the faults of the recording, such as "noisy"
    """

    duration_s: float
    speech_s: float
    level_db: float
    snr_db: float | None
    warnings: tuple[str, ...]

    @classmethod
    def from_json(cls, reply: Json | None) -> RecordingQuality | None:
        """Convert the field ``quality`` of an answer to a record; return None if the field is null."""
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
    """Profile of a person, without vectors.

    Parameters
    ----------
    id : id of the profile
    user_id : name of the person; None: no name is stored
    state : "created", "enrolling", "enrolled", "stale", "expired", "damaged", "opted_out" or "deleted"
    phrases : phrases of the profile; None if the API key has the role verify, which must not see them
    enrolments : number of recordings
    remaining : number of recordings that are still needed to enrol a first phrase
    created : time of creation
    locked_until : time until which the profile is locked after too many rejections; None: not locked
    raw : all fields of the answer
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
        """Whether the profile can be verified."""
        return self.state == "enrolled"

    @classmethod
    def from_json(cls, reply: Json) -> Profile:
        """Convert an answer, or an object in it, from JSON to a record."""
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
    """Recording that was added to a profile.

    Parameters
    ----------
    number : number of the recording in its profile
    profile : the profile, including the new recording
    quality : quality of the recording; None for a vector
    raw : all fields of the answer
    """

    number: int
    profile: Profile
    quality: RecordingQuality | None
    raw: Json = field(repr=False, compare=False)

    @classmethod
    def from_json(cls, reply: Json) -> Enrolment:
        """Convert an answer, or an object in it, from JSON to a record."""
        quality = RecordingQuality.from_json(reply["quality"])
        return cls(reply["enrollmentId"], Profile.from_json(reply), quality, reply)


@dataclass(frozen=True)
class VerificationDecision:
    """Decision about a claimed person and phrase.

    Parameters
    ----------
    result_id : id of the decision in the audit
    verdict : "accept", "reject" or "inconclusive"
    reason : reason code of a rejection or an inconclusive verdict; None for an acceptance, and if the policy of the API
        key hides the reason
    voice, phrase : verdicts about the voice alone and about the phrase alone; None if the policy of the API key hides
        them, or if the recording was not scored
    llr : natural log-likelihood ratio of the claim (owner and phrase); None as for `voice`
    quality : quality of the recording; None for a vector
    raw : all fields of the answer
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
        """Whether the verdict is "accept"."""
        return self.verdict == "accept"

    @classmethod
    def from_json(cls, reply: Json) -> VerificationDecision:
        """Convert an answer, or an object in it, from JSON to a record."""
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
    """Challenge of a profile: phrase or words to be said in the next verification.

    Parameters
    ----------
    id : id of the challenge, to be sent with the verification
    profile_id : id of the profile
    phrases : tuple with one text, the phrase or the words to be said
    expires : time of expiry
    """

    id: str
    profile_id: str
    phrases: tuple[str, ...]
    expires: datetime

    @classmethod
    def from_json(cls, reply: Json) -> ProfileChallenge:
        """Convert an answer, or an object in it, from JSON to a record."""
        expires = datetime.fromisoformat(reply["expires"])
        return cls(reply["challengeId"], reply["profileId"], tuple(reply["phrases"]), expires)


@dataclass(frozen=True)
class SpeakerCandidate:
    """Profile whose owner is possibly the speaker of an identified recording.

    Parameters
    ----------
    profile_id : id of the profile
    user_id : name of the owner; None: no name is stored, or the API key must not see it
    llr : natural log-likelihood ratio of the same speaker; None if the policy of the API key hides it
    probability : probability that the owner is the speaker; None if the policy of the API key hides it
    """

    profile_id: str
    user_id: str | None
    llr: float | None
    probability: float | None

    @classmethod
    def from_json(cls, reply: Json) -> SpeakerCandidate:
        """Convert an answer, or an object in it, from JSON to a record."""
        return cls(reply["profileId"], reply["userId"], reply["llr"], reply["probability"])


@dataclass(frozen=True)
class SpeakerIdentification:
    """Result of an identification.

    Parameters
    ----------
    identified : id of the identified profile; None: the speaker was not identified
    candidates : most probable profiles, best first
    reason : reason code if the recording cannot be used; else None
    raw : all fields of the answer
    """

    identified: str | None
    candidates: tuple[SpeakerCandidate, ...]
    reason: str | None
    raw: Json = field(repr=False, compare=False)

    @classmethod
    def from_json(cls, reply: Json) -> SpeakerIdentification:
        """Convert an answer, or an object in it, from JSON to a record."""
        candidates = tuple(
            SpeakerCandidate.from_json(candidate) for candidate in reply["candidates"]
        )
        return cls(reply["identified"], candidates, reply["reason"], reply)
