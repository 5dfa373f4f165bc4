"""Sides of a comparison as the scorer needs them: terms of one side, and factors of matrix products."""

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
    """Factor of one side in the matrix product that computes pair terms (log-ratios), one row per profile.

    values : columns of the two-sided part, then two columns: (one-sided terms, 1) for the
        enrolment, (1, one-sided terms) for the test
    size : bound of the terms that the factor contributes; decides between float32 and float64
    """

    values: AnyArray
    size: float


GroupFactors = tuple[list[ProfileGroup], dict[int, dict[Hashable, SideFactor]]]
"""Groups of a set of profiles, and {id of a group: its cached factors by their keys}."""


class ScoringCache:
    """Results that a scorer reuses between calls; all of them can be computed again.

    assignments : possible assignments of classes, by hypothesis, cells of both sides and labels
    groups : groups of profiles with equal cells, by set of profiles
    factors : groups of profiles, and the factors of matrix products of each group by its id, by set
        of profiles

    Entries of a set of profiles are dropped together with it.
    """

    def __init__(self) -> None:
        self.assignments: dict[Hashable, list[Assignment]] = {}
        self.groups: ContentCache[list[ProfileGroup]] = ContentCache()
        self.factors: ContentCache[GroupFactors] = ContentCache()


class ComparisonSide(NamedTuple):
    """One set of profiles in a comparison.

    profiles : the profiles
    names : {view: (cells,) number of each cell's class name}, for views whose names affect the
        score
    """

    profiles: Profiles
    names: dict[str, IntArray]


class GroupSide:
    """Group of n profiles on one side of a comparison, with equal cells and shared classes, as scorers need it.

    prepared : representation of the scorer, see `PairTerms.prepare`
    training_classes : training class of each class of the profiles, by its name
    class_log_likelihoods : {training classes: (n,) log-likelihoods of the tests}, filled by
        `Comparison`
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
        """Return, for each of the n profiles of the group, the sum of one-sided terms, (n,)."""
        return sum((term.evaluate(self._squares) for term in terms), self.zeros)

    def one_sided(self, terms: Sequence[PairTerm]) -> AnyArray:
        """Return the sum of the parts of pair terms (log-ratios) that depend on this side only, (n,).

        These are the rows a(e) for an enrolled profile e, or the columns b(t) for a test t.
        """
        quadratics = [term.row if self.is_enrolled else term.column for term in terms]
        key = tuple((term.key, id(term.linear), term.constant) for term in quadratics)
        if key not in self._one_sided:
            # the entry holds the terms, so that no new array can reuse an id in the key
            self._one_sided[key] = quadratics, self.evaluate(quadratics)
        return self._one_sided[key][1]

    def factor(self, terms: Sequence[PairTerm], offset: AnyArray | float, dtype: str) -> SideFactor:
        """Return this side's factor of the matrix product that computes pair terms (log-ratios of profile and test).

        terms : pair terms, whose two-sided parts become columns
        offset : number, or (n,), added to the one-sided terms
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
        """Compute the factor of the matrix product; raise `DataError` for profiles whose terms are too large."""
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
        """Raise `DataError` that names the profiles in these rows of the group."""
        numbers = self.group.profiles[rows]
        examples = ", ".join(f"{i} ({self.profiles.ids[i]!s})" for i in numbers[:3])
        dots = ", ..." if len(rows) > 3 else ""
        raise DataError(
            f"{len(rows)} {'enrolled' if self.is_enrolled else 'test'} profile(s) lie too far from the training data "
            f"to be scored: rows {examples}{dots}. Scale the vectors as in training"
        )
