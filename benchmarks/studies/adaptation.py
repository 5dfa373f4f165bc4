"""Ways to adapt a model to a new domain, with labels there or without, as new_places.py compares them.

Without labels: `shift_mean` moves the mean of a model, and `recentred` that of the preprocessing, which matters more
where lengths are normalised behind it. The vectors themselves decide how far: few of them, or such as the old domain
might have, move little. With labels: `adapt` fits to the new vectors and mixes with `interpolate`. Every function gives
a new model and leaves the old one as it is.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import solve_triangular
from sklearn.base import clone
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from mvplda import Bundle, CosineScorer, MultiviewPLDA
from mvplda._typing import Array
from mvplda.exceptions import DataError, LabelError, ParameterError, RankCappedWarning
from mvplda.inference.parameters import NOISES, Parameters, noise_of
from mvplda.vector_checks import as_vectors


def mean_share(X: ArrayLike, mean: Array) -> float:
    """How much of the way from a mean to that of X (m, D) is not chance: the weight of James and Stein, at least 0.

    Of the squared distance, as much is put down to chance as the mean of so many vectors errs by. Vectors of few
    people err by more than they show, since they depend on each other: take those of many.
    """
    vectors = _checked(X, len(mean))
    away = float(((vectors.mean(axis=0) - mean) ** 2).sum())
    if away == 0:
        return 0.0
    chance = float(vectors.var(axis=0, ddof=1).sum()) / len(vectors)
    return max(0.0, 1 - chance / away)


def shift_mean(model: MultiviewPLDA, X: ArrayLike, weight: float | None = None) -> MultiviewPLDA:
    """The model with its mean moved by `weight` of the way to the mean of X (m, D); None: as far as is not chance."""
    check_is_fitted(model, "mean_")
    p = model.parameters_
    result = _with(model, Parameters(_moved(model.mean_, X, weight), p.loadings, p.noise))
    # effects of classes are counted from the mean
    result.classes_ = model.classes_
    result.class_means_ = model.class_means_
    result.class_covariances_ = model.class_covariances_
    return result


def recentred(preprocessing: Any, X: ArrayLike, weight: float | None = None) -> Any:
    """A fitted preprocessing whose first mean is moved towards that of raw vectors X (m, D), as in `shift_mean`."""
    result = copy.deepcopy(preprocessing)
    steps = [step for _, step in result.steps] if isinstance(result, Pipeline) else [result]
    for step in steps:
        if hasattr(step, "mean_"):
            step.mean_ = _moved(np.asarray(step.mean_, dtype=np.float64), X, weight)
            break
        X = step.transform(X)
    return result


def _moved(mean: Array, X: ArrayLike, weight: float | None) -> Array:
    share = mean_share(X, mean) if weight is None else _checked_weight(weight)
    return np.asarray((1 - share) * mean + share * _checked(X, len(mean)).mean(axis=0))


def interpolate(
    model_a: MultiviewPLDA,
    model_b: MultiviewPLDA,
    weight: float = 0.5,
    *,
    mean_weight: float | None = None,
) -> MultiviewPLDA:
    """A model between two: covariances (1 - weight) of `model_a` plus weight of `model_b`, view by view.

    Loadings are only known up to a rotation, so B B' is mixed and factored again, with as many columns of a view as
    the larger of both has, strongest against the noise first. The result has no class posteriors: ``known=`` does not
    work with it.

    Parameters
    ----------
    weight : in [0, 1]
    mean_weight : of the means; default: as `weight`
    """
    for model in (model_a, model_b):
        check_is_fitted(model, "mean_")
    if set(model_a.views_) != set(model_b.views_):
        raise LabelError(
            f"the models have different views: {list(model_a.views_)} and {list(model_b.views_)}"
        )
    if len(model_a.mean_) != len(model_b.mean_):
        raise DataError(
            f"the models have different dimensions: {len(model_a.mean_)} and {len(model_b.mean_)}"
        )
    w = _checked_weight(weight)
    old = model_a.parameters_.sigma
    new = model_b.parameters_.sigma
    noise = (1 - w) * old.covariance + w * new.covariance
    if old.array.shape == new.array.shape:
        noise = (1 - w) * old.array + w * new.array
    lower = noise_of(noise).lower
    loadings = []
    for view, B in model_a.loadings_.items():
        other = model_b.loadings_[view]
        factor = np.hstack([np.sqrt(1 - w) * B, np.sqrt(w) * other])
        # the directions that stand out of the noise most
        whitened = solve_triangular(lower, factor, lower=True)
        U, size, _ = np.linalg.svd(whitened, full_matrices=False)
        rank = max(B.shape[1], other.shape[1])
        if w in (0, 1):
            rank = (other if w else B).shape[1]
        loadings.append(lower @ (U * size)[:, :rank])
    share = w if mean_weight is None else mean_weight
    mean = (1 - share) * model_a.mean_ + share * model_b.mean_
    return _with(model_a, Parameters(mean, tuple(loadings), noise))


def adapt(model: MultiviewPLDA, X: ArrayLike, y: Any, weight: float = 0.5) -> MultiviewPLDA:
    """Supervised: fit to labelled vectors of the new domain, then `interpolate` from the old model.

    Parameters
    ----------
    X, y : vectors (m, D) and labels of the new domain
    weight : of the new domain, as in `interpolate`; the mean becomes that of the new domain, which few vectors give
        well
    """
    check_is_fitted(model, "mean_")
    fresh = clone(model)
    if fresh.views is not None and fresh.prior is None:
        fresh.set_params(views=dict(model.views_))
    with warnings.catch_warnings():
        # a few new classes are what adaptation is for
        warnings.simplefilter("ignore", RankCappedWarning)
        fresh.fit(X, y)
    return interpolate(model, fresh, weight, mean_weight=1.0)


def moved(bundle: Bundle, X: ArrayLike) -> Bundle:
    """A bundle for the domain of raw vectors without labels: its means move as far as is not chance."""
    result = Bundle(recentred(bundle.preprocessing, X), bundle.scorer)
    if not isinstance(bundle.scorer, CosineScorer):
        result.scorer = shift_mean(bundle.scorer, result.prepare(X))
    return result


def _with(model: MultiviewPLDA, parameters: Parameters) -> MultiviewPLDA:
    """A copy of a model with other parameters, and without what belongs to the old ones."""
    result = copy.copy(model)
    result._take(tuple(model.views_), parameters)
    if result.prior is None:  # with one, ranks are not for settings to say
        if isinstance(result.views, Mapping):
            result.views = dict(result.views_)
        if hasattr(result, "n_components"):
            result.n_components = next(iter(result.views_.values()))
    if NOISES[result.noise].second_moment != parameters.sigma.second_moment:
        result.noise = parameters.sigma.kind
    result._forget_fit()
    for name in ("diagnostics_", "threshold_"):
        result.__dict__.pop(name, None)
    return result


def _checked(X: ArrayLike, width: int) -> Array:
    vectors = np.asarray(as_vectors(X), dtype=np.float64)
    if vectors.shape[1] != width:
        raise DataError(f"the new vectors have width {vectors.shape[1]}, expected {width}")
    if len(vectors) < 2 or not np.isfinite(vectors).all():
        raise DataError(
            f"the new domain needs at least 2 finite vectors; got {len(vectors)}, or NaN among them"
        )
    return vectors


def _checked_weight(weight: float) -> float:
    if not 0 <= weight <= 1:
        raise ParameterError(f"weight lies in [0, 1]; got {weight}")
    return float(weight)
