"""Ordinary data to make hostile, and a fit that checks that all of the model is finite."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from problems import crossed

from mvplda import MultiviewPLDA
from mvplda.exceptions import MvpldaWarning

A, B = crossed(12, 6, 2)
LABELS: dict[str, Any] = {"a": A, "b": B}
VIEWS: dict[str, int | None] = {"a": 3, "b": 2}


def vectors(dimension: int = 5, *, seed: int = 0, noise: float = 0.5) -> np.ndarray:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(12, dimension))[A] + rng.normal(size=(6, dimension))[B]
    return X + noise * rng.normal(size=X.shape)


def fit(
    X: Any, labels: Any = LABELS, views: Any = VIEWS, **settings: Any
) -> tuple[MultiviewPLDA, set[type]]:
    """A fitted model that is finite in every part, and the warnings that came."""
    settings = {"tol": 0.0, "max_iter": 30, "random_state": 0, **settings}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = MultiviewPLDA(views, **settings).fit(X, labels)
    found = {w.category for w in caught}
    assert all(issubclass(category, MvpldaWarning) for category in found), [
        str(w.message) for w in caught
    ]
    assert {str(w.message) for w in caught} == set(model.diagnostics_.messages)
    arrays = [
        model.mean_,
        model.noise_,
        model.log_likelihoods_,
        *model.loadings_.values(),
        *model.class_means_.values(),
    ]
    assert all(np.isfinite(value).all() for value in arrays)
    sigma = model.noise_ if model.noise_.ndim == 2 else np.diag(model.noise_)
    deviations = np.sqrt(np.diag(sigma))
    assert np.linalg.eigvalsh(sigma / deviations / deviations[:, None]).min() > 0
    objectives = model._fitted.objectives
    assert np.diff(objectives).min(initial=0) >= -1e-9 * (np.abs(objectives).max(initial=0) + 1)
    if not model.noise_shrinkage:  # with it, EM raises the objective
        history = model.log_likelihoods_
        assert np.diff(history).min() >= -1e-9 * (np.abs(history).max() + 1)
    assert np.isfinite(model.log_likelihood(X, labels))
    assert np.isfinite(model.transform(X)).all()
    assert np.isfinite(model.sample(labels, random_state=0)).all()
    shares = model.explained_variance_ratio_
    assert all(0 <= share <= 1 for share in shares.values())
    return model, found
