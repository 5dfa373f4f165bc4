"""Shards: where labels come from, files in pieces, and ids of all of them."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise, repeat
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._optional import need
from ..exceptions import FileFormatError, LabelError
from ..io.files import (
    BATCH_BYTES,
    LONGEST_ID,
    Batch,
    Names,
    Reader,
    Rows,
    read_map,
    wrap_reader_errors,
)
from ..io.vectors import check_once, open_vectors
from ..statistics.accumulator import LabelCodes, label_codes

CACHED_LISTS = 8
UNLISTED = -2


class Unlisted(NamedTuple):
    """Vectors that a list of labels does not name."""

    file: str
    vectors: int
    first: str


class Labels:
    """The labels of a shard, in all columns that the views need.

    columns : those that must be read from the table
    ids : whether ids are needed
    files : the files that the labels come from
    """

    def __init__(
        self,
        path: str,
        reader: Reader,
        names: Sequence[str],
        sources: Mapping[str, str],
        missing: Any,
    ) -> None:
        self._sources: dict[str, _Column | _Rows | _List] = {}
        self.columns: list[str] = []
        self.files: list[str] = []
        self.ids = False
        for name in names:
            place = sources.get(name, name)
            if place in reader.columns:
                self._sources[name] = _Column(name, place, missing)
                self.columns.append(place)
                continue
            file = label_file(path, name, sources.get(name))
            if file is None:
                listed = f" (it has {', '.join(reader.columns)})" if reader.columns else ""
                raise LabelError(
                    f"{path}: there are no labels of {name!r}: {place!r} is neither a column of it{listed} nor a file"
                )
            self.files.append(str(file))
            if file.suffix == ".npy":
                self._sources[name] = _Rows(path, file, missing)
            else:
                self._sources[name] = _List(path, name, file, missing)
                self.ids = True

    def codes(self, batch: Batch, start: int) -> dict[str, LabelCodes]:
        return {name: source.codes(batch, start) for name, source in self._sources.items()}

    @property
    def unlisted(self) -> dict[str, Unlisted]:
        """By view, the list that does not name all ids, how many of them, and the first."""
        return {
            name: Unlisted(str(source.file), source.unlisted, source.first_unlisted)
            for name, source in self._sources.items()
            if isinstance(source, _List) and source.unlisted
        }

    def finish(self, end: int, last: bool = True) -> None:
        """Whether the labels fit, now that all rows before `end` were read, which are the last of the file or not."""
        for source in self._sources.values():
            source.finish(end, last)


def label_file(path: str, name: str, source: str | None) -> Path | None:
    """The file of a view's labels for a shard, if there is one."""
    shard = Path(path.rpartition(":")[2] if path.startswith(("scp", "ark")) else path)
    if source is None:
        file = shard.with_name(f"{shard.stem}.{name}.npy")
    else:
        file = Path(source.replace("{stem}", shard.stem).replace("{folder}", str(shard.parent)))
    return file if file.is_file() else None


class _Column:
    def __init__(self, name: str, column: str, missing: Any) -> None:
        self.name = name
        self.column = column
        self.missing = missing

    def codes(self, batch: Batch, start: int) -> LabelCodes:
        values = batch.columns[self.column]
        if isinstance(values, np.ndarray):
            return label_codes(values, missing=self.missing)
        return arrow_codes(self.name, values, self.missing)

    def finish(self, end: int, last: bool) -> None:
        pass


