"""Where bytes come from, the lines and tables in them, lists of the field, and vectors as batches."""

from __future__ import annotations

import csv
import gzip
import math
import os
import re
import shutil
import sys
import tempfile
import warnings
import weakref
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, Protocol

import numpy as np
from numpy.typing import NDArray

from .._optional import need
from .._typing import FloatArray, PathLike
from ..exceptions import FileFormatError, LabelError, MvpldaError, UnlabelledWarning
from ..kinds import Coded
from ..persistence import STANDARD, atomic_write

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
    return str(path) == STANDARD or (
        Path(path).exists() and not Path(path).is_file() and not Path(path).is_dir()
    )


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


# Text files of the field: split on ASCII whitespace, errors with file and line.
#
# Kaldi separates fields with ASCII blanks, so an id may hold any other character: a
# no-break space or an ideographic space is part of it. Lines end in LF, CRLF or CR, a
# byte order mark is skipped, and blank lines are passed over but counted.


Names = NDArray[np.str_]

LONGEST_ID = 1000
BLOCK_BYTES = 2**18
TABLE_ROWS = 2**12
"""What is read of a table at a time."""
PARQUET = b"PAR1"
BLANKS = " \t\n\r\v\f"
UNWRITABLE = re.compile(f"[{BLANKS}\0]")
MARK = b"\xef\xbb\xbf"
"""The byte order mark."""


def line_blocks(source: OnDisk) -> Iterator[tuple[int, list[bytes]]]:
    """The lines of a UTF-8 text file without their ends, some at a time, and the number of the first of them."""
    first = 1
    with open(source.file, "rb") as file:
        while block := file.read(BLOCK_BYTES) + file.readline():
            lines = split_lines(source.name, block, first)
            if not lines[-1]:
                lines.pop()  # what follows the last line end of the block
            yield first, lines
            first += len(lines)


def split_lines(path: PathLike, data: bytes, first: int) -> list[bytes]:
    """Lines of text that was read from a file, of which the first has this number."""
    if first == 1:
        data = data.removeprefix(MARK)
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    try:
        data.decode()
    except UnicodeDecodeError as error:
        fail(
            path,
            f"not UTF-8 text ({error.reason}): convert the file",
            first + data.count(b"\n", 0, error.start),
        )
    if b"\0" in data:
        fail(
            path,
            "not a text file: it holds zero bytes",
            first + data.count(b"\n", 0, data.index(b"\0")),
        )
    return data.split(b"\n")


def lines_of(source: OnDisk) -> Iterator[bytes]:
    """The lines of a text file one by one, for files that are not held in memory whole."""
    for _, lines in line_blocks(source):
        yield from lines


def read_lines(path: PathLike) -> list[bytes]:
    """All lines of a text file."""
    return list(lines_of(OnDisk(path)))


def filled_lines(source: OnDisk, count: int) -> list[bytes]:
    """The first lines that are not blank."""
    filled = list(islice((line for line in lines_of(source) if line.strip()), count))
    if not filled:
        fail(source.name, "the file is empty")
    return filled


def as_text(value: object) -> str:
    """A field as text; of a table with types true is 1."""
    return (
        value.decode()
        if isinstance(value, bytes)
        else str(int(value) if isinstance(value, bool) else value)
    )


def as_names(path: PathLike, fields: Iterable[object]) -> Names:
    """Ids as an array of text; one that is absurdly long is an error."""
    given = list(fields)
    if any(isinstance(name, float) and not math.isfinite(name) for name in given):
        fail(path, "an id is NaN or infinite; ids are text or numbers")
    names = list(map(as_text, given))
    longest = max(map(len, names), default=0)
    if longest > LONGEST_ID:
        name = next(name for name in names if len(name) == longest)
        fail(
            path, f"an id of {longest} characters ({name[:20]!r}...); expected at most {LONGEST_ID}"
        )
    return np.array(
        names, dtype=f"U{max(longest, 1)}"
    )  # told its width, NumPy need not look for it


def check_id(name: object) -> str:
    """An id as a line can hold it: text, not empty, without blanks."""
    text = str(name)
    if not text or len(text) > LONGEST_ID or UNWRITABLE.search(text):
        raise LabelError(
            f"{text[:40]!r} cannot be written as an id: it is empty, holds a blank, or is longer than "
            f"{LONGEST_ID} characters. Rename it"
        )
    return text


def check_ids(names: Iterable[object]) -> list[str]:
    """Ids that lines can hold."""
    return [check_id(name) for name in names]


def write_text(path: PathLike, lines: Iterable[str]) -> None:
    """Write lines, all or nothing, or to standard output for ``-``."""
    with atomic_write(path) as (part,), part.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{line}\n" for line in lines)


