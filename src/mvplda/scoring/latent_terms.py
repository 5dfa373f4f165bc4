"""Forms of models of latents: MultiviewPLDA and PLDA.

Seen from the latents z of one cell (all views side by side), the vectors of a side are the function
exp(y'z - z'Nz/2)  up to a constant (docs/math.md, section 9)::

    y = B' Sigma^-1 (f - n mu)        N = n G,   G = B' Sigma^-1 B

A side that holds several cells has the latents of all its classes side by side, and the evidence of its
cells adds up on them: N is then another matrix, and nothing else changes. Where there are more latents than
columns, sides of one cell are compared by their whitened means instead, of which the matrices are smaller.
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular

from .._typing import AnyArray, Array, BoolArray, IntArray
from ..backend import NUMPY, empty, like
from ..exceptions import NumericalError
from ..inference.parameters import Parameters
from ..labels import base_columns, parts_of
from .assignments import CellTable, ClassMatches, TrainingClasses, training_classes_of
from .pair_terms import PairTerm, QuadraticTerm, multiply

MAX_CACHED_NUMBERS = 2**24
"""Matrices of forms are kept up to this many numbers (128 MiB)."""

MAX_CACHED_LAYOUTS = 2**12
"""Layouts of latents are kept for this many tables."""


@dataclass(frozen=True, eq=False)
class LatentSpace:
    """The way from vectors to evidence.

    projection : (D, r)  Sigma^-1 B
    offset : (r,)  B' Sigma^-1 mu
    gram : (r, r)  G
    whitened : (D, r)  Sigma^-1/2 B
    """

    projection: Array
    offset: Array
    gram: Array
    whitened: Array

    @classmethod
    def of(cls, p: Parameters) -> LatentSpace:
        B = p.stacked()
        # solved once for all vectors: the noise is never inverted
        LB = p.sigma.solve(B)
        gram = _symmetric(B.T @ LB)
        size = np.sqrt(np.diag(gram))
        # rounding, where the parameters are canonical
        gram[np.abs(gram) <= 1e-13 * np.outer(size, size)] = 0.0
        return cls(
            LB,
            p.mean @ LB,
            gram,
            solve_triangular(p.sigma.lower, B, lower=True, check_finite=False),
        )

    @property
    def is_wide(self) -> bool:
        """Whether there are more latents than columns: matrices of vectors are then the smaller ones."""
        return bool(self.whitened.shape[1] > len(self.whitened))

    @cached_property
    def unfold(self) -> Array:
        """(r, D) gives the whitened sum of vectors back from their evidence."""
        # the loadings may leave directions out, however many they are: no form depends on those
        return np.asarray(np.linalg.pinv(self.whitened, rcond=1e-10), dtype=np.float64)


class Layout:
    """Where the latents of every class of a table stand, for a model with these views and ranks.

    places : (cells, r) which of the side's latents are those of every cell
    cells_of : (width,) number of cells that have a latent
    cells : (r, r) evidence matrix of every cell; cells of equal weight share one
    """

    def __init__(self, table: CellTable, views: Mapping[str, int], gram: Array) -> None:
        self.table = table
        self.is_cell = len(table.weights) == 1
        # tells precisions apart
        self.key = (table.weights, table.classes)
        self.views = tuple(views)
        self.blocks: dict[tuple[int, tuple[int, ...]], slice] = {}
        self.width = 0
        rows = []
        for cell in range(len(table.weights)):
            row: list[int] = []
            for k, (view, rank) in enumerate(views.items()):
                parts = (table.base.index(part) for part in parts_of(view))
                key = k, tuple(table.classes[i][cell] for i in parts)
                if key not in self.blocks:
                    self.blocks[key] = slice(self.width, self.width + rank)
                    self.width += rank
                row += range(self.blocks[key].start, self.blocks[key].stop)
            rows.append(row)
        # cells that share a class share its latents
        self.places = np.asarray(rows, dtype=np.int64)
        self.cells_of = np.bincount(self.places.reshape(-1), minlength=self.width)
        weighted = {weight: weight * gram for weight in set(table.weights)}
        self.cells = [weighted[weight] for weight in table.weights]

    @cached_property
    def precision(self) -> Array:
        """(width, width) N, the cells' evidence matrices added where their latents stand."""
        precision = np.zeros((self.width, self.width))
        for place, cell in zip(self.places, self.cells, strict=True):
            precision[np.ix_(place, place)] += cell  # (V5)
        return precision

    def gather(self, y: AnyArray) -> AnyArray:
        """(profiles, width) evidence of profiles from that of their cells, (profiles, cells, r)."""
        if self.is_cell:
            return y[:, 0]
        total = empty((len(y), self.width), "float64", y)
        total[:] = 0.0
        for cell, place in enumerate(self.places):
            where = like(place, y)
            total[:, where] = total[:, where] + y[:, cell]  # (V5)
        return total


