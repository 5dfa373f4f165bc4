"""Readers and writers of vectors in NumPy, Parquet and CSV files, with their ids and labels."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any, NamedTuple, NoReturn

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from .._optional import need
from .batches import Batch, Reader, Vectors, rows_of_batch
from .lists import as_objects
from .streams import Names, OnDisk, as_names, as_text, fail, wrap_reader_errors
from .tables import as_numbers, is_number, normalised_name, read_table, write_table

Arrow = Any
"""A column, a type or a file of pyarrow, which is optional: its types cannot be imported here."""

# usual names of arrays and columns, as `normalised_name` returns them
VECTORS = ("x", "vectors", "embeddings", "xvectors", "data", "vector", "embedding", "xvector")
IDS = (
    *("ids", "id", "utt", "utts", "utterances", "keys", "names"),
    *("uttid", "utterance", "key", "name", "segmentid"),
)
ARCHIVE = "a NumPy archive (.npz)"
ARRAY = "a NumPy array (.npy)"
PARQUET = "a Parquet file"
STREAM_BYTES = 4 * 2**20
"""Number of bytes of a file that are read at a time."""
GUESSED_WIDTH = 512
"""Assumed dimension of vectors in Parquet lists without a fixed size; it only sets the number of rows per batch."""


def usual_name(names: Sequence[str], usual: Sequence[str]) -> str | None:
    """Return the first of `names` with one of the usual spellings; None if there is none.

    usual : usual names as `normalised_name` returns them, the preferred one first
    """
    by_normalised = {normalised_name(name): name for name in reversed(names)}
    return next((by_normalised[name] for name in usual if name in by_normalised), None)


def column_or_only(names: Sequence[str], usual: Sequence[str]) -> str | None:
    """Return the name in a list of one; of several names, return the result of `usual_name`."""
    if len(names) == 1:
        return names[0]
    return usual_name(names, usual)


class ArrayHeader(NamedTuple):
    """Header of a NumPy array in a file.

    shape : shape of the array
    is_fortran : whether the numbers are stored column by column (Fortran order)
    dtype : type of the numbers
    """

    shape: tuple[int, ...]
    is_fortran: bool
    dtype: np.dtype[np.generic]

    @classmethod
    def read(cls, file: IO[bytes]) -> ArrayHeader:
        """Read the header at the beginning of an open file; the numbers of the array follow."""
        readers = {(1, 0): npy.read_array_header_1_0}
        read = readers.get(npy.read_magic(file), npy.read_array_header_2_0)
        return cls(*read(file))


class ArrayStream:
    """NumPy array in an open file that is read some rows at a time, so that it need not fit into memory.

    An array in Fortran order, whose rows are scattered over the file, is read at once.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file
        self.header = ArrayHeader.read(file)
        if self.header.dtype.hasobject:
            raise ValueError(
                "arrays of Python objects are not supported: store arrays of text or numbers"
            )
        self._whole: NDArray[Any] | None = None
        self._first = 0

    def rows(self, count: int) -> NDArray[Any]:
        """Return the next `count` rows, (count, ...); raise ValueError if the file ends before."""
        shape, is_fortran, _ = self.header
        if is_fortran and len(shape) > 1:
            if self._whole is None:
                self._whole = self._numbers(math.prod(shape)).reshape(shape, order="F")
            self._first += count
            return np.ascontiguousarray(self._whole[self._first - count : self._first])
        return self._numbers(count * math.prod(shape[1:])).reshape(count, *shape[1:])

    def _numbers(self, count: int) -> NDArray[Any]:
        """Return the next `count` numbers of the file, (count,); raise ValueError if the file ends before."""
        size = count * self.header.dtype.itemsize
        numbers = bytearray(size)
        view = memoryview(numbers)
        done = 0
        while done < size:
            read = self.file.readinto(view[done:])  # type: ignore[attr-defined]
            if not read:
                raise ValueError(
                    f"the file ends in the middle of an array: {size - done} bytes are missing"
                )
            done += read
        return np.frombuffer(numbers, self.header.dtype, count)

    def finish(self) -> None:
        """Read the rest of the file: a zip archive compares the checksum of an array only at its end."""
        while self.file.read(STREAM_BYTES):
            pass


