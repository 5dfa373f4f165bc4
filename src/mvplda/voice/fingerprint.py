"""Fingerprints of recordings, by which copies of a recording are recognised even if they were changed.

A fingerprint consists of the signs of differences of energy between neighbouring frequency bands and times.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from scipy.fft import irfft, next_fast_len, rfft

from ..exceptions import DataError
from .audio.decode import Source, read_segments

Codes = NDArray[np.int8]
Spectrogram = NDArray[np.float32]

RATE = 16000
WINDOW = 1024
"""Number of samples per window, 64 ms: long enough to resolve the harmonics of most voices."""
HOP = 256
"""Number of samples between the frames of a fingerprint."""
FINE_HOP = 64
"""Number of samples between the windows of a test; for every speed and offset, frames are chosen among them."""
LOWEST_HZ, HIGHEST_HZ, BAND_HZ = 280.0, 3360.0, 40.0
"""Lowest and highest frequency and distance of the bands in Hz, all within the band of a telephone."""
FLOOR_DB = 45.0
"""Maximum distance in dB of a level from the loudest ones; lower levels are raised to this limit, because noise and
codecs change them."""
LAG = 2
"""Number of frames between the times whose energies are compared."""
SMALLEST_DB = 1.5
"""Minimum difference in dB for the code 1 or -1; smaller differences have the code 0."""
SPEEDS = (0.98, 0.985, 0.99, 0.995, 1.0, 1.005, 1.01, 1.015, 1.02)
"""Speeds at which a test is compared, because a copy may be played faster or slower."""
BINS = math.ceil(HIGHEST_HZ / min(SPEEDS) * WINDOW / RATE) + 1
"""Number of frequencies of a spectrum, up to the highest band at any speed."""
OFFSETS = (0, HOP // 2)
"""Offsets in samples at which a test is compared, so that its frames are at most a quarter of `HOP` from a copy's."""
LEAST_OVERLAP = 0.6
"""Minimum share of the shorter fingerprint that must overlap with the other."""
LEAST_FRAMES = 12
"""Minimum number of frames of speech in fingerprints that are compared."""
LONGEST_S = 30.0
"""Maximum duration in seconds of a fingerprint, counted from the start of a recording."""
SHAPE_BYTES = 2
CHUNK = 32
"""Number of fingerprints that are compared at once."""


@dataclass(frozen=True, eq=False)
class Fingerprint:
    """Fingerprint of a recording, about 1 kB per second. Sound cannot be restored from it.

    codes : (frames, bands) signs -1, 0 or 1 of the energy differences between neighbouring bands and frames
    """

    codes: Codes

    def to_bytes(self) -> bytes:
        """Return the compressed fingerprint as bytes for storage; `from_bytes` restores it."""
        bands: bytes = int(self.codes.shape[1]).to_bytes(SHAPE_BYTES, "little")
        return bands + zlib.compress(self.codes.tobytes(), 9)

    @classmethod
    def from_bytes(cls, data: bytes) -> Fingerprint:
        """Restore a fingerprint from the bytes of `to_bytes`; raise `DataError` for other bytes."""
        try:
            bands = int.from_bytes(data[:SHAPE_BYTES], "little")
            codes = np.frombuffer(zlib.decompress(data[SHAPE_BYTES:]), np.int8)
            return cls(codes.reshape(-1, bands))
        except (ValueError, zlib.error) as error:
            raise DataError(
                f"expected the bytes of a fingerprint; got {len(data)} bytes of something else: delete them, and enrol "
                "the recording again"
            ) from error

    @property
    def frames(self) -> int:
        """Number of frames with sound, that is, with at least one code other than 0."""
        return int(self.codes.any(axis=1).sum())


