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
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from .._typing import Array, FloatArray, PathLike
from .._typing import Names as Labels
from ..exceptions import FileFormatError, LabelError, MvpldaError, UnlabelledWarning
from ..kinds import Coded
from ..persistence import STANDARD, atomic_write, kind_of

Field = str | bytes
"""Of a table: bytes of a file with blanks, text of CSV."""
Column = Sequence[Field]
Values = Any
"""A column to be written: an array of text or numbers, or text that is coded."""
Names = NDArray[np.str_]
Vectors = FloatArray
Numbers = NDArray[np.number]
"""Vectors as a file has them, of any type."""

LONGEST_ID = 1000
BLOCK_BYTES = 2**18
TABLE_ROWS = 2**12
"""What is read of a table at a time."""
WRITTEN_ROWS = 2**18
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


# Tables: lines of fields, CSV, tab-separated text and Parquet, some rows at a time.


ENROL = ("enrol", "enroll", "enrolment", "enrollment", "model", "modelid")
TEST = ("test", "segment", "segmentid", "testid", "evaluationfileid", "testsegment")
KIND = ("kind", "key", "label", "target", "targettype", "trialtype")
SCORE = ("score", "llr", "scores")


def plain(name: str) -> str:
    """A column's name without case, blanks, hyphens and underscores: ``Model-ID`` is ``modelid``."""
    return re.sub(r"[-_\s]", "", name).lower()


def column_of(header: Sequence[str], names: Sequence[str]) -> int | None:
    """Where the first of these names stands in the header."""
    plains = list(map(plain, header))
    return next((plains.index(name) for name in names if name in plains), None)


def needed(path: PathLike, header: Sequence[str], names: Sequence[str]) -> int:
    """Where a column stands that must be there."""
    place = column_of(header, names)
    if place is None:
        wanted = " or ".join(names[:4])
        fail(path, f"expected a column called {wanted}; the header has {', '.join(header)}", 1)
    return place


Columns = tuple[list[Column], Sequence[int]]
"""The fields of some rows of a table by column, and the number of every row's line."""
Row = tuple[int, Column]
"""The number of a line, and its fields."""


def column_blocks(
    source: OnDisk, widths: Sequence[int], expected: str, commas: bool = False
) -> Iterator[Columns]:
    """Fields between blanks by column, some rows at a time; all lines have one of the widths, the same one.

    expected : what a line should hold, for errors
    commas : whether commas separate fields, too
    """
    return _blocks(source.name, _split_rows(source, commas), widths, expected)


def table_blocks(source: OnDisk) -> tuple[list[str], Iterator[Columns]]:
    """The header of a table and its columns, some rows at a time.

    A table is text with a header, whose fields stand between commas, tabs or blanks.
    """
    separator = _separator(source)
    rows = _split_rows(source)
    if separator is not None:
        rows = _csv_rows(source, separator)
    header = [as_text(name).strip() for name in next(rows)[1]]
    expected = f"{len(header)} field(s), as in the header {', '.join(header)}"
    return header, _blocks(source.name, rows, [len(header)], expected)


def _separator(source: OnDisk) -> str | None:
    """What stands between the fields of a table in text, as seen in its header; None: blanks."""
    header = filled_lines(source, 1)[0]
    if b"," in header or suffix_of(source.name) == ".csv":
        return ","
    if b"\t" in header:
        return "\t"
    return None


def is_table(source: OnDisk, *wanted: Sequence[str]) -> bool:
    """Whether the first line of a file names all of the columns that are wanted."""
    header = filled_lines(source, 1)[0].decode().split(_separator(source))
    return all(column_of(header, names) is not None for names in wanted)


def read_table(source: OnDisk) -> tuple[list[str], list[list[str]]]:
    """Header and columns of a whole table."""
    header, blocks = table_blocks(source)
    parts = zip(*(fields for fields, _ in blocks), strict=True)
    return header, [list(map(as_text, chain.from_iterable(column))) for column in parts]


def _blocks(
    path: PathLike, rows: Iterator[Row], widths: Sequence[int], expected: str
) -> Iterator[Columns]:
    width = 0
    while block := list(islice(rows, TABLE_ROWS)):
        for number, row in block:
            width = width or len(row)
            if len(row) != width or width not in widths:
                fail(path, f"{len(row)} field(s); expected {expected}", number)
        lines, fields = zip(*block, strict=True)
        yield list(zip(*fields, strict=True)), lines
    if not width:
        fail(path, f"there are no lines of {expected}")


