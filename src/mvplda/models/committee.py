"""A committee of experts: several extractors' evidence, added up in each world. And cosine."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, Self

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted

from .._typing import AnyArray, Array, FloatArray, IntArray, Json, Labels, Names
from ..backend import as_vectors, check_feature_names
from ..exceptions import DataError, FewSpeakersWarning, MvpldaWarning, ParameterError
from ..labels import base_columns
from ..persistence import State, Tensors
from ..scoring.engine import ScoringCache, log_likelihoods
from ..scoring.pair_terms import (
    JOINT_WEIGHT,
    ExpertTerms,
    JointTerms,
    PairTerms,
    expert_class_numbers,
)
from ..scoring.profiles import Profiles
from ..scoring.question import Question, view_names
from .base import BaseScorer
from .caching import cache_of
from .checks import concatenate_columns, require_labels
from .expert_weights import weigh_experts
from .heldout import held_out_trials

ExpertWeights = Mapping[str, float | Mapping[str, float]] | Literal["learnt"] | None


STORED_NAMES = {"weights": "factors", "weights_": "factors_"}
"""Names in model files of settings and attributes that have other names in Python."""


class Committee(BaseScorer, BaseEstimator):
    """Scorers that each see a part of the columns, and may each model some views only.

    Every expert has a pair term per assignment (which classes two profiles share). What the experts say is
    multiplied by their factors and added up per assignment, and a question is answered by the sum over assignments. A
    network of voices and one of words are two experts. An expert has a factor for every view that it models, and
    one for what it says of several views together beyond that: a network of words may count for the phrase and hardly
    for the speaker. With all weights 1 a committee is one model whose loadings have a block for every expert.

    Experts that hear the same thing say it twice, and each is overconfident where it was trained on few classes.
    Weights are therefore learnt from classes that were held out, by logistic regression over hypotheses, in which a
    few trials may tell nothing: likelihood ratios are those of recordings that tell something. A bundle's calibration
    adds how often one does not (`mvplda.training.calibrate_on_held_out`). A score that is no likelihood ratio, such as
    the cosine, may be among the experts: its weight, learnt on the same trials, makes it one. It counts for hypotheses
    that share all its views.

    Parameters
    ----------
    experts : dict of {name: scorer}
        `MultiviewPLDA`, of all views or of some, or another scorer, bare or in a `Bundle` with its
        preprocessing. A `PLDA`, which takes labels of one view only, is a ``MultiviewPLDA({"speaker": rank})`` here.
    columns : dict of {name: (start, stop)} or None
        Columns of a vector that an expert sees; those that are not named see all of them.
    weights : "learnt", dict of {name: weight, or {view or "together": weight}}, or None
        None, and too few classes to hold any out: 1 for models, 0 for scores such as the cosine.
    known : sequence of str
        Views whose class is known when questions are asked (``known=``): weights are learnt for such trials.
    enrolment : int
        Vectors a profile in the trials that weights are learnt from.
    folds : int
        The classes of the first view are dealt into so many folds.

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

    def __init__(
        self,
        experts: Mapping[str, Any],
        *,
        columns: Mapping[str, tuple[int, int]] | None = None,
        weights: ExpertWeights = "learnt",
        known: Sequence[str] = (),
        enrolment: int = 1,
        folds: int = 4,
    ) -> None:
        self.experts = experts
        self.columns = columns
        self.weights = weights
        self.known = known
        self.enrolment = enrolment
        self.folds = folds

    # -- training ------------------------------------------------------------

    def fit(self, X: Any, y: Labels | None = None) -> Self:
        """Fit every expert to its columns, and learn their weights from classes that were held out.

        Parameters
        ----------
        X, y : vectors, and labels of every view
        """
        self._check_settings()
        labels = require_labels(y)
        vectors = as_vectors(X)
        check_feature_names(self, X, reset=True)
        # scikit-learn's rule: settings stay as they were given
        experts = {name: clone(expert) for name, expert in self.experts.items()}
        self.experts_ = experts
        self.width_ = vectors.shape[1]
        self._check_names(self.columns, "columns")
        for name, expert in experts.items():
            start, stop = self._columns_of(name)
            if not 0 <= start < stop <= self.width_:
                raise ParameterError(
                    f"expert {name!r} sees columns {start} to {stop}, the vectors have {self.width_}"
                )
            experts[name] = expert.fit(vectors[:, start:stop], labels)
        self._find_views(tuple(labels))
        self.weights_ = {name: self._given_weights(name) for name in self.experts_}
        if self.weights == "learnt":
            with warnings.catch_warnings():
                # few people, or scores apart: the weights allow for it
                warnings.simplefilter("ignore", MvpldaWarning)
                is_learnt = self._learn(vectors, labels)
            if not is_learnt:
                warnings.warn(
                    "too few classes to hold any out, or no two vectors of one cell: experts are added up as they are, "
                    "not weighed, and their likelihood ratios are not calibrated",
                    FewSpeakersWarning,
                    stacklevel=2,
                )
        return self

    def _check_settings(self) -> None:
        if not self.experts:
            raise ParameterError("a committee needs at least one expert")
        if self.weights not in ("learnt", None) and not isinstance(self.weights, Mapping):
            raise ParameterError(
                f"weights is 'learnt', a dict of them or None; got {self.weights!r}"
            )
        if not isinstance(self.known, Iterable):
            raise ParameterError(f"known is a list of views; got {self.known!r}")

    def _given_weights(self, name: str) -> dict[str, float]:
        """Weights of an expert before any are learnt: 1 where nothing else is given."""
        parts = self._parts_of(name)
        weights = dict.fromkeys(parts, 1.0)
        if not isinstance(self.weights, Mapping):
            return weights
        self._check_names(self.weights, "weights")
        given = self.weights.get(name, {})
        if not isinstance(given, Mapping):
            given = dict.fromkeys(parts, given)
        for part, weight in given.items():
            if part not in parts:
                raise ParameterError(
                    f"weights of {name!r} name {part!r}; it has weights for {list(parts)}"
                )
            if not (np.isfinite(weight) and weight >= 0):
                raise ParameterError(
                    f"a weight is a number of at least 0; got {weight!r} for {name!r}"
                )
            weights[part] = float(weight)
        return weights

    def _parts_of(self, name: str) -> tuple[str, ...]:
        """What an expert has weights for."""
        may = self._may(name)
        return (*may, JOINT_WEIGHT) if len(may) > 1 else may

    def _may(self, name: str) -> tuple[str, ...]:
        """Views that an expert is about."""
        # an interaction is no view that a question names
        own = base_columns(tuple(scorer_of(self.experts_[name]).views_))
        return tuple(view for view in self.views_ if view in own)

    def _learn(self, X: FloatArray, labels: dict[str, Names]) -> bool:
        """Weights from trials of held-out classes; False where there are none."""
        views = tuple(self.views_)
        dealt = held_out_trials(
            labels,
            views,
            folds=self.folds,
            enrolment=self.enrolment,
        )
        said = []
        kinds = []
        for trials in dealt:
            # a fold is a committee of its own, trained on the other people
            fold = clone(self).set_params(weights=None)
            fold.fit(X[trials.train], {v: column[trials.train] for v, column in labels.items()})
            profiles = fold.enrol(X[trials.enrol], trials.ids)
            # factors are learnt for trials as they will be asked
            claims = {view: labels[view][trials.profiles] for view in view_names(self.known)}
            question = Question(known=claims or None)
            said.append(fold._said(profiles, X[trials.test], question, trials.pairs))
            kinds.append(trials.kinds)
        # with trials of one kind there is nothing to tell apart
        if not kinds or len(np.unique(np.concatenate(kinds))) < 2:
            return False
        weights, _ = weigh_experts(np.concatenate(said), np.concatenate(kinds))
        for (name, part), weight in zip(self._places(), weights.tolist(), strict=True):
            self.weights_[name][part] = weight
        return True

    def _places(self) -> list[tuple[str, str]]:
        """All that has a weight: every expert's views, and what it says of them together."""
        return [(name, part) for name in self.experts_ for part in self._parts_of(name)]

    def _said(
        self, profiles: Profiles, tests: FloatArray, question: Question, pairs: IntArray
    ) -> Array:
        """(trials, hypotheses, parts) the log-likelihoods of every part of every expert by itself.

        Where classes are known, the sum over the classes that a test may be of is taken in each part; the answers
        of the committee take it over all of them together.
        """
        comparison = self._compare(profiles, tests, question, np.float64, every=True)
        every = comparison.ratio.hypotheses
        views = question.known_views
        said = []
        for name, part in self._places():
            weights = {one: float(one == part) for one in self._parts_of(name)}
            # nothing is kept of other pair_terms
            one = replace(
                comparison,
                pair_terms=self._joint_terms({name: weights}, views),
                cache=ScoringCache(),
            )
            said.append(np.stack(list(log_likelihoods(one, every, pairs).values()), axis=1))
        return np.stack(said, axis=2)

    def _check_names(self, settings: Mapping[str, object] | None, what: str) -> None:
        for name in settings or {}:
            if name not in self.experts_:
                raise ParameterError(
                    f"{what} names {name!r}; the experts are {list(self.experts_)}"
                )

    def _find_views(self, columns: tuple[str, ...]) -> None:
        experts = [scorer_of(expert) for expert in self.experts_.values()]
        every = {view for expert in experts for view in base_columns(tuple(expert.views_))}
        # in the order of the labels, whatever the experts have
        self.views_ = dict.fromkeys([view for view in columns if view in every] or columns, 0)
        for view in view_names(self.known):
            if view not in self.views_:
                raise ParameterError(f"known names {view!r}; there are {list(self.views_)}")
        for name in self.experts_:
            if not self._may(name):
                raise ParameterError(f"expert {name!r} has no view of the labels: leave it out")

    # -- evidence and pair terms ----------------------------------------------------

    def project(self, vectors: AnyArray) -> AnyArray:
        """Evidence of every expert, side by side."""
        parts = self.parts()
        return concatenate_columns(
            [one.evidence(vectors[:, slice(*columns)]) for one, columns in parts]
        )

    def parts(self) -> Sequence[tuple[BaseScorer, tuple[int, int]]]:
        return [(expert, self._columns_of(name)) for name, expert in self.experts_.items()]

    def _columns_of(self, name: str) -> tuple[int, int]:
        return (self.columns or {}).get(name, (0, self.width_))

    def pair_terms(self) -> JointTerms:
        return self.pair_terms_with_known(())

    def pair_terms_with_known(self, views: Sequence[str]) -> JointTerms:
        if not hasattr(self, "experts_"):
            check_is_fitted(self, "experts_")
        names = list(self.experts_)
        weights = [(name, tuple(weights.items())) for name, weights in self.weights_.items()]
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
        """Return the pair terms of an expert; the classes of these views are known, where it has some."""
        scorer = scorer_of(self.experts_[name])
        known = tuple(self._expert_classes(name, views))
        return scorer.pair_terms_with_known(known) if known else scorer.pair_terms()

    def _expert_classes(self, name: str, views: Sequence[str]) -> dict[str, Names]:
        """Return the training classes of an expert in some views."""
        if not views:
            return {}
        classes = scorer_of(self.experts_[name]).training_classes()
        return {
            view: classes[view] for view in self._may(name) if view in views and view in classes
        }

    def _joint_terms(
        self, weights: Mapping[str, Mapping[str, float]], views: Sequence[str]
    ) -> JointTerms:
        """Return the pair terms of some experts with these weights; the classes of these views are known."""
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
            expert_terms.append(ExpertTerms(pair_terms, columns, weights[name], numbers))
        return JointTerms((*self.views_, *self.nuisance_views), expert_terms)

    @property
    def nuisance_views(self) -> tuple[str, ...]:  # type: ignore[override]
        views: set[str] = set()
        for expert in self.experts_.values():
            views.update(scorer_of(expert).nuisance_views)
        return tuple(sorted(views - set(self.views_)))

    @property
    def classes_(self) -> dict[str, Names]:
        """Training classes of all experts by view, each class once."""
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
                    f"expert {name!r} takes {expert.width_in} columns, and is given columns {start} to {stop} of "
                    f"{self.width_}"
                )
        super().check_state()

    def typical_evidence(self) -> AnyArray:
        # each expert at its own mean and scale
        return concatenate_columns([expert.typical_evidence() for expert in self.experts_.values()])

    def get_state(self) -> State:
        arrays, state = super().get_state()
        return arrays, {
            **state,
            "settings": renamed_keys(state["settings"], STORED_NAMES),
            "values": renamed_keys(state["values"], STORED_NAMES),
        }

    @classmethod
    def from_state(cls, arrays: Tensors, values: Json) -> Self:
        attributes = {stored: name for name, stored in STORED_NAMES.items()}
        settings = {"experts": {}, **renamed_keys(values["settings"], attributes)}
        fitted = renamed_keys(values["values"], attributes)
        committee = super().from_state(arrays, {**values, "settings": settings, "values": fitted})
        # a committee that was read can be fitted again
        committee.experts = committee.experts_
        return committee

    def describe(self) -> Json:
        return {
            "class": type(self).__name__,
            "dimension": self.width_,
            "views": list(self.views_),
            "experts": {name: expert.describe() for name, expert in self.experts_.items()},
            "factors": self.weights_,
        }


def renamed_keys(values: Json, names: Mapping[str, str]) -> Json:
    """Return the same values with other names for some of the keys."""
    return {names.get(key, key): value for key, value in values.items()}


def scorer_of(expert: BaseScorer) -> BaseScorer:
    """The scorer itself, where an expert is a bundle of it and its preprocessing."""
    scorer: BaseScorer = getattr(expert, "fitted_scorer", expert)
    return scorer
