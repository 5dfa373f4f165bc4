"""Vectors in Parquet files: a column of ids, one of vectors, and columns of labels.

Fixed-size binary becomes an array without a copy; so do fixed-size lists that have no nulls, but Parquet decodes
them value by value, which is slow.
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
from .files import (
    Batch,
    Names,
    OnDisk,
    Reader,
    Rows,
    Vectors,
    as_text,
    fail,
    rows_of_batch,
    wrap_reader_errors,
)
from .numpy_files import ID_KEYS, VECTOR_KEYS

FLOAT_TYPE = b"dtype"
"""Metadata of a fixed-size binary column: ``<f4`` (also where absent) or ``<f8``."""
STREAM_BYTES = 4 * 2**20
PARQUET = "a Parquet file"
GUESSED_WIDTH = 512
"""Of lists, whose type does not tell it; it only decides how many rows are read at a time."""


class ParquetReader(Reader):
    """Row groups are read some rows at a time, and never held whole."""

    def __init__(self, source: OnDisk, vectors: str | None = None, ids: str | None = None) -> None:
        self.source = source
        self.path = source.name
        types = need("pyarrow").types
        with wrap_reader_errors(self.path, PARQUET), self._open() as file:
            self.schema = file.schema_arrow
            groups = [file.metadata.row_group(i) for i in range(file.num_row_groups)]
            self._cuts = list(accumulate(group.num_rows for group in groups))
        wide = [f.name for f in self.schema if _is_vectors(f.type)]
        chosen = self._chosen(wide, VECTOR_KEYS, vectors)
        if chosen is None:
            self._lacks(f"one column of vectors, called {VECTOR_KEYS[0]!r} or named by you")
        self.field = self.schema.field(chosen)
        kinds = (types.is_string, types.is_large_string, types.is_integer)
        named = [f.name for is_kind in kinds for f in self.schema if is_kind(f.type)]
        self.id_column = self._chosen(named if ids is None else self.schema.names, ID_KEYS, ids)
        self.has_ids = self.id_column is not None
        self.columns = tuple(name for name in self.schema.names if name != chosen)

    def _open(self) -> Any:
        # buffered streams: a row group is never read whole
        return need("pyarrow.parquet").ParquetFile(
            self.source.file,
            pre_buffer=False,
            buffer_size=STREAM_BYTES,
            page_checksum_verification=True,
        )

    def _chosen(self, there: list[str], usual: Sequence[str], named: str | None) -> str | None:
        """The column that is named, else one with a usual name, else the only one."""
        if named is not None and named not in there:
            self._lacks(f"a column {named!r}")
        if named is not None or len(there) == 1:
            return named or there[0]
        return next((name for name in usual if name in there), None)

    def _lacks(self, what: str) -> None:
        columns = ", ".join(f"{field.name} ({field.type})" for field in self.schema)
        fail(self.path, f"expected {what}; the columns are {columns}")

    def cuts(self) -> Sequence[int]:
        return self._cuts

    def batches(
        self, batch_bytes: int, columns: Sequence[str], ids: bool, rows: Rows | None = None
    ) -> Iterator[Batch]:
        if ids and self.id_column is None:
            self._lacks("a column of ids, text or whole numbers, called 'id' or named by you")
        wanted = dict.fromkeys([self.field.name, *columns, *[self.id_column] * ids])
        step = rows_of_batch(batch_bytes, _row_bytes(self.field.type))
        first, end = rows or (0, self._cuts[-1] if self._cuts else 0)
        cuts = [0, *self._cuts]
        groups = range(bisect_right(cuts, first) - 1, bisect_left(cuts, end))
        with wrap_reader_errors(self.path, PARQUET), self._open() as file:
            batches = file.iter_batches(
                batch_size=step, row_groups=list(groups), columns=list(wanted), use_threads=False
            )
            for batch in batches:
                # Offsets and lengths of a damaged file would lead out of its memory.
                batch.validate(full=True)
                X = self._rows(batch.column(self.field.name))
                names = self._names(batch.column(self.id_column), first) if ids else None
                yield Batch(X, names, {name: batch.column(name) for name in columns})
                first += len(X)

    def _names(self, column: Any, first: int) -> list[str]:
        names = column.to_pylist()
        if column.null_count:
            fail(self.path, f"the id of row {first + names.index(None)}, counted from 0, is null")
        return list(map(as_text, names))

    def _rows(self, column: Any) -> NDArray[Any]:
        """A column of vectors as an array; a null is a row of NaN."""
        given = column.drop_null()
        if need("pyarrow").types.is_fixed_size_binary(column.type):
            X = self._binary_rows(given)
        else:
            widths = need("pyarrow.compute").list_value_length(given).unique().to_pylist()
            if len(widths) > 1:
                lengths = f"{min(widths)} to {max(widths)}"
                fail(self.path, f"vectors of widths {lengths}; expected one width")
            if not widths:
                return np.empty((len(column), 0))  # all null: they have no width
            X = given.flatten().to_numpy(zero_copy_only=False).reshape(len(given), widths[0])
        if column.null_count == 0:
            return X
        every = np.full((len(column), X.shape[1]), np.nan, dtype=X.dtype)
        every[column.is_valid().to_numpy(zero_copy_only=False)] = X
        return every

    def _binary_rows(self, column: Any) -> NDArray[Any]:
        """Vectors in a column of fixed-size binary without nulls."""
        size = column.type.byte_width
        dtype = np.dtype((self.field.metadata or {}).get(FLOAT_TYPE, b"<f4").decode())
        if dtype.kind != "f" or size % dtype.itemsize:
            wanted = f"a multiple of {dtype.itemsize}, for {dtype}"
            fail(self.path, f"vectors of {size} bytes; expected {wanted}")
        width = size // dtype.itemsize
        if len(column) == 0:
            return np.empty((0, width), dtype)
        start = column.offset * size
        numbers = np.frombuffer(column.buffers()[1], dtype, len(column) * width, start)
        return numbers.reshape(-1, width)


def _is_vectors(kind: Any) -> bool:
    """Whether a column of this Arrow type can hold vectors."""
    types = need("pyarrow").types
    is_list = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    floats = is_list and types.is_floating(kind.value_type)
    return bool(floats or types.is_fixed_size_binary(kind))


def _row_bytes(kind: Any) -> int:
    """Bytes of one vector, as far as the type tells."""
    types = need("pyarrow").types
    if types.is_fixed_size_binary(kind):
        return int(kind.byte_width)
    size = kind.list_size if types.is_fixed_size_list(kind) else GUESSED_WIDTH
    return int(size) * int(kind.value_type.bit_width) // 8


def write_parquet(parts: Sequence[Path], ids: Names, X: Vectors) -> None:
    arrow = need("pyarrow")
    numbers = arrow.array(np.ascontiguousarray(X).reshape(-1))
    vectors = arrow.FixedSizeListArray.from_arrays(numbers, X.shape[1])
    names = arrow.array(ids.tolist(), type=arrow.string())
    table = arrow.table({"id": names, "vector": vectors})
    need("pyarrow.parquet").write_table(table, parts[0], write_page_checksum=True)
