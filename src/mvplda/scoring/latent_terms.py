"""Pair terms of models with latents: MultiviewPLDA and PLDA.

As a function of the latents z of one cell (all views side by side), the density of a side's vectors is, up to a
constant, exp(y'z - z'Nz/2) with the evidence (docs/math.md, section 9.2)::

    y = B' Sigma^-1 (f - n mu)        N = n G,   G = B' Sigma^-1 B

where n is the number of vectors and f their sum. A side of several cells has the latents of all its classes side by
side, and the evidence of its cells is added up on them (section 9.6). If there are more latents than columns, single
cells are compared by their whitened means instead, because the matrices are smaller (section 9.7).

In names, `_e` stands for the enrolled side and `_t` for the test side.
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
"""Size of the cached matrices of pair terms, in numbers (128 MiB)."""

MAX_CACHED_LAYOUTS = 2**12
"""Number of tables whose layouts are cached."""


@dataclass(frozen=True, eq=False)
class LatentSpace:
    """Matrices that map vectors to evidence on the latents of one cell.

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
        """Return the latent space of a model."""
        B = np.asarray(p.stacked())
        # a Cholesky solve: the noise covariance is never inverted
        LB = np.asarray(p.sigma.solve(B))
        gram = _symmetric(B.T @ LB)
        size = np.sqrt(np.diag(gram))
        # in canonical form G is diagonal within a view: remove rounding errors
        gram[np.abs(gram) <= 1e-13 * np.outer(size, size)] = 0.0
        return cls(
            LB,
            np.asarray(p.mean) @ LB,
            gram,
            solve_triangular(p.sigma.lower, B, lower=True, check_finite=False),
        )

    @property
    def is_wide(self) -> bool:
        """Return whether there are more latents than columns; matrices in vector space are then smaller."""
        return bool(self.whitened.shape[1] > len(self.whitened))

    @cached_property
    def unfold(self) -> Array:
        """(r, D) matrix that recovers the whitened sum of vectors from their evidence."""
        # directions without loadings are lost, but no pair term depends on them
        return np.asarray(np.linalg.pinv(self.whitened, rcond=1e-10), dtype=np.float64)


class Layout:
    """Positions of the latents of all classes in a cell table.

    key : equal for tables with equal precisions
    blocks : {(view number, classes of its base views): slice of the side's latents}
    width : number of the side's latents
    latents : (cells, r) latents of each cell; cells that share a class share its latents
    cells_of : (width,) number of cells per latent
    cells : (r, r) evidence matrix per cell; cells of equal weight share one array
    """

    def __init__(self, table: CellTable, views: Mapping[str, int], gram: Array) -> None:
        self.table = table
        self.is_cell = len(table.weights) == 1
        self.key = (table.weights, table.classes)
        self.views = tuple(views)
        self.blocks: dict[tuple[int, tuple[int, ...]], slice] = {}
        self.width = 0
        rows = []
        for cell in range(len(table.weights)):
            row: list[int] = []
            for k, (view, rank) in enumerate(views.items()):
                base_views = (table.base.index(base_view) for base_view in parts_of(view))
                key = k, tuple(table.classes[i][cell] for i in base_views)
                if key not in self.blocks:
                    self.blocks[key] = slice(self.width, self.width + rank)
                    self.width += rank
                row += range(self.blocks[key].start, self.blocks[key].stop)
            rows.append(row)
        self.latents = np.asarray(rows, dtype=np.int64)
        self.cells_of = np.bincount(self.latents.reshape(-1), minlength=self.width)
        weighted = {weight: weight * gram for weight in set(table.weights)}
        self.cells = [weighted[weight] for weight in table.weights]

    @cached_property
    def precision(self) -> Array:
        """(width, width) evidence matrix N of the side."""
        precision = np.zeros((self.width, self.width))
        for latents, cell in zip(self.latents, self.cells, strict=True):
            precision[np.ix_(latents, latents)] += cell  # (V5)
        return precision

    def gather(self, y: AnyArray) -> AnyArray:
        """Return the (profiles, width) evidence of profiles from that of their cells, (profiles, cells, r)."""
        if self.is_cell:
            return y[:, 0]
        total = empty((len(y), self.width), "float64", y)
        total[:] = 0.0
        for cell, latents in enumerate(self.latents):
            columns = like(latents, y)
            total[:, columns] = total[:, columns] + y[:, cell]  # (V5)
        return total


