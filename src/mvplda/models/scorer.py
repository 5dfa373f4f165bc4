"""Scorer: what everything around a back-end knows of it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple, Protocol, Self, runtime_checkable
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted, validate_data

from .._typing import IntArray
from ..backend import empty, is_torch
from ..costs import threshold_from_costs
from ..exceptions import DataError, LabelError, ParameterError
from ..inference.parameters import Parameters
from ..labels import base_columns
from ..scoring.cells import KnownClasses, Naming, Role
from ..scoring.evidence import LatentSpace, log_sum
from ..scoring.matrix import SCATTER_ELEMENTS, best_of, best_profiles, fill, merge_best, score_pairs
from ..scoring.profiles import Enrolment, Profiles, check_sides, enrolled_names, make_profiles, match_names
from ..scoring.question import Hypothesis, Question, ask, check_given, hypothesis_weights, possible_hypotheses
from ..scoring.terms import Comparison, Scoring, ScoringState, Side, check_printed


class Identification(NamedTuple):
    """The best profiles for every test, best first: names and LLRs, both (tests, top)."""

    ids: NDArray[Any]
    scores: NDArray[Any]


@runtime_checkable
class Scorer(Protocol):
    """A back-end: makes profiles of vectors, and says how likely two profiles are of one class.

    `MultiviewPLDA`, `PLDA`, `CosineScorer`, `CascadeScorer` and `Bundle` are scorers. The sides of a
    score are profiles, or arrays of single vectors. `question` stands for what a scorer can be asked:
    ``same``, and for models of several views ``given``, ``priors`` and ``known``.
    """

    def fit(self, X: Any, y: Any) -> Self: ...

    def enrol(self, X: Any, ids: Any = None, labels: Any = None) -> Profiles: ...

    def llr(self, enrol: Any, test: Any, **question: Any) -> Any: ...

    def llr_trials(self, enrol: Any, test: Any, pairs: Any, **question: Any) -> Any: ...

    def identify(self, profiles: Profiles, test: Any, *, top: int = 10, **question: Any) -> Identification: ...

    def save(self, path: Any) -> None: ...


class MatrixScorer:
    """Lists, bands and the best profiles, for a scorer that says what a matrix and a row of pairs are."""

    def _key(self) -> str:
        """Fingerprint of the fitted scorer."""
        raise NotImplementedError

    def enrol(self, X: Any, ids: Any = None, labels: Any = None) -> Profiles:
        raise NotImplementedError

    def _matrix(self, enrol: Profiles, test: Profiles, same: tuple[str, ...] | None, dtype: Any) -> NDArray[Any]:
        """Scores of every profile and test."""
        raise NotImplementedError

    def _pairs(self, enrol: Profiles, test: Profiles, same: tuple[str, ...] | None, dtype: Any) -> NDArray[Any]:
        """Scores of the first with the first, the second with the second, and so on."""
        raise NotImplementedError

    def llr(
        self, enrol: Any, test: Any, *, same: str | Iterable[str] | None = None, dtype: Any = np.float32
    ) -> NDArray[Any]:
        """Scores (profiles, tests), of profiles or of arrays of single vectors."""
        return self._matrix(*self._sides(enrol, test), _asked(same), dtype)

    def llr_trials(
        self, enrol: Any, test: Any, pairs: Any, *, same: str | Iterable[str] | None = None, dtype: Any = np.float32
    ) -> NDArray[Any]:
        """Scores of a list of trials (row of a profile, row of a test), without the matrix."""
        profiles, tests = self._sides(enrol, test)
        pairs = check_pairs(pairs, len(profiles), len(tests))
        result = np.empty(len(pairs), dtype=dtype)
        step = max(1, SCATTER_ELEMENTS // profiles.y.shape[1])
        for start in range(0, len(pairs), step):
            some = slice(start, start + step)
            sides = profiles.take(pairs[some, 0]), tests.take(pairs[some, 1])
            result[some] = self._pairs(*sides, _asked(same), dtype)
        return result

    def identify(
        self,
        profiles: Profiles,
        test: Any,
        *,
        top: int = 10,
        same: str | Iterable[str] | None = None,
        dtype: Any = np.float32,
    ) -> Identification:
        """The `top` profiles of every test, best first, without ever holding the whole matrix."""
        enrolled, tests = self._sides(profiles, test)
        top = min(check_top(top), len(enrolled))
        numbers: IntArray = np.empty((len(tests), 0), dtype=np.int64)
        scores: NDArray[Any] = np.empty((len(tests), 0), dtype=dtype)
        step = max(top, SCATTER_ELEMENTS // len(tests))
        for start in range(0, len(enrolled), step):
            rows = np.arange(start, min(start + step, len(enrolled)))
            band = self._matrix(enrolled.take(rows), tests, _asked(same), dtype)
            numbers, scores = merge_best(numbers, scores, *best_of(band, rows, min(top, len(rows))), top)
        return Identification(enrolled.ids[numbers], scores)

    def _sides(self, enrol: Any, test: Any) -> tuple[Profiles, Profiles]:
        check_is_fitted(self)
        profiles, tests = (side if isinstance(side, Profiles) else self.enrol(side) for side in (enrol, test))
        check_sides(profiles, self._key(), "enrolled")
        check_sides(tests, self._key(), "test")
        return profiles, tests


def _asked(same: str | Iterable[str] | None) -> tuple[str, ...] | None:
    return None if same is None else (same,) if isinstance(same, str) else tuple(same)


def check_top(top: int) -> int:
    if top < 1:
        raise ParameterError(f"top is at least 1; got {top}")
    return top


def check_pairs(pairs: Any, n_enrol: int, n_test: int) -> IntArray:
    pairs = np.asarray(pairs)
    if pairs.size == 0 and pairs.ndim <= 2:
        return np.zeros((0, 2), dtype=np.int64)
    if pairs.ndim != 2 or pairs.shape[1] != 2 or pairs.dtype.kind not in "iu":
        raise DataError(f"pairs are integers (n, 2): row of a profile, row of a test; got {pairs.dtype} {pairs.shape}")
    if pairs.min() < 0 or pairs[:, 0].max() >= n_enrol or pairs[:, 1].max() >= n_test:
        raise DataError(f"a pair names a row outside the {n_enrol} profiles and {n_test} tests")
    return np.asarray(pairs, dtype=np.int64)


def fingerprint(arrays: Iterable[NDArray[Any]]) -> str:
    """A name for parameters: the same for the same numbers."""
    digest = hashlib.blake2b(digest_size=16)
    for array in arrays:
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


# Verification methods of every model that has parameters.


Known = Mapping[str, Any] | Iterable[str] | str


class VerificationMixin:
    """Likelihood ratios between profiles and tests, for a fitted model."""

    views_: dict[str, int]
    mean_: NDArray[np.float64]
    loadings_: dict[str, NDArray[np.float64]]
    noise_: NDArray[np.float64]
    classes_: dict[str, NDArray[Any]]
    class_means_: dict[str, NDArray[np.float64]]
    class_covariances_: dict[str, NDArray[np.float64]]
    missing: Any

    def enrol(self, X: Any, ids: Any = None, labels: Any = None, *, method: Enrolment = "book") -> Profiles:
        """Make profiles of vectors.

        Parameters
        ----------
        X : array or torch tensor (n, D)
        ids : (n,) profile of every vector; None makes a profile of each
        labels : {view: (n,) labels} of some views: vectors of a profile with different labels are of different
            classes (a speaker enrolled with several phrases), and so are vectors of the two sides of a trial
            where both have labels; in views without labels all vectors of a profile are of one class
        method : "book" keeps the count of vectors; "average" scores their mean as one vector
        """
        state = self._state()
        if hasattr(X, "columns"):
            try:
                validate_data(self, X, reset=False, skip_check_array=True)  # the features' names and their order
            except ValueError as error:
                raise DataError(str(error)) from error
        return make_profiles(X, ids, labels, method, state.space, self.views_, state.key, self.missing)

    def llr(
        self,
        enrol: Any,
        test: Any,
        *,
        same: str | Iterable[str] | None = None,
        given: Mapping[str, str] | None = None,
        priors: Mapping[Any, float] | None = None,
        known: Known | None = None,
        scoring: Scoring = "exact",
        dtype: Any = np.float32,
        out: Any = None,
        threads: int | None = None,
    ) -> Any:
        """Natural-log likelihood ratios of every profile against every test, (profiles, tests).

        Parameters
        ----------
        enrol, test : Profiles, or arrays of single vectors
        same : the view or views in question; None: all that are neither given nor labelled on both sides.
            In a view that is labelled on both sides, equal labels are the same class; where it is asked about
            by name, the test's labels are claims, and the question is whether they are true
        given : {view: "same" or "different"}, what is known of other views
        priors : {views that are the same: weight} over hypotheses, e.g. {("speaker",): 2, ("phrase",): 1, (): 1}
        known : views whose classes were seen in training and stand for themselves: {view: class of every
            profile}, or the names of views in which the profiles have labels
        scoring : "exact", or "paper" for the ratio printed in arXiv 1704.06061
        dtype : of the products and the result; the set-up is float64
        out : array to write into
        threads : default: one a core
        """
        comparison = self._compare(enrol, test, same, given, priors, known, scoring, dtype)
        shape = comparison.shape
        result = empty(shape, dtype, comparison.reference) if out is None else out
        if tuple(result.shape) != shape:
            raise DataError(f"out has shape {tuple(result.shape)}; the scores need {shape}")
        return fill(comparison, result, threads)

    def llr_trials(
        self,
        enrol: Any,
        test: Any,
        pairs: Any,
        *,
        same: str | Iterable[str] | None = None,
        given: Mapping[str, str] | None = None,
        priors: Mapping[Any, float] | None = None,
        known: Known | None = None,
        scoring: Scoring = "exact",
        dtype: Any = np.float32,
    ) -> Any:
        """LLRs of a list of trials (row of a profile, row of a test), without the matrix."""
        comparison = self._compare(enrol, test, same, given, priors, known, scoring, dtype)
        return score_pairs(comparison, check_pairs(pairs, *comparison.shape))

    def hypotheses(
        self,
        enrol: Any,
        test: Any,
        *,
        given: Mapping[str, str] | None = None,
        priors: Mapping[Any, float] | None = None,
        known: Known | None = None,
        dtype: Any = np.float32,
    ) -> dict[Hypothesis, Any]:
        """Posterior probability of every hypothesis, {views that are the same: (profiles, tests)}.

        For views speaker and phrase: ("speaker", "phrase") is TC, ("speaker",) is TW,
        ("phrase",) is IC and () is IW. Views in which both sides have labels are known, and not named.
        """
        profiles, tests = self._sides(enrol, test)
        labelled = self._labelled(profiles, tests, known)
        base = base_columns(tuple(self.views_))
        free = [view for view in base if view not in labelled]
        possible = possible_hypotheses(free, check_given(given, base, labelled))
        weights = hypothesis_weights(possible, free, priors, labelled) or dict.fromkeys(possible, 1.0)
        if not sum(weights.values()) > 0:
            raise ParameterError(f"priors give no weight to any hypothesis: {dict(priors or {})}")
        against = {possible[-1]: 0.0}
        every = Question(dict(self.views_), dict.fromkeys(possible, 0.0), against)
        comparison = self._put(every, profiles, tests, known, "exact", np.float64)
        log_ratios = {}
        for name in possible:
            one = replace(comparison, question=Question(dict(self.views_), {name: 0.0}, against))
            weight = weights.get(name, 0.0)
            matrix = fill(one, empty(one.shape, np.float64, one.reference))
            log_ratios[name] = matrix + (np.log(weight) if weight > 0 else -np.inf)
        total = log_sum([m + 0 for m in log_ratios.values()])
        return {name: _exp(matrix - total, dtype) for name, matrix in log_ratios.items()}

    def identify(
        self,
        profiles: Profiles,
        test: Any,
        *,
        top: int = 10,
        same: str | Iterable[str] | None = None,
        given: Mapping[str, str] | None = None,
        priors: Mapping[Any, float] | None = None,
        known: Known | None = None,
        dtype: Any = np.float32,
    ) -> Identification:
        """The `top` profiles of every test, best first, without ever holding the whole matrix."""
        comparison = self._compare(profiles, test, same, given, priors, known, "exact", dtype)
        numbers, scores = best_profiles(comparison, min(check_top(top), comparison.shape[0]))
        return Identification(comparison.enrol.profiles.ids[numbers], scores)

    # -- scikit-learn's clothes ---------------------------------------------

    def decision_function(self, pairs: Any, *, same: str | Iterable[str] | None = None) -> Any:
        """LLR of every pair of vectors, pairs (n, 2, D)."""
        check_is_fitted(self, "mean_")
        pairs = np.asarray(pairs)
        if pairs.ndim != 3 or pairs.shape[1] != 2:
            raise DataError(f"pairs have shape (n, 2, D); got {pairs.shape}. Reshape your data")
        both = np.repeat(np.arange(len(pairs))[:, None], 2, axis=1)
        return self.llr_trials(pairs[:, 0], pairs[:, 1], both, same=same, dtype=np.float64)

    def set_threshold(self, threshold: float) -> Self:
        """Accept pairs whose LLR is at least this."""
        self.threshold_ = float(threshold)
        return self

    def set_threshold_from_costs(
        self, prior: float = 0.01, miss_cost: float = 1.0, false_alarm_cost: float = 1.0
    ) -> Self:
        """The threshold that is best for calibrated LLRs, a prior of "same", and costs of errors."""
        return self.set_threshold(threshold_from_costs(prior, miss_cost, false_alarm_cost))

    def predict(self, pairs: Any) -> NDArray[np.int64]:
        """1 for pairs at or above the threshold, -1 for the others."""
        check_is_fitted(self, "mean_")
        if not hasattr(self, "threshold_"):
            raise ParameterError("there is no threshold yet: call set_threshold or set_threshold_from_costs first")
        return np.where(np.asarray(self.decision_function(pairs)) >= self.threshold_, 1, -1)

    # -- helpers -------------------------------------------------------------

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
            if all(a is b and not a.flags.writeable for a, b in zip(arrays, state.arrays, strict=True)):
                return state
        key = fingerprint(arrays)
        if state is None or state.key != key:
            state = ScoringState(key, arrays, LatentSpace.of(p))
            _STATES[self] = state
        return state

    def _key(self) -> str:
        return self._state().key

    def _sides(self, enrol: Any, test: Any) -> tuple[Profiles, Profiles]:
        profiles = enrol if isinstance(enrol, Profiles) else self.enrol(enrol)
        tests = test if isinstance(test, Profiles) else self.enrol(test)
        key = self._key()
        check_sides(profiles, key, "enrolled")
        check_sides(tests, key, "test")
        if is_torch(profiles.y) != is_torch(tests.y):
            raise DataError("one side is a torch tensor and the other is not: give both as the same kind")
        return profiles, tests

    def _compare(
        self,
        enrol: Any,
        test: Any,
        same: str | Iterable[str] | None,
        given: Mapping[str, str] | None,
        priors: Mapping[Any, float] | None,
        known: Known | None,
        scoring: Scoring,
        dtype: Any,
    ) -> Comparison:
        if scoring not in ("exact", "paper"):
            raise ParameterError(f"scoring is 'exact' or 'paper'; got {scoring!r}")
        profiles, tests = self._sides(enrol, test)
        question = ask(self.views_, same, given, priors, self._labelled(profiles, tests, known))
        if scoring == "paper":
            check_printed(question)
            if known or profiles.labels or tests.labels:
                raise ParameterError("scoring='paper' knows neither labels nor known=")
        return self._put(question, profiles, tests, known, scoring, dtype)

    def _labelled(self, profiles: Profiles, tests: Profiles, known: Known | None) -> list[str]:
        """Base views in which the classes of both sides have names."""
        return [view for view in tests.labels if view in profiles.labels or view in _known_views(known)]

    def _put(
        self, question: Question, profiles: Profiles, tests: Profiles, known: Known | None, scoring: Scoring, dtype: Any
    ) -> Comparison:
        if np.dtype(dtype) not in (np.float32, np.float64):
            raise ParameterError(f"dtype is float32 or float64; got {dtype!r}")
        labelled = self._labelled(profiles, tests, known)
        asked = set().union(*question.hypotheses)
        enrol, test = Side(profiles, {}, "enrolled"), Side(tests, {}, "test")
        namings = dict.fromkeys(base_columns(tuple(self.views_)), Naming())
        posteriors = {}
        for view in dict.fromkeys([*labelled, *_known_views(known)]):
            training = self._training(view) if view in _known_views(known) else None
            claims = known.get(view) if isinstance(known, Mapping) else None
            carried = enrolled_names(profiles, view, claims)
            role: Role = "plain" if view not in labelled else "claim" if view in asked else "fact"
            numbers, found = match_names(view, carried, tests.labels.get(view), training)
            enrol.names[view] = numbers[0]
            if numbers[1] is not None:
                test.names[view] = numbers[1]
            namings[view] = Naming(role, found)
            if training is not None:
                posteriors[view] = self._posteriors(view)
        return Comparison(question, enrol, test, self._state(), namings, posteriors, scoring, dtype)

    def _training(self, view: str) -> NDArray[Any]:
        """Names of the training classes of a view whose posteriors are kept."""
        if view not in self.class_covariances_:
            raise LabelError(
                f"the model keeps no class posteriors of a view {view!r}; it does of {list(self.class_covariances_)}"
            )
        return self.classes_[view]

    def _posteriors(self, view: str) -> KnownClasses:
        kept, state = self.class_covariances_[view], self._state()
        if view not in state.posteriors or state.posteriors[view][0] is not kept:
            n = len(self.classes_[view])
            state.posteriors[view] = kept, KnownClasses.of(self.class_means_[view][:n], kept[:n])
        return state.posteriors[view][1]


_STATES: WeakKeyDictionary[Any, ScoringState] = WeakKeyDictionary()
"""Outside the models, which scoring must leave as they are."""


def _known_views(known: Known | None) -> tuple[str, ...]:
    return () if known is None else (known,) if isinstance(known, str) else tuple(known)


def _exp(matrix: Any, dtype: Any) -> Any:
    if is_torch(matrix):
        return matrix.exp().to(getattr(__import__("torch"), np.dtype(dtype).name))
    return np.exp(matrix).astype(dtype)
