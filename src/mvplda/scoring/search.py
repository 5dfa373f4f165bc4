"""Vectors of profiles and tests whose inner product is the LLR, for a search engine such as FAISS.

For a profile e and a test t, a pair term is c + a(e) + b(t) + l(e) . r(t) (see ``pair_terms``),
with r(t) = x R for the prepared vector x of the test. R and b depend on the kind of profile: its
cell table, which holds the number of its vectors. With G kinds, the vectors are (docs/math.md,
section 9.3)

    profile : [l(e) R',  a(e) + c,  0 .. 1 .. 0]        test : [x,  1,  b_1(t) .. b_G(t)]

The 1 of a profile stands in the column of its kind, so that one test vector serves all kinds.

If a question leaves several assignments of classes, the product is an upper bound of the LLR. Let
A_i and C_i be the weighted likelihoods of assignments for and against the question. For positive
numbers

    (A_1 + .. + A_n) / (C_1 + .. + C_n)  <=  max over i of A_i / C_i

and log (A_i / C_i) is a difference of pair terms. A profile then has one row per i, and the largest
product of its rows is at least its LLR.
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._typing import Array, BoolArray, FloatArray, IntArray
from ..exceptions import DataError, ParameterError
from .assignments import NEW_CLASS, CellTable, ClassMatches
from .block_ratios import Comparison, WeightedAssignment
from .comparison_sides import GroupSide
from .engine import score_pairs
from .pair_terms import PairTerm, multiply
from .profiles import Profiles

Compare = Callable[[Profiles, Profiles], Comparison]
"""Function that compares profiles with tests under the question of an index."""

FloatRows = NDArray[np.float32]
"""Array of float32 rows."""

ProfileKind = tuple[CellTable, int]
"""Kind of index rows: cells of the profiles (`CellTable`), and which of several upper bounds of the
LLR the rows compute.
"""


class SearchResult(NamedTuple):
    """Best profiles of every test, best first.

    profiles : (tests, top) numbers of the profiles; -1 where there were fewer candidates
    scores : (tests, top) their exact LLRs; -inf where there were fewer candidates
    certified : (tests,) True if no other profile can have a higher LLR than those returned
    """

    profiles: IntArray
    scores: FloatArray
    certified: BoolArray


class LlrBound(NamedTuple):
    """Upper bound of the LLR of a profile and a test: a sum of pair terms and a constant.

    It is log (A_i / C_i) in the module's description.

    terms : pair terms (log-ratios of profile and test)
    constant : number that is added to their sum
    is_exact : True if the bound equals the LLR
    """

    terms: list[PairTerm]
    constant: float
    is_exact: bool


class SearchIndex:
    """Vectors of profiles and tests for a search engine that maximises inner products.

    compare : function that compares profiles with tests under the index's question
    profiles : profiles in the index
    probe : example of a test; all tests must have as many vectors

    vectors : (rows, width) float32; must not be changed in place, because the error bound is
        computed from them
    owners : (rows,) number of the profile of every row
    profile_column : column of the profiles' one-sided terms a(e) + c; later columns indicate the
        kind of profile
    exact : True if the product of a row and a query is the LLR; else it is an upper bound, see
        `rerank`
    examples : one profile per kind; in another process, an index built from them has the same
        columns
    """

    def __init__(self, compare: Compare, profiles: Profiles, probe: Profiles) -> None:
        self._compare = compare
        self._probe = probe
        if compare(profiles, probe).has_names:
            raise ParameterError(
                "a search index does not support known=: build and search it without known=, then score the candidates "
                "with known="
            )
        self.exact = True
        self.profile_column = 0
        # columns of the test vectors x that the terms of each kind use; terms may share a vector
        self._columns: dict[ProfileKind, list[slice]] = {}
        columns_of: dict[int, slice] = {}
        examples: list[int] = []
        for kind, bound, enrol, _ in self._bounds(profiles, probe):
            examples.append(int(enrol.group.profiles[0]))
            self.exact &= bound.is_exact
            for term in bound.terms:
                x = term.column.values
                if id(x) not in columns_of:
                    columns_of[id(x)] = slice(self.profile_column, self.profile_column + x.shape[1])
                    self.profile_column += x.shape[1]
            self._columns[kind] = [columns_of[id(term.column.values)] for term in bound.terms]
        self.examples = profiles.take(list(dict.fromkeys(examples)))
        self.vectors, self.owners = self.encode(profiles)
        self._column_maxima: tuple[FloatRows, Array] | None = None

    def encode(self, profiles: Profiles) -> tuple[FloatRows, IntArray]:
        """Return index rows for further profiles, (rows, width), and each row's profile, (rows,).

        Raise `DataError` for profiles with a cell table that no profile of the index has.
        """
        blocks: list[FloatRows] = []
        owners: list[IntArray] = []
        for kind, bound, enrol, _ in self._bounds(profiles, self._probe):
            if kind not in self._columns:
                raise DataError(
                    "the index was built without profiles that have the same numbers of vectors and labels as some of "
                    "these: include such profiles when you build the index"
                )
            rows = np.zeros(
                (len(enrol.group.profiles), self.profile_column + 1 + len(self._columns))
            )
            for term, columns in zip(bound.terms, self._columns[kind], strict=True):
                left = term.weight * multiply(term.row.values, term.left)
                rows[:, columns] += multiply(left, term.right.T)
            rows[:, self.profile_column] = enrol.one_sided(bound.terms) + bound.constant
            rows[:, self._kind_column(kind)] = 1.0
            blocks.append(rows.astype(np.float32))
            owners.append(enrol.group.profiles)
        return np.concatenate(blocks), np.concatenate(owners)

    def queries(self, tests: Profiles) -> FloatRows:
        """Return query vectors of tests, (tests, width).

        Their products with the index's rows are LLRs, or upper bounds of LLRs if the index is not
        `exact`. Raise `DataError` if a test has another number of vectors than the index expects.
        """
        if (tests.weights != self._probe.weights[0]).any() or len(tests.weights) > len(tests):
            raise DataError(
                f"the index was built for tests of {self._probe.weights[0]:g} vector(s) each, and these tests have "
                "other numbers: build another index with vectors_per_test="
            )
        rows = np.zeros((len(tests), self.profile_column + 1 + len(self._columns)))
        rows[:, self.profile_column] = 1.0
        for kind, bound, _, test in self._bounds(self.examples, tests):
            for term, columns in zip(bound.terms, self._columns[kind], strict=True):
                rows[:, columns] = term.column.values
            rows[:, self._kind_column(kind)] = test.one_sided(bound.terms)
        return rows.astype(np.float32)

    def error(self, queries: FloatArray, decoded: FloatArray | None = None) -> FloatArray:
        """Return, per query, an upper bound of the error of its products with rows, (tests,).

        queries : (tests, width) query vectors
        decoded : (rows, width) vectors of the index as an engine that quantises them decodes them;
            the bound then includes the quantisation error. None: only rounding errors
        """
        q = np.abs(queries.astype(np.float64))
        rounding = self.vectors.shape[1] * np.finfo(np.float32).eps
        total = rounding * (q @ self._largest_in_columns())
        if decoded is not None:
            # Cauchy-Schwarz inequality
            distance = np.linalg.norm(self.vectors - decoded, axis=1).max()
            total += distance * np.linalg.norm(q, axis=1)
        return total

    def _largest_in_columns(self) -> Array:
        """Return the largest absolute value of each column of `vectors`, (width,).

        It is cached until `vectors` is replaced, because computing it would take ten times as long
        as the rest of a query.
        """
        cached = self._column_maxima
        if cached is None or cached[0] is not self.vectors:
            maxima = np.maximum(self.vectors.max(axis=0), -self.vectors.min(axis=0))
            # threads that get here at the same time store equal values
            cached = self._column_maxima = (self.vectors, maxima.astype(np.float64))
        return cached[1]

    def rerank(
        self,
        profiles: Profiles,
        tests: Profiles,
        candidates: IntArray,
        unseen: FloatArray | None = None,
        top: int = 10,
    ) -> SearchResult:
        """Return the candidates with the highest exact LLRs, and whether they are certain to be best.

        Parameters
        ----------
        profiles : all profiles of the index
        tests : tests whose queries the engine searched for
        candidates : (tests, n) positions of profiles, as returned by an engine; -1: none
        unseen : (tests,) upper bound of the LLRs of all profiles that are not candidates. If the
            engine searched exhaustively, pass the smallest product it returned plus `error`. None:
            no bound is known, and a result is certified only if all profiles are candidates
        top : number of profiles to return per test

        Returns
        -------
        SearchResult
        """
        ordered = np.sort(np.asarray(candidates, dtype=np.int64), axis=1)
        # a profile with several rows may be returned several times
        is_repeated = np.zeros(ordered.shape, dtype=bool)
        is_repeated[:, 1:] = ordered[:, 1:] == ordered[:, :-1]
        ordered[is_repeated] = -1
        test, column = np.nonzero(ordered >= 0)
        llrs = np.full(ordered.shape, -np.inf)
        if len(test):
            # only candidates are prepared for scoring: all profiles would take longer than the search
            numbers, positions = np.unique(ordered[test, column], return_inverse=True)
            comparison = self._compare(profiles.take(numbers), tests)
            pairs = np.stack([positions.reshape(-1), test], axis=1)
            (llrs[test, column],) = score_pairs(comparison, comparison.ratio.sums, pairs)
        best = np.argsort(-llrs, axis=1, kind="stable")[:, :top]
        scores = np.take_along_axis(llrs, best, axis=1)
        # certified without a bound if every profile is a candidate
        certified = np.bincount(test, minlength=len(llrs)) == len(profiles)
        if unseen is not None:
            certified |= scores[:, -1] >= unseen
        return SearchResult(np.take_along_axis(ordered, best, axis=1), scores, certified)

    def _kind_column(self, kind: ProfileKind) -> int:
        """Return the number of the column that is 1 in the rows of this kind of profile."""
        return self.profile_column + 1 + list(self._columns).index(kind)

    def _bounds(
        self, profiles: Profiles, tests: Profiles
    ) -> Iterator[tuple[ProfileKind, LlrBound, GroupSide, GroupSide]]:
        """Yield (kind of index rows, upper bound of the LLR, group of profiles, group of tests).

        The profiles of a group have equal cell tables. If their LLR has several upper bounds, there
        is one item per bound; each bound is a kind of its own. All tests form one group.
        """
        comparison = self._compare(profiles, tests)
        (group,) = comparison.groups(comparison.test)
        test = GroupSide(comparison, comparison.test, group)
        for group in comparison.groups(comparison.enrol):
            enrol = GroupSide(comparison, comparison.enrol, group)
            sums = comparison.weighted_assignments(enrol, test, comparison.ratio.sums)
            numerator, denominator = (_merge_equal_terms(weighted) for weighted in sums)
            for i, bound in enumerate(_pair_assignments(numerator, denominator)):
                yield (group.table, i), bound, enrol, test


def _pair_assignments(
    numerator: Sequence[WeightedAssignment], denominator: Sequence[WeightedAssignment]
) -> list[LlrBound]:
    """Return upper bounds of the LLR, of which the largest is the bound of a profile and a test.

    Each bound pairs an assignment of classes for the question with the most similar assignment
    against it, so that many of their terms cancel.

    numerator, denominator : weighted assignments for and against the question
    """
    partners = [_most_similar(w.assignment.matches, denominator) for w in numerator]
    uses = Counter(partners)
    is_one_to_one = len(uses) == len(denominator) == len(numerator)
    bounds: dict[object, LlrBound] = {}
    for (log_weight, _, terms), partner in zip(numerator, partners, strict=True):
        partner_weight, _, partner_terms = denominator[partner]
        common = {term.key for term in terms} & {term.key for term in partner_terms}
        remaining = [term for term in terms if term.key not in common]
        remaining += [
            term.weighted("less", -1.0) for term in partner_terms if term.key not in common
        ]
        # a partner of several assignments is divided among them
        constant = log_weight - partner_weight + float(np.log(uses[partner]))
        key = tuple(term.key for term in remaining), round(constant, 12)
        bounds[key] = LlrBound(remaining, constant, is_one_to_one)
    return [
        bound._replace(is_exact=bound.is_exact and len(bounds) == 1) for bound in bounds.values()
    ]


def _merge_equal_terms(weighted: Sequence[WeightedAssignment]) -> list[WeightedAssignment]:
    """Return the assignments with those that have equal pair terms merged, with summed weights."""
    by_terms: dict[object, list[WeightedAssignment]] = {}
    for w in weighted:
        by_terms.setdefault(tuple(term.key for term in w.terms), []).append(w)
    return [
        members[0]._replace(log_weight=float(np.logaddexp.reduce([w.log_weight for w in members])))
        for members in by_terms.values()
    ]


def _most_similar(matches: ClassMatches, weighted: Sequence[WeightedAssignment]) -> int:
    """Return the position of the weighted assignment that agrees with `matches` in most classes.

    matches : enrolled class and training class that equal each class of the test
    """

    def agreement(position: int) -> int:
        views = zip(matches, weighted[position].assignment.matches, strict=True)
        pairs = [(a, b) for row, other_row in views for a, b in zip(row, other_row, strict=True)]
        return sum(1 if a == b else -1 for a, b in pairs if b != NEW_CLASS)

    return max(range(len(weighted)), key=agreement)
