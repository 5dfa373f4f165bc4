"""Vectors with their ids, in the files that extractors leave.

==================== ======================================================================
``.scp``, ``.ark``   Kaldi, binary or text; also ``scp:``, ``ark:``, ``ark,t:``, ``ark,scp:a,b``
``.npy``             (n, D); ids in a file of the same name ending in ``.ids``, else row numbers
``.npz``             arrays ``X`` and ``ids``, or one vector a key
``.parquet``,        a column of ids and one of vectors (lists, fixed-size lists, or fixed-size
``.arrow``           binary of 32-bit floats)
``.h5``, ``.hdf5``   datasets ``X`` and ``ids``, or one vector a dataset
==================== ======================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..exceptions import DataError, FileFormatError, LabelError, ParameterError
from ..extras import need
from ..files import check_writable
from . import columnar, numpy_files
from .ark import is_kaldi, read_kaldi, write_kaldi, written_files
from .rows import Vectors
from .text import Names, PathLike, as_names, check_ids, fail, repeated, write_text

EXTRACTOR_SUFFIX = ".extractor"
SUFFIXES = (".scp", ".ark", ".npy", ".npz", ".parquet", ".arrow", ".h5", ".hdf5")


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
        object.__setattr__(self, "X", X if X.dtype in (np.float32, np.float64) else X.astype(np.float64))
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

    def rows(self, ids: Iterable[Any]) -> NDArray[np.int64]:
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

    def select(self, ids: Iterable[Any]) -> VectorSet:
        """The vectors of these ids, in their order; ids may repeat."""
        rows = self.rows(ids)
        return VectorSet(self.ids[rows], self.X[rows], self.extractor)


def read_vectors(path: PathLike) -> VectorSet:
    """Read vectors and ids; the suffix or a Kaldi prefix names the format.

    Raises
    ------
    FileFormatError
        The file is truncated, empty or of another kind; vectors differ in width or are not
        finite; ids repeat. The error names the file and the first entry at fault.
    """
    vectors = checked(path, *(read_kaldi(path) if is_kaldi(path) else _reader(path)(path)))
    note = Path(f"{path}{EXTRACTOR_SUFFIX}")
    return replace(vectors, extractor=note.read_text(encoding="utf-8").strip()) if note.is_file() else vectors


def write_vectors(path: PathLike, vectors: VectorSet) -> None:
    """Write vectors and ids, all or nothing; the suffix or a Kaldi prefix names the format.

    ``x.scp`` writes ``x.ark`` beside it, and ``x.ark`` alone no ``.scp``. ``x.npy`` writes
    ``x.ids`` beside it. The name of the extractor, where there is one, goes to ``PATH.extractor``.
    """
    check_ids(vectors.ids.tolist())
    count, first = repeated(vectors.ids.tolist())
    if count:
        raise LabelError(f"{count} id(s) repeat an earlier one, the first is {first!r}: nothing was written to {path}")
    if not np.isfinite(vectors.X).all():
        raise DataError(f"some vectors are not finite: nothing was written to {path}")
    if is_kaldi(path):
        write_kaldi(path, vectors.ids.tolist(), vectors.X)
    else:
        _writer(path)(path, vectors.ids, vectors.X)
    if vectors.extractor is not None:
        write_text(f"{path}{EXTRACTOR_SUFFIX}", [vectors.extractor])


def check_vectors_place(path: PathLike) -> None:
    """Raise the error now that `write_vectors` would give for this name later: before vectors are made."""
    if is_kaldi(path):
        check_writable(*(file for file in written_files(path) if file is not None))
        return
    needed = {".parquet": "pyarrow", ".arrow": "pyarrow", ".h5": "h5py", ".hdf5": "h5py"}
    if (module := needed.get(_suffix(path, ParameterError))) is not None:
        need(module)
    check_writable(path)


def checked(path: PathLike, ids: Sequence[str] | Names, X: Any) -> VectorSet:
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
    names = as_names(path, ids)
    empty = int((names == "").sum())
    if empty:
        fail(path, f"{empty} id(s) are empty; the first is entry {int((names == '').argmax()) + 1}")
    count, first = repeated(names.tolist())
    if count:
        fail(path, f"{count} id(s) repeat an earlier one, the first is {first!r}; every id stands once")
    finite = np.isfinite(array).all(axis=1)
    if not finite.all():
        which = names[int((~finite).argmax())]
        fail(path, f"{int((~finite).sum())} vector(s) hold NaN or infinity, the first is {str(which)!r}")
    return VectorSet(names, array)


def _reader(path: PathLike) -> Callable[[PathLike], tuple[Sequence[str] | Names, Any]]:
    return {
        ".npy": numpy_files.read_npy,
        ".npz": numpy_files.read_npz,
        ".parquet": columnar.read_parquet,
        ".arrow": columnar.read_arrow,
        ".h5": columnar.read_hdf5,
        ".hdf5": columnar.read_hdf5,
    }[_suffix(path, FileFormatError)]


def _writer(path: PathLike) -> Callable[[PathLike, Names, Vectors], None]:
    return {
        ".npy": numpy_files.write_npy,
        ".npz": numpy_files.write_npz,
        ".parquet": columnar.write_parquet,
        ".arrow": columnar.write_arrow,
        ".h5": columnar.write_hdf5,
        ".hdf5": columnar.write_hdf5,
    }[_suffix(path, ParameterError)]


def _suffix(path: PathLike, error: type[Exception]) -> str:
    suffix = Path(path).suffix.lower()
    if suffix not in SUFFIXES:
        raise error(f"{path}: vectors are kept in files ending in {', '.join(SUFFIXES)}; this ends in {suffix!r}")
    return suffix
