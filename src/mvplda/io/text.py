"""Text files of the field: read whole, split on ASCII whitespace, errors with file and line.

Kaldi separates fields with ASCII blanks, so an id may hold any other character: a
no-break space or an ideographic space is part of it. Lines end in LF, CRLF or CR, a
byte order mark is skipped, and blank lines are passed over but counted.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._optional import need
from .._typing import PathLike
from ..exceptions import LabelError
from ..persistence import atomic_write, write_atomically
from .sources import OnDisk, fail, read_bytes, wrap_reader_errors

Names = NDArray[np.str_]

LONGEST_ID = 1000
BLOCK_BYTES = 2**18
BLANKS = " \t\n\r\v\f"
MARK = b"\xef\xbb\xbf"
"""The byte order mark."""


def read_lines(path: PathLike) -> list[bytes]:
    """Lines of a UTF-8 text file without their ends; text that is no UTF-8 is an error."""
    return split_lines(path, read_bytes(path))


def split_lines(path: PathLike, data: bytes, first: int = 1) -> list[bytes]:
    """Lines of text that was read from a file, of which the first has this number."""
    if first == 1:
        data = data.removeprefix(MARK)
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
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
    number = 1
    with open(source.file, "rb") as file:
        while block := file.read(BLOCK_BYTES) + file.readline():
            lines = split_lines(source.name, block, number)
            if not lines[-1]:
                lines.pop()  # what follows the last line end of the block
            yield from lines
            number += len(lines)


def texts_of(lines: Iterable[bytes], count: int) -> list[str]:
    """The next lines as text; decoded together, which is several times as fast as one by one."""
    some = list(islice(lines, count))
    return b"\n".join(some).decode().split("\n") if some else []


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
    return np.array(names, dtype=f"U{max(longest, 1)}")  # told its width, NumPy need not look for it


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


# Tables with a header: CSV, tab-separated text and Parquet, as columns of text.


ENROL = ("enrol", "enroll", "enrolment", "enrollment", "model", "modelid")
TEST = ("test", "segment", "segmentid", "testid", "evaluationfileid", "testsegment")
KIND = ("kind", "key", "label", "target", "targettype", "trialtype")
SCORE = ("score", "llr", "scores")


def plain(name: str) -> str:
    """A column's name without case, blanks, hyphens and underscores: ``Model-ID`` is ``modelid``."""
    return name.strip().lower().replace("-", "").replace("_", "").replace(" ", "")


def column_of(header: Sequence[str], names: Sequence[str]) -> int | None:
    """Where the first of these names stands in the header."""
    plains = [plain(name) for name in header]
    return next((plains.index(name) for name in names if name in plains), None)


def needed(path: PathLike, header: Sequence[str], names: Sequence[str]) -> int:
    """Where a column stands that must be there."""
    place = column_of(header, names)
    if place is None:
        fail(path, f"expected a column called {' or '.join(names[:4])}; the header has {', '.join(header)}", 1)
    return place


def read_separated(
    path: PathLike, separator: str | None, lines: Sequence[bytes] | None = None
) -> tuple[list[str], list[tuple[str, ...]]]:
    """Header and columns of a text table; the separator is ``,``, a tab, or None for any blanks.

    lines : those of the file, where they were read before
    """
    lines = read_lines(path) if lines is None else lines
    if separator == ",":
        rows = _comma_rows(path, lines)
    else:
        tab = None if separator is None else separator.encode()
        rows = [[field.decode() for field in line.split(tab)] if line.strip() else [] for line in lines]
    header = next((row for row in rows if row), [])
    if not header:
        fail(path, "the file is empty; expected a header")
    check_widths(path, rows, [len(header)], f"{len(header)} field(s), as in the header {', '.join(header)}")
    filled = [row for row in rows if row][1:]
    if not filled:
        fail(path, "the file has a header and no lines")
    return [name.strip() for name in header], list(zip(*filled, strict=True))


def _comma_rows(path: PathLike, lines: Sequence[bytes]) -> list[list[str]]:
    if not any(b'"' in line for line in lines):
        return [[field.strip(" \t") for field in line.decode().split(",")] if line.strip() else [] for line in lines]
    reader = csv.reader(io.StringIO(b"\n".join(lines).decode()), strict=True, skipinitialspace=True)
    rows: list[list[str]] = []
    try:
        for row in reader:
            rows.extend([[]] * (reader.line_num - 1 - len(rows)))  # a quoted line end: keep row i at line i + 1
            rows.append(row)
    except csv.Error as error:
        fail(path, f"not a table of comma-separated values: {error}", reader.line_num)
    return rows


def read_parquet_columns(path: PathLike, data: bytes | None = None) -> tuple[list[str], list[Any]]:
    """Header and columns of a Parquet table, as lists.

    data : the bytes of the file, where they were read before
    """
    arrow, parquet = need("pyarrow"), need("pyarrow.parquet")
    data = read_bytes(path) if data is None else data
    with wrap_reader_errors(path, "a Parquet file"):
        table = parquet.ParquetFile(arrow.BufferReader(data), page_checksum_verification=True).read()
        table.validate(full=True)
        if table.num_rows == 0:
            fail(path, "the table has no rows")
        for name, column in zip(table.column_names, table.columns, strict=True):
            if column.null_count:
                fail(path, f"{column.null_count} value(s) of column {name!r} are null")
        return list(table.column_names), [column.to_pylist() for column in table.columns]


def write_table(path: PathLike, columns: Mapping[str, Any], format: str) -> None:
    """Write columns as ``csv``, ``tsv`` or ``parquet``, all or nothing."""
    if format == "parquet":
        arrow, parquet = need("pyarrow"), need("pyarrow.parquet")
        table = arrow.table({k: arrow.array(_listed(v)) for k, v in columns.items()})
        with atomic_write(path) as (part,):
            parquet.write_table(table, part, write_page_checksum=True)
        return
    rows = zip(*(_texts(values) for values in columns.values()), strict=True)
    if format == "tsv":
        write_text(path, ["\t".join(columns), *map("\t".join, rows)])
        return
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    write_text(path, text.getvalue().split("\n")[:-1])


def _listed(values: Names | Any) -> Any:
    return values.tolist() if isinstance(values, np.ndarray) else list(values)


def _texts(values: Any) -> list[str]:
    listed = _listed(values)
    return [value if isinstance(value, str) else repr(value) for value in listed]


def suffix_format(path: PathLike) -> str | None:
    """The format that a suffix names beyond doubt."""
    return {".parquet": "parquet", ".csv": "csv"}.get(Path(str(path).removesuffix(".gz")).suffix.lower())


def is_parquet(data: bytes) -> bool:
    return data.startswith(b"PAR1")
