"""Answers of the service as records; their attribute `raw` has all fields of the answer as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

Json = Mapping[str, Any]
Verdict = Literal["accept", "reject", "inconclusive"]


def optional_time(text: str | None) -> datetime | None:
    """Return a time from text in ISO 8601; None for None."""
    return None if text is None else datetime.fromisoformat(text)


@dataclass(frozen=True)
class RecordingQuality:
    """Measured quality of a recording.

    Parameters
    ----------
    duration_s, speech_s : length, and speech in it, in seconds
    level_db : mean level of the speech, in dB relative to full scale
    snr_db : signal-to-noise ratio in dB; None: it cannot be measured
    warnings : names of faults, such as "noisy"
    """

    duration_s: float
    speech_s: float
    level_db: float
    snr_db: float | None
    warnings: tuple[str, ...]

    @classmethod
    def from_json(cls, reply: Json | None) -> RecordingQuality | None:
        """Return the record of the field ``quality`` of an answer; None for None."""
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
    phrases : its phrases; None for a key of the role verify
    enrolments : number of recordings
    remaining : number of recordings that are missing until the first phrase is enrolled
    created : time of creation
    locked_until : end of the lock after rejections; None: not locked
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
        """Return the record of an answer in JSON."""
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
    profile : the profile after the enrolment
    quality : quality of the recording; None for a vector
    raw : all fields of the answer
    """

    number: int
    profile: Profile
    quality: RecordingQuality | None
    raw: Json = field(repr=False, compare=False)

    @classmethod
    def from_json(cls, reply: Json) -> Enrolment:
        """Return the record of an answer in JSON."""
        quality = RecordingQuality.from_json(reply["quality"])
        return cls(reply["enrollmentId"], Profile.from_json(reply), quality, reply)


@dataclass(frozen=True)
class VerificationDecision:
    """Decision about a claimed person and phrase.

    Parameters
    ----------
    result_id : id of the decision in the audit
    verdict : "accept", "reject" or "inconclusive"
    reason : reason code; None for an acceptance, and for reasons that the key may not see
    voice, phrase : verdicts about voice and phrase alone; None if the key may not see them, or if nothing was scored
    llr : natural log-likelihood ratio of the claim; None as for `voice`
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
        """Return the record of an answer in JSON."""
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
    """Challenge of a profile: what to say in its next verification.

    Parameters
    ----------
    id : id of the challenge, to be sent with the verification
    profile_id : id of the profile
    phrases : what to say; one text
    expires : time of expiry
    """

    id: str
    profile_id: str
    phrases: tuple[str, ...]
    expires: datetime

    @classmethod
    def from_json(cls, reply: Json) -> ProfileChallenge:
        """Return the record of an answer in JSON."""
        expires = datetime.fromisoformat(reply["expires"])
        return cls(reply["challengeId"], reply["profileId"], tuple(reply["phrases"]), expires)


@dataclass(frozen=True)
class SpeakerCandidate:
    """Profile that may be the speaker's.

    Parameters
    ----------
    profile_id : id of the profile
    user_id : name of the person; None: no name is stored, or the key may not see it
    llr : natural log-likelihood ratio of the same speaker; None if the key may not see it
    probability : probability that the speaker is the owner; None if the key may not see it
    """

    profile_id: str
    user_id: str | None
    llr: float | None
    probability: float | None

    @classmethod
    def from_json(cls, reply: Json) -> SpeakerCandidate:
        """Return the record of an answer in JSON."""
        return cls(reply["profileId"], reply["userId"], reply["llr"], reply["probability"])


@dataclass(frozen=True)
class SpeakerIdentification:
    """Result of an identification.

    Parameters
    ----------
    identified : id of the identified profile; None: no profile is probable enough
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
        """Return the record of an answer in JSON."""
        candidates = tuple(
            SpeakerCandidate.from_json(candidate) for candidate in reply["candidates"]
        )
        return cls(reply["identified"], candidates, reply["reason"], reply)
