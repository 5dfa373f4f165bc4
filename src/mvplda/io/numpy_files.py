"""Vectors in ``.npy`` and ``.npz`` files, and in whatever else holds named arrays. No pickle."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import Any, BinaryIO, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

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
    texts_of,
    wrap_reader_errors,
)

VECTOR_KEYS = ("X", "x", "vectors", "embeddings", "xvectors", "data")
ID_KEYS = ("ids", "id", "utt", "utts", "utterances", "keys", "names")
PARSING = Lock()
"""NumPy parses headers with `ast`, which in some versions of Python fails when two threads are at it."""


class Header(NamedTuple):
    """What is known of an array before it is read."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fortran: bool = False


def read_header(file: Any) -> Header:
    """The header of the array that begins here."""
    version = np.lib.format.read_magic(file)
    read = (
        np.lib.format.read_array_header_1_0
        if version == (1, 0)
        else np.lib.format.read_array_header_2_0
    )
    with PARSING:
        shape, fortran, dtype = read(file)
    return Header(shape, dtype, fortran and len(shape) > 1 and min(shape) > 1)


class NpyReader:
    """An array (n, D). Ids in a file of the same name ending in ``.ids``, one a line, else row numbers."""

    columns: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    id_column: str | None = None

    def __init__(self, source: OnDisk, vectors: str | None = None, ids: str | None = None) -> None:
        self.source, self.path = source, source.name
        with wrap_reader_errors(self.path, "a NumPy array"):
            with open(source.file, "rb") as file:
                self.header = read_header(file)
                self.offset = file.tell()
            shape, dtype = self.header.shape, self.header.dtype
            _check_vectors(self.path, self.header)
            size = os.stat(source.file).st_size - self.offset
            expected = int(np.prod(shape, dtype=object)) * dtype.itemsize
            if size != expected:
                fail(
                    self.path,
                    f"damaged or not whole: {size} bytes of numbers; shape {shape} of {dtype} needs {expected}",
                )
        self.id_file = Path(self.path.removesuffix(".gz")).with_suffix(".ids")
        self.has_ids = self.id_file.exists()
        if self.has_ids:
            self.files = (str(self.id_file),)

    def cuts(self) -> Sequence[int]:
        return range(1, self.header.shape[0] + 1)

    def batches(
        self, batch_bytes: int, columns: Sequence[str], ids: bool, rows: Rows | None = None
    ) -> Iterator[Batch]:
        n, width = self.header.shape
        first, end = rows or (0, n)
        names = (
            islice(lines_of(OnDisk(self.id_file)), first, None) if ids and self.has_ids else None
        )
        step = rows_of_batch(batch_bytes, width * self.header.dtype.itemsize)
        with (
            wrap_reader_errors(self.path, "a NumPy array"),
            open(self.source.file, "rb", buffering=0) as file,
        ):
            for start in range(first, end, step):
                stop = min(start + step, end)
                some: list[str] | None = None
                if names is not None:
                    some = self._named(names, stop - start)
                    if len(some) < stop - start:
                        self._miscounted(start + len(some))
                elif ids:
                    some = list(map(str, range(start, stop)))
                yield Batch(self._rows(file, start, stop), some)
        if (
            names is not None
            and end == n
            and (more := sum(bool(name.strip(b" \t")) for name in names))
        ):
            self._miscounted(n + more)

    def _rows(self, file: BinaryIO, start: int, stop: int) -> NDArray[Any]:
        (n, width), dtype = self.header.shape, self.header.dtype
        if self.header.fortran:
            table = np.memmap(self.source.file, dtype, "r", self.offset, (n, width), order="F")
            return np.array(table[start:stop], dtype=dtype.newbyteorder("="), order="C")
        file.seek(
            self.offset + start * width * dtype.itemsize
        )  # read, not mapped: pages that were used would stay
        return _filled(self.path, file, (stop - start, width), dtype)

    def _named(self, lines: Iterator[bytes], count: int) -> list[str]:
        names = texts_of(lines, count)
        return (
            [name.strip(" \t") for name in names]
            if any(c in "".join(names) for c in " \t")
            else names
        )

    def _miscounted(self, count: int) -> NoReturn:
        fail(
            self.id_file,
            f"{count} ids for the {self.header.shape[0]} vectors of {self.path}; expected as many",
        )


