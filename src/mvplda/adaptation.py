"""Adaptation of a model to a new domain, with labels there or without.

Without labels: `shift_mean` moves the mean, and `recentred` that of the preprocessing, which matters more where
lengths are normalised behind it; `CORAL` aligns the training vectors before a model is fitted to them; `coral_plus`
aligns the covariances of a model that is fitted. How far to go is told by the vectors themselves: few of them, or
such as the old domain might have, move little. With labels: `adapt` fits to the new vectors and mixes with
`interpolate`. `adapted` does for any scorer what can be done with the vectors that there are. Every function gives a
new model and leaves the old one as it is.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping
from dataclasses import replace
from functools import partial, singledispatch
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import cholesky, eigh, solve_triangular
from sklearn.base import clone
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from ._typing import Array
from .backend import as_vectors, to_host
from .exceptions import DataError, LabelError, ParameterError, RankCappedWarning
from .inference.parameters import NOISES, Parameters, noise_of
from .labels import label_columns
from .models.baselines import CascadeScorer, CosineScorer
from .models.experts import Committee
from .models.multiview import MultiviewPLDA
from .preprocessing import _Affine

__all__ = [
    "CORAL", "adapt", "coral_plus", "covariance_share", "interpolate", "mean_share", "recentred", "shift_mean",
]  # fmt: skip

Weight = float | Mapping[str, float]
Amount = float | Literal["auto"]


class CORAL(_Affine):
    """Correlation alignment: vectors of one domain get the mean and the covariance of another.

    x -> (x - mean_source) S^(-1/2) T^(1/2) + mean_target, where S and T are the covariances of the source and the
    target. Either transform the labelled vectors of the old domain and train on them; or fit from the new domain to
    the old one, and put it before a model that is there already, in a `Bundle`.

    Parameters
    ----------
    floor : float
        Axes of the source whose variance is below this fraction of the largest are left out, as in `Whitening`.

    Attributes
    ----------
    mean_, target_mean_ : (D,)
    matrix_ : (D, D)
    """

    FITTED: ClassVar[Mapping[str, str]] = {**_Affine.FITTED, "target_mean_": "K"}

    def __init__(self, floor: float = 1e-6) -> None:
        self.floor = floor

    def fit(self, X: ArrayLike, target: Any = None) -> Self:
        """Align X (n, D), the source domain, with vectors (m, D) of the target domain; no labels."""
        if not 0 < self.floor < 1:
            raise ParameterError(f"floor lies in (0, 1); got {self.floor}")
        X = self._new(X, least=2)
        if np.ndim(target) != 2:
            raise DataError(
                "CORAL needs target=: vectors (m, D) of the domain to align with. In a Pipeline, fit it beforehand"
            )
        self.target_mean_, T = _moments(target, X.shape[1])
        self.mean_, S = _moments(X, X.shape[1])
        self.matrix_ = aligning_matrix(S, T, self.floor)
        return self

    def fit_transform(self, X: ArrayLike, target: Any = None) -> NDArray[Any]:
        """Align these vectors with those of the target domain."""
        return self.fit(X, target).transform(X)

    def transform(self, X: ArrayLike) -> NDArray[Any]:
        aligned = super().transform(X)
        return np.asarray(aligned + self.target_mean_.astype(aligned.dtype))


def aligning_matrix(source: Array, target: Array, floor: float = 1e-6) -> Array:
    """A = S^(-1/2) T^(1/2): x'A has covariance T if x has covariance S."""
    s, U = eigh(source)
    t, V = eigh(target)
    kept = s > floor * s[-1]
    return np.asarray(
        (U[:, kept] / np.sqrt(s[kept])) @ U[:, kept].T @ (V * np.sqrt(np.maximum(t, 0.0))) @ V.T
    )


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


def covariance_share(X: ArrayLike, total: Array) -> float:
    """The weight of the covariance of X (m, D) beside an old `total`, as Ledoit and Wolf choose it.

    It minimises the expected squared error of the mixture, in the coordinates in which `total` is the identity.
    """
    new, C = _moments(X, len(total))
    lower = cholesky(total, lower=True)
    Y = np.asarray(solve_triangular(lower, (np.asarray(X, dtype=np.float64) - new).T, lower=True)).T
    C = solve_triangular(lower, solve_triangular(lower, C, lower=True).T, lower=True)
    n = len(Y)
    fourth, second = float(((Y**2).sum(axis=1) ** 2).sum()), float((C**2).sum())
    error = ((n / (n - 1)) ** 2 * fourth - n * second) / (n * (n - 1))  # (U2)
    away = float(((C - np.eye(len(C))) ** 2).sum())
    return 0.0 if away == 0 else max(0.0, 1 - error / away)


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