@dataclass(frozen=True, eq=False)
class KnownClasses:
    """Training posteriors of the classes of one view.

    means, covariances : (C, rank), (C, rank, rank) as the model has them
    roots : (C, rank, rank) with covariance = root root', equal where covariances are
    alike : (C,) number of the first class with the same covariance
    """

    means: Array
    covariances: Array
    roots: Array
    alike: IntArray

    @classmethod
    def of(cls, means: Array, covariances: Array, n: int) -> KnownClasses:
        """Of the first n classes: behind those with names stand vectors without labels."""
        # classes with equally many vectors have equal covariances: their forms share all products
        scale = np.abs(covariances).max(initial=1e-300)
        alike = np.arange(n)
        leaders: list[int] = []
        for c, covariance in enumerate(covariances[:n]):
            differences = np.abs(covariances[leaders] - covariance).max(axis=(1, 2))
            same = np.flatnonzero(differences <= 1e-12 * scale)
            if len(same):
                alike[c] = leaders[same[0]]
            else:
                leaders.append(c)
        try:
            roots = np.asarray(np.linalg.cholesky(covariances[leaders]), dtype=np.float64)
        except np.linalg.LinAlgError as error:
            raise NumericalError(
                "the posterior covariance of a training class is not positive definite: ask without known="
            ) from error
        return cls(means, covariances, roots[np.searchsorted(leaders, alike)], alike)


@dataclass(frozen=True, eq=False)
class Substitution:
    """Latents of training classes are z = shift + scale z~ with z~ from N(0, I); others are their own z~ (V6).

    alike : tells scales apart
    roots : blocks of the scale that are not I
    """

    alike: tuple[Hashable, ...]
    shift: Array
    roots: tuple[tuple[slice, Array], ...]

    @cached_property
    def scale(self) -> Array:
        """(width, width), which sides of many cells do without where no class is known."""
        scale = np.eye(len(self.shift))
        for block, root in self.roots:
            scale[block, block] = root
        return scale

    def apply(self, precision: Array) -> Array:
        """The evidence matrix of z~."""
        # without training classes the scale is I, which profiles of many classes need not be multiplied by
        if not self.alike:
            return precision
        return _symmetric(self.scale.T @ precision @ self.scale)

    def cells(self, layout: Layout) -> Sequence[Array]:
        """The evidence matrices of z~ of every cell."""
        if not self.alike:
            return layout.cells
        # scales of a cell's classes are those of its latents alone
        scales = [self.scale[np.ix_(place, place)] for place in layout.places]
        return [_symmetric(S.T @ cell @ S) for S, cell in zip(scales, layout.cells, strict=True)]


@dataclass(eq=False)
class LatentSide:
    """Profiles with one table. y : (profiles, width) evidence."""

    layout: Layout
    y: AnyArray
    space: LatentSpace

    @cached_property
    def vectors(self) -> AnyArray:
        """(profiles, D) whitened means, of sides of one cell."""
        return self.y @ like(self.space.unfold / self.layout.table.weights[0], self.y)


