"""A CSV, tab-separated or Parquet table of utterances."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..exceptions import DataError, LabelError
from ..io.sources import fail
from ..io.tables import column_of, plain, read_parquet_columns, read_separated
from .corpus import Clip, Corpus, StringArray
from .enrolment import named
from .layout import without_suffix
from .protocol import build_corpus

PATH = ("path", "file", "wav", "audio", "filename")
ID = ("id", "utterance", "utt", "uttid")
SESSION = ("session", "repetition", "round")
SPLIT = ("split", "set", "subset", "part")
START, LENGTH, CHANNEL = ("start", "offset"), ("length", "samples"), ("channel",)


def table(
    path: str | os.PathLike[str],
    *,
    base: str | os.PathLike[str] | None = None,
    views: Sequence[str] | None = None,
    training: float | int | Sequence[str] | None = None,
    seed: int = 0,
    per_model: int = 3,
    sessions: int | None = None,
    name: str | None = None,
) -> Corpus:
    """The corpus that a table lists.

    Columns: ``path`` (or file), one a view, and if you like ``id``, ``session``, ``split``
    (train, enrol, test; or train, evaluation), ``start`` and ``length`` in samples, and ``channel``.

    Parameters
    ----------
    path : a ``.csv``, ``.tsv`` (or ``.txt``, tabs) or ``.parquet`` file with a header
    base : the folder that the paths are relative to; None takes that of the table
    views : the columns that are views, the speaker first; None takes all that are nothing else
    training, seed, per_model : the protocol, where there is no split (see `make_protocol`)
    sessions : use only so many sessions of every cell, the first ones
    """
    path = Path(path)
    listed = read_table(path, base=base, views=views)
    return build_corpus(
        name or path.stem,
        listed.ids,
        listed.labels,
        listed.clips,
        listed.sessions,
        split=listed.split,
        training=training,
        seed=seed,
        per_model=per_model,
        limit=sessions,
    )


@dataclass(frozen=True)
class Listed:
    """What a table says of its utterances."""

    ids: StringArray
    labels: dict[str, StringArray]
    clips: tuple[Clip, ...]
    sessions: StringArray | None
    split: StringArray | None


def read_table(
    path: str | os.PathLike[str],
    *,
    base: str | os.PathLike[str] | None = None,
    views: Sequence[str] | None = None,
) -> Listed:
    """Read a table of utterances; the parameters are those of `table`."""
    path = Path(path)
    header, columns = _read(path)
    place = column_of(header, PATH)
    if place is None:
        fail(path, f"expected a column called {' or '.join(PATH)}; the header has {', '.join(header)}", 1)
    found = {key: column_of(header, names) for key, names in _COLUMNS.items()}
    if views is None:
        taken = {place, *found.values()}
        views = [header[k] for k in range(len(header)) if k not in taken]
    places = {view: column_of(header, (plain(view),)) for view in views}
    missing = [view for view, k in places.items() if k is None]
    if missing or not views:
        fail(path, f"expected a column a view: {', '.join(missing) or 'speaker, ...'}; got {', '.join(header)}", 1)
    labels = {view: _text(columns[k]) for view, k in places.items() if k is not None}
    for view, classes in labels.items():
        blank = np.flatnonzero(classes == "")
        if len(blank):
            fail(path, f"{len(blank)} label(s) of view {view!r} are blank, the first is that of row {blank[0] + 1}")
    chosen = {key: None if k is None else _text(columns[k]) for key, k in found.items()}
    paths = _text(columns[place])
    clips = _clips(path, Path(base) if base is not None else path.parent, paths, chosen)
    ids = chosen["id"] if chosen["id"] is not None else _ids(paths, chosen["start"])
    return Listed(ids, labels, clips, chosen["session"], chosen["split"])


_COLUMNS = {"id": ID, "session": SESSION, "split": SPLIT, "start": START, "length": LENGTH, "channel": CHANNEL}


def _read(path: Path) -> tuple[list[str], list[Any]]:
    kind = path.suffix.lower()
    if kind == ".parquet":
        return read_parquet_columns(path)
    if kind not in (".csv", ".tsv", ".txt"):
        raise DataError(f"{path}: a table of utterances is a .csv, .tsv, .txt (tabs) or .parquet file")
    header, columns = read_separated(path, "," if kind == ".csv" else "\t")
    return header, list(columns)


def _text(column: Any) -> StringArray:
    return np.array([str(value).strip() for value in column])


def _ids(paths: StringArray, start: StringArray | None) -> StringArray:
    """Paths without their suffix; stretches of one file get their start."""
    names = without_suffix(paths)
    if start is None or len(np.unique(names)) == len(names):
        return names
    return np.array([f"{name}@{begin}" for name, begin in zip(names.tolist(), start.tolist(), strict=True)])


def _clips(table: Path, root: Path, paths: StringArray, chosen: dict[str, StringArray | None]) -> tuple[Clip, ...]:
    files = {name: root / name for name in np.unique(paths).tolist()}
    gone = [str(file) for file in files.values() if not os.path.isfile(file)]
    if gone:
        raise DataError(f"{table}: {len(gone)} of {len(files)} files are not there: {named(gone)}")
    n = len(paths)
    start, length, channel = (_whole(table, key, chosen[key], n) for key in ("start", "length", "channel"))
    rows = zip(paths.tolist(), start, length, channel, strict=True)
    return tuple(Clip(files[name], begin or 0, size, side) for name, begin, size, side in rows)


def _whole(table: Path, key: str, values: StringArray | None, number: int) -> list[int | None]:
    """Whole numbers, None where blank."""
    if values is None:
        return [None] * number
    for k, text in enumerate(values.tolist()):
        if text and not (text.isascii() and text.isdecimal()):
            raise LabelError(f"{table}, row {k + 1}: {text!r} is the {key}; expected a whole number from 0")
    return [int(text) if text else None for text in values.tolist()]
