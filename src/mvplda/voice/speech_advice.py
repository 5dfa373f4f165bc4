"""Advice about the amount of speech, for verdicts that lack evidence."""

from __future__ import annotations

from typing import NamedTuple

ENOUGH_RECORDINGS = 3
"""Enrolled recordings from which more of them hardly help."""

ENOUGH_SPEECH_S = 2.0
"""Seconds of speech per recording from which most owners are accepted, at the strict points too."""


class SpeechAmount(NamedTuple):
    """Number of recordings of a side, and seconds of speech in all of them; 0 s if it is not known."""

    recordings: int
    speech_s: float

    @property
    def is_short(self) -> bool:
        """Whether the recordings have less speech than suffices, on average."""
        return 0 < self.speech_s < self.recordings * ENOUGH_SPEECH_S


def speech_advice(enrolled: SpeechAmount, tested: SpeechAmount) -> str | None:
    """Return advice to enrol or say more, with the speech measured and wanted; None if there is enough of both.

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
    wanted = f"{ENOUGH_RECORDINGS} recordings of {ENOUGH_SPEECH_S:g} s or more, and a test as long, usually suffice"
    return f"{measured}; {wanted}: {', or '.join(steps)}."