class LatentElimination(NamedTuple):
    """Latents that are integrated out, those that they are coupled with, and y_coupled -= y_gone gain."""

    gone: IntArray
    coupled: IntArray
    gain: Array


@dataclass(frozen=True, eq=False)
class EvidenceReduction:
    """The map from evidence on all latents of a side to that on some, as a chain of eliminations (V2).

    A cell's own latents, such as those of its phrase, are coupled with latents of that cell only: they are integrated
    out cell by cell, with small matrices, and no matrix is as wide as the side.

    scale : root of the known classes' covariances, see `Substitution`; None is I
    loading : (kept, w) what the kept evidence is multiplied by in the end; None is I
    """

    steps: tuple[LatentElimination, ...]
    keep: IntArray
    scale: Array | None = None
    loading: Array | None = None

    def apply(self, y: AnyArray) -> AnyArray:
        """(n, w) of evidence (n, width)."""
        scaled = y + 0 if self.scale is None else y @ like(self.scale, y)
        for step in self.steps:
            gone = scaled[:, like(step.gone, y)] @ like(step.gain, y)
            coupled = like(step.coupled, y)
            scaled[:, coupled] = scaled[:, coupled] - gone
        kept = scaled[:, like(self.keep, y)]
        return kept if self.loading is None else kept @ like(self.loading, y)

    @property
    def size(self) -> int:
        """Numbers that it holds."""
        gains = {id(step.gain): step.gain.size for step in self.steps}
        own = [m.size for m in (self.scale, self.loading) if m is not None]
        return sum(gains.values()) + sum(own)

    @classmethod
    def of(
        cls, cells: Sequence[Array], layout: Layout, keep: IntArray
    ) -> tuple[Array, EvidenceReduction]:
        """(rho, rho) evidence on kept latents when the others are integrated out, and the way there.

        cells : (r, r) evidence matrix of every cell
        """
        is_kept = np.zeros(layout.width, dtype=bool)
        is_kept[keep] = True
        is_own = ~is_kept & (layout.cells_of == 1)
        left = np.flatnonzero(~is_own)
        position = np.full(layout.width, -1)
        position[left] = np.arange(len(left))
        rest = np.zeros((len(left), len(left)))
        steps = []
        made: dict[Hashable, tuple[Array | None, Array]] = {}
        for place, cell in zip(layout.places, cells, strict=True):
            own = is_own[place]
            # cells of equal weight have equal gains
            key = (id(cell), own.tobytes())
            if key not in made:
                made[key] = _eliminate(cell, own)
            gain, more = made[key]
            coupled = place[~own]
            if gain is not None:
                steps.append(LatentElimination(place[own], coupled, gain))
            where = position[coupled]
            rest[np.ix_(where, where)] += more
        # what several cells have in common, and is not kept
        is_common = ~is_kept[left]
        gain, kept = _eliminate(rest, is_common)
        if gain is not None:
            steps.append(LatentElimination(left[is_common], left[~is_common], gain))
        # in the order that was asked for
        order = np.searchsorted(left[~is_common], keep)
        return _symmetric(kept[np.ix_(order, order)]), cls(tuple(steps), keep)


def _eliminate(N: Array, is_gone: BoolArray) -> tuple[Array | None, Array]:
    """The gain of integrating some latents out, None where there are none, and the matrix of the others (V2)."""
    if not is_gone.any():
        return None, N
    rest = N[~is_gone][:, ~is_gone]
    cross = N[is_gone][:, ~is_gone]
    lower = NUMPY.cholesky(np.eye(len(cross)) + N[is_gone][:, is_gone])
    gain = NUMPY.cho_solve(lower, cross)
    return gain, rest - cross.T @ gain


# -- the matrices of a form: once from latents, once from vectors, once as published -------------------------


