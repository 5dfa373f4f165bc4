"""Corpora of one's own: folders of sound files by a pattern, tables of utterances, vectors from elsewhere."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Unpack

import numpy as np

from ..._typing import PathLike
from ...exceptions import DataError, FileFormatError, LabelError, ParameterError
from ...io.files import column_of, fail, plain, read_groups, read_map, repeated
from ...io.files import read_table as read_columns
from ...io.trials import Trials, read_trials
from ...io.vectors import labels_beside, open_vectors, read_vectors
from ...io.vectors import read_columns as columns_beside
from ..frames import Clip
from .corpus import Corpus, ProtocolOptions, StringArray, named, register_corpus
from .protocol import build_corpus, listed_protocol, safe_ids, training_rows

PATTERN = "{speaker}/{phrase}/*"
INDEX = "index.csv"
SOUND = (".wav", ".flac", ".ogg", ".oga", ".opus", ".mp3", ".sph", ".aif", ".aiff")
FIELD = re.compile(r"\{(\w+)\}")
TABLES = (".csv", ".tsv", ".txt")
COLUMNS = {
    "path": ("path", "file", "wav", "audio", "filename"),
    "id": ("id", "utterance", "utt", "uttid"),
    "session": ("session", "repetition", "round"),
    "split": ("split", "set", "subset", "part"),
    "start": ("start", "offset"),
    "length": ("length", "samples"),
    "channel": ("channel",),
}
"""Columns of a table that are no views, and what they may be called."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Listing:
    """Utterances that a folder or a table lists.

    ids : (n,) paths without their suffix, or what a table calls them
    clips : where their sound lies
    fields : name -> (n,) what a pattern or a table says of them: views, and "session" and "split" where they are
    """

    ids: StringArray
    clips: tuple[Clip, ...]
    fields: dict[str, StringArray]

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def session(self) -> StringArray | None:
        return self.fields.get("session")

    def labels(self, views: Sequence[str] | None = None) -> dict[str, StringArray]:
        """The columns of views; all that are neither session nor split if none are named."""
        if views is None:
            views = [name for name in self.fields if name not in ("session", "split")]
        missing = [view for view in views if view not in self.fields]
        if missing or not views:
            raise ParameterError(
                f"there is no field {', '.join(missing) or 'that is a view'}; there are {', '.join(self.fields)}"
            )
        return {view: self.fields[view] for view in views}

    def take(self, rows: Any) -> Listing:
        """Some of the utterances."""
        clips = tuple(self.clips[row] for row in rows)
        return Listing(
            self.ids[rows], clips, {name: values[rows] for name, values in self.fields.items()}
        )


@register_corpus(
    "folder", root="a folder of sound files, or a table (.csv, .tsv) of paths and labels"
)
def folder(
    root: PathLike,
    pattern: str | None = None,
    *,
    views: Sequence[str] | None = None,
    on_error: Literal["raise", "skip"] = "raise",
    name: str | None = None,
    **protocol: Unpack[ProtocolOptions],
) -> Corpus:
    """The corpus of the sound files under a folder, or of a table.

    Parameters
    ----------
    root : a folder; or a CSV, tab-separated or Parquet table (see `read_table`).
        A folder that holds an ``index.csv`` is read by it, unless there is a pattern.
    pattern : how a path under the root reads, such as ``{speaker}/{phrase}/*`` (used when
        None), ``{speaker}_{phrase}_{session}.wav`` or ``{speaker}/{phrase}_{session}.flac``.
        Fields are views, except ``session``, which orders the utterances of a cell.
    views : the fields that are views, the speaker first; None takes them as the pattern does
    on_error : "raise" refuses names that do not fit the pattern, "skip" passes over them
    protocol : see `ProtocolOptions`
    """
    root = Path(root)
    index = root if root.is_file() else root / INDEX
    if pattern is None and index.is_file():
        listing = read_table(index, views=views)
    elif root.is_dir():
        listing = match_files(root, pattern or PATTERN, on_error=on_error, what=name or root.name)
    else:
        raise DataError(
            f"there is no folder or table {root}: expected a folder of sound files, or a CSV of their paths"
        )
    return build_corpus(
        name or root.stem,
        listing.ids,
        listing.labels(views),
        listing.clips,
        listing.session,
        split=listing.fields.get("split"),
        **protocol,
    )


