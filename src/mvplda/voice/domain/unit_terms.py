"""Pair terms (LLRs of enrolment and test) of one extractor's unit-length vectors, given the posterior of their domain.

The formulas are those of "The pair" and "Phrases by name" in docs/math.md, section 9.11.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import NamedTuple, Self

import numpy as np

from ..._typing import AnyArray, Array
from ...backend import like
from ...scoring.assignments import CellTable, ClassMatches, TrainingClasses
from ...scoring.pair_terms import PairTerm, QuadraticTerm
from .posterior import KNOWN_CLASS_NOISE, SESSION_VARIANCE_RATIO, SESSION_VIEW, scale_about

MAX_VARIANCE = 4.0
"""Upper bound of any variance of unit-length vectors."""

MAX_CACHED_TERMS = 2**10
"""Maximum number of cached terms; there is one per known phrase and numbers of recordings and sessions."""


class UnitSide(NamedTuple):
    """Mean of the recordings of one class in each profile of a batch.

    All profiles have the same number of recordings of the class, and the same number of sessions.

    vectors : (profiles, D) means of unit-length vectors, scaled about the domain
    recordings : number of recordings per mean
    sessions : effective number of sessions per mean: (sum of n_i)^2 / (sum of n_i^2), where n_i is the number of
        recordings in session i
    """

    vectors: AnyArray
    recordings: float
    sessions: float


class ColumnVariances(NamedTuple):
    """Variances of the effects in one column of an extractor's vectors; the letters are those of docs/math.md, 9.11.

    class_ : variance psi of the classes of the view that the extractor models, such as phrases
    session : variance o of all that the recordings of one session share beyond their class: effects
        of the other view, of the cell and of the session
    cell : variance c of cells alone (a cell is one speaker with one phrase)
    recording : variance nu of recordings
    domain : posterior variance tau of the domain
    """

    class_: float
    session: float
    cell: float
    recording: float
    domain: float

    @classmethod
    def of(cls, totals: Mapping[str, float], domain: float, columns: int) -> Self:
        """Divide variances that are summed over columns by the number of columns.

        Parameters
        ----------
        totals : variances of one extractor in `DomainPLDA.variances_`
        domain : posterior variance of the recording domain's effect, summed over columns
        columns : number of columns
        """
        session = totals["other"] + totals["cell"] + SESSION_VARIANCE_RATIO * totals["own"]
        numbers = totals["own"], session, totals["cell"], totals["take"], domain
        return cls(*(number / columns for number in numbers))

    def within_class(self, side: UnitSide, noise: float = 1.0) -> float:
        """Return the variance of the mean of a side's recordings about their class.

        It is session / (number of sessions) + noise * recording / (number of recordings).

        side : numbers of sessions and recordings
        noise : factor on the variance of recordings
        """
        # recordings of one session vary together, whatever their phrase
        return self.session / side.sessions + noise * self.recording / side.recordings


class UnitTerms:
    """Log-likelihood ratios (pair terms) of enrolment and test for the view that one extractor models.

    The posterior of the recording domain is given. A test of a known class (such as a phrase enrolled by name) has the
    posterior mean m of the class as its mean. If the enrolled mean e is of this class, too, the test has the mean
    m + g (e - m), because each person says a phrase differently. Here g = (variance of a speaker's way to say a
    phrase / number of sessions) / (variance of e about its class).

    Parameters
    ----------
    view : view that the extractor models
    centre : (D,) centre of the domain: training mean plus posterior mean of the domain's effect
    variances : variances per column
    known : (classes, D) posterior means and (classes,) posterior variances of the known classes; None: no known class
    """

    is_llr = True

    def __init__(
        self,
        view: str,
        centre: Array,
        variances: ColumnVariances,
        known: tuple[Array, Array] | None = None,
    ) -> None:
        self.base: tuple[str, ...] = (view, SESSION_VIEW)
        self.centre = centre
        self.variances = variances
        self.known = known
        # unlike id(self), an object in a cache key is never reused by another instance
        self._name = object()
        self._ones = np.ones(len(centre))
        # terms by key: most trials have the same numbers of recordings
        self._terms: dict[Hashable, UnitTerm] = {}

    def prepare(self, table: CellTable, y: AnyArray) -> list[UnitSide]:
        """Average the recordings of each class of the view in a batch of profiles with equal cells.

        Parameters
        ----------
        table : class, session and number of recordings of each cell, the same for all profiles
        y : (profiles, cells, D) sums of the unit-length vectors of each cell

        Returns
        -------
        per class, the scaled mean and the numbers of recordings and sessions
        """
        sides = []
        for number in range(len(table.names[0])):
            cells = [cell for cell, class_ in enumerate(table.classes[0]) if class_ == number]
            weights = [table.weights[cell] for cell in cells]
            session_weights = np.bincount([table.classes[1][cell] for cell in cells], weights)
            count = float(session_weights.sum())
            mean = y[:, like(np.asarray(cells), y)].sum(1) / count
            scaled, _ = scale_about(mean, like(self.centre, mean))
            sides.append(
                UnitSide(scaled, count, count**2 / float(session_weights @ session_weights))
            )
        return sides

    def side_terms(
        self, side: list[UnitSide], training_classes: TrainingClasses
    ) -> list[QuadraticTerm]:
        """Return the LLR of each class of a side being a known class, such as a named phrase, against an unknown one.

        For the mean x of the recordings it is log N(x; m, v) - log N(x; 0, u), where m and v are mean and variance
        given the known class, and u is the variance for an unknown class. Classes without a known class have no term.

        Parameters
        ----------
        side : mean of each class of the side, from `prepare`
        training_classes : per view, the number of the known class of each class of the side, or -1
        """
        terms = []
        for unit_side, number in zip(side, training_classes[0], strict=True):
            if self.known is None or number < 0:
                continue
            m = self.known[0][number]
            within = self.variances.within_class(unit_side, KNOWN_CLASS_NOISE)
            u = self.variances.class_ + self.variances.domain + within
            v = float(self.known[1][number]) + within
            constant = 0.5 * (len(m) * np.log(u / v) - float(m @ m) / v)
            squares = np.full(len(m), 0.5 / u - 0.5 / v)
            key = (self._name, number, *unit_side[1:])
            terms.append(QuadraticTerm(key, unit_side.vectors, squares, m / v, float(constant)))
        return terms

    def assignment_terms(
        self,
        enrol: list[UnitSide],
        test: list[UnitSide],
        training_classes: TrainingClasses,
        matches: ClassMatches,
    ) -> list[PairTerm]:
        """Return the LLRs of those classes of the test that are also classes of the enrolment.

        Which classes are the same is a hypothesis, given by `matches`. An LLR compares the same
        class with different classes; see `_known_class_term` for a known class. There is one value
        per pair of a profile and a test.

        Parameters
        ----------
        enrol, test : mean of each class of the enrolment and of the test, from `prepare`
        training_classes : per view, the number of the known class of each class of the enrolment;
            -1: the class is not known
        matches : per view and class of the test, a pair of numbers; the first is the class of the
            enrolment that is the same (-1: none), the second is not used here

        Returns
        -------
        one term per class of the test with a class of the enrolment
        """
        terms = []
        for number, (enrolled, _) in enumerate(matches[0]):
            if enrolled < 0:
                continue
            e, t = enrol[enrolled], test[number]
            known_class = training_classes[0][enrolled]
            key = (self._name, known_class, *e[1:], *t[1:])
            term = self._terms.get(key)
            if term is None:
                if len(self._terms) >= MAX_CACHED_TERMS:
                    self._terms.clear()
                # not read back from the cache, which other threads may clear
                term = self._terms[key] = self._make_term(e, t, known_class)
            ones = self._ones
            row = QuadraticTerm(
                (enrolled, key), e.vectors, term.row * ones, term.enrolled, term.constant
            )
            column = QuadraticTerm((number, key), t.vectors, term.column * ones, term.tested)
            terms.append(PairTerm((enrolled, number, key), term.product * ones, ones, row, column))
        return terms

    def _make_term(self, e: UnitSide, t: UnitSide, known_class: int) -> UnitTerm:
        if self.known is not None and known_class >= 0:
            return self._known_class_term(
                e, t, self.known[0][known_class], self.known[1][known_class]
            )
        return self._shared_class_term(e, t)

    def _shared_class_term(self, e: UnitSide, t: UnitSide) -> UnitTerm:
        """Return the LLR that the enrolled mean e and the test mean t have the same class.

        The class is not a known one. Both means are of the same domain in any case. See "The pair"
        in docs/math.md, section 9.11.
        """
        psi, *_, tau = self.variances
        A = psi + tau + self.variances.within_class(e)
        B = psi + tau + self.variances.within_class(t)
        D = len(self.centre)
        same_class = shared_effect_llr(A, B, psi + tau, D)
        different_class = shared_effect_llr(A, B, tau, D)
        product, row, column, constant = (
            same - different for same, different in zip(same_class, different_class, strict=True)
        )
        return UnitTerm(product, row, column, constant)

    def _known_class_term(self, e: UnitSide, t: UnitSide, m: Array, tau_b: float) -> UnitTerm:
        """Return what an enrolled mean e adds to the log-likelihood of a test mean t.

        Both are of the same known class. Let m and tau_b be its posterior mean and variance, g the
        weight of e (see `UnitTerms`). The result is log N(t; m + g (e - m), s) - log N(t; m, v),
        where s and v are the variances of t given e, and without e.
        """
        cell = self.variances.cell / e.sessions
        g = cell / self.variances.within_class(e, KNOWN_CLASS_NOISE)
        within = self.variances.within_class(t, KNOWN_CLASS_NOISE)
        v = float(tau_b) + within
        s = (1.0 - g) ** 2 * float(tau_b) + within - g * cell
        m_squared = float(m @ m)
        constant = 0.5 * (len(m) * np.log(v / s) + m_squared / v - (1.0 - g) ** 2 * m_squared / s)
        enrolled = -g * (1.0 - g) / s * m
        tested = ((1.0 - g) / s - 1.0 / v) * m
        squares = -0.5 * g**2 / s, 0.5 / v - 0.5 / s
        return UnitTerm(g / s, *squares, float(constant), enrolled, tested)


class UnitTerm(NamedTuple):
    """Coefficients of an LLR that is a quadratic function of an enrolled mean e and a test mean t, both (D,).

    LLR = product e.t + row |e|^2 + column |t|^2 + constant + enrolled.e + tested.t; None stands for a zero vector.
    """

    product: float
    row: float
    column: float
    constant: float
    enrolled: Array | None = None
    tested: Array | None = None


def shared_effect_llr(A: float, B: float, R: float, D: int) -> tuple[float, float, float, float]:
    """Return the coefficients of log N(e, t) - log N(e) - log N(t), where vectors e and t share an effect.

    Parameters
    ----------
    A, B : variance of each column of e and of t
    R : covariance of a column of e with the same column of t
    D : number of columns

    Returns
    -------
    coefficients of e.t, |e|^2 and |t|^2, and the constant
    """
    gain = R / B  # E[e | t] = gain t
    residual = A - R * gain  # Var[e | t]
    product = gain / residual
    row = 0.5 * (1.0 / A - 1.0 / residual)
    return product, row, -0.5 * gain * product, float(0.5 * D * np.log(A / residual))
