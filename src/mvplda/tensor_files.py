"""Files of arrays and plain values in the ``.safetensors`` format, with a version and a fingerprint.

The fingerprint, a hash of the contents, shows that a file is complete; it does not prove who wrote the file.
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
"""State of an object: arrays by name, and plain values for JSON by name."""

FORMAT, DESCRIPTION_KEY = "mvplda", "object"
"""Name of the format in the metadata of a file, and key of the metadata with the plain values as JSON."""

VERSION = 1
"""Version of the format; files of a later version cannot be read."""

# name of each NumPy type in the header of a file

SAFETENSORS_TYPES = {
    "float64": "F64", "float32": "F32", "float16": "F16", "int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8",
    "uint64": "U64", "uint32": "U32", "uint16": "U16", "uint8": "U8", "bool": "BOOL",
}  # fmt: skip


def packed_chunks(tensors: Tensors, about: Json) -> Iterator[bytes | memoryview]:
    """Yield the bytes of a file with arrays, plain values, version and fingerprint.

    The same contents always give the same bytes. (The safetensors library writes its metadata in random order.)

    tensors : arrays by name
    about : plain values by name
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
    """Return the arrays and the plain values of a file that `packed_chunks` wrote, after a check of the fingerprint.

    Raises `FileFormatError` if the file is damaged, of another format or of a later version.
    """
    tensors, metadata = read_tensors(path)
    file_format = metadata.get("format")
    if file_format != FORMAT:
        raise FileFormatError(
            f"{path} is a safetensors file of another program: its format is {file_format!r}; expected {FORMAT!r}, "
            "a model, calibrator or statistics of mvplda"
        )
    version = metadata.get("version", "")
    if not version.isdigit() or int(version) > VERSION:
        raise FileFormatError(
            f"{path} has version {version!r} of the format, and this mvplda reads versions up to {VERSION}: install a "
            "newer mvplda"
        )
    try:
        about = json.loads(metadata[DESCRIPTION_KEY], parse_constant=_refuse_constant)
        is_complete = metadata["fingerprint"] == fingerprint(tensors, about)
    except (KeyError, ValueError, RecursionError) as error:
        raise FileFormatError(f"{path} is incomplete or damaged: {error}") from error
    if not is_complete:
        raise FileFormatError(
            f"{path} is damaged: its contents do not match its fingerprint. Copy or create the file again"
        )
    return tensors, about


def _refuse_constant(name: str) -> NoReturn:
    """Raise ValueError for NaN or infinity in JSON, which no file of this package contains."""
    raise ValueError(f"a value is {name}")


def read_metadata(path: PathLike) -> dict[str, str]:
    """Return the metadata of a safetensors file, without reading its arrays."""
    return read_tensors(path, metadata_only=True)[1]


def read_tensors(path: PathLike, metadata_only: bool = False) -> tuple[Tensors, dict[str, str]]:
    """Return the arrays and the metadata of a safetensors file.

    metadata_only : return no arrays
    """
    path = Path(path)
    if path.is_dir():
        raise FileFormatError(f"expected a .safetensors file; {path} is a folder")
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
    """Return the SHA-256 hash of arrays, their names, and plain values."""
    digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
    for name in sorted(tensors):
        digest.update(f"{name}{tensors[name].shape}{tensors[name].dtype}".encode())
        digest.update(np.ascontiguousarray(tensors[name]).tobytes())
    return digest.hexdigest()
