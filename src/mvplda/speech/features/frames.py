"""From samples to frames: cepstra or mel energies, deltas, normalisation, neighbours side by side."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..._optional import need
from ...exceptions import AudioError, DataError, ParameterError
from .settings import ActivitySettings, FeatureSettings

Frames = NDArray[np.float32]

FULL_SCALE = 32768.0
"""Kaldi's features are of 16-bit numbers: at that scale its floors lie far below any speech."""

SPEECH_RMS = 0.1
CONSTANT = 1e-4
"""Columns with a smaller standard deviation are constant, but for rounding."""


def features(samples: NDArray[Any], settings: FeatureSettings | None = None) -> Frames:
    """Frames of an utterance.

    Parameters
    ----------
    samples : (n,) of one channel, at the rate of the settings
    settings : how frames are made; the paper's 39 by default

    Returns
    -------
    (T, D) float32

    Raises
    ------
    AudioError
        There are too few samples, or some are not finite, or all are equal.

    Examples
    --------
    >>> features(np.sin(np.arange(16000) * 0.1)).shape
    (98, 39)
    """
    return features_and_note(samples, settings or FeatureSettings())[0]


def features_and_note(samples: NDArray[Any], settings: FeatureSettings) -> tuple[Frames, str | None]:
    """Frames, and a word on what is odd about them."""
    samples = np.asarray(samples)
    if samples.ndim != 1:
        raise DataError(f"samples of one channel have one axis; got shape {samples.shape}")
    if len(samples) < settings.shortest:
        raise AudioError(
            f"the sound is too short: {1000 * len(samples) / settings.rate:.0f} ms, at least "
            f"{1000 * settings.shortest / settings.rate:.0f} ms are needed"
        )
    samples = levelled(samples, settings)
    static = static_features(samples, settings)
    frames = with_deltas(static, settings.deltas, settings.delta_window)
    note = None
    if settings.activity is not None:
        speech = speech_frames(log_energy(samples, settings), settings.activity)
        if speech.any():
            frames = frames[speech]
        else:
            note = "no frame passed for speech: all were kept"
    return normalised(frames, settings), note


def levelled(samples: NDArray[Any], settings: FeatureSettings) -> NDArray[np.float32]:
    """Samples without their mean, at Kaldi's scale and at one level for all utterances."""
    wide = np.asarray(samples, dtype=np.float64)
    if not np.isfinite(wide).all():
        raise AudioError(f"{(~np.isfinite(wide)).sum()} of {len(wide)} samples are not finite")
    centred = wide - wide.mean()
    peak = float(np.abs(centred).max())
    if peak <= 1e-7 * float(np.abs(wide).max()):
        raise AudioError("the sound is silent: all samples are equal")
    scale = 1.0
    if settings.level == "peak":
        scale = 1.0 / peak
    elif settings.level == "rms":
        scale = SPEECH_RMS / float(np.sqrt(np.mean(centred**2)))
    return np.asarray(centred * (scale * FULL_SCALE), dtype=np.float32)


def static_features(samples: NDArray[np.float32], settings: FeatureSettings) -> Frames:
    """Cepstra or log mel energies of samples at the 16-bit scale."""
    knf = need("kaldi_native_fbank")
    # The floats of a list reach the library faster than those of an array.
    computer = (knf.OnlineMfcc if settings.kind == "mfcc" else knf.OnlineFbank)(_options(settings))
    computer.accept_waveform(settings.rate, samples.tolist())
    computer.input_finished()
    return np.stack([computer.get_frame(t) for t in range(computer.num_frames_ready)])


@lru_cache(maxsize=16)
def _options(settings: FeatureSettings) -> Any:
    knf = need("kaldi_native_fbank")
    options = knf.MfccOptions() if settings.kind == "mfcc" else knf.FbankOptions()
    options.frame_opts.samp_freq = settings.rate
    options.frame_opts.dither = 0.0
    options.frame_opts.frame_length_ms = settings.frame_length_ms
    options.frame_opts.frame_shift_ms = settings.frame_shift_ms
    options.frame_opts.preemph_coeff = settings.preemphasis
    options.mel_opts.num_bins = settings.bins
    options.mel_opts.low_freq = settings.low_hz
    options.mel_opts.high_freq = settings.top_hz
    if settings.kind == "mfcc":
        options.num_ceps = settings.cepstra
        options.use_energy = settings.energy
        options.cepstral_lifter = settings.lifter
    else:
        options.use_energy = False
    return options


