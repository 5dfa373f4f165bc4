"""Vectors in ``.npy`` and ``.npz`` files. No pickle."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from .._typing import PathLike
from .files import (
    Batch,
    Names,
    OnDisk,
    Reader,
    Rows,
    Vectors,
    as_names,
    fail,
    joined,
    lines_of,
    rows_of_batch,
    wrap_reader_errors,
)

VECTOR_KEYS = (
    *("X", "x", "vectors", "embeddings", "xvectors", "data"),
    *("vector", "embedding", "xvector"),
)
ID_KEYS = (
    *("ids", "id", "utt", "utts", "utterances", "keys", "names"),
    *("utt_id", "utterance", "uttid", "key", "name", "segmentid"),
)
ARRAY = "a NumPy array (.npy)"
ARCHIVE = "a NumPy archive (.npz)"


class NpyReader(Reader):
    """An array (n, D). Ids in a file of the same name ending in ``.ids``, one a line, else row numbers."""

    def __init__(self, source: OnDisk, vectors: str | None = None, ids: str | None = None) -> None:
        self.source = source
        self.path = source.name
        with wrap_reader_errors(self.path, ARRAY):
            # A map takes no memory, and notices a file that is too short.
            self.array = np.load(source.file, mmap_mode="r", allow_pickle=False)
        _check_vectors(self.path, Header(self.array.shape, self.array.dtype))
        behind = os.stat(source.file).st_size - self.array.offset - self.array.nbytes
        if behind:
            fail(self.path, f"damaged: {behind} bytes too many for shape {self.array.shape}")
        id_file = Path(self.path.removesuffix(".gz")).with_suffix(".ids")
        self.has_ids = id_file.exists()
        if self.has_ids:
            self.files = (str(id_file),)

    def cuts(self) -> Sequence[int]:
        return range(1, len(self.array) + 1)

    def batches(
        self, batch_bytes: int, columns: Sequence[str], ids: bool, rows: Rows | None = None
    ) -> Iterator[Batch]:
        first, end = rows or (0, len(self.array))
        step = rows_of_batch(batch_bytes, self.array.shape[1] * self.array.itemsize)
        names = self._names() if ids else None
        for start in range(first, end, step):
            stop = min(start + step, end)
            yield Batch(self._rows(start, stop), None if names is None else names[start:stop])

    def _names(self) -> list[str]:
        size = len(self.array)
        if not self.files:
            return list(map(str, range(size)))
        names = [line.decode().strip(" \t") for line in lines_of(OnDisk(self.files[0]))]
        while len(names) > size and not names[-1]:
            names.pop()  # blank lines at the end
        if len(names) != size:
            vectors = f"the {size} vectors of {self.path}"
            fail(self.files[0], f"{len(names)} ids for {vectors}; expected as many")
        return names

    def _rows(self, start: int, stop: int) -> NDArray[Any]:
        width = self.array.shape[1]
        dtype = self.array.dtype
        with wrap_reader_errors(self.path, ARRAY):
            if self.array.flags.c_contiguous:
                # Read, not mapped: pages that were used would stay.
                place = self.array.offset + start * width * dtype.itemsize
                X = np.fromfile(self.source.file, dtype, (stop - start) * width, offset=place)
                X = X.reshape(-1, width)
            else:
                X = np.array(self.array[start:stop], order="C")
        return X.astype(dtype.newbyteorder("="), copy=False)


class Header(NamedTuple):
    """What is known of an array before it is read."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


class NpzReader(Reader):
    """Named arrays: vectors (n, D) and beside them ids and labels (n,); or one vector a key."""

    def __init__(self, source: OnDisk, vectors: str | None = None, ids: str | None = None) -> None:
        self.source = source
        self.path = source.name
        with wrap_reader_errors(self.path, ARCHIVE), zipfile.ZipFile(source.file) as file:
            self.headers = {
                name.removesuffix(".npy"): _read_header(file.open(name)) for name in file.namelist()
            }
        self.columns = self._of_shape(1)
        tables = self._of_shape(2)
        usual = (*VECTOR_KEYS, *tables) if len(tables) == 1 else VECTOR_KEYS
        self.key = self._chosen(tables, usual, vectors)
        if self.key is not None:
            _check_vectors(self.path, self.headers[self.key])
            self.id_column = self._chosen(self.columns, ID_KEYS, ids)
            self.has_ids = self.id_column is not None
        elif tables or not all(one.dtype.kind in "fiu" for one in self.headers.values()):
            self._lacks("X")
        else:
            self.columns = ()  # one vector a key

    def _of_shape(self, dimensions: int) -> tuple[str, ...]:
        return tuple(key for key, one in self.headers.items() if len(one.shape) == dimensions)

    def _chosen(self, there: Sequence[str], usual: Sequence[str], named: str | None) -> str | None:
        if named is not None and named not in there:
            self._lacks(named)
        return next((key for key in (usual if named is None else [named]) if key in there), None)

    def _lacks(self, name: str) -> None:
        shapes = ", ".join(f"{key} {one.shape}" for key, one in self.headers.items())
        fail(
            self.path,
            f"expected an array {name!r}, vectors as (n, D) and ids as (n,), or one vector of floats a key; "
            f"there are {shapes or 'no arrays'}",
        )

    def batches(
        self, batch_bytes: int, columns: Sequence[str], ids: bool, rows: Rows | None = None
    ) -> Iterator[Batch]:
        with (
            wrap_reader_errors(self.path, ARCHIVE),
            np.load(self.source.file, allow_pickle=False) as archive,
        ):
            labels = {column: archive[column] for column in columns}
            if self.key is None:
                X = joined(self.path, [(key, archive[key][None]) for key in self.headers])
                names = np.array(list(self.headers))
            else:
                X = archive[self.key]
                names = np.arange(len(X)).astype(str)
                if ids and self.id_column is not None:
                    names = archive[self.id_column]
                    if names.dtype.kind != "U":
                        names = as_names(self.path, names.tolist())
        for column, values in {**labels, "ids": names}.items():
            if len(values) != len(X):
                reason = f"{len(values)} values of {column!r} for {len(X)} vectors"
                fail(self.path, f"{reason}; expected as many")
        step = rows_of_batch(batch_bytes, X.shape[1] * X.itemsize)
        for start in range(0, len(X), step):
            some = slice(start, start + step)
            yield Batch(
                np.ascontiguousarray(X[some]),
                names[some].tolist() if ids else None,
                {column: values[some] for column, values in labels.items()},
            )


def _read_header(file: IO[bytes]) -> Header:
    with file:
        first = npy.read_magic(file) == (1, 0)
        read = npy.read_array_header_1_0 if first else npy.read_array_header_2_0
        shape, _, dtype = read(file)
    return Header(shape, dtype)


def _check_vectors(path: PathLike, header: Header) -> None:
    if len(header.shape) != 2 or header.dtype.kind not in "fiu":
        fail(path, f"expected vectors (n, D) of floats; got shape {header.shape} of {header.dtype}")


def write_npy(parts: Sequence[Path], ids: Names, X: Vectors) -> None:
    """The array, and the file of ids."""
    with parts[0].open("wb") as file:
        np.save(file, X, allow_pickle=False)
    parts[1].write_bytes("".join(f"{name}\n" for name in ids.tolist()).encode())


def write_npz(parts: Sequence[Path], ids: Names, X: Vectors) -> None:
    with parts[0].open("wb") as file:
        np.savez(file, X=X, ids=ids)
