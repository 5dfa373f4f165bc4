"""Files cut by rows, so that one huge file is many shards."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ..exceptions import FileFormatError
from ..io.batches import Reader, Rows
from ..io.vectors import open_vectors


@dataclass(frozen=True)
class Piece:
    """A shard: a file, or the vectors `start` to `stop` - 1 of its `total`."""

    path: str
    start: int = 0
    stop: int | None = None
    total: int | None = None

    def __str__(self) -> str:
        return self.path if self.stop is None else f"{self.path} (rows {self.start} to {self.stop - 1})"

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
            raise FileFormatError(f"the file has {found} vectors; when the run began it had {self.total}")


def cut(paths: Sequence[str], rows: int | None, vectors: str | None, ids: str | None) -> list[Piece]:
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
    place, start = 0, 0
    while place < len(cuts):
        place = max(bisect_right(cuts, start + rows, lo=place), place + 1)
        if cuts[place - 1] > start:  # there are row groups without rows
            start = cuts[place - 1]
            yield start
