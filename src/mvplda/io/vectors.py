"""Vectors with their ids, in the files that extractors leave.

==================== ======================================================================
``.scp``, ``.ark``   Kaldi, binary or text; also ``scp:``, ``ark:``, ``ark,t:``
``.npz``             arrays ``X`` and ``ids``
``.parquet``         a column of ids and one of vectors (lists, or fixed-size lists)
``.csv``             a header, a column of ids and one column for every dimension
==================== ======================================================================

Each may be compressed with gzip. The format of a stream (``-``, a pipe) is seen from its first bytes.
There is one reader a format, which gives batches: `read_vectors` takes them all,
`mvplda.distributed.shards` one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

from .._optional import need
from .._typing import IntArray, PathLike
from .._typing import Names as Labels
from ..exceptions import DataError, FileFormatError, LabelError, ParameterError
from ..persistence import EXTRACTOR_SUFFIX, atomic_write, check_writable
from . import vector_formats as formats
from .batches import Reader, Vectors, joined
from .kaldi_names import is_kaldi, kaldi_files, looks_like_archive, parse_name
from .lists import as_objects, read_labels
from .streams import Names, OnDisk, as_names, check_ids, fail, is_stream, repeated
from .tables import Numbers, suffix_of

WHOLE = 2**28
"""Bytes of a batch where all of them are wanted."""


class Format(NamedTuple):
    """Who reads and who writes files with a suffix, and how such a file begins."""

    reader: Callable[[OnDisk], Reader]
    write: Callable[[Path, Names, Vectors], None]
    magic: bytes | None = None


FORMATS = {
    ".npz": Format(formats.NpzReader, formats.write_npz, b"PK\x03\x04"),
    ".parquet": Format(formats.ParquetReader, formats.write_parquet, b"PAR1"),
    ".csv": Format(formats.CsvReader, formats.write_csv),
}
SUFFIXES = (".scp", ".ark", *FORMATS)


@dataclass(frozen=True)
class VectorSet:
    """Vectors and their ids.

    ids : (n,) text
    X : (n, D) float32 or float64
    extractor : name of what made them, where it is known
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
                f"a vector set has vectors (n, D) and n ids; got vectors {X.shape} and ids {self.ids.shape}"
            )

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def _rows(self) -> dict[str, int]:
        return {name: row for row, name in enumerate(self.ids.tolist())}

    def __contains__(self, name: object) -> bool:
        return name in self._rows

    def rows(self, ids: Iterable[object]) -> IntArray:
        """Row of every id; one that is not there is an error that names it."""
        names = list(map(str, ids))
        missing = [name for name in names if name not in self]
        if missing:
            raise LabelError(
                f"{len(set(missing))} id(s) have no vector, the first is {missing[0]!r}; "
                f"those of the {len(self)} vectors begin with {self.ids[:2].tolist()}"
            )
        return np.array([self._rows[name] for name in names], dtype=np.int64)

    def select(self, ids: Iterable[object]) -> VectorSet:
        """The vectors of these ids, in their order; ids may repeat."""
        rows = self.rows(ids)
        return VectorSet(self.ids[rows], self.X[rows], self.extractor)


