"""From samples to frames: cepstra or mel energies, deltas, normalisation, neighbours side by side."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Annotated, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from ..._optional import need
from ..._typing import FloatArray
from ...exceptions import AudioError, DataError, ParameterError
from ..settings import Rule, Settings, Whole, between

VERSION = 1
"""Raised when the same settings give other frames than before: it is part of every key."""

Kind = Literal["mfcc", "fbank"]
Normalisation = Literal["mean+variance", "mean", "none"]
Level = Literal["peak", "rms", "none"]

BINS = {"mfcc": 23, "fbank": 80}


@dataclass(frozen=True)
class ActivitySettings(Settings):
    """Which frames are speech: those loud enough, among neighbours loud enough.

    A frame is loud if its log energy exceeds ``threshold + mean_scale * mean``, the mean
    being the utterance's; it is kept if at least ``proportion`` of the frames within
    ``context`` on each side, and itself, are loud.
    """

    threshold: float = 5.5
    mean_scale: float = 0.5
    context: Whole = 2
    proportion: Annotated[
        float, Rule(lambda value: 0 < value <= 1, "is a share above 0, at most 1")
    ] = 0.5


@dataclass(frozen=True)
class FeatureSettings(Settings):
    """How frames are made from samples.

    The defaults are those of the paper: 13 cepstra of which the first is the log energy,
    with deltas and delta-deltas 39, mean and variance normalised over the utterance. There
    is no dither, so the same sound gives the same frames; white noise at a chosen level is
    an augmentation (`mvplda.speech.features.Noise`).

    Attributes
    ----------
    rate : samples a second; sound of another rate is resampled
    kind : "mfcc", or "fbank" for log mel energies
    cepstra : cepstral coefficients, with the one that is the energy ("mfcc" only)
    energy : the first cepstrum is the log energy of the frame, else the zeroth cepstrum ("mfcc" only)
    mel_bins : triangular filters; None means 23 for "mfcc" and 80 for "fbank"
    low_hz, high_hz : their range; a high of None means half the rate
    frame_length_ms, frame_shift_ms : how long a frame is, and how far the next one starts
    preemphasis : x[t] - preemphasis * x[t - 1]
    lifter : weight of higher cepstra, 0 for none ("mfcc" only)
    deltas : 0, 1 or 2 times the regression over time is appended
    delta_window : frames on each side that the regression looks at
    normalisation : over the frames of an utterance
    level : what is made equal between utterances before anything else: the loudest sample,
        the mean power or nothing. Quiet recordings come near the floors of the logarithms
        without it.
    activity : leave out frames without speech; None keeps all
    shortest_ms : a shorter utterance is an error

    Examples
    --------
    >>> FeatureSettings().dimension
    39
    >>> FeatureSettings.fbank(40).dimension
    40
    >>> FeatureSettings.from_dict({"rate": 8000, "activity": {"context": 3}}).activity.context
    3
    """

    rate: Annotated[int, between(1000, 768_000)] = 16000
    kind: Kind = "mfcc"
    cepstra: int = 13
    energy: bool = True
    mel_bins: Annotated[int, between(3, 1024)] | None = None
    low_hz: float = 20.0
    high_hz: float | None = None
    frame_length_ms: float = 25.0
    frame_shift_ms: float = 10.0
    preemphasis: Annotated[float, between(0, 1)] = 0.97
    lifter: Annotated[float, between(0, 1e6)] = 22.0
    deltas: Annotated[int, between(0, 2)] = 2
    delta_window: Annotated[int, between(1, 100)] = 2
    normalisation: Normalisation = "mean+variance"
    level: Level = "peak"
    activity: ActivitySettings | None = None
    shortest_ms: Annotated[float, between(0, 1e9)] = 100.0

    def check(self) -> None:
        for name, least, most in (
            ("frame_length", 16, self.rate),
            ("frame_shift", 1, self.frame_length),
            ("cepstra", 1, self.bins if self.kind == "mfcc" else 1024),
        ):
            if not least <= getattr(self, name) <= most:
                raise ParameterError(
                    f"{name} lies between {least} and {most}; got {getattr(self, name)}"
                )
        if not 0 <= self.low_hz < self.top_hz <= self.rate / 2:
            raise ParameterError(
                f"low_hz < high_hz <= half the rate ({self.rate / 2:g}); got {self.low_hz:g} and {self.top_hz:g}"
            )
        if self._empty_filters():
            raise ParameterError(
                f"{self.bins} mel filters between {self.low_hz:g} and {self.top_hz:g} Hz are too many: some are "
                f"narrower than a frame of {self.frame_length_ms:g} ms can tell. Take fewer mel_bins or longer frames"
            )

    @classmethod
    def fbank(cls, mel_bins: int = 80, **settings: Any) -> Self:
        """Log mel energies without deltas, as convolutional networks take them."""
        return cls(**{"kind": "fbank", "mel_bins": mel_bins, "deltas": 0, **settings})

    @property
    def bins(self) -> int:
        return BINS[self.kind] if self.mel_bins is None else self.mel_bins

    @property
    def top_hz(self) -> float:
        return self.rate / 2 if self.high_hz is None else self.high_hz

    @property
    def frame_length(self) -> int:
        """Samples in a frame."""
        return _samples(self.rate, self.frame_length_ms)

    @property
    def frame_shift(self) -> int:
        """Samples from the start of a frame to the start of the next."""
        return _samples(self.rate, self.frame_shift_ms)

    @property
    def shortest(self) -> int:
        """Samples that an utterance has at least."""
        return max(self.frame_length, round(self.rate * 0.001 * self.shortest_ms))

    @property
    def dimension(self) -> int:
        """Width of a frame."""
        return (self.cepstra if self.kind == "mfcc" else self.bins) * (self.deltas + 1)

    def frames_of(self, samples: int) -> int:
        """Frames of an utterance of so many samples; a frame lies wholly inside it."""
        return (
            0
            if samples < self.frame_length
            else 1 + (samples - self.frame_length) // self.frame_shift
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON or TOML; what is None is left out."""
        return {name: value for name, value in super().to_dict().items() if value is not None}

    @cached_property
    def key(self) -> str:
        """A name that any other settings do not have, the same in every process and on every machine."""
        text = json.dumps({"version": VERSION, **self.to_dict()}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def _empty_filters(self) -> bool:
        """Whether a mel filter has no line of the spectrum inside."""
        padded = 1 << (self.frame_length - 1).bit_length()
        lines = mel(np.arange(padded // 2) * self.rate / padded)
        edges = np.linspace(mel(self.low_hz), mel(self.top_hz), self.bins + 2)
        inside = (lines > edges[:-2, None]) & (lines < edges[2:, None])
        return not inside.any(axis=1).all()


def mel(hz: Any) -> Any:
    """The mel scale that Kaldi uses."""
    return 1127.0 * np.log(1.0 + np.asarray(hz) / 700.0)


def _samples(rate: int, ms: float) -> int:
    """Rounded down in single precision, as kaldi-native-fbank does it."""
    return int(np.float32(rate) * np.float32(0.001) * np.float32(ms))


Frames = NDArray[np.float32]

FULL_SCALE = 32768.0
"""Kaldi's features are of 16-bit numbers: at that scale its floors lie far below any speech."""

SPEECH_RMS = 0.1
CONSTANT = 1e-4
"""Columns with a smaller standard deviation are constant, but for rounding."""


def features(samples: FloatArray, settings: FeatureSettings | None = None) -> Frames:
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


def features_and_note(samples: FloatArray, settings: FeatureSettings) -> tuple[Frames, str | None]:
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


def levelled(samples: FloatArray, settings: FeatureSettings) -> NDArray[np.float32]:
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
        columns.append(
            sum(tap * padded[k : k + len(wide)] for k, tap in enumerate(taps_now) if tap)
        )  # type: ignore[arg-type]
    return np.concatenate(columns, axis=1).astype(np.float32)


def normalised(frames: FloatArray, settings: FeatureSettings) -> Frames:
    """Mean 0, and variance 1 where asked, of every column over the utterance; constant columns become 0."""
    if settings.normalisation == "none":
        return np.asarray(frames, dtype=np.float32)
    wide = np.asarray(frames, dtype=np.float64)
    wide = wide - wide.mean(axis=0)
    if settings.normalisation == "mean+variance":
        deviation = wide.std(axis=0)
        wide = wide / np.where(deviation < CONSTANT, np.inf, deviation)
    return np.asarray(wide, dtype=np.float32)


def stack(frames: FloatArray, left: int = 5, right: int = 5) -> NDArray[Any]:
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
    windows = np.lib.stride_tricks.sliding_window_view(samples, settings.frame_length)[
        :: settings.frame_shift
    ]
    centred = windows - windows.mean(axis=1, keepdims=True, dtype=np.float64)
    return np.asarray(np.log(np.maximum(np.einsum("ij,ij->i", centred, centred), FLOOR)))


def speech_frames(
    energies: NDArray[np.float64], settings: ActivitySettings | None = None
) -> NDArray[np.bool_]:
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
