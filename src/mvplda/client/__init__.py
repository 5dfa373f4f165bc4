"""Client of the HTTP service, for Python: typed answers, retries, and calls that are done once."""

from __future__ import annotations

from ._calls import RetryPolicy
from ._client import AsyncClient, Client
from ._errors import NoAnswerError, RefusedRecordingError, ServiceError
from ._replies import (
    Candidate,
    Challenge,
    Decision,
    Enrolment,
    Identification,
    Profile,
    Quality,
)

__all__ = [
    "AsyncClient",
    "Candidate",
    "Challenge",
    "Client",
    "Decision",
    "Enrolment",
    "Identification",
    "NoAnswerError",
    "Profile",
    "Quality",
    "RefusedRecordingError",
    "RetryPolicy",
    "ServiceError",
]
