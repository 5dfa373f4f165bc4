"""Block elimination of the posterior precision of all latents.

The precision and right-hand side are (docs/math.md, section 3)::

    Lambda[(k,c),(l,d)] = [k=l, c=d] I + N_kl(c,d) G_kl        G_kl = B_k' Sigma^-1 B_l

with G_ee diagonal for the leaf e (canonical parameters). Leaf e, root a and
rest as planned in ``design``. C is the number of distinct leaf counts, R the
number of latents in the rest. Nothing of the size of Lambda is ever made, and
there is no Python loop over classes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_solve, cholesky

from .design import Design
from .leaf import Leaf
from .records import Array, lower_of_inverse

CHUNK_ELEMENTS = 2**22


@dataclass(frozen=True)
class RootBlock:
    """A run of groups of root classes with their blocks.

    inverse : (g, r_a, r_a)  D_g^-1
    coupling : (g, r_a, R)  U_g
    solved : (g, r_a, R)  D_g^-1 U_g
    log_determinant : (g,)  log |D_g|
    """

    groups: slice
    inverse: Array
    coupling: Array
    solved: Array
    log_determinant: Array


class Elimination:
    """The factored precision: leaf, then root, then one dense Cholesky of the rest.

    G : (r, r) all G_kl; where : the slice of every view in it
    log_determinant : log |Lambda|
    """

    def __init__(self, design: Design, G: Array, where: tuple[slice, ...]) -> None:
        self.design, self.sums, self.plan = design, design.sums, design.plan
        self.G, self.where = G, where
        self.ranks = tuple(s.stop - s.start for s in where)
        values, _, size = design.leaf_counts
        lam = np.maximum(np.diag(self._g(self.plan.leaf, self.plan.leaf)), 0.0)  # (E3)
        self.delta = 1.0 / (1.0 + np.outer(values, lam))  # (E4), (C, r_e)
        self.log_determinant = float(size @ np.log1p(np.outer(values, lam)).sum(axis=1))
        self.rest_slice: dict[int, slice] = {}
        self.n_rest = 0
        for l in self.plan.rest:
            start, self.n_rest = self.n_rest, self.n_rest + len(self.sums.counts[l]) * self.ranks[l]
            self.rest_slice[l] = slice(start, self.n_rest)
        M = self._rest_after_leaf()
        self._only_root_block: RootBlock | None = None
        if self.plan.root is not None:
            self._prepare_root()
            for block in self._root_blocks():
                size_g = design.root_groups.size[block.groups]
                self.log_determinant += float(size_g @ block.log_determinant)
                M -= np.tensordot(block.coupling, size_g[:, None, None] * block.solved, axes=((0, 1), (0, 1)))  # (E7)
        self.V = M
        if self.n_rest:
            self._lower = cholesky(M.T, lower=True, overwrite_a=True, check_finite=False)
            self.log_determinant += 2 * float(np.log(np.diag(self._lower)).sum())
            half = lower_of_inverse(self._lower)
            self.V = half + half.T
            np.einsum("ii->i", self.V)[:] /= 2

    def _g(self, k: int, l: int) -> Array:
        return self.G[self.where[k], self.where[l]]

    def _rest_block(self, matrix: Array, l: int, m: int) -> Array:
        """Rest views l and m of a rest matrix, as a writable (J_l, r_l, J_m, r_m)."""
        part = matrix[self.rest_slice[l], self.rest_slice[m]]
        (s, t), r, q = part.strides, self.ranks[l], self.ranks[m]
        shape = (part.shape[0] // r, r, part.shape[1] // q, q)
        return np.lib.stride_tricks.as_strided(part, shape, (r * s, s, q * t, t))

    def _rest_pairs(self) -> Iterator[tuple[int, int]]:
        return ((l, m) for l in self.plan.rest for m in self.plan.rest if l <= m)

    def _rest_after_leaf(self) -> Array:
        """(R, R): the rest's own precision, less what eliminating the leaf takes away."""
        e = self.plan.leaf
        M = np.zeros((self.n_rest, self.n_rest))
        for l, m in self._rest_pairs():
            block = self._rest_block(M, l, m)
            J, r, K, q = block.shape
            if l == m:
                every = np.arange(J)
                block[every, :, every, :] = np.eye(r) + self.sums.counts[l][:, None, None] * self._g(l, l)  # (E1)
            else:
                block += self.sums.together(l, m).toarray()[:, None, :, None] * self._g(l, m)[None, :, None, :]
            products = (self._g(e, l)[:, :, None] * self._g(e, m)[:, None, :]).reshape(-1, r * q)
            few_counts = len(self.delta) < self.ranks[e]
            step = max(1, CHUNK_ELEMENTS // (K * max(self.ranks[e], r * q)))
            for j in range(0, J, step):
                gram = self.design.grams[l, m][:, j * K : (j + step) * K]
                taken = gram.T @ (self.delta @ products) if few_counts else (gram.T @ self.delta) @ products  # (E5)
                block[j : j + step] -= taken.reshape(-1, K, r, q).transpose(0, 2, 1, 3)
            if l != m:
                M[self.rest_slice[m], self.rest_slice[l]] = M[self.rest_slice[l], self.rest_slice[m]].T
        return M

    def _prepare_root(self) -> None:
        """What a leaf class of every distinct count adds to its root class, per vector."""
        e, a = self.plan.leaf, self.plan.root
        assert a is not None
        H = self._g(e, a)
        weighted = (self.design.leaf_counts[0][:, None] * self.delta)[:, :, None]  # (C, r_e, 1)
        self.root_own = self._g(a, a) - np.matmul(H.T, weighted * H)  # (E6), (C, r_a, r_a)
        self.root_rest = {l: self._g(a, l) - np.matmul(H.T, weighted * self._g(e, l)) for l in self.plan.rest}

    def _root_blocks(self) -> Iterator[RootBlock]:
        if self._only_root_block is not None:
            yield self._only_root_block
            return
        a, groups, values = self.plan.root, self.design.root_groups, self.design.leaf_counts[0]
        assert a is not None
        r_a, n_groups, n_counts = self.ranks[a], len(groups.size), len(values)
        step = max(1, CHUNK_ELEMENTS // (r_a * max(self.n_rest, r_a)))
        for start in range(0, n_groups, step):
            part = slice(start, min(start + step, n_groups))
            g = part.stop - part.start
            own = (groups.leaves[part] * values) @ self.root_own.reshape(n_counts, -1)
            D = np.eye(r_a) + own.reshape(g, r_a, r_a)
            U = np.zeros((g, r_a, self.n_rest))
            for met, l in zip(groups.met, self.plan.rest, strict=True):
                J, r = len(self.sums.counts[l]), self.ranks[l]
                blocks = met[part].toarray().reshape(g * J, n_counts) @ self.root_rest[l].reshape(n_counts, -1)
                U[:, :, self.rest_slice[l]] = blocks.reshape(g, J, r_a, r).transpose(0, 2, 1, 3).reshape(g, r_a, J * r)
            inverse = np.linalg.solve(D, np.broadcast_to(np.eye(r_a), D.shape))
            block = RootBlock(part, inverse, U, inverse @ U, np.linalg.slogdet(D)[1])
            if g == n_groups:
                self._only_root_block = block
            yield block

    def solve(self, leaf: Leaf, b: dict[int, Array]) -> dict[int, Array]:
        """Lambda^-1 b: the posterior means of all views but the leaf, (C_k, r_k); the leaf's are left in `leaf`."""
        e, a = self.plan.leaf, self.plan.root
        means: dict[int, Array] = {}
        reduced = {k: b_k - leaf.met(k) @ self._g(e, k) for k, b_k in b.items()}
        rest = np.concatenate([np.zeros(0), *(reduced[l].reshape(-1) for l in self.plan.rest)])
        if a is not None:
            groups = self.design.root_groups
            group_sums = np.zeros((len(groups.size), self.ranks[a]))
            np.add.at(group_sums, groups.group, reduced[a])
            for block in self._root_blocks():
                rest -= np.tensordot(group_sums[block.groups], block.solved, axes=2)
        if self.n_rest:
            rest = cho_solve((self._lower, True), rest, check_finite=False)
            for l in self.plan.rest:
                means[l] = rest[self.rest_slice[l]].reshape(-1, self.ranks[l])
        if a is not None:
            means[a] = self._root_means(reduced[a], rest)
        for k, mean in means.items():
            leaf.less(k, mean @ self._g(e, k).T)  # (E8)
        return means

    def _root_means(self, reduced: Array, rest: Array) -> Array:
        groups = self.design.root_groups
        means = np.empty_like(reduced)
        order = np.argsort(groups.group, kind="stable")
        ends = np.concatenate([[0], np.cumsum(groups.size)]).astype(np.int64)
        step = max(1, CHUNK_ELEMENTS // reduced.shape[1] ** 2)
        for block in self._root_blocks():
            shift = block.solved @ rest
            members = order[ends[block.groups.start] : ends[block.groups.stop]]
            if len(block.inverse) == 1:
                means[members] = reduced[members] @ block.inverse[0] - shift[0]
                continue
            for start in range(0, len(members), step):
                some = members[start : start + step]
                local = groups.group[some] - block.groups.start
                means[some] = np.matmul(block.inverse[local], reduced[some][:, :, None])[:, :, 0] - shift[local]
        return means

    def covariance_sums(self) -> tuple[Array, tuple[Array, ...]]:
        """Sum over vectors of Cov(z), (r, r); and per view the sum over classes of Cov(z_kc)."""
        e, a, where = self.plan.leaf, self.plan.root, self.where
        values, _, size = self.design.leaf_counts
        S = np.zeros_like(self.G)
        by_class = [np.zeros((r, r)) for r in self.ranks]
        others = ([] if a is None else [a]) + list(self.plan.rest)
        ends = np.cumsum([self.ranks[k] for k in others])
        inside = {k: slice(int(end) - self.ranks[k], int(end)) for k, end in zip(others, ends, strict=True)}
        width = int(ends[-1]) if others else 0
        inner = np.zeros((len(values), width, width))  # covariances that leaf classes of a count meet
        if a is not None:
            self._root_sums(S, by_class, inner, inside)
        for l, m in self._rest_pairs():
            V = self._rest_block(self.V, l, m)
            J, r, K, q = V.shape
            every = np.arange(J)
            if l == m:
                own = V[every, :, every, :]
                S[where[l], where[l]] = np.tensordot(self.sums.counts[l], own, axes=1)
                by_class[l] = own.sum(axis=0)
            else:
                met = self.sums.together(l, m).tocoo()
                S[where[l], where[m]] = np.tensordot(met.data, V[met.row, :, met.col, :], axes=1)
                S[where[m], where[l]] = S[where[l], where[m]].T
            gram = self.design.grams[l, m]
            step = max(1, CHUNK_ELEMENTS // (K * r * q))
            total = np.zeros((len(values), r * q))
            for j in range(0, J, step):
                pairs = V[j : j + step].transpose(0, 2, 1, 3).reshape(-1, r * q)
                total += gram[:, j * K : (j + step) * K] @ pairs
            inner[:, inside[l], inside[m]] = total.reshape(-1, r, q)
            inner[:, inside[m], inside[l]] = total.reshape(-1, r, q).transpose(0, 2, 1)
        S[where[e], where[e]] = np.diag((size * values) @ self.delta)
        by_class[e] = np.diag(size @ self.delta)
        for c in range(0, len(values) if others else 0, step := max(1, CHUNK_ELEMENTS // (self.ranks[e] * width + 1))):
            n, delta = values[c : c + step, None, None], self.delta[c : c + step, :, None]
            X = np.concatenate(
                [(n if k == a else np.ones_like(n)) * self._g(e, k) for k in others], axis=2
            )  # (c, r_e, width)
            Y = delta * (X @ inner[c : c + step])
            for k in others:
                S[where[e], where[k]] -= ((n if k == a else 1.0) * Y[:, :, inside[k]]).sum(axis=0)  # (E11)
            flat = (delta * X).transpose(1, 0, 2).reshape(self.ranks[e], -1)
            S[where[e], where[e]] += (n * Y).transpose(1, 0, 2).reshape(self.ranks[e], -1) @ flat.T  # (E10)
            by_class[e] += Y.transpose(1, 0, 2).reshape(self.ranks[e], -1) @ flat.T
        for k in others:
            S[where[k], where[e]] = S[where[e], where[k]].T
        return S, tuple(by_class)

    def _root_sums(self, S: Array, by_class: list[Array], inner: Array, inside: dict[int, slice]) -> None:
        a, groups, values = self.plan.root, self.design.root_groups, self.design.leaf_counts[0]
        assert a is not None
        r_a, where, n_counts = self.ranks[a], self.where, len(values)
        for block in self._root_blocks():
            g = len(block.inverse)
            size = groups.size[block.groups]
            leaves = groups.leaves[block.groups]
            met_rest = block.solved @ self.V  # minus Cov(root class, rest)
            cov = block.inverse + met_rest @ block.solved.transpose(0, 2, 1)
            S[where[a], where[a]] += np.tensordot(size * (leaves @ values), cov, axes=1)
            by_class[a] += np.tensordot(size, cov, axes=1)
            inner[:, inside[a], inside[a]] += ((size[:, None] * leaves).T @ cov.reshape(g, -1)).reshape(-1, r_a, r_a)
            for met, l in zip(groups.met, self.plan.rest, strict=True):
                J, r = len(self.sums.counts[l]), self.ranks[l]
                table = size[:, None, None] * met[block.groups].toarray().reshape(g, J, n_counts)
                cross = met_rest[:, :, self.rest_slice[l]].reshape(g, r_a, J, r).transpose(0, 2, 1, 3)
                by_count = table.reshape(g * J, n_counts).T @ cross.reshape(g * J, r_a * r)
                inner[:, inside[a], inside[l]] -= by_count.reshape(-1, r_a, r)
        for l in self.plan.rest:
            inner[:, inside[l], inside[a]] = inner[:, inside[a], inside[l]].transpose(0, 2, 1)
            S[where[a], where[l]] = inner[:, inside[a], inside[l]].sum(axis=0)
            S[where[l], where[a]] = S[where[a], where[l]].T

    def covariances(self, view: int) -> Array:
        """Cov(z_kc) of every class of a view, (C_k, r_k, r_k)."""
        if view in self.plan.rest:
            block = self._rest_block(self.V, view, view)
            every = np.arange(block.shape[0])
            return np.ascontiguousarray(block[every, :, every, :])
        if view == self.plan.root:
            return self._root_covariances()[self.design.root_groups.group]
        return self._leaf_covariances()

    def _root_covariances(self) -> Array:
        """(G, r_a, r_a), of every group of root classes."""
        return np.concatenate(
            [b.inverse + b.solved @ self.V @ b.solved.transpose(0, 2, 1) for b in self._root_blocks()]
        )

    def _leaf_covariances(self) -> Array:
        e, a, tables = self.plan.leaf, self.plan.root, self.design.leaf_tables
        values, group, _ = self.design.leaf_counts
        n_leaves, r_e = len(group), self.ranks[e]
        result = np.empty((n_leaves, r_e, r_e))
        step = max(1, CHUNK_ELEMENTS // (8 * r_e * max(self.n_rest, r_e)))  # several arrays of this size at once
        if a is not None:
            parent = self.design.root_groups.group[tables[a].indices]
            root_covariance = self._root_covariances()
            solved = np.concatenate([b.solved for b in self._root_blocks()])
        for start in range(0, n_leaves, step):
            part = slice(start, min(start + step, n_leaves))
            n, delta = values[group[part]], self.delta[group[part]]
            X = np.zeros((len(n), r_e, self.n_rest))
            for l in self.plan.rest:
                X[:, :, self.rest_slice[l]] = np.einsum(
                    "tj,pr->tpjr", tables[l][part].toarray(), self._g(e, l)
                ).reshape(len(n), r_e, -1)
            XV = X @ self.V
            met = XV @ X.transpose(0, 2, 1)
            if a is not None:
                H = n[:, None, None] * self._g(e, a)
                cross = H @ solved[parent[part]] @ XV.transpose(0, 2, 1)
                met += H @ root_covariance[parent[part]] @ H.transpose(0, 2, 1) - cross - cross.transpose(0, 2, 1)
            result[part] = delta[:, :, None] * met * delta[:, None, :]
            result[part, np.arange(r_e), np.arange(r_e)] += delta
        return result
