"""Enrolled and test side of a comparison: terms of one side, and its factors of matrix products."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from .._typing import AnyArray, IntArray
from ..backend import (
    empty,
    largest,
    to_host,
)
from ..exceptions import DataError
from .assignments import (
    Assignment,
    ProfileGroup,
    TrainingClasses,
    enrolled_training_classes,
)
from .content_cache import ContentCache
from .pair_terms import PairTerm, QuadraticTerm, multiply, row_products
from .profiles import Profiles

if TYPE_CHECKING:
    from .block_ratios import Comparison

MAX_CACHED_FACTORS = 8
"""Number of factors cached per group of profiles, enough for one or two questions about three views."""


FLOAT64_LIMIT = 2.0**52
"""Largest size of a term; profiles with larger terms are refused, because even float64 rounds them
to more than one nat.
"""


class SideFactor(NamedTuple):
    """One of the two factors of the matrix product that computes pair terms (log-ratios).

    values : (profiles of the side, width); the last two columns are (one-sided terms, 1) for the
        enrolment and (1, one-sided terms) for the test
    size : upper bound of the absolute terms to which the factor contributes; decides between
        float32 and float64
    """

    values: AnyArray
    size: float


GroupFactors = tuple[list[ProfileGroup], dict[int, dict[Hashable, SideFactor]]]
"""Groups of a set of profiles, and {id of a group: its cached factors by their keys}."""


class ScoringCache:
    """Results that a scorer reuses between calls; all of them can be computed again.

    assignments : possible assignments of classes; the key holds the hypothesis, the cell tables of
        both sides and the use of labels
    groups : groups of profiles with equal cell tables, for each set of profiles
    factors : matrix factors of each group of profiles, for each set of profiles

    If a set of profiles is deleted, so are its entries in `groups` and `factors`.
    """

    def __init__(self) -> None:
        self.assignments: dict[Hashable, list[Assignment]] = {}
        self.groups: ContentCache[list[ProfileGroup]] = ContentCache()
        self.factors: ContentCache[GroupFactors] = ContentCache()


class ComparisonSide(NamedTuple):
    """One side of a comparison: a set of profiles, with numbers for the names of their classes.

    profiles : the profiles
    names : {view: (cells,) number of each cell's class name}, for views in which names affect the
        score; equal names have equal numbers on both sides
    """

    profiles: Profiles
    names: dict[str, IntArray]


class GroupSide:
    """Group of n profiles with equal cell tables on one side of a comparison, prepared for scoring.

    prepared : the group in the scorer's own representation, see `PairTerms.prepare`
    training_classes : training class of each class of the profiles, per base view; -1: none
    class_log_likelihoods : {training classes: (n,) log-likelihood of each test if it has these
        classes}, a cache that `Comparison` fills
    """

    def __init__(self, comparison: Comparison, side: ComparisonSide, group: ProfileGroup) -> None:
        self.is_enrolled = side is comparison.enrol
        self.profiles = side.profiles
        self.group = group
        y = group.gather(side.profiles.y)
        self.zeros: AnyArray = 0.0 * y[:, 0, 0]
        self.prepared = comparison.pair_terms.prepare(group.table, y)
        self.training_classes = enrolled_training_classes(group.table, comparison.view_labels)
        self.class_log_likelihoods: dict[TrainingClasses, AnyArray] = {}
        self._cached_factors = comparison.cached_factors(side, group)
        # assignments with equal keys share squares
        self._squares: dict[Hashable, AnyArray] = {}
        self._one_sided: dict[Hashable, tuple[list[QuadraticTerm], AnyArray]] = {}

    def evaluate(self, terms: Iterable[QuadraticTerm]) -> AnyArray:
        """Return the sum of one-sided terms for each of the n profiles of the group, (n,)."""
        return sum((term.evaluate(self._squares) for term in terms), self.zeros)

    def one_sided(self, terms: Sequence[PairTerm]) -> AnyArray:
        """Return, per profile, the sum of the terms that depend on this side only, (n,).

        A pair term (log-ratio of a profile e and a test t) contains a(e) and b(t). The result is
        the sum of a(e) if this is the enrolled side, else the sum of b(t).
        """
        quadratics = [term.row if self.is_enrolled else term.column for term in terms]
        key = tuple((term.key, id(term.linear), term.constant) for term in quadratics)
        if key not in self._one_sided:
            # the entry holds the terms, so that no new array can reuse an id in the key
            self._one_sided[key] = quadratics, self.evaluate(quadratics)
        return self._one_sided[key][1]

    def factor(self, terms: Sequence[PairTerm], offset: AnyArray | float, dtype: str) -> SideFactor:
        """Return this side's factor of the matrix product that computes the sum of pair terms.

        terms : pair terms (log-ratios of profile and test); the part of each that depends on both
            sides becomes columns of the factor
        offset : number or (n,) array that is added to the one-sided terms
        dtype : "float32" or "float64"
        """
        # factors with an array as offset serve a single call: do not cache them
        if self._cached_factors is None or not isinstance(offset, float):
            return self._make_factor(terms, offset, dtype)
        key = (self.is_enrolled, dtype, offset, *(term.key for term in terms))
        factor = self._cached_factors.get(key)
        if factor is None:
            if len(self._cached_factors) >= MAX_CACHED_FACTORS:
                self._cached_factors.clear()
            # another thread may clear the cache in between: do not read the entry back
            factor = self._cached_factors[key] = self._make_factor(terms, offset, dtype)
        return factor

    def _make_factor(
        self, terms: Sequence[PairTerm], offset: AnyArray | float, dtype: str
    ) -> SideFactor:
        """Compute the result of `factor`; raise `DataError` if terms are above `FLOAT64_LIMIT`, or NaN."""
        one_sided = self.one_sided(terms)
        blocks = []
        sizes = abs(one_sided)
        for term in terms:
            if self.is_enrolled:
                block = multiply(term.row.values, term.left)
            else:
                block = multiply(term.column.values, term.right)
            sizes = sizes + abs(term.weight) * row_products(block, block)
            # the weight multiplies the enrolled side only
            if self.is_enrolled and term.weight != 1:
                block = term.weight * block
            blocks.append(block)
        size = largest(sizes)
        # `not size <=` instead of `size >`, to refuse NaN too
        if not size <= FLOAT64_LIMIT:
            self._refuse(np.flatnonzero(~(to_host(sizes) <= FLOAT64_LIMIT)))
        width = sum(block.shape[1] for block in blocks)
        values = empty((len(one_sided), width + 2), dtype, one_sided)
        start = 0
        for block in blocks:
            values[:, start : start + block.shape[1]] = block
            start += block.shape[1]
        # two more columns add the one-sided terms: [E, row, 1] [T, 1, column]'  (V3)
        values[:, width:] = 1.0
        values[:, width if self.is_enrolled else width + 1] = one_sided + offset
        return SideFactor(values, size)

    def _refuse(self, rows: IntArray) -> None:
        """Raise `DataError` about profiles too far from the training data, in these rows."""
        numbers = self.group.profiles[rows]
        examples = ", ".join(f"{i} ({self.profiles.ids[i]!s})" for i in numbers[:3])
        dots = ", ..." if len(rows) > 3 else ""
        raise DataError(
            f"{len(rows)} {'enrolled' if self.is_enrolled else 'test'} profile(s) lie too far from the training data "
            f"to be scored: rows {examples}{dots}. Scale the vectors as in training"
        )