class KeyedReader:
    """Named arrays: vectors (n, D) and beside them ids and labels (n,); or one vector a key."""

    what = "a file of named arrays"
    files: tuple[str, ...] = ()

    def __init__(self, source: OnDisk, vectors: str | None = None, ids: str | None = None) -> None:
        self.source, self.path = source, source.name
        with wrap_reader_errors(self.path, self.what):
            self.headers = self._headers()
        if not self.headers:
            fail(self.path, "the file holds no arrays")
        shapes = ", ".join(f"{key} {header.shape}" for key, header in self.headers.items())
        wanted = VECTOR_KEYS if vectors is None else (vectors,)
        self.key = next(
            (k for k in wanted if k in self.headers and len(self.headers[k].shape) == 2), None
        )
        if self.key is None and vectors is None:
            self.key = self._one_table()
        self.id_column: str | None = None
        self.columns: tuple[str, ...] = ()
        self.has_ids = True
        if self.key is None:
            odd = [key for key, header in self.headers.items() if not _one_vector(header)]
            if vectors is not None or odd:
                fail(
                    self.path,
                    f"expected an array {wanted[0]!r} (n, D), or one vector of floats a key; there are {shapes}",
                )
            return
        _check_vectors(self.path, self.headers[self.key])
        if ids is not None and ids not in self.headers:
            fail(self.path, f"expected ids in an array {ids!r}; there are {shapes}")
        self.id_column = next(
            (k for k in (ID_KEYS if ids is None else (ids,)) if k in self.headers), None
        )
        self.has_ids = self.id_column is not None
        if self.id_column is not None and len(self.headers[self.id_column].shape) != 1:
            fail(
                self.path,
                f"the ids have shape {self.headers[self.id_column].shape}; expected one a vector",
            )
        self.columns = tuple(key for key, header in self.headers.items() if len(header.shape) == 1)

    def _one_table(self) -> str | None:
        """The only table of numbers, whatever its name, where all else is one value a row of it."""
        tables = [
            key
            for key, header in self.headers.items()
            if len(header.shape) == 2 and header.shape[0] > 1
        ]
        if len(tables) != 1 or self.headers[tables[0]].dtype.kind not in "fiu":
            return None
        rows = self.headers[tables[0]].shape[:1]
        return (
            tables[0]
            if all(h.shape == rows for key, h in self.headers.items() if key != tables[0])
            else None
        )

    def _headers(self) -> dict[str, Header]:
        raise NotImplementedError

    def _arrays(self, keys: Sequence[str]) -> dict[str, NDArray[Any]]:
        """Whole arrays."""
        raise NotImplementedError

    def _slices(self, key: str, step: int) -> Iterator[NDArray[Any]]:
        """The rows of an array (n, D), so many at a time."""
        raise NotImplementedError

    def cuts(self) -> Sequence[int]:
        return ()

    def batches(
        self, batch_bytes: int, columns: Sequence[str], ids: bool, rows: Rows | None = None
    ) -> Iterator[Batch]:
        with wrap_reader_errors(self.path, self.what):
            yield from (
                self._one_a_key(batch_bytes)
                if self.key is None
                else self._table(batch_bytes, columns, ids)
            )

    def _one_a_key(self, batch_bytes: int) -> Iterator[Batch]:
        keys = iter(self.headers)
        header = next(iter(self.headers.values()))
        width: int | None = None
        while some := list(
            islice(keys, rows_of_batch(batch_bytes, int(np.prod(header.shape)) * 8))
        ):
            arrays = self._arrays(some)
            X = stacked(self.path, some, [arrays[key].reshape(-1) for key in some], width)
            width = X.shape[1]
            yield Batch(X, some)

    def _table(self, batch_bytes: int, columns: Sequence[str], ids: bool) -> Iterator[Batch]:
        assert self.key is not None
        (n, width), dtype, _ = self.headers[self.key]
        listed = [self.id_column] if ids and self.id_column is not None else []
        arrays = self._arrays([*columns, *listed])
        for key, array in arrays.items():
            if len(array) != n:
                fail(self.path, f"{len(array)} values of {key!r} for {n} vectors; expected as many")
        names = [name for key in listed for name in _texts(self.path, arrays[key])]
        start = 0
        for X in self._slices(self.key, rows_of_batch(batch_bytes, width * dtype.itemsize)):
            some = slice(start, start + len(X))
            numbered = (
                names[some] if listed or not ids else list(map(str, range(start, start + len(X))))
            )
            yield Batch(
                X, numbered if ids else None, {column: arrays[column][some] for column in columns}
            )
            start += len(X)


