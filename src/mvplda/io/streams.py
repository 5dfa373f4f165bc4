"""Where bytes come from, the lines and tables in them, lists of the field, and vectors as batches."""

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
from ..exceptions import FileFormatError, LabelError, MvpldaError
from ..persistence import STANDARD, atomic_write, kind_of

Names = NDArray[np.str_]

LONGEST_ID = 1000
BLOCK_BYTES = 2**18
GZIP = b"\x1f\x8b"
BLANKS = " \t\n\r\v\f"
UNWRITABLE = re.compile(f"[{BLANKS}\0]")
MARK = b"\xef\xbb\xbf"
"""The byte order mark."""


def fail(path: PathLike, reason: str, line: int | None = None) -> NoReturn:
    """Raise the error that names the file, and the line counted from 1."""
    where = str(path)
    if line is not None:
        where += f", line {line}"
    raise FileFormatError(f"{where}: {reason}")


@contextmanager
def wrap_reader_errors(path: PathLike, what: str) -> Iterator[None]:
    """Whatever a library raises on a damaged file becomes a `FileFormatError` that names the file.

    what : what was expected; what came is said where the first bytes tell
    """
    try:
        yield
    except (MvpldaError, FileNotFoundError, PermissionError):
        raise
    except Exception as error:  # parsers of damaged bytes raise anything
        detail = (str(error).strip() or type(error).__name__).splitlines()[0]
        if Path(path).is_file():
            came = kind_of(OnDisk(path).head(8))
            if came and not came.startswith(what):
                detail = f"it is {came}"
        raise FileFormatError(f"{path} is damaged or not {what}: {detail}") from error


def is_stream(path: PathLike) -> bool:
    """Whether this can be read only once: standard input, a pipe, a device."""
    place = Path(path)
    return str(path) == STANDARD or (place.exists() and not place.is_file() and not place.is_dir())


_DRAINED: list[IO[bytes]] = []
"""Standard input, once it was read."""


class OnDisk:
    """A file that can be opened by its name as often as needed; a stream or a gzip file is copied to one.

    name : what it was called by the user, for errors
    file : where its bytes are, as long as this object lives
    """

    def __init__(self, path: PathLike) -> None:
        self.name = self.file = str(path)
        if self.name == STANDARD:
            if [sys.stdin.buffer] == _DRAINED:
                raise FileFormatError(
                    "standard input (-) was read already: it can stand for one file only"
                )
            _DRAINED[:] = [sys.stdin.buffer]
            self._copy(sys.stdin.buffer)
        elif Path(path).is_dir():
            fail(path, "this is a folder; a file was expected")
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
        handle, name = tempfile.mkstemp(prefix="mvplda-")
        weakref.finalize(self, os.unlink, name)
        with os.fdopen(handle, "wb") as copy:
            shutil.copyfileobj(source, copy)
        self.file = name

    def head(self, size: int) -> bytes:
        """The first bytes; -1: all of them."""
        with open(self.file, "rb") as file:
            return file.read(size)


def read_bytes(path: PathLike) -> bytes:
    """Everything in a file, or from standard input for ``-``; what was compressed with gzip is unpacked."""
    return OnDisk(path).head(-1)


# Text files of the field: split on ASCII whitespace, errors with file and line.
#
# Kaldi separates fields with ASCII blanks, so an id may hold any other character: a
# no-break space or an ideographic space is part of it. Lines are therefore bytes until they
# are split. They end in LF, CRLF or CR, a byte order mark is skipped, and blank lines are
# passed over but counted.


def lines_of(source: OnDisk, commas: bool = False) -> Iterator[bytes]:
    """The lines of a UTF-8 text file without their ends; some are held at a time.

    commas : whether commas separate fields as blanks do
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
                lines.pop()  # what follows the last line end of the block
            yield from lines
            first += len(lines)


def _check_text(path: PathLike, block: bytes, first: int) -> None:
    """Text is UTF-8 without zero bytes; `first` is the number of the block's first line."""
    try:
        block.decode()
        place = block.find(b"\0")
        reason = "not a text file: it holds zero bytes"
    except UnicodeDecodeError as error:
        place = error.start
        reason = f"not UTF-8 text ({error.reason}): convert the file"
    if place >= 0:
        came = kind_of(block)
        if first == 1 and came:
            fail(path, f"expected a text file; this is {came}")
        fail(path, reason, first + block.count(b"\n", 0, place))


def filled_lines(source: OnDisk, count: int) -> list[bytes]:
    """The first lines that are not blank."""
    lines = list(islice((line for line in lines_of(source) if line.strip()), count))
    if not lines:
        fail(source.name, "the file is empty")
    return lines


def as_text(value: object) -> str:
    """A field of a line, or an id of another type, as text."""
    return value.decode() if isinstance(value, bytes) else str(value)


def as_names(path: PathLike, fields: Iterable[object]) -> Names:
    """Ids as an array of text; one that is absurdly long, or no number, is an error."""
    given = list(fields)
    if any(isinstance(name, float) and not math.isfinite(name) for name in given):
        fail(path, "an id is NaN or infinite; ids are text or numbers")
    names = list(map(as_text, given))
    longest = max(names, key=len, default="")
    if len(longest) > LONGEST_ID:
        fail(
            path,
            f"an id of {len(longest)} characters ({longest[:20]!r}...); expected at most {LONGEST_ID}",
        )
    # NumPy need not look for a width that it is given
    return np.array(names, dtype=f"U{max(len(longest), 1)}")


def check_ids(names: Iterable[object]) -> list[str]:
    """Ids as lines can hold them: text, not empty, without blanks."""
    texts = list(map(str, names))
    for text in texts:
        if not text or len(text) > LONGEST_ID or UNWRITABLE.search(text):
            raise LabelError(
                f"{text[:40]!r} cannot be written as an id: it is empty, holds a blank, or is longer than "
                f"{LONGEST_ID} characters. Rename it"
            )
    return texts


def write_text(path: PathLike, lines: Iterable[str]) -> None:
    """Write lines, all or nothing, or to standard output for ``-``."""
    with atomic_write(path) as (part,), part.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{line}\n" for line in lines)


def repeated(names: Iterable[object]) -> tuple[int, object | None]:
    """How many entries repeat an earlier one, and the first that does."""
    counts = Counter(names)
    again = [name for name, count in counts.items() if count > 1]
    return counts.total() - len(counts), next(iter(again), None)
