"""Types that many modules name."""

from __future__ import annotations

import os

import numpy as np
from numpy.typing import NDArray

PathLike = str | os.PathLike[str]


Array = NDArray[np.float64]


IntArray = NDArray[np.int64]
