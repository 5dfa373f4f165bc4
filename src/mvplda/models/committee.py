"""Committee of experts: several scorers, whose pair terms (log-ratios) are added with weights."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted

from .._progress import show_line
from .._typing import AnyArray, Array, FloatArray, IntArray, Json, Labels, Names
from ..exceptions import DataError, FewSpeakersWarning, MvpldaWarning, ParameterError
from ..labels import base_columns
from ..scoring.comparison_sides import ScoringCache
from ..scoring.engine import log_likelihoods
from ..scoring.pair_terms import (
    JOINT_WEIGHT,
    ExpertTerms,
    JointTerms,
    PairTerms,
    expert_class_numbers,
)
from ..scoring.profiles import Profiles
from ..scoring.question import Question, view_names
from ..tensor_files import Tensors
from ..vector_checks import as_vectors, check_feature_names
from .base import BaseScorer
from .caching import as_key, cache_of
from .checks import concatenate_columns, require_labels
from .expert_weights import weigh_experts
from .heldout import held_out_trials
from .profile_comparison import compare

ExpertWeights = Mapping[str, float | Mapping[str, float]] | Literal["learnt"] | None
"""Weights of experts, as `Committee` takes them: {expert: weight, or {view or "together": weight}}."""


class Committee(BaseScorer, BaseEstimator):
    """Weighted combination of scorers (experts), each for some columns of the vectors and some of the views.

    Each expert has a pair term per assignment: a log-ratio, given which classes two profiles share.
    The committee multiplies the terms by the experts' weights and adds them; the answer to a
    question is a sum over assignments. For example, an extractor of voices and one of phrases give
    two experts.

    An expert has one weight per view. It also has a joint weight, for its evidence about several
    views together beyond its evidence about each alone. So an extractor of phrases may have a large
    weight for the phrase and a small one for the speaker. A committee with all weights 1 is
    equivalent to one model in which the experts' vectors are independent, given the classes.

    Experts of similar extractors repeat the same evidence, and experts with few training classes
    are overconfident. So weights are learnt from held-out classes, by logistic regression over
    hypotheses with a small outlier probability. The calibration of a bundle adds the outlier
    probability of recordings in use (`mvplda.training.calibrate_on_held_out`). A scorer without
    likelihood ratios, such as the cosine, can be an expert too: its weight scales its score to
    likelihood ratios, which support the hypotheses in which all views of this expert are the same.

    Parameters
    ----------
    experts : dict of {name: scorer}
        `MultiviewPLDA`, of all views or of some, or another scorer, bare or in a `Bundle` with its
        preprocessing. In place of a `PLDA`, which takes labels of one view only, use
        ``MultiviewPLDA({"speaker": rank})``.
    columns : dict of {name: (start, stop)} or None
        Columns of a vector that each expert takes; all columns for experts without an entry.
    weights : "learnt", dict of {name: weight, or {view or "together": weight}}, or None
        None: all weights are 1, as they are if too few classes can be held out to learn them.
    known : sequence of str
        Views whose classes will be known in questions (``known=``): weights are learnt for such
        trials.
    enrolment : int
        Vectors per profile in the trials from which weights are learnt.
    folds : int
        Number of folds into which the classes of the first view are divided.
    callback : callable or None
        Called with a line of text after each fitted expert and each fold.
    verbose : int
        1 writes these lines to standard error.

    Attributes
    ----------
    experts_ : dict of {name: fitted scorer}
    views_ : dict of {view: 0}, the base views that hypotheses are made of
    weights_ : dict of {name: {view or "together": weight}}

    Examples
    --------
    >>> import numpy as np
    >>> from mvplda import Committee, MultiviewPLDA
    >>> rng = np.random.default_rng(0)
    >>> y = {"speaker": np.arange(600) % 20, "phrase": np.arange(600) // 60}
    >>> voice = rng.normal(size=(20, 4))[y["speaker"]] + rng.normal(size=(600, 4))
    >>> words = rng.normal(size=(10, 3))[y["phrase"]] + rng.normal(size=(600, 3))
    >>> expert = MultiviewPLDA({"speaker": None, "phrase": None}, prior="isotropic", prior_strength=0.5)
    >>> committee = Committee(
    ...     {"voice": expert, "words": MultiviewPLDA({"phrase": None}, prior="isotropic")},
    ...     columns={"voice": (0, 4), "words": (4, 7)},
    ... ).fit(np.hstack([voice, words]), y)
    >>> committee.llr(np.hstack([voice, words])[:3], np.hstack([voice, words])[:5], same="speaker").shape
    (3, 5)
    """

    FITTED = ("views_", "width_", "weights_")
    COMPONENTS = ("experts_",)
    STORED_KEYS: ClassVar[dict[str, str]] = {"weights": "factors", "weights_": "factors_"}

    def __init__(
        self,
        experts: Mapping[str, Any],
        *,
        columns: Mapping[str, tuple[int, int]] | None = None,
        weights: ExpertWeights = "learnt",
        known: Sequence[str] = (),
        enrolment: int = 1,
        folds: int = 4,
        callback: Callable[[str], object] | None = None,
        verbose: int = 0,
    ) -> None:
        self.experts = experts
        self.columns = columns
        self.weights = weights
        self.known = known
        self.enrolment = enrolment
        self.folds = folds
        self.callback = callback
        self.verbose = verbose

    # -- training ------------------------------------------------------------

    def fit(self, X: Any, y: Labels | None = None) -> Self:
        """Fit each expert to its columns of the vectors, and learn the weights from held-out classes.

        Parameters
        ----------
        X : (n, D) vectors
        y : labels of every view, {view: (n,) labels}

        Returns
        -------
        self
        """
        self._check_settings()
        labels = require_labels(y)
        vectors = as_vectors(X)
        check_feature_names(self, X, reset=True)
        # clones, because scikit-learn's `fit` must not change settings
        experts = {name: clone(expert) for name, expert in self.experts.items()}
        self.experts_ = experts
        self.width_ = int(vectors.shape[1])
        self._check_names(self.columns, "columns")
        for name, expert in experts.items():
            start, stop = self._columns_of(name)
            if not 0 <= start < stop <= self.width_:
                raise ParameterError(
                    f"columns of expert {name!r} must lie within the {self.width_} columns of the vectors; got start "
                    f"{start}, stop {stop}"
                )
            experts[name] = expert.fit(vectors[:, start:stop], labels)
            self._show(f"fitted expert {name!r} of {len(experts)} experts")
        self._find_views(tuple(labels))
        self.weights_ = {name: self._given_weights(name) for name in self.experts_}
        if self.weights == "learnt":
            with warnings.catch_warnings():
                # few speakers in a fold: the outlier probability allows for them
                warnings.simplefilter("ignore", MvpldaWarning)
                is_learnt = self._learn(vectors, labels)
            if not is_learnt:
                warnings.warn(
                    "the weights of the committee cannot be learnt, because there are too few classes to hold some "
                    "out, or no combination of classes has two vectors: all experts have the weight 1, and the LLRs "
                    "are not calibrated. Add training data, or calibrate the scores",
                    FewSpeakersWarning,
                    stacklevel=2,
                )
        return self

    def _show(self, line: str) -> None:
        """Report progress to standard error if `verbose`, and to the callback."""
        if self.verbose:
            show_line(line)
        if self.callback is not None:
            self.callback(line)

    def _check_settings(self) -> None:
        if not self.experts:
            raise ParameterError("experts is empty: pass at least one expert, {name: scorer}")
        if self.weights not in ("learnt", None) and not isinstance(self.weights, Mapping):
            raise ParameterError(
                "weights must be 'learnt', a dict {expert: weight, or {view or 'together': weight}}, or "
                f"None; got {self.weights!r}"
            )
        if not isinstance(self.known, Iterable):
            raise ParameterError(f"known must be a list of views; got {self.known!r}")

    def _given_weights(self, name: str) -> dict[str, float]:
        """Return the weights of an expert from the settings; 1 by default.

        name : name of the expert
        return : {view or "together": weight}
        """
        terms = self._weighted_terms(name)
        weights = dict.fromkeys(terms, 1.0)
        if not isinstance(self.weights, Mapping):
            return weights
        self._check_names(self.weights, "weights")
        settings = self.weights.get(name, {})
        if not isinstance(settings, Mapping):
            settings = dict.fromkeys(terms, settings)
        for term, weight in settings.items():
            if term not in terms:
                raise ParameterError(
                    f"the weights of the expert {name!r} contain {term!r}; expected weights of {list(terms)} only"
                )
            if not (np.isfinite(weight) and weight >= 0):
                raise ParameterError(
                    f"a weight must be a number of at least 0; got {weight!r} for expert {name!r}"
                )
            weights[term] = float(weight)
        return weights

    def _weighted_terms(self, name: str) -> tuple[str, ...]:
        """Return the names of an expert's terms that have weights: its views, and "together" if it has several."""
        views = self._expert_views(name)
        return (*views, JOINT_WEIGHT) if len(views) > 1 else views

    def _expert_views(self, name: str) -> tuple[str, ...]:
        """Return the base views of the committee that an expert models."""
        # questions name base views, never interactions
        base = base_columns(tuple(scorer_of(self.experts_[name]).views_))
        return tuple(view for view in self.views_ if view in base)

    def _learn(self, X: FloatArray, labels: dict[str, Names]) -> bool:
        """Learn the weights from trials of held-out classes; return False if there are no such trials.

        X : (n, D) vectors
        labels : {view: (n,) labels}
        """
        folds = held_out_trials(
            labels,
            tuple(self.views_),
            folds=self.folds,
            enrolment=self.enrolment,
        )
        evidence = []
        kinds = []
        for number, trials in enumerate(folds, 1):
            # a committee that is not trained on the classes of this fold
            committee = clone(self).set_params(weights=None, callback=None, verbose=0)
            training_labels = {view: column[trials.train] for view, column in labels.items()}
            committee.fit(X[trials.train], training_labels)
            profiles = committee.enrol(X[trials.enrol], trials.ids)

            # weights depend on which classes are known in use
            claims = {view: labels[view][trials.profiles] for view in view_names(self.known)}
            question = Question(known=claims or None)
            tests = X[trials.test]
            evidence.append(committee._term_evidence(profiles, tests, question, trials.pairs))
            kinds.append(trials.kinds)
            self._show(f"learning the weights of experts: fold {number} of {len(folds)} scored")

        # the regression needs at least two kinds of trials
        if not kinds or len(np.unique(np.concatenate(kinds))) < 2:
            return False
        weights, _ = weigh_experts(np.concatenate(evidence), np.concatenate(kinds))
        for (name, term), weight in zip(self._all_terms(), weights.tolist(), strict=True):
            self.weights_[name][term] = weight
        return True

    def _all_terms(self) -> list[tuple[str, str]]:
        """Return the names of all weighted terms as pairs (expert, view or "together")."""
        return [(name, term) for name in self.experts_ for term in self._weighted_terms(name)]

    def _term_evidence(
        self, profiles: Profiles, tests: FloatArray, question: Question, pairs: IntArray
    ) -> Array:
        """Return the log-likelihoods of hypotheses by one weighted term alone, for each term.

        If classes are known, the class of a test is averaged out for each term separately. The
        committee averages over it once, for the weighted sum of all terms; so the results of the
        terms do not add up to its log-likelihoods.

        profiles : enrolled profiles
        tests : (tests, D) vectors
        question : question with the known views
        pairs : (trials, 2) numbers of profile and test
        return : (trials, hypotheses, terms), terms in the order of `_all_terms`
        """
        comparison = compare(self, profiles, tests, question, np.float64, every=True)
        hypotheses = comparison.ratio.hypotheses
        views = question.known_views
        evidence = []
        for name, term in self._all_terms():
            weights = {other: float(other == term) for other in self._weighted_terms(name)}
            # an empty cache, because cached values belong to other pair terms
            term_comparison = replace(
                comparison,
                pair_terms=self._joint_terms({name: weights}, views),
                cache=ScoringCache(),
            )
            logs = log_likelihoods(term_comparison, hypotheses, pairs)
            evidence.append(np.stack(list(logs.values()), axis=1))
        return np.stack(evidence, axis=2)

    def _check_names(self, settings: Mapping[str, object] | None, what: str) -> None:
        for name in settings or {}:
            if name not in self.experts_:
                raise ParameterError(
                    f"{what} has an unknown expert, {name!r}; the experts are {list(self.experts_)}"
                )

    def _find_views(self, columns: tuple[str, ...]) -> None:
        experts = [scorer_of(expert) for expert in self.experts_.values()]
        modelled = {view for expert in experts for view in base_columns(tuple(expert.views_))}
        # in the order of the labels, not of the experts
        self.views_ = dict.fromkeys([view for view in columns if view in modelled] or columns, 0)
        for view in view_names(self.known):
            if view not in self.views_:
                raise ParameterError(
                    f"known has an unknown view, {view!r}; the views are {list(self.views_)}"
                )
        for name in self.experts_:
            if not self._expert_views(name):
                raise ParameterError(
                    f"expert {name!r} models no view of the committee, {list(self.views_)}: leave it out"
                )

    # -- evidence and pair terms ----------------------------------------------------

    def project(self, vectors: AnyArray) -> AnyArray:
        """Return the evidence of all experts, side by side: (n, sum of their numbers of columns).

        vectors : (n, D) checked vectors; each expert takes its columns
        """
        evidence = [
            expert.evidence(vectors[:, slice(*columns)]) for expert, columns in self.components()
        ]
        return concatenate_columns(evidence)

    def components(self) -> Sequence[tuple[BaseScorer, tuple[int, int]]]:
        return [(expert, self._columns_of(name)) for name, expert in self.experts_.items()]

    def _columns_of(self, name: str) -> tuple[int, int]:
        return (self.columns or {}).get(name, (0, self.width_))

    def pair_terms(self) -> JointTerms:
        return self.pair_terms_with_known(())

    def pair_terms_with_known(self, views: Sequence[str]) -> JointTerms:
        if not hasattr(self, "experts_"):
            check_is_fitted(self, "experts_")
        names = list(self.experts_)
        weights = as_key(self.weights_)
        # the terms of an expert are another object if its parameters have changed
        terms = [self._expert_pair_terms(name, views) for name in names]
        classes = [
            (view, tuple(column.tolist()))
            for name in names
            for view, column in self._expert_classes(name, views).items()
        ]
        key = (names, weights, terms, classes, tuple(self.views_), self.nuisance_views)
        return cache_of(self).get(
            ("pair_terms", tuple(views)), key, lambda: self._joint_terms(self.weights_, views)
        )

    def _expert_pair_terms(self, name: str, views: Sequence[str]) -> PairTerms:
        """Return the pair terms (log-ratios) of an expert; they use its training classes in `views`, if it has any."""
        scorer = scorer_of(self.experts_[name])
        known = tuple(self._expert_classes(name, views))
        return scorer.pair_terms_with_known(known) if known else scorer.pair_terms()

    def _expert_classes(self, name: str, views: Sequence[str]) -> dict[str, Names]:
        """Return the training classes of an expert, {view: names}, for those of `views` that it models."""
        if not views:
            return {}
        classes = scorer_of(self.experts_[name]).training_classes()
        return {
            view: classes[view]
            for view in self._expert_views(name)
            if view in views and view in classes
        }

    def _joint_terms(
        self, weights: Mapping[str, Mapping[str, float]], views: Sequence[str]
    ) -> JointTerms:
        """Return the weighted pair terms (log-ratios) of the experts.

        weights : {expert: {view or "together": weight}}; experts without an entry are left out
        views : views whose training classes are used
        """
        classes = self.classes_ if views else {}
        expert_terms = []
        start = 0
        for name, expert in self.experts_.items():
            columns = slice(start, start + scorer_of(expert).width_out)
            start = columns.stop
            if not any(weights.get(name, {}).values()):
                continue
            numbers = {
                view: expert_class_numbers(classes[view], names)
                for view, names in self._expert_classes(name, views).items()
            }
            pair_terms = self._expert_pair_terms(name, views)
            # plain numbers, because weights are part of hashed keys
            expert_weights = {term: float(weight) for term, weight in weights[name].items()}
            expert_terms.append(ExpertTerms(pair_terms, columns, expert_weights, numbers))
        return JointTerms((*self.views_, *self.nuisance_views), expert_terms)

    @property
    def nuisance_views(self) -> tuple[str, ...]:  # type: ignore[override]
        views: set[str] = set()
        for expert in self.experts_.values():
            views.update(scorer_of(expert).nuisance_views)
        return tuple(sorted(views - set(self.views_)))

    @property
    def classes_(self) -> dict[str, Names]:
        """Training classes of all experts, {view: names}, each class once."""
        check_is_fitted(self, "experts_")
        classes: dict[str, Names] = {}
        for expert in self.experts_.values():
            for view, names in scorer_of(expert).training_classes().items():
                if view not in self.views_:
                    continue
                # experts that were trained on other recordings may have other classes
                known = classes.setdefault(view, names)
                if not np.array_equal(known, names):
                    classes[view] = np.concatenate([known, names[~np.isin(names, known)]])
        return classes

    def training_classes(self) -> dict[str, Names]:
        return self.classes_

    def known_names(self, view: str) -> Names:
        classes = self.classes_
        if view not in classes:
            return super().known_names(view)
        for expert in self.experts_.values():
            scorer = scorer_of(expert)
            if view in scorer.training_classes():
                # raises an error if the expert has names of classes without their posteriors
                scorer.known_names(view)
        return classes[view]

    @property
    def width_in(self) -> int:
        return self.width_

    @property
    def width_out(self) -> int:
        return sum(scorer_of(expert).width_out for expert in self.experts_.values())

    def _key(self) -> str:
        return "+".join(scorer_of(expert)._key() for expert in self.experts_.values())

    # -- files -----------------------------------------------------------------

    def check_state(self) -> None:
        for name, expert in self.experts_.items():
            start, stop = self._columns_of(name)
            if not 0 <= start < stop <= self.width_ or expert.width_in != stop - start:
                raise DataError(
                    f"expert {name!r} of the file takes {expert.width_in} columns, but the committee gives it columns "
                    f"{start} to {stop} of {self.width_}: the file is damaged"
                )
        super().check_state()

    def typical_evidence(self) -> AnyArray:
        # at the mean and scale of each expert
        return concatenate_columns([expert.typical_evidence() for expert in self.experts_.values()])

    @classmethod
    def from_state(cls, arrays: Tensors, values: dict[str, Any]) -> Self:
        settings = {"experts": {}, **values["settings"]}
        committee = super().from_state(arrays, {**values, "settings": settings})
        # a loaded committee can be fitted again
        committee.experts = committee.experts_
        return committee

    def describe(self) -> Json:
        return {
            "class": type(self).__name__,
            "dimension": self.width_,
            "views": list(self.views_),
            "experts": {name: expert.describe() for name, expert in self.experts_.items()},
            "weights": self.weights_,
        }


def scorer_of(expert: BaseScorer) -> BaseScorer:
    """Return the scorer of an expert, without the preprocessing of a bundle."""
    scorer: BaseScorer = getattr(expert, "fitted_scorer", expert)
    return scorer
