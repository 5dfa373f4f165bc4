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

from ...exceptions import DataError, LabelError, ParameterError
from ...io.files import column_of, fail, plain, read_groups, read_map
from ...io.files import read_table as read_columns
from ...io.trials import Trials, read_trials
from ...io.vectors import labels_beside, open_vectors, read_vectors
from ...io.vectors import read_columns as columns_beside
from ..features.reading import Clip
from .corpus import Corpus, ProtocolOptions, StringArray, named, register_corpus
from .protocol import build_corpus, listed_protocol

PATTERN = "{speaker}/{phrase}/*"
INDEX = "index.csv"
SESSION = "session"
SOUND = (".wav", ".flac", ".ogg", ".oga", ".opus", ".mp3", ".sph", ".aif", ".aiff")
FIELD = re.compile(r"\{(\w+)\}")

PATH = ("path", "file", "wav", "audio", "filename")
ID = ("id", "utterance", "utt", "uttid")
TABLES_SESSION = ("session", "repetition", "round")
SPLIT = ("split", "set", "subset", "part")
START, LENGTH, CHANNEL = ("start", "offset"), ("length", "samples"), ("channel",)
_COLUMNS = {
    "id": ID,
    "session": TABLES_SESSION,
    "split": SPLIT,
    "start": START,
    "length": LENGTH,
    "channel": CHANNEL,
}

log = logging.getLogger(__name__)


@register_corpus(
    "folder", root="a folder of sound files, or a table (.csv, .tsv, .parquet) of paths and labels"
)
def folder(
    root: str | os.PathLike[str],
    pattern: str | None = None,
    *,
    views: Sequence[str] | None = None,
    on_error: Literal["raise", "skip"] = "raise",
    base: str | os.PathLike[str] | None = None,
    name: str | None = None,
    **protocol: Unpack[ProtocolOptions],
) -> Corpus:
    """The corpus of the sound files under a folder, or of a table.

    Parameters
    ----------
    root : a folder; or a CSV, tab-separated or Parquet table (see `mvplda.speech.corpora.table`).
        A folder that holds an ``index.csv`` is read by it, unless there is a pattern.
    pattern : how a path under the root reads, such as ``{speaker}/{phrase}/*`` (used when
        None), ``{speaker}_{phrase}_{session}.wav`` or ``{speaker}/{phrase}_{session}.flac``.
        Fields are views, except ``session``, which orders the utterances of a cell.
    views : the fields that are views, the speaker first; None takes them as the pattern does
    on_error : "raise" refuses names that do not fit the pattern, "skip" passes over them
    base : the folder that the paths of a table are relative to; None takes that of the table
    protocol : see `ProtocolOptions`
    """
    root = Path(root)
    index = root if root.is_file() else root / INDEX
    if pattern is None and index.is_file():
        label = name or (root.stem if root.is_file() else root.name)
        return table(index, views=views, name=label, base=base, **protocol)
    if not root.is_dir():
        raise DataError(
            f"there is no folder or table {root}: expected a folder of sound files, or a CSV of their paths"
        )
    pattern = pattern or PATTERN
    found = match_files(root, pattern, on_error=on_error, what=name or root.name)
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
        name or root.name, ids, labels, found.clips, found.fields.get(SESSION), **protocol
    )


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

    @property
    def speaker_and_phrase(self) -> dict[str, StringArray]:
        return {view: self.fields[view] for view in ("speaker", "phrase")}

    def take(self, rows: object) -> Found:
        """Some of the files."""
        return Found(
            self.root,
            self.paths[rows],
            {name: values[rows] for name, values in self.fields.items()},
        )  # type: ignore[call-overload]


def sound_files(root: Path, suffixes: Sequence[str] = SOUND) -> list[str]:
    """Sound files under a folder, relative to it with ``/``, sorted; hidden files and folders are passed over."""
    if not root.is_dir():
        raise DataError(f"there is no folder {root}")
    found = []
    for folder, folders, files in os.walk(root, followlinks=True):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        inner = Path(folder).relative_to(root).as_posix()
        start = "" if inner == "." else inner + "/"
        found += [
            start + name
            for name in files
            if name.lower().endswith(tuple(suffixes)) and name[0] != "."
        ]
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
        raise ParameterError(
            f"a pattern names fields, such as {{speaker}}/{{phrase}}_{{session}}.wav; got {pattern!r}"
        )
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
    on_error: Literal["raise", "skip"] = "raise",
    what: str = "folder",
    suffixes: Sequence[str] = SOUND,
) -> Found:
    """Sound files under a folder and the fields of their names.

    Parameters
    ----------
    on_error : "raise" refuses names that do not fit the pattern, "skip" passes over them and says so
    what : the data set, for the errors
    """
    if on_error not in ("raise", "skip"):
        raise ParameterError(f"on_error is 'raise' or 'skip'; got {on_error!r}")
    root = Path(root)
    expression = compile_pattern(pattern) if isinstance(pattern, str) else pattern
    shown = pattern if isinstance(pattern, str) else pattern.pattern
    files = sound_files(root, suffixes)
    if not files:
        raise DataError(
            f"{what}: there are no sound files ({', '.join(suffixes)}) under {root}; expected {shown}"
        )
    matches = [(path, expression.fullmatch(path)) for path in files]
    odd = [path for path, match in matches if match is None]
    fitting = [(path, match) for path, match in matches if match is not None]
    if odd and (on_error == "raise" or not fitting):
        raise DataError(
            f"{what}: {len(odd)} of {len(files)} names under {root} do not fit {shown}: {named(odd)}. Change the "
            "pattern (-s 'corpus.pattern=\"{speaker}/{phrase}_{session}.wav\"')"
            + (
                ", move them, or pass over them (-s corpus.on_error=skip)"
                if fitting
                else " or move them"
            )
        )
    if odd:
        log.warning(
            "%s: passed over %d of %d names that do not fit: %s",
            what,
            len(odd),
            len(files),
            named(odd),
        )
    fields = {
        name: np.array([match[name] for _, match in fitting]) for name in expression.groupindex
    }
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


