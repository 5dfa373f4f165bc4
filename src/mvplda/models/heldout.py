"""Folds of held-out speakers and trials among them, for the choice of weights, calibration and thresholds.

Speakers (the classes of one view) are divided into folds. A model is fitted without the speakers of
a fold and scores trials among them. Over all folds each speaker is tested once, by a model that was
not trained on that speaker. Speakers are numbered in order of appearance, so that their names do
not affect the folds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from .._typing import BoolArray, Columns, IntArray, Views
from ..labels import by_appearance, encode_labels
from ..scoring.question import Hypothesis, possible_hypotheses
from .checks import check_whole_number

MIN_FOLD_SPEAKERS = 4
"""Smallest number of speakers in a fold; with fewer there are hardly any impostor trials."""

TESTS = 2000
"""Largest number of test vectors per fold."""

TRIALS = 20_000
"""Largest number of trials per fold and kind."""


@dataclass(frozen=True)
class HeldOutTrials:
    """Enrolments, tests and trials among the held-out speakers of one fold.

    hypotheses : hypothesis of each kind of trial, as a tuple of the views that are the same; the
        first has all views, the last none
    train : (n,) mask of the vectors of all other speakers
    enrol : (e,) rows of the enrolment vectors, profile after profile
    ids : (e,) profile number of each enrolment vector, from 0
    profiles : (p,) row of the first vector of each profile, for its labels
    test : (t,) rows of the test vectors
    pairs : (m, 2) numbers of the profile and of the test of each trial
    kinds : (m,) number of the true hypothesis of each trial
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
    """Return trials among the speakers of each fold; vectors that lack a label are left out.

    Parameters
    ----------
    labels : {view: (n,) labels}
    views : views that define the kinds of trials; None: all in `labels`. Classes of the first view
        are held out
    folds : largest number of folds; each has at least 4 speakers
    enrolment : vectors per profile
    most_tests : largest number of tests per fold; None: no limit
    most_trials : largest number of trials per kind and fold; None: no limit

    Returns
    -------
    list of HeldOutTrials, one per fold; empty if there are too few speakers
    """
    check_whole_number("folds", folds, 2)
    check_whole_number("enrolment", enrolment, 1)
    views = tuple(labels if views is None else views)
    table = encode_labels({view: labels[view] for view in views}, views)
    codes = np.stack([by_appearance(table.codes[view]) for view in views], axis=1)
    # the kind of a trial is unknown without a label
    is_labelled = np.ones(len(table), dtype=bool)
    for view in views:
        is_labelled &= table.codes[view] < len(table.classes[view].names)
    speakers = codes[:, 0]
    labelled_speakers = np.unique(speakers[is_labelled])
    folds = min(int(folds), len(labelled_speakers) // MIN_FOLD_SPEAKERS)
    # one fold would leave no speakers to train on
    if folds < 2:
        return []
    # a fixed seed: the same data give the same folds, whose sizes differ by one speaker at most
    rng = np.random.default_rng(0)
    fold_of = np.full(speakers.max() + 1, -1)
    fold_of[labelled_speakers] = rng.permutation(len(labelled_speakers)) % folds
    fold_trials = []
    for number in range(folds):
        is_held_out = fold_of[speakers] == number
        cells = _cells(np.flatnonzero(is_held_out & is_labelled), codes, int(enrolment))
        if cells is not None:
            fold_trials.append(
                _trials(~is_held_out, *cells, codes, views, rng, most_tests, most_trials)
            )
    return fold_trials


def _cells(
    rows: IntArray, codes: IntArray, enrolment: int
) -> tuple[IntArray, IntArray, IntArray] | None:
    """Divide vectors into enrolments and tests: the first vectors of each cell (one class per view) are enrolled.

    A profile has `enrolment` vectors, but at most half of its cell.

    rows : rows of the held-out vectors
    codes : (n, views) class of each vector
    return : rows of enrolment vectors, their profile numbers, and rows of the remaining vectors;
        None without enrolments
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
    candidates: IntArray,
    codes: IntArray,
    views: Views,
    rng: Generator,
    most_tests: int | None,
    most_trials: int | None,
) -> HeldOutTrials:
    """Return the trials of a fold: a random choice of tests, and of their pairs with all profiles.

    train : (n,) mask of the training vectors
    enrolled : rows of the enrolment vectors
    ids : their profile numbers
    candidates : rows of the vectors from which at most `most_tests` tests are drawn
    codes : (n, views) class of each vector
    rng : source of the random choice
    most_trials : largest number of pairs per kind of trial; None: no limit
    """
    tests = np.sort(rng.permutation(candidates)[:most_tests])
    profiles = enrolled[np.unique(ids, return_index=True)[1]]
    same = [np.equal.outer(codes[profiles, k], codes[tests, k]) for k in range(len(views))]
    hypotheses = possible_hypotheses(views, {})
    drawn_pairs = []
    kinds = []
    for number, hypothesis in enumerate(hypotheses):
        true = np.ones((len(profiles), len(tests)), dtype=bool)
        for view, equal in zip(views, same, strict=True):
            true &= equal if view in hypothesis else ~equal
        # most pairs are impostors with another phrase: draw a limited number per kind
        drawn = np.sort(rng.permutation(np.flatnonzero(true))[:most_trials])
        drawn_pairs.append(drawn)
        kinds.append(np.full(len(drawn), number))
    pairs = np.stack(np.divmod(np.concatenate(drawn_pairs), len(tests)), axis=1)
    return HeldOutTrials(
        hypotheses, train, enrolled, ids, profiles, tests, pairs, np.concatenate(kinds)
    )
