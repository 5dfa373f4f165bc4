"""MultiviewPLDA: settings, training and the results of a fit."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from .._typing import AnyArray, Array, Device, Json, Labels, RandomState, Ranks, Views
from ..backend import checked_vectors, is_torch, threads_for
from ..exceptions import DataError, ParameterError
from ..inference.design import Design, Diagnostics, choose_ranks, diagnose, step_operations
from ..inference.em import Fit, Iteration, Objective, PublishedEM, fit_em, posterior
from ..inference.parameters import NOISES, NoiseModel, Parameters
from ..inference.priors import PRIORS
from ..labels import (
    LabelTable,
    check_view_names,
    encode_labels,
)
from ..statistics import SufficientStatistics
from ..statistics.accumulator import SecondMoment
from ..statistics.device import check_tensor
from .base import release_caches
from .caching import FittedArrays
from .checks import check_setting_names
from .latent import LatentScorer
from .plda_settings import (
    DEFAULT_STRENGTH,
    check_settings,
    prior_strengths,
    random_generator,
    requested_ranks,
)

MAX_COVARIANCE_NUMBERS = 2**22
"""Posterior covariances of a view's classes are kept up to this many numbers (32 MiB)."""

MAX_PENDING_NUMBERS = 2**25
"""Class sums up to this many numbers (256 MiB) are held with a fit until its class posteriors are asked for."""

LAZY_ATTRIBUTES = ("log_likelihoods_", "objectives_", "class_means_", "class_covariances_")
"""Attributes that are worked out from a fit when they are first read."""


