"""Verification of speech while it arrives, with a decision after every half second of speech."""

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
"""Default seconds of speech between two decisions."""
LONGEST_S = 30.0
"""Maximum duration of a stream in seconds, that of the longest segment of an extractor."""
CHECK_S = 0.2
"""Seconds of sound between two detections of speech."""
PAUSE_S = 1.0
"""Seconds of silence after which a phrase has ended."""
CONFIRMATIONS = 2
"""Number of consecutive decisions that must agree before a stream is decided, because a single one may be chance."""
SPEAKER = "speaker"


@dataclass(frozen=True)
class StreamUpdate:
    """Decision about the samples of a stream so far.

    seconds, speech_s : duration of the stream, and of the speech in it, in seconds
    decision : decision about all samples so far, as `VoiceModel.verify` makes it for a recording
    is_decided : whether the stream may be ended, because more speech should not change the decision
    """

    seconds: float
    speech_s: float
    decision: Decision
    is_decided: bool


class SpeechStream:
    """Comparison of a stream of samples with enrolled recordings, while the speaker is still speaking.

    Each decision is about all samples so far; `finish` decides as `VoiceModel.verify` does about a recording of them. A
    stream is decided if two consecutive decisions accept, or if two reject because of the speaker. A rejection because
    of the phrase does not count, because the phrase may not have ended.

    Parameters
    ----------
    voices : model
    enrolled : enrolled recordings, from `VoiceModel.side` or `ProfileBook.of`
    rate : samples per second of the stream
    question : question to decide; None: is every view the same?
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
            raise ParameterError(
                f"step_s, the seconds of speech between decisions, must be positive; got {step_s}"
            )
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
        """Duration of the stream so far, in seconds."""
        return sum(map(len, self._blocks)) / self.rate

    @property
    def speech_s(self) -> float:
        """Duration of the speech in the stream, in seconds, as of the last detection of speech."""
        return float(self._speech.sum()) * SHIFT_S

    @property
    def has_ended(self) -> bool:
        """Whether the stream has speech followed by a pause of `PAUSE_S` seconds."""
        frames = np.flatnonzero(self._speech)
        return len(frames) > 0 and (len(self._speech) - frames[-1]) * SHIFT_S >= PAUSE_S

    def add(self, samples: Sound) -> StreamUpdate | None:
        """Append samples, and decide if `step_s` seconds of speech were added since the last decision.

        Parameters
        ----------
        samples : (n,) samples of one channel with full scale 1

        Returns
        -------
        decision about all samples so far; None if there is not enough new speech

        Raises
        ------
        AudioError
            The stream would be longer than `LONGEST_S`.
        """
        if self.seconds + len(samples) / self.rate > LONGEST_S:
            raise AudioError(
                f"the stream is longer than {LONGEST_S:g} s, the limit: end it, and start another",
                "too_long",
            )
        self._blocks.append(np.asarray(samples, dtype=np.float32))
        # speech is detected in all samples each time, because levels are relative to the loudest
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
        """Decide about the whole stream; raise `AudioError` if it is empty."""
        if not self._blocks:
            raise AudioError("the stream is empty: no samples arrived, so check the microphone")
        decision = self._decide(with_copies=True)
        self._speech = self._detect_speech()
        return StreamUpdate(self.seconds, self.speech_s, decision, is_decided=True)

    def samples(self) -> Sound:
        """Return all samples of the stream so far, (n,)."""
        return np.concatenate(self._blocks)

    def _detect_speech(self) -> BoolArray:
        """Return a (T,) mask of the frames of the stream that are speech; (0,) if the stream is silent."""
        samples = self.samples()
        if not samples.any():
            return np.zeros(0, dtype=bool)
        rate = self.voices.extractor.rate
        return SoundSegment(sound_from_array(samples, rate, self.rate), rate).speech

    def _decide(self, with_copies: bool) -> Decision:
        """Decide about all samples so far, as `VoiceModel.verify` does about a recording.

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
    """Return "accept", "reject" because of the speaker, or "" for verdicts that more speech may change."""
    if decision.answer == "accept":
        return "accept"
    if decision.answer == "reject" and decision.views.get(SPEAKER) == "reject":
        return "reject"
    return ""
