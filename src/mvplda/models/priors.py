"""Priors for few classes: covariances drawn towards isotropic, whose limit ranks like cosine.

A prior speaks of Psi_k = B_k B_k' and of Sigma, not of loadings, so loadings are factors of full rank. It belongs
to vectors of one length that are not whitened (centring, then length normalisation): there the classes of a
well-trained network vary about equally in every direction, which is what few classes cannot tell by themselves.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, Generic

import numpy as np
from scipy.optimize import nnls

from .._typing import A, A_co, AnyArray, Array, IntArray
from ..backend import like, namespace, to_host
from ..calibration import LinearCalibrator
from ..exceptions import DataError, MvpldaWarning, ParameterError
from ..inference.em import Posterior
from ..inference.parameters import Parameters, noise_of
from ..labels import LabelTable, base_columns
from ..metrics import cllr
from ..scoring.question import Hypothesis, possible_hypotheses
from ..statistics import SufficientStatistics
from ..statistics.accumulator import Sums
from .heldout import deal_folds

DEFAULT_STRENGTH = 0.6
"""Where nothing can be held out. Costs are flat from 0.5 to 0.7 on the one set it was tried on, AudioMNIST."""

STRENGTHS = (0.3, 0.5, 0.7, 0.85, 0.95)
"""What "auto" tries of every view, and of the noise."""

MOMENT_ROWS = 2**16
"""Classes of which moments are taken at a time."""

FOLDS = 4
HELD_OUT_VECTORS = 500
"""Of every fold, so many vectors make the pairs that strengths are judged by."""


# What the data say, and what the prior makes of it.


@dataclass(frozen=True)
class Components(Generic[A_co]):
    """The mean, and the covariance of every view and of the noise, which comes last: all (D, D), on any device."""

    mean: A_co
    covariances: tuple[A_co, ...]

    @classmethod
    def of(cls, parameters: Parameters[A_co]) -> Components[A_co]:
        between = tuple(b @ b.T for b in parameters.loadings)
        return cls(parameters.mean, (*between, parameters.sigma.covariance))

    def parameters(self) -> Parameters[A_co]:
        """As a model: loadings are roots of the covariances, of as many columns as these have directions."""
        return Parameters(self.mean, tuple(map(_root, self.covariances[:-1])), self.covariances[-1])


def _root(covariance: A) -> A:
    xp = namespace(covariance)
    values, vectors = xp.linalg.eigh((covariance + covariance.T) / 2)
    kept = values > 1e-12 * max(float(values[-1]), 1e-300)
    kept[-1] = True
    root: A = xp.flip(vectors[:, kept] * xp.sqrt(values[kept].clip(min=0.0)), (1,))
    return root


@dataclass(frozen=True)
class IsotropicPrior:
    """Inverse Wishart priors of the covariances of every view and of the noise.

    targets : per view and for the noise (D,), the variances that each is drawn towards, equal within a block
    strengths : in [0, 1], share of the target in the estimate: 0 is maximum likelihood, 1 the target itself
    """

    targets: tuple[Array, ...]
    strengths: tuple[float, ...]

    @classmethod
    def about(
        cls, components: Components, strengths: Sequence[float], blocks: Sequence[int] = ()
    ) -> IsotropicPrior:
        """The prior that keeps the variance of every block of every component as it is."""
        ends = np.cumsum(blocks)[:-1].tolist()
        targets = []
        for covariance in components.covariances:
            parts = np.split(np.diag(covariance), ends)
            targets.append(np.concatenate([np.full(len(part), part.mean()) for part in parts]))
        return cls(tuple(targets), tuple(strengths))

    def draw(self, components: Components[A]) -> Components[A]:
        """Every covariance drawn towards its target: the maximum of likelihood times prior."""
        drawn = [
            (1 - s) * covariance + like(s * np.diag(target), covariance)  # (M7)
            for covariance, target, s in zip(
                components.covariances, self.targets, self.strengths, strict=True
            )
        ]
        return Components(components.mean, tuple(drawn))

    def log_density(self, parameters: Parameters[AnyArray], counts: Sequence[float]) -> float:
        """Log prior density, up to a constant; `counts` are the classes of every view, and the vectors."""
        total = 0.0
        covariances = Components.of(parameters).covariances
        for covariance, target, s, count in zip(
            covariances, self.targets, self.strengths, counts, strict=True
        ):
            if 0 < s < 1:  # at 0 there is no prior, at 1 nothing is left to choose
                psi = noise_of(covariance)
                weight = count * s / (1 - s)
                total -= (
                    0.5
                    * weight
                    * (psi.log_determinant + psi.trace(like(np.diag(target), covariance)))
                )  # (M8)
        return total


def map_step(sums: Sums[AnyArray], post: Posterior, prior: IsotropicPrior) -> Parameters[AnyArray]:
    """The M step for the classes' own effects B_k z_kc: their spread, the mean and the noise, under a prior.

    It runs where the sums are.
    """
    p, outer = post.parameters, sums.xp.outer
    B = p.stacked()
    effects = B @ post.sum_z
    mean = (sums.total - effects) / sums.n
    cross = post.sum_xz @ B.T + outer(sums.total, mean)
    both = outer(effects, mean)
    explained = B @ post.sum_zz @ B.T + both + both.T + sums.n * outer(mean, mean)
    noise = (sums.scatter - cross - cross.T + explained) / sums.n  # (M9)
    spreads = []
    for k, loading in enumerate(p.loadings):
        n_classes = len(sums.counts[k])
        centre = post.view_sums[k].class_z / n_classes
        second = (post.view_sums[k].class_zz + post.class_covariance[k]) / n_classes
        spreads.append(loading @ (second - outer(centre, centre)) @ loading.T)  # (M10)
        mean = mean + loading @ centre
    return prior.draw(Components(mean, (*spreads, (noise + noise.T) / 2))).parameters()


# Moments: variance components of any design in one pass, the start of EM and all that a choice of strengths needs.


def moment_components(sums: Sums[AnyArray]) -> Components:
    """Covariances that match the scatter of class means of every view, and the whole scatter, in expectation.

    They are on the host, wherever the sums are. What the labels cannot tell apart (a view with one class, one vector
    a class) is an equal share of the variance, in every direction.
    """
    n, K, D = sums.n, sums.n_views, sums.dimension
    if n < 2:
        raise DataError(f"a fit needs at least 2 vectors; got {n}")
    total = to_host(sums.total)
    grand = np.outer(total, total) / n
    scatters = [
        _scatter_of_means(s, c) - grand for s, c in zip(sums.sums, sums.counts, strict=True)
    ]
    scatters.append(to_host(sums.scatter) - grand)
    if not np.trace(scatters[-1]) > 0:
        raise DataError("all vectors are the same: there is no variance to explain")
    M = np.empty((K + 1, K + 1))
    alone = np.array([float((c**2).sum()) / n for c in sums.counts])
    for j in range(K):
        for l in range(K):
            met = (
                float(n)
                if j == l
                else float((sums.together(j, l).power(2).sum(axis=1) / sums.counts[j]).sum())
            )
            M[j, l] = met - alone[l]  # (S3)
        M[j, K] = len(sums.counts[j]) - 1
    M[K, :K], M[K, K] = n - alone, n - 1
    scale = np.maximum(np.abs(M).max(axis=1), 1e-300)
    traces = np.array([np.trace(s) for s in scatters])
    share = traces[-1] / (n - 1) / (K + 1)
    small = 1e-4
    sizes, _ = nnls(
        np.concatenate([M / scale[:, None], small * np.eye(K + 1)]),
        np.concatenate([traces / scale, np.full(K + 1, small * share)]),
    )
    mix = np.linalg.pinv(M / scale[:, None], rcond=1e-6) / scale
    covariances = []
    for k, size in enumerate(sizes):
        values, vectors = np.linalg.eigh(sum(m * s for m, s in zip(mix[k], scatters, strict=True)))
        values = values.clip(min=0.0)
        isotropic = values.sum() <= 1e-9 * max(size, 1e-300)
        size = max(size, 1e-6 * traces[-1] / (n - 1))
        shape = np.eye(D) / D if isotropic else (vectors * (values / values.sum())) @ vectors.T
        covariances.append(size * shape)
    floor = 1e-6 * traces[-1] / (n - 1) / D
    covariances[-1] = covariances[-1] + floor * np.eye(D)
    return Components(total / n, tuple(covariances))


def _scatter_of_means(sums: AnyArray, counts: Array) -> Array:
    """(D, D) on the host: sum over classes of n_c mean mean', some classes at a time, without a copy of them all."""
    scatter = np.zeros((sums.shape[1],) * 2)
    for start in range(0, len(sums), MOMENT_ROWS):
        some = sums[start : start + MOMENT_ROWS]
        scatter += to_host((some / like(counts[start : start + MOMENT_ROWS, None], some)).T @ some)
    return scatter


