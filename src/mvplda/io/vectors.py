"""Vectors with their ids, in the files that extractors leave.

==================== ======================================================================
``.scp``, ``.ark``   Kaldi, binary or text; also ``scp:``, ``ark:``, ``ark,t:``, ``ark,scp:a,b``
``.npy``             (n, D); ids in a file of the same name ending in ``.ids``, else row numbers
``.npz``             arrays ``X`` and ``ids``, or one vector a key
``.parquet``,        a column of ids and one of vectors (lists, fixed-size lists, or fixed-size
``.arrow``           binary of 32-bit floats)
``.h5``, ``.hdf5``   datasets ``X`` and ``ids``, or one vector a dataset
``.csv``             a header, a column of ids and one column for every dimension
==================== ======================================================================

Each may be compressed with gzip. The format of a stream (``-``, a pipe) is seen from its first bytes.
There is one reader a format, which gives batches: `read_vectors` takes them all, `mvplda.distributed` one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._optional import need
from .._typing import PathLike
from ..exceptions import DataError, FileFormatError, LabelError, ParameterError
from ..persistence import EXTRACTOR_SUFFIX, atomic_write, check_writable
from . import arrow, csv_vectors, numpy_files
from .files import Names, OnDisk, Reader, Vectors, as_names, check_ids, fail, is_stream, repeated
from .kaldi import KaldiReader, is_kaldi, kaldi_files, looks_like_archive, parse_name, write_kaldi

WHOLE = 2**28
"""Bytes of a batch where all of them are wanted."""


class Format(NamedTuple):
    """Who reads and who writes files with a suffix, how such a file begins, and what must be installed."""

    reader: Callable[[OnDisk, str | None, str | None], Reader]
    write: Callable[[Sequence[Path], Names, Vectors], None]
    magic: tuple[bytes, ...]
    needs: str | None = None


HDF5 = Format(numpy_files.Hdf5Reader, numpy_files.write_hdf5, (b"\x89HDF",), "h5py")
FORMATS = {
    ".npy": Format(numpy_files.NpyReader, numpy_files.write_npy, (b"\x93NUMPY",)),
    ".npz": Format(numpy_files.NpzReader, numpy_files.write_npz, (b"PK\x03\x04",)),
    ".parquet": Format(arrow.ParquetReader, arrow.write_parquet, (b"PAR1",), "pyarrow"),
    ".arrow": Format(
        arrow.ArrowReader, arrow.write_arrow, (b"ARROW1", b"\xff\xff\xff\xff"), "pyarrow"
    ),
    ".h5": HDF5,
    ".hdf5": HDF5,
    ".csv": Format(csv_vectors.CsvReader, csv_vectors.write_csv, ()),
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
        object.__setattr__(self, "ids", np.asarray(self.ids, dtype=np.str_))
        X = np.asarray(self.X)
        object.__setattr__(
            self, "X", X if X.dtype in (np.float32, np.float64) else X.astype(np.float64)
        )
        if X.ndim != 2 or self.ids.shape != (len(X),):
            raise DataError(
                f"a vector set has vectors (n, D) and n ids; got vectors {X.shape} and ids {self.ids.shape}"
            )

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def dimension(self) -> int:
        return int(self.X.shape[1])

    @cached_property
    def _rows(self) -> dict[str, int]:
        return {name: row for row, name in enumerate(self.ids.tolist())}

    def __contains__(self, name: object) -> bool:
        return name in self._rows

    def rows(self, ids: Iterable[object]) -> NDArray[np.int64]:
        """Row of every id; one that is not there is an error that names it."""
        names = [str(name) for name in ids]
        missing = [name for name in names if name not in self._rows]
        if missing:
            such = f", such as {str(self.ids[0])!r}" if len(self) else ""
            raise LabelError(
                f"{len(set(missing))} id(s) have no vector, the first is {missing[0]!r}: "
                f"there are {len(self)} vectors{such}"
            )
        return np.fromiter((self._rows[name] for name in names), dtype=np.int64, count=len(names))

    def select(self, ids: Iterable[object]) -> VectorSet:
        """The vectors of these ids, in their order; ids may repeat."""
        rows = self.rows(ids)
        return VectorSet(self.ids[rows], self.X[rows], self.extractor)


def open_vectors(path: PathLike, vectors: str | None = None, ids: str | None = None) -> Reader:
    """The reader of a file; the suffix or a Kaldi prefix names the format; of a stream, and of a file without
    a suffix, the first bytes do. A folder stands for the list of vectors in it, as in Kaldi's data folders.

    Parameters
    ----------
    vectors, ids : their columns in a table, their arrays in a file of named arrays; default: by their usual names
    """
    if not is_stream(path) and Path(path).is_dir():
        path = _list_in(Path(path))
    if is_kaldi(path):
        return KaldiReader(path)
    suffix = _suffix(path)
    if suffix in FORMATS:
        return FORMATS[suffix].reader(OnDisk(path), vectors, ids)
    if suffix and not is_stream(path) and not str(path).endswith(".gz"):
        raise FileFormatError(_unknown(path))
    source = OnDisk(path)
    head = source.head(4096)
    for format in FORMATS.values():
        if head.startswith(format.magic):
            return format.reader(source, vectors, ids)
    return KaldiReader(f"{'ark' if looks_like_archive(head) else 'scp'}:{path}", source)


def _list_in(folder: Path) -> Path:
    lists = {path.name: path for path in sorted(folder.glob("*.scp"))}
    usual = [name for name in ("xvector.scp", "ivector.scp") if name in lists]
    if len(lists) != 1 and not usual:
        there = (
            f"it has {', '.join(lists)}: name one"
            if lists
            else "it has no .scp: name the file of the vectors"
        )
        fail(folder, f"this is a folder; {there}")
    return lists[usual[0]] if usual else next(iter(lists.values()))


def read_vectors(path: PathLike, *, named: bool = True) -> VectorSet:
    """Read vectors and ids; the suffix or a Kaldi prefix names the format, of a stream its first bytes.

    Parameters
    ----------
    path : file, or ``-``
    named : False takes row numbers for ids, whether the file has any or not

    Raises
    ------
    FileFormatError
        The file is truncated, empty or of another kind; vectors differ in width or are not
        finite; ids repeat. The error names the file and the first entry at fault.
    """
    ids: list[str] = []
    parts: list[NDArray[Any]] = []
    width = 0
    for batch in open_vectors(path).batches(WHOLE, (), named):
        found = batch.X.shape[1]
        names = (
            list(batch.ids or ())
            if named
            else [str(i) for i in range(len(ids), len(ids) + len(batch.X))]
        )
        if found and width and found != width:
            fail(path, f"the vector of {names[0]!r} has width {found}; those before have {width}")
        width = width or found
        ids += names
        parts.append(batch.X)
    if not ids:
        fail(path, "the file holds no vectors")
    parts = [
        X if X.shape[1] else np.full((len(X), width), np.nan) for X in parts
    ]  # vectors that are null
    vectors = checked(path, ids, parts[0] if len(parts) == 1 else np.concatenate(parts))
    return replace(vectors, extractor=read_extractor(path))


def read_columns(path: PathLike, names: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Those of some columns that stand beside the vectors in a file: arrays of an .npz, columns of a table."""
    if not names:  # a stream is not even opened: it can be read once
        return {}
    reader = open_vectors(path)
    there = [name for name in names if name in reader.columns]
    parts: dict[str, list[Any]] = {name: [] for name in there}
    for batch in reader.batches(WHOLE, there, False) if there else ():
        for name in there:
            values = batch.columns[name]
            parts[name] += values.tolist() if isinstance(values, np.ndarray) else values.to_pylist()
    return {name: np.array([*values, None], dtype=object)[:-1] for name, values in parts.items()}


