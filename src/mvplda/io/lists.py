"""Text lists of labels: maps such as utt2spk (one label per id), and groups such as spk2utt (several ids per name)."""

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
    """Read a map such as ``utt2spk`` as {id: value}; each line has an id, a blank and a value.

    The value may contain blanks: it extends to the end of the line. Raises `FileFormatError` for an id without a
    value, a repeated id and an empty file.

    expected : description of a line, for errors
    commas : whether commas separate fields like blanks
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
"""Ids by the name of their group, such as the ids of the vectors of each speaker or model."""


def read_groups(path: PathLike, *, commas: bool = False) -> Groups:
    """Read groups such as ``spk2utt`` or an enrolment list as {name: ids}.

    Each line has a name and its ids, separated by blanks.

    commas : whether commas separate fields like blanks
    """
    entries = read_map(path, "'name id id ...'", commas=commas)
    # bytes split at ASCII blanks only, as in Kaldi
    lists = {name: value.encode().split() for name, value in entries.items()}
    return {name: tuple(map(bytes.decode, ids)) for name, ids in lists.items()}


def write_map(path: PathLike, values: Mapping[str, object]) -> None:
    """Write a map as lines ``id value``, atomically.

    Raises `LabelError` for an id or value that cannot be part of a line, such as empty text.
    """
    texts = list(map(str, values.values()))
    for name, text in zip(values, texts, strict=True):
        if fault := _fault_of_value(text):
            raise LabelError(
                f"the value {text[:40]!r} of {name!r} cannot be written to a list, because it {fault}: rename it"
            )
    write_text(path, map(" ".join, zip(check_ids(values), texts, strict=True)))


def _fault_of_value(text: str) -> str:
    """Return why text cannot be the value of a line of a map, such as "is empty"; "" if it can."""
    if not text:
        return "is empty"
    if text.strip(BLANKS) != text:
        return "begins or ends with a blank"
    if "\n" in text:
        return "contains a line break"
    return "contains a zero byte" if "\0" in text else ""


def read_labels(paths: Mapping[str, PathLike], ids: Iterable[object]) -> dict[str, Labels]:
    """Read the labels of each view, in the order of the ids.

    An id that a file does not list gets the label None, and a warning counts such ids. `LabelError` is raised if a
    file lists none of the ids.

    Parameters
    ----------
    paths : {view: path of the map with its labels, such as utt2spk}
    ids : (n,) ids of the vectors

    Returns
    -------
    {view: labels (n,)}
    """
    names = [str(name) for name in ids]
    labels: dict[str, Labels] = {}
    for view, path in paths.items():
        values = read_map(path)
        missing = [name for name in names if name not in values]
        if missing == names != []:
            raise LabelError(
                f"{path}, the list of labels of view {view!r}, has none of the {len(names)} ids of the vectors: the "
                f"first id is {names[0]!r}, the list begins with {next(iter(values))!r}. Pass the list that belongs to "
                "these vectors"
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
    """Return the warning that some vectors have no label.

    source : list or column of the labels
    count, total : number of vectors without label, and of all vectors
    first : id of the first vector without label, if it is known
    """
    example = f", the first is {first!r}" if first else ""
    return UnlabelledWarning(
        f"{count} of {total} vectors have no label of view {view!r} in {source}{example}; "
        "each of these vectors becomes a class of its own"
    )
