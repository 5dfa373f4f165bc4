"""Names of Kaldi archives and scripts, such as ``ark:x``, and their files."""

from __future__ import annotations

import re
from pathlib import Path

from .._typing import PathLike
from ..atomic_files import STANDARD
from ..exceptions import ParameterError
from .tables import suffix_of

PREFIX = re.compile(r"(ark|scp)(?:,\w{1,2})*:(.*)", re.DOTALL)
BINARY = b"\0B"
ID = re.compile(rb"([^\0-\x20]+)[ \t]")


def is_kaldi(path: PathLike) -> bool:
    """Return whether a path names a Kaldi file: a prefix such as ``ark:``, or a suffix ``.ark`` or ``.scp``."""
    return PREFIX.fullmatch(str(path)) is not None or suffix_of(path) in (".ark", ".scp")


def parse_name(path: PathLike) -> tuple[str, bool]:
    """Return the file of ``ark:x``, ``scp:x`` or a bare path, and whether it is a script."""
    match = PREFIX.fullmatch(str(path))
    if match is None:
        return str(path), suffix_of(path) == ".scp"
    name = match[2].strip()
    if not name or "|" in (name[0], name[-1]):
        raise ParameterError(
            f"{path}: expected a file after the prefix; commands are not run: write their output to a file first"
        )
    return name, match[1] == "scp"


def looks_like_archive(head: bytes) -> bool:
    """Return whether these first bytes are those of an archive; otherwise the file may be a script."""
    return re.match(rb"\s*\S+[ \t]+(\0B|\[)", head) is not None


def kaldi_files(path: PathLike) -> list[Path]:
    """Return the files to write for a name: the archive and, if the name is a script, the script."""
    name, is_script = parse_name(path)
    if name == STANDARD or str(path).startswith("ark,t:"):
        raise ParameterError(
            f"{path}: archives are written to files, not to standard output, and in binary, not as text"
        )
    if is_script:
        return [Path(name).with_suffix(".ark"), Path(name)]
    return [Path(name)]
