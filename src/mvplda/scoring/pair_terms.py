"""Pair terms: the log-ratio of a profile and a test under one assignment of classes.

For profile e, test t and an assignment w, the log-ratio against "nothing shared, no known class" has the same shape
in every scorer (docs/math.md, section 9.3)::

    F_w(e, t) = c + a(e) + b(t) + l(e) . r(t)

A scorer returns it as a list of `PairTerm`, which are added up. Scorers of different columns are combined by
concatenating their lists, with a weight per scorer.
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar

import numpy as np

from .._typing import AnyArray, Array, Names, Views
from ..backend import like, namespace
from .assignments import NEW_CLASS, CellTable, ClassMatches, TrainingClasses

T = TypeVar("T")

JOINT_WEIGHT = "together"
"""Key of the weight of joint evidence: what an expert adds for several views beyond the sum over single views."""


class QuadraticTerm(NamedTuple):
    """weight * (x M x' + x . linear + constant), for every vector x of one side.

    key : terms of one side with equal keys have equal values and matrices
    values : (n, w) vectors x
    matrix : (w, w) M, or its diagonal (w,); None is 0
    linear : (w,); None is 0
    """

    key: Hashable
    values: AnyArray
    matrix: Array | None
    linear: Array | None = None
    constant: float = 0.0
    weight: float = 1.0

    def weighted(self, expert: Hashable, weight: float) -> QuadraticTerm:
        """Return the term as part of a committee: weighted, with the expert as a prefix of its key."""
        return self._replace(key=(expert, self.key), weight=weight * self.weight)

    def evaluate(self, squares: dict[Hashable, AnyArray]) -> AnyArray:
        """Return the (n,) values of the term.

        squares : cache of x M x' by key. All assignments of a comparison share it, because their training classes
            change `linear` and `constant` only.
        """
        x = self.values
        if self.key not in squares:
            squares[self.key] = 0.0 * x[:, 0]
            if self.matrix is not None:
                squares[self.key] = row_products(multiply(x, self.matrix), x)
        total = squares[self.key] + self.constant
        if self.linear is not None:
            total = total + x @ like(self.linear, x)
        return total if self.weight == 1.0 else self.weight * total


class PairTerm(NamedTuple):
    """weight * (x left) (y right)' + row(x) + column(y), for vectors x of the enrolment and y of the test.

    key : terms of the same sides with equal keys differ only in the linear and constant parts of row and column
    left, right : (w, rho), or the diagonal (w,) of a diagonal matrix
    row, column : one-sided terms, which hold the vectors x and y
    """

    key: Hashable
    left: Array
    right: Array
    row: QuadraticTerm
    column: QuadraticTerm
    weight: float = 1.0

    def weighted(self, expert: Hashable, weight: float) -> PairTerm:
        """Return the term as part of a committee: weighted, with the expert as a prefix of its key."""
        return PairTerm(
            (expert, weight, self.key),
            self.left,
            self.right,
            self.row.weighted(expert, weight),
            self.column.weighted(expert, weight),
            weight * self.weight,
        )


def multiply(x: AnyArray, matrix: Array) -> AnyArray:
    """Return x @ matrix; a vector stands for a diagonal matrix."""
    factor = like(matrix, x)
    return x * factor if matrix.ndim == 1 else x @ factor


def row_products(a: AnyArray, b: AnyArray) -> AnyArray:
    """Return the (n,) dot products of the rows of two (n, m) arrays, without an (n, m) temporary."""
    return namespace(a).einsum("ij,ij->i", a, b)


class PairTerms(Protocol):
    """Pair terms of a scorer. Prepared sides are opaque to the engine.

    base : base views
    is_llr : whether the scores are likelihood ratios
    """

    base: Views

    @property
    def is_llr(self) -> bool: ...

    def prepare(self, table: CellTable, y: AnyArray) -> Any:
        """Return a prepared side: profiles with one table, from their evidence y of (profiles, cells, r)."""
        ...

    def side_terms(self, side: Any, training_classes: TrainingClasses) -> list[QuadraticTerm]:
        """Return the log ratio of the likelihood given these training classes to that of new classes.

        The result is a sum of terms; it is empty if the sum is 0.
        """
        ...

    def assignment_terms(
        self, enrol: Any, test: Any, training_classes: TrainingClasses, matches: ClassMatches
    ) -> list[PairTerm]:
        """Return the terms of one assignment, given the training classes of the enrolment.

        The result is a sum of terms; it is empty if the sum is 0.
        """
        ...


@dataclass
class ScoreTerms:
    """Pair terms of a score e . t + square (|e|^2 + |t|^2), used for the hypothesis that all views are shared.

    encode : maps sums of evidence (n, r) and the number of vectors per sum to vectors (n, w)
    """

    base: Views
    encode: Callable[[AnyArray, float], AnyArray]
    square: float = 0.0
    is_llr: ClassVar[bool] = False

    def prepare(self, table: CellTable, y: AnyArray) -> AnyArray:
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
        identity = np.ones(enrol.shape[1])
        squares = self.square * identity if self.square else None
        row = QuadraticTerm("row", enrol, squares)
        column = QuadraticTerm("column", test, squares)
        return [PairTerm("score", identity, identity, row, column)]


@dataclass(frozen=True, eq=False)
class ExpertTerms:
    """Pair terms of one expert of a committee, with its columns of y and its weights.

    weights : {view of the expert, or `JOINT_WEIGHT`: weight}
    class_numbers : {view: (classes,)} the expert's number of each training class of the committee; -1: unseen
    """

    pair_terms: PairTerms
    columns: slice
    weights: Mapping[str, float]
    class_numbers: Mapping[str, Sequence[int]]

    def number(self, view: str, training_class: int) -> int:
        """Return the expert's number for a training class of the committee; -1 if the expert has no such class."""
        if training_class < 0 or view not in self.class_numbers or view not in self.weights:
            return -1
        return int(self.class_numbers[view][training_class])

    def split_by_view(
        self, classes: tuple[tuple[T, ...], ...], neutral: T
    ) -> Iterator[tuple[tuple[tuple[T, ...], ...], float]]:
        """Yield the summands of (V10): the classes restricted to one view or to all, with a weight.

        classes : per base view, the training class or the match of each class
        neutral : value of a class outside the restriction
        """
        base = self.pair_terms.base
        views = [
            view
            for view, row in zip(base, classes, strict=True)
            if view in self.weights and any(value != neutral for value in row)
        ]
        weighted = [([view], self.weights[view]) for view in views]
        # alpha_v l(v) + alpha_+ (l(h) - sum of l(v)) = (alpha_v - alpha_+) l(v) + alpha_+ l(h)
        if len(views) > 1:
            joint_weight = self.weights[JOINT_WEIGHT]
            weighted = [(single, weight - joint_weight) for single, weight in weighted]
            weighted.append((views, joint_weight))
        for subset, weight in weighted:
            if weight == 0:
                continue
            rows = zip(base, classes, strict=True)
            yield (
                tuple(row if view in subset else (neutral,) * len(row) for view, row in rows),
                weight,
            )


class ExpertCall(NamedTuple):
    """Weight of an expert's terms in an assignment, and the arguments to compute them."""

    expert: int
    training_classes: TrainingClasses
    matches: ClassMatches
    weight: float


MAX_CACHED_CALLS = 2**12
"""Number of assignments whose expert calls are cached."""


class JointTerms:
    """Pair terms of a committee: weighted sums over experts of different columns (docs/math.md, section 9.8).

    An expert has a weight per view, and one for several views together. For an assignment about views V, with G(S)
    the expert's term restricted to the views S, the committee's term is

        F = sum of weight[v] G({v}) over v in V  +  joint weight (G(V) - sum of G({v}))  (V10)
    """

    def __init__(self, base: Sequence[str], experts: Sequence[ExpertTerms]) -> None:
        self.base = tuple(base)
        self.experts = tuple(experts)
        self._view_numbers = [
            [self.base.index(view) for view in expert.pair_terms.base] for expert in experts
        ]
        # the same assignments recur in every scoring call
        self._calls: dict[Hashable, list[ExpertCall]] = {}

    @property
    def is_llr(self) -> bool:
        return all(expert.pair_terms.is_llr for expert in self.experts)

    def prepare(self, table: CellTable, y: AnyArray) -> list[Any]:
        """Return one prepared side per expert."""
        sides = []
        for expert, view_numbers in zip(self.experts, self._view_numbers, strict=True):
            classes = tuple(table.classes[i] for i in view_numbers)
            names = tuple(table.names[i] for i in view_numbers)
            expert_table = CellTable(expert.pair_terms.base, table.weights, classes, names)
            sides.append(expert.pair_terms.prepare(expert_table, y[:, :, expert.columns]))
        return sides

    def side_terms(self, side: list[Any], training_classes: TrainingClasses) -> list[QuadraticTerm]:
        terms = []
        for k, expert_classes, _, weight in self._expert_calls(training_classes, None):
            expert_terms = self.experts[k].pair_terms.side_terms(side[k], expert_classes)
            terms += [term.weighted(k, weight) for term in expert_terms]
        return terms

    def assignment_terms(
        self,
        enrol: list[Any],
        test: list[Any],
        training_classes: TrainingClasses,
        matches: ClassMatches,
    ) -> list[PairTerm]:
        terms = []
        for k, expert_classes, expert_matches, weight in self._expert_calls(
            training_classes, matches
        ):
            expert_terms = self.experts[k].pair_terms.assignment_terms(
                enrol[k], test[k], expert_classes, expert_matches
            )
            terms += [term.weighted(k, weight) for term in expert_terms]
        return terms

    def _expert_calls(
        self, training_classes: TrainingClasses, matches: ClassMatches | None
    ) -> list[ExpertCall]:
        """Return the calls to all experts for one assignment; for the terms of one side if `matches` is None."""
        key = (training_classes, matches)
        calls = self._calls.get(key)
        if calls is None:
            if len(self._calls) >= MAX_CACHED_CALLS:
                self._calls.clear()
            calls = []
            for k in range(len(self.experts)):
                calls += self._calls_of_expert(k, training_classes, matches)
            self._calls[key] = calls
        return calls

    def _calls_of_expert(
        self, k: int, training_classes: TrainingClasses, matches: ClassMatches | None
    ) -> Iterator[ExpertCall]:
        """Yield the calls of one expert, with classes and matches in its own views and class numbers."""
        expert = self.experts[k]
        views = list(zip(expert.pair_terms.base, self._view_numbers[k], strict=True))
        expert_classes = tuple(
            tuple(expert.number(view, c) for c in training_classes[i]) for view, i in views
        )
        if matches is None:
            for subset, weight in expert.split_by_view(expert_classes, -1):
                yield ExpertCall(k, subset, (), weight)
            return
        expert_matches = tuple(
            tuple((e, expert.number(view, c)) for e, c in matches[i]) for view, i in views
        )
        for restricted, weight in expert.split_by_view(expert_matches, NEW_CLASS):
            # without a shared class the term is 0
            if any(e >= 0 for classes in restricted for e, _ in classes):
                yield ExpertCall(k, expert_classes, restricted, weight)


def expert_class_numbers(names: Names, expert_names: Names) -> Sequence[int]:
    """Return the expert's number of each named class; -1: not among its training classes."""
    if np.array_equal(names, expert_names):
        return range(len(expert_names))
    numbers = {name: i for i, name in enumerate(expert_names.tolist())}
    return [numbers.get(name, -1) for name in names.tolist()]
