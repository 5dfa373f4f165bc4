"""The E step: posterior moments of all latents, and the log-likelihood, or a bound of it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from .arrays import namespace, to_host
from .design import Design
from .elimination import Elimination
from .factorised import FactorisedElimination
from .leaf import Leaf, ViewSums, leaf_given_data, sums_of_rows
from .records import LOG_2PI, Array, Parameters, Precision, canonical_and_weighted


@dataclass(frozen=True)
class Posterior:
    """Moments of all latents given the data.

    parameters : the model, in the coordinates that the latents are in (canonical)
    view_sums : per view, sums of E[z_kc] over vectors and over classes
    sum_zz : (r, r) sum over vectors of E[z z'], views side by side
    class_covariance : per view (r_k, r_k), sum over classes of Cov(z_kc)
    log_likelihood : of the data, exact; where the plan is factorised, a lower bound of it
    """

    parameters: Parameters
    view_sums: tuple[ViewSums, ...]
    sum_zz: Array
    class_covariance: tuple[Array, ...]
    log_likelihood: float
    elimination: Elimination | FactorisedElimination
    leaf: Leaf
    others: dict[int, Array]

    @property
    def sum_z(self) -> Array:
        """(r,) sum over vectors of E[z], views side by side."""
        z: Array = namespace(self.sum_zz).concatenate([s.z for s in self.view_sums])
        return z

    @property
    def sum_xz(self) -> Array:
        """(D, r) sum over vectors of x E[z]'."""
        xz: Array = namespace(self.sum_zz).concatenate([s.xz for s in self.view_sums], axis=1)
        return xz

    @cached_property
    def means(self) -> tuple[Array, ...]:
        """Per view (C_k, r_k), E[z_kc], on the host."""
        views = range(len(self.view_sums))
        return tuple(to_host(self.others[k] if k in self.others else self.leaf.means()) for k in views)

    def covariances(self, view: int) -> Array:
        """Cov(z_kc) of every class of a view, (C_k, r_k, r_k), on the host."""
        return np.ascontiguousarray(to_host(self.elimination.covariances(view)))


def posterior(design: Design, parameters: Parameters) -> Posterior:
    """Posterior of all latents given the sums of the data."""
    sums, e, xp = design.sums, design.plan.leaf, design.sums.xp
    counts = [xp.keep(n) for n in sums.counts]
    precision = Precision(parameters.noise)
    p, LB = canonical_and_weighted(parameters, precision)
    B, where = p.stacked(), p.slices
    G = B.T @ LB
    at_mean = p.mean @ LB
    system = (FactorisedElimination if design.plan.factorised else Elimination)(design, G, where)
    leaf = leaf_given_data(design, system.delta, LB[:, where[e]], at_mean[where[e]])
    b = {
        k: sums.sums[k] @ LB[:, where[k]] - xp.outer(counts[k], at_mean[where[k]])  # (E2)
        for k in range(sums.n_views)
        if k != e
    }
    means = system.solve(leaf, b)
    view_sums = tuple(
        leaf.sums() if k == e else sums_of_rows(sums.sums[k], counts[k], means[k]) for k in range(sums.n_views)
    )
    zz = xp.zeros_like(G)  # sum over vectors of E[z] E[z]'
    for k in range(sums.n_views):
        zz[where[k], where[k]] = view_sums[k].zz
        for l in range(k + 1, sums.n_views):
            if e in (k, l):
                cross = leaf.met(l).T @ means[l] if k == e else means[k].T @ leaf.met(k)
            else:
                cross = means[k].T @ (xp.table(sums.cooccurrence[k, l]) @ means[l])
            zz[where[k], where[l]], zz[where[l], where[k]] = cross, cross.T
    covariance_sum, class_covariance = system.covariance_sums()
    # b' Lambda^-1 b as 2 b'm - m' Lambda m: rounding errors of the means m then enter squared
    explained = -float(xp.vdot(G, zz))
    for s, w in zip(view_sums, where, strict=True):
        explained += 2 * float(xp.vdot(LB[:, w], s.xz) - at_mean[w] @ s.z) - float(xp.trace(s.class_zz))
    log_likelihood = -0.5 * (  # (E9)
        sums.n * (sums.dimension * LOG_2PI + precision.log_determinant)
        + precision.trace(sums.scatter_about(p.mean))
        + system.log_determinant
        - explained
    )
    return Posterior(p, view_sums, covariance_sum + zz, class_covariance, log_likelihood, system, leaf, means)