def _split_rows(source: OnDisk, commas: bool = False) -> Iterator[Row]:
    for number, line in enumerate(lines_of(source, commas), 1):
        fields = line.split()
        if fields:
            yield number, fields


def _csv_rows(source: OnDisk, separator: str) -> Iterator[Row]:
    texts = (line.decode() + "\n" for line in lines_of(source))
    reader = csv.reader(texts, delimiter=separator, strict=True, skipinitialspace=True)
    try:
        for row in reader:
            fields = [text.strip(" \t") for text in row]
            if any(fields) or len(fields) > 1:
                yield reader.line_num, fields
    except csv.Error as error:
        reason = f"not a table with {separator!r} between fields: {error}"
        fail(source.name, reason, reader.line_num)


def as_numbers(path: PathLike, values: Column, lines: Sequence[int], what: str) -> Array:
    """A column as numbers; one that is none, or NaN, is an error that names it and its line."""
    with suppress(ValueError, TypeError):
        numbers = np.fromiter(map(float, values), np.float64, len(values))
        if not np.isnan(numbers).any():
            return numbers
    wrong = next(k for k, value in enumerate(values) if not is_number(value))
    text = as_text(values[wrong])[:40]
    fail(path, f"{text!r} is {what}; expected a number, which NaN is not", lines[wrong])


def is_number(value: Field) -> bool:
    """Whether a field is a number, which NaN is not."""
    try:
        return not math.isnan(float(value))
    except (ValueError, TypeError):
        return False


def rows_of(*columns: Values) -> Iterator[tuple[Values, ...]]:
    """The entries of some columns side by side, as Python has them; text that is coded is spelled some at a time."""
    for start in range(0, len(columns[0]), WRITTEN_ROWS):
        some = [column[start : start + WRITTEN_ROWS] for column in columns]
        for i, values in enumerate(some):
            if values.dtype == np.float32:
                # numbers that are written with the same digits, at most 9
                some[i] = values.astype(np.str_).astype(np.float64)
        yield from zip(*(values.tolist() for values in some), strict=True)


def write_table(path: PathLike, columns: Mapping[str, Values]) -> None:
    """Write columns as CSV, all or nothing."""
    rows = rows_of(*columns.values())
    texts = ([v if isinstance(v, str) else repr(v) for v in row] for row in rows)
    with atomic_write(path) as (part,), part.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(chain([columns], texts))


def suffix_of(path: PathLike) -> str:
    """The suffix in small letters, whether the file is compressed or not."""
    return Path(str(path).removesuffix(".gz")).suffix.lower()


class Coder:
    """Numbers text as it comes: four bytes an entry, and every name once."""

    def __init__(self) -> None:
        self.table: dict[Field, int] = {}
        self.parts: list[NDArray[np.int32]] = []

    def add(self, fields: Column) -> None:
        for name in dict.fromkeys(fields):
            self.table.setdefault(name, len(self.table))
        self.parts.append(np.fromiter(map(self.table.__getitem__, fields), np.int32, len(fields)))

    def result(self, path: PathLike) -> Coded:
        codes = np.concatenate(self.parts)
        self.parts.clear()
        return Coded(as_names(path, self.table), codes)


# Kaldi's lists: ``utt2spk`` and any ``utt2X``, ``spk2utt``, and labels from them.


def read_map(
    path: PathLike, expected: str = "'id value'", *, commas: bool = False
) -> dict[str, str]:
    """A map such as ``utt2spk``: id, then the value, which is the rest of the line.

    expected : what a line should hold, for errors
    commas : whether commas separate fields as blanks do
    """
    entries: dict[str, str] = {}
    for number, line in enumerate(lines_of(OnDisk(path), commas), 1):
        fields = [part.decode() for part in line.strip().split(None, 1)]
        if len(fields) == 1:
            fail(path, f"{fields[0][:60]!r} stands alone; expected {expected}", number)
        if not fields:
            continue
        if fields[0] in entries:
            fail(path, f"{fields[0]!r} is listed again; every id stands once", number)
        entries[fields[0]] = fields[1]
    if not entries:
        fail(path, f"the file is empty; expected lines of {expected}")
    as_names(path, entries)  # none is absurdly long
    return entries


