"""A structured variational posterior, for designs whose rest is too large for a dense Cholesky.

q(rest) is a product over classes, and q(root | rest) and q(leaf | root, rest)
are the exact conditionals (I1). The best such q has the exact means, and the
covariance V_j = M_jj^-1 for every class j of the rest (docs/math.md, section
5.6). Memory is linear in classes and filled cells.
"""

from __future__ import annotations

import numpy as np
from scipy import sparse

from .crossing import add_rows
from .records import Array
from .sparse_system import SparseSystem, at_once


class FactorisedElimination(SparseSystem):
    """Moments of the factorised posterior: what `Elimination` gives of the exact one."""

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
            self._root_sums(a, S, by_class, inner, inside)
        for l in self.plan.rest:
            V, r = self.V[l], self.ranks[l]
            S[where[l], where[l]] = np.tensordot(self.sums.counts[l], V, axes=1)
            by_class[l] = V.sum(axis=0)
            inner[:, inside[l], inside[l]] = (self.design.crossing.squares[l] @ V.reshape(-1, r * r)).reshape(-1, r, r)
        S[where[e], where[e]] = np.diag((size * values) @ self.by_count)
        by_class[e] = np.diag(size @ self.by_count)
        for c in range(len(values) if others else 0):
            n, delta = values[c], self.by_count[c, :, None]
            X = np.concatenate([(n if k == a else 1.0) * self._g(e, k) for k in others], axis=1)
            Y = delta * (X @ inner[c])
            for k in others:
                S[where[e], where[k]] -= (n if k == a else 1.0) * Y[:, inside[k]]  # (E11)
            own = Y @ (delta * X).T
            S[where[e], where[e]] += n * own  # (E10)
            by_class[e] += own
        for k in others:
            S[where[k], where[e]] = S[where[e], where[k]].T
        return self.xp.asarray(S), tuple(map(self.xp.asarray, by_class))

    def _root_sums(self, a: int, S: Array, by_class: list[Array], inner: Array, inside: dict[int, slice]) -> None:
        r_a, where, leaves = self.ranks[a], self.where, self.design.crossing.leaves
        assert leaves is not None
        covariance = self._root_covariances(inner, inside)
        S[where[a], where[a]] = np.tensordot(self.sums.counts[a], covariance, axes=1)
        by_class[a] = covariance.sum(axis=0)
        inner[:, inside[a], inside[a]] = (leaves.T @ covariance.reshape(-1, r_a * r_a)).reshape(-1, r_a, r_a)
        for l in self.plan.rest:
            inner[:, inside[l], inside[a]] = inner[:, inside[a], inside[l]].transpose(0, 2, 1)
            S[where[a], where[l]] = inner[:, inside[a], inside[l]].sum(axis=0)
            S[where[l], where[a]] = S[where[a], where[l]].T

    def _root_covariances(self, inner: Array | None = None, inside: dict[int, slice] | None = None) -> Array:
        """(I, r_a, r_a) Cov(z_q); where asked, the covariances with the rest are added to `inner`."""
        a = self.plan.root
        assert a is not None
        r_a = self.ranks[a]
        covariance = self.root_inverse.copy()
        for l in self.plan.rest:
            pairs = self.design.crossing.pairs[l]
            for part, _, solved in self._root_pairs(l):
                minus_cross = solved @ self.V[l][pairs.rest[part]]
                own = minus_cross @ solved.transpose(0, 2, 1)
                add_rows(covariance.reshape(-1, r_a * r_a), pairs.root[part], own.reshape(-1, r_a * r_a))
                if inner is not None and inside is not None:
                    met = pairs.met[part].T @ minus_cross.reshape(len(solved), -1)
                    inner[:, inside[a], inside[l]] -= met.reshape(-1, r_a, self.ranks[l])
        return covariance

    def covariances(self, view: int) -> Array:
        """Cov(z_kc) of every class of a view, (C_k, r_k, r_k)."""
        if view in self.plan.rest:
            return self.V[view].copy()
        return self._root_covariances() if view == self.plan.root else self._leaf_covariances()

    def _leaf_covariances(self) -> Array:
        e, a, tables = self.plan.leaf, self.plan.root, self.design.leaf_tables
        values, group, _ = self.design.leaf_counts
        r_e = self.ranks[e]
        result = np.empty((len(group), r_e, r_e))
        root = None if a is None else self._root_covariances()
        step = at_once(max(self.ranks) ** 2)
        for start in range(0, len(group), step):
            part = slice(start, min(start + step, len(group)))
            delta = self.by_count[group[part]]
            met = np.zeros((len(delta), r_e, r_e))
            H = None if a is None else values[group[part]][:, None, None] * self._g(e, a)
            if root is not None and H is not None and a is not None:
                met += H @ root[tables[a].indices[part]] @ H.transpose(0, 2, 1)
            for l in self.plan.rest:
                r, table = self.ranks[l], tables[l][part]
                summed = (table.power(2) @ self.V[l].reshape(-1, r * r)).reshape(-1, r, r)
                met += self._g(e, l) @ summed @ self._g(e, l).T
                if H is not None:
                    cross = H @ self._met_with_root(l, part, table) @ self._g(e, l).T
                    met -= cross + cross.transpose(0, 2, 1)
            result[part] = delta[:, :, None] * met * delta[:, None, :]
            result[part, np.arange(r_e), np.arange(r_e)] += delta
        return result

    def _met_with_root(self, l: int, part: slice, table: sparse.csr_array) -> Array:
        """(t, r_a, r_l): for some leaf classes, minus the covariance of the root class with all of l that they meet."""
        a = self.plan.root
        assert a is not None
        pairs, whole = self.design.crossing.pairs[l], self.design.leaf_tables[l]
        entries = slice(int(whole.indptr[part.start]), int(whole.indptr[part.stop]))
        wanted, local = np.unique(pairs.of_entry[entries], return_inverse=True)
        cross = np.empty((len(wanted), self.ranks[a], self.ranks[l]))
        done = 0
        for some, _, solved in self._root_pairs(l, wanted):
            cross[done : done + len(solved)] = solved @ self.V[l][pairs.rest[some]]
            done += len(solved)
        met = sparse.csr_array((table.data, local.reshape(-1), table.indptr), shape=(table.shape[0], len(wanted)))
        return np.asarray(met @ cross.reshape(len(wanted), -1)).reshape(-1, self.ranks[a], self.ranks[l])
