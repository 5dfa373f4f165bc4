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

log = logging.getLogger("mvplda.serve")

REASONS = {
    "short": "not_enough_speech",
    "quiet": "too_quiet",
    "speechless": "no_speech",
} | {
    "clipped": "clipped",
    "noisy": "too_noisy",
}
"""Of a warning about quality: why nothing is decided. A narrow band is warned of, and passes."""
SENTENCES = {
    "not_enough_speech": "There is too little speech in it: say the whole phrase.",
    "too_quiet": "It is nearly silent: come nearer to the microphone.",
    "no_speech": "It holds no speech.",
    "clipped": "It is cut off at the top: step back, or turn the microphone down.",
    "too_noisy": "There is too much noise around the speech.",
    "too_long": "It is longer than the service takes.",
    "unreadable": "It is no recording that can be read.",
    "wrong_phrase": "The words are not those of the phrase.",
    "wrong_speaker": "The voice is not that of the enrolments before.",
    "suspected_replay": "This recording was heard before, or a machine made it.",
    "countermeasure_failed": "What listens for replays gave no answer: nothing is decided.",
}


Countermeasure = Callable[[NDArray[Any], int], float]
"""Samples and rate in; the natural logarithm of p(traces | a person) / p(traces | played or made) out."""


@dataclass(frozen=True)
class Limits:
    """What a recording may be.

    longest_s : it may be no longer
    speech_s : it holds so much speech at least
    snr_db : of speech against what lies between, at least
    clipped : share of samples in flat tops, at most
    """

    longest_s: float = 15.0
    speech_s: float = 0.6
    snr_db: float = 10.0
    clipped: float = 0.005


@dataclass(frozen=True, eq=False)
class Heard:
    """What came of one recording.

    vector : None where no extractor made one
    reason : why it decides nothing; None: it may
    digest : of its samples; empty for vectors
    countermeasure : what one says for "a person" against "played or made", where there is one
    """

    vector: NDArray[Any] | None
    quality: dict[str, Any] | None = None
    reason: str | None = None
    digest: str = ""
    speech_s: float = 0.0
    detail: str = ""
    countermeasure: float | None = None


def hear(
    extractor: Any, data: bytes, limits: Limits, countermeasure: Countermeasure | None = None
) -> Heard:
    """Decode, measure, and make a vector of what is good enough."""
    try:
        samples, rate = read_sound(data, extractor.rate, longest_s=limits.longest_s)
    except AudioError as error:
        long = "too long" in str(error)
        return Heard(None, reason="too_long" if long else "unreadable", detail=str(error))
    settings = QualitySettings(
        speech_s=limits.speech_s, snr_db=limits.snr_db, clipped=limits.clipped
    )
    quality = measure(samples, rate, settings)
    said, digest = plain(quality), quality.digest
    reason = next((REASONS[name] for name in quality.warnings if name in REASONS), None)
    if reason is not None:
        return Heard(None, said, reason, digest, quality.speech_s)
    try:
        vector = extractor(samples, rate)
    except (AudioError, NumericalError) as error:
        return Heard(None, said, "unreadable", digest, quality.speech_s, str(error))
    spoof = None
    if countermeasure is not None:
        try:
            spoof = float(countermeasure(samples, rate))
        except (
            Exception,
            SystemExit,
        ):  # somebody else's code: whatever goes wrong in it, nobody is let in
            log.exception("countermeasure")
        if spoof is None or not np.isfinite(spoof):
            return Heard(None, said, "countermeasure_failed", digest, quality.speech_s)
    return Heard(
        np.asarray(vector, dtype=np.float32),
        said,
        None,
        digest,
        quality.speech_s,
        countermeasure=spoof,
    )


def plain(quality: Quality) -> dict[str, Any]:
    """As JSON has it; the digest stays inside."""
    return {
        "durationS": round(quality.duration_s, 3),
        "speechS": round(quality.speech_s, 3),
        "peakDb": round(quality.peak_db, 1),
        "levelDb": round(quality.level_db, 1),
        "clipped": round(quality.clipped, 5),
        "snrDb": None if quality.snr_db is None else round(quality.snr_db, 1),
        "bandwidthHz": round(quality.bandwidth_hz),
        "warnings": list(quality.warnings),
    }