class PairTermMatrices(NamedTuple):
    """log p(e, t | world) - log p(e) - log p(t) as a quadratic form of the two sides' evidence.

    value = (y_e left)(y_t right)' + y_e row y_e' + y_t column y_t' + constant

    left, right : (r_e, rho), (r_t, rho), of which the right one may be a diagonal
    row, column : (r_e, r_e), (r_t, r_t) symmetric
    """

    left: Array
    right: Array
    row: Array
    column: Array
    constant: float

    def scaled(self, of_e: Array, of_t: Array) -> PairTermMatrices:
        """The term of y_e and y_t where this one is of y_e of_e and y_t of_t."""
        row = of_e @ self.row @ of_e.T
        column = of_t @ self.column @ of_t.T
        return PairTermMatrices(of_e @ self.left, of_t @ self.right, row, column, self.constant)


def log_evidence_matrix(N: Array) -> tuple[Array, float]:
    """(r, r) W and constant k with  log of the integral of evidence x prior = y W y' + k."""
    lower = NUMPY.cholesky(np.eye(len(N)) + N)
    W = 0.5 * NUMPY.cho_solve(lower, np.eye(len(N)))
    return _symmetric(W), -float(np.log(lower.diagonal()).sum())  # (V1)


def reduce_evidence(N: Array, keep: IntArray) -> tuple[Array, Array]:
    """Evidence on some latents when the others are integrated out.

    Returns (rho, rho) N_kept and the map M, (r, rho), with y_kept = y M.
    """
    # a Schur complement: what is left of N when the other latents are known no more
    others = np.setdiff1d(np.arange(len(N)), keep)
    M = np.zeros((len(N), len(keep)))
    M[keep, np.arange(len(keep))] = 1.0
    if len(others) == 0:
        return N[np.ix_(keep, keep)], M
    lower = NUMPY.cholesky(np.eye(len(others)) + N[np.ix_(others, others)])
    gain = NUMPY.cho_solve(lower, N[np.ix_(others, keep)])
    M[others] = -gain  # (V2)
    kept = N[np.ix_(keep, keep)] - N[np.ix_(keep, others)] @ gain
    return _symmetric(kept), M


def latent_term(N_e: Array, N_t: Array, keep_e: IntArray, keep_t: IntArray) -> PairTermMatrices:
    """The term of sharing latents keep_e of one side, which are latents keep_t of the other, and no others."""
    # What is not shared is integrated out side by side (V2). What is left adds up where both sides have the same
    # latents: log p(e, t) has W of the sum, log p(e) and log p(t) have their own, and the cross term is 2 y_e W y_t'.
    kept_e, M_e = reduce_evidence(N_e, keep_e)
    kept_t, M_t = reduce_evidence(N_t, keep_t)
    joint, k_joint = log_evidence_matrix(kept_e + kept_t)
    own_e, k_e = log_evidence_matrix(kept_e)
    own_t, k_t = log_evidence_matrix(kept_t)
    # a root on either side keeps the factors thin, and the product of equal size
    root = NUMPY.cholesky(2 * joint)
    return PairTermMatrices(  # (V3)
        M_e @ root,
        M_t @ root,
        M_e @ (joint - own_e) @ M_e.T,
        M_t @ (joint - own_t) @ M_t.T,
        k_joint - k_e - k_t,
    )


def vector_term(A: Array, B: Array, R: Array) -> PairTermMatrices:
    """The same for two vectors with covariances A and B, of which R is what they share: p(e | t) against p(e)."""
    lower_e = NUMPY.cholesky(A)
    lower_t = NUMPY.cholesky(B)
    gain = NUMPY.cho_solve(lower_t, R.T)  # the mean of e given t is t gain
    # the covariance of e given t: positive definite, whatever is shared
    lower = NUMPY.cholesky(A - R @ gain)
    cross = NUMPY.cho_solve(lower, gain.T)
    row = (NUMPY.inverse(lower_e) - NUMPY.inverse(lower)) / 2
    column = -gain @ cross / 2
    constant = float(np.log(lower_e.diagonal()).sum() - np.log(lower.diagonal()).sum())
    return PairTermMatrices(cross, np.ones(len(B)), row, _symmetric(column), constant)  # (V12)


