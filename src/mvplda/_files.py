"""Files of this package: ``.safetensors`` with a version and a fingerprint, whole or not there. No pickle."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from .exceptions import FileFormatError

# Model files: ``.safetensors`` with a version and a fingerprint. No pickle.


_T = TypeVar("_T")

FORMAT = "mvplda"
BUNDLE_FORMAT = "mvplda-bundle"
VERSION = 1
TYPES = {
    "float64": "F64", "float32": "F32", "float16": "F16", "int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8",
    "uint64": "U64", "uint32": "U32", "uint16": "U16", "uint8": "U8", "bool": "BOOL",
}  # fmt: skip
STANDARD = "-"
"""Stands for standard input or output."""
DESCRIPTORS = ("/dev/fd/", "/dev/stdout", "/dev/stderr", "/proc/")
"""Names of open descriptors: links that lead to no name that could be replaced."""


def seal(format: str, what: str, tensors: dict[str, NDArray[Any]], about: dict[str, Any]) -> bytes:
    """The bytes of a file: tensors, a description under the key `what`, version and fingerprint."""
    return b"".join(sealed_pieces(format, what, tensors, about))


def sealed_pieces(
    format: str, what: str, tensors: dict[str, NDArray[Any]], about: dict[str, Any]
) -> Iterator[bytes | memoryview]:
    """The bytes that `seal` gives, piece by piece, without a copy of the tensors.

    The same contents always give the same bytes. The library of safetensors writes its
    metadata in an order that it draws anew every time.
    """
    header: dict[str, Any] = {
        "__metadata__": {
            "format": format,
            "version": str(VERSION),
            what: json.dumps(about),
            "fingerprint": fingerprint(tensors, about),
        }
    }
    place = 0
    order = sorted(tensors, key=lambda name: (-tensors[name].itemsize, name))  # large items first: all are aligned
    for name in order:
        array = tensors[name]
        ends = [place, place + array.nbytes]
        header[name] = {"dtype": TYPES[array.dtype.name], "shape": list(array.shape), "data_offsets": ends}
        place = ends[1]
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little") + text
    for name in order:
        yield np.asarray(tensors[name], dtype=tensors[name].dtype.newbyteorder("<"), order="C").data


def unseal(path: str | os.PathLike[str], format: str, what: str) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """The tensors and the description that `seal` put in a file, checked."""
    tensors, metadata = read_tensors(path)
    found = metadata.get("format")
    if found != format and found in (FORMAT, BUNDLE_FORMAT):
        raise FileFormatError(f"{path} holds a {'bundle' if found == BUNDLE_FORMAT else 'model'}: use mvplda.load")
    if found != format:
        raise FileFormatError(f"{path} is a safetensors file, but not a {what} of mvplda")
    version = metadata.get("version", "")
    if not version.isdigit() or int(version) > VERSION:
        raise FileFormatError(f"{path} has format version {version!r}, this mvplda reads up to {VERSION}: upgrade it")
    try:
        about = json.loads(metadata[what])
        whole = metadata["fingerprint"] == fingerprint(tensors, about)
    except (KeyError, ValueError) as error:
        raise FileFormatError(f"{path} lacks parts of a {what}: {error}") from error
    except RecursionError as error:
        raise FileFormatError(f"{path} is damaged: its description is nested too deeply for a {what}") from error
    if not whole:
        raise FileFormatError(f"{path} is damaged: its contents do not match its fingerprint")
    return tensors, about


def file_format(path: str | os.PathLike[str]) -> str | None:
    """Which format of mvplda a file says it has; None for a safetensors file of something else."""
    found = read_metadata(path).get("format")
    return found if found in (FORMAT, BUNDLE_FORMAT) else None


def read_metadata(path: str | os.PathLike[str]) -> dict[str, str]:
    """Metadata of a safetensors file; its tensors are not read."""
    return _read(path, lambda _: None)[1]


def read_tensors(path: str | os.PathLike[str]) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """Tensors and metadata of a safetensors file."""
    return _read(path, lambda file: {name: file.get_tensor(name) for name in list(file.keys())})


def _read(path: str | os.PathLike[str], tensors: Callable[[Any], _T]) -> tuple[_T, dict[str, str]]:
    path = Path(path)
    if path.is_dir():
        raise FileFormatError(f"{path} is a folder; a file was expected")
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    try:
        with safe_open(path, framework="numpy") as file:
            return tensors(file), dict(file.metadata() or {})
    except (SafetensorError, OSError) as error:
        raise FileFormatError(f"{path} is truncated or not a safetensors file: {error}") from error


def fingerprint(tensors: dict[str, NDArray[Any]], about: dict[str, Any]) -> str:
    """SHA-256 of the parameters, names and settings."""
    digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
    for name in sorted(tensors):
        digest.update(f"{name}{tensors[name].shape}{tensors[name].dtype}".encode())
        digest.update(np.ascontiguousarray(tensors[name]).tobytes())
    return digest.hexdigest()


def check_writable(*targets: str | os.PathLike[str]) -> None:
    """Raise the error now that writing there would give later: before long work, not after it.

    ``-`` stands for standard output and can always be written.
    """
    for target in targets:
        path = Path(target)
        if str(path) == STANDARD:
            continue
        if path.is_dir():
            raise IsADirectoryError(f"{path} is a folder; give the name of a file to write")
        if _written_straight(path):
            if not os.access(path, os.W_OK):
                raise PermissionError(f"{path} may not be written")
            continue
        folder = Path(os.path.realpath(path)).parent if path.is_symlink() else path.parent
        if not folder.is_dir():
            raise FileNotFoundError(f"there is no folder {folder} to write {path.name} in")
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(f"{path} cannot be written: its folder {folder} may not be changed")


@contextmanager
def whole_files(*targets: str | os.PathLike[str]) -> Iterator[list[Path]]:
    """Temporary files to write, which take the places of the targets when the block ends well.

    After an error the temporary files are gone and the targets are as they were. A link stays a
    link: what it points to is written. Devices, pipes and standard output (``-``), which cannot
    be replaced, get a copy.
    """
    check_writable(*targets)
    paths = [Path(target) if _written_straight(Path(target)) else Path(os.path.realpath(target)) for target in targets]
    straight = [_written_straight(path) for path in paths]
    temporary: list[Path] = []
    try:
        for path, copied in zip(paths, straight, strict=True):
            folder = Path(tempfile.gettempdir()) if copied else path.parent
            part = folder / f"{path.name[:40]}.{secrets.token_hex(6)}.part"  # names of files end at 255 bytes
            temporary.append(part)
            os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600 if copied else 0o666))
            if path.is_file():
                os.chmod(part, stat.S_IMODE(path.stat().st_mode))
        yield temporary
        for part in temporary:
            with part.open("rb") as file:
                os.fsync(file.fileno())
        for part, path, copied in zip(temporary, paths, straight, strict=True):
            if str(path) == STANDARD:
                sys.stdout.buffer.write(part.read_bytes())
                sys.stdout.buffer.flush()
            elif copied:
                with part.open("rb") as source, path.open("wb") as sink:
                    shutil.copyfileobj(source, sink)
            else:
                os.replace(part, path)
    except OSError as error:
        if error.errno is None or error.filename is not None:
            raise
        raise OSError(error.errno, f"{error.strerror}: {', '.join(map(str, targets))} was not written") from error
    finally:
        for part in temporary:
            part.unlink(missing_ok=True)


def write_atomically(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file, all or nothing."""
    with whole_files(path) as (part,):
        part.write_bytes(data)


def _written_straight(path: Path) -> bool:
    """Whether this is no file that another could replace: a device, a pipe, or a descriptor of this process."""
    name = str(path)
    return name == STANDARD or name.startswith(DESCRIPTORS) or (path.exists() and not path.is_file())


def plain_settings(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings that a text can hold; callbacks and random generators are left out."""

    def convert(value: Any) -> Any:
        if isinstance(value, (np.generic, np.ndarray)):
            return value.tolist()
        raise TypeError

    plain = {}
    for name, value in settings.items():
        try:
            plain[name] = json.loads(json.dumps(value, default=convert))
        except TypeError:
            continue
    return plain