def repeated(names: Iterable[object]) -> tuple[int, object | None]:
    """How many entries repeat an earlier one, and the first that does."""
    seen: set[object] = set()
    count, first = 0, None
    for name in names:
        if name in seen:
            count, first = count + 1, name if first is None else first
        seen.add(name)
    return count, first


# Tables: lines of fields, CSV, tab-separated text and Parquet, some rows at a time.


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
        fail(
            path,
            f"expected a column called {' or '.join(names[:4])}; the header has {', '.join(header)}",
            1,
        )
    return place


class Columns(NamedTuple):
    """The fields of some rows of a table by column, text as bytes or str, and the number of every row's line."""

    fields: list[Sequence[Any]]
    lines: Sequence[int]


Row = tuple[int, Sequence[Any]]
"""The number of a line, and its fields."""


def column_blocks(
    source: OnDisk, widths: Sequence[int], expected: str, commas: bool = False
) -> Iterator[Columns]:
    """Fields between blanks by column, some rows at a time; all lines have one of the widths, the same one.

    expected : what a line should hold, for errors
    commas : whether commas separate fields, too
    """
    nothing = f"the file is empty; expected lines of {expected}"
    return _columns(source, _split_rows(source, commas), widths, expected, nothing)


def table_blocks(source: OnDisk) -> tuple[list[str], Iterator[Columns]]:
    """The header of a table and its columns, some rows at a time.

    A table is Parquet, or text with a header, whose fields stand between commas, tabs or blanks.
    """
    if source.head(4) == PARQUET:
        return _parquet_blocks(source)
    separator = separator_of(source)
    rows = _split_rows(source) if separator is None else _csv_rows(source, separator)
    _, fields = next(rows)
    header = [as_text(field).strip() for field in fields]
    expected = f"{len(header)} field(s), as in the header {', '.join(header)}"
    nothing = "the file has a header and no lines"
    return header, _columns(source, rows, [len(header)], expected, nothing)


def separator_of(source: OnDisk) -> str | None:
    """What stands between the fields of a table in text, as seen in its header; None: blanks."""
    header = filled_lines(source, 1)[0]
    if b"," in header or suffix_format(source.name) == "csv":
        return ","
    return "\t" if b"\t" in header else None


def is_table(source: OnDisk, *wanted: Sequence[str]) -> bool:
    """Whether a file is Parquet, or text whose first line names all of the columns that are wanted."""
    if source.head(4) == PARQUET:
        return True
    header = filled_lines(source, 1)[0].decode().split(separator_of(source))
    return all(column_of(header, names) is not None for names in wanted)


def read_table(path: PathLike) -> tuple[list[str], list[list[Any]]]:
    """Header and columns of a whole table."""
    header, blocks = table_blocks(OnDisk(path))
    columns: list[list[Any]] = [[] for _ in header]
    for block in blocks:
        for column, fields in zip(columns, block.fields, strict=True):
            column += [field.decode() if isinstance(field, bytes) else field for field in fields]
    return header, columns


def _columns(
    source: OnDisk, rows: Iterator[Row], widths: Sequence[int], expected: str, nothing: str
) -> Iterator[Columns]:
    width = 0
    while block := list(islice(rows, TABLE_ROWS)):
        for number, row in block:
            width = width or len(row)
            if len(row) != width or width not in widths:
                fail(source.name, f"{len(row)} field(s); expected {expected}", number)
        lines, fields = zip(*block, strict=True)
        yield Columns(list(zip(*fields, strict=True)), lines)
    if not width:
        fail(source.name, nothing)


def _split_rows(source: OnDisk, commas: bool = False) -> Iterator[Row]:
    for number, line in enumerate(lines_of(source), 1):
        fields = line.replace(b",", b" ").split() if commas else line.split()
        if fields:
            yield number, fields


def _csv_rows(source: OnDisk, separator: str) -> Iterator[Row]:
    texts = (line.decode() + "\n" for line in lines_of(source))
    reader = csv.reader(texts, delimiter=separator, strict=True, skipinitialspace=True)
    try:
        for row in reader:
            fields = [field.strip(" \t") for field in row]
            if fields not in ([], [""]):
                yield reader.line_num, fields
    except csv.Error as error:
        fail(
            source.name, f"not a table with {separator!r} between fields: {error}", reader.line_num
        )


