"""HTTP requests of all calls of the service, and the functions that read their answers, shared by both clients."""

from __future__ import annotations

import json
import random
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, Generic, TypeVar

from ._errors import RefusedRecordingError, ServiceError
from ._replies import (
    Enrolment,
    Json,
    Profile,
    ProfileChallenge,
    SpeakerIdentification,
    VerificationDecision,
)

Reply = TypeVar("Reply")
Sound = bytes | str | PathLike[str]
"""Recording: the bytes of a WAV, FLAC, Ogg or WebM file, or its path."""

MEDIA_TYPES = {
    ".wav": "audio/wav",
    ".flac": "audio/flac",
    ".ogg": "audio/ogg",
    ".opus": "audio/ogg",
    ".webm": "audio/webm",
}
# HTTP statuses after which the same call may succeed later.
PASSING = (408, 425, 429, 502, 503, 504)


@dataclass(frozen=True)
class RetryPolicy:
    """Rules for repeating a call that got no answer, or that the service refused for a while.

    Parameters
    ----------
    attempts : largest number of attempts, including the first
    first_wait_s : seconds to wait before the second attempt, doubled for each further attempt, and multiplied by a
        random factor between 0.5 and 1
    longest_wait_s : longest wait between two attempts, in seconds; if the service asks for a longer wait, the call is
        not repeated
    """

    attempts: int = 4
    first_wait_s: float = 0.3
    longest_wait_s: float = 10.0

    def wait(self, attempt: int, error: ServiceError | None) -> float | None:
        """Return the seconds to wait before the next attempt of a call.

        Parameters
        ----------
        attempt : number of attempts so far
        error : refusal of the latest attempt; None: that attempt got no answer

        Returns
        -------
        seconds to wait; None: the call must not be sent again
        """
        if attempt >= self.attempts:
            return None
        wait = self.first_wait_s * 2.0 ** (attempt - 1) * random.uniform(0.5, 1.0)
        if error is None:
            return min(wait, self.longest_wait_s)
        is_passing = error.status in PASSING or error.kind == "in-progress"
        wait = max(wait, error.retry_after or 0.0)
        return wait if is_passing and wait <= self.longest_wait_s else None


@dataclass(frozen=True)
class Call(Generic[Reply]):
    """HTTP request of one call of the service, with the function that reads the answer.

    Parameters
    ----------
    method : HTTP method
    path : path relative to ``/v1/``
    read : converts the JSON of the answer to a record
    query : {name: value} of the fields in the address
    content : body; None: no body
    headers : headers besides those that the client sends with every call
    """

    method: str
    path: str
    read: Callable[[Json], Reply]
    query: Mapping[str, Any] = field(default_factory=dict)
    content: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