class CopyTest:
    """Test whether a recording is a copy, changed or not, of earlier recordings.

    Earlier recordings are given by their fingerprints. The recording is compared with them at
    several speeds, because a copy may be played faster or slower.

    Parameters
    ----------
    samples : (n,) samples of one channel at 16 kHz

    Attributes
    ----------
    fingerprint : fingerprint of the recording
    """

    def __init__(self, samples: NDArray[np.floating]) -> None:
        spectrogram = power_spectrogram(samples[: round(LONGEST_S * RATE)])
        versions = [(speed, offset) for speed in SPEEDS for offset in OFFSETS]
        variants = [energy_codes(spectrogram, speed, offset) for speed, offset in versions]
        self.fingerprint = Fingerprint(variants[versions.index((1.0, 0))])
        self._lengths = np.array([len(codes) for codes in variants])
        longest = int(self._lengths.max())
        self._variants = np.stack(
            [np.pad(codes, ((0, longest - len(codes)), (0, 0))) for codes in variants]
        )
        self._spectra: dict[
            tuple[int, int | None], tuple[NDArray[np.complex64], NDArray[np.complex64]]
        ] = {}

    @classmethod
    def read(cls, source: Source, rate: int | None = None) -> CopyTest:
        """Decode a recording and return the test of it.

        Parameters
        ----------
        source : path of a sound file, `FileSegment`, or array of samples with full scale 1
        rate : samples per second of an array
        """
        segments = read_segments(source, RATE, LONGEST_S, rate)
        return cls(np.concatenate(segments))

    def is_copy(self, fingerprints: Sequence[Fingerprint]) -> bool:
        """Return whether the recording is a copy, changed or not, of any of the given recordings.

        fingerprints : fingerprints of earlier recordings
        """
        return bool(self.are_copies(fingerprints).any())

    def are_copies(self, fingerprints: Sequence[Fingerprint]) -> NDArray[np.bool_]:
        """Return a mask (n,) of the earlier recordings of which this one is a copy, changed or not.

        fingerprints : fingerprints of n earlier recordings; those with fewer than `LEAST_FRAMES`
            frames are not compared, and the mask is False
        """
        frames = np.array([min(self.fingerprint.frames, other.frames) for other in fingerprints])
        is_copy = np.zeros(len(fingerprints), bool)
        comparable = np.flatnonzero(frames >= LEAST_FRAMES)
        others = [fingerprints[int(number)] for number in comparable]
        for bands, threshold in THRESHOLDS:
            limits = threshold.of(frames[comparable])
            is_copy[comparable] |= self.similarities(others, bands) >= limits
        return is_copy

    def similarities(
        self, fingerprints: Sequence[Fingerprint], bands: int | None = None
    ) -> NDArray[np.float32]:
        """Return the largest correlation of the recording with each of n fingerprints, (n,).

        The maximum is taken over all speeds, offsets of the first frame and alignments in time.

        Parameters
        ----------
        fingerprints : n fingerprints
        bands : number of bands to compare, from the lowest on; None: all bands
        """
        largest = np.zeros(len(fingerprints), np.float32)
        # fingerprints of similar length together, because they are padded to the longest
        order = np.argsort([len(other.codes) for other in fingerprints], kind="stable")
        for start in range(0, len(order), CHUNK):
            chunk = order[start : start + CHUNK]
            largest[chunk] = self._similarities([fingerprints[i].codes for i in chunk], bands)
        return largest

    def _similarities(self, others: Sequence[Codes], most: int | None) -> NDArray[np.float32]:
        """Return what `similarities` returns, for at most `CHUNK` fingerprints at once.

        others : codes of the fingerprints
        most : number of bands to compare, from the lowest on; None: all bands
        """
        variants = self._variants[..., :most]
        _, length, bands = variants.shape
        for codes in others:
            if codes.shape[1] != self._variants.shape[2]:
                raise DataError(
                    f"expected fingerprints of {self._variants.shape[2]} bands; got one of {codes.shape[1]}, made by "
                    "another version of mvplda: delete it, and enrol the recording again"
                )
        longest = max(len(codes) for codes in others)
        size = next_fast_len(longest + length, real=True)
        test_spectra, test_energy_spectra = self._spectra_of(size, most)
        codes = np.zeros((size, bands, len(others)), np.float32)
        present = np.zeros((len(others), size), np.float32)
        for column, other in enumerate(others):
            codes[: len(other), :, column] = other[:, :most]
            present[column, : len(other)] = 1.0
        energies = np.square(codes).sum(axis=1).T

        # correlations over time by products of spectra: (variants, fingerprints, alignments)
        products = test_spectra @ rfft(codes, axis=0).conj()
        correlations = irfft(products.transpose(1, 2, 0), size)
        of_tests = irfft(test_energy_spectra[:, None] * rfft(present).conj(), size)
        is_test = rfft((np.arange(size) < self._lengths[:, None]).astype(np.float32))
        of_others = irfft(is_test[:, None] * rfft(energies).conj(), size)

        totals = np.square(variants, dtype=np.float32).sum(axis=(1, 2))
        least = LEAST_OVERLAP * np.minimum(totals[:, None], energies.sum(axis=1))[..., None]
        # energies are whole numbers, up to rounding in the transforms
        enough = least - 0.1
        is_overlap = (of_tests >= enough) & (of_others >= enough) & (least > 0)
        scale = np.sqrt(np.maximum(of_tests, 1.0) * np.maximum(of_others, 1.0))
        return np.asarray(
            np.where(is_overlap, correlations / scale, 0.0).max(axis=(0, 2)), np.float32
        )

    def _spectra_of(
        self, size: int, most: int | None
    ) -> tuple[NDArray[np.complex64], NDArray[np.complex64]]:
        """Return the Fourier transforms over time of the recording at all speeds and offsets (variants).

        The results for one `size` are cached; a call with another `size` discards them.

        Parameters
        ----------
        size : number of frames to which codes are padded
        most : number of bands, from the lowest on; None: all bands

        Returns
        -------
        transforms of the codes, (frequencies, variants, bands), and of their squares summed over bands,
        (variants, frequencies)
        """
        if (size, most) not in self._spectra:
            variants = self._variants[..., :most].astype(np.float32)
            spectra = np.ascontiguousarray(rfft(variants, size, axis=1).transpose(1, 0, 2))
            energy_spectra = rfft(np.square(variants).sum(axis=2), size)
            # transforms of another size are not needed any more
            self._spectra = {key: value for key, value in self._spectra.items() if key[0] == size}
            self._spectra[size, most] = (spectra, energy_spectra)
        return self._spectra[size, most]


