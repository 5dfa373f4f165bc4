"""Frames as the networks of each family were trained on: samples in, (T, bins) float32 out."""

from __future__ import annotations

import os
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._optional import need
from ..exceptions import AudioError, FetchError, FileFormatError
from .recipe import Features, Recipe

Frames = NDArray[np.float32]
Signal = NDArray[np.floating[Any]]

LENGTH_S, SHIFT_S = 0.025, 0.010
NEMO_FFT = 512
NEMO_FLOOR = 2.0**-24
NEMO_DEVIATION = 1e-5
SPEECHBRAIN_FLOOR = 1e-10
SPEECHBRAIN_RANGE_DB = 80.0


def make_frames(samples: Signal, recipe: Recipe) -> Frames:
    """Frames of samples whose full scale is 1, normalised over time; `graph` frames are made by the extractor."""
    settings = recipe.features
    scaled = np.asarray(samples, dtype=np.float32) * np.float32(recipe.samples.scale)
    if len(scaled) < round(LENGTH_S * recipe.rate):
        raise AudioError(
            f"the sound is too short for one frame: {len(scaled)} samples at {recipe.rate} a second"
        )
    frames = FRONT_ENDS[settings.kind](scaled, recipe.rate, settings)
    return normalised(frames, settings)


def normalised(frames: Frames, settings: Features) -> Frames:
    """Frames without their mean over time, and of deviation one where the recipe says so."""
    if settings.normalisation == "none":
        return frames
    wide = frames.astype(np.float64)
    wide -= wide.mean(axis=0)
    if settings.normalisation == "mean+variance":
        wide /= wide.std(axis=0, ddof=1 if len(wide) > 1 else 0) + NEMO_DEVIATION
    return np.asarray(wide, dtype=np.float32)


def _kaldi(samples: Frames, rate: int, settings: Features) -> Frames:
    return _computed(need("kaldi_native_fbank").OnlineFbank, samples, rate, settings)


def _mfcc(samples: Frames, rate: int, settings: Features) -> Frames:
    static = _computed(need("kaldi_native_fbank").OnlineMfcc, samples, rate, settings)
    return with_deltas(static, settings.deltas)


def _computed(computer_of: Any, samples: Frames, rate: int, settings: Features) -> Frames:
    computer = computer_of(_kaldi_options(rate, settings))
    # a list reaches the library faster than an array
    computer.accept_waveform(rate, samples.tolist())
    computer.input_finished()
    return np.stack([computer.get_frame(t) for t in range(computer.num_frames_ready)])


@lru_cache(maxsize=16)
def _kaldi_options(rate: int, settings: Features) -> Any:
    library = need("kaldi_native_fbank")
    options = library.MfccOptions() if settings.kind == "mfcc" else library.FbankOptions()
    options.frame_opts.samp_freq = rate
    options.frame_opts.dither = 0.0
    options.frame_opts.window_type = settings.window
    options.frame_opts.preemph_coeff = settings.preemphasis
    options.mel_opts.num_bins = settings.bins
    options.mel_opts.low_freq = settings.low_hz
    options.mel_opts.high_freq = settings.high_hz
    options.use_energy = settings.kind == "mfcc"
    if settings.kind == "mfcc":
        options.num_ceps = settings.cepstra
    return options


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
        reach = len(repeated) // 2
        padded = np.pad(wide, ((reach, reach), (0, 0)), mode="edge")
        column = np.zeros_like(wide)
        for k, tap in enumerate(repeated):
            column += tap * padded[k : k + len(wide)]
        columns.append(column)
    return np.concatenate(columns, axis=1).astype(np.float32)


