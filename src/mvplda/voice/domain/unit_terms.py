"""Pair terms of unit-length blocks whose domain is known up to a variance."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import NamedTuple, Self

import numpy as np

from ..._typing import AnyArray, Array
from ...backend import like
from ...scoring.assignments import CellTable, ClassMatches, TrainingClasses
from ...scoring.pair_terms import PairTerm, QuadraticTerm
from .posterior import SESSION_VARIANCE_RATIO, SESSION_VIEW, scale_about

MAX_VARIANCE = 4.0
"""No variance of vectors of length 1 is larger."""

MAX_CACHED_TERMS = 2**10
"""Maximum number of cached terms, one for every known class and all counts of takes."""

KNOWN_CLASS_NOISE = 1.5
"""Tests of known classes are so much noisier than training: chosen on corpora that were left out."""


class UnitSide(NamedTuple):
    """Profiles, as one class of the block's view: vectors of length about 1, and of how much they are means."""

    vectors: AnyArray
    takes: float
    sessions: float


class ColumnVariances(NamedTuple):
    """Variances of one column: classes, what the other views and sessions add, cells, takes, the domain in doubt."""

    own: float
    other: float
    cell: float
    take: float
    doubt: float

    @classmethod
    def of(cls, totals: Mapping[str, float], doubt: float, columns: int) -> Self:
        other = totals["other"] + totals["cell"] + SESSION_VARIANCE_RATIO * totals["own"]
        numbers = totals["own"], other, totals["cell"], totals["take"], doubt
        return cls(*(number / columns for number in numbers))

    def within(self, side: UnitSide, noise: float = 1.0) -> float:
        """Of the mean of some takes of some sessions about their class."""
        # takes of one session vary together, whatever was said
        return self.other / side.sessions + noise * self.take / side.takes


