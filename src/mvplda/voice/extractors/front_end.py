"""Preparation of samples and computation of frames: filter banks, cepstra, normalisation over time."""

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

FRAME_LENGTH_S = 0.025
MIN_DEVIATION = 1e-5
MIN_POINT_FRAMES = 3
"""Least number of frames of a recording that is represented by points."""


def make_frames(samples: FloatArray, recipe: Recipe) -> Frames:
    """Return the (T, D) frames of samples (full scale 1), normalised over time.

    `OnnxNetwork.frames` computes frames of the kind "graph".
    """
    settings = recipe.features
    scaled = np.asarray(samples, dtype=np.float32) * np.float32(recipe.samples.scale)
    if len(scaled) < round(FRAME_LENGTH_S * recipe.rate):
        raise AudioError(
            f"the sound is too short for one frame: {len(scaled)} samples at {recipe.rate} Hz"
        )
    frames = _kaldi(scaled, recipe.rate, settings)
    if settings.normalisation == "none":
        return frames
    # in double precision: means of long recordings lose digits in single precision
    normalised = frames.astype(np.float64)
    normalised -= normalised.mean(axis=0)
    if settings.normalisation == "mean+variance":
        is_sample = len(normalised) > 1
        normalised /= normalised.std(axis=0, ddof=int(is_sample)) + MIN_DEVIATION
    return np.asarray(normalised, dtype=np.float32)


def _kaldi(samples: Frames, rate: int, settings: Features) -> Frames:
    """Return Kaldi's filter banks, or cepstra with their regression over time."""
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
    """Append the regression of the columns over time, up to an order.

    The first order is sum_k k x[t + k] / sum_k k^2 over k = -2 to 2, with edges repeated. The second order applies the
    filter twice to the static columns, so that edges are repeated once.
    """
    taps = np.arange(-2.0, 3.0)
    taps /= np.sum(taps**2)
    values = static.astype(np.float64)
    columns = [values]
    power = np.ones(1)
    for _ in range(order):
        power = np.convolve(power, taps)
        columns.append(ndimage.correlate1d(values, power, axis=0, mode="nearest"))
    return np.concatenate(columns, axis=1).astype(np.float32)


def unit_rows(rows: Frames) -> Frames:
    """Return rows scaled to length 1."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.maximum(lengths, 1e-12))


def interval_means(frames: Frames, count: int) -> FloatArray:
    """Return (count, columns) means of frames over equal intervals of time.

    A frame that overlaps two intervals contributes to both in proportion. If there are at most `count` frames, values
    are interpolated at the middles of the intervals instead.
    """
    total = len(frames)
    values = frames.astype(np.float64)
    edges = np.linspace(0, total, count + 1)
    positions = (edges[1:] + edges[:-1]) / 2 - 0.5
    if total > count:
        # a mean is a difference of integrals at the edges; the integral of piecewise constant frames is linear
        values = np.vstack([np.zeros(values.shape[1]), values.cumsum(axis=0)])
        positions = edges
    frame_numbers = np.arange(len(values))
    points = np.column_stack([np.interp(positions, frame_numbers, column) for column in values.T])
    if total > count:
        points = np.diff(points, axis=0) * count / total
    return points


def prepare_samples(segment: SoundSegment, recipe: Recipe) -> Sound:
    """Return samples as a recipe requires them: cut to speech, scaled to a level, padded with silence."""
    settings = recipe.samples
    samples = segment.cut(settings.margin_s) if settings.cut else segment.samples
    if len(samples) < settings.shortest_s * segment.rate:
        raise AudioError(
            f"the sound is too short: {len(samples) / segment.rate:.2f} s, {recipe.name} needs at least "
            f"{settings.shortest_s:g} s"
        )
    if settings.level == "peak":
        samples = samples * np.float32(settings.level_value / float(np.abs(samples).max()))
    return np.pad(samples, round(settings.pad_s * segment.rate))
