"""What a multi-view model has to beat: cosine, and a cascade of two one-view scores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from ..exceptions import DataError, LabelError
from ..kernel.records import Array
from ..labels import label_columns
from ..statistics import as_vectors
from ..verification.profiles import Profiles, number_ids
from .plda import PLDA


class CosineProfiles:
    """Mean directions of enrolled vectors."""

    def __init__(self, ids: NDArray[Any], counts: NDArray[np.int64], directions: Array) -> None:
        self.ids, self.counts, self.directions = ids, counts, directions

    def __len__(self) -> int:
        return len(self.ids)


class CosineScorer(BaseEstimator):
    """Cosine of the angle between the mean of a profile and a test, after centring.

    The same calls as `MultiviewPLDA`; the score is a similarity, not a likelihood ratio.

    Attributes
    ----------
    mean_ : (D,) of the training vectors
    """

    def fit(self, X: Any, y: Any = None) -> Self:
        self.mean_ = as_vectors(X).mean(axis=0, dtype=np.float64)
        return self

    def enrol(self, X: Any, ids: Any = None) -> CosineProfiles:
        """Average the vectors of every profile."""
        check_is_fitted(self, "mean_")
        vectors = as_vectors(X)
        if vectors.shape[1] != len(self.mean_):
            raise DataError(f"X has {vectors.shape[1]} features, but this scorer is expecting {len(self.mean_)}")
        names, owner = (np.arange(len(vectors)),) * 2 if ids is None else number_ids(ids, len(vectors))
        sums = np.zeros((len(names), vectors.shape[1]))
        np.add.at(sums, owner, vectors - self.mean_)
        if not np.isfinite(sums).all():
            raise DataError("Input X contains NaN or infinity")
        length = np.linalg.norm(sums, axis=1, keepdims=True)
        return CosineProfiles(names, np.bincount(owner), sums / np.where(length > 0, length, 1.0))

    def llr(self, enrol: Any, test: Any, *, dtype: Any = np.float32) -> NDArray[Any]:
        """Cosines (profiles, tests), of profiles or of arrays of single vectors."""
        sides = [side if isinstance(side, CosineProfiles) else self.enrol(side) for side in (enrol, test)]
        return np.asarray(sides[0].directions.astype(dtype) @ sides[1].directions.astype(dtype).T)


class CascadeScorer(BaseEstimator):
    """Independent one-view PLDA models, their scores fused: the usual text-dependent system.

    Every view gets its own PLDA, which takes the other views for noise. Were the scores
    independent, the LLR of "same in all views" would be  sum of all  -  log mean over the
    alternatives of exp(sum of those that are the same): that is how they are fused.

    Parameters
    ----------
    views : dict of {view: rank}
    settings : dict or None
        Passed to every `PLDA`.
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

    def enrol(self, X: Any, ids: Any = None) -> dict[str, Profiles]:
        check_is_fitted(self, "models_")
        return {view: model.enrol(X, ids) for view, model in self.models_.items()}

    def llr(self, enrol: Any, test: Any, *, same: str | None = None, dtype: Any = np.float32) -> NDArray[Any]:
        """Fused LLR of "same in every view", or the LLR of one view."""
        check_is_fitted(self, "models_")
        sides = [side if isinstance(side, dict) else self.enrol(side) for side in (enrol, test)]
        wanted = list(self.models_) if same is None else [same]
        if not set(wanted) <= set(self.models_):
            raise LabelError(f"there is no view {same!r}; there are {list(self.models_)}")
        ratios = [self.models_[view].llr(sides[0][view], sides[1][view], dtype=np.float64) for view in wanted]
        if len(ratios) == 1:
            return np.asarray(ratios[0], dtype=dtype)
        total = np.sum(ratios, axis=0)
        # sum over all subsets of exp(sum of the subset) = product of (1 + exp), less the full subset
        everything = np.sum([np.logaddexp(0.0, r) for r in ratios], axis=0)
        others = everything + np.log(-np.expm1(np.minimum(total - everything, -1e-300)))
        return np.asarray(total - others + np.log(2.0 ** len(ratios) - 1), dtype=dtype)
