"""What a fitted model of latents can be asked: profiles, likelihood ratios, hypotheses, decisions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data

from .._typing import Array, IntArray
from ..backend import cast, dtype_name, empty, is_torch, to_host
from ..costs import threshold_from_costs
from ..exceptions import DataError, LabelError, ParameterError
from ..inference.parameters import Parameters
from ..labels import base_columns
from ..persistence import fingerprint
from ..scoring.cells import KnownClasses, Naming, Role, group_profiles, standardise
from ..scoring.evidence import LatentSpace
from ..scoring.matrix import best_profiles, fill, score_pairs
from ..scoring.profiles import (
    Enrolment,
    Profiles,
    SideLike,
    enrolled_names,
    heard_labels,
    make_profiles,
    match_names,
)
from ..scoring.question import Hypothesis, Question, Ratio, make_question
from ..scoring.terms import Comparison, Scoring, ScoringState, Side, TermCache
from .scorer import BaseScorer, Identification, check_pairs, check_top


class LatentModel(BaseScorer):
    """A model that was fitted, or whose parameters were given: `MultiviewPLDA` besides its training."""

    views_: dict[str, int]
    mean_: NDArray[np.float64]
    loadings_: dict[str, NDArray[np.float64]]
    noise_: NDArray[np.float64]
    classes_: dict[str, NDArray[Any]]
    class_means_: dict[str, NDArray[np.float64]]
    class_covariances_: dict[str, NDArray[np.float64]]
    log_likelihoods_: NDArray[np.float64]
    missing: Any

    def enrol(
        self,
        X: ArrayLike,
        ids: ArrayLike | None = None,
        labels: Any = None,
        *,
        method: Enrolment = "exact",
        weights: ArrayLike | None = None,
    ) -> Profiles:
        """Make profiles of vectors.

        Parameters
        ----------
        X : array or torch tensor (n, D)
        ids : (n,) profile of every vector; None makes a profile of each
        labels : {view: (n,) labels} of some views: vectors of a profile with different labels are of different
            classes (a speaker enrolled with several phrases), and so are vectors of the two sides of a trial
            where both have labels; in views without labels all vectors of a profile are of one class
        method : "exact" keeps the count of vectors; "average" scores their mean as one vector
        weights : (n,) positive: the noise of a vector is the model's, divided by its weight. Profiles of equal weights
            are scored together, so that a few distinct values are quicker than many
        """
        state = self._state()
        if hasattr(X, "columns"):
            try:
                validate_data(
                    self, X, reset=False, skip_check_array=True
                )  # the features' names and their order
            except ValueError as error:
                raise DataError(str(error)) from error
        return make_profiles(
            X, ids, labels, method, state.space, self.views_, state.key, self.missing, weights
        )

    def llr(
        self,
        enrol: SideLike,
        test: SideLike,
        question: Question | None = None,
        *,
        scoring: Scoring = "exact",
        dtype: DTypeLike = np.float32,
        out: Any = None,
        threads: int | None = None,
        **asked: Any,
    ) -> Any:
        """Natural-log likelihood ratios of every profile against every test, (profiles, tests).

        Parameters
        ----------
        enrol, test : Profiles, or arrays of single vectors
        question : a `Question`; or its parts, `same`, `given`, `priors`, `known`, `countermeasure` and `spoof_prior`,
            as keyword arguments. None: "same in every view?"
        scoring : "exact", or "paper" for the ratio printed in arXiv 1704.06061
        dtype : of the products and the result; the set-up is float64
        out : array to write into
        threads : default: one a core
        """
        question = make_question(question, asked)
        comparison = self._compare(enrol, test, question, scoring, dtype)
        shape = comparison.shape
        result = empty(shape, dtype, comparison.reference) if out is None else out
        if tuple(result.shape) != shape:
            raise DataError(f"out has shape {tuple(result.shape)}; the scores need {shape}")
        if "float" not in dtype_name(result):
            raise DataError(
                f"out holds {dtype_name(result)}, which would cut the scores off: give a float array"
            )
        fill(comparison, result, threads)
        if question.countermeasure is not None:
            result[:] = question.with_spoofs(result, shape)
        return result

    def llr_trials(
        self,
        enrol: SideLike,
        test: SideLike,
        pairs: ArrayLike,
        question: Question | None = None,
        *,
        scoring: Scoring = "exact",
        dtype: DTypeLike = np.float32,
        **asked: Any,
    ) -> Any:
        """LLRs of a list of trials (row of a profile, row of a test), without the matrix."""
        question = make_question(question, asked)
        comparison = self._compare(enrol, test, question, scoring, dtype)
        pairs = check_pairs(pairs, *comparison.shape)
        return question.with_spoofs(score_pairs(comparison, pairs), comparison.shape, pairs)

    def hypotheses(
        self,
        enrol: SideLike,
        test: SideLike,
        question: Question | None = None,
        *,
        dtype: DTypeLike = np.float32,
        **asked: Any,
    ) -> dict[Hypothesis, Any]:
        """Posterior probability of every hypothesis, {views that are the same: (profiles, tests)}.

        For views speaker and phrase: ("speaker", "phrase") is TC, ("speaker",) is TW,
        ("phrase",) is IC and () is IW. Views in which both sides have labels are known, and not named.
        The question says what is given and known, and the priors of the hypotheses: equal ones by default. With a
        countermeasure there is one more, ("spoof",): a machine that imitates the first.
        """
        question = make_question(question, asked)
        profiles, tests = self._sides(enrol, test)
        weights = question.alternatives(self.views_, _labelled(profiles, tests, question))
        against = {list(weights)[-1]: 0.0}
        every = Ratio(dict(self.views_), dict.fromkeys(weights, 0.0), against)
        comparison = self._put(every, profiles, tests, question, "exact", np.float64)
        logs = {}
        for name in weights:
            one = replace(comparison, ratio=Ratio(dict(self.views_), {name: 0.0}, against))
            logs[name] = fill(one, empty(one.shape, np.float64, one.reference))
        found = question.posteriors(logs, weights)
        return {name: cast(share, np.dtype(dtype).name) for name, share in found.items()}

    def identify(
        self,
        profiles: Profiles,
        test: SideLike,
        question: Question | None = None,
        *,
        top: int = 10,
        dtype: DTypeLike = np.float32,
        **asked: Any,
    ) -> Identification:
        """The `top` profiles of every test, best first, without ever holding the whole matrix."""
        question = make_question(question, asked)
        comparison = self._compare(profiles, test, question, "exact", dtype)
        numbers, scores = best_profiles(comparison, min(check_top(top), comparison.shape[0]))
        return Identification(
            comparison.enrol.profiles.ids[numbers], question.best_with_spoofs(scores)
        )

    def _has_threshold(self) -> bool:
        if not hasattr(self, "threshold_"):
            raise AttributeError(
                "there is no threshold yet: call set_threshold or set_threshold_from_costs first"
            )
        return True

    # scikit-learn calls these of whatever has them with vectors (n, D). Only a model that was given a threshold is a
    # judge of pairs (n, 2, D), and has them.

    @available_if(_has_threshold)  # type: ignore[untyped-decorator]
    def decision_function(self, pairs: ArrayLike, **asked: Any) -> Any:
        """LLR of every pair of vectors, pairs (n, 2, D); see `set_threshold`."""
        pairs = np.asarray(pairs)
        if pairs.ndim != 3 or pairs.shape[1] != 2:
            raise DataError(f"pairs have shape (n, 2, D); got {pairs.shape}. Reshape your data")
        both = np.repeat(np.arange(len(pairs))[:, None], 2, axis=1)
        return self.llr_trials(pairs[:, 0], pairs[:, 1], both, dtype=np.float64, **asked)

    @available_if(_has_threshold)  # type: ignore[untyped-decorator]
    def predict(self, pairs: ArrayLike) -> IntArray:
        """1 for pairs (n, 2, D) whose LLR is at or above the threshold, -1 for the others."""
        return np.where(np.asarray(self.decision_function(pairs)) >= self.threshold_, 1, -1)

    def set_threshold(self, threshold: float) -> Self:
        """Accept pairs whose LLR is at least this."""
        self.threshold_ = float(threshold)
        return self

    def set_threshold_from_costs(
        self, prior: float = 0.01, miss_cost: float = 1.0, false_alarm_cost: float = 1.0
    ) -> Self:
        """The threshold that is best for calibrated LLRs, a prior of "same", and costs of errors."""
        return self.set_threshold(threshold_from_costs(prior, miss_cost, false_alarm_cost))

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
        return len(self.mean_)

    @property
    def parameters_(self) -> Parameters:
        """Mean, loadings and noise as the kernel's record."""
        return Parameters(self.mean_, tuple(self.loadings_.values()), self.noise_)

    def _state(self) -> ScoringState:
        """What scoring keeps of this model, made anew where its parameters have changed."""
        check_is_fitted(self, "mean_")
        p = self.parameters_
        arrays = (p.mean, p.noise, *p.loadings)
        state = _STATES.get(self)
        if state is not None and len(state.arrays) == len(arrays):
            if all(
                a is b and not a.flags.writeable for a, b in zip(arrays, state.arrays, strict=True)
            ):
                return state
        key = fingerprint({str(i): array for i, array in enumerate(arrays)}, {})
        if state is None or state.key != key:
            state = ScoringState(key, arrays, LatentSpace.of(p))
            _STATES[self] = state
        return state

    def _key(self) -> str:
        return self._state().key

    def _sides(self, enrol: SideLike, test: SideLike) -> tuple[Profiles, Profiles]:
        profiles, tests = super()._sides(enrol, test)
        if is_torch(profiles.y) != is_torch(tests.y):
            raise DataError(
                "one side is a torch tensor and the other is not: give both as the same kind"
            )
        return profiles, tests

    def _compare(
        self,
        enrol: SideLike,
        test: SideLike,
        question: Question,
        scoring: Scoring,
        dtype: DTypeLike,
    ) -> Comparison:
        if scoring not in ("exact", "paper"):
            raise ParameterError(f"scoring is 'exact' or 'paper'; got {scoring!r}")
        profiles, tests = self._sides(enrol, test)
        ratio = question.ratio(self.views_, _labelled(profiles, tests, question))
        if scoring == "paper":
            if len(self.views_) != 2 or any(":" in view for view in self.views_) or question.given:
                raise ParameterError(
                    "scoring='paper' is for two views without interaction, and asks for both at once or for one of them"
                )
            if question.known_views or question.recognised or profiles.labels or tests.labels:
                raise ParameterError("scoring='paper' knows neither labels nor known=")
        return self._put(ratio, profiles, tests, question, scoring, dtype)

    def _put(
        self,
        ratio: Ratio,
        profiles: Profiles,
        tests: Profiles,
        question: Question,
        scoring: Scoring,
        dtype: DTypeLike,
    ) -> Comparison:
        if np.dtype(dtype) not in (np.float32, np.float64):
            raise ParameterError(f"dtype is float32 or float64; got {dtype!r}")
        labelled, known = _labelled(profiles, tests, question), question.known_views
        asked = set().union(*ratio.hypotheses)
        enrol, test = Side(profiles, {}), Side(tests, {})
        namings = dict.fromkeys(base_columns(tuple(self.views_)), Naming())
        posteriors, heard = {}, {}
        recognised = question.recognised or {}
        for view in dict.fromkeys([*labelled, *known, *recognised]):
            listed = None
            if view in recognised:
                if view not in namings:
                    raise LabelError(
                        f"recognised names no view of the model: {view!r}; it has {list(namings)}"
                    )
                listed, heard[view] = heard_labels(
                    view, recognised[view], self.classes_.get(view), tests
                )
            training = self._training(view) if view in known else None
            carried = enrolled_names(profiles, view, question.claims(view))
            role: Role = "plain" if view not in labelled else "claim" if view in asked else "fact"
            numbers, found = match_names(view, carried, tests.labels.get(view, listed), training)
            enrol.names[view] = numbers[0]
            if listed is None and numbers[1] is not None:
                test.names[view] = numbers[1]
            columns = None if listed is None or numbers[1] is None else tuple(numbers[1].tolist())
            namings[view] = Naming(role, found, columns)
            if training is not None:
                posteriors[view] = self._posteriors(view)
        return Comparison(
            ratio, enrol, test, self._state(), namings, posteriors, scoring, dtype, heard
        )

    def _class_evidence(self, tests: Profiles, view: str) -> Array:
        names, known, gram = self._training(view), self._posteriors(view), self._state().space.gram
        logs = np.empty((len(tests), len(names) + 1))
        for group in group_profiles(tests, self.views_, {}):
            y, table = group.gather(tests.y), group.table
            for c in (-1, *range(len(names))):
                reading = tuple(
                    (c if v == view else -1,) * len(own)
                    for v, own in zip(table.base, table.names, strict=True)
                )
                as_class: Any = standardise(
                    table, gram, y, reading, {view: known}, alone=True
                ).log_evidence
                logs[group.profiles, c] = to_host(as_class)
        return np.asarray(logs - logs[:, -1:])

    def _training(self, view: str) -> NDArray[Any]:
        """Names of the training classes of a view whose posteriors are kept."""
        if view not in self.class_covariances_:
            raise LabelError(
                f"the model keeps no class posteriors of a view {view!r}; it does of {list(self.class_covariances_)}"
            )
        return self.classes_[view]

    def _posteriors(self, view: str) -> KnownClasses:
        state, of = self._state(), (self.class_means_[view], self.class_covariances_[view])
        kept = state.posteriors.get(view)
        if kept is None or any(new is not old for new, old in zip(of, kept[0], strict=True)):
            n = len(self.classes_[view])
            kept = of, KnownClasses.of(of[0][:n], of[1][:n])
            state.posteriors[view], state.terms = (
                kept,
                TermCache(),
            )  # terms know covariances by number alone
        return kept[1]


_STATES: WeakKeyDictionary[Any, ScoringState] = WeakKeyDictionary()
"""Outside the models, which scoring must leave as they are."""


def _labelled(profiles: Profiles, tests: Profiles, question: Question) -> list[str]:
    """Base views in which the classes of both sides have names."""
    return [
        view for view in tests.labels if view in profiles.labels or view in question.known_views
    ]