def without_labels(n: int, views: Mapping[str, Any] | None) -> dict[str, IntArray]:
    """Every vector a class of its own in every view."""
    return dict.fromkeys(base_columns(tuple(views or ("class",))), np.arange(n))


# Strengths: what was asked for, or the best for classes that were held out.


def as_strengths(strength: Any, views: Sequence[str]) -> tuple[float, ...]:
    """Of every view and of the noise, from one number or a dict."""
    names = (*views, "noise")
    if isinstance(strength, Mapping):
        unknown = [name for name in strength if name not in names]
        if unknown:
            raise ParameterError(f"prior_strength names {unknown[0]!r}; there are {list(names)}")
        values = [strength.get(name, DEFAULT_STRENGTH) for name in names]
    else:
        values = [strength] * len(names)
    for name, value in zip(names, values, strict=True):
        if isinstance(value, bool) or not isinstance(value, Real) or not 0 <= float(value) <= 1:
            raise ParameterError(
                f"prior_strength is 'auto', a number in [0, 1], or a dict of them by view and 'noise'; "
                f"got {value!r} for {name!r}"
            )
    return tuple(float(value) for value in values)


def choose_strengths(X: Array, table: LabelTable) -> dict[str, float]:
    """Strengths by view whose likelihood ratios, calibrated, cost the held-out classes' pairs least.

    The moments of a fold are gathered once; a candidate only draws them anew. One strength for all is chosen
    first, then each by itself, and a change must pay in every round of folds together.
    """
    views = table.views
    folds = _folds(X, table)
    if not folds:
        return dict.fromkeys((*views, "noise"), DEFAULT_STRENGTH)
    costs: dict[tuple[float, ...], float] = {}

    def cost(strengths: tuple[float, ...]) -> float:
        if strengths not in costs:
            costs[strengths] = _cost(folds, views, strengths)
        return costs[strengths]

    best = min(((s,) * (len(views) + 1) for s in STRENGTHS), key=cost)
    for place in range(len(best)):
        candidates = [(*best[:place], s, *best[place + 1 :]) for s in STRENGTHS]
        best = min([best, *candidates], key=cost)
    return dict(zip((*views, "noise"), best, strict=True))