def sound_files(root: Path, suffixes: Sequence[str] = SOUND) -> list[str]:
    """Sound files under a folder, relative to it with ``/``, sorted; hidden files and folders are passed over."""
    if not root.is_dir():
        raise DataError(f"there is no folder {root}")
    files = []
    for folder, folders, names in os.walk(root, followlinks=True):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in names:
            if name.lower().endswith(tuple(suffixes)) and name[0] != ".":
                files.append((Path(folder) / name).relative_to(root).as_posix())
    return sorted(files)


def compile_pattern(pattern: str) -> re.Pattern[str]:
    """A pattern such as ``{speaker}/{phrase}_{session}.wav`` as a regular expression of the whole path.

    A field takes as little as fits and never a ``/``; the same field again must hold the
    same. ``*`` stands for anything but ``/``. Without a suffix the pattern takes any.

    Examples
    --------
    >>> compile_pattern("{speaker}/{speaker}_{session}_{phrase}").fullmatch("m1/m1_02_007.sph").groupdict()
    {'speaker': 'm1', 'session': '02', 'phrase': '007'}
    """
    if not FIELD.search(pattern):
        raise ParameterError(
            f"a pattern names fields, such as {{speaker}}/{{phrase}}_{{session}}.wav; got {pattern!r}"
        )
    text = ""
    seen = set()
    for literal, name in zip(FIELD.split(pattern)[::2], [*FIELD.findall(pattern), ""], strict=True):
        text += "[^/]*".join(map(re.escape, literal.split("*")))
        if name in seen:
            text += f"(?P={name})"
        elif name:
            text += f"(?P<{name}>[^/]+?)"
        seen.add(name)
    if "." not in pattern.rpartition("/")[2]:
        text += r"\.[^./]+"
    return re.compile(text)


def match_files(
    root: PathLike,
    pattern: str,
    *,
    on_error: Literal["raise", "skip"] = "raise",
    what: str = "folder",
) -> Listing:
    """Sound files under a folder and the fields of their names.

    Parameters
    ----------
    on_error : "raise" refuses names that do not fit the pattern, "skip" passes over them and logs it
    what : the data set, for the errors
    """
    if on_error not in ("raise", "skip"):
        raise ParameterError(f"on_error is 'raise' or 'skip'; got {on_error!r}")
    root = Path(root)
    expression = compile_pattern(pattern)
    files = sound_files(root)
    if not files:
        raise DataError(f"{what}: there are no sound files under {root}; expected {pattern}")
    matches = {path: expression.fullmatch(path) for path in files}
    odd = [path for path, match in matches.items() if match is None]
    fitting = {path: match for path, match in matches.items() if match is not None}
    if odd and (on_error == "raise" or not fitting):
        raise DataError(
            f"{what}: {len(odd)} of {len(files)} names under {root} do not fit {pattern}: {named(odd)}. Change the "
            "pattern (-s 'corpus.pattern=\"{speaker}/{phrase}_{session}.wav\"'), move them, or pass over them "
            "(-s corpus.on_error=skip)"
        )
    if odd:
        log.warning("%s: passed over %d names that do not fit: %s", what, len(odd), named(odd))
    fields = {
        name: np.array([match[name] for match in fitting.values()])
        for name in expression.groupindex
    }
    paths = list(fitting)
    return Listing(
        without_suffix(np.array(paths)), tuple(Clip(root / path) for path in paths), fields
    )


def without_suffix(paths: StringArray) -> StringArray:
    """Paths as ids: without the suffix."""
    return np.array([path.rpartition(".")[0] for path in paths.tolist()])


