"""Cosine of the mean of a profile and a test vector."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from .._typing import AnyArray, Array, Json, Labels, Ranks
from ..backend import like
from ..exceptions import DataError
from ..labels import (
    are_named,
    base_columns,
    check_no_interactions,
    check_view_names,
    label_columns,
)
from ..scoring.pair_terms import ScoreTerms, row_products
from ..tensor_files import fingerprint
from ..vector_checks import as_vectors, check_feature_names
from .base import BaseScorer
from .checks import check_setting_names


class CosineScorer(BaseScorer, BaseEstimator):
    """Cosine of the angle between the mean of a profile and a test vector.

    Has the same methods as `MultiviewPLDA`. The score is a similarity, not a log-likelihood ratio:
    calibrate it. It takes the place of the log-likelihood of hypotheses in which all `views` are
    the same; other hypotheses have the score 0.

    Parameters
    ----------
    centre : bool
        Subtract the mean of the training vectors first.
    views : sequence of str or None
        Views that the score is about. None: the views of the labels of `fit`, or ``class`` without
        labels.

    Attributes
    ----------
    mean_ : (D,) subtracted vector: the mean of the training vectors, or zeros
    views_ : dict of {view: 0}
    """

    NAME = "cosine"
    NEEDS_LABELS = False
    FITTED = ("mean_", "views_")

    def __init__(self, centre: bool = True, views: Sequence[str] | None = None) -> None:
        self.centre = centre
        self.views = views

    @classmethod
    def with_ranks(cls, ranks: Ranks, settings: dict[str, Any]) -> Self:
        check_setting_names(cls, settings, ("views",))
        return cls(**settings, views=base_columns(tuple(ranks)) if ranks else None)

    def fit(self, X: ArrayLike, y: Labels | None = None) -> Self:
        """Compute the mean of the training vectors, or zeros without `centre`.

        Parameters
        ----------
        X : (n, D) vectors
        y : labels, only used for the names of the views; None: views from the settings, or
            ``class``

        Returns
        -------
        self
        """
        vectors = as_vectors(X)
        check_feature_names(self, X, reset=True)
        self.mean_ = np.zeros(vectors.shape[1])
        if self.centre:
            self.mean_ = vectors.mean(axis=0, dtype=np.float64)
        if not np.isfinite(self.mean_).all():
            raise DataError("Input X contains NaN or infinity: leave these vectors out")
        views: Sequence[str] = ("class",)
        if self.views is not None:
            views = self.views
        elif y is not None and are_named(y):
            views = tuple(label_columns(y, None))
        check_view_names(views)
        check_no_interactions(views, type(self).__name__)
        self.views_ = dict.fromkeys(views, 0)
        return self

    def project(self, vectors: AnyArray) -> AnyArray:
        """Return vectors minus the training mean, (n, D)."""
        centred: AnyArray = vectors - like(self.mean_, vectors)
        return centred

    def typical_vectors(self) -> Array:
        return self.mean_ + super().typical_vectors()

    def pair_terms(self) -> ScoreTerms:
        check_is_fitted(self, "mean_")
        return ScoreTerms(tuple(self.views_), unit_length)

    @property
    def width_in(self) -> int:
        return len(self.mean_)

    def describe(self) -> Json:
        return {**super().describe(), "dimension": len(self.mean_), "views": list(self.views_)}

    def _key(self) -> str:
        return fingerprint({"mean": self.mean_}, {"views": list(self.views_)})


def unit_length(total: AnyArray, count: float) -> AnyArray:
    """Return vectors scaled to length 1, (n, D); zero vectors stay zero.

    total : (n, D) sums of vectors
    count : number of vectors per sum; ignored, because it does not change the direction
    """
    # the mean and the sum of a profile have the same direction
    length = row_products(total, total) ** 0.5
    scaled: AnyArray = total / length[:, None].clip(min=np.finfo(np.float64).tiny)
    return scaled
