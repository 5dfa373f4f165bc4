"""Low-level file access: streams such as standard input, gzip, lines of text, and ids."""

from __future__ import annotations

import gzip
import math
import os
import re
import shutil
import sys
import tempfile
import weakref
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, NoReturn

import numpy as np
from numpy.typing import NDArray

from .._typing import PathLike
from ..atomic_files import STANDARD, atomic_write, file_type
from ..exceptions import FileFormatError, LabelError, MvpldaError

Names = NDArray[np.str_]

LONGEST_ID = 1000
"""Largest number of characters of an id."""
BLOCK_BYTES = 2**18
"""Number of bytes of a text file that are read at a time."""
GZIP = b"\x1f\x8b"
"""First bytes of a file that is compressed with gzip."""
BLANKS = " \t\n\r\v\f"
UNWRITABLE = re.compile(f"[{BLANKS}\0]")
"""Characters that an id in a text file cannot contain."""
MARK = b"\xef\xbb\xbf"
"""Byte order mark, with which some programs begin text files."""


def fail(path: PathLike, reason: str, line: int | None = None) -> NoReturn:
    """Raise a `FileFormatError` that names the file, the line if there is one (counted from 1), and the reason."""
    location = str(path)
    if line is not None:
        location += f", line {line}"
    raise FileFormatError(f"{location}: {reason}")


@contextmanager
def wrap_reader_errors(path: PathLike, expected: str) -> Iterator[None]:
    """Return a context in which the errors of other libraries about a damaged file become `FileFormatError`.

    Errors of this package, `FileNotFoundError` and `PermissionError` stay unchanged.

    path : the file, for the error
    expected : description of the expected format; the error also names the actual one if the first bytes show it
    """
    try:
        yield
    except (MvpldaError, FileNotFoundError, PermissionError):
        raise
    except Exception as error:  # parsers of damaged bytes raise anything
        detail = (str(error).strip() or type(error).__name__).splitlines()[0]
        if Path(path).is_file():
            actual = file_type(OnDisk(path).head(8))
            if actual and not actual.startswith(expected):
                detail = f"it is {actual}"
        raise FileFormatError(f"{path} is damaged or not {expected}: {detail}") from error


def is_stream(path: PathLike) -> bool:
    """Return whether a path can be read only once: standard input (``-``), a pipe or a device."""
    if str(path) == STANDARD:
        return True
    file = Path(path)
    return file.exists() and not file.is_file() and not file.is_dir()


_DRAINED: list[IO[bytes]] = []
"""Standard input, once it was read; empty before."""


class OnDisk:
    """File that can be opened repeatedly; a stream or a gzip file is copied, uncompressed, to a temporary file.

    path : path given by the user; ``-`` is standard input

    Attributes
    ----------
    name : path given by the user, for error messages
    file : path of the uncompressed bytes; a temporary file is deleted together with this object
    """

    def __init__(self, path: PathLike) -> None:
        self.name = self.file = str(path)
        if self.name == STANDARD:
            if [sys.stdin.buffer] == _DRAINED:
                raise FileFormatError(
                    "standard input (-) was read already: pass - for one input only, and files for the others"
                )
            _DRAINED[:] = [sys.stdin.buffer]
            self._copy(sys.stdin.buffer)
        elif Path(path).is_dir():
            fail(path, "expected a file; this is a folder")
        elif not Path(path).exists():
            raise FileNotFoundError(f"there is no file {path}")
        elif is_stream(path):
            with open(path, "rb") as pipe:
                self._copy(pipe)
        if self.head(2) == GZIP:
            try:
                with gzip.open(self.file) as packed:
                    self._copy(packed)
            except (gzip.BadGzipFile, EOFError, zlib.error) as error:
                fail(path, f"the gzip file is truncated or damaged: {error}")

    def _copy(self, source: IO[bytes] | gzip.GzipFile) -> None:
        """Copy an open file to a temporary file, which becomes `file`."""
        handle, name = tempfile.mkstemp(prefix="mvplda-")
        weakref.finalize(self, os.unlink, name)
        with os.fdopen(handle, "wb") as copy:
            shutil.copyfileobj(source, copy)
        self.file = name

    def head(self, size: int) -> bytes:
        """Return the first `size` uncompressed bytes; all bytes for a size of -1."""
        with open(self.file, "rb") as file:
            return file.read(size)


def read_bytes(path: PathLike) -> bytes:
    """Return all bytes of a file, or of standard input for ``-``; a gzip file is uncompressed."""
    return OnDisk(path).head(-1)


