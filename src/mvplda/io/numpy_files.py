"""Vectors in ``.npy``, ``.npz`` and HDF5 files. No pickle."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._optional import need
from .._typing import PathLike
from .files import (
    Batch,
    Names,
    OnDisk,
    Rows,
    Vectors,
    fail,
    lines_of,
    rows_of_batch,
    stacked,
    wrap_reader_errors,
)

VECTOR_KEYS = ("X", "x", "vectors", "embeddings", "xvectors", "data")
ID_KEYS = ("ids", "id", "utt", "utts", "utterances", "keys", "names")
MOST_PACKED = 1100
"""Bytes that one compressed byte stands for at most: 1,032 in gzip."""


class NpyReader:
    """An array (n, D). Ids in a file of the same name ending in ``.ids``, one a line, else row numbers."""

    columns: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    id_column: str | None = None

    def __init__(self, source: OnDisk, vectors: str | None = None, ids: str | None = None) -> None:
        self.source = source
        self.path = source.name
        with wrap_reader_errors(self.path, "a NumPy array"):
            # A map takes no memory, and notices a file that is too short.
            self.array = np.load(source.file, mmap_mode="r", allow_pickle=False)
            _check_vectors(self.path, Header(self.array.shape, self.array.dtype))
            behind = os.stat(source.file).st_size - self.array.offset - self.array.nbytes
            if behind:
                fail(self.path, f"damaged: {behind} bytes too many for shape {self.array.shape}")
        self.id_file = Path(self.path.removesuffix(".gz")).with_suffix(".ids")
        self.has_ids = self.id_file.exists()
        if self.has_ids:
            self.files = (str(self.id_file),)

    def cuts(self) -> Sequence[int]:
        return range(1, len(self.array) + 1)

    def batches(
        self, batch_bytes: int, columns: Sequence[str], ids: bool, rows: Rows | None = None
    ) -> Iterator[Batch]:
        first, end = rows or (0, len(self.array))
        step = rows_of_batch(batch_bytes, self.array.shape[1] * self.array.itemsize)
        lines: Iterator[bytes] = iter(())
        if ids and self.has_ids:
            lines = islice(lines_of(OnDisk(self.id_file)), first, None)
        for start in range(first, end, step):
            stop = min(start + step, end)
            names = [str(row) for row in range(start, stop)]
            if self.has_ids:
                names = [line.decode().strip(" \t") for line in islice(lines, stop - start)]
            if ids and len(names) < stop - start:
                self._miscounted(start + len(names))
            yield Batch(self._rows(start, stop), names if ids else None)
        if end == len(self.array) and any(line.strip() for line in lines):
            self._miscounted(f"more than {end}")

    def _rows(self, start: int, stop: int) -> NDArray[Any]:
        shape = (stop - start, self.array.shape[1])
        dtype = self.array.dtype
        with wrap_reader_errors(self.path, "a NumPy array"):
            X: NDArray[Any]
            if self.array.flags.c_contiguous:
                # Read, not mapped: pages that were used would stay.
                place = self.array.offset + start * shape[1] * dtype.itemsize
                X = np.fromfile(self.source.file, dtype, shape[0] * shape[1], offset=place)
                X = X.reshape(shape)
            else:
                X = np.array(self.array[start:stop], order="C")
            return X.astype(dtype.newbyteorder("="), copy=False)

    def _miscounted(self, count: int | str) -> None:
        fail(
            self.id_file,
            f"{count} ids for the {len(self.array)} vectors of {self.path}; expected as many",
        )


class Header(NamedTuple):
    """What is known of an array before it is read."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def is_vector(self) -> bool:
        one = len(self.shape) == 1 or (len(self.shape) == 2 and self.shape[0] == 1)
        return one and self.dtype.kind in "fiu"


