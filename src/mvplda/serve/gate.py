"""The gate: bytes of a recording in, a vector and its quality out, or a reason why not."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..exceptions import AudioError, NumericalError
from ..extractors.quality import Quality, QualitySettings, measure
from ..extractors.sound import read_sound
from .settings import Settings

log = logging.getLogger("mvplda.serve")

REASONS = {
    "short": "not_enough_speech",
    "quiet": "too_quiet",
    "speechless": "no_speech",
    "clipped": "clipped",
    "noisy": "too_noisy",
}
"""Warnings about quality, and why nothing is decided. Other warnings, such as a narrow band, pass."""
SENTENCES = {
    "not_enough_speech": "There is too little speech in it: say the whole phrase.",
    "too_quiet": "It is nearly silent: come nearer to the microphone.",
    "no_speech": "It holds no speech.",
    "clipped": "It is clipped: step back, or turn the microphone down.",
    "too_noisy": "There is too much noise around the speech.",
    "too_long": "It is longer than the service takes.",
    "unreadable": "It is no recording that can be read.",
    "wrong_phrase": "The words are not those of the phrase.",
    "wrong_speaker": "The voice is not that of the enrolments before.",
    "suspected_replay": "This recording was sent before, or a machine made it.",
    "countermeasure_failed": "The countermeasure gave no answer: nothing is decided.",
}
Countermeasure = Callable[[NDArray[Any], int], float]
"""Samples and rate in; log p(sound | a person) / p(sound | played or synthetic) out, natural logarithm."""


@dataclass(frozen=True, eq=False)
class Heard:
    """What came of one recording.

    vector : None where no extractor made one
    reason : why it decides nothing; None: it may
    digest : of its samples; empty for vectors
    countermeasure : LLR of a person against a machine, where there is a countermeasure
    """

    vector: NDArray[Any] | None
    quality: dict[str, Any] | None = None
    reason: str | None = None
    digest: str = ""
    speech_s: float = 0.0
    detail: str = ""
    countermeasure: float | None = None


def hear(
    extractor: Any, data: bytes, settings: Settings, countermeasure: Countermeasure | None = None
) -> Heard:
    """Decode, measure, and make a vector of what is good enough."""
    try:
        samples, rate = read_sound(data, extractor.rate, longest_s=settings.longest_s)
    except AudioError as error:
        reason = "too_long" if "too long" in str(error) else "unreadable"
        return Heard(None, reason=reason, detail=str(error))
    limits = QualitySettings(
        speech_s=settings.speech_s, snr_db=settings.snr_db, clipped=settings.clipped
    )
    quality = measure(samples, rate, limits)
    common: dict[str, Any] = {
        "quality": quality_fields(quality),
        "digest": quality.digest,
        "speech_s": quality.speech_s,
    }
    for warning in quality.warnings:
        if warning in REASONS:
            return Heard(None, reason=REASONS[warning], **common)
    try:
        vector = extractor(samples, rate)
    except (AudioError, NumericalError) as error:
        return Heard(None, reason="unreadable", detail=str(error), **common)
    if countermeasure is None:
        return Heard(np.asarray(vector, dtype=np.float32), **common)
    llr = person_llr(countermeasure, samples, rate)
    if llr is None:
        return Heard(None, reason="countermeasure_failed", **common)
    return Heard(np.asarray(vector, dtype=np.float32), countermeasure=llr, **common)


def person_llr(countermeasure: Countermeasure, samples: NDArray[Any], rate: int) -> float | None:
    """What a countermeasure returns; None where it fails, whatever the failure: then nobody is accepted."""
    try:
        llr = float(countermeasure(samples, rate))
    except (Exception, SystemExit):
        log.exception("countermeasure")
        return None
    return llr if np.isfinite(llr) else None


def quality_fields(quality: Quality) -> dict[str, Any]:
    """As JSON has it; the digest stays inside."""
    snr = None if quality.snr_db is None else round(quality.snr_db, 1)
    return {
        "durationS": round(quality.duration_s, 3),
        "speechS": round(quality.speech_s, 3),
        "peakDb": round(quality.peak_db, 1),
        "levelDb": round(quality.level_db, 1),
        "clipped": round(quality.clipped, 5),
        "snrDb": snr,
        "bandwidthHz": round(quality.bandwidth_hz),
        "warnings": list(quality.warnings),
    }
