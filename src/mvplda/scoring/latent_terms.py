"""Pair terms (log-ratios of two sides of a trial) of models with latents: MultiviewPLDA and PLDA.

Let a side of a trial have n vectors of one cell with the sum f, and let z be the latents of the
cell, all views side by side. As a function of z, the density of the vectors is exp(y'z - z'Nz/2) up
to a constant, with the evidence y and the evidence matrix N (docs/math.md, section 9.2)::

    y = B' Sigma^-1 (f - n mu)        N = n G,   G = B' Sigma^-1 B

B holds the loadings, Sigma is the noise covariance and mu the mean of the model. A side of several
cells has the latents of all its classes side by side, and the evidence of its cells is added up on
them (section 9.6). If there are more latents than dimensions, single cells are compared by their
whitened means Sigma^-1/2 (f/n - mu) instead, because the matrices are smaller (section 9.7).

In names, `_e` stands for the enrolled side and `_t` for the test side.
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections.abc import Hashable, Mapping
from copy import copy
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from .._typing import AnyArray, Array, IntArray
from ..backend import NUMPY
from ..labels import base_columns, parts_of
from .assignments import CellTable, ClassMatches, TrainingClasses, training_classes_of
from .latent_elimination import EvidenceReduction
from .latent_space import KnownClasses, LatentSide, LatentSpace, Layout, Substitution
from .pair_matrices import (
    PairTermMatrices,
    latent_term,
    log_evidence_matrix,
    predictive_term,
    published_term,
    reduce_evidence,
    reduced_term,
    symmetric_part,
    vector_term,
)
from .pair_terms import PairTerm, QuadraticTerm, multiply

MAX_CACHED_NUMBERS = 2**24
"""Number of elements of all cached matrices (128 MiB) above which the caches are cleared."""

MAX_CACHED_LAYOUTS = 2**12
"""Number of different cell structures of profiles (`CellTable`) whose positions of latents are cached."""


class _TermRecipe(NamedTuple):
    """Matrices and constants of the pair term (log-ratio) of one assignment of classes.

    key : cache key of the matrices
    term : matrices of the quadratic form
    row, column : coefficients of the linear part of the enrolment and of the test; None: there is
        no linear part
    constant : constant of the term
    in_vectors : for (enrolment, test), True if the term is a function of the whitened means, False
        if it is a function of the evidence
    reductions : for (enrolment, test), map that is applied to the evidence first; None: no map
    """

    key: Hashable
    term: PairTermMatrices
    row: Array | None
    column: Array | None
    constant: float
    in_vectors: tuple[bool, bool]
    reductions: tuple[EvidenceReduction | None, EvidenceReduction | None] = (None, None)


class _ReducedTerm(NamedTuple):
    """Matrices of a pair term (log-ratio of two sides) if a side has several cells.

    The term is a function of the evidence on the latents that both sides share.

    term : matrices of the quadratic form
    enrol, test : maps that reduce the evidence of each side to the shared latents. If the test has
        one cell, its map is None and part of `term`, so that a search index needs one test vector
        for all terms
    test_in_vectors : True if the test is represented by its whitened means
    """

    term: PairTermMatrices
    enrol: EvidenceReduction
    test: EvidenceReduction | None
    test_in_vectors: bool = False


class LatentTerms:
    """Pair terms (log-ratios of profile and test) of a model with latents.

    Matrices are cached until they have `MAX_CACHED_NUMBERS` elements together.

    space : latent space of the model
    views : {view: rank}
    known : {view: posteriors of its training classes}, for views whose training classes are used
    published : True to use the covariances that the paper printed, see `as_published`
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
        self._covariances: dict[Hashable, Array] = {}
        self._cached_numbers = 0

    def as_published(self) -> LatentTerms:
        """Return a copy that uses the covariances as printed in the paper.

        They differ for hypotheses that share one of two views, see `published_term`.
        """
        other = copy(self)
        other.published = True
        return other

    def with_known(self, known: Mapping[str, KnownClasses]) -> LatentTerms:
        """Return a copy that uses the training classes of some views, with empty caches.

        known : {view: posteriors of its training classes}
        """
        other = LatentTerms(self.space, self.views)
        other.published = self.published
        other.known = dict(known)
        return other

    def _clear_cache(self) -> None:
        """Remove all cached matrices; they are computed again on demand."""
        self._recipes.clear()
        self._terms.clear()
        self._reduced.clear()
        self._densities.clear()
        self._covariances.clear()
        self._cached_numbers = 0

    def prepare(self, table: CellTable, y: AnyArray) -> LatentSide:
        """Return a group of profiles as a `LatentSide`, with evidence on all their latents.

        table : cell table, equal for all profiles
        y : (profiles, cells, r) evidence of each cell
        """
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
        """Return terms whose sum is the log-ratio of training classes to new classes.

        It is log p(side | its classes are these training classes) - log p(side | its classes are
        new), lambda of (V7) in docs/math.md. If no class is a training class, the list is empty,
        which stands for 0.

        side : group of profiles, from `prepare`
        training_classes : training class of each class of the side; -1: none
        """
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
        """Return the pair term (log-ratio of two sides) of one assignment of classes, in a list.

        The list is empty, which stands for 0, if the two sides share no latents.

        enrol, test : groups of profiles, from `prepare`
        training_classes : training class of each class of the enrolment; -1: none
        matches : enrolled class and training class that equal each class of the test
        """
        recipe_key = (enrol.layout, test.layout, training_classes, matches, self.published)
        recipe = self._recipes.get(recipe_key)
        if recipe is None:
            recipe = self._make_recipe(enrol.layout, test.layout, training_classes, matches)
            if recipe is not None:
                self._cached_numbers += len(recipe.term.row) + len(recipe.term.column)
            # clear all: entries that are still in use are computed again in the next call
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
        """Compute the matrices of the pair term (log-ratio of two sides) of one assignment of classes.

        Return None if the two sides share no latents, because the term is then 0.

        enrol, test : positions of the latents of the two sides
        training_classes : training class of each class of the enrolment; -1: none
        matches : enrolled class and training class that equal each class of the test
        """
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
                shared = self._loading(known_e, keep_e)
                A = self._covariance(enrol, known_e)
                B = self._covariance(test, known_t)
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
        """Return the matrices of one assignment of classes if a side has several cells.

        The latents that the sides do not share are integrated out first. So the matrices multiply
        the evidence on the shared latents only.

        enrol, test : positions of the latents of the two sides
        known_e, known_t : changes of variables for training classes
        keep_e, keep_t : indices of the shared latents on each side
        key : cache key of the matrices
        """
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
        """Compute a pair term's matrices, and the maps that reduce evidence to shared latents.

        enrol, test : positions of the latents of the two sides
        known_e, known_t : changes of variables for training classes
        keep_e, keep_t : indices of the shared latents on each side
        """
        kept_e, reduce_e = EvidenceReduction.of(known_e.cells(enrol), enrol, keep_e)
        if known_e.alike:
            reduce_e = replace(reduce_e, scale=known_e.scale)
        # fewer dimensions than latents: represent the test by its whitened mean
        if test.is_cell and self.space.is_wide:
            shared = self._loading(known_t, keep_t)
            B = self._covariance(test, known_t)
            term, loading = predictive_term(kept_e, shared, B)
            return _ReducedTerm(term, replace(reduce_e, loading=loading), None, True)
        # a test of one cell: its reduction M becomes part of the matrices
        if test.is_cell:
            kept_t, M = reduce_evidence(known_t.apply(test.precision), keep_t)
            if known_t.alike:
                M = known_t.scale @ M
            term = reduced_term(kept_e, kept_t)
            column = symmetric_part(M @ term.column @ M.T)
            return _ReducedTerm(term._replace(right=M @ term.right, column=column), reduce_e, None)
        kept_t, reduce_t = EvidenceReduction.of(known_t.cells(test), test, keep_t)
        if known_t.alike:
            reduce_t = replace(reduce_t, scale=known_t.scale)
        return _ReducedTerm(reduced_term(kept_e, kept_t), reduce_e, reduce_t)

    def _density(self, side: LatentSide, known: Substitution, weight: float) -> QuadraticTerm:
        """Return the log density of a side given its training classes, as a one-sided term.

        A constant that does not depend on the training classes is left out.

        side : group of n profiles
        known : change of variables for the training classes
        weight : number by which the term is multiplied
        """
        layout = side.layout
        in_vectors = layout.is_cell and self.space.is_wide
        key = ("alone", *layout.key, known.alike)
        density = self._densities.get(key)
        if density is None:
            if in_vectors:
                lower = NUMPY.cholesky(self._covariance(layout, known))
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
        """Return the change of variables by which a side's training classes become new classes.

        layout : positions of the side's latents
        training_classes : training class of each class of the side; -1: none
        """
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
        """Return the expected evidence of a side, given its training classes, (width,).

        If `in_vectors`, return the expected whitened mean (D,) instead. Without training classes
        both are 0.

        layout : positions of the side's latents
        known : change of variables for training classes
        """
        matrix = self.space.whitened if in_vectors else layout.precision
        return matrix @ known.shift  # (V6)

    def _loading(self, known: Substitution, latents: IntArray | None = None) -> Array:
        """Return the whitened loading of a cell after a change of variables, (D, latents).

        known : change of variables for training classes
        latents : indices of the latents; None: all latents of the cell
        """
        if known.alike:
            scale = known.scale if latents is None else known.scale[:, latents]
            return self.space.whitened @ scale
        # without training classes the scale is the identity
        if latents is None:
            return self.space.whitened
        return self.space.whitened.take(latents, axis=1)

    def _covariance(self, layout: Layout, known: Substitution) -> Array:
        """Return the covariance of the whitened mean of a side with one cell, (D, D).

        The array is cached: callers must not change it.

        layout : positions of the side's latents
        known : change of variables for training classes
        """
        # assignments for all pairs of training classes have few distinct sides: cache per side
        key = (*layout.key, known.alike)
        covariance = self._covariances.get(key)
        if covariance is None:
            loading = self._loading(known)
            covariance = loading @ loading.T + np.eye(len(loading)) / layout.table.weights[0]
            self._covariances[key] = covariance
            self._cached_numbers += covariance.size
        return covariance

    def _shared_latents(
        self, enrol: Layout, test: Layout, matches: ClassMatches
    ) -> tuple[IntArray, IntArray]:
        """Return the indices of the shared latents in enrolment and test, in the same order.

        matches : enrolled class and training class that equal each class of the test
        """
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
    """Expand a term in e - mean_e and t - mean_t; return its linear parts and its constant.

    term : matrices of the quadratic form in the evidence e of the enrolment and t of the test
    mean_e, mean_t : expected evidence of the two sides
    return : coefficients of e, coefficients of t, constant
    """
    cross_e = mean_e @ term.left
    cross_t = multiply(mean_t, term.right)
    square_e = mean_e @ term.row
    square_t = mean_t @ term.column
    constant = term.constant + cross_e @ cross_t + square_e @ mean_e + square_t @ mean_t
    row = -multiply(cross_t, term.left.T) - 2.0 * square_e
    column = -multiply(cross_e, term.right.T) - 2.0 * square_t
    return np.asarray(row), np.asarray(column), float(constant)
