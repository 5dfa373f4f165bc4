"""Detectors that the network is compared with: logistic regressions on statistics."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from mvplda._typing import BoolArray


def regression_scores(
    vectors: NDArray[np.float32],
    training: NDArray[np.int64],
    is_person: BoolArray,
    weights: NDArray[np.float64],
    strength: float,
) -> NDArray[np.float64]:
    """Return log odds of a person for all rows, by a logistic regression on the rows `training`."""
    model = make_pipeline(StandardScaler(), LogisticRegression(C=strength, max_iter=200))
    model.fit(vectors[training], is_person[training], logisticregression__sample_weight=weights)
    return np.asarray(model.decision_function(vectors), np.float64)