def reduced_term(kept_e: Array, kept_t: Array) -> PairTermMatrices:
    """`latent_term` of evidence that was reduced to the shared latents on both sides."""
    joint, k_joint = log_evidence_matrix(kept_e + kept_t)
    own_e, k_e = log_evidence_matrix(kept_e)
    own_t, k_t = log_evidence_matrix(kept_t)
    root = NUMPY.cholesky(2 * joint)
    return PairTermMatrices(root, root, joint - own_e, joint - own_t, k_joint - k_e - k_t)  # (V3)


def predictive_term(kept: Array, shared: Array, B: Array) -> tuple[PairTermMatrices, Array]:
    """The term of a profile of several cells and one vector, and the loading (rho, D) of the profile's evidence.

    With z ~ N(0, I) the shared latents and shared z what they add to the vector, of which B is the covariance: the
    profile's evidence y on z gives shared z the mean y loading and a covariance S, so that the vector is
    N(y loading, B - shared shared' + S) against N(0, B).

    kept : (rho, rho) the profile's evidence matrix of the shared latents
    shared : (D, rho)
    """
    lower = NUMPY.cholesky(np.eye(len(kept)) + kept)
    loading = NUMPY.cho_solve(lower, shared.T)
    lower_t = NUMPY.cholesky(B)
    lower = NUMPY.cholesky(_symmetric(B + shared @ (loading - shared.T)))
    precision = _symmetric(NUMPY.inverse(lower))
    column = (NUMPY.inverse(lower_t) - precision) / 2
    constant = float(np.log(lower_t.diagonal()).sum() - np.log(lower.diagonal()).sum())
    term = PairTermMatrices(
        precision, np.ones(len(B)), -precision / 2, _symmetric(column), constant
    )
    return term, loading  # (V2), (V12)


def published_term(N_e: Array, N_t: Array, scale: Array) -> PairTermMatrices:
    """The paper's covariance of a half-shared hypothesis, as published.

    The doubled view's covariance stands twice, and all of it in all four blocks
    (docs/errata.md): everything is shared, with that loading times sqrt 2.
    """
    joint, k_joint = log_evidence_matrix(scale[:, None] * (N_e + N_t) * scale)
    own_e, k_e = log_evidence_matrix(N_e)
    own_t, k_t = log_evidence_matrix(N_t)
    joint = scale[:, None] * joint * scale
    root = NUMPY.cholesky(2 * joint)
    return PairTermMatrices(root, root, joint - own_e, joint - own_t, k_joint - k_e - k_t)  # (V8)


class _TermRecipe(NamedTuple):
    """The form of a world for all profiles of two tables: key, matrices, linear parts.

    in_vectors : whether it is of the whitened means of the enrolment, of the test; else of their evidence
    reductions : of the evidence of either side
    """

    key: Hashable
    term: PairTermMatrices
    row: Array | None
    column: Array | None
    constant: float
    in_vectors: tuple[bool, bool]
    reductions: tuple[EvidenceReduction | None, EvidenceReduction | None] = (None, None)


class _ReducedTerm(NamedTuple):
    """A term of sides of which one has several cells, whose evidence is reduced first.

    A test of one cell stays as it is, for an index takes the same vector of it for all terms: test is then None.
    """

    term: PairTermMatrices
    enrol: EvidenceReduction
    test: EvidenceReduction | None
    test_in_vectors: bool = False