@dataclass(frozen=True, eq=False)
class KnownClasses:
    """Training posteriors N(m_c, C_c) of the classes of one view.

    means, covariances : (C, rank) and (C, rank, rank), the model's own arrays
    roots : (n, rank, rank) K with C_c = K K'; classes with equal covariances have equal roots
    alike : (n,) number of the first class with the same covariance
    """

    means: Array
    covariances: Array
    roots: Array
    alike: IntArray

    @classmethod
    def of(cls, means: Array, covariances: Array, n: int) -> KnownClasses:
        """Return the posteriors of the first n classes; further rows belong to vectors without labels."""
        # classes with equally many vectors have equal covariances: their pair terms share all products
        scale = np.abs(covariances).max(initial=1e-300)
        alike = np.arange(n)
        leaders: list[int] = []
        for c, covariance in enumerate(covariances[:n]):
            differences = np.abs(covariances[leaders] - covariance).max(axis=(1, 2))
            equal = np.flatnonzero(differences <= 1e-12 * scale)
            if len(equal):
                alike[c] = leaders[equal[0]]
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
    """Change of variables z = shift + scale z~ with z~ from N(0, I) for the latents of training classes (V6).

    alike : key of the scale; empty if no class is a training class
    shift : (width,) posterior means, 0 for other latents
    roots : blocks of the scale that differ from I
    """

    alike: tuple[Hashable, ...]
    shift: Array
    roots: tuple[tuple[slice, Array], ...]

    @cached_property
    def scale(self) -> Array:
        """(width, width) scale; computed on demand, because most sides of many cells have no known class."""
        scale = np.eye(len(self.shift))
        for block, root in self.roots:
            scale[block, block] = root
        return scale

    def apply(self, precision: Array) -> Array:
        """Return the evidence matrix of z~."""
        # without training classes the scale is I: spare wide profiles the products
        if not self.alike:
            return precision
        return _symmetric(self.scale.T @ precision @ self.scale)  # (V6)

    def cells(self, layout: Layout) -> Sequence[Array]:
        """Return the evidence matrix of z~ per cell."""
        if not self.alike:
            return layout.cells
        # the scale is block-diagonal by class: a cell needs only the block of its own latents
        scales = [self.scale[np.ix_(latents, latents)] for latents in layout.latents]
        return [_symmetric(S.T @ cell @ S) for S, cell in zip(scales, layout.cells, strict=True)]


@dataclass(eq=False)
class LatentSide:
    """Prepared side: profiles with one table, and their evidence y of (profiles, width)."""

    layout: Layout
    y: AnyArray
    space: LatentSpace

    @cached_property
    def vectors(self) -> AnyArray:
        """(profiles, D) whitened means, for sides of one cell."""
        return self.y @ like(self.space.unfold / self.layout.table.weights[0], self.y)


class LatentElimination(NamedTuple):
    """Latents that are integrated out: y[coupled] -= y[eliminated] gain."""

    eliminated: IntArray
    coupled: IntArray
    gain: Array


