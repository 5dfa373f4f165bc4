"""Pair terms: the log-ratio of a profile and a test under one assignment of classes.

For profile e, test t and an assignment w, F_w(e, t) is the log-ratio against "nothing shared, only
new classes". It has the same form in every scorer (docs/math.md, section 9.3)::

    F_w(e, t) = c + a(e) + b(t) + l(e) . r(t)

with a constant c, one-sided terms a and b, and the inner product of two vectors l and r. A scorer
returns F_w as a list of `PairTerm`, which are added up. Scorers of different columns are combined
by joining their lists, with a weight per scorer.
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
"""Key of the weight of joint evidence: what an expert's term for several views adds to its terms for single views."""


class QuadraticTerm(NamedTuple):
    """Quadratic function of a vector x: weight * (x M x' + x . linear + constant).

    It is evaluated for n vectors, one per profile of one side of a comparison.

    key : terms of a side with equal keys have equal vectors and matrices
    values : (n, w) vectors x
    matrix : M (w, w), or its diagonal (w,); None: 0
    linear : (w,); None: 0
    constant, weight : numbers
    """

    key: Hashable
    values: AnyArray
    matrix: Array | None
    linear: Array | None = None
    constant: float = 0.0
    weight: float = 1.0

    def weighted(self, expert: Hashable, weight: float) -> QuadraticTerm:
        """Return the term of one expert of a committee, multiplied by the expert's weight.

        expert : number of the expert, which becomes part of the key
        """
        return self._replace(key=(expert, self.key), weight=weight * self.weight)

    def evaluate(self, squares: dict[Hashable, AnyArray]) -> AnyArray:
        """Return the value of the term for each of the n vectors, (n,).

        squares : cache {key: (n,) values of x M x'}, which is filled. All assignments of a
            comparison share it, because their training classes change only `linear` and `constant`
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
    """Function of an enrolled vector x and a test vector y.

    Its value is weight * (x left) (y right)' + row(x) + column(y).

    key : terms of two sides with equal keys differ only in the linear parts and constants of `row`
        and `column`
    left, right : (w, m) matrices, or the diagonal (w,) of a diagonal matrix
    row, column : terms of one side; `row` holds the vectors x, `column` the vectors y
    weight : number that multiplies the first summand only
    """

    key: Hashable
    left: Array
    right: Array
    row: QuadraticTerm
    column: QuadraticTerm
    weight: float = 1.0

    def weighted(self, expert: Hashable, weight: float) -> PairTerm:
        """Return the term of one expert of a committee, multiplied by the expert's weight.

        expert : number of the expert, which becomes part of the key
        """
        return PairTerm(
            (expert, weight, self.key),
            self.left,
            self.right,
            self.row.weighted(expert, weight),
            self.column.weighted(expert, weight),
            weight * self.weight,
        )


def multiply(x: AnyArray, matrix: Array) -> AnyArray:
    """Return x @ matrix; a 1-D `matrix` stands for a diagonal matrix."""
    factor = like(matrix, x)
    return x * factor if matrix.ndim == 1 else x @ factor


def row_products(a: AnyArray, b: AnyArray) -> AnyArray:
    """Return the dot products of corresponding rows of two (n, m) arrays, (n,)."""
    return namespace(a).einsum("ij,ij->i", a, b)


class PairTerms(Protocol):
    """Interface by which a scorer provides pair terms.

    A pair term is the log-ratio of a profile and a test, given which classes are the same.
    `prepare` returns a group of profiles in the scorer's own representation; the scoring engine
    passes it to the other methods.

    base : base views
    is_llr : whether the scores are likelihood ratios
    """

    base: Views

    @property
    def is_llr(self) -> bool: ...

    def prepare(self, table: CellTable, y: AnyArray) -> Any:
        """Return a group of profiles in the scorer's own representation, for the other methods.

        table : cell table, equal for all profiles
        y : (profiles, cells, r) evidence of each cell
        """
        ...

    def side_terms(self, side: Any, training_classes: TrainingClasses) -> list[QuadraticTerm]:
        """Return terms whose sum is the log-ratio of training classes to new classes.

        It is log p(side | its classes are these training classes) - log p(side | its classes are
        new). An empty list stands for 0.

        side : group of profiles, from `prepare`
        training_classes : training class of each class of the side; -1: none
        """
        ...

    def assignment_terms(
        self, enrol: Any, test: Any, training_classes: TrainingClasses, matches: ClassMatches
    ) -> list[PairTerm]:
        """Return terms whose sum is the log-ratio of profile and test under one assignment.

        The assignment fixes which classes are the same. An empty list stands for 0.

        enrol, test : groups of profiles, from `prepare`
        training_classes : training class of each class of the enrolment; -1: none
        matches : enrolled class and training class that equal each class of the test
        """
        ...


@dataclass
class ScoreTerms:
    """Pair terms of a score that is not an LLR, such as the cosine.

    The score of an enrolled vector e and a test vector t is e . t + square * (|e|^2 + |t|^2) if the
    sides share all views, else 0.

    base : base views
    encode : function that returns vectors (n, w); its arguments are sums of evidence (n, r), and
        the number of vectors in each sum
    square : coefficient of the squared lengths
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
    """One expert of a committee: its pair terms, its columns of the evidence, and its weights.

    pair_terms : pair terms (log-ratios) of the expert
    columns : columns of the committee's evidence that belong to the expert
    weights : {view of the expert: weight}, and the weight of several views together under
        `JOINT_WEIGHT`
    class_numbers : {view: (classes,)} the expert's number of each training class of the committee;
        -1: not seen by the expert
    """

    pair_terms: PairTerms
    columns: slice
    weights: Mapping[str, float]
    class_numbers: Mapping[str, Sequence[int]]

    def number(self, view: str, training_class: int) -> int:
        """Return the expert's number of a training class; -1 if the expert was not trained on it.

        training_class : number of the class in the committee; -1: no training class
        """
        if training_class < 0 or view not in self.class_numbers or view not in self.weights:
            return -1
        return int(self.class_numbers[view][training_class])

    def split_by_view(
        self, classes: tuple[tuple[T, ...], ...], neutral: T
    ) -> Iterator[tuple[tuple[tuple[T, ...], ...], float]]:
        """Yield (classes, weight) for each term that the expert contributes (V10 in docs/math.md).

        There is one term per view that has a class, and if there are several, one for all views
        together. In the term of a single view, the classes of all other views are `neutral`. Terms
        with weight 0 are left out.

        classes : per base view, the training class or the `ClassMatch` of each class
        neutral : value that stands for no class
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
    """Arguments with which one expert of a committee computes terms, and the weight of the terms.

    Classes have the expert's own numbers.

    expert : position of the expert in the committee
    training_classes : training class of each class of the enrolment; -1: none
    matches : enrolled class and training class that equal each class of the test; empty for terms
        of one side
    weight : number by which the terms are multiplied
    """

    expert: int
    training_classes: TrainingClasses
    matches: ClassMatches
    weight: float


MAX_CACHED_CALLS = 2**12
"""Number of assignments of classes for which the arguments of the experts (`ExpertCall`) are cached."""


class JointTerms:
    """Pair terms of a committee: weighted sums over experts with different columns (docs/math.md, section 9.8).

    An expert has a weight per view, and a joint weight for several views together. Consider an
    assignment that shares classes of the views V. With G(S) the expert's term restricted to the
    views S, the committee's term is the sum over experts of

        sum over v in V of weight[v] G({v})  +  joint weight * (G(V) - sum over v of G({v}))  (V10)

    base : base views of the committee
    experts : the experts
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
        """Return a group of profiles in the representation of each expert, one item per expert.

        table : cell table, equal for all profiles
        y : (profiles, cells, r) evidence; each expert gets its own columns
        """
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
        """Return the arguments with which all experts compute their terms of one assignment.

        Classes have the committee's numbers.

        training_classes : training class of each class of the enrolment; -1: none
        matches : enrolled class and training class that equal each class of the test; None: compute
            terms of one side
        """
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
        """Yield the arguments with which expert k computes its terms of one assignment of classes.

        Classes are converted to the expert's own views and numbers. See `_expert_calls` for the
        other parameters.
        """
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
    """Return the expert's number of each class of the committee; -1: not a class of the expert.

    names : names of the committee's training classes
    expert_names : names of the expert's training classes, in the order of their numbers
    """
    if np.array_equal(names, expert_names):
        return range(len(expert_names))
    numbers = {name: i for i, name in enumerate(expert_names.tolist())}
    return [numbers.get(name, -1) for name in names.tolist()]
