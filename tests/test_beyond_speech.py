"""benchmarks/studies/beyond_speech.py: shares of variance, and divisions of people."""

from __future__ import annotations

import numpy as np

from benchmarks.studies.beyond_speech import divisions, shares
from mvplda import MultiviewPLDA
from mvplda.preprocessing import Reduction


def labels(people: int, others: int, each: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    person, other, take = (a.ravel() for a in np.indices((people, others, each)))
    return {"person": person, "other": other}, take


def test_shares_are_those_of_the_generating_model() -> None:
    variances = {"person": 1.0, "other": 2.0, "person:other": 3.0}
    loadings = {view: np.sqrt(value) * np.eye(20) for view, value in variances.items()}
    truth = MultiviewPLDA.from_parameters(np.zeros(20), loadings, np.full(20, 4.0))
    classes, _ = labels(60, 60, 3)
    found = shares(truth.sample(classes, random_state=0), classes)
    expected = {"person": 10, "other": 20, "interaction": 30, "noise": 40, "kurtosis": 0}
    for name, value in expected.items():
        assert abs(found[name] - value) < 1.5, name


def test_divisions_keep_people_apart_and_pair_profiles_with_their_labels() -> None:
    classes, take = labels(12, 3, 5)
    X = np.random.default_rng(0).normal(size=(len(take), 6))
    X[:, 0] = 100 * classes["person"]
    X[:, 1] = 100 * classes["other"]
    parts = list(divisions(X, classes, take, 8, Reduction(6)))
    assert len(parts) == 5
    for part in parts:
        assert len(part.train) == 8 * 3 * 5
        assert len(set(part.ids)) == 4 * 3
        assert not set(part.cells) & set(part.ids)
        assert part.kinds["TC"].shape == (12, len(part.test))
        # the right cell is the nearest one
        centres = np.array([part.enrol[part.ids == cell].mean(0) for cell in np.unique(part.ids)])
        distances = ((centres[:, None] - part.test) ** 2).sum(2)
        assert part.kinds["TC"][distances.argmin(0), np.arange(len(part.test))].all()
