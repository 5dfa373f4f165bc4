"""Text tables with columns separated by blanks, commas or tabs: read in blocks of rows, written atomically."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._typing import Array, PathLike
from ..atomic_files import atomic_write
from ..coded import Coded
from ..exceptions import FileFormatError
from .streams import OnDisk, as_names, as_text, fail, filled_lines, lines_of

Field = str | bytes
"""Field of a table: bytes in files with blanks, text in CSV."""
Column = Sequence[Field]
"""Fields of one column in a block of rows."""
Values = Any
"""Whole column: an array of text or numbers, or `Coded` text."""
Numbers = NDArray[np.number]
"""Vectors in the number type of their file."""
TABLE_ROWS = 2**12
"""Number of rows of a table that are read at a time."""
WRITTEN_ROWS = 2**18
"""Number of rows of a table that are written at a time."""

# usual names of the columns of trial lists and scores, as `normalised_name` returns them
ENROL = ("enrol", "enroll", "enrolment", "enrollment", "model", "modelid")
TEST = ("test", "segment", "segmentid", "testid", "evaluationfileid", "testsegment")
KIND = ("kind", "key", "label", "target", "targettype", "trialtype")
SCORE = ("score", "llr", "scores")


def normalised_name(name: str) -> str:
    """Return a column name without case, blanks, hyphens and underscores: ``Model-ID`` becomes ``modelid``."""
    return re.sub(r"[-_\s]", "", name).lower()


def column_of(header: Sequence[str], names: Sequence[str]) -> int | None:
    """Return the index of the column of a header with one of the given names; None if there is none.

    names : names that the column may have, as `normalised_name` returns them, the preferred one first
    """
    normalised = list(map(normalised_name, header))
    return next((normalised.index(name) for name in names if name in normalised), None)


def required_column(path: PathLike, header: Sequence[str], names: Sequence[str]) -> int:
    """Return the index of the column of a header with one of the given names.

    Raises `FileFormatError` if there is none.

    path : file of the header, for the error
    names : names that the column may have, as `normalised_name` returns them
    """
    index = column_of(header, names)
    if index is None:
        expected = " or ".join(names[:4])
        fail(path, f"expected a column called {expected}; the header has {', '.join(header)}", 1)
    return index


Columns = tuple[list[Column], Sequence[int]]
"""Fields of a block of rows by column, and the line number of each row."""
Row = tuple[int, Column]
"""Line number and fields of a row."""


def column_blocks(
    source: OnDisk, widths: Sequence[int], expected: str, commas: bool = False
) -> Iterator[Columns]:
    """Read a text file of columns in blocks of lines; blanks separate fields.

    Yields for each block of lines the fields of each column, and the numbers of the lines.

    widths : numbers of fields that a line may have; all lines must have the same number
    expected : description of a line, for errors
    commas : whether commas separate fields like blanks
    """
    return _blocks(source.name, _split_rows(source, commas), widths, expected)


def table_blocks(source: OnDisk) -> tuple[list[str], Iterator[Columns]]:
    """Return the column names of a text table, and an iterator over blocks of its rows.

    The first line shows whether commas, tabs or blanks separate the fields. A block has the fields of each column,
    and the line number of each row.
    """
    separator = _separator(source)
    rows = _split_rows(source)
    if separator is not None:
        rows = _csv_rows(source, separator)
    header = [as_text(name).strip() for name in next(rows)[1]]
    expected = f"{len(header)} field(s), as in the header {', '.join(header)}"
    return header, _blocks(source.name, rows, [len(header)], expected)


def _separator(source: OnDisk) -> str | None:
    """Return the separator of the fields in the first line of a table: a comma, a tab, or None for blanks."""
    header = filled_lines(source, 1)[0]
    if b"," in header or suffix_of(source.name) == ".csv":
        return ","
    if b"\t" in header:
        return "\t"
    return None


def is_table(source: OnDisk, *required: Sequence[str]) -> bool:
    """Return whether the first line of a file is a header with all required columns.

    required : for each required column, the names that it may have, such as `ENROL`
    """
    header = filled_lines(source, 1)[0].decode().split(_separator(source))
    return all(column_of(header, names) is not None for names in required)


def read_table(source: OnDisk) -> tuple[list[str], list[list[str]]]:
    """Return the column names of a text table, and for each column the list of its fields as text."""
    header, blocks = table_blocks(source)
    columns = zip(*(fields for fields, _ in blocks), strict=True)
    return header, [list(map(as_text, chain.from_iterable(column))) for column in columns]


def _blocks(
    path: PathLike, rows: Iterator[Row], widths: Sequence[int], expected: str
) -> Iterator[Columns]:
    """Yield blocks of at most `TABLE_ROWS` rows: the fields of each column, and the line numbers.

    Raises `FileFormatError` if rows differ in their number of fields, or if there is no row.

    widths : numbers of fields that a row may have
    expected : description of a row, for errors
    """
    width = 0
    while block := list(islice(rows, TABLE_ROWS)):
        for number, row in block:
            width = width or len(row)
            if len(row) != width or width not in widths:
                fail(path, f"expected {expected}; got {len(row)} field(s)", number)
        lines, fields = zip(*block, strict=True)
        yield list(zip(*fields, strict=True)), lines
    if not width:
        fail(path, f"the file has no lines; expected lines of {expected}")


def _split_rows(source: OnDisk, commas: bool = False) -> Iterator[Row]:
    """Yield (line number, fields) of each line that is not blank, split at blanks, with `commas` also at commas."""
    for number, line in enumerate(lines_of(source, commas), 1):
        fields = line.split()
        if fields:
            yield number, fields


def _csv_rows(source: OnDisk, separator: str) -> Iterator[Row]:
    """Yield (line number, fields) of each row of a CSV file that is not empty, split at a separator outside quotes."""
    texts = (line.decode() + "\n" for line in lines_of(source))
    reader = csv.reader(texts, delimiter=separator, strict=True, skipinitialspace=True)
    try:
        for row in reader:
            fields = [text.strip(" \t") for text in row]
            if any(fields) or len(fields) > 1:
                yield reader.line_num, fields
    except csv.Error as error:
        reason = f"expected a table with {separator!r} between fields: {error}"
        fail(source.name, reason, reader.line_num)


def as_numbers(path: PathLike, values: Column, lines: Sequence[int], role: str) -> Array:
    """Return a column of a table as numbers (n,).

    Raises `FileFormatError` for a field that is NaN or not a number.

    path : the table, for the error
    lines : line number of each field
    role : what the field stands for, for the error, such as "the score"
    """
    with suppress(ValueError, TypeError):
        numbers = np.fromiter(map(float, values), np.float64, len(values))
        if not np.isnan(numbers).any():
            return numbers
    row = next(k for k, value in enumerate(values) if not is_number(value))
    text = as_text(values[row])[:40]
    raise FileFormatError(
        f"{path}, line {lines[row]}: expected {role} as a number other than NaN; got {text!r}"
    )


def is_number(value: Field) -> bool:
    """Return whether a field is a number other than NaN."""
    try:
        return not math.isnan(float(value))
    except (ValueError, TypeError):
        return False


def rows_of(*columns: Values) -> Iterator[tuple[Values, ...]]:
    """Yield the rows of several columns as tuples of Python values, converting a block of rows at a time."""
    for start in range(0, len(columns[0]), WRITTEN_ROWS):
        block = [column[start : start + WRITTEN_ROWS] for column in columns]
        for i, values in enumerate(block):
            if values.dtype == np.float32:
                # doubles with the same shortest decimal text, at most 9 digits
                block[i] = values.astype(np.str_).astype(np.float64)
        yield from zip(*(values.tolist() for values in block), strict=True)


def write_table(path: PathLike, columns: Mapping[str, Values]) -> None:
    """Write a CSV file with a header, atomically.

    columns : {name in the header: values of the column}
    """
    rows = rows_of(*columns.values())
    texts = ([v if isinstance(v, str) else repr(v) for v in row] for row in rows)
    with atomic_write(path) as (scratch,), scratch.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(chain([columns], texts))


def suffix_of(path: PathLike) -> str:
    """Return the suffix of a path in lower case, without a final ``.gz``: ``x.CSV.gz`` has the suffix ``.csv``."""
    return Path(str(path).removesuffix(".gz")).suffix.lower()


class Coder:
    """Encoder of a column of repeated text: stores each distinct text once, and a code of four bytes per row."""

    def __init__(self) -> None:
        self.table: dict[Field, int] = {}
        self.blocks: list[NDArray[np.int32]] = []

    def add(self, fields: Column) -> None:
        """Append a block of fields to the column."""
        for name in dict.fromkeys(fields):
            self.table.setdefault(name, len(self.table))
        self.blocks.append(np.fromiter(map(self.table.__getitem__, fields), np.int32, len(fields)))

    def result(self, path: PathLike) -> Coded:
        """Return the whole column as coded text, and free the blocks; nothing can be added afterwards.

        path : the file, for the error about an id that is too long
        """
        codes = np.concatenate(self.blocks)
        self.blocks.clear()
        return Coded(as_names(path, self.table), codes)
