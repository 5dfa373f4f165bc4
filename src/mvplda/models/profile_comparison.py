"""Prepare the comparison of enrolled profiles with tests under a question, for the scoring engine.

`compare` checks both sides, chooses the pair terms (log-ratios) of the scorer, lists the weighted
hypotheses, and numbers the class names that both sides share.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import DTypeLike

from ..backend import (
    is_torch,
)
from ..exceptions import DataError, ParameterError
from ..scoring.assignments import LabelRole, ViewLabels
from ..scoring.block_ratios import Comparison
from ..scoring.comparison_sides import ComparisonSide, ScoringCache
from ..scoring.pair_terms import PairTerms
from ..scoring.profiles import (
    Profiles,
    ProfilesLike,
    enrolled_names,
    match_names,
)
from ..scoring.question import LikelihoodRatio, Question
from ..sklearn_interface import check_is_fitted
from .caching import cache_of
from .deployment import Deployable

if TYPE_CHECKING:
    from .base import BaseScorer


ScoringMethod = str
"""Method of scoring: "exact", or "paper" for the likelihood ratio that the paper published."""


def compare(
    scorer: BaseScorer,
    enrol: ProfilesLike,
    test: ProfilesLike,
    question: Question,
    dtype: DTypeLike,
    scoring: ScoringMethod = "exact",
    every: bool = False,
) -> Comparison:
    """Return the comparison of two sides under a question, ready for the scoring engine.

    Parameters
    ----------
    scorer : fitted scorer
    enrol, test : Profiles, or arrays of single vectors
    question : the question
    dtype : float32 or float64, type of the scores
    scoring : "exact", or "paper" for the formula of arXiv 1704.06061
    every : return a log-likelihood for each possible hypothesis, weighted by its prior, instead of one ratio between
        the hypotheses for and those against the question

    Raises
    ------
    ParameterError, DataError, LabelError
        The scorer cannot answer the question for these sides.
    """
    if np.dtype(dtype) not in (np.float32, np.float64):
        raise ParameterError(f"dtype must be float32 or float64; got {dtype!r}")
    profiles, tests = profiles_of_both_sides(scorer, enrol, test)
    # the scorer in a bundle has the cached values of earlier questions
    while hasattr(scorer, "fitted_scorer"):
        scorer = scorer.fitted_scorer
    pair_terms = _pair_terms_for(scorer, profiles, tests, question, scoring)
    # labels on both sides are facts, unless the question is about them
    labelled = question.labelled(profiles.labels, tests.labels)
    labelled = [view for view in labelled if view not in scorer.nuisance_views]
    base = [view for view in pair_terms.base if view not in scorer.nuisance_views]
    if every:
        facts = [view for view in labelled if view not in (question.same or ())]
        ratio = LikelihoodRatio(question.alternatives(base, facts), {})
    else:
        ratio = question.ratio(base, labelled)
    if question.countermeasure is not None:
        question.countermeasure_llrs(len(tests))
        # the countermeasure's likelihood ratio is on another scale than a similarity
        if not pair_terms.is_llr and not every:
            raise ParameterError(
                f"the scores of a {type(scorer).__name__} are not likelihood ratios: calibrate them before you "
                "pass countermeasure="
            )
    # values that the engine cached for other parameters or weights must not be used
    key = (profiles.model, tuple(scorer.views_.items()), pair_terms)
    cache = cache_of(scorer).get(
        ("scoring cache", scoring, question.known_views), key, ScoringCache
    )
    view_labels = dict.fromkeys(pair_terms.base, ViewLabels())
    comparison = Comparison(
        ratio,
        ComparisonSide(profiles, {}),
        ComparisonSide(tests, {}),
        pair_terms,
        cache,
        view_labels,
        dtype,
    )
    _add_class_names(scorer, comparison, question, labelled)
    return comparison


def _pair_terms_for(
    scorer: BaseScorer, profiles: Profiles, tests: Profiles, question: Question, scoring: str
) -> PairTerms:
    """Return the pair terms (log-ratios) of a scorer for a question.

    Raise `ParameterError` for an unknown `scoring`, and for questions that the paper's scoring does
    not support.
    """
    if scoring not in ("exact", "paper"):
        raise ParameterError(f"scoring must be 'exact' or 'paper'; got {scoring!r}")
    known = question.known_views
    if scoring == "exact":
        return scorer.pair_terms_with_known(known) if known else scorer.pair_terms()
    if known or question.given or profiles.labels or tests.labels:
        raise ParameterError(
            "scoring='paper' does not support given=, known= or labels: leave them out, or use scoring='exact'"
        )
    return scorer.published_pair_terms()


def profiles_of_both_sides(
    scorer: BaseScorer, enrol: ProfilesLike, test: ProfilesLike
) -> tuple[Profiles, Profiles]:
    """Return both sides as profiles of the scorer; arrays are enrolled with one profile per vector.

    Raise `DataError` for profiles of another model, empty sides, or a tensor on one side only.
    """
    if not hasattr(scorer, "views_"):
        check_is_fitted(scorer)
    # single vectors are profiles of one vector each
    profiles = enrol if isinstance(enrol, Profiles) else scorer.enrol(enrol)
    tests = test if isinstance(test, Profiles) else scorer.enrol(test)
    key = scorer._key()
    for side, which in ((profiles, "enrolled"), (tests, "test")):
        if side.model != key:
            raise DataError(
                f"the {which} profiles were made by another model: enrol their vectors again with this model"
            )
        if len(side) == 0:
            raise DataError(f"the {which} side has no profiles: pass at least one")
    # moving a tensor to another device is the caller's decision
    if is_torch(profiles.y) != is_torch(tests.y):
        raise DataError(
            "one side is a torch tensor and the other is not: pass two tensors or two arrays"
        )
    return profiles, tests


def _add_class_names(
    scorer: BaseScorer, comparison: Comparison, question: Question, labelled: Sequence[str]
) -> None:
    """Number the class names of both sides in the views where names affect the score, and store them in the comparison.

    These are the labelled views, and the known views of the question, which also get their training
    classes.

    labelled : views in which both sides have labels
    """
    profiles = comparison.enrol.profiles
    tests = comparison.test.profiles
    for view in dict.fromkeys([*labelled, *question.known_views]):
        training = scorer.known_names(view) if view in question.known_views else None
        # both sides and the training classes share one numbering
        enrolled = enrolled_names(profiles, view, question.claims(view))
        tested = tests.labels.get(view)
        nearest = None
        if training is not None and isinstance(scorer, Deployable):
            nearest = scorer.nearest_classes(view)
        numbers, test_numbers, trained = match_names(view, enrolled, tested, training)
        comparison.enrol.names[view] = numbers
        if tested is not None:
            comparison.test.names[view] = test_numbers
        # labels of both sides are facts, unless the hypotheses are about them
        role: LabelRole = "plain"
        if view in labelled:
            is_hypothesis = any(view in h for h in comparison.ratio.hypotheses)
            role = "claim" if is_hypothesis else "fact"
        comparison.view_labels[view] = ViewLabels(role, trained, nearest)
