"""Label lists: maps such as utt2spk, and groups such as spk2utt."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping

import numpy as np

from .._typing import Names as Labels
from .._typing import PathLike
from ..exceptions import LabelError, UnlabelledWarning
from .streams import BLANKS, OnDisk, as_names, check_ids, fail, lines_of, write_text


def read_map(
    path: PathLike, expected: str = "'id value'", *, commas: bool = False
) -> dict[str, str]:
    """Read a map such as ``utt2spk``: lines of an id and a value, which is the rest of the line.

    expected : description of a line, for errors
    commas : treat commas as blanks
    """
    entries: dict[str, str] = {}
    for number, line in enumerate(lines_of(OnDisk(path), commas), 1):
        fields = [field.decode() for field in line.strip().split(None, 1)]
        if len(fields) == 1:
            fail(path, f"{fields[0][:60]!r} has no value; expected {expected}", number)
        if not fields:
            continue
        if fields[0] in entries:
            fail(path, f"{fields[0]!r} is listed twice; list every id once", number)
        entries[fields[0]] = fields[1]
    if not entries:
        fail(path, f"the file is empty; expected lines of {expected}")
    as_names(path, entries)  # raises for an id that is too long
    return entries


Groups = dict[str, tuple[str, ...]]
"""Ids by group: the vectors of each speaker, or of each model."""


def read_groups(path: PathLike, *, commas: bool = False) -> Groups:
    """Read groups such as ``spk2utt`` or an enrolment list: lines of a name and its ids."""
    entries = read_map(path, "'name id id ...'", commas=commas)
    # bytes split at ASCII blanks only, as in Kaldi
    lists = {name: value.encode().split() for name, value in entries.items()}
    return {name: tuple(map(bytes.decode, ids)) for name, ids in lists.items()}


def write_map(path: PathLike, values: Mapping[str, object]) -> None:
    """Write ``id value`` lines atomically."""
    texts = list(map(str, values.values()))
    for text in texts:
        if not text or text.strip(BLANKS) != text or "\n" in text or "\0" in text:
            raise LabelError(
                f"the value {text[:40]!r} does not fit a line: it is empty or has outer blanks"
            )
    write_text(path, map(" ".join, zip(check_ids(values), texts, strict=True)))


def read_labels(paths: Mapping[str, PathLike], ids: Iterable[object]) -> dict[str, Labels]:
    """Read the labels of every view in the order of the ids.

    An id that a file does not list has the label None, with a warning.

    Parameters
    ----------
    paths : {view: path of its ``utt2X``}
    ids : (n,) ids of the vectors
    """
    names = [str(name) for name in ids]
    labels: dict[str, Labels] = {}
    for view, path in paths.items():
        values = read_map(path)
        missing = [name for name in names if name not in values]
        if missing == names != []:
            raise LabelError(
                f"{path} lists none of the {len(names)} ids for view {view!r}: the first is {names[0]!r}, "
                f"the file begins with {next(iter(values))!r}"
            )
        if missing:
            warning = unlabelled_warning(view, str(path), len(missing), len(names), missing[0])
            warnings.warn(warning, stacklevel=2)
        labels[view] = as_objects(map(values.get, names))
    return labels


def as_objects(values: Iterable[object]) -> Labels:
    """Return labels of any type as an array of objects (n,)."""
    return np.array([*values, None], dtype=object)[:-1]


def unlabelled_warning(
    view: str, source: str, count: int, total: int, first: str = ""
) -> UnlabelledWarning:
    """Return the warning about vectors that a list of labels does not name."""
    example = f", the first is {first!r}" if first else ""
    return UnlabelledWarning(
        f"{count} of {total} vectors have no label of view {view!r} in {source}{example}; "
        "each of them becomes a class of its own"
    )
