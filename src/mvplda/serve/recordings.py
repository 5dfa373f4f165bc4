"""Processing of recordings: computes the vector and quality of a sound file, or the reason for refusing it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..exceptions import AudioError, NumericalError
from ..voice.audio.decode import read_sound
from ..voice.audio.quality import Quality, QualityMeter, QualitySettings
from ..voice.audio.speech_detection import SoundSegment
from ..voice.extractors.extractor import Extractor
from ..voice.fingerprint import CopyTest
from ..voice.prompts import TextModel, prompt_log_probability
from ..voice.spoof_detector import SpoofDetector
from .schemas import QualityReply
from .settings import Settings

# {quality warning: reason code} of recordings that are not used. Other warnings, such as a narrow band, are allowed.
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

    Parameters
    ----------
    vector : (width,) vector of the extractor; None if it was not extracted
    quality : quality measures; None for vectors and unreadable files
    reason : reason code if the recording cannot be used, else None
    digest : hash of the samples; empty for vectors
    speech_s : seconds of speech; 0 for vectors
    detail : explanation of why a file cannot be read; empty otherwise
    copy_test : test for copies, by comparison with the fingerprints of earlier recordings; None for vectors
    prompt : prompted words; empty: none
    prompt_log_probability : log probability of the prompted words given the recording; None without prompted words
    spoof_score : raw score of the spoof detector; None without the detector
    """

    vector: NDArray[Any] | None
    quality: QualityReply | None = None
    reason: str | None = None
    digest: str = ""
    speech_s: float = 0.0
    detail: str = ""
    copy_test: CopyTest | None = None
    prompt: tuple[str, ...] = ()
    prompt_log_probability: float | None = None
    spoof_score: float | None = None


def process_recording(
    extractor: Extractor,
    data: bytes,
    settings: Settings,
    text_model: TextModel | None = None,
    prompt: tuple[str, ...] = (),
    detector: SpoofDetector | None = None,
) -> ProcessedRecording:
    """Decode a recording, measure its quality, and extract a vector if the quality suffices.

    Parameters
    ----------
    extractor : computes the vector
    data : bytes of an audio file
    settings : limits of length and quality
    text_model : recogniser that computes the probability of `prompt`; None: it is not computed
    prompt : prompted words; empty: none
    detector : spoof detector; None: the recording gets no spoof score

    Returns
    -------
    vector and quality, or the reason for which the recording cannot be used
    """
    try:
        samples, rate = read_sound(data, extractor.rate, longest_s=settings.longest_s)
    except AudioError as error:
        return ProcessedRecording(None, reason=error.reason, detail=str(error))
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
    log_probability = None
    if prompt and text_model is not None:
        whole = np.concatenate([segment.samples for segment in segments])
        sound = SoundSegment(whole, extractor.rate)
        log_probability = prompt_log_probability(text_model, sound, prompt)
    return ProcessedRecording(
        vector,
        quality,
        None,
        measured.digest,
        measured.speech_s,
        copy_test=CopyTest.read(samples, rate),
        prompt=prompt,
        prompt_log_probability=log_probability,
        spoof_score=None if detector is None else detector.raw_score_of(samples, rate),
    )


def quality_reply(quality: Quality) -> QualityReply:
    """Return quality measures with the field names of the API, rounded; the hash of the samples is left out."""
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
