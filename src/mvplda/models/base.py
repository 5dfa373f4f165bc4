"""Base class of scorers: profiles of vectors, and answers to questions about them.

A scorer provides the evidence of vectors, and pair terms: the log-ratio of two profiles under an
assignment of their classes (see `mvplda.scoring.pair_terms`). From these the base class computes
likelihood ratios, lists of trials, rankings and posterior probabilities, in the same way for all
scorers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from typing import ClassVar, NamedTuple, Self, Unpack

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from .._optional import load_entry_points
from .._typing import AnyArray, Array, Json, Labels, Names, Ranks, Views
from ..backend import cast, dtype_name, empty, is_torch, to_host
from ..exceptions import DataError, LabelError, ParameterError
from ..labels import check_view_names
from ..persistence import Persistent, check_finite, check_width, ordinary_vectors
from ..scoring.block_ratios import Comparison
from ..scoring.engine import (
    best_profiles,
    fill_results,
    log_likelihoods,
    score_pairs,
)
from ..scoring.pair_terms import PairTerms
from ..scoring.profiles import (
    Enrolment,
    Profiles,
    ProfilesLike,
    from_sums,
    sum_evidence,
)
from ..scoring.question import LogLikelihoods, Question, QuestionArguments, make_question
from ..scoring.search import SearchIndex
from ..sklearn_interface import check_is_fitted
from ..vector_checks import as_vectors, check_feature_names
from .caching import CACHE, comparing_once
from .checks import check_whole_number
from .profile_comparison import ScoringMethod, compare
from .trial_set import check_trial_pairs


class Identification(NamedTuple):
    """Best profiles of each test, best first.

    ids : (tests, top) names of the profiles
    scores : (tests, top) their LLRs
    """

    ids: Names
    scores: Names


SCORERS: dict[str, type[BaseScorer]] = {}
"""Scorer classes by the name that ``mvplda train --model`` uses; a class with a `NAME` is added when it is defined."""


def find_scorers() -> dict[str, type[BaseScorer]]:
    """Return all scorers by name, including those of plug-ins (entry points of the group ``mvplda.scorers``)."""
    import_module(".built_in", __package__)
    load_entry_points("scorers")
    return SCORERS


class BaseScorer(Persistent):
    """Base class of scorers: computes profiles of vectors, and likelihood ratios of two profiles.

    `MultiviewPLDA`, `PLDA`, `CosineScorer`, `Committee` and `Bundle` are scorers. The two sides of
    a score are profiles, or arrays of single vectors. A question is a `Question`, or its fields as
    keyword arguments; a scorer raises an error for questions that it cannot answer.

    To add a scorer, write one module with a class that has `fit`, `views_`, `width_in`, `project`,
    `pair_terms` and `_key`. Import it in ``mvplda/models/built_in.py``, or register it as an entry
    point of the group ``mvplda.scorers``. ``tests/models/test_scorers.py`` has an example.
    """

    KIND: ClassVar[str] = "model"

    NAME: ClassVar[str] = ""
    """Name for ``mvplda train --model``; scorers without a name are not available there."""

    NEEDS_LABELS: ClassVar[bool] = True
    """Whether `fit` requires labels."""

    views_: dict[str, int]
    """Views of the fitted scorer with their ranks; rank 0 for scorers without ranks."""

    nuisance_views: Views = ()
    """Views that no question is about, such as sessions; their labels only divide the vectors of a profile."""

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        if cls.__dict__.get("NAME"):
            SCORERS[cls.NAME] = cls

    # -- methods of a subclass -------------------------------------------------

    @classmethod
    def with_ranks(cls, ranks: Ranks, settings: Json) -> Self:
        """Return an unfitted scorer of views with these ranks.

        ranks : {view: rank}; None stands for the largest possible rank
        settings : {name: value} of the constructor; unknown names raise `ParameterError`
        """
        raise NotImplementedError

    def fit(self, X: ArrayLike, y: Labels | None = None) -> Self:
        """Fit to vectors.

        Parameters
        ----------
        X : (n, D) vectors
        y : labels by view; None for scorers that need none

        Returns
        -------
        self
        """
        raise NotImplementedError

    @property
    def width_in(self) -> int:
        """Number of dimensions of the vectors that the fitted scorer takes."""
        raise NotImplementedError

    @property
    def width_out(self) -> int:
        """Number of columns of the evidence (of the projection of a vector onto the latent space)."""
        return self.width_in

    def evidence(self, X: ArrayLike) -> AnyArray:
        """Return the evidence of vectors in float64, (n, width_out); the evidence of a profile is
        the sum over its vectors.

        X : array or torch tensor (n, width_in); NaN and infinity raise `DataError`
        """
        try:
            width = self.width_in
        except AttributeError:
            # check_is_fitted is slow: call it only if the width is missing
            check_is_fitted(self)
            raise
        check_feature_names(self, X, reset=False)
        vectors = X.double() if is_torch(X) else as_vectors(X)
        if vectors.ndim != 2 or vectors.shape[1] != width:
            raise DataError(
                f"X has {vectors.shape[-1]} features, but {type(self).__name__} is expecting {width} features as input"
            )
        y = self.project(vectors)
        # the sum of a row is finite only if all its values are
        is_odd = ~np.isfinite(to_host(y.sum(1)))
        if is_odd.any():
            raise DataError(
                f"Input X contains NaN or infinity, first in row {np.flatnonzero(is_odd)[0]}: "
                "leave these vectors out"
            )
        return y

    def project(self, vectors: AnyArray) -> AnyArray:
        """Return the evidence of checked vectors (n, width_in), as an array (n, width_out); the
        ONNX export calls it too.
        """
        raise NotImplementedError

    def components(self) -> Sequence[tuple[BaseScorer, tuple[int, int]]]:
        """Return the scorers that this scorer combines; empty for a scorer that combines none.

        Each comes with (start, stop), the range of the columns of a vector that it takes. The
        evidence of the combined scorer has the columns of all components, side by side.
        """
        return ()

    def pair_terms(self) -> PairTerms:
        """Return the pair terms of the scorer: log-ratios of profile and test, see `mvplda.scoring.pair_terms`."""
        raise NotImplementedError

    def pair_terms_with_known(self, views: Sequence[str]) -> PairTerms:
        """Return pair terms (log-ratios) in which the classes of these views are known classes.

        Scorers that do not override this method return their `pair_terms`.

        views : views of the question's `known`; a test has one of their known classes
        """
        return self.pair_terms()

    def published_pair_terms(self) -> PairTerms:
        """Return the pair terms (log-ratios) of the paper's scoring, for ``scoring="paper"``."""
        raise ParameterError(
            f"scoring='paper' requires a MultiviewPLDA with two views; a {type(self).__name__} "
            "does not support it: use scoring='exact'"
        )

    def known_names(self, view: str) -> Names:
        """Return the names (classes,) of the classes that questions with ``known=`` use for a view.

        They are training classes, or for some scorers the enrolled classes; empty before the first
        enrolment. Raise `LabelError` if the scorer has no known classes of this view.
        """
        raise LabelError(
            f"this {type(self).__name__} has no known classes of view {view!r}: leave the view out of known="
        )

    def training_classes(self) -> dict[str, Names]:
        """Return the names of the training classes, {view: names}; empty if the scorer has none."""
        classes: dict[str, Names] = getattr(self, "classes_", {})
        return classes

    def check_state(self) -> None:
        """Raise an error if a loaded scorer is inconsistent or gives scores that are NaN or infinite."""
        super().check_state()
        check_view_names(tuple(self.views_))
        check_width(self, self.width_in)
        evidence = self.typical_evidence()
        profiles = self.profiles(evidence, np.ones(len(evidence)), np.arange(len(evidence)))
        check_finite(self, self.llr(profiles, profiles))

    def typical_vectors(self) -> Array:
        """Return two vectors (2, width_in) that `check_state` scores, if possible like training data."""
        return ordinary_vectors(self.width_in)

    def typical_evidence(self) -> AnyArray:
        """Return the evidence of `typical_vectors`, (2, width_out)."""
        return self.evidence(self.typical_vectors())

    def _key(self) -> str:
        """Return the fingerprint of the fitted scorer, which is stored in its profiles."""
        raise NotImplementedError

    def __getstate__(self) -> dict[str, object]:
        # scikit-learn's state, which has its version
        state: dict[str, object] = super().__getstate__()  # type: ignore[assignment]
        return {name: value for name, value in state.items() if name != CACHE}

    # -- profiles ----------------------------------------------------------------

    @comparing_once()
    def enrol(
        self,
        X: ArrayLike,
        ids: ArrayLike | None = None,
        labels: Labels | None = None,
        *,
        method: Enrolment = "exact",
        weights: Array | None = None,
    ) -> Profiles:
        """Return profiles of vectors.

        Parameters
        ----------
        X : array or torch tensor (n, D)
        ids : (n,) profile of each vector; None: one profile per vector
        labels : {view: (n,) labels} of the views in which a profile has several classes, such as
            the phrases of a speaker. If profile and test have labels in a view, equal labels are
            the same class and different labels different classes. In views without labels, all
            vectors of a profile have the same class
        method : "exact" keeps the number of vectors; "average" scores the mean of a profile's
            vectors as one vector
        weights : (n,) positive weights; the noise variance of a vector is that of the model divided
            by its weight

        Returns
        -------
        Profiles
        """
        base = self.pair_terms().base
        return sum_evidence(
            self.evidence(X),
            ids,
            labels,
            base,
            self._key(),
            method=method,
            weights=weights,
        )

    @comparing_once()
    def profiles(
        self,
        y: AnyArray,
        weights: ArrayLike,
        owner: ArrayLike,
        ids: ArrayLike | None = None,
        labels: Labels | None = None,
    ) -> Profiles:
        """Return profiles from precomputed sums of `evidence`, one sum per cell (combination of classes).

        Parameters
        ----------
        y : (R, r) sum of the evidence of every cell's vectors
        weights : (R,) number of vectors in the sum of each cell
        owner : (R,) profile of every cell: 0, 1, ... in order
        ids : names of the profiles; None: their numbers
        labels : {view: (R,) labels of the cells}

        Returns
        -------
        Profiles
        """
        base = self.pair_terms().base
        return from_sums(y, weights, owner, ids, labels, base, self.width_out, self._key())

    # -- answers -------------------------------------------------------------------

    @comparing_once()
    def llr(
        self,
        enrol: ProfilesLike,
        test: ProfilesLike,
        question: Question | None = None,
        *,
        scoring: ScoringMethod = "exact",
        dtype: DTypeLike = np.float32,
        out: AnyArray | None = None,
        threads: int | None = None,
        **arguments: Unpack[QuestionArguments],
    ) -> AnyArray:
        """Return natural-log likelihood ratios of all profiles and tests, (profiles, tests).

        Parameters
        ----------
        enrol, test : Profiles, or arrays of single vectors
        question : a `Question`; or its fields, `same`, `given`, `priors`, `known`, `countermeasure`
            and `spoof_prior`, as keyword arguments. None: "same in every view?"
        scoring : "exact", or "paper" for the ratio published in arXiv 1704.06061, of a model of two
            views
        dtype : float32 or float64, for the products of all pairs and the result; all else is
            float64
        out : array to write into; None: a new array
        threads : number of threads; None: one per core

        Returns
        -------
        array (profiles, tests); a torch tensor if the profiles or tests are tensors
        """
        question = make_question(question, arguments)
        comparison = compare(self, enrol, test, question, dtype, scoring)
        shape = comparison.shape
        result = empty(shape, dtype, comparison.reference) if out is None else out
        if tuple(result.shape) != shape:
            raise DataError(
                f"out must have the shape (profiles, tests) = {shape}; got {tuple(result.shape)}"
            )
        if "float" not in dtype_name(result):
            raise DataError(
                f"out must be an array of float32 or float64; got {dtype_name(result)}, which would truncate the scores"
            )
        # written in place, because `out` may be a memory map
        fill_results(comparison, comparison.ratio.sums, [result], threads)
        if question.countermeasure is not None:
            result[:] = question.with_spoofs(result, shape)
        return result

    @comparing_once()
    def llr_trials(
        self,
        enrol: ProfilesLike,
        test: ProfilesLike,
        pairs: ArrayLike,
        question: Question | None = None,
        *,
        scoring: ScoringMethod = "exact",
        dtype: DTypeLike = np.float32,
        **arguments: Unpack[QuestionArguments],
    ) -> AnyArray:
        """Return the natural-log likelihood ratios of a list of trials, (n,).

        Parameters
        ----------
        enrol, test : Profiles, or arrays of single vectors
        pairs : (n, 2) row of a profile and row of a test
        question, scoring, dtype : as in `llr`

        Returns
        -------
        array or torch tensor (n,)
        """
        question = make_question(question, arguments)
        comparison = compare(self, enrol, test, question, dtype, scoring)
        pairs = check_trial_pairs(pairs, *comparison.shape)
        (scores,) = score_pairs(comparison, comparison.ratio.sums, pairs)
        return question.with_spoofs(scores, comparison.shape, pairs)

    @comparing_once()
    def identify(
        self,
        profiles: Profiles,
        test: ProfilesLike,
        question: Question | None = None,
        *,
        top: int = 10,
        dtype: DTypeLike = np.float32,
        **arguments: Unpack[QuestionArguments],
    ) -> Identification:
        """Return the profiles with the highest LLRs for each test, best first.

        The score matrix is computed in parts, so that it need not fit in memory.

        Parameters
        ----------
        profiles : the enrolled profiles
        test : Profiles, or an array of single vectors
        question, dtype : as in `llr`
        top : number of profiles per test, at most all

        Returns
        -------
        Identification
        """
        question = make_question(question, arguments)
        comparison = compare(self, profiles, test, question, dtype)
        numbers, scores = best_profiles(
            comparison,
            comparison.ratio.sums,
            min(check_whole_number("top", top, 1), comparison.shape[0]),
        )
        # a countermeasure does not change the order of a test's profiles
        mixed = question.with_spoofs(scores.T, comparison.shape).T
        return Identification(comparison.enrol.profiles.ids[numbers], to_host(mixed))

    def index(
        self,
        profiles: Profiles,
        question: Question | None = None,
        *,
        vectors_per_test: int = 1,
        **arguments: Unpack[QuestionArguments],
    ) -> SearchIndex:
        """Return an index of profiles for a search by inner products, for example in a vector database.

        Parameters
        ----------
        profiles : the enrolled profiles
        question : as in `llr`
        vectors_per_test : number of vectors in each test

        Returns
        -------
        SearchIndex
        """
        question = make_question(question, arguments)

        def compare_on_host(enrol: Profiles, test: Profiles) -> Comparison:
            # vectors for an engine are arrays, also of profiles that are tensors
            if is_torch(enrol.y):
                enrol = replace(enrol, y=to_host(enrol.y))
            if is_torch(test.y):
                test = replace(test, y=to_host(test.y))
            return compare(self, enrol, test, question, np.float64)

        # the vectors depend on the number of vectors of a test, not on their values: use those of a profile's cell
        cell = to_host(profiles.y[:1]) * (vectors_per_test / profiles.weights[0])
        probe = self.profiles(cell, [vectors_per_test], [0])
        return SearchIndex(compare_on_host, profiles, probe)

    def queries(self, tests: ProfilesLike, index: SearchIndex) -> NDArray[np.float32]:
        """Return query vectors of tests, (tests, width).

        Their products with the vectors of `index` are LLRs, or upper bounds of LLRs if the index is
        not exact.

        Parameters
        ----------
        tests : Profiles, or an array of single vectors
        index : index of the profiles, from `BaseScorer.index`

        Returns
        -------
        float32 array (tests, width)
        """
        return index.queries(tests if isinstance(tests, Profiles) else self.enrol(tests))

    @comparing_once()
    def log_likelihoods(
        self,
        enrol: ProfilesLike,
        test: ProfilesLike,
        question: Question | None = None,
        *,
        pairs: ArrayLike | None = None,
        **arguments: Unpack[QuestionArguments],
    ) -> LogLikelihoods:
        """Return the log-likelihood of each possible hypothesis, relative to the hypothesis "nothing is shared".

        If both sides have labels in a view, these decide whether the sides share its class, and
        only matching hypotheses are possible; but labels in the views of `same` are claims, which
        may be false. Priors and countermeasure of the question are not used.

        Parameters
        ----------
        enrol, test : Profiles, or arrays of single vectors
        question : as in `llr`
        pairs : (n, 2) row of a profile and row of a test; None: all pairs

        Returns
        -------
        dict of {shared views: (profiles, tests), or (n,) for pairs}, in float64
        """
        question = make_question(question, arguments)
        comparison = compare(self, enrol, test, question, np.float64, every=True)
        listed = None if pairs is None else check_trial_pairs(pairs, *comparison.shape)
        return log_likelihoods(comparison, comparison.ratio.hypotheses, listed)

    @comparing_once()
    def hypotheses(
        self,
        enrol: ProfilesLike,
        test: ProfilesLike,
        question: Question | None = None,
        *,
        dtype: DTypeLike = np.float32,
        **arguments: Unpack[QuestionArguments],
    ) -> LogLikelihoods:
        """Return the posterior probability of each hypothesis.

        With views speaker and phrase, ("speaker", "phrase") is TC (right speaker, right phrase),
        ("speaker",) is TW, ("phrase",) is IC and () is IW. Views in which both sides have labels
        are not part of hypotheses. With a countermeasure there is one more hypothesis, ("spoof",):
        a replay or a synthetic voice of the target.

        Parameters
        ----------
        enrol, test : Profiles, or arrays of single vectors
        question : its `given`, `known` and `priors` (equal by default) are used; `same` must be
            left out
        dtype : type of the result

        Returns
        -------
        dict of {views that are the same: (profiles, tests)}
        """
        question = make_question(question, arguments)
        if question.same is not None:
            raise ParameterError(
                f"hypotheses returns all hypotheses, so it has no same=: leave out same={question.same!r}"
            )
        comparison = compare(self, enrol, test, question, np.float64, every=True)
        logs = log_likelihoods(comparison, comparison.ratio.hypotheses)
        posteriors = question.posteriors(logs, comparison.ratio.numerator)
        return {name: cast(share, np.dtype(dtype).name) for name, share in posteriors.items()}


def release_caches(scorer: BaseScorer) -> None:
    """Delete cached values of a scorer and its components, which take hundreds of MB in large models."""
    vars(scorer).pop(CACHE, None)
    inner = getattr(scorer, "fitted_scorer", None)
    components = [component for component, _ in scorer.components()] if inner is None else [inner]
    for component in components:
        release_caches(component)
