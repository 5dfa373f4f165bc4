"""Lists of the field: maps such as utt2spk, groups such as spk2utt, label lists."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping

import numpy as np

from .._typing import Names as Labels
from .._typing import PathLike
from ..exceptions import LabelError, UnlabelledWarning
from .streams import BLANKS, OnDisk, as_names, check_ids, fail, lines_of, write_text

# Kaldi's lists: ``utt2spk`` and any ``utt2X``, ``spk2utt``, and labels from them.


def read_map(
    path: PathLike, expected: str = "'id value'", *, commas: bool = False
) -> dict[str, str]:
    """A map such as ``utt2spk``: id, then the value, which is the rest of the line.

    expected : what a line should hold, for errors
    commas : whether commas separate fields as blanks do
    """
    entries: dict[str, str] = {}
    for number, line in enumerate(lines_of(OnDisk(path), commas), 1):
        fields = [part.decode() for part in line.strip().split(None, 1)]
        if len(fields) == 1:
            fail(path, f"{fields[0][:60]!r} stands alone; expected {expected}", number)
        if not fields:
            continue
        if fields[0] in entries:
            fail(path, f"{fields[0]!r} is listed again; every id stands once", number)
        entries[fields[0]] = fields[1]
    if not entries:
        fail(path, f"the file is empty; expected lines of {expected}")
    as_names(path, entries)  # none is absurdly long
    return entries


Groups = dict[str, tuple[str, ...]]
"""Ids by the name of what they make: vectors of a speaker, of a model."""


def read_groups(path: PathLike, *, commas: bool = False) -> Groups:
    """Groups such as ``spk2utt`` or an enrolment list: name, then ids."""
    entries = read_map(path, "'name id id ...'", commas=commas)
    # bytes are split at the blanks of ASCII only
    lists = {name: rest.encode().split() for name, rest in entries.items()}
    return {name: tuple(map(bytes.decode, ids)) for name, ids in lists.items()}


def write_map(path: PathLike, values: Mapping[str, object]) -> None:
    """Write ``id value`` lines, all or nothing."""
    texts = list(map(str, values.values()))
    for text in texts:
        if not text or text.strip(BLANKS) != text or "\n" in text or "\0" in text:
            raise LabelError(
                f"the value {text[:40]!r} does not fit a line: it is empty or has outer blanks"
            )
    write_text(path, map(" ".join, zip(check_ids(values), texts, strict=True)))


def read_labels(paths: Mapping[str, PathLike], ids: Iterable[object]) -> dict[str, Labels]:
    """Labels of every view, aligned with the ids; None, and a warning, where a file does not list an id.

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
            text = unlabelled(view, str(path), len(missing), len(names), missing[0])
            warnings.warn(text, stacklevel=2)
        labels[view] = as_objects(map(values.get, names))
    return labels


def as_objects(values: Iterable[object]) -> Labels:
    """Labels as they are, (n,), whatever their types."""
    return np.array([*values, None], dtype=object)[:-1]


def unlabelled(view: str, where: str, count: int, total: int, first: str = "") -> UnlabelledWarning:
    """What is said of vectors that a list does not name."""
    such = f", the first is {first!r}" if first else ""
    return UnlabelledWarning(
        f"{count} of {total} vectors have no label of view {view!r} in {where}{such}; "
        "each of them is taken for a class of its own"
    )
