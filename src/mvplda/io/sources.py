"""Where bytes come from: files, pipes, standard input; gzip is seen by its first bytes. And how damage is told.

A pipe can be opened and read once, so nothing here looks into one before it is read.
"""

from __future__ import annotations

import gzip
import os
import shutil
import sys
import tempfile
import weakref
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from .._typing import PathLike
from ..exceptions import FileFormatError, MvpldaError
from ..persistence import STANDARD

GZIP = b"\x1f\x8b"


def problem(path: PathLike, reason: str, line: int | None = None) -> FileFormatError:
    """The error that names the file, and the line counted from 1."""
    where = f"{path}, line {line}" if line is not None else f"{path}"
    return FileFormatError(f"{where}: {reason}")


def fail(path: PathLike, reason: str, line: int | None = None) -> NoReturn:
    """Raise the error that names the file and the line."""
    raise problem(path, reason, line)


@contextmanager
def wrap_reader_errors(path: PathLike, what: str) -> Iterator[None]:
    """Whatever a library raises on a damaged file becomes a `FileFormatError` that names the file."""
    try:
        yield
    except (MvpldaError, FileNotFoundError, PermissionError):
        raise
    except Exception as error:  # parsers of damaged bytes raise anything
        reason = str(error).strip().splitlines()
        detail = reason[0] if reason else type(error).__name__
        raise FileFormatError(f"{path} is damaged or not {what}: {detail}") from error


def must_exist(path: PathLike) -> None:
    if str(path) == STANDARD:
        return
    if Path(path).is_dir():
        fail(path, "this is a folder; a file was expected")
    if not Path(path).exists():
        raise FileNotFoundError(f"there is no file {path}")


def is_stream(path: PathLike) -> bool:
    """Whether this can be read only once: standard input, a pipe, a device."""
    return str(path) == STANDARD or (Path(path).exists() and not Path(path).is_file() and not Path(path).is_dir())


_DRAINED: list[Any] = []
"""Standard input, once it was read."""


def standard_input() -> Any:
    """The bytes of standard input, to be read to the end; a second time nothing would come."""
    stream = sys.stdin.buffer
    if any(stream is other for other in _DRAINED):
        raise FileFormatError("standard input (-) was read already: it can stand for one file only")
    _DRAINED[:] = [stream]
    return stream


def read_bytes(path: PathLike) -> bytes:
    """Everything in a file, or from standard input for ``-``; what was compressed with gzip is unpacked."""
    must_exist(path)
    data = standard_input().read() if str(path) == STANDARD else Path(path).read_bytes()
    if data[:2] != GZIP:
        return data
    with _unpacking(path):
        return gzip.decompress(data)


class OnDisk:
    """A file that can be opened by its name as often as needed; a stream or a gzip file is copied to one.

    name : what it was called by the user, for errors
    file : where its bytes are, as long as this object lives
    """

    def __init__(self, path: PathLike) -> None:
        must_exist(path)
        self.name = self.file = str(path)
        if is_stream(path):
            source: Any = standard_input() if self.name == STANDARD else open(path, "rb")  # noqa: SIM115
            self._keep(source)
            if self.name != STANDARD:
                source.close()
        if self.head(2) == GZIP:
            with _unpacking(path), gzip.open(self.file) as packed:
                self._keep(packed)

    def _keep(self, source: Any) -> None:
        handle, name = tempfile.mkstemp(prefix="mvplda-")
        weakref.finalize(self, os.unlink, name)
        with os.fdopen(handle, "wb") as copy:
            shutil.copyfileobj(source, copy)
        self.file = name

    def head(self, size: int) -> bytes:
        """The first bytes."""
        with open(self.file, "rb") as file:
            return file.read(size)


@contextmanager
def _unpacking(path: PathLike) -> Iterator[None]:
    try:
        yield
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise problem(path, f"the gzip file is truncated or damaged: {error}") from error
