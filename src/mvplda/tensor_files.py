"""Arrays and plain values as ``.safetensors`` files, with a version and a fingerprint, without pickle.

A fingerprint shows that a file is complete, not that this package wrote it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from ._typing import Json, PathLike
from .atomic_files import file_type
from .exceptions import FileFormatError

Tensors = dict[str, NDArray[Any]]
"""Arrays by name."""

State = tuple[Tensors, Json]
"""Arrays by name, and values for JSON."""

FORMAT, DESCRIPTION_KEY = "mvplda", "object"
"""Format name in the metadata of all files, and key of the JSON description there."""

VERSION = 1
"""Version of the format; files of a later version are refused."""

SAFETENSORS_TYPES = {
    "float64": "F64", "float32": "F32", "float16": "F16", "int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8",
    "uint64": "U64", "uint32": "U32", "uint16": "U16", "uint8": "U8", "bool": "BOOL",
}  # fmt: skip


def packed_chunks(tensors: Tensors, about: Json) -> Iterator[bytes | memoryview]:
    """Yield the bytes of a file: tensors, a description, version and fingerprint.

    The same contents always give the same bytes, unlike the safetensors library, which writes its
    metadata in random order.
    """
    header: Json = {
        "__metadata__": {
            "format": FORMAT,
            "version": str(VERSION),
            DESCRIPTION_KEY: json.dumps(about),
            "fingerprint": fingerprint(tensors, about),
        }
    }
    start = 0
    # Tensors with large items come first, so that all are aligned.
    order = sorted(tensors, key=lambda name: (-tensors[name].itemsize, name))
    for name in order:
        array = tensors[name]
        stop = start + array.nbytes
        header[name] = {
            "dtype": SAFETENSORS_TYPES[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": [start, stop],
        }
        start = stop
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little") + text
    for name in order:
        yield np.asarray(tensors[name], dtype=tensors[name].dtype.newbyteorder("<"), order="C").data


def unpack(path: PathLike) -> State:
    """Read the tensors and the description that `packed_chunks` wrote, and verify the fingerprint."""
    tensors, metadata = read_tensors(path)
    file_format = metadata.get("format")
    if file_format != FORMAT:
        raise FileFormatError(
            f"{path} is a safetensors file, but not one that mvplda wrote: it has the format {file_format!r}; expected "
            f"{FORMAT!r}, of models, calibrators and statistics"
        )
    version = metadata.get("version", "")
    if not version.isdigit() or int(version) > VERSION:
        raise FileFormatError(
            f"{path} has format version {version!r}, this mvplda reads up to {VERSION}: upgrade it"
        )
    try:
        about = json.loads(metadata[DESCRIPTION_KEY], parse_constant=_refuse_constant)
        is_complete = metadata["fingerprint"] == fingerprint(tensors, about)
    except (KeyError, ValueError, RecursionError) as error:
        raise FileFormatError(f"{path} is incomplete or damaged: {error}") from error
    if not is_complete:
        raise FileFormatError(f"{path} is damaged: its contents do not match its fingerprint")
    return tensors, about


def _refuse_constant(name: str) -> NoReturn:
    """Reject NaN and infinity, which JSON does not have and no file of this package contains."""
    raise ValueError(f"a value is {name}")


def read_metadata(path: PathLike) -> dict[str, str]:
    """Read the metadata of a safetensors file without its tensors."""
    return read_tensors(path, metadata_only=True)[1]


def read_tensors(path: PathLike, metadata_only: bool = False) -> tuple[Tensors, dict[str, str]]:
    """Read the tensors and the metadata of a safetensors file."""
    path = Path(path)
    if path.is_dir():
        raise FileFormatError(f"expected a file; {path} is a folder")
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    try:
        with safe_open(path, framework="numpy") as file:
            names = [] if metadata_only else list(file.keys())
            return {name: np.array(file.get_tensor(name)) for name in names}, dict(
                file.metadata() or {}
            )
    except (SafetensorError, OSError) as error:
        with path.open("rb") as opened:
            head = opened.read(8)
        actual = file_type(head) or f"a file that begins with {head!r}"
        raise FileFormatError(
            f"{path} is truncated or not a safetensors file: it is {actual}"
        ) from error


def fingerprint(tensors: Tensors, about: Json) -> str:
    """Return the SHA-256 of tensors, names and description."""
    digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
    for name in sorted(tensors):
        digest.update(f"{name}{tensors[name].shape}{tensors[name].dtype}".encode())
        digest.update(np.ascontiguousarray(tensors[name]).tobytes())
    return digest.hexdigest()
