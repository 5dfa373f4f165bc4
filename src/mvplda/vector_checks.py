"""Checks of the vectors that a caller passes: shape, type, masked numbers, and names of columns."""

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
    """Return the vectors unchanged; raise `DataError` if any number is masked."""
    # Conversion to a plain array would silently use the numbers behind the mask.
    if isinstance(X, np.ma.MaskedArray) and np.ma.is_masked(X):
        raise DataError(
            "some numbers of the vectors are masked: leave out the vectors with masked numbers, or fill in values"
        )
    return X


def check_shape(vectors: NDArray[Any] | Tensor) -> None:
    """Raise `DataError` unless the vectors are a non-empty array (n, D)."""
    if vectors.ndim != 2:
        raise DataError(
            f"vectors must be an array (n, D), one row per vector; got shape {tuple(vectors.shape)}. Reshape your data "
            "to two dimensions"
        )
    if 0 in vectors.shape:
        raise DataError(
            f"there must be at least one vector with at least one number; got an array of the shape "
            f"{tuple(vectors.shape)}"
        )


def as_vectors(X: ArrayLike) -> NDArray[Any]:
    """Return vectors as a float32 or float64 array (n, D); raise `DataError` if this is not possible."""
    if sparse.issparse(X):
        raise DataError(
            "the vectors are a sparse matrix, which is not supported: pass a dense array, X.toarray()"
        )
    vectors = np.asarray(not_masked(X))
    check_shape(vectors)
    if vectors.dtype.kind not in "fiub":
        raise DataError(
            f"vectors must consist of real numbers; got an array of the type {vectors.dtype}"
        )
    if vectors.dtype not in (np.float32, np.float64):
        vectors = vectors.astype(np.float32 if vectors.dtype == np.float16 else np.float64)
    return vectors


def checked_vectors(
    estimator: object, X: ArrayLike, *, reset: bool, least: int = 1, check_finite: bool = True
) -> FloatArray:
    """Return vectors (n, D) after the checks that scikit-learn makes for an estimator.

    reset : True, in `fit`: store the number and the names of the columns in the estimator. False: raise `DataError`
        unless they equal the stored ones
    least : smallest number of vectors
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
    """Store the column names of a table X in an estimator, or raise `DataError` if they differ from the stored names.

    An array has no names and passes every check.

    reset : True, in `fit`: store the names. False: compare them with the stored names
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
