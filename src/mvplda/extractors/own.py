"""Networks of ``mvplda jvector train`` as extractors like any other."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from .network import Vector
from .recipe import Recipe
from .sound import Sound

LONGEST_S = 30.0
"""Seconds that are read at once: vectors gain nothing from more, and memory stays small."""


class OwnNetwork:
    """A network of this package with the frames that it was trained on."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        from ..speech.features import FeatureSettings
        from ..speech.networks import Extractor

        self.path = Path(path)
        self.recipe: Recipe | None = None
        self._network = Extractor.load(path)
        self._settings = FeatureSettings.from_dict(self._network.feature_settings)
        self.rate = self._settings.rate
        self.segment_s = LONGEST_S

    @property
    def name(self) -> str:
        return self._network.name

    @property
    def dimension(self) -> int:
        return self._network.dimension

    @property
    def fingerprint(self) -> str:
        return self._network.fingerprint

    @property
    def views(self) -> tuple[str, ...]:
        return self._network.views

    def embed(self, samples: Sound) -> Vector:
        from ..speech.features import FeatureSet, features

        frames = FeatureSet.from_utterances(["one"], [features(samples, self._settings)])
        vector: Vector = self._network.extract(frames)[0]
        return np.asarray(vector, dtype=np.float32)