@dataclass(frozen=True, eq=False)
class EvidenceReduction:
    """Map from the evidence on all latents of a side to that on kept latents, as a chain of eliminations (V2).

    Latents of a single cell, such as those of its phrase, are coupled only with latents of that cell. They are
    integrated out cell by cell with small matrices, so that no matrix is as wide as the side.

    scale : scale of the `Substitution`; None is I
    loading : (kept, w) matrix that multiplies the kept evidence at the end; None is I
    """

    steps: tuple[LatentElimination, ...]
    keep: IntArray
    scale: Array | None = None
    loading: Array | None = None

    def apply(self, y: AnyArray) -> AnyArray:
        """Return the (n, w) reduced evidence of evidence (n, width)."""
        scaled = y + 0 if self.scale is None else y @ like(self.scale, y)
        for step in self.steps:
            correction = scaled[:, like(step.eliminated, y)] @ like(step.gain, y)
            coupled = like(step.coupled, y)
            scaled[:, coupled] = scaled[:, coupled] - correction  # (V2)
        reduced = scaled[:, like(self.keep, y)]
        return reduced if self.loading is None else reduced @ like(self.loading, y)

    @property
    def size(self) -> int:
        """Number of stored numbers; gains that steps share count once."""
        gains = {id(step.gain): step.gain.size for step in self.steps}
        matrices = [m.size for m in (self.scale, self.loading) if m is not None]
        return sum(gains.values()) + sum(matrices)

    @classmethod
    def of(
        cls, cells: Sequence[Array], layout: Layout, keep: IntArray
    ) -> tuple[Array, EvidenceReduction]:
        """Return the (rho, rho) evidence matrix on kept latents, and the reduction to them.

        cells : (r, r) evidence matrix per cell
        """
        is_kept = np.zeros(layout.width, dtype=bool)
        is_kept[keep] = True
        is_private = ~is_kept & (layout.cells_of == 1)
        remaining = np.flatnonzero(~is_private)
        position = np.full(layout.width, -1)
        position[remaining] = np.arange(len(remaining))

        # first the latents that belong to a single cell, cell by cell
        precision = np.zeros((len(remaining), len(remaining)))
        steps = []
        eliminations: dict[Hashable, tuple[Array | None, Array]] = {}
        for latents, cell in zip(layout.latents, cells, strict=True):
            is_cell_private = is_private[latents]
            # cells of equal weight share an evidence matrix, and then the gain
            key = (id(cell), is_cell_private.tobytes())
            if key not in eliminations:
                eliminations[key] = _eliminate(cell, is_cell_private)
            gain, reduced = eliminations[key]
            coupled = latents[~is_cell_private]
            if gain is not None:
                steps.append(LatentElimination(latents[is_cell_private], coupled, gain))
            rows = position[coupled]
            precision[np.ix_(rows, rows)] += reduced  # (V5)

        # then the latents that several cells share, at once
        is_common = ~is_kept[remaining]
        gain, reduced = _eliminate(precision, is_common)
        if gain is not None:
            steps.append(LatentElimination(remaining[is_common], remaining[~is_common], gain))
        # in the order of `keep`
        order = np.searchsorted(remaining[~is_common], keep)
        return _symmetric(reduced[np.ix_(order, order)]), cls(tuple(steps), keep)


def _eliminate(N: Array, is_eliminated: BoolArray) -> tuple[Array | None, Array]:
    """Return the gain of integrating latents out (None if there are none), and the matrix N' of the others (V2)."""
    if not is_eliminated.any():
        return None, N
    others = N[~is_eliminated][:, ~is_eliminated]
    cross = N[is_eliminated][:, ~is_eliminated]
    lower = NUMPY.cholesky(np.eye(len(cross)) + N[is_eliminated][:, is_eliminated])
    gain = NUMPY.cho_solve(lower, cross)
    return gain, others - cross.T @ gain


# -- matrices of a pair term: from latents, from vectors, and as published --------------------------------------


class PairTermMatrices(NamedTuple):
    """log p(e, t | assignment) - log p(e) - log p(t) as a quadratic form of the two sides' evidence.

    value = (y_e left)(y_t right)' + y_e row y_e' + y_t column y_t' + constant

    left, right : (r_e, rho), (r_t, rho); `right` may be a diagonal
    row, column : (r_e, r_e), (r_t, r_t) symmetric
    """

    left: Array
    right: Array
    row: Array
    column: Array
    constant: float

    def scaled(self, scale_e: Array, scale_t: Array) -> PairTermMatrices:
        """Return the term as a function of y_e and y_t, if this term is a function of y_e scale_e and y_t scale_t."""
        row = scale_e @ self.row @ scale_e.T
        column = scale_t @ self.column @ scale_t.T
        return PairTermMatrices(
            scale_e @ self.left, scale_t @ self.right, row, column, self.constant
        )


