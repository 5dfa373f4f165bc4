"""Adaptation of a model to a new domain, with labels there or without.

Without labels: `shift_mean` moves the mean of a model, and `recentred` that of the preprocessing, which matters more
where lengths are normalised behind it. The vectors themselves decide how far: few of them, or such as the old domain
might have, move little. With labels: `adapt` fits to the new vectors and mixes with `interpolate`. `adapted` does for
any scorer what can be done with the vectors that there are. Every function gives a new model and leaves the old one
as it is.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping
from dataclasses import replace
from functools import partial, singledispatch
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import cholesky, solve_triangular
from sklearn.base import clone
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from ._typing import Array
from .backend import as_vectors
from .exceptions import DataError, LabelError, ParameterError, RankCappedWarning
from .inference.parameters import NOISES, Parameters, noise_of
from .labels import label_columns
from .models.baselines import CascadeScorer, CosineScorer
from .models.committee import Committee
from .models.multiview import MultiviewPLDA

__all__ = ["adapt", "interpolate", "mean_share", "recentred", "shift_mean"]

Weight = float | Mapping[str, float]
Amount = float | Literal["auto"]


def mean_share(X: ArrayLike, mean: Array) -> float:
    """How much of the way from a mean to that of X (m, D) is not chance: the weight of James and Stein, at least 0.

    Of the squared distance, as much is put down to chance as the mean of so many vectors errs by. Vectors of few
    people err by more than they show, since they depend on each other: take those of many.
    """
    new, C = _moments(X, len(mean))
    away = float(((new - mean) ** 2).sum())
    return (
        0.0 if away == 0 else max(0.0, 1 - float(np.trace(C)) / len(np.asarray(X)) / away)
    )  # (U1)


def shift_mean(model: MultiviewPLDA, X: ArrayLike, weight: Amount = 1.0) -> MultiviewPLDA:
    """The model with its mean moved by `weight` of the way to the mean of X (m, D); "auto": as far as is not chance."""
    check_is_fitted(model, "mean_")
    result = _with(model, replace(model.parameters_, mean=_moved(model.mean_, X, weight)))
    for name in (
        "classes_",
        "class_means_",
        "class_covariances_",
    ):  # effects of classes are counted from the mean
        setattr(result, name, getattr(model, name))
    return result


def recentred(preprocessing: Any, X: ArrayLike, weight: Amount = "auto") -> Any:
    """A fitted preprocessing whose first mean is moved towards that of raw vectors X (m, D), as in `shift_mean`."""
    result = copy.deepcopy(preprocessing)
    for step in (part for _, part in result.steps) if isinstance(result, Pipeline) else (result,):
        if hasattr(step, "mean_"):
            step.mean_ = _moved(np.asarray(step.mean_, dtype=np.float64), X, weight)
            break
        X = step.transform(X)
    return result


def _moved(mean: Array, X: ArrayLike, weight: Amount) -> Array:
    new, _ = _moments(X, len(mean))
    share = mean_share(X, mean) if isinstance(weight, str) else weight
    _check_weight("weight", share)
    return np.asarray((1 - share) * mean + share * new)


def interpolate(
    model_a: MultiviewPLDA,
    model_b: MultiviewPLDA,
    weight: Weight = 0.5,
    *,
    ranks: Literal["largest", "all"] = "largest",
) -> MultiviewPLDA:
    """A model between two: covariances (1 - w) of `model_a` plus w of `model_b`, view by view.

    Loadings are only known up to a rotation, so B B' is mixed and factored again. The
    result has no class posteriors: ``known=`` does not work with it.

    Parameters
    ----------
    weight : float in [0, 1], or {view: weight}, with "noise" and "mean"; what is not named
        stays as in `model_a`
    ranks : "largest" keeps as many columns of a view as the larger of both has, strongest
        against the noise first; "all" keeps all, at most the dimension
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
    weights = _by_part(weight, model_a, "weight", "mean")
    noise = model_a.parameters_.sigma.mixed(model_b.parameters_.sigma, weights["noise"])
    loadings = []
    for view, B in model_a.loadings_.items():
        w, other = weights[view], model_b.loadings_[view]
        if w in (0, 1):
            loadings.append((B if w == 0 else other).copy())
            continue
        most = max(B.shape[1], other.shape[1]) if ranks == "largest" else len(B)
        loadings.append(
            _cut(
                np.hstack([np.sqrt(1 - w) * B, np.sqrt(w) * other]),
                noise_of(noise).covariance,
                most,
            )
        )
    mean = (1 - weights["mean"]) * model_a.mean_ + weights["mean"] * model_b.mean_
    return _with(model_a, Parameters(mean, tuple(loadings), noise))


