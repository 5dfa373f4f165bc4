"""Text files of the field: read whole, split on ASCII whitespace, errors with file and line.

Kaldi separates fields with ASCII blanks, so an id may hold any other character: a
no-break space or an ideographic space is part of it. Lines end in LF or CRLF, a
byte order mark is skipped, and blank lines are passed over but counted.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from ..exceptions import FileFormatError, LabelError
from ..files import write_atomically

PathLike = str | os.PathLike[str]
Names = NDArray[np.str_]

STANDARD = "-"
"""Stands for standard input or output."""
LONGEST_ID = 1000
BLANKS = " \t\n\r\v\f"


def problem(path: PathLike, reason: str, line: int | None = None) -> FileFormatError:
    """The error that names the file, and the line counted from 1."""
    where = f"{path}, line {line}" if line is not None else f"{path}"
    return FileFormatError(f"{where}: {reason}")


def fail(path: PathLike, reason: str, line: int | None = None) -> NoReturn:
    """Raise the error that names the file and the line."""
    raise problem(path, reason, line)


def read_bytes(path: PathLike) -> bytes:
    """Everything in a file, or from standard input for ``-``."""
    if str(path) == STANDARD:
        return sys.stdin.buffer.read()
    file = Path(path)
    if file.is_dir():
        fail(path, "this is a folder; a file was expected")
    if not file.exists():
        raise FileNotFoundError(f"there is no file {path}")
    return file.read_bytes()


def read_lines(path: PathLike) -> list[bytes]:
    """Lines of a UTF-8 text file without their ends; text that is no UTF-8 is an error."""
    return _lines_of(path, read_bytes(path))


def read_head(path: PathLike, count: int = 1000) -> list[bytes]:
    """The first lines of a text file that are not blank."""
    if not Path(path).is_file():
        return read_lines(path)  # for the error about what it is instead
    with open(path, "rb") as file:
        lines = _lines_of(path, b"".join(islice(file, count)))
    filled = [line for line in lines if line.strip()]
    if not filled:
        fail(path, "the file is empty, or begins with blank lines")
    return filled


def _lines_of(path: PathLike, data: bytes) -> list[bytes]:
    data = data.removeprefix(b"\xef\xbb\xbf")
    try:
        data.decode()
    except UnicodeDecodeError as error:
        fail(path, f"not UTF-8 text ({error.reason}): convert the file", data.count(b"\n", 0, error.start) + 1)
    if b"\0" in data:
        fail(path, "not a text file: it holds zero bytes", data.count(b"\n", 0, data.index(b"\0")) + 1)
    return data.replace(b"\r\n", b"\n").split(b"\n")


def read_fields(path: PathLike, widths: Sequence[int], expected: str) -> list[list[bytes]]:
    """Fields of every line that is not blank; all lines have one of the widths, the same one.

    Parameters
    ----------
    widths : numbers of fields that a line may have
    expected : what a line should hold, for the error
    """
    rows = [line.split() for line in read_lines(path)]
    check_widths(path, rows, widths, expected)
    return [row for row in rows if row]


def check_widths(path: PathLike, rows: Sequence[Sequence[object]], widths: Sequence[int], expected: str) -> None:
    """All rows that are not empty have the same number of fields, one of the widths; row i is line i + 1."""
    found = set(map(len, rows)) - {0}
    if not found:
        fail(path, f"the file is empty; expected lines of {expected}")
    if len(found) == 1 and found <= set(widths):
        return
    width = next((len(row) for row in rows if row), 0)
    for number, row in enumerate(rows, 1):
        if row and len(row) not in widths:
            fail(path, f"{len(row)} field(s); expected {expected}", number)
        if row and len(row) != width:
            fail(path, f"{len(row)} field(s) where the lines before have {width}; expected {expected}", number)


def line_of(lines: Sequence[bytes], entry: int) -> int:
    """Number of the line that holds an entry (from 0) when blank lines are passed over."""
    filled = [number for number, line in enumerate(lines, 1) if line.strip()]
    return filled[entry]


def as_names(path: PathLike, fields: Iterable[bytes | str]) -> Names:
    """Ids as an array of text; one that is absurdly long is an error."""
    names = [field.decode() if isinstance(field, bytes) else field for field in fields]
    longest = max(map(len, names), default=0)
    if longest > LONGEST_ID:
        name = next(name for name in names if len(name) == longest)
        fail(path, f"an id of {longest} characters ({name[:20]!r}...); expected at most {LONGEST_ID}")
    return np.array(names, dtype=np.str_)


def check_id(name: object) -> str:
    """An id as a line can hold it: text, not empty, without blanks."""
    text = str(name)
    if not text or len(text) > LONGEST_ID or any(c in BLANKS or c == "\0" for c in text):
        raise LabelError(
            f"{text[:40]!r} cannot be written as an id: it is empty, holds a blank, or is longer than "
            f"{LONGEST_ID} characters. Rename it"
        )
    return text


def check_ids(names: Iterable[object]) -> list[str]:
    """Ids that lines can hold."""
    texts = [str(name) for name in names]
    joined = "".join(texts)
    if not all(texts) or any(c in joined for c in BLANKS + "\0") or max(map(len, texts), default=0) > LONGEST_ID:
        for text in texts:
            check_id(text)
    return texts


def write_text(path: PathLike, lines: Iterable[str]) -> None:
    """Write lines, all or nothing, or to standard output for ``-``."""
    data = "".join(f"{line}\n" for line in lines).encode()
    if str(path) == STANDARD:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    else:
        write_atomically(path, data)


def repeated(names: Iterable[object]) -> tuple[int, object | None]:
    """How many entries repeat an earlier one, and the first that does."""
    seen: set[object] = set()
    count, first = 0, None
    for name in names:
        if name in seen:
            count, first = count + 1, name if first is None else first
        seen.add(name)
    return count, first
