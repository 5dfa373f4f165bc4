"""A shard as batches, whatever its format."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

from numpy.typing import NDArray

from ..exceptions import FileFormatError
from ..io.ark import is_kaldi

T = TypeVar("T")
Rows = tuple[int, int]
"""The first of some rows, and the one after the last."""

BATCH_BYTES = 16 * 2**20
SUFFIXES = (".parquet", ".arrow", ".npy", ".npz", ".scp", ".ark")


@dataclass(frozen=True)
class RawBatch:
    """Vectors as a file has them, with their ids and columns where they were asked for.

    A vector that is null is a row of NaN; where all are, and have no width, X is (n, 0).
    """

    X: NDArray[Any]
    ids: Sequence[str] | None = None
    columns: dict[str, Any] = field(default_factory=dict)


class Reader(Protocol):
    """A shard that was opened.

    columns : the names of label columns that it can give
    has_ids : whether its vectors have ids of their own; else they are row numbers
    files : what is read besides the shard itself
    """

    columns: tuple[str, ...]
    has_ids: bool

    @property
    def files(self) -> tuple[str, ...]: ...

    def cuts(self) -> Sequence[int]:
        """Rows at which the shard can be cut, the last one its end; none where it must be read from its beginning."""

    def batches(
        self, batch_bytes: int, columns: Sequence[str], ids: bool, rows: Rows | None = None
    ) -> Iterator[RawBatch]:
        """All rows, or those between two cuts."""


def open_shard(path: str, vectors: str | None = None, ids: str | None = None) -> Reader:
    """The reader of a shard; the suffix or a Kaldi prefix names the format.

    Parameters
    ----------
    vectors, ids : columns of a table; default: by name, as in `mvplda.io.read_vectors`
    """
    if is_kaldi(path):
        from .kaldi import KaldiReader

        return KaldiReader(path)
    suffix = Path(path).suffix.lower()
    if suffix in (".parquet", ".arrow"):
        from .tables import open_table

        return open_table(path, vectors, ids)
    if suffix in (".npy", ".npz"):
        from .arrays import NpyReader, NpzReader

        return NpyReader(path) if suffix == ".npy" else NpzReader(path, vectors, ids)
    raise FileFormatError(f"{path}: shards are files ending in {', '.join(SUFFIXES)}; this ends in {suffix!r}")


def rows_of_batch(batch_bytes: int, row_bytes: int) -> int:
    return max(1, batch_bytes // max(row_bytes, 1))


def ahead(items: Iterator[T]) -> Iterator[T]:
    """The same items; while one is used, a second thread makes the next."""
    with ThreadPoolExecutor(1) as pool:
        end: Any = object()
        following = pool.submit(next, items, end)
        while (item := following.result()) is not end:
            following = pool.submit(next, items, end)
            yield item