def _nemo(samples: Frames, rate: int, settings: Features) -> Frames:
    """Log mel energies of a pre-emphasised signal; a window of 25 ms lies in the middle of 512 samples.

    NeMo counts ``samples // shift`` frames, and leaves the last that a centred transform gives out.
    """
    length, shift = round(LENGTH_S * rate), round(SHIFT_S * rate)
    emphasised = np.concatenate(
        [samples[:1], samples[1:] - np.float32(settings.preemphasis) * samples[:-1]]
    )
    window = np.zeros(NEMO_FFT)
    start = (NEMO_FFT - length) // 2
    window[start : start + length] = np.hanning(length)
    power = _power(emphasised, window, shift)[: max(1, len(samples) // shift)]
    return np.asarray(
        np.log(power @ _slaney_filters(rate, NEMO_FFT, settings) + NEMO_FLOOR), dtype=np.float32
    )


def _mel(samples: Frames, rate: int, settings: Features) -> Frames:
    """Mel energies, not their logarithm."""
    length = round(LENGTH_S * rate)
    power = _power(samples, np.hanning(length + 1)[:-1], round(SHIFT_S * rate))
    return np.asarray(power @ _slaney_filters(rate, length, settings), dtype=np.float32)


def _speechbrain(samples: Frames, rate: int, settings: Features) -> Frames:
    """Energies in dB under symmetric triangles, no further than 80 dB below the loudest."""
    length = round(LENGTH_S * rate)
    power = _power(samples, np.hamming(length + 1)[:-1], round(SHIFT_S * rate))
    energies = power @ _speechbrain_filters(rate, length, settings)
    decibels = 10.0 * np.log10(np.maximum(energies, SPEECHBRAIN_FLOOR))
    return np.asarray(np.maximum(decibels, decibels.max() - SPEECHBRAIN_RANGE_DB), dtype=np.float32)


def _power(samples: Frames, window: NDArray[np.float64], shift: int) -> NDArray[np.float64]:
    """(T, bins) power spectra of windows centred at multiples of the shift, zeros outside the signal."""
    half = len(window) // 2
    around = np.pad(samples.astype(np.float64), half)
    windows = np.lib.stride_tricks.sliding_window_view(around, len(window))[::shift]
    spectrum = np.fft.rfft(windows * window)
    return np.asarray(spectrum.real**2 + spectrum.imag**2)


@lru_cache(maxsize=16)
def _slaney_filters(rate: int, length: int, settings: Features) -> NDArray[np.float64]:
    """(bins of the transform, mel bins) triangles of equal area on Slaney's scale: linear below 1 kHz."""

    def to_mel(hz: float) -> float:
        return hz * 3 / 200 if hz < 1000 else 15 + 27 * float(np.log(hz / 1000) / np.log(6.4))

    top = settings.high_hz or rate / 2
    mel = np.linspace(to_mel(settings.low_hz), to_mel(top), settings.bins + 2)
    edges = np.where(mel < 15, mel * 200 / 3, 1000 * np.exp(np.log(6.4) * (mel - 15) / 27))
    hz = np.fft.rfftfreq(length, 1 / rate)[:, None]
    rising = (hz - edges[:-2]) / np.diff(edges)[:-1]
    falling = (edges[2:] - hz) / np.diff(edges)[1:]
    return np.asarray(np.maximum(0, np.minimum(rising, falling)) * (2 / (edges[2:] - edges[:-2])))


@lru_cache(maxsize=16)
def _speechbrain_filters(rate: int, length: int, settings: Features) -> NDArray[np.float64]:
    """Triangles on the scale of HTK, each as wide to the right as it is to the left."""
    low, high = (
        2595 * float(np.log10(1 + hz / 700))
        for hz in (settings.low_hz, settings.high_hz or rate / 2)
    )
    edges = 700 * (10 ** (np.linspace(low, high, settings.bins + 2) / 2595) - 1)
    slope = (np.fft.rfftfreq(length, 1 / rate)[:, None] - edges[1:-1]) / np.diff(edges)[:-1]
    return np.asarray(np.maximum(0, np.minimum(1 + slope, 1 - slope)))


FRONT_ENDS = {
    "kaldi": _kaldi,
    "mfcc": _mfcc,
    "nemo": _nemo,
    "speechbrain": _speechbrain,
    "mel": _mel,
}
"""Makers of frames by the kind that a recipe names."""


def open_session(path: str | os.PathLike[str], threads: int) -> Any:
    """An ONNX file in onnxruntime, on a GPU where it has one."""
    runtime = need("onnxruntime")
    if not Path(path).is_file():
        raise FileNotFoundError(f"there is no file {path}")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    wanted = [
        p
        for p in ("CUDAExecutionProvider", "CPUExecutionProvider")
        if p in runtime.get_available_providers()
    ]
    try:
        return runtime.InferenceSession(str(path), options, providers=wanted)
    except Exception as error:  # onnxruntime has no base class of its own for them
        raise FileFormatError(
            f"{path} is damaged or no ONNX file: {' '.join(str(error).split())[:300]}"
        ) from error


def cache_folder() -> Path:
    """Where fetched extractors lie: ``$MVPLDA_CACHE``, else the user's own cache."""
    given = os.environ.get("MVPLDA_CACHE")
    if given:
        return Path(given).expanduser()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local")) / "mvplda"
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")).expanduser() / "mvplda"


def cached_file(name: str) -> Path:
    """The file of a fetched extractor; one that was not fetched is an error that says how."""
    place = cache_folder() / "extractors" / name / f"{name}.onnx"
    if not place.is_file():
        raise FetchError(f"{name!r} has not been fetched: run  mvplda extractor get {name}")
    return place
