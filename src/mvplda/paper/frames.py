"""Computation of the frames (acoustic features) of a corpus, and simulation of noise, rooms and channels.

A recipe of `mvplda.voice.extractors` describes the computation. A network that is trained on the frames becomes an
extractor with the same recipe.
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
"""Minimum number of utterances for worker processes; with fewer, starting them costs more time than they save."""
PROGRESS_EVERY = 100
OCTAVE_DB = 6.0
"""Largest gain or loss, in dB, of a simulated channel at an octave."""
FILTER_ORDER = 2
"""Order of the filters at both ends of a simulated channel's band; each order attenuates by 6 dB per octave."""


class Extracted(NamedTuple):
    """Result of `extract_features`: the frames of a corpus.

    features : frames of the usable utterances, mapped from a file
    rows : (n,) indices of the usable utterances in the list of all utterances
    skipped : (id, reason) for each unusable utterance
    """

    features: FeatureSet
    rows: IntArray
    skipped: tuple[tuple[str, str], ...]


def utterance_stamps(
    ids: Sequence[str] | Names, recordings: Sequence[FileSegment], processing: object = ""
) -> list[str]:
    """Return a digest per utterance, by which a later run detects that its recording or processing has changed.

    The digest covers id, position in the file, size and modification time of the file, and processing.

    Parameters
    ----------
    ids, recordings : (n,) id and recording of each utterance
    processing : description of the processing, which must have a unique text, such as a recipe
    """
    status = {}
    for path in {recording.path for recording in recordings}:
        try:
            entry = path.stat()
            status[path] = f"{entry.st_size} {entry.st_mtime_ns}"
        except OSError:
            # reading the file reports the error
            status[path] = "missing"
    stamps = []
    for name, recording in zip(ids, recordings, strict=True):
        position = f"{recording.start} {recording.length}"
        text = f"{processing} {name} {position} {status[recording.path]}"
        stamps.append(hashlib.sha256(text.encode()).hexdigest()[:16])
    return stamps


def frames_of(samples: FloatArray, recipe: Recipe) -> Frames:
    """Return the (T, D) frames of (n,) samples, as an extractor with the same recipe computes them."""
    recording = SoundSegment(np.asarray(samples, dtype=np.float32), recipe.rate)
    return make_frames(prepare_samples(recording, recipe), recipe)


def extract_features(
    ids: Sequence[str] | Names,
    recordings: Sequence[FileSegment],
    recipe: Recipe,
    *,
    folder: Path | None = None,
    verbose: bool = False,
) -> Extracted:
    """Compute the frames of many utterances; the result lists unusable utterances with the reason.

    The frames are written to a file and mapped into memory.

    Parameters
    ----------
    ids : (n,) id of each utterance
    recordings : (n,) location of each utterance's samples
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
        stamps = utterance_stamps(ids, recordings, recipe)
        store = FrameStore(folder or Path(temporary), stamps)
        n_stored = len(store.entries)
        missing = recordings[n_stored:]
        workers = cores() if len(missing) >= MIN_PARALLEL else 1
        progress = Progress("features", len(recordings))
        results = ordered_map(partial(_frames_or_reason, recipe), missing, workers=workers)
        for count in store.add(stamps[n_stored:], results):
            if verbose and count % PROGRESS_EVERY == 0:
                progress.step(count)

        skipped = tuple(
            (str(name), entry.reason)
            for name, entry in zip(ids, store.entries, strict=True)
            if entry.reason
        )
        if len(skipped) == len(recordings):
            first = ", ".join(reason for _, reason in skipped[:1])
            raise AudioError(
                f"none of {len(recordings)} utterance(s) can be used. The first one: {first}"
            )
        rows = np.flatnonzero([not entry.reason for entry in store.entries])
        return Extracted(store.features(), rows, skipped)


def _frames_or_reason(recipe: Recipe, recording: FileSegment) -> Frames | str:
    """Return the (T, D) frames of a recording, or the reason why it is unusable."""
    try:
        return frames_of(read_audio(recording, recipe.rate), recipe)
    except AudioError as error:
        return str(error)


def with_noise(samples: Array, snr_db: float, pink: bool, rng: Generator) -> Array:
    """Add noise to a recording.

    Parameters
    ----------
    samples : (n,) samples
    snr_db : power of the recording relative to that of the noise, in dB, over the whole recording
    pink : whether the noise is pink (its power falls by 3 dB per octave) instead of white
    rng : generator of the noise
    """
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
    """Add the reverberation of a simulated room to a recording; the result has as many samples.

    The reverberation is noise that starts 2 ms after the direct sound.

    Parameters
    ----------
    samples : (n,) samples
    t60_s : seconds in which the reverberation falls by 60 dB
    direct_db : energy of the direct sound relative to that of the reverberation, in dB
    rate : samples per second
    rng : generator of the reverberation
    """
    response = room_response(t60_s, direct_db, rate, rng)
    return fftconvolve(samples, response)[: len(samples)]


def over_channel(samples: Array, low_hz: float, high_hz: float, rate: int, rng: Generator) -> Array:
    """Simulate another microphone by random gains at octaves and a limited band.

    Parameters
    ----------
    samples : (n,) samples
    low_hz, high_hz : frequencies at which the power is halved, below and above the band
    rate : samples per second
    rng : generator of the gains
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
