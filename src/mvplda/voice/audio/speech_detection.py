"""Detection of speech by level and periodicity.

A frame (25 ms, one every 10 ms) is speech if it is loud enough and close to a voiced frame. Voiced frames are periodic
at the pitch of a voice. Tones are periodic too, but excluded because their spectrum is constant. Claps and noise are
not periodic.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ..._typing import Array, BoolArray, FloatArray, IntArray
from .masks import dilate, number_runs, without_short_gaps, without_short_runs

FRAME_S = 0.025
SHIFT_S = 0.010
DIGITAL_ZERO_DB = -100.0
"""Level in dB at or below which a frame contains no sound; the last bit of 16-bit samples is at -96 dB."""
ZERO_DB = -120.0
STEADY_DB = 4.0
"""Minimum range of levels in dB (5th to 95th percentile) of speech; syllables have 20 to 40 dB."""
BELOW_LOUD_DB = 30.0
"""Maximum difference in dB of speech from the 95th percentile of levels."""
MIN_RANGE_SHARE = 0.3
"""Minimum level of speech, as a share of the range from the 5th to the 95th percentile of levels."""

LOW_RATE = 4000
"""Samples per second of the low-pass signal in which periods are searched."""
BAND_HZ = (60.0, 1500.0)
WINDOW_S = 0.064
EVEN_HZ = 500.0
PITCH_HZ = (70.0, 400.0)
PERIODIC = 0.5
"""Minimum autocorrelation of a voiced frame at the lag of its period; the 99th percentile of white noise is 0.36."""
OCTAVE_SHARE = 0.85
"""Share of the largest autocorrelation from which a shorter lag counts as the period; longer lags are its multiples."""
MAX_HARMONICS_DB = 20.0
"""Maximum difference in dB between the level of a voice and that of its first harmonics, which a whistle lacks."""
LINE_HZ = 40.0
LINE = 0.97
"""Share of a frame's energy within `LINE_HZ` of one frequency, above which the frame is a tone."""
PAIR = 0.9
PAIR_HZ = 600.0
"""A frame is also a tone, such as that of a telephone key, if its share of energy around two frequencies above
`PAIR_HZ` exceeds `PAIR`. A voice has lower harmonics as well."""
STILL = 0.99
STILL_S = 0.08
"""A frame is also a tone if the cosine of its spectrum with that `STILL_S` seconds before or after exceeds `STILL`;
voices reach 0.98."""
TONE_SHARE = 0.5
"""Share of tones among consecutive voiced frames, above which none of these frames counts as voiced."""
MIN_VOICED_S = 0.03
NEAR_S = 0.2
"""Maximum distance in seconds of a consonant from a voiced frame."""
GAP_S = 0.1
"""Duration in seconds of the longest pause within a word, as in a plosive; it counts as speech."""

EDGE_S = 0.03
"""Duration in seconds by which speech is extended before and after."""

SPECTRUM = 512
"""Number of samples per window of the spectrum."""