def once(headers: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return `headers` and a random Idempotency-Key, with which the service executes a repeated call only once."""
    return {**(headers or {}), "Idempotency-Key": secrets.token_urlsafe(18)}


def given(**fields: object) -> dict[str, Any]:
    """Return the arguments that are not None, as {name: value}."""
    return {name: value for name, value in fields.items() if value is not None}


def json_call(path: str, read: Callable[[Json], Reply], fields: Mapping[str, Any]) -> Call[Reply]:
    """Return a POST call with `fields` as its JSON body; `read` converts its answer to a record."""
    content = json.dumps(fields).encode()
    return Call("POST", path, read, {}, content, once({"Content-Type": "application/json"}))


def recording_call(
    path: str,
    read: Callable[[Json], Reply],
    sound: Sound | None,
    vector: Sequence[float] | None,
    fields: Mapping[str, Any],
) -> Call[Reply]:
    """Return a POST call with a recording, or with a vector of the service's extractor.

    Parameters
    ----------
    path : path relative to ``/v1/``
    read : converts the JSON of the answer to a record
    sound : bytes of a file, or its path; None: pass `vector`
    vector : vector in place of sound; None: pass `sound`
    fields : further fields: sent in the query with sound, in the JSON body with a vector

    Raises
    ------
    TypeError : if both of `sound` and `vector` are given, or neither
    """
    if (sound is None) == (vector is None):
        given_inputs = "neither" if sound is None else "both"
        raise TypeError(
            f"expected either sound (bytes of a file, or its path) or vector=; got {given_inputs}"
        )
    if vector is not None:
        return json_call(path, read, {"vector": [float(x) for x in vector], **fields})
    media_type = "application/octet-stream"
    if not isinstance(sound, bytes):
        file = Path(sound)  # type: ignore[arg-type]
        sound, media_type = file.read_bytes(), MEDIA_TYPES.get(file.suffix.lower(), media_type)
    return Call("POST", path, read, fields, sound, once({"Content-Type": media_type}))


def create_profile(user_id: str | None, phrase: str | None, consent: str) -> Call[Profile]:
    """Return the call that creates a profile."""
    fields = given(userId=user_id, phrase=phrase)
    return json_call(
        "profiles", Profile.from_json, {**fields, "consent": {"given": True, "text": consent}}
    )


def profile(profile_id: str) -> Call[Profile]:
    """Return the call that reads a profile."""
    return Call("GET", f"profiles/{profile_id}", Profile.from_json)


def profiles(**query: Any) -> Call[tuple[list[Profile], str | None]]:
    """Return the call that reads one page of profiles.

    Its answer is read as (profiles, after): pass `after` to get the next page; None: this page is the last.

    query : fields of the query: ``userId``, ``search`` and ``after``; those that are None are left out
    """

    def read(found: Json) -> tuple[list[Profile], str | None]:
        return [Profile.from_json(item) for item in found["items"]], found["next"]

    return Call("GET", "profiles", read, given(**query))


def enrol(
    profile_id: str,
    sound: Sound | None,
    vector: Sequence[float] | None,
    phrase: str | None,
    session: str | None,
) -> Call[Enrolment]:
    """Return the call that adds a recording to a profile."""
    fields = given(phrase=phrase, session=session)
    path = f"profiles/{profile_id}/enrollments"
    return recording_call(path, Enrolment.from_json, sound, vector, fields)


def verify(
    profile_id: str, sound: Sound | None, vector: Sequence[float] | None, **fields: Any
) -> Call[VerificationDecision]:
    """Return the call that verifies a recording against a profile.

    fields : further fields of the request, such as ``far``; those that are None are left out
    """
    path = f"profiles/{profile_id}/verify"
    return recording_call(path, VerificationDecision.from_json, sound, vector, given(**fields))


def identify(
    sound: Sound | None,
    vector: Sequence[float] | None,
    candidates: Sequence[str] | None,
    **fields: Any,
) -> Call[SpeakerIdentification]:
    """Return the call that identifies the speaker of a recording.

    fields : further fields of the request, such as ``top``; those that are None are left out
    """
    names: Any = candidates
    if candidates is not None and vector is None:
        names = ",".join(candidates)
    elif candidates is not None:
        names = list(candidates)
    fields = given(candidates=names, **fields)
    return recording_call("identify", SpeakerIdentification.from_json, sound, vector, fields)


def challenge(profile_id: str, kind: str | None) -> Call[ProfileChallenge]:
    """Return the call that requests a challenge for a profile; `kind` is "phrase", "words" or "digits"."""
    return json_call(
        "challenges", ProfileChallenge.from_json, given(profileId=profile_id, kind=kind)
    )


def change(profile_id: str, action: str) -> Call[Profile]:
    """Return the call that changes a profile; `action` is "reset", "unlock" or "opt-out"."""
    return Call("POST", f"profiles/{profile_id}/{action}", Profile.from_json, headers=once())


def delete(profile_id: str) -> Call[Profile]:
    """Return the call that deletes a profile."""
    return Call("DELETE", f"profiles/{profile_id}", Profile.from_json)


def error_of(status: int, headers: Mapping[str, str], content: bytes) -> ServiceError:
    """Return the exception for an answer with an error status, which the service or a proxy in front of it has sent."""
    try:
        fields = dict(json.loads(content))
    except (ValueError, TypeError):
        # not problem details of the service, but an answer of a proxy
        fields = {"detail": content[:200].decode("utf-8", "replace")}
    text = headers.get("retry-after", "")
    retry_after = float(text) if text.isdigit() else None
    kind = ServiceError
    if fields.get("type") == "urn:mvplda:refused" and "reason" in fields:
        kind = RefusedRecordingError
    return kind(status, fields, retry_after)
