"""MultiviewPLDA and PLDA: what is set, how they are trained, their evidence and pair terms, and their files."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from inspect import Signature, signature
from numbers import Integral, Real
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from .._typing import AnyArray, Array, Device, Json, Labels, Names, RandomState, Ranks, Views
from ..backend import checked_vectors, is_torch, like, threads_for
from ..exceptions import DataError, LabelError, ParameterError
from ..inference.design import Design, Diagnostics, choose_ranks, diagnose, step_operations
from ..inference.em import Fit, Iteration, Objective, PublishedEM, fit_em, posterior
from ..inference.parameters import NOISES, NoiseModel, Parameters
from ..inference.priors import PRIORS
from ..labels import (
    LabelTable,
    are_named,
    base_columns,
    check_view_names,
    encode_labels,
    names_from_file,
)
from ..persistence import State, Tensors, fingerprint
from ..scoring.latent_terms import KnownClasses, LatentSpace, LatentTerms
from ..statistics import SufficientStatistics
from ..statistics.accumulator import SecondMoment
from ..statistics.device import check_tensor
from .base import BaseScorer, check_setting_names, release_caches
from .caching import FittedArrays, cache_of

DEFAULT_STRENGTH = 0.6
"""Of a prior. Costs are flat from 0.5 to 0.7 on the one set it was tried on, AudioMNIST."""

MAX_SAVED_CLASSES = 10_000
"""Views with at most so many classes keep their training posteriors in a file, for known classes."""

MAX_COVARIANCE_NUMBERS = 2**22
"""Posterior covariances of a view's classes are kept up to this many numbers (32 MiB)."""

MAX_CLASS_MEAN = 1e6
"""Posterior means of classes in a file are at most this large: they are of standard normal latents."""

MAX_PENDING_NUMBERS = 2**25
"""Class sums up to this many numbers (256 MiB) are held with a fit until its class posteriors are asked for."""

PROJECTION_CHUNK = 2**22
"""float32 vectors are projected in chunks of about this many numbers."""

LAZY_ATTRIBUTES = ("log_likelihoods_", "objectives_", "class_means_", "class_covariances_")
"""Attributes that are worked out from a fit when they are first read."""

PARAMETERS = ("mean_", "loadings_", "noise_")
"""Attributes that scores depend on."""

CLASS_ATTRIBUTES = ("classes_", "class_means_", "class_covariances_")
"""Attributes that scores depend on where classes are known."""


