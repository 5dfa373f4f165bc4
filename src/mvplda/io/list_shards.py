"""Trial lists and scores in Parquet files: columns enrol, test and, if known, kind and score.

Each distinct id or kind is stored once, and each trial has an integer code for it. A trial therefore takes a few bytes,
and reading a list of ten million trials converts only its distinct texts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .._optional import need
from .._typing import FloatArray, PathLike
from ..atomic_files import atomic_write
from ..coded import Coded
from .streams import OnDisk, as_names, fail, wrap_reader_errors
from .tables import ENROL, SCORE, TEST, column_of, required_column

PARQUET = "a Parquet file"

Arrow = Any


def write_columns(path: PathLike, columns: Mapping[str, Any]) -> None:
    """Write columns to a Parquet file, atomically.

    columns : {name: coded text (`Coded`) or numbers, (n,)}
    """
    arrow = need("pyarrow")
    arrays = {}
    for name, column in columns.items():
        if isinstance(column, Coded):
            codes = arrow.array(column.codes.astype(np.int32))
            texts = arrow.array(column.names.tolist(), arrow.string())
            arrays[name] = arrow.DictionaryArray.from_arrays(codes, texts)
        else:
            arrays[name] = arrow.array(column)
    with atomic_write(path) as (scratch,):
        need("pyarrow.parquet").write_table(arrow.table(arrays), scratch, write_page_checksum=True)


def column_names(path: PathLike) -> list[str]:
    """Return the names of the columns of a Parquet file."""
    with wrap_reader_errors(path, PARQUET):
        names: list[str] = need("pyarrow.parquet").read_schema(OnDisk(path).file).names
    return names


def read_columns_of(
    path: PathLike, roles: Sequence[Sequence[str]]
) -> list[Coded | FloatArray | None]:
    """Return the requested columns of a Parquet file, (n,) each; None in place of a missing column.

    roles : for each requested column, the names that it may have, such as `mvplda.io.tables.ENROL`. The column for
        `SCORE` is returned as numbers, other columns as coded text
    """
    header = column_names(path)
    chosen = [column_of(header, role) for role in roles]
    names = [header[index] for index in chosen if index is not None]
    with wrap_reader_errors(path, PARQUET):
        table = need("pyarrow.parquet").read_table(
            Path(OnDisk(path).file), columns=names, page_checksum_verification=True
        )
        table.validate(full=True)
    columns: list[Coded | FloatArray | None] = []
    for index, role in zip(chosen, roles, strict=True):
        if index is None:
            columns.append(None)
            continue
        column = table.column(header[index])
        if column.null_count:
            row = column.is_null().to_pylist().index(True)
            fail(path, f"the column {header[index]!r} has no value in row {row} (counted from 0)")
        columns.append(_numbers(path, column) if role is SCORE else _coded(path, column))
    return columns


def _coded(path: PathLike, column: Arrow) -> Coded:
    """Return an Arrow column of text as `Coded`; only distinct texts are converted to Python objects.

    path : the file, for the error about an id that is too long
    """
    arrow = need("pyarrow")
    if not arrow.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    column = column.unify_dictionaries().combine_chunks()
    chunks = column.chunks if hasattr(column, "chunks") else [column]
    if not chunks:
        return Coded.of(np.empty(0, np.str_))
    codes = chunks[0].indices.to_numpy().astype(np.int32)
    dictionary = chunks[0].dictionary
    # the rows of a filtered table may have fewer texts than its dictionary
    is_used = np.bincount(codes, minlength=len(dictionary)) > 0
    names = as_names(path, dictionary.filter(need("pyarrow").array(is_used)).to_pylist())
    return Coded(names, (np.cumsum(is_used) - 1).astype(np.int32)[codes])


def _numbers(path: PathLike, column: Arrow) -> FloatArray:
    """Return an Arrow column of scores as an array (n,); float32 stays float32, other numbers become float64.

    Raises `FileFormatError` if the column contains text or NaN.

    path : the file, for the error
    """
    values = column.to_numpy()
    if values.dtype.kind not in "fiu":
        fail(path, f"expected a column of numbers as scores; got {column.type}")
    if values.dtype != np.float32:
        values = values.astype(np.float64)
    missing = np.isnan(values)
    if missing.any():
        fail(path, f"row {int(missing.argmax())} (counted from 0): the score is NaN")
    return np.asarray(values)


def read_pairs(path: PathLike, third: Sequence[str]) -> list[Any]:
    """Return the models, the tests, and the kinds or scores of the trials in a Parquet file, (n,) each.

    A missing column of kinds gives None; any other missing column raises `FileFormatError`.

    third : names that the third column may have: `mvplda.io.tables.KIND` or `SCORE`
    """
    header = column_names(path)
    for role in (ENROL, TEST, *([SCORE] if third is SCORE else [])):
        required_column(path, header, role)
    return list(read_columns_of(path, (ENROL, TEST, third)))
