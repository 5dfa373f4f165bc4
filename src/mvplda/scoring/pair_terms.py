"""Pair forms: the log-ratio of a profile and a test in one world.

For profile e, test t and a world w every scorer has a log-ratio against "nothing shared, nothing known" of
one shape (docs/math.md, section 9.3)::

    F_w(e, t) = c + a(e) + b(t) + l(e) . r(t)

which is written as a sum of `PairTerm`. Forms of scorers that see different columns add up in each world.
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np

from .._typing import AnyArray, Array, Names, Views
from ..backend import like, namespace
from .assignments import NEW_CLASS, CellTable, ClassMatches, TrainingClasses

JOINT_WEIGHT = "together"
"""Names the factor of what an expert has for several views at once, beyond what it has for each."""


class QuadraticTerm(NamedTuple):
    """factor (x M x' + x . linear + constant) of the vectors x of one side.

    key : quadratics of one side with equal keys have equal values and matrices
    values : (n, w) x
    matrix : (w, w), or (w,) where there is a diagonal only; None is 0
    linear : (w,); None is 0
    """

    key: Hashable
    values: AnyArray
    matrix: Array | None
    linear: Array | None = None
    constant: float = 0.0
    weight: float = 1.0

    def weighted(self, k: Hashable, weight: float) -> QuadraticTerm:
        """As part of a larger scorer, where its key needs a prefix."""
        return self._replace(key=(k, self.key), weight=weight * self.weight)

    def evaluate(self, squares: dict[Hashable, AnyArray]) -> AnyArray:
        """(n,) values.

        squares : x M x' by key, which the worlds of a comparison share: their known classes move `linear` only
        """
        x = self.values
        # worlds of many known classes ask for the same squares again
        if self.key not in squares:
            squares[self.key] = 0.0 * x[:, 0]
            if self.matrix is not None:
                squares[self.key] = row_products(multiply(x, self.matrix), x)
        total = squares[self.key] + self.constant
        if self.linear is not None:
            total = total + x @ like(self.linear, x)
        return total if self.weight == 1.0 else self.weight * total


class PairTerm(NamedTuple):
    """factor (x left)(y right)' + row(x) + column(y) of the vectors x, y of two sides.

    key : forms of the same sides with equal keys differ in nothing but the linear parts of row and column
    left, right : (w, rho), or the diagonal (w,) of a matrix that has nothing else
    """

    key: Hashable
    left: Array
    right: Array
    row: QuadraticTerm
    column: QuadraticTerm
    weight: float = 1.0

    def weighted(self, k: Hashable, weight: float) -> PairTerm:
        return PairTerm(
            (k, weight, self.key),
            self.left,
            self.right,
            self.row.weighted(k, weight),
            self.column.weighted(k, weight),
            weight * self.weight,
        )


def multiply(x: AnyArray, matrix: Array) -> AnyArray:
    """x @ matrix, where the matrix may be given by its diagonal."""
    there = like(matrix, x)
    return x * there if matrix.ndim == 1 else x @ there


def row_products(a: AnyArray, b: AnyArray) -> AnyArray:
    """(n,) products of the rows of two (n, m), without an array of their size."""
    return namespace(a).einsum("ij,ij->i", a, b)


class PairTerms(Protocol):
    """The forms of a scorer. What it makes of one side, `side`, is its own affair.

    base : base views
    is_llr : whether its answers are likelihood ratios
    """

    base: Views

    @property
    def is_llr(self) -> bool: ...

    def side(self, table: CellTable, y: AnyArray) -> Any:
        """Profiles with one table, from their cells' evidence (profiles, cells, r)."""
        ...

    def side_terms(self, side: Any, training_classes: TrainingClasses) -> list[QuadraticTerm]:
        """Log-likelihood as certain training classes against "nothing known": a sum, empty where it is 0."""
        ...

    def assignment_terms(
        self, enrol: Any, test: Any, training_classes: TrainingClasses, matches: ClassMatches
    ) -> list[PairTerm]:
        """The form of a world where the enrolment has these training classes: a sum, empty where it is 0."""
        ...


@dataclass
class ScoreTerms:
    """A score e . t + square (|e|^2 + |t|^2), which counts in worlds where all views are shared.

    encode : gives of the sums of profiles' evidence (n, r) and of how many vectors they are the vectors (n, w)
    """

    base: Views
    encode: Callable[[AnyArray, float], AnyArray]
    square: float = 0.0
    is_llr: ClassVar[bool] = False

    def side(self, table: CellTable, y: AnyArray) -> AnyArray:
        return self.encode(y.sum(1), sum(table.weights))

    def side_terms(self, side: AnyArray, training_classes: TrainingClasses) -> list[QuadraticTerm]:
        return []

    def assignment_terms(
        self,
        enrol: AnyArray,
        test: AnyArray,
        training_classes: TrainingClasses,
        matches: ClassMatches,
    ) -> list[PairTerm]:
        if any(match[0] < 0 for classes in matches for match in classes):
            return []
        # a score is a bare product of the two sides
        identity = np.ones(enrol.shape[1])
        squares = self.square * identity if self.square else None
        row = QuadraticTerm("row", enrol, squares)
        return [PairTerm("score", identity, identity, row, QuadraticTerm("column", test, squares))]


@dataclass(frozen=True, eq=False)
class ExpertTerms:
    """One expert of several: its forms, the columns of y that are its own, and its factors.

    weights : {view that it is about, or "together": weight}
    numbers : {view: (classes,) its own number of every training class of the joint scorer, -1: it has not seen it}
    """

    pair_terms: PairTerms
    columns: slice
    weights: Mapping[str, float]
    class_numbers: Mapping[str, Sequence[int]]

    def number(self, view: str, trained: int) -> int:
        """The expert's own number of a training class."""
        if trained < 0 or view not in self.class_numbers or view not in self.weights:
            return -1
        return int(self.class_numbers[view][trained])

    def apply(self, rows: Any, nothing: Any) -> Iterator[tuple[Any, float]]:
        """Of what is the case in every view: what is put to the expert, and the factor of its answer (V10)."""
        base = self.pair_terms.base
        views = [
            view
            for view, row in zip(base, rows, strict=True)
            if view in self.weights and any(one != nothing for one in row)
        ]
        weighted = [([view], self.weights[view]) for view in views]
        # what is said of views together counts beyond what is said of each, with a factor of its own
        if len(views) > 1:
            joint_weight = self.weights[JOINT_WEIGHT]
            weighted = [(some, weight - joint_weight) for some, weight in weighted]
            weighted.append((views, joint_weight))
        for some, weight in weighted:
            if weight != 0:
                pairs = zip(base, rows, strict=True)
                yield tuple(r if v in some else (nothing,) * len(r) for v, r in pairs), weight


ExpertCall = tuple[int, TrainingClasses, ClassMatches, float]
"""Number of an expert, what is put to it of training classes and of matches, and the factor of its answer."""

MAX_CACHED_CALLS = 2**12


class JointTerms:
    """Forms of experts that see different columns: they add up in each world, each with its factors (9.8).

    An expert has a factor for every view, and one for several views together beyond that. Where a world is about
    views V, with G(S) the expert's form when only what is the case in S is applied,

        F = sum of factor[v] G({v}) over v in V  +  together (G(V) - sum of G({v}))
    """

    def __init__(self, base: Sequence[str], experts: Sequence[ExpertTerms]) -> None:
        self.base = tuple(base)
        self.experts = tuple(experts)
        self._places = [
            [self.base.index(view) for view in part.pair_terms.base] for part in experts
        ]
        # what worlds mean to the experts, which comes again in every call
        self._applied: dict[Hashable, list[ExpertCall]] = {}

    @property
    def is_llr(self) -> bool:
        return all(part.pair_terms.is_llr for part in self.experts)

    def side(self, table: CellTable, y: AnyArray) -> list[Any]:
        sides = []
        for part, places in zip(self.experts, self._places, strict=True):
            classes = tuple(table.classes[i] for i in places)
            names = tuple(table.names[i] for i in places)
            own = CellTable(part.pair_terms.base, table.weights, classes, names)
            sides.append(part.pair_terms.side(own, y[:, :, part.columns]))
        return sides

    def side_terms(self, side: list[Any], training_classes: TrainingClasses) -> list[QuadraticTerm]:
        total = []
        # an expert may count less for a view than for another, also where classes are known
        for k, read, _, weight in self._apply(training_classes, None):
            total += [
                one.weighted(k, weight)
                for one in self.experts[k].pair_terms.side_terms(side[k], read)
            ]
        return total

    def assignment_terms(
        self,
        enrol: list[Any],
        test: list[Any],
        training_classes: TrainingClasses,
        matches: ClassMatches,
    ) -> list[PairTerm]:
        total = []
        for k, read, met, weight in self._apply(training_classes, matches):
            # of one expert the worlds differ by which views are applied: the key says which
            pair_terms = self.experts[k].pair_terms.assignment_terms(enrol[k], test[k], read, met)
            total += [one.weighted(k, weight) for one in pair_terms]
        return total

    def _apply(
        self, training_classes: TrainingClasses, matches: ClassMatches | None
    ) -> list[ExpertCall]:
        """What is put to the experts, and the factors of their answers; without matches, of one side alone."""
        key = (training_classes, matches)
        made = self._applied.get(key)
        if made is None:
            if len(self._applied) >= MAX_CACHED_CALLS:
                self._applied.clear()
            made = []
            for k, (part, places) in enumerate(zip(self.experts, self._places, strict=True)):
                read = tuple(
                    tuple(part.number(view, c) for c in training_classes[i])
                    for view, i in zip(part.pair_terms.base, places, strict=True)
                )
                if matches is None:
                    made += [(k, some, (), weight) for some, weight in part.apply(read, -1)]
                    continue
                met = tuple(
                    tuple((e, part.number(view, c)) for e, c in matches[i])
                    for view, i in zip(part.pair_terms.base, places, strict=True)
                )
                for some, weight in part.apply(met, NEW_CLASS):
                    # where no class is shared there is no form
                    if any(e >= 0 for classes in some for e, _ in classes):
                        made.append((k, read, some, weight))
            self._applied[key] = made
        return made


def expert_class_numbers(every: Names, own: Names) -> Sequence[int]:
    """An expert's own number of every class; -1 where it has not seen it."""
    if np.array_equal(every, own):
        return range(len(own))
    places = {name: i for i, name in enumerate(own.tolist())}
    return [places.get(name, -1) for name in every.tolist()]