class NpzReader(KeyedReader):
    """X is streamed where it is stored row by row; other arrays are read whole."""

    what = "a NumPy archive"

    def _headers(self) -> dict[str, Header]:
        headers = {}
        with zipfile.ZipFile(self.source.file) as archive:
            for name in archive.namelist():
                with archive.open(name) as file:
                    headers[name.removesuffix(".npy")] = read_header(file)
        return headers

    def _arrays(self, keys: Sequence[str]) -> dict[str, NDArray[Any]]:
        return read_npz_arrays(self.source.file, keys)

    def _slices(self, key: str, step: int) -> Iterator[NDArray[Any]]:
        header = self.headers[key]
        n, width = header.shape
        if header.fortran:
            whole = self._arrays([key])[key]
            for start in range(0, n, step):
                yield np.ascontiguousarray(whole[start : start + step])
            return
        with zipfile.ZipFile(self.source.file) as archive, archive.open(f"{key}.npy") as file:
            read_header(file)
            for start in range(0, n, step):
                yield _filled(self.path, file, (min(step, n - start), width), header.dtype)
            if file.read(1):  # also makes zipfile compare its checksum
                fail(self.path, f"the array {key!r} is longer than its shape says")


def read_npz_arrays(path: PathLike, keys: Sequence[str] | None = None) -> dict[str, NDArray[Any]]:
    """Arrays of an archive, all or some."""
    with PARSING, np.load(path, allow_pickle=False) as archive:
        return {name: archive[name] for name in (archive.files if keys is None else keys)}


def _check_vectors(path: PathLike, header: Header) -> None:
    if header.dtype.hasobject:
        fail(path, "the array holds Python objects, which are not read; expected numbers")
    if len(header.shape) != 2 or header.dtype.kind not in "fiu":
        fail(path, f"expected vectors (n, D) of floats; got shape {header.shape} of {header.dtype}")


def _one_vector(header: Header) -> bool:
    return (
        len(header.shape) == 1 or (len(header.shape) == 2 and header.shape[0] == 1)
    ) and header.dtype.kind in "fiu"


def _filled(path: str, file: Any, shape: tuple[int, int], dtype: np.dtype[Any]) -> NDArray[Any]:
    """The next rows of a file."""
    array = np.empty(shape, dtype=dtype)
    view = array.reshape(-1).view(np.uint8).data
    place = 0
    while place < len(view):
        got = file.readinto(view[place:])
        if not got:
            fail(path, f"damaged or not whole: the file ends {len(view) - place} bytes too early")
        place += got
    return array.astype(dtype.newbyteorder("="), copy=False)


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
    write_npz_arrays(parts[0], {"X": X, "ids": ids})


def write_npz_arrays(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    with path.open("wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]
