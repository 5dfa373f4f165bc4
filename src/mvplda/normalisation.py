"""Score normalisation against a cohort: adaptive S-norm, for the scores of any scorer."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from ._typing import Array
from .exceptions import DataError

__all__ = ["adaptive_snorm"]


def adaptive_snorm(
    scores: ArrayLike, enrol_cohort: ArrayLike, cohort_test: ArrayLike, top: int = 200
) -> Array:
    """Scores (profiles, tests), shifted and scaled by what their two sides score against a cohort of impostors.

    With m and d the mean and the deviation of the `top` highest cohort scores of a side, the result is the mean of
    (s - m) / d over the profile's side and the test's. A `top` of the whole cohort is plain S-norm. The result is no
    likelihood ratio: calibrate it.

    Parameters
    ----------
    scores : (profiles, tests)
    enrol_cohort : (profiles, cohort) scores of the profiles against a cohort of other speakers than the trials'
    cohort_test : (cohort, tests) scores of the cohort against the tests

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> enrol, test, cohort = rng.normal(size=(3, 4)), rng.normal(size=(2, 4)), rng.normal(size=(50, 4))
    >>> adaptive_snorm(enrol @ test.T, enrol @ cohort.T, cohort @ test.T, top=20).shape
    (3, 2)
    """
    rows = np.asarray(enrol_cohort, dtype=np.float64)
    columns = np.asarray(cohort_test, dtype=np.float64).T
    raw = np.asarray(scores, dtype=np.float64)
    if raw.shape != (len(rows), len(columns)) or rows.shape[1:] != columns.shape[1:]:
        raise DataError(
            "scores have shape (profiles, tests), those of the cohort (profiles, cohort) and (cohort, tests); got "
            f"{raw.shape}, {rows.shape} and {columns.T.shape}"
        )
    by_profile = _normalised(raw, rows, top)
    by_test = _normalised(raw.T, columns, top).T
    return np.asarray((by_profile + by_test) / 2)


def _normalised(scores: Array, cohort: Array, top: int) -> Array:
    """Scores (n, m) by the highest cohort scores of every row."""
    highest = np.sort(cohort, axis=1)[:, -top:]
    deviation = highest.std(axis=1, keepdims=True)
    if top < 2 or not (deviation > 0).all():
        raise DataError("cohort scores do not vary: use a top of 2 or more and a varied cohort")
    return np.asarray((scores - highest.mean(axis=1, keepdims=True)) / deviation)
