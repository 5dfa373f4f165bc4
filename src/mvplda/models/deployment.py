"""Optional interface of scorers that adapt to the recordings of a deployment.

A deployment is one place of use. Its domain is what its recordings have in common: language,
microphones and rooms. A scorer such as the default model of voices estimates from the enrolled
profiles how the domain differs from its training data. The functions of this module accept all
scorers; those without the interface are returned unchanged.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Self

import numpy as np

from .._typing import Array, BoolArray, Columns, IntArray, Names
from ..exceptions import LabelError
from ..scoring.profiles import Profiles
from ..scoring.question import NearMatches, Question

if TYPE_CHECKING:
    from .base import BaseScorer


class Deployable(ABC):
    """Interface of a scorer that adapts to the domain of a deployment: its language, microphones and rooms."""

    @abstractmethod
    def deployed(self, profiles: Profiles | None) -> Self:
        """Return a scorer adapted to the domain of the enrolled profiles.

        profiles : the enrolled profiles; None: return to the prior domain, used before any
            enrolment
        """

    @abstractmethod
    def with_domain_as_prior(self) -> Self:
        """Return a scorer whose prior domain, used before any enrolment, is the current domain of this scorer."""

    def near_matches(
        self, enrol: Profiles, test: Profiles, pairs: IntArray | None, views: Sequence[str]
    ) -> NearMatches | None:
        """Return evidence for near matches, such as the enrolled phrase with one word replaced.

        Return None if the scorer does not model near matches in any of `views`.

        enrol, test : profiles, and tests as profiles
        pairs : (n, 2) row of a profile and row of a test; None: all pairs
        views : views in which near matches are possible
        """
        return None

    def evidence_measures(
        self, enrol: Profiles, test: Profiles, pairs: IntArray | None
    ) -> dict[str, Array] | None:
        """Return measures of how much information each trial has, such as log seconds of speech.

        Calibrations use them: LLRs of short recordings are less reliable.

        enrol, test : profiles, and tests as profiles
        pairs : (n, 2) row of a profile and row of a test; None: all pairs
        return : {name: (profiles, tests), or (n,) for pairs}, larger for more information; None if
            the scorer has no such measures
        """
        return None

    def nearest_classes(self, view: str) -> IntArray | None:
        """Return the numbers of the k most similar known classes of each known class, (classes, k).

        If a claim of a class is false, the true class is assumed to be one of these. None: it may
        be any other known class.
        """
        return None


def deployed_scorer(scorer: BaseScorer, profiles: Profiles | None) -> BaseScorer:
    """Return the scorer adapted to the domain of enrolled profiles; a scorer without domain is returned unchanged."""
    return scorer.deployed(profiles) if isinstance(scorer, Deployable) else scorer


def domain_as_prior(scorer: BaseScorer) -> BaseScorer:
    """Return a scorer with its current domain as prior domain; a scorer without domain is returned unchanged."""
    return scorer.with_domain_as_prior() if isinstance(scorer, Deployable) else scorer


def find_evidence_measures(
    scorer: BaseScorer, enrol: Profiles, test: Profiles, pairs: IntArray | None
) -> dict[str, Array] | None:
    """Return the `evidence_measures` of a scorer, or of the first of its components that has any.

    Return None if neither the scorer nor a component has evidence measures.

    enrol, test : profiles, and tests as profiles
    pairs : (n, 2) row of a profile and row of a test; None: all pairs
    """
    scorer = getattr(scorer, "fitted_scorer", scorer)
    if isinstance(scorer, Deployable):
        return scorer.evidence_measures(enrol, test, pairs)
    for component, enrol_columns, test_columns in _component_profiles(scorer, enrol, test):
        measures = find_evidence_measures(component, enrol_columns, test_columns, pairs)
        if measures is not None:
            return measures
    return None


def find_near_matches(
    scorer: BaseScorer,
    enrol: Profiles,
    test: Profiles,
    pairs: IntArray | None,
    views: Sequence[str],
) -> NearMatches | None:
    """Return the `near_matches` of a scorer, or of the first of its components that models them.

    Return None if neither the scorer nor a component models near matches.

    enrol, test : profiles, and tests as profiles
    pairs : (n, 2) row of a profile and row of a test; None: all pairs
    views : views in which near matches are possible
    """
    scorer = getattr(scorer, "fitted_scorer", scorer)
    if isinstance(scorer, Deployable):
        return scorer.near_matches(enrol, test, pairs, views)
    for component, enrol_columns, test_columns in _component_profiles(scorer, enrol, test):
        near_matches = find_near_matches(component, enrol_columns, test_columns, pairs, views)
        if near_matches is not None:
            return near_matches
    return None


def _component_profiles(
    scorer: BaseScorer, enrol: Profiles, test: Profiles
) -> Iterator[tuple[BaseScorer, Profiles, Profiles]]:
    """Yield (component, profiles, tests) per component of a scorer.

    Profiles and tests have only the component's columns of the evidence.
    """
    stop = 0
    for component, _ in scorer.components():
        columns = slice(stop, stop + component.width_out)
        stop = columns.stop
        yield (
            component,
            replace(enrol, y=enrol.y[:, columns]),
            replace(test, y=test.y[:, columns]),
        )


def deployed_classes(
    scorer: BaseScorer, question: Question, views: Sequence[str]
) -> dict[str, Names]:
    """Return the names of the classes enrolled in the deployment, {view: names}, for the views in question.

    Empty for scorers without domain, and for questions with `known`.

    scorer : the scorer
    question : the question
    views : base views of the scorer
    """
    if not isinstance(scorer, Deployable) or question.known is not None:
        return {}
    classes = {}
    for view in question.same or views:
        if view in (question.given or ()):
            continue
        try:
            names = scorer.known_names(view)
        except LabelError:  # new classes in every deployment, such as speakers
            continue
        if len(names):
            classes[view] = names
    return classes


def rows_by_known_views(
    profiles: Profiles, classes: dict[str, Names]
) -> list[tuple[list[str], IntArray]]:
    """Group profiles by the views in which all their classes are known in the deployment.

    An unknown class of one profile, such as the phrase of somebody enrolled later, must not disable
    the known classes of the others.

    profiles : profiles to group
    classes : {view: names of the known classes}
    return : list of (views in which the classes are known, numbers of the profiles)
    """
    is_known = {
        view: has_known_classes(profiles, view, names)
        for view, names in classes.items()
        if view in profiles.labels
    }
    codes = np.zeros(len(profiles), dtype=np.int64)
    for bit, is_known_in_view in enumerate(is_known.values()):
        codes += is_known_in_view * 2**bit
    return [
        (
            [view for bit, view in enumerate(is_known) if code >> bit & 1],
            np.flatnonzero(codes == code),
        )
        for code in np.unique(codes).tolist()
    ]


def has_known_classes(profiles: Profiles, view: str, names: Names) -> BoolArray:
    """Return a mask of the profiles whose classes in a view all have known names, (profiles,).

    Cells without label are ignored; a profile without any label in the view is False.
    """
    labels = profiles.labels[view]
    has_name = labels.codes >= 0
    # the last entry is for cells without a label, whose code is -1
    is_known = np.append(np.isin(labels.names, names), False)[labels.codes]
    named = np.bincount(profiles.owner, has_name, len(profiles))
    unknown = np.bincount(profiles.owner, has_name & ~is_known, len(profiles))
    return np.asarray((named > 0) & (unknown == 0))


class AdaptedExpert:
    """Expert of a committee that is already fitted to other data.

    `fit` does not train it: it returns the scorer adapted to the domain of the vectors.
    """

    def __init__(self, model: BaseScorer) -> None:
        self.model = model

    def __sklearn_clone__(self) -> AdaptedExpert:
        return self

    def fit(self, X: Array, y: Columns) -> BaseScorer:
        """Return the scorer adapted to the domain of labelled vectors.

        X : (n, D) vectors
        y : {view: (n,) labels}; the first view is the speaker
        """
        speaker, *other_views = y
        labels = {view: y[view] for view in other_views}
        profiles = self.model.enrol(X, y[speaker], labels or None)
        return domain_as_prior(deployed_scorer(self.model, profiles))
