"""Loading of the user's own data as a corpus: folders of recordings, tables of utterances, and files of vectors."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Unpack

import numpy as np

from ..._typing import Columns, IntArray, Names, PathLike
from ...exceptions import LabelError, ParameterError
from ...io.streams import OnDisk, fail
from ...io.tables import read_table as read_cells
from ...io.vectors import open_vectors, read_labelled
from ...voice.audio.decode import FileSegment
from ...voice.audio.folders import label_recordings, list_recordings
from .corpus import Corpus, ProtocolOptions, abbreviated, build_corpus, register_corpus

PATTERN = "{speaker}/{phrase}/*"
INDEX = "index.csv"
NOT_VIEWS = ("file", "id", "start", "length", "session")
"""Columns of a table of utterances that are not views."""

log = logging.getLogger(__name__)


class Listing(NamedTuple):
    """List of n utterances, found in a folder, a table or a file of vectors.

    ids : (n,) paths without suffix, or ids in the table
    files : location of each utterance's samples; None for vectors
    fields : {name: (n,) values} of the fields in file names, or of the table's columns: views and "session"
    """

    ids: Names
    files: tuple[FileSegment, ...] | None
    fields: Columns

    def labels(self, views: Sequence[str]) -> Columns:
        """Return {view: (n,) labels} for the given views; raise `ParameterError` if one is missing."""
        missing = [view for view in views if view not in self.fields]
        if missing:
            raise ParameterError(
                f"the labels of {missing[0]!r} are missing: the file names or the table have the fields "
                f"{', '.join(self.fields)}"
            )
        return {view: self.fields[view] for view in views}

    def corpus(
        self, name: str, source: str, order: str = "session", **protocol: Unpack[ProtocolOptions]
    ) -> Corpus:
        """Build a corpus with the views speaker and phrase.

        Parameters
        ----------
        name, source : name and citation of the corpus
        order : field by which the utterances of one speaker and phrase are ordered
        protocol : see `ProtocolOptions`
        """
        labels = self.labels(("speaker", "phrase"))
        sessions = self.fields[order]
        return build_corpus(name, self.ids, labels, self.files, sessions, source=source, **protocol)

    def take(self, rows: IntArray) -> Listing:
        """Select the utterances with the given indices, in that order."""
        files = self.files and tuple(self.files[row] for row in rows)
        fields = {name: values[rows] for name, values in self.fields.items()}
        return Listing(self.ids[rows], files, fields)


@register_corpus(
    "folder", root="a folder of sound files, or a table (.csv, .tsv) of files and labels"
)
def folder(
    root: PathLike,
    pattern: str = PATTERN,
    **protocol: Unpack[ProtocolOptions],
) -> Corpus:
    """Load the sound files under a folder, or the utterances of a table, as a corpus.

    Parameters
    ----------
    root : a folder, or a CSV or tab-separated table (see `read_corpus_table`). If a folder contains an ``index.csv``,
        this table is read
    pattern : pattern of the paths under the root, such as ``{speaker}/{phrase}/*``,
        ``{speaker}_{phrase}_{session}.wav`` or ``{speaker}/{phrase}_{session}.flac``. Its fields are views, the speaker
        first, except ``session``, which orders the utterances of the same speaker and phrase
    protocol : see `ProtocolOptions`
    """
    listing = read_listing(root, pattern)
    session = listing.fields.get("session")
    labels = {name: values for name, values in listing.fields.items() if name not in NOT_VIEWS}
    return build_corpus(Path(root).stem, listing.ids, labels, listing.files, session, **protocol)


def read_listing(root: PathLike, pattern: str) -> Listing:
    """List the utterances of a corpus.

    root : table (.csv), or folder; of a folder, its ``index.csv`` is read, or else its sound files are listed
    pattern : pattern of the sound files' names, such as ``{speaker}/{phrase}/*``
    """
    index = Path(root)
    if index.is_dir():
        index /= INDEX
    return read_corpus_table(index) if index.is_file() else match_files(root, pattern)


def match_files(root: PathLike, pattern: str) -> Listing:
    """List the sound files under a folder, with the fields that their names contain.

    Hidden files and folders are skipped. Names that do not match the pattern are skipped with a warning.

    pattern : pattern of the names, such as ``{speaker}/{phrase}_{session}.wav``
    """
    recordings = list_recordings([root])
    matching, _ = label_recordings(recordings, re.sub(r"\.\w+$", "", pattern))
    skipped = sorted(set(recordings.ids) - set(matching.ids))
    if skipped:
        log.warning(
            "skipped %d file(s) whose names do not match %s: %s",
            len(skipped),
            pattern,
            abbreviated(skipped),
        )
    fields = {name: np.array(values) for name, values in matching.labels.items()}
    return Listing(np.array(matching.ids), tuple(matching.files), fields)


def read_corpus_table(path: PathLike) -> Listing:
    """Read a table (.csv, .tsv) of utterances.

    The table needs a column ``file`` and one column per view. Optional columns are ``id``, ``session``, and ``start``
    and ``length`` in samples. Paths are relative to the table's folder. A missing label raises `FileFormatError`.
    """
    recordings = list_recordings([path])
    header, columns = read_cells(OnDisk(path))
    fields = {name: np.char.strip(values) for name, values in zip(header, columns, strict=True)}
    for view in set(fields) - set(NOT_VIEWS):
        blank = np.flatnonzero(fields[view] == "")
        if len(blank):
            row = blank[0] + 1
            fail(
                path,
                f"{len(blank)} label(s) of view {view!r} are blank, the first in row {row}: enter all labels",
            )
    return Listing(np.array(recordings.ids), tuple(recordings.files), fields)


@register_corpus(
    "vectors",
    root="a file of vectors (scp, npz, parquet ...), with labels from -l or from columns or files beside the vectors",
)
def corpus_of_vectors(
    path: PathLike,
    labels: Mapping[str, str] | None = None,
    **protocol: Unpack[ProtocolOptions],
) -> Corpus:
    """Load vectors from a file, with their labels, as a corpus.

    Parameters
    ----------
    path : file of the vectors
    labels : {view: column in the file of the vectors, or path of a file with an id and a label per line}, the speaker
        first; the view "session" orders the utterances of the same speaker and phrase. None: the columns speaker,
        phrase and session, or the files utt2spk, utt2phrase and utt2session in the same folder
    protocol : see `ProtocolOptions`

    Raises
    ------
    LabelError
        There are no labels, or some vectors have none.
    """
    default_views = () if labels else ("speaker", "phrase", "session")
    vectors, fields = read_labelled(path, labels or {}, default_views)
    if not set(fields) - {"phrase", "session"}:
        columns = open_vectors(path).columns
        available = f"; columns of {os.fspath(path)}: {', '.join(columns)}" if columns else ""
        raise LabelError(
            f"the vectors have no labels: pass -l speaker=FILE (or =COLUMN) and -l phrase=FILE (or =COLUMN){available}"
        )
    for view, values in fields.items():
        unlabelled = vectors.ids[[value is None for value in values]].tolist()
        if unlabelled:
            raise LabelError(
                f"{path}: {len(unlabelled)} vector(s) have no label of the view {view!r}: {abbreviated(unlabelled)}. "
                "Add their labels, or leave them out"
            )
        fields[view] = values.astype(np.str_)
    session = fields.pop("session", None)
    return build_corpus("vectors", vectors.ids, fields, None, session, **protocol)
