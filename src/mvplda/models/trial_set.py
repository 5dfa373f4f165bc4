"""Trials between profiles and tests: all pairs, or a list of pairs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from .._typing import Array, IntArray, Names
from ..exceptions import DataError
from ..scoring.profiles import (
    Profiles,
)
from ..scoring.question import NearMatches


@dataclass(frozen=True)
class TrialSet:
    """Profiles, tests, and the pairs of them that are scored.

    profiles : enrolled profiles
    tests : test profiles
    pairs : (n, 2) row of a profile and row of a test; None: all pairs
    """

    profiles: Profiles
    tests: Profiles
    pairs: IntArray | None

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the trials: (profiles, tests), or (n,) for a list."""
        if self.pairs is None:
            return len(self.profiles), len(self.tests)
        return (len(self.pairs),)

    def of(self, rows: IntArray) -> tuple[TrialSet, slice | IntArray]:
        """Return the trials of some profiles, and an index that selects them.

        rows : rows of the profiles
        return : trials, and an index of their elements in arrays of this object's `shape`
        """
        if len(rows) == len(self.profiles):
            return self, slice(None)
        profiles = self.profiles.take(rows)
        if self.pairs is None:
            return TrialSet(profiles, self.tests, None), rows
        numbers = np.full(len(self.profiles), -1)
        numbers[rows] = np.arange(len(rows))
        numbers = numbers[self.pairs[:, 0]]
        indices = np.flatnonzero(numbers >= 0)
        pairs = np.column_stack([numbers[indices], self.pairs[indices, 1]])
        return TrialSet(profiles, self.tests, pairs), indices

    def by_profile(self, values: Names) -> Names:
        """Return values (profiles,) repeated for each trial, in the shape of the trials."""
        if self.pairs is None:
            return np.broadcast_to(values[:, None], self.shape)
        return values[self.pairs[:, 0]]

    def by_test(self, values: Array) -> Array:
        """Return values (tests,) repeated for each trial, in the shape of the trials."""
        if self.pairs is None:
            return np.broadcast_to(values, self.shape)
        return np.asarray(values[self.pairs[:, 1]])


def check_trial_pairs(pairs: ArrayLike, n_enrol: int, n_test: int) -> IntArray:
    """Return a list of trials as integers (n, 2); raise `DataError` for other shapes, types, and rows out of range.

    pairs : row of a profile and row of a test, per trial
    n_enrol, n_test : numbers of profiles and tests
    """
    pairs = np.asarray(pairs)
    if pairs.size == 0 and pairs.ndim <= 2:
        return np.zeros((0, 2), dtype=np.int64)
    if pairs.ndim != 2 or pairs.shape[1] != 2 or pairs.dtype.kind not in "iu":
        raise DataError(
            f"pairs must be integers (n, 2), row of a profile and row of a test; got {pairs.dtype} {pairs.shape}"
        )
    if pairs.min() < 0 or pairs[:, 0].max() >= n_enrol or pairs[:, 1].max() >= n_test:
        is_outside = ((pairs < 0) | (pairs >= [n_enrol, n_test])).any(axis=1)
        first = int(np.flatnonzero(is_outside)[0])
        raise DataError(
            f"row {first} of pairs is {pairs[first].tolist()}, but profiles are numbered from 0 to "
            f"{n_enrol - 1} and tests from 0 to {n_test - 1}"
        )
    return np.asarray(pairs, dtype=np.int64)


def select_near_matches(
    near_matches: NearMatches | None, indices: slice | IntArray
) -> NearMatches | None:
    """Return the near-match evidence of some of its trials; None if `near_matches` is None.

    indices : index of these trials in the arrays of `near_matches`
    """
    if near_matches is None:
        return None
    view, *columns = near_matches
    return NearMatches(view, *(column[indices] for column in columns))