class LatentTerms:
    """Forms of one model of latents, which keeps the matrices that it has made.

    views : with their ranks
    known : {view: training posteriors}, of views whose classes were asked for
    """

    is_llr = True

    def __init__(self, space: LatentSpace, views: Mapping[str, int]) -> None:
        self.space = space
        self.views = dict(views)
        self.base = base_columns(tuple(views))
        self.published = False
        self.known: dict[str, KnownClasses] = {}
        self._layouts: dict[CellTable, Layout] = {}
        self._made: dict[Hashable, _TermRecipe | None] = {}
        self._terms: dict[Hashable, PairTermMatrices] = {}
        self._reduced: dict[Hashable, _ReducedTerm] = {}
        self._alone: dict[Hashable, tuple[Array, float]] = {}
        self._kept = 0

    def as_published(self) -> LatentTerms:
        """The same with the covariances that the paper gives to half-shared hypotheses."""
        other = copy(self)
        other.published = True
        return other

    def with_known(self, known: Mapping[str, KnownClasses]) -> LatentTerms:
        """Return pair terms of the same model with known training classes in some views."""
        other = LatentTerms(self.space, self.views)
        other.published = self.published
        other.known = dict(known)
        return other

    def _forget(self) -> None:
        self._made.clear()
        self._terms.clear()
        self._reduced.clear()
        self._alone.clear()
        self._kept = 0

    def prepare(self, table: CellTable, y: AnyArray) -> LatentSide:
        layout = self._layouts.get(table)
        if layout is None:
            # forms are kept by layout: they go with it
            if len(self._layouts) >= MAX_CACHED_LAYOUTS:
                self._layouts.clear()
                self._forget()
            layout = Layout(table, self.views, self.space.gram)
            self._layouts[table] = layout
        return LatentSide(layout, layout.gather(y), self.space)

    def side_terms(
        self, side: LatentSide, training_classes: TrainingClasses
    ) -> list[QuadraticTerm]:
        known = self._substitution(side.layout, training_classes)
        if not known.alike:
            return []
        nothing = self._substitution(side.layout, side.layout.table.without_training_classes())
        return [self._density(side, known, 1.0), self._density(side, nothing, -1.0)]

    def assignment_terms(
        self,
        enrol: LatentSide,
        test: LatentSide,
        training_classes: TrainingClasses,
        matches: ClassMatches,
    ) -> list[PairTerm]:
        name = (enrol.layout, test.layout, training_classes, matches, self.published)
        made = self._made.get(name)
        if made is None:
            made = self._make(enrol.layout, test.layout, training_classes, matches)
            if made is not None:
                self._kept += len(made.term.row) + len(made.term.column)
            # all at once: what is needed comes back within one call
            if self._kept > MAX_CACHED_NUMBERS:
                self._forget()
            self._made[name] = made
        if made is None:
            return []
        key, term = made.key, made.term
        values = [
            side.vectors if in_vectors else side.y
            for side, in_vectors in zip((enrol, test), made.in_vectors, strict=True)
        ]
        for i, reduction in enumerate(made.reductions):
            if reduction is not None:
                values[i] = reduction.apply(values[i])
        row = QuadraticTerm((key, "row"), values[0], term.row, made.row, made.constant)
        column = QuadraticTerm((key, "column"), values[1], term.column, made.column)
        return [PairTerm(key, term.left, term.right, row, column)]

    def _make(
        self, enrol: Layout, test: Layout, training_classes: TrainingClasses, matches: ClassMatches
    ) -> _TermRecipe | None:
        # what is not shared is in no cross term
        keep_e, keep_t = self._shared_latents(enrol, test, matches)
        if len(keep_e) == 0:
            return None
        in_vectors = enrol.is_cell and test.is_cell and self.space.is_wide and not self.published
        of_e = self._substitution(enrol, training_classes)
        of_t = self._substitution(test, training_classes_of(matches))
        doubled: list[str] = []
        if self.published:
            pairs = zip(self.base, matches, strict=True)
            doubled = [view for view, classes in pairs if classes[0][0] >= 0]
        # worlds with equal keys have equal matrices: training classes with equal covariances among them
        sides = (*enrol.key, of_e.alike, *test.key, of_t.alike)
        key = (in_vectors, *sides, keep_e.tobytes(), keep_t.tobytes(), *doubled)
        if not doubled and not (enrol.is_cell and test.is_cell):
            return self._make_reduced(enrol, test, of_e, of_t, keep_e, keep_t, key)
        term = self._terms.get(key)
        if term is None:
            if len(doubled) == 1:
                scales = [np.full(r, 2.0 if v in doubled else 1.0) for v, r in self.views.items()]
                scale = np.sqrt(np.concatenate(scales))
                term = published_term(enrol.precision, test.precision, scale)
            elif in_vectors:
                shared = self.space.whitened @ of_e.scale[:, keep_e]
                A = self._covariance(enrol, of_e.scale)
                term = vector_term(A, self._covariance(test, of_t.scale), shared @ shared.T)
            else:
                N_e = of_e.apply(enrol.precision)
                N_t = of_t.apply(test.precision)
                term = latent_term(N_e, N_t, keep_e, keep_t)
                if of_e.alike or of_t.alike:
                    term = term.scaled(of_e.scale, of_t.scale)
            self._terms[key] = term
            self._kept += sum(matrix.size for matrix in term[:4])
        # without training classes all means are 0, and forms have no linear part
        if not of_e.alike and not of_t.alike:
            return _TermRecipe(key, term, None, None, term.constant, (in_vectors, in_vectors))
        o_e = self._mean(enrol, of_e, in_vectors)
        o_t = self._mean(test, of_t, in_vectors)
        row, column, constant = _centred_term(term, o_e, o_t)
        return _TermRecipe(key, term, row, column, constant, (in_vectors, in_vectors))

    def _make_reduced(
        self,
        enrol: Layout,
        test: Layout,
        of_e: Substitution,
        of_t: Substitution,
        keep_e: IntArray,
        keep_t: IntArray,
        key: Hashable,
    ) -> _TermRecipe:
        """The form where a side has several cells: of its evidence on what is shared."""
        reduced = self._reduced.get(key)
        if reduced is None:
            reduced = self._reduce(enrol, test, of_e, of_t, keep_e, keep_t)
            self._reduced[key] = reduced
            self._kept += sum(matrix.size for matrix in reduced.term[:4])
            self._kept += sum(one.size for one in reduced[1:3] if one is not None)
        term, reduce_e, reduce_t, test_in_vectors = reduced
        places = ((False, test_in_vectors), (reduce_e, reduce_t))
        if not of_e.alike and not of_t.alike:
            return _TermRecipe(key, term, None, None, term.constant, *places)
        o_e = reduce_e.apply(self._mean(enrol, of_e, False)[None])[0]
        o_t = self._mean(test, of_t, test_in_vectors)
        if reduce_t is not None:
            o_t = reduce_t.apply(o_t[None])[0]
        row, column, constant = _centred_term(term, o_e, o_t)
        return _TermRecipe(key, term, row, column, constant, *places)

    def _reduce(
        self,
        enrol: Layout,
        test: Layout,
        of_e: Substitution,
        of_t: Substitution,
        keep_e: IntArray,
        keep_t: IntArray,
    ) -> _ReducedTerm:
        kept_e, reduce_e = EvidenceReduction.of(of_e.cells(enrol), enrol, keep_e)
        if of_e.alike:
            reduce_e = replace(reduce_e, scale=of_e.scale)
        if test.is_cell and self.space.is_wide:
            # fewer columns than latents: the test is a vector
            shared = self.space.whitened @ of_t.scale[:, keep_t]
            term, loading = predictive_term(kept_e, shared, self._covariance(test, of_t.scale))
            return _ReducedTerm(term, replace(reduce_e, loading=loading), None, True)
        if test.is_cell:
            kept_t, M = reduce_evidence(of_t.apply(test.precision), keep_t)
            if of_t.alike:
                M = of_t.scale @ M
            term = reduced_term(kept_e, kept_t)
            column = _symmetric(M @ term.column @ M.T)
            return _ReducedTerm(term._replace(right=M @ term.right, column=column), reduce_e, None)
        kept_t, reduce_t = EvidenceReduction.of(of_t.cells(test), test, keep_t)
        if of_t.alike:
            reduce_t = replace(reduce_t, scale=of_t.scale)
        return _ReducedTerm(reduced_term(kept_e, kept_t), reduce_e, reduce_t)

    def _density(self, side: LatentSide, known: Substitution, factor: float) -> QuadraticTerm:
        """Log density as certain training classes, up to a constant that all readings share."""
        layout = side.layout
        in_vectors = layout.is_cell and self.space.is_wide
        key = ("alone", *layout.key, known.alike)
        kept = self._alone.get(key)
        if kept is None:
            if in_vectors:
                lower = NUMPY.cholesky(self._covariance(layout, known.scale))
                matrix = -0.5 * NUMPY.inverse(lower)
                constant = -float(np.log(np.diag(lower)).sum())
            else:
                W, constant = log_evidence_matrix(known.apply(layout.precision))  # (V1)
                matrix = known.scale @ W @ known.scale.T
            kept = self._alone[key] = matrix, constant
            self._kept += matrix.size
        matrix, constant = kept
        # the square about the mean, multiplied out: x M x' is the same for all classes alike
        mean = self._mean(layout, known, in_vectors)
        linear = -2.0 * matrix @ mean
        constant -= 0.5 * float(mean @ linear)
        if in_vectors:
            return QuadraticTerm(key, side.vectors, matrix, linear, constant, factor)
        constant -= 0.5 * float(known.shift @ mean)
        return QuadraticTerm(key, side.y, matrix, linear + known.shift, constant, factor)  # (V6)

    def _substitution(self, layout: Layout, training_classes: TrainingClasses) -> Substitution:
        alike = []
        roots = []
        shift = np.zeros(layout.width)
        for view, known in self.known.items():
            for number, c in enumerate(training_classes[self.base.index(view)]):
                block = layout.blocks.get((layout.views.index(view), (number,)))
                if c >= 0 and block is not None:
                    alike.append((block.start, int(known.alike[c])))
                    shift[block] = known.means[c]
                    roots.append((block, known.roots[c]))
        return Substitution(tuple(alike), shift, tuple(roots))

    def _mean(self, layout: Layout, known: Substitution, in_vectors: bool) -> Array:
        """What the means of training classes make of the evidence, or of the whitened mean."""
        matrix = self.space.whitened if in_vectors else layout.precision
        return matrix @ known.shift  # (V6)

    def _covariance(self, layout: Layout, scale: Array) -> Array:
        """Of the whitened mean of a cell."""
        loading = self.space.whitened @ scale
        return loading @ loading.T + np.eye(len(loading)) / layout.table.weights[0]

    def _shared_latents(
        self, enrol: Layout, test: Layout, matches: ClassMatches
    ) -> tuple[IntArray, IntArray]:
        """Numbers of the latents that the two sides share: in the enrolment, and the same ones in the test."""
        keep_e: list[int] = []
        keep_t: list[int] = []
        for (k, classes), block in test.blocks.items():
            parts = [self.base.index(part) for part in parts_of(test.views[k])]
            met = tuple(matches[i][c][0] for i, c in zip(parts, classes, strict=True))
            there = enrol.blocks.get((k, met))
            # an interaction is shared where all its parts are, and it was enrolled
            if min(met) >= 0 and there is not None:
                keep_e += range(there.start, there.stop)
                keep_t += range(block.start, block.stop)
        return np.asarray(keep_e, dtype=np.int64), np.asarray(keep_t, dtype=np.int64)


def _centred_term(term: PairTermMatrices, o_e: Array, o_t: Array) -> tuple[Array, Array, float]:
    """Linear parts and constant of a term of (e - o_e) and (t - o_t): both about the means of training classes."""
    cross_e = o_e @ term.left
    cross_t = multiply(o_t, term.right)
    square_e = o_e @ term.row
    square_t = o_t @ term.column
    constant = term.constant + cross_e @ cross_t + square_e @ o_e + square_t @ o_t
    row = -multiply(cross_t, term.left.T) - 2.0 * square_e
    column = -multiply(cross_e, term.right.T) - 2.0 * square_t
    return np.asarray(row), np.asarray(column), float(constant)


def _symmetric(matrix: Array) -> Array:
    return (matrix + matrix.T) / 2
