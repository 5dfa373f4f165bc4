"""Verification methods of every model that has parameters."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from ..costs import threshold_from_costs
from ..exceptions import DataError, LabelError, ParameterError
from ..kernel.blocks import log_sum
from ..kernel.evidence import LatentSpace
from ..kernel.hypotheses import Hypothesis, Question, all_hypotheses, as_hypothesis, ask
from ..kernel.records import Parameters
from ..labels import IntArray, base_columns
from .backend import empty, is_torch
from .known import KnownClass
from .matrices import fill, score_pairs
from .profiles import Enrolment, Profiles, check_sides, make_profiles
from .ranking import best_profiles
from .terms import Comparison, Scoring, check_printed


class Identification(NamedTuple):
    """The best profiles for every test, best first: names and LLRs, both (tests, top)."""

    ids: NDArray[Any]
    scores: NDArray[Any]


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
        labels : {view: (n,) labels} of views in which the vectors of a profile
            differ (a speaker enrolled with several phrases); other views are
            shared within a profile
        method : "book" keeps the count of vectors; "average" scores their mean as one vector
        """
        check_is_fitted(self, "mean_")
        return make_profiles(X, ids, labels, method, self._space(), self.views_, self._key(), self.missing)

    def llr(
        self,
        enrol: Any,
        test: Any,
        *,
        same: str | Iterable[str] | None = None,
        given: Mapping[str, str] | None = None,
        priors: Mapping[Any, float] | None = None,
        known: Mapping[str, Any] | None = None,
        scoring: Scoring = "exact",
        dtype: Any = np.float32,
        out: Any = None,
        threads: int | None = None,
    ) -> Any:
        """Natural-log likelihood ratios of every profile against every test, (profiles, tests).

        Parameters
        ----------
        enrol, test : Profiles, or arrays of single vectors
        same : the view or views in question; None: all that are not given
        given : {view: "same" or "different"}, what is known of other views
        priors : {views that are the same: weight} over hypotheses, e.g. {("speaker",): 2, ("phrase",): 1, (): 1}
        known : {view: class of every profile}; classes seen in training stand for themselves
        scoring : "exact", or "paper" for the ratio printed in arXiv 1704.06061
        dtype : of the products and the result; the set-up is float64
        out : array to write into
        threads : default: one a core
        """
        comparison = self._compare(enrol, test, same, given, priors, known, scoring, dtype)
        shape = (len(comparison.enrol), len(comparison.test))
        result = empty(shape, dtype, comparison.enrol.y) if out is None else out
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
        known: Mapping[str, Any] | None = None,
        scoring: Scoring = "exact",
        dtype: Any = np.float32,
    ) -> Any:
        """LLRs of a list of trials (row of a profile, row of a test), without the matrix."""
        comparison = self._compare(enrol, test, same, given, priors, known, scoring, dtype)
        pairs = _check_pairs(pairs, len(comparison.enrol), len(comparison.test))
        return score_pairs(comparison, pairs)

    def hypotheses(
        self, enrol: Any, test: Any, *, priors: Mapping[Any, float] | None = None, dtype: Any = np.float32
    ) -> dict[Hypothesis, Any]:
        """Posterior probability of every hypothesis, {views that are the same: (profiles, tests)}.

        For views speaker and phrase: ("speaker", "phrase") is TC, ("speaker",) is TW,
        ("phrase",) is IC and () is IW.
        """
        check_is_fitted(self, "mean_")
        names = all_hypotheses(self.views_)
        weights = dict.fromkeys(names, 1.0)
        if priors is not None:
            base = base_columns(tuple(self.views_))
            weights = {**dict.fromkeys(names, 0.0), **{as_hypothesis(k, base): float(w) for k, w in priors.items()}}
        profiles = enrol if isinstance(enrol, Profiles) else self.enrol(enrol)
        tests = test if isinstance(test, Profiles) else self.enrol(test)
        log_ratios = {}
        with np.errstate(divide="ignore"):
            logs = {h: float(np.log(w)) for h, w in weights.items()}
        for name in names:
            question = Question(dict(self.views_), {name: 0.0}, {(): 0.0})
            comparison = self._put(question, profiles, tests, None, "exact", np.float64)
            matrix = empty((len(comparison.enrol), len(comparison.test)), np.float64, comparison.enrol.y)
            log_ratios[name] = fill(comparison, matrix) + logs[name]
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
        dtype: Any = np.float32,
    ) -> Identification:
        """The `top` profiles of every test, best first, without ever holding the whole matrix."""
        comparison = self._compare(profiles, test, same, given, priors, None, "exact", dtype)
        if top < 1:
            raise ParameterError(f"top is at least 1; got {top}")
        numbers, scores = best_profiles(comparison, min(top, len(comparison.enrol)))
        return Identification(comparison.enrol.ids[numbers], scores)

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

    def _space(self) -> LatentSpace:
        return LatentSpace.of(self.parameters_)

    def _key(self) -> str:
        p = self.parameters_
        noise = p.noise if p.noise.ndim == 1 else np.concatenate([np.diag(p.noise), p.noise.sum(axis=0)])
        digest = hashlib.blake2b(digest_size=16)
        for array in (p.mean, noise, *p.loadings):
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    def _compare(
        self,
        enrol: Any,
        test: Any,
        same: str | Iterable[str] | None,
        given: Mapping[str, str] | None,
        priors: Mapping[Any, float] | None,
        known: Mapping[str, Any] | None,
        scoring: Scoring,
        dtype: Any,
    ) -> Comparison:
        check_is_fitted(self, "mean_")
        question = ask(self.views_, same, given, priors)
        if scoring not in ("exact", "paper"):
            raise ParameterError(f"scoring is 'exact' or 'paper'; got {scoring!r}")
        if scoring == "paper":
            check_printed(question)
        return self._put(question, enrol, test, known, scoring, dtype)

    def _put(
        self,
        question: Question,
        enrol: Any,
        test: Any,
        known: Mapping[str, Any] | None,
        scoring: Scoring,
        dtype: Any,
    ) -> Comparison:
        if np.dtype(dtype) not in (np.float32, np.float64):
            raise ParameterError(f"dtype is float32 or float64; got {dtype!r}")
        key = self._key()
        profiles = enrol if isinstance(enrol, Profiles) else self.enrol(enrol)
        tests = test if isinstance(test, Profiles) else self.enrol(test)
        check_sides(profiles, key, "enrolled")
        check_sides(tests, key, "test")
        if is_torch(profiles.y) != is_torch(tests.y):
            raise DataError("one side is a torch tensor and the other is not: give both as the same kind")
        return Comparison(question, profiles, tests, scoring, self._known(known, profiles, scoring), dtype)

    def _known(self, known: Mapping[str, Any] | None, enrol: Profiles, scoring: Scoring) -> KnownClass | None:
        if not known:
            return None
        if len(known) > 1 or scoring == "paper" or enrol.mixed:
            raise ParameterError("known= takes one view, exact scoring, and profiles of one cell each")
        ((view, claims),) = known.items()
        if view not in self.class_covariances_:
            raise LabelError(
                f"the model keeps no class posteriors of a view {view!r}; it does of {list(self.class_covariances_)}"
            )
        claims = np.asarray(claims)
        if claims.shape != (len(enrol),):
            raise LabelError(f"known[{view!r}] names one class a profile: {len(enrol)}; got shape {claims.shape}")
        names = self.classes_[view]
        place = np.minimum(np.searchsorted(names, claims), len(names) - 1)
        claimed = np.where(names[place] == claims, place, -1)
        n = len(names)
        return KnownClass(view, claimed, self.class_means_[view][:n], self.class_covariances_[view][:n])


def _check_pairs(pairs: Any, n_enrol: int, n_test: int) -> IntArray:
    pairs = np.asarray(pairs)
    if pairs.ndim != 2 or pairs.shape[1] != 2 or pairs.dtype.kind not in "iu":
        raise DataError(f"pairs are integers (n, 2): row of a profile, row of a test; got {pairs.dtype} {pairs.shape}")
    if len(pairs) and (pairs.min() < 0 or pairs[:, 0].max() >= n_enrol or pairs[:, 1].max() >= n_test):
        raise DataError(f"a pair names a row outside the {n_enrol} profiles and {n_test} tests")
    return np.asarray(pairs, dtype=np.int64)


def _exp(matrix: Any, dtype: Any) -> Any:
    if is_torch(matrix):
        return matrix.exp().to(getattr(__import__("torch"), np.dtype(dtype).name))
    return np.exp(matrix).astype(dtype)
