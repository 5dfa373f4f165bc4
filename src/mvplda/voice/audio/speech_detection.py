"""Where there is speech in a recording, and how good it is: what was measured, and named warnings where a vector of it
means little.

A frame of 10 ms is speech where the sound is loud enough and a voiced stretch is near. Voiced is what repeats at the
period of a voice; tones repeat too, and are left out because their spectrum stands still. Claps and noise do not
repeat.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from ..._typing import Array, BoolArray, FloatArray

FRAME_S = 0.025
SHIFT_S = 0.010
DIGITAL_ZERO_DB = -100.0
"""At and below this level a frame holds no sound at all: 16-bit samples have their last bit at -96 dB."""
ZERO_DB = -120.0
STEADY_DB = 4.0
"""Levels that move less than this (5th to 95th percentile) have no syllables, which move them by 20 to 40 dB."""
BELOW_LOUD_DB = 30.0
"""Frames further below the loud ones are no speech."""
BETWEEN = 0.3
"""Frames nearer to the quiet ones than this share of the range are no speech."""

LOW_RATE = 4000
"""Samples per second that periods are looked for in."""
BAND_HZ = (60.0, 1500.0)
WINDOW_S = 0.064
EVEN_HZ = 500.0
PITCH_HZ = (70.0, 400.0)
PERIODIC = 0.5
"""Least correlation of a voiced frame with itself one period later; white noise has 0.36 at its 99th percentile."""
LEAST_LOW_DB = 20.0
"""The first harmonics of a voice hold at least this much of its power; a whistle's are not there."""
LINE_HZ = 40.0
LINE = 0.97
"""A frame with this share of its energy around one frequency is a tone."""
PAIR = 0.9
PAIR_HZ = 600.0
"""So is one with this share around two frequencies, both above this one, as telephone keys make them; a voice that is
strong there has lower harmonics too."""
STILL = 0.99
STILL_S = 0.08
"""So is one whose spectrum has this cosine with the one 80 ms before or after; voices have 0.98 at most."""
TONE_SHARE = 0.5
"""A stretch is a tone where more of its frames than this are."""
LEAST_VOICED_S = 0.03
NEAR_S = 0.2
"""Consonants stand this near to a voiced frame."""
GAP_S = 0.1
"""Closures within words are shorter."""

EDGE_S = 0.03

SPECTRUM = 512
"""Samples of a window of the spectrum."""


