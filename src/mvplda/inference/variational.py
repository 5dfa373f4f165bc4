"""A structured variational posterior, for designs whose rest is too large for a dense Cholesky.

q(rest) is a product over classes, and q(root | rest) and q(leaf | root, rest)
are the exact conditionals (I1). The best such q has the exact means, and the
covariance V_j = M_jj^-1 for every class j of the rest (docs/math.md, section
5.6). Leaf and root are eliminated exactly, as in ``exact``; what remains is a
sparse precision M between the classes of the rest, whose inverse is dense. Only its diagonal blocks M_jj are
inverted, and conjugate gradients find the means by products with M. Memory is linear in classes and filled cells.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from scipy import sparse
from scipy.linalg import eigh_tridiagonal

from .._typing import AnyArray, Array
from ..backend import NUMPY, WIDE_BLOCK, to_host
from ..exceptions import NumericalError
from .design import Design, Index, add_rows
from .exact import Leaf, LeafEliminated

logger = logging.getLogger(__name__)

Table = sparse.csr_array | sparse.csc_array

CHUNK_ELEMENTS = 2**21
MEAN_TOLERANCE = 1e-15
"""Nat a vector that the bound may lose by means that are not quite the posterior's."""

MAX_PRODUCTS = 1000


class FactorisedElimination(LeafEliminated):
    """Leaf, then root, then the diagonal blocks of the rest: what `Elimination` gives of the exact posterior.

    All of it is calculated on the host, also where the class sums are on a device.

    by_count : (C, r_e) the leaf's delta of every distinct count; `delta` is the same where the class sums are
    V : per rest view (J, r, r) covariance of every class
    log_determinant : log |Lambda| with the block-diagonal of M in the place of M: not less than the true one
    products : how many products with M the means took
    """

    def __init__(self, design: Design, G: AnyArray, where: tuple[slice, ...]) -> None:
        super().__init__(design, to_host(G).astype(np.float64), where)
        self.products = 0
        values, group, size = design.leaf_counts
        lam = np.maximum(np.diag(self._g(self.plan.leaf, self.plan.leaf)), 0.0)  # (E3)
        self.by_count = 1.0 / (1.0 + np.outer(values, lam))  # (E4), (C, r_e)
        self.delta = self.xp.asarray(self.by_count)
        self.leaf_delta = self.by_count[group]  # (T, r_e)
        self.log_determinant = float(size @ np.log1p(np.outer(values, lam)).sum(axis=1))
        if self.plan.root is not None:
            self._eliminate_root(self.plan.root)
        self.V = {l: self._rest_covariances(l) for l in self.plan.rest}
        ends = np.cumsum([0, *(len(self.sums.counts[l]) * self.ranks[l] for l in self.plan.rest)])
        self.rest_slice = {
            l: slice(int(ends[i]), int(ends[i + 1])) for i, l in enumerate(self.plan.rest)
        }

    def _eliminate_root(self, a: int) -> None:
        """What a leaf class of every count adds to its root class, per vector; then the blocks of the root."""
        e, values = self.plan.leaf, self.design.leaf_counts[0]
        H, r_a = self._g(e, a), self.ranks[a]
        weighted = (values[:, None] * self.by_count)[:, :, None]  # (C, r_e, 1)
        own = self._g(a, a) - np.matmul(H.T, weighted * H)  # (E6), (C, r_a, r_a)
        self.root_rest = {
            l: self._g(a, l) - np.matmul(H.T, weighted * self._g(e, l)) for l in self.plan.rest
        }
        leaves = self.design.cooccurrence.leaves
        assert leaves is not None
        D = (leaves @ (values[:, None] * own.reshape(len(values), -1))).reshape(-1, r_a, r_a)
        D += np.eye(r_a)
        self.root_inverse = self._inverted(D, "root")

    def _rest_covariances(self, l: int) -> Array:
        """(J, r, r) V_j = M_jj^-1 of every class of a rest view."""
        e, a, r = self.plan.leaf, self.plan.root, self.ranks[l]
        squares = self.design.cooccurrence.squares[l]
        products = (self._g(e, l)[:, :, None] * self._g(e, l)[:, None, :]).reshape(-1, r * r)
        M = np.outer(self.sums.counts[l], self._g(l, l).reshape(-1))
        few_counts = len(self.by_count) < self.ranks[e]
        M -= (
            squares.T @ (self.by_count @ products)
            if few_counts
            else (squares.T @ self.by_count) @ products
        )
        if a is not None:
            pairs = self.design.cooccurrence.pairs[l]
            kinds = pairs.kinds.tocsc()
            done = 0
            for _, coupling, solved in self._root_pairs(l, pairs.alike):
                taken = (coupling.transpose(0, 2, 1) @ solved).reshape(-1, r * r)
                M -= kinds[:, done : done + len(taken)] @ taken
                done += len(taken)
        blocks = M.reshape(-1, r, r)
        blocks += np.eye(r)  # (I2)
        return self._inverted(blocks, "rest")

    def _inverted(self, blocks: Array, what: str) -> Array:
        """The inverses of positive definite blocks, in their place; their log-determinants are added up."""
        r = blocks.shape[-1]
        step = at_once(r * r)
        for start in range(0, len(blocks), step):
            some = blocks[start : start + step]
            some += some.transpose(0, 2, 1).copy()
            some /= 2
            try:
                if r >= WIDE_BLOCK:
                    some[:], log_determinants = NUMPY.inverses(some)
                    self.log_determinant += float(log_determinants.sum())  # (I3)
                    continue
                lower = np.linalg.cholesky(some)
            except np.linalg.LinAlgError as error:
                raise NumericalError(
                    f"a block of the {what} is not positive definite: scale the vectors to ordinary size, raise "
                    "noise_floor, or lower the ranks"
                ) from error
            self.log_determinant += 2 * float(np.log(np.einsum("cii->ci", lower)).sum())  # (I3)
            half = np.linalg.solve(lower, np.broadcast_to(np.eye(r), lower.shape))
            np.matmul(half.transpose(0, 2, 1), half, out=some)
        return blocks

    def _root_pairs(
        self, l: int, wanted: Index | None = None
    ) -> Iterator[tuple[Index | slice, Array, Array]]:
        """Pairs of root and rest classes in pieces, with U_qj and D_q^-1 U_qj, (p, r_a, r_l)."""
        a = self.plan.root
        assert a is not None
        pairs, r_a, r = self.design.cooccurrence.pairs[l], self.ranks[a], self.ranks[l]
        flat = self.root_rest[l].reshape(len(self.by_count), -1)
        step = at_once(r_a * max(r_a, r))
        n_pairs = len(pairs.root) if wanted is None else len(wanted)
        for start in range(0, n_pairs, step):
            part = (
                slice(start, min(start + step, n_pairs))
                if wanted is None
                else wanted[start : start + step]
            )
            coupling = (pairs.met[part] @ flat).reshape(-1, r_a, r)
            yield part, coupling, self.root_inverse[pairs.root[part]] @ coupling

    def solve(self, leaf: Leaf, b: dict[int, AnyArray]) -> dict[int, AnyArray]:
        """The posterior means of all views but the leaf, (C_k, r_k); the leaf's are left in `leaf`."""
        e, a = self.plan.leaf, self.plan.root
        means: dict[int, Array] = {}
        reduced = {k: to_host(b_k) - to_host(leaf.met(k)) @ self._g(e, k) for k, b_k in b.items()}
        if self.plan.rest:
            if a is not None:
                taken = self._backward(None, _times(self.root_inverse, reduced[a]))
                reduced.update({l: reduced[l] - taken[l] for l in self.plan.rest})
            found = conjugate_gradients(
                self._apply,
                self._precondition,
                np.concatenate([reduced[l].reshape(-1) for l in self.plan.rest]),
                tolerance=2 * MEAN_TOLERANCE * self.sums.n,
                max_iter=MAX_PRODUCTS,
            )
            self.products = found.iterations
            if not found.converged:
                logger.warning(
                    "conjugate gradients stopped after %d products: the bound is loose",
                    found.iterations,
                )
            means = self._by_view(found.x)
        if a is not None:
            met = self._forward(means)[1]
            means[a] = _times(self.root_inverse, reduced[a] - met)
        for k, mean in means.items():
            leaf.less(k, self.xp.asarray(mean @ self._g(e, k).T))  # (E8)
        return {k: self.xp.asarray(mean) for k, mean in means.items()}

    def estimate_gap(self, rng: np.random.Generator, probes: int = 4, products: int = 12) -> float:
        """About how much (nat) the bound lies below the log-likelihood, by random probes of M."""
        if not self.plan.rest:
            return 0.0
        total = 0.0
        for _ in range(probes):
            parts = []
            for l in self.plan.rest:
                z = rng.standard_normal((*self.V[l].shape[:2], 1))
                parts.append(
                    np.linalg.solve(np.linalg.cholesky(self.V[l]).transpose(0, 2, 1), z).reshape(-1)
                )
            total += excess_log(self._apply, self._precondition, np.concatenate(parts), products)
        return total / (2 * probes)  # (I4)

    def _by_view(self, x: Array) -> dict[int, Array]:
        return {l: x[s].reshape(-1, self.ranks[l]) for l, s in self.rest_slice.items()}

    def _precondition(self, x: Array) -> Array:
        return np.concatenate(
            [_times(self.V[l], part).reshape(-1) for l, part in self._by_view(x).items()]
        )

    def _apply(self, x: Array) -> Array:
        """M x, without M: the rest's own precision, less what goes by way of leaf and root."""
        parts = self._by_view(x)
        leaf, root = self._forward(parts)
        taken = self._backward(
            leaf, None if self.plan.root is None else _times(self.root_inverse, root)
        )
        result = np.empty_like(x)
        for l, out in self._by_view(result).items():
            np.subtract(parts[l], taken[l], out=out)
            out += self.sums.counts[l][:, None] * (parts[l] @ self._g(l, l))
            for m, part in parts.items():
                if m != l:
                    out += _meet(self._table(l, m), part, self._g(m, l))
        return result  # (I5)

    def _forward(self, parts: dict[int, Array]) -> tuple[Array, Array]:
        """What vectors of the rest are to the leaf, (T, r_e); and U_q times them, (I, r_a)."""
        e, a = self.plan.leaf, self.plan.root
        leaf = np.zeros((len(self.sums.counts[e]), self.ranks[e]))
        for l, part in parts.items():
            leaf += _meet(self._table(e, l), part, self._g(l, e))
        if a is None:
            return leaf, np.zeros((0, 0))
        root = -_meet(self._table(a, e), self.leaf_delta * leaf, self._g(e, a))
        for l, part in parts.items():
            root += _meet(self._table(a, l), part, self._g(l, a))
        return leaf, root

    def _backward(self, leaf: Array | None, root: Array | None) -> dict[int, Array]:
        """What leaf and root take off the rest, once both are solved for: per rest view (J, r_l)."""
        e, a = self.plan.leaf, self.plan.root
        if root is not None and a is not None:
            met = _meet(self._table(e, a), root, self._g(a, e))
            leaf = -met if leaf is None else leaf - met
        assert leaf is not None
        leaf *= self.leaf_delta
        taken = {l: _meet(self._table(l, e), leaf, self._g(e, l)) for l in self.plan.rest}
        if root is not None and a is not None:
            for l in taken:
                taken[l] += _meet(self._table(l, a), root, self._g(a, l))
        return taken

    def _table(self, k: int, l: int) -> Table:
        """Co-occurrence of two views; transposed without a copy."""
        pairs = self.sums.cooccurrence
        return pairs[k, l] if k < l else pairs[l, k].T

    def covariance_sums(self) -> tuple[AnyArray, tuple[AnyArray, ...]]:
        """Sum over vectors of Cov(z), (r, r); and per view the sum over classes of Cov(z_kc) (docs/math.md, 5.6)."""
        S = np.zeros(self.G.shape)
        by_class: list[AnyArray] = [np.zeros((r, r)) for r in self.ranks]
        phi = np.zeros((len(self.by_count), self.width, self.width))
        if self.plan.root is not None:
            self._root_sums(self.plan.root, S, by_class, phi)
        for l in self.plan.rest:
            V, r, own = self.V[l], self.ranks[l], self.columns[l]
            S[self.where[l], self.where[l]] = np.tensordot(self.sums.counts[l], V, axes=1)
            by_class[l] = V.sum(axis=0)
            squares = self.design.cooccurrence.squares[l]
            phi[:, own, own] = (squares @ V.reshape(-1, r * r)).reshape(-1, r, r)
        self._add_leaf_sums(NUMPY, S, by_class, self.by_count, phi)
        return self.xp.asarray(S), tuple(map(self.xp.asarray, by_class))

    def _root_sums(self, a: int, S: Array, by_class: list[AnyArray], phi: Array) -> None:
        r_a, where, columns, leaves = (
            self.ranks[a],
            self.where,
            self.columns,
            self.design.cooccurrence.leaves,
        )
        assert leaves is not None
        covariance = self._root_covariances(phi)
        S[where[a], where[a]] = np.tensordot(self.sums.counts[a], covariance, axes=1)
        by_class[a] = covariance.sum(axis=0)
        phi[:, columns[a], columns[a]] = (leaves.T @ covariance.reshape(-1, r_a * r_a)).reshape(
            -1, r_a, r_a
        )
        for l in self.plan.rest:
            phi[:, columns[l], columns[a]] = phi[:, columns[a], columns[l]].transpose(0, 2, 1)
            S[where[a], where[l]] = phi[:, columns[a], columns[l]].sum(axis=0)
            S[where[l], where[a]] = S[where[a], where[l]].T

    def _root_covariances(self, phi: Array | None = None) -> Array:
        """(I, r_a, r_a) Cov(z_q); where asked, the covariances with the rest are added to `phi`."""
        a = self.plan.root
        assert a is not None
        r_a = self.ranks[a]
        covariance = self.root_inverse.copy()
        for l in self.plan.rest:
            pairs = self.design.cooccurrence.pairs[l]
            for part, _, solved in self._root_pairs(l):
                minus_cross = solved @ self.V[l][pairs.rest[part]]
                own = minus_cross @ solved.transpose(0, 2, 1)
                add_rows(
                    covariance.reshape(-1, r_a * r_a), pairs.root[part], own.reshape(-1, r_a * r_a)
                )
                if phi is not None:
                    met = pairs.met[part].T @ minus_cross.reshape(len(solved), -1)
                    phi[:, self.columns[a], self.columns[l]] -= met.reshape(-1, r_a, self.ranks[l])
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
        pairs, whole = self.design.cooccurrence.pairs[l], self.design.leaf_tables[l]
        entries = slice(int(whole.indptr[part.start]), int(whole.indptr[part.stop]))
        wanted, local = np.unique(pairs.of_entry[entries], return_inverse=True)
        cross = np.empty((len(wanted), self.ranks[a], self.ranks[l]))
        done = 0
        for some, _, solved in self._root_pairs(l, wanted):
            cross[done : done + len(solved)] = solved @ self.V[l][pairs.rest[some]]
            done += len(solved)
        met = sparse.csr_array(
            (table.data, local.reshape(-1), table.indptr), shape=(table.shape[0], len(wanted))
        )
        return np.asarray(met @ cross.reshape(len(wanted), -1)).reshape(
            -1, self.ranks[a], self.ranks[l]
        )


