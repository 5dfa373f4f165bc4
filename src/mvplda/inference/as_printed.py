"""The EM of the paper's appendix (arXiv 1704.06061), as printed, for comparison.

Its E step infers (u_i, v_j) from the vectors of cell (i, j) alone, as if no
speaker said two phrases; its M step updates the loadings one after the
other. See docs/errata.md for what is wrong with it. The likelihood that is
reported beside it is the model's own, and may fall.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from .._typing import Array
from ..statistics.accumulator import Sums
from .em import Posterior
from .noise import NoiseModel
from .parameters import Parameters


def paper_step(cells: Sums, noise: NoiseModel) -> Callable[[Posterior], Parameters]:
    """One iteration of the printed algorithm. `cells`: the statistics with the cell as the only view."""

    def step(current: Posterior) -> Parameters:
        p = current.parameters
        means, R = cell_moments(cells, p)
        mean = cells.total / cells.n  # (P2)
        C = cells.sums[0].T @ means - np.outer(mean, cells.counts[0] @ means)
        loadings = list(p.loadings)
        for k, own in enumerate(p.slices):  # (P3) one view after the other
            target = C[:, own].copy()
            for l, other in enumerate(p.slices):
                if l != k:
                    target -= loadings[l] @ R[other, own]
            loadings[k] = cho_solve(cho_factor(R[own, own]), target.T).T
        B = np.concatenate(loadings, axis=1)
        sigma = noise.estimate(cells.scatter_about(mean) - cells.product(B, C), cells.n)  # (P4)
        return Parameters(mean, tuple(loadings), sigma)

    return step


def cell_moments(cells: Sums, p: Parameters) -> tuple[Array, Array]:
    """E[z_ij] of every cell, and sum over vectors of E[z z'], where z_ij = (u_i, v_j)."""
    B = p.stacked()
    LB = p.sigma.solve(B)
    values, Q = np.linalg.eigh(B.T @ LB)
    n = cells.counts[0][:, None]
    shrink = 1.0 / (1.0 + n * np.maximum(values, 0.0))
    b = (cells.sums[0] - n * p.mean) @ LB
    means = ((b @ Q) * shrink) @ Q.T  # (P1)
    R = means.T @ (n * means) + (Q * (n * shrink).sum(axis=0)) @ Q.T
    return means, R
