"""Small sets of frames for the extractor's tests."""

from __future__ import annotations

import numpy as np

from mvplda.speech.features.store import FeatureSet


def toy(n=120, width=6, classes=(4, 3), shortest=8, longest=20, strength=1.5, seed=0):
    """Frames whose mean over an utterance depends on the classes of every view."""
    rng = np.random.default_rng(seed)
    codes = [rng.permutation(np.arange(n) % count) for count in classes]
    effects = [strength * rng.normal(size=(count, width)) for count in classes]
    lengths = rng.integers(shortest, longest + 1, n)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    means = sum(effect[code] for effect, code in zip(effects, codes, strict=True))
    frames = np.repeat(means, lengths, axis=0) + rng.normal(size=(offsets[-1], width))
    features = FeatureSet(np.array([f"u{i}" for i in range(n)]), frames.astype(np.float32), offsets)
    names = ["speaker", "phrase", "channel"]
    labels = {v: np.array([f"{v}{c}" for c in code]) for v, code in zip(names, codes, strict=False)}
    return features, labels


def reordered(features, seed=1):
    order = np.random.default_rng(seed).permutation(len(features))
    return features.take(order), order
