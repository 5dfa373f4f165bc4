"""Readers and writers of files of vectors with ids.

==================== ======================================================================
``.scp``, ``.ark``   Kaldi, binary or text; also ``scp:``, ``ark:``, ``ark,t:``
``.npz``             arrays ``X`` and ``ids``
``.npy``             an array (n, D), read only; row numbers are the ids
``.parquet``         a column of ids and one of vectors (lists, or fixed-size lists)
``.csv``             a header, a column of ids and one column per dimension
==================== ======================================================================

Every file may be compressed with gzip. The format of a stream (``-``, a pipe) is detected from its first bytes.
Each format has a reader that yields batches of vectors: `read_vectors` concatenates them, and
`mvplda.distributed.shards` sums them up one by one. The name of the extractor of the vectors, if known, is in a note
beside the file, ``PATH.extractor``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from glob import glob
from pathlib import Path
from typing import NamedTuple

import numpy as np

from .._optional import need
from .._typing import IntArray, PathLike
from .._typing import Names as Labels
from ..atomic_files import atomic_write, check_writable
from ..exceptions import DataError, FileFormatError, LabelError, ParameterError
from ..persistence import EXTRACTOR_SUFFIX
from . import vector_formats as formats
from .batches import Reader, Vectors, stack_blocks
from .kaldi_names import is_kaldi, kaldi_files, looks_like_archive, parse_name
from .lists import as_objects, read_labels
from .streams import Names, OnDisk, as_names, check_ids, fail, is_stream, repeated
from .tables import Numbers, suffix_of

LabelColumns = Mapping[str, Sequence[str]]
"""Label of each vector by view."""

WHOLE = 2**28
"""Size in bytes of the batches in which a whole file is read."""


class Format(NamedTuple):
    """File format of vectors.

    reader : class that reads its files
    write : function that writes a file; None: the format can only be read
    magic : first bytes of its files; None: they are not characteristic
    """

    reader: Callable[[OnDisk], Reader]
    write: Callable[[Path, Names, Vectors, LabelColumns], None] | None
    magic: bytes | None = None


FORMATS = {
    ".npz": Format(formats.NpzReader, formats.write_npz, b"PK\x03\x04"),
    ".npy": Format(formats.NpyReader, None, b"\x93NUMPY"),
    ".parquet": Format(formats.ParquetReader, formats.write_parquet, b"PAR1"),
    ".csv": Format(formats.CsvReader, formats.write_csv),
}
SUFFIXES = (".scp", ".ark", *FORMATS)
"""Suffixes of files of vectors."""
READ_ONLY = (".npy",)


@dataclass(frozen=True)
class VectorSet:
    """Vectors with their ids.

    Parameters
    ----------
    ids : (n,) text
    X : (n, D) vectors; types other than float32 become float64
    extractor : name of the extractor that made the vectors; None if it is unknown
    """

    ids: Names
    X: Vectors
    extractor: str | None = None

    def __post_init__(self) -> None:
        X = np.asarray(self.X)
        if X.dtype not in (np.float32, np.float64):
            X = X.astype(np.float64)
        object.__setattr__(self, "ids", np.asarray(self.ids, dtype=np.str_))
        object.__setattr__(self, "X", X)
        if X.ndim != 2 or self.ids.shape != (len(X),):
            raise DataError(
                f"expected vectors of the shape (n, D) and n ids; got vectors {X.shape} and ids {self.ids.shape}"
            )

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def _rows(self) -> dict[str, int]:
        """Index of the vector of each id, {id: row in `X`}."""
        return {name: row for row, name in enumerate(self.ids.tolist())}

    def __contains__(self, name: object) -> bool:
        return name in self._rows

    def rows(self, ids: Iterable[object]) -> IntArray:
        """Return the index in `X` of the vector of each of m ids, (m,); raise `LabelError` for an unknown id."""
        names = list(map(str, ids))
        missing = [name for name in names if name not in self]
        if missing:
            raise LabelError(
                f"{len(set(missing))} id(s) have no vector; the first is {missing[0]!r}. "
                f"The ids of the {len(self)} vectors begin with {self.ids[:2].tolist()}: pass the file with the "
                "vectors of these ids"
            )
        return np.array([self._rows[name] for name in names], dtype=np.int64)

    def select(self, ids: Iterable[object]) -> VectorSet:
        """Return the vectors of the given ids, in the order of `ids`; an id may occur several times."""
        rows = self.rows(ids)
        return VectorSet(self.ids[rows], self.X[rows], self.extractor)


def open_vectors(path: PathLike) -> Reader:
    """Return a reader of a file of vectors.

    The suffix, or a Kaldi prefix such as ``scp:``, determines the format; that of streams and of files without a suffix
    is detected from their first bytes. A folder stands for the script (``.scp``) in it, as in Kaldi's data folders.
    """
    if Path(path).is_dir():
        path = _list_in(Path(path))
    if is_kaldi(path):
        return _kaldi_reader(path)
    suffix = suffix_of(path)
    if suffix and suffix not in FORMATS and not is_stream(path):
        raise FileFormatError(_unknown_suffix(path))
    source = OnDisk(path)
    if suffix in FORMATS:
        return FORMATS[suffix].reader(source)
    head = source.head(4096)
    for format in FORMATS.values():
        if format.magic is not None and head.startswith(format.magic):
            return format.reader(source)
    prefix = "ark" if looks_like_archive(head) else "scp"
    return _kaldi_reader(f"{prefix}:{path}", source)


def _kaldi_reader(name: PathLike, source: OnDisk | None = None) -> Reader:
    """Return a reader of a Kaldi archive or script.

    name : path with or without a prefix such as ``ark:``
    source : the file, if the caller has opened it already; None: the reader opens it
    """
    from .kaldi import KaldiReader  # other formats do not need this module

    return KaldiReader(name, source)


def _list_in(folder: Path) -> Path:
    """Return the script of vectors in a folder: xvector.scp, ivector.scp, or the only ``.scp`` file.

    Raises `FileFormatError` if the folder has neither of the two names, and not exactly one ``.scp`` file.
    """
    for name in ("xvector.scp", "ivector.scp"):
        if (folder / name).exists():
            return folder / name
    lists = sorted(folder.glob("*.scp"))
    if len(lists) != 1:
        names = ", ".join(path.name for path in lists) or "no .scp file"
        fail(folder, f"this is a folder with {names}: pass the path of one file of vectors")
    return lists[0]


def read_vectors(path: PathLike) -> VectorSet:
    """Read all vectors of a file and their ids; `open_vectors` describes how the format is determined.

    Parameters
    ----------
    path : file, Kaldi data folder, or ``-`` for standard input

    Raises
    ------
    FileFormatError
        The file is truncated, empty or of another format; vectors differ in width or are not finite; ids repeat.
        The error names the file and the first faulty entry.
    """
    ids: list[str] = []
    blocks: list[tuple[str, Numbers]] = []
    for batch in open_vectors(path).batches(WHOLE, (), True):
        names = [str(i) for i in range(len(ids), len(ids) + len(batch.X))]
        if batch.ids is not None:
            names = list(batch.ids)
        blocks.append((names[0], batch.X))
        ids += names
    if not any(X.size for _, X in blocks):
        fail(path, "the file contains no vectors: pass a file with at least one")
    X = stack_blocks(path, blocks)
    if X.dtype == np.float16:
        X = X.astype(np.float32)
    checked = checked_names(path, ids)
    check_once(path, checked)
    wrong = ~np.isfinite(X).all(axis=1)
    if wrong.any():
        first = str(checked[wrong.argmax()])
        fail(
            path,
            f"{wrong.sum()} vector(s) contain NaN or infinity; the first is {first!r}: leave them out",
        )
    return VectorSet(
        checked, np.asarray(X, dtype=np.result_type(X, np.float32)), read_extractor(path)
    )


def vector_files(pattern: PathLike) -> list[str]:
    """Return the files of vectors that match a pattern such as ``vectors/part-*.npz``, sorted.

    A path without ``*``, or of an existing file, is returned as it is. Raises `FileNotFoundError` if nothing matches.
    """
    if "*" not in str(pattern) or Path(pattern).exists():
        return [str(pattern)]
    paths = sorted(glob(str(pattern)))
    paths = [path for path in paths if suffix_of(path) in SUFFIXES]
    if not paths:
        raise FileNotFoundError(
            f"no file matches the pattern {pattern} and is a file of vectors (suffix {', '.join(SUFFIXES)}): correct "
            "the pattern"
        )
    return paths


def read_vector_files(pattern: PathLike) -> VectorSet:
    """Read the vectors of one file, or of all files that match a pattern such as ``vectors/part-*.npz``.

    Raises `FileFormatError` if the files differ in extractor or dimension, or if an id occurs twice.
    """
    paths = vector_files(pattern)
    sets = [read_vectors(path) for path in paths]
    if len(sets) == 1:
        return sets[0]
    for path, vectors in zip(paths, sets, strict=True):
        if vectors.extractor != sets[0].extractor or vectors.X.shape[1] != sets[0].X.shape[1]:
            fail(
                path,
                f"the vectors have {vectors.X.shape[1]} dimensions and the extractor {vectors.extractor or 'unknown'}; "
                f"those of {paths[0]} have {sets[0].X.shape[1]} dimensions and the extractor "
                f"{sets[0].extractor or 'unknown'}. Pass files of one extractor",
            )
    ids = np.concatenate([vectors.ids for vectors in sets])
    check_once(pattern, ids)
    return VectorSet(ids, np.concatenate([vectors.X for vectors in sets]), sets[0].extractor)


def checked_names(path: PathLike, ids: Sequence[str] | Names, first: int = 0) -> Names:
    """Return ids as an array of text (n,); raise `FileFormatError` for an empty id.

    path : file of the ids, for the error
    first : row of the first id in the file, for the error
    """
    names = as_names(path, ids)
    empty = names == ""
    if empty.any():
        entry = first + int(empty.argmax()) + 1
        fail(
            path,
            f"{empty.sum()} id(s) are empty; the first is that of entry {entry}: give every vector an id",
        )
    return names


def check_once(path: PathLike, names: Names) -> None:
    """Raise `FileFormatError` if an id occurs twice in a file; the message has the numbers of both entries."""
    count, duplicate = repeated(names.tolist())
    if count:
        entries = " and ".join(map(str, 1 + np.flatnonzero(names == duplicate)[:2]))
        reason = (
            f"{count} id(s) repeat an earlier id; the first is {duplicate!r} (entries {entries})"
        )
        fail(path, f"{reason}. Every vector must have its own id")


def read_columns(path: PathLike, names: Sequence[str]) -> dict[str, Labels]:
    """Read label columns of a file of vectors, (n,) each; names that are not columns of the file are left out."""
    if not names:  # a stream, which can be read once, must stay unopened
        return {}
    reader = open_vectors(path)
    entries: dict[str, list[object]] = {name: [] for name in names if name in reader.columns}
    if entries:
        for batch in reader.batches(WHOLE, list(entries), False):
            for name, values in batch.columns.items():
                entries[name] += values.tolist()
    return {name: as_objects(values) for name, values in entries.items()}


def labels_beside(path: PathLike, views: Iterable[str]) -> dict[str, str]:
    """Return {view: source of its labels} for the views whose labels are stored with a file of vectors.

    The source is the column of the file with the name of the view, or else the path of the list utt2VIEW in the same
    folder (utt2spk for the view speaker). Views with neither are left out; for a stream, the result is empty.
    """
    if is_stream(path):
        return {}
    folder = Path(path)
    if not folder.is_dir():
        folder = folder.parent
    columns = open_vectors(path).columns
    sources = {}
    for view in views:
        file = folder / f"utt2{'spk' if view == 'speaker' else view}"
        if view in columns:
            sources[view] = view
        elif file.is_file():
            sources[view] = str(file)
    return sources


def read_labelled(
    path: PathLike, sources: Mapping[str, str], views: Sequence[str] = ()
) -> tuple[VectorSet, dict[str, Labels]]:
    """Return the vectors of a file, and {view: their labels (n,)}.

    sources : {view: name of a column of the file, or path of a list such as utt2spk}
    views : further views, whose labels are read from where `labels_beside` finds them, or left out
    """
    vectors = read_vectors(path)
    sources = {**labels_beside(path, views), **sources}
    # a stream was read already, and has no columns
    columns = {} if is_stream(path) else read_columns(path, list(sources.values()))
    labels = {}
    for view, source in sources.items():
        if source in columns:
            labels[view] = columns[source]
        else:
            labels |= read_labels({view: source}, vectors.ids)
    return vectors, labels


def read_extractor(path: PathLike) -> str | None:
    """Return the name of the extractor that made the vectors of a file; None if it is unknown.

    The name is in the note ``PATH.extractor`` beside the file. Raises `FileFormatError` if the note is not UTF-8 text.
    """
    note = _note(main_file(path))
    if is_stream(path) or not note.is_file():
        return None
    try:
        return note.read_text(encoding="utf-8-sig").strip() or None
    except UnicodeDecodeError as error:
        reason = f"expected the name of an extractor as UTF-8 text ({error.reason})"
        fail(note, f"{reason}: correct or delete this file")


def write_vectors(path: PathLike, vectors: VectorSet, labels: LabelColumns | None = None) -> None:
    """Write vectors and ids atomically; the suffix, or a Kaldi prefix such as ``ark:``, determines the format.

    For ``x.scp``, the archive ``x.ark`` is written beside it; for ``x.ark``, no script is written. The name of the
    extractor is written to the note ``PATH.extractor``. Without a name, an old note is removed, because it describes
    other vectors.

    Parameters
    ----------
    path : output file
    vectors : vectors with unique ids; all numbers must be finite
    labels : {view: label of each vector}, which ``.npz`` and ``.parquet`` store beside the vectors; other formats
        leave them out
    """
    count, first = repeated(check_ids(vectors.ids.tolist()))
    if count:
        raise LabelError(
            f"{count} id(s) repeat an earlier id; the first is {first!r}. Nothing was written to {path}: give every "
            "vector its own id"
        )
    if not np.isfinite(vectors.X).all():
        raise DataError(
            f"some vectors contain NaN or infinity, and nothing was written to {path}: leave them out"
        )
    files = written_files(path)
    notes = [] if vectors.extractor is None else [_note(main_file(path))]
    with atomic_write(*files, *notes) as scratch:
        if is_kaldi(path):
            from .kaldi import write_kaldi

            write_kaldi(path, scratch[: len(files)], vectors.ids, vectors.X)
        else:
            _writer(path)(scratch[0], vectors.ids, vectors.X, labels or {})
        for note in scratch[len(files) :]:
            note.write_text(f"{vectors.extractor}\n", encoding="utf-8")
        # removed before the vectors change: an old note must not describe new vectors
        for file in files:
            _note(file).unlink(missing_ok=True)


def check_vectors_writable(path: PathLike) -> None:
    """Check, before long work, that `write_vectors` could write to this path; raise its error otherwise."""
    check_writable(*written_files(path))
    if suffix_of(path) == ".parquet":
        need("pyarrow")


def written_files(path: PathLike) -> list[Path]:
    """Return the paths of the files that `write_vectors` writes, except for the note with the extractor."""
    if is_kaldi(path):
        return kaldi_files(path)
    _writer(path)
    return [Path(path)]


def _writer(path: PathLike) -> Callable[[Path, Names, Vectors, LabelColumns], None]:
    """Return the function that writes the format of a path's suffix.

    Raises `ParameterError` for a suffix that is unknown or can only be read.
    """
    format = FORMATS.get(suffix_of(path))
    if format is None or format.write is None:
        written = [suffix for suffix in SUFFIXES if suffix not in READ_ONLY]
        raise ParameterError(_unknown_suffix(path, written))
    return format.write


def main_file(path: PathLike) -> PathLike:
    """Return the path of a file of vectors without a Kaldi prefix such as ``scp:``."""
    return parse_name(path)[0] if is_kaldi(path) else path


def _note(file: PathLike) -> Path:
    """Return the path of the note beside a file of vectors that contains the name of their extractor."""
    return Path(f"{file}{EXTRACTOR_SUFFIX}")


def _unknown_suffix(path: PathLike, suffixes: Sequence[str] = SUFFIXES) -> str:
    """Return the message that the suffix of a path is not one of `suffixes`, the expected ones."""
    suffix = Path(path).suffix
    hint = ""
    if suffix == ".npy":
        hint = ", which cannot store ids: write an .npz file instead"
    return f"{path}: expected a file of vectors with the suffix {', '.join(suffixes)}; got {suffix!r}{hint}"
