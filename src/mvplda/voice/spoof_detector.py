"""Detector of replayed and resynthesised voices (spoofs): a small network, which is not used by default.

Most attacks pass the detector, so an acceptance does not prove that a person has spoken. docs/attacks.md has its error
rates.

The detector compares the score of the test with the scores of the enrolments, which are known to
be recordings of a person: a microphone, room or telephone shifts all of them by similar amounts.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import ArrayLike, NDArray
from scipy.fft import dct, rfft

from .._typing import PathLike
from ..exceptions import DataError, FileFormatError
from .audio.decode import Source, read_segments
from .extractors.onnx_network import open_session

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

Vector = NDArray[np.float32]

RATE = 16000
WINDOW, HOP = 512, 160
"""Number of samples per window and between windows, 32 and 10 ms."""
BINS = 240
"""Number of frequencies, from 31 to 7500 Hz."""
BANDS = 40
CEPSTRA = 20
FLOOR_DB = 60.0
"""Maximum distance in dB of a power from the loudest ones; lower powers are raised to this limit."""
SPEECH_DB = 35.0
"""Maximum difference in dB between the level of a frame of speech and the loudest frames."""
FRAMES_BEFORE, FRAMES_AFTER = 5, 15
"""Number of frames that are added before and after speech; the reverberation of rooms follows it."""
LEAST_FRAMES = 40
"""Minimum number of frames; a shorter recording is repeated until it has as many."""
LONGEST_S = 10.0
"""Seconds from the start of a recording that are used."""
LEVEL_SCALE = 3.0
MAX_LEVEL = 2.5
MAX_LLR = 50.0
SPOOF_PRIOR = 0.004
"""Assumed share of spoofs among the trials that should be rejected. At the default operating point, at most 1 % of the
people of each held-out corpus are then rejected; a larger share would reject more, because the detector is weak."""
CALIBRATION = "calibration"
"""Name of the calibration in the metadata of the network's file."""