class NpzReader(Reader):
    """Reader of ``.npz``: an array of vectors (n, D), and arrays of ids and labels (n,)."""

    def __init__(self, source: OnDisk) -> None:
        self.source = source
        self.path = source.name
        with wrap_reader_errors(self.path, ARCHIVE), zipfile.ZipFile(source.file) as archive:
            self.headers = {}
            for name in archive.namelist():
                with archive.open(name) as file:
                    self.headers[name.removesuffix(".npy")] = ArrayHeader.read(file)
            self._members = dict(zip(self.headers, archive.namelist(), strict=True))
        tables = [key for key, header in self.headers.items() if len(header.shape) == 2]
        key = column_or_only(tables, VECTORS)
        if key is None or self.headers[key].dtype.kind not in "fiu":
            arrays = ", ".join(
                f"{name} {header.shape} of {header.dtype}" for name, header in self.headers.items()
            )
            fail(
                self.path,
                "expected an array 'X' of numbers (n, D), and an array 'ids' (n,); "
                f"the archive has {arrays or 'no arrays'}",
            )
        self.key = key
        self.columns = tuple(
            name for name, header in self.headers.items() if len(header.shape) == 1
        )
        self.id_column = usual_name(self.columns, IDS)
        self.has_ids = self.id_column is not None

    def batches(self, batch_bytes: int, columns: Sequence[str], ids: bool) -> Iterator[Batch]:
        n, width = self.headers[self.key].shape
        id_columns = [self.id_column] if ids and self.id_column is not None else []
        for column in [*columns, *id_columns]:
            values = self.headers[column].shape[0]
            if values != n:
                shown = "ids" if column in id_columns else column
                fail(
                    self.path,
                    f"the array {shown!r} has {values} values for {n} vectors; expected one per vector",
                )
        step = rows_of_batch(batch_bytes, width * self.headers[self.key].dtype.itemsize)
        with (
            wrap_reader_errors(self.path, ARCHIVE),
            zipfile.ZipFile(self.source.file) as archive,
            ExitStack() as stack,
        ):
            streams = {
                name: ArrayStream(stack.enter_context(archive.open(self._members[name])))
                for name in dict.fromkeys([self.key, *columns, *id_columns])
            }
            for first in range(0, n, step):
                count = min(step, n - first)
                arrays = {name: stream.rows(count) for name, stream in streams.items()}
                if first + count == n:
                    # a damaged archive is refused before its last batch is used
                    for stream in streams.values():
                        stream.finish()
                names = np.arange(first, first + count).astype(str).tolist()
                if id_columns:
                    names = as_names(self.path, arrays[id_columns[0]].tolist()).tolist()
                labels = {column: arrays[column] for column in columns}
                yield Batch(arrays[self.key], names, labels)


class NpyReader(Reader):
    """Reader of ``.npy``: vectors (n, D) without ids; the row numbers, from 0, are their ids."""

    has_ids = False

    def __init__(self, source: OnDisk) -> None:
        self.source = source
        self.path = source.name
        with wrap_reader_errors(self.path, ARRAY), open(source.file, "rb") as file:
            self.header = ArrayHeader.read(file)
        shape, _, dtype = self.header
        if len(shape) != 2 or dtype.kind not in "fiu":
            fail(self.path, f"expected an array of numbers (n, D); got shape {shape} of {dtype}")

    def batches(self, batch_bytes: int, columns: Sequence[str], ids: bool) -> Iterator[Batch]:
        n, width = self.header.shape
        step = rows_of_batch(batch_bytes, width * self.header.dtype.itemsize)
        with wrap_reader_errors(self.path, ARRAY), open(self.source.file, "rb") as file:
            stream = ArrayStream(file)
            for first in range(0, n, step):
                count = min(step, n - first)
                names = np.arange(first, first + count).astype(str).tolist()
                yield Batch(stream.rows(count), names)


def write_npz(path: Path, ids: Names, X: Vectors, labels: Mapping[str, Sequence[str]]) -> None:
    """Write vectors (n, D) as the array ``X``, ids as ``ids``, and labels as one array per view, to a ``.npz`` file."""
    columns = {view: np.array(column) for view, column in labels.items()}
    with path.open("wb") as file:
        np.savez(file, **{"X": X, "ids": ids, **columns})  # type: ignore[arg-type]


