"""Vectors of single entries, as one array."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .sources import PathLike, fail

Vectors = NDArray[np.floating[Any]]


def stacked(path: PathLike, ids: Sequence[str], rows: Sequence[NDArray[Any]], width: int | None = None) -> Vectors:
    """Rows of equal width as one array; one of another width than the first, or than the given, is named."""
    if not rows:
        fail(path, "the file holds no vectors")
    width = len(rows[0]) if width is None else width
    for name, row in zip(ids, rows, strict=True):
        if len(row) != width:
            fail(path, f"the vector of {name!r} has width {len(row)}; those before have {width}")
    return np.stack(rows)