def _parquet_blocks(source: OnDisk) -> tuple[list[str], Iterator[Columns]]:
    parquet = need("pyarrow.parquet")
    with wrap_reader_errors(source.name, "a Parquet file"):
        file = parquet.ParquetFile(source.file, page_checksum_verification=True)
        header = list(file.schema_arrow.names)

    def blocks() -> Iterator[Columns]:
        rows = 0
        with wrap_reader_errors(source.name, "a Parquet file"):
            for batch in file.iter_batches():
                batch.validate(full=True)
                for name, column in zip(header, batch.columns, strict=True):
                    if column.null_count:
                        reason = f"{column.null_count} value(s) of column {name!r} are null"
                        fail(source.name, reason)
                fields = [column.to_pylist() for column in batch.columns]
                yield Columns(fields, range(rows + 1, rows + 1 + batch.num_rows))
                rows += batch.num_rows
        if not rows:
            fail(source.name, "the table has no rows")

    return header, blocks()


WRITTEN_ROWS = 2**18


def rows_of(*columns: Any) -> Iterator[tuple[Any, ...]]:
    """The entries of some columns side by side, as Python has them; text that is coded is spelled some at a time."""
    for start in range(0, len(columns[0]), WRITTEN_ROWS):
        some = (column[start : start + WRITTEN_ROWS] for column in columns)
        yield from zip(*map(listed, some), strict=True)


def listed(values: Any) -> Sequence[Any]:
    """A column as Python has it; numbers of float32 become those that are written with the same digits, at most 9."""
    if isinstance(values, np.ndarray) and values.dtype == np.float32:
        values = values.astype(np.str_).astype(np.float64)
    found: Sequence[Any] = values if isinstance(values, (list, tuple)) else values.tolist()
    return found


def write_table(path: PathLike, columns: Mapping[str, Any], format: str) -> None:
    """Write columns as ``csv`` or ``parquet``, all or nothing."""
    with atomic_write(path) as (part,):
        if format == "parquet":
            table = {name: _arrow_column(column) for name, column in columns.items()}
            file = need("pyarrow").table(table)
            need("pyarrow.parquet").write_table(file, part, write_page_checksum=True)
            return
        rows = rows_of(*columns.values())
        texts = ([v if isinstance(v, str) else repr(v) for v in row] for row in rows)
        with part.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(chain([columns], texts))


def _arrow_column(column: Any) -> Any:
    arrow = need("pyarrow")
    if isinstance(column, Coded):
        return arrow.DictionaryArray.from_arrays(column.codes, column.names)
    return arrow.array(listed(column))


def suffix_format(path: PathLike) -> str | None:
    """The format that a suffix names beyond doubt."""
    return {".parquet": "parquet", ".csv": "csv"}.get(
        Path(str(path).removesuffix(".gz")).suffix.lower()
    )


class Coder:
    """Numbers text as it comes: four bytes an entry, and every name once."""

    def __init__(self) -> None:
        self.table: dict[Any, int] = {}
        self.parts: list[NDArray[np.int32]] = []

    def add(self, fields: Sequence[Any]) -> None:
        for name in dict.fromkeys(fields):
            self.table.setdefault(name, len(self.table))
        self.parts.append(np.fromiter(map(self.table.__getitem__, fields), np.int32, len(fields)))

    def result(self, path: PathLike) -> Coded:
        codes = np.concatenate(self.parts)
        self.parts.clear()
        return Coded(as_names(path, self.table), codes)


# Kaldi's lists: ``utt2spk`` and any ``utt2X``, ``spk2utt``, and labels from them.


def _entries(path: PathLike, what: str) -> list[tuple[int, str, str]]:
    """(line number, id, the rest of the line) of every line that is not blank; ids stand once."""
    entries: list[tuple[int, str, str]] = []
    seen: set[str] = set()
    again: list[tuple[int, str]] = []
    for number, line in enumerate(read_lines(path), 1):
        fields = line.split(None, 1)
        if not fields:
            continue
        if len(fields) == 1:
            fail(path, f"{fields[0].decode()[:60]!r} stands alone; expected {what}", number)
        name, rest = fields[0].decode(), fields[1].strip().decode()
        if len(name) > LONGEST_ID:
            fail(path, f"an id of {len(name)} characters; expected at most {LONGEST_ID}", number)
        if name in seen:
            again.append((number, name))
        seen.add(name)
        entries.append((number, name, rest))
    if not entries:
        fail(path, f"the file is empty; expected lines of {what}")
    if again:
        number, name = again[0]
        fail(path, f"{name!r} is listed again; {len(again)} line(s) repeat an id", number)
    return entries


def read_map(path: PathLike) -> dict[str, str]:
    """A map such as ``utt2spk``: id, then the value, which is the rest of the line."""
    return {name: rest for _, name, rest in _entries(path, "'id value'")}