class MultiviewPLDA(LatentScorer, BaseEstimator):
    """Multi-view (joint) PLDA: vectors that carry several labels at once.

    ``x = mean + sum_k loadings[k] @ z_k + noise``, where ``z_k`` belongs to the vector's class in view k. Trained by
    exact EM.

    Parameters
    ----------
    views : dict of {name: rank}, list of names, or None
        A name with colons, ``"speaker:phrase"``, is an interaction: its classes are the combinations of its parts,
        and it needs no labels of its own. A rank of None, or a list of names, means as large as the classes
        allow. ``None`` takes every column of the labels as a view. Names that results use, such as ``nothing`` and
        ``noise``, are reserved (`mvplda.labels.RESERVED_VIEWS`).
    noise : {"diagonal", "full"}
        Covariance of what no view explains.
    noise_shrinkage : float in [0, 1)
        The noise is (1 - s) times its maximum-likelihood value plus s times the total variance of every column: what
        is known of training classes is believed less of new ones. 0.02 to 0.2 helps where there are few classes;
        see `score` for how to choose it.
    prior : "isotropic" or None
        For few classes, and vectors of one length that are not whitened: the covariances of all views and of
        the noise, all of full rank, are drawn towards isotropic ones of the same variance, as an inverse Wishart
        prior does. Ranks are then None and `noise` is full. Works with one class, one vector a class, and
        fewer vectors than columns.
    prior_strength : float in [0, 1], or dict of {view or "noise": strength}
        Share of the isotropic part: 0 is maximum likelihood; at 1 the question "same in every view?" ranks like the
        cosine, questions about one of several views need not.
    noise_floor : float
        No noise variance falls below this fraction of its column's variance; of the median
        variance in columns that are constant, or nearly so, which are thereby ignored.
    algorithm : {"exact", "paper"}
        ``"paper"`` is the EM printed in arXiv 1704.06061, for comparison. Both refuse designs that leave too large a
        dense system: two crossed views with thousands of classes each.
    init : {"moments", "random"}
    max_iter, tol : int, float
        EM stops when the objective gains less than `tol` nat a vector.
    random_state : int, numpy.random.Generator, RandomState or None
        Used by a random start. A start from moments uses a little chance too, always the same where this is None.
    callback : callable or None
        Called after every iteration with an `Iteration`.

    Attributes
    ----------
    mean_ : (D,)
    loadings_ : dict of {view: (D, rank)}
    noise_ : (D,) variances, or (D, D) for full noise
    log_likelihoods_ : (iterations + 1,) exact, before every iteration and at the end. Never falls by maximum
        likelihood; may fall with a prior, with noise shrinkage, and by algorithm="paper"
    objectives_ : (iterations + 1,) log-likelihood plus the log density of the prior, up to a constant. This is what
        EM maximises, and it never falls with algorithm="exact"; empty in models of earlier versions' files
    converged_, n_iter_ : bool, int
    explained_variance_ratio_ : dict of {view: share}, and ``"noise"``
    classes_ : dict of {view: names of the training classes}, base views only
    class_means_ : dict of {view: (classes, rank)} posterior means of the training classes
    class_covariances_ : dict of {view: (classes, rank, rank)}, of base views that are not too large. These and the
        means are worked out when they are first read
    diagnostics_ : Diagnostics
    views_ : dict of {view: rank used}
    prior_strength_ : dict of {view or "noise": strength}, empty without a prior

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
    FITTED = (
        "views_",
        "mean_",
        "loadings_",
        "noise_",
        "log_likelihoods_",
        "objectives_",
        "n_iter_",
        "converged_",
        "prior_strength_",
    )
    published_em: type[PublishedEM] | partial[PublishedEM] = PublishedEM
    """The M step of algorithm="paper"; `functools.partial` of it is another reading of the paper."""

    def __init__(
        self,
        views: Ranks | Sequence[str] | None = None,
        *,
        noise: str = "diagonal",
        noise_shrinkage: float = 0.0,
        prior: Literal["isotropic"] | None = None,
        prior_strength: float | Mapping[str, float] = DEFAULT_STRENGTH,
        noise_floor: float = 1e-6,
        algorithm: Literal["exact", "paper"] = "exact",
        init: Literal["moments", "random"] = "moments",
        max_iter: int = 100,
        tol: float = 1e-3,
        random_state: RandomState = None,
        callback: Callable[[Iteration], object] | None = None,
    ) -> None:
        self.views = views
        self.noise = noise
        self.noise_shrinkage = noise_shrinkage
        self.prior = prior
        self.prior_strength = prior_strength
        self.noise_floor = noise_floor
        self.algorithm = algorithm
        self.init = init
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.callback = callback

    def fit(self, X: ArrayLike, y: Labels = None) -> Self:
        """Fit to labelled vectors.

        Parameters
        ----------
        X : array (n, D), or a torch tensor: then statistics and EM run on its device, in float64
        y : labels: dict of {view: labels}, DataFrame, Arrow table, structured array, or array (n,) or
            (n, n_views). What cuts labels into folds, such as scikit-learn's ``GridSearchCV``, needs
            one row a vector and so takes no dict: `mvplda.labels.label_rows` makes rows of a dict
        """
        check_settings(self)
        vectors = self._vectors(X, reset=True)
        table = self._encode(y)
        views = table.views
        check_view_names(views)
        self._set_strengths(views)
        # the published E step goes by cells: statistics of the interaction come from the same pass
        if self.algorithm == "paper" and len(views) == 2 and not any(":" in v for v in views):
            table = encode_labels(y, (*views, ":".join(views)))
        statistics = SufficientStatistics.from_arrays(
            vectors, table, second_moment=self._second_moment()
        )
        return self._fit(statistics, self._ranks(views))

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
        check_view_names(views)
        self._set_strengths(views)
        self._take_width(statistics.dimension)
        return self._fit(statistics, self._ranks(views), device)

    def _set_strengths(self, views: Views) -> None:
        self.prior_strength_: dict[str, float] = {}
        if PRIORS[self.prior].full_rank:
            self.prior_strength_ = prior_strengths(self.prior_strength, views)

    def _fit(
        self,
        statistics: SufficientStatistics,
        wanted: Ranks,
        device: Device = None,
    ) -> Self:
        views = tuple(wanted)
        if self.algorithm == "paper" and (len(views) > 2 or any(":" in v for v in views)):
            raise ParameterError(
                f"algorithm='paper' is for one or two views without interaction; got {list(views)}"
            )
        kind = PRIORS[self.prior]
        sums = statistics.for_views(views, self._second_moment(), device)
        asked, ranks = choose_ranks(statistics, wanted, full=kind.full_rank)
        used = tuple(ranks[view] for view in views)
        if self.algorithm == "paper":  # which is for the host
            sums = sums.on_host()
        # tables that pay within ten iterations are worth making
        iterations = min(self.max_iter, 10)
        design = Design.of(sums, used, iterations)
        noise = NoiseModel.of(
            self._noise_kind(), self.noise_floor, statistics, self.noise_shrinkage
        )
        # the same data give the same model, unless chance is asked for
        chance = self.init == "random" or self.random_state is not None
        rng = random_generator(self.random_state) if chance else np.random.default_rng(0)
        prior = kind.of(sums, noise.on(sums.xp), tuple(self.prior_strength_.values()))
        start = prior.start(sums, used, self.init, rng)
        objective: Objective = prior
        if self.algorithm == "paper":
            cell = ":".join(views)
            cells = statistics.for_views((cell,), self._second_moment()).on_host()
            objective = self.published_em(cells, noise)
        # small steps are quicker on one thread than on threads that wait for each other
        with threads_for(step_operations(design, used)):
            fit = fit_em(
                design,
                start,
                objective,
                max_iter=self.max_iter,
                tol=self.tol,
                callback=self.callback,
            )
        p = fit.parameters
        # statistics are about an origin near the data, which keeps their squares small
        self._take(views, replace(p, mean=p.mean + statistics.origin))
        self._take_fit(fit, statistics)
        lines, problems = diagnose(statistics, asked, ranks, design.plan)
        if not fit.converged and self.max_iter > 0 and self.tol > 0:
            text = f"EM stopped at max_iter={self.max_iter} before gaining less than tol={self.tol} nat a vector"
            problems.append((ConvergenceWarning, text))
        problems = [problem for problem in problems if problem[0] not in kind.needless]
        for category, text in problems:
            # of whoever called `fit`
            warnings.warn(text, category, stacklevel=3)
        self.diagnostics_ = Diagnostics(tuple(lines), tuple(text for _, text in problems))
        return self

    def log_likelihood(self, X: ArrayLike, y: Labels) -> float:
        """Log-likelihood (nat) of labelled vectors; their classes are taken as new ones."""
        check_is_fitted(self, "mean_")
        statistics = SufficientStatistics.from_arrays(
            self._vectors(X, reset=False),
            encode_labels(y, tuple(self.views_)),
            second_moment=self._second_moment(),
        )
        p = self.parameters_
        sums = statistics.for_views(tuple(self.views_), p.sigma.second_moment)
        design = Design.of(sums, p.ranks)
        # sums are about an origin, and so must the mean be
        moved = replace(p, mean=p.mean - statistics.origin)
        with threads_for(step_operations(design, p.ranks)):
            return posterior(design, moved.on(sums.xp)).log_likelihood

    def score(self, X: ArrayLike, y: Any) -> float:
        """Log-likelihood per vector (nat): what a cross-validated search maximises.

        Folds are dealt by class, so that candidates are compared on classes that they were not trained on:
        ``GridSearchCV(model, grid, cv=GroupKFold(4)).fit(X, label_rows(labels), groups=labels["speaker"])``.
        """
        return self.log_likelihood(X, y) / int(np.shape(X)[0])

    def describe(self) -> Json:
        return {
            "class": type(self).__name__,
            "dimension": len(self.mean_),
            "noise": "full" if self.noise_.ndim == 2 else self.noise,
            "views": self.views_,
            "explained_variance_ratio": self.explained_variance_ratio_,
            "classes": {view: len(names) for view, names in self.classes_.items()},
            "converged": self.converged_,
            "n_iter": self.n_iter_,
            "algorithm": self.algorithm,
        }

    @classmethod
    def with_ranks(cls, ranks: Ranks, settings: Json) -> Self:
        check_setting_names(cls, settings, ("views",))
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
        model._forget_fit()
        return model

    def _forget_fit(self) -> None:
        """The state of a model whose parameters were given, and not fitted."""
        self.__dict__.pop("_fitted", None)
        self.log_likelihoods_ = np.empty(0)
        self.objectives_ = np.empty(0)
        self.n_iter_ = 0
        self.converged_ = True
        self.prior_strength_ = {}
        self.classes_ = {}
        self.class_means_ = {}
        self.class_covariances_ = {}

    def _take(self, views: Views, parameters: Parameters) -> None:
        release_caches(self)
        # the caller's arrays stay the caller's
        loadings = map(np.array, parameters.loadings)
        self.mean_ = np.array(parameters.mean)
        self.noise_ = np.array(parameters.noise)
        self.loadings_ = dict(zip(views, loadings, strict=True))
        self.views_ = dict(zip(views, parameters.ranks, strict=True))

    def _take_fit(self, fit: Fit, statistics: SufficientStatistics) -> None:
        """Keep the fit: what it says of the training classes is worked out when it is asked for."""
        # what was worked out of an earlier fit
        for name in LAZY_ATTRIBUTES:
            self.__dict__.pop(name, None)
        self._fitted = fit
        self.n_iter_ = fit.n_iter
        self.converged_ = fit.converged
        base = [view for view in self.views_ if ":" not in view]
        self.classes_ = {view: statistics.classes[view].names for view in base}
        # large sums are worth an E step now: they would stay in memory with the model
        held = sum(math.prod(own.shape) for own in fit.design.sums.sums)
        if held > MAX_PENDING_NUMBERS:
            self._settle()

    def _settle(self) -> None:
        """Work out all that is left of the fit, so that its sums need not be kept."""
        getattr(self, "class_covariances_", None)

    @cached_property
    def log_likelihoods_(self) -> Array:
        return self._fitted.log_likelihoods

    @cached_property
    def objectives_(self) -> Array:
        return self._fitted.objectives

    def _compute_class_means(self) -> dict[str, Array]:
        # the posterior holds the means of all views in one array
        means = map(np.array, self._fitted.posterior.means)
        return dict(zip(self.views_, means, strict=True))

    def _compute_class_covariances(self) -> dict[str, Array]:
        kept = {}
        for k, (view, rank) in enumerate(self.views_.items()):
            n_classes = len(self._fitted.design.sums.counts[k])
            if ":" not in view and n_classes * rank**2 <= MAX_COVARIANCE_NUMBERS:
                kept[view] = np.array(self._fitted.posterior.covariances(k))
        # Nothing else is left to ask of the fit, and the system that its posterior has solved may be large.
        for name in LAZY_ATTRIBUTES[:-1]:
            getattr(self, name)
        del self._fitted
        return kept

    class_means_ = FittedArrays(_compute_class_means)
    class_covariances_ = FittedArrays(_compute_class_covariances)

    def __getstate__(self) -> Any:
        self._settle()  # a fit holds the sums of the training data, which stay where they are
        return super().__getstate__()

    def _encode(self, y: Any) -> LabelTable:
        return encode_labels(y, None if self.views is None else tuple(self.views))

    def _ranks(self, views: Views) -> Ranks:
        """The rank asked for of every view."""
        return requested_ranks(self.views) or dict.fromkeys(views)

    def _second_moment(self) -> SecondMoment:
        return NOISES[self._noise_kind()].second_moment

    def _noise_kind(self) -> str:
        return "full" if PRIORS[self.prior].full_rank else self.noise

    def _vectors(self, X: ArrayLike, *, reset: bool) -> AnyArray:
        """Vectors to learn from, checked: an array, or a tensor where it is."""
        least = 2 if reset else 1
        if not is_torch(X):
            return checked_vectors(self, X, reset=reset, least=least)
        X = check_tensor(X)
        if len(X) < least:
            raise DataError(
                f"a fit needs at least 2 vectors; got a tensor of shape {tuple(X.shape)}"
            )
        if reset:
            self._take_width(X.shape[1])
        elif X.shape[1] != self.n_features_in_:
            raise DataError(
                f"X has {X.shape[1]} features, but this model is expecting {self.n_features_in_} features"
            )
        return X

    def _take_width(self, width: int) -> None:
        """The width of vectors whose columns have no names."""
        self.n_features_in_ = width
        self.__dict__.pop("feature_names_in_", None)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags
