"""Frames of many utterances in one array."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class FeatureSet:
    """Frames of many utterances, one after the other.

    Attributes
    ----------
    ids : (n,) names of the utterances
    frames : (total, D) float32 or float16, all utterances' frames
    offsets : (n + 1,) utterance i has the frames offsets[i] to offsets[i + 1]
    """

    ids: NDArray[Any]
    frames: NDArray[Any]
    offsets: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, i: int) -> NDArray[Any]:
        return self.frames[self.offsets[i] : self.offsets[i + 1]]

    def __iter__(self) -> Iterator[NDArray[Any]]:
        return (self[i] for i in range(len(self)))

    @property
    def lengths(self) -> NDArray[np.int64]:
        """(n,) frames of every utterance."""
        return np.diff(self.offsets)

    @property
    def dimension(self) -> int:
        return int(self.frames.shape[1])

    def take(self, rows: NDArray[np.int64]) -> FeatureSet:
        """Some utterances, in the order given."""
        lengths = self.lengths[rows]
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        frames = np.concatenate([self[i] for i in rows]) if len(rows) else self.frames[:0]
        return FeatureSet(self.ids[rows], frames, offsets)
