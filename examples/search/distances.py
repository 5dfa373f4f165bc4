"""The order of inner products by Euclidean distance, for graphs, cells and engines without inner products."""

from __future__ import annotations

from typing import Any

import numpy as np


def by_distance(index: Any, queries: Any) -> tuple[Any, Any]:
    """Return vectors whose squared distances have the order of the inner products."""
    column = index.profile_column  # holds the profiles' own terms
    v = np.delete(index.vectors, column, axis=1).astype(np.float64)
    q = np.delete(queries, column, axis=1).astype(np.float64)
    scale = np.sqrt(q.std(axis=0) / np.maximum(v.std(axis=0), 1e-9))
    scale[column:] = 1.0
    v *= scale
    q[:, column:] -= q[:, column:].mean(axis=1, keepdims=True)
    q /= scale
    rest = -2.0 * index.vectors[:, column] - (v**2).sum(axis=1)
    lengths = np.sqrt(rest - rest.min())
    v = np.hstack([v, lengths[:, None]])
    q = np.hstack([q, np.zeros((len(q), 1))])
    return v.astype(np.float32), q.astype(np.float32)
