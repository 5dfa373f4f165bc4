"""``.npy`` and ``.npz`` files as shards, read piece by piece."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from ..io.foreign import foreign
from ..io.numpy_files import ID_KEYS, VECTOR_KEYS, must_exist
from ..io.text import fail
from .readers import RawBatch, Rows, rows_of_batch

PARSING = Lock()
"""NumPy parses headers with `ast`, which in some versions of Python fails when two threads are at it."""


def read_header(file: Any) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, Fortran order and type of the array that begins here."""
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    with PARSING:
        shape, fortran, dtype = read(file)
    return shape, fortran, dtype


class _ArrayReader:
    """Rows of an array that is read from its beginning to its end."""

    def __init__(self, path: str, shape: tuple[int, ...], fortran: bool, dtype: np.dtype[Any]) -> None:
        if len(shape) != 2 or dtype.kind not in "fiu":
            fail(path, f"expected vectors (n, D) of numbers; got shape {shape} of {dtype}")
        if fortran and min(shape) > 1:
            fail(path, "the array is stored column by column; save np.ascontiguousarray of it")
        self.path, self.shape, self.dtype = path, shape, dtype
        self.files: tuple[str, ...] = ()

    def _pieces(self, file: Any, batch_bytes: int, rows: Rows) -> Iterator[tuple[int, NDArray[Any]]]:
        width = self.shape[1]
        step = rows_of_batch(batch_bytes, width * self.dtype.itemsize)
        for start in range(*rows, step):
            X = np.empty((min(step, rows[1] - start), width), dtype=self.dtype)
            _fill(self.path, file, X)
            yield start, X.astype(self.dtype.newbyteorder("="), copy=False)


class NpyReader(_ArrayReader):
    """An array (n, D). Ids in a file of the same name ending in ``.ids``, else row numbers."""

    columns: tuple[str, ...] = ()

    def __init__(self, path: str) -> None:
        must_exist(path)
        with foreign(path, "a NumPy array"):
            with open(path, "rb") as file:
                header = read_header(file)
                self.offset = file.tell()
            if header[2].hasobject:
                fail(path, "the array holds Python objects, which are not read; expected numbers")
            super().__init__(path, *header)
            size = os.stat(path).st_size - self.offset
            expected = int(np.prod(self.shape, dtype=object)) * self.dtype.itemsize
            if size != expected:
                fail(path, f"truncated or damaged: {size} bytes of numbers; shape {self.shape} needs {expected}")
        self.id_file = Path(path).with_suffix(".ids")
        self.has_ids = self.id_file.exists()
        if self.has_ids:
            self.files = (str(self.id_file),)

    def cuts(self) -> Sequence[int]:
        return range(1, self.shape[0] + 1)

    def batches(
        self, batch_bytes: int, columns: Sequence[str], ids: bool, rows: Rows | None = None
    ) -> Iterator[RawBatch]:
        first, end = rows or (0, self.shape[0])
        names = islice(self._names(), first, None) if ids and self.has_ids else None
        with foreign(self.path, "a NumPy array"), open(self.path, "rb", buffering=0) as file:
            file.seek(self.offset + first * self.shape[1] * self.dtype.itemsize)
            for start, X in self._pieces(file, batch_bytes, (first, end)):
                if names is not None:
                    some = list(islice(names, len(X)))
                    if len(some) < len(X):
                        fail(self.id_file, f"{start + len(some)} ids for the {self.shape[0]} vectors of {self.path}")
                elif ids:
                    some = [str(row) for row in range(start, start + len(X))]
                else:
                    some = None
                yield RawBatch(X, some)
        if names is not None and end == self.shape[0] and (rest := [name for name in names if name]):
            fail(self.id_file, f"{len(rest)} more ids than the {self.shape[0]} vectors of {self.path}")

    def _names(self) -> Iterator[str]:
        with open(self.id_file, encoding="utf-8-sig") as file:
            for line in file:
                yield line.strip(" \t\r\n")


class NpzReader(_ArrayReader):
    """An archive with an array X, and others as long with ids and labels. X is streamed, the others read whole."""

    def __init__(self, path: str, vectors: str | None, ids: str | None) -> None:
        must_exist(path)
        with foreign(path, "a NumPy archive"), zipfile.ZipFile(path) as archive:
            headers: dict[str, tuple[tuple[int, ...], bool, np.dtype[Any]]] = {}
            for name in archive.namelist():
                with archive.open(name) as file:
                    headers[name.removesuffix(".npy")] = read_header(file)
        wide = [key for key in ([vectors] if vectors else VECTOR_KEYS) if key in headers and len(headers[key][0]) == 2]
        if not wide:
            shapes = ", ".join(f"{key} {header[0]}" for key, header in headers.items())
            fail(path, f"expected vectors (n, D) in an array {vectors or VECTOR_KEYS[0]!r}; there are {shapes}")
        super().__init__(path, *headers[wide[0]])
        self.key = wide[0]
        listed = [key for key in ([ids] if ids else ID_KEYS) if key in headers]
        self.ids = listed[0] if listed else None
        self.has_ids = self.ids is not None
        self.columns = tuple(key for key, header in headers.items() if len(header[0]) == 1)

    def cuts(self) -> Sequence[int]:
        return ()

    def batches(
        self, batch_bytes: int, columns: Sequence[str], ids: bool, rows: Rows | None = None
    ) -> Iterator[RawBatch]:
        with foreign(self.path, "a NumPy archive"):
            keys = [*columns, *([self.ids] if ids and self.ids is not None else [])]
            with PARSING, np.load(self.path, allow_pickle=False) as archive:
                arrays = {key: archive[key] for key in keys}
            for key, array in arrays.items():
                if len(array) != self.shape[0]:
                    fail(self.path, f"{len(array)} values of {key!r} for {self.shape[0]} vectors; expected as many")
            with zipfile.ZipFile(self.path) as zipped, zipped.open(f"{self.key}.npy") as file:
                read_header(file)
                for start, X in self._pieces(file, batch_bytes, (0, self.shape[0])):
                    some = slice(start, start + len(X))
                    names = None
                    if ids:
                        listed = arrays[self.ids][some].tolist() if self.ids else range(start, start + len(X))
                        names = [str(name) for name in listed]
                    yield RawBatch(X, names, {column: arrays[column][some] for column in columns})
                if file.read(1):  # also makes zipfile compare its checksum
                    fail(self.path, f"the array {self.key!r} is longer than its shape says")


def _fill(path: str, file: BinaryIO, array: NDArray[Any]) -> None:
    """Read an array's bytes."""
    view = array.data.cast("B")
    place = 0
    while place < len(view):
        got = file.readinto(view[place:])  # type: ignore[attr-defined]
        if not got:
            fail(path, f"truncated: the file ends {len(view) - place} bytes too early")
        place += got
