"""benchmarks/data.py: vectors of the shared data for the default model."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.data import as_default, default_of_two
from mvplda.voice.domain.estimator import TEST_SECONDS


def test_vectors_without_sounds_have_the_given_duration():
    rng = np.random.default_rng(0)
    data = {"camp": rng.normal(size=(6, 192)), "words": rng.normal(size=(6, 288))}
    bundle = default_of_two()
    profiles = bundle.enrol(as_default(data, slice(0, 4), seconds=2.6), np.array([0, 0, 1, 1]))
    tests = bundle.enrol(as_default(data, slice(4, 6), seconds=0.65), np.array([0, 1]))

    measures = bundle.scorer.evidence_measures(profiles, tests, None)

    assert np.exp(measures[TEST_SECONDS]) == pytest.approx(np.full((2, 2), 0.65))
