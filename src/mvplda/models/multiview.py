"""MultiviewPLDA and PLDA: what is set, and how they are trained."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from inspect import Signature, signature
from numbers import Integral
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from .._progress import Progress
from .._typing import AnyArray, Array, Device, RandomState
from ..backend import checked_vectors, is_torch, threads_for, to_host
from ..exceptions import (
    DataError,
    DisconnectedDesignWarning,
    LabelError,
    LikelihoodFellWarning,
    NoiseFlooredWarning,
    ParameterError,
    UnidentifiableViewWarning,
)
from ..inference.design import (
    Design,
    Diagnostics,
    Method,
    choose_ranks,
    effective_rank,
    examine,
    step_operations,
)
from ..inference.em import (
    Fit,
    Iteration,
    Posterior,
    fit_em,
    moment_start,
    paper_step,
    posterior,
    random_start,
    warm_parameters,
)
from ..inference.parameters import NOISES, NoiseModel, Parameters
from ..inference.variational import FactorisedElimination
from ..labels import LabelTable, are_named, check_view_names, encode_labels, exact_names
from ..persistence import State, Tensors, plain_settings
from ..statistics import SufficientStatistics
from ..statistics.accumulator import SecondMoment
from ..statistics.device import check_tensor
from .priors import (
    DEFAULT_STRENGTH,
    Components,
    IsotropicPrior,
    as_strengths,
    choose_strengths,
    map_step,
    moment_components,
    without_labels,
)
from .verification import LatentModel

KEPT_CLASSES = 10_000
"""Views with at most so many classes keep their training posteriors in a file, for known classes."""

KEPT_COVARIANCES = 2**22
"""Posterior covariances of a view's classes are kept up to this many numbers (32 MiB)."""


