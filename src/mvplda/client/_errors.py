"""Exceptions of the clients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..exceptions import MvpldaError


class ServiceError(MvpldaError):
    """Exception for a call that the service refused.

    Attributes
    ----------
    status : HTTP status of the answer
    kind : code of the problem, such as ``locked`` or ``not-found``
    detail : explanation for people, one or two sentences
    retry_after : seconds to wait before another attempt; None: the service asked for no wait
    fields : all fields of the answer

    Parameters
    ----------
    status : HTTP status of the answer
    fields : problem details of the answer (RFC 9457)
    retry_after : seconds to wait before another attempt; None: the service asked for no wait
    """

    def __init__(
        self, status: int, fields: Mapping[str, Any], retry_after: float | None = None
    ) -> None:
        self.status = status
        self.kind = str(fields.get("type", "")).removeprefix("urn:mvplda:")
        self.detail = str(fields.get("detail", ""))
        self.retry_after = retry_after
        self.fields = dict(fields)
        super().__init__(f"{status} {self.kind}: {self.detail}")


class RefusedRecordingError(ServiceError):
    """Exception for a recording that the service refused to enrol; the profile was not changed."""

    @property
    def reason(self) -> str:
        """Reason code of the refusal, such as ``too_noisy``."""
        return str(self.fields["reason"])


class NoAnswerError(MvpldaError):
    """Exception for a call that the service did not answer in any attempt."""
