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

from collections.abc import Hashable, Mapping
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular

from .._typing import AnyArray, Array, IntArray
from ..backend import NUMPY, like
from ..inference.parameters import Parameters
from ..labels import base_columns, parts_of
from .forms import PairForm, Quadratic, multiply
from .worlds import Matches, Reading, Table, reading_of

KEPT_NUMBERS = 2**24
"""Matrices of forms are kept up to this many numbers (128 MiB)."""

KEPT_LAYOUTS = 2**12
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
        LB = p.sigma.solve(B)
        gram = B.T @ LB
        gram = (gram + gram.T) / 2
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
    precision : (width, width) N, the cells' evidence matrices added where their latents stand
    """

    def __init__(self, table: Table, views: Mapping[str, int], gram: Array) -> None:
        self.table = table
        self.is_cell = len(table.weights) == 1
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
        self.places = np.asarray(rows, dtype=np.int64)
        self.precision = np.zeros((self.width, self.width))
        for place, weight in zip(self.places, table.weights, strict=True):
            self.precision[np.ix_(place, place)] += weight * gram  # (V5)

    def gather(self, y: AnyArray) -> AnyArray:
        """(profiles, width) evidence of profiles from that of their cells, (profiles, cells, r)."""
        if self.is_cell:
            return y[:, 0]
        flat = y.reshape(len(y), -1)
        spread = np.zeros((flat.shape[1], self.width))
        spread[np.arange(len(spread)), self.places.reshape(-1)] = 1.0  # (V5)
        return flat @ like(spread, flat)


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
        roots = np.asarray(np.linalg.cholesky(covariances[leaders]), dtype=np.float64)
        return cls(means, covariances, roots[np.searchsorted(leaders, alike)], alike)


Blocks = list[tuple[slice, KnownClasses, int]]
"""The latents of a side whose class is a training class: where they stand, and which class it is."""


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


# -- the matrices of a form: once from latents, once from vectors, once as published -------------------------


class PairTerm(NamedTuple):
    """log p(e, t | world) - log p(e) - log p(t) as a quadratic form of the two sides' evidence.

    value = (y_e left)(y_t right)' + y_e row y_e' + y_t column y_t' + constant

    left, right : (r_e, rho), (r_t, rho)
    row, column : (r_e, r_e), (r_t, r_t) symmetric
    """

    left: Array
    right: Array
    row: Array
    column: Array
    constant: float

    def compact(self) -> PairTerm:
        """The same with the diagonals of matrices that have nothing else: of a canonical model with one view, all."""
        left, right, row, column = map(_compact, self[:4])
        return PairTerm(left, right, row, column, self.constant)


def _compact(matrix: Array) -> Array:
    if matrix.shape != (len(matrix), len(matrix)):
        return matrix
    diagonal = np.diag(matrix)
    return diagonal.copy() if np.count_nonzero(matrix) == np.count_nonzero(diagonal) else matrix


def log_evidence_matrix(N: Array) -> tuple[Array, float]:
    """(r, r) W and constant k with  log of the integral of evidence x prior = y W y' + k."""
    lower = NUMPY.cholesky(np.eye(len(N)) + N)
    W = 0.5 * NUMPY.cho_solve(lower, np.eye(len(N)))
    return (W + W.T) / 2, -float(np.log(lower.diagonal()).sum())  # (V1)


def reduce_evidence(N: Array, keep: IntArray) -> tuple[Array, Array]:
    """Evidence on some latents when the others are integrated out.

    Returns (rho, rho) N_kept and the map M, (r, rho), with y_kept = y M.
    """
    others = np.setdiff1d(np.arange(len(N)), keep)
    M = np.zeros((len(N), len(keep)))
    M[keep, np.arange(len(keep))] = 1.0
    if len(others) == 0:
        return N[np.ix_(keep, keep)], M
    lower = NUMPY.cholesky(np.eye(len(others)) + N[np.ix_(others, others)])
    gain = NUMPY.cho_solve(lower, N[np.ix_(others, keep)])
    M[others] = -gain  # (V2)
    kept = N[np.ix_(keep, keep)] - N[np.ix_(keep, others)] @ gain
    return (kept + kept.T) / 2, M