@dataclass(frozen=True)
class CopyThreshold:
    """Correlation from which a recording counts as a copy; measured in results/copies.

    The threshold for n frames with sound is long + margin / sqrt(n), higher for short recordings.

    long : threshold for very long recordings
    margin : increase of the threshold for a recording of one frame
    """

    long: float
    margin: float

    def of(self, frames: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the threshold for each number of frames with sound, in the shape of `frames`."""
        return self.long + self.margin / np.sqrt(frames)


LOW_BANDS = 33
"""Number of bands up to 1600 Hz; codecs of mobile telephones replace the harmonics above."""

THRESHOLDS: tuple[tuple[int | None, CopyThreshold], ...] = (
    (None, CopyThreshold(0.21, 2.2)),
    (LOW_BANDS, CopyThreshold(0.25, 2.6)),
)
"""(number of bands to compare, from the lowest on, or None for all; threshold). One passed threshold shows a copy."""


def power_spectrogram(samples: NDArray[np.floating]) -> Spectrogram:
    """Return the (windows, `BINS`) power spectra of windows that start every `FINE_HOP` samples.

    samples : (n,) samples at 16 kHz
    """
    padded = np.pad(np.asarray(samples, np.float32), WINDOW // 2)
    windows = sliding_window_view(padded, WINDOW)[::FINE_HOP]
    spectra = rfft(windows * np.hanning(WINDOW).astype(np.float32), axis=1)[:, :BINS]
    return np.asarray(spectra.real**2 + spectra.imag**2, np.float32)


def energy_codes(spectrogram: Spectrogram, speed: float = 1.0, offset: int = 0) -> Codes:
    """Return the (frames, bands) codes of a fingerprint: -1, 0 or 1 for differences between neighbouring energies.

    A code compares the difference of two neighbouring bands with the same difference `LAG` frames
    earlier.

    Parameters
    ----------
    spectrogram : (windows, `BINS`) power spectra of `power_spectrogram`
    speed : relative speed at which the recording is played before its codes are computed
    offset : first sample of the first frame
    """
    step = HOP * speed / FINE_HOP
    first = offset / FINE_HOP
    positions = np.arange(first, len(spectrogram) - 0.5, step)
    frames = np.minimum(np.rint(positions).astype(np.int64), len(spectrogram) - 1)
    energies = spectrogram[frames] @ band_weights(speed)
    levels = 10 * np.log10(energies + np.float32(1e-20))
    levels = np.maximum(levels - np.percentile(levels, 99), -FLOOR_DB)
    slopes = np.diff(levels, axis=1)
    changes = slopes[LAG:] - slopes[:-LAG]
    codes: Codes = np.where(np.abs(changes) > SMALLEST_DB, np.sign(changes), 0).astype(np.int8)
    return codes


@lru_cache(maxsize=len(SPEEDS))
def band_weights(speed: float) -> NDArray[np.float32]:
    """Return the (frequencies, bands) weight of each frequency of a spectrum in each band.

    The weights of a band form a triangle. Bands are moved so that their energies are those of the
    recording played at the relative speed `speed`.
    """
    # a frequency of the recording played faster is lower in the recording itself
    edges = np.arange(LOWEST_HZ, HIGHEST_HZ, BAND_HZ) / speed * WINDOW / RATE
    low, centre, high = edges[:-2], edges[1:-1], edges[2:]
    frequency = np.arange(BINS)[:, None]
    rising = (frequency - low) / (centre - low)
    falling = (high - frequency) / (high - centre)
    return np.maximum(0.0, np.minimum(rising, falling)).astype(np.float32)
