"""What a multi-view model has to beat: cosine, and a cascade of two one-view scores."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from .._typing import Array
from ..exceptions import DataError, LabelError, ParameterError
from ..labels import label_columns
from ..scoring.profiles import Profiles, number_ids
from ..statistics import as_vectors
from .plda import PLDA
from .scorer import MatrixScorer, fingerprint


class CosineScorer(MatrixScorer, BaseEstimator):
    """Cosine of the angle between the mean of a profile and a test.

    The same calls as `MultiviewPLDA`; the score is a similarity, not a likelihood ratio, and
    knows no views.

    Parameters
    ----------
    centre : bool
        Take the mean of the training vectors off first.

    Attributes
    ----------
    mean_ : (D,) what is taken off: the mean of the training vectors, or zeros
    """

    FITTED = ("mean_",)

    def __init__(self, centre: bool = True) -> None:
        self.centre = centre

    def fit(self, X: Any, y: Any = None) -> Self:
        vectors = as_vectors(X)
        self.mean_ = vectors.mean(axis=0, dtype=np.float64) if self.centre else np.zeros(vectors.shape[1])
        return self

    def enrol(self, X: Any, ids: Any = None, labels: Any = None) -> Profiles:
        """Average the vectors of every profile."""
        check_is_fitted(self, "mean_")
        if labels is not None:
            raise ParameterError("cosine knows no views: leave labels out")
        vectors = as_vectors(X)
        if vectors.shape[1] != len(self.mean_):
            raise DataError(f"X has {vectors.shape[1]} features, but this scorer is expecting {len(self.mean_)}")
        names, owner = (np.arange(len(vectors)),) * 2 if ids is None else number_ids(ids, len(vectors))
        sums = np.zeros((len(names), vectors.shape[1]))
        np.add.at(sums, owner, vectors - self.mean_)
        if not np.isfinite(sums).all():
            raise DataError("Input X contains NaN or infinity")
        length = np.linalg.norm(sums, axis=1, keepdims=True)
        counts = np.bincount(owner)
        directions = sums / np.where(length > 0, length, 1.0)
        return Profiles(names, counts, directions, np.ones(len(names)), np.arange(len(names)), self._key())

    def _key(self) -> str:
        return fingerprint((self.mean_,))

    def _matrix(self, enrol: Profiles, test: Profiles, same: tuple[str, ...] | None, dtype: Any) -> NDArray[Any]:
        self._refuse_views(same)
        return np.asarray(enrol.y.astype(dtype) @ test.y.astype(dtype).T)

    def _pairs(self, enrol: Profiles, test: Profiles, same: tuple[str, ...] | None, dtype: Any) -> NDArray[Any]:
        self._refuse_views(same)
        return np.asarray(np.einsum("ij,ij->i", enrol.y, test.y), dtype=dtype)

    def _refuse_views(self, same: tuple[str, ...] | None) -> None:
        if same is not None:
            raise ParameterError("cosine knows no views: leave same out")


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

    def __init__(self, views: Mapping[str, int | None], settings: Mapping[str, Any] | None = None) -> None:
        self.views = views
        self.settings = settings

    def fit(self, X: Any, y: Any) -> Self:
        if any(":" in view for view in self.views):
            raise LabelError("a cascade has no interaction views")
        columns = label_columns(y, tuple(self.views))
        self.models_ = {
            view: PLDA(rank, **dict(self.settings or {})).fit(X, columns[view]) for view, rank in self.views.items()
        }
        return self

    def enrol(self, X: Any, ids: Any = None, labels: Any = None) -> Profiles:
        """Profiles of every model, their evidence side by side."""
        check_is_fitted(self, "models_")
        if labels is not None:
            raise ParameterError("a cascade takes every profile as one class of each view: leave labels out")
        parts = [model.enrol(X, ids) for model in self.models_.values()]
        return replace(parts[0], y=np.concatenate([part.y for part in parts], axis=1), model=self._key(), kept={})

    def _key(self) -> str:
        return "+".join(model._key() for model in self.models_.values())

    def _part(self, profiles: Profiles, view: str) -> Profiles:
        """The profiles as one view's model made them."""
        start = 0
        for name, model in self.models_.items():
            width = sum(model.views_.values())
            if name == view:
                return replace(profiles, y=profiles.y[:, start : start + width], model=model._key(), kept={})
            start += width
        raise LabelError(f"there is no view {view!r}; there are {list(self.models_)}")

    def _matrix(self, enrol: Profiles, test: Profiles, same: tuple[str, ...] | None, dtype: Any) -> NDArray[Any]:
        ratios = [
            self.models_[view].llr(self._part(enrol, view), self._part(test, view), dtype=np.float64)
            for view in self._asked(same)
        ]
        return np.asarray(fuse(ratios), dtype=dtype)

    def _pairs(self, enrol: Profiles, test: Profiles, same: tuple[str, ...] | None, dtype: Any) -> NDArray[Any]:
        both = np.repeat(np.arange(len(enrol))[:, None], 2, axis=1)
        ratios = [
            self.models_[view].llr_trials(self._part(enrol, view), self._part(test, view), both, dtype=np.float64)
            for view in self._asked(same)
        ]
        return np.asarray(fuse(ratios), dtype=dtype)

    def _asked(self, same: Iterable[str] | None) -> list[str]:
        asked = list(self.models_) if same is None else list(same)
        unknown = [view for view in asked if view not in self.models_]
        if unknown:
            raise LabelError(f"there is no view {unknown[0]!r}; there are {list(self.models_)}")
        return asked


def fuse(ratios: list[Array]) -> Array:
    """LLR of "same in every view" from independent LLRs of the views."""
    if len(ratios) == 1:
        return ratios[0]
    total = np.sum(ratios, axis=0)
    # sum over all subsets of exp(sum of the subset) = product of (1 + exp), less the full subset
    everything = np.sum([np.logaddexp(0.0, r) for r in ratios], axis=0)
    others = everything + np.log(-np.expm1(np.minimum(total - everything, -1e-300)))
    return np.asarray(total - others + np.log(2.0 ** len(ratios) - 1))