class MultiviewPLDA(LatentModel, TransformerMixin, BaseEstimator):
    """Multi-view (joint) PLDA: vectors that carry several labels at once.

    ``x = mean + sum_k loadings[k] @ z_k + noise``, where ``z_k`` belongs to the vector's class in view k. Trained by
    exact EM; where two views have too many classes each for that, by EM on a bound (see `algorithm`).

    Parameters
    ----------
    views : dict of {name: rank} or None
        A name with colons, ``"speaker:phrase"``, is an interaction: its classes are the combinations of its parts,
        and it needs no labels of its own. A rank of None means as large as the classes allow. ``None`` takes every
        column of the labels as a view.
    noise : {"diagonal", "full", "isotropic"}
        Covariance of what no view explains.
    noise_shrinkage : float in [0, 1)
        The noise is (1 - s) times its maximum-likelihood value plus s times the total variance of every column: what
        is known of training classes is believed less of new ones. 0.02 to 0.2 helps where there are few classes;
        `MultiviewPLDACV` chooses it.
    loading_shrinkage : float in [0, 1)
        Penalty s / (1 - s) a class on every view's signal-to-noise ratio: 0.5 weighs as much as the
        classes themselves.
    prior : "isotropic" or None
        For few classes, and vectors of one length that are not whitened: the covariances of all views and of
        the noise, all of full rank, are drawn towards isotropic ones of the same variance, as an inverse Wishart
        prior does. Ranks are then None and `noise` is full. Works with one class, one vector a class, fewer
        vectors than columns, and without labels (``fit(X)``), where scores rank like the cosine.
    prior_strength : float in [0, 1], dict of {view or "noise": strength}, or "auto"
        Share of the isotropic part: 0 is maximum likelihood, 1 ranks like the cosine. ``"auto"`` takes what serves
        classes that were held out best, by the calibrated cost of their pairs; see `prior_strength_`.
    noise_floor : float
        No noise variance falls below this fraction of its column's variance; of the median
        variance in columns that are constant, or nearly so, which are thereby ignored.
    algorithm : {"auto", "exact", "variational", "paper"}
        ``"exact"`` refuses designs that leave too large a dense system: two crossed views with thousands of classes
        each. ``"variational"`` takes the classes that remain after elimination as independent in the posterior: time
        and memory are linear in classes and filled cells, and `log_likelihoods_` is a lower bound, commonly within
        0.01 nat a vector. ``"auto"`` is exact where that is quick, else variational: `algorithm_used_` says which.
        ``"paper"`` is the EM printed in arXiv 1704.06061, for comparison.
    init : {"moments", "random"}
    max_iter, tol : int, float
        EM stops when the objective gains less than `tol` nat a vector.
    missing : a label that stands for "no label", besides None and NaN
    random_state : int, numpy.random.Generator, RandomState or None
        Used by a random start. A start from moments uses a little chance too, always the same where this is None.
    verbose : int
        1 shows the progress of a fit on standard error.
    callback : callable or None
        Called after every iteration with an `Iteration`.

    Attributes
    ----------
    mean_ : (D,)
    loadings_ : dict of {view: (D, rank)}
    noise_ : (D,) variances, or (D, D) for full noise
    log_likelihoods_ : (iterations + 1,) exact, before every iteration and at the end; never
        falling, except by algorithm="paper", or a little with shrinkage (then the objective never falls).
        A lower bound of the log-likelihood where `algorithm_used_` is "variational"
    algorithm_used_ : "exact", "variational" or "paper"
    converged_, n_iter_ : bool, int
    explained_variance_ratio_ : dict of {view: share}, and ``"noise"``
    classes_ : dict of {view: names of the training classes}, base views only
    class_means_ : dict of {view: (classes, rank)} posterior means of the training classes
    class_covariances_ : dict of {view: (classes, rank, rank)}, of base views that are not too large
    diagnostics_ : Diagnostics
    views_ : dict of {view: rank used}
    prior_strength_ : dict of {view or "noise": strength}, of a fit with a prior

    Examples
    --------
    >>> import numpy as np
    >>> from mvplda import MultiviewPLDA
    >>> rng = np.random.default_rng(0)
    >>> speakers, phrases = np.divmod(np.arange(600), 30)
    >>> phrases = phrases // 3
    >>> X = (rng.normal(size=(20, 8))[speakers] + rng.normal(size=(10, 8))[phrases]
    ...      + 0.3 * rng.normal(size=(600, 8)))
    >>> model = MultiviewPLDA({"speaker": 4, "phrase": 4})
    >>> model.fit(X, {"speaker": speakers, "phrase": phrases}).transform(X).shape
    (600, 8)
    """

    NAME = "multiview"

    def __init__(
        self,
        views: Mapping[str, int | None] | None = None,
        *,
        noise: str = "diagonal",
        noise_shrinkage: float = 0.0,
        loading_shrinkage: float = 0.0,
        prior: Literal["isotropic"] | None = None,
        prior_strength: float | Mapping[str, float] | Literal["auto"] = "auto",
        noise_floor: float = 1e-6,
        algorithm: Literal["auto", "exact", "variational", "paper"] = "auto",
        init: Literal["moments", "random"] = "moments",
        max_iter: int = 100,
        tol: float = 1e-3,
        missing: Any = None,
        random_state: RandomState = None,
        verbose: int = 0,
        callback: Callable[[Iteration], object] | None = None,
    ) -> None:
        self.views = views
        self.noise = noise
        self.noise_shrinkage = noise_shrinkage
        self.loading_shrinkage = loading_shrinkage
        self.prior = prior
        self.prior_strength = prior_strength
        self.noise_floor = noise_floor
        self.algorithm = algorithm
        self.init = init
        self.max_iter = max_iter
        self.tol = tol
        self.missing = missing
        self.random_state = random_state
        self.verbose = verbose
        self.callback = callback

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        if not isinstance(self.views, Mapping):
            return str(super().__repr__(N_CHAR_MAX))
        shown = copy(self)
        shown.views = _InOrder(self.views)
        return str(super(MultiviewPLDA, shown).__repr__(N_CHAR_MAX))

    def fit(self, X: ArrayLike, y: Any = None, *, weights: ArrayLike | None = None) -> Self:
        """Fit to labelled vectors.

        Parameters
        ----------
        X : array (n, D), or a torch tensor: then statistics and EM run on its device, in float64
        y : labels: dict of {view: labels}, DataFrame, Arrow table, structured array, or array (n,) or
            (n, n_views). What cuts labels into folds, such as scikit-learn's ``GridSearchCV``, needs
            one row a vector and so takes no dict: `mvplda.labels.label_rows` makes rows of a dict
        weights : (n,) positive: the noise of a vector is ``noise_`` divided by its weight, so that vectors of short
            utterances may count for less; give `enrol` weights on the same scale
        """
        if y is None and self.prior is None:
            raise LabelError(
                f"This {type(self).__name__} estimator requires y to be passed, but the target y is None: "
                "give one label a vector and view"
            )
        check_settings(self)
        X = self._vectors(X, reset=True)
        table = self._encode(without_labels(len(X), self.views) if y is None else y)
        views = table.views
        if self.prior is not None:
            strengths = 1.0 if y is None else self.prior_strength
            if isinstance(strengths, str):
                strengths = choose_strengths(to_host(X), table)
            self.prior_strength_ = dict(
                zip((*views, "noise"), as_strengths(strengths, views), strict=True)
            )
        if self.algorithm == "paper" and len(views) == 2 and not any(":" in v for v in views):
            table = encode_labels(y, (*views, ":".join(views)), missing=self.missing)
        statistics = SufficientStatistics.from_arrays(
            X, table, second_moment=self._second_moment(), weights=weights
        )
        self._fit(statistics, self._ranks(views))
        if weights is not None:
            self.log_likelihoods_ += _weights_constant(statistics, weights)
        return self

    def with_prior(
        self,
        strength: float | Mapping[str, float] = DEFAULT_STRENGTH,
        *,
        blocks: Sequence[int] = (),
        statistics: SufficientStatistics | None = None,
    ) -> MultiviewPLDA:
        """This model with its covariances drawn towards isotropic ones, at once and without a fit.

        Parameters
        ----------
        strength : in [0, 1], one for all or a dict of {view or "noise": strength}
        blocks : widths of the parts of a vector, where several extractors' stand side by side: isotropic part by part
        statistics : of the training vectors, for posteriors of the training classes (``known=``); None: these go
        """
        check_is_fitted(self, "mean_")
        D = len(self.mean_)
        if len(blocks) and (
            sum(blocks) != D or not all(isinstance(b, Integral) and b > 0 for b in blocks)
        ):
            raise ParameterError(f"blocks are widths that make {D} columns; got {list(blocks)}")
        if statistics is not None and statistics.dimension != D:
            raise DataError(f"the statistics have width {statistics.dimension}, the model {D}")
        views = tuple(self.views_)
        strengths = as_strengths(strength, views)
        found = Components.of(self.parameters_)
        p = IsotropicPrior.about(found, strengths, blocks).draw(found).parameters()
        model = MultiviewPLDA.from_parameters(
            p.mean, dict(zip(views, p.loadings, strict=True)), p.noise
        )
        model.missing = self.missing
        model.prior_strength_ = dict(zip((*views, "noise"), strengths, strict=True))
        return model if statistics is None else model._with_classes(statistics)

    def _with_classes(self, statistics: SufficientStatistics) -> Self:
        """This model, whose parameters were given, with posteriors of the classes of training vectors."""
        views, p = tuple(self.views_), self.parameters_
        design = Design.of(
            statistics.for_views(views, p.sigma.second_moment).on_host(),
            p.ranks,
            method=self._method(),
        )
        found = posterior(design, replace(p, mean=p.mean - statistics.origin))
        self._take(views, replace(found.parameters.on_host(), mean=p.mean))
        self._take_posterior(found, statistics)
        return self

    def fit_statistics(self, statistics: SufficientStatistics, *, device: Device = None) -> Self:
        """Fit to sufficient statistics, which may come from many shards.

        Parameters
        ----------
        statistics : of labelled vectors
        device : a torch device, such as ``"cuda"``, for EM to run on. None: where the statistics
            were gathered, which is the device of a tensor, and NumPy otherwise
        """
        check_settings(self)
        views = statistics.views if self.views is None else tuple(self.views)
        if self.prior is not None:
            if isinstance(self.prior_strength, str):
                raise ParameterError(
                    "prior_strength='auto' holds classes out, which needs vectors: fit(X, y) to some of them, and give "
                    "its prior_strength_"
                )
            strengths = as_strengths(self.prior_strength, views)
            self.prior_strength_ = dict(zip((*views, "noise"), strengths, strict=True))
        self.n_features_in_ = statistics.dimension
        if hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        return self._fit(statistics, self._ranks(views), device)

    def refit(self, statistics: SufficientStatistics) -> Self:
        """Fit again, from where the last fit ended, to statistics that have changed since.

        Data that were added (``old + new``) or taken out (``old - theirs``) move the optimum
        little, so that few iterations are enough.
        """
        check_is_fitted(self, "mean_")
        check_settings(self)
        if self.prior is not None and not hasattr(self, "prior_strength_"):
            raise ParameterError(
                "the strength of the prior is not known, as files of old do not hold it: use fit"
            )
        return self._fit(statistics, self._ranks(tuple(self.views_)), earlier=self.parameters_)

    def _fit(
        self,
        statistics: SufficientStatistics,
        wanted: dict[str, int | None],
        device: Device = None,
        earlier: Parameters | None = None,
    ) -> Self:
        views = tuple(wanted)
        if self.algorithm == "paper" and (len(views) > 2 or any(":" in v for v in views)):
            raise ParameterError(
                f"algorithm='paper' is for one or two views without interaction; got {list(views)}"
            )
        if self.algorithm == "paper" and self.loading_shrinkage > 0:
            raise ParameterError(
                "algorithm='paper' knows no loading_shrinkage: leave it at 0, or use 'exact'"
            )
        statistics, mean_weight = statistics.balanced()
        if earlier is not None and mean_weight != 1:
            earlier = replace(earlier, noise=earlier.noise / mean_weight)
        if self.prior is None:
            asked, ranks = choose_ranks(statistics, wanted)
        else:
            asked = ranks = dict.fromkeys(views, statistics.dimension)
        sums = statistics.for_views(views, self._second_moment(), device)
        with warnings.catch_warnings():
            if self.prior is not None:  # what the labels cannot tell, it can
                warnings.simplefilter("ignore", UnidentifiableViewWarning)
                warnings.simplefilter("ignore", DisconnectedDesignWarning)
            diagnostics = examine(statistics, views, asked, ranks)
        kind = self.noise if self.prior is None else "full"
        noise = NoiseModel.of(kind, self.noise_floor, statistics, self.noise_shrinkage)
        chance = self.init == "random" or self.random_state is not None
        rng = generator(self.random_state) if chance else np.random.default_rng(0)
        rank_tuple = tuple(ranks[v] for v in views)
        design = Design.of(
            sums, rank_tuple, iterations=min(self.max_iter, 10), method=self._method()
        )
        if self.algorithm == "paper" or design.plan.factorised:  # these are for the host
            sums = sums.on_host()
            design = replace(design, sums=sums)
        noise_there = noise.on(sums.xp)
        step: Callable[[Posterior], Parameters[Any]] | None = None
        log_prior: Callable[[Parameters[Any]], float] | None = None
        if self.prior is None:
            start = (moment_start if self.init == "moments" else random_start)(
                sums, rank_tuple, noise_there, rng
            )
        else:
            moments = moment_components(sums)
            prior = IsotropicPrior.about(moments, tuple(self.prior_strength_.values()))
            start = prior.draw(moments).parameters().on(sums.xp)
            step = partial(map_step, sums, prior=prior)
            log_prior = partial(prior.log_density, counts=(*map(len, sums.counts), sums.n))
        if earlier is not None:
            start = warm_parameters(earlier, rank_tuple, kind, statistics.origin, rng).on(sums.xp)
        if self.algorithm == "paper":
            cell = views[0] if len(views) == 1 else ":".join(views)
            step = paper_step(statistics.for_views((cell,), self._second_moment()).on_host(), noise)
        penalty = self.loading_shrinkage / (
            1 - self.loading_shrinkage
        )  # a class, as it is of the noise
        with threads_for(step_operations(design, rank_tuple)):
            fit = fit_em(
                design,
                start,
                noise_there,
                max_iter=self.max_iter,
                tol=self.tol,
                shrinkage=tuple(penalty * len(c) for c in sums.counts),
                step=step,
                log_prior=log_prior,
                callback=self._watch(statistics, design.plan.measure),
            )
        origin = statistics.origin
        own = (
            fit.parameters
            if mean_weight == 1
            else replace(fit.parameters, noise=mean_weight * fit.parameters.noise)
        )
        self._take(views, replace(own, mean=own.mean + origin))
        self.log_likelihoods_ = fit.log_likelihoods
        self.n_iter_ = len(fit.log_likelihoods) - 1
        self.converged_ = fit.converged
        used = "variational" if design.plan.factorised else "exact"
        self.algorithm_used_ = "paper" if self.algorithm == "paper" else used
        self._take_posterior(fit.posterior, statistics)
        self.diagnostics_ = self._conclude(diagnostics, design, fit, noise, views)
        return self

    def _conclude(
        self,
        found: Diagnostics,
        design: Design,
        fit: Fit,
        noise: NoiseModel,
        views: tuple[str, ...],
    ) -> Diagnostics:
        """Complete the diagnostics with what the fit showed, and warn."""
        messages = list(found.messages)

        def warn(category: type[Warning], text: str) -> None:
            messages.append(text)
            warnings.warn(text, category, stacklevel=5)

        sigma = fit.parameters.sigma
        floored = sigma.floored(noise.floor)
        if found.constant_columns:
            columns = [
                *map(str, found.constant_columns[:5]),
                *(["..."] if len(found.constant_columns) > 5 else []),
            ]
            warn(
                NoiseFlooredWarning,
                f"{len(found.constant_columns)} column(s) of X are constant, or vary by no more than rounding "
                f"({', '.join(columns)}): the model ignores them",
            )
        elif floored:
            warn(
                NoiseFlooredWarning,
                f"the noise lies on its floor in {floored} {sigma.axes}: columns are dependent, or there are too few "
                "vectors a class; use noise_shrinkage, fewer dimensions or another noise",
            )
        scale = np.abs(fit.objectives).max() + 1.0
        fell = tuple(int(i) + 1 for i in np.flatnonzero(np.diff(fit.objectives) < -1e-9 * scale))
        if fell:
            warn(
                LikelihoodFellWarning,
                f"the {design.plan.measure} fell in {len(fell)} of {self.n_iter_} iterations"
                + (
                    ": the printed algorithm does not maximise it"
                    if self.algorithm == "paper"
                    else ""
                ),
            )
        if not fit.converged and self.max_iter > 0 and self.tol > 0:
            warn(
                ConvergenceWarning,
                f"EM stopped at max_iter={self.max_iter} before gaining less than tol={self.tol} nat a vector",
            )
        views_found = {
            v: replace(
                found.views[v],
                effective_rank=effective_rank(np.linalg.norm(self.loadings_[v], axis=0)),
            )
            for v in views
        }
        return replace(
            found,
            views=views_found,
            noise_floored=floored,
            solver=design.plan.describe(views),
            bound_gap=_bound_gap(fit, found.n_vectors),
            likelihood_fell=fell,
            messages=tuple(messages),
        )

    def log_likelihood(self, X: ArrayLike, y: Any, *, weights: ArrayLike | None = None) -> float:
        """Log-likelihood (nat) of labelled vectors; their classes are taken as new ones.

        Exact; only where the design is too large for that, and `algorithm` allows it, a lower bound.
        """
        check_is_fitted(self, "mean_")
        X = self._vectors(X, reset=False)
        table = encode_labels(y, tuple(self.views_), missing=self.missing)
        moment = self._second_moment()
        statistics = SufficientStatistics.from_arrays(
            X, table, second_moment=moment, weights=weights
        )
        constant = 0.0 if weights is None else _weights_constant(statistics, weights)
        return self.log_likelihood_statistics(statistics) + constant

    def log_likelihood_statistics(self, statistics: SufficientStatistics) -> float:
        """Log-likelihood (nat) of the vectors behind sufficient statistics: see `log_likelihood`."""
        check_is_fitted(self, "mean_")
        p = self.parameters_
        if statistics.dimension != len(p.mean):
            raise DataError(
                f"the statistics have width {statistics.dimension}, the model {len(p.mean)}"
            )
        statistics, mean_weight = statistics.balanced()
        p = p if mean_weight == 1 else replace(p, noise=p.noise / mean_weight)
        sums = statistics.for_views(tuple(self.views_), p.sigma.second_moment)
        design = Design.of(sums, p.ranks, method=self._method())
        if design.plan.factorised:
            design = replace(design, sums=sums.on_host())
        return posterior(
            design, replace(p, mean=p.mean - statistics.origin).on(design.sums.xp)
        ).log_likelihood

    def score(self, X: ArrayLike, y: Any) -> float:
        """Log-likelihood a vector (nat): what a cross-validated search maximises."""
        return self.log_likelihood(X, y) / int(np.shape(X)[0])

    def transform(self, X: ArrayLike) -> Array:
        """Posterior means of every vector's latents on its own, views side by side: (n, sum of ranks)."""
        check_is_fitted(self, "mean_")
        X = checked_vectors(self, X, reset=False)
        p = self.parameters_
        B = p.stacked()
        LB = p.sigma.solve(B)
        gain = np.linalg.solve(np.eye(B.shape[1]) + B.T @ LB, LB.T)
        return np.asarray((X - p.mean) @ gain.T)

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Names of the columns of `transform`: view and number."""
        check_is_fitted(self, "mean_")
        return np.asarray(
            [f"{v}{i}" for v, r in self.views_.items() for i in range(r)], dtype=object
        )

    def sample(self, y: Any, random_state: RandomState = None) -> Array:
        """Draw vectors with these labels; every class is drawn anew from the model.

        Parameters
        ----------
        y : labels in any form that `fit` takes, one a vector to draw
        """
        check_is_fitted(self, "mean_")
        table = encode_labels(y, tuple(self.views_), missing=self.missing)
        rng = generator(random_state)
        p = self.parameters_
        X = np.tile(p.mean, (len(table), 1))
        for view, loading in self.loadings_.items():
            latents = rng.standard_normal((len(table.classes[view]), loading.shape[1]))
            X += (latents @ loading.T)[table.codes[view]]
        return X + p.sigma.draw(len(table), rng)

    def get_state(self) -> State:
        check_is_fitted(self, "mean_")
        arrays: Tensors = {
            "mean": self.mean_,
            "noise": self.noise_,
            "log_likelihoods": self.log_likelihoods_,
        }
        arrays |= {f"loading/{view}": loading for view, loading in self.loadings_.items()}
        kept = [v for v in self.class_covariances_ if len(self.classes_[v]) <= KEPT_CLASSES]
        for view in kept:
            named = slice(0, len(self.classes_[view]))
            arrays[f"class_means/{view}"] = self.class_means_[view][named]
            arrays[f"class_covariances/{view}"] = self.class_covariances_[view][named]
        values = {
            "settings": plain_settings(self.get_params(deep=False)),
            "views": self.views_,
            "dimension": len(self.mean_),
            "converged": bool(self.converged_),
            "n_iter": int(self.n_iter_),
            "algorithm_used": getattr(self, "algorithm_used_", None),
            "classes": {view: self.classes_[view].tolist() for view in kept},
        }
        if hasattr(self, "prior_strength_"):
            values["prior_strength"] = self.prior_strength_
        return {
            name: np.ascontiguousarray(value, dtype=np.float64) for name, value in arrays.items()
        }, values

    @classmethod
    def from_state(cls, arrays: Tensors, values: dict[str, Any]) -> Self:
        model = cls(**values["settings"])
        loadings = tuple(arrays[f"loading/{view}"] for view in values["views"])
        model._take(tuple(values["views"]), Parameters(arrays["mean"], loadings, arrays["noise"]))
        model.log_likelihoods_ = arrays["log_likelihoods"]
        model.n_iter_, model.converged_ = values["n_iter"], values["converged"]
        if values["algorithm_used"] is not None:
            model.algorithm_used_ = values["algorithm_used"]
        model.classes_ = {view: exact_names(names) for view, names in values["classes"].items()}
        model.class_means_ = {view: arrays[f"class_means/{view}"] for view in model.classes_}
        model.class_covariances_ = {
            view: arrays[f"class_covariances/{view}"] for view in model.classes_
        }
        model.n_features_in_ = int(values["dimension"])
        if "prior_strength" in values:
            model.prior_strength_ = {
                name: float(strength) for name, strength in values["prior_strength"].items()
            }
        return model

    def check_state(self) -> None:
        Parameters.given(self.mean_, self.loadings_, self.noise_)
        for view, covariances in self.class_covariances_.items():
            rank = self.views_[view]
            means = self.class_means_[view]
            # after a fit, vectors without a label follow the named classes
            fits = means.ndim == 2 and len(means) >= len(self.classes_[view])
            fits = fits and means.shape == (len(means), rank)
            fits = fits and covariances.shape == (len(means), rank, rank)
            if not fits or not (np.isfinite(means).all() and np.isfinite(covariances).all()):
                raise DataError(f"the classes of view {view!r} do not fit its rank {rank}")
            lowest = np.linalg.eigvalsh(covariances).min(initial=0.0)
            if lowest < -1e-6 * np.abs(covariances).max(initial=1.0):
                raise DataError(f"a covariance of the classes of view {view!r} is not definite")
        super().check_state()

    def describe(self) -> dict[str, Any]:
        return {
            "class": type(self).__name__,
            "dimension": len(self.mean_),
            "noise": self.noise,
            "views": self.views_,
            "explained_variance_ratio": self.explained_variance_ratio_,
            "classes": {view: len(names) for view, names in self.classes_.items()},
            "converged": self.converged_,
            "n_iter": self.n_iter_,
            "algorithm_used": getattr(self, "algorithm_used_", None),
        }

    @classmethod
    def with_ranks(cls, ranks: Mapping[str, int | None], settings: Mapping[str, Any]) -> Self:
        return cls(ranks, **settings)

    @classmethod
    def from_parameters(cls, mean: Any, loadings: Mapping[str, Any], noise: Any) -> Self:
        """A model with given parameters, ready to score, as though it had been fitted.

        Parameters
        ----------
        mean : (D,)
        loadings : {view: (D, rank)}
        noise : (D,) variances, or (D, D) covariance
        """
        check_view_names(tuple(loadings))
        parameters = Parameters.given(mean, loadings, noise)
        ranks = dict(zip(loadings, parameters.ranks, strict=True))
        model = cls.with_ranks(ranks, {"noise": parameters.sigma.kind})
        model._take(tuple(loadings), parameters)
        model.n_features_in_ = len(parameters.mean)
        model.log_likelihoods_ = np.empty(0)
        model.n_iter_, model.converged_ = 0, True
        model.classes_, model.class_means_, model.class_covariances_ = {}, {}, {}
        return model

    def _take(self, views: tuple[str, ...], parameters: Parameters) -> None:
        for array in (parameters.mean, parameters.noise, *parameters.loadings):
            array.flags.writeable = False  # scoring keeps what it made of them
        self.mean_, self.noise_ = parameters.mean, parameters.noise
        self.loadings_ = dict(zip(views, parameters.loadings, strict=True))
        self.views_ = dict(zip(views, parameters.ranks, strict=True))
        self._n_features_out = sum(parameters.ranks)

    def _take_posterior(self, found: Posterior, statistics: SufficientStatistics) -> None:
        """What is known of the training classes."""
        views = tuple(self.views_)
        self.classes_ = {v: statistics.classes[v].names for v in views if ":" not in v}
        self.class_means_ = dict(zip(views, found.means, strict=True))
        self.class_covariances_ = {
            v: found.covariances(k)
            for k, v in enumerate(views)
            if ":" not in v and len(found.means[k]) * self.views_[v] ** 2 <= KEPT_COVARIANCES
        }

    def _encode(self, y: Any) -> LabelTable:
        return encode_labels(
            y, None if self.views is None else tuple(self.views), missing=self.missing
        )

    def _ranks(self, views: tuple[str, ...]) -> dict[str, int | None]:
        """The rank asked for of every view."""
        return dict.fromkeys(views) if self.views is None else dict(self.views)

    def _second_moment(self) -> SecondMoment:
        return "full" if self.prior is not None else NOISES[self.noise].second_moment

    def _method(self) -> Method:
        """How posteriors are solved: the printed algorithm is judged by the exact likelihood."""
        return "exact" if self.algorithm == "paper" else self.algorithm

    def _vectors(self, X: ArrayLike, *, reset: bool) -> AnyArray:
        """Vectors to learn from, checked: an array, or a tensor where it is."""
        if not is_torch(X):
            return checked_vectors(self, X, reset=reset, least=2 if reset else 1)
        X = check_tensor(X)
        if reset:
            if len(X) < 2:
                raise DataError(
                    f"a fit needs at least 2 vectors; got a tensor of shape {tuple(X.shape)}"
                )
            self.n_features_in_ = X.shape[1]
            if hasattr(self, "feature_names_in_"):
                del self.feature_names_in_
        elif X.shape[1] != self.n_features_in_:
            raise DataError(
                f"X has {X.shape[1]} features, but this model is expecting {self.n_features_in_} features"
            )
        return X

    def _watch(self, statistics: SufficientStatistics, what: str) -> Callable[[Iteration], object]:
        progress = Progress("EM", self.max_iter) if self.verbose else None

        def watch(iteration: Iteration) -> None:
            if progress is not None:
                mean = iteration.log_likelihood / statistics.n
                progress.step(
                    iteration.number,
                    f"{what} {mean:.4f} a vector, gain {iteration.gain_per_vector:.2e}",
                )
            if self.callback is not None:
                p = iteration.parameters
                self.callback(
                    replace(iteration, parameters=replace(p, mean=p.mean + statistics.origin))
                )

        return watch

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags


class _InOrder(dict[str, Any]):
    """A dict that scikit-learn's printing, which sorts dicts, leaves in its order."""

    def __repr__(self) -> str:
        return dict.__repr__(self)


