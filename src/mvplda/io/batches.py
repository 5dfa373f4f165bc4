"""Batches of vectors, and the interface that all readers of vector files implement."""

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
    """Consecutive vectors of a file.

    X : vectors, (n, D)
    ids : ids of the vectors, (n,); None if they were not requested
    columns : {name of a label column: labels (n,)}, for the requested columns
    """

    X: Numbers
    ids: Sequence[str] | None = None
    columns: dict[str, Values] = field(default_factory=dict)


class Reader(ABC):
    """Reader of one file of vectors.

    columns : names of the available label columns
    has_ids : whether the file has ids; otherwise row numbers are the ids
    id_column : name of the column of ids; None for a file without ids or a format without columns
    files : paths of other files that are read too, such as the archives that a Kaldi script names
    """

    columns: tuple[str, ...] = ()
    has_ids: bool = True
    id_column: str | None = None
    files: tuple[str, ...] = ()

    @abstractmethod
    def batches(self, batch_bytes: int, columns: Sequence[str], ids: bool) -> Iterator[Batch]:
        """Yield all vectors of the file in batches.

        batch_bytes : approximate size of the vectors of a batch in bytes
        columns : names of the label columns to read
        ids : whether to read ids
        """


def rows_of_batch(batch_bytes: int, row_bytes: int) -> int:
    """Return how many rows of `row_bytes` bytes fit into a batch of `batch_bytes` bytes, at least 1."""
    return max(1, batch_bytes // max(row_bytes, 1))


def stack_blocks(path: PathLike, blocks: Sequence[tuple[str, Numbers]]) -> Numbers:
    """Return the arrays of vectors of a file, (n_k, D) each, stacked to one array (sum of n_k, D).

    Raises `FileFormatError` if their dimensions D differ.

    path : the file, for the error
    blocks : (id of the first vector, array) for each array
    """
    width = blocks[0][1].shape[1]
    for name, X in blocks:
        if X.shape[1] != width:
            fail(
                path,
                f"the vector {name!r} has {X.shape[1]} dimensions; the vectors before it have {width}",
            )
    if len(blocks) == 1:
        return blocks[0][1]
    return np.concatenate([X for _, X in blocks])
