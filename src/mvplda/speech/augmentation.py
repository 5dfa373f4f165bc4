"""Other recordings of the same speech, in noise, in a room, over a channel.

Everything is drawn from the generator that is given: the same generator gives the same samples.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.signal import fftconvolve

Wave = NDArray[np.float64]

OCTAVE_DB = 6.0
DECAY_60_DB = float(np.log(1000.0))
SLOPE = 2
"""Order of the fading at each end of a channel's band, 6 dB per octave each."""


def with_noise(samples: Wave, snr_db: float, pink: bool, rng: np.random.Generator) -> Wave:
    """White or pink noise added, at a signal-to-noise ratio over the utterance."""
    noise = rng.standard_normal(len(samples))
    if pink:
        size = _fast_size(len(samples))
        shape = np.maximum(np.arange(size // 2 + 1), 1.0) ** -0.5
        shape[0] = 0.0
        spectrum = np.fft.rfft(rng.standard_normal(size)) * shape
        noise = np.fft.irfft(spectrum, size)[: len(samples)]
    gain = np.sqrt(np.mean(samples**2) / (np.mean(noise**2) * 10 ** (snr_db / 10)))
    return np.asarray(samples + gain * noise)


def in_room(
    samples: Wave, t60_s: float, direct_db: float, rate: int, rng: np.random.Generator
) -> Wave:
    """Reverberation: 2 ms after the direct sound noise begins that decays by 60 dB in T60.

    ``direct_db`` is the energy of the direct sound over that of the tail. The result has the length of the input.
    """
    gap = max(1, round(0.002 * rate))
    time = np.arange(max(gap + 1, round(1.2 * t60_s * rate))) / rate
    response = rng.standard_normal(len(time)) * np.exp(-DECAY_60_DB * time / t60_s)
    response[:gap] = 0.0
    response *= np.sqrt(10 ** (-direct_db / 10) / np.sum(response**2))
    response[0] = 1.0
    return np.asarray(fftconvolve(samples, response)[: len(samples)])


def over_channel(
    samples: Wave, low_hz: float, high_hz: float, rate: int, rng: np.random.Generator
) -> Wave:
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
