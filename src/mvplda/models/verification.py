"""What a fitted model of latents can be asked: evidence, forms, decisions."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from typing import Any, NamedTuple, Self
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data

from .._typing import AnyArray, Array, IntArray, Names
from ..backend import like
from ..costs import DetectionCost
from ..exceptions import DataError, LabelError, ParameterError
from ..inference.parameters import Parameters
from ..persistence import fingerprint
from ..scoring.latents import LatentForms, LatentSpace
from .scorer import BaseScorer

PROJECT_ELEMENTS = 2**22
"""float32 vectors are projected in chunks of about this many numbers."""


class LatentModel(BaseScorer):
    """A model that was fitted, or whose parameters were given: `MultiviewPLDA` besides its training."""

    views_: dict[str, int]
    mean_: Array
    loadings_: dict[str, Array]
    noise_: Array
    classes_: dict[str, Names]
    class_means_: dict[str, Array]
    class_covariances_: dict[str, Array]
    log_likelihoods_: Array
    missing: Any

    def evidence(self, X: ArrayLike) -> AnyArray:
        """(n, r) what every vector says about the latents of its classes, in float64."""
        if hasattr(X, "columns"):
            check_is_fitted(self, "mean_")
            try:
                # the features' names and their order
                validate_data(self, X, reset=False, skip_check_array=True)
            except ValueError as error:
                raise DataError(str(error)) from error
        return super().evidence(X)

    def project(self, vectors: AnyArray) -> AnyArray:
        space = self._state().forms.space
        if not isinstance(vectors, np.ndarray) or vectors.dtype == np.float64:
            return vectors @ like(space.projection, vectors) - like(space.offset, vectors)
        y = np.empty((len(vectors), len(space.offset)))
        step = max(1, PROJECT_ELEMENTS // self.width_in)
        # float32 vectors are made float64 a chunk at a time: a copy of all of them may not fit
        for start in range(0, len(vectors), step):
            block = vectors[start : start + step].astype(np.float64)
            np.matmul(block, space.projection, out=y[start : start + step])
        y -= space.offset
        return y

    def forms(self) -> LatentForms:
        return self._state().forms

    def published_forms(self) -> LatentForms:
        if len(self.views_) != 2 or any(":" in view for view in self.views_):
            raise ParameterError("scoring='paper' is for two views without interaction")
        return self.forms().as_published()

    def _has_threshold(self) -> bool:
        if not hasattr(self, "threshold_"):
            raise AttributeError(
                "there is no threshold yet: call set_threshold or set_threshold_from_costs first"
            )
        return True

    # scikit-learn calls these of whatever has them with vectors (n, D). Only a model that was given a threshold is a
    # judge of pairs (n, 2, D), and has them.

    @available_if(_has_threshold)  # type: ignore[untyped-decorator]
    def decision_function(self, pairs: ArrayLike, **asked: Any) -> Any:
        """LLR of every pair of vectors, pairs (n, 2, D); see `set_threshold`."""
        pairs = np.asarray(pairs)
        if pairs.ndim != 3 or pairs.shape[1] != 2:
            raise DataError(f"pairs have shape (n, 2, D); got {pairs.shape}. Reshape your data")
        both = np.repeat(np.arange(len(pairs))[:, None], 2, axis=1)
        return self.llr_trials(pairs[:, 0], pairs[:, 1], both, dtype=np.float64, **asked)

    @available_if(_has_threshold)  # type: ignore[untyped-decorator]
    def predict(self, pairs: ArrayLike) -> IntArray:
        """1 for pairs (n, 2, D) whose LLR is at or above the threshold, -1 for the others."""
        return np.where(np.asarray(self.decision_function(pairs)) >= self.threshold_, 1, -1)

    def set_threshold(self, threshold: float) -> Self:
        """Accept pairs whose LLR is at least this."""
        self.threshold_ = float(threshold)
        return self

    def set_threshold_from_costs(
        self, prior: float = 0.01, miss_cost: float = 1.0, false_alarm_cost: float = 1.0
    ) -> Self:
        """The threshold that is best for calibrated LLRs, a prior of "same", and costs of errors."""
        return self.set_threshold(
            DetectionCost("own", prior, miss_cost, false_alarm_cost).threshold
        )

    @property
    def explained_variance_ratio_(self) -> dict[str, float]:
        """Share of the total variance of every view, and of the noise."""
        check_is_fitted(self, "mean_")
        parts = {view: float((loading**2).sum()) for view, loading in self.loadings_.items()}
        parts["noise"] = float(self.parameters_.sigma.variances.sum())
        total = sum(parts.values())
        return {name: part / total for name, part in parts.items()}

    @property
    def width_in(self) -> int:
        return len(self.mean_)

    @property
    def parameters_(self) -> Parameters:
        """Mean, loadings and noise as the kernel's record."""
        return Parameters(self.mean_, tuple(self.loadings_.values()), self.noise_)

    @property
    def width_out(self) -> int:
        return sum(self.views_.values())

    def known_names(self, view: str) -> Names:
        covariances = self.class_covariances_.get(view)
        if covariances is None:
            raise LabelError(
                f"the model keeps no class posteriors of a view {view!r}; it does of {list(self.class_covariances_)}"
            )
        names = self.classes_[view]
        self._state().forms.learn(view, self.class_means_[view], covariances, len(names))
        return names

    def _state(self) -> _State:
        """What scoring keeps of this model, made anew where its parameters have changed."""
        state = _STATES.get(self)
        if state is None:
            check_is_fitted(self, "mean_")
        arrays = (self.mean_, self.noise_, *self.loadings_.values())
        # arrays that cannot be written to are the same as long as they are the same objects
        if state is not None and len(state.arrays) == len(arrays):
            pairs = zip(arrays, state.arrays, strict=True)
            if all(a is b and not a.flags.writeable for a, b in pairs):
                return state
        # profiles carry this: those of another model are refused
        key = fingerprint({str(i): array for i, array in enumerate(arrays)}, {})
        if state is None or state.key != key:
            forms = LatentForms(LatentSpace.of(self.parameters_), self.views_)
            state = _State(key, arrays, forms)
            _STATES[self] = state
        return state

    def _key(self) -> str:
        return self._state().key


class _State(NamedTuple):
    """What scoring keeps of a model from call to call: its fingerprint, its parameters and its forms."""

    key: str
    arrays: tuple[Array, ...]
    forms: LatentForms


_STATES: WeakKeyDictionary[LatentModel, _State] = WeakKeyDictionary()
"""Outside the models, which scoring must leave as they are."""
