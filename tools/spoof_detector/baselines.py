"""Baseline detectors for comparison with the network: logistic regressions on statistics of recordings."""

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
    """Return the (n,) log odds that each recording is of a person, by a logistic regression.

    Parameters
    ----------
    vectors : (n, columns) statistics of recordings
    training : rows of `vectors` to train on
    is_person : (n,) True for people, False for attacks
    weights : (len(training),) weights of the training rows
    strength : inverse strength of the regularisation (scikit-learn's C)
    """
    model = make_pipeline(StandardScaler(), LogisticRegression(C=strength, max_iter=200))
    model.fit(vectors[training], is_person[training], logisticregression__sample_weight=weights)
    return np.asarray(model.decision_function(vectors), np.float64)
