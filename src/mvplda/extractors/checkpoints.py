"""Tensors out of a torch checkpoint (a zip archive) without torch; nothing else in the file is made, and none of its
code is run."""

from __future__ import annotations

import io
import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..exceptions import FileFormatError

Tensor = NDArray[np.floating] | NDArray[np.integer]
STORAGES = {
    "FloatStorage": "<f4",
    "DoubleStorage": "<f8",
    "HalfStorage": "<f2",
    "LongStorage": "<i8",
    "IntStorage": "<i4",
}
"""Storages that hold weights, and how their bytes are read."""


class Pointer(NamedTuple):
    """A tensor whose numbers have not been read yet; steps are counted in numbers."""

    key: str
    dtype: str
    offset: int
    shape: Sequence[int]
    steps: Sequence[int]

    def read(self, data: bytes) -> Tensor:
        """The tensor out of what is stored under its key."""
        numbers = np.frombuffer(data, self.dtype)
        # indices, for NumPy checks them: a tensor that reaches beyond its storage is an error
        index = np.array(self.offset)
        for length, step in zip(self.shape, self.steps, strict=True):
            index = np.add.outer(index, step * np.arange(length))
        return np.asarray(numbers[index])


def _pointer(
    stored: tuple[str, str], offset: int, shape: Sequence[int], steps: Sequence[int], *_: object
) -> Pointer:
    return Pointer(*stored, offset, shape, steps)


class _Unpickler(pickle.Unpickler):
    """Makes dictionaries, numbers and pointers to tensors; every other name in the file is an error."""

    def find_class(self, module: str, name: str) -> object:
        allowed: dict[str, object] = {f"torch.{one}": dtype for one, dtype in STORAGES.items()}
        allowed["collections.OrderedDict"] = OrderedDict
        allowed["torch._utils._rebuild_tensor_v2"] = _pointer
        if f"{module}.{name}" not in allowed:
            raise pickle.UnpicklingError(f"it names {module}.{name}, which is no tensor")
        return allowed[f"{module}.{name}"]

    def persistent_load(self, pid: tuple[str, str, str, str, int]) -> tuple[str, str]:
        _, dtype, key, _, _ = pid
        return key, dtype


def read_tensors(data: bytes) -> dict[str, Tensor]:
    """The named tensors of a checkpoint.

    Parameters
    ----------
    data : the bytes of the file
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            (index,) = [name for name in archive.namelist() if name.endswith("/data.pkl")]
            contents = _Unpickler(io.BytesIO(archive.read(index))).load()
            folder = index.removesuffix(".pkl")
            return {
                name: pointer.read(archive.read(f"{folder}/{pointer.key}"))
                for name, pointer in contents.items()
                if isinstance(pointer, Pointer)
            }
    except Exception as error:  # a damaged pickle raises errors of any kind
        raise FileFormatError(f"this is no checkpoint of tensors: {error}") from error
