"""What a multi-view model has to beat: cosine, and a cascade of two one-view scores."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from .._typing import AnyArray, Json, Labels
from ..backend import as_vectors, like
from ..exceptions import DataError, LabelError
from ..labels import are_named, base_columns, label_columns
from ..persistence import Tensors, fingerprint
from ..scoring.forms import ScoreForms, row_products
from .committee import Committee
from .multiview import PLDA, MultiviewPLDA
from .scorer import BaseScorer, check_names


class CosineScorer(BaseScorer, BaseEstimator):
    """Cosine of the angle between the mean of a profile and a test.

    The same calls as `MultiviewPLDA`. The score is a similarity: it counts for hypotheses in which all of its views
    are the same, and is no log-likelihood ratio: calibrate it.

    Parameters
    ----------
    centre : bool
        Take the mean of the training vectors off first.
    views : sequence of str or None
        Views that the score speaks of. None: those that the labels of `fit` name, or ``class`` without any.

    Attributes
    ----------
    mean_ : (D,) what is taken off: the mean of the training vectors, or zeros
    views_ : dict of {view: 0}
    """

    NAME = "cosine"
    NEEDS_LABELS = False
    FITTED = ("mean_", "views_")

    def __init__(self, centre: bool = True, views: Sequence[str] | None = None) -> None:
        self.centre = centre
        self.views = views

    @classmethod
    def with_ranks(cls, ranks: Mapping[str, int | None], settings: Json) -> Self:
        check_names(cls, settings, ("views",))
        return cls(**settings, views=base_columns(tuple(ranks)) if ranks else None)

    def fit(self, X: ArrayLike, y: Labels | None = None) -> Self:
        vectors = as_vectors(X)
        self.mean_ = np.zeros(vectors.shape[1])
        if self.centre:
            self.mean_ = vectors.mean(axis=0, dtype=np.float64)
        if not np.isfinite(self.mean_).all():
            raise DataError("Input X contains NaN or infinity")
        views: Sequence[str] = ("class",)
        if self.views is not None:
            views = self.views
        elif y is not None and are_named(y):
            views = tuple(label_columns(y, None))
        self.views_ = dict.fromkeys(views, 0)
        return self

    def project(self, vectors: AnyArray) -> AnyArray:
        """(n, D) the vectors about the training mean."""
        return vectors - like(self.mean_, vectors)

    def forms(self) -> ScoreForms:
        check_is_fitted(self, "mean_")
        return ScoreForms(tuple(self.views_), unit_length)

    @property
    def width_in(self) -> int:
        return len(self.mean_)

    def describe(self) -> Json:
        return {**super().describe(), "dimension": len(self.mean_), "views": list(self.views_)}

    def _key(self) -> str:
        return fingerprint({"mean": self.mean_}, {"views": list(self.views_)})


def unit_length(total: AnyArray, count: float) -> AnyArray:
    """Vectors of length 1; zero ones stay zero."""
    # the mean and the sum of a profile have one direction
    length = row_products(total, total) ** 0.5
    return total / length[:, None].clip(min=np.finfo(np.float64).tiny)


class CascadeScorer(Committee):
    """Independent one-view PLDA models, their scores fused: the usual text-dependent system.

    A committee of one model per view, each of which takes the other views for noise. In each world the
    log-likelihood ratios of the views that are the same add up.

    Parameters
    ----------
    views : dict of {view: rank}
    settings : dict or None
        Passed to every model, as `PLDA` has them.

    Attributes
    ----------
    experts_ : dict of {view: MultiviewPLDA}
    """

    NAME = "cascade"
    columns = None
    speaks_of = None
    factors = None
    known = ()
    enrolment = 1
    folds = 2

    def __init__(self, views: Mapping[str, int | None], settings: Json | None = None) -> None:
        self.views = views
        self.settings = settings

    @property
    def experts(self) -> dict[str, MultiviewPLDA]:  # type: ignore[override]
        if any(":" in view for view in self.views):
            raise LabelError("a cascade has no interaction views")
        # each sees all vectors, and takes the other views for noise
        settings = dict(self.settings or {})
        return {view: MultiviewPLDA({view: rank}, **settings) for view, rank in self.views.items()}

    @classmethod
    def with_ranks(cls, ranks: Mapping[str, int | None], settings: Json) -> Self:
        check_names(PLDA, settings, ("n_components",))
        return cls(ranks, settings)

    @classmethod
    def from_state(cls, arrays: Tensors, values: Json) -> Self:
        # its experts are no setting
        return super(Committee, cls).from_state(arrays, values)