class KeyedReader:
    """Named arrays: vectors (n, D) and beside them ids and labels (n,); or one vector a key."""

    what = "a file of named arrays"
    files: tuple[str, ...] = ()

    def __init__(self, source: OnDisk, vectors: str | None = None, ids: str | None = None) -> None:
        self.source = source
        self.path = source.name
        with wrap_reader_errors(self.path, self.what), self._open() as archive:
            self.headers = self._headers(archive)
        if not self.headers:
            fail(self.path, "the file holds no arrays")
        shapes = ", ".join(f"{key} {header.shape}" for key, header in self.headers.items())
        tables = [key for key, header in self.headers.items() if len(header.shape) == 2]
        wanted = VECTOR_KEYS if vectors is None else (vectors,)
        self.key = next((key for key in wanted if key in tables), None)
        if self.key is None and vectors is None:
            self.key = self._one_table()
        self.id_column: str | None = None
        self.columns: tuple[str, ...] = ()
        self.has_ids = True
        if self.key is None:
            if vectors is not None or not all(one.is_vector for one in self.headers.values()):
                fail(
                    self.path,
                    f"expected an array {wanted[0]!r} (n, D), or one vector of floats a key; there are {shapes}",
                )
            return
        _check_vectors(self.path, self.headers[self.key])
        if ids is not None and ids not in self.headers:
            fail(self.path, f"expected ids in an array {ids!r}; there are {shapes}")
        named = ID_KEYS if ids is None else (ids,)
        self.id_column = next((key for key in named if key in self.headers), None)
        self.has_ids = self.id_column is not None
        if self.id_column is not None and len(self.headers[self.id_column].shape) != 1:
            fail(self.path, f"expected one id a vector; there are {shapes}")
        self.columns = tuple(key for key, header in self.headers.items() if len(header.shape) == 1)

    def _one_table(self) -> str | None:
        """The only table of numbers, whatever its name, where all else is one value a row of it."""
        others = dict(self.headers)
        tables = [key for key, one in others.items() if len(one.shape) == 2 and one.shape[0] > 1]
        if len(tables) != 1:
            return None
        table = others.pop(tables[0])
        beside = all(other.shape == table.shape[:1] for other in others.values())
        return tables[0] if beside and table.dtype.kind in "fiu" else None

    def _open(self) -> AbstractContextManager[Any]:
        """The arrays by name, as long as the file is open."""
        raise NotImplementedError

    def _headers(self, archive: Any) -> dict[str, Header]:
        raise NotImplementedError

    def _array(self, archive: Any, key: str) -> NDArray[Any]:
        return np.asarray(archive[key])

    def cuts(self) -> Sequence[int]:
        return ()

    def batches(
        self, batch_bytes: int, columns: Sequence[str], ids: bool, rows: Rows | None = None
    ) -> Iterator[Batch]:
        with wrap_reader_errors(self.path, self.what), self._open() as archive:
            if self.key is None:
                yield from self._one_a_key(archive, batch_bytes)
            else:
                yield from self._table(archive, self.key, batch_bytes, columns, ids)

    def _one_a_key(self, archive: Any, batch_bytes: int) -> Iterator[Batch]:
        keys = iter(self.headers)
        first = next(iter(self.headers.values()))
        step = rows_of_batch(batch_bytes, int(np.prod(first.shape)) * 8)
        width: int | None = None
        while some := list(islice(keys, step)):
            rows = [self._array(archive, key).reshape(-1) for key in some]
            X = stacked(self.path, some, rows, width)
            width = X.shape[1]
            yield Batch(X, some)

    def _table(
        self, archive: Any, key: str, batch_bytes: int, columns: Sequence[str], ids: bool
    ) -> Iterator[Batch]:
        (n, width), dtype = self.headers[key]
        labels = {column: self._array(archive, column) for column in columns}
        names = [str(row) for row in range(n)] if ids else None
        if ids and self.id_column is not None:
            names = _texts(self.path, self._array(archive, self.id_column))
        for column, values in {**labels, "ids": names}.items():
            if values is not None and len(values) != n:
                fail(
                    self.path,
                    f"{len(values)} values of {column!r} for {n} vectors; expected as many",
                )
        X = archive[key]  # an .npz gives the whole array, HDF5 a dataset that is read by slices
        step = rows_of_batch(batch_bytes, width * dtype.itemsize)
        for start in range(0, n, step):
            some = slice(start, start + step)
            yield Batch(
                np.ascontiguousarray(X[some]),
                None if names is None else names[some],
                {column: values[some] for column, values in labels.items()},
            )


