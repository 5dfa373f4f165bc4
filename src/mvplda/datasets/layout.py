"""Sound files in folders, and what their names say."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..exceptions import DataError, ParameterError
from .corpus import Clip, StringArray
from .enrolment import named

SOUND = (".wav", ".flac", ".ogg", ".oga", ".opus", ".mp3", ".sph", ".aif", ".aiff")
FIELD = re.compile(r"\{(\w+)\}")

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Found:
    """Files whose names fit a pattern.

    paths : (n,) relative to the root, with ``/``
    fields : field of the pattern -> (n,) what stands there
    """

    root: Path
    paths: StringArray
    fields: dict[str, StringArray]

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def clips(self) -> tuple[Clip, ...]:
        return tuple(Clip(self.root / path) for path in self.paths.tolist())

    def take(self, rows: object) -> Found:
        """Some of the files."""
        return Found(self.root, self.paths[rows], {name: values[rows] for name, values in self.fields.items()})  # type: ignore[call-overload]


def sound_files(root: Path, suffixes: Sequence[str] = SOUND) -> list[str]:
    """Sound files under a folder, relative to it with ``/``, sorted; hidden files and folders are passed over."""
    if not root.is_dir():
        raise DataError(f"there is no folder {root}")
    found = []
    for folder, folders, files in os.walk(root, followlinks=True):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        inner = Path(folder).relative_to(root).as_posix()
        start = "" if inner == "." else inner + "/"
        found += [start + name for name in files if name.lower().endswith(tuple(suffixes)) and name[0] != "."]
    return sorted(found)


def compile_pattern(pattern: str) -> re.Pattern[str]:
    """A pattern such as ``{speaker}/{phrase}_{session}.wav`` as a regular expression of the whole path.

    A field takes as little as fits and never a ``/``; the same field again must hold the
    same. ``*`` stands for anything but ``/``. Without a suffix the pattern takes any.

    Examples
    --------
    >>> compile_pattern("{speaker}/{speaker}_{session}_{phrase}").fullmatch("m1/m1_02_007.sph").groupdict()
    {'speaker': 'm1', 'session': '02', 'phrase': '007'}
    """
    fields = FIELD.findall(pattern)
    if not fields:
        raise ParameterError(f"a pattern names fields, such as {{speaker}}/{{phrase}}_{{session}}.wav; got {pattern!r}")
    text, seen, place = "", set(), 0
    for match in FIELD.finditer(pattern):
        name = match[1]
        text += _literal(pattern[place : match.start()])
        text += f"(?P={name})" if name in seen else f"(?P<{name}>[^/]+?)"
        seen.add(name)
        place = match.end()
    text += _literal(pattern[place:])
    if "." not in pattern.rpartition("/")[2]:
        text += r"\.[^./]+"
    return re.compile(text)


def _literal(text: str) -> str:
    return "[^/]*".join(map(re.escape, text.split("*")))


def match_files(
    root: str | os.PathLike[str],
    pattern: str | re.Pattern[str],
    *,
    unmatched: str = "error",
    what: str = "folder",
    suffixes: Sequence[str] = SOUND,
) -> Found:
    """Sound files under a folder and the fields of their names.

    Parameters
    ----------
    unmatched : "error" refuses names that do not fit the pattern, "skip" passes over them and says so
    what : the data set, for the errors
    """
    if unmatched not in ("error", "skip"):
        raise ParameterError(f"unmatched is 'error' or 'skip'; got {unmatched!r}")
    root = Path(root)
    expression = compile_pattern(pattern) if isinstance(pattern, str) else pattern
    shown = pattern if isinstance(pattern, str) else pattern.pattern
    files = sound_files(root, suffixes)
    if not files:
        raise DataError(f"{what}: there are no sound files ({', '.join(suffixes)}) under {root}; expected {shown}")
    matches = [(path, expression.fullmatch(path)) for path in files]
    odd = [path for path, match in matches if match is None]
    fitting = [(path, match) for path, match in matches if match is not None]
    if odd and (unmatched == "error" or not fitting):
        raise DataError(
            f"{what}: {len(odd)} of {len(files)} names under {root} do not fit {shown}: {named(odd)}. Change the "
            "pattern, move them, or pass over them with unmatched='skip'"
        )
    if odd:
        log.warning("%s: passed over %d of %d names that do not fit: %s", what, len(odd), len(files), named(odd))
    fields = {name: np.array([match[name] for _, match in fitting]) for name in expression.groupindex}
    return Found(root, np.array([path for path, _ in fitting]), fields)


def without_suffix(paths: StringArray) -> StringArray:
    """Paths as ids: without the suffix."""
    return np.array([path.rpartition(".")[0] for path in paths.tolist()])


def folder_with(root: str | os.PathLike[str], inner: Sequence[str], what: str, how: str) -> Path:
    """The first of some folders that is there, under the root; else an error that says what was looked for."""
    root = Path(root)
    for name in inner:
        if (root / name).is_dir():
            return root / name
    looked = " or ".join(str(root / name) for name in inner)
    raise DataError(f"{what} is not there: looked for the folder {looked}. {how}")
