"""From a question and two sides to the factors of a score matrix."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy.linalg import cholesky

from ..exceptions import ParameterError
from ..kernel.blocks import Factors, Terms
from ..kernel.evidence import PairTerm, log_evidence_matrix, pair_term
from ..kernel.hypotheses import Hypothesis, Question, shared_latents
from ..kernel.records import Array
from ..labels import IntArray
from .backend import like
from .factors import make_factors
from .known import KnownClass, known_terms, see_tests
from .profiles import Profiles

Scoring = Literal["exact", "paper"]


@dataclass(frozen=True)
class Comparison:
    """A question put to two sets of profiles."""

    question: Question
    enrol: Profiles
    test: Profiles
    scoring: Scoring = "exact"
    known: KnownClass | None = None
    dtype: Any = np.float32

    def parts(self) -> Iterator[tuple[IntArray, IntArray, Terms]]:
        """Rows, columns and terms of every part of the matrix that shares its evidence matrices."""
        for kind_e, rows in _by_kind(self.enrol):
            for kind_t, columns in _by_kind(self.test):
                N_e, N_t = self.enrol.evidence[kind_e], self.test.evidence[kind_t]
                y_e = self.enrol.y[like(rows, self.enrol.y)]
                y_t = self.test.y[like(columns, self.test.y)]
                if self.known is None:
                    yield rows, columns, self._terms(N_e, N_t, y_e, y_t)
                    continue
                seen = see_tests(self.known, self.question.views, N_t, y_t)
                for claimed in np.unique(self.known.claimed[rows]):
                    some = np.flatnonzero(self.known.claimed[rows] == claimed)
                    y_some = y_e[like(some, y_e)]
                    if claimed < 0:
                        terms = self._terms(N_e, N_t, y_some, y_t)
                    else:
                        terms = known_terms(self.question, self.known, int(claimed), N_e, y_some, seen, self.dtype)
                    yield rows[some], columns, terms

    def _terms(self, N_e: Array, N_t: Array, y_e: Any, y_t: Any) -> Terms:
        def side(weighted: dict[Hypothesis, float]) -> tuple[Factors, ...]:
            return tuple(
                make_factors(self._pair_term(N_e, N_t, h), y_e, y_t, weight, self.dtype)
                for h, weight in weighted.items()
            )

        return Terms(side(self.question.numerator), side(self.question.denominator))

    def _pair_term(self, N_e: Array, N_t: Array, hypothesis: Hypothesis) -> PairTerm:
        views = self.question.views
        if self.scoring == "paper" and len(hypothesis) == 1:
            return printed_term(N_e, N_t, _doubled(views, hypothesis))
        return pair_term(N_e, N_t, shared_latents(views, hypothesis))


def printed_term(N_e: Array, N_t: Array, scale: Array) -> PairTerm:
    """The paper's covariance of a half-shared hypothesis, as printed.

    The doubled view's covariance stands twice, and all of it in all four blocks
    (docs/errata.md): everything is shared, with that loading times sqrt 2.
    """
    joint, k_joint = log_evidence_matrix(scale[:, None] * (N_e + N_t) * scale)
    own_e, k_e = log_evidence_matrix(N_e)
    own_t, k_t = log_evidence_matrix(N_t)
    joint = scale[:, None] * joint * scale
    root = cholesky(2 * joint, lower=True)
    return PairTerm(root, root, joint - own_e, joint - own_t, k_joint - k_e - k_t)  # (V8)


def _doubled(views: dict[str, int], hypothesis: Hypothesis) -> Array:
    return np.concatenate([np.full(rank, np.sqrt(2.0) if view in hypothesis else 1.0) for view, rank in views.items()])


def check_printed(question: Question) -> None:
    """The printed ratio exists for "same in both views?" of two views."""
    views = list(question.views)
    if len(views) != 2 or any(":" in v for v in views) or len(question.hypotheses) != 4 or len(question.numerator) != 1:
        raise ParameterError("scoring='paper' is for two views without interaction, and asks for both at once")


def _by_kind(profiles: Profiles) -> Iterator[tuple[int, IntArray]]:
    for kind in np.unique(profiles.kind):
        yield int(kind), np.flatnonzero(profiles.kind == kind)
