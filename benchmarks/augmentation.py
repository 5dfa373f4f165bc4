"""Augmentation of recordings: changes of speed, added noise, simulated rooms and channels.

A recipe is a sequence of steps. Each step is a record of the ranges of its random parameters. The same random generator
gives the same samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from mvplda._optional import need
from mvplda._typing import FloatArray
from mvplda.exceptions import DataError, ParameterError
from mvplda.voice.attacks.rooms import room_response

Wave = NDArray[np.float64]
Range = tuple[float, float]
Above = tuple[float, float]
NoiseKind = Literal["white", "pink", "babble"]


@dataclass(frozen=True)
class Around:
    """What a step may know beside the samples: their rate, and other utterances for babble."""

    rate: int = 16000
    others: Sequence[FloatArray] = ()


@dataclass(frozen=True)
class Step:
    """One thing that is done, with a probability; ranges are drawn from uniformly."""

    probability: float = 1.0

    def apply(self, samples: Wave, rng: np.random.Generator, around: Around) -> Wave:
        raise NotImplementedError


@dataclass(frozen=True)
class Speed(Step):
    """Play faster (above 1) or slower: tempo and pitch change together, as between voices."""

    factor: Above = (0.9, 1.1)

    def apply(self, samples: Wave, rng: np.random.Generator, around: Around) -> Wave:
        factor = rng.uniform(*self.factor)
        return np.asarray(
            need("soxr").resample(samples, around.rate * factor, around.rate, quality="HQ")
        )


@dataclass(frozen=True)
class Noise(Step):
    """Add noise of a kind, drawn from ``kinds``, at a signal-to-noise ratio over the utterance.

    "babble" is ``voices`` other utterances at once, each at the same power.
    """

    snr_db: Range = (5.0, 20.0)
    kinds: tuple[NoiseKind, ...] = ("white", "pink")
    voices: int = 5

    def apply(self, samples: Wave, rng: np.random.Generator, around: Around) -> Wave:
        kind = self.kinds[rng.integers(len(self.kinds))]
        ratio = 10 ** (rng.uniform(*self.snr_db) / 10)
        if kind == "babble":
            noise = babble(len(samples), self.voices, around.others, rng)
        else:
            noise = coloured_noise(len(samples), 1.0 if kind == "pink" else 0.0, rng)
        return np.asarray(samples + noise * np.sqrt(_power(samples) / (_power(noise) * ratio)))


@dataclass(frozen=True)
class Room(Step):
    """Reverberation: noise that decays by 60 dB in T60, after the direct sound.

    ``direct_db`` is the energy of the direct sound over that of the tail. The result has the
    length of the input, and the direct sound stays where it was.
    """

    t60_s: Above = (0.1, 0.6)
    direct_db: Range = (0.0, 12.0)

    def apply(self, samples: Wave, rng: np.random.Generator, around: Around) -> Wave:
        response = room_response(
            rng.uniform(*self.t60_s), rng.uniform(*self.direct_db), around.rate, rng
        )
        size = _fast_size(len(samples) + len(response) - 1)
        spectrum = np.fft.rfft(samples, size) * np.fft.rfft(response, size)
        return np.fft.irfft(spectrum, size)[: len(samples)]


@dataclass(frozen=True)
class Channel(Step):
    """Another microphone or line: gains drawn at octaves, and a band outside which it fades.

    ``slope`` is the order of the fading at each end of the band, 6 dB an octave each.
    """

    gain_db: Range = (-6.0, 6.0)
    low_hz: Range = (20.0, 300.0)
    high_hz: Range = (3400.0, 8000.0)
    slope: int = 2

    def apply(self, samples: Wave, rng: np.random.Generator, around: Around) -> Wave:
        # Padded, for a filter in the frequency domain joins the end to the start.
        size = _fast_size(len(samples) + around.rate // 20)
        hz = np.fft.rfftfreq(size, 1 / around.rate)
        octaves = np.arange(np.log2(62.5), np.log2(around.rate / 2) + 1)
        gains = rng.uniform(*self.gain_db, size=len(octaves))
        low, high = rng.uniform(*self.low_hz), rng.uniform(*self.high_hz)
        curve = 10 ** (np.interp(np.log2(np.maximum(hz, 1.0)), octaves, gains) / 20)
        fade = 1 / np.sqrt(1 + (low / np.maximum(hz, 1e-3)) ** (2 * self.slope))
        fade /= np.sqrt(1 + (hz / high) ** (2 * self.slope))
        return np.fft.irfft(np.fft.rfft(samples, size) * curve * fade, size)[: len(samples)]


@dataclass(frozen=True)
class Gain(Step):
    """Louder or quieter."""

    gain_db: Range = (-6.0, 6.0)

    def apply(self, samples: Wave, rng: np.random.Generator, around: Around) -> Wave:
        return np.asarray(samples * 10 ** (rng.uniform(*self.gain_db) / 20))


@dataclass(frozen=True)
class Recipe:
    """Steps, one after the other."""

    steps: tuple[Step, ...] = ()


def augment(
    samples: FloatArray,
    recipe: Recipe,
    rng: np.random.Generator,
    *,
    rate: int = 16000,
    others: Sequence[FloatArray] = (),
) -> NDArray[np.float32]:
    """Samples as another recording of the same speech.

    Parameters
    ----------
    samples : (n,)
    recipe : what is done, and how often
    rng : all that is drawn is drawn from it
    rate : samples a second
    others : samples of other utterances, of which babble is made
    """
    wave: Wave = np.asarray(samples, dtype=np.float64)
    if wave.ndim != 1 or not len(wave):
        raise DataError(
            f"samples of one channel have one axis and some length; got shape {wave.shape}"
        )
    around = Around(rate, others)
    for step in recipe.steps:
        if rng.random() < step.probability:
            wave = step.apply(wave, rng, around)
    return wave.astype(np.float32)


def coloured_noise(length: int, exponent: float, rng: np.random.Generator) -> Wave:
    """Noise whose power falls as 1 / f^exponent: 0 is white, 1 is pink."""
    if exponent == 0:
        return rng.standard_normal(length)
    size = _fast_size(length)
    shape = np.maximum(np.arange(size // 2 + 1), 1.0) ** (-exponent / 2)
    shape[0] = 0.0
    return np.fft.irfft(np.fft.rfft(rng.standard_normal(size)) * shape, size)[:length]


def babble(
    length: int, voices: int, others: Sequence[FloatArray], rng: np.random.Generator
) -> Wave:
    """Other utterances at once, each from a random place, round and round, at the same power."""
    loud = [np.asarray(other, dtype=np.float64) for other in others if np.any(other)]
    if not loud:
        raise ParameterError("babble is made of other utterances: give some that are not silent")
    chosen = rng.choice(len(loud), size=min(voices, len(loud)), replace=False)
    total = np.zeros(length)
    for row in chosen:
        voice = loud[row]
        place = (rng.integers(len(voice)) + np.arange(length)) % len(voice)
        total += voice[place] / np.sqrt(_power(voice))
    return total


def _power(samples: Wave) -> float:
    return float(np.mean(samples**2)) or 1.0


def _fast_size(length: int) -> int:
    return 1 << max(1, length - 1).bit_length()
