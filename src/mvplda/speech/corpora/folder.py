"""Corpora of one's own: folders of sound files by a pattern, tables of utterances, vectors from elsewhere."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from glob import glob
from pathlib import Path
from typing import Any, NamedTuple, Unpack

import numpy as np

from ..._typing import PathLike
from ...exceptions import DataError, LabelError, ParameterError
from ...extractors.recordings import is_sound
from ...extractors.sound import Clip
from ...io.files import column_of, fail, plain, read_map
from ...io.files import read_table as read_columns
from ...io.vectors import labels_beside, open_vectors, read_vectors
from ...io.vectors import read_columns as columns_beside
from .corpus import (
    Corpus,
    ProtocolOptions,
    StringArray,
    build_corpus,
    named,
    register_corpus,
)

PATTERN = "{speaker}/{phrase}/*"
INDEX = "index.csv"
FIELD = re.compile(r"\{(\w+)\}")
COLUMNS = {
    "path": ("path", "file", "wav", "audio", "filename"),
    "id": ("id", "utterance", "utt", "uttid"),
    "session": ("session", "repetition", "round"),
    "start": ("start", "offset"),
    "length": ("length", "samples"),
    "channel": ("channel",),
}
"""Columns of a table that are no views, and what they may be called."""

log = logging.getLogger(__name__)


class Listing(NamedTuple):
    """Utterances that a folder or a table lists.

    ids : (n,) paths without their suffix, or what a table calls them
    clips : where their sound lies; None where there are only vectors
    fields : name -> (n,) what a pattern or a table says of them: views, and "session" where it is
    """

    ids: StringArray
    clips: tuple[Clip, ...] | None
    fields: dict[str, StringArray]

    def labels(self, views: Sequence[str] | None = None) -> dict[str, StringArray]:
        """The columns of views; all but the session if none are named."""
        views = views or [name for name in self.fields if name != "session"]
        missing = [view for view in views if view not in self.fields]
        if missing or not views:
            raise ParameterError(
                f"there is no field {', '.join(missing) or 'that is a view'}; there are {', '.join(self.fields)}"
            )
        return {view: self.fields[view] for view in views}

    def take(self, rows: Any) -> Listing:
        """Some of the utterances."""
        clips = self.clips
        if clips is not None:
            clips = tuple(clips[row] for row in rows)
        fields = {name: values[rows] for name, values in self.fields.items()}
        return Listing(self.ids[rows], clips, fields)


@register_corpus(
    "folder", root="a folder of sound files, or a table (.csv, .tsv) of paths and labels"
)
def folder(
    root: PathLike,
    pattern: str | None = None,
    *,
    views: Sequence[str] | None = None,
    **protocol: Unpack[ProtocolOptions],
) -> Corpus:
    """The corpus of the sound files under a folder, or of a table.

    Parameters
    ----------
    root : a folder; or a CSV or tab-separated table (see `read_table`).
        A folder that holds an ``index.csv`` is read by it, unless there is a pattern.
    pattern : how a path under the root reads, such as ``{speaker}/{phrase}/*`` (used when
        None), ``{speaker}_{phrase}_{session}.wav`` or ``{speaker}/{phrase}_{session}.flac``.
        Fields are views, except ``session``, which orders the utterances of a cell.
    views : the fields that are views, the speaker first; None takes them as the pattern does
    protocol : see `ProtocolOptions`
    """
    root = Path(root)
    index = root if root.is_file() else root / INDEX
    if pattern is None and index.is_file():
        listing = read_table(index, views=views)
    else:
        listing = match_files(root, pattern or PATTERN)
    session = listing.fields.get("session")
    labels = listing.labels(views)
    return build_corpus(root.stem, listing.ids, labels, listing.clips, session, **protocol)


def compile_pattern(pattern: str) -> re.Pattern[str]:
    """A pattern such as ``{speaker}/{phrase}_{session}.wav`` as a regular expression of the whole path.

    A field takes as little as fits and never a ``/``; the same field again must hold the
    same. ``*`` stands for anything but ``/``. Without a suffix the pattern takes any.

    Examples
    --------
    >>> compile_pattern("{speaker}/{speaker}_{session}_{phrase}").fullmatch("m1/m1_02_007.sph").groupdict()
    {'speaker': 'm1', 'session': '02', 'phrase': '007'}
    """
    literal, *rest = FIELD.split(pattern)
    if not rest:
        raise ParameterError(
            f"a pattern names fields, such as {{speaker}}/{{phrase}}_{{session}}.wav; got {pattern!r}"
        )
    text = re.escape(literal)
    seen = set()
    for name, literal in zip(rest[::2], rest[1::2], strict=True):
        text += f"(?P={name})" if name in seen else f"(?P<{name}>[^/]+?)"
        text += re.escape(literal)
        seen.add(name)
    if "." not in pattern.rpartition("/")[2]:
        text += r"\.[^./]+"
    return re.compile(text.replace(r"\*", "[^/]*"))


def match_files(root: PathLike, pattern: str) -> Listing:
    """Sound files under a folder and the fields of their names; hidden files and folders are passed over.

    Names that do not fit the pattern are passed over, too, and a warning counts them.
    """
    root = Path(root)
    expression = compile_pattern(pattern)
    # glob follows links to folders, and leaves hidden files out
    inside = sorted(
        name for name in glob("**", root_dir=root, recursive=True) if is_sound(root / name)
    )
    fitting = {name: expression.fullmatch(name) for name in inside}
    matches = {name: match.groupdict() for name, match in fitting.items() if match}
    odd = [name for name in inside if name not in matches]
    if not matches:
        raise DataError(
            f"no sound file under {root} fits {pattern}; there are {len(odd)} others: {named(odd)}. Change the pattern "
            "(-s 'corpus.pattern=\"{speaker}/{phrase}_{session}.wav\"')"
        )
    if odd:
        log.warning("passed over %d names that do not fit %s: %s", len(odd), pattern, named(odd))
    rows = matches.values()
    fields = {name: np.array([row[name] for row in rows]) for name in expression.groupindex}
    return Listing(without_suffix(matches), tuple(Clip(root / path) for path in matches), fields)


def without_suffix(paths: Iterable[str]) -> StringArray:
    """Paths as ids: without the suffix."""
    return np.array([path.rpartition(".")[0] for path in paths])


def read_table(path: PathLike, *, views: Sequence[str] | None = None) -> Listing:
    """Read a table of utterances.

    Columns: ``path`` (or file), one per view, and if you like ``id``, ``session``, ``start`` and ``length`` in
    samples, and ``channel``. Paths are relative to the table's folder.

    Parameters
    ----------
    path : a ``.csv`` or ``.tsv`` (or ``.txt``, tabs) file with a header
    views : the columns that are views, the speaker first; None takes all that are nothing else
    """
    path = Path(path)
    header, columns = read_columns(path)
    numbers = {key: column_of(header, names) for key, names in COLUMNS.items()}
    if views is None:
        views = [name for k, name in enumerate(header) if k not in numbers.values()]
    numbers |= {view: column_of(header, (plain(view),)) for view in views}
    table = {
        name: np.array([str(value).strip() for value in columns[number]])
        for name, number in numbers.items()
        if number is not None
    }
    missing = [name for name in ("path", *views) if name not in table]
    if missing or not views:
        wanted = missing or "of a view"
        fail(path, f"expected the column {wanted}; the header has {', '.join(header)}", 1)
    for view in views:
        blank = np.flatnonzero(table[view] == "")
        if len(blank):
            row = blank[0] + 1
            fail(path, f"{len(blank)} label(s) of view {view!r} are blank, the first in row {row}")
    ids = table.get("id")
    if ids is None:
        ids = without_suffix(table["path"].tolist())
        if "start" in table:
            ids = np.char.add(np.char.add(ids, "@"), table["start"])  # stretches of one file
    fields = {name: table[name] for name in (*views, "session") if name in table}
    return Listing(ids, _clips(path, table), fields)


def _clips(path: Path, table: dict[str, StringArray]) -> tuple[Clip, ...]:
    files = {name: path.parent / name for name in np.unique(table["path"]).tolist()}
    gone = [str(file) for file in files.values() if not file.is_file()]
    if gone:
        raise DataError(f"{path}: {len(gone)} of {len(files)} files are not there: {named(gone)}")
    clips = []
    for row, name in enumerate(table["path"].tolist()):
        given = {key: table[key][row] for key in ("start", "length", "channel") if key in table}
        try:
            numbers = {key: int(text) for key, text in given.items() if text}
        except ValueError as error:
            raise LabelError(
                f"{path}, row {row + 1}: start, length and channel are whole numbers: {error}"
            ) from error
        clips.append(Clip(files[name], **numbers))
    return tuple(clips)


@register_corpus(
    "vectors",
    root="vectors from elsewhere (scp, npz, parquet ...), their labels given by -l, or columns beside them",
)
def corpus_of_vectors(
    path: PathLike,
    labels: Mapping[str, str] | None = None,
    session: str | None = None,
    **protocol: Unpack[ProtocolOptions],
) -> Corpus:
    """The corpus of vectors that were made elsewhere.

    Parameters
    ----------
    path : the vectors' file
    labels : view -> a column beside the vectors in their file, or the path of an ``utt2X``; the speaker
        first. None: the columns speaker and phrase, or utt2spk and utt2phrase in their folder
    session : what orders the utterances of a cell, a column or a file; None: the order of the vectors
    protocol : see `ProtocolOptions`
    """
    labels = labels_beside(path, ("speaker", "phrase")) if labels is None else labels
    held = open_vectors(path).columns
    if not set(labels) - {"phrase"}:
        there = f"; {os.fspath(path)} has {', '.join(held)}" if held else ""
        raise LabelError(
            f"vectors need labels: -l speaker=FILE, or =COLUMN, and -l phrase=FILE{there}"
        )
    given = {**labels, "session": session}
    beside = columns_beside(path, [name for name in given.values() if name in held])
    ids = np.array([str(name) for name in read_vectors(path).ids], dtype=np.str_)
    columns = {}
    for what, name in given.items():
        if name in beside:
            columns[what] = np.array([str(value) for value in beside[name]])
        elif name is not None:
            columns[what] = _column(what, name, ids)
    classes = {view: columns[view] for view in labels}
    return build_corpus("vectors", ids, classes, None, columns.get("session"), **protocol)


def _column(view: str, file: str, names: StringArray) -> StringArray:
    """(n,) text, from a file of ids and classes."""
    listed = read_map(file)
    unknown = [name for name in names.tolist() if name not in listed]
    if unknown:
        raise LabelError(f"{file}: {len(unknown)} id(s) have no {view}: {named(unknown)}")
    return np.array([listed[name] for name in names.tolist()], dtype=np.str_)
