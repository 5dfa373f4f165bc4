"""From sound to frames of features, for all utterances of a corpus; and what noise, rooms and channels make of sound.

How frames are made stands in a recipe of `mvplda.extractors`: the network that is trained on them becomes an
extractor with the same recipe. What is drawn comes from the generator that is given.
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from scipy.signal import fftconvolve

from .._progress import Progress
from .._typing import Array, FloatArray, IntArray, Names
from ..backend import cores
from ..distributed import ordered_map
from ..exceptions import AudioError
from ..extractors.network import make_frames, prepared
from ..extractors.quality import Part
from ..extractors.recipe import Recipe
from ..extractors.sound import Clip, read_audio

__all__ = ["extract_features"]

Frames = NDArray[np.float32]
FEW = 300
"""Fewer utterances are done in this process: the start of others costs more."""
PROGRESS_EVERY = 100
OCTAVE_DB = 6.0
DECAY_60_DB = float(np.log(1000.0))
SLOPE = 2
"""Order of the fading at each end of a channel's band, 6 dB per octave each."""


@dataclass(frozen=True)
class FeatureSet:
    """Frames of many utterances, one after the other.

    Attributes
    ----------
    frames : (total, D) float32, all utterances' frames
    offsets : (n + 1,) utterance i has the frames offsets[i] to offsets[i + 1]
    """

    frames: FloatArray
    offsets: IntArray

    @classmethod
    def of(cls, utterances: Iterable[FloatArray]) -> FeatureSet:
        """Join the frames (T, D) of utterances, one array each."""
        parts = list(utterances)
        offsets = np.concatenate([[0], np.cumsum([len(part) for part in parts])])
        return cls(np.concatenate(parts), offsets.astype(np.int64))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, i: int) -> FloatArray:
        return self.frames[self.offsets[i] : self.offsets[i + 1]]

    @property
    def lengths(self) -> IntArray:
        """(n,) frames of every utterance."""
        return np.diff(self.offsets)

    def take(self, rows: IntArray) -> FeatureSet:
        """Some utterances, in the order given."""
        return FeatureSet.of(self[i] for i in rows)


class Extracted(NamedTuple):
    """Frames of the utterances that could be used, which these are, and (id, reason) of the others."""

    features: FeatureSet
    rows: IntArray
    skipped: tuple[tuple[str, str], ...]


def frames_of(samples: FloatArray, recipe: Recipe) -> Frames:
    """(T, D) frames of samples, as an extractor with this recipe makes them."""
    part = Part(np.asarray(samples, dtype=np.float32), recipe.rate)
    return make_frames(prepared(part, recipe), recipe)


def extract_features(
    ids: Sequence[str] | Names,
    clips: Sequence[Clip],
    recipe: Recipe,
    *,
    verbose: bool = False,
) -> Extracted:
    """Frames of many utterances; those that cannot be used are named in the result.

    Parameters
    ----------
    ids : names of the utterances
    clips : where each one's sound lies
    recipe : how frames are made

    Raises
    ------
    AudioError
        None can be used.
    """
    workers = cores() if len(clips) >= FEW else 1
    line = Progress("features", len(clips))
    frames = {}
    skipped = []
    results = ordered_map(partial(_frames_or_reason, recipe), clips, workers=workers)
    for row, result in enumerate(results):
        if isinstance(result, str):
            skipped.append((str(ids[row]), result))
        else:
            frames[row] = result
        if verbose and (row + 1) % PROGRESS_EVERY == 0:
            line.step(row + 1)
    if not frames:
        reasons = [reason for _, reason in skipped]
        raise AudioError(f"none of {len(clips)} utterance(s) can be used: {', '.join(reasons[:1])}")
    return Extracted(FeatureSet.of(frames.values()), np.array(list(frames)), tuple(skipped))


def _frames_or_reason(recipe: Recipe, clip: Clip) -> Frames | str:
    """Frames of a clip, or the reason that there are none."""
    try:
        return frames_of(read_audio(clip, recipe.rate), recipe)
    except AudioError as error:
        return str(error)


def with_noise(samples: Array, snr_db: float, pink: bool, rng: Generator) -> Array:
    """White or pink noise added, at a signal-to-noise ratio over the utterance."""
    noise = rng.standard_normal(len(samples))
    if pink:
        size = _fast_size(len(samples))
        # a power that falls by 3 dB per octave, and no constant
        shape = np.maximum(np.arange(size // 2 + 1), 1.0) ** -0.5
        shape[0] = 0.0
        spectrum = np.fft.rfft(rng.standard_normal(size)) * shape
        noise = np.fft.irfft(spectrum, size)[: len(samples)]
    gain = np.sqrt(np.mean(samples**2) / (np.mean(noise**2) * 10 ** (snr_db / 10)))
    return samples + gain * noise


def in_room(samples: Array, t60_s: float, direct_db: float, rate: int, rng: Generator) -> Array:
    """Reverberation: 2 ms after the direct sound noise begins that decays by 60 dB in T60.

    ``direct_db`` is the energy of the direct sound over that of the tail. The result has the length of the input.
    """
    gap = max(1, round(0.002 * rate))
    time = np.arange(max(gap + 1, round(1.2 * t60_s * rate))) / rate
    response = rng.standard_normal(len(time)) * np.exp(-DECAY_60_DB * time / t60_s)
    response[:gap] = 0.0
    response *= np.sqrt(10 ** (-direct_db / 10) / np.sum(response**2))
    response[0] = 1.0
    return fftconvolve(samples, response)[: len(samples)]


def over_channel(samples: Array, low_hz: float, high_hz: float, rate: int, rng: Generator) -> Array:
    """Another microphone: gains drawn at octaves, and a band outside which it fades."""
    # padded, for a filter in the frequency domain joins the end to the start
    size = _fast_size(len(samples) + rate // 20)
    hz = np.fft.rfftfreq(size, 1 / rate)
    octaves = np.arange(np.log2(62.5), np.log2(rate / 2) + 1)
    gains = rng.uniform(-OCTAVE_DB, OCTAVE_DB, size=len(octaves))
    curve = 10 ** (np.interp(np.log2(np.maximum(hz, 1.0)), octaves, gains) / 20)
    fade = 1 / np.sqrt(1 + (low_hz / np.maximum(hz, 1e-3)) ** (2 * SLOPE))
    fade /= np.sqrt(1 + (hz / high_hz) ** (2 * SLOPE))
    return np.fft.irfft(np.fft.rfft(samples, size) * curve * fade, size)[: len(samples)]


def _fast_size(length: int) -> int:
    return 1 << max(1, length - 1).bit_length()