def table(
    path: str | os.PathLike[str],
    *,
    base: str | os.PathLike[str] | None = None,
    views: Sequence[str] | None = None,
    name: str | None = None,
    **protocol: Unpack[ProtocolOptions],
) -> Corpus:
    """The corpus that a table lists.

    Columns: ``path`` (or file), one a view, and if you like ``id``, ``session``, ``split``
    (train, enrol, test; or train, evaluation), ``start`` and ``length`` in samples, and ``channel``.

    Parameters
    ----------
    path : a ``.csv``, ``.tsv`` (or ``.txt``, tabs) or ``.parquet`` file with a header
    base : the folder that the paths are relative to; None takes that of the table
    views : the columns that are views, the speaker first; None takes all that are nothing else
    protocol : see `ProtocolOptions`; a split needs no `training`
    """
    path = Path(path)
    listed = read_table(path, base=base, views=views)
    found = listed.ids, listed.labels, listed.clips, listed.sessions
    return build_corpus(name or path.stem, *found, split=listed.split, **protocol)


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
        fail(
            path,
            f"expected a column called {' or '.join(PATH)}; the header has {', '.join(header)}",
            1,
        )
    found = {key: column_of(header, names) for key, names in _COLUMNS.items()}
    if views is None:
        taken = {place, *found.values()}
        views = [header[k] for k in range(len(header)) if k not in taken]
    places = {view: column_of(header, (plain(view),)) for view in views}
    missing = [view for view, k in places.items() if k is None]
    if missing or not views:
        fail(
            path,
            f"expected a column a view: {', '.join(missing) or 'speaker, ...'}; got {', '.join(header)}",
            1,
        )
    labels = {view: _text(columns[k]) for view, k in places.items() if k is not None}
    for view, classes in labels.items():
        blank = np.flatnonzero(classes == "")
        if len(blank):
            fail(
                path,
                f"{len(blank)} label(s) of view {view!r} are blank, the first is that of row {blank[0] + 1}",
            )
    chosen = {key: None if k is None else _text(columns[k]) for key, k in found.items()}
    paths = _text(columns[place])
    clips = _clips(path, Path(base) if base is not None else path.parent, paths, chosen)
    ids = chosen["id"] if chosen["id"] is not None else _ids(paths, chosen["start"])
    return Listed(ids, labels, clips, chosen["session"], chosen["split"])


def _read(path: Path) -> tuple[list[str], list[Any]]:
    format = {".parquet": "parquet", ".csv": "csv", ".tsv": "tsv", ".txt": "tsv"}.get(
        path.suffix.lower()
    )
    if format is None:
        raise DataError(
            f"{path}: a table of utterances is a .csv, .tsv, .txt (tabs) or .parquet file"
        )
    return read_columns(path, format)


def _text(column: Any) -> StringArray:
    return np.array([str(value).strip() for value in column])


def _ids(paths: StringArray, start: StringArray | None) -> StringArray:
    """Paths without their suffix; stretches of one file get their start."""
    names = without_suffix(paths)
    if start is None or len(np.unique(names)) == len(names):
        return names
    return np.array(
        [f"{name}@{begin}" for name, begin in zip(names.tolist(), start.tolist(), strict=True)]
    )


def _clips(
    table: Path, root: Path, paths: StringArray, chosen: dict[str, StringArray | None]
) -> tuple[Clip, ...]:
    files = {name: root / name for name in np.unique(paths).tolist()}
    gone = [str(file) for file in files.values() if not os.path.isfile(file)]
    if gone:
        raise DataError(f"{table}: {len(gone)} of {len(files)} files are not there: {named(gone)}")
    n = len(paths)
    start, length, channel = (
        _whole(table, key, chosen[key], n) for key in ("start", "length", "channel")
    )
    rows = zip(paths.tolist(), start, length, channel, strict=True)
    return tuple(Clip(files[name], begin or 0, size, side) for name, begin, size, side in rows)


