"""Where there is speech in a recording, and how good it is: what was measured, and named warnings where a vector of it
means little.

A frame of 10 ms is speech where the sound is loud enough and a voiced stretch is near. Voiced is what repeats at the
period of a voice; tones repeat too, and are left out because their spectrum stands still. Claps and noise do not
repeat.
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from .._typing import Array, BoolArray, FloatArray
from ..exceptions import AudioError
from .sound import of_array

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


class Part:
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


def _voiced(part: Part, loud: BoolArray) -> BoolArray:
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


# The quality of a recording.

FULL_SCALE = 0.999
"""Of the loudest sample; from here on a sample may be cut off, for converters and codecs round a little."""
LEAST_LIMIT = 0.1
"""Quieter sound has so few levels that equal neighbours mean nothing."""
UNEVEN, MANY = 0.8, 0.12
"""More than this share of samples so near the loudest are tops that were flat; of speech 6 in 100 are there at most."""
LOUD, CREST, SHARP = 0.1, 12.0, 18.0
"""Deviation of samples over 32 ms that no hiss of a voice reaches; a peak above it that no voice has in white sound,
and one that none has at all."""


@dataclass(frozen=True)
class QualitySettings:
    """When a recording is warned of.

    Attributes
    ----------
    speech_s : net speech below this is "short", and nothing is decided. Measured with CAM++ on Speech Commands, EER by
        the shorter recording: 23 % at 0.1 to 0.2 s, 16 % up to 0.25 s, 11 % up to 0.3 s, 8 to 9 % up to 0.5 s. It is
        no curve of length alone: 0.6 s and more has 17 to 24 % there, and under 0.1 s has 12 %
    none_s : less is none at all: the recording is "speechless"
    quiet_db : a peak below this is "quiet": 16-bit sound then has under six bits left
    clipped : a share of samples in flat tops above this is "clipped"; one tenth of a percent is heard as crackle. So is
        an eighth of all samples within 2 dB of the loudest: flat tops that another rate has made uneven
    snr_db : an SNR below this is "noisy"
    bandwidth_hz : less is "narrow": a telephone's 3.4 kHz lies under it, and all that was recorded at 8 kHz; CAM++
        takes half of such a recording's vector for another voice
    broken : a share of windows (32 ms) that no voice makes, from which on a recording is "damaged"; one at least.
        White noise near full scale, as bytes that were taken for samples give, or single samples far above all around
    """

    speech_s: float = 0.25
    none_s: float = 0.1
    quiet_db: float = -60.0
    clipped: float = 0.001
    snr_db: float = 10.0
    bandwidth_hz: float = 4100.0
    broken: float = 0.002


@dataclass(frozen=True)
class Quality:
    """What was measured of a recording.

    Attributes
    ----------
    duration_s, speech_s : its length, and that of the speech in it
    peak_db, level_db : the loudest sample, and the mean power of the speech, below full scale
    clipped : share of samples in flat tops at the limit
    snr_db : speech against what lies between; None where nothing lies between
    bandwidth_hz : where the spectrum ends
    warnings : names of what is wrong: speechless, short, quiet, clipped, noisy, narrow, damaged
    digest : of the samples: equal for copies under other names
    """

    duration_s: float
    speech_s: float
    peak_db: float
    level_db: float
    clipped: float
    snr_db: float | None
    bandwidth_hz: float
    warnings: tuple[str, ...] = ()
    digest: str = field(default="", repr=False)

    @property
    def usable(self) -> bool:
        """Whether there is speech in it that a decision could rest on."""
        return not {"speechless", "short", "quiet"} & set(self.warnings)

    def to_dict(self) -> dict[str, object]:
        """Plain values for JSON."""
        return asdict(self)


def measure(samples: FloatArray, rate: int, settings: QualitySettings | None = None) -> Quality:
    """The quality of samples of one channel, full scale being 1."""
    return measure_parts([of_array(samples, rate, rate)], rate, settings)


def measure_parts(
    parts: Iterable[FloatArray], rate: int, settings: QualitySettings | None = None
) -> Quality:
    """The quality of a recording that comes in parts."""
    meter = Meter(rate, settings)
    for part in parts:
        meter.add(Part(part, rate))
    return meter.quality()


class Meter:
    """Measures a recording part by part, and keeps nothing of it but its numbers."""

    def __init__(self, rate: int, settings: QualitySettings | None = None) -> None:
        self.rate = rate
        self.settings = settings or QualitySettings()
        self._parts: list[tuple[Any, ...]] = []
        self._digest = hashlib.sha256(f"{rate}".encode())

    def add(self, part: Part) -> Part:
        """Measure a part, and give it back."""
        samples = part.samples
        peak = float(np.abs(samples).max(initial=0.0))
        numbers = (_flat_tops(samples), len(samples), peak)
        self._parts.append((part.levels, part.speech, _broken(part), part.spectrum, *numbers))
        whole = np.round(np.clip(samples, -32767, 32767) * 32768)
        self._digest.update(whole.astype("<i4").tobytes())
        return part

    def quality(self) -> Quality:
        """What was measured of all parts."""
        levels, speech, broken, spectra, flat, counts, peaks = zip(*self._parts, strict=True)
        if not sum(counts):
            raise AudioError("the sound is empty: there are no samples")
        is_speech = np.concatenate(speech)
        level = np.concatenate(levels)
        measured = Quality(
            duration_s=sum(counts) / self.rate,
            speech_s=float(is_speech.sum()) * SHIFT_S,
            peak_db=_decibels(max(peaks) ** 2),
            level_db=_decibels(_mean_power(level[is_speech])),
            clipped=sum(flat) / sum(counts),
            snr_db=_snr(level, is_speech),
            bandwidth_hz=bandwidth_hz(np.sum(spectra, axis=0), self.rate),
            digest=self._digest.hexdigest(),
        )
        return replace(measured, warnings=self._warnings(measured, np.concatenate(broken)))

    def _warnings(self, measured: Quality, broken: BoolArray) -> tuple[str, ...]:
        limits = self.settings
        none = measured.speech_s < limits.none_s
        faults = {
            "speechless": none,
            "short": not none and measured.speech_s < limits.speech_s,
            "quiet": measured.peak_db < limits.quiet_db,
            "clipped": measured.clipped > limits.clipped,
            "noisy": measured.snr_db is not None and measured.snr_db < limits.snr_db,
            "narrow": measured.bandwidth_hz < limits.bandwidth_hz,
            "damaged": broken.sum() >= max(1.0, limits.broken * len(broken)),
        }
        return tuple(name for name, wrong in faults.items() if wrong)


def _flat_tops(samples: NDArray[np.float32]) -> int:
    """Samples at the limit whose neighbour has the same value; the limit may lie lower, where a gain came after it."""
    size = np.abs(samples)
    top = float(size.max(initial=0.0))
    if top < LEAST_LIMIT:
        return 0
    near = int((size > UNEVEN * top).sum())
    if near > MANY * len(samples):
        return near
    both = (samples[1:] == samples[:-1]) & (size[1:] >= FULL_SCALE * top)
    return int((np.append(both, False) | np.append(False, both)).sum())


def _broken(part: Part) -> BoolArray:
    """Which windows of a part are as no voice makes them."""
    # as far as the sound goes
    power = part.power[:, 1 : max(2, last_bin(part.spectrum) + 1)] + np.float32(1e-20)
    flatness = np.exp(np.log(power).mean(axis=1)) / power.mean(axis=1)  # of white noise 0.56
    windows = part.windows
    level = np.sqrt(np.einsum("ij,ij->i", windows, windows) / SPECTRUM) + 1e-12
    top = np.abs(windows).max(axis=1)
    noise = (flatness > 0.4) & (level > max(LOUD, 0.5 * level.max()))
    sharp = top > np.where(flatness > 0.3, CREST, SHARP) * level
    return noise | (sharp & (top > 0.5 * np.abs(part.samples).max(initial=0)))


def _snr(levels: Array, speech: BoolArray) -> float | None:
    """Of speech against the sound between; digital zeros are no sound of a room, and steady sound is only one."""
    quiet, loud = level_range(levels)
    between = ~speech & (levels > DIGITAL_ZERO_DB)
    if loud - quiet < STEADY_DB or not between.any() or not speech.any():
        return None
    # the median: a loud stretch that was not taken for speech is no noise of the room
    noise = 10 ** (float(np.median(levels[between])) / 10)
    signal = _mean_power(levels[speech]) - noise
    return float(10 * np.log10(max(signal, 1e-12) / max(noise, 1e-12)))


def _mean_power(levels: Array) -> float:
    return float(np.mean(10 ** (levels / 10))) if len(levels) else 0.0


def _decibels(power: float) -> float:
    return max(ZERO_DB, float(10 * np.log10(max(power, 1e-30))))
