"""Vectors in Parquet and Arrow files.

Fixed-size binary and fixed-shape tensors become arrays without a copy; fixed-size lists as
well where they have no nulls, but Parquet decodes them value by value, which is slow.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._optional import need
from .files import Batch, Names, OnDisk, Rows, Vectors, fail, rows_of_batch, wrap_reader_errors
from .numpy_files import ID_KEYS, VECTOR_KEYS

ID_COLUMNS = (*ID_KEYS, "utt_id", "utterance", "uttid", "key", "name", "segmentid")
VECTOR_COLUMNS = (*VECTOR_KEYS, "vector", "embedding", "xvector")
FLOAT_TYPE = b"dtype"
"""Metadata of a fixed-size binary column: ``<f4`` (also where absent) or ``<f8``."""
STREAM_BYTES = 4 * 2**20


class _TableReader:
    """What is common to tables: a column of vectors, one of ids, and others."""

    what = "a table"
    files: tuple[str, ...] = ()

    def __init__(self, source: OnDisk, vectors: str | None = None, ids: str | None = None) -> None:
        self.source, self.path = source, source.name
        with wrap_reader_errors(self.path, self.what):
            schema = self._schema()
            self.field, self.id_column = choose_columns(self.path, schema, vectors, ids)
            self.has_ids, self.found = self.id_column is not None, _described(schema)
            self.columns = tuple(name for name in schema.names if name != self.field.name)
        self._cuts: list[int] | None = None

    def _schema(self) -> Any:
        raise NotImplementedError

    def _lengths(self) -> list[int]:
        """Rows of every part of the file that can be read by itself."""
        raise NotImplementedError

    def _record_batches(self, step: int, columns: list[str], parts: range | None) -> Iterator[Any]:
        raise NotImplementedError

    def cuts(self) -> Sequence[int]:
        if self._cuts is None:
            with wrap_reader_errors(self.path, self.what):
                self._cuts = list(accumulate(self._lengths()))
        return self._cuts

    def batches(
        self, batch_bytes: int, columns: Sequence[str], ids: bool, rows: Rows | None = None
    ) -> Iterator[Batch]:
        wanted = [self.field.name, *dict.fromkeys(columns)]
        if ids and self.id_column is None:
            fail(
                self.path,
                f"expected a column of ids, text or whole numbers, called {ID_COLUMNS[1]!r} or named by you; "
                f"{self.found}",
            )
        if ids and self.id_column not in wanted:
            wanted.append(str(self.id_column))
        step = rows_of_batch(batch_bytes, row_bytes(self.field.type))
        row = 0
        parts = None
        if rows is not None:
            row = rows[0]
            cuts = [0, *self.cuts()]
            parts = range(bisect_right(cuts, rows[0]) - 1, bisect_left(cuts, rows[1]))
        with wrap_reader_errors(self.path, self.what):
            for batch in self._record_batches(step, wanted, parts):
                # Offsets and lengths of a damaged file would lead out of its memory.
                batch.validate(full=True)
                for start in range(0, batch.num_rows, step):
                    some = batch.slice(start, step)
                    X = as_rows(self.path, some.column(self.field.name), self.field)
                    names = self._names(some.column(self.id_column), row) if ids else None
                    yield Batch(X, names, {name: some.column(name) for name in columns})
                    row += some.num_rows

    def _names(self, column: Any, first: int) -> list[str]:
        names = column.to_pylist()
        if column.null_count:
            fail(self.path, f"the id of row {first + names.index(None)}, counted from 0, is null")
        return [str(name) for name in names]


class ParquetReader(_TableReader):
    what = "a Parquet file"

    def _open(self) -> Any:
        parquet = need("pyarrow.parquet")
        # buffered streams: a row group is never read whole
        return parquet.ParquetFile(
            self.source.file,
            pre_buffer=False,
            buffer_size=STREAM_BYTES,
            page_checksum_verification=True,
        )

    def _schema(self) -> Any:
        with self._open() as file:
            return file.schema_arrow

    def _lengths(self) -> list[int]:
        with self._open() as file:
            return [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]

    def _record_batches(self, step: int, columns: list[str], parts: range | None) -> Iterator[Any]:
        groups = None if parts is None else list(parts)
        with self._open() as file:
            yield from file.iter_batches(
                batch_size=step, row_groups=groups, columns=columns, use_threads=False
            )


class ArrowReader(_TableReader):
    """Record batches are read one at a time, not mapped: what was used is not held."""

    what = "an Arrow file"

    def _filed(self) -> bool:
        return self.source.head(6) == b"ARROW1"

    def _schema(self) -> Any:
        arrow, ipc = need("pyarrow"), need("pyarrow.ipc")
        with arrow.OSFile(self.source.file) as source:
            return (ipc.open_file(source) if self._filed() else ipc.open_stream(source)).schema

    def _lengths(self) -> list[int]:
        arrow, ipc = need("pyarrow"), need("pyarrow.ipc")
        if not self._filed():
            return []
        with arrow.memory_map(
            self.source.file
        ) as source:  # of a map nothing but the headers is read
            file = ipc.open_file(source)
            return [file.get_batch(i).num_rows for i in range(file.num_record_batches)]

    def _record_batches(self, step: int, columns: list[str], parts: range | None) -> Iterator[Any]:
        arrow, ipc = need("pyarrow"), need("pyarrow.ipc")
        with arrow.OSFile(self.source.file) as source:
            if self._filed():
                file = ipc.open_file(source)
                for i in range(file.num_record_batches) if parts is None else parts:
                    yield file.get_batch(i)
            else:
                yield from ipc.open_stream(source)


def choose_columns(
    path: str, schema: Any, vectors: str | None, ids: str | None
) -> tuple[Any, str | None]:
    """The field of the vectors, and the column of ids if there is one."""
    types = need("pyarrow").types
    wide = [f.name for f in schema if is_vectors(f.type)]
    found = _described(schema)
    if vectors is not None and vectors not in wide:
        fail(path, f"expected vectors in a column {vectors!r}; {found}")
    chosen = _chosen(wide, VECTOR_COLUMNS if vectors is None else (vectors,))
    if chosen is None:
        fail(
            path,
            f"expected one column of vectors, called {VECTOR_COLUMNS[0]!r} or named by you; {found}",
        )
    if ids is not None and ids not in schema.names:
        fail(path, f"expected ids in a column {ids!r}; {found}")
    texts = [f.name for f in schema if types.is_string(f.type) or types.is_large_string(f.type)]
    whole = [f.name for f in schema if types.is_integer(f.type)]
    return schema.field(chosen), ids if ids is not None else _chosen([*texts, *whole], ID_COLUMNS)


def _chosen(columns: list[str], preferred: Sequence[str]) -> str | None:
    named = [name for name in preferred if name in columns]
    return named[0] if named else columns[0] if len(columns) == 1 else None


def _described(schema: Any) -> str:
    return f"the columns are {', '.join(f'{f.name} ({f.type})' for f in schema)}"


def is_vectors(kind: Any) -> bool:
    """Whether a column of this Arrow type can hold vectors."""
    arrow = need("pyarrow")
    types = arrow.types
    if isinstance(kind, arrow.FixedShapeTensorType):
        return len(kind.shape) == 1 and bool(types.is_floating(kind.value_type))
    if types.is_fixed_size_binary(kind):
        return True
    is_list = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    return bool(is_list and types.is_floating(kind.value_type))


def row_bytes(kind: Any) -> int:
    """Bytes of one vector, as far as the type tells."""
    arrow = need("pyarrow")
    if isinstance(kind, arrow.FixedShapeTensorType):
        return int(np.prod(kind.shape)) * int(kind.value_type.bit_width) // 8
    if arrow.types.is_fixed_size_binary(kind):
        return int(kind.byte_width)
    size = kind.list_size if arrow.types.is_fixed_size_list(kind) else 512
    return int(size) * int(kind.value_type.bit_width) // 8


def as_rows(path: str, column: Any, field: Any) -> NDArray[Any]:
    """A column of vectors as an array; a null is a row of NaN."""
    arrow = need("pyarrow")
    if isinstance(field.type, arrow.FixedShapeTensorType):
        column = column.storage
    given = column.drop_null()
    if arrow.types.is_fixed_size_binary(column.type):
        X = _binary_rows(path, given, field)
    else:
        widths = need("pyarrow.compute").list_value_length(given).unique().to_pylist()
        if len(widths) > 1:
            fail(path, f"vectors of widths {min(widths)} to {max(widths)}; expected one width")
        if not widths:
            return np.empty((len(column), 0))  # all null: they have no width
        X = given.flatten().to_numpy(zero_copy_only=False).reshape(len(given), widths[0])
    if column.null_count == 0:
        return X
    every = np.full((len(column), X.shape[1]), np.nan, dtype=X.dtype)
    every[column.is_valid().to_numpy(zero_copy_only=False)] = X
    return every


def _binary_rows(path: str, column: Any, field: Any) -> NDArray[Any]:
    """Vectors in a column of fixed-size binary without nulls."""
    size = column.type.byte_width
    dtype = np.dtype((field.metadata or {}).get(FLOAT_TYPE, b"<f4").decode())
    if dtype.kind != "f" or size % dtype.itemsize:
        fail(path, f"vectors of {size} bytes; expected a multiple of {dtype.itemsize}, for {dtype}")
    width = size // dtype.itemsize
    if len(column) == 0:
        return np.empty((0, width), dtype)
    numbers = np.frombuffer(
        column.buffers()[1], dtype, count=len(column) * width, offset=column.offset * size
    )
    return numbers.reshape(len(column), width)


def _table(ids: Names, X: Vectors) -> Any:
    arrow = need("pyarrow")
    flat = arrow.array(np.ascontiguousarray(X).reshape(-1))
    vectors = arrow.FixedSizeListArray.from_arrays(flat, X.shape[1])
    return arrow.table({"id": arrow.array(ids.tolist(), type=arrow.string()), "vector": vectors})


def write_parquet(parts: Sequence[Path], ids: Names, X: Vectors) -> None:
    need("pyarrow.parquet").write_table(_table(ids, X), parts[0], write_page_checksum=True)


def write_arrow(parts: Sequence[Path], ids: Names, X: Vectors) -> None:
    ipc, table = need("pyarrow.ipc"), _table(ids, X)
    with parts[0].open("wb") as file, ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
