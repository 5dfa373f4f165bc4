"""What a fitted model of latents can be asked: evidence and forms."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted, validate_data

from .._typing import AnyArray, Array, Names
from ..backend import like
from ..exceptions import DataError, LabelError, ParameterError
from ..inference.parameters import Parameters
from ..persistence import fingerprint
from ..scoring.latents import LatentForms, LatentSpace
from .scorer import BaseScorer, kept

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
    missing: object

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
        # evidence is linear: sums of vectors and sums of evidence are the same thing
        space = self.forms().space
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
        return self._state()[1]

    def published_forms(self) -> LatentForms:
        if len(self.views_) != 2 or any(":" in view for view in self.views_):
            raise ParameterError("scoring='paper' is for two views without interaction")
        return self.forms().as_published()

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
        self.forms().learn(view, self.class_means_[view], covariances, len(names))
        return names

    def _state(self) -> tuple[str, LatentForms]:
        """Fingerprint and forms, made anew where the parameters are others."""
        if not hasattr(self, "mean_"):
            check_is_fitted(self, "mean_")
        arrays = (self.mean_, self.noise_, *self.loadings_.values())
        return kept(self, "state", arrays, self._make_state)

    def _make_state(self) -> tuple[str, LatentForms]:
        arrays = (self.mean_, self.noise_, *self.loadings_.values())
        for array in arrays:
            # what is made of them is kept for as long as they are the same objects
            array.flags.writeable = False
        # profiles carry the fingerprint: those of another model are refused
        key = fingerprint({str(i): array for i, array in enumerate(arrays)}, {})
        return key, LatentForms(LatentSpace.of(self.parameters_), self.views_)

    def _key(self) -> str:
        return self._state()[0]
