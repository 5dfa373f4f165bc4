"""How frames are made from samples."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal, Self

import numpy as np

from ...exceptions import ParameterError
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
    proportion: Annotated[float, Rule(lambda value: 0 < value <= 1, "is a share above 0, at most 1")] = 0.5


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
                raise ParameterError(f"{name} lies between {least} and {most}; got {getattr(self, name)}")
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
        return 0 if samples < self.frame_length else 1 + (samples - self.frame_length) // self.frame_shift

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