class _Rows:
    """One label a row, in an array of their own."""

    def __init__(self, path: str, file: Path, missing: Any) -> None:
        self.path = path
        self.file = file
        self.missing = missing
        with wrap_reader_errors(file, "a NumPy array"):
            # A map notices a file that is too short.
            self.labels = np.load(file, mmap_mode="r", allow_pickle=False)
        if self.labels.ndim != 1:
            raise LabelError(f"{file}: labels have shape (n,); got {self.labels.shape}")

    def codes(self, batch: Batch, start: int) -> LabelCodes:
        values = np.array(self.labels[start : start + len(batch.X)])
        if len(values) < len(batch.X):
            raise LabelError(
                f"{self.file} has {len(self.labels)} labels, {self.path} has more vectors"
            )
        if values.dtype.kind == "U" and (values == "").any():
            values = values.astype(object)
            values[values == ""] = None  # an array of text has no other "none"
        return label_codes(values, missing=self.missing)

    def finish(self, end: int, last: bool) -> None:
        more = len(self.labels) - end
        if last and more > 0:
            raise LabelError(
                f"{self.file} has {more} more labels than the {end} vectors of {self.path}"
            )


class _List:
    """Ids and their labels; an id that is not listed has no label."""

    def __init__(self, path: str, name: str, file: Path, missing: Any) -> None:
        self.path = path
        self.name = name
        self.file = file
        state = os.stat(file)
        self.names, self.numbers = _numbered(str(file), missing, state.st_size, state.st_mtime_ns)
        self.rows = 0
        self.first = ""
        self.unlisted = 0
        self.first_unlisted = ""

    def codes(self, batch: Batch, start: int) -> LabelCodes:
        ids = batch.ids
        if ids is None:
            raise LabelError(f"{self.path} has no ids to look up in {self.file}: name their column")
        if self.rows == 0 and len(ids):
            self.first = ids[0]
        self.rows += len(ids)
        codes = np.fromiter(
            map(self.numbers.get, ids, repeat(UNLISTED)), dtype=np.int64, count=len(ids)
        )
        unlisted = codes == UNLISTED
        if not self.unlisted and unlisted.any():
            self.first_unlisted = ids[int(unlisted.argmax())]
        self.unlisted += int(unlisted.sum())
        return LabelCodes(self.names, np.where(unlisted, -1, codes))

    def finish(self, end: int, last: bool) -> None:
        if self.rows and self.unlisted == self.rows:
            raise LabelError(
                f"{self.file} lists none of the {self.rows} ids of {self.path} for view {self.name!r}: "
                f"the first is {self.first!r}, the file begins with {next(iter(self.numbers), '')!r}"
            )


@lru_cache(CACHED_LISTS)
def _numbered(file: str, missing: Any, size: int, changed: int) -> tuple[Any, dict[str, int]]:
    """Names of the classes in a list, and the class of every id (size and time of change tell versions apart)."""
    values = read_map(file)
    labels = label_codes(np.array([*values.values(), None], dtype=object)[:-1], missing=missing)
    return labels.names, dict(zip(values, labels.codes.tolist(), strict=True))


def arrow_codes(name: str, column: Any, missing: Any) -> LabelCodes:
    """Labels of an Arrow column, numbered without making Python objects of the rows."""
    arrow = need("pyarrow")
    encoded = column if arrow.types.is_dictionary(column.type) else column.dictionary_encode()
    kind = encoded.type.value_type
    if arrow.types.is_nested(kind) or arrow.types.is_decimal(kind):
        raise LabelError(f"labels of {name!r} are {kind}; expected text, numbers or dates")
    labels = label_codes(encoded.dictionary.to_numpy(zero_copy_only=False), missing=missing)
    known = np.append(labels.codes, -1)
    indices = (
        encoded.indices.fill_null(len(labels.codes))
        .cast(arrow.int64())
        .to_numpy(zero_copy_only=False)
    )
    return LabelCodes(labels.names, known[indices])


# Files cut by rows, so that one huge file is many shards.


@dataclass(frozen=True)
class Piece:
    """A shard: a file, or the vectors `start` to `stop` - 1 of its `total`."""

    path: str
    start: int = 0
    stop: int | None = None
    total: int | None = None

    def __str__(self) -> str:
        return (
            self.path
            if self.stop is None
            else f"{self.path} (rows {self.start} to {self.stop - 1})"
        )

    @property
    def rows(self) -> Rows | None:
        return None if self.stop is None else (self.start, self.stop)

    @property
    def last(self) -> bool:
        """Whether the file ends with this piece."""
        return self.stop == self.total

    def check(self, reader: Reader) -> None:
        """Whether the file still is what it was when it was cut."""
        if self.stop is None:
            return
        cuts = reader.cuts()
        found = cuts[-1] if len(cuts) else 0
        if found != self.total:
            raise FileFormatError(
                f"the file has {found} vectors; when the run began it had {self.total}"
            )


