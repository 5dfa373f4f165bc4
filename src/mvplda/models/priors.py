"""Strengths of a prior: what was asked for, or the best for classes that were held out."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import numpy as np

from .._typing import Array, IntArray
from ..calibration import LinearCalibrator
from ..exceptions import MvpldaWarning, ParameterError
from ..inference.priors import Components, IsotropicPrior, moment_components
from ..labels import LabelTable, base_columns
from ..metrics import cllr
from ..scoring.latents import vector_term
from ..scoring.question import Hypothesis, possible_hypotheses
from ..statistics import SufficientStatistics
from .heldout import deal_folds

DEFAULT_STRENGTH = 0.6
"""Where nothing can be held out. Costs are flat from 0.5 to 0.7 on the one set it was tried on, AudioMNIST."""

STRENGTHS = (0.3, 0.5, 0.7, 0.85, 0.95)
"""What "auto" tries of every view, and of the noise."""

FOLDS = 4
HELD_OUT_VECTORS = 500
"""Of every fold, so many vectors make the pairs that strengths are judged by."""


def without_labels(n: int, views: Mapping[str, Any] | None) -> dict[str, IntArray]:
    """Every vector a class of its own in every view."""
    return dict.fromkeys(base_columns(tuple(views or ("class",))), np.arange(n))


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
        drawn = IsotropicPrior(fold.components, strengths).draw(fold.components)
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
    """log p(x, x' | shared) - log p(x) - log p(x') of all pairs of single vectors, (n, n)."""
    total = np.sum(components.covariances, axis=0)
    parts = zip(views, components.covariances, strict=False)
    common = [c for view, c in parts if set(view.split(":")) <= set(shared)]
    if not common:
        return np.zeros((len(X), len(X)))
    # as many columns as vectors have: the form of vectors, not that of latents
    term = vector_term(total, total, np.sum(common, axis=0))
    Y = X - components.mean
    rows = np.einsum("nd,nd->n", Y @ term.row, Y)
    columns = np.einsum("nd,nd->n", Y @ term.column, Y)
    return (Y @ term.left) @ Y.T + rows[:, None] + columns + term.constant


def _calibrated_cost(targets: Array, others: Array) -> float:
    if len(targets) == 0 or len(others) == 0:
        return 0.0
    others = others[:: max(1, len(others) // 50_000)]
    scores = np.concatenate([targets, others])
    truth = np.arange(len(scores)) < len(targets)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MvpldaWarning)
        llrs = LinearCalibrator().fit(scores, truth).transform(scores)
    return float(cllr(llrs[truth], llrs[~truth]))
