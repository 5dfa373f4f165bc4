"""A folder of your own: labels from the names of files and folders, or from a table."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..exceptions import DataError, ParameterError
from .corpus import Corpus
from .layout import FIELD, match_files, without_suffix
from .protocol import build_corpus
from .tables import table

PATTERN = "{speaker}/{phrase}/*"
INDEX = "index.csv"
SESSION = "session"


def folder(
    root: str | os.PathLike[str],
    pattern: str | None = None,
    *,
    views: Sequence[str] | None = None,
    training: float | int | Sequence[str] | None = None,
    seed: int = 0,
    per_model: int = 3,
    sessions: int | None = None,
    unmatched: str = "error",
    base: str | os.PathLike[str] | None = None,
    name: str | None = None,
) -> Corpus:
    """The corpus of the sound files under a folder, or of a table.

    Parameters
    ----------
    root : a folder; or a CSV, tab-separated or Parquet table (see `mvplda.datasets.table`).
        A folder that holds an ``index.csv`` is read by it, unless there is a pattern.
    pattern : how a path under the root reads, such as ``{speaker}/{phrase}/*`` (used when
        None), ``{speaker}_{phrase}_{session}.wav`` or ``{speaker}/{phrase}_{session}.flac``.
        Fields are views, except ``session``, which orders the utterances of a cell.
    views : the fields that are views, the speaker first; None takes them as the pattern does
    training : classes of the first view to train on: names, a number, or a share; None is
        two thirds, drawn with `seed`. The others are enrolled and tested.
    per_model : utterances an enrolment, the first sessions of a cell
    sessions : use only so many sessions of every cell, the first ones
    unmatched : "error" refuses names that do not fit the pattern, "skip" passes over them
    base : the folder that the paths of a table are relative to; None takes that of the table
    """
    root = Path(root)
    common: dict[str, Any] = {"training": training, "seed": seed, "per_model": per_model}
    index = root if root.is_file() else root / INDEX
    if pattern is None and index.is_file():
        label = name or (root.stem if root.is_file() else root.name)
        return table(index, views=views, sessions=sessions, name=label, base=base, **common)
    if not root.is_dir():
        raise DataError(
            f"there is no folder or table {root}: expected a folder of sound files, or a CSV of their paths"
        )
    pattern = pattern or PATTERN
    found = match_files(root, pattern, unmatched=unmatched, what=name or root.name)
    if views is None:
        views = [field for field in dict.fromkeys(FIELD.findall(pattern)) if field != SESSION]
    missing = [view for view in views if view not in found.fields]
    if missing or not views:
        raise ParameterError(
            f"the pattern {pattern!r} has no field {', '.join(missing) or 'that is a view'}; it has "
            f"{', '.join(found.fields)}"
        )
    labels = {view: found.fields[view] for view in views}
    ids = without_suffix(found.paths)
    return build_corpus(
        name or root.name, ids, labels, found.clips, found.fields.get(SESSION), limit=sessions, **common
    )