class SoundSegment:
    """A recording or a part of it, and what is measured of it: once, whoever asks for it.

    samples : (n,) of one channel, full scale being 1
    """

    def __init__(self, samples: FloatArray, rate: int) -> None:
        self.samples = np.asarray(samples, dtype=np.float32)
        self.rate = rate

    @cached_property
    def levels(self) -> Array:
        """(T,) mean power of frames without their mean, in dB below full scale; they begin every 10 ms."""
        length = round(FRAME_S * self.rate)
        if len(self.samples) < length:
            return np.empty(0)
        windows = np.lib.stride_tricks.sliding_window_view(self.samples, length)
        windows = windows[:: round(SHIFT_S * self.rate)]
        power = np.einsum("ij,ij->i", windows, windows, dtype=np.float64) / length
        power -= windows.mean(axis=1, dtype=np.float64) ** 2
        return 10 * np.log10(np.maximum(power, 10 ** (ZERO_DB / 10)))

    @cached_property
    def speech(self) -> BoolArray:
        """(T,) whether each frame is speech."""
        loud = loud_frames(self.levels)
        if not loud.any():
            return loud
        voiced = loud & _voiced(self, loud)
        voiced = ndimage.binary_opening(voiced, [True] * _frames(LEAST_VOICED_S))
        speech = loud & _spread(voiced, NEAR_S)
        # gaps up to this long are filled; the ends are not
        speech |= ndimage.binary_closing(speech, [True] * (_frames(GAP_S) + 1))
        # noise covers where words begin and end
        return _spread(speech, EDGE_S) & (self.levels > DIGITAL_ZERO_DB)

    @property
    def speech_s(self) -> float:
        """Seconds of speech."""
        return float(self.speech.sum()) * SHIFT_S

    @cached_property
    def windows(self) -> NDArray[np.float32]:
        """(W, 512) samples, half of which are in the next window too."""
        missing = max(0, SPECTRUM - len(self.samples))
        samples = np.pad(self.samples, (0, missing))
        return np.lib.stride_tricks.sliding_window_view(samples, SPECTRUM)[:: SPECTRUM // 2]

    @cached_property
    def power(self) -> NDArray[np.float32]:
        """(W, 257) power by frequency of the windows; a constant is no sound."""
        power = np.abs(np.fft.rfft(self.windows * _hann(SPECTRUM).astype(np.float32))) ** 2
        power[:, 0] = 0
        return power

    @cached_property
    def spectrum(self) -> Array:
        """(257,) power by frequency of the whole."""
        return self.power.sum(axis=0, dtype=np.float64)

    def cut(self, margin_s: float) -> NDArray[np.float32]:
        """Samples from the first to the last speech, and a margin on both sides; all where there is none."""
        (frames,) = np.nonzero(self.speech)
        if not len(frames):
            return self.samples
        shift = round(SHIFT_S * self.rate)
        margin = round(margin_s * self.rate)
        start = max(0, frames[0] * shift - margin)
        end = frames[-1] * shift + round(FRAME_S * self.rate) + margin
        return self.samples[start:end]


def last_bin(spectrum: Array) -> int:
    """Where a spectrum ends: the highest bin within 60 dB of the loudest."""
    loud = np.flatnonzero(spectrum > spectrum.max() * 1e-6)
    return int(loud[-1]) if len(loud) else 0


def bandwidth_hz(spectrum: Array, rate: int) -> float:
    """The frequency at which a spectrum ends."""
    return last_bin(spectrum) * rate / SPECTRUM


def level_range(levels: Array) -> tuple[float, float]:
    """The 5th and the 95th percentile of frames that hold sound: digital zeros say nothing about a room."""
    sound = levels[levels > DIGITAL_ZERO_DB]
    if not len(sound):
        return ZERO_DB, ZERO_DB
    quiet, loud = np.percentile(sound, [5, 95])
    return float(quiet), float(loud)


def loud_frames(levels: Array) -> BoolArray:
    """Frames near the loud ones, and clearly above the quiet ones; all that hold sound where the level is steady."""
    quiet, loud = level_range(levels)
    least = DIGITAL_ZERO_DB
    if loud - quiet >= STEADY_DB:
        least = max(loud - BELOW_LOUD_DB, quiet + BETWEEN * (loud - quiet))
    return levels > least


def _voiced(part: SoundSegment, loud: BoolArray) -> BoolArray:
    """Frames that repeat at the period of a voice and do not lie in a tone."""
    spectra = _low_spectra(part.samples, part.rate, len(loud))
    power = spectra.mean(axis=1) / spectra.shape[1]
    low = 10 * np.log10(np.maximum(power, 1e-30)) > part.levels - LEAST_LOW_DB
    one, pair = _line_shares(spectra)
    tone = (one > LINE) | (pair > PAIR) | (_stillness(spectra) > STILL)
    voiced = low & (_periodicity(spectra) > PERIODIC)
    # a stretch of frames is a tone as a whole, or not
    stretches = ndimage.label(loud & voiced)[0]
    shares = np.bincount(stretches, tone) / np.maximum(np.bincount(stretches), 1)
    return voiced & (shares[stretches] <= TONE_SHARE)


def _low_spectra(samples: FloatArray, rate: int, count: int) -> Array:
    """(T, bins) power of windows around the middle of each frame, in the band of the first harmonics."""
    spectrum = np.fft.rfft(np.asarray(samples, dtype=np.float64))
    hz = np.fft.rfftfreq(len(samples), 1 / rate)
    # noise of rooms falls with frequency: raised by 3 dB per octave its lowest part does not pass for a low voice
    spectrum *= np.sqrt(hz / EVEN_HZ)
    spectrum[(hz < BAND_HZ[0]) | (hz > BAND_HZ[1])] = 0
    length = round(len(samples) * LOW_RATE / rate)
    low = np.fft.irfft(spectrum[: length // 2 + 1], length)
    size = round(WINDOW_S * LOW_RATE)
    middles = round(LOW_RATE * FRAME_S / 2) + round(LOW_RATE * SHIFT_S) * np.arange(count)
    around = np.pad(low, (size // 2, 2 * size))
    windows = np.lib.stride_tricks.sliding_window_view(around, size)[middles]
    return np.abs(np.fft.rfft(windows * _hann(size), 2 * size)) ** 2


def _periodicity(spectra: Array) -> Array:
    """(T,) largest correlation with itself at the lags of a pitch, corrected for the window."""
    size = spectra.shape[1] - 1
    # twice as many lags as samples: the peak of a high voice lies between them
    lags = np.fft.irfft(spectra, 4 * size)
    window = np.fft.irfft(np.abs(np.fft.rfft(_hann(size), 2 * size)) ** 2, 4 * size)
    first = round(2 * LOW_RATE / PITCH_HZ[1])
    last = round(2 * LOW_RATE / PITCH_HZ[0])
    expected = window[first:last] / window[0]
    found = lags[:, first:last] / np.maximum(lags[:, :1], 1e-30)
    return (found / expected).max(axis=1)


def _line_shares(spectra: Array) -> tuple[Array, Array]:
    """(T,) shares of the energy around the loudest frequency, and around two that both lie above `PAIR_HZ`."""
    hz = LOW_RATE / 2 / (spectra.shape[1] - 1)
    width = round(LINE_HZ / hz)
    totals = np.cumsum(np.pad(spectra, ((0, 0), (width + 1, width))), axis=1)
    around = totals[:, 2 * width + 1 :] - totals[:, : -2 * width - 1]
    whole = np.maximum(totals[:, -1], 1e-30)
    bins = np.arange(spectra.shape[1])
    first = around.argmax(axis=1)
    loudest = around.max(axis=1)
    # the two do not share a bin
    rest = np.where(np.abs(bins - first[:, None]) > 2 * width, around, 0.0)
    high = np.minimum(first, rest.argmax(axis=1)) * hz > PAIR_HZ
    pair = np.where(high, loudest + rest.max(axis=1), 0.0)
    return loudest / whole, pair / whole


def _stillness(spectra: Array) -> Array:
    """(T,) cosine of a spectrum with the one before or after, the larger of the two."""
    sizes = np.sqrt(spectra)
    sizes /= np.maximum(np.linalg.norm(sizes, axis=1, keepdims=True), 1e-30)
    apart = _frames(STILL_S)
    still = np.zeros(len(sizes))
    if len(sizes) <= apart:
        return still
    alike = np.einsum("ij,ij->i", sizes[apart:], sizes[:-apart])
    still[apart:] = alike
    still[:-apart] = np.maximum(still[:-apart], alike)
    return still


def _spread(mask: BoolArray, seconds: float) -> BoolArray:
    """True also so long before and after."""
    return ndimage.binary_dilation(mask, [True] * (2 * _frames(seconds) + 1))


def _frames(seconds: float) -> int:
    return round(seconds / SHIFT_S)


def _hann(size: int) -> Array:
    return np.hanning(size + 1)[:-1]
