"""Cells: sums over the recordings of a profile that share phrase and session, as the service stores them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Cell:
    """Sum over the recordings of one phrase and session of a profile, in whole numbers.

    Parameters
    ----------
    phrase : label of the phrase; empty for a test without a claimed phrase
    total : (rank,) sum of the recordings' evidence, in units of `model.UNIT`; rank: columns of the model's evidence
    count : number of recordings in the sum
    session : name of the session; empty for a test, which is a session of its own
    """

    phrase: str
    total: Integers
    count: int
    session: str = ""


def merge_cells(
    cells: Sequence[Cell], per_phrase: bool = False, per_session: bool = False
) -> list[Cell]:
    """Add up the cells of one profile.

    Parameters
    ----------
    cells : cells of the profile
    per_phrase : whether phrases stay separate
    per_session : whether sessions stay separate

    Returns
    -------
    one cell, or one per phrase, per session, or per pair of both
    """
    if len(cells) == 1:
        return list(cells)
    groups: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        key = (cell.phrase if per_phrase else "", cell.session if per_session else "")
        groups.setdefault(key, []).append(cell)
    merged = []
    for (phrase, session), members in groups.items():
        total = np.sum([cell.total for cell in members], axis=0)
        count = sum(cell.count for cell in members)
        merged.append(Cell(phrase, total, count, session))
    return merged
