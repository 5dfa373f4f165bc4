"""Vectors of AudioMNIST's clips by several extractors, in one order."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mvplda.preprocessing import Reduction


@dataclass(frozen=True)
class Data:
    """Vectors by extractor, all in the order of one set of labels, and the training speakers."""

    X: dict[str, np.ndarray]
    labels: dict[str, np.ndarray]
    training: np.ndarray


def read(folder: Path) -> Data:
    embeddings = np.load(folder / "audiomnist_embeddings.npz")
    others = {
        "campplus": np.load(folder / "audiomnist_campplus.npz"),
        "jvector": np.load(folder / "audiomnist_jvectors.npz"),
    }
    names = ("session", "phrase", "speaker")
    order = np.lexsort([embeddings[name] for name in names])
    labels = {name: embeddings[name][order] for name in names}
    X = {"resemblyzer": embeddings["voice"][order], "words": embeddings["words"][order]}
    for name, file in others.items():
        X[name] = file["X" if name == "jvector" else "voice"][np.lexsort([file[n] for n in names])]
    training = others["jvector"]["training_speakers"]
    own = np.isin(labels["speaker"], training)
    X = {name: x.astype(np.float32) for name, x in X.items()}
    X["jvector"] = Reduction(300).fit(X["jvector"][own]).transform(X["jvector"]).astype(np.float32)
    return Data(X, labels, training)
