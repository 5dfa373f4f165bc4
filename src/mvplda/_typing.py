"""Type aliases shared by many modules."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

PathLike = str | os.PathLike[str]

Array = NDArray[np.float64]

IntArray = NDArray[np.int64]

BoolArray = NDArray[np.bool_]

FloatArray = NDArray[np.floating[Any]]
"""Array of float32 or float64."""

Names = NDArray[Any]
"""Names of classes or profiles: text, or numbers of any kind."""

Labels = Any
"""Labels by view as a mapping, a table or a structured array; labels of a single view as an array."""

Card = Mapping[str, Any]
"""Description of a model or data set, in plain values."""

Json = dict[str, Any]
"""JSON object: plain values by name; also options by name."""

Views = tuple[str, ...]
"""Names of views, in order."""

Ranks = Mapping[str, int | None]
"""Rank of every view; None stands for the largest rank that its classes allow."""

Columns = Mapping[str, NDArray[Any]]
"""Labels by view, (n,) each."""

Block = Any
"""Block of vectors, or sums of them: an array on the host or a tensor on a device."""

Setting = Any
"""Value of an option that is passed on by name."""

RandomState = int | np.random.Generator | np.random.RandomState | None

Device = Any
"""Torch device or its name; None is the host. torch is an optional dependency, so that its types are unavailable."""


AnyArray = Any
"""A NumPy array or a torch tensor."""
