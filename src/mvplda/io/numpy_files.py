"""Vectors in ``.npy`` and ``.npz`` files. No pickle."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..files import whole_files
from .foreign import foreign
from .rows import Vectors, stacked
from .text import Names, PathLike, fail, read_lines

VECTOR_KEYS = ("X", "x", "vectors", "embeddings", "xvectors", "data")
ID_KEYS = ("ids", "id", "utt", "utts", "utterances", "keys", "names")


def must_exist(path: PathLike) -> None:
    if Path(path).is_dir():
        fail(path, "this is a folder; a file was expected")
    if not Path(path).exists():
        raise FileNotFoundError(f"there is no file {path}")


def read_npy(path: PathLike) -> tuple[Sequence[str], NDArray[Any]]:
    """(n, D) array; ids from the sibling ``.ids`` file, one a line, else row numbers."""
    must_exist(path)
    with foreign(path, "a NumPy array"):
        X = np.array(np.load(path, mmap_mode="r", allow_pickle=False))  # a map notices a file that is too short
    names = Path(path).with_suffix(".ids")
    if not names.exists():
        return [str(row) for row in range(len(X) if X.ndim else 0)], X
    ids = [line.decode().strip(" \t\r") for line in read_lines(names)]
    while ids and not ids[-1]:
        ids.pop()
    if X.ndim == 2 and len(ids) != len(X):
        fail(names, f"{len(ids)} ids for the {len(X)} vectors of {path}; expected as many")
    return ids, X


def read_npz(path: PathLike) -> tuple[Sequence[str], NDArray[Any]]:
    """Arrays X and ids (or one of their other names), or one vector a key."""
    must_exist(path)
    with foreign(path, "a NumPy archive"), np.load(path, allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    return from_arrays(path, arrays)


def from_arrays(path: PathLike, arrays: dict[str, NDArray[Any]]) -> tuple[Sequence[str], NDArray[Any]]:
    """Ids and vectors from named arrays."""
    if not arrays:
        fail(path, "the file holds no arrays")
    vectors = next((arrays[key] for key in VECTOR_KEYS if key in arrays and arrays[key].ndim == 2), None)
    if vectors is not None:
        ids = next((arrays[key] for key in ID_KEYS if key in arrays), None)
        if ids is None:
            return [str(row) for row in range(len(vectors))], vectors
        if ids.ndim != 1:
            fail(path, f"the ids have shape {ids.shape}; expected one a vector")
        return [_text(path, name) for name in ids.tolist()], vectors
    rows = {key: array.reshape(-1) for key, array in arrays.items() if array.ndim == 1 or array.shape[:1] == (1,)}
    if len(rows) != len(arrays):
        odd = next(key for key in arrays if key not in rows)
        fail(
            path,
            f"expected an array {VECTOR_KEYS[0]!r} (n, D), or one vector a key; {odd!r} has shape {arrays[odd].shape}",
        )
    for key, row in rows.items():
        if row.dtype.kind not in "fiu":
            fail(path, f"{key!r} holds {row.dtype}; expected a vector of floats")
    return list(rows), stacked(path, list(rows), list(rows.values()))


def _text(path: PathLike, name: object) -> str:
    if not isinstance(name, bytes):
        return str(name)
    try:
        return name.decode()
    except UnicodeDecodeError:
        fail(path, f"the id {name!r} is not UTF-8")


def write_npy(path: PathLike, ids: Names, X: Vectors) -> None:
    with whole_files(path, Path(path).with_suffix(".ids")) as (array, names):
        with array.open("wb") as file:
            np.save(file, X, allow_pickle=False)
        names.write_bytes("".join(f"{name}\n" for name in ids.tolist()).encode())


def write_npz(path: PathLike, ids: Names, X: Vectors) -> None:
    with whole_files(path) as (archive,), archive.open("wb") as file:
        np.savez(file, X=X, ids=ids)
