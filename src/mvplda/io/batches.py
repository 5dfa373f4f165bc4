"""A file of vectors as batches, whatever its format: all of them together are the whole file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from .._typing import PathLike
from .sources import fail

Rows = tuple[int, int]
"""The first of some rows, and the one after the last."""

BATCH_BYTES = 16 * 2**20


@dataclass(frozen=True)
class Batch:
    """Vectors as a file has them, with their ids and columns where they were asked for.

    A vector that is null is a row of NaN; where all are, and have no width, X is (n, 0).
    """

    X: NDArray[Any]
    ids: Sequence[str] | None = None
    columns: dict[str, Any] = field(default_factory=dict)


class Reader(Protocol):
    """A file of vectors that was opened.

    columns : the names of label columns that it can give
    has_ids : whether its vectors have ids of their own; else they are row numbers
    id_column : where ids are a column beside others: which
    files : what is read besides the file itself
    """

    columns: tuple[str, ...]
    has_ids: bool
    id_column: str | None

    @property
    def files(self) -> tuple[str, ...]: ...

    def cuts(self) -> Sequence[int]:
        """Rows at which the file can be cut, the last one its end; none where it must be read from its beginning."""

    def batches(self, batch_bytes: int, columns: Sequence[str], ids: bool, rows: Rows | None = None) -> Iterator[Batch]:
        """All rows, or those between two cuts."""


def rows_of_batch(batch_bytes: int, row_bytes: int) -> int:
    return max(1, batch_bytes // max(row_bytes, 1))


# Vectors of single entries, as one array.


Vectors = NDArray[np.floating[Any]]


def stacked(path: PathLike, ids: Sequence[str], rows: Sequence[NDArray[Any]], width: int | None = None) -> Vectors:
    """Rows of equal width as one array; one of another width than the first, or than the given, is named."""
    if not rows:
        fail(path, "the file holds no vectors")
    width = len(rows[0]) if width is None else width
    for name, row in zip(ids, rows, strict=True):
        if len(row) != width:
            fail(path, f"the vector of {name!r} has width {len(row)}; those before have {width}")
    return np.stack(rows)