def coral_plus(
    model: MultiviewPLDA,
    X: ArrayLike,
    *,
    strength: Weight = 1.0,
    mean: bool = True,
    ranks: Literal["keep", "all"] = "keep",
    share: Amount = "auto",
) -> MultiviewPLDA:
    """CORAL+, unsupervised: the covariances of every view and of the noise, aligned with new vectors.

    The total covariance of the model and that of X give the aligning matrix A. Every covariance C of the model is
    held against its aligned form A'CA in the basis that makes both diagonal, and grows by `strength` of what the
    aligned form has more; it never shrinks, since vectors without labels give no ground for being surer.

    Parameters
    ----------
    X : (m, D) unlabelled vectors of the new domain
    strength : float in [0, 1], or {view: strength}, with "noise"; what is not named stays
    mean : whether the mean of X becomes the model's
    ranks : "keep" cuts every view back to its rank, relative to the noise; "all" keeps what grew
    share : of the covariance of X in what it is taken to be, the rest being the model's own; "auto" is
        `covariance_share`: few vectors say little
    """
    check_is_fitted(model, "mean_")
    p, D = model.parameters_, len(model.mean_)
    new_mean, T = _moments(X, D)
    strengths = _by_part(strength, model, "strength")
    noise = p.sigma.covariance
    total = p.stacked() @ p.stacked().T + noise
    part = covariance_share(X, total) if isinstance(share, str) else share
    _check_weight("share", part)
    A = aligning_matrix(total, (1 - part) * total + part * T)
    grown = _grow(
        cholesky(noise, lower=True), A.T @ cholesky(noise, lower=True), strengths["noise"]
    )
    new_noise = grown @ grown.T
    loadings = []
    for view, B in model.loadings_.items():
        factor = _grow(B, A.T @ B, strengths[view])
        loadings.append(_cut(factor, new_noise, B.shape[1] if ranks == "keep" else D))
    kept = to_host(type(p.sigma).nearest(noise_of(new_noise)))
    return _with(model, Parameters(new_mean if mean else p.mean, tuple(loadings), kept))


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

    A model with labels goes to `adapt`. Without, its mean moves as far as is not chance, and with a `weight` its
    covariances grow by `coral_plus`. A cascade does so view by view, a committee expert by expert, and of cosine the
    mean moves, where it takes one off. Another scorer says what it does with ``@adapted.register``.

    Parameters
    ----------
    weight : how far to go, from 0 to 1; by default half the way with labels, and without them only means move:
        to adapt covariances to recordings without labels did more harm than good in the places that were tried
    """
    raise ParameterError(f"nothing is known of how to adapt a {type(scorer).__name__}")


@adapted.register
def _(
    scorer: MultiviewPLDA, X: ArrayLike, y: Any = None, weight: Weight | None = None
) -> MultiviewPLDA:
    if y is not None:
        return adapt(scorer, X, y, 0.5 if weight is None else weight)
    moved = shift_mean(scorer, X, "auto")
    return moved if weight is None else coral_plus(moved, X, strength=weight, mean=False)


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
        result.experts_[name] = adapter(scorer._see(name, vectors), y, weight)
    return result


@adapted.register
def _(
    scorer: CosineScorer, X: ArrayLike, y: Any = None, weight: float | None = None
) -> CosineScorer:
    result = copy.copy(scorer)
    if scorer.centre:
        result.mean_ = _moved(scorer.mean_, X, "auto" if weight is None else weight)
    return result


def _grow(factor: Array, aligned: Array, strength: float) -> Array:
    """Factor of C + strength (C' - C)+, the positive part in the basis that makes both diagonal.

    C = FF' and C' = GG' may be singular, so both are held against C + C', in its range.
    """
    if strength == 0:
        return factor
    Q, size, _ = np.linalg.svd(np.hstack([factor, aligned]), full_matrices=False)
    kept = size > 1e-10 * size[0]
    root = Q[:, kept] * size[kept]  # C + C' = root root'
    seen = (Q[:, kept] / size[kept]).T @ factor
    share, W = eigh(seen @ seen.T)  # C has `share` of C + C' along every axis, C' the rest
    share = np.clip(share, 0.0, 1.0)
    return np.asarray((root @ W) * np.sqrt(share + strength * np.maximum(1 - 2 * share, 0.0)))


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
    for name in ("diagnostics_", "threshold_"):
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
