"""Pair forms: the log-ratio of a profile and a test in one world.

For profile e, test t and a world w every scorer has a log-ratio against "nothing shared, nothing known" of
one shape (docs/math.md, section 9.3)::

    F_w(e, t) = c + a(e) + b(t) + l(e) . r(t)

which is written as a sum of `PairForm`. Forms of scorers that see different columns add up in each world.
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np

from .._typing import AnyArray, Array, Names, Views
from ..backend import like, namespace
from .assignments import FRESH, Matches, Reading, Table

TOGETHER = "together"
"""Names the factor of what an expert has for several views at once, beyond what it has for each."""


class Quadratic(NamedTuple):
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
    factor: float = 1.0

    def times(self, k: Hashable, factor: float) -> Quadratic:
        """As part of a larger scorer, where its key needs a prefix."""
        return self._replace(key=(k, self.key), factor=factor * self.factor)

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
        return total if self.factor == 1.0 else self.factor * total


class PairForm(NamedTuple):
    """factor (x left)(y right)' + row(x) + column(y) of the vectors x, y of two sides.

    key : forms of the same sides with equal keys differ in nothing but the linear parts of row and column
    left, right : (w, rho), or the diagonal (w,) of a matrix that has nothing else
    """

    key: Hashable
    left: Array
    right: Array
    row: Quadratic
    column: Quadratic
    factor: float = 1.0

    def times(self, k: Hashable, factor: float) -> PairForm:
        return PairForm(
            (k, factor, self.key),
            self.left,
            self.right,
            self.row.times(k, factor),
            self.column.times(k, factor),
            factor * self.factor,
        )


def multiply(x: AnyArray, matrix: Array) -> AnyArray:
    """x @ matrix, where the matrix may be given by its diagonal."""
    there = like(matrix, x)
    return x * there if matrix.ndim == 1 else x @ there


def row_products(a: AnyArray, b: AnyArray) -> AnyArray:
    """(n,) products of the rows of two (n, m), without an array of their size."""
    return namespace(a).einsum("ij,ij->i", a, b)


class Forms(Protocol):
    """The forms of a scorer. What it makes of one side, `side`, is its own affair.

    base : base views
    is_llr : whether its answers are likelihood ratios
    """

    base: Views

    @property
    def is_llr(self) -> bool: ...

    def side(self, table: Table, y: AnyArray) -> Any:
        """Profiles with one table, from their cells' evidence (profiles, cells, r)."""
        ...

    def alone(self, side: Any, reading: Reading) -> list[Quadratic]:
        """Log-likelihood as certain training classes against "nothing known": a sum, empty where it is 0."""
        ...

    def form(self, enrol: Any, test: Any, reading: Reading, matches: Matches) -> list[PairForm]:
        """The form of a world where the enrolment has these training classes: a sum, empty where it is 0."""
        ...


@dataclass
class ScoreForms:
    """A score e . t + square (|e|^2 + |t|^2), which counts in worlds where all views are shared.

    encode : gives of the sums of profiles' evidence (n, r) and of how many vectors they are the vectors (n, w)
    """

    base: Views
    encode: Callable[[AnyArray, float], AnyArray]
    square: float = 0.0
    is_llr: ClassVar[bool] = False

    def side(self, table: Table, y: AnyArray) -> AnyArray:
        return self.encode(y.sum(1), sum(table.weights))

    def alone(self, side: AnyArray, reading: Reading) -> list[Quadratic]:
        return []

    def form(
        self, enrol: AnyArray, test: AnyArray, reading: Reading, matches: Matches
    ) -> list[PairForm]:
        if any(match[0] < 0 for classes in matches for match in classes):
            return []
        # a score is a bare product of the two sides
        identity = np.ones(enrol.shape[1])
        squares = self.square * identity if self.square else None
        row = Quadratic("row", enrol, squares)
        return [PairForm("score", identity, identity, row, Quadratic("column", test, squares))]


