"""Verification of speech while it arrives: an LLR after every half second of speech."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .._typing import BoolArray
from ..decisions import Decision
from ..exceptions import AudioError, ParameterError
from ..scoring.question import Question
from .audio.decode import Sound, sound_from_array
from .audio.speech_detection import SHIFT_S, SoundSegment
from .extractors.extractor import ExtractedVectors
from .fingerprint import CopyTest
from .verification import VoiceModel

STEP_S = 0.5
"""Seconds of speech between two decisions."""
LONGEST_S = 30.0
"""Longest stream: the longest segment of an extractor."""
CHECK_S = 0.2
"""Seconds of sound between two detections of speech."""
PAUSE_S = 1.0
"""Silence after which a phrase has ended."""
CONFIRMATIONS = 2
"""Decisions in a row that must agree before a stream is decided: a single one may be chance."""
SPEAKER = "speaker"


@dataclass(frozen=True)
class StreamUpdate:
    """Decision about a stream up to now.

    seconds, speech_s : duration of the stream, and of the speech in it
    decision : decision about all of it, as `VoiceModel.verify` makes it for a recording
    is_decided : whether more speech is not needed
    """

    seconds: float
    speech_s: float
    decision: Decision
    is_decided: bool


class SpeechStream:
    """Comparison of a stream of samples with an enrolled side.

    Each decision is about the whole stream up to then: that of `finish` is the decision about the recording of all
    samples. A stream is decided if two decisions in a row agree and more words cannot change their reason: both accept,
    or both reject because of the speaker. A phrase that has not ended is no wrong phrase.

    Parameters
    ----------
    voices : the model
    enrolled : enrolled side, of `VoiceModel.side` or of a profile
    rate : samples per second of the stream
    question : None: the same class in every view
    step_s : seconds of speech between two decisions
    point_options : options of `mvplda.decisions.point_for`, such as far=0.001
    """

    def __init__(
        self,
        voices: VoiceModel,
        enrolled: ExtractedVectors,
        rate: int,
        question: Question | None = None,
        *,
        step_s: float = STEP_S,
        **point_options: float | None,
    ) -> None:
        if not step_s > 0:
            raise ParameterError(f"step_s must be positive; got {step_s}")
        self.voices = voices
        self.enrolled = enrolled
        self.rate = rate
        self.question = question
        self.step_s = step_s
        self.point_options = point_options
        self._blocks: list[Sound] = []
        self._next_check_s = 0.0
        self._speech = np.zeros(0, dtype=bool)
        self._next_speech_s = step_s
        self._outcomes: list[str] = []

    @property
    def seconds(self) -> float:
        """Duration of the stream."""
        return sum(map(len, self._blocks)) / self.rate

    @property
    def speech_s(self) -> float:
        """Duration of the speech in the stream, at its last check."""
        return float(self._speech.sum()) * SHIFT_S

    @property
    def has_ended(self) -> bool:
        """Whether the speaker has said something and then paused for `PAUSE_S`."""
        frames = np.flatnonzero(self._speech)
        return len(frames) > 0 and (len(self._speech) - frames[-1]) * SHIFT_S >= PAUSE_S

    def add(self, samples: Sound) -> StreamUpdate | None:
        """Append samples (full scale 1); return a decision if there is enough new speech, else None."""
        if self.seconds + len(samples) / self.rate > LONGEST_S:
            raise AudioError(f"the stream is longer than {LONGEST_S:g} s: end it", "too_long")
        self._blocks.append(np.asarray(samples, dtype=np.float32))
        # detection starts from the beginning each time, because levels are relative to the loudest
        if self.seconds < self._next_check_s:
            return None
        self._next_check_s = self.seconds + CHECK_S
        self._speech = self._detect_speech()
        if self.speech_s < self._next_speech_s:
            return None
        self._next_speech_s = self.speech_s + self.step_s
        decision = self._decide(with_copies=False)
        self._outcomes.append(_final_outcome(decision))
        last = self._outcomes[-CONFIRMATIONS:]
        is_decided = last == CONFIRMATIONS * [last[0]] and last[0] != ""
        if is_decided:
            decision = self._decide(with_copies=True)
        return StreamUpdate(self.seconds, self.speech_s, decision, is_decided)

    def finish(self) -> StreamUpdate:
        """Return the decision about the whole stream."""
        if not self._blocks:
            raise AudioError("the stream is empty: there are no samples")
        decision = self._decide(with_copies=True)
        self._speech = self._detect_speech()
        return StreamUpdate(self.seconds, self.speech_s, decision, is_decided=True)

    def samples(self) -> Sound:
        """Return all samples."""
        return np.concatenate(self._blocks)

    def _detect_speech(self) -> BoolArray:
        """Return the mask of the frames that are speech."""
        samples = self.samples()
        if not samples.any():
            return np.zeros(0, dtype=bool)
        rate = self.voices.extractor.rate
        return SoundSegment(sound_from_array(samples, rate, self.rate), rate).speech

    def _decide(self, with_copies: bool) -> Decision:
        """Decide about the stream up to now.

        with_copies : whether to compare the stream with the enrolled recordings, if these have fingerprints
        """
        samples = self.samples()
        utterance = self.voices.extractor.utterance(samples, self.rate)
        copy_tests = []
        if with_copies and self.enrolled.copy_tests:
            copy_tests = [CopyTest.read(samples, self.rate)]
        spoof_scores = []
        if self.voices.detector is not None:
            spoof_scores = [self.voices.detector.raw_score_of(samples, self.rate)]
        tested = ExtractedVectors(
            utterance.vector[None],
            [0],
            [utterance.quality],
            [],
            copy_tests=copy_tests,
            spoof_scores=spoof_scores,
        )
        return self.voices.verify(self.enrolled, tested, self.question, **self.point_options)


def _final_outcome(decision: Decision) -> str:
    """Return the verdict if more speech should not change it; empty for a verdict that may be early."""
    if decision.answer == "accept":
        return "accept"
    if decision.answer == "reject" and decision.views.get(SPEAKER) == "reject":
        return "reject"
    return ""
