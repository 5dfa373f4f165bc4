"""Posterior means of the leaf's classes, and the sums over classes that the M step needs.

The mean of leaf class c is linear in what is known of the class (docs/math.md, section 5)::

    m_c = delta(n_c) * (a_c U)      a_c = [f_c  n_c  t_c]      U = [LB; -mean' LB; -h]

where f_c is its sum of vectors, n_c its count, t_c its counts in the classes of
the other views, and h = m_k G_ek' once their means m_k are known. `LeafRows`
keeps a row a class. Where many classes share few counts, `LeafGrams` keeps only
the Gram matrix A_n' A_n of all classes of count n: every sum over classes
follows from it, and an iteration no longer depends on the number of classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from .design import Design
from .records import Array


@dataclass(frozen=True)
class ViewSums:
    """Sums of posterior means m_c of one view.

    xz : (D, r) sum over vectors of x m'
    z, zz : (r,), (r, r) sum over vectors of m and of m m'
    class_z, class_zz : the same over classes
    """

    xz: Array
    z: Array
    zz: Array
    class_z: Array
    class_zz: Array


def sums_of_rows(F: Array, n: Array, means: Array) -> ViewSums:
    """The sums of a view whose means are at hand."""
    weighted = n[:, None] * means
    return ViewSums(F.T @ means, weighted.sum(axis=0), weighted.T @ means, means.sum(axis=0), means.T @ means)


class Leaf(Protocol):
    """Means of the leaf's classes: first given the data alone, then less what other views explain."""

    def met(self, k: int) -> Array:
        """(C_k, r_e): sum over vectors of every class of view k of the leaf's mean."""
        ...

    def less(self, k: int, h: Array) -> None:
        """Take off what view k explains, h (C_k, r_e)."""
        ...

    def sums(self) -> ViewSums: ...

    def means(self) -> Array:
        """(C_e, r_e)"""
        ...


def leaf_given_data(design: Design, delta: Array, LB: Array, at_mean: Array) -> Leaf:
    """delta(n_c) * (f_c' LB - n_c mean' LB) for every leaf class."""
    return (LeafGrams if design.by_count else LeafRows)(design, delta, LB, at_mean)


class LeafRows:
    """A row a class."""

    def __init__(self, design: Design, delta: Array, LB: Array, at_mean: Array) -> None:
        e, xp = design.plan.leaf, design.sums.xp
        self.tables, self.F, self.n = design.leaf_tables, design.sums.sums[e], xp.keep(design.sums.counts[e])
        self.xp, self.delta = xp, delta[xp.keep(design.leaf_counts[1])]
        self._means = self.F @ LB
        self._means -= xp.outer(self.n, at_mean)  # (E2)
        self._means *= self.delta

    def met(self, k: int) -> Array:
        met: Array = self.xp.table(self.tables[k]).T @ self._means
        return met

    def less(self, k: int, h: Array) -> None:
        self._means -= self.delta * (self.xp.table(self.tables[k]) @ h)  # (E8)

    def sums(self) -> ViewSums:
        return sums_of_rows(self.F, self.n, self._means)

    def means(self) -> Array:
        return self._means


class LeafGrams:
    """A Gram matrix for every distinct count."""

    def __init__(self, design: Design, delta: Array, LB: Array, at_mean: Array) -> None:
        self.design, self.delta, self.D = design, delta[:, None, :], len(LB)
        self.Q, self.columns = design.leaf_grams
        self.xp = design.sums.xp
        self.U = self.xp.zeros((self.Q.shape[1], LB.shape[1]))
        self.U[: self.D], self.U[self.D] = LB, -at_mean
        self.QU = self.Q[:, :, : self.D + 1] @ self.U[: self.D + 1]  # (counts, width, r_e)

    def met(self, k: int) -> Array:
        met: Array = (self.QU[:, self.columns[k]] * self.delta).sum(axis=0)
        return met

    def less(self, k: int, h: Array) -> None:
        self.U[self.columns[k]] = -h
        self.QU -= self.Q[:, :, self.columns[k]] @ h

    def sums(self) -> ViewSums:
        values = self.xp.keep(self.design.leaf_counts[0])
        by_count = self.QU[:, : self.D + 1] * self.delta
        summed = by_count.sum(axis=0)
        squares = self.delta.mT * (self.U.T @ self.QU) * self.delta
        return ViewSums(
            summed[: self.D],
            summed[self.D],
            self.xp.tensordot(values, squares, axes=1),
            (1.0 / values) @ by_count[:, self.D],
            squares.sum(axis=0),
        )

    def means(self) -> Array:
        rows = LeafRows(self.design, self.delta[:, 0], self.U[: self.D], -self.U[self.D])
        for k, columns in self.columns.items():
            rows.less(k, -self.U[columns])
        return rows.means()
