"""Python clients of the HTTP service, with typed answers and automatic retries.

A call that is sent again is executed only once by the service.
"""

from __future__ import annotations

from ._calls import RetryPolicy
from ._client import AsyncClient, Client
from ._errors import NoAnswerError, RefusedRecordingError, ServiceError
from ._replies import (
    Enrolment,
    Profile,
    ProfileChallenge,
    RecordingQuality,
    SpeakerCandidate,
    SpeakerIdentification,
    VerificationDecision,
)
from ._streams import StreamLook

__all__ = [
    "AsyncClient",
    "Client",
    "Enrolment",
    "NoAnswerError",
    "Profile",
    "ProfileChallenge",
    "RecordingQuality",
    "RefusedRecordingError",
    "RetryPolicy",
    "ServiceError",
    "SpeakerCandidate",
    "SpeakerIdentification",
    "StreamLook",
    "VerificationDecision",
]
