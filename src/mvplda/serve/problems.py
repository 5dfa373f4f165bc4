"""Answers that are no success, in the shape of RFC 9457 (problem details)."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

# What a body, a row or an answer is.
Json = dict[str, Any]


class Problem(Exception):
    """A refusal or a failure, with its HTTP status.

    kind : short name, which stands in ``type`` of the answer
    detail : a sentence for people
    wait : seconds after which the call may be repeated
    more : further fields of the answer, such as ``reason``
    """

    def __init__(
        self, status: int, kind: str, detail: str, *, wait: float | None = None, **more: Any
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.kind = kind
        self.detail = detail
        self.wait = wait
        self.more = more

    def body(self, instance: str) -> Json:
        return {
            "type": f"urn:mvplda:{self.kind}",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "detail": self.detail,
            "instance": instance,
            **self.more,
        }
