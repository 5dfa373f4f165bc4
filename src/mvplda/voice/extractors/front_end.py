"""Front-end of a network: preparation of samples, and frames of filter banks or cepstra, normalised over time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..._optional import need
from ..._typing import FloatArray
from ...exceptions import AudioError
from ..audio.decode import Sound
from ..audio.speech_detection import SoundSegment
from .filter_banks import FRAME_LENGTH_S, filter_banks, frame_length
from .recipe import Features, Recipe

Frames = NDArray[np.float32]

MIN_DEVIATION = 1e-5
MIN_POINT_FRAMES = 3
"""Minimum number of frames that are taken from a recording for points in time, even if it is shorter."""


def make_frames(samples: FloatArray, recipe: Recipe) -> Frames:
    """Compute the frames of samples by Kaldi's features, normalised over time.

    Frames of the kind "graph" are computed by `OnnxNetwork.frames` instead.

    Parameters
    ----------
    samples : (n,) samples with full scale 1
    recipe : recipe with the rate, the scale and the features

    Returns
    -------
    (T, D) frames: T points in time, D filter banks or cepstra

    Raises
    ------
    AudioError
        The sound is shorter than one frame (25 ms).
    """
    settings = recipe.features
    scaled = np.asarray(samples, dtype=np.float32) * np.float32(recipe.samples.scale)
    if len(scaled) < frame_length(recipe.rate):
        raise AudioError(
            f"the sound is too short for one frame of {FRAME_LENGTH_S * 1000:.0f} ms: {len(scaled)} samples at "
            f"{recipe.rate} Hz"
        )
    compute = _cepstra if settings.kind == "mfcc" else filter_banks
    frames = compute(scaled, recipe.rate, settings)
    if settings.normalisation == "none":
        return frames
    # in double precision: means of long recordings lose digits in single precision
    normalised = frames.astype(np.float64)
    normalised -= normalised.mean(axis=0)
    if settings.normalisation == "mean+variance":
        is_sample = len(normalised) > 1
        normalised /= normalised.std(axis=0, ddof=int(is_sample)) + MIN_DEVIATION
    return np.asarray(normalised, dtype=np.float32)


def _cepstra(samples: Frames, rate: int, settings: Features) -> Frames:
    """Return Kaldi's cepstra with their regressions over time, (T, cepstra * (deltas + 1)).

    samples : (n,) samples, multiplied by the recipe's `scale`
    rate : samples per second
    settings : settings with the numbers `cepstra` and `deltas`
    """
    library = need("kaldi_native_fbank")
    options = library.MfccOptions()
    options.frame_opts.samp_freq = rate
    options.frame_opts.dither = 0.0
    options.frame_opts.window_type = settings.window
    options.frame_opts.preemph_coeff = settings.preemphasis
    options.mel_opts.num_bins = settings.bins
    options.mel_opts.low_freq = settings.low_hz
    options.mel_opts.high_freq = settings.high_hz
    options.use_energy = True
    options.num_ceps = settings.cepstra
    computer = library.OnlineMfcc(options)
    # a list reaches the library faster than an array
    computer.accept_waveform(rate, samples.tolist())
    computer.input_finished()
    frames = np.stack([computer.get_frame(t) for t in range(computer.num_frames_ready)])
    return with_deltas(frames, settings.deltas)


def with_deltas(static: Frames, order: int) -> Frames:
    """Append the regressions (deltas) of the columns over time.

    The first regression of a column x is sum_k k x[t + k] / sum_k k^2 over k = -2 to 2, with values at the edges
    repeated. The second applies this filter twice; values are repeated only before the first filter.

    Parameters
    ----------
    static : (T, D) frames
    order : number of regressions; 0 appends nothing

    Returns
    -------
    (T, D * (order + 1)) frames
    """
    from scipy import ndimage  # slow to import, and filter banks need none

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
    """Scale each row to length 1; rows of zeros stay zero."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.maximum(lengths, 1e-12))


def interval_means(frames: Frames, count: int) -> FloatArray:
    """Return (count, columns) means of frames over equal intervals of time.

    A frame that overlaps two intervals contributes to both in proportion. If there are at most `count` frames, values
    are interpolated at the middles of the intervals instead.

    frames : (T, columns) frames, at least one
    count : number of intervals
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
    """Prepare the samples of a segment as a recipe requires: cut to speech, scaled to a level, padded with silence.

    Raises
    ------
    AudioError
        The sound is shorter than the recipe's `shortest_s`.
    """
    settings = recipe.samples
    samples = segment.cut(settings.margin_s) if settings.cut else segment.samples
    if len(samples) < settings.shortest_s * segment.rate:
        raise AudioError(
            f"the sound is too short: {len(samples) / segment.rate:.2f} s; the extractor {recipe.name} needs at least "
            f"{settings.shortest_s:g} s"
        )
    if settings.level == "peak":
        samples = samples * np.float32(settings.level_value / float(np.abs(samples).max()))
    return np.pad(samples, round(settings.pad_s * segment.rate))
