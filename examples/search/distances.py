"""Vectors whose Euclidean distances have the order of inner products, for engines that search by distance."""

from __future__ import annotations

from typing import Any

import numpy as np


def by_distance(index: Any, queries: Any) -> tuple[Any, Any]:
    """Return vectors of the profiles and of the tests for a search by Euclidean distance.

    For each test, the profiles with the smallest distances are those with the largest
    inner products of `index.vectors` and `queries`.
    """
    column = index.profile_column  # contains the term of each profile alone
    v = np.delete(index.vectors, column, axis=1).astype(np.float64)
    q = np.delete(queries, column, axis=1).astype(np.float64)
    scale = np.sqrt(q.std(axis=0) / np.maximum(v.std(axis=0), 1e-9))
    scale[column:] = 1.0
    v *= scale
    q[:, column:] -= q[:, column:].mean(axis=1, keepdims=True)
    q /= scale
    missing = -2.0 * index.vectors[:, column] - (v**2).sum(axis=1)
    lengths = np.sqrt(missing - missing.min())
    v = np.hstack([v, lengths[:, None]])
    q = np.hstack([q, np.zeros((len(q), 1))])
    return v.astype(np.float32), q.astype(np.float32)
