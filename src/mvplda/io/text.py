"""Text files of the field: read whole, split on ASCII whitespace, errors with file and line.

Kaldi separates fields with ASCII blanks, so an id may hold any other character: a
no-break space or an ideographic space is part of it. Lines end in LF, CRLF or CR, a
byte order mark is skipped, and blank lines are passed over but counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from ..exceptions import LabelError
from ..files import write_atomically
from .sources import OnDisk, PathLike, fail, read_bytes

Names = NDArray[np.str_]

LONGEST_ID = 1000
BLANKS = " \t\n\r\v\f"
MARK = b"\xef\xbb\xbf"
"""The byte order mark."""


def read_lines(path: PathLike) -> list[bytes]:
    """Lines of a UTF-8 text file without their ends; text that is no UTF-8 is an error."""
    return split_lines(path, read_bytes(path))


def split_lines(path: PathLike, data: bytes, first: int = 1) -> list[bytes]:
    """Lines of text that was read from a file, of which the first has this number."""
    data = data.removeprefix(MARK).replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    try:
        data.decode()
    except UnicodeDecodeError as error:
        fail(path, f"not UTF-8 text ({error.reason}): convert the file", first + data.count(b"\n", 0, error.start))
    if b"\0" in data:
        line = first + data.count(b"\n", 0, data.index(b"\0"))
        fail(path, "not a text file: it holds zero bytes", line)
    return data.split(b"\n")


def lines_of(source: OnDisk) -> Iterator[bytes]:
    """The lines of a text file one by one, for files that are not held in memory whole."""
    number = 0
    with open(source.file, "rb") as file:
        for raw in file:
            whole = (raw if number else raw.removeprefix(MARK)).removesuffix(b"\n").removesuffix(b"\r")
            for line in whole.split(b"\r") if b"\r" in whole else (whole,):
                number += 1
                if not line.isascii() or b"\0" in line:
                    split_lines(source.name, line, number)
                yield line


def filled_lines(path: PathLike, lines: Iterable[bytes], count: int) -> list[bytes]:
    """The first lines that are not blank."""
    filled = list(islice((line for line in lines if line.strip()), count))
    if not filled:
        fail(path, "the file is empty")
    return filled


def fields_of(path: PathLike, lines: Iterable[bytes], widths: Sequence[int], expected: str) -> list[list[bytes]]:
    """Fields of every line that is not blank; all lines have one of the widths, the same one.

    Parameters
    ----------
    widths : numbers of fields that a line may have
    expected : what a line should hold, for the error
    """
    rows = [line.split() for line in lines]
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
    write_atomically(path, "".join(f"{line}\n" for line in lines).encode())


def repeated(names: Iterable[object]) -> tuple[int, object | None]:
    """How many entries repeat an earlier one, and the first that does."""
    seen: set[object] = set()
    count, first = 0, None
    for name in names:
        if name in seen:
            count, first = count + 1, name if first is None else first
        seen.add(name)
    return count, first
