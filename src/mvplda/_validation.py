"""Checks of vectors, and of what made them."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from .exceptions import DataError, UnknownExtractorWarning

EXTRACTOR_SUFFIX = ".extractor"
"""A file of this name beside vectors says what made them."""


def as_vectors(X: Any) -> NDArray[Any]:
    """Vectors as a float32 or float64 array (n, D)."""
    if sparse.issparse(X):
        raise DataError("the vectors are a sparse matrix, which is not supported: give a dense array, X.toarray()")
    vectors = np.asarray(X)
    if vectors.ndim != 2:
        raise DataError(f"vectors are an array (n, D); got shape {vectors.shape}. Reshape your data to two dimensions")
    if vectors.shape[0] == 0 or vectors.shape[1] == 0:
        raise DataError(f"there is nothing in vectors of shape {vectors.shape}")
    if vectors.dtype.kind not in "fiub":
        raise DataError(f"vectors are real numbers; got {vectors.dtype}")
    if vectors.dtype not in (np.float32, np.float64):
        vectors = vectors.astype(np.float32 if vectors.dtype == np.float16 else np.float64)
    return vectors


def compare_extractors(one: str, of_one: str | None, other: str, of_other: str | None) -> None:
    """Refuse what different extractors made; warn where only one of them is known.

    Parameters
    ----------
    one, other : a model, or files of vectors, as errors call them
    of_one, of_other : the names of their extractors
    """
    if of_one == of_other:
        return
    if of_one is not None and of_other is not None:
        raise DataError(
            f"{other} was made by extractor {of_other!r}, {one} by {of_one!r}: they do not fit. "
            "Make the vectors of both with the same one"
        )
    known, unknown = (one, other) if of_other is None else (other, one)
    message = (
        f"{known} has the extractor {of_one or of_other!r}, {unknown} has no note of its own (a file ending in "
        f"{EXTRACTOR_SUFFIX}): whether they fit cannot be checked"
    )
    warnings.warn(UnknownExtractorWarning(message), stacklevel=3)
