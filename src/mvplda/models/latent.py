"""Base class of scorers with latent classes (`MultiviewPLDA`): evidence, pair terms, known classes and files."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import TransformerMixin
from sklearn.utils.validation import check_is_fitted

from .._typing import AnyArray, Array, Labels, Names, RandomState
from ..backend import like
from ..exceptions import DataError, LabelError, ParameterError
from ..inference.parameters import Parameters
from ..labels import (
    base_columns,
    encode_labels,
    names_from_file,
)
from ..scoring.latent_space import KnownClasses, LatentSpace
from ..scoring.latent_terms import LatentTerms
from ..tensor_files import State, Tensors, fingerprint
from ..vector_checks import checked_vectors
from .base import BaseScorer
from .caching import FittedArrays, Snapshot, cache_of
from .plda_settings import random_generator

MAX_SAVED_CLASSES = 10_000
"""Largest number of classes in a view for which files hold the class posteriors, which known classes need."""

MAX_CLASS_MEAN = 1e6
"""Largest class mean accepted in a file; the latents are standard normal, so that larger ones are damaged data."""

PROJECTION_CHUNK = 2**22
"""Number of elements per chunk in which float32 vectors are projected."""

PARAMETERS = ("mean_", "loadings_", "noise_")
"""Names of the attributes on which all scores depend."""

CLASS_ATTRIBUTES = ("classes_", "class_means_", "class_covariances_")
"""Names of the attributes on which scores with known classes depend too."""


class LatentScorer(BaseScorer, TransformerMixin):
    """Base class of scorers with the model ``x = mean + sum_k loadings[k] @ z_k + noise``.

    ``x`` is a vector, and ``z_k`` the latent vector of its class in view k, standard normal. A
    subclass, such as `MultiviewPLDA`, has the settings and estimates the parameters.
    """

    n_features_in_: int

    mean_ = FittedArrays[Array]()
    loadings_ = FittedArrays[dict[str, Array]]()
    noise_ = FittedArrays[Array]()
    classes_ = FittedArrays[dict[str, Names]]()
    class_means_ = FittedArrays[dict[str, Array]]()
    class_covariances_ = FittedArrays[dict[str, Array]]()

    def transform(self, X: ArrayLike) -> Array:
        """Return the posterior means of the latent vectors of all views.

        Each vector is used on its own; vectors of the same class are not pooled.

        Parameters
        ----------
        X : (n, D) vectors

        Returns
        -------
        array (n, sum of ranks), the columns of one view after those of the other
        """
        check_is_fitted(self, "mean_")
        X = checked_vectors(self, X, reset=False)
        p = self.parameters_
        B = p.stacked()
        LB = p.sigma.solve(B)
        # all views at once, because they explain the same vector jointly
        gain = np.linalg.solve(np.eye(B.shape[1]) + B.T @ LB, LB.T)
        return (X - np.asarray(p.mean)) @ gain.T

    def get_feature_names_out(self, input_features: ArrayLike | None = None) -> Names:
        """Return names of the columns of `transform`, such as ``speaker0``: view and number."""
        check_is_fitted(self, "mean_")
        return np.asarray(
            [f"{v}{i}" for v, r in self.views_.items() for i in range(r)], dtype=object
        )

    def sample(self, y: Labels, random_state: RandomState = None) -> Array:
        """Draw vectors from the model: latents per class, and noise per vector.

        Parameters
        ----------
        y : labels in any form that `fit` takes, one per vector to draw
        random_state : source of random numbers, as in scikit-learn

        Returns
        -------
        (n, D) array
        """
        check_is_fitted(self, "mean_")
        table = encode_labels(y, tuple(self.views_))
        rng = random_generator(random_state)
        p = self.parameters_
        X = np.tile(p.mean, (len(table), 1))
        for view, loading in self.loadings_.items():
            latents = rng.standard_normal((len(table.classes[view]), loading.shape[1]))
            X += (latents @ loading.T)[table.codes[view]]
        return X + p.sigma.draw(len(table), rng)

    # -- evidence and pair terms ----------------------------------------------------------

    def project(self, vectors: AnyArray) -> AnyArray:
        # evidence is linear, so the evidence of a sum is the sum of evidence
        space = self.pair_terms().space
        if not isinstance(vectors, np.ndarray) or vectors.dtype == np.float64:
            return vectors @ like(space.projection, vectors) - like(space.offset, vectors)
        # converted to float64 in chunks: a copy of all vectors may not fit into memory
        chunks = np.array_split(vectors, 1 + vectors.size // PROJECTION_CHUNK)
        y = [chunk.astype(np.float64) @ space.projection for chunk in chunks]
        return np.concatenate(y) - space.offset

    def pair_terms(self) -> LatentTerms:
        snapshots = self._parameter_snapshots()

        def compute() -> LatentTerms:
            mean, loadings, noise = (snapshot.content for snapshot in snapshots)
            parameters = Parameters(mean, tuple(loadings.values()), noise)
            return LatentTerms(LatentSpace.of(parameters), self.views_)

        key = (snapshots, tuple(self.views_.items()))
        return cache_of(self).get("pair_terms", key, compute)

    def pair_terms_with_known(self, views: Sequence[str]) -> LatentTerms:
        for view in views:
            self.known_names(view)
        pair_terms = self.pair_terms()
        cache = cache_of(self)
        # class covariances may have hundreds of megabytes: only those of the known views are compared
        attributes = {name: getattr(self, name) for name in CLASS_ATTRIBUTES}
        snapshots = {
            view: [cache.snapshot(attributes, name, view) for name in CLASS_ATTRIBUTES]
            for view in views
        }

        def add_known_classes() -> LatentTerms:
            known = {}
            for view, arrays in snapshots.items():
                names, means, covariances = (snapshot.content for snapshot in arrays)
                known[view] = KnownClasses.of(means, covariances, len(names))
            return pair_terms.with_known(known)

        key = (pair_terms, *snapshots.values())
        return cache.get(("pair_terms", tuple(views)), key, add_known_classes)

    def published_pair_terms(self) -> LatentTerms:
        if len(self.views_) != 2 or any(":" in view for view in self.views_):
            raise ParameterError(
                "scoring='paper' requires two views without interaction; this model has "
                f"{list(self.views_)}: use scoring='exact'"
            )
        return self.pair_terms().as_published()

    @property
    def explained_variance_ratio_(self) -> dict[str, float]:
        """Share of the total variance per view, and of the noise: {view or "noise": share}."""
        check_is_fitted(self, "mean_")
        variances = {view: float((loading**2).sum()) for view, loading in self.loadings_.items()}
        variances["noise"] = float(self.parameters_.sigma.variances.sum())
        total = sum(variances.values())
        return {name: variance / total for name, variance in variances.items()}

    @property
    def width_in(self) -> int:
        return len(self.mean_)

    @property
    def parameters_(self) -> Parameters:
        """Parameters as a record: mean, loadings and noise."""
        return Parameters(self.mean_, tuple(self.loadings_.values()), self.noise_)

    @property
    def width_out(self) -> int:
        return sum(self.views_.values())

    def training_classes(self) -> dict[str, Names]:
        return self.classes_

    def known_names(self, view: str) -> Names:
        covariances = self.class_covariances_
        if view not in covariances:
            raise LabelError(
                f"the model has no class posteriors of view {view!r}, so that its classes cannot be known; it has "
                f"class posteriors of {list(covariances)}"
            )
        return self.classes_[view]

    def _parameter_snapshots(self) -> tuple[Snapshot, ...]:
        """Return snapshots of mean, loadings and noise: the same objects until they change."""
        attributes = vars(self)
        if "mean_" not in attributes:
            check_is_fitted(self, "mean_")
        cache = cache_of(self)
        return tuple([cache.snapshot(attributes, name) for name in PARAMETERS])

    def _key(self) -> str:
        snapshots = self._parameter_snapshots()

        def compute() -> str:
            mean, loadings, noise = (snapshot.content for snapshot in snapshots)
            arrays = (mean, noise, *loadings.values())
            # profiles store this fingerprint, so that those of another model are refused
            return fingerprint({str(i): array for i, array in enumerate(arrays)}, {})

        return cache_of(self).get("key", snapshots, compute)

    # -- files and parameters ---------------------------------------------------------

    def get_state(self) -> State:
        check_is_fitted(self, "mean_")
        arrays, values = super().get_state()
        # posteriors of many classes would be most of a file; covariances that rounding made indefinite cannot be used
        stored_views = [
            view
            for view, covariances in self.class_covariances_.items()
            if len(self.classes_[view]) <= MAX_SAVED_CLASSES and are_definite(covariances)
        ]
        values["classes"] = {view: self.classes_[view].tolist() for view in stored_views}
        for view in stored_views:
            with_names = slice(0, len(self.classes_[view]))
            arrays[f"class_means/{view}"] = np.ascontiguousarray(
                self.class_means_[view][with_names]
            )
            covariances = self.class_covariances_[view][with_names]
            if np.ptp(covariances, axis=0).max() <= 1e-12 * np.abs(covariances).max():
                # classes with equally many vectors have equal covariances, up to rounding
                covariances = covariances[:1]
            arrays[f"class_covariances/{view}"] = np.ascontiguousarray(covariances)
        return arrays, values

    @classmethod
    def from_state(cls, arrays: Tensors, values: dict[str, Any]) -> Self:
        # files of earlier versions have no objectives
        model = super().from_state({"objectives_": np.empty(0), **arrays}, values)
        # in the order of the views
        model.loadings_ = {view: model.loadings_[view] for view in model.views_}
        model.n_features_in_ = len(model.mean_)
        model.classes_ = {
            view: names_from_file(names, view) for view, names in values["classes"].items()
        }
        model.class_means_ = {view: arrays[f"class_means/{view}"] for view in model.classes_}
        model.class_covariances_ = {}
        for view, names in model.classes_.items():
            covariances = arrays[f"class_covariances/{view}"]
            if not are_definite(covariances):
                raise DataError(
                    f"class_covariances of view {view!r} in the model file must be positive definite, and at least one "
                    "is not: the file is damaged"
                )
            if len(covariances) == 1:
                covariances = np.repeat(covariances, len(names), axis=0)
            model.class_covariances_[view] = covariances
        return model

    def check_state(self) -> None:
        Parameters.given(self.mean_, self.loadings_, self.noise_)
        for view, covariances in self.class_covariances_.items():
            rank = self.views_[view]
            means = self.class_means_[view]
            # after a fit, classes of vectors without a label follow the named classes
            count = max([*means.shape[:1], len(self.classes_[view])])
            fits = means.shape == (count, rank) and covariances.shape == (count, rank, rank)
            if not fits:
                raise DataError(
                    f"class_means_ and class_covariances_ of view {view!r} must have the shapes ({count}, {rank}) and "
                    f"({count}, {rank}, {rank}); got {means.shape} and {covariances.shape}"
                )
            if not (np.isfinite(means).all() and np.isfinite(covariances).all()):
                raise DataError(
                    f"class_means_ and class_covariances_ of view {view!r} must be finite; got NaN or infinity"
                )
            # class means are those of standard normal latents
            if np.abs(means).max(initial=0.0) > MAX_CLASS_MEAN:
                raise DataError(
                    f"class_means_ of view {view!r} must lie between {-MAX_CLASS_MEAN:g} and {MAX_CLASS_MEAN:g}; "
                    f"got {means.min():g} to {means.max():g}"
                )
        super().check_state()

    def typical_vectors(self) -> Array:
        # drawn from the model, so that they have its units and mean
        classes = {view: np.arange(2) for view in base_columns(tuple(self.views_))}
        return self.sample(classes, random_state=0)


def are_definite(covariances: Array) -> bool:
    """Return whether all covariance matrices (n, r, r) are positive definite."""
    try:
        np.linalg.cholesky(covariances)
    except np.linalg.LinAlgError:
        return False
    return True
