"""Vectors in Parquet, Arrow and HDF5 files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..extras import need
from ..files import whole_files
from .foreign import foreign
from .numpy_files import ID_KEYS, VECTOR_KEYS, from_arrays, must_exist
from .rows import Vectors
from .text import Names, PathLike, fail

ID_COLUMNS = (*ID_KEYS, "utt_id", "utterance", "uttid", "key", "name", "segmentid")
VECTOR_COLUMNS = (*VECTOR_KEYS, "vector", "embedding", "xvector")
FLOAT_TYPE = b"dtype"
"""Metadata of a fixed-size binary column: ``<f4`` (also where absent) or ``<f8``."""


def read_parquet(path: PathLike) -> tuple[Sequence[str], NDArray[Any]]:
    """A column of ids and one of vectors."""
    must_exist(path)
    parquet = need("pyarrow.parquet")
    with foreign(path, "a Parquet file"):
        return _from_table(path, parquet.ParquetFile(path).read())


def read_arrow(path: PathLike) -> tuple[Sequence[str], NDArray[Any]]:
    """A column of ids and one of vectors, in an IPC file or stream."""
    must_exist(path)
    arrow, ipc = need("pyarrow"), need("pyarrow.ipc")
    with foreign(path, "an Arrow file"):
        with open(path, "rb") as file:
            filed = file.read(6) == b"ARROW1"
        with arrow.OSFile(str(path)) as source:
            table = (ipc.open_file(source) if filed else ipc.open_stream(source)).read_all()
            return _from_table(path, table)


def _from_table(path: PathLike, table: Any) -> tuple[Sequence[str], NDArray[Any]]:
    types = need("pyarrow").types
    fields = {field.name: field.type for field in table.schema}
    texts = [n for n, t in fields.items() if types.is_string(t) or types.is_large_string(t) or types.is_integer(t)]
    wide = [n for n, t in fields.items() if _is_vectors(types, t)]
    found = f"the columns are {', '.join(f'{name} ({kind})' for name, kind in fields.items())}"
    identity = _choose(texts, ID_COLUMNS)
    vectors = _choose(wide, VECTOR_COLUMNS)
    if identity is None:
        fail(path, f"expected a column of ids as text, called {ID_COLUMNS[1]!r}; {found}")
    if vectors is None:
        fail(
            path, f"expected one column of vectors (lists or fixed-size binary), called {VECTOR_COLUMNS[0]!r}; {found}"
        )
    ids = [None if name is None else str(name) for name in table.column(identity).to_pylist()]
    if None in ids:
        fail(path, f"{ids.count(None)} id(s) are null; the first is row {ids.index(None) + 1}")
    names = [str(name) for name in ids]
    column = table.column(vectors).combine_chunks()
    if column.null_count:
        first = names[int(np.asarray(column.is_null()).argmax())]
        fail(path, f"{column.null_count} vector(s) are null; the first is {first!r}")
    field = table.schema.field(vectors)
    return names, _as_rows(path, names, column, (field.metadata or {}).get(FLOAT_TYPE, b"<f4"))


def _choose(columns: list[str], preferred: Sequence[str]) -> str | None:
    named = [name for name in preferred if name in columns]
    return named[0] if named else columns[0] if len(columns) == 1 else None


def _is_vectors(types: Any, kind: Any) -> bool:
    if types.is_fixed_size_binary(kind):
        return True
    is_list = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    return bool(is_list and types.is_floating(kind.value_type))


def _as_rows(path: PathLike, names: Sequence[str], column: Any, stored: bytes) -> NDArray[Any]:
    arrow, compute = need("pyarrow"), need("pyarrow.compute")
    n = len(names)
    if n == 0:
        return np.empty((0, 0))
    if arrow.types.is_fixed_size_binary(column.type):
        dtype = np.dtype(stored.decode())
        if dtype not in (np.float32, np.float64) or column.type.byte_width % dtype.itemsize:
            fail(path, f"vectors of {column.type.byte_width} bytes; expected a multiple of {dtype.itemsize}")
        return np.frombuffer(b"".join(column.to_pylist()), dtype=dtype).reshape(n, -1)
    widths = compute.list_value_length(column).to_numpy(zero_copy_only=False)
    if (widths != widths[0]).any():
        odd = int((widths != widths[0]).argmax())
        fail(path, f"the vector of {names[odd]!r} has width {widths[odd]}; those before have {widths[0]}")
    flat = column.flatten().to_numpy(zero_copy_only=False)
    return np.asarray(flat).reshape(n, int(widths[0]))


def _table(ids: Names, X: Vectors) -> Any:
    arrow = need("pyarrow")
    flat = arrow.array(np.ascontiguousarray(X).reshape(-1))
    vectors = arrow.FixedSizeListArray.from_arrays(flat, X.shape[1])
    return arrow.table({"id": arrow.array(ids.tolist(), type=arrow.string()), "vector": vectors})


def write_parquet(path: PathLike, ids: Names, X: Vectors) -> None:
    parquet = need("pyarrow.parquet")
    with whole_files(path) as (part,):
        parquet.write_table(_table(ids, X), part)


def write_arrow(path: PathLike, ids: Names, X: Vectors) -> None:
    ipc, table = need("pyarrow.ipc"), _table(ids, X)
    with whole_files(path) as (part,), part.open("wb") as file, ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)


def read_hdf5(path: PathLike) -> tuple[Sequence[str], NDArray[Any]]:
    """Datasets X and ids (or one of their other names), or one vector a dataset."""
    must_exist(path)
    arrays = hdf5_arrays(path)
    return from_arrays(path, arrays)


def hdf5_arrays(path: PathLike) -> dict[str, NDArray[Any]]:
    """Every dataset of an HDF5 file by its path."""
    h5py = need("h5py")
    arrays: dict[str, NDArray[Any]] = {}

    def collect(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            arrays[name] = np.asarray(item.asstr()[()] if h5py.check_string_dtype(item.dtype) else item[()])

    with foreign(path, "an HDF5 file"), h5py.File(path, "r") as file:
        file.visititems(collect)
    return arrays


def write_hdf5(path: PathLike, ids: Names, X: Vectors) -> None:
    h5py = need("h5py")
    with whole_files(path) as (part,), h5py.File(part, "w") as file:
        file.create_dataset("X", data=X)
        file.create_dataset("ids", data=np.array(ids.tolist(), dtype=object), dtype=h5py.string_dtype())