def adapt(
    model: MultiviewPLDA, X: ArrayLike, y: Any, weight: Weight = 0.5, **settings: Any
) -> MultiviewPLDA:
    """Supervised: fit to labelled vectors of the new domain, then `interpolate` from the old model.

    Parameters
    ----------
    X, y : vectors (m, D) and labels of the new domain
    weight : of the new domain, as in `interpolate`; the mean becomes that of the new domain,
        which few vectors give well, unless `weight` names "mean"
    settings : of the fit, where they differ from the old model's, for example noise_shrinkage=0.1
    """
    check_is_fitted(model, "mean_")
    fresh = clone(model)
    if fresh.get_params(deep=False).get("views") is not None and fresh.prior is None:
        fresh.set_params(views=dict(model.views_))
    fresh.set_params(**settings)
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", RankCappedWarning
        )  # a few new classes are what adaptation is for
        fresh.fit(X, y)
    weights = weight if isinstance(weight, Mapping) else _by_part(weight, model, "weight")
    return interpolate(model, fresh, {"mean": 1.0, **weights})


@singledispatch
def adapted(scorer: Any, X: ArrayLike, y: Any = None, weight: Weight | None = None) -> Any:
    """A scorer for the domain of new vectors (m, D), with labels or without.

    A model with labels goes to `adapt`. Without, its mean moves as far as is not chance. A cascade does so view by
    view, a committee expert by expert; of cosine the mean moves, where it takes one off. For another scorer,
    ``@adapted.register`` a function.

    Parameters
    ----------
    weight : of the new domain where there are labels, from 0 to 1, by default 0.5
    """
    raise ParameterError(f"there is no way to adapt a {type(scorer).__name__}")


@adapted.register
def _(
    scorer: MultiviewPLDA, X: ArrayLike, y: Any = None, weight: Weight | None = None
) -> MultiviewPLDA:
    if y is None:
        _refuse_weight(weight)
        return shift_mean(scorer, X, "auto")
    return adapt(scorer, X, y, 0.5 if weight is None else weight)


def _refuse_weight(weight: Weight | None) -> None:
    if weight is not None:
        raise ParameterError(
            "a weight is for vectors with labels: without them only means move, as far as is not chance"
        )


@adapted.register
def _(
    scorer: CascadeScorer, X: ArrayLike, y: Any = None, weight: float | None = None
) -> CascadeScorer:
    labels = {} if y is None else label_columns(y, tuple(scorer.models_))
    result = copy.copy(scorer)
    own = {
        view: next(iter(model.views_)) for view, model in scorer.models_.items()
    }  # "class" in files of old
    result.models_ = {
        view: adapted(model, X, {own[view]: labels[view]} if view in labels else None, weight)
        for view, model in scorer.models_.items()
    }
    return result


@adapted.register
def _(scorer: Committee, X: ArrayLike, y: Any = None, weight: float | None = None) -> Committee:
    vectors = as_vectors(X)
    result = copy.copy(scorer)
    result.experts_, result.calibrator_ = {}, None
    for name, expert in scorer.experts_.items():
        adapter = expert.adapt if hasattr(expert, "adapt") else partial(adapted, expert)
        result.experts_[name] = adapter(vectors[:, slice(*scorer._columns_of(name))], y, weight)
    return result


@adapted.register
def _(
    scorer: CosineScorer, X: ArrayLike, y: Any = None, weight: float | None = None
) -> CosineScorer:
    result = copy.copy(scorer)
    if scorer.centre:
        result.mean_ = _moved(scorer.mean_, X, "auto" if weight is None else weight)
    return result


def _cut(factor: Array, noise: Array, rank: int) -> Array:
    """At most `rank` columns with nearly the same FF', the directions that stand out of the noise most."""
    lower = cholesky(noise, lower=True)
    U, size, _ = np.linalg.svd(solve_triangular(lower, factor, lower=True), full_matrices=False)
    rank = min(rank, len(size))
    return np.asarray(lower @ (U[:, :rank] * size[:rank]))


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
    result.classes_, result.class_means_, result.class_covariances_ = {}, {}, {}
    result.log_likelihoods_, result.n_iter_, result.converged_ = np.zeros(0), 0, True
    for name in ("diagnostics_", "threshold_", "_fitted"):
        result.__dict__.pop(name, None)
    return result


def _moments(X: ArrayLike, width: int) -> tuple[Array, Array]:
    vectors = np.asarray(as_vectors(X), dtype=np.float64)
    if vectors.shape[1] != width:
        raise DataError(f"the new vectors have width {vectors.shape[1]}, expected {width}")
    if len(vectors) < 2 or not np.isfinite(vectors).all():
        raise DataError(
            f"the new domain needs at least 2 finite vectors; got {len(vectors)}, or NaN among them"
        )
    mean = vectors.mean(axis=0)
    return mean, np.atleast_2d(np.cov(vectors.T))


def _by_part(weight: Weight, model: MultiviewPLDA, name: str, *more: str) -> dict[str, float]:
    parts = [*model.views_, "noise", *more]
    if not isinstance(weight, Mapping):
        weight = dict.fromkeys(parts, weight)
    unknown = [part for part in weight if part not in parts]
    if unknown:
        raise LabelError(f"{name} names {unknown[0]!r}; the parts are {parts}")
    for part, value in weight.items():
        _check_weight(f"{name} of {part}", value)
    return {part: float(weight.get(part, 0.0)) for part in parts}


def _check_weight(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise ParameterError(f"{name} lies in [0, 1]; got {value}")
