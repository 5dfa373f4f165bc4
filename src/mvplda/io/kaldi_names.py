"""Names of Kaldi archives and scripts with prefixes, such as ``ark:x``, and the files that they stand for."""

from __future__ import annotations

import re
from pathlib import Path

from .._typing import PathLike
from ..atomic_files import STANDARD
from ..exceptions import ParameterError
from .tables import suffix_of

PREFIX = re.compile(r"(ark|scp)(?:,\w{1,2})*:(.*)", re.DOTALL)
"""Name with a prefix and its options, such as ``ark,t:x``."""
BINARY = b"\0B"
"""Mark before a binary entry."""
ID = re.compile(rb"([^\0-\x20]+)[ \t]")
"""Id of an entry of an archive, and the blank after it."""


def is_kaldi(path: PathLike) -> bool:
    """Return whether a path names a Kaldi file: a prefix such as ``ark:``, or a suffix ``.ark`` or ``.scp``."""
    return PREFIX.fullmatch(str(path)) is not None or suffix_of(path) in (".ark", ".scp")


def parse_name(path: PathLike) -> tuple[str, bool]:
    """Return the path in a name such as ``ark:x``, ``scp:x`` or ``x.scp``, and whether the file is a script.

    Raises `ParameterError` if a prefix is followed by nothing, or by a command (``... |``).
    """
    match = PREFIX.fullmatch(str(path))
    if match is None:
        return str(path), suffix_of(path) == ".scp"
    name = match[2].strip()
    if not name or "|" in (name[0], name[-1]):
        raise ParameterError(
            f"{path}: expected the path of a file after the prefix {match[1]}: (commands are not run: write the output "
            "of the command to a file, and pass this file)"
        )
    return name, match[1] == "scp"


def looks_like_archive(head: bytes) -> bool:
    """Return whether the first bytes of a file look like a Kaldi archive: an id, then a binary mark or a bracket."""
    return re.match(rb"\s*\S+[ \t]+(\0B|\[)", head) is not None


def kaldi_files(path: PathLike) -> list[Path]:
    """Return the files to write for a name: the archive for ``x.ark``, archive and script for ``x.scp``.

    Raises `ParameterError` for standard output and for archives of text (``ark,t:``).
    """
    name, is_script = parse_name(path)
    if name == STANDARD or str(path).startswith("ark,t:"):
        raise ParameterError(
            f"{path}: archives are written in binary to files; text (ark,t:) and standard output (-) are not supported"
        )
    if is_script:
        return [Path(name).with_suffix(".ark"), Path(name)]
    return [Path(name)]
