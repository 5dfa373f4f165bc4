"""From one term and two sides to the factors of a product."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..kernel.blocks import Factors
from ..kernel.evidence import PairTerm
from ..kernel.records import Array
from .backend import empty, like


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
    width = term.left.shape[1]
    left, right = (empty((len(y), width + 2), dtype, y) for y in (y_e, y_t))
    left[:, :width], left[:, width], left[:, width + 1] = _times(y_e, term.left), row, 1.0
    right[:, :width], right[:, width], right[:, width + 1] = _times(y_t, term.right), 1.0, column
    return Factors(left, right, log_weight)


def _times(y: Any, matrix: Array) -> Any:
    """y @ matrix; of a canonical model with one view the matrix is diagonal, and the product cheap."""
    if matrix.shape[0] == matrix.shape[1] and not (matrix - np.diag(np.diag(matrix))).any():
        return y * like(np.diag(matrix).copy(), y)
    return y @ like(matrix, y)


def _quadratic(y: Any, W: Array) -> Any:
    return (_times(y, W) * y).sum(1)
