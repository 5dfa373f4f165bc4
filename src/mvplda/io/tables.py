"""Text tables: columns between blanks or separators, read in blocks and written all or nothing."""

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
from ..coded import Coded
from ..persistence import atomic_write
from .streams import OnDisk, as_names, as_text, fail, filled_lines, lines_of

Field = str | bytes
"""Of a table: bytes of a file with blanks, text of CSV."""
Column = Sequence[Field]
Values = Any
"""A column to be written: an array of text or numbers, or text that is coded."""
Numbers = NDArray[np.number]
"""Vectors as a file has them, of any type."""
TABLE_ROWS = 2**12
"""What is read of a table at a time."""
WRITTEN_ROWS = 2**18


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


def as_numbers(path: PathLike, values: Column, lines: Sequence[int], what: str) -> Array:  # noqa: RET503 (`fail` raises)
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