class UnitTerms:
    """Pair terms of one block about its own view, in a domain that is known up to a variance.

    A test of a known class c has the mean m_c; where the profile's own takes e are of the class, too, it is expected
    at m_c + g (e - m_c), for people have their own way of saying a phrase: g = cell / (variance of e about its class).

    centre : (D,) mean and domain
    known : (classes, D) posterior means m and (classes,) variances of the classes that the deployment knows
    """

    is_llr = True

    def __init__(
        self,
        view: str,
        centre: Array,
        spreads: ColumnVariances,
        known: tuple[Array, Array] | None = None,
    ) -> None:
        self.base: tuple[str, ...] = (view, SESSION_VIEW)
        self.centre = centre
        self.spreads = spreads
        self.known = known
        # unlike a number, it is never that of another instance
        self._name = object()
        self._ones = np.ones(len(centre))
        # terms by their keys: most trials have the same counts of takes
        self._terms: dict[Hashable, UnitTerm] = {}

    def prepare(self, table: CellTable, y: AnyArray) -> list[UnitSide]:
        """By class of the view."""
        sides = []
        for c in range(len(table.names[0])):
            cells = [cell for cell, own in enumerate(table.classes[0]) if own == c]
            weights = [table.weights[cell] for cell in cells]
            by_session = np.bincount([table.classes[1][cell] for cell in cells], weights)
            count = float(by_session.sum())
            mean = y[:, like(cells, y)].sum(1) / count
            scaled, _ = scale_about(mean, like(self.centre, mean))
            sides.append(UnitSide(scaled, count, count**2 / float(by_session @ by_session)))
        return sides

    def side_terms(
        self, side: list[UnitSide], training_classes: TrainingClasses
    ) -> list[QuadraticTerm]:
        """log N(x; m, v) - log N(x; 0, u): as known classes, against nothing known."""
        made = []
        for one, number in zip(side, training_classes[0], strict=True):
            if self.known is None or number < 0:
                continue
            m = self.known[0][number]
            within = self.spreads.within(one, KNOWN_CLASS_NOISE)
            u = self.spreads.own + self.spreads.doubt + within
            v = float(self.known[1][number]) + within
            constant = 0.5 * (len(m) * np.log(u / v) - float(m @ m) / v)
            squares = np.full(len(m), 0.5 / u - 0.5 / v)
            key = (self._name, number, *one[1:])
            made.append(QuadraticTerm(key, one.vectors, squares, m / v, float(constant)))
        return made

    def assignment_terms(
        self,
        enrol: list[UnitSide],
        test: list[UnitSide],
        training_classes: TrainingClasses,
        matches: ClassMatches,
    ) -> list[PairTerm]:
        terms = []
        for number, (met, _) in enumerate(matches[0]):
            if met < 0:
                continue
            e, t = enrol[met], test[number]
            trained = training_classes[0][met]
            key = (self._name, trained, *e[1:], *t[1:])
            term = self._terms.get(key)
            if term is None:
                if len(self._terms) >= MAX_CACHED_TERMS:
                    self._terms.clear()
                # other threads may clear it again
                term = self._terms[key] = self._make_term(e, t, trained)
            ones = self._ones
            row = QuadraticTerm(
                (met, key), e.vectors, term.row * ones, term.enrolled, term.constant
            )
            column = QuadraticTerm((number, key), t.vectors, term.column * ones, term.tested)
            terms.append(PairTerm((met, number, key), term.product * ones, ones, row, column))
        return terms

    def _make_term(self, e: UnitSide, t: UnitSide, trained: int) -> UnitTerm:
        if self.known is not None and trained >= 0:
            return self._own_takes(e, t, self.known[0][trained], self.known[1][trained])
        return self._term(e, t)

    def _term(self, e: UnitSide, t: UnitSide) -> UnitTerm:
        """Sharing a class and the domain, less sharing the domain alone, which strangers share."""
        own, *_, doubt = self.spreads
        A = own + doubt + self.spreads.within(e)
        B = own + doubt + self.spreads.within(t)
        D = len(self.centre)
        both, apart = shared_effect_llr(A, B, own + doubt, D), shared_effect_llr(A, B, doubt, D)
        product, row, column, constant = (a - b for a, b in zip(both, apart, strict=True))
        return UnitTerm(product, row, column, constant)

    def _own_takes(self, e: UnitSide, t: UnitSide, m: Array, doubt: float) -> UnitTerm:
        """log N(t; m + g (e - m), s) - log N(t; m, v): the profile's own takes, against the class alone."""
        cell = self.spreads.cell / e.sessions
        g = cell / self.spreads.within(e, KNOWN_CLASS_NOISE)
        within = self.spreads.within(t, KNOWN_CLASS_NOISE)
        v = float(doubt) + within
        s = (1.0 - g) ** 2 * float(doubt) + within - g * cell
        size = float(m @ m)
        constant = 0.5 * (len(m) * np.log(v / s) + size / v - (1.0 - g) ** 2 * size / s)
        enrolled = -g * (1.0 - g) / s * m
        tested = ((1.0 - g) / s - 1.0 / v) * m
        squares = -0.5 * g**2 / s, 0.5 / v - 0.5 / s
        return UnitTerm(g / s, *squares, float(constant), enrolled, tested)


class UnitTerm(NamedTuple):
    """product e . t + row |e|^2 + column |t|^2 + constant + enrolled . e + tested . t"""

    product: float
    row: float
    column: float
    constant: float
    enrolled: Array | None = None
    tested: Array | None = None


def shared_effect_llr(A: float, B: float, R: float, D: int) -> tuple[float, float, float, float]:
    """log N(e, t) - log N(e) - log N(t) of vectors with variances A, B and covariance R, in D columns."""
    gain = R / B  # the mean of e given t is t gain
    rest = A - R * gain
    product = gain / rest
    row = 0.5 * (1.0 / A - 1.0 / rest)
    return product, row, -0.5 * gain * product, float(0.5 * D * np.log(A / rest))
