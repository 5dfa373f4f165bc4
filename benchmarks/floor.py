"""Lower bounds ("floors") of run times: the least computation of any implementation, as bare NumPy and SciPy calls."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import cho_factor, cho_solve
from scipy.linalg.lapack import dpotri

Matrix = NDArray[np.floating]


def one_hot(codes: NDArray[np.int64], dtype: object = np.float64) -> sparse.csr_array:
    """(classes, n): class sums are ``one_hot(codes) @ X``."""
    entries = (np.ones(len(codes), dtype=dtype), (codes, np.arange(len(codes))))
    return sparse.csr_array(entries, shape=(int(codes.max()) + 1, len(codes)))


class Iteration:
    """The matrix products, factorisations and solves of one plain EM iteration.

    For every view: right-hand sides (C, D) @ (D, r), what the M step needs
    (D, C) @ (C, r), and second moments of the means (r, C) @ (C, r). Then the
    Gram of all loadings, one solve of the M step, and for full noise its
    Cholesky, its solve with the loadings and what they explain. For two views
    or more also one Cholesky and inverse of the system that remains after
    eliminating the largest view.
    """

    def __init__(
        self, classes: Sequence[int], ranks: Sequence[int], dimension: int, *, full: bool
    ) -> None:
        rng = np.random.default_rng(0)
        r = sum(ranks)
        self.full = full
        self.sums = [rng.standard_normal((c, dimension)) for c in classes]
        self.means = [rng.standard_normal((c, k)) for c, k in zip(classes, ranks, strict=True)]
        self.loadings = [rng.standard_normal((dimension, k)) for k in ranks]
        self.B = np.concatenate(self.loadings, axis=1)
        self.noise = np.eye(dimension) + np.full((dimension, dimension), 0.1)
        self.R = np.eye(r + 1) + np.full((r + 1, r + 1), 0.1)
        self.C = rng.standard_normal((dimension, r + 1))
        sizes = sorted(c * k for c, k in zip(classes, ranks, strict=True))
        rest = sum(sizes[:-1]) if len(classes) == 2 else sizes[0] if len(classes) == 3 else 0
        self.system = np.eye(rest) + np.full((rest, rest), 0.1)

    def __call__(self) -> None:
        LB = self.B
        if self.full:
            LB = cho_solve(cho_factor(self.noise, check_finite=False), self.B, check_finite=False)
        self.B.T @ LB
        for F, M, B in zip(self.sums, self.means, self.loadings, strict=True):
            F @ B
            F.T @ M
            M.T @ M
        W = cho_solve(cho_factor(self.R, check_finite=False), self.C.T, check_finite=False)
        if self.full:
            self.C @ W
        if len(self.system):
            dpotri(cho_factor(self.system, lower=True, check_finite=False)[0], lower=1)