@dataclass(frozen=True)
class _Fold:
    components: Components
    vectors: Array
    codes: dict[str, IntArray]


def _folds(X: Array, table: LabelTable) -> list[_Fold]:
    """Moments of all but some classes, and vectors of these; empty where there are too few to hold any out."""
    base = base_columns(table.views)
    held_out = max(base, key=lambda view: len(table.classes[view]))
    if len(table.classes[held_out]) < 2 * FOLDS:
        return []
    rng = np.random.default_rng(0)
    folds = []
    for fold in deal_folds(table.codes[held_out], FOLDS, rng):
        rows = fold.some_rows(HELD_OUT_VECTORS, rng)
        inside = {view: table.codes[view][fold.train] for view in base}
        statistics = SufficientStatistics.from_arrays(X[fold.train], inside, views=table.views)
        moments = moment_components(statistics.for_views(table.views, "full").on_host())
        here = {view: table.codes[view][rows] for view in base}
        folds.append(_Fold(replace(moments, mean=moments.mean + statistics.origin), X[rows], here))
    return folds


def _cost(folds: Sequence[_Fold], views: Sequence[str], strengths: tuple[float, ...]) -> float:
    """Calibrated Cllr in bits, summed over the question of all views and that of every single one."""
    base = base_columns(tuple(views))
    questions = [base, *((view,) for view in base if len(base) > 1)]
    pooled: list[tuple[list[Array], list[Array]]] = [([], []) for _ in questions]
    for fold in folds:
        drawn = IsotropicPrior.about(fold.components, strengths).draw(fold.components)
        every = possible_hypotheses(base, {})
        terms = {h: single_pairs(drawn, views, h, fold.vectors) for h in every}
        once = np.triu(np.ones((len(fold.vectors),) * 2, dtype=bool), 1)
        equal = {view: np.equal.outer(codes, codes) for view, codes in fold.codes.items()}
        for question, (targets, others) in zip(questions, pooled, strict=True):
            same = np.logical_and.reduce([equal[view] for view in question])
            said = [terms[h] for h in every if set(question) <= set(h)]
            denied = [terms[h] for h in every if not set(question) <= set(h)]
            scores = np.logaddexp.reduce(said) - np.logaddexp.reduce(denied)
            targets.append(scores[same & once])
            others.append(scores[~same & once])
    return sum(_calibrated_cost(np.concatenate(t), np.concatenate(o)) for t, o in pooled)


def single_pairs(
    components: Components, views: Sequence[str], shared: Hypothesis, X: Array
) -> Array:
    """log p(x, x' | shared) - log p(x) - log p(x') of all pairs of single vectors, (n, n).

    Both sides have one covariance, so that the sum and the difference of a pair are independent: two D x D
    factorisations a hypothesis, whatever the ranks.
    """
    total = np.sum(components.covariances, axis=0)
    common = [
        c
        for view, c in zip(views, components.covariances, strict=False)
        if set(view.split(":")) <= set(shared)
    ]
    if not common:
        return np.zeros((len(X), len(X)))
    R = np.sum(common, axis=0)
    of_sum, of_difference, alone = (noise_of(total + sign * R) for sign in (1.0, -1.0, 0.0))
    Y = (X - components.mean).T
    plus, minus = of_sum.solve(Y), of_difference.solve(Y)
    own = -0.5 * np.einsum("dn,dn->n", Y, (plus + minus) / 2 - alone.solve(Y))
    constant = -0.5 * (
        of_sum.log_determinant + of_difference.log_determinant - 2 * alone.log_determinant
    )
    return np.asarray(own[:, None] + own - 0.5 * Y.T @ (plus - minus) + constant)  # (V9)


def _calibrated_cost(targets: Array, others: Array) -> float:
    if len(targets) == 0 or len(others) == 0:
        return 0.0
    others = others[:: max(1, len(others) // 50_000)]
    scores, truth = (
        np.concatenate([targets, others]),
        np.repeat([True, False], [len(targets), len(others)]),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MvpldaWarning)
        llrs = LinearCalibrator().fit(scores, truth).transform(scores)
    return float(cllr(llrs[truth], llrs[~truth]))
