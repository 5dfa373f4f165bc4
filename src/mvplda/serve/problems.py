"""Answers that are no success, in the shape of RFC 9457 (problem details)."""

from __future__ import annotations

from typing import Any

TITLES = {
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    409: "Conflict",
    410: "Gone",
    413: "Content Too Large",
    415: "Unsupported Media Type",
    422: "Unprocessable Content",
    429: "Too Many Requests",
    500: "Internal Server Error",
    503: "Service Unavailable",
    507: "Insufficient Storage",
}


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

    def body(self, instance: str = "") -> dict[str, Any]:
        fields: dict[str, Any] = {
            "type": f"urn:mvplda:{self.kind}",
            "title": TITLES.get(self.status, "Problem"),
            "status": self.status,
            "detail": self.detail,
        }
        if instance:
            fields["instance"] = instance
        return fields | self.more


def no_model() -> Problem:
    return Problem(503, "no-model", "no model is loaded", wait=30)


def conflict(state: str, detail: str) -> Problem:
    """The profile is in a state in which this cannot be done."""
    return Problem(409, "state", detail, state=state)
