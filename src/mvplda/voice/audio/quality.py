"""Measurement of the quality of recordings: level, clipping, noise, bandwidth and amount of speech."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..._typing import Array, BoolArray, FloatArray
from ...exceptions import AudioError
from .decode import sound_from_array
from .speech_detection import (
    DIGITAL_ZERO_DB,
    SHIFT_S,
    SPECTRUM,
    STEADY_DB,
    ZERO_DB,
    SoundSegment,
    bandwidth_hz,
    last_bin,
    level_range,
)

FULL_SCALE = 0.999
"""Share of the loudest sample above which equal neighbours count as clipped; below 1, because codecs round."""
MIN_CLIPPING_LEVEL = 0.1
"""Peak below which clipping is not looked for: quiet sound has few levels, so equal neighbours are common."""
UNEVEN_TOP, MAX_TOP_SHARE = 0.8, 0.12
"""Samples above `UNEVEN_TOP` of the peak count as clipped if they are more than `MAX_TOP_SHARE` of all samples. This
detects clipping before resampling, which makes flat tops uneven. In speech the share is at most 6 %."""
NOISE_LEVEL, NOISE_CREST, VOICE_CREST = 0.1, 12.0, 18.0
"""Limits that no voice exceeds in windows of 32 ms: the level of sound with a white spectrum, and the ratio of peak to
level in sound with a white spectrum and in any sound."""


@dataclass(frozen=True)
class QualitySettings:
    """Limits of the warnings about a recording.

    Attributes
    ----------
    speech_s : minimum seconds of speech; a recording with less is "short" and cannot be verified. EER of CAM++ on
        Speech Commands by the speech of the shorter recording: 23 % for 0.1 to 0.2 s, 16 % up to 0.25 s, 11 % up to
        0.3 s, 8 to 9 % up to 0.5 s. Other causes matter too: 17 to 24 % from 0.6 s, 12 % below 0.1 s
    none_s : a recording with less speech is "speechless"
    quiet_db : a recording with a lower peak is "quiet"; 16-bit samples then use fewer than six bits
    clipped : a recording with a larger share of clipped samples is "clipped"; 0.1 % is audible as crackle. If more
        than 12 % of all samples are within 2 dB of the peak, these count as clipped too: resampling makes the
        flat tops of a clipped signal uneven
    snr_db : a recording with a lower SNR is "noisy"
    bandwidth_hz : a recording with a lower bandwidth is "narrow", such as telephone speech (3.4 kHz) and all sound
        sampled at 8 kHz; its CAM++ vector is too different from wide-band vectors of the same speaker
    broken : a recording is "damaged" if a larger share of its 32 ms windows, and at least one, cannot be speech: white
        noise near full scale, as from bytes read as samples, or isolated samples far above their neighbours
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
    """Measurements of a recording.

    Attributes
    ----------
    duration_s, speech_s : duration of the recording, and of the speech in it, in seconds
    peak_db, level_db : level of the loudest sample, and mean level of the speech, in dB relative to full scale
    clipped : share of samples that are clipped
    snr_db : ratio of the power of the speech to that of the sound in its pauses, in dB; None if there are no pauses
    bandwidth_hz : highest frequency within 60 dB of the loudest one
    warnings : names of the faults, out of speechless, short, quiet, clipped, noisy, narrow and damaged
    digest : hash of the samples, equal for copies of the recording in other files
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
        """Whether the recording has enough speech for a decision."""
        return not {"speechless", "short", "quiet"} & set(self.warnings)

    def to_dict(self) -> dict[str, object]:
        """Return the measurements as plain values for JSON."""
        return asdict(self)


def measure(samples: FloatArray, rate: int, settings: QualitySettings | None = None) -> Quality:
    """Measure the quality of a recording.

    Parameters
    ----------
    samples : (n,) or (n, channels) samples with full scale 1; channels are averaged
    rate : samples per second
    settings : limits of the warnings; default: `QualitySettings()`

    Raises
    ------
    AudioError
        The samples are empty, silent or not finite.

    Examples
    --------
    >>> import numpy as np
    >>> tone = 0.1 * np.sin(2 * np.pi * 440 * np.arange(16000) / 16000)
    >>> quality = measure(tone, 16000)
    >>> quality.speech_s, quality.usable
    (0.0, False)
    """
    return measure_segments([sound_from_array(samples, rate, rate)], rate, settings)


def measure_segments(
    segments: Iterable[FloatArray], rate: int, settings: QualitySettings | None = None
) -> Quality:
    """Measure the quality of a recording from its consecutive segments.

    Parameters
    ----------
    segments : (n,) samples of one channel per segment, full scale 1
    rate : samples per second
    settings : limits of the warnings; default: `QualitySettings()`
    """
    meter = QualityMeter(rate, settings)
    for samples in segments:
        meter.add(SoundSegment(samples, rate))
    return meter.quality()


class SegmentMeasurements(NamedTuple):
    """Measurements of one segment.

    levels : (T,) level of each frame in dB
    is_speech : (T,) mask of the frames that are speech
    is_broken : (W,) mask of the windows (32 ms) that cannot be speech
    spectrum : (257,) power spectrum
    flat_tops : number of clipped samples
    length : number of samples
    peak : absolute value of the loudest sample
    """

    levels: Array
    is_speech: BoolArray
    is_broken: BoolArray
    spectrum: Array
    flat_tops: int
    length: int
    peak: float


class QualityMeter:
    """Measurement of a recording segment by segment, without storing its samples.

    Parameters
    ----------
    rate : samples per second
    settings : limits of the warnings; default: `QualitySettings()`
    """

    def __init__(self, rate: int, settings: QualitySettings | None = None) -> None:
        self.rate = rate
        self.settings = settings or QualitySettings()
        self._segments: list[SegmentMeasurements] = []
        self._digest = hashlib.sha256(f"{rate}".encode())

    def add(self, segment: SoundSegment) -> SoundSegment:
        """Measure the next segment of the recording; return the segment unchanged."""
        samples = segment.samples
        self._segments.append(
            SegmentMeasurements(
                segment.levels,
                segment.speech,
                _broken(segment),
                segment.spectrum,
                _flat_tops(samples),
                len(samples),
                float(np.abs(samples).max(initial=0.0)),
            )
        )
        integers = np.round(np.clip(samples, -32767, 32767) * 32768)
        self._digest.update(integers.astype("<i4").tobytes())
        return segment

    def quality(self) -> Quality:
        """Return the quality of all segments so far as one recording; raise `AudioError` if there are no samples."""
        length = sum(segment.length for segment in self._segments)
        if not length:
            raise AudioError("the sound is empty: it has no samples. Record it again")
        levels = np.concatenate([segment.levels for segment in self._segments])
        is_speech = np.concatenate([segment.is_speech for segment in self._segments])
        is_broken = np.concatenate([segment.is_broken for segment in self._segments])
        spectrum = np.sum([segment.spectrum for segment in self._segments], axis=0)
        measured = Quality(
            duration_s=length / self.rate,
            speech_s=float(is_speech.sum()) * SHIFT_S,
            peak_db=_decibels(max(segment.peak for segment in self._segments) ** 2),
            level_db=_decibels(_mean_power(levels[is_speech])),
            clipped=sum(segment.flat_tops for segment in self._segments) / length,
            snr_db=_snr(levels, is_speech),
            bandwidth_hz=bandwidth_hz(spectrum, self.rate),
            digest=self._digest.hexdigest(),
        )
        return replace(measured, warnings=self._warnings(measured, is_broken))

    def _warnings(self, measured: Quality, broken: BoolArray) -> tuple[str, ...]:
        limits = self.settings
        is_speechless = measured.speech_s < limits.none_s
        faults = {
            "speechless": is_speechless,
            "short": not is_speechless and measured.speech_s < limits.speech_s,
            "quiet": measured.peak_db < limits.quiet_db,
            "clipped": measured.clipped > limits.clipped,
            "noisy": measured.snr_db is not None and measured.snr_db < limits.snr_db,
            "narrow": measured.bandwidth_hz < limits.bandwidth_hz,
            "damaged": broken.sum() >= max(1.0, limits.broken * len(broken)),
        }
        return tuple(name for name, wrong in faults.items() if wrong)


def _flat_tops(samples: NDArray[np.float32]) -> int:
    """Count the clipped samples: equal neighbours at the peak, or many samples near it; see `MAX_TOP_SHARE`.

    The peak may be below full scale, because the volume may have been lowered after clipping.
    """
    size = np.abs(samples)
    top = float(size.max(initial=0.0))
    if top < MIN_CLIPPING_LEVEL:
        return 0
    n_near_peak = int((size > UNEVEN_TOP * top).sum())
    if n_near_peak > MAX_TOP_SHARE * len(samples):
        return n_near_peak
    is_flat = (samples[1:] == samples[:-1]) & (size[1:] >= FULL_SCALE * top)
    return int((np.append(is_flat, False) | np.append(False, is_flat)).sum())


def _broken(segment: SoundSegment) -> BoolArray:
    """Return a (W,) mask of the windows of a segment that cannot be speech: loud white noise, or isolated peaks."""
    # up to the bandwidth, because an empty band would make any spectrum look uneven
    power = segment.power[:, 1 : max(2, last_bin(segment.spectrum) + 1)] + np.float32(1e-20)
    flatness = np.exp(np.log(power).mean(axis=1)) / power.mean(axis=1)  # of white noise 0.56
    windows = segment.windows
    level = np.sqrt(np.einsum("ij,ij->i", windows, windows) / SPECTRUM) + 1e-12
    top = np.abs(windows).max(axis=1)
    noise = (flatness > 0.4) & (level > max(NOISE_LEVEL, 0.5 * level.max()))
    sharp = top > np.where(flatness > 0.3, NOISE_CREST, VOICE_CREST) * level
    return np.asarray(noise | (sharp & (top > 0.5 * np.abs(segment.samples).max(initial=0))))


def _snr(levels: Array, speech: BoolArray) -> float | None:
    """Return the ratio of speech to the sound in its pauses in dB; None if there are no pauses or the level is steady.

    levels : (T,) levels of frames in dB
    speech : (T,) mask of the frames that are speech
    """
    quiet, loud = level_range(levels)
    between = ~speech & (levels > DIGITAL_ZERO_DB)
    if loud - quiet < STEADY_DB or not between.any() or not speech.any():
        return None
    # the median is robust to loud sounds that are not speech
    noise = 10 ** (float(np.median(levels[between])) / 10)
    signal = _mean_power(levels[speech]) - noise
    return float(10 * np.log10(max(signal, 1e-12) / max(noise, 1e-12)))


def _mean_power(levels: Array) -> float:
    return float(np.mean(10 ** (levels / 10))) if len(levels) else 0.0


def _decibels(power: float) -> float:
    return max(ZERO_DB, float(10 * np.log10(max(power, 1e-30))))