def labels_beside(path: PathLike, views: Iterable[str]) -> dict[str, str]:
    """Where labels lie beside vectors: a column that is called like the view, or utt2spk, utt2VIEW in their folder."""
    if is_stream(path):
        return {}
    columns, folder = (
        open_vectors(path).columns,
        Path(path) if Path(path).is_dir() else Path(path).parent,
    )
    lists = {view: folder / f"utt2{'spk' if view == 'speaker' else view}" for view in views}
    return {
        view: view if view in columns else str(lists[view])
        for view in lists
        if view in columns or lists[view].is_file()
    }


def read_extractor(path: PathLike) -> str | None:
    """The name of what made these vectors, where a note beside them tells."""
    note = _note(_main_file(path))
    if is_stream(path) or not note.is_file():
        return None
    try:
        return note.read_text(encoding="utf-8-sig").strip() or None
    except UnicodeDecodeError as error:
        fail(
            note,
            f"expected the name of an extractor as UTF-8 text ({error.reason}): write it again, or delete it",
        )


def write_vectors(path: PathLike, vectors: VectorSet) -> None:
    """Write vectors and ids, all or nothing; the suffix or a Kaldi prefix names the format.

    ``x.scp`` writes ``x.ark`` beside it, and ``x.ark`` alone no ``.scp``. ``x.npy`` writes
    ``x.ids`` beside it. The name of the extractor goes to ``PATH.extractor``; where there is none,
    a note that was there is removed, since it told about other vectors.
    """
    check_ids(vectors.ids.tolist())
    count, first = repeated(vectors.ids.tolist())
    if count:
        raise LabelError(
            f"{count} id(s) repeat an earlier one, the first is {first!r}: nothing was written to {path}"
        )
    if not np.isfinite(vectors.X).all():
        raise DataError(f"some vectors are not finite: nothing was written to {path}")
    files = written_files(path)
    notes = [] if vectors.extractor is None else [_note(_main_file(path))]
    with atomic_write(*files, *notes) as parts:
        if is_kaldi(path):
            write_kaldi(path, parts[: len(files)], vectors.ids, vectors.X)
        else:
            FORMATS[_suffix(path)].write(parts[: len(files)], vectors.ids, vectors.X)
        for part in parts[len(files) :]:
            part.write_text(f"{vectors.extractor}\n", encoding="utf-8")
        for file in files:
            _note(file).unlink(
                missing_ok=True
            )  # before the vectors change: a note must not vouch for others


