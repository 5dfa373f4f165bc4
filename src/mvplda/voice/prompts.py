"""Prompted text: random words that a person must say, so that a replay of an earlier recording fails.

A speech recogniser checks that the words were said.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal, Protocol

import numpy as np

from .._typing import FloatArray
from ..decisions import Decision
from .audio.decode import Sound
from .audio.speech_detection import SoundSegment

PromptKind = Literal["words", "digits"]

DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
COMMANDS = ("down", "go", "left", "no", "off", "on", "right", "stop", "up", "yes")
VOCABULARY: Mapping[PromptKind, tuple[str, ...]] = {"words": DIGITS + COMMANDS, "digits": DIGITS}
"""English words of prompts by kind; results/prompted-text measures them."""

PROMPT_WORDS = 4
"""Number of words per prompt, all different. There are 116,280 prompts of words and 5,040 of digits."""

LEAST_LOG_PROBABILITY: Mapping[PromptKind, float] = {"words": -13.0, "digits": -7.0}
"""Minimum log probability of the prompt, given a recording, for the decision that the prompt was said; measured in
results/prompted-text. It is higher for digits, which are more often confused with each other."""


class TextModel(Protocol):
    """Interface of a speech recogniser, such as `mvplda.voice.extractors.decoder.TextDecoder`."""

    def log_probabilities(self, sound: Sound | SoundSegment, texts: Sequence[str]) -> FloatArray:
        """Return the (n,) log probability of each of n texts, given a sound."""
        ...


def draw_prompt(kind: PromptKind, count: int = PROMPT_WORDS) -> tuple[str, ...]:
    """Draw different random words for a prompt.

    Parameters
    ----------
    kind : vocabulary, "words" or "digits"
    count : number of words
    """
    return tuple(secrets.SystemRandom().sample(VOCABULARY[kind], count))


def prompted_words(text: str) -> tuple[str, ...]:
    """Split the text of a prompt into its words, in lower case; words are separated by spaces or commas."""
    return tuple(text.casefold().replace(",", " ").split())


def renderings(words: Sequence[str]) -> list[str]:
    """Return the texts by which a speech recogniser may write the given words in their order.

    They differ in commas, full stops and capitals, and digits may be written as numbers.
    """
    commas = ", ".join(words)
    blanks = " ".join(words)
    texts = [
        f"{commas.capitalize()}.",
        f"{blanks.capitalize()}.",
        blanks.capitalize(),
        " ".join(f"{word.capitalize()}." for word in words),
        f"{words[0].capitalize()} {', '.join(words[1:])}.",
    ]
    if set(words) <= set(DIGITS):
        numbers = [str(DIGITS.index(word)) for word in words]
        texts += [f"{', '.join(numbers)}.", f"{' '.join(numbers)}."]
    return list(dict.fromkeys(texts))


def prompt_log_probability(
    model: TextModel, sound: Sound | SoundSegment, words: Sequence[str]
) -> float:
    """Return the log probability that exactly these words were said, in this order.

    The probability is summed over the texts of `renderings`. The probabilities of all possible texts sum to 1, so no
    other text needs to be searched for.

    Parameters
    ----------
    model : speech recogniser
    sound : (n,) samples at the recogniser's rate, or `SoundSegment`
    words : words of the prompt
    """
    return float(np.logaddexp.reduce(model.log_probabilities(sound, renderings(words))))


def is_prompt_said(words: Sequence[str], log_probability: float) -> bool:
    """Return whether a prompt was said: whether its log probability is at least a threshold.

    The thresholds for prompts of digits and of other words are in `LEAST_LOG_PROBABILITY`.

    Parameters
    ----------
    words : words of the prompt
    log_probability : result of `prompt_log_probability` for the recording
    """
    kind: PromptKind = "digits" if set(words) <= set(DIGITS) else "words"
    return log_probability >= LEAST_LOG_PROBABILITY[kind]


def with_prompt(
    decision: Decision, words: Sequence[str], log_probability: float | None
) -> Decision:
    """Return a decision that also depends on whether prompted words were said.

    If they were said, the verdict about the voice is kept; if not, the verdict is reject, with the
    reason wrong_phrase or both. A decision with the reason suspected_replay or
    unusable_recording is returned unchanged.

    Parameters
    ----------
    decision : decision about the voice
    words : words of the prompt
    log_probability : result of `prompt_log_probability`; None: the words were not checked, and count as not said
    """
    if decision.reason in ("suspected_replay", "unusable_recording"):
        return decision
    if log_probability is not None and is_prompt_said(words, log_probability):
        return replace(decision, views={**decision.views, "phrase": "accept"})
    is_other_voice = decision.views.get("speaker") == "reject"
    return replace(
        decision,
        answer="reject",
        reason="both" if is_other_voice else "wrong_phrase",
        views={**decision.views, "phrase": "reject"},
    )
