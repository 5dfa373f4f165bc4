"""From one term and two sides to the factors of a product."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..kernel.blocks import Factors
from ..kernel.evidence import PairTerm
from ..kernel.records import Array
from .backend import cast, join_columns, like


def make_factors(
    term: PairTerm,
    y_e: Any,
    y_t: Any,
    log_weight: float,
    dtype: Any,
    column_extra: Any = None,
) -> Factors:
    """[E, row, 1] and [T, 1, column] of one term; nothing where the term is constant."""
    if term.left.shape[1] == 0 and column_extra is None:
        return Factors(None, None, log_weight)
    row = _quadratic(y_e, term.row) + (term.constant + log_weight)
    column = _quadratic(y_t, term.column)
    if column_extra is not None:
        column = column + column_extra
    left = join_columns([_times(y_e, term.left), row[:, None], row[:, None] * 0 + 1])
    right = join_columns([_times(y_t, term.right), column[:, None] * 0 + 1, column[:, None]])
    return Factors(cast(left, dtype), cast(right, dtype), log_weight)


def _times(y: Any, matrix: Array) -> Any:
    """y @ matrix; of a canonical model with one view the matrix is diagonal, and the product cheap."""
    if matrix.shape[0] == matrix.shape[1] and not (matrix - np.diag(np.diag(matrix))).any():
        return y * like(np.diag(matrix).copy(), y)
    return y @ like(matrix, y)


def _quadratic(y: Any, W: Array) -> Any:
    return (_times(y, W) * y).sum(1)
