"""Detectors that the network is compared with: logistic regressions on statistics and on vectors of an extractor."""

from __future__ import annotations

from zlib import crc32

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from mvplda._typing import BoolArray
from mvplda.exceptions import AudioError
from mvplda.voice.attacks.attack import RATE
from mvplda.voice.extractors import load_extractor
from tools.spoof_detector.material import Items

Vectors = NDArray[np.float32]

EXTRACTOR = "campplus"
"""Network of the default model whose vectors are compared."""
PEOPLE_STEP = 3
"""Every n-th person has vectors, because extraction is slow."""


def extractor_vectors(items: Items) -> Vectors:
    """Return the vectors of a shipped network, one row per item; NaN for people without vectors."""
    extractor = load_extractor([EXTRACTOR])
    rows = np.full((len(items), extractor.dimension), np.nan, np.float32)
    for row, speaker in enumerate(items.speaker):
        if crc32(f"{speaker} vectors".encode()) % PEOPLE_STEP:
            continue
        try:
            rows[row] = extractor.utterance(items.sound(row), RATE).vector
        except AudioError:
            continue
    return rows


def regression_scores(
    vectors: Vectors,
    training: NDArray[np.int64],
    is_person: BoolArray,
    weights: NDArray[np.float64],
    strength: float,
) -> NDArray[np.float64]:
    """Return log odds of a person for all rows, by a logistic regression on the rows `training`."""
    usable = np.isfinite(vectors).all(axis=1)
    chosen = usable[training]
    model = make_pipeline(StandardScaler(), LogisticRegression(C=strength, max_iter=200))
    rows = training[chosen]
    model.fit(vectors[rows], is_person[rows], logisticregression__sample_weight=weights[chosen])
    scores = np.full(len(vectors), np.nan)
    scores[usable] = model.decision_function(vectors[usable])
    return scores
