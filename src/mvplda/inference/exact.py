"""Block elimination of the posterior precision of all latents.

View k has the loading B_k (D, r_k) and one latent vector (r_k,) per class. N_kl(c, d) is the number
of vectors that class c of view k and class d of view l share (for k = l: the size of class c = d,
else 0). With noise covariance Sigma, the precision matrix Lambda of all latents has the blocks
(docs/math.md, section 3)::

    Lambda[(k,c),(l,d)] = [k=l, c=d] I + N_kl(c,d) G_kl        G_kl = B_k' Sigma^-1 B_l

``design`` plans the order of elimination: first the leaf view e, then the root view a (if any),
last the rest, all other views together. G_ee is diagonal, because the parameters are canonical. No
array has the size of Lambda, and no Python loop runs over classes.

Symbols here and in docs/math.md, sections 4 and 5::

    C              number of distinct sizes of leaf classes
    R              number of latents in the rest
    nu             one of the C sizes: a number of vectors
    delta_nu       (r_e,) inverse of the diagonal block of a leaf class of size nu
    M, V           (R, R) precision of the rest after elimination (Schur complement), and V = M^-1
    grams[l, m]    sums of products of shared counts, a row per size nu (`Design.grams`)
    phi_nu         sum over leaf classes of size nu of the covariance of the later latents that
                   share vectors with them
    S              (r, r) sum over vectors of the covariance of their latents
    l, m           views of the rest, of J and K classes, ranks r and q
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from functools import cached_property
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
from scipy import sparse

from .._typing import AnyArray, IntArray
from .design import FILLED, Design
from .leaf import LeafGrams, LeafRows
from .root import Root, side_by_side

CHUNK_ELEMENTS = 2**22
"""Approximate number of elements of a temporary array; longer computations run in steps of about this size."""


class Elimination:
    """Factored posterior precision: leaf, then root, then one dense Cholesky factor of the rest.

    Views are eliminated in this order: the leaf, the root, the rest together. Symbols are those of
    the module; docs/math.md, section 4, has the formulas.

    Parameters
    ----------
    design : design of the data
    G : (r, r) all blocks G_kl = B_k' Sigma^-1 B_l, for canonical loadings B_k
    slices : position of each view's latents in G

    Attributes
    ----------
    delta : (C, r_e) inverse of a leaf class's diagonal block, per distinct size of leaf classes
    log_determinant : log-determinant of the posterior precision
    later_views : root and rest, the views eliminated after the leaf
    width : number of latents of one vector in all later views (sum of their ranks)
    columns : {later view: position of its latents among these `width`}
    rest_slice : {rest view: position of its latents among the `n_rest` latents of the rest}
    """

    def __init__(self, design: Design, G: AnyArray, slices: tuple[slice, ...]) -> None:
        self.design = design
        self.sums = design.sums
        self.plan = design.plan
        self.xp = design.sums.xp
        self.G = G
        self.slices = slices
        self.ranks = tuple(s.stop - s.start for s in slices)

        self.later_views = [] if self.plan.root is None else [self.plan.root]
        self.later_views += self.plan.rest
        self.columns = side_by_side({k: self.ranks[k] for k in self.later_views})
        self.width = sum(self.ranks[k] for k in self.later_views)
        sizes = {l: len(self.sums.counts[l]) * self.ranks[l] for l in self.plan.rest}
        self.rest_slice = side_by_side(sizes)
        self.n_rest = sum(sizes.values())
        self.rest_pairs = list(combinations_with_replacement(self.plan.rest, 2))

        xp = self.xp
        lam = self._g(self.plan.leaf, self.plan.leaf).diagonal().clip(min=0.0)  # (E3)
        loads = xp.outer(xp.cached(design.leaf_counts[0]), lam)
        self.delta = 1.0 / (1.0 + loads)  # (E4)
        self.log_determinant = float(xp.cached(design.leaf_counts[2]) @ xp.log1p(loads).sum(axis=1))
        # If every class has a single latent, `Design.grams` may be avoided: for many cells sparse products are
        # faster (results/tried).
        self._by_products = design.many_cells and self.width == self.delta.shape[1] == 1
        self._products: list[tuple[int, AnyArray]] = []
        self._factor()

    def _factor(self) -> None:
        """Eliminate leaf, root and rest.

        Views are eliminated in this order: the leaf, the root, the rest together. Each eliminated
        view changes the precision of the remaining views (Schur complement), and adds to the
        log-determinant.
        """
        xp = self.xp
        M = self._rest_after_leaf()
        self.root = self._root()
        if self.root is not None:
            self.log_determinant += self.root.log_determinant
            self.root.subtract_from_rest(
                {(l, m): self._rest_block(M, l, m) for l, m in self.rest_pairs}
            )
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
        """Posterior covariance of the latents of the rest views, (n_rest, n_rest).

        The rest are the views that are solved last, together. The result overwrites the Cholesky
        factor, which `solve` needs: call `solve` first.
        """
        if not self.n_rest:
            return self._lower
        lower = self._lower
        # The inverse takes the memory of the factor, to hold one matrix of this size fewer.
        del self._lower
        return self.xp.inverse(lower, overwrite=True)

    def _g(self, k: int, l: int) -> Any:
        """Return the block G_kl = B_k' Sigma^-1 B_l of G, (rank of k, rank of l)."""
        return self.G[self.slices[k], self.slices[l]]

    def solve(self, leaf: LeafRows | LeafGrams, b: dict[int, AnyArray]) -> dict[int, AnyArray]:
        """Compute the posterior means of all latents.

        The leaf is the view that is eliminated first.

        Parameters
        ----------
        leaf : means of the leaf's latents if those of all other views were 0; changed in place to
            the posterior means
        b : {view: (classes, rank) right-hand side} of every view except the leaf

        Returns
        -------
        dict of {view: (classes, rank) posterior means} of every view except the leaf
        """
        xp = self.xp
        e = self.plan.leaf
        root = self.root
        means: dict[int, AnyArray] = {}

        # Forward: subtract the contributions of the leaf, then of the root, from the right-hand side.
        reduced = {k: b_k - leaf.sums_within(k) @ self._g(e, k) for k, b_k in b.items()}
        if root is not None:
            for l, root_sums in root.rest_sums(reduced[root.view]).items():
                reduced[l] -= root_sums

        # Backward: rest, root, leaf.
        if self.n_rest:
            right = xp.concatenate([reduced[l].reshape(-1) for l in self.plan.rest])
            solved = xp.cho_solve(self._lower, right)
            for l, latents in self.rest_slice.items():
                means[l] = solved[latents].reshape(-1, self.ranks[l])
        if root is not None:
            means[root.view] = root.means(reduced[root.view], means)
        for k, mean in means.items():
            leaf.subtract(k, mean @ self._g(e, k).T)  # (E8)
        return means

    # Blocks of the rest.

    def _rest_block(self, matrix: AnyArray, l: int, m: int) -> AnyArray:
        """Return the block of rest views l and m of an (n_rest, n_rest) matrix as a writable 4-D view.

        The rest are the views that are solved last, together.

        return : (classes of l, rank of l, classes of m, rank of m)
        """
        block = matrix[self.rest_slice[l], self.rest_slice[m]]
        return self.xp.split_axes(block, self.ranks[l], self.ranks[m])

    def _diagonal_blocks(self, l: int) -> AnyArray:
        """Return the posterior covariance of every class of rest view l, (classes, rank, rank).

        The rest are the views that are solved last, together.
        """
        block = self._rest_block(self.V, l, l)
        class_numbers = self.xp.arange(block.shape[0])
        return block[class_numbers, :, class_numbers, :]

    def _rest_after_leaf(self) -> AnyArray:
        """Return the precision of the rest after elimination of the leaf, (n_rest, n_rest).

        The leaf is the view eliminated first; the rest are the views solved last, together. Blocks
        below the diagonal, of views l > m, are 0.
        """
        M = self.xp.zeros((self.n_rest, self.n_rest))
        for l, m in self.rest_pairs:
            block = self._rest_block(M, l, m)
            self._add_precision(block, l, m)
            if not self._by_products:
                self._subtract_leaf(block, l, m)
        if self._by_products:
            self._subtract_leaf_by_products(M)
        return M

    def _add_precision(self, block: AnyArray, l: int, m: int) -> None:
        """Add the precision of rest views l and m before any elimination to a block, in place.

        The rest are the views that are solved last, together.

        block : (classes of l, rank of l, classes of m, rank of m)
        """
        xp = self.xp
        if l == m:
            class_numbers = xp.arange(block.shape[0])
            data_precision = xp.cached(self.sums.counts[l])[:, None, None] * self._g(l, l)
            identity = xp.eye(block.shape[1])
            block[class_numbers, :, class_numbers, :] = identity + data_precision  # (E1)
        else:
            cooccurrence = xp.asarray(self.sums.together(l, m).toarray())
            block += cooccurrence[:, None, :, None] * self._g(l, m)[None, :, None, :]

    def _subtract_leaf(self, block: AnyArray, l: int, m: int) -> None:
        """Subtract the leaf's contribution (E5) from the block of rest views l and m, in place.

        It is computed from the tables of count products, `Design.grams`. The leaf is the view
        eliminated first; the rest are the views solved last, together.

        block : (J, r, K, q) with J and K the numbers of classes, and r and q the ranks of l and m
        """
        xp = self.xp
        J, r, K, q = block.shape
        r_e = self.delta.shape[1]
        left = self._g(self.plan.leaf, l)
        right = self._g(self.plan.leaf, m)
        # choose the cheaper order of multiplication
        few_counts = len(self.delta) < r_e
        if few_counts:
            # G_el' delta_nu G_em per count: all products would be r_e r q numbers
            products = ((left.T * self.delta[:, None, :]) @ right).reshape(-1, r * q)
        else:
            products = (left[:, :, None] * right[:, None, :]).reshape(r_e, -1)
        step = max(1, CHUNK_ELEMENTS // (K * max(r_e, r * q)))
        for j in range(0, J, step):
            gram = xp.cached_columns(self.design.grams[l, m], slice(j * K, (j + step) * K))
            weights = gram.T if few_counts else gram.T @ self.delta
            contribution = (weights @ products).reshape(-1, K, r, q)  # (E5)
            block[j : j + step] -= xp.permute(contribution, (0, 2, 1, 3))

    def _subtract_leaf_by_products(self, M: AnyArray) -> None:
        """Subtract the leaf's contribution (E5) from the precision of the rest, by sparse products.

        The leaf is the view eliminated first; the rest are the views solved last, together. This
        method requires a single rest view and ranks of 1, so that each class has one latent.

        Leaf class t has nu_t vectors; n_t holds the numbers of vectors that it shares with each
        rest class. One complex product gives two sums over t: its real part is that of delta_t n_t
        n_t', which is subtracted; its imaginary part is that of nu_t delta_t^2 n_t n_t', which is
        stored for the covariances. Most entries below the diagonal, which are not needed, are left
        out.

        M : (n_rest, n_rest) precision of the rest; changed in place
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
        """Return numbers (C,), one per size nu of leaf classes, that replace phi_nu.

        phi and delta are defined in the module. The method requires a single rest view and ranks of
        1. `_subtract_leaf_by_products` stores only two sums over the sizes: of delta phi and of nu
        delta^2 phi. (E10) and (E11) depend only on these two sums, because delta^2 phi equals delta
        phi - lambda nu delta^2 phi, with lambda = G_ee of the leaf (the view eliminated first). So
        any numbers with the same two sums give the same result.
        """
        total = 0j
        for start, block in self._products:
            side = len(block)
            V = self.V[start : start + side, start:]
            # Entries right of the diagonal square count twice: once for their mirror image below the diagonal.
            total += np.einsum("ij,ij->", block[:, :side], V[:, :side])
            total += 2 * np.einsum("ij,ij->", block[:, side:], V[:, side:])
        delta = self.delta[:, 0]
        sums = np.stack([delta, self.design.leaf_counts[0] * delta**2])
        return np.linalg.lstsq(sums, [total.real, total.imag])[0]

    def _root(self) -> Root | None:
        """Return the root view, factored; None if the design has no root.

        The leaf is the view eliminated first, the root the view eliminated second. A leaf class
        changes the precision of its root class by an amount that depends only on its size, so that
        this amount is computed once per size.
        """
        e = self.plan.leaf
        a = self.plan.root
        if a is None:
            return None
        counts = self.xp.cached(self.design.leaf_counts[0])
        H = self._g(e, a)
        weighted = (counts[:, None] * self.delta)[:, :, None]  # (C, r_e, 1)
        to_root = self._g(a, a) - H.T @ (weighted * H)  # (E6), (C, r_a, r_a)
        to_rest = {l: self._g(a, l) - H.T @ (weighted * self._g(e, l)) for l in self.plan.rest}
        chunk = min(CHUNK_ELEMENTS, self.xp.block_elements)
        return Root(a, self.design.root_tables, self.xp, counts, to_root, to_rest, chunk)

    # Covariances.

    def covariance_sums(self) -> tuple[AnyArray, tuple[AnyArray, ...]]:
        """Return sums of the posterior covariances of the latents (docs/math.md, 5.5).

        return : the sum over vectors, (r, r), for the r latents of all views side by side; and per
            view the sum over its classes, (rank, rank)
        """
        slices = self.slices
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
                # Different classes of one view share no vector: only V's diagonal blocks count.
                class_covariances = self._diagonal_blocks(l)
                total = xp.tensordot(xp.cached(self.sums.counts[l]), class_covariances, axes=1)
                by_class[l] = class_covariances.sum(axis=0)
            else:
                cells = self.sums.together(l, m).tocoo()
                cell_covariances = V[xp.asarray(cells.row), :, xp.asarray(cells.col), :]
                total = xp.tensordot(xp.asarray(cells.data), cell_covariances, axes=1)
            set_both(S, slices[l], slices[m], total)
            if self._by_products:
                continue
            flat[l, m] = xp.permute(V, (0, 2, 1, 3)).reshape(J * K, r * q)
            # phi_nu of two rest views: blocks of V, weighted by the products of counts of leaf classes of size nu
            gram = xp.cached_columns(self.design.grams[l, m], slice(0, J * K))
            set_both(phi, columns[l], columns[m], (gram @ flat[l, m]).reshape(-1, r, q))
        if self._by_products:
            phi[:, 0, 0] = self._phi_of_products()

        if self.root is not None:
            a = self.root.view
            root_sums = self.root.covariance_sums(flat)
            by_class[a] = root_sums.over_classes
            S[slices[a], slices[a]] = root_sums.over_vectors
            phi[:, columns[a], columns[a]] = root_sums.by_count
            for l, cross in root_sums.with_rest.items():
                set_both(phi, columns[a], columns[l], cross)
                # Every vector is in one leaf class, so that the sum over counts is the sum over vectors.
                set_both(S, slices[a], slices[l], cross.sum(axis=0))

        self._add_leaf_sums(S, by_class, phi)
        return S, tuple(by_class)

    def _add_leaf_sums(self, S: AnyArray, by_class: list[AnyArray], phi: AnyArray) -> None:
        """Add the posterior covariances of the leaf with itself and with all later views, in place.

        The leaf is the view that is eliminated first.

        S : (r, r) covariances summed over vectors; blocks of the leaf are filled
        by_class : per view (rank, rank) covariances summed over classes; the leaf's is filled
        phi : (C, w, w) per size of leaf classes, the sum over these classes of the covariance of
            s_t; s_t (w,) joins the latents of the later views that share vectors with leaf class t,
            weighted by the shared counts
        """
        xp = self.xp
        slices = self.slices
        e = self.plan.leaf
        nu = xp.cached(self.design.leaf_counts[0])
        size = xp.cached(self.design.leaf_counts[2])
        S[slices[e], slices[e]] = xp.diag((size * nu) @ self.delta)
        by_class[e] = xp.diag(size @ self.delta)
        if not self.later_views:
            return

        n = nu[:, None, None]
        delta = self.delta[:, :, None]
        # X_nu = [nu G_ea, G_el ...]: a leaf class shares all its nu vectors with its root class; for the classes of the
        # rest s_t has the counts in it already.
        times = dict.fromkeys(self.later_views, xp.ones_like(n))
        if self.plan.root is not None:
            times[self.plan.root] = n
        X = xp.concatenate(
            [times[k] * self._g(e, k) for k in self.later_views], axis=2
        )  # C, r_e, w

        # Given all later latents, z_t = delta (b_t - X s_t) + noise of covariance delta: the variation of s_t is passed
        # on to z_t (5.4).
        Y = delta * (X @ phi)  # minus the sum of Cov(z_t, s_t) over leaf classes of a count
        for k in self.later_views:
            cross = (times[k] * Y[:, :, self.columns[k]]).sum(axis=0)
            set_both(S, slices[e], slices[k], -cross)  # (E11)
        over_counts = ((0, 2), (0, 2))
        S[slices[e], slices[e]] += xp.tensordot(n * Y, delta * X, axes=over_counts)  # (E10)
        by_class[e] += xp.tensordot(Y, delta * X, axes=over_counts)

    def covariances(self, view: int) -> AnyArray:
        """Return the posterior covariance of every class of a view, (classes, rank, rank)."""
        if view in self.plan.rest:
            return self._diagonal_blocks(view)
        if self.root is not None and view == self.root.view:
            return self._root_covariances(self.root)
        return self._leaf_covariances()

    def _root_covariances(self, root: Root) -> AnyArray:
        """Return the posterior covariance of every root class, (root classes, r_a, r_a), with r_a the root's rank.

        The root is the view that is eliminated second.
        """
        xp = self.xp
        n_patterns = len(root.tables.size)
        step = max(1, CHUNK_ELEMENTS // (root.rank * max(self.n_rest, root.rank)))
        covariances = []
        for start in range(0, n_patterns, step):
            patterns = np.arange(start, min(start + step, n_patterns))
            inverse, solved = root.couplings(patterns)
            covariances.append(inverse + solved @ self.V @ solved.mT)
        return xp.concatenate(covariances)[xp.cached(root.tables.pattern)]

    def _leaf_covariances(self) -> AnyArray:
        """Return the posterior covariance of every leaf class, (leaf classes, r_e, r_e), with r_e the leaf's rank.

        The leaf is the view that is eliminated first.
        """
        _, group, _ = self.design.leaf_counts
        r_e = self.ranks[self.plan.leaf]
        n_leaves = len(group)
        root_pattern = None
        if self.root is not None:
            parent = self.design.leaf_tables[self.root.view].indices
            root_pattern = self.root.tables.pattern[parent]
        # eight: about as many arrays of this size exist at once
        step = max(1, CHUNK_ELEMENTS // (8 * max(self.ranks) * max(self.n_rest, r_e)))
        covariances = []
        for start in range(0, n_leaves, step):
            leaves = slice(start, min(start + step, n_leaves))
            patterns = None if root_pattern is None else root_pattern[leaves]
            covariances.append(self._leaf_covariance_chunk(leaves, patterns))
        return self.xp.concatenate(covariances)

    def _leaf_covariance_chunk(self, leaves: slice, root_pattern: IntArray | None) -> AnyArray:
        """Return the posterior covariance of a range of T leaf classes, (T, r_e, r_e).

        The leaf is the view eliminated first, the root the view eliminated second. The covariance
        is delta + delta X Cov(s_t) X' delta: delta is the covariance of leaf class t given the
        other views, s_t their latents that share vectors with t, and X couples both.

        leaves : range of leaf classes
        root_pattern : (T,) pattern of the root class of each leaf class (`RootTables`); None
            without a root
        """
        e = self.plan.leaf
        xp = self.xp
        values, group, _ = self.design.leaf_counts
        r_e = self.ranks[e]
        T = leaves.stop - leaves.start

        YV = xp.zeros((T, r_e, self.n_rest))  # Y_t V, where Y_t has the blocks n_tj G_el (5.4)
        counts = {}
        for l in self.plan.rest:
            table = self.design.leaf_tables[l]
            V_rows = self.V[self.rest_slice[l]].reshape(table.shape[1], -1)  # (J, r_l R)
            chunk = table[leaves]
            counts[l] = xp.asarray(chunk.toarray())
            is_sparse = chunk.nnz < FILLED * chunk.shape[0] * chunk.shape[1]
            weights = xp.table(chunk) if is_sparse else counts[l]
            summed = weights @ V_rows  # over the rest classes of each leaf class, before G_el
            YV += self._g(e, l) @ summed.reshape(T, self.ranks[l], self.n_rest)

        # X Cov(s_t) X': Y_t V Y_t', then the root's three terms.
        explained = xp.zeros((T, r_e, r_e))
        for l in self.plan.rest:
            by_class = YV[:, :, self.rest_slice[l]].reshape(T, r_e, -1, self.ranks[l])
            explained += xp.einsum("tpjr,tj->tpr", by_class, counts[l]) @ self._g(e, l).T
        if self.root is not None and root_pattern is not None:
            patterns, pattern_index = np.unique(root_pattern, return_inverse=True)
            inverse, solved = self.root.couplings(patterns)
            covariance = inverse + solved @ self.V @ solved.mT
            class_pattern = xp.asarray(pattern_index)
            n = xp.asarray(values[group[leaves]])
            H = n[:, None, None] * self._g(e, self.root.view)
            cross = H @ solved[class_pattern] @ YV.mT
            explained += H @ covariance[class_pattern] @ H.mT - cross - cross.mT

        delta = self.delta[xp.asarray(group[leaves])]
        explained *= delta[:, :, None] * delta[:, None, :]
        diagonal = xp.arange(r_e)
        explained[:, diagonal, diagonal] += delta
        return explained


def set_both(matrix: AnyArray, rows: slice, columns: slice, block: AnyArray) -> None:
    """Set a block of a symmetric matrix, and its transpose on the other side of the diagonal.

    matrix : (..., r, r) one matrix or a stack of matrices; changed in place
    rows, columns : position of the block
    block : (..., rows, columns) new values
    """
    matrix[..., rows, columns] = block
    matrix[..., columns, rows] = block.mT
