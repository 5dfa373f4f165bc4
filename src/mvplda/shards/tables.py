"""Parquet and Arrow tables as shards.

Fixed-size binary and fixed-shape tensors become arrays without a copy; fixed-size lists as
well where they have no nulls, but Parquet decodes them value by value, which is slow.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..exceptions import LabelError
from ..extras import need
from ..io.columnar import FLOAT_TYPE, ID_COLUMNS, VECTOR_COLUMNS
from ..io.foreign import foreign
from ..io.numpy_files import must_exist
from ..io.text import fail
from ..statistics import LabelCodes, label_codes
from .readers import RawBatch, Reader, Rows, rows_of_batch

STREAM_BYTES = 4 * 2**20


def open_table(path: str, vectors: str | None, ids: str | None) -> Reader:
    """A Parquet file, or an Arrow IPC file or stream."""
    must_exist(path)
    kind = ParquetReader if path.lower().endswith(".parquet") else ArrowReader
    return kind(path, vectors, ids)


class _TableReader:
    """What is common to tables: which columns they have."""

    what = "a table"

    def __init__(self, path: str, vectors: str | None, ids: str | None) -> None:
        self.path = path
        self.files: tuple[str, ...] = ()
        with foreign(path, self.what):
            schema = self._schema()
        self.field, self.ids = choose_columns(path, schema, vectors, ids)
        self.has_ids = self.ids is not None
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
            with foreign(self.path, self.what):
                self._cuts = list(accumulate(self._lengths()))
        return self._cuts

    def batches(
        self, batch_bytes: int, columns: Sequence[str], ids: bool, rows: Rows | None = None
    ) -> Iterator[RawBatch]:
        wanted = [self.field.name, *dict.fromkeys(columns)]
        if ids and self.ids is not None and self.ids not in wanted:
            wanted.append(self.ids)
        step = rows_of_batch(batch_bytes, row_bytes(self.field.type))
        parts = None
        if rows is not None:
            cuts = [0, *self.cuts()]
            parts = range(bisect_right(cuts, rows[0]) - 1, bisect_left(cuts, rows[1]))
        with foreign(self.path, self.what):
            for batch in self._record_batches(step, wanted, parts):
                for start in range(0, batch.num_rows, step):
                    some = batch.slice(start, step)
                    X = as_rows(self.path, some.column(self.field.name), self.field)
                    names = [str(i) for i in some.column(self.ids).to_pylist()] if ids and self.ids else None
                    yield RawBatch(X, names, {name: some.column(name) for name in columns})


class ParquetReader(_TableReader):
    what = "a Parquet file"

    def _open(self) -> Any:
        parquet = need("pyarrow.parquet")
        # buffered streams: a row group is never read whole
        return parquet.ParquetFile(
            self.path, pre_buffer=False, buffer_size=STREAM_BYTES, page_checksum_verification=True
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
            yield from file.iter_batches(batch_size=step, row_groups=groups, columns=columns, use_threads=False)


class ArrowReader(_TableReader):
    """Record batches are read one at a time, not mapped: what was used is not held."""

    what = "an Arrow file"

    def _filed(self) -> bool:
        with open(self.path, "rb") as file:
            return file.read(6) == b"ARROW1"

    def _schema(self) -> Any:
        arrow, ipc = need("pyarrow"), need("pyarrow.ipc")
        with arrow.OSFile(self.path) as source:
            return (ipc.open_file(source) if self._filed() else ipc.open_stream(source)).schema

    def _lengths(self) -> list[int]:
        arrow, ipc = need("pyarrow"), need("pyarrow.ipc")
        if not self._filed():
            return []
        with arrow.memory_map(self.path) as source:  # of a map nothing but the headers is read
            file = ipc.open_file(source)
            return [file.get_batch(i).num_rows for i in range(file.num_record_batches)]

    def _record_batches(self, step: int, columns: list[str], parts: range | None) -> Iterator[Any]:
        arrow, ipc = need("pyarrow"), need("pyarrow.ipc")
        with arrow.OSFile(self.path) as source:
            if self._filed():
                file = ipc.open_file(source)
                for i in range(file.num_record_batches) if parts is None else parts:
                    yield file.get_batch(i)
            else:
                yield from ipc.open_stream(source)


def choose_columns(path: str, schema: Any, vectors: str | None, ids: str | None) -> tuple[Any, str | None]:
    """The field of the vectors, and the column of ids if there is one."""
    types = need("pyarrow").types
    wide = [f.name for f in schema if is_vectors(f.type)]
    found = f"the columns are {', '.join(f'{f.name} ({f.type})' for f in schema)}"
    if vectors is not None and vectors not in wide:
        fail(path, f"expected vectors in a column {vectors!r}; {found}")
    named = [vectors] if vectors is not None else [n for n in VECTOR_COLUMNS if n in wide]
    if not named and len(wide) == 1:
        named = wide
    if not named:
        fail(path, f"expected one column of vectors, called {VECTOR_COLUMNS[0]!r} or named by you; {found}")
    if ids is not None and ids not in schema.names:
        fail(path, f"expected ids in a column {ids!r}; {found}")
    texts = [f.name for f in schema if types.is_string(f.type) or types.is_large_string(f.type)]
    names = [ids] if ids is not None else [n for n in ID_COLUMNS if n in texts]
    return schema.field(named[0]), names[0] if names else None


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
    arrow, compute = need("pyarrow"), need("pyarrow.compute")
    if isinstance(field.type, arrow.FixedShapeTensorType):
        column = column.storage
    n, kind = len(column), column.type
    if arrow.types.is_fixed_size_binary(kind):
        dtype = np.dtype((field.metadata or {}).get(FLOAT_TYPE, b"<f4").decode())
        if dtype.kind != "f" or kind.byte_width % dtype.itemsize:
            fail(path, f"vectors of {kind.byte_width} bytes; expected a multiple of {dtype.itemsize}, for {dtype}")
        width = kind.byte_width // dtype.itemsize
        buffer = column.buffers()[1]
        X = np.frombuffer(buffer, dtype, count=n * width, offset=column.offset * kind.byte_width) if n else np.empty(0)
        X = X.reshape(n, width)
    elif arrow.types.is_fixed_size_list(kind):
        width = kind.list_size
        values = column.values.slice(column.offset * width, n * width)
        X = values.to_numpy(zero_copy_only=False).reshape(n, width)
    else:
        widths = compute.list_value_length(column.drop_null()).to_numpy(zero_copy_only=False)
        if len(set(widths.tolist())) > 1:
            fail(path, f"vectors of widths {min(widths)} to {max(widths)}; expected one width")
        if len(widths) == 0:
            return np.empty((n, 0))  # all null: they have no width
        width = int(widths[0])
        flat = column.flatten().to_numpy(zero_copy_only=False)
        if column.null_count == 0:
            return np.asarray(flat).reshape(n, width)
        X = np.full((n, width), np.nan, dtype=flat.dtype)
        X[column.is_valid().to_numpy(zero_copy_only=False)] = flat.reshape(-1, width)
        return X
    if column.null_count:
        X = X.copy()
        X[column.is_null().to_numpy(zero_copy_only=False)] = np.nan
    return X


def arrow_codes(name: str, column: Any, missing: Any) -> LabelCodes:
    """Labels of an Arrow column, numbered without making Python objects of the rows."""
    arrow = need("pyarrow")
    encoded = column if arrow.types.is_dictionary(column.type) else column.dictionary_encode()
    kind = encoded.type.value_type
    if arrow.types.is_nested(kind) or arrow.types.is_decimal(kind):
        raise LabelError(f"labels of {name!r} are {kind}; expected text, numbers or dates")
    labels = label_codes(encoded.dictionary.to_numpy(zero_copy_only=False), missing=missing)
    known = np.append(labels.codes, -1)
    indices = encoded.indices.fill_null(len(labels.codes)).cast(arrow.int64()).to_numpy(zero_copy_only=False)
    return LabelCodes(labels.names, known[indices])
