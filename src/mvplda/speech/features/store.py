"""Frames of many utterances in one array."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ..exceptions import DataError, FileFormatError, ParameterError
from ..files import seal, unseal, write_atomically
from .settings import FeatureSettings

FORMAT = "mvplda-features"


@dataclass(frozen=True)
class FeatureSet:
    """Frames of many utterances, one after the other.

    Attributes
    ----------
    ids : (n,) names of the utterances
    frames : (total, D) float32 or float16, all utterances' frames
    offsets : (n + 1,) utterance i has the frames offsets[i] to offsets[i + 1]
    settings : how the frames were made, where it is known
    """

    ids: NDArray[Any]
    frames: NDArray[Any]
    offsets: NDArray[np.int64]
    settings: FeatureSettings | None = None

    def __post_init__(self) -> None:
        ends = (0, len(self.frames))
        if len(self.offsets) != len(self.ids) + 1 or (self.offsets[0], self.offsets[-1]) != ends:
            raise DataError(
                f"{len(self.ids)} utterances need {len(self.ids) + 1} offsets from 0 to {len(self.frames)}; "
                f"got {len(self.offsets)} from {self.offsets[:1]} to {self.offsets[-1:]}"
            )
        if np.any(np.diff(self.offsets) < 0):
            raise DataError("offsets of utterances never fall")

    @classmethod
    def from_utterances(
        cls,
        ids: Sequence[Any] | NDArray[Any],
        utterances: Iterable[NDArray[Any]],
        settings: FeatureSettings | None = None,
    ) -> Self:
        """Join the frames (T, D) of utterances, one array each."""
        parts = list(utterances)
        if not parts:
            raise DataError("frames of at least one utterance are needed")
        widths = sorted({part.shape[1] for part in parts})
        if len(widths) > 1:
            raise DataError(f"frames of utterances differ in width: {widths[0]} and {widths[-1]}")
        offsets = np.concatenate([[0], np.cumsum([len(part) for part in parts])]).astype(np.int64)
        return cls(np.asarray(ids), np.concatenate(parts), offsets, settings)

    @classmethod
    def concatenate(cls, sets: Sequence[FeatureSet]) -> Self:
        """Several sets of one width in one, in the order given; the settings stay if all have the same.

        Examples
        --------
        >>> one = FeatureSet(np.array(["a"]), np.zeros((3, 2), np.float32), np.array([0, 3]))
        >>> FeatureSet.concatenate([one, one]).offsets
        array([0, 3, 6])
        """
        if not sets:
            raise DataError("there is nothing to concatenate: give at least one feature set")
        widths = sorted({features.dimension for features in sets})
        if len(widths) > 1:
            raise DataError(f"feature sets of one width can be joined; these have {widths}")
        first = sets[0].settings
        return cls(
            np.concatenate([features.ids for features in sets]),
            np.concatenate([features.frames for features in sets]),
            np.concatenate([[0], np.cumsum(np.concatenate([features.lengths for features in sets]))]).astype(np.int64),
            first if all(features.settings == first for features in sets) else None,
        )

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, i: int) -> NDArray[Any]:
        i = range(len(self))[i]
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
        return FeatureSet(self.ids[rows], frames, offsets, self.settings)

    def save(self, path: str | os.PathLike[str], dtype: DTypeLike | None = None) -> None:
        """Write to a ``.safetensors`` file, whole or not at all; float16 halves it."""
        kind = np.dtype(self.frames.dtype if dtype is None else dtype)
        if kind not in (np.float16, np.float32, np.float64):
            raise ParameterError(f"frames are kept as float16, float32 or float64; got {kind}")
        with np.errstate(over="ignore"):  # refused below
            frames = np.ascontiguousarray(self.frames, dtype=kind)
        if not np.isfinite(frames).all():
            raise DataError(f"some frames are not finite as {kind}: nothing was written to {path}")
        about = {
            "ids": [str(name) for name in self.ids],
            "settings": None if self.settings is None else self.settings.to_dict(),
        }
        tensors = {"frames": frames, "offsets": np.ascontiguousarray(self.offsets, dtype=np.int64)}
        write_atomically(path, seal(FORMAT, "features", tensors, about))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what `save` wrote; damaged and foreign files give a `FileFormatError`."""
        tensors, about = unseal(path, FORMAT, "features")
        try:
            settings = None if about["settings"] is None else FeatureSettings.from_dict(about["settings"])
            return cls(np.asarray(about["ids"], dtype=np.str_), tensors["frames"], tensors["offsets"], settings)
        except (KeyError, TypeError, ValueError) as error:
            raise FileFormatError(f"{path} lacks parts of features: {error}") from error
