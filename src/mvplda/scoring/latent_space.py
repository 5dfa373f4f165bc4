"""Latent space of a model: evidence of profiles, layouts of their latents, and training classes."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import solve_triangular

from .._typing import AnyArray, Array, IntArray
from ..backend import empty, like
from ..exceptions import NumericalError
from ..inference.parameters import Parameters
from ..labels import parts_of
from .assignments import CellTable
from .pair_matrices import symmetric_part


@dataclass(frozen=True, eq=False)
class LatentSpace:
    """Matrices that map vectors x (D,) to evidence on the r latents of one cell.

    B (D, r) holds the loadings of all views side by side, Sigma is the noise covariance and mu the
    mean. A vector has the evidence B' Sigma^-1 (x - mu).

    projection : (D, r) Sigma^-1 B
    offset : (r,) B' Sigma^-1 mu
    gram : (r, r) B' Sigma^-1 B, evidence matrix of one vector
    whitened : (D, r) Sigma^-1/2 B
    """

    projection: Array
    offset: Array
    gram: Array
    whitened: Array

    @classmethod
    def of(cls, p: Parameters) -> LatentSpace:
        """Return the latent space of a model with these parameters."""
        B = np.asarray(p.stacked())
        # a Cholesky solve: the noise covariance is never inverted
        LB = np.asarray(p.sigma.solve(B))
        gram = symmetric_part(B.T @ LB)
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
        """Whether there are more latents than dimensions, so that matrices (D, D) are smaller."""
        return bool(self.whitened.shape[1] > len(self.whitened))

    @cached_property
    def unfold(self) -> Array:
        """Matrix (r, D) that maps summed evidence to summed whitened vectors Sigma^-1/2 (x - mu)."""
        # directions without loadings are lost, but no pair term depends on them
        return np.asarray(np.linalg.pinv(self.whitened, rcond=1e-10), dtype=np.float64)


class Layout:
    """Positions of the latents of all classes of a profile in one vector of length `width`.

    A profile has one cell per combination of classes, with r latents: those of its classes in all
    views. Cells that share a class share its latents.

    table : cell table of the profile
    is_cell : True if the profile has a single cell
    key : cache key; tables with equal keys have equal evidence matrices
    blocks : {(view number, class numbers in its base views): slice of the latents of this class}
    width : number of latents of the profile
    latents : (cells, r) positions of the latents of each cell
    cells_of : (width,) number of cells that have each latent
    cells : list of (r, r) evidence matrices, one per cell; equal matrices are one array
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
        """Evidence matrix of the side, (width, width): the sum of those of its cells."""
        precision = np.zeros((self.width, self.width))
        for latents, cell in zip(self.latents, self.cells, strict=True):
            precision[np.ix_(latents, latents)] += cell  # (V5)
        return precision

    def gather(self, y: AnyArray) -> AnyArray:
        """Return the evidence of profiles on all latents, (profiles, width).

        y : (profiles, cells, r) evidence of the profiles' cells
        """
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
    """Posteriors N(m_c, C_c) of the latents of the training classes c of one view.

    The first n classes have names. The model's arrays may have further rows, which are not used:
    they belong to vectors without labels.

    means : (classes, rank) m_c, array of the model
    covariances : (classes, rank, rank) C_c, array of the model
    roots : (n, rank, rank) matrices K_c with C_c = K_c K_c'
    alike : (n,) for each class, the number of the first class with the same covariance
    """

    means: Array
    covariances: Array
    roots: Array
    alike: IntArray

    @classmethod
    def of(cls, means: Array, covariances: Array, n: int) -> KnownClasses:
        """Return the posteriors of the first n classes; further rows are not used.

        Raise `NumericalError` if a covariance is not positive definite.

        means : (classes, rank) posterior means
        covariances : (classes, rank, rank) posterior covariances
        """
        # classes with equal numbers of vectors often have equal covariances, and then share matrix products
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
                "the posterior covariance of a training class is not positive definite, so training classes cannot be "
                "used: leave out known="
            ) from error
        return cls(means, covariances, roots[np.searchsorted(leaders, alike)], alike)


@dataclass(frozen=True, eq=False)
class Substitution:
    """Change of variables by which training classes are scored like new ones (V6 in docs/math.md).

    The latents z of a side are replaced by z~ ~ N(0, I) with z = shift + scale z~. For classes that
    are not training classes, z~ equals z.

    alike : cache key of the scale; empty if no class is a training class
    shift : (width,) posterior means of training classes; 0 for latents of other classes
    roots : (slice, matrix) of each diagonal block of the scale that is not the identity
    """

    alike: tuple[Hashable, ...]
    shift: Array
    roots: tuple[tuple[slice, Array], ...]

    @cached_property
    def scale(self) -> Array:
        """Scale of the change of variables, (width, width), computed on first access."""
        scale = np.eye(len(self.shift))
        for block, root in self.roots:
            scale[block, block] = root
        return scale

    def apply(self, precision: Array) -> Array:
        """Return the evidence matrix of the new variables: scale' precision scale, (width, width).

        precision : (width, width) evidence matrix of the original latents
        """
        # without training classes the scale is I: spare wide profiles the products
        if not self.alike:
            return precision
        return symmetric_part(self.scale.T @ precision @ self.scale)  # (V6)

    def cells(self, layout: Layout) -> Sequence[Array]:
        """Return the evidence matrix of each cell for the new variables, a list of (r, r).

        layout : positions of the side's latents, with the original evidence matrix of each cell
        """
        if not self.alike:
            return layout.cells
        # the scale is block-diagonal by class: a cell needs only the block of its own latents
        scales = [self.scale[np.ix_(latents, latents)] for latents in layout.latents]
        return [
            symmetric_part(S.T @ cell @ S) for S, cell in zip(scales, layout.cells, strict=True)
        ]


@dataclass(eq=False)
class LatentSide:
    """Group of profiles with equal cell tables on one side of a comparison, with their evidence.

    layout : positions of the profiles' latents
    y : (profiles, width) evidence of each profile on these latents
    space : latent space of the model
    """

    layout: Layout
    y: AnyArray
    space: LatentSpace

    @cached_property
    def vectors(self) -> AnyArray:
        """Whitened means Sigma^-1/2 (mean vector - mu), (profiles, D); only for profiles of one cell."""
        return self.y @ like(self.space.unfold / self.layout.table.weights[0], self.y)
