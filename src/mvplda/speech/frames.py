"""From sound to frames of features, for all utterances of a corpus.

How frames are made stands in a recipe of `mvplda.extractors`: the network that is trained on them becomes an
extractor with the same recipe.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from .._progress import Progress
from .._typing import FloatArray, IntArray
from ..backend import cores
from ..distributed.engines import ordered_map
from ..exceptions import AudioError
from ..extractors.network import make_frames
from ..extractors.recipe import Recipe
from ..extractors.sound import Clip, read_audio

__all__ = [
    "extract_features",
]

JOB = 200
"""Utterances of a job: short enough for progress and an interrupt, long enough to hide what a job costs."""
FEW = 300
"""Fewer utterances are done in this process: the start of others costs more."""


@dataclass(frozen=True)
class FeatureSet:
    """Frames of many utterances, one after the other.

    Attributes
    ----------
    ids : (n,) names of the utterances
    frames : (total, D) float32, all utterances' frames
    offsets : (n + 1,) utterance i has the frames offsets[i] to offsets[i + 1]
    """

    ids: NDArray[Any]
    frames: FloatArray
    offsets: NDArray[np.int64]

    @classmethod
    def of(cls, ids: Sequence[Any] | NDArray[Any], utterances: Iterable[FloatArray]) -> FeatureSet:
        """Join the frames (T, D) of utterances, one array each."""
        parts = list(utterances)
        offsets = np.concatenate([[0], np.cumsum([len(part) for part in parts])])
        return cls(np.asarray(ids), np.concatenate(parts), offsets.astype(np.int64))

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, i: int) -> FloatArray:
        return self.frames[self.offsets[i] : self.offsets[i + 1]]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """(n,) frames of every utterance."""
        return np.diff(self.offsets)

    @property
    def dimension(self) -> int:
        return int(self.frames.shape[1])

    def take(self, rows: IntArray) -> FeatureSet:
        """Some utterances, in the order given."""
        return FeatureSet.of(self.ids[rows], (self[i] for i in rows))


@dataclass(frozen=True)
class Extracted:
    """Frames of the utterances that could be used, which these are, and (id, reason) of the others."""

    features: FeatureSet
    rows: IntArray
    skipped: tuple[tuple[str, str], ...] = ()


def frames_of(samples: FloatArray, recipe: Recipe) -> NDArray[np.float32]:
    """(T, D) frames of samples, whose loudest one becomes what the recipe says."""
    samples = np.asarray(samples, dtype=np.float32)
    if len(samples) < recipe.samples.shortest_s * recipe.rate:
        raise AudioError(f"the sound is too short: {len(samples) / recipe.rate:.2f} s")
    if recipe.samples.level == "peak":
        samples = samples * np.float32(recipe.samples.level_value / np.abs(samples).max())
    return make_frames(samples, recipe)


def extract_features(
    ids: Sequence[Any] | NDArray[Any],
    clips: Sequence[Clip],
    recipe: Recipe,
    *,
    on_error: Literal["raise", "skip"] = "raise",
    workers: int | None = None,
    verbose: bool = False,
) -> Extracted:
    """Frames of many utterances; the result does not depend on the number of workers.

    Parameters
    ----------
    ids : names of the utterances
    clips : where each one's sound lies
    recipe : how frames are made
    on_error : "raise" stops at the first utterance that cannot be used, "skip" names it in the result
    workers : processes; None means one per core, and this one alone for few utterances

    Raises
    ------
    AudioError
        An utterance cannot be used, or none can.
    """
    if workers is None:
        workers = cores() if len(clips) >= FEW else 1
    jobs = [clips[start : start + JOB] for start in range(0, len(clips), JOB)]
    line = Progress("features", len(clips)) if verbose else None
    frames = []
    rows = []
    skipped = []
    work = partial(_frames_of_job, recipe)
    for number, results in enumerate(ordered_map(work, jobs, workers=workers)):
        for row, result in enumerate(results, number * JOB):
            if not isinstance(result, str):
                frames.append(result)
                rows.append(row)
            elif on_error == "raise":
                raise AudioError(f"utterance {str(ids[row])!r}: {result}")
            else:
                skipped.append((str(ids[row]), result))
        if line is not None:
            line.step(min(len(clips), (number + 1) * JOB))
    if not frames:
        reason = skipped[0][1] if skipped else "there are none"
        raise AudioError(f"none of {len(clips)} utterance(s) can be used: {reason}")
    used = np.array(rows, dtype=np.int64)
    return Extracted(FeatureSet.of(np.asarray(ids)[used], frames), used, tuple(skipped))


def _frames_of_job(recipe: Recipe, clips: Sequence[Clip]) -> list[NDArray[np.float32] | str]:
    """Frames of every clip, or the reason that there are none."""
    results: list[NDArray[np.float32] | str] = []
    for clip in clips:
        try:
            results.append(frames_of(read_audio(clip, recipe.rate), recipe))
        except AudioError as error:
            text = str(error)
            results.append(text if str(clip.path) in text else f"{clip.path}: {text}")
        except MemoryError:
            results.append(f"{clip.path} does not fit in memory")
    return results