Groups = dict[str, tuple[str, ...]]
"""Ids by the name of what they make: vectors of a speaker, of a model."""


def read_groups(path: PathLike, *, commas: bool = False) -> Groups:
    """Groups such as ``spk2utt`` or an enrolment list: name, then ids."""
    entries = read_map(path, "'name id id ...'", commas=commas)
    # bytes are split at the blanks of ASCII only
    lists = {name: rest.encode().split() for name, rest in entries.items()}
    return {name: tuple(map(bytes.decode, ids)) for name, ids in lists.items()}


def write_map(path: PathLike, values: Mapping[str, object]) -> None:
    """Write ``id value`` lines, all or nothing."""
    texts = list(map(str, values.values()))
    for text in texts:
        if not text or text.strip(BLANKS) != text or "\n" in text or "\0" in text:
            raise LabelError(
                f"the value {text[:40]!r} does not fit a line: it is empty or has outer blanks"
            )
    write_text(path, map(" ".join, zip(check_ids(values), texts, strict=True)))


def read_labels(paths: Mapping[str, PathLike], ids: Iterable[object]) -> dict[str, Labels]:
    """Labels of every view, aligned with the ids; None, and a warning, where a file does not list an id.

    Parameters
    ----------
    paths : {view: path of its ``utt2X``}
    ids : (n,) ids of the vectors
    """
    names = [str(name) for name in ids]
    labels: dict[str, Labels] = {}
    for view, path in paths.items():
        values = read_map(path)
        missing = [name for name in names if name not in values]
        if missing == names != []:
            raise LabelError(
                f"{path} lists none of the {len(names)} ids for view {view!r}: the first is {names[0]!r}, "
                f"the file begins with {next(iter(values))!r}"
            )
        if missing:
            text = unlabelled(view, str(path), len(missing), len(names), missing[0])
            warnings.warn(text, stacklevel=2)
        labels[view] = as_objects(map(values.get, names))
    return labels


def as_objects(values: Iterable[object]) -> Labels:
    """Labels as they are, (n,), whatever their types."""
    return np.array([*values, None], dtype=object)[:-1]


def unlabelled(view: str, where: str, count: int, total: int, first: str = "") -> UnlabelledWarning:
    """What is said of vectors that a list does not name."""
    such = f", the first is {first!r}" if first else ""
    return UnlabelledWarning(
        f"{count} of {total} vectors have no label of view {view!r} in {where}{such}; "
        "each of them is taken for a class of its own"
    )


# A file of vectors as batches, whatever its format: all of them together are the whole file.


@dataclass(frozen=True)
class Batch:
    """Vectors as a file has them, with their ids and columns where they were asked for."""

    X: Numbers
    ids: Sequence[str] | None = None
    columns: dict[str, Values] = field(default_factory=dict)


class Reader(ABC):
    """A file of vectors that was opened.

    columns : the names of label columns that it can give
    has_ids : whether its vectors have ids of their own; else they are row numbers
    id_column : where ids are a column beside others: which
    files : what is read besides the file itself
    """

    columns: tuple[str, ...] = ()
    has_ids: bool = True
    id_column: str | None = None
    files: tuple[str, ...] = ()

    @abstractmethod
    def batches(self, batch_bytes: int, columns: Sequence[str], ids: bool) -> Iterator[Batch]:
        """All rows, some at a time, with the columns that are asked for."""


def rows_of_batch(batch_bytes: int, row_bytes: int) -> int:
    return max(1, batch_bytes // max(row_bytes, 1))


def joined(path: PathLike, parts: Sequence[tuple[str, Numbers]]) -> Numbers:
    """Arrays (n, D) below each other, each with the name of its first row; one of another width is named."""
    width = parts[0][1].shape[1]
    for name, X in parts:
        if X.shape[1] != width:
            fail(path, f"the vector of {name!r} has width {X.shape[1]}; those before have {width}")
    if len(parts) == 1:
        return parts[0][1]
    return np.concatenate([X for _, X in parts])
