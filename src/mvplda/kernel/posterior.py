"""The exact E step: posterior moments of all latents, and the log-likelihood."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .design import Design
from .elimination import Elimination
from .records import LOG_2PI, Array, Parameters, Precision, canonical


@dataclass(frozen=True)
class Posterior:
    """Moments of all latents given the data.

    parameters : the model, in the coordinates that the latents are in (canonical)
    means : per view (C_k, r_k), E[z_kc]
    sum_z : (r,) sum over vectors of E[z], views side by side
    sum_zz : (r, r) sum over vectors of E[z z']
    class_covariance : per view (r_k, r_k), sum over classes of Cov(z_kc)
    log_likelihood : of the data, exact
    """

    parameters: Parameters
    means: tuple[Array, ...]
    sum_z: Array
    sum_zz: Array
    class_covariance: tuple[Array, ...]
    log_likelihood: float
    elimination: Elimination

    def covariances(self, view: int) -> Array:
        """Cov(z_kc) of every class of a view, (C_k, r_k, r_k)."""
        return self.elimination.covariances(view)


def posterior(design: Design, parameters: Parameters) -> Posterior:
    """Posterior of all latents given the sums of the data."""
    sums = design.sums
    precision = Precision(parameters.noise)
    p = canonical(parameters, precision)
    B, where = p.stacked(), p.slices
    LB = precision.apply(B)
    at_mean = p.mean @ LB
    b = tuple(
        f @ LB[:, s] - np.outer(n, at_mean[s])  # (E2)
        for f, n, s in zip(sums.sums, sums.counts, where, strict=True)
    )
    system = Elimination(design, B.T @ LB, where)
    means = system.solve(b)
    explained = sum(float(np.vdot(x, m)) for x, m in zip(b, means, strict=True))
    log_likelihood = -0.5 * (  # (E9)
        sums.n * (sums.dimension * LOG_2PI + precision.log_determinant)
        + precision.trace(sums.scatter_about(p.mean))
        + system.log_determinant
        - explained
    )
    sum_zz, class_covariance = system.covariance_sums()
    for k, mk in enumerate(means):
        sum_zz[where[k], where[k]] += mk.T @ (sums.counts[k][:, None] * mk)
        for l in range(k + 1, sums.n_views):
            cross = mk.T @ (sums.cooccurrence[k, l] @ means[l])
            sum_zz[where[k], where[l]] += cross
            sum_zz[where[l], where[k]] += cross.T
    sum_z = np.concatenate([n @ m for n, m in zip(sums.counts, means, strict=True)])
    return Posterior(p, means, sum_z, sum_zz, class_covariance, log_likelihood, system)