def folder_with(root: PathLike, inner: Sequence[str], what: str, how: str) -> Path:
    """The first of some folders that is there, under the root; else an error that says what was looked for."""
    places = [Path(root) / name for name in inner]
    for place in places:
        if place.is_dir():
            return place
    looked = " or ".join(map(str, places))
    raise DataError(f"{what} is not there: looked for the folder {looked}. {how}")


def read_table(path: PathLike, *, views: Sequence[str] | None = None) -> Listing:
    """Read a table of utterances.

    Columns: ``path`` (or file), one per view, and if you like ``id``, ``session``, ``split``
    (train, enrol, test; or train, evaluation), ``start`` and ``length`` in samples, and ``channel``.
    Paths are relative to the table's folder.

    Parameters
    ----------
    path : a ``.csv`` or ``.tsv`` (or ``.txt``, tabs) file with a header
    views : the columns that are views, the speaker first; None takes all that are nothing else
    """
    path = Path(path)
    if path.suffix.lower() not in TABLES:
        raise DataError(f"{path}: a table of utterances is a .csv, .tsv or .txt file")
    header, columns = read_columns(path)
    places = {key: column_of(header, names) for key, names in COLUMNS.items()}
    if views is None:
        taken = set(places.values())
        views = [header[k] for k in range(len(header)) if k not in taken]
    chosen = {key: place for key, place in places.items() if place is not None}
    for view in views:
        place = column_of(header, (plain(view),))
        if place is not None:
            chosen[view] = place
    missing = [name for name in ("path", *views) if name not in chosen]
    if missing or not views:
        fail(
            path,
            f"expected the column {missing or 'of a view'}; the header has {', '.join(header)}",
            1,
        )
    table = {
        name: np.array([str(value).strip() for value in columns[place]])
        for name, place in chosen.items()
    }
    for view in views:
        blank = np.flatnonzero(table[view] == "")
        if len(blank):
            row = blank[0] + 1
            fail(path, f"{len(blank)} label(s) of view {view!r} are blank, the first in row {row}")
    ids = table.get("id")
    if ids is None:
        ids = without_suffix(table["path"])
        if len(np.unique(ids)) < len(ids) and "start" in table:
            ids = np.char.add(np.char.add(ids, "@"), table["start"])  # stretches of one file
    fields = {name: table[name] for name in (*views, "session", "split") if name in table}
    return Listing(ids, _clips(path, table), fields)


def _clips(path: Path, table: dict[str, StringArray]) -> tuple[Clip, ...]:
    files = {name: path.parent / name for name in np.unique(table["path"]).tolist()}
    gone = [str(file) for file in files.values() if not file.is_file()]
    if gone:
        raise DataError(f"{path}: {len(gone)} of {len(files)} files are not there: {named(gone)}")
    clips = []
    for row, name in enumerate(table["path"].tolist()):
        numbers = {}
        for key in ("start", "length", "channel"):
            text = str(table[key][row]) if key in table else ""
            if text and not (text.isascii() and text.isdecimal()):
                raise LabelError(
                    f"{path}, row {row + 1}: {text!r} is the {key}; expected a whole number from 0"
                )
            numbers[key] = int(text) if text else None
        clips.append(
            Clip(files[name], numbers["start"] or 0, numbers["length"], numbers["channel"])
        )
    return tuple(clips)


def listed_sound(sources: Sequence[str]) -> Listing:
    """Ids and sound of sources: lists of ids and files (wav.scp), folders, tables, sound files."""
    parts = [_listed(source) for source in sources]
    ids = safe_ids(name for part in parts for name in part.ids)
    count, first = repeated(ids)
    if count:
        raise DataError(
            f"{count} utterance(s) have the id of another, the first is {first!r}: give the folder that holds them, "
            "or a list of ids and sound files"
        )
    return Listing(np.array(ids), tuple(clip for part in parts for clip in part.clips), {})


