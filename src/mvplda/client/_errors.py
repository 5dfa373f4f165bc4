"""Errors of the client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..exceptions import MvpldaError


class ServiceError(MvpldaError):
    """The service refused a call.

    Attributes
    ----------
    status : HTTP status
    kind : kind of the problem, such as ``locked`` or ``not-found``
    detail : sentence for people
    retry_after : seconds to wait before another attempt; None if waiting does not help
    fields : all fields of the answer
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
    """The service refused a recording; `reason` is a code such as ``too_noisy``, and nothing was changed."""

    @property
    def reason(self) -> str:
        return str(self.fields["reason"])


class NoAnswerError(MvpldaError):
    """The service did not answer, after all attempts."""
