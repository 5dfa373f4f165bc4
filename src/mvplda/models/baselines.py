"""What a multi-view model has to beat: cosine, and a cascade of two one-view scores."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from .._typing import AnyArray, Names
from ..backend import as_vectors, like
from ..exceptions import DataError, LabelError, ParameterError
from ..labels import are_named, base_columns, label_columns
from ..persistence import fingerprint
from ..scoring.forms import JointForms, Part, ScoreForms, row_products
from .multiview import PLDA
from .scorer import BaseScorer, check_names, needed_labels, side_by_side


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
    def with_ranks(cls, ranks: Mapping[str, int | None], settings: Mapping[str, Any]) -> Self:
        check_names(cls, settings, ("views",))
        return cls(**settings, views=base_columns(tuple(ranks)) if ranks else None)

    def fit(self, X: ArrayLike, y: Any = None) -> Self:
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

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "dimension": len(self.mean_), "views": list(self.views_)}

    def _key(self) -> str:
        return fingerprint({"mean": self.mean_}, {"views": list(self.views_)})


def unit_length(total: AnyArray, count: float) -> AnyArray:
    """Vectors of length 1; zero ones stay zero."""
    length = row_products(total, total) ** 0.5
    return total / length[:, None].clip(min=np.finfo(np.float64).tiny)


class CascadeScorer(BaseScorer, BaseEstimator):
    """Independent one-view PLDA models, their scores fused: the usual text-dependent system.

    Every view gets its own PLDA, which takes the other views for noise. In each world the log-likelihood ratios of
    the views that are the same add up.

    Parameters
    ----------
    views : dict of {view: rank}
    settings : dict or None
        Passed to every `PLDA`.

    Attributes
    ----------
    models_ : dict of {view: PLDA}
    """

    NAME = "cascade"
    FITTED = ("views_",)
    PARTS = ("models_",)

    def __init__(
        self, views: Mapping[str, int | None], settings: Mapping[str, Any] | None = None
    ) -> None:
        self.views = views
        self.settings = settings

    @classmethod
    def with_ranks(cls, ranks: Mapping[str, int | None], settings: Mapping[str, Any]) -> Self:
        check_names(PLDA, settings, ("n_components",))
        return cls(ranks, settings)

    def fit(self, X: ArrayLike, y: Any = None) -> Self:
        if not self.views:
            raise ParameterError("views is empty: name at least one view")
        if any(":" in view for view in self.views):
            raise LabelError("a cascade has no interaction views")
        columns = needed_labels(y, tuple(self.views))
        self.models_ = {}
        for view, rank in self.views.items():
            # each model sees all vectors, and takes the other views for noise
            model = PLDA(rank, **dict(self.settings or {}))
            self.models_[view] = model.fit(X, {view: columns[view]})
        self.views_ = {view: model.views_[view] for view, model in self.models_.items()}
        return self

    @property
    def classes_(self) -> dict[str, Any]:
        """Training classes of every view."""
        return {view: model.classes_[view] for view, model in self.models_.items()}

    def project(self, vectors: AnyArray) -> AnyArray:
        """Evidence of every model, side by side."""
        return side_by_side([model.project(vectors) for model in self.models_.values()])

    def parts(self) -> Sequence[tuple[BaseScorer, tuple[int, int]]]:
        return [(model, (0, self.width_in)) for model in self.models_.values()]

    @property
    def width_out(self) -> int:
        return sum(model.width_out for model in self.models_.values())

    def forms(self) -> JointForms:
        check_is_fitted(self, "models_")
        parts = []
        start = 0
        for view, model in self.models_.items():
            columns = slice(start, start + model.width_out)
            numbers = {view: range(len(model.classes_.get(view, ())))}
            parts.append(Part(model.forms(), columns, {view: 1.0}, numbers))
            start = columns.stop
        return JointForms(tuple(self.models_), parts)

    def known_names(self, view: str) -> Names:
        if view not in self.models_:
            return super().known_names(view)
        return self.models_[view].known_names(view)

    def _key(self) -> str:
        check_is_fitted(self, "models_")
        return "+".join(model._key() for model in self.models_.values())

    @property
    def width_in(self) -> int:
        return next(iter(self.models_.values())).width_in

    def check_state(self) -> None:
        for view, model in self.models_.items():
            if model.width_in != self.width_in:
                raise DataError(
                    f"the model of {view!r} takes width {model.width_in}, the first {self.width_in}"
                )
        super().check_state()

    def describe(self) -> dict[str, Any]:
        models = {view: model.describe() for view, model in self.models_.items()}
        return {"class": type(self).__name__, "dimension": self.width_in, **models}