class NpzReader(KeyedReader):
    what = "a NumPy archive"

    def _open(self) -> AbstractContextManager[Any]:
        archive: AbstractContextManager[Any] = np.load(self.source.file, allow_pickle=False)
        return archive

    def _headers(self, archive: Any) -> dict[str, Header]:
        headers = {}
        with zipfile.ZipFile(self.source.file) as file:
            for name in file.namelist():
                with file.open(name) as member:
                    headers[name.removesuffix(".npy")] = _read_header(member)
        return headers


def _read_header(file: Any) -> Header:
    if np.lib.format.read_magic(file) == (1, 0):
        shape, _, dtype = np.lib.format.read_array_header_1_0(file)
    else:
        shape, _, dtype = np.lib.format.read_array_header_2_0(file)
    return Header(shape, dtype)


class Hdf5Reader(KeyedReader):
    what = "an HDF5 file"

    def _open(self) -> AbstractContextManager[Any]:
        file: AbstractContextManager[Any] = need("h5py").File(self.source.file, "r")
        return file

    def _headers(self, archive: Any) -> dict[str, Header]:
        dataset = need("h5py").Dataset
        held = os.path.getsize(self.source.file)
        headers: dict[str, Header] = {}

        def collect(name: str, item: Any) -> None:
            if not isinstance(item, dataset):
                return
            # Before memory is taken for it.
            if item.size * item.dtype.itemsize > MOST_PACKED * held:
                fail(
                    self.path,
                    f"damaged: {name!r} has shape {item.shape}, far more than {held} bytes hold",
                )
            headers[name] = Header(item.shape, item.dtype)

        archive.visititems(collect)
        return headers

    def _array(self, archive: Any, key: str) -> NDArray[Any]:
        item = archive[key]
        if need("h5py").check_string_dtype(item.dtype):
            item = item.asstr()
        return np.asarray(item[()])


def _check_vectors(path: PathLike, header: Header) -> None:
    if len(header.shape) != 2 or header.dtype.kind not in "fiu":
        fail(path, f"expected vectors (n, D) of floats; got shape {header.shape} of {header.dtype}")


def _texts(path: PathLike, ids: NDArray[Any]) -> list[str]:
    """Ids as text, whatever their type in the file."""
    names: list[Any] = ids.tolist()
    if ids.dtype.kind == "U":
        return names
    if ids.dtype.kind == "f" and not np.isfinite(ids).all():
        fail(path, "an id is NaN or infinite; ids are text or numbers")
    try:
        return [name.decode() if isinstance(name, bytes) else str(name) for name in names]
    except UnicodeDecodeError as error:
        fail(path, f"the id {error.object!r} is not UTF-8")


def write_npy(parts: Sequence[Path], ids: Names, X: Vectors) -> None:
    """The array, and the file of ids."""
    with parts[0].open("wb") as file:
        np.save(file, X, allow_pickle=False)
    parts[1].write_bytes("".join(f"{name}\n" for name in ids.tolist()).encode())


def write_npz(parts: Sequence[Path], ids: Names, X: Vectors) -> None:
    with parts[0].open("wb") as file:
        np.savez(file, X=X, ids=ids)


def write_hdf5(parts: Sequence[Path], ids: Names, X: Vectors) -> None:
    h5py = need("h5py")
    with h5py.File(parts[0], "w") as file:
        file.create_dataset("X", data=X)
        file.create_dataset("ids", data=ids.astype(object), dtype=h5py.string_dtype())
