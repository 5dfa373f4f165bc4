"""Errors of foreign readers in our words."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ..exceptions import FileFormatError, MvpldaError
from .text import PathLike


@contextmanager
def foreign(path: PathLike, what: str) -> Iterator[None]:
    """Whatever a library raises on a damaged file becomes a `FileFormatError` that names the file."""
    try:
        yield
    except (MvpldaError, FileNotFoundError, PermissionError):
        raise
    except Exception as error:  # parsers of damaged bytes raise anything
        reason = str(error).strip().splitlines()
        detail = reason[0] if reason else type(error).__name__
        raise FileFormatError(f"{path} is damaged or not {what}: {detail}") from error
