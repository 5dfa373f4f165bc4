"""Processing of recordings: from bytes to a vector and quality measures, or to the reason of a refusal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from ..exceptions import AudioError, NumericalError
from ..voice.audio.decode import read_sound
from ..voice.audio.quality import Quality, QualityMeter, QualitySettings
from ..voice.extractors.extractor import Extractor
from ..voice.fingerprint import CopyTest
from .schemas import QualityReply
from .settings import Settings

# Quality warnings for which nothing is decided, with their reason codes. Other warnings, such as a narrow band, pass.
REASONS = {
    "short": "not_enough_speech",
    "quiet": "too_quiet",
    "speechless": "no_speech",
    "clipped": "clipped",
    "noisy": "too_noisy",
}


@dataclass(frozen=True, eq=False)
class ProcessedRecording:
    """Result of processing one recording.

    vector : None if no vector was extracted
    reason : reason code if the recording cannot be used, else None
    digest : digest of the samples; empty for vectors
    detail : sentence that explains an unreadable file
    copy_test : comparison with the fingerprints of earlier recordings; None for vectors
    """

    vector: NDArray[Any] | None
    quality: QualityReply | None = None
    reason: str | None = None
    digest: str = ""
    speech_s: float = 0.0
    detail: str = ""
    copy_test: CopyTest | None = None


def process_recording(extractor: Extractor, data: bytes, settings: Settings) -> ProcessedRecording:
    """Decode a recording, measure its quality, and extract a vector if the quality suffices."""
    try:
        samples, rate = read_sound(data, extractor.rate, longest_s=settings.longest_s)
    except AudioError as error:
        return ProcessedRecording(None, reason=decode_reason(str(error)), detail=str(error))
    limits = QualitySettings(
        speech_s=settings.speech_s, snr_db=settings.snr_db, clipped=settings.clipped
    )
    meter = QualityMeter(rate, limits)
    segments = [meter.add(segment) for segment in extractor.segments(samples, rate)]
    measured = meter.quality()
    quality = quality_reply(measured)
    for warning in measured.warnings:
        if warning in REASONS:
            return ProcessedRecording(
                None, quality, REASONS[warning], measured.digest, measured.speech_s
            )
    try:
        vector = extractor.average(segments)
    except (AudioError, NumericalError) as error:
        return ProcessedRecording(
            None, quality, "unreadable", measured.digest, measured.speech_s, str(error)
        )
    test = CopyTest.read(samples, rate)
    return ProcessedRecording(
        vector, quality, None, measured.digest, measured.speech_s, copy_test=test
    )


def decode_reason(message: str) -> str:
    """Return the reason code for the error message of a decoder."""
    if "too long" in message:
        return "too_long"
    return "no_speech" if "silent" in message else "unreadable"


def quality_reply(quality: Quality) -> QualityReply:
    """Return the quality with the field names of the API, rounded; the digest stays inside."""
    return QualityReply(
        durationS=round(quality.duration_s, 4),
        speechS=round(quality.speech_s, 4),
        peakDb=round(quality.peak_db, 4),
        levelDb=round(quality.level_db, 4),
        clipped=round(quality.clipped, 4),
        snrDb=None if quality.snr_db is None else round(quality.snr_db, 4),
        bandwidthHz=round(quality.bandwidth_hz, 4),
        warnings=list(quality.warnings),
    )
