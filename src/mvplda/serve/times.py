"""Times of the service as text."""

from __future__ import annotations

from datetime import UTC, datetime

from .tables import is_time


def iso(at: float) -> str:
    """Return a time in ISO 8601, in UTC with milliseconds."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def optional_iso(at: float | None) -> str | None:
    return None if at is None else iso(at)


def stored_iso(at: float) -> str:
    """Return a stored time in ISO 8601; that of a damaged one is the year 1970."""
    return iso(at if is_time(at) else 0.0)
