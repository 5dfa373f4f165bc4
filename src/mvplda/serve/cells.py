"""Cells: sums of the evidence of a profile's recordings, one cell per combination of phrase and session."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Cell:
    """Sum of the evidence of those recordings of a profile that have the same phrase and session.

    Parameters
    ----------
    phrase : label of the phrase; empty for a test without a claimed phrase
    total : (rank,) sum of the recordings' contributions, see `Model.contributions`: evidence in whole numbers
    count : number of recordings in the sum
    session : name of the session; empty for a test
    """

    phrase: str
    total: Integers
    count: int
    session: str = ""


def merge_cells(
    cells: Sequence[Cell], per_phrase: bool = False, per_session: bool = False
) -> list[Cell]:
    """Add up the cells of one profile over phrases, sessions or both.

    Parameters
    ----------
    cells : cells of the profile
    per_phrase : whether to return separate cells per phrase
    per_session : whether to return separate cells per session

    Returns
    -------
    one cell; or one per phrase, per session, or per combination of phrase and session
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
