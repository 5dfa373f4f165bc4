"""Posterior means of the leaf view and their sums: a row per class, or Gram matrices per count.

Symbols are those of `exact` and docs/math.md, sections 4 and 5.
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from dataclasses import dataclass

from .._typing import AnyArray
from .design import Design


@dataclass(frozen=True)
class ViewSums:
    """Sums of posterior means m_c of one view.

    xz : (D, r) sum over vectors of x m'
    z, zz : (r,), (r, r) sum over vectors of m and of m m'
    class_z, class_zz : the same sums over classes
    """

    xz: AnyArray
    z: AnyArray
    zz: AnyArray
    class_z: AnyArray
    class_zz: AnyArray


def sums_of_rows(F: AnyArray, n: AnyArray, means: AnyArray) -> ViewSums:
    """Return the sums of a view from its means (C, r), class sums F (C, D) and counts n (C,)."""
    weighted = n[:, None] * means
    return ViewSums(
        F.T @ means, weighted.sum(axis=0), weighted.T @ means, means.sum(axis=0), means.T @ means
    )


class LeafRows:
    """Means of the leaf's classes, a row per class.

    They start as the means given the data alone, delta(n_c) * (f_c' LB - n_c mean' LB). `subtract` then removes the
    contributions of the other views.
    """

    def __init__(self, design: Design, delta: AnyArray, LB: AnyArray, mean_LB: AnyArray) -> None:
        xp = design.sums.xp
        self.xp = xp
        self.tables = design.leaf_tables
        self.F = design.sums.sums[design.plan.leaf]
        self.n = xp.cached(design.sums.counts[design.plan.leaf])
        self.delta = delta[xp.cached(design.leaf_counts[1])]
        self._means = self.F @ LB
        self._means -= xp.outer(self.n, mean_LB)  # (E2)
        self._means *= self.delta

    def sums_within(self, k: int) -> AnyArray:
        """Return the sum of the leaf's means over the vectors of every class of view k, (C_k, r_e)."""
        return self.xp.cached_table(self.tables[k]).T @ self._means

    def subtract(self, k: int, h: AnyArray) -> None:
        """Subtract the contribution of view k from the means; h has one row per class of the view, (C_k, r_e)."""
        self._means -= self.delta * (self.xp.cached_table(self.tables[k]) @ h)  # (E8)

    def sums(self) -> ViewSums:
        """Return the sums of the means that the M step needs."""
        return sums_of_rows(self.F, self.n, self._means)

    def means(self) -> AnyArray:
        """Return the posterior means of the leaf's classes, (C_e, r_e)."""
        return self._means


class LeafGrams:
    """Means of the leaf's classes as `LeafRows`, from one Gram matrix per distinct number of vectors of a class."""

    def __init__(self, design: Design, delta: AnyArray, LB: AnyArray, mean_LB: AnyArray) -> None:
        self.design = design
        self.delta = delta[:, None, :]
        self.D = len(LB)
        self.Q, self.columns = design.per_count_grams
        self.xp = design.sums.xp
        self.U = self.xp.zeros((self.Q.shape[1], LB.shape[1]))
        self.U[: self.D] = LB
        self.U[self.D] = -mean_LB
        # Q U is [F Z; n Z; N Z] before delta, per count (5.2): its rows are those of A', and so of these sums.
        self.QU = self.Q[:, :, : self.D + 1] @ self.U[: self.D + 1]  # (counts, width, r_e)

    def sums_within(self, k: int) -> AnyArray:
        """Return the sum of the leaf's means over the vectors of every class of view k, (C_k, r_e)."""
        return (self.QU[:, self.columns[k]] * self.delta).sum(axis=0)

    def subtract(self, k: int, h: AnyArray) -> None:
        """Subtract the contribution of view k from the means; h has one row per class of the view, (C_k, r_e)."""
        self.U[self.columns[k]] = -h
        self.QU -= self.Q[:, :, self.columns[k]] @ h

    def sums(self) -> ViewSums:
        """Return the sums of the means that the M step needs."""
        values = self.xp.cached(self.design.leaf_counts[0])
        by_count = self.QU[:, : self.D + 1] * self.delta
        summed = by_count.sum(axis=0)  # sum of f_t z_t', and below it that of n_t z_t'
        squares = self.delta.mT * (self.U.T @ self.QU) * self.delta
        return ViewSums(
            summed[: self.D],
            summed[self.D],
            self.xp.tensordot(values, squares, axes=1),
            (1.0 / values) @ by_count[:, self.D],  # sum of z_t: that of n_t z_t over the count
            squares.sum(axis=0),
        )

    def means(self) -> AnyArray:
        """Return the posterior means of the leaf's classes, (C_e, r_e)."""
        rows = LeafRows(self.design, self.delta[:, 0], self.U[: self.D], -self.U[self.D])
        for k, columns in self.columns.items():
            rows.subtract(k, -self.U[columns])
        return rows.means()
