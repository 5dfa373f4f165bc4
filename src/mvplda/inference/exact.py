"""Block elimination of the posterior precision of all latents.

The precision and right-hand side are (docs/math.md, section 3)::

    Lambda[(k,c),(l,d)] = [k=l, c=d] I + N_kl(c,d) G_kl        G_kl = B_k' Sigma^-1 B_l

with G_ee diagonal for the leaf e (canonical parameters). Leaf e, root a and rest as planned in ``design``. C is the
number of distinct leaf counts, R the number of latents in the rest. Nothing of the size of Lambda is ever made, and
there is no Python loop over classes.

Here and in docs/math.md, sections 4 and 5::

    delta   delta_nu, a row a leaf count nu       leaf_counts      nu, the count of every class, m_nu
    M, V    the rest's Schur complement, M^-1     grams[l, m]      Gamma_nu(j, j'), a row a count
    S       sum over vectors of Cov(z)            phi              Phi_nu, a matrix a count
    l, m    views of the rest, of J and K classes, ranks r and q
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
from scipy import sparse

from .._typing import AnyArray
from .design import FILLED, Design
from .root import Root, side_by_side

CHUNK_ELEMENTS = 2**22


class Elimination:
    """The factored precision: leaf, then root, then one dense Cholesky of the rest (docs/math.md, section 4).

    G : (r, r) all G_kl; where : the slice of every view in it
    delta : (C, r_e) inverse of a leaf class's block, for every distinct count
    log_determinant : log |Lambda|
    columns : of every view but the leaf, its columns in s_t, all that leaf class t meets (docs/math.md, 5.4)
    rest_slice : of every rest view, its latents among the n_rest of all of them
    """

    def __init__(self, design: Design, G: AnyArray, where: tuple[slice, ...]) -> None:
        self.design = design
        self.sums = design.sums
        self.plan = design.plan
        self.xp = design.sums.xp
        self.G = G
        self.where = where
        self.ranks = tuple(s.stop - s.start for s in where)
        self.others = [] if self.plan.root is None else [self.plan.root]
        self.others += self.plan.rest
        self.columns = side_by_side({k: self.ranks[k] for k in self.others})
        self.width = sum(self.ranks[k] for k in self.others)
        sizes = {l: len(self.sums.counts[l]) * self.ranks[l] for l in self.plan.rest}
        self.rest_slice = side_by_side(sizes)
        self.n_rest = sum(sizes.values())
        self.rest_pairs = list(combinations_with_replacement(self.plan.rest, 2))
        xp = self.xp
        lam = self._g(self.plan.leaf, self.plan.leaf).diagonal().clip(min=0.0)  # (E3)
        loads = xp.outer(xp.cached(design.leaf_counts[0]), lam)
        self.delta = 1.0 / (1.0 + loads)  # (E4)
        self.log_determinant = float(xp.cached(design.leaf_counts[2]) @ xp.log1p(loads).sum(axis=1))
        # With one number per class tables of counts are not needed; with more they are quicker (docs/tried.md).
        self._by_products = design.many_cells and self.width == self.delta.shape[1] == 1
        self._products: list[tuple[int, AnyArray]] = []
        # Every view eliminated leaves a Schur complement for the next, and adds its log-determinant: leaf, root, rest.
        M = self._rest_after_leaf()
        self.root = self._root()
        if self.root is not None:
            self.log_determinant += self.root.log_determinant
            self.root.take_off({(l, m): self._rest_block(M, l, m) for l, m in self.rest_pairs})
        for l, m in self.rest_pairs:
            if l != m:
                above = M[self.rest_slice[l], self.rest_slice[m]]
                M[self.rest_slice[m], self.rest_slice[l]] = above.T
        self._lower = M
        if self.n_rest:
            self._lower = xp.cholesky(M, overwrite=True)
            self.log_determinant += 2 * float(xp.log(self._lower.diagonal()).sum())

    @cached_property
    def V(self) -> AnyArray:
        """(R, R) covariance of all latents of the rest, where its factor was: to be asked for after `solve`."""
        if not self.n_rest:
            return self._lower
        lower = self._lower
        del self._lower
        return self.xp.inverse(lower, overwrite=True)

    def _g(self, k: int, l: int) -> Any:
        """G_kl, an array of the kind of G."""
        return self.G[self.where[k], self.where[l]]

    def solve(self, leaf: LeafRows | LeafGrams, b: dict[int, AnyArray]) -> dict[int, AnyArray]:
        """Lambda^-1 b: the posterior means of all views but the leaf, (C_k, r_k); the leaf's are left in `leaf`."""
        xp = self.xp
        e = self.plan.leaf
        root = self.root
        means: dict[int, AnyArray] = {}
        # Forward: the right-hand side less what the leaf and then the root take off. Backward: rest, root, leaf.
        reduced = {k: b_k - leaf.met(k) @ self._g(e, k) for k, b_k in b.items()}
        if root is not None:
            for l, taken in root.taken_sums(reduced[root.view]).items():
                reduced[l] -= taken
        if self.n_rest:
            right = xp.concatenate([reduced[l].reshape(-1) for l in self.plan.rest])
            solved = xp.cho_solve(self._lower, right)
            for l, own in self.rest_slice.items():
                means[l] = solved[own].reshape(-1, self.ranks[l])
        if root is not None:
            means[root.view] = root.means(reduced[root.view], means)
        for k, mean in means.items():
            leaf.less(k, mean @ self._g(e, k).T)  # (E8)
        return means

    def _add_leaf_sums(self, S: AnyArray, by_class: list[AnyArray], phi: AnyArray) -> None:
        """The leaf's covariances with itself and with all others, from phi_nu = sum of Cov(s_t) over its classes.

        nu runs over the C distinct counts of leaf classes; phi is (C, w, w).
        """
        xp = self.xp
        where = self.where
        e = self.plan.leaf
        nu = xp.cached(self.design.leaf_counts[0])
        size = xp.cached(self.design.leaf_counts[2])
        S[where[e], where[e]] = xp.diag((size * nu) @ self.delta)
        by_class[e] = xp.diag(size @ self.delta)
        if not self.others:
            return
        n = nu[:, None, None]
        delta = self.delta[:, :, None]
        # X_nu = [nu G_ea, G_el ...]: a leaf class meets its root class in all its nu vectors, and the classes of
        # the rest as often as s_t says already.
        times = dict.fromkeys(self.others, xp.ones_like(n))
        if self.plan.root is not None:
            times[self.plan.root] = n
        X = xp.concatenate([times[k] * self._g(e, k) for k in self.others], axis=2)  # (C, r_e, w)
        # Given all else, z_t = delta (b_t - X s_t) + noise of covariance delta: what s_t varies by, z_t does too (5.4).
        Y = delta * (X @ phi)  # minus the sum of Cov(z_t, s_t) over leaf classes of a count
        for k in self.others:
            cross = (times[k] * Y[:, :, self.columns[k]]).sum(axis=0)
            set_both(S, where[e], where[k], -cross)  # (E11)
        over_counts = ((0, 2), (0, 2))
        S[where[e], where[e]] += xp.tensordot(n * Y, delta * X, axes=over_counts)  # (E10)
        by_class[e] += xp.tensordot(Y, delta * X, axes=over_counts)

    def _rest_block(self, matrix: AnyArray, l: int, m: int) -> AnyArray:
        """Rest views l and m of a rest matrix, as a writable (J_l, r_l, J_m, r_m)."""
        part = matrix[self.rest_slice[l], self.rest_slice[m]]
        return self.xp.split_axes(part, self.ranks[l], self.ranks[m])

    def _diagonal_blocks(self, l: int) -> AnyArray:
        """(J, r, r): the covariance of every class of a rest view."""
        block = self._rest_block(self.V, l, l)
        every = self.xp.arange(block.shape[0])
        return block[every, :, every, :]

    def _rest_after_leaf(self) -> AnyArray:
        """(R, R): the rest's own precision, less what eliminating the leaf takes away; views l <= m."""
        xp = self.xp
        M = xp.zeros((self.n_rest, self.n_rest))
        r_e = self.delta.shape[1]
        for l, m in self.rest_pairs:
            block = self._rest_block(M, l, m)
            J, r, K, q = block.shape
            if l == m:
                every = xp.arange(J)
                own = xp.cached(self.sums.counts[l])[:, None, None] * self._g(l, l)
                block[every, :, every, :] = xp.eye(r) + own  # (E1)
            else:
                met = xp.asarray(self.sums.together(l, m).toarray())
                block += met[:, None, :, None] * self._g(l, m)[None, :, None, :]
            if self._by_products:
                continue
            # What the leaf takes away, for all pairs (j, j') at once: row (j, j') of Gamma' delta weighs the r_e
            # products G_el(p, x) G_em(p, y). Of the two orders of multiplication the cheaper one.
            left = self._g(self.plan.leaf, l)[:, :, None]
            products = (left * self._g(self.plan.leaf, m)[:, None, :]).reshape(r_e, -1)
            few_counts = len(self.delta) < r_e
            step = max(1, CHUNK_ELEMENTS // (K * max(r_e, r * q)))
            for j in range(0, J, step):
                gram = xp.cached_columns(self.design.grams[l, m], slice(j * K, (j + step) * K))
                # (E5)
                first = gram.T if few_counts else gram.T @ self.delta
                taken = first @ (self.delta @ products if few_counts else products)
                block[j : j + step] -= xp.permute(taken.reshape(-1, K, r, q), (0, 2, 1, 3))
        if self._by_products:
            self._take_products(M)
        return M

    def _take_products(self, M: AnyArray) -> None:
        """(E5) where leaf and rest have one number per class, on and above the diagonal: by products of sparse tables.

        n_t is the row of leaf class t in the table of the rest. The products are of sum_t delta_t n_t n_t', which is
        taken off, and in the imaginary part of sum_t nu_t delta_t^2 n_t n_t', which has the same filled cells and which
        the covariances need. A sixteenth of the rows at a time leaves out most of what is below the diagonal.
        """
        table = self.design.leaf_tables[self.plan.rest[0]]
        nu, group, _ = self.design.leaf_counts
        delta = self.delta[:, 0]
        weighted = sparse.csr_array(table.T * (delta * (1 + 1j * nu * delta))[group])
        square = self._g(self.plan.leaf, self.plan.rest[0]).item() ** 2
        step = -(-len(M) // 16)
        for start in range(0, len(M), step):
            block = (weighted[start : start + step] @ table[:, start:]).toarray()
            M[start : start + step, start:] -= square * block.real
            self._products.append((start, block))

    def _phi_of_products(self) -> AnyArray:
        """(C,) some Phi_nu with the right sums over counts, of delta Phi and of nu delta^2 Phi.

        (E10) and (E11) are these sums and that of delta^2 Phi = delta Phi - lambda nu delta^2 Phi, so that any such
        Phi does; of the Phi_nu themselves the products tell nothing.
        """
        total = 0j
        for start, block in self._products:
            side = len(block)
            V = self.V[start : start + side, start:]
            # right of the square on the diagonal every entry stands for two
            total += np.einsum("ij,ij->", block[:, :side], V[:, :side])
            total += 2 * np.einsum("ij,ij->", block[:, side:], V[:, side:])
        delta = self.delta[:, 0]
        sums = np.stack([delta, self.design.leaf_counts[0] * delta**2])
        return np.linalg.lstsq(sums, [total.real, total.imag])[0]

    def _root(self) -> Root | None:
        """The root, from what a vector in a leaf class of every distinct count adds to its root class."""
        e = self.plan.leaf
        a = self.plan.root
        if a is None:
            return None
        counts = self.xp.cached(self.design.leaf_counts[0])
        H = self._g(e, a)
        weighted = (counts[:, None] * self.delta)[:, :, None]  # (C, r_e, 1)
        own = self._g(a, a) - H.T @ (weighted * H)  # (E6), (C, r_a, r_a)
        rest = {l: self._g(a, l) - H.T @ (weighted * self._g(e, l)) for l in self.plan.rest}
        chunk = min(CHUNK_ELEMENTS, self.xp.block_elements)
        return Root(a, self.design.root_tables, self.xp, counts, own, rest, chunk)

    def covariance_sums(self) -> tuple[AnyArray, tuple[AnyArray, ...]]:
        """Sum over vectors of Cov(z), (r, r); and per view the sum over classes of Cov(z_kc) (docs/math.md, 5.5)."""
        where = self.where
        columns = self.columns
        xp = self.xp
        S = xp.zeros_like(self.G)
        by_class: list[AnyArray] = [xp.zeros((r, r)) for r in self.ranks]
        phi = xp.zeros((len(self.delta), self.width, self.width))
        flat = {}  # blocks of V, (J K, r q)
        for l, m in self.rest_pairs:
            V = self._rest_block(self.V, l, m)
            J, r, K, q = V.shape
            if l == m:
                # different classes of one view share no vector: only V's diagonal blocks count
                own = self._diagonal_blocks(l)
                total = xp.tensordot(xp.cached(self.sums.counts[l]), own, axes=1)
                by_class[l] = own.sum(axis=0)
            else:
                met = self.sums.together(l, m).tocoo()
                pairs = V[xp.asarray(met.row), :, xp.asarray(met.col), :]
                total = xp.tensordot(xp.asarray(met.data), pairs, axes=1)
            set_both(S, where[l], where[m], total)
            if self._by_products:
                continue
            flat[l, m] = xp.permute(V, (0, 2, 1, 3)).reshape(J * K, r * q)
            # phi_nu of two rest views: the blocks of V, weighted by the Gram table of the count.
            gram = xp.cached_columns(self.design.grams[l, m], slice(0, J * K))
            set_both(phi, columns[l], columns[m], (gram @ flat[l, m]).reshape(-1, r, q))
        if self._by_products:
            phi[:, 0, 0] = self._phi_of_products()
        if self.root is not None:
            a = self.root.view
            over_vectors, by_class[a], by_count, with_rest = self.root.covariance_sums(flat)
            S[where[a], where[a]] = over_vectors
            phi[:, columns[a], columns[a]] = by_count
            for l, together in with_rest.items():
                set_both(phi, columns[a], columns[l], together)
                # Every vector is in one leaf class, so that the sum over counts is the sum over vectors.
                set_both(S, where[a], where[l], together.sum(axis=0))
        self._add_leaf_sums(S, by_class, phi)
        return S, tuple(by_class)

    def covariances(self, view: int) -> AnyArray:
        """Cov(z_kc) of every class of a view, (C_k, r_k, r_k)."""
        if view in self.plan.rest:
            return self._diagonal_blocks(view)
        if self.root is not None and view == self.root.view:
            return self._root_covariances(self.root)
        return self._leaf_covariances()

    def _root_covariances(self, root: Root) -> AnyArray:
        """(I, r_a, r_a), of every root class."""
        xp = self.xp
        n_patterns = len(root.tables.size)
        step = max(1, CHUNK_ELEMENTS // (root.rank * max(self.n_rest, root.rank)))
        made = []
        for start in range(0, n_patterns, step):
            some = np.arange(start, min(start + step, n_patterns))
            inverse, solved = root.couplings(some)
            made.append(inverse + solved @ self.V @ solved.mT)
        return xp.concatenate(made)[xp.cached(root.tables.pattern)]

    def _leaf_covariances(self) -> AnyArray:
        e = self.plan.leaf
        tables = self.design.leaf_tables
        xp = self.xp
        values, group, _ = self.design.leaf_counts
        r_e = self.ranks[e]
        n_leaves = len(group)
        # several arrays of so many numbers per class at once
        step = max(1, CHUNK_ELEMENTS // (8 * max(self.ranks) * max(self.n_rest, r_e)))
        root = self.root
        if root is not None:
            pattern = root.tables.pattern[tables[root.view].indices]
        every = xp.arange(r_e)
        made = []
        for start in range(0, n_leaves, step):
            part = slice(start, min(start + step, n_leaves))
            T = part.stop - start
            YV = xp.zeros((T, r_e, self.n_rest))  # Y_t V, where Y_t has the blocks n_tj G_el (5.4)
            counts = {}
            for l in self.plan.rest:
                rows = self.V[self.rest_slice[l]].reshape(tables[l].shape[1], -1)  # (J, r_l R)
                some = tables[l][part]
                counts[l] = xp.asarray(some.toarray())
                sparsely = some.nnz < FILLED * some.shape[0] * some.shape[1]
                # classes that were met, before G_el
                summed = (xp.table(some) if sparsely else counts[l]) @ rows
                YV += self._g(e, l) @ summed.reshape(T, self.ranks[l], self.n_rest)
            met = xp.zeros((T, r_e, r_e))  # X Cov(s_t) X': Y_t V Y_t', then the root's three terms
            for l in self.plan.rest:
                wide = YV[:, :, self.rest_slice[l]].reshape(T, r_e, -1, self.ranks[l])
                met += xp.einsum("tpjr,tj->tpr", wide, counts[l]) @ self._g(e, l).T
            if root is not None:
                patterns, own_pattern = np.unique(pattern[part], return_inverse=True)
                inverse, solved = root.couplings(patterns)
                covariance = inverse + solved @ self.V @ solved.mT
                which = xp.asarray(own_pattern)
                n = xp.asarray(values[group[part]])
                H = n[:, None, None] * self._g(e, root.view)
                cross = H @ solved[which] @ YV.mT
                met += H @ covariance[which] @ H.mT - cross - cross.mT
            delta = self.delta[xp.asarray(group[part])]
            met *= delta[:, :, None] * delta[:, None, :]
            met[:, every, every] += delta
            made.append(met)
        return xp.concatenate(made)


def set_both(matrix: AnyArray, rows: slice, columns: slice, block: AnyArray) -> None:
    """A block of a symmetric matrix, or of a stack of them, and the block across the diagonal."""
    matrix[..., rows, columns] = block
    matrix[..., columns, rows] = block.mT


# Posterior means of the leaf's classes, and the sums over classes that the M step needs.
#
# The mean of leaf class c is linear in what is known of the class (docs/math.md, section 5)::
#
#     m_c = delta(n_c) * (a_c U)      a_c = [f_c  n_c  t_c]      U = [LB; -mean' LB; -h]
#
# where f_c is its sum of vectors, n_c its count, t_c its counts in the classes of the other views, and h = m_k G_ek'
# once their means m_k are known. `LeafRows` keeps a row a class. Where many classes share few counts, `LeafGrams`
# keeps only the Gram matrix A_n' A_n of all classes of count n: every sum over classes follows from it, and an
# iteration no longer depends on the number of classes.


@dataclass(frozen=True)
class ViewSums:
    """Sums of posterior means m_c of one view.

    xz : (D, r) sum over vectors of x m'
    z, zz : (r,), (r, r) sum over vectors of m and of m m'
    class_z, class_zz : the same over classes
    """

    xz: AnyArray
    z: AnyArray
    zz: AnyArray
    class_z: AnyArray
    class_zz: AnyArray


def sums_of_rows(F: AnyArray, n: AnyArray, means: AnyArray) -> ViewSums:
    """The sums of a view whose means are at hand."""
    weighted = n[:, None] * means
    return ViewSums(
        F.T @ means, weighted.sum(axis=0), weighted.T @ means, means.sum(axis=0), means.T @ means
    )


class LeafRows:
    """Means of the leaf's classes, a row per class: first given the data alone, then less what other views explain.

    To begin with they are delta(n_c) * (f_c' LB - n_c mean' LB).
    """

    def __init__(self, design: Design, delta: AnyArray, LB: AnyArray, at_mean: AnyArray) -> None:
        xp = design.sums.xp
        self.xp = xp
        self.tables = design.leaf_tables
        self.F = design.sums.sums[design.plan.leaf]
        self.n = xp.cached(design.sums.counts[design.plan.leaf])
        self.delta = delta[xp.cached(design.leaf_counts[1])]
        self._means = self.F @ LB
        self._means -= xp.outer(self.n, at_mean)  # (E2)
        self._means *= self.delta

    def met(self, k: int) -> AnyArray:
        """(C_k, r_e): sum over vectors of every class of view k of the leaf's mean."""
        return self.xp.cached_table(self.tables[k]).T @ self._means

    def less(self, k: int, h: AnyArray) -> None:
        """Take off what view k explains, h (C_k, r_e)."""
        self._means -= self.delta * (self.xp.cached_table(self.tables[k]) @ h)  # (E8)

    def sums(self) -> ViewSums:
        return sums_of_rows(self.F, self.n, self._means)

    def means(self) -> AnyArray:
        return self._means


class LeafGrams:
    """The same as `LeafRows`, from a Gram matrix for every distinct count."""

    def __init__(self, design: Design, delta: AnyArray, LB: AnyArray, at_mean: AnyArray) -> None:
        self.design = design
        self.delta = delta[:, None, :]
        self.D = len(LB)
        self.Q, self.columns = design.per_count_grams
        self.xp = design.sums.xp
        self.U = self.xp.zeros((self.Q.shape[1], LB.shape[1]))
        self.U[: self.D] = LB
        self.U[self.D] = -at_mean
        self.QU = self.Q[:, :, : self.D + 1] @ self.U[: self.D + 1]  # (counts, width, r_e)

    # Q U is [F Z; n Z; N Z] before delta, by count (5.2): rows of Q belong to columns of A, and so to these sums.

    def met(self, k: int) -> AnyArray:
        return (self.QU[:, self.columns[k]] * self.delta).sum(axis=0)

    def less(self, k: int, h: AnyArray) -> None:
        self.U[self.columns[k]] = -h
        self.QU -= self.Q[:, :, self.columns[k]] @ h

    def sums(self) -> ViewSums:
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
        rows = LeafRows(self.design, self.delta[:, 0], self.U[: self.D], -self.U[self.D])
        for k, columns in self.columns.items():
            rows.less(k, -self.U[columns])
        return rows.means()