@dataclass(frozen=True, eq=False)
class ExpertTerms:
    """One expert of several: its forms, the columns of y that are its own, and its weights.

    weights : {view that it is about, or "together": weight}
    numbers : {view: (classes,) its own number of every training class of the joint scorer, -1: it has not seen it}
    """

    forms: Forms
    columns: slice
    weights: Mapping[str, float]
    numbers: Mapping[str, Sequence[int]]

    def number(self, view: str, trained: int) -> int:
        """The expert's own number of a training class."""
        if trained < 0 or view not in self.numbers or view not in self.weights:
            return -1
        return int(self.numbers[view][trained])

    def apply(self, rows: Any, nothing: Any) -> Iterator[tuple[Any, float]]:
        """Of what is the case in every view: what is put to the expert, and the weight of its answer (V10)."""
        base = self.forms.base
        views = [
            view
            for view, row in zip(base, rows, strict=True)
            if view in self.weights and any(one != nothing for one in row)
        ]
        weighted = [([view], self.weights[view]) for view in views]
        # what is said of views together counts beyond what is said of each, with a weight of its own
        if len(views) > 1:
            together = self.weights[TOGETHER]
            weighted = [(some, weight - together) for some, weight in weighted]
            weighted.append((views, together))
        for some, weight in weighted:
            if weight != 0:
                pairs = zip(base, rows, strict=True)
                yield tuple(r if v in some else (nothing,) * len(r) for v, r in pairs), weight


Applied = tuple[int, Reading, Matches, float]
"""Number of an expert, what is put to it of training classes and of matches, and the factor of its answer."""

KEPT_APPLIED = 2**12


class JointForms:
    """Forms of experts that see different columns: they add up in each world, each with its factors (9.8).

    An expert has a factor for every view, and one for several views together beyond that. Where a world is about
    views V, with G(S) the expert's form when only what is the case in S is applied,

        F = sum of factor[v] G({v}) over v in V  +  together (G(V) - sum of G({v}))
    """

    def __init__(self, base: Sequence[str], parts: Sequence[ExpertTerms]) -> None:
        self.base = tuple(base)
        self.parts = tuple(parts)
        self._places = [[self.base.index(view) for view in part.forms.base] for part in parts]
        # what worlds mean to the experts, which comes again in every call
        self._applied: dict[Hashable, list[Applied]] = {}

    @property
    def is_llr(self) -> bool:
        return all(part.forms.is_llr for part in self.parts)

    def side(self, table: Table, y: AnyArray) -> list[Any]:
        sides = []
        for part, places in zip(self.parts, self._places, strict=True):
            classes = tuple(table.classes[i] for i in places)
            names = tuple(table.names[i] for i in places)
            own = Table(part.forms.base, table.weights, classes, names)
            sides.append(part.forms.side(own, y[:, :, part.columns]))
        return sides

    def alone(self, side: list[Any], reading: Reading) -> list[Quadratic]:
        total = []
        # an expert may count less for a view than for another, also where classes are known
        for k, read, _, factor in self._apply(reading, None):
            total += [one.times(k, factor) for one in self.parts[k].forms.alone(side[k], read)]
        return total

    def form(
        self, enrol: list[Any], test: list[Any], reading: Reading, matches: Matches
    ) -> list[PairForm]:
        total = []
        for k, read, met, factor in self._apply(reading, matches):
            # of one expert the worlds differ by which views are applied: the key says which
            forms = self.parts[k].forms.form(enrol[k], test[k], read, met)
            total += [one.times(k, factor) for one in forms]
        return total

    def _apply(self, reading: Reading, matches: Matches | None) -> list[Applied]:
        """What is put to the experts, and the factors of their answers; without matches, of one side alone."""
        key = (reading, matches)
        made = self._applied.get(key)
        if made is None:
            if len(self._applied) >= KEPT_APPLIED:
                self._applied.clear()
            made = []
            for k, (part, places) in enumerate(zip(self.parts, self._places, strict=True)):
                read = tuple(
                    tuple(part.number(view, c) for c in reading[i])
                    for view, i in zip(part.forms.base, places, strict=True)
                )
                if matches is None:
                    made += [(k, some, (), factor) for some, factor in part.apply(read, -1)]
                    continue
                met = tuple(
                    tuple((e, part.number(view, c)) for e, c in matches[i])
                    for view, i in zip(part.forms.base, places, strict=True)
                )
                for some, factor in part.apply(met, FRESH):
                    # where no class is shared there is no form
                    if any(e >= 0 for classes in some for e, _ in classes):
                        made.append((k, read, some, factor))
            self._applied[key] = made
        return made


def class_numbers(every: Names, own: Names) -> Sequence[int]:
    """An expert's own number of every class; -1 where it has not seen it."""
    if np.array_equal(every, own):
        return range(len(own))
    places = {name: i for i, name in enumerate(own.tolist())}
    return [places.get(name, -1) for name in every.tolist()]
