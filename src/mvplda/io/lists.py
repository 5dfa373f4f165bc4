"""Kaldi's lists: ``utt2spk`` and any ``utt2X``, ``spk2utt``, ``num_utts``, and labels from them."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..exceptions import LabelError, UnlabelledWarning
from .sources import PathLike, fail
from .text import LONGEST_ID, check_id, read_lines, write_text


def _entries(path: PathLike, what: str) -> list[tuple[int, str, str]]:
    """(line number, id, the rest of the line) of every line that is not blank; ids stand once."""
    entries: list[tuple[int, str, str]] = []
    seen: set[str] = set()
    again: list[tuple[int, str]] = []
    for number, line in enumerate(read_lines(path), 1):
        fields = line.split(None, 1)
        if not fields:
            continue
        if len(fields) == 1:
            fail(path, f"{fields[0].decode()[:60]!r} stands alone; expected {what}", number)
        name, rest = fields[0].decode(), fields[1].strip().decode()
        if len(name) > LONGEST_ID:
            fail(path, f"an id of {len(name)} characters; expected at most {LONGEST_ID}", number)
        if name in seen:
            again.append((number, name))
        seen.add(name)
        entries.append((number, name, rest))
    if not entries:
        fail(path, f"the file is empty; expected lines of {what}")
    if again:
        number, name = again[0]
        fail(path, f"{name!r} is listed again; {len(again)} line(s) repeat an id", number)
    return entries


def read_map(path: PathLike) -> dict[str, str]:
    """A map such as ``utt2spk``: id, then the value, which is the rest of the line."""
    return {name: rest for _, name, rest in _entries(path, "'id value'")}


def read_groups(path: PathLike) -> dict[str, tuple[str, ...]]:
    """Groups such as ``spk2utt`` or an enrolment list: name, then ids."""
    entries = _entries(path, "'name id id ...'")
    return {name: tuple(part.decode() for part in rest.encode().split()) for _, name, rest in entries}


def read_counts(path: PathLike) -> dict[str, int]:
    """Counts such as ``num_utts``: name, then a whole number."""
    counts = {}
    for number, name, rest in _entries(path, "'name count'"):
        if not (rest.isascii() and rest.isdecimal() and len(rest) < 19):
            fail(path, f"{rest[:40]!r} is the count of {name!r}; expected a whole number", number)
        counts[name] = int(rest)
    return counts


def write_map(path: PathLike, values: Mapping[str, Any]) -> None:
    """Write ``id value`` lines, all or nothing."""
    lines = []
    for name, value in values.items():
        text = str(value)
        if not text or text.strip(" \t\r\n\v\f") != text or "\n" in text or "\0" in text:
            raise LabelError(
                f"the value {text[:40]!r} of {name!r} does not fit a line: it is empty or has outer blanks"
            )
        lines.append(f"{check_id(name)} {text}")
    write_text(path, lines)


def write_groups(path: PathLike, groups: Mapping[str, Sequence[str]]) -> None:
    """Write ``name id id ...`` lines, all or nothing."""
    lines = []
    for name, members in groups.items():
        if isinstance(members, str) or not len(members):
            raise LabelError(f"the group {name!r} has {members!r}; expected a sequence of at least one id")
        lines.append(" ".join([check_id(name), *map(check_id, members)]))
    write_text(path, lines)


def write_counts(path: PathLike, counts: Mapping[str, int]) -> None:
    """Write ``name count`` lines, all or nothing."""
    write_text(path, [f"{check_id(name)} {int(count)}" for name, count in counts.items()])


def groups_of(values: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """The ids of every value: ``utt2spk`` to ``spk2utt``."""
    groups: dict[str, list[str]] = {}
    for name, value in values.items():
        groups.setdefault(value, []).append(name)
    return {value: tuple(names) for value, names in groups.items()}


def read_labels(paths: Mapping[str, PathLike], ids: Iterable[Any]) -> dict[str, NDArray[Any]]:
    """Labels of every view, aligned with the ids; None, and a warning, where a file does not list an id.

    Parameters
    ----------
    paths : {view: path of its ``utt2X``}
    ids : (n,) ids of the vectors
    """
    names = [str(name) for name in ids]
    labels: dict[str, NDArray[Any]] = {}
    for view, path in paths.items():
        values = read_map(path)
        column = np.array([values.get(name) for name in names] + [None], dtype=object)[:-1]
        if names and all(value is None for value in column):
            raise LabelError(
                f"{path} lists none of the {len(names)} ids for view {view!r}: the first is {names[0]!r}, "
                f"the file begins with {next(iter(values))!r}"
            )
        missing = [name for name, value in zip(names, column, strict=True) if value is None]
        if missing:
            warnings.warn(unlabelled(view, str(path), len(missing), len(names), missing[0]), stacklevel=2)
        labels[view] = column
    return labels


def unlabelled(view: str, where: str, count: int, total: int, first: str) -> UnlabelledWarning:
    """What is said of vectors that a list does not name."""
    return UnlabelledWarning(
        f"{count} of {total} vectors have no label of view {view!r} in {where}, the first is {first!r}; "
        "each of them is taken for a class of its own"
    )
