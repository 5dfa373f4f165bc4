"""Morphology of masks, compared with scipy.ndimage."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import ndimage

from mvplda.voice.audio.masks import (
    dilate,
    erode,
    number_runs,
    without_short_gaps,
    without_short_runs,
)


@pytest.mark.parametrize("reach", [0, 1, 3, 20])
@pytest.mark.parametrize("size", [0, 1, 2, 5, 300])
@pytest.mark.parametrize("share", [0.02, 0.5, 0.98])
def test_masks_are_those_of_scipy(reach: int, size: int, share: float) -> None:
    mask = np.random.default_rng(size).random(size) < share
    window = [True] * (2 * reach + 1)
    np.testing.assert_array_equal(dilate(mask, reach), ndimage.binary_dilation(mask, window))
    np.testing.assert_array_equal(erode(mask, reach), ndimage.binary_erosion(mask, window))
    opened = ndimage.binary_opening(mask, window)
    np.testing.assert_array_equal(without_short_runs(mask, reach), opened)
    closed = ndimage.binary_closing(mask, window)
    np.testing.assert_array_equal(without_short_gaps(mask, reach), closed)
    np.testing.assert_array_equal(number_runs(mask), ndimage.label(mask)[0])