def open_vectors(path: PathLike) -> Reader:
    """The reader of a file; the suffix or a Kaldi prefix names the format; of a stream, and of a file without
    a suffix, the first bytes do. A folder stands for the list of vectors in it, as in Kaldi's data folders.
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
    """The usual list of vectors in a folder, or the only one."""
    for name in ("xvector.scp", "ivector.scp"):
        if (folder / name).exists():
            return folder / name
    lists = sorted(folder.glob("*.scp"))
    if len(lists) != 1:
        names = ", ".join(path.name for path in lists) or "no .scp"
        fail(folder, f"this is a folder; it has {names}: name the file")
    return lists[0]


def read_vectors(path: PathLike) -> VectorSet:
    """Read vectors and ids; the suffix or a Kaldi prefix names the format, of a stream its first bytes.

    Parameters
    ----------
    path : file, or ``-``

    Raises
    ------
    FileFormatError
        The file is truncated, empty or of another kind; vectors differ in width or are not
        finite; ids repeat. The error names the file and the first entry at fault.
    """
    ids: list[str] = []
    parts: list[tuple[str, Numbers]] = []
    for batch in open_vectors(path).batches(WHOLE, (), True):
        some = [str(i) for i in range(len(ids), len(ids) + len(batch.X))]
        if batch.ids is not None:
            some = list(batch.ids)
        parts.append((some[0], batch.X))
        ids += some
    if not any(X.size for _, X in parts):
        fail(path, "the file holds no vectors")
    X = joined(path, parts)
    if X.dtype == np.float16:
        X = X.astype(np.float32)
    names = checked_names(path, ids)
    check_once(path, names)
    wrong = ~np.isfinite(X).all(axis=1)
    if wrong.any():
        which = str(names[wrong.argmax()])
        fail(path, f"{wrong.sum()} vector(s) hold NaN or infinity, the first is {which!r}")
    return VectorSet(
        names, np.asarray(X, dtype=np.result_type(X, np.float32)), read_extractor(path)
    )


def checked_names(path: PathLike, ids: Sequence[str] | Names, first: int = 0) -> Names:
    """Ids as an array; an empty one is an error. `first` is the row of the first of them in the file."""
    names = as_names(path, ids)
    empty = names == ""
    if empty.any():
        entry = first + int(empty.argmax()) + 1
        fail(path, f"{empty.sum()} id(s) are empty; the first is entry {entry}")
    return names


def check_once(path: PathLike, names: Names) -> None:
    """An id that stands twice is an error that names it and both places."""
    count, again = repeated(names.tolist())
    if count:
        places = " and ".join(map(str, 1 + np.flatnonzero(names == again)[:2]))
        reason = f"{count} id(s) repeat an earlier one, the first is {again!r} (entries {places})"
        fail(path, f"{reason}; every id stands once")


def read_columns(path: PathLike, names: Sequence[str]) -> dict[str, Labels]:
    """Those of some columns that stand beside the vectors in a file: arrays of an .npz, columns of a table."""
    if not names:  # a stream is not even opened: it can be read once
        return {}
    reader = open_vectors(path)
    parts: dict[str, list[object]] = {name: [] for name in names if name in reader.columns}
    if parts:
        for batch in reader.batches(WHOLE, list(parts), False):
            for name, values in batch.columns.items():
                parts[name] += values.tolist()
    return {name: as_objects(values) for name, values in parts.items()}


def labels_beside(path: PathLike, views: Iterable[str]) -> dict[str, str]:
    """Where labels lie beside vectors: a column that is called like the view, or utt2spk, utt2VIEW in their folder."""
    if is_stream(path):
        return {}
    folder = Path(path)
    if not folder.is_dir():
        folder = folder.parent
    columns = open_vectors(path).columns
    places = {}
    for view in views:
        file = folder / f"utt2{'spk' if view == 'speaker' else view}"
        if view in columns:
            places[view] = view
        elif file.is_file():
            places[view] = str(file)
    return places


def read_labelled(
    path: PathLike, sources: Mapping[str, str], views: Sequence[str] = ()
) -> tuple[VectorSet, dict[str, Labels]]:
    """Vectors, and their labels by view.

    sources : {view: a column beside the vectors, or a list such as utt2spk}
    views : looked for beside the vectors, too, see `labels_beside`
    """
    vectors = read_vectors(path)
    places = {**labels_beside(path, views), **sources}
    # a stream was read, and has no columns
    columns = {} if is_stream(path) else read_columns(path, list(places.values()))
    table = {}
    for view, place in places.items():
        if place in columns:
            table[view] = columns[place]
        else:
            table |= read_labels({view: place}, vectors.ids)
    return vectors, table


def read_extractor(path: PathLike) -> str | None:
    """The name of what made these vectors, where a note beside them tells."""
    note = _note(main_file(path))
    if is_stream(path) or not note.is_file():
        return None
    try:
        return note.read_text(encoding="utf-8-sig").strip() or None
    except UnicodeDecodeError as error:
        reason = f"expected the name of an extractor as UTF-8 text ({error.reason})"
        fail(note, f"{reason}: write it again, or delete it")


def write_vectors(path: PathLike, vectors: VectorSet) -> None:
    """Write vectors and ids, all or nothing; the suffix or a Kaldi prefix names the format.

    ``x.scp`` writes ``x.ark`` beside it, and ``x.ark`` alone no ``.scp``. The name of the extractor goes to
    ``PATH.extractor``; where there is none, a note that was there is removed, since it told about other vectors.
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
    with atomic_write(*files, *notes) as parts:
        if is_kaldi(path):
            from .kaldi import write_kaldi

            write_kaldi(path, parts[: len(files)], vectors.ids, vectors.X)
        else:
            FORMATS[suffix_of(path)].write(parts[0], vectors.ids, vectors.X)
        for part in parts[len(files) :]:
            part.write_text(f"{vectors.extractor}\n", encoding="utf-8")
        for file in files:  # before the vectors change: a note must not vouch for others
            _note(file).unlink(missing_ok=True)


def check_vectors_writable(path: PathLike) -> None:
    """Raise the error now that `write_vectors` would give for this place: before long work, not after it."""
    check_writable(*written_files(path))
    if suffix_of(path) == ".parquet":
        need("pyarrow")


def written_files(path: PathLike) -> list[Path]:
    """The files that `write_vectors` writes under a name, besides the note of the extractor."""
    if is_kaldi(path):
        return kaldi_files(path)
    if suffix_of(path) not in FORMATS:
        raise ParameterError(_unknown(path))
    return [Path(path)]


def main_file(path: PathLike) -> PathLike:
    """What one names to read the vectors, without a Kaldi prefix."""
    return parse_name(path)[0] if is_kaldi(path) else path


def _note(file: PathLike) -> Path:
    return Path(f"{file}{EXTRACTOR_SUFFIX}")


def _unknown(path: PathLike) -> str:
    suffix = Path(path).suffix
    hint = ""
    if suffix == ".npy":
        hint = '. Write an array with its ids: np.savez("x.npz", X=X, ids=ids)'
    return f"{path}: vectors are kept in files ending in {', '.join(SUFFIXES)}; this ends in {suffix!r}{hint}"