def spoof_statistics(samples: NDArray[np.floating]) -> Vector:
    """Return the statistics of a recording that are the input of the network.

    They are statistics over time of the channels of `spoof_channels`: variations of cepstra, of
    levels in 40 bands and, for each phase channel, means per band over the loud and over the
    quiet points of the spectrogram.

    samples : (n,) samples of one channel at 16 kHz

    Returns
    -------
    vector of all statistics, of the same length for every recording
    """
    channels = spoof_channels(samples)
    levels = channels[0]
    is_loud = (levels > np.median(levels)).astype(np.float32)
    by_band = channels.reshape(len(channels), -1, BANDS, BINS // BANDS)
    bands = by_band.mean(axis=3)
    cepstra = dct(bands[0], axis=1, norm="ortho")[:, :CEPSTRA]
    changes = np.diff(cepstra, axis=0)
    columns = [cepstra.std(axis=0), changes.std(axis=0), np.abs(changes).mean(axis=0)]
    loud = is_loud.reshape(by_band.shape[1:])
    n_loud = loud.sum(axis=(0, 2)) + 1e-3
    n_other = (1 - loud).sum(axis=(0, 2)) + 1e-3
    for cells, band in zip(by_band[1:], bands[1:], strict=True):
        columns += [
            (cells * loud).sum(axis=(0, 2)) / n_loud,
            (cells * (1 - loud)).sum(axis=(0, 2)) / n_other,
            band.std(axis=0),
            (cells**2 * loud).sum(axis=(0, 2)) / n_loud,
        ]
    columns += [
        bands[0].std(axis=0),
        np.abs(np.diff(bands[0], axis=0)).mean(axis=0),
        by_band[0].std(axis=2).mean(axis=0),
        (np.maximum(bands[0], 0) ** 3).mean(axis=0),
        *np.percentile(bands[0], [5, 95], axis=0),
    ]
    return np.concatenate(columns).astype(np.float32)


def spoof_channels(samples: NDArray[np.floating]) -> NDArray[np.float32]:
    """Return the (4, frames, `BINS`) channels of a recording: one of levels, and three of the steadiness of phases.

    The mean over time is subtracted from levels, because it depends on the microphone. The phase channels are the
    cosines of second differences of the phase over time, over frequency, and over both.

    samples : (n,) samples of one channel at 16 kHz
    """
    sound = np.asarray(samples, np.float32)[: round(LONGEST_S * RATE)]
    padded = np.pad(sound, (WINDOW // 2, WINDOW // 2 + HOP))
    windows = sliding_window_view(padded, WINDOW)[::HOP]
    spectra = rfft(windows * np.hanning(WINDOW).astype(np.float32), axis=1)[:, : BINS + 2]
    spectra = spectra[_speech_frames(spectra)]
    if len(spectra) < LEAST_FRAMES + 2:
        repeats = -(-(LEAST_FRAMES + 2) // len(spectra))
        spectra = np.concatenate([spectra] * repeats)[: LEAST_FRAMES + 2]
    power = spectra.real**2 + spectra.imag**2
    floor = np.float32(np.percentile(power, 99) * 10 ** (-FLOOR_DB / 10) + 1e-20)
    levels = np.log(power[1:-1, 1:-1] + floor)
    levels = np.clip((levels - levels.mean(axis=0)) / LEVEL_SCALE, -MAX_LEVEL, MAX_LEVEL)
    unit = spectra / np.sqrt(power + 1e-20)
    steps = unit[1:] * unit[:-1].conj()
    slopes = unit[:, 1:] * unit[:, :-1].conj()
    over_time = (steps[1:] * steps[:-1].conj())[:, 1:-1]
    over_frequency = (slopes[:, 1:] * slopes[:, :-1].conj())[1:-1]
    over_both = (slopes[1:] * slopes[:-1].conj())[1:, 1:]
    channels = (levels, over_time.real, over_frequency.real, over_both.real)
    return np.stack(channels).astype(np.float32)


def _speech_frames(spectra: NDArray[np.complexfloating]) -> slice:
    """Return the frames from the first to the last loud one, with a margin, as a slice.

    spectra : (frames, frequencies) complex spectra
    """
    levels = 10 * np.log10(np.sum(spectra.real**2 + spectra.imag**2, axis=1) + 1e-20)
    loud = np.flatnonzero(levels > np.percentile(levels, 95) - SPEECH_DB)
    return slice(max(0, int(loud[0]) - FRAMES_BEFORE), int(loud[-1]) + 1 + FRAMES_AFTER)


@dataclass(frozen=True)
class SpoofCalibration:
    """Linear map from raw scores of a test and of its enrolments to the LLR of a person against a spoof.

    test : weight of the test's raw score
    enrolment : weight of the mean raw score of the enrolments
    offset : LLR if both scores are 0
    """

    test: float
    enrolment: float
    offset: float

    def llr(self, test: ArrayLike, enrolment: ArrayLike) -> NDArray[np.float64]:
        """Return the LLR of a person against a spoof, limited to +-`MAX_LLR`.

        test, enrolment : raw score of the test, and mean raw score of its enrolments; numbers or arrays of one shape
        """
        llrs = self.test * np.asarray(test) + self.enrolment * np.asarray(enrolment) + self.offset
        return np.clip(llrs, -MAX_LLR, MAX_LLR)


class SpoofDetector:
    """Detector of spoofs: a network that returns a raw score per recording, with its calibration to LLRs.

    Parameters
    ----------
    path : ONNX file of the network, with the calibration in its metadata
    threads : number of threads of onnxruntime
    """

    def __init__(self, path: PathLike, threads: int = 1) -> None:
        self._session: InferenceSession = open_session(Path(path), threads)
        text = self._session.get_modelmeta().custom_metadata_map.get(CALIBRATION)
        if text is None:
            raise FileFormatError(
                f"{path} has no calibration: expected a file of python -m tools.spoof_detector"
            )
        self.calibration = SpoofCalibration(**json.loads(text))
        self._input = self._session.get_inputs()[0].name

    def raw_score(self, samples: NDArray[np.floating]) -> float:
        """Return the raw score of a recording: higher for a person than for a spoof, not calibrated.

        samples : (n,) samples of one channel at 16 kHz, of which the first 10 s are used
        """
        if not np.any(samples):
            raise DataError("expected a recording; got silence: check the microphone")
        (score,) = self._session.run(None, {self._input: spoof_statistics(samples)[None]})
        return float(np.ravel(score)[0])

    def raw_score_of(self, source: Source, rate: int | None = None) -> float:
        """Return the raw score of a recording.

        source : path of a sound file, `FileSegment`, or array of samples with full scale 1
        rate : samples per second of an array
        """
        return self.raw_score(np.concatenate(read_segments(source, RATE, LONGEST_S, rate)))

    def llr(self, test: float, enrolments: Sequence[float]) -> float:
        """Return the LLR of a person against a spoof.

        Parameters
        ----------
        test : raw score of the test
        enrolments : raw scores of the profile's recordings, at least one
        """
        if not len(enrolments):
            raise DataError(
                "the profile has no scores of the detector of spoofs, because it was enrolled without it: enrol the "
                "person again from recordings"
            )
        return float(self.calibration.llr(test, float(np.mean(enrolments))))


@lru_cache(maxsize=1)
def load_spoof_detector() -> SpoofDetector:
    """Load the detector of spoofs that is part of the package."""
    with resources.as_file(resources.files("mvplda.voice") / "defaults" / FILE) as path:
        return SpoofDetector(path)


FILE = "spoof_detector.onnx"