class ParquetReader(Reader):
    """Reader of Parquet: columns of ids, of vectors (lists of numbers) and of labels.

    Row groups are read in batches, so that they need not fit into memory.
    """

    def __init__(self, source: OnDisk) -> None:
        self.source = source
        self.path = source.name
        types = need("pyarrow").types
        with wrap_reader_errors(self.path, PARQUET), self._open() as file:
            self.schema = file.schema_arrow
        scalar_columns = []
        list_columns = []
        for field in self.schema:
            kind = field.type
            if types.is_string(kind) or types.is_large_string(kind) or types.is_integer(kind):
                scalar_columns.append(field.name)
            elif types.is_nested(kind) and types.is_floating(getattr(kind, "value_type", kind)):
                list_columns.append(field.name)
        self.key = column_or_only(list_columns, VECTORS) or self._fail_expecting(
            "one column of vectors, called 'vector'"
        )
        self.id_column = column_or_only(scalar_columns, IDS)
        self.has_ids = self.id_column is not None
        self.columns = tuple(name for name in self.schema.names if name != self.key)

    def _open(self) -> Arrow:
        """Return the file as a `pyarrow.parquet.ParquetFile` that is read piece by piece."""
        # buffered streams read a row group piece by piece
        return need("pyarrow.parquet").ParquetFile(
            self.source.file,
            pre_buffer=False,
            buffer_size=STREAM_BYTES,
            page_checksum_verification=True,
        )

    def _fail_expecting(self, expected: str) -> NoReturn:
        """Raise a `FileFormatError` that states which column was expected, and the columns of the file."""
        columns = ", ".join(f"{field.name} ({field.type})" for field in self.schema)
        fail(self.path, f"expected {expected}; the columns are {columns}")

    def batches(self, batch_bytes: int, columns: Sequence[str], ids: bool) -> Iterator[Batch]:
        if ids and self.id_column is None:
            self._fail_expecting("a column of ids, text or whole numbers, called 'id'")
        required = [self.key, *[self.id_column] * ids]
        kind = self.schema.field(self.key).type
        width = getattr(kind, "list_size", GUESSED_WIDTH)
        step = rows_of_batch(batch_bytes, width * kind.value_type.bit_width // 8)
        first = 0
        with wrap_reader_errors(self.path, PARQUET), self._open() as file:
            selected = list(dict.fromkeys([*required, *columns]))
            for batch in file.iter_batches(step, columns=selected, use_threads=False):
                # offsets and lengths of a damaged file could point outside of its memory
                batch.validate(full=True)
                for name in required:
                    if batch.column(name).null_count:
                        row = first + batch.column(name).is_null().index(True).as_py()
                        fail(
                            self.path,
                            f"the column {name!r} has no value in row {row} (counted from 0)",
                        )
                names = None
                if ids:
                    names = list(map(as_text, batch.column(self.id_column).to_pylist()))
                X = self._rows(batch.column(self.key))
                yield Batch(X, names, {name: batch.column(name) for name in columns})
                first += len(X)

    def _rows(self, column: Arrow) -> NDArray[np.floating]:
        """Return an Arrow column of vectors as an array (n, D); raise `FileFormatError` if dimensions differ."""
        widths = need("pyarrow.compute").list_value_length(column).unique().to_pylist()
        if len(widths) > 1:
            fail(
                self.path,
                f"expected vectors of equal dimension; they have {min(widths)} to {max(widths)} dimensions",
            )
        flat = column.flatten().to_numpy(zero_copy_only=False)
        return np.asarray(flat.reshape(len(column), widths[0]))


def write_parquet(path: Path, ids: Names, X: Vectors, labels: Mapping[str, Sequence[str]]) -> None:
    """Write columns ``id`` and ``vector``, and one column of labels per view, with checksums, to a Parquet file."""
    arrow = need("pyarrow")
    numbers = arrow.array(np.ascontiguousarray(X).reshape(-1))
    vectors = arrow.FixedSizeListArray.from_arrays(numbers, X.shape[1])
    names = arrow.array(ids.tolist(), type=arrow.string())
    columns = {view: arrow.array(list(column), arrow.string()) for view, column in labels.items()}
    table = arrow.table({"id": names, "vector": vectors, **columns})
    need("pyarrow.parquet").write_table(table, path, write_page_checksum=True)


class CsvReader(Reader):
    """Reader of CSV with a header: columns of numbers are dimensions of the vectors, others are ids and labels.

    The first row of values shows which columns contain numbers. Ids are in the column with a usual name, else in the
    first column of text.
    """

    def __init__(self, source: OnDisk) -> None:
        header, columns = read_table(source)
        self.path = source.name
        self.fields = dict(zip(header, columns, strict=True))
        text_columns = [name for name, column in self.fields.items() if not is_number(column[0])]
        self.id_column = usual_name(header, IDS) or next(iter(text_columns), None)
        self.has_ids = self.id_column is not None
        self.dimensions = [name for name in header if name not in (*text_columns, self.id_column)]
        self.columns = tuple(name for name in header if name not in self.dimensions)
        if not self.dimensions:
            fail(
                self.path,
                "there is no column of numbers (other than NaN); expected one column per dimension of the vectors",
            )

    def batches(self, batch_bytes: int, columns: Sequence[str], ids: bool) -> Iterator[Batch]:
        numbers = []
        for name in self.dimensions:
            values = self.fields[name]
            # the header is line 1
            lines = range(2, 2 + len(values))
            numbers.append(as_numbers(self.path, values, lines, f"column {name!r}"))
        names = [str(row) for row in range(len(numbers[0]))]
        if self.id_column is not None:
            names = self.fields[self.id_column]
        labels = {name: as_objects(self.fields[name]) for name in columns}
        yield Batch(np.array(numbers).T, names, labels)


def write_csv(path: Path, ids: Names, X: Vectors, labels: Mapping[str, Sequence[str]]) -> None:
    """Write a CSV file with a column ``id`` and a column per dimension.

    Labels are not written: labels that are numbers would be read as dimensions.
    """
    columns = {"id": ids, **{f"x{k}": column for k, column in enumerate(X.T)}}
    write_table(path, columns)
