"""Shards: where labels come from, files in pieces, and ids of all of them."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._optional import need
from .._typing import Block as Column
from .._typing import Names as ClassNames
from ..exceptions import FileFormatError, LabelError
from ..io.files import (
    LONGEST_ID,
    Batch,
    Names,
    Reader,
    Rows,
    read_map,
    wrap_reader_errors,
)
from ..io.vectors import open_vectors
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
        missing: object,
    ) -> None:
        self._missing = missing
        self._column_of: dict[str, str] = {}
        self._sources: dict[str, _Rows | _List] = {}
        for name in names:
            place = sources.get(name, name)
            if place in reader.columns:
                self._column_of[name] = place
                continue
            file = label_file(path, name, sources.get(name))
            if file is None:
                listed = f" (it has {', '.join(reader.columns)})" if reader.columns else ""
                raise LabelError(
                    f"{path}: there are no labels of {name!r}: {place!r} is neither a column of it{listed} nor a file"
                )
            kind = _Rows if file.suffix == ".npy" else _List
            self._sources[name] = kind(path, name, file, missing)
        self.columns = list(self._column_of.values())
        self.files = [str(source.file) for source in self._sources.values()]
        self._lists = {n: own for n, own in self._sources.items() if isinstance(own, _List)}
        self.ids = bool(self._lists)

    def codes(self, batch: Batch, start: int) -> dict[str, LabelCodes]:
        codes = {name: source.codes(batch, start) for name, source in self._sources.items()}
        for name, column in self._column_of.items():
            codes[name] = column_codes(name, batch.columns[column], self._missing)
        return codes

    @property
    def unlisted(self) -> dict[str, Unlisted]:
        """By view, the list that does not name all ids, how many of them, and the first."""
        return {
            name: Unlisted(str(own.file), own.unlisted, own.first_unlisted)
            for name, own in self._lists.items()
            if own.unlisted
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


class _Rows:
    """One label a row, in an array of their own."""

    def __init__(self, path: str, name: str, file: Path, missing: object) -> None:
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
        if values.dtype.kind == "U":
            nobody = np.array(None, dtype=object)
            values = np.where(values == "", nobody, values)  # text has no other "none"
        return label_codes(values, missing=self.missing)

    def finish(self, end: int, last: bool) -> None:
        more = len(self.labels) - end
        if last and more > 0:
            raise LabelError(
                f"{self.file} has {more} more labels than the {end} vectors of {self.path}"
            )


class _List:
    """Ids and their labels; an id that is not listed has no label."""

    def __init__(self, path: str, name: str, file: Path, missing: object) -> None:
        self.path = path
        self.name = name
        self.file = file
        state = os.stat(file)
        self.names, self.numbers = _numbered(str(file), missing, state.st_size, state.st_mtime_ns)
        self.rows = 0
        self.unlisted = 0
        self.first_unlisted = ""

    def codes(self, batch: Batch, start: int) -> LabelCodes:
        if batch.ids is None:
            raise LabelError(f"{self.path} has no ids to look up in {self.file}: name their column")
        codes = np.array([self.numbers.get(name, UNLISTED) for name in batch.ids], dtype=np.int64)
        unlisted = np.flatnonzero(codes == UNLISTED)
        if not self.unlisted and len(unlisted):
            self.first_unlisted = batch.ids[unlisted[0]]
        self.rows += len(codes)
        self.unlisted += len(unlisted)
        return LabelCodes(self.names, np.maximum(codes, -1))

    def finish(self, end: int, last: bool) -> None:
        if self.rows and self.unlisted == self.rows:
            raise LabelError(
                f"{self.file} lists none of the {self.rows} ids of {self.path} for view {self.name!r}: "
                f"the first is {self.first_unlisted!r}, the file begins with {next(iter(self.numbers), '')!r}"
            )


@lru_cache(CACHED_LISTS)
def _numbered(
    file: str, missing: object, size: int, changed: int
) -> tuple[ClassNames, dict[str, int]]:
    """Names of the classes in a list, and the class of every id (size and time of change tell versions apart)."""
    values = read_map(file)
    labels = label_codes(np.array([*values.values(), None], dtype=object)[:-1], missing=missing)
    return labels.names, dict(zip(values, labels.codes.tolist(), strict=True))


def column_codes(name: str, column: Column, missing: object) -> LabelCodes:
    """Labels of a column, numbered; of an Arrow column without making Python objects of the rows."""
    if isinstance(column, np.ndarray):
        return label_codes(column, missing=missing)
    arrow = need("pyarrow")
    encoded = column if arrow.types.is_dictionary(column.type) else column.dictionary_encode()
    kind = encoded.type.value_type
    if arrow.types.is_nested(kind) or arrow.types.is_decimal(kind):
        raise LabelError(f"labels of {name!r} are {kind}; expected text, numbers or dates")
    labels = label_codes(encoded.dictionary.to_numpy(zero_copy_only=False), missing=missing)
    places = encoded.indices.fill_null(len(labels.codes)).cast(arrow.int64())
    return LabelCodes(
        labels.names, np.append(labels.codes, -1)[places.to_numpy(zero_copy_only=False)]
    )


# Files cut by rows, so that one huge file is many shards.


@dataclass(frozen=True)
class Piece:
    """A shard: a file, or the vectors `start` to `stop` - 1 of its `total`."""

    path: str
    start: int = 0
    stop: int | None = None
    total: int | None = None

    def __str__(self) -> str:
        if self.stop is None:
            return self.path
        return f"{self.path} (rows {self.start} to {self.stop - 1})"

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
        found = max(reader.cuts(), default=0)
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
# other processes and ids are many.


WEIGHTS = np.random.default_rng(0).integers(2**64, size=LONGEST_ID, dtype=np.uint64) | np.uint64(1)

Ids = tuple[Piece, NDArray[np.uint64]]


def numbers_of(names: Names) -> NDArray[np.uint64]:
    """A number for every id, equal for equal ids in every process."""
    letters = names.view(np.uint32).reshape(len(names), -1)
    return np.asarray((letters * WEIGHTS[: letters.shape[1]]).sum(axis=1, dtype=np.uint64))


def check_ids(shards: Sequence[Ids], *, across_files: bool = False) -> None:
    """An id that stands twice is an error that names both places; of different files where asked."""
    files: dict[str, list[Ids]] = {}
    for shard in shards:
        files.setdefault("" if across_files else shard[0].path, []).append(shard)
    for together in files.values():
        numbers = np.concatenate([own for _, own in together])
        order = np.argsort(numbers, kind="stable")
        again = np.flatnonzero(numbers[order][1:] == numbers[order][:-1])
        if len(again):
            first, second = (_entry(together, int(order[again[0] + i])) for i in (0, 1))
            raise LabelError(
                f"an id stands twice and would be counted twice: {first}, and {second}. "
                "Leave one of them out"
            )


def _entry(shards: Sequence[Ids], place: int) -> str:
    """Where the vector is that stands at a place among those of all shards."""
    for piece, numbers in shards:
        if place < len(numbers):
            return f"{piece.path}, entry {piece.start + place + 1}"
        place -= len(numbers)
    raise IndexError(place)
