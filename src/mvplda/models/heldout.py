"""Folds of held-out people and trials among them: whatever is chosen or calibrated on held-out data is dealt here.

People (the classes of one view, or groups of them) are dealt into folds. A model is fitted without
the people of a fold and answers trials among them; over all folds every person is tried once, by a
model that was not trained on that person. People are numbered as they first appear in the data, so
that names have no influence on the folds.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral, Real

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._typing import Array, Columns, IntArray
from ..calibration import LinearCalibrator
from ..exceptions import DataError, MvpldaWarning, ParameterError
from ..inference.priors import Components, IsotropicPrior, moment_components
from ..labels import LabelTable, as_array, base_columns, by_appearance, distinct, encode_labels
from ..metrics import cllr
from ..scoring.latents import vector_term
from ..scoring.question import Hypothesis, possible_hypotheses
from ..statistics import SufficientStatistics

LEAST_HELD_OUT = 4
"""People in a fold: between fewer, hardly any trial is of two people."""

TESTS = 2000
"""Of every fold, so many held-out vectors are tests."""

TRIALS = 20_000
"""Of every kind in every fold, so many trials are drawn."""


@dataclass(frozen=True)
class Fold:
    """Some people, held out together.

    train : (n,) bool, vectors of everybody else
    rows : vectors of the held-out people that trials may be made of
    """

    train: NDArray[np.bool_]
    rows: IntArray

    def some_rows(self, most: int, rng: np.random.Generator) -> IntArray:
        """At most so many of the rows, drawn at random, in their order."""
        return np.sort(rng.permutation(self.rows)[:most])


@dataclass(frozen=True)
class Trials:
    """Trials among some vectors: what enrols, what tests, and some trials of every kind, kind after kind.

    views : of which every trial has a kind
    enrol : (e,) rows of the vectors that enrol, profile after profile
    ids : (e,) number of the profile of each, from 0
    profiles : (p,) row of every profile's first vector, whose labels are the profile's
    test : (t,) rows of the tests
    pairs : (m, 2) number of the profile and of the test of every trial
    kinds : (m,) which of `hypotheses` is true of it
    weights : (m,) how many trials it stands for, where a kind has more than were drawn
    """

    views: tuple[str, ...]
    enrol: IntArray
    ids: IntArray
    profiles: IntArray
    test: IntArray
    pairs: IntArray
    kinds: IntArray
    weights: Array

    def __len__(self) -> int:
        return len(self.pairs)

    @property
    def hypotheses(self) -> list[Hypothesis]:
        """Which views are shared: all of them first, none last."""
        return possible_hypotheses(self.views, {})

    @property
    def places(self) -> IntArray:
        """(m,) place of every trial in the flattened matrix of profiles and tests."""
        return np.asarray(self.pairs[:, 0] * len(self.test) + self.pairs[:, 1])


def held_out_trials(
    labels: Columns,
    views: Sequence[str] | None = None,
    *,
    folds: int = 4,
    enrolment: int | Sequence[int] = 1,
    groups: ArrayLike | None = None,
    eligible: ArrayLike | None = None,
    missing: object = None,
    most_tests: int | None = TESTS,
    most_trials: int | None = TRIALS,
    random_state: int = 0,
) -> list[tuple[Fold, Trials]]:
    """Folds of people, with trials among the people of each; empty where there are too few people.

    Parameters
    ----------
    labels : {view: (n,) labels}
    views : of which trials have kinds; None: all in `labels`. The classes of the first are held out
    folds : how many, at most; fewer where a fold would have less than 4 people
    enrolment : vectors per profile; several numbers are used in turn, profile after profile
    groups : (n,) people who are held out together; None: the classes of the first view
    eligible : (n,) bool, vectors that trials may be made of: of people that no extractor was trained on, where there
        are such, and as they were recorded. None: all. Vectors without a label in some view are never tried
    missing : a label that stands for "no label", besides None and NaN
    most_tests, most_trials : of every fold, and of every kind in every fold; None: no limit
    random_state : of everything that is drawn
    """
    views = tuple(labels if views is None else views)
    table = encode_labels({view: labels[view] for view in views}, views, missing=missing)
    n = len(table)
    codes = np.stack([by_appearance(table.codes[view]) for view in views], axis=1)
    people = codes[:, 0] if groups is None else _numbered(groups, n)
    may_try = _as_mask(eligible, n)
    for view in views:
        # nobody can say whether a vector without a label is of the same class as another
        may_try &= table.codes[view] < len(table.classes[view].names)
    # one generator for all folds: the same deal for the same data
    rng = np.random.default_rng(random_state)
    dealt = []
    for fold in deal_folds(people, folds, rng, eligible=may_try, least=LEAST_HELD_OUT):
        trials = deal_trials(
            fold.rows,
            codes,
            views,
            rng,
            enrolment=enrolment,
            most_tests=most_tests,
            most_trials=most_trials,
        )
        if trials is not None:
            dealt.append((fold, trials))
    return dealt


def deal_folds(
    people: IntArray,
    folds: int,
    rng: np.random.Generator | np.random.RandomState,
    *,
    eligible: NDArray[np.bool_] | None = None,
    least: int = 1,
) -> list[Fold]:
    """People dealt into folds of about the same number; empty where there are not two folds' worth of them.

    Parameters
    ----------
    people : (n,) number of the person of every vector
    folds : how many, at most
    eligible : (n,) bool, vectors that trials may be made of. People without such a vector are never held out, unless
        hardly anybody has one
    least : people per fold
    """
    if isinstance(folds, bool) or not isinstance(folds, Integral) or folds < 2:
        raise ParameterError(f"folds is a whole number, at least 2; got {folds!r}")
    people = by_appearance(people)
    may_try = _as_mask(eligible, len(people))
    everybody = np.unique(people)
    # fewer would leave nobody to train on, or nobody to try
    if len(everybody) < 2 * least:
        return []
    dealt = np.unique(people[may_try])
    # hardly anybody may be tried: then all may
    if len(dealt) < least:
        dealt = everybody
    folds = min(int(folds), len(dealt) // least)
    fold_of = np.full(len(everybody), -1)
    # folds differ by one person at most
    fold_of[dealt] = rng.permutation(len(dealt)) % folds
    found = []
    for number in range(folds):
        held = fold_of[people] == number
        tried = held & may_try
        rows = np.flatnonzero(tried if tried.any() else held)
        found.append(Fold(~held, rows))
    return found


def deal_trials(
    rows: IntArray,
    codes: IntArray,
    views: tuple[str, ...],
    rng: np.random.Generator,
    *,
    enrolment: int | Sequence[int] = 1,
    most_tests: int | None = TESTS,
    most_trials: int | None = TRIALS,
) -> Trials | None:
    """Trials among some vectors; None where there are none.

    The first vectors of every cell (one class of every view) enrol, the others test. A cell with fewer than twice as
    many vectors as a profile wants enrols half of them.

    Parameters
    ----------
    rows : vectors to make trials of
    codes : (n, views) class numbers of all vectors
    enrolment, most_tests, most_trials : as in `held_out_trials`
    """
    wanted = np.atleast_1d(enrolment)
    if wanted.dtype.kind not in "iu" or (wanted < 1).any():
        raise ParameterError(f"enrolment is a whole number, at least 1; got {enrolment!r}")
    cell = np.unique(codes[rows], axis=0, return_inverse=True)[1].reshape(-1)
    size = np.bincount(cell)[cell]
    # a small cell keeps half of its vectors for tests
    takes = np.minimum(wanted[cell % len(wanted)], size // 2)
    enrols = _rank_within(cell) < takes
    tests = np.sort(rng.permutation(rows[~enrols])[:most_tests])
    if not enrols.any() or not len(tests):
        return None

    order = np.argsort(cell[enrols], kind="stable")
    enrolled = rows[enrols][order]
    starts = np.append(True, np.diff(cell[enrols][order]) > 0)
    profiles = enrolled[starts]

    same = [np.equal.outer(codes[profiles, k], codes[tests, k]) for k in range(len(views))]
    places = []
    kinds = []
    weights = []
    for number, hypothesis in enumerate(possible_hypotheses(views, {})):
        true = np.ones((len(profiles), len(tests)), dtype=bool)
        for view, equal in zip(views, same, strict=True):
            true &= equal if view in hypothesis else ~equal
        # impostors with other words are most of all pairs: some of every kind are enough
        every = np.flatnonzero(true)
        drawn = np.sort(rng.permutation(every)[:most_trials])
        places.append(drawn)
        kinds.append(np.full(len(drawn), number))
        weights.append(np.full(len(drawn), len(every) / max(1, len(drawn))))
    pairs = np.stack(np.divmod(np.concatenate(places), len(tests)), axis=1)
    return Trials(
        views,
        enrolled,
        np.cumsum(starts) - 1,
        profiles,
        tests,
        pairs,
        np.concatenate(kinds),
        np.concatenate(weights),
    )


def _rank_within(cell: IntArray) -> IntArray:
    """(n,) how many of the same cell stand before each."""
    order = np.argsort(cell, kind="stable")
    first = np.searchsorted(cell[order], cell[order])
    rank = np.empty(len(cell), dtype=np.int64)
    rank[order] = np.arange(len(cell)) - first
    return rank


def _numbered(groups: ArrayLike, n: int) -> IntArray:
    if np.shape(groups) != (n,):
        raise DataError(f"there are {n} vectors and groups of shape {np.shape(groups)}")
    return by_appearance(distinct(as_array(groups))[1])


def _as_mask(eligible: ArrayLike | None, n: int) -> NDArray[np.bool_]:
    if eligible is None:
        return np.ones(n, dtype=bool)
    mask = np.array(eligible)
    if mask.shape != (n,) or mask.dtype != bool:
        raise DataError(f"eligible vectors are true or false of each of the {n} vectors")
    return mask


# -- strengths of a prior: what was asked for, or the best for classes that were held out -----------------------

DEFAULT_STRENGTH = 0.6
"""Where nothing can be held out. Costs are flat from 0.5 to 0.7 on the one set it was tried on, AudioMNIST."""

STRENGTHS = (0.3, 0.5, 0.7, 0.85, 0.95)
"""What "auto" tries of every view, and of the noise."""

FOLDS = 4
HELD_OUT_VECTORS = 500
"""Of every fold, so many vectors make the pairs that strengths are judged by."""


def without_labels(n: int, views: Iterable[str] | None) -> dict[str, IntArray]:
    """Every vector a class of its own in every view."""
    return dict.fromkeys(base_columns(tuple(views or ("class",))), np.arange(n))


def as_strengths(strength: object, views: Sequence[str]) -> tuple[float, ...]:
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
    folds = _moments_of_folds(X, table)
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
class _Moments:
    components: Components
    vectors: Array
    codes: dict[str, IntArray]


def _moments_of_folds(X: Array, table: LabelTable) -> list[_Moments]:
    """Moments of all but some classes, and vectors of these; empty where there are too few to hold any out."""
    base = base_columns(table.views)
    # the view with most classes has the folds that differ least
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
        folds.append(
            _Moments(replace(moments, mean=moments.mean + statistics.origin), X[rows], here)
        )
    return folds


def _cost(folds: Sequence[_Moments], views: Sequence[str], strengths: tuple[float, ...]) -> float:
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
    return np.asarray((Y @ term.left) @ Y.T + rows[:, None] + columns + term.constant)


def _calibrated_cost(targets: Array, others: Array) -> float:
    if len(targets) == 0 or len(others) == 0:
        return 0.0
    # thousands of pairs place two parameters well enough
    others = others[:: max(1, len(others) // 50_000)]
    scores = np.concatenate([targets, others])
    truth = np.arange(len(scores)) < len(targets)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MvpldaWarning)
        llrs = LinearCalibrator().fit(scores, truth).transform(scores)
    return float(cllr(llrs[truth], llrs[~truth]))
