"""Tensors out of a torch checkpoint without torch; nothing else in the file is made, and none of its code is run.

Both forms are read: the zip archive of today, and the row of pickles that came before it.
"""

from __future__ import annotations

import io
import pickle
import struct
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..exceptions import FileFormatError

Array = NDArray[Any]
STORAGES = {
    "FloatStorage": "<f4",
    "DoubleStorage": "<f8",
    "HalfStorage": "<f2",
    "LongStorage": "<i8",
    "IntStorage": "<i4",
}
"""Storages that hold weights, and how their bytes are read."""
MAGIC = 0x1950A86A20F9469CFC6C
"""The first number of the older form."""


class Stored(NamedTuple):
    """A place in the file that holds numbers of one type."""

    key: str
    dtype: str
    length: int


class Pointer(NamedTuple):
    """A tensor whose numbers have not been read yet."""

    stored: Stored
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def read(self, storages: Mapping[str, bytes]) -> Array:
        """The tensor as an array of its own."""
        dtype = np.dtype(self.stored.dtype)
        numbers = np.frombuffer(storages[self.stored.key], dtype, self.stored.length)
        last = self.offset
        for length, stride in zip(self.shape, self.strides, strict=True):
            if length < 0 or stride < 0:
                raise ValueError("a tensor has a negative length")
            last += (length - 1) * stride
        if self.offset < 0 or last >= max(1, len(numbers)):
            raise ValueError("a tensor reaches beyond what is stored")
        steps = tuple(stride * dtype.itemsize for stride in self.strides)
        return np.lib.stride_tricks.as_strided(numbers[self.offset :], self.shape, steps).copy()


def _tensor(stored: Stored, offset: int, shape: Any, strides: Any, *rest: Any) -> Pointer:
    return Pointer(stored, int(offset), tuple(shape), tuple(strides))


class _Unpickler(pickle.Unpickler):
    """Makes dictionaries, numbers and pointers to tensors; every other name in the file is an error."""

    def find_class(self, module: str, name: str) -> Any:
        if module == "torch" and name in STORAGES:
            return STORAGES[name]
        allowed: dict[tuple[str, str], Callable[..., Any]] = {
            ("collections", "OrderedDict"): OrderedDict,
            ("torch._utils", "_rebuild_tensor_v2"): _tensor,
        }
        try:
            return allowed[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it names {module}.{name}, which is no tensor") from None

    def persistent_load(self, pid: Any) -> Stored:
        kind, dtype, key, _, count = pid[:5]
        if kind != "storage":
            raise pickle.UnpicklingError(f"it refers to a {kind!r}")
        return Stored(str(key), str(dtype), int(count))


def read_tensors(data: bytes, part: str = "") -> dict[str, Array]:
    """The named tensors of a checkpoint, or of one part of it.

    Parameters
    ----------
    data : the bytes of the file
    part : the key of a dictionary within it, such as ``model_state``
    """
    try:
        if zipfile.is_zipfile(io.BytesIO(data)):
            contents, storages = _zipped(data)
        else:
            contents, storages = _in_a_row(data)
        state = contents[part] if part else contents
        pointers = {str(name): value for name, value in state.items() if isinstance(value, Pointer)}
        return {name: pointer.read(storages) for name, pointer in pointers.items()}
    except Exception as error:  # a damaged pickle raises errors of any kind
        raise FileFormatError(f"this is no checkpoint of tensors: {error}") from error


def _zipped(data: bytes) -> tuple[Any, dict[str, bytes]]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        names = archive.namelist()
        (index,) = [name for name in names if name.endswith("/data.pkl")]
        folder = index.removesuffix("data.pkl") + "data/"
        contents = _Unpickler(io.BytesIO(archive.read(index))).load()
        storages = {
            name.removeprefix(folder): archive.read(name)
            for name in names
            if name.startswith(folder)
        }
    return contents, storages


def _in_a_row(data: bytes) -> tuple[Any, dict[str, bytes]]:
    file = io.BytesIO(data)
    if _Unpickler(file).load() != MAGIC:
        raise ValueError("its first number is another")
    for _ in ("version", "machine"):
        _Unpickler(file).load()
    counts: dict[str, int] = {}

    class Counting(_Unpickler):
        """Notes how many bytes each storage has: the file does not separate them."""

        def persistent_load(self, pid: Any) -> Stored:
            stored = super().persistent_load(pid)
            counts[stored.key] = stored.length * np.dtype(stored.dtype).itemsize
            return stored

    contents = Counting(file).load()
    storages = {}
    for key in _Unpickler(file).load():
        (count,) = struct.unpack("<q", file.read(8))
        if count < 0:
            raise ValueError("a storage has a negative length")
        storages[str(key)] = file.read(counts[str(key)])
    return contents, storages
