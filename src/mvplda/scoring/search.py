"""Search by inner products: the LLR of a profile and a test as the product of one vector of each.

A pair form is c + a(e) + b(t) + l(e) . r(t) with r(t) = x R, where x is what the scorer makes of the test. Profiles of
another number of vectors have another R and another b. Hence (docs/math.md, section 9.3)

    profile : [l(e) R',  a(e) + c,  0 .. 1 .. 0]        test : [x,  1,  b_1(t) .. b_G(t)]

where the 1 of a profile stands at its kind (its numbers of vectors): one vector of a test meets profiles of all kinds.
Where a question leaves several possibilities, the product is a bound of the LLR. Of positive numbers

    (A_1 + .. + A_n) / (C_1 + .. + C_n)  <=  largest of A_i / C_i

and log (A_i / C_i) is a difference of pair forms. A profile then has one row for each i, and the largest product of
its rows is at least its LLR.
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._typing import Array, BoolArray, FloatArray, IntArray
from ..exceptions import DataError, ParameterError
from .assignments import NEW_CLASS, CellTable, ClassMatches
from .engine import Comparison, GroupSide, Possible, score_pairs
from .pair_terms import PairTerm, multiply
from .profiles import Profiles

Compare = Callable[[Profiles, Profiles], Comparison]
"""Puts the question of an index to profiles and tests."""

FloatRows = NDArray[np.float32]
ProfileKind = tuple[CellTable, int]


class SearchResult(NamedTuple):
    """The best profiles for every test, best first: their numbers and exact LLRs, both (tests, top).

    certified : (tests,) whether no profile beyond the candidates can be better than the last of these
    """

    profiles: IntArray
    scores: FloatArray
    certified: BoolArray


class LlrBound(NamedTuple):
    """Forms whose sum and a constant is log (A_i / C_i); is_exact: this is the LLR itself."""

    terms: list[PairTerm]
    constant: float
    is_exact: bool


class SearchIndex:
    """Vectors of profiles for an engine that searches by inner products, and the way to vectors of tests.

    vectors : (rows, width) float32, not to be changed in place: the error bound is of these numbers
    owners : (rows,) number of the profile of every row
    own : column of what the profiles have by themselves, a(e) + c; those behind it tell their kinds
    exact : whether the product of a row and a query is the LLR; otherwise it is a bound, see `rerank`
    examples : one profile of every kind: an index of these alone has the same columns, in any process
    """

    def __init__(self, compare: Compare, profiles: Profiles, probe: Profiles) -> None:
        self._compare = compare
        self._probe = probe
        if compare(profiles, probe).has_names:
            raise ParameterError(
                "an index has no known=: search without it, and score the candidates with it"
            )
        self.exact = True
        self.own = 0
        # where the vectors x stand that the forms take, by kind of profiles and bound
        self._columns: dict[ProfileKind, list[slice]] = {}
        taken: dict[int, slice] = {}
        examples: list[int] = []
        for kind, bound, side, _ in self._bounds(profiles, probe):
            examples.append(int(side.group.profiles[0]))
            self.exact &= bound.is_exact
            for term in bound.terms:
                x = term.column.values
                if id(x) not in taken:
                    taken[id(x)] = slice(self.own, self.own + x.shape[1])
                    self.own += x.shape[1]
            self._columns[kind] = [taken[id(term.column.values)] for term in bound.terms]
        self.examples = profiles.take(list(dict.fromkeys(examples)))
        self.vectors, self.owners = self.encode(profiles)
        self._largest: tuple[FloatRows, Array] | None = None

    def encode(self, profiles: Profiles) -> tuple[FloatRows, IntArray]:
        """Rows of more profiles, of kinds that the index has, and the number of the profile of each."""
        made: list[FloatRows] = []
        owners: list[IntArray] = []
        for kind, bound, side, _ in self._bounds(profiles, self._probe):
            if kind not in self._columns:
                raise DataError(
                    f"the index has no profile of {kind[0].weights} vectors: make it of profiles with these, too"
                )
            rows = np.zeros((len(side.group.profiles), self.own + 1 + len(self._columns)))
            for term, columns in zip(bound.terms, self._columns[kind], strict=True):
                left = term.weight * multiply(term.row.values, term.left)
                rows[:, columns] += multiply(left, term.right.T)
            rows[:, self.own] = side.own(bound.terms) + bound.constant
            rows[:, self._place(kind)] = 1.0
            made.append(rows.astype(np.float32))
            owners.append(side.group.profiles)
        return np.concatenate(made), np.concatenate(owners)

    def queries(self, tests: Profiles) -> FloatRows:
        """(tests, width) vectors whose products with those of the profiles are LLRs, or bounds of them."""
        if (tests.weights != self._probe.weights[0]).any() or len(tests.weights) > len(tests):
            raise DataError(
                f"the index is for tests of {self._probe.weights[0]:g} vector(s) each: make another with takes="
            )
        rows = np.zeros((len(tests), self.own + 1 + len(self._columns)))
        rows[:, self.own] = 1.0
        for kind, bound, _, test in self._bounds(self.examples, tests):
            for term, columns in zip(bound.terms, self._columns[kind], strict=True):
                rows[:, columns] = term.column.values
            rows[:, self._place(kind)] = test.own(bound.terms)
        return rows.astype(np.float32)

    def error(self, queries: FloatArray, decoded: FloatArray | None = None) -> FloatArray:
        """(tests,) by how much products of float32 can be off.

        decoded : the vectors as an engine with fewer bits has them; their error is added
        """
        q = np.abs(queries.astype(np.float64))
        rounding = self.vectors.shape[1] * np.finfo(np.float32).eps
        total = rounding * (q @ self._largest_in_columns())
        if decoded is not None:
            # Cauchy and Schwarz
            lost = np.linalg.norm(self.vectors - decoded, axis=1).max()
            total += lost * np.linalg.norm(q, axis=1)
        return total

    def _largest_in_columns(self) -> Array:
        """(width,) largest absolute number of every column, computed once."""
        # a scan of all rows costs ten times as much as the rest of a query
        cached = self._largest
        if cached is None or cached[0] is not self.vectors:
            largest = np.maximum(self.vectors.max(axis=0), -self.vectors.min(axis=0))
            # other threads may do the same
            cached = self._largest = (self.vectors, largest.astype(np.float64))
        return cached[1]

    def rerank(
        self,
        profiles: Profiles,
        tests: Profiles,
        candidates: IntArray,
        unseen: FloatArray | None = None,
        top: int = 10,
    ) -> SearchResult:
        """The best of some candidates by their exact LLRs, and whether they are the best of all.

        candidates : (tests, n) numbers of profiles, as an engine gives them; -1 for none
        unseen : (tests,) the largest product that any other row can have: of a search through all rows the smallest
            product that it returned, plus `error`. None: nothing is known of the others
        """
        ordered = np.sort(np.asarray(candidates, dtype=np.int64), axis=1)
        # several rows may be of one profile
        again = np.zeros(ordered.shape, dtype=bool)
        again[:, 1:] = ordered[:, 1:] == ordered[:, :-1]
        test, place = np.nonzero((ordered >= 0) & ~again)
        llrs = np.full(ordered.shape, -np.inf)
        pairs = np.stack([ordered[test, place], test], axis=1)
        comparison = self._compare(profiles, tests)
        (llrs[test, place],) = score_pairs(comparison, comparison.ratio.sums, pairs)
        best = np.argsort(-llrs, axis=1, kind="stable")[:, :top]
        scores = np.take_along_axis(llrs, best, axis=1)
        # all profiles are candidates where there are no others
        certified = np.bincount(test, minlength=len(llrs)) == len(profiles)
        if unseen is not None:
            certified |= scores[:, -1] >= unseen
        return SearchResult(np.take_along_axis(ordered, best, axis=1), scores, certified)

    def _place(self, kind: ProfileKind) -> int:
        return self.own + 1 + list(self._columns).index(kind)

    def _bounds(
        self, profiles: Profiles, tests: Profiles
    ) -> Iterator[tuple[ProfileKind, LlrBound, GroupSide, GroupSide]]:
        """All kinds of profiles with their bounds, and both sides as the scorer sees them."""
        comparison = self._compare(profiles, tests)
        (group,) = comparison.groups(comparison.test)
        test = GroupSide(comparison, comparison.test, group)
        for group in comparison.groups(comparison.enrol):
            side = GroupSide(comparison, comparison.enrol, group)
            sums = comparison.possible(side, test, comparison.ratio.sums)
            above, below = (_merge_equal_terms(some) for some in sums)
            for i, bound in enumerate(_pair_assignments(above, below)):
                yield (group.table, i), bound, side, test


def _pair_assignments(above: Possible, below: Possible) -> list[LlrBound]:
    """Every world above with one below that has most in common with it: what is in both cancels."""
    partners = [_most_similar(world.matches, below) for _, world, _ in above]
    times = Counter(partners)
    bounds: dict[object, LlrBound] = {}
    for (weight, _, terms), partner in zip(above, partners, strict=True):
        other, _, against = below[partner]
        common = {term.key for term in terms} & {term.key for term in against}
        own = [term for term in terms if term.key not in common]
        own += [term.weighted("less", -1.0) for term in against if term.key not in common]
        # a world below that stands for several above is divided among them
        constant = weight - other + float(np.log(times[partner]))
        is_paired = len(times) == len(below) == len(above)
        bounds[tuple(term.key for term in own), round(constant, 12)] = LlrBound(
            own, constant, is_paired
        )
    return [
        bound._replace(is_exact=bound.is_exact and len(bounds) == 1) for bound in bounds.values()
    ]


def _merge_equal_terms(possible: Possible) -> Possible:
    """Worlds with equal forms as one, with the sum of their weights."""
    together: dict[object, Possible] = {}
    for one in possible:
        together.setdefault(tuple(term.key for term in one[2]), []).append(one)
    return [
        (float(np.logaddexp.reduce([weight for weight, _, _ in some])), *some[0][1:])
        for some in together.values()
    ]


def _most_similar(matches: ClassMatches, below: Possible) -> int:
    """Which of the worlds below agrees in most of what it shares."""

    def agreement(place: int) -> int:
        pairs = zip(matches, below[place][1].matches, strict=True)
        shared = [(a, b) for one, other in pairs for a, b in zip(one, other, strict=True)]
        return sum(1 if a == b else -1 for a, b in shared if b != NEW_CLASS)

    return max(range(len(below)), key=agreement)
