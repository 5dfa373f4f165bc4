"""How good a recording is: what was measured, and named warnings where a vector of it means little."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..exceptions import AudioError, DataError, ParameterError
from .activity import silero_speech

Activity = Literal["energy", "silero"]
FRAME_S, SHIFT_S = 0.025, 0.010
LEAST_SPEECH_S = 0.1
"""Less that silero hears is none: a click has as much."""
FULL_SCALE = 0.999
"""Of the loudest sample; from here on a sample may be cut off, for converters and codecs round a little."""
LEAST_LIMIT = 0.1
"""Quieter sound has so few levels that equal neighbours mean nothing."""
UNEVEN, MANY = 0.8, 0.12
"""More than this share of samples so near the loudest are tops that were flat; of speech 6 in 100 are there at most."""
DIGITAL_ZERO_DB = -120.0
SPECTRUM = 512
LOUD, CREST, SHARP = 0.1, 12.0, 18.0
"""Deviation of samples over 32 ms that no hiss of a voice reaches; a peak above it that no voice has in white sound,
and one that none has at all."""
WINDOW = np.hanning(SPECTRUM + 1)[:-1].astype(np.float32)
FFT_FRAMES = 4000
"""Spectra that the long-term spectrum is the mean of; more of a long file are passed over evenly."""


@dataclass(frozen=True)
class QualitySettings:
    """When a recording is warned of.

    Attributes
    ----------
    speech_s : net speech below this is "short": under a second, a speaker's vectors spread about twice as wide
    quiet_db : a peak below this is "quiet": 16-bit sound then has under six bits left
    clipped : a share of samples in flat tops above this is "clipped"; one tenth of a percent is heard as crackle. So is
        an eighth of all samples within 2 dB of the loudest: flat tops that another rate has made uneven
    snr_db : an SNR below this is "noisy"
    bandwidth_hz : less is "narrow": a telephone's 3.4 kHz lies under it, and all that was recorded at 8 kHz; CAM++
        takes half of such a recording's vector for another voice
    steady_db : frames whose level moves less than this (5th to 95th percentile) are no speech, whose syllables move
        it by 20 to 40 dB
    tone : a share of the energy in a band of 100 Hz, above which a steady sound is a "tone", else it is "noise"
    speech_below_peak_db : frames further below the loudest are no speech
    broken : a share of windows (32 ms) that no voice makes, from which on a recording is "damaged"; one at least.
        White noise near full scale, as bytes that were taken for samples give, or single samples far above all around
    activity : what tells speech: the "energy" of frames, which takes any sound that comes and goes for speech, or
        "silero", a network that ``mvplda extractor get silero`` fetches. Vectors do not depend on it
    least_speech_s : less net speech is an error, not a warning
    """

    speech_s: float = 1.0
    quiet_db: float = -60.0
    clipped: float = 0.001
    snr_db: float = 10.0
    bandwidth_hz: float = 4100.0
    steady_db: float = 4.0
    tone: float = 0.8
    speech_below_peak_db: float = 30.0
    broken: float = 0.002
    activity: Activity = "energy"
    least_speech_s: float = 0.0

    def __post_init__(self) -> None:
        if self.activity not in ("energy", "silero"):
            raise ParameterError(f"activity is 'energy' or 'silero'; got {self.activity!r}")


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
    warnings : names of what is wrong: short, quiet, clipped, noisy, narrow, tone, noise, damaged, speechless
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
        return not {"tone", "noise", "quiet", "speechless"} & set(self.warnings)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


def measure(samples: NDArray[Any], rate: int, settings: QualitySettings | None = None) -> Quality:
    """The quality of samples of one channel, full scale being 1."""
    array = np.asarray(samples)
    if array.ndim != 1 or array.dtype.kind != "f":
        raise DataError(
            f"samples are (n,) floats whose full scale is 1; got shape {array.shape} of {array.dtype}"
        )
    if not rate > 0:
        raise DataError(f"a rate is a number of samples a second; got {rate!r}")
    if not np.isfinite(array).all():
        raise AudioError(
            f"{int((~np.isfinite(array)).sum())} of {len(array)} samples are not finite"
        )
    return measure_parts([array], rate, settings)


def measure_parts(
    parts: Iterable[NDArray[Any]], rate: int, settings: QualitySettings | None = None
) -> Quality:
    """The quality of a recording that comes in parts."""
    meter = Meter(rate, settings)
    for part in parts:
        meter.add(part)
    return meter.quality()


class Meter:
    """Measures a recording part by part, and keeps nothing of it but its numbers."""

    def __init__(self, rate: int, settings: QualitySettings | None = None) -> None:
        self.rate, self.settings = rate, settings or QualitySettings()
        self._levels: list[NDArray[np.float64]] = []
        self._heard: list[NDArray[np.bool_]] = []
        self._total, self._flat, self._broken, self._windows, self._peak = 0, 0, 0, 0, 0.0
        self._spectra = np.zeros(SPECTRUM // 2 + 1)
        self._digest = hashlib.sha256(f"{rate}".encode())

    def add(self, part: NDArray[Any]) -> NDArray[np.float64]:
        """Hear a part; what comes back are the levels of its frames."""
        samples = np.asarray(part, dtype=np.float32)
        level = frame_levels(samples, self.rate)
        self._total += len(samples)
        self._peak = max(self._peak, float(np.abs(samples).max(initial=0.0)))
        self._flat += _flat_tops(samples)
        self._levels.append(level)
        if self.settings.activity == "silero":
            middles = (
                round(SHIFT_S * self.rate) * np.arange(len(level)) + round(FRAME_S * self.rate) // 2
            )
            self._heard.append(silero_speech(samples, self.rate, middles))
        spectrum, broken = _spectrum(samples)
        self._spectra += spectrum
        self._broken += int(broken.sum())
        self._windows += len(broken)
        self._digest.update(
            np.round(np.clip(samples, -32767, 32767) * 32768).astype("<i4").tobytes()
        )
        return level

    def quality(self) -> Quality:
        """What was measured of all parts."""
        settings, spectra = self.settings, self._spectra
        if not self._total:
            raise AudioError("the sound is empty: there are no samples")
        level = np.concatenate(self._levels)
        speech = np.concatenate(self._heard) if self._heard else is_speech(level, settings)
        steady = len(level) >= 20 and float(np.diff(_range(level))[0]) < settings.steady_db
        duration = self._total / self.rate
        found = Quality(
            duration_s=duration,
            speech_s=float(speech.sum()) * SHIFT_S if len(level) else duration,
            peak_db=_decibels(self._peak**2),
            level_db=_mean_level(level[speech]),
            clipped=self._flat / self._total,
            snr_db=None if steady else _snr(level, speech),
            bandwidth_hz=_bandwidth(spectra, self.rate),
            digest=self._digest.hexdigest(),
        )
        if found.speech_s < settings.least_speech_s:
            raise AudioError(
                f"the sound holds {found.speech_s:.2f} s of speech, at least {settings.least_speech_s:g} s are wanted"
            )
        band = max(1, round(100 / (self.rate / SPECTRUM)))
        concentrated = np.convolve(spectra, np.ones(2 * band + 1), "same").max() / max(
            spectra.sum(), 1e-300
        )
        names = {
            "tone": concentrated > settings.tone and (steady or concentrated > 0.98),
            "noise": steady and concentrated <= settings.tone,
            "quiet": found.peak_db < settings.quiet_db,
            "clipped": found.clipped > settings.clipped,
            "short": found.speech_s < settings.speech_s,
            "noisy": found.snr_db is not None and found.snr_db < settings.snr_db,
            "narrow": found.bandwidth_hz < settings.bandwidth_hz,
            "damaged": self._broken >= max(1.0, settings.broken * self._windows),
            "speechless": bool(self._heard) and found.speech_s < LEAST_SPEECH_S,
        }
        return replace(found, warnings=tuple(name for name, wrong in names.items() if wrong))


def frame_levels(samples: NDArray[Any], rate: int) -> NDArray[np.float64]:
    """(T,) mean power of frames without their mean, in dB below full scale."""
    length, shift = round(FRAME_S * rate), round(SHIFT_S * rate)
    if len(samples) < length:
        return np.empty(0)
    windows = np.lib.stride_tricks.sliding_window_view(samples, length)[::shift]
    power = np.einsum("ij,ij->i", windows, windows, dtype=np.float64) / length
    power -= windows.mean(axis=1, dtype=np.float64) ** 2
    return np.asarray(10 * np.log10(np.maximum(power, 10 ** (DIGITAL_ZERO_DB / 10))))


def is_speech(
    level: NDArray[np.float64], settings: QualitySettings | None = None
) -> NDArray[np.bool_]:
    """Which frames are speech by their level: near the loud ones, and clearly above the quiet ones."""
    settings = settings or QualitySettings()
    if not len(level):
        return np.zeros(0, dtype=np.bool_)
    quiet, loud = _range(level)
    if loud - quiet < settings.steady_db:
        return np.ones(len(level), dtype=np.bool_)
    return np.asarray(
        level > max(loud - settings.speech_below_peak_db, quiet + 0.3 * (loud - quiet))
    )


def _range(level: NDArray[np.float64]) -> NDArray[np.float64]:
    """The 5th and the 95th percentile, as ``np.percentile`` has them, in a third of its time for a second of sound."""
    last = len(level) - 1
    return np.interp([0.05 * last, 0.95 * last], np.arange(last + 1), np.sort(level))


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


def _spectrum(samples: NDArray[np.float32]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Power by frequency, and which windows are as no voice makes them."""
    if len(samples) < SPECTRUM:
        samples = np.pad(samples, (0, SPECTRUM - len(samples)))
    windows = np.lib.stride_tricks.sliding_window_view(samples, SPECTRUM)[:: SPECTRUM // 2]
    windows = windows[:: max(1, len(windows) // FFT_FRAMES)]
    power = np.abs(np.fft.rfft(windows * WINDOW)) ** 2
    power[:, 0] = 0  # a constant is no sound
    spectrum = power.sum(axis=0, dtype=np.float64)
    rest = power[:, 1 : max(2, _last(spectrum) + 1)] + np.float32(1e-20)  # as far as the sound goes
    flatness = np.exp(np.log(rest).mean(axis=1)) / rest.mean(axis=1)  # of white noise 0.56
    level = np.sqrt(np.einsum("ij,ij->i", windows, windows) / SPECTRUM) + 1e-12
    top = np.abs(windows).max(axis=1)
    noise = (flatness > 0.4) & (level > max(LOUD, 0.5 * level.max()))
    clicks = (top > np.where(flatness > 0.3, CREST, SHARP) * level) & (
        top > 0.5 * np.abs(samples).max()
    )
    return spectrum, noise | clicks


def _bandwidth(spectrum: NDArray[np.float64], rate: int) -> float:
    """The highest frequency whose power is within 60 dB of the loudest, and 99.99 % of the energy below it."""
    return float(_last(spectrum) * rate / SPECTRUM)


def _last(spectrum: NDArray[np.float64]) -> int:
    loud = np.flatnonzero(spectrum > spectrum.max() * 1e-6)
    return int(loud[-1]) if len(loud) else 0


def _snr(level: NDArray[np.float64], speech: NDArray[np.bool_]) -> float | None:
    if speech.all() or not speech.any():
        return None
    signal, noise = (10 ** (level[which] / 10) for which in (speech, ~speech))
    return float(10 * np.log10(max(signal.mean() - noise.mean(), 1e-12) / max(noise.mean(), 1e-12)))


def _mean_level(level: NDArray[np.float64]) -> float:
    return float(10 * np.log10(np.mean(10 ** (level / 10)))) if len(level) else DIGITAL_ZERO_DB


def _decibels(power: float) -> float:
    return max(DIGITAL_ZERO_DB, float(10 * np.log10(max(power, 1e-30))))