def cut(
    paths: Sequence[str], rows: int | None, vectors: str | None, ids: str | None
) -> list[Piece]:
    """Every file in pieces of at most so many rows, as far as its format can be cut there."""
    if rows is None:
        return [Piece(path) for path in paths]
    return [piece for path in paths for piece in _cut_file(path, rows, vectors, ids)]


def _cut_file(path: str, rows: int, vectors: str | None, ids: str | None) -> list[Piece]:
    try:
        cuts = open_vectors(path, vectors, ids).cuts()
    except (FileFormatError, OSError):
        return [Piece(path)]  # whoever reads it will tell
    bounds = [0, *_bounds(cuts, rows)]
    if len(bounds) < 3:
        return [Piece(path)]
    return [Piece(path, start, stop, bounds[-1]) for start, stop in pairwise(bounds)]


def _bounds(cuts: Sequence[int], rows: int) -> Iterator[int]:
    """The last cut within `rows` of the one before, or the next where there is none."""
    place = 0
    start = 0
    while place < len(cuts):
        place = max(bisect_right(cuts, start + rows, lo=place), place + 1)
        if cuts[place - 1] > start:  # there are row groups without rows
            start = cuts[place - 1]
            yield start


# Ids of all shards, so that none is counted twice.
#
# Ids are kept as one number each, eight bytes, since workers are
# other processes and ids are many. Where two numbers are equal the files are read again for the ids.


WEIGHTS = np.random.default_rng(0).integers(2**64, size=LONGEST_ID, dtype=np.uint64) | np.uint64(1)


def numbers_of(names: Names) -> NDArray[np.uint64]:
    """A number for every id, equal for equal ids in every process."""
    letters = names.view(np.uint32).reshape(len(names), -1)
    return np.asarray((letters * WEIGHTS[: letters.shape[1]]).sum(axis=1, dtype=np.uint64))


def check_ids(
    shards: Sequence[tuple[Piece, NDArray[np.uint64]]],
    vectors: str | None,
    ids: str | None,
    *,
    across_files: bool = False,
) -> None:
    """An id that stands twice is an error that names it and both places; of different files where asked."""
    files: dict[str, list[tuple[Piece, NDArray[np.uint64]]]] = {}
    for piece, numbers in shards:
        files.setdefault("" if across_files else piece.path, []).append((piece, numbers))
    for together in files.values():
        ordered = np.sort(np.concatenate([numbers for _, numbers in together]))
        again = ordered[1:][ordered[1:] == ordered[:-1]]
        if len(again):
            _name_repeated(together, again, vectors, ids)


def _name_repeated(
    shards: Sequence[tuple[Piece, NDArray[np.uint64]]],
    again: NDArray[np.uint64],
    vectors: str | None,
    ids: str | None,
) -> None:
    """Read the ids again whose numbers are equal; by chance numbers of different ids may be."""
    places: dict[str, str] = {}
    for piece, numbers in shards:
        rows = np.flatnonzero(np.isin(numbers, again)).tolist()
        batches = open_vectors(piece.path, vectors, ids).batches(BATCH_BYTES, (), True, piece.rows)
        names = [name for batch in batches for name in batch.ids or ()]
        if len(shards) == 1:
            check_once(piece.path, np.array(names), piece.start)
        for row in rows:
            here = f"{piece.path}, entry {piece.start + row + 1}"
            other = places.setdefault(names[row], here)
            if other != here:
                raise LabelError(
                    f"the id {names[row]!r} stands twice and would be counted twice: {other}, and {here}. "
                    "Leave one of them out"
                )
