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

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._typing import FloatArray, IntArray
from ..exceptions import DataError, ParameterError
from .engine import Comparison, Possible, Seen, score_pairs
from .forms import PairForm, multiply
from .profiles import Profiles
from .worlds import FRESH, Matches, Table

Compare = Callable[[Profiles, Profiles], Comparison]
"""Puts the question of an index to profiles and tests."""

Rows = NDArray[np.float32]


class Found(NamedTuple):
    """The best profiles for every test, best first: their numbers and exact LLRs, both (tests, top).

    certified : (tests,) whether no profile beyond the candidates can be better than the last of these
    """

    profiles: IntArray
    scores: FloatArray
    certified: NDArray[np.bool_]


class Bound(NamedTuple):
    """Forms whose sum and a constant is log (A_i / C_i)."""

    forms: list[PairForm]
    constant: float


class SearchIndex:
    """Vectors of profiles for an engine that searches by inner products, and the way to vectors of tests.

    vectors : (rows, width) float32
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
                "an index has no known= and recognised=: search without, and score the candidates with them"
            )
        self.exact = True
        examples = []
        # columns behind the products, by kind of profiles and bound
        self._kinds: dict[tuple[Table, int], int] = {}
        # which of the vectors x of a test every form takes
        self._sources: dict[tuple[Table, int], list[int]] = {}
        numbers: dict[int, int] = {}
        self._widths: list[int] = []
        for side, test in self._sides(profiles, probe):
            examples.append(int(side.group.profiles[0]))
            bounds, is_exact = _bounds(side, test)
            self.exact &= is_exact
            for i, bound in enumerate(bounds):
                kind = side.group.table, i
                self._kinds[kind] = len(self._kinds)
                for form in bound.forms:
                    x = form.column.values
                    if id(x) not in numbers:
                        numbers[id(x)] = len(numbers)
                        self._widths.append(x.shape[1])
                self._sources[kind] = [numbers[id(form.column.values)] for form in bound.forms]
        self.own = sum(self._widths)
        self.examples = profiles.take(examples)
        self.vectors, self.owners = self.encode(profiles)

    def encode(self, profiles: Profiles) -> tuple[Rows, IntArray]:
        """Rows of more profiles, of kinds that the index has, and the number of the profile of each."""
        made: list[Rows] = []
        owners: list[IntArray] = []
        for side, test in self._sides(profiles, self._probe):
            table = side.group.table
            if (table, 0) not in self._kinds:
                raise DataError(
                    f"the index has no profile of {table.weights} vectors: make it of profiles with these, too"
                )
            for i, bound in enumerate(_bounds(side, test)[0]):
                rows = self._empty(len(side.group.profiles))
                for form, columns in zip(bound.forms, self._columns(table, i), strict=True):
                    left = form.factor * multiply(form.row.values, form.left)
                    rows[:, columns] += multiply(left, form.right.T)
                rows[:, self.own] = side.own(bound.forms) + bound.constant
                rows[:, self.own + 1 + self._kinds[table, i]] = 1.0
                made.append(rows.astype(np.float32))
                owners.append(side.group.profiles)
        return np.concatenate(made), np.concatenate(owners)

    def queries(self, tests: Profiles) -> Rows:
        """(tests, width) vectors whose products with those of the profiles are LLRs, or bounds of them."""
        if (tests.weights != self._probe.weights[0]).any() or len(tests.weights) > len(tests):
            raise DataError(
                f"the index is for tests of {self._probe.weights[0]:g} vector(s) each: make another with takes="
            )
        rows = self._empty(len(tests))
        rows[:, self.own] = 1.0
        for side, test in self._sides(self.examples, tests):
            table = side.group.table
            for i, bound in enumerate(_bounds(side, test)[0]):
                for form, columns in zip(bound.forms, self._columns(table, i), strict=True):
                    rows[:, columns] = form.column.values
                rows[:, self.own + 1 + self._kinds[table, i]] = test.own(bound.forms)
        return rows.astype(np.float32)

    def error(self, queries: FloatArray, decoded: FloatArray | None = None) -> FloatArray:
        """(tests,) by how much products of float32 can be off.

        decoded : the vectors as an engine with fewer bits has them; their error is added
        """
        q = np.abs(queries.astype(np.float64))
        rounding = self.vectors.shape[1] * np.finfo(np.float32).eps
        total = rounding * (q @ np.abs(self.vectors).max(axis=0))
        if decoded is not None:
            lost = np.abs(self.vectors - decoded)
            # by columns, or by lengths (Cauchy and Schwarz)
            length = np.sqrt((lost.astype(np.float64) ** 2).sum(axis=1).max())
            total += np.minimum(q @ lost.max(axis=0), length * np.linalg.norm(q, axis=1))
        return np.asarray(total)

    def rerank(
        self,
        profiles: Profiles,
        tests: Profiles,
        candidates: IntArray,
        unseen: FloatArray | None = None,
        top: int = 10,
    ) -> Found:
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
        return Found(np.take_along_axis(ordered, best, axis=1), scores, certified)

    def _sides(self, profiles: Profiles, tests: Profiles) -> Iterator[tuple[Seen, Seen]]:
        comparison = self._compare(profiles, tests)
        (group,) = comparison.groups(comparison.test)
        test = Seen(comparison, comparison.test, group)
        for group in comparison.groups(comparison.enrol):
            yield Seen(comparison, comparison.enrol, group), test

    def _empty(self, n: int) -> NDArray[np.float64]:
        return np.zeros((n, self.own + 1 + len(self._kinds)))

    def _columns(self, table: Table, i: int) -> list[slice]:
        """Where the vector of a test stands that every form takes."""
        stops = np.cumsum(self._widths).tolist()
        return [slice(stops[k] - self._widths[k], stops[k]) for k in self._sources[table, i]]


def _bounds(side: Seen, test: Seen) -> tuple[list[Bound], bool]:
    """Bounds of the LLRs of profiles of one kind, and whether the only one is the LLR itself."""
    comparison = side.comparison
    sums = comparison.possible(side, test, comparison.ratio.sums)
    above, below = (_distinct(some) for some in sums)
    # every world above is paired with one below that has most in common with it: what is in both cancels
    partners = [_nearest(world.matches, below) for _, world, _ in above]
    times = Counter(partners)
    bounds: dict[object, Bound] = {}
    for (weight, _, forms), partner in zip(above, partners, strict=True):
        other, _, against = below[partner]
        own = [form for form in forms if not any(form.key == one.key for one in against)]
        less = [form for form in against if not any(form.key == one.key for one in forms)]
        own += [form.times("less", -1.0) for form in less]
        # a world below that stands for several above is divided among them
        constant = weight - other + float(np.log(times[partner]))
        bounds[tuple(form.key for form in own), round(constant, 12)] = Bound(own, constant)
    is_exact = len(bounds) == 1 and len(times) == len(below) == len(above)
    return list(bounds.values()), is_exact


def _distinct(possible: Possible) -> Possible:
    """Worlds with equal forms as one, with the sum of their weights."""
    together: dict[object, Possible] = {}
    for one in possible:
        together.setdefault(tuple(form.key for form in one[2]), []).append(one)
    return [
        (float(np.logaddexp.reduce([weight for weight, _, _ in some])), *some[0][1:])
        for some in together.values()
    ]


def _nearest(matches: Matches, below: Possible) -> int:
    """Which of the worlds below agrees in most of what it shares."""

    def agreement(place: int) -> int:
        pairs = zip(matches, below[place][1].matches, strict=True)
        shared = [(a, b) for one, other in pairs for a, b in zip(one, other, strict=True)]
        return sum(1 if a == b else -1 for a, b in shared if b != FRESH)

    return max(range(len(below)), key=agreement)
