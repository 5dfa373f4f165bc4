"""A structured variational posterior, for designs whose rest is too large for a dense Cholesky.

q(rest) is a product over classes, and q(leaf | rest) is the exact conditional (I1). The best such q has the exact
means, and the covariance V_j = M_jj^-1 for every class j of the rest (docs/math.md, section 5.6). What remains after
the leaf is a sparse precision M between the classes of the rest, whose inverse is dense. Only its diagonal blocks M_jj
are inverted, and conjugate gradients find the means by products with M. Memory is linear in classes and filled cells.
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import logging
from collections.abc import Callable

import numpy as np
from scipy import sparse

from .._typing import AnyArray, Array
from ..exceptions import NumericalError
from .design import Design
from .exact import LeafEliminated

logger = logging.getLogger(__name__)

MEAN_TOLERANCE = 1e-15
"""Nat per vector that the bound may lose by means that are not quite the posterior's."""

MAX_PRODUCTS = 1000


class FactorisedElimination(LeafEliminated):
    """Leaf, then the diagonal blocks of the rest: what `Elimination` gives of the exact posterior. On the host.

    V : per rest view (J, r, r) covariance of every class
    log_determinant : log |Lambda| with the block-diagonal of M in the place of M: not less than the true one
    products : how many products with M the means took
    """

    def __init__(self, design: Design, G: AnyArray, where: tuple[slice, ...]) -> None:
        super().__init__(design, G, where)
        self.products = 0
        self.leaf_delta = self.delta[design.leaf_counts[1]]  # (T, r_e)
        self.V: dict[int, Array] = {}
        for l in self.plan.rest:
            self.V[l] = self._rest_covariances(l)

    def _rest_covariances(self, l: int) -> Array:
        """(J, r, r) V_j = M_jj^-1 of every class of a rest view; log-determinants are added up."""
        r = self.ranks[l]
        taken = self.design.squares[l].T @ self.delta  # (J, r_e)
        M = np.outer(self.sums.counts[l], self._g(l, l).reshape(-1)) - taken @ self._products(l, l)
        blocks = np.eye(r) + M.reshape(-1, r, r)  # (I2)
        try:
            inverse, log_determinants = self.xp.inverses(blocks)
        except np.linalg.LinAlgError as error:
            raise NumericalError(
                "a block of the posterior precision is not positive definite: scale the vectors to ordinary size, "
                "raise noise_floor, or lower the ranks"
            ) from error
        self.log_determinant += float(log_determinants.sum())  # (I3)
        return inverse

    def _solve_others(self, reduced: dict[int, AnyArray]) -> dict[int, AnyArray]:
        if not reduced:
            return {}
        tolerance = 2 * MEAN_TOLERANCE * self.sums.n
        right = np.concatenate([reduced[l].reshape(-1) for l in self.plan.rest])
        x, self.products, error = conjugate_gradients(
            self._apply, self._precondition, right, tolerance=tolerance, max_iter=MAX_PRODUCTS
        )
        if error > tolerance:
            logger.warning(
                "conjugate gradients stopped after %d products: the bound is loose", self.products
            )
        return self._by_view(x)

    def _precondition(self, x: Array) -> Array:
        parts = self._by_view(x)
        solved = [(self.V[l] @ part[:, :, None]).reshape(-1) for l, part in parts.items()]
        return np.concatenate(solved)

    def _apply(self, x: Array) -> Array:
        """M x, without M: the rest's own precision, less what goes by way of the leaf."""
        e = self.plan.leaf
        tables = self.design.leaf_tables
        pairs = self.sums.cooccurrence
        parts = self._by_view(x)
        leaf = np.zeros_like(self.leaf_delta)
        for l, part in parts.items():
            leaf += _meet(tables[l], part, self._g(l, e))
        leaf *= self.leaf_delta
        results = []
        for l, part in parts.items():
            own = part + self.sums.counts[l][:, None] * (part @ self._g(l, l))
            own -= _meet(tables[l].T, leaf, self._g(e, l))
            for m, other in parts.items():
                if m != l:
                    table = pairs[l, m] if l < m else pairs[m, l].T  # transposed without a copy
                    own += _meet(table, other, self._g(m, l))
            results.append(own.reshape(-1))
        return np.concatenate(results)  # (I5)

    def covariance_sums(self) -> tuple[AnyArray, tuple[AnyArray, ...]]:
        """Sum over vectors of Cov(z), (r, r); and per view the sum over classes of Cov(z_kc) (docs/math.md, 5.6)."""
        S = np.zeros(self.G.shape)
        by_class: list[AnyArray] = [np.zeros((r, r)) for r in self.ranks]
        phi = np.zeros((len(self.delta), self.width, self.width))
        for l, V in self.V.items():
            S[self.where[l], self.where[l]] = np.tensordot(self.sums.counts[l], V, axes=1)
            by_class[l] = V.sum(axis=0)
            # different classes of the rest are independent: only their squares count
            met = self.design.squares[l] @ V.reshape(len(V), -1)
            phi[:, self.columns[l], self.columns[l]] = met.reshape(-1, *V.shape[1:])
        self._add_leaf_sums(S, by_class, phi)
        return S, tuple(by_class)

    def covariances(self, view: int) -> AnyArray:
        """Cov(z_kc) of every class of a view, (C_k, r_k, r_k)."""
        if view in self.V:
            return self.V[view].copy()
        met = np.zeros((len(self.leaf_delta), *[self.ranks[view]] * 2))
        for l, V in self.V.items():
            summed = self.design.leaf_tables[l].power(2) @ V.reshape(len(V), -1)
            met += self._g(view, l) @ summed.reshape(-1, *V.shape[1:]) @ self._g(l, view)
        return self._leaf_given(self.leaf_delta, met)


def _meet(table: sparse.csr_array | sparse.csc_array, x: AnyArray, G: AnyArray) -> Array:
    """table @ x @ G, the sparse product on the narrower side."""
    return np.asarray((table @ x) @ G if G.shape[0] <= G.shape[1] else table @ (x @ G))


def conjugate_gradients(
    apply: Callable[[Array], Array],
    precondition: Callable[[Array], Array],
    b: Array,
    *,
    tolerance: float,
    max_iter: int,
) -> tuple[Array, int, float]:
    """x with M x = b for a positive definite M = `apply`, the number of products, and about the error that is left.

    `precondition` is about M^-1. Stops when r' P r, for the residual r and the preconditioner P, is at most
    `tolerance`: an estimate of the error in the metric of M, which is what a log-density loses by it (SciPy's stops
    by the length of r alone).
    """
    x = np.zeros_like(b)
    r = b.copy()
    s = precondition(r)
    direction = s.copy()
    error = float(r @ s)
    products = 0
    while error > tolerance and products < max_iter:
        moved = apply(direction)
        curvature = float(direction @ moved)
        if not curvature > 0:  # rounding has eaten the direction
            break
        step = error / curvature
        x += step * direction
        r -= step * moved
        s = precondition(r)
        previous = error
        error = float(r @ s)
        direction = s + (error / previous) * direction  # (I6)
        products += 1
    return x, products, error
