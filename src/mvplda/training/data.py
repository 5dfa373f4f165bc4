"""Checks of training data: number of classes, and data that no model can be trained on."""

from __future__ import annotations

from numpy.typing import ArrayLike

from .._typing import Array, Columns
from ..exceptions import DataError
from ..labels import encode_labels


def count_named(column: ArrayLike) -> int:
    """Return the number of classes in the labels of a view, without missing labels."""
    return len(encode_labels({"": column}).classes[""].names)


def check_training_data(X: Array, labels: Columns, *, needed: bool = True) -> None:
    """Raise `DataError` for data that no model can be trained on.

    X : (n, D) vectors
    labels : {view: (n,) labels}
    needed : whether the model requires labels
    """
    if X.ndim != 2 or len(X) < 2:
        raise DataError(f"training needs at least two vectors, shape (n, D); got {X.shape}")
    if not labels and needed:
        raise DataError(
            "training needs labels, and there are none: pass a label for every vector, such as its speaker"
        )
    for view, column in labels.items():
        if column.shape != X.shape[:1]:
            raise DataError(
                f"labels of {view!r} must have one label for each of {len(X)} vectors; got shape {column.shape}"
            )
        if count_named(column) < 2:
            raise DataError(
                f"view {view!r} has only one class, {column[0]!r}; training needs at least two: add vectors of other "
                "classes, or leave the view out"
            )