def read_groups(path: PathLike) -> dict[str, tuple[str, ...]]:
    """Groups such as ``spk2utt`` or an enrolment list: name, then ids."""
    entries = _entries(path, "'name id id ...'")
    return {
        name: tuple(part.decode() for part in rest.encode().split()) for _, name, rest in entries
    }


def write_map(path: PathLike, values: Mapping[str, Any]) -> None:
    """Write ``id value`` lines, all or nothing."""
    lines = []
    for name, value in values.items():
        text = str(value)
        if not text or text.strip(" \t\r\n\v\f") != text or "\n" in text or "\0" in text:
            raise LabelError(
                f"the value {text[:40]!r} of {name!r} does not fit a line: it is empty or has outer blanks"
            )
        lines.append(f"{check_id(name)} {text}")
    write_text(path, lines)


def write_groups(path: PathLike, groups: Mapping[str, Sequence[str]]) -> None:
    """Write ``name id id ...`` lines, all or nothing."""
    lines = []
    for name, members in groups.items():
        if isinstance(members, str) or not len(members):
            raise LabelError(
                f"the group {name!r} has {members!r}; expected a sequence of at least one id"
            )
        lines.append(" ".join([check_id(name), *map(check_id, members)]))
    write_text(path, lines)


def read_labels(paths: Mapping[str, PathLike], ids: Iterable[Any]) -> dict[str, NDArray[Any]]:
    """Labels of every view, aligned with the ids; None, and a warning, where a file does not list an id.

    Parameters
    ----------
    paths : {view: path of its ``utt2X``}
    ids : (n,) ids of the vectors
    """
    names = [str(name) for name in ids]
    labels: dict[str, NDArray[Any]] = {}
    for view, path in paths.items():
        values = read_map(path)
        column = np.array([values.get(name) for name in names] + [None], dtype=object)[:-1]
        if names and all(value is None for value in column):
            raise LabelError(
                f"{path} lists none of the {len(names)} ids for view {view!r}: the first is {names[0]!r}, "
                f"the file begins with {next(iter(values))!r}"
            )
        missing = [name for name, value in zip(names, column, strict=True) if value is None]
        if missing:
            warnings.warn(
                unlabelled(view, str(path), len(missing), len(names), missing[0]), stacklevel=2
            )
        labels[view] = column
    return labels


def unlabelled(view: str, where: str, count: int, total: int, first: str) -> UnlabelledWarning:
    """What is said of vectors that a list does not name."""
    return UnlabelledWarning(
        f"{count} of {total} vectors have no label of view {view!r} in {where}, the first is {first!r}; "
        "each of them is taken for a class of its own"
    )


# A file of vectors as batches, whatever its format: all of them together are the whole file.


Rows = tuple[int, int]
"""The first of some rows, and the one after the last."""

BATCH_BYTES = 16 * 2**20


@dataclass(frozen=True)
class Batch:
    """Vectors as a file has them, with their ids and columns where they were asked for.

    A vector that is null is a row of NaN; where all are, and have no width, X is (n, 0).
    """

    X: NDArray[Any]
    ids: Sequence[str] | None = None
    columns: dict[str, Any] = field(default_factory=dict)


class Reader(Protocol):
    """A file of vectors that was opened.

    columns : the names of label columns that it can give
    has_ids : whether its vectors have ids of their own; else they are row numbers
    id_column : where ids are a column beside others: which
    files : what is read besides the file itself
    """

    columns: tuple[str, ...]
    has_ids: bool
    id_column: str | None

    @property
    def files(self) -> tuple[str, ...]: ...

    def cuts(self) -> Sequence[int]:
        """Rows at which the file can be cut, the last one its end; none where it must be read from its beginning."""

    def batches(
        self, batch_bytes: int, columns: Sequence[str], ids: bool, rows: Rows | None = None
    ) -> Iterator[Batch]:
        """All rows, or those between two cuts."""


def rows_of_batch(batch_bytes: int, row_bytes: int) -> int:
    return max(1, batch_bytes // max(row_bytes, 1))


# Vectors of single entries, as one array.


Vectors = FloatArray


def stacked(
    path: PathLike, ids: Sequence[str], rows: Sequence[NDArray[Any]], width: int | None = None
) -> Vectors:
    """Rows of equal width as one array; one of another width than the first, or than the given, is named."""
    if not rows:
        fail(path, "the file holds no vectors")
    width = len(rows[0]) if width is None else width
    for name, row in zip(ids, rows, strict=True):
        if len(row) != width:
            fail(path, f"the vector of {name!r} has width {len(row)}; those before have {width}")
    return np.stack(rows)