def log_evidence_matrix(N: Array) -> tuple[Array, float]:
    """Return (r, r) W and constant k with  log of the integral of evidence x prior = y W y' + k."""
    lower = NUMPY.cholesky(np.eye(len(N)) + N)
    W = 0.5 * NUMPY.cho_solve(lower, np.eye(len(N)))
    return _symmetric(W), -float(np.log(lower.diagonal()).sum())  # (V1)


def reduce_evidence(N: Array, keep: IntArray) -> tuple[Array, Array]:
    """Integrate out all latents but those in `keep`.

    Returns (rho, rho) N_kept and the map M, (r, rho), with y_kept = y M.
    """
    others = np.setdiff1d(np.arange(len(N)), keep)
    M = np.zeros((len(N), len(keep)))
    M[keep, np.arange(len(keep))] = 1.0
    if len(others) == 0:
        return N[np.ix_(keep, keep)], M
    # Schur complement of the block of the others
    lower = NUMPY.cholesky(np.eye(len(others)) + N[np.ix_(others, others)])
    gain = NUMPY.cho_solve(lower, N[np.ix_(others, keep)])
    M[others] = -gain  # (V2)
    N_kept = N[np.ix_(keep, keep)] - N[np.ix_(keep, others)] @ gain
    return _symmetric(N_kept), M


def latent_term(N_e: Array, N_t: Array, keep_e: IntArray, keep_t: IntArray) -> PairTermMatrices:
    """Return the term if latents `keep_e` of one side are latents `keep_t` of the other, and no others are shared."""
    # integrate out the latents that are not shared, on each side (V2)
    kept_e, M_e = reduce_evidence(N_e, keep_e)
    kept_t, M_t = reduce_evidence(N_t, keep_t)
    term = reduced_term(kept_e, kept_t)
    return term.scaled(M_e, M_t)


def reduced_term(kept_e: Array, kept_t: Array) -> PairTermMatrices:
    """Return the term of two sides whose evidence was reduced to the shared latents."""
    # evidence on the same latents adds up: log p(e, t) has W of the sum, and the cross term is 2 y_e W y_t'
    joint, k_joint = log_evidence_matrix(kept_e + kept_t)
    W_e, k_e = log_evidence_matrix(kept_e)
    W_t, k_t = log_evidence_matrix(kept_t)
    # 2 W = root root': a root on either side keeps the factors thin and of equal size
    root = NUMPY.cholesky(2 * joint)
    return PairTermMatrices(root, root, joint - W_e, joint - W_t, k_joint - k_e - k_t)  # (V3)


def vector_term(A: Array, B: Array, R: Array) -> PairTermMatrices:
    """Return the term of two vectors e, t with covariances A, B and cross-covariance R: log p(e | t) - log p(e)."""
    lower_e = NUMPY.cholesky(A)
    lower_t = NUMPY.cholesky(B)
    # e given t has the mean t gain, and a covariance that is positive definite whatever is shared
    gain = NUMPY.cho_solve(lower_t, R.T)
    lower = NUMPY.cholesky(A - R @ gain)
    cross = NUMPY.cho_solve(lower, gain.T)
    row = (NUMPY.inverse(lower_e) - NUMPY.inverse(lower)) / 2
    column = -gain @ cross / 2
    constant = float(np.log(lower_e.diagonal()).sum() - np.log(lower.diagonal()).sum())
    return PairTermMatrices(cross, np.ones(len(B)), row, _symmetric(column), constant)  # (V12)


