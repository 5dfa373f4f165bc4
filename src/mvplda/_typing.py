"""Types that many modules name."""

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
"""float32 or float64."""

Names = NDArray[Any]
"""Of classes or of profiles: text, or numbers of any kind."""

Labels = Any
"""By view: a mapping, a table or a structured array; of one view an array."""

Card = Mapping[str, Any]
"""What is to be known of something, in plain values."""

Json = dict[str, Any]
"""Plain values by name, as JSON has them; options by name, too."""

Views = tuple[str, ...]
"""Names of views, in their order."""

Ranks = Mapping[str, int | None]
"""Dimensions of views; None: as many as their classes allow."""

Columns = Mapping[str, NDArray[Any]]
"""{view: (n,) labels}."""

Block = Any
"""Some vectors or what is summed of them: an array on the host, a tensor on a device, as the caller has them."""

Setting = Any
"""The value of an option that is passed on by its name."""

RandomState = int | np.random.Generator | np.random.RandomState | None

Device = Any
"""A torch device or its name; None is the host. torch is an extra, so that its types cannot be named here."""


AnyArray = Any
"""A NumPy array or a torch tensor."""
