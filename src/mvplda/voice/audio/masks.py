"""Morphology of masks over time, in NumPy: scipy.ndimage gives the same, but takes longer to import than to run."""

from __future__ import annotations

import numpy as np

from ..._typing import BoolArray, IntArray


def dilate(mask: BoolArray, reach: int) -> BoolArray:
    """Return a mask that is true up to `reach` positions before and after every true position."""
    return np.asarray(_window_counts(mask, reach) > 0)


def erode(mask: BoolArray, reach: int) -> BoolArray:
    """Return a mask of the positions whose neighbours up to `reach` exist and are true."""
    return np.asarray(_window_counts(mask, reach) == 2 * reach + 1)


def without_short_runs(mask: BoolArray, reach: int) -> BoolArray:
    """Return the mask without runs of at most 2 `reach` true positions."""
    return dilate(erode(mask, reach), reach)


def without_short_gaps(mask: BoolArray, reach: int) -> BoolArray:
    """Return the mask with gaps of at most 2 `reach` false positions filled.

    The first and the last `reach` positions are false.
    """
    return erode(dilate(mask, reach), reach)


def number_runs(mask: BoolArray) -> IntArray:
    """Return the number of each position's run of true positions, from 1 on; 0 where the mask is false."""
    is_start = np.diff(mask, prepend=False) & mask
    return np.asarray(np.cumsum(is_start) * mask)


def _window_counts(mask: BoolArray, reach: int) -> IntArray:
    """Return the number of true positions up to `reach` before and after every position."""
    totals = np.cumsum(np.pad(mask.astype(np.int64), (reach + 1, reach)))
    return np.asarray(totals[2 * reach + 1 :] - totals[: -2 * reach - 1])
