"""Advice on the amount of speech, given with a verdict that is inconclusive for lack of evidence."""

from __future__ import annotations

from typing import NamedTuple

ENOUGH_RECORDINGS = 3
"""Number of enrolled recordings beyond which more recordings hardly help."""

ENOUGH_SPEECH_S = 2.0
"""Seconds of speech per recording that suffice to accept most owners, also at strict operating points."""


class SpeechAmount(NamedTuple):
    """Amount of speech on one side of a comparison.

    recordings : number of recordings
    speech_s : seconds of speech in all of them; 0 if unknown
    """

    recordings: int
    speech_s: float

    @property
    def is_short(self) -> bool:
        """Whether the mean speech per recording is below `ENOUGH_SPEECH_S`; False if the speech is unknown."""
        return 0 < self.speech_s < self.recordings * ENOUGH_SPEECH_S


def speech_advice(enrolled: SpeechAmount, tested: SpeechAmount) -> str | None:
    """Return a sentence of advice to enrol more recordings or use a longer phrase; None if both sides have enough.

    Parameters
    ----------
    enrolled, tested : amount of speech on both sides

    Examples
    --------
    >>> print(speech_advice(SpeechAmount(2, 5.0), SpeechAmount(1, 2.5)).partition("; ")[0])
    The enrolled side has 2 recordings with 5.0 s of speech, the tested side 2.5 s
    """
    steps = []
    if enrolled.recordings < ENOUGH_RECORDINGS:
        steps.append("add another recording of this person")
    if enrolled.is_short or tested.is_short:
        steps.append("use a longer phrase")
    if not steps:
        return None
    plural = "" if enrolled.recordings == 1 else "s"
    measured = f"The enrolled side has {enrolled.recordings} recording{plural}"
    if enrolled.speech_s:
        measured += f" with {enrolled.speech_s:.1f} s of speech"
    if tested.speech_s:
        measured += f", the tested side {tested.speech_s:.1f} s"
    sufficient = f"{ENOUGH_RECORDINGS} recordings of {ENOUGH_SPEECH_S:g} s or more, and a test as long, usually suffice"
    return f"{measured}; {sufficient}: {', or '.join(steps)}."
