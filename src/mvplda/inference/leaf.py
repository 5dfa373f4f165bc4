"""Posterior means of the leaf view, and their sums: a row per class, or Gram matrices per size of the classes.

The leaf is the view that is eliminated first (see ``design``). Symbols are those of ``exact`` and
of docs/math.md, sections 4 and 5.
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from dataclasses import dataclass

from .._typing import AnyArray
from .design import Design

# The posterior mean of leaf class c is linear in the data of the class (docs/math.md, section 5):
#
#     m_c = delta(n_c) * (a_c U)      a_c = [f_c  n_c  t_c]      U = [LB; -mean' LB; -h]
#
# f_c is the sum of the class's vectors, n_c their number, t_c the numbers shared with the classes of the other views,
# and h = m_k G_ek' with the means m_k of these views. `LeafRows` holds a row per class. If many classes share few
# sizes, `LeafGrams` holds only the Gram matrix A_n' A_n of all classes of size n: every sum over classes follows from
# it, and the cost of an iteration does not depend on the number of classes.


@dataclass(frozen=True)
class ViewSums:
    """Sums of the posterior means of one view's latents, as the M step needs them.

    D is the dimension and r the rank of the view; m is the posterior mean (r,) of the class of a
    vector x.

    xz : (D, r) sum over vectors of x m'
    z : (r,) sum over vectors of m
    zz : (r, r) sum over vectors of m m'
    class_z : (r,) sum over classes of m
    class_zz : (r, r) sum over classes of m m'
    """

    xz: AnyArray
    z: AnyArray
    zz: AnyArray
    class_z: AnyArray
    class_zz: AnyArray


def sums_of_rows(F: AnyArray, n: AnyArray, means: AnyArray) -> ViewSums:
    """Return the sums of a view's posterior means from arrays with one row per class.

    F : (C, D) sum of the vectors of each of C classes
    n : (C,) number of vectors of each class
    means : (C, r) posterior mean of each class
    """
    weighted = n[:, None] * means
    return ViewSums(
        F.T @ means, weighted.sum(axis=0), weighted.T @ means, means.sum(axis=0), means.T @ means
    )


class LeafRows:
    """Posterior means of the leaf's classes, stored as one row per class.

    The leaf is the view that is eliminated first. Class c has n_c vectors with the sum f_c (D,).
    At construction its mean is delta(n_c) * (f_c' LB - n_c mean' LB), as if the latents of all
    other views were 0. `subtract` then removes the contribution of one other view.

    design : design of the data
    delta : (distinct sizes of classes, r_e) posterior variances of the leaf's r_e latents, given
        the other views
    LB : (D, r_e) Sigma^-1 times the loading of the leaf
    mean_LB : (r_e,) mean' LB
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
        """Return the leaf's means, summed over the vectors of each class of view k.

        The leaf is the view that is eliminated first.

        return : (classes of k, rank of the leaf)
        """
        return self.xp.cached_table(self.tables[k]).T @ self._means

    def subtract(self, k: int, h: AnyArray) -> None:
        """Subtract the contribution of view k from the leaf's means, in place.

        The leaf e is the view that is eliminated first.

        h : (classes of k, rank of the leaf) posterior means of view k, times B_k' Sigma^-1 B_e with
            B_k and B_e the loadings of both views
        """
        self._means -= self.delta * (self.xp.cached_table(self.tables[k]) @ h)  # (E8)

    def sums(self) -> ViewSums:
        """Return the sums of the leaf's means that the M step needs.

        The leaf is the view that is eliminated first.
        """
        return sums_of_rows(self.F, self.n, self._means)

    def means(self) -> AnyArray:
        """Return the posterior means of the leaf's classes, (leaf classes, rank of the leaf).

        The leaf is the view that is eliminated first.
        """
        return self._means


class LeafGrams:
    """Posterior means of the leaf's classes, stored as one Gram matrix per size of the classes.

    Methods and results are those of `LeafRows`. The leaf is the view that is eliminated first; the
    size of a class is its number of vectors. The mean of leaf class t is delta * (a_t U), with a_t
    its row of the matrix A of `Design.per_count_grams`, and a matrix U (columns of A, r_e) that all
    classes share. Sums over classes are computed from A'A, so that the cost does not depend on the
    number of classes.

    The parameters are those of `LeafRows`.
    """

    def __init__(self, design: Design, delta: AnyArray, LB: AnyArray, mean_LB: AnyArray) -> None:
        self.design = design
        self.delta = delta[:, None, :]
        self.D = len(LB)
        self.Q, self.columns = design.per_count_grams
        self.xp = design.sums.xp
        self.U = self.xp.zeros((self.Q.shape[1], LB.shape[1]))
        self.U[: self.D] = LB
        self.U[self.D] = -mean_LB
        # Q U = A' (A U), one matrix per count (5.2): sums over classes of [f; n; shared counts] times means / delta.
        self.QU = self.Q[:, :, : self.D + 1] @ self.U[: self.D + 1]  # (counts, width, r_e)

    def sums_within(self, k: int) -> AnyArray:
        """Return the leaf's means, summed over the vectors of each class of view k.

        The leaf is the view that is eliminated first.

        return : (classes of k, rank of the leaf)
        """
        return (self.QU[:, self.columns[k]] * self.delta).sum(axis=0)

    def subtract(self, k: int, h: AnyArray) -> None:
        """Subtract the contribution of view k from the leaf's means, in place.

        The leaf e is the view that is eliminated first.

        h : (classes of k, rank of the leaf) posterior means of view k, times B_k' Sigma^-1 B_e with
            B_k and B_e the loadings of both views
        """
        self.U[self.columns[k]] = -h
        self.QU -= self.Q[:, :, self.columns[k]] @ h

    def sums(self) -> ViewSums:
        """Return the sums of the leaf's means that the M step needs.

        The leaf is the view that is eliminated first.
        """
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
        """Return the posterior means of the leaf's classes, (leaf classes, rank of the leaf).

        The leaf is the view that is eliminated first.
        """
        rows = LeafRows(self.design, self.delta[:, 0], self.U[: self.D], -self.U[self.D])
        for k, columns in self.columns.items():
            rows.subtract(k, -self.U[columns])
        return rows.means()
