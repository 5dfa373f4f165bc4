"""Tables with a header: CSV, tab-separated text and Parquet, as columns of text."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..extras import need
from ..files import whole_files
from .sources import PathLike, fail, foreign, read_bytes
from .text import Names, check_widths, read_lines, write_text

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
    with foreign(path, "a Parquet file"):
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
        with whole_files(path) as (part,):
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