def latent_term(N_e: Array, N_t: Array, keep_e: IntArray, keep_t: IntArray) -> PairTerm:
    """The term of sharing latents keep_e of one side, which are latents keep_t of the other, and no others."""
    # What is not shared is integrated out side by side (V2). What is left adds up where both sides have the same
    # latents: log p(e, t) has W of the sum, log p(e) and log p(t) have their own, and the cross term is 2 y_e W y_t'.
    kept_e, M_e = reduce_evidence(N_e, keep_e)
    kept_t, M_t = reduce_evidence(N_t, keep_t)
    joint, k_joint = log_evidence_matrix(kept_e + kept_t)
    own_e, k_e = log_evidence_matrix(kept_e)
    own_t, k_t = log_evidence_matrix(kept_t)
    root = NUMPY.cholesky(2 * joint)
    return PairTerm(  # (V3)
        M_e @ root,
        M_t @ root,
        M_e @ (joint - own_e) @ M_e.T,
        M_t @ (joint - own_t) @ M_t.T,
        k_joint - k_e - k_t,
    )


def vector_term(A: Array, B: Array, R: Array) -> PairTerm:
    """The same for two vectors with covariances A and B, of which R is what they share: p(e | t) against p(e)."""
    lower_e = NUMPY.cholesky(A)
    lower_t = NUMPY.cholesky(B)
    gain = NUMPY.cho_solve(lower_t, R.T)  # the mean of e given t is t gain
    lower = NUMPY.cholesky(A - R @ gain)
    cross = NUMPY.cho_solve(lower, gain.T)
    row = (NUMPY.inverse(lower_e) - NUMPY.inverse(lower)) / 2
    column = -gain @ cross / 2
    constant = float(np.log(lower_e.diagonal()).sum() - np.log(lower.diagonal()).sum())
    return PairTerm(cross, np.eye(len(B)), row, (column + column.T) / 2, constant)  # (V12)


def published_term(N_e: Array, N_t: Array, scale: Array) -> PairTerm:
    """The paper's covariance of a half-shared hypothesis, as published.

    The doubled view's covariance stands twice, and all of it in all four blocks
    (docs/errata.md): everything is shared, with that loading times sqrt 2.
    """
    joint, k_joint = log_evidence_matrix(scale[:, None] * (N_e + N_t) * scale)
    own_e, k_e = log_evidence_matrix(N_e)
    own_t, k_t = log_evidence_matrix(N_t)
    joint = scale[:, None] * joint * scale
    root = NUMPY.cholesky(2 * joint)
    return PairTerm(root, root, joint - own_e, joint - own_t, k_joint - k_e - k_t)  # (V8)


class _Made(NamedTuple):
    """The form of a world for all profiles of two tables: key, matrices, linear parts; of latents or of vectors."""

    key: Hashable
    term: PairTerm
    row: Array | None
    column: Array | None
    constant: float
    in_vectors: bool


