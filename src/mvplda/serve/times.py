"""Conversion of times to text."""

from __future__ import annotations

from datetime import UTC, datetime

from .tables import is_time


def iso(at: float) -> str:
    """Return a time, in seconds since 1970, as text in ISO 8601: in UTC, with milliseconds."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def optional_iso(at: float | None) -> str | None:
    """Return a time in seconds since 1970 as text, see `iso`; None for None."""
    return None if at is None else iso(at)


def stored_iso(at: float) -> str:
    """Return a stored time as text, see `iso`; the beginning of 1970 if the stored value is damaged."""
    return iso(at if is_time(at) else 0.0)