def predictive_term(kept: Array, shared: Array, B: Array) -> tuple[PairTermMatrices, Array]:
    """Return the term of a profile of several cells and one vector, and the (rho, D) loading of the profile's evidence.

    Let z ~ N(0, I) be the shared latents, and shared z their contribution to the vector, whose covariance is B. The
    profile's evidence y on z gives shared z the mean y loading and a covariance S, so that the vector is
    N(y loading, B - shared shared' + S), against N(0, B) without the profile.

    kept : (rho, rho) the profile's evidence matrix of the shared latents
    shared : (D, rho)
    """
    lower = NUMPY.cholesky(np.eye(len(kept)) + kept)
    loading = NUMPY.cho_solve(lower, shared.T)
    lower_t = NUMPY.cholesky(B)
    # S = shared loading
    lower = NUMPY.cholesky(_symmetric(B + shared @ (loading - shared.T)))
    precision = _symmetric(NUMPY.inverse(lower))
    column = (NUMPY.inverse(lower_t) - precision) / 2
    constant = float(np.log(lower_t.diagonal()).sum() - np.log(lower.diagonal()).sum())
    term = PairTermMatrices(
        precision, np.ones(len(B)), -precision / 2, _symmetric(column), constant
    )
    return term, loading  # (V2), (V12)


def published_term(N_e: Array, N_t: Array, scale: Array) -> PairTermMatrices:
    """Return the term of a hypothesis that shares one of two views, with the covariance as published in the paper.

    In the paper all four blocks of the covariance are equal, with the covariance of the shared view counted twice
    (docs/errata.md). This is the term that shares everything, with the loading of that view times sqrt 2.

    scale : (r,) sqrt 2 for latents of the shared view, else 1
    """
    joint, k_joint = log_evidence_matrix(scale[:, None] * (N_e + N_t) * scale)
    W_e, k_e = log_evidence_matrix(N_e)
    W_t, k_t = log_evidence_matrix(N_t)
    joint = scale[:, None] * joint * scale
    root = NUMPY.cholesky(2 * joint)
    return PairTermMatrices(root, root, joint - W_e, joint - W_t, k_joint - k_e - k_t)  # (V8)


class _TermRecipe(NamedTuple):
    """Pair term of an assignment for all profiles of two tables: key, matrices and linear parts.

    in_vectors : for (enrolment, test), whether the term is a function of the whitened mean; else of the evidence
    reductions : reductions of the evidence of (enrolment, test), applied first
    """

    key: Hashable
    term: PairTermMatrices
    row: Array | None
    column: Array | None
    constant: float
    in_vectors: tuple[bool, bool]
    reductions: tuple[EvidenceReduction | None, EvidenceReduction | None] = (None, None)


class _ReducedTerm(NamedTuple):
    """Term in reduced evidence, if a side has several cells.

    A test of one cell is not reduced (test is None), so that a search index uses one test vector for all terms.
    """

    term: PairTermMatrices
    enrol: EvidenceReduction
    test: EvidenceReduction | None
    test_in_vectors: bool = False


