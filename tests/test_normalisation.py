"""Adaptive S-norm against plain loops."""

from __future__ import annotations

import numpy as np
import pytest

from mvplda.exceptions import DataError
from mvplda.normalisation import adaptive_snorm


@pytest.mark.parametrize("top", [10, 40, 1000])
def test_against_plain_loops(top: int) -> None:
    """A score that is not symmetric, so that mixed-up sides show; a large top is plain S-norm."""
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(5, 7))
    enrol_cohort = rng.normal(1.0, 2.0, size=(5, 40))
    cohort_test = rng.normal(-1.0, 0.5, size=(40, 7))
    expected = np.empty((5, 7))
    for i in range(5):
        for j in range(7):
            sides = sorted(enrol_cohort[i])[-top:], sorted(cohort_test[:, j])[-top:]
            expected[i, j] = np.mean([(scores[i, j] - np.mean(s)) / np.std(s) for s in sides])
    np.testing.assert_allclose(
        adaptive_snorm(scores, enrol_cohort, cohort_test, top), expected, rtol=1e-12
    )


def test_errors() -> None:
    with pytest.raises(DataError, match=r"got \(2, 3\), \(2, 9\) and \(8, 3\)"):
        adaptive_snorm(np.zeros((2, 3)), np.zeros((2, 9)), np.zeros((8, 3)))
    with pytest.raises(DataError, match="do not vary"):
        adaptive_snorm(np.zeros((2, 3)), np.zeros((2, 9)), np.zeros((9, 3)))
