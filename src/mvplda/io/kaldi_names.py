"""Names of Kaldi's archives and scripts, such as ark:x, and the files that they stand for."""

from __future__ import annotations

import re
from pathlib import Path

from .._typing import PathLike
from ..exceptions import ParameterError
from ..persistence import STANDARD
from .tables import suffix_of

PREFIX = re.compile(r"(ark|scp)(?:,\w{1,2})*:(.*)", re.DOTALL)
BINARY = b"\0B"
ID = re.compile(rb"([^\0-\x20]+)[ \t]")


def is_kaldi(path: PathLike) -> bool:
    """Whether this names a Kaldi archive: a prefix such as ``ark:``, or a suffix ``.ark`` or ``.scp``."""
    return PREFIX.fullmatch(str(path)) is not None or suffix_of(path) in (".ark", ".scp")


def parse_name(path: PathLike) -> tuple[str, bool]:
    """The file that ``ark:x``, ``scp:x`` or a bare path names, and whether it is a script."""
    parts = PREFIX.fullmatch(str(path))
    if parts is None:
        return str(path), suffix_of(path) == ".scp"
    name = parts[2].strip()
    if not name or "|" in (name[0], name[-1]):
        raise ParameterError(
            f"{path}: expected a file after the prefix; commands are not run. Write their output first"
        )
    return name, parts[1] == "scp"


def looks_like_archive(head: bytes) -> bool:
    """Whether a file that begins so is an archive; else it may be a script."""
    return re.match(rb"\s*\S+[ \t]+(\0B|\[)", head) is not None


def kaldi_files(path: PathLike) -> list[Path]:
    """What is written under a name: the archive, and the script where the name asks for one."""
    name, is_script = parse_name(path)
    if name == STANDARD or str(path).startswith("ark,t:"):
        raise ParameterError(
            f"{path}: archives are written to files, not to standard output, and in binary, not as text"
        )
    if is_script:
        return [Path(name).with_suffix(".ark"), Path(name)]
    return [Path(name)]
