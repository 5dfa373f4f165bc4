"""Folds of held-out people and trials among them: whatever is chosen or calibrated on held-out data is dealt here.

People (the classes of one view) are dealt into folds. A model is fitted without the people of a fold
and answers trials among them; over all folds every person is tried once, by a model that was not
trained on that person. People are numbered as they first appear in the data, so that names have no
influence on the folds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral

import numpy as np
from numpy.random import Generator

from .._typing import BoolArray, Columns, IntArray, Views
from ..exceptions import ParameterError
from ..labels import by_appearance, encode_labels
from ..scoring.question import Hypothesis, possible_hypotheses

MIN_FOLD_SPEAKERS = 4
"""People in a fold: between fewer, hardly any trial is of two people."""

TESTS = 2000
"""Of every fold, so many held-out vectors are tests."""

TRIALS = 20_000
"""Of every kind in every fold, so many trials are drawn."""


@dataclass(frozen=True)
class HeldOutTrials:
    """Trials among some people, who are held out: what enrols, what tests, and some trials of every kind in turn.

    hypotheses : which views are shared: all of them first, none last
    train : (n,) bool, vectors of everybody else
    enrol : (e,) rows of the vectors that enrol, profile after profile
    ids : (e,) number of the profile of each, from 0
    profiles : (p,) row of every profile's first vector, whose labels are the profile's
    test : (t,) rows of the tests
    pairs : (m, 2) number of the profile and of the test of every trial
    kinds : (m,) which of `hypotheses` is true of it
    """

    hypotheses: list[Hypothesis]
    train: BoolArray
    enrol: IntArray
    ids: IntArray
    profiles: IntArray
    test: IntArray
    pairs: IntArray
    kinds: IntArray


def held_out_trials(
    labels: Columns,
    views: Sequence[str] | None = None,
    *,
    folds: int = 4,
    enrolment: int = 1,
    most_tests: int | None = TESTS,
    most_trials: int | None = TRIALS,
) -> list[HeldOutTrials]:
    """Trials among the people of every fold; none where there are too few people. Vectors without label are not tried.

    Parameters
    ----------
    labels : {view: (n,) labels}
    views : of which trials have kinds; None: all in `labels`. The classes of the first are held out
    folds : how many, at most; fewer where a fold would have less than 4 people
    enrolment : vectors per profile
    most_tests, most_trials : of every fold, and of every kind in every fold; None: no limit
    """
    for name, value, least in (("folds", folds, 2), ("enrolment", enrolment, 1)):
        if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
            raise ParameterError(f"{name} is a whole number, at least {least}; got {value!r}")
    views = tuple(labels if views is None else views)
    table = encode_labels({view: labels[view] for view in views}, views)
    codes = np.stack([by_appearance(table.codes[view]) for view in views], axis=1)
    # nobody can say whether a vector without a label is of the same class as another
    may_try = np.ones(len(table), dtype=bool)
    for view in views:
        may_try &= table.codes[view] < len(table.classes[view].names)
    people = codes[:, 0]
    dealt = np.unique(people[may_try])
    folds = min(int(folds), len(dealt) // MIN_FOLD_SPEAKERS)
    # fewer would leave nobody to train on, or nobody to try
    if folds < 2:
        return []
    # one generator for all folds: the same deal for the same data; folds differ by one person at most
    rng = np.random.default_rng(0)
    fold_of = np.full(people.max() + 1, -1)
    fold_of[dealt] = rng.permutation(len(dealt)) % folds
    found = []
    for number in range(folds):
        held = fold_of[people] == number
        cells = _cells(np.flatnonzero(held & may_try), codes, int(enrolment))
        if cells is not None:
            found.append(_trials(~held, *cells, codes, views, rng, most_tests, most_trials))
    return found


def _cells(
    rows: IntArray, codes: IntArray, enrolment: int
) -> tuple[IntArray, IntArray, IntArray] | None:
    """Vectors that enrol, cell after cell, the number of the cell of each, and all others; None where there are none.

    The first vectors of every cell (one class of every view) enrol. A cell with fewer than twice as many vectors as a
    profile wants enrols half of them.
    """
    cell = np.unique(codes[rows], axis=0, return_inverse=True)[1].reshape(-1)
    order = np.argsort(cell, kind="stable")
    sizes = np.bincount(cell)
    rank = np.arange(len(rows)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    enrols = rank < np.minimum(enrolment, np.repeat(sizes, sizes) // 2)
    if not enrols.any():
        return None
    ids = np.unique(cell[order][enrols], return_inverse=True)[1].reshape(-1)
    return rows[order][enrols], ids, np.sort(rows[order][~enrols])


def _trials(
    train: BoolArray,
    enrolled: IntArray,
    ids: IntArray,
    others: IntArray,
    codes: IntArray,
    views: Views,
    rng: Generator,
    most_tests: int | None,
    most_trials: int | None,
) -> HeldOutTrials:
    tests = np.sort(rng.permutation(others)[:most_tests])
    profiles = enrolled[np.unique(ids, return_index=True)[1]]
    same = [np.equal.outer(codes[profiles, k], codes[tests, k]) for k in range(len(views))]
    hypotheses = possible_hypotheses(views, {})
    places = []
    kinds = []
    for number, hypothesis in enumerate(hypotheses):
        true = np.ones((len(profiles), len(tests)), dtype=bool)
        for view, equal in zip(views, same, strict=True):
            true &= equal if view in hypothesis else ~equal
        # impostors with other words are most of all pairs: some of every kind are enough
        drawn = np.sort(rng.permutation(np.flatnonzero(true))[:most_trials])
        places.append(drawn)
        kinds.append(np.full(len(drawn), number))
    pairs = np.stack(np.divmod(np.concatenate(places), len(tests)), axis=1)
    return HeldOutTrials(
        hypotheses, train, enrolled, ids, profiles, tests, pairs, np.concatenate(kinds)
    )
