"""Files of vectors with ids.

==================== ======================================================================
``.scp``, ``.ark``   Kaldi, binary or text; also ``scp:``, ``ark:``, ``ark,t:``
``.npz``             arrays ``X`` and ``ids``
``.npy``             an array (n, D), read only; row numbers are the ids
``.parquet``         a column of ids and one of vectors (lists, or fixed-size lists)
``.csv``             a header, a column of ids and one column per dimension
==================== ======================================================================

Each may be compressed with gzip. The format of a stream (``-``, a pipe) is detected from its first bytes.
Each format has a reader that yields batches: `read_vectors` concatenates them, `mvplda.distributed.shards`
accumulates them one by one.
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
"""Size in bytes of a batch when a whole file is read."""


class Format(NamedTuple):
    """Reader and writer of a file format, and the first bytes of its files; no writer: the format is read only."""

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
READ_ONLY = (".npy",)


@dataclass(frozen=True)
class VectorSet:
    """Vectors and their ids.

    ids : (n,) text
    X : (n, D) float32 or float64
    extractor : name of the extractor that made them, if known
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
                f"a vector set needs vectors (n, D) and n ids; got vectors {X.shape} and ids {self.ids.shape}"
            )

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def _rows(self) -> dict[str, int]:
        return {name: row for row, name in enumerate(self.ids.tolist())}

    def __contains__(self, name: object) -> bool:
        return name in self._rows

    def rows(self, ids: Iterable[object]) -> IntArray:
        """Return the row of every id; raise `LabelError` for an id without a vector."""
        names = list(map(str, ids))
        missing = [name for name in names if name not in self]
        if missing:
            raise LabelError(
                f"{len(set(missing))} id(s) have no vector, the first is {missing[0]!r}; "
                f"the ids of the {len(self)} vectors begin with {self.ids[:2].tolist()}"
            )
        return np.array([self._rows[name] for name in names], dtype=np.int64)

    def select(self, ids: Iterable[object]) -> VectorSet:
        """Return the vectors of these ids in this order; ids may repeat."""
        rows = self.rows(ids)
        return VectorSet(self.ids[rows], self.X[rows], self.extractor)


def open_vectors(path: PathLike) -> Reader:
    """Return the reader of a file.

    The suffix or a Kaldi prefix sets the format; streams and files without a suffix are detected by their first bytes.
    A folder stands for its list of vectors, as in Kaldi's data folders.
    """
    if Path(path).is_dir():
        path = _list_in(Path(path))
    if is_kaldi(path):
        return _kaldi_reader(path)
    suffix = suffix_of(path)
    if suffix and suffix not in FORMATS and not is_stream(path):
        raise FileFormatError(_unknown(path))
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
    """Open an archive or a script of Kaldi; other formats do not load its reader."""
    from .kaldi import KaldiReader

    return KaldiReader(name, source)


def _list_in(folder: Path) -> Path:
    """Return the usual list of vectors in a folder, or the only list."""
    for name in ("xvector.scp", "ivector.scp"):
        if (folder / name).exists():
            return folder / name
    lists = sorted(folder.glob("*.scp"))
    if len(lists) != 1:
        names = ", ".join(path.name for path in lists) or "no .scp"
        fail(folder, f"this is a folder with {names}: give the path of one file")
    return lists[0]


