"""What a multi-view model has to beat: cosine, and a cascade of two one-view scores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, DTypeLike
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from .._typing import Array, FloatArray
from ..backend import as_vectors
from ..exceptions import DataError, LabelError, ParameterError
from ..labels import label_columns
from ..persistence import State, Tensors, fingerprint, get_part, put_part
from ..scoring.profiles import Profiles, average_profiles
from ..scoring.question import Question
from .multiview import PLDA
from .scorer import MatrixScorer


class CosineScorer(MatrixScorer, BaseEstimator):
    """Cosine of the angle between the mean of a profile and a test.

    The same calls as `MultiviewPLDA`; the score is a similarity, not a likelihood ratio, and knows no views.

    Parameters
    ----------
    centre : bool
        Take the mean of the training vectors off first.

    Attributes
    ----------
    mean_ : (D,) what is taken off: the mean of the training vectors, or zeros
    """

    NAME = "cosine"
    NEEDS_LABELS = False
    FITTED: ClassVar[Mapping[str, str]] = {"mean_": "D"}

    def __init__(self, centre: bool = True) -> None:
        self.centre = centre

    @classmethod
    def with_ranks(cls, ranks: Mapping[str, int | None], settings: Mapping[str, Any]) -> Self:
        if ranks:
            raise ParameterError(f"cosine knows no views: leave {', '.join(ranks)} out")
        return cls(**settings)

    def fit(self, X: ArrayLike, y: Any = None) -> Self:
        vectors = as_vectors(X)
        self.mean_ = (
            vectors.mean(axis=0, dtype=np.float64) if self.centre else np.zeros(vectors.shape[1])
        )
        if not np.isfinite(self.mean_).all():
            raise DataError("Input X contains NaN or infinity")
        return self

    def enrol(self, X: ArrayLike, ids: ArrayLike | None = None, labels: Any = None) -> Profiles:
        """Average the vectors of every profile."""
        check_is_fitted(self, "mean_")
        if labels is not None:
            raise ParameterError("cosine knows no views: leave labels out")
        profiles = average_profiles(X, ids, len(self.mean_), self._key())
        centred = profiles.y - self.mean_
        length = np.linalg.norm(centred, axis=1, keepdims=True)
        return replace(profiles, y=centred / np.where(length > 0, length, 1.0))

    @property
    def width_in(self) -> int:
        return len(self.mean_)

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "dimension": len(self.mean_)}

    def _key(self) -> str:
        return fingerprint({"mean": self.mean_}, {})

    def _views(self, question: Question) -> None:
        if question.only_same("cosine") is not None:
            raise ParameterError("cosine knows no views: leave same out")

    def _matrix(
        self, enrol: Profiles, test: Profiles, views: tuple[str, ...] | None, dtype: DTypeLike
    ) -> FloatArray:
        scores: FloatArray = np.asarray(enrol.y, dtype=dtype) @ np.asarray(test.y, dtype=dtype).T
        return scores

    def _pairs(
        self, enrol: Profiles, test: Profiles, views: tuple[str, ...] | None, dtype: DTypeLike
    ) -> FloatArray:
        return np.asarray(np.einsum("ij,ij->i", enrol.y, test.y), dtype=dtype)


class CascadeScorer(MatrixScorer, BaseEstimator):
    """Independent one-view PLDA models, their scores fused: the usual text-dependent system.

    Every view gets its own PLDA, which takes the other views for noise. Were the scores
    independent, the LLR of "same in all views" would be  sum of all  -  log mean over the
    alternatives of exp(sum of those that are the same): that is how they are fused.

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

    def __init__(
        self, views: Mapping[str, int | None], settings: Mapping[str, Any] | None = None
    ) -> None:
        self.views = views
        self.settings = settings

    @classmethod
    def with_ranks(cls, ranks: Mapping[str, int | None], settings: Mapping[str, Any]) -> Self:
        return cls(ranks, settings)

    def fit(self, X: ArrayLike, y: Any = None) -> Self:
        if not self.views:
            raise ParameterError("views is empty: name at least one view")
        if any(":" in view for view in self.views):
            raise LabelError("a cascade has no interaction views")
        if y is None:
            raise LabelError(
                "a cascade requires y to be passed, but the target y is None: give labels of every view"
            )
        columns = label_columns(y, tuple(self.views))
        self.models_ = {
            view: PLDA(rank, **dict(self.settings or {})).fit(X, {view: columns[view]})
            for view, rank in self.views.items()
        }
        return self

    def enrol(self, X: ArrayLike, ids: ArrayLike | None = None, labels: Any = None) -> Profiles:
        """Profiles of every model, their evidence side by side."""
        check_is_fitted(self, "models_")
        if labels is not None:
            raise ParameterError(
                "a cascade takes every profile as one class of each view: leave labels out"
            )
        parts = [model.enrol(X, ids) for model in self.models_.values()]
        return replace(
            parts[0],
            y=np.concatenate([part.y for part in parts], axis=1),
            model=self._key(),
            kept={},
        )

    def _key(self) -> str:
        return "+".join(model._key() for model in self.models_.values())

    def _part(self, profiles: Profiles, view: str) -> Profiles:
        """The profiles as one view's model made them."""
        start = 0
        for name, model in self.models_.items():
            width = sum(model.views_.values())
            if name == view:
                return replace(
                    profiles, y=profiles.y[:, start : start + width], model=model._key(), kept={}
                )
            start += width
        raise LabelError(f"there is no view {view!r}; there are {list(self.models_)}")

    def _views(self, question: Question) -> tuple[str, ...]:
        same = question.only_same("a cascade", is_llr=True)
        asked = tuple(self.models_) if same is None else same
        if not asked:
            raise ParameterError("there is nothing to ask: name at least one view")
        unknown = [view for view in asked if view not in self.models_]
        if unknown:
            raise LabelError(f"there is no view {unknown[0]!r}; there are {list(self.models_)}")
        return asked

    def _matrix(
        self, enrol: Profiles, test: Profiles, views: tuple[str, ...] | None, dtype: DTypeLike
    ) -> FloatArray:
        ratios = [
            self.models_[view].llr(
                self._part(enrol, view), self._part(test, view), dtype=np.float64
            )
            for view in views or self.models_
        ]
        return np.asarray(fuse(ratios), dtype=dtype)

    def _pairs(
        self, enrol: Profiles, test: Profiles, views: tuple[str, ...] | None, dtype: DTypeLike
    ) -> FloatArray:
        both = np.repeat(np.arange(len(enrol))[:, None], 2, axis=1)
        ratios = [
            self.models_[view].llr_trials(
                self._part(enrol, view), self._part(test, view), both, dtype=np.float64
            )
            for view in views or self.models_
        ]
        return np.asarray(fuse(ratios), dtype=dtype)

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

    def get_state(self) -> State:
        check_is_fitted(self, "models_")
        arrays, values = super().get_state()
        values["models"] = {
            view: put_part(arrays, f"models/{view}", model, PLDA)
            for view, model in self.models_.items()
        }
        return arrays, values

    @classmethod
    def from_state(cls, arrays: Tensors, values: dict[str, Any]) -> Self:
        scorer = super().from_state(arrays, values)
        scorer.models_ = {
            view: get_part(arrays, f"models/{view}", about, PLDA)
            for view, about in values["models"].items()
        }
        return scorer


def fuse(ratios: list[Array]) -> Array:
    """LLR of "same in every view" from independent LLRs of the views."""
    if len(ratios) == 1:
        return ratios[0]
    total = np.sum(ratios, axis=0)
    # sum over all subsets of exp(sum of the subset) = product of (1 + exp), less the full subset
    everything = np.sum([np.logaddexp(0.0, r) for r in ratios], axis=0)
    others = everything + np.log(-np.expm1(np.minimum(total - everything, -1e-300)))
    return np.asarray(total - others + np.log(2.0 ** len(ratios) - 1))