def _listed(source: str) -> Listing:
    place = Path(source)
    index = place / INDEX if place.is_dir() else place
    if index.is_file() and index.suffix in (".csv", ".tsv"):
        return read_table(index)
    if place.is_dir():
        files = np.array(sound_files(place), dtype=np.str_)
        if not len(files):
            raise DataError(f"there are no sound files under {source}")
        return Listing(without_suffix(files), tuple(Clip(place / name) for name in files), {})
    if place.suffix.lower() in SOUND:
        return Listing(np.array([place.stem]), (Clip(place),), {})
    try:
        entries = read_map(source)
    except FileFormatError as error:
        raise FileFormatError(
            f"{error}. Expected a list of ids and sound files (wav.scp), a folder, a sound file or a table"
        ) from error
    clips = tuple(Clip(Path(path)) for path in entries.values())
    return Listing(np.array(list(entries), dtype=np.str_), clips, {})


# Corpora without sound: vectors from elsewhere and what is known of them.


@register_corpus(
    "vectors",
    root="vectors from elsewhere (scp, npz, parquet ...), their labels given by -l, or columns beside them",
)
def corpus_of_vectors(
    path: PathLike,
    labels: Mapping[str, Any] | None = None,
    session: Any = None,
    *,
    split: Any = None,
    models: PathLike | None = None,
    trials: Trials | PathLike | None = None,
    **protocol: Unpack[ProtocolOptions],
) -> Corpus:
    """The corpus of vectors that were made elsewhere.

    Parameters
    ----------
    path : the vectors' file
    labels : view -> (n,) classes, a column beside the vectors in their file, or the path of an ``utt2X``; the speaker
        first. None: the columns speaker and phrase, or utt2spk and utt2phrase in their folder
    session : (n,) what orders the utterances of a cell, or a column or a file; None: the order of the vectors
    split, protocol : see `make_protocol` and `ProtocolOptions`
    models : the path of a ``spk2utt``: enrolments that are given. Then the vectors
        of `training` (names of classes; all that no trial uses, if None) are trained on.
    trials : the trials, or their file; needs `models`
    """
    labels = labels_beside(path, ("speaker", "phrase")) if labels is None else labels
    held = open_vectors(path).columns
    if not labels or set(labels) <= {"phrase"}:
        there = f"; {os.fspath(path)} has {', '.join(held)}" if held else ""
        raise LabelError(
            f"vectors need labels: -l speaker=FILE, or =COLUMN, and -l phrase=FILE{there}"
        )
    given = {**labels, "session": session, "split": split}
    beside = columns_beside(path, [v for v in given.values() if isinstance(v, str) and v in held])
    ids = np.array([str(name) for name in read_vectors(path).ids], dtype=np.str_)
    columns = {}
    for what, values in given.items():
        if isinstance(values, str):
            values = beside.get(values, values)
        if values is not None:
            columns[what] = _column(what, values, ids)
    classes = {view: columns[view] for view in labels}
    sessions = columns.get("session")
    if models is None:
        if trials is not None:
            raise LabelError("trials need models: which utterances make which enrolment")
        split = columns.get("split")
        return build_corpus("vectors", ids, classes, None, sessions, split=split, **protocol)
    if isinstance(trials, (str, os.PathLike)):
        trials = read_trials(trials)
    train = None
    training = protocol.get("training")
    if training is not None:
        train = np.flatnonzero(training_rows(classes, training))
    made = listed_protocol(ids, read_groups(models), trials, train=train)
    return Corpus("vectors", ids, classes, None, made, "", sessions)


def _column(view: str, values: Any, names: StringArray) -> StringArray:
    """(n,) text, from an array or from a file of ids and classes."""
    if isinstance(values, (str, os.PathLike)):
        listed = read_map(values)
        unknown = [name for name in names.tolist() if name not in listed]
        if unknown:
            raise LabelError(
                f"{os.fspath(values)}: {len(unknown)} id(s) have no {view}: {named(unknown)}"
            )
        return np.array([listed[name] for name in names.tolist()], dtype=np.str_)
    gaps = sum(value is None for value in values)
    if gaps:
        raise LabelError(f"{gaps} of {len(values)} vectors have no {view}")
    if len(values) != len(names):
        raise LabelError(f"{len(values)} values of {view!r} for {len(names)} ids; expected as many")
    return np.array([str(value) for value in values], dtype=np.str_)
