"""Folds of held-out people and trials among them: whatever is chosen or calibrated on held-out data is dealt here.

People (the classes of one view, or groups of them) are dealt into folds. A model is fitted without
the people of a fold and answers trials among them; over all folds every person is tried once, by a
model that was not trained on that person. People are numbered as they first appear in the data, so
that names have no influence on the folds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._typing import Array, IntArray
from ..exceptions import DataError, ParameterError
from ..labels import as_array, by_appearance, distinct, encode_labels
from ..scoring.question import Hypothesis, possible_hypotheses

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
    labels: Mapping[str, Any],
    views: Sequence[str] | None = None,
    *,
    folds: int = 4,
    enrolment: int | Sequence[int] = 1,
    groups: Any = None,
    eligible: Any = None,
    missing: Any = None,
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
    if len(everybody) < 2 * least:
        return []
    dealt = np.unique(people[may_try])
    if len(dealt) < least:
        dealt = everybody
    folds = min(int(folds), len(dealt) // least)
    fold_of = np.full(len(everybody), -1)
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


def _numbered(groups: Any, n: int) -> IntArray:
    if np.shape(groups) != (n,):
        raise DataError(f"there are {n} vectors and groups of shape {np.shape(groups)}")
    return by_appearance(distinct(as_array(groups))[1])


def _as_mask(eligible: Any, n: int) -> NDArray[np.bool_]:
    if eligible is None:
        return np.ones(n, dtype=bool)
    mask = np.array(eligible)
    if mask.shape != (n,) or mask.dtype != bool:
        raise DataError(f"eligible vectors are true or false of each of the {n} vectors")
    return mask
