"""What a set of vectors says about the latents of its classes.

Seen from the latents z of one cell (all views side by side), the vectors of a side are the function
exp(y'z - z'Nz/2)  up to a constant (docs/math.md, section 9)::

    y = B' Sigma^-1 (f - n mu)        N = n G,   G = B' Sigma^-1 B

A side that holds several cells has the latents of all its classes side by side, and the evidence of its
cells adds up on them: N is then another matrix, and nothing else changes.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._typing import AnyArray, Array, IntArray
from ..backend import NUMPY, as_vectors, is_torch, like, namespace
from ..exceptions import DataError
from ..inference.parameters import Parameters
from ..labels import parts_of
from .worlds import Reading, Table

Index = NDArray[np.int64]

PROJECT_ELEMENTS = 2**22
"""Vectors are projected in chunks of about this many numbers."""

KEPT_NUMBERS = 2**24
"""Matrices of pair terms, and products of tests with them, are kept up to this many numbers each (128 MiB)."""


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
    def of(cls, p: Parameters[Any]) -> LatentSpace:
        B = p.stacked()
        LB = p.sigma.solve(B)
        gram = B.T @ LB
        gram = (gram + gram.T) / 2
        size = np.sqrt(np.diag(gram))
        # rounding, where the parameters are canonical
        gram[np.abs(gram) <= 1e-13 * np.outer(size, size)] = 0.0
        return cls(LB, p.mean @ LB, gram, NUMPY.solve_lower(p.sigma.lower, B))

    @property
    def is_wide(self) -> bool:
        """Whether there are more latents than columns: matrices of vectors are then the smaller ones."""
        return bool(self.whitened.shape[1] > len(self.whitened))

    @cached_property
    def unfold(self) -> Array:
        """(r, D) gives the whitened sum of vectors back from their evidence."""
        # the loadings may leave directions out, however many they are: no term depends on those
        return np.asarray(np.linalg.pinv(self.whitened, rcond=1e-10), dtype=np.float64)


def project(X: ArrayLike, space: LatentSpace) -> Any:
    """Evidence y of every vector, (n, r) in float64."""
    width = len(space.projection)
    if is_torch(X):
        if X.ndim != 2 or X.shape[1] != width:
            raise DataError(f"vectors have shape (n, {width}) for this model; got {tuple(X.shape)}")
        y = X.double() @ like(space.projection, X) - like(space.offset, X)
        finite = bool(y.isfinite().all())
    else:
        vectors = as_vectors(X)
        if vectors.shape[1] != width:
            raise DataError(
                f"X has {vectors.shape[1]} features, but this model is expecting {width} features as input"
            )
        y = np.empty((len(vectors), space.projection.shape[1]))
        step = max(1, PROJECT_ELEMENTS // width)
        for start in range(0, len(vectors), step):
            block = vectors[start : start + step].astype(np.float64, copy=False)
            np.matmul(block, space.projection, out=y[start : start + step])
        y -= space.offset
        finite = bool(np.isfinite(y).all())
    if not finite:
        bad = np.flatnonzero(~np.isfinite(np.asarray(y.cpu() if is_torch(y) else y)).all(axis=1))
        raise DataError(f"Input X contains NaN or infinity, first in row {bad[0]}")
    return y


class Layout:
    """Where the latents of every class of a table stand, for a model with these views and ranks."""

    def __init__(self, table: Table, views: Mapping[str, int]) -> None:
        self.table = table
        self.views = tuple(views)
        self.blocks: dict[tuple[int, tuple[int, ...]], slice] = {}
        end = 0
        for k, rank in enumerate(views.values()):
            for cell in range(len(table.weights)):
                key = (k, self._parts(k, cell))
                if key not in self.blocks:
                    self.blocks[key] = slice(end, end + rank)
                    end += rank
        self.width = end
        rows = []
        for cell in range(len(table.weights)):
            here = [self.blocks[k, self._parts(k, cell)] for k in range(len(self.views))]
            rows.append(np.concatenate([np.r_[block] for block in here]))
        self.places: Index = np.stack(rows).astype(np.int64)
        """(cells, r): which of the side's latents are those of every cell."""

    def _parts(self, view: int, cell: int) -> tuple[int, ...]:
        """Classes of the parts of a view, in a cell."""
        parts = parts_of(self.views[view])
        return tuple(self.table.classes[self.table.base.index(part)][cell] for part in parts)

    def precision(self, gram: Array) -> Array:
        """(width, width) N: the cells' evidence matrices, added where their latents stand."""
        total = np.zeros((self.width, self.width))
        for place, weight in zip(self.places, self.table.weights, strict=True):
            total[np.ix_(place, place)] += weight * gram  # (V5)
        return total

    def gather(self, y: AnyArray) -> Any:
        """(profiles, width) evidence of profiles from that of their cells, (profiles, cells, r)."""
        if y.shape[1] == 1:
            return y[:, 0]
        flat = y.reshape(len(y), -1)
        spread = np.zeros((flat.shape[1], self.width))
        spread[np.arange(len(spread)), self.places.reshape(-1)] = 1.0  # (V5)
        return flat @ like(spread, flat)

    def block_of_class(self, view: int, number: int) -> slice | None:
        """Latents of a class of a base view that has latents of its own."""
        return self.blocks.get((view, (number,)))


