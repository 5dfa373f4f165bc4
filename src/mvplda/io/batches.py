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


# A file of vectors as batches, whatever its format: all of them together are the whole file.


@dataclass(frozen=True)
class Batch:
    """Vectors as a file has them, with their ids and columns where they were asked for."""

    X: Numbers
    ids: Sequence[str] | None = None
    columns: dict[str, Values] = field(default_factory=dict)


class Reader(ABC):
    """A file of vectors that was opened.

    columns : the names of label columns that it can give
    has_ids : whether its vectors have ids of their own; else they are row numbers
    id_column : where ids are a column beside others: which
    files : what is read besides the file itself
    """

    columns: tuple[str, ...] = ()
    has_ids: bool = True
    id_column: str | None = None
    files: tuple[str, ...] = ()

    @abstractmethod
    def batches(self, batch_bytes: int, columns: Sequence[str], ids: bool) -> Iterator[Batch]:
        """All rows, some at a time, with the columns that are asked for."""


def rows_of_batch(batch_bytes: int, row_bytes: int) -> int:
    return max(1, batch_bytes // max(row_bytes, 1))


def joined(path: PathLike, parts: Sequence[tuple[str, Numbers]]) -> Numbers:
    """Arrays (n, D) below each other, each with the name of its first row; one of another width is named."""
    width = parts[0][1].shape[1]
    for name, X in parts:
        if X.shape[1] != width:
            fail(path, f"the vector of {name!r} has width {X.shape[1]}; those before have {width}")
    if len(parts) == 1:
        return parts[0][1]
    return np.concatenate([X for _, X in parts])
