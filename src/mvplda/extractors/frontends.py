"""Frames as the networks of each family were trained on: samples in, (T, bins) float32 out."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from .._optional import need
from .._typing import FloatArray
from ..exceptions import AudioError, FetchError, FileFormatError
from .recipe import Features, Recipe

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

Frames = NDArray[np.float32]

LENGTH_S = 0.025
LEAST_DEVIATION = 1e-5


def make_frames(samples: FloatArray, recipe: Recipe) -> Frames:
    """Frames of samples whose full scale is 1, normalised over time; `graph` frames are made by the extractor."""
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


def with_deltas(static: Frames, order: int, window: int = 2) -> Frames:
    """Columns of the regression over time appended, and of the regression of that.

    The first is sum_k k x[t + k] / sum_k k^2 over k = -window to window; edges are repeated. The second applies
    that filter twice to the static columns, so that an edge is repeated once.
    """
    taps = np.arange(-window, window + 1, dtype=np.float64)
    taps /= np.sum(taps**2)
    wide = static.astype(np.float64)
    columns = [wide]
    repeated = np.ones(1)
    for _ in range(order):
        repeated = np.convolve(repeated, taps)
        columns.append(ndimage.correlate1d(wide, repeated, axis=0, mode="nearest"))
    return np.concatenate(columns, axis=1).astype(np.float32)


def open_session(path: Path, threads: int) -> InferenceSession:
    """An ONNX file in onnxruntime, on a GPU where it has one."""
    runtime = need("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    available = runtime.get_available_providers()
    wanted = [one for one in ("CUDAExecutionProvider", "CPUExecutionProvider") if one in available]
    try:
        return runtime.InferenceSession(str(path), options, providers=wanted)
    except Exception as error:  # onnxruntime has no base class of its own for them
        raise FileFormatError(
            f"{path} is damaged or no ONNX file: {' '.join(str(error).split())[:300]}"
        ) from error


def cache_folder() -> Path:
    """Where fetched extractors lie: ``$MVPLDA_CACHE``, else the user's own cache."""
    own = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    return Path(os.environ.get("MVPLDA_CACHE") or f"{own}/mvplda").expanduser()


def cached_file(name: str) -> Path:
    """The file of a fetched extractor; one that was not fetched is an error that says how."""
    file = cache_folder() / "extractors" / name / f"{name}.onnx"
    if not file.is_file():
        raise FetchError(f"{name!r} has not been fetched: run  mvplda extractor get {name}")
    return file