def with_deltas(static: NDArray[Any], order: int = 2, window: int = 2) -> Frames:
    """Columns of the regression over time appended, and of the regression of that.

    The first is sum_k k x[t + k] / sum_k k^2 over k = -window to window. The second is the
    filter of the first with itself, on the static columns, which differs from the regression
    of the first near the ends only: there the edge is repeated, and it is repeated once.
    """
    taps = np.arange(-window, window + 1, dtype=np.float64)
    taps /= np.sum(taps**2)
    wide = np.asarray(static, dtype=np.float64)
    columns, taps_now = [wide], np.ones(1)
    for _ in range(order):
        taps_now = np.convolve(taps_now, taps)
        reach = len(taps_now) // 2
        padded = np.pad(wide, ((reach, reach), (0, 0)), mode="edge")
        columns.append(sum(tap * padded[k : k + len(wide)] for k, tap in enumerate(taps_now) if tap))  # type: ignore[arg-type]
    return np.concatenate(columns, axis=1).astype(np.float32)


def normalised(frames: NDArray[Any], settings: FeatureSettings) -> Frames:
    """Mean 0, and variance 1 where asked, of every column over the utterance; constant columns become 0."""
    if settings.normalisation == "none":
        return np.asarray(frames, dtype=np.float32)
    wide = np.asarray(frames, dtype=np.float64)
    wide = wide - wide.mean(axis=0)
    if settings.normalisation == "mean+variance":
        deviation = wide.std(axis=0)
        wide = wide / np.where(deviation < CONSTANT, np.inf, deviation)
    return np.asarray(wide, dtype=np.float32)


def stack(frames: NDArray[Any], left: int = 5, right: int = 5) -> NDArray[Any]:
    """(T, (left + 1 + right) * D): every frame between its neighbours, the edges repeated.

    Examples
    --------
    >>> stack(np.array([[1.0], [2.0], [3.0]]), 1, 1)
    array([[1., 1., 2.],
           [1., 2., 3.],
           [2., 3., 3.]])
    """
    index = stacked_index(np.array([0, len(frames)]), left, right)
    return np.asarray(frames[index].reshape(len(frames), (left + 1 + right) * frames.shape[1]))


def stacked_index(
    offsets: NDArray[np.int64], left: int = 5, right: int = 5, rows: NDArray[Any] | None = None
) -> NDArray[np.int64]:
    """Rows of every frame's neighbours, within its own utterance.

    ``frames[stacked_index(offsets)]`` has the shape (n, left + 1 + right, D); a trainer
    gathers a batch of it where the frames are, and never holds the wide ones.

    Parameters
    ----------
    offsets : (n + 1,) of a `FeatureSet`
    left, right : neighbours on each side; an edge is repeated
    rows : only of these frames; of all by default
    """
    if left < 0 or right < 0:
        raise ParameterError(f"neighbours are counted from 0; got left={left} and right={right}")
    rows = np.arange(int(offsets[-1])) if rows is None else np.asarray(rows, dtype=np.int64)
    first, last = frame_bounds(offsets, rows)
    index: NDArray[np.int64] = rows[:, None] + np.arange(-left, right + 1)
    return np.clip(index, first[:, None], last[:, None], out=index)


def frame_bounds(
    offsets: NDArray[np.int64], rows: NDArray[Any] | None = None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """First and last row of the utterance that every frame is of: ``clip(row + k, first, last)`` is a neighbour."""
    offsets = np.asarray(offsets, dtype=np.int64)
    if rows is None:
        lengths = np.diff(offsets)
        return np.repeat(offsets[:-1], lengths), np.repeat(offsets[1:] - 1, lengths)
    utterance = np.searchsorted(offsets, np.asarray(rows), side="right") - 1
    return offsets[utterance], offsets[utterance + 1] - 1


FLOOR = float(np.finfo(np.float32).eps)


def log_energy(samples: NDArray[np.float32], settings: FeatureSettings) -> NDArray[np.float64]:
    """(T,) log of the sum of squares of every frame, its mean taken away."""
    if len(samples) < settings.frame_length:
        return np.empty(0)
    windows = np.lib.stride_tricks.sliding_window_view(samples, settings.frame_length)[:: settings.frame_shift]
    centred = windows - windows.mean(axis=1, keepdims=True, dtype=np.float64)
    return np.asarray(np.log(np.maximum(np.einsum("ij,ij->i", centred, centred), FLOOR)))


def speech_frames(energies: NDArray[np.float64], settings: ActivitySettings | None = None) -> NDArray[np.bool_]:
    """Which of an utterance's frames are speech, by their log energies.

    Nothing is speech where all is about equally loud and near the floor: the result may be
    all False, and what then is left to the caller (`mvplda.speech.features.features` keeps all frames).

    Examples
    --------
    >>> speech_frames(np.array([2.0, 2, 20, 20, 20, 2, 2]), ActivitySettings(context=1)).astype(int)
    array([0, 0, 1, 1, 1, 0, 0])
    """
    settings = settings or ActivitySettings()
    if not len(energies):
        return np.zeros(0, dtype=np.bool_)
    loud = energies > settings.threshold + settings.mean_scale * energies.mean()
    sums = np.concatenate([[0], np.cumsum(loud)])
    here = np.arange(len(loud))
    first = np.maximum(here - settings.context, 0)
    last = np.minimum(here + settings.context + 1, len(loud))
    return np.asarray(sums[last] - sums[first] >= settings.proportion * (last - first))