class LatentForms:
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
        self._layouts: dict[Table, Layout] = {}
        self._made: dict[Hashable, _Made | None] = {}
        self._terms: dict[Hashable, PairTerm] = {}
        self._alone: dict[Hashable, tuple[Array, float]] = {}
        self._kept = 0

    def as_published(self) -> LatentForms:
        """The same with the covariances that the paper gives to half-shared hypotheses."""
        other = copy(self)
        other.published = True
        return other

    def learn(self, view: str, means: Array, covariances: Array, n: int) -> None:
        """Take the training posteriors of a view; what was made of other ones goes."""
        known = self.known.get(view)
        if known is None or known.means is not means or known.covariances is not covariances:
            self.known[view] = KnownClasses.of(means, covariances, n)
            self._forget()

    def _forget(self) -> None:
        self._made.clear()
        self._terms.clear()
        self._alone.clear()
        self._kept = 0

    def side(self, table: Table, y: AnyArray) -> LatentSide:
        layout = self._layouts.get(table)
        if layout is None:
            if len(self._layouts) >= KEPT_LAYOUTS:
                self._layouts.clear()
                self._forget()
            layout = Layout(table, self.views, self.space.gram)
            self._layouts[table] = layout
        return LatentSide(layout, layout.gather(y), self.space)

    def alone(self, side: LatentSide, reading: Reading) -> list[Quadratic]:
        blocks = self._blocks(side.layout, reading)
        if not blocks:
            return []
        return [self._density(side, blocks, 1.0), self._density(side, [], -1.0)]

    def form(
        self, enrol: LatentSide, test: LatentSide, reading: Reading, matches: Matches
    ) -> list[PairForm]:
        name = (enrol.layout, test.layout, reading, matches, self.published)
        if name not in self._made:
            made = self._make(enrol.layout, test.layout, reading, matches)
            if made is not None:
                self._kept += len(made.term.row) + len(made.term.column)
            if self._kept > KEPT_NUMBERS:
                self._forget()
            self._made[name] = made
        made = self._made[name]
        if made is None:
            return []
        key, term = made.key, made.term
        e = enrol.vectors if made.in_vectors else enrol.y
        t = test.vectors if made.in_vectors else test.y
        row = Quadratic((key, "row"), e, term.row, made.row, made.constant)
        column = Quadratic((key, "column"), t, term.column, made.column)
        return [PairForm(key, term.left, term.right, row, column)]

    def _make(
        self, enrol: Layout, test: Layout, reading: Reading, matches: Matches
    ) -> _Made | None:
        keep_e, keep_t = self._shared_latents(enrol, test, matches)
        if len(keep_e) == 0:
            return None
        in_vectors = enrol.is_cell and test.is_cell and self.space.is_wide and not self.published
        known_e = self._blocks(enrol, reading)
        known_t = self._blocks(test, reading_of(matches))
        doubled: list[str] = []
        if self.published:
            pairs = zip(self.base, matches, strict=True)
            doubled = [view for view, classes in pairs if classes[0][0] >= 0]
        # worlds with equal keys have equal matrices: training classes with equal covariances among them
        key = (
            in_vectors,
            *_key(enrol, known_e),
            *_key(test, known_t),
            *(keep_e.tobytes(), keep_t.tobytes(), *doubled),
        )
        term = self._terms.get(key)
        if term is None:
            if len(doubled) == 1:
                scales = [np.full(r, 2.0 if v in doubled else 1.0) for v, r in self.views.items()]
                scale = np.sqrt(np.concatenate(scales))
                term = published_term(enrol.precision, test.precision, scale)
            elif in_vectors:
                shared = self._loading(known_e)[:, keep_e]
                A = self._covariance(enrol, known_e)
                term = vector_term(A, self._covariance(test, known_t), shared @ shared.T)
            else:
                term = self._of_latents(enrol, known_e, test, known_t, keep_e, keep_t)
            term = term.compact()
            self._terms[key] = term
            self._kept += sum(matrix.size for matrix in term[:4])
        if not known_e and not known_t:
            return _Made(key, term, None, None, term.constant, in_vectors)
        # both sides about the means of their training classes: (e - o_e) ... (t - o_t)
        o_e = self._offset(enrol, known_e, in_vectors)
        o_t = self._offset(test, known_t, in_vectors)
        cross_e = multiply(o_e, term.left)
        cross_t = multiply(o_t, term.right)
        square_e = multiply(o_e, term.row)
        square_t = multiply(o_t, term.column)
        constant = term.constant + cross_e @ cross_t + square_e @ o_e + square_t @ o_t
        row = -multiply(cross_t, term.left.T) - 2.0 * square_e
        column = -multiply(cross_e, term.right.T) - 2.0 * square_t
        linear = np.asarray(row), np.asarray(column)
        return _Made(key, term, *linear, float(constant), in_vectors)

    def _of_latents(
        self,
        enrol: Layout,
        known_e: Blocks,
        test: Layout,
        known_t: Blocks,
        keep_e: IntArray,
        keep_t: IntArray,
    ) -> PairTerm:
        """Latents of training classes are z = m + root z~ with z~ from N(0, I): the matrices are those of z~ (V6)."""
        S_e = _scale(enrol, known_e)
        S_t = _scale(test, known_t)
        N_e = S_e.T @ enrol.precision @ S_e
        N_t = S_t.T @ test.precision @ S_t
        term = latent_term((N_e + N_e.T) / 2, (N_t + N_t.T) / 2, keep_e, keep_t)
        row = S_e @ term.row @ S_e.T
        column = S_t @ term.column @ S_t.T
        return PairTerm(S_e @ term.left, S_t @ term.right, row, column, term.constant)

    def _density(self, side: LatentSide, blocks: Blocks, factor: float) -> Quadratic:
        """Log density as certain training classes, up to a constant that all readings share."""
        layout = side.layout
        in_vectors = layout.is_cell and self.space.is_wide
        key = ("alone", *_key(layout, blocks))
        if key not in self._alone:
            if in_vectors:
                lower = NUMPY.cholesky(self._covariance(layout, blocks))
                constant = -float(np.log(np.diag(lower)).sum())
                self._alone[key] = -0.5 * NUMPY.inverse(lower), constant
            else:
                S = _scale(layout, blocks)
                N = S.T @ layout.precision @ S
                W, constant = log_evidence_matrix((N + N.T) / 2)  # (V1)
                self._alone[key] = S @ W @ S.T, constant
            self._kept += self._alone[key][0].size
        matrix, constant = self._alone[key]
        offset = self._offset(layout, blocks, in_vectors)
        square = matrix @ offset
        linear = -2.0 * square
        constant += float(offset @ square)
        if not in_vectors:
            shift = _shift(layout, blocks)
            linear = linear + shift
            constant -= 0.5 * float(shift @ offset)  # (V6), where the offset is N m
        values = side.vectors if in_vectors else side.y
        return Quadratic(key, values, matrix, linear, constant, factor)

    def _blocks(self, layout: Layout, reading: Reading) -> Blocks:
        blocks = []
        for view, known in self.known.items():
            for number, trained in enumerate(reading[self.base.index(view)]):
                block = layout.blocks.get((layout.views.index(view), (number,)))
                if trained >= 0 and block is not None:
                    blocks.append((block, known, trained))
        return blocks

    def _offset(self, layout: Layout, blocks: Blocks, in_vectors: bool) -> Array:
        """What the means of training classes take off the evidence, or off the whitened mean."""
        if not in_vectors:
            return np.asarray(layout.precision @ _shift(layout, blocks))  # (V6)
        offset = np.zeros(len(self.space.whitened))
        for block, known, c in blocks:
            offset += self.space.whitened[:, block] @ known.means[c]
        return offset

    def _loading(self, blocks: Blocks) -> Array:
        loading = self.space.whitened.copy()
        for block, known, c in blocks:
            loading[:, block] = loading[:, block] @ known.roots[c]
        return loading

    def _covariance(self, layout: Layout, blocks: Blocks) -> Array:
        """Of the whitened mean of a cell."""
        loading = self._loading(blocks)
        return np.asarray(loading @ loading.T + np.eye(len(loading)) / layout.table.weights[0])

    def _shared_latents(
        self, enrol: Layout, test: Layout, matches: Matches
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


def _key(layout: Layout, blocks: Blocks) -> tuple[Hashable, ...]:
    """Tells evidence matrices apart: sides with equal keys have equal ones."""
    alike = tuple((block.start, int(known.alike[c])) for block, known, c in blocks)
    return layout.table.weights, layout.table.classes, alike


def _scale(layout: Layout, blocks: Blocks) -> Array:
    scale = np.eye(layout.width)
    for block, known, c in blocks:
        scale[block, block] = known.roots[c]
    return scale


def _shift(layout: Layout, blocks: Blocks) -> Array:
    shift = np.zeros(layout.width)
    for block, known, c in blocks:
        shift[block] = known.means[c]
    return shift