class MultiviewPLDA(BaseScorer, TransformerMixin, BaseEstimator):
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
    mean_ = FittedArrays[Array]()
    loadings_ = FittedArrays[dict[str, Array]]()
    noise_ = FittedArrays[Array]()
    classes_ = FittedArrays[dict[str, Names]]()
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

    def transform(self, X: ArrayLike) -> Array:
        """Posterior means of every vector's latents on its own, views side by side: (n, sum of ranks)."""
        check_is_fitted(self, "mean_")
        X = checked_vectors(self, X, reset=False)
        p = self.parameters_
        B = p.stacked()
        LB = p.sigma.solve(B)
        # all views at once: what one of them explains is no evidence for another
        gain = np.linalg.solve(np.eye(B.shape[1]) + B.T @ LB, LB.T)
        return (X - p.mean) @ gain.T

    def get_feature_names_out(self, input_features: Any = None) -> Names:
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
        # evidence is linear: sums of vectors and sums of evidence are the same thing
        space = self.pair_terms().space
        if not isinstance(vectors, np.ndarray) or vectors.dtype == np.float64:
            return vectors @ like(space.projection, vectors) - like(space.offset, vectors)
        # float32 vectors are made float64 a chunk at a time: a copy of all of them may not fit
        chunks = np.array_split(vectors, 1 + vectors.size // PROJECTION_CHUNK)
        y = [chunk.astype(np.float64) @ space.projection for chunk in chunks]
        return np.concatenate(y) - space.offset

    def pair_terms(self) -> LatentTerms:
        versions = self._parameter_versions()
        key = (versions, tuple(self.views_.items()))
        return cache_of(self).get("pair_terms", key, self._make_pair_terms)

    def _make_pair_terms(self) -> LatentTerms:
        mean, loadings, noise = map(cache_of(self).copy_of, PARAMETERS)
        parameters = Parameters(mean, tuple(loadings.values()), noise)
        return LatentTerms(LatentSpace.of(parameters), self.views_)

    def pair_terms_with_known(self, views: Sequence[str]) -> LatentTerms:
        for view in views:
            self.known_names(view)
        pair_terms = self.pair_terms()
        cache = cache_of(self)
        attributes = vars(self)
        versions = [cache.version(attributes, name) for name in CLASS_ATTRIBUTES]

        def add_known_classes() -> LatentTerms:
            names, means, covariances = map(cache.copy_of, CLASS_ATTRIBUTES)
            return pair_terms.with_known(
                {
                    view: KnownClasses.of(means[view], covariances[view], len(names[view]))
                    for view in views
                }
            )

        return cache.get(("pair_terms", tuple(views)), (pair_terms, *versions), add_known_classes)

    def published_pair_terms(self) -> LatentTerms:
        if len(self.views_) != 2 or any(":" in view for view in self.views_):
            raise ParameterError("scoring='paper' is for two views without interaction")
        return self.pair_terms().as_published()

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
        return len(type(self).mean_.peek(self))

    @property
    def parameters_(self) -> Parameters:
        """Mean, loadings and noise as the kernel's record."""
        return Parameters(self.mean_, tuple(self.loadings_.values()), self.noise_)

    @property
    def width_out(self) -> int:
        return sum(self.views_.values())

    def training_classes(self) -> dict[str, Names]:
        return type(self).classes_.peek(self)

    def known_names(self, view: str) -> Names:
        covariances = type(self).class_covariances_.peek(self)
        if view not in covariances:
            raise LabelError(
                f"the model keeps no class posteriors of a view {view!r}; it does of {list(covariances)}"
            )
        return type(self).classes_.peek(self)[view]

    def _parameter_versions(self) -> tuple[int, ...]:
        """Content versions of mean, loadings and noise."""
        attributes = vars(self)
        if "mean_" not in attributes:
            check_is_fitted(self, "mean_")
        cache = cache_of(self)
        return tuple([cache.version(attributes, name) for name in PARAMETERS])

    def _key(self) -> str:
        return cache_of(self).get("key", self._parameter_versions(), self._make_key)

    def _make_key(self) -> str:
        mean, loadings, noise = map(cache_of(self).copy_of, PARAMETERS)
        arrays = (mean, noise, *loadings.values())
        # profiles carry the fingerprint: those of another model are refused
        return fingerprint({str(i): array for i, array in enumerate(arrays)}, {})

    # -- files and parameters ---------------------------------------------------------

    def get_state(self) -> State:
        check_is_fitted(self, "mean_")
        arrays, values = super().get_state()
        # posteriors of many classes would be most of a file
        # posteriors that rounding left without a root cannot be used with known=
        kept = [
            view
            for view, covariances in self.class_covariances_.items()
            if len(self.classes_[view]) <= MAX_SAVED_CLASSES and are_definite(covariances)
        ]
        values["classes"] = {view: self.classes_[view].tolist() for view in kept}
        for view in kept:
            named = slice(0, len(self.classes_[view]))
            arrays[f"class_means/{view}"] = np.ascontiguousarray(self.class_means_[view][named])
            covariances = self.class_covariances_[view][named]
            if np.ptp(covariances, axis=0).max() <= 1e-12 * np.abs(covariances).max():
                # of classes with as many vectors each, all are the same, up to rounding
                covariances = covariances[:1]
            arrays[f"class_covariances/{view}"] = np.ascontiguousarray(covariances)
        return arrays, values

    @classmethod
    def from_state(cls, arrays: Tensors, values: Json) -> Self:
        # earlier versions did not write the objectives
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
                    f"a covariance of the classes of view {view!r} is not positive definite"
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
            # after a fit, vectors without a label follow the named classes
            count = max([*means.shape[:1], len(self.classes_[view])])
            fits = means.shape == (count, rank) and covariances.shape == (count, rank, rank)
            if not fits or not (np.isfinite(means).all() and np.isfinite(covariances).all()):
                raise DataError(f"the classes of view {view!r} do not fit its rank {rank}")
            # class means are those of standard normal latents
            if np.abs(means).max(initial=0.0) > MAX_CLASS_MEAN:
                raise DataError(
                    f"a class of view {view!r} has a mean of more than {MAX_CLASS_MEAN:g}"
                )
        super().check_state()

    def typical_vectors(self) -> Array:
        # vectors of this model, whatever its units and however far its mean is from 0
        classes = {view: np.arange(2) for view in base_columns(tuple(self.views_))}
        return self.sample(classes, random_state=0)

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


def are_definite(covariances: Array) -> bool:
    """Whether every covariance is positive definite."""
    try:
        np.linalg.cholesky(covariances)
    except np.linalg.LinAlgError:
        return False
    return True


def random_generator(random_state: Any) -> np.random.Generator:
    """A generator of NumPy's: itself, or one that follows from whatever scikit-learn takes for a random state."""
    if isinstance(random_state, np.random.Generator):
        return random_state
    try:
        state = check_random_state(random_state)
    except ValueError as error:
        raise ParameterError(f"random_state cannot be used: {error}") from error
    return np.random.default_rng(state.randint(2**31))


def check_settings(model: MultiviewPLDA) -> None:
    """Refuse settings of an estimator that do not exist or do not fit."""
    choices: dict[str, list[Any]] = {
        "noise": list(NOISES),
        "algorithm": ["exact", "paper"],
        "init": ["moments", "random"],
        "prior": list(PRIORS),
    }
    for name, allowed in choices.items():
        if getattr(model, name) not in allowed:
            raise ParameterError(f"{name} is one of {allowed}; got {getattr(model, name)!r}")
    if model.views is not None and not (
        isinstance(model.views, Mapping | list | tuple) and model.views
    ):
        raise ParameterError(
            f"views is a dict of {{name: rank}} or a list of names, not empty; got {model.views!r}"
        )
    # below 1e-10 rounding drowns the likelihood
    for name, least, most in (
        ("noise_shrinkage", 0, 1),
        ("noise_floor", 1e-10, 1),
        ("tol", 0, np.inf),
    ):
        value = getattr(model, name)
        if not isinstance(value, Real) or not least <= float(value) < most:
            raise ParameterError(f"{name} is a number in [{least}, {most}); got {value!r}")
    if model.callback is not None and not callable(model.callback):
        raise ParameterError(f"callback is a function, or None; got {model.callback!r}")
    # True is an Integral, too
    whole = isinstance(model.max_iter, Integral) and not isinstance(model.max_iter, bool)
    if not whole or model.max_iter < 0:
        raise ParameterError(f"max_iter is a whole number, at least 0; got {model.max_iter!r}")
    if not PRIORS[model.prior].full_rank:
        return
    ranks = [*requested_ranks(model.views).values(), getattr(model, "n_components", None)]
    if any(rank is not None for rank in ranks):
        raise ParameterError("a prior makes loadings of full rank: leave every rank None")
    # two priors of one noise would count twice
    if model.noise_shrinkage or model.algorithm == "paper":
        raise ParameterError("a prior goes with no other shrinkage, and not with algorithm='paper'")


def prior_strengths(strength: Any, views: Sequence[str]) -> dict[str, float]:
    """Of every view and of the noise, from one number or a dict."""
    names = (*views, "noise")
    each = dict.fromkeys(names, strength)
    if isinstance(strength, Mapping):
        each = {**dict.fromkeys(names, DEFAULT_STRENGTH), **strength}
    for name, value in each.items():
        if name not in names:
            raise ParameterError(f"prior_strength names {name!r}; there are {list(names)}")
        if isinstance(value, bool) or not isinstance(value, Real) or not 0 <= float(value) <= 1:
            raise ParameterError(
                "prior_strength is a number in [0, 1], or a dict of them by view and 'noise'; "
                f"got {value!r} for {name!r}"
            )
    return {name: float(value) for name, value in each.items()}


def requested_ranks(views: Ranks | Sequence[str] | None) -> Ranks:
    """The rank asked for of every view that is named."""
    return dict(views) if isinstance(views, Mapping) else dict.fromkeys(views or ())


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
    def with_ranks(cls, ranks: Ranks, settings: Json) -> Self:
        if len(ranks) != 1:
            raise LabelError(
                f"PLDA has one view; got {len(ranks)}: {list(ranks)}. Use MultiviewPLDA"
            )
        check_setting_names(cls, settings, ("n_components",))
        return cls(next(iter(ranks.values())), **settings)

    def _encode(self, y: Any) -> LabelTable:
        return encode_labels(y, None if are_named(y) else ("class",))

    def _ranks(self, views: Views) -> Ranks:
        if len(views) != 1:
            raise LabelError(
                f"PLDA has one view, the labels have {len(views)}: {list(views)}. Use MultiviewPLDA"
            )
        return {views[0]: self.n_components}