class LatentTerms:
    """Pair terms of a model with latents. Matrices are cached, up to `MAX_CACHED_NUMBERS` numbers.

    views : {view: rank}
    known : {view: training posteriors}, for views with known classes
    """

    is_llr = True

    def __init__(self, space: LatentSpace, views: Mapping[str, int]) -> None:
        self.space = space
        self.views = dict(views)
        self.base = base_columns(tuple(views))
        self.published = False
        self.known: dict[str, KnownClasses] = {}
        self._layouts: dict[CellTable, Layout] = {}
        self._recipes: dict[Hashable, _TermRecipe | None] = {}
        self._terms: dict[Hashable, PairTermMatrices] = {}
        self._reduced: dict[Hashable, _ReducedTerm] = {}
        self._densities: dict[Hashable, tuple[Array, float]] = {}
        self._cached_numbers = 0

    def as_published(self) -> LatentTerms:
        """Return the same terms with the paper's covariances of half-shared hypotheses."""
        other = copy(self)
        other.published = True
        return other

    def with_known(self, known: Mapping[str, KnownClasses]) -> LatentTerms:
        """Return pair terms of the same model with known training classes in some views."""
        other = LatentTerms(self.space, self.views)
        other.published = self.published
        other.known = dict(known)
        return other

    def _clear_cache(self) -> None:
        self._recipes.clear()
        self._terms.clear()
        self._reduced.clear()
        self._densities.clear()
        self._cached_numbers = 0

    def prepare(self, table: CellTable, y: AnyArray) -> LatentSide:
        """Return the profiles of a table, with evidence on the latents of all their classes."""
        layout = self._layouts.get(table)
        if layout is None:
            # cached matrices have layouts in their keys: clear both together
            if len(self._layouts) >= MAX_CACHED_LAYOUTS:
                self._layouts.clear()
                self._clear_cache()
            layout = Layout(table, self.views, self.space.gram)
            self._layouts[table] = layout
        return LatentSide(layout, layout.gather(y), self.space)

    def side_terms(
        self, side: LatentSide, training_classes: TrainingClasses
    ) -> list[QuadraticTerm]:
        """Return the log ratio of the density given the training classes to that of new classes (lambda of V7)."""
        known = self._substitution(side.layout, training_classes)
        if not known.alike:
            return []
        unknown = self._substitution(side.layout, side.layout.table.without_training_classes())
        return [self._density(side, known, 1.0), self._density(side, unknown, -1.0)]

    def assignment_terms(
        self,
        enrol: LatentSide,
        test: LatentSide,
        training_classes: TrainingClasses,
        matches: ClassMatches,
    ) -> list[PairTerm]:
        """Return the term of an assignment, as a list of one; empty if the sides share no latents."""
        recipe_key = (enrol.layout, test.layout, training_classes, matches, self.published)
        recipe = self._recipes.get(recipe_key)
        if recipe is None:
            recipe = self._make_recipe(enrol.layout, test.layout, training_classes, matches)
            if recipe is not None:
                self._cached_numbers += len(recipe.term.row) + len(recipe.term.column)
            # clear everything at once: the entries in use are computed again within one call
            if self._cached_numbers > MAX_CACHED_NUMBERS:
                self._clear_cache()
            self._recipes[recipe_key] = recipe
        if recipe is None:
            return []
        key, term = recipe.key, recipe.term
        values = [
            side.vectors if in_vectors else side.y
            for side, in_vectors in zip((enrol, test), recipe.in_vectors, strict=True)
        ]
        for i, reduction in enumerate(recipe.reductions):
            if reduction is not None:
                values[i] = reduction.apply(values[i])
        row = QuadraticTerm((key, "row"), values[0], term.row, recipe.row, recipe.constant)
        column = QuadraticTerm((key, "column"), values[1], term.column, recipe.column)
        return [PairTerm(key, term.left, term.right, row, column)]

    def _make_recipe(
        self,
        enrol: Layout,
        test: Layout,
        training_classes: TrainingClasses,
        matches: ClassMatches,
    ) -> _TermRecipe | None:
        """Return the matrices of an assignment; None if the sides share no latents, so that its term is 0."""
        keep_e, keep_t = self._shared_latents(enrol, test, matches)
        if len(keep_e) == 0:
            return None
        both_cells = enrol.is_cell and test.is_cell
        in_vectors = both_cells and self.space.is_wide and not self.published
        known_e = self._substitution(enrol, training_classes)
        known_t = self._substitution(test, training_classes_of(matches))
        doubled: list[str] = []
        if self.published:
            by_view = zip(self.base, matches, strict=True)
            doubled = [view for view, classes in by_view if classes[0][0] >= 0]
        # assignments with equal keys have equal matrices; training classes with equal covariances share them
        sides = (*enrol.key, known_e.alike, *test.key, known_t.alike)
        key = (in_vectors, *sides, keep_e.tobytes(), keep_t.tobytes(), *doubled)
        if not doubled and not both_cells:
            return self._reduced_recipe(enrol, test, known_e, known_t, keep_e, keep_t, key)
        term = self._terms.get(key)
        if term is None:
            if len(doubled) == 1:
                factors = [np.full(r, 2.0 if v in doubled else 1.0) for v, r in self.views.items()]
                scale = np.sqrt(np.concatenate(factors))
                term = published_term(enrol.precision, test.precision, scale)
            elif in_vectors:
                shared = self.space.whitened @ known_e.scale[:, keep_e]
                A = self._covariance(enrol, known_e.scale)
                B = self._covariance(test, known_t.scale)
                term = vector_term(A, B, shared @ shared.T)
            else:
                N_e = known_e.apply(enrol.precision)
                N_t = known_t.apply(test.precision)
                term = latent_term(N_e, N_t, keep_e, keep_t)
                if known_e.alike or known_t.alike:
                    term = term.scaled(known_e.scale, known_t.scale)
            self._terms[key] = term
            self._cached_numbers += sum(matrix.size for matrix in term[:4])
        # without training classes all means are 0, and the term has no linear part
        if not known_e.alike and not known_t.alike:
            return _TermRecipe(key, term, None, None, term.constant, (in_vectors, in_vectors))
        mean_e = self._mean(enrol, known_e, in_vectors)
        mean_t = self._mean(test, known_t, in_vectors)
        row, column, constant = _centred_term(term, mean_e, mean_t)
        return _TermRecipe(key, term, row, column, constant, (in_vectors, in_vectors))

    def _reduced_recipe(
        self,
        enrol: Layout,
        test: Layout,
        known_e: Substitution,
        known_t: Substitution,
        keep_e: IntArray,
        keep_t: IntArray,
        key: Hashable,
    ) -> _TermRecipe:
        """Return the matrices in reduced evidence, for sides of several cells."""
        reduced = self._reduced.get(key)
        if reduced is None:
            reduced = self._reduce(enrol, test, known_e, known_t, keep_e, keep_t)
            self._reduced[key] = reduced
            self._cached_numbers += sum(matrix.size for matrix in reduced.term[:4])
            reductions = reduced.enrol, reduced.test
            self._cached_numbers += sum(r.size for r in reductions if r is not None)
        term, reduce_e, reduce_t, test_in_vectors = reduced
        spaces = ((False, test_in_vectors), (reduce_e, reduce_t))
        if not known_e.alike and not known_t.alike:
            return _TermRecipe(key, term, None, None, term.constant, *spaces)
        mean_e = reduce_e.apply(self._mean(enrol, known_e, False)[None])[0]
        mean_t = self._mean(test, known_t, test_in_vectors)
        if reduce_t is not None:
            mean_t = reduce_t.apply(mean_t[None])[0]
        row, column, constant = _centred_term(term, mean_e, mean_t)
        return _TermRecipe(key, term, row, column, constant, *spaces)

    def _reduce(
        self,
        enrol: Layout,
        test: Layout,
        known_e: Substitution,
        known_t: Substitution,
        keep_e: IntArray,
        keep_t: IntArray,
    ) -> _ReducedTerm:
        kept_e, reduce_e = EvidenceReduction.of(known_e.cells(enrol), enrol, keep_e)
        if known_e.alike:
            reduce_e = replace(reduce_e, scale=known_e.scale)
        # fewer columns than latents: the test is its whitened mean
        if test.is_cell and self.space.is_wide:
            shared = self.space.whitened @ known_t.scale[:, keep_t]
            B = self._covariance(test, known_t.scale)
            term, loading = predictive_term(kept_e, shared, B)
            return _ReducedTerm(term, replace(reduce_e, loading=loading), None, True)
        # a test of one cell: its reduction M becomes part of the matrices
        if test.is_cell:
            kept_t, M = reduce_evidence(known_t.apply(test.precision), keep_t)
            if known_t.alike:
                M = known_t.scale @ M
            term = reduced_term(kept_e, kept_t)
            column = _symmetric(M @ term.column @ M.T)
            return _ReducedTerm(term._replace(right=M @ term.right, column=column), reduce_e, None)
        kept_t, reduce_t = EvidenceReduction.of(known_t.cells(test), test, keep_t)
        if known_t.alike:
            reduce_t = replace(reduce_t, scale=known_t.scale)
        return _ReducedTerm(reduced_term(kept_e, kept_t), reduce_e, reduce_t)

    def _density(self, side: LatentSide, known: Substitution, weight: float) -> QuadraticTerm:
        """Return the log density given the training classes, up to a constant that does not depend on them."""
        layout = side.layout
        in_vectors = layout.is_cell and self.space.is_wide
        key = ("alone", *layout.key, known.alike)
        density = self._densities.get(key)
        if density is None:
            if in_vectors:
                lower = NUMPY.cholesky(self._covariance(layout, known.scale))
                matrix = -0.5 * NUMPY.inverse(lower)
                constant = -float(np.log(np.diag(lower)).sum())
            else:
                W, constant = log_evidence_matrix(known.apply(layout.precision))  # (V1)
                matrix = known.scale @ W @ known.scale.T
            density = self._densities[key] = matrix, constant
            self._cached_numbers += matrix.size
        matrix, constant = density
        # expand the square about the mean: x M x' is then equal for all classes with equal covariances
        mean = self._mean(layout, known, in_vectors)
        linear = -2.0 * matrix @ mean
        constant -= 0.5 * float(mean @ linear)
        if in_vectors:
            return QuadraticTerm(key, side.vectors, matrix, linear, constant, weight)
        # the factor exp(y'm - m'N m / 2) of the change of variables
        constant -= 0.5 * float(known.shift @ mean)
        return QuadraticTerm(key, side.y, matrix, linear + known.shift, constant, weight)  # (V6)

    def _substitution(self, layout: Layout, training_classes: TrainingClasses) -> Substitution:
        """Return the change of variables for a side of these training classes."""
        alike = []
        roots = []
        shift = np.zeros(layout.width)
        for view, known in self.known.items():
            view_number = layout.views.index(view)
            for class_number, c in enumerate(training_classes[self.base.index(view)]):
                block = layout.blocks.get((view_number, (class_number,)))
                if c >= 0 and block is not None:
                    alike.append((block.start, int(known.alike[c])))
                    shift[block] = known.means[c]
                    roots.append((block, known.roots[c]))
        return Substitution(tuple(alike), shift, tuple(roots))

    def _mean(self, layout: Layout, known: Substitution, in_vectors: bool) -> Array:
        """Return the mean of the evidence, or of the whitened mean, given the training classes."""
        matrix = self.space.whitened if in_vectors else layout.precision
        return matrix @ known.shift  # (V6)

    def _covariance(self, layout: Layout, scale: Array) -> Array:
        """Return the (D, D) covariance of the whitened mean of a cell."""
        loading = self.space.whitened @ scale
        return loading @ loading.T + np.eye(len(loading)) / layout.table.weights[0]

    def _shared_latents(
        self, enrol: Layout, test: Layout, matches: ClassMatches
    ) -> tuple[IntArray, IntArray]:
        """Return the numbers of the shared latents, in the enrolment and in the same order in the test."""
        keep_e: list[int] = []
        keep_t: list[int] = []
        for (k, classes), block_t in test.blocks.items():
            base_views = [self.base.index(base_view) for base_view in parts_of(test.views[k])]
            enrolled = tuple(matches[i][c][0] for i, c in zip(base_views, classes, strict=True))
            block_e = enrol.blocks.get((k, enrolled))
            # an interaction is shared if all its base views are, and if that cell was enrolled
            if min(enrolled) >= 0 and block_e is not None:
                keep_e += range(block_e.start, block_e.stop)
                keep_t += range(block_t.start, block_t.stop)
        return np.asarray(keep_e, dtype=np.int64), np.asarray(keep_t, dtype=np.int64)


def _centred_term(
    term: PairTermMatrices, mean_e: Array, mean_t: Array
) -> tuple[Array, Array, float]:
    """Return the linear parts and the constant of the term in e - mean_e and t - mean_t, expanded in e and t."""
    cross_e = mean_e @ term.left
    cross_t = multiply(mean_t, term.right)
    square_e = mean_e @ term.row
    square_t = mean_t @ term.column
    constant = term.constant + cross_e @ cross_t + square_e @ mean_e + square_t @ mean_t
    row = -multiply(cross_t, term.left.T) - 2.0 * square_e
    column = -multiply(cross_e, term.right.T) - 2.0 * square_t
    return np.asarray(row), np.asarray(column), float(constant)


def _symmetric(matrix: Array) -> Array:
    return (matrix + matrix.T) / 2
