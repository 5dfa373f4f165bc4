"""Files that are whole or not there, and errors of foreign readers in our words."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..exceptions import FileFormatError, MvpldaError
from ..files import _umask
from .text import PathLike


@contextmanager
def whole_files(*targets: PathLike) -> Iterator[list[Path]]:
    """Temporary files beside the targets, renamed over them when the block ends well.

    After an error the temporary files are gone and the targets are as they were.
    """
    paths = [Path(target) for target in targets]
    for path in paths:
        if not path.parent.is_dir():
            raise FileNotFoundError(f"there is no folder {path.parent} to write {path.name} in")
        if path.is_dir():
            raise IsADirectoryError(f"{path} is a folder; give the name of a file to write")
    temporary: list[Path] = []
    try:
        for path in paths:
            handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name + ".", suffix=".part")
            os.close(handle)
            temporary.append(Path(name))
        yield temporary
        for part in temporary:
            _settle(part)
        for part, path in zip(temporary, paths, strict=True):
            os.replace(part, path)
    finally:
        for part in temporary:
            part.unlink(missing_ok=True)


def _settle(part: Path) -> None:
    with part.open("rb") as file:
        os.fsync(file.fileno())
    part.chmod(0o666 & ~_umask())


@contextmanager
def foreign(path: PathLike, what: str) -> Iterator[None]:
    """Whatever a library raises on a damaged file becomes a `FileFormatError` that names the file."""
    try:
        yield
    except (MvpldaError, FileNotFoundError, PermissionError):
        raise
    except Exception as error:  # parsers of damaged bytes raise anything
        reason = str(error).strip().splitlines()
        detail = reason[0] if reason else type(error).__name__
        raise FileFormatError(f"{path} is damaged or not {what}: {detail}") from error
