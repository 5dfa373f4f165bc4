"""Quality of recordings: level, clipping, noise, bandwidth, amount of speech."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

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
    return measure_segments([sound_from_array(samples, rate, rate)], rate, settings)


def measure_segments(
    parts: Iterable[FloatArray], rate: int, settings: QualitySettings | None = None
) -> Quality:
    """The quality of a recording that comes in parts."""
    meter = QualityMeter(rate, settings)
    for part in parts:
        meter.add(SoundSegment(part, rate))
    return meter.quality()


class QualityMeter:
    """Measures a recording part by part, and keeps nothing of it but its numbers."""

    def __init__(self, rate: int, settings: QualitySettings | None = None) -> None:
        self.rate = rate
        self.settings = settings or QualitySettings()
        self._parts: list[tuple[Any, ...]] = []
        self._digest = hashlib.sha256(f"{rate}".encode())

    def add(self, part: SoundSegment) -> SoundSegment:
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


def _broken(part: SoundSegment) -> BoolArray:
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