# Kaldi separates fields with ASCII blanks only, so an id may contain a no-break or an ideographic space. Lines
# therefore stay bytes until they are split. They end in LF, CRLF or CR; a byte order mark is skipped; blank lines are
# skipped but counted.


def lines_of(source: OnDisk, commas: bool = False) -> Iterator[bytes]:
    """Yield the lines of a UTF-8 text file as bytes without their line ends, reading a block at a time.

    Raises `FileFormatError` for a file that is not text.

    commas : whether to replace commas by blanks
    """
    first = 1
    with open(source.file, "rb") as file:
        while block := file.read(BLOCK_BYTES) + file.readline():
            if first == 1:
                block = block.removeprefix(MARK)
            block = block.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
            _check_text(source.name, block, first)
            if commas:
                block = block.replace(b",", b" ")
            lines = block.split(b"\n")
            if not lines[-1]:
                lines.pop()  # empty text after the last line end of the block
            yield from lines
            first += len(lines)


def _check_text(path: PathLike, block: bytes, first: int) -> None:
    """Raise `FileFormatError` unless a block of a file is UTF-8 text without zero bytes.

    first : line number of the first line of the block, for the error
    """
    try:
        block.decode()
        offset = block.find(b"\0")
        reason = "expected a text file; this line contains zero bytes"
    except UnicodeDecodeError as error:
        offset = error.start
        reason = f"expected UTF-8 text ({error.reason}): convert the file to UTF-8"
    if offset >= 0:
        actual = file_type(block)
        if first == 1 and actual:
            fail(path, f"expected a text file; this is {actual}")
        fail(path, reason, first + block.count(b"\n", 0, offset))


def filled_lines(source: OnDisk, count: int) -> list[bytes]:
    """Return the first `count` lines that are not blank, or all such lines if there are fewer.

    Raises `FileFormatError` if there are none.
    """
    lines = list(islice((line for line in lines_of(source) if line.strip()), count))
    if not lines:
        fail(source.name, "the file is empty")
    return lines


def as_text(value: object) -> str:
    """Return a value as text: bytes, such as a field of a line, are decoded as UTF-8."""
    return value.decode() if isinstance(value, bytes) else str(value)


def as_names(path: PathLike, fields: Iterable[object]) -> Names:
    """Return ids as an array of text (n,); raise `FileFormatError` for an id that is too long, NaN or infinite.

    path : file of the ids, for the error
    """
    ids = list(fields)
    if any(isinstance(name, float) and not math.isfinite(name) for name in ids):
        fail(path, "an id is NaN or infinite: write ids as text or finite numbers")
    names = list(map(as_text, ids))
    longest = max(names, key=len, default="")
    if len(longest) > LONGEST_ID:
        fail(
            path,
            f"an id has {len(longest)} characters ({longest[:20]!r}...); expected at most {LONGEST_ID}",
        )
    # with the width given, NumPy does not search for the longest text
    return np.array(names, dtype=f"U{max(len(longest), 1)}")


def check_ids(names: Iterable[object]) -> list[str]:
    """Return ids as text; raise `LabelError` for an id that is empty, too long, or contains a blank."""
    texts = list(map(str, names))
    for text in texts:
        if fault := _fault_of_id(text):
            raise LabelError(
                f"the id {text[:40]!r} cannot be written to a list, because it {fault}: rename it"
            )
    return texts


def _fault_of_id(text: str) -> str:
    """Return why text cannot be an id in a text file, such as "is empty"; "" if it can."""
    if not text:
        return "is empty"
    if UNWRITABLE.search(text):
        return "contains a blank or a zero byte"
    if len(text) > LONGEST_ID:
        return f"has {len(text)} characters, more than {LONGEST_ID}"
    return ""


def write_text(path: PathLike, lines: Iterable[str]) -> None:
    """Write lines atomically to a file, or to standard output for ``-``."""
    with (
        atomic_write(path) as (scratch,),
        scratch.open("w", encoding="utf-8", newline="\n") as file,
    ):
        file.writelines(f"{line}\n" for line in lines)


def repeated(names: Iterable[object]) -> tuple[int, object | None]:
    """Return how many values repeat an earlier one, and the first value that is repeated; (0, None) if none is."""
    counts = Counter(names)
    duplicates = (name for name, count in counts.items() if count > 1)
    return counts.total() - len(counts), next(duplicates, None)
