"""Verification of speech while it arrives, with a decision after every half second of speech."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

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


class LookSchedule:
    """Samples of a stream so far, and whether a decision about them is due.

    A decision is due whenever another `step_s` seconds of speech have arrived.

    Parameters
    ----------
    rate : samples per second of the stream
    detection_rate : samples per second to which the stream is resampled to detect speech
    step_s : seconds of speech between two decisions
    longest_s : maximum duration of the stream in seconds
    """

    def __init__(
        self,
        rate: int,
        detection_rate: int,
        step_s: float = STEP_S,
        longest_s: float = LONGEST_S,
    ) -> None:
        if not step_s > 0:
            raise ParameterError(
                f"step_s, the seconds of speech between decisions, must be positive; got {step_s}"
            )
        self.rate = rate
        self.detection_rate = detection_rate
        self.step_s = step_s
        self.longest_s = longest_s
        self._blocks: list[Sound] = []
        self._length = 0
        self._next_check_s = 0.0
        self._speech = np.zeros(0, dtype=bool)
        self._next_speech_s = step_s

    @property
    def seconds(self) -> float:
        """Duration of the stream so far, in seconds."""
        return self._length / self.rate

    @property
    def speech_s(self) -> float:
        """Duration of the speech in the stream, in seconds, as of the last detection of speech."""
        return float(self._speech.sum()) * SHIFT_S

    @property
    def has_ended(self) -> bool:
        """Whether the stream has speech followed by a pause of `PAUSE_S` seconds."""
        frames = np.flatnonzero(self._speech)
        return len(frames) > 0 and (len(self._speech) - frames[-1]) * SHIFT_S >= PAUSE_S

    def append(self, samples: Sound) -> bool:
        """Append samples, and return whether `is_due` should be called.

        The detection of speech takes time, so it is not repeated for every block of samples.

        samples : (n,) samples of one channel with full scale 1

        Raises
        ------
        AudioError
            The stream would be longer than `longest_s`.
        """
        if (self._length + len(samples)) / self.rate > self.longest_s:
            raise AudioError(
                f"the stream is longer than {self.longest_s:g} s, the limit: end it, and start another",
                "too_long",
            )
        self._blocks.append(np.asarray(samples, dtype=np.float32))
        self._length += len(samples)
        return self.seconds >= self._next_check_s

    def is_due(self) -> bool:
        """Detect speech, and return whether `step_s` seconds of speech were added since the last decision."""
        self._next_check_s = self.seconds + CHECK_S
        self.detect_speech()
        if self.speech_s < self._next_speech_s:
            return False
        self._next_speech_s = self.speech_s + self.step_s
        return True

    def samples(self) -> Sound:
        """Return all samples so far, (n,)."""
        return np.concatenate(self._blocks) if self._blocks else np.zeros(0, dtype=np.float32)

    def detect_speech(self) -> None:
        """Update `speech_s` and `has_ended` by detecting the speech in all samples so far.

        Earlier samples are included, because speech is detected relative to the loudest samples.
        """
        samples = self.samples()
        if samples.any():
            sound = sound_from_array(samples, self.detection_rate, self.rate)
            self._speech = SoundSegment(sound, self.detection_rate).speech


class SpeechStream:
    """Comparison of a stream of samples with enrolled recordings, while the speaker is still speaking.

    Each decision is about all samples so far; `finish` decides as `VoiceModel.verify` does about a recording of them. A
    stream is decided early if two consecutive decisions accept at the strictest operating point of the model, or if two
    reject because of the speaker. The requested operating point would accept up to 1.2 times as many impostors, because
    each decision is another chance (`benchmarks.studies.looks`). A rejection because of the phrase does not count,
    because the phrase may not have ended.

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
        self.voices = voices
        self.enrolled = enrolled
        self.rate = rate
        self.question = question
        self.point_options = point_options
        self._schedule = LookSchedule(rate, voices.extractor.rate, step_s)
        self._outcomes: list[str] = []
        self._strict_far = voices.stricter_far(enrolled, question, **point_options)

    @property
    def seconds(self) -> float:
        """Duration of the stream so far, in seconds."""
        return self._schedule.seconds

    @property
    def speech_s(self) -> float:
        """Duration of the speech in the stream, in seconds, as of the last detection of speech."""
        return self._schedule.speech_s

    @property
    def has_ended(self) -> bool:
        """Whether the stream has speech followed by a pause of `PAUSE_S` seconds."""
        return self._schedule.has_ended

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
        if not (self._schedule.append(samples) and self._schedule.is_due()):
            return None
        tested = self._tested(with_copies=False)
        decision = self._decide(tested)
        self._outcomes.append(self._outcome(decision, tested))
        is_decided = do_agree(self._outcomes)
        if is_decided:
            decision = self._decide(self._tested(with_copies=True))
        return StreamUpdate(self.seconds, self.speech_s, decision, is_decided)

    def finish(self) -> StreamUpdate:
        """Decide about the whole stream; raise `AudioError` if it is empty."""
        if not self.seconds:
            raise AudioError("the stream is empty: no samples arrived, so check the microphone")
        decision = self._decide(self._tested(with_copies=True))
        self._schedule.detect_speech()
        return StreamUpdate(self.seconds, self.speech_s, decision, is_decided=True)

    def samples(self) -> Sound:
        """Return all samples of the stream so far, (n,)."""
        return self._schedule.samples()

    def _decide(self, tested: ExtractedVectors) -> Decision:
        """Decide about all samples so far, at the requested operating point."""
        return self.voices.verify(self.enrolled, tested, self.question, **self.point_options)

    def _outcome(self, decision: Decision, tested: ExtractedVectors) -> str:
        """Return "accept" or "reject" if more speech should not change this verdict, else "".

        A rejection counts if the speaker is rejected. For an acceptance, the verdict at the
        strictest operating point is returned.
        """
        if decision.answer == "reject" and decision.views.get(SPEAKER) == "reject":
            return "reject"
        if decision.answer != "accept" or self._strict_far is None:
            return ""
        far = self._strict_far
        return self.voices.verify(self.enrolled, tested, self.question, far=far).answer

    def _tested(self, with_copies: bool) -> ExtractedVectors:
        """Return all samples so far as the tested side of a comparison.

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
        return ExtractedVectors(
            utterance.vector[None],
            [0],
            [utterance.quality],
            [],
            copy_tests=copy_tests,
            spoof_scores=spoof_scores,
        )


def do_agree(outcomes: Sequence[str]) -> bool:
    """Return whether the last `CONFIRMATIONS` outcomes are the same verdict.

    outcomes : per decision "accept" or "reject", or "" if it does not count
    """
    last = set(outcomes[-CONFIRMATIONS:])
    return len(outcomes) >= CONFIRMATIONS and len(last) == 1 and last <= {"accept", "reject"}
