"""Corpora of one's own: folders of sound files by a pattern, tables of utterances, vectors from elsewhere."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Unpack

import numpy as np

from ..._typing import Columns, Names, PathLike
from ...exceptions import LabelError, ParameterError
from ...extractors.recordings import list_recordings, read_names
from ...extractors.sound import Clip
from ...io.files import OnDisk, fail
from ...io.files import read_table as read_cells
from ...io.vectors import open_vectors, read_labelled
from .corpus import Corpus, ProtocolOptions, build_corpus, named, register_corpus

PATTERN = "{speaker}/{phrase}/*"
INDEX = "index.csv"
NO_VIEWS = ("file", "id", "start", "length", "session")
"""Columns of a table that are no views."""

log = logging.getLogger(__name__)


class Listing(NamedTuple):
    """Utterances that a folder or a table lists.

    ids : (n,) paths without their suffix, or what a table calls them
    clips : where their sound lies; None where there are only vectors
    fields : name -> (n,) what a pattern or a table says of them: views, and "session" where it is
    """

    ids: Names
    clips: tuple[Clip, ...] | None
    fields: Columns

    def labels(self, views: Sequence[str]) -> Columns:
        """The columns of views."""
        missing = [view for view in views if view not in self.fields]
        if missing:
            raise ParameterError(
                f"there is no field {missing[0]!r}; there are {', '.join(self.fields)}"
            )
        return {view: self.fields[view] for view in views}

    def corpus(
        self, name: str, source: str, order: str = "session", **protocol: Unpack[ProtocolOptions]
    ) -> Corpus:
        """The corpus of speaker and phrase; a field orders the utterances of a cell."""
        labels = self.labels(("speaker", "phrase"))
        sessions = self.fields[order]
        return build_corpus(name, self.ids, labels, self.clips, sessions, source=source, **protocol)

    def take(self, rows: Any) -> Listing:
        """Some of the utterances."""
        clips = self.clips and tuple(self.clips[row] for row in rows)
        fields = {name: values[rows] for name, values in self.fields.items()}
        return Listing(self.ids[rows], clips, fields)


@register_corpus(
    "folder", root="a folder of sound files, or a table (.csv, .tsv) of files and labels"
)
def folder(
    root: PathLike,
    pattern: str = PATTERN,
    **protocol: Unpack[ProtocolOptions],
) -> Corpus:
    """The corpus of the sound files under a folder, or of a table.

    Parameters
    ----------
    root : a folder; or a CSV or tab-separated table (see `read_table`).
        A folder that holds an ``index.csv`` is read by it.
    pattern : how a path under the root reads, such as ``{speaker}/{phrase}/*``,
        ``{speaker}_{phrase}_{session}.wav`` or ``{speaker}/{phrase}_{session}.flac``.
        Fields are views, the speaker first, except ``session``, which orders the utterances of a cell.
    protocol : see `ProtocolOptions`
    """
    listing = read_listing(root, pattern)
    session = listing.fields.get("session")
    labels = {name: own for name, own in listing.fields.items() if name not in NO_VIEWS}
    return build_corpus(Path(root).stem, listing.ids, labels, listing.clips, session, **protocol)


def read_listing(root: PathLike, pattern: str) -> Listing:
    """A table, a folder with an ``index.csv``, which is one, or else sound files by a pattern."""
    index = Path(root)
    if index.is_dir():
        index /= INDEX
    return read_table(index) if index.is_file() else match_files(root, pattern)


def match_files(root: PathLike, pattern: str) -> Listing:
    """Sound files under a folder and the fields of their names; hidden files and folders are passed over.

    Names that do not fit the pattern are passed over, too, and a warning counts them.
    """
    listed = list_recordings([root])
    fitting, _ = read_names(listed, re.sub(r"\.\w+$", "", pattern))
    odd = sorted(set(listed.ids) - set(fitting.ids))
    if odd:
        log.warning("passed over %d names that do not fit %s: %s", len(odd), pattern, named(odd))
    fields = {name: np.array(values) for name, values in fitting.labels.items()}
    return Listing(np.array(fitting.ids), tuple(fitting.clips), fields)


def read_table(path: PathLike) -> Listing:
    """Read a table (.csv, .tsv) of utterances.

    Columns: ``file``, one per view, and if you like ``id``, ``session``, ``start`` and ``length`` in samples. Paths
    are relative to the table's folder.
    """
    listed = list_recordings([path])
    header, columns = read_cells(OnDisk(path))
    fields = {name: np.char.strip(values) for name, values in zip(header, columns, strict=True)}
    for view in set(fields) - set(NO_VIEWS):
        blank = np.flatnonzero(fields[view] == "")
        if len(blank):
            row = blank[0] + 1
            fail(path, f"{len(blank)} label(s) of view {view!r} are blank, the first in row {row}")
    return Listing(np.array(listed.ids), tuple(listed.clips), fields)


@register_corpus(
    "vectors",
    root="vectors from elsewhere (scp, npz, parquet ...), their labels given by -l, or columns beside them",
)
def corpus_of_vectors(
    path: PathLike,
    labels: Mapping[str, str] | None = None,
    **protocol: Unpack[ProtocolOptions],
) -> Corpus:
    """The corpus of vectors that were made elsewhere.

    Parameters
    ----------
    path : the vectors' file
    labels : view -> a column beside the vectors in their file, or the path of an ``utt2X``; the speaker
        first, and "session", which orders the utterances of a cell. None: the columns speaker, phrase and session, or
        utt2spk, utt2phrase and utt2session in their folder
    protocol : see `ProtocolOptions`
    """
    usual = () if labels else ("speaker", "phrase", "session")
    vectors, fields = read_labelled(path, labels or {}, usual)
    if not set(fields) - {"phrase", "session"}:
        held = open_vectors(path).columns
        there = f"; {os.fspath(path)} has {', '.join(held)}" if held else ""
        raise LabelError(
            f"vectors need labels: -l speaker=FILE, or =COLUMN, and -l phrase=FILE{there}"
        )
    for view, values in fields.items():
        unknown = vectors.ids[[value is None for value in values]].tolist()
        if unknown:
            raise LabelError(f"{path}: {len(unknown)} id(s) have no {view}: {named(unknown)}")
        fields[view] = values.astype(np.str_)
    session = fields.pop("session", None)
    return build_corpus("vectors", vectors.ids, fields, None, session, **protocol)
