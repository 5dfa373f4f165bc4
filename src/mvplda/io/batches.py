"""Batches of vectors, and the interface of readers of vector files."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from .._typing import FloatArray, PathLike
from .streams import fail
from .tables import Numbers, Values

Vectors = FloatArray


@dataclass(frozen=True)
class Batch:
    """Consecutive vectors of a file, with their ids and the requested columns."""

    X: Numbers
    ids: Sequence[str] | None = None
    columns: dict[str, Values] = field(default_factory=dict)


class Reader(ABC):
    """An open file of vectors.

    columns : names of the available label columns
    has_ids : whether the file has ids; otherwise row numbers are the ids
    id_column : name of the column of ids, in formats with columns
    files : paths of further files that are read, such as the archives of a script
    """

    columns: tuple[str, ...] = ()
    has_ids: bool = True
    id_column: str | None = None
    files: tuple[str, ...] = ()

    @abstractmethod
    def batches(self, batch_bytes: int, columns: Sequence[str], ids: bool) -> Iterator[Batch]:
        """Yield all rows in batches of about this size, with the requested columns."""


def rows_of_batch(batch_bytes: int, row_bytes: int) -> int:
    """Return the number of rows in a batch of this size: at least 1."""
    return max(1, batch_bytes // max(row_bytes, 1))


def stack_blocks(path: PathLike, blocks: Sequence[tuple[str, Numbers]]) -> Numbers:
    """Concatenate arrays (n, D); raise `FileFormatError` if their widths differ.

    blocks : id of the first row, and the array
    """
    width = blocks[0][1].shape[1]
    for name, X in blocks:
        if X.shape[1] != width:
            fail(
                path,
                f"the vector of {name!r} has width {X.shape[1]}; the vectors before it have width {width}",
            )
    if len(blocks) == 1:
        return blocks[0][1]
    return np.concatenate([X for _, X in blocks])
