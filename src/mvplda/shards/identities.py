"""Ids of all shards, so that none is counted twice.

Ids that labels are looked up by are kept as one number each, eight bytes, since workers are
other processes and ids are many. Where two numbers are equal the files are read again for the ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..exceptions import LabelError
from ..io.batches import BATCH_BYTES
from ..io.text import LONGEST_ID, Names
from ..io.vectors import open_vectors
from .pieces import Piece

WEIGHTS = np.random.default_rng(0).integers(2**64, size=LONGEST_ID, dtype=np.uint64) | np.uint64(1)


class Identities(NamedTuple):
    """The ids of a shard: a number for each, equal for equal ids in every process."""

    piece: Piece
    numbers: NDArray[np.uint64]


def numbers_of(names: Names) -> NDArray[np.uint64]:
    letters = names.view(np.uint32).reshape(len(names), -1)
    return np.asarray((letters * WEIGHTS[: letters.shape[1]]).sum(axis=1, dtype=np.uint64))


def check_shards(shards: Sequence[Identities], vectors: str | None, ids: str | None) -> None:
    """An id that stands in two shards is an error that names it and both places."""
    if len(shards) < 2:
        return
    numbers, counts = np.unique(np.concatenate([shard.numbers for shard in shards]), return_counts=True)
    again = numbers[counts > 1]
    if not len(again):
        return
    places: dict[str, str] = {}
    for shard in shards:
        rows = np.flatnonzero(np.isin(shard.numbers, again))
        if not len(rows):
            continue
        names = names_of(shard.piece, vectors, ids)
        for row in rows.tolist():
            here = f"{shard.piece.path}, entry {shard.piece.start + row + 1}"
            if (other := places.setdefault(names[row], here)) != here:
                raise LabelError(
                    f"the id {names[row]!r} stands twice and would be counted twice: {other}, and {here}. "
                    "Leave one of them out"
                )


def names_of(piece: Piece, vectors: str | None, ids: str | None) -> list[str]:
    """The ids of a shard."""
    batches = open_vectors(piece.path, vectors, ids).batches(BATCH_BYTES, (), True, piece.rows)
    return [name for batch in batches for name in batch.ids or ()]