def _whole(table: Path, key: str, values: StringArray | None, number: int) -> list[int | None]:
    """Whole numbers, None where blank."""
    if values is None:
        return [None] * number
    for k, text in enumerate(values.tolist()):
        if text and not (text.isascii() and text.isdecimal()):
            raise LabelError(
                f"{table}, row {k + 1}: {text!r} is the {key}; expected a whole number from 0"
            )
    return [int(text) if text else None for text in values.tolist()]


# Corpora without sound: vectors from elsewhere and what is known of them.


@register_corpus(
    "vectors",
    root="vectors from elsewhere (scp, npz, parquet ...), their labels given by -l, or columns beside them",
)
def corpus_of_vectors(
    ids: Any,
    labels: Mapping[str, Any] | None = None,
    session: Any = None,
    *,
    split: Any = None,
    models: Mapping[str, Sequence[str]] | str | os.PathLike[str] | None = None,
    trials: Trials | str | os.PathLike[str] | None = None,
    name: str = "vectors",
    source: str = "",
    **protocol: Unpack[ProtocolOptions],
) -> Corpus:
    """The corpus of vectors that were made elsewhere.

    Parameters
    ----------
    ids : (n,) names of the vectors, or their file
    labels : view -> (n,) classes, a column beside the vectors in their file, or the path of an ``utt2X``; the speaker
        first. None: the columns speaker and phrase, or utt2spk and utt2phrase in their folder
    session : (n,) what orders the utterances of a cell, or a column or a file; None: the order of `ids`
    split, protocol : see `make_protocol` and `ProtocolOptions`
    models : {model: ids} or the path of a ``spk2utt``: enrolments that are given. Then the vectors
        of `training` (names of classes; all that no trial uses, if None) are trained on.
    trials : the trials, or their file; needs `models`
    """
    if isinstance(ids, (str, os.PathLike)):
        held = open_vectors(ids).columns
        labels = labels_beside(ids, ("speaker", "phrase")) if labels is None else labels
        if "speaker" not in labels and set(labels) <= {"phrase"}:
            there = f"; {os.fspath(ids)} has {', '.join(held)}" if held else ""
            raise LabelError(
                f"vectors need labels: -l speaker=FILE, or =COLUMN, and -l phrase=FILE{there}"
            )
        places = (*labels.values(), session, split)
        beside = columns_beside(
            ids, [place for place in places if isinstance(place, str) and place in held]
        )
        labels = {view: _beside(place, beside) for view, place in labels.items()}
        session, split = _beside(session, beside), _beside(split, beside)
        ids = read_vectors(ids).ids
    names = np.array([str(i) for i in ids], dtype=np.str_)
    columns = {view: _column(view, values, names) for view, values in (labels or {}).items()}
    if not columns:
        raise LabelError("a corpus needs labels of at least one view, the speaker")
    sessions = None if session is None else _column("session", session, names)
    if models is None:
        if trials is not None:
            raise LabelError("trials need models: which utterances make which enrolment")
        split = None if split is None else _column("split", split, names)
        return build_corpus(
            name, names, columns, None, sessions, split=split, source=source, **protocol
        )
    if isinstance(models, (str, os.PathLike)):
        models = read_groups(models)
    if isinstance(trials, (str, os.PathLike)):
        trials = read_trials(trials)
    train, training = None, protocol.get("training")
    if training is not None:
        if isinstance(training, (int, float)):
            raise ParameterError(
                "with models, training names the classes to train on; got a number"
            )
        train = np.flatnonzero(np.isin(next(iter(columns.values())), [str(c) for c in training]))
    return Corpus(
        name,
        names,
        columns,
        None,
        listed_protocol(names, models, trials, train=train),
        source,
        sessions,
    )


def _beside(place: Any, columns: Mapping[str, Any]) -> Any:
    return columns.get(place, place) if isinstance(place, str) else place


def _column(view: str, values: Any, names: StringArray) -> StringArray:
    if isinstance(values, (str, os.PathLike)):
        found = read_map(values)
        unknown = [name for name in names.tolist() if name not in found]
        if unknown:
            raise LabelError(
                f"{os.fspath(values)}: {len(unknown)} id(s) have no {view}: {named(unknown)}"
            )
        return np.array([found[name] for name in names.tolist()], dtype=np.str_)
    column = np.array([str(value) for value in values], dtype=np.str_)
    if gaps := sum(value is None for value in values):
        raise LabelError(f"{gaps} of {len(column)} vectors have no {view}")
    if len(column) != len(names):
        raise LabelError(f"{len(column)} values of {view!r} for {len(names)} ids; expected as many")
    return column