@dataclass(frozen=True, eq=False)
class KnownClasses:
    """Training posteriors of the classes of one view.

    means, roots : (C, rank), (C, rank, rank) with covariance = root root'
    alike : (C,) number of the first class with the same covariance
    """

    means: Array
    roots: Array
    alike: IntArray

    @classmethod
    def of(cls, means: Array, covariances: Array) -> KnownClasses:
        scale = np.abs(covariances).max(initial=1e-300)
        alike = np.arange(len(means))
        leaders: list[int] = []
        for c, covariance in enumerate(covariances):
            for leader in leaders:
                if np.abs(covariances[leader] - covariance).max() <= 1e-12 * scale:
                    alike[c] = leader
                    break
            else:
                leaders.append(c)
        roots = np.linalg.cholesky(covariances[leaders])
        place = np.searchsorted(leaders, alike)
        return cls(means, np.asarray(roots, dtype=np.float64)[place], alike)


@dataclass(frozen=True, eq=False)
class Evidence:
    """Evidence of profiles with one table whose classes are certain training classes: values - offset.

    values : (profiles, width), the same for all classes with one covariance
    offset : (width,) what the means of the training classes take off; None: nothing
    """

    values: AnyArray
    offset: Array | None


class LatentSide:
    """Profiles with one table, as a model of latents sees them: the same for every training class they may be of.

    Evidence comes in two kinds of coordinates. Latents: y and N. Vectors (of one cell only): the whitened mean,
    of which the covariance is that of all latents, plus I / n.
    """

    def __init__(
        self, space: LatentSpace, layout: Layout, known: Mapping[str, KnownClasses], y: AnyArray
    ) -> None:
        self.space = space
        self.layout = layout
        self.known = known
        self.y = layout.gather(y)
        self.is_cell = len(layout.table.weights) == 1
        self.keeps = False
        self.owns: dict[Hashable, AnyArray] = {}
        self.terms: dict[Hashable, Any] = {}
        self._blocks: dict[Reading, list[tuple[slice, KnownClasses, int]]] = {}
        self._evidence: dict[tuple[Reading, bool], Evidence] = {}
        self._vectors: Any = None
        self._scaled: dict[Hashable, AnyArray] = {}
        self._products: dict[Hashable, AnyArray] = {}
        self._kept = 0
        self._alone: dict[Hashable, tuple[Array, AnyArray, AnyArray, float]] = {}

    def blocks_of(self, reading: Reading) -> list[tuple[slice, KnownClasses, int]]:
        """The latents whose class is a training class: where they stand, and which class it is."""
        kept = self._blocks.get(reading)
        if kept is not None:
            return kept
        blocks = []
        for view, known in self.known.items():
            numbers = reading[self.layout.table.base.index(view)]
            for number, trained in enumerate(numbers):
                block = self.layout.block_of_class(self.layout.views.index(view), number)
                if trained >= 0 and block is not None:
                    blocks.append((block, known, trained))
        self._blocks[reading] = blocks
        return blocks

    def key(self, reading: Reading, in_vectors: bool) -> Hashable:
        """Tells evidence matrices apart: sides with equal keys have equal ones."""
        table = self.layout.table
        alike = self._alike(reading)
        if in_vectors:
            return "vectors", table.weights, alike
        return "latents", table.weights, table.classes, alike

    def _alike(self, reading: Reading) -> tuple[tuple[int, int], ...]:
        """Where training classes stand, and the first class with the same covariance."""
        blocks = self.blocks_of(reading)
        return tuple((block.start, int(known.alike[c])) for block, known, c in blocks)

    def evidence(self, reading: Reading, in_vectors: bool) -> Evidence:
        """Evidence as certain training classes, in either kind of coordinates; made once for each."""
        made = self._evidence.get((reading, in_vectors))
        if made is None:
            made = self._make_evidence(reading, in_vectors)
            self._evidence[reading, in_vectors] = made
        return made

    def _make_evidence(self, reading: Reading, in_vectors: bool) -> Evidence:
        blocks = self.blocks_of(reading)
        if in_vectors:
            offset = None
            if blocks:
                offset = sum(self.space.whitened[:, b] @ k.means[c] for b, k, c in blocks)
            return Evidence(self.vectors, offset)
        if not blocks:
            return Evidence(self.y, None)
        shift, scale = self._substitution(blocks)
        offset = scale.T @ (self.precision @ shift)  # (V6)
        alike = self._alike(reading)
        if alike not in self._scaled:
            self._scaled[alike] = self.y @ like(scale, self.y)
        return Evidence(self._scaled[alike], offset)

    def offset(self, reading: Reading, in_vectors: bool) -> Array | None:
        """What the means of training classes take off the evidence; None: nothing."""
        if not self.blocks_of(reading):
            return None
        return self.evidence(reading, in_vectors).offset

    def _substitution(self, blocks: list[tuple[slice, KnownClasses, int]]) -> tuple[Array, Array]:
        """Shift and scale, with z = shift + scale z~ and z~ from N(0, I)."""
        shift = np.zeros(self.layout.width)
        scale = np.eye(self.layout.width)
        for block, known, c in blocks:
            shift[block] = known.means[c]
            scale[block, block] = known.roots[c]
        return shift, scale

    @cached_property
    def precision(self) -> Array:
        return self.layout.precision(self.space.gram)

    @property
    def vectors(self) -> Any:
        """(profiles, D) whitened means."""
        if self._vectors is None:
            unfold = like(self.space.unfold / self.layout.table.weights[0], self.y)
            self._vectors = self.y @ unfold
        return self._vectors

    def matrix(self, reading: Reading, in_vectors: bool) -> Array:
        """N of the latents, or the covariance of the whitened mean."""
        blocks = self.blocks_of(reading)
        if in_vectors:
            loading = self.space.whitened.copy()
            for block, known, c in blocks:
                loading[:, block] = loading[:, block] @ known.roots[c]
            return loading @ loading.T + np.eye(len(loading)) / self.layout.table.weights[0]
        if not blocks:
            return self.precision
        _, scale = self._substitution(blocks)
        N = scale.T @ self.precision @ scale  # (V6)
        return (N + N.T) / 2

    def alone(self, reading: Reading) -> Any:
        """(profiles,) log density as certain training classes, up to a constant that all readings share."""
        in_vectors = self.is_cell and self.space.is_wide
        evidence = self.evidence(reading, in_vectors)
        key = self._alike(reading)
        if key not in self._alone:
            matrix = self.matrix(reading, in_vectors)
            if in_vectors:
                lower = NUMPY.cholesky(matrix)
                form = -0.5 * NUMPY.inverse(lower)
                constant = -float(np.log(np.diag(lower)).sum())
            else:
                form, constant = log_evidence_matrix(matrix)  # (V1)
            times = evidence.values @ like(form, self.y)
            squares = row_products(times, evidence.values)
            self._alone[key] = form, times, squares, constant
        form, times, squares, constant = self._alone[key]
        total = squares + constant
        if evidence.offset is not None:
            offset = evidence.offset
            total = total - times @ like(2.0 * offset, self.y) + float(offset @ form @ offset)
        if not in_vectors:
            shift, _ = self._substitution(self.blocks_of(reading))
            constant = -0.5 * float(shift @ self.precision @ shift)
            total = total + self.y @ like(shift, self.y) + constant  # (V6)
        return total

    def times(
        self, key: Hashable, evidence: Evidence, matrix: Array, diagonal: Array | None
    ) -> Any:
        """values @ matrix, made once for every key where it comes again, as long as there is room."""
        if evidence.offset is None and not self.keeps:
            return _multiply(evidence.values, matrix, diagonal)
        product = self._products.get(key)
        if product is None:
            product = _multiply(evidence.values, matrix, diagonal)
            size = product.shape[0] * product.shape[1]
            if self._kept + size <= KEPT_NUMBERS:
                self._kept += size
                self._products[key] = product
        return product


def _multiply(values: AnyArray, matrix: Array, diagonal: Array | None) -> Any:
    """values @ matrix, where the matrix may have nothing but a diagonal."""
    if diagonal is not None:
        return values * like(diagonal, values)
    return values @ like(matrix, values)


def log_evidence_matrix(N: Array) -> tuple[Array, float]:
    """(r, r) W and constant k with  log of the integral of evidence x prior = y W y' + k."""
    lower = NUMPY.cholesky(np.eye(len(N)) + N)
    W = 0.5 * NUMPY.cho_solve(lower, np.eye(len(N)))
    return (W + W.T) / 2, -float(np.log(lower.diagonal()).sum())  # (V1)


def row_products(a: AnyArray, b: AnyArray) -> Any:
    """(n,) products of the rows of two (n, m), without an array of their size."""
    return namespace(a).einsum("ij,ij->i", a, b)
