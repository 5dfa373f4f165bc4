"""Checks of vectors that callers pass: shape, type, masks, and names of columns."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from ._typing import FloatArray
from .exceptions import DataError

if TYPE_CHECKING:
    from torch import Tensor


def not_masked(X: ArrayLike) -> ArrayLike:
    """Return the vectors; raise `DataError` if any number is masked."""
    # Conversion to a plain array would silently use the numbers behind the mask.
    if isinstance(X, np.ma.MaskedArray) and np.ma.is_masked(X):
        raise DataError(
            "some numbers of the vectors are masked: leave their rows out, or fill them in"
        )
    return X


def check_shape(vectors: NDArray[Any] | Tensor) -> None:
    """Raise `DataError` unless the vectors are a non-empty array (n, D)."""
    if vectors.ndim != 2:
        raise DataError(
            f"vectors must be an array (n, D); got shape {tuple(vectors.shape)}. Reshape your data to two dimensions"
        )
    if 0 in vectors.shape:
        raise DataError(
            f"vectors must not be empty; got shape {tuple(vectors.shape)}: pass at least one row and column"
        )


def as_vectors(X: ArrayLike) -> NDArray[Any]:
    """Return vectors as a float32 or float64 array (n, D)."""
    if sparse.issparse(X):
        raise DataError(
            "the vectors are a sparse matrix, which is not supported: pass a dense array, X.toarray()"
        )
    vectors = np.asarray(not_masked(X))
    check_shape(vectors)
    if vectors.dtype.kind not in "fiub":
        raise DataError(f"vectors must be real numbers; got {vectors.dtype}")
    if vectors.dtype not in (np.float32, np.float64):
        vectors = vectors.astype(np.float32 if vectors.dtype == np.float16 else np.float64)
    return vectors


def checked_vectors(
    estimator: object, X: ArrayLike, *, reset: bool, least: int = 1, check_finite: bool = True
) -> FloatArray:
    """Return vectors checked by scikit-learn for an estimator.

    reset : whether to store width and column names in the estimator (in `fit`) or to check against them
    least : minimum number of vectors
    check_finite : whether to raise `DataError` for NaN and infinity, which reads all vectors once
    """
    # Imported late: slow to import, and statistics do not need it.
    from sklearn.utils.validation import validate_data

    try:
        return validate_data(
            estimator,
            not_masked(X),
            reset=reset,
            dtype=[np.float64, np.float32],
            ensure_min_samples=least,
            ensure_all_finite=check_finite,
        )
    except DataError:
        raise
    except ValueError as error:
        raise DataError(str(error)) from error


def check_feature_names(estimator: object, X: Any, *, reset: bool) -> None:
    """Store the column names of a table, or raise an error if they differ from the stored names.

    reset : store the names of `X` in place of earlier ones; arrays have no names
    """
    if reset:
        for name in ("feature_names_in_", "n_features_in_"):
            estimator.__dict__.pop(name, None)
    if not hasattr(X, "columns"):
        return
    # imported late: slow to import, and arrays have no names
    from sklearn.utils.validation import validate_data

    try:
        validate_data(estimator, X, reset=reset, skip_check_array=True)
    except (TypeError, ValueError) as error:
        raise DataError(str(error)) from error