def check_vectors_writable(path: PathLike) -> None:
    """Raise the error now that `write_vectors` would give for this place: before long work, not after it."""
    check_writable(*written_files(path))
    if not is_kaldi(path) and (module := FORMATS[Path(path).suffix.lower()].needs) is not None:
        need(module)


def written_files(path: PathLike) -> list[Path]:
    """The files that `write_vectors` writes under a name, besides the note of the extractor."""
    if is_kaldi(path):
        return kaldi_files(path)
    suffix = Path(path).suffix.lower()
    if suffix not in FORMATS:
        raise ParameterError(_unknown(path))
    return [Path(path), Path(path).with_suffix(".ids")] if suffix == ".npy" else [Path(path)]


def _main_file(path: PathLike) -> PathLike:
    """What one names to read the vectors: the script where there is one."""
    if not is_kaldi(path):
        return path
    target = parse_name(path)
    return str(target.scp or target.ark)


def _note(file: PathLike) -> Path:
    return Path(f"{file}{EXTRACTOR_SUFFIX}")


def _suffix(path: PathLike) -> str:
    return Path(str(path).removesuffix(".gz")).suffix.lower()


def _unknown(path: PathLike) -> str:
    return f"{path}: vectors are kept in files ending in {', '.join(SUFFIXES)}; this ends in {Path(path).suffix!r}"


def checked_names(path: PathLike, ids: Sequence[str] | Names, first: int = 0) -> Names:
    """Ids as an array; an empty one is an error. `first` is the row of the first of them in the file."""
    names = as_names(path, ids)
    empty = int((names == "").sum())
    if empty:
        fail(
            path,
            f"{empty} id(s) are empty; the first is entry {first + int((names == '').argmax()) + 1}",
        )
    return names


def check_once(path: PathLike, names: Names, first: int = 0) -> None:
    """An id that stands twice is an error that names it and both places."""
    count, again = repeated(names.tolist())
    if count:
        places = " and ".join(
            str(first + place + 1) for place in np.flatnonzero(names == again)[:2]
        )
        fail(
            path,
            f"{count} id(s) repeat an earlier one, the first is {again!r} (entries {places}); every id stands once",
        )


def checked(path: PathLike, ids: Sequence[str] | Names, X: ArrayLike) -> VectorSet:
    """A vector set, or an error about ids and numbers that names the file."""
    array = np.asarray(X)
    if array.ndim != 2 or array.dtype.kind not in "fiu":
        fail(path, f"expected vectors (n, D) of floats; got shape {array.shape} of {array.dtype}")
    if array.shape[0] == 0 or array.shape[1] == 0:
        fail(path, f"the file holds no vectors (shape {array.shape})")
    if len(ids) != len(array):
        fail(path, f"{len(ids)} ids for {len(array)} vectors; expected as many")
    if array.dtype not in (np.float32, np.float64):
        array = array.astype(np.float32 if array.dtype == np.float16 else np.float64)
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    names = checked_names(path, ids)
    check_once(path, names)
    finite = np.isfinite(array).all(axis=1)
    if not finite.all():
        which = names[int((~finite).argmax())]
        fail(
            path,
            f"{int((~finite).sum())} vector(s) hold NaN or infinity, the first is {str(which)!r}",
        )
    return VectorSet(names, array)
