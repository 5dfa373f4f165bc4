"""Atomic writing of files (completely or not at all), and detection of file types by their first bytes."""

from __future__ import annotations

import gzip
import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ._typing import PathLike

GZIP = b"\x1f\x8b"
"""First bytes of a file that is compressed with gzip."""

STANDARD = "-"
"""File name of standard input or output."""

FILE_SIGNATURES = {
    b"PAR1": "a Parquet file",
    b"\x93NUMPY": "a NumPy array (.npy)",
    b"PK\x03\x04": "a NumPy archive (.npz)",
    b"\x89HDF": "an HDF5 file",
    b"ARROW1": "an Arrow file",
    b"RIFF": "a WAV recording",
    b"fLaC": "a FLAC recording",
    b"OggS": "an Ogg recording",
    b"ID3": "an MP3 recording",
    b"<": "a page of HTML or XML",
    b"{": "a JSON file",
}
"""Description of the type of a file by its first bytes."""

DESCRIPTORS = ("/dev/fd/", "/dev/stdout", "/dev/stderr", "/proc/")
"""Prefixes of the paths of open file descriptors, which cannot be replaced by another file."""


def file_type(head: bytes) -> str:
    """Return a description of the type of a file with these first bytes; empty text if the type is unknown."""
    return next((name for start, name in FILE_SIGNATURES.items() if head.startswith(start)), "")


def check_writable(*targets: PathLike) -> None:
    """Raise an `OSError` if a file cannot be written; call it before long work.

    targets : paths of the files; standard output (``-``) is always accepted
    """
    for target in targets:
        path = Path(target)
        if str(path) == STANDARD:
            continue
        if path.is_dir():
            raise IsADirectoryError(
                f"expected the name of an output file; {path} is a folder: add the name of a file"
            )
        folder = Path(os.path.realpath(path)).parent
        if not folder.is_dir():
            raise FileNotFoundError(
                f"{path.name} cannot be written, because the folder {folder} does not exist: create it"
            )
        if not os.access(path if _is_device(path) else folder, os.W_OK):
            raise PermissionError(
                f"{path} cannot be written, because you may not change the file or its folder: choose another path"
            )


@contextmanager
def atomic_write(*targets: PathLike) -> Iterator[list[Path]]:
    """Return a context that yields the paths of temporary files, which replace the targets if the block succeeds.

    If the block raises an error, the temporary files are deleted and the targets are unchanged. If a target is a link,
    the file that it points to is replaced. Devices, pipes and standard output (``-``) cannot be replaced, and receive
    a copy. Targets with the suffix ``.gz`` are compressed.

    targets : paths of the files to write; the yielded paths have their order
    """
    check_writable(*targets)
    targets_by_temporary: dict[Path, Path] = {}
    try:
        for target in targets:
            path = Path(target)
            folder = Path(tempfile.gettempdir())
            if not _is_device(path):
                path = Path(os.path.realpath(path))
                folder = path.parent
            # File names are limited to 255 bytes.
            temporary = folder / f"{path.name[:40]}.{secrets.token_hex(6)}.part"
            temporary.touch(0o600 if _is_device(path) else 0o666, exist_ok=False)
            targets_by_temporary[temporary] = path
            if path.is_file():
                shutil.copymode(path, temporary)
        yield list(targets_by_temporary)
        for temporary, path in targets_by_temporary.items():
            if path.suffix.lower() == ".gz":
                _compress(temporary)
            # Windows can only sync files that are open for writing.
            with temporary.open("r+b") as file:
                os.fsync(file.fileno())
        for temporary, path in targets_by_temporary.items():
            if str(path) == STANDARD:
                sys.stdout.buffer.write(temporary.read_bytes())
                sys.stdout.buffer.flush()
            elif _is_device(path):
                path.write_bytes(temporary.read_bytes())
            else:
                os.replace(temporary, path)
    except OSError as error:
        if error.errno is None or error.filename is not None:
            raise
        raise OSError(
            error.errno, f"{error.strerror}: {', '.join(map(str, targets))} was not written"
        ) from error
    finally:
        for temporary in targets_by_temporary:
            temporary.unlink(missing_ok=True)


def _compress(path: Path) -> None:
    """Compress a file with gzip in place, unless it is compressed already."""
    data = path.read_bytes()
    if not data.startswith(GZIP):
        # Without a name and a time, the same contents give the same bytes.
        path.write_bytes(gzip.compress(data, mtime=0))


def write_atomically(path: PathLike, data: bytes) -> None:
    """Write bytes to a file atomically: after an error, an earlier file is unchanged."""
    with atomic_write(path) as (temporary,):
        temporary.write_bytes(data)


def _is_device(path: Path) -> bool:
    """Return whether a path stands for something that a file cannot replace.

    Examples are standard output (``-``), a device, a pipe, and a descriptor such as ``/dev/fd/3``.
    """
    name = str(path)
    return (
        name == STANDARD or name.startswith(DESCRIPTORS) or (path.exists() and not path.is_file())
    )
