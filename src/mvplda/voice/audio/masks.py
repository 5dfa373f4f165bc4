"""Dilation and erosion of masks over time, in NumPy because scipy.ndimage takes longer to import than to run."""

from __future__ import annotations

import numpy as np

from ..._typing import BoolArray, IntArray


def dilate(mask: BoolArray, reach: int) -> BoolArray:
    """Return a (T,) mask that is true up to `reach` positions before and after every true position of `mask` (T,)."""
    return np.asarray(_window_counts(mask, reach) > 0)


def erode(mask: BoolArray, reach: int) -> BoolArray:
    """Return a (T,) mask of the positions in `mask` (T,) whose neighbours, up to `reach` on both sides, are all true.

    Positions with fewer neighbours, at the ends, are false.
    """
    return np.asarray(_window_counts(mask, reach) == 2 * reach + 1)


def without_short_runs(mask: BoolArray, reach: int) -> BoolArray:
    """Return a copy of a mask (T,) in which runs of at most 2 `reach` true positions are false."""
    return dilate(erode(mask, reach), reach)


def without_short_gaps(mask: BoolArray, reach: int) -> BoolArray:
    """Return a copy of a mask (T,) in which gaps of at most 2 `reach` false positions are true.

    The first and the last `reach` positions of the result are false.
    """
    return erode(dilate(mask, reach), reach)


def number_runs(mask: BoolArray) -> IntArray:
    """Number the runs of true positions in a mask (T,) from 1 on, and return each position's number, 0 outside runs."""
    is_start = np.diff(mask, prepend=False) & mask
    return np.asarray(np.cumsum(is_start) * mask)


def _window_counts(mask: BoolArray, reach: int) -> IntArray:
    """Return, for each position of a mask (T,), the number of true positions at most `reach` positions away."""
    totals = np.cumsum(np.pad(mask.astype(np.int64), (reach + 1, reach)))
    return np.asarray(totals[2 * reach + 1 :] - totals[: -2 * reach - 1])