def _bound_gap(fit: Fit, n: int) -> float:
    """Nat a vector, about, by which the bound of a fit is below the log-likelihood."""
    system = fit.posterior.elimination
    return (
        system.estimate_gap(np.random.default_rng(0)) / n
        if isinstance(system, FactorisedElimination)
        else 0.0
    )


def generator(random_state: Any) -> np.random.Generator:
    """A generator of NumPy's: itself, or one that follows from whatever scikit-learn takes for a random state."""
    if isinstance(random_state, np.random.Generator):
        return random_state
    return np.random.default_rng(check_random_state(random_state).randint(2**31))


def check_settings(model: MultiviewPLDA) -> None:
    """Refuse settings of an estimator that do not exist or do not fit."""

    def choice(name: str, allowed: tuple[str, ...]) -> None:
        if getattr(model, name) not in allowed:
            raise ParameterError(f"{name} is one of {list(allowed)}; got {getattr(model, name)!r}")

    choice("noise", tuple(NOISES))
    choice("algorithm", ("auto", "exact", "variational", "paper"))
    choice("init", ("moments", "random"))
    if model.views is not None and not isinstance(model.views, Mapping):
        raise ParameterError(f"views is a dict of {{name: rank}}; got {model.views!r}")
    if model.views is not None and len(model.views) == 0:
        raise ParameterError("views is empty: name at least one view")
    if model.prior is not None:
        choice("prior", ("isotropic",))
        ranked = {view: rank for view, rank in (model.views or {}).items() if rank is not None}
        if ranked or getattr(model, "n_components", None) is not None:
            raise ParameterError("a prior makes loadings of full rank: leave every rank None")
        if isinstance(model.prior_strength, str) and model.prior_strength != "auto":
            raise ParameterError(
                f"prior_strength is a number, a dict of them or 'auto'; got {model.prior_strength!r}"
            )
        if model.noise_shrinkage or model.loading_shrinkage or model.algorithm == "paper":
            raise ParameterError(
                "a prior goes with no other shrinkage, and not with algorithm='paper'"
            )
    if not 0 <= model.noise_shrinkage < 1:
        raise ParameterError(f"noise_shrinkage lies in [0, 1); got {model.noise_shrinkage}")
    if not 0 <= model.loading_shrinkage < 1:
        raise ParameterError(f"loading_shrinkage lies in [0, 1); got {model.loading_shrinkage}")
    if not 1e-10 <= model.noise_floor < 1:
        raise ParameterError(
            f"noise_floor lies in [1e-10, 1), below which rounding drowns the likelihood; got {model.noise_floor}"
        )
    if (
        isinstance(model.max_iter, bool)
        or not isinstance(model.max_iter, Integral)
        or model.max_iter < 0
    ):
        raise ParameterError(f"max_iter is a whole number, at least 0; got {model.max_iter!r}")
    if not model.tol >= 0:
        raise ParameterError(f"tol is at least 0; got {model.tol}")


