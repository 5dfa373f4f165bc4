"""`MultiviewPLDA`: the model's settings, its training, and the results of a fit."""

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

from .._progress import show_line
from .._typing import AnyArray, Array, Device, Json, Labels, RandomState, Ranks, Views
from ..backend import is_torch, threads_for
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
from ..vector_checks import checked_vectors
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
"""Largest number of elements (32 MiB) of a view's class covariances; larger ones are not computed."""

MAX_PENDING_NUMBERS = 2**25
"""Largest number of elements (256 MiB) of class sums that stay in memory until the class posteriors are computed."""

LAZY_ATTRIBUTES = ("log_likelihoods_", "objectives_", "class_means_", "class_covariances_")
"""Attributes that are computed from a fit when they are first read."""


class MultiviewPLDA(LatentScorer, BaseEstimator):
    """Multi-view (joint) PLDA: a model of vectors that carry several labels at once.

    ``x = mean + sum_k loadings[k] @ z_k + noise``, where ``z_k`` is the latent vector of x's class
    in view k. Trained by exact EM.

    Parameters
    ----------
    views : dict of {name: rank}, list of names, or None
        A name with colons, ``"speaker:phrase"``, is an interaction: its classes are combinations of
        classes of its base views, so it has no labels. A rank of None, or a list of names, means
        the largest rank that the classes allow. ``None`` takes each column of the labels as a view.
        Names that results use, such as ``nothing`` and ``noise``, are reserved
        (`mvplda.labels.RESERVED_VIEWS`).
    noise : {"diagonal", "full"}
        Covariance of the residual that no view explains.
    noise_shrinkage : float in [0, 1)
        Shrinks the noise towards the total variance: with shrinkage s, to (1 - s) times its
        maximum-likelihood value plus s times the total variance of each dimension. Reduces
        over-fitting with few training classes; 0.02 to 0.2 are useful values. `score` describes how
        to choose it.
    prior : "isotropic" or None
        For few classes, and for unwhitened vectors of unit length: shrinks the full-rank
        covariances of all views and of the noise towards isotropic ones of the same variance, as an
        inverse Wishart prior does. Ranks must be None; `noise` is full. Well defined even with a
        single class, one vector per class, or fewer vectors than dimensions.
    prior_strength : float in [0, 1], or dict of {view or "noise": strength}
        Share of the isotropic covariance: 0 is maximum likelihood. At 1, "same in every view?"
        gives the same ranking as the cosine; questions about one of several views may not.
    noise_floor : float
        Lower limit of each noise variance, as a fraction of its dimension's variance. For (nearly)
        constant dimensions it is a fraction of the median variance, so that they have no effect.
    algorithm : {"exact", "paper"}
        ``"paper"`` is the EM published in arXiv 1704.06061, for comparison. Both raise
        `DesignTooLargeError` if the equations of the latents do not fit in memory, for example for
        two crossed views with thousands of classes each.
    init : {"moments", "random"}
        Starting point of EM: moments of the data, or random loadings.
    max_iter : int
        Largest number of EM iterations.
    tol : float
        EM stops when the objective gains less than `tol` nats per vector.
    random_state : int, numpy.random.Generator, RandomState or None
        Source of random numbers for the start of EM. ``init="moments"`` needs a few too; with None
        these are the same in every fit.
    callback : callable or None
        Called after every iteration with an `Iteration`.
    verbose : int
        1 writes a line per iteration to standard error.

    Attributes
    ----------
    mean_ : (D,)
    loadings_ : dict of {view: (D, rank)}
    noise_ : (D,) variances, or (D, D) for full noise
    log_likelihoods_ : (iterations + 1,) log-likelihood before every iteration and at the end. Never
        falls with maximum likelihood; may fall with a prior, with noise shrinkage, or with
        algorithm="paper"
    objectives_ : (iterations + 1,) log-likelihood plus the log density of the prior, up to a
        constant. EM maximises it, and it never falls with algorithm="exact"; empty in models from
        files of earlier versions
    converged_ : bool, whether EM stopped because of `tol`
    n_iter_ : int, number of iterations
    explained_variance_ratio_ : dict of {view or "noise": share of the total variance}
    classes_ : dict of {view: names of the training classes}, base views only
    class_means_ : dict of {view: (classes, rank)} posterior means of the training classes
    class_covariances_ : dict of {view: (classes, rank, rank)}, of base views that are not too
        large. Means and covariances are computed when they are first read
    diagnostics_ : Diagnostics, description of the training data with all warnings
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
    """Class of the M step of algorithm="paper"; a `functools.partial` of it selects another
    interpretation of the paper.
    """

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
        verbose: int = 0,
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
        self.verbose = verbose

    def fit(self, X: ArrayLike, y: Labels | None = None) -> Self:
        """Fit to labelled vectors.

        Parameters
        ----------
        X : array (n, D), or a torch tensor: then statistics and EM run on its device, in float64
        y : labels: dict of {view: labels}, DataFrame, Arrow table, structured array, or array (n,)
            or (n, n_views). Tools that split labels into folds, such as scikit-learn's
            ``GridSearchCV``, need one row per vector: `mvplda.labels.label_rows` converts a dict to
            rows

        Returns
        -------
        self
        """
        check_settings(self)
        vectors = self._vectors(X, reset=True)
        table = self._encode(y)
        views = table.views
        check_view_names(views)
        self._set_strengths(views)
        # the published E step needs the statistics of cells, which the same pass over the data computes
        if self.algorithm == "paper" and len(views) == 2 and not any(":" in v for v in views):
            table = encode_labels(y, (*views, ":".join(views)))
        statistics = SufficientStatistics.from_arrays(
            vectors, table, second_moment=self._second_moment()
        )
        return self._fit(statistics, self._ranks(views))

    def fit_statistics(self, statistics: SufficientStatistics, *, device: Device = None) -> Self:
        """Fit to sufficient statistics, which may be merged from many shards.

        Parameters
        ----------
        statistics : sufficient statistics of labelled vectors
        device : torch device that EM runs on, such as ``"cuda"``. None: the device of the
            statistics, which is that of the tensor they were computed from, or the host

        Returns
        -------
        self
        """
        check_settings(self)
        views = statistics.views if self.views is None else tuple(self.views)
        check_view_names(views)
        self._set_strengths(views)
        self._take_width(statistics.dimension)
        return self._fit(statistics, self._ranks(views), device)

    def _set_strengths(self, views: Views) -> None:
        """Set the strength of the prior for each view and the noise."""
        self.prior_strength_: dict[str, float] = {}
        if PRIORS[self.prior].full_rank:
            self.prior_strength_ = prior_strengths(self.prior_strength, views)

    def _fit(
        self,
        statistics: SufficientStatistics,
        view_ranks: Ranks,
        device: Device = None,
    ) -> Self:
        """Fit to statistics, store the results, and warn of problems of the data.

        statistics : statistics of the training data
        view_ranks : {view: requested rank, None for the largest}
        device : torch device of EM; None: that of the statistics
        """
        views = tuple(view_ranks)
        if self.algorithm == "paper" and (len(views) > 2 or any(":" in v for v in views)):
            raise ParameterError(
                f"algorithm='paper' requires one or two views without interaction; got {list(views)}: "
                "use algorithm='exact'"
            )
        kind = PRIORS[self.prior]
        sums = statistics.for_views(views, self._second_moment(), device)
        requested, ranks = choose_ranks(statistics, view_ranks, full=kind.full_rank)
        used = tuple(ranks[view] for view in views)
        if self.algorithm == "paper":  # runs in NumPy only
            sums = sums.on_host()
        # compute tables only if they save time within ten iterations
        iterations = min(self.max_iter, 10)
        design = Design.of(sums, used, iterations)
        noise = NoiseModel.of(
            self._noise_kind(), self.noise_floor, statistics, self.noise_shrinkage
        )
        # the same data give the same model, unless the settings request a random start
        chance = self.init == "random" or self.random_state is not None
        rng = random_generator(self.random_state) if chance else np.random.default_rng(0)
        prior = kind.of(sums, noise.on(sums.xp), tuple(self.prior_strength_.values()))
        start = prior.start(sums, used, self.init, rng)
        objective: Objective = prior
        if self.algorithm == "paper":
            cell = ":".join(views)
            cells = statistics.for_views((cell,), self._second_moment()).on_host()
            objective = self.published_em(cells, noise)
        # small steps are faster on one thread, without waiting for others
        with threads_for(step_operations(design, used)):
            fit = fit_em(
                design,
                start,
                objective,
                max_iter=self.max_iter,
                tol=self.tol,
                callback=self._report,
            )
        p = fit.parameters
        # statistics are relative to an origin near the data, which keeps their squares small
        self._take(views, replace(p, mean=p.mean + statistics.origin))
        self._take_fit(fit, statistics)
        lines, problems = diagnose(statistics, requested, ranks, design.plan)
        if not fit.converged and self.max_iter > 0 and self.tol > 0:
            text = (
                f"EM stopped at max_iter={self.max_iter} before the gain fell below tol={self.tol} nats per vector: "
                "raise max_iter or tol"
            )
            problems.append((ConvergenceWarning, text))
        problems = [problem for problem in problems if problem[0] not in kind.needless]
        for category, text in problems:
            # the stack level attributes the warning to the caller of `fit`
            warnings.warn(text, category, stacklevel=3)
        self.diagnostics_ = Diagnostics(tuple(lines), tuple(text for _, text in problems))
        return self

    def _report(self, step: Iteration) -> None:
        if self.verbose:
            show_line(f"iteration {step.number}: {step.gain_per_vector:+.1e} nats per vector")
        if self.callback is not None:
            self.callback(step)

    def log_likelihood(self, X: ArrayLike, y: Labels) -> float:
        """Return the log-likelihood in nats of labelled vectors whose classes are not training classes.

        Parameters
        ----------
        X : (n, D) vectors
        y : labels, as for `fit`
        """
        check_is_fitted(self, "mean_")
        statistics = SufficientStatistics.from_arrays(
            self._vectors(X, reset=False),
            encode_labels(y, tuple(self.views_)),
            second_moment=self._second_moment(),
        )
        p = self.parameters_
        sums = statistics.for_views(tuple(self.views_), p.sigma.second_moment)
        design = Design.of(sums, p.ranks)
        # the sums are relative to an origin, so the mean must be, too
        moved = replace(p, mean=p.mean - statistics.origin)
        with threads_for(step_operations(design, p.ranks)):
            return posterior(design, moved.on(sums.xp)).log_likelihood

    def score(self, X: ArrayLike, y: Labels) -> float:
        """Return the log-likelihood per vector in nats, the objective of a cross-validated search.

        Use folds of classes, so that candidates are compared on classes that they were not trained
        on: ``GridSearchCV(model, grid, cv=GroupKFold(4)).fit(X, label_rows(labels),
        groups=labels["speaker"])``.

        Parameters
        ----------
        X : (n, D) vectors
        y : labels, as for `fit`
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
    def with_ranks(cls, ranks: Ranks, settings: dict[str, Any]) -> Self:
        check_setting_names(cls, settings, ("views",))
        return cls(ranks, **settings)

    @classmethod
    def from_parameters(
        cls, mean: ArrayLike, loadings: Mapping[str, ArrayLike], noise: ArrayLike
    ) -> Self:
        """Return a model with given parameters, ready to score.

        Parameters
        ----------
        mean : (D,)
        loadings : {view: (D, rank)}
        noise : (D,) variances, or (D, D) covariance

        Returns
        -------
        MultiviewPLDA
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
        """Set the attributes that `fit` sets to empty values, for a model of given parameters."""
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
        """Set mean, loadings and noise to copies of these parameters."""
        release_caches(self)
        # copies, because the model's arrays are writable
        loadings = map(np.array, parameters.loadings)
        self.mean_ = np.array(parameters.mean)
        self.noise_ = np.array(parameters.noise)
        self.loadings_ = dict(zip(views, loadings, strict=True))
        self.views_ = dict(zip(views, parameters.ranks, strict=True))

    def _take_fit(self, fit: Fit, statistics: SufficientStatistics) -> None:
        """Store the result of EM; class posteriors are computed on first access.

        statistics : the training data, for the names of the classes
        """
        # remove results of an earlier fit
        for name in LAZY_ATTRIBUTES:
            self.__dict__.pop(name, None)
        self._fitted = fit
        self.n_iter_ = fit.n_iter
        self.converged_ = fit.converged
        base = [view for view in self.views_ if ":" not in view]
        self.classes_ = {view: statistics.classes[view].names for view in base}
        # an E step now takes less memory than sums that the model would otherwise store until later
        n_numbers = sum(math.prod(sums.shape) for sums in fit.design.sums.sums)
        if n_numbers > MAX_PENDING_NUMBERS:
            self._settle()

    def _settle(self) -> None:
        """Compute the attributes that are still to be computed, and free the training sums."""
        getattr(self, "class_covariances_", None)

    @cached_property
    def log_likelihoods_(self) -> Array:
        """Log-likelihood of the training data before every iteration and at the end, (iterations + 1,)."""
        return self._fitted.log_likelihoods

    @cached_property
    def objectives_(self) -> Array:
        """Objective of EM before every iteration and at the end, (iterations + 1,).

        It is the log-likelihood plus the log prior density, up to a constant.
        """
        return self._fitted.objectives

    def _compute_class_means(self) -> dict[str, Array]:
        # the posterior holds the means of all views in one array
        means = map(np.array, self._fitted.posterior.means)
        return dict(zip(self.views_, means, strict=True))

    def _compute_class_covariances(self) -> dict[str, Array]:
        covariances = {}
        for k, (view, rank) in enumerate(self.views_.items()):
            n_classes = len(self._fitted.design.sums.counts[k])
            if ":" not in view and n_classes * rank**2 <= MAX_COVARIANCE_NUMBERS:
                covariances[view] = np.array(self._fitted.posterior.covariances(k))
        # these are the last results of the fit, and its posterior may hold a large system
        for name in LAZY_ATTRIBUTES[:-1]:
            getattr(self, name)
        del self._fitted
        return covariances

    class_means_ = FittedArrays(_compute_class_means)
    class_covariances_ = FittedArrays(_compute_class_covariances)

    def __getstate__(self) -> dict[str, object]:
        self._settle()  # leaves the sums of the training data out
        return super().__getstate__()

    def _encode(self, y: Labels | None) -> LabelTable:
        return encode_labels(y, None if self.views is None else tuple(self.views))

    def _ranks(self, views: Views) -> Ranks:
        """Return the rank of each view in the settings, {view: rank, or None for the largest}."""
        return requested_ranks(self.views) or dict.fromkeys(views)

    def _second_moment(self) -> SecondMoment:
        return NOISES[self._noise_kind()].second_moment

    def _noise_kind(self) -> str:
        return "full" if PRIORS[self.prior].full_rank else self.noise

    def _vectors(self, X: ArrayLike, *, reset: bool) -> AnyArray:
        """Return checked vectors (n, D): an array, or if `X` is a tensor, a tensor on its device.

        reset : True in a fit, which sets the number of dimensions; False compares with it
        """
        least = 2 if reset else 1
        if not is_torch(X):
            # Statistics raise the error for numbers that are not finite, in their single pass.
            return checked_vectors(self, X, reset=reset, least=least, check_finite=False)
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
        """Set the number of dimensions that the model expects, without feature names."""
        self.n_features_in_ = width
        self.__dict__.pop("feature_names_in_", None)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags
