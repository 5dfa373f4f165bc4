"""Frames of samples: filter banks, cepstra, normalisation over time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from ..._optional import need
from ..._typing import FloatArray
from ...exceptions import AudioError
from ..audio.decode import Sound
from ..audio.speech_detection import SoundSegment
from .recipe import Features, Recipe

Frames = NDArray[np.float32]

LENGTH_S = 0.025
"""Of a frame."""
LEAST_DEVIATION = 1e-5
LEAST_FRAMES = 3
"""Of a sound that becomes points."""


def make_frames(samples: FloatArray, recipe: Recipe) -> Frames:
    """Frames of samples whose full scale is 1, normalised over time; `graph` frames are made by the network."""
    settings = recipe.features
    scaled = np.asarray(samples, dtype=np.float32) * np.float32(recipe.samples.scale)
    if len(scaled) < round(LENGTH_S * recipe.rate):
        raise AudioError(
            f"the sound is too short for one frame: {len(scaled)} samples at {recipe.rate} a second"
        )
    frames = _kaldi(scaled, recipe.rate, settings)
    if settings.normalisation == "none":
        return frames
    wide = frames.astype(np.float64)
    wide -= wide.mean(axis=0)
    if settings.normalisation == "mean+variance":
        wide /= wide.std(axis=0, ddof=1 if len(wide) > 1 else 0) + LEAST_DEVIATION
    return np.asarray(wide, dtype=np.float32)


def _kaldi(samples: Frames, rate: int, settings: Features) -> Frames:
    """Filter banks, or cepstra with their regression over time."""
    library = need("kaldi_native_fbank")
    cepstra = settings.kind == "mfcc"
    options = library.MfccOptions() if cepstra else library.FbankOptions()
    options.frame_opts.samp_freq = rate
    options.frame_opts.dither = 0.0
    options.frame_opts.window_type = settings.window
    options.frame_opts.preemph_coeff = settings.preemphasis
    options.mel_opts.num_bins = settings.bins
    options.mel_opts.low_freq = settings.low_hz
    options.mel_opts.high_freq = settings.high_hz
    options.use_energy = cepstra
    if cepstra:
        options.num_ceps = settings.cepstra
    computer = (library.OnlineMfcc if cepstra else library.OnlineFbank)(options)
    # a list reaches the library faster than an array
    computer.accept_waveform(rate, samples.tolist())
    computer.input_finished()
    frames = np.stack([computer.get_frame(t) for t in range(computer.num_frames_ready)])
    return with_deltas(frames, settings.deltas) if cepstra else frames


def with_deltas(static: Frames, order: int) -> Frames:
    """Columns of the regression over time appended, and of the regression of that.

    The first is sum_k k x[t + k] / sum_k k^2 over k = -2 to 2; edges are repeated. The second applies
    that filter twice to the static columns, so that an edge is repeated once.
    """
    taps = np.arange(-2.0, 3.0)
    taps /= np.sum(taps**2)
    wide = static.astype(np.float64)
    columns = [wide]
    repeated = np.ones(1)
    for _ in range(order):
        repeated = np.convolve(repeated, taps)
        columns.append(ndimage.correlate1d(wide, repeated, axis=0, mode="nearest"))
    return np.concatenate(columns, axis=1).astype(np.float32)


def _unit(rows: Frames) -> Frames:
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.maximum(lengths, 1e-12))


def interval_means(frames: Frames, count: int) -> FloatArray:
    """(count, columns) means over equal stretches of time, of which parts of frames count as such.

    Of no more frames than stretches, values at the middles of the stretches are interpolated.
    """
    total = len(frames)
    values = frames.astype(np.float64)
    edges = np.linspace(0, total, count + 1)
    places = (edges[1:] + edges[:-1]) / 2 - 0.5
    if total > count:
        # a frame is constant over its time, so its integral is linear
        values = np.vstack([np.zeros(values.shape[1]), values.cumsum(axis=0)])
        places = edges
    numbers = np.arange(len(values))
    points = np.column_stack([np.interp(places, numbers, column) for column in values.T])
    if total > count:
        points = np.diff(points, axis=0) * count / total
    return points


def prepare_samples(part: SoundSegment, recipe: Recipe) -> Sound:
    """Samples as frames are made of them: cut to speech, at a level, with silence around them."""
    settings = recipe.samples
    samples = part.cut(settings.margin_s) if settings.cut else part.samples
    if len(samples) < settings.shortest_s * part.rate:
        raise AudioError(
            f"the sound is too short: {len(samples) / part.rate:.2f} s, {recipe.name} needs at least "
            f"{settings.shortest_s:g} s"
        )
    if settings.level == "peak":
        samples = samples * np.float32(settings.level_value / float(np.abs(samples).max()))
    return np.pad(samples, round(settings.pad_s * part.rate))