class SoundSegment:
    """Samples of a recording, or of a segment of one, with measurements that are computed on first use.

    Parameters
    ----------
    samples : (n,) samples of one channel, full scale 1
    rate : samples per second
    """

    def __init__(self, samples: FloatArray, rate: int) -> None:
        self.samples = np.asarray(samples, dtype=np.float32)
        self.rate = rate

    @cached_property
    def levels(self) -> Array:
        """Level of each frame of 25 ms, (T,), in dB relative to full scale; one frame per 10 ms.

        The level is the variance of the samples, so that a constant offset does not count.
        """
        length = round(FRAME_S * self.rate)
        if len(self.samples) < length:
            return np.empty(0)
        windows = np.lib.stride_tricks.sliding_window_view(self.samples, length)
        windows = windows[:: round(SHIFT_S * self.rate)]
        power = np.einsum("ij,ij->i", windows, windows, dtype=np.float64) / length
        power -= windows.mean(axis=1, dtype=np.float64) ** 2
        return np.asarray(10 * np.log10(np.maximum(power, 10 ** (ZERO_DB / 10))))

    @cached_property
    def speech(self) -> BoolArray:
        """Mask of the frames that are speech, (T,), for the same frames as `levels`."""
        loud = loud_frames(self.levels)
        if not loud.any():
            return loud
        voiced = loud & _voiced(self, loud)
        voiced = without_short_runs(voiced, _frames(MIN_VOICED_S) // 2)
        speech = loud & _spread(voiced, NEAR_S)
        # pauses within a word are filled, but nothing is added at the ends
        speech |= without_short_gaps(speech, _frames(GAP_S) // 2)
        # the edges of words are often masked by noise
        return _spread(speech, EDGE_S) & (self.levels > DIGITAL_ZERO_DB)

    @property
    def speech_s(self) -> float:
        """Duration of speech in seconds."""
        return float(self.speech.sum()) * SHIFT_S

    @cached_property
    def windows(self) -> NDArray[np.float32]:
        """Windows of samples that overlap by half, (W, 512); a shorter segment is padded to one window."""
        missing = max(0, SPECTRUM - len(self.samples))
        samples = np.pad(self.samples, (0, missing))
        return np.lib.stride_tricks.sliding_window_view(samples, SPECTRUM)[:: SPECTRUM // 2]

    @cached_property
    def power(self) -> NDArray[np.float32]:
        """Power spectra of the windows, (W, 257), with the constant component set to zero."""
        power = np.abs(np.fft.rfft(self.windows * _hann(SPECTRUM).astype(np.float32))) ** 2
        power[:, 0] = 0
        return power

    @cached_property
    def spectrum(self) -> Array:
        """Power spectrum of the segment, (257,), summed over its windows."""
        return np.asarray(self.power.sum(axis=0, dtype=np.float64))

    def pitch_hz(self) -> float | None:
        """Return the median pitch of the voiced frames in Hz; None if no frame is voiced."""
        loud = loud_frames(self.levels)
        voiced = loud & _voiced(self, loud) if loud.any() else loud
        if not voiced.any():
            return None
        spectra = _low_spectra(self.samples, self.rate, len(loud))[voiced]
        correlations, first_lag = _lag_correlations(spectra)
        # twice the period correlates as well: take the shortest lag that is about as good as the best
        is_good = correlations >= OCTAVE_SHARE * correlations.max(axis=1, keepdims=True)
        lags = first_lag + _first_peaks(correlations, is_good)
        return float(np.median(2 * LOW_RATE / lags))

    def cut(self, margin_s: float) -> NDArray[np.float32]:
        """Return the samples from the first to the last speech; all samples if there is no speech.

        margin_s : seconds of the recording that are kept before and after the speech
        """
        (frames,) = np.nonzero(self.speech)
        if not len(frames):
            return self.samples
        shift = round(SHIFT_S * self.rate)
        margin = round(margin_s * self.rate)
        start = max(0, frames[0] * shift - margin)
        end = frames[-1] * shift + round(FRAME_S * self.rate) + margin
        return self.samples[start:end]


def last_bin(spectrum: Array) -> int:
    """Return the index of the highest frequency whose power is within 60 dB of the largest power.

    spectrum : (bins,) power spectrum; if it is zero everywhere, the index is 0
    """
    loud = np.flatnonzero(spectrum > spectrum.max() * 1e-6)
    return int(loud[-1]) if len(loud) else 0


def bandwidth_hz(spectrum: Array, rate: int) -> float:
    """Return the highest frequency in Hz whose power is within 60 dB of the largest power.

    spectrum : (257,) power spectrum, as `SoundSegment.spectrum`
    rate : samples per second
    """
    return last_bin(spectrum) * rate / SPECTRUM


def level_range(levels: Array) -> tuple[float, float]:
    """Return the 5th and the 95th percentile of the levels (T,) in dB; frames of digital silence are left out."""
    sound = levels[levels > DIGITAL_ZERO_DB]
    if not len(sound):
        return ZERO_DB, ZERO_DB
    quiet, loud = np.percentile(sound, [5, 95])
    return float(quiet), float(loud)


def loud_frames(levels: Array) -> BoolArray:
    """Return a (T,) mask of the frames whose level is near the loudest and clearly above the quietest.

    levels : (T,) levels in dB; if they are steady, all frames with sound count as loud
    """
    quiet, loud = level_range(levels)
    limit = DIGITAL_ZERO_DB
    if loud - quiet >= STEADY_DB:
        limit = max(loud - BELOW_LOUD_DB, quiet + MIN_RANGE_SHARE * (loud - quiet))
    return levels > limit


def _voiced(segment: SoundSegment, loud: BoolArray) -> BoolArray:
    """Return a (T,) mask of the frames that are periodic at the pitch of a voice and not part of a tone.

    loud : (T,) mask of the frames that are loud enough for speech
    """
    spectra = _low_spectra(segment.samples, segment.rate, len(loud))
    power = spectra.mean(axis=1) / spectra.shape[1]
    has_harmonics = 10 * np.log10(np.maximum(power, 1e-30)) > segment.levels - MAX_HARMONICS_DB
    line, pair = _line_shares(spectra)
    tone = (line > LINE) | (pair > PAIR) | (_stillness(spectra) > STILL)
    voiced = has_harmonics & (_periodicity(spectra) > PERIODIC)
    # whole stretches are tones or not: single frames of a tone may look voiced
    stretches = number_runs(loud & voiced)
    shares = np.bincount(stretches, tone) / np.maximum(np.bincount(stretches), 1)
    return np.asarray(voiced & (shares[stretches] <= TONE_SHARE))


def _low_spectra(samples: FloatArray, rate: int, count: int) -> Array:
    """Return (T, bins) power spectra of frames in the band `BAND_HZ` of a voice's first harmonics.

    Each spectrum is that of a window of `WINDOW_S` seconds around the middle of the frame.

    samples : (n,) samples of one channel
    rate : samples per second
    count : number T of frames
    """
    spectrum = np.fft.rfft(np.asarray(samples, dtype=np.float64))
    hz = np.fft.rfftfreq(len(samples), 1 / rate)
    # the noise of rooms falls with frequency; without 3 dB per octave its lowest band would pass for a low voice
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
    """Return the (T,) largest autocorrelation of each frame at the lags of a voice's pitch.

    spectra : (T, bins) power spectra of `_low_spectra`
    """
    return np.asarray(_lag_correlations(spectra)[0].max(axis=1))


def _first_peaks(correlations: Array, is_good: BoolArray) -> IntArray:
    """Return the (T,) index of each frame's best lag: the highest correlation in its first good run.

    A good run is a series of consecutive lags that are all True in `is_good`. Later runs are
    ignored, because multiples of the period correlate as well as the period.

    correlations : (T, lags) autocorrelations
    is_good : (T, lags) mask of the lags that may be the period, at least one per frame
    """
    starts = is_good.argmax(axis=1)
    has_ended = np.cumsum(~is_good & (np.arange(is_good.shape[1]) > starts[:, None]), axis=1) > 0
    return np.asarray(np.where(is_good & ~has_ended, correlations, -np.inf).argmax(axis=1))


def _lag_correlations(spectra: Array) -> tuple[Array, int]:
    """Return (T, lags) autocorrelations at the lags of a voice's pitch, and the first such lag.

    A lag is a number of samples at the rate 2 `LOW_RATE`. Autocorrelations are divided by that at
    lag 0, and by the autocorrelation of the window.

    spectra : (T, bins) power spectra of `_low_spectra`
    """
    size = spectra.shape[1] - 1
    # two lags per sample, because the peak of a high voice lies between samples
    lags = np.fft.irfft(spectra, 4 * size)
    window = np.fft.irfft(np.abs(np.fft.rfft(_hann(size), 2 * size)) ** 2, 4 * size)
    first = round(2 * LOW_RATE / PITCH_HZ[1])
    last = round(2 * LOW_RATE / PITCH_HZ[0])
    expected = window[first:last] / window[0]
    correlations = lags[:, first:last] / np.maximum(lags[:, :1], 1e-30)
    return np.asarray(correlations / expected), first


def _line_shares(spectra: Array) -> tuple[Array, Array]:
    """Return the proportions of each frame's energy near its one and its two loudest frequencies.

    Near means at most `LINE_HZ` away. A tone has most of its energy there.

    spectra : (T, bins) power spectra of `_low_spectra`

    Returns
    -------
    (T,) proportion near the loudest frequency, and (T,) proportion near the loudest two; the second
    is 0 unless both frequencies are above `PAIR_HZ`, because a voice has lower harmonics
    """
    hz = LOW_RATE / 2 / (spectra.shape[1] - 1)
    width = round(LINE_HZ / hz)
    totals = np.cumsum(np.pad(spectra, ((0, 0), (width + 1, width))), axis=1)
    around = totals[:, 2 * width + 1 :] - totals[:, : -2 * width - 1]
    energy = np.maximum(totals[:, -1], 1e-30)
    bins = np.arange(spectra.shape[1])
    first = around.argmax(axis=1)
    loudest = around.max(axis=1)
    # the second line must not share a bin with the first
    second = np.where(np.abs(bins - first[:, None]) > 2 * width, around, 0.0)
    are_high = np.minimum(first, second.argmax(axis=1)) * hz > PAIR_HZ
    pair = np.where(are_high, loudest + second.max(axis=1), 0.0)
    return loudest / energy, pair / energy


def _stillness(spectra: Array) -> Array:
    """Return how little the spectrum of each frame changes, (T,), from 0 to 1 for a steady tone.

    It is the cosine of the frame's amplitudes with those 80 ms earlier or 80 ms later; the larger
    cosine counts.

    spectra : (T, bins) power spectra of `_low_spectra`
    """
    amplitudes = np.sqrt(spectra)
    amplitudes /= np.maximum(np.linalg.norm(amplitudes, axis=1, keepdims=True), 1e-30)
    lag = _frames(STILL_S)
    stillness = np.zeros(len(amplitudes))
    if len(amplitudes) <= lag:
        return stillness
    cosines = np.einsum("ij,ij->i", amplitudes[lag:], amplitudes[:-lag])
    stillness[lag:] = cosines
    stillness[:-lag] = np.maximum(stillness[:-lag], cosines)
    return stillness


def _spread(mask: BoolArray, seconds: float) -> BoolArray:
    """Return a mask (T,) of frames in which every run of True is extended by `seconds` at both ends."""
    return dilate(mask, _frames(seconds))


def _frames(seconds: float) -> int:
    """Return the number of frames (one per 10 ms) in a duration in seconds, rounded."""
    return round(seconds / SHIFT_S)


def _hann(size: int) -> Array:
    return np.hanning(size + 1)[:-1]
