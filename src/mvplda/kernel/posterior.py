"""The exact E step: posterior moments of all latents, and the log-likelihood."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from .design import Design
from .elimination import Elimination
from .leaf import Leaf, ViewSums, leaf_given_data, sums_of_rows
from .records import LOG_2PI, Array, Parameters, Precision, canonical_and_weighted


@dataclass(frozen=True)
class Posterior:
    """Moments of all latents given the data.

    parameters : the model, in the coordinates that the latents are in (canonical)
    view_sums : per view, sums of E[z_kc] over vectors and over classes
    sum_zz : (r, r) sum over vectors of E[z z'], views side by side
    class_covariance : per view (r_k, r_k), sum over classes of Cov(z_kc)
    log_likelihood : of the data, exact
    """

    parameters: Parameters
    view_sums: tuple[ViewSums, ...]
    sum_zz: Array
    class_covariance: tuple[Array, ...]
    log_likelihood: float
    elimination: Elimination
    leaf: Leaf
    others: dict[int, Array]

    @property
    def sum_z(self) -> Array:
        """(r,) sum over vectors of E[z], views side by side."""
        return np.concatenate([s.z for s in self.view_sums])

    @property
    def sum_xz(self) -> Array:
        """(D, r) sum over vectors of x E[z]'."""
        return np.concatenate([s.xz for s in self.view_sums], axis=1)

    @cached_property
    def means(self) -> tuple[Array, ...]:
        """Per view (C_k, r_k), E[z_kc]."""
        return tuple(self.others[k] if k in self.others else self.leaf.means() for k in range(len(self.view_sums)))

    def covariances(self, view: int) -> Array:
        """Cov(z_kc) of every class of a view, (C_k, r_k, r_k)."""
        return self.elimination.covariances(view)


def posterior(design: Design, parameters: Parameters) -> Posterior:
    """Posterior of all latents given the sums of the data."""
    sums, e = design.sums, design.plan.leaf
    precision = Precision(parameters.noise)
    p, LB = canonical_and_weighted(parameters, precision)
    B, where = p.stacked(), p.slices
    G = B.T @ LB
    at_mean = p.mean @ LB
    system = Elimination(design, G, where)
    leaf = leaf_given_data(design, system.delta, LB[:, where[e]], at_mean[where[e]])
    b = {
        k: sums.sums[k] @ LB[:, where[k]] - np.outer(sums.counts[k], at_mean[where[k]])  # (E2)
        for k in range(sums.n_views)
        if k != e
    }
    means = system.solve(leaf, b)
    view_sums = tuple(
        leaf.sums() if k == e else sums_of_rows(sums.sums[k], sums.counts[k], means[k]) for k in range(sums.n_views)
    )
    zz = np.zeros_like(G)  # sum over vectors of E[z] E[z]'
    for k in range(sums.n_views):
        zz[where[k], where[k]] = view_sums[k].zz
        for l in range(k + 1, sums.n_views):
            if e in (k, l):
                cross = leaf.met(l).T @ means[l] if k == e else means[k].T @ leaf.met(k)
            else:
                cross = means[k].T @ (sums.cooccurrence[k, l] @ means[l])
            zz[where[k], where[l]], zz[where[l], where[k]] = cross, cross.T
    covariance_sum, class_covariance = system.covariance_sums()
    # b' Lambda^-1 b as 2 b'm - m' Lambda m: rounding errors of the means m then enter squared
    explained = -float(np.vdot(G, zz))
    for s, w in zip(view_sums, where, strict=True):
        explained += 2 * float(np.vdot(LB[:, w], s.xz) - at_mean[w] @ s.z) - float(np.trace(s.class_zz))
    log_likelihood = -0.5 * (  # (E9)
        sums.n * (sums.dimension * LOG_2PI + precision.log_determinant)
        + precision.trace(sums.scatter_about(p.mean))
        + system.log_determinant
        - explained
    )
    return Posterior(p, view_sums, covariance_sum + zz, class_covariance, log_likelihood, system, leaf, means)