def read_vectors(path: PathLike) -> VectorSet:
    """Read vectors and ids; see `open_vectors` for the detection of the format.

    Parameters
    ----------
    path : file, or ``-``

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
        fail(path, "the file contains no vectors")
    X = stack_blocks(path, blocks)
    if X.dtype == np.float16:
        X = X.astype(np.float32)
    checked = checked_names(path, ids)
    check_once(path, checked)
    wrong = ~np.isfinite(X).all(axis=1)
    if wrong.any():
        first = str(checked[wrong.argmax()])
        fail(path, f"{wrong.sum()} vector(s) contain NaN or infinity, the first is {first!r}")
    return VectorSet(
        checked, np.asarray(X, dtype=np.result_type(X, np.float32)), read_extractor(path)
    )


def vector_files(pattern: PathLike) -> list[str]:
    """Return the files that match a pattern such as ``vectors/part-*.npz``, sorted; without ``*`` the path itself."""
    if "*" not in str(pattern) or Path(pattern).exists():
        return [str(pattern)]
    paths = sorted(glob(str(pattern)))
    paths = [path for path in paths if suffix_of(path) in SUFFIXES]
    if not paths:
        raise FileNotFoundError(f"no file of vectors matches {pattern}")
    return paths


def read_vector_files(pattern: PathLike) -> VectorSet:
    """Read the vectors of one file, or of all files that match a pattern such as ``vectors/part-*.npz``."""
    paths = vector_files(pattern)
    sets = [read_vectors(path) for path in paths]
    if len(sets) == 1:
        return sets[0]
    for path, vectors in zip(paths, sets, strict=True):
        if vectors.extractor != sets[0].extractor or vectors.X.shape[1] != sets[0].X.shape[1]:
            fail(
                path,
                f"vectors of {vectors.extractor}, {vectors.X.shape[1]} wide; those of {paths[0]} are of "
                f"{sets[0].extractor}, {sets[0].X.shape[1]} wide",
            )
    ids = np.concatenate([vectors.ids for vectors in sets])
    check_once(pattern, ids)
    return VectorSet(ids, np.concatenate([vectors.X for vectors in sets]), sets[0].extractor)


def checked_names(path: PathLike, ids: Sequence[str] | Names, first: int = 0) -> Names:
    """Return ids as an array; raise `FileFormatError` for an empty one.

    first : row of the first id in the file, for the error
    """
    names = as_names(path, ids)
    empty = names == ""
    if empty.any():
        entry = first + int(empty.argmax()) + 1
        fail(path, f"{empty.sum()} id(s) are empty; the first is entry {entry}")
    return names


def check_once(path: PathLike, names: Names) -> None:
    """Raise `FileFormatError` for a repeated id, with both its entries."""
    count, duplicate = repeated(names.tolist())
    if count:
        entries = " and ".join(map(str, 1 + np.flatnonzero(names == duplicate)[:2]))
        reason = (
            f"{count} id(s) repeat an earlier one, the first is {duplicate!r} (entries {entries})"
        )
        fail(path, f"{reason}; ids must be unique")


def read_columns(path: PathLike, names: Sequence[str]) -> dict[str, Labels]:
    """Read the named columns beside the vectors of a file, as far as they exist."""
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
    """Return the source of each view's labels: a column with the view's name, or utt2spk or utt2VIEW in the folder."""
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
    """Read vectors, and their labels by view.

    sources : {view: name of a column beside the vectors, or path of a list such as utt2spk}
    views : further views, whose labels are read if they lie beside the vectors; see `labels_beside`
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
    """Return the name of the extractor in the note beside the vectors, or None."""
    note = _note(main_file(path))
    if is_stream(path) or not note.is_file():
        return None
    try:
        return note.read_text(encoding="utf-8-sig").strip() or None
    except UnicodeDecodeError as error:
        reason = f"expected the name of an extractor as UTF-8 text ({error.reason})"
        fail(note, f"{reason}: write it again, or delete it")


def write_vectors(path: PathLike, vectors: VectorSet, labels: LabelColumns | None = None) -> None:
    """Write vectors and ids atomically; the suffix or a Kaldi prefix sets the format.

    ``x.scp`` writes ``x.ark`` beside it; ``x.ark`` writes no ``.scp``. The name of the extractor goes to the note
    ``PATH.extractor``; without a name, an old note is removed, because it describes other vectors.

    labels : {view: label of each vector}, stored as arrays of ``.npz`` and columns of ``.parquet``; other formats have
        none
    """
    count, first = repeated(check_ids(vectors.ids.tolist()))
    if count:
        raise LabelError(
            f"{count} id(s) repeat an earlier one, the first is {first!r}: nothing was written to {path}"
        )
    if not np.isfinite(vectors.X).all():
        raise DataError(f"some vectors are not finite: nothing was written to {path}")
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
        for (
            file
        ) in files:  # removed before the vectors change: an old note must not describe new vectors
            _note(file).unlink(missing_ok=True)


def check_vectors_writable(path: PathLike) -> None:
    """Raise the error that `write_vectors` would raise for this path; call it before long work."""
    check_writable(*written_files(path))
    if suffix_of(path) == ".parquet":
        need("pyarrow")


def written_files(path: PathLike) -> list[Path]:
    """Return the files that `write_vectors` writes for a path, without the note of the extractor."""
    if is_kaldi(path):
        return kaldi_files(path)
    _writer(path)
    return [Path(path)]


def _writer(path: PathLike) -> Callable[[Path, Names, Vectors, LabelColumns], None]:
    """Return the writer of a path's format; raise `ParameterError` if there is none."""
    format = FORMATS.get(suffix_of(path))
    if format is None or format.write is None:
        written = [suffix for suffix in SUFFIXES if suffix not in READ_ONLY]
        raise ParameterError(_unknown(path, written))
    return format.write


def main_file(path: PathLike) -> PathLike:
    """Return the path to read the vectors from, without a Kaldi prefix."""
    return parse_name(path)[0] if is_kaldi(path) else path


def _note(file: PathLike) -> Path:
    return Path(f"{file}{EXTRACTOR_SUFFIX}")


def _unknown(path: PathLike, suffixes: Sequence[str] = SUFFIXES) -> str:
    suffix = Path(path).suffix
    hint = ""
    if suffix == ".npy":
        hint = ', which has no ids. Write an array with its ids: np.savez("x.npz", X=X, ids=ids)'
    return f"{path}: expected a file of vectors with the suffix {', '.join(suffixes)}; got {suffix!r}{hint}"