def _weights_constant(statistics: SufficientStatistics, weights: ArrayLike) -> float:
    """What weights add to the log-likelihood of statistics that were made with them."""
    each = np.asarray(weights, dtype=np.float64) * statistics.n / statistics.weight
    return 0.5 * statistics.dimension * float(np.log(each).sum())


class PLDA(MultiviewPLDA):
    """Probabilistic linear discriminant analysis: `MultiviewPLDA` with one view.

    Parameters
    ----------
    n_components : int or None
        Rank of the class loading; None means as large as the classes allow.
    noise, noise_shrinkage, ... : as in `MultiviewPLDA`

    Examples
    --------
    >>> import numpy as np
    >>> from mvplda import PLDA
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat(np.arange(50), 10)
    >>> X = rng.normal(size=(50, 6))[y] + rng.normal(size=(500, 6))
    >>> PLDA(n_components=3, noise="full").fit(X, y).transform(X).shape
    (500, 3)
    """

    NAME = "plda"

    def __init__(self, n_components: int | None = None, **settings: Any) -> None:
        super().__init__(None, **settings)
        self.n_components = n_components

    __init__.__signature__ = Signature(  # type: ignore[attr-defined]
        [
            *list(signature(__init__).parameters.values())[:2],
            *list(signature(MultiviewPLDA).parameters.values())[1:],  # but for the views
        ]
    )

    @classmethod
    def with_ranks(cls, ranks: Mapping[str, int | None], settings: Mapping[str, Any]) -> Self:
        if len(ranks) != 1:
            raise LabelError(
                f"PLDA has one view; got {len(ranks)}: {list(ranks)}. Use MultiviewPLDA"
            )
        return cls(next(iter(ranks.values())), **settings)

    def _encode(self, y: Any) -> LabelTable:
        return encode_labels(y, None if are_named(y) else ("class",), missing=self.missing)

    def _ranks(self, views: tuple[str, ...]) -> dict[str, int | None]:
        if len(views) != 1:
            raise LabelError(
                f"PLDA has one view, the labels have {len(views)}: {list(views)}. Use MultiviewPLDA"
            )
        return {views[0]: self.n_components}
