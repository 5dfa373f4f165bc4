"""Acoustic features of all utterances of a corpus, and simulation of noise, rooms and channels.

A recipe of `mvplda.voice.extractors` defines how frames are computed, so that a network trained on them becomes
an extractor with the same recipe. Simulations draw all random numbers from the generator that the caller passes.
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from scipy.signal import fftconvolve

from .._progress import Progress
from .._typing import Array, FloatArray, IntArray, Names
from ..backend import cores
from ..distributed.ordered import ordered_map
from ..exceptions import AudioError
from ..voice.attacks.rooms import room_response
from ..voice.audio.decode import FileSegment, read_audio
from ..voice.audio.speech_detection import SoundSegment
from ..voice.extractors.front_end import make_frames, prepare_samples
from ..voice.extractors.recipe import Recipe
from .frame_store import FeatureSet, FrameStore

__all__ = ["extract_features"]

Frames = NDArray[np.float32]
MIN_PARALLEL = 300
"""Fewest utterances that are processed in parallel; for fewer, starting worker processes costs more than it saves."""
PROGRESS_EVERY = 100
OCTAVE_DB = 6.0
"""Largest gain or loss of a simulated channel at an octave."""
FILTER_ORDER = 2
"""Order of the roll-off at each end of a channel's band; each order adds 6 dB per octave."""


class Extracted(NamedTuple):
    """Features of a corpus.

    features : frames of the usable utterances, mapped from a file
    rows : indices of these utterances in the input
    skipped : (id, reason) per unusable utterance
    """

    features: FeatureSet
    rows: IntArray
    skipped: tuple[tuple[str, str], ...]


def utterance_stamps(
    ids: Sequence[str] | Names, clips: Sequence[FileSegment], processing: object = ""
) -> list[str]:
    """Return a digest of each utterance's id, segment, size and time of its file, and processing, to detect changes."""
    status = {}
    for path in {clip.path for clip in clips}:
        try:
            entry = path.stat()
            status[path] = f"{entry.st_size} {entry.st_mtime_ns}"
        except OSError:
            # reading the file reports the error
            status[path] = "missing"
    stamps = []
    for name, clip in zip(ids, clips, strict=True):
        text = f"{processing} {name} {clip.start} {clip.length} {status[clip.path]}"
        stamps.append(hashlib.sha256(text.encode()).hexdigest()[:16])
    return stamps


def frames_of(samples: FloatArray, recipe: Recipe) -> Frames:
    """Return the (T, D) frames of samples, as an extractor with this recipe computes them."""
    recording = SoundSegment(np.asarray(samples, dtype=np.float32), recipe.rate)
    return make_frames(prepare_samples(recording, recipe), recipe)


def extract_features(
    ids: Sequence[str] | Names,
    clips: Sequence[FileSegment],
    recipe: Recipe,
    *,
    folder: Path | None = None,
    verbose: bool = False,
) -> Extracted:
    """Compute the frames of many utterances; the result lists unusable ones with the reason.

    The frames are written to a file and mapped into memory.

    Parameters
    ----------
    ids : id of each utterance
    clips : location of each utterance's samples
    recipe : definition of the features
    folder : folder of the frames; a later call with the same folder, recordings and recipe computes only missing
        frames. None: a temporary folder
    verbose : show progress on standard error

    Raises
    ------
    AudioError
        No utterance is usable.
    """
    with TemporaryDirectory(ignore_cleanup_errors=True) as temporary:
        stamps = utterance_stamps(ids, clips, recipe)
        store = FrameStore(folder or Path(temporary), stamps)
        n_stored = len(store.entries)
        missing = clips[n_stored:]
        workers = cores() if len(missing) >= MIN_PARALLEL else 1
        progress = Progress("features", len(clips))
        results = ordered_map(partial(_frames_or_reason, recipe), missing, workers=workers)
        for count in store.add(stamps[n_stored:], results):
            if verbose and count % PROGRESS_EVERY == 0:
                progress.step(count)

        skipped = tuple(
            (str(name), entry.reason)
            for name, entry in zip(ids, store.entries, strict=True)
            if entry.reason
        )
        if len(skipped) == len(clips):
            first = ", ".join(reason for _, reason in skipped[:1])
            raise AudioError(
                f"none of {len(clips)} utterance(s) can be used; the first failed with: {first}"
            )
        rows = np.flatnonzero([not entry.reason for entry in store.entries])
        return Extracted(store.features(), rows, skipped)


def _frames_or_reason(recipe: Recipe, clip: FileSegment) -> Frames | str:
    """Return the frames of a recording, or the reason why it is unusable."""
    try:
        return frames_of(read_audio(clip, recipe.rate), recipe)
    except AudioError as error:
        return str(error)


def with_noise(samples: Array, snr_db: float, pink: bool, rng: Generator) -> Array:
    """Add white or pink noise at a given signal-to-noise ratio over the whole utterance."""
    noise = rng.standard_normal(len(samples))

    if pink:
        size = _fast_size(len(samples))
        # the power of pink noise falls by 3 dB per octave; its mean is 0
        shape = np.maximum(np.arange(size // 2 + 1), 1.0) ** -0.5
        shape[0] = 0.0
        spectrum = np.fft.rfft(rng.standard_normal(size)) * shape
        noise = np.fft.irfft(spectrum, size)[: len(samples)]

    gain = np.sqrt(np.mean(samples**2) / (np.mean(noise**2) * 10 ** (snr_db / 10)))
    return samples + gain * noise


def in_room(samples: Array, t60_s: float, direct_db: float, rate: int, rng: Generator) -> Array:
    """Add the reverberation of a room; the result has as many samples as the input.

    The tail is noise that starts 2 ms after the direct sound and decays by 60 dB within `t60_s`.

    Parameters
    ----------
    samples : (n,) a recording
    t60_s : reverberation time in seconds
    direct_db : energy of the direct sound relative to that of the tail
    rate : samples per second
    """
    response = room_response(t60_s, direct_db, rate, rng)
    return fftconvolve(samples, response)[: len(samples)]


def over_channel(samples: Array, low_hz: float, high_hz: float, rate: int, rng: Generator) -> Array:
    """Simulate another microphone: random gains at octaves and a band-pass roll-off.

    Parameters
    ----------
    samples : (n,) a recording
    low_hz, high_hz : band of the channel
    rate : samples per second
    """
    # zero padding: a filter in the frequency domain is circular and would mix the end into the start
    size = _fast_size(len(samples) + rate // 20)
    hz = np.fft.rfftfreq(size, 1 / rate)

    # gains in dB are interpolated over the logarithm of the frequency
    octaves = np.arange(np.log2(62.5), np.log2(rate / 2) + 1)
    gains = rng.uniform(-OCTAVE_DB, OCTAVE_DB, size=len(octaves))
    curve = 10 ** (np.interp(np.log2(np.maximum(hz, 1.0)), octaves, gains) / 20)

    # Butterworth magnitudes of a high-pass and a low-pass filter
    roll_off = 1 / np.sqrt(1 + (low_hz / np.maximum(hz, 1e-3)) ** (2 * FILTER_ORDER))
    roll_off /= np.sqrt(1 + (hz / high_hz) ** (2 * FILTER_ORDER))
    spectrum = np.fft.rfft(samples, size) * curve * roll_off
    return np.fft.irfft(spectrum, size)[: len(samples)]


def _fast_size(length: int) -> int:
    """Return the smallest power of 2 that is at least `length` and at least 2."""
    return 1 << max(1, length - 1).bit_length()