def at_once(elements: int) -> int:
    """How many classes of so many numbers each make a piece."""
    return max(1, CHUNK_ELEMENTS // elements)


def _times(blocks: Array, vectors: Array) -> Array:
    """Every block times its vector, (C, r)."""
    return np.asarray(np.matmul(blocks, vectors[:, :, None])[:, :, 0])


def _meet(table: Table, x: Array, G: Array) -> Array:
    """table @ x @ G, the sparse product on the narrower side."""
    return np.asarray((table @ x) @ G if G.shape[0] <= G.shape[1] else table @ (x @ G))


# Conjugate gradients: a linear system that is known only by what it does to a vector. They are written out here,
# and not SciPy's, because the quadrature of `excess_log` is made of their steps.


@dataclass(frozen=True)
class Solved:
    """Where the iterations ended.

    x : (R,) the solution
    iterations : how many products with the matrix it took
    error : about (x - x*)' M (x - x*), by the preconditioned residual
    converged : whether the error is below the tolerance
    steps, ratios : lengths of the steps, and ratios of the errors after and before each
    """

    x: Array
    iterations: int
    error: float
    converged: bool
    steps: list[float]
    ratios: list[float]


def conjugate_gradients(
    apply: Callable[[Array], Array],
    precondition: Callable[[Array], Array],
    b: Array,
    *,
    tolerance: float,
    max_iter: int,
) -> Solved:
    """Solve M x = b for a positive definite M = `apply`; `precondition` is about M^-1.

    Stops when r' P r, for the residual r and the preconditioner P, is at most `tolerance`. It is an
    estimate of the error in the metric of M, which is what a log-density loses by it.
    """
    x = np.zeros_like(b)
    r = b.copy()
    s = precondition(r)
    direction = s.copy()
    error = float(r @ s)
    iterations = 0
    steps, ratios = [], []
    while error > tolerance and iterations < max_iter:
        moved = apply(direction)
        curvature = float(direction @ moved)
        if not curvature > 0:  # rounding has eaten the direction
            break
        step = error / curvature
        x += step * direction
        r -= step * moved
        s = precondition(r)
        previous, error = error, float(r @ s)
        steps.append(step)
        ratios.append(error / previous)
        direction *= ratios[-1]
        direction += s  # (I6)
        iterations += 1
    return Solved(x, iterations, error, error <= tolerance, steps, ratios)


def excess_log(
    apply: Callable[[Array], Array],
    precondition: Callable[[Array], Array],
    probe: Array,
    products: int,
) -> float:
    """z' (A - I - log A) z for A = P^(1/2) M P^(1/2), where `probe` is P^(-1/2) z.

    The steps of conjugate gradients are those of Lanczos' method in disguise: they give a small
    tridiagonal matrix whose eigenvalues and first components are a quadrature rule of A.
    """
    size = float(probe @ precondition(probe))
    found = conjugate_gradients(
        apply, precondition, probe, tolerance=1e-14 * size, max_iter=products
    )
    if not found.steps:
        return 0.0
    alpha, beta = np.array(found.steps), np.array(found.ratios[:-1])
    diagonal = 1 / alpha
    diagonal[1:] += beta / alpha[:-1]
    values, vectors = eigh_tridiagonal(diagonal, np.sqrt(beta) / alpha[:-1])
    values = np.maximum(values, 1e-300)
    return size * float(vectors[0] ** 2 @ (values - 1 - np.log(values)))  # (I7)
