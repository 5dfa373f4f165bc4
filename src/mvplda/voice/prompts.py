"""Prompted text: random words to be said, which no recording holds, and the check that they were said."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

import numpy as np

from .._typing import FloatArray
from .audio.decode import Sound
from .audio.speech_detection import SoundSegment

PromptKind = Literal["words", "digits"]

DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
COMMANDS = ("down", "go", "left", "no", "off", "on", "right", "stop", "up", "yes")
VOCABULARY: Mapping[PromptKind, tuple[str, ...]] = {"words": DIGITS + COMMANDS, "digits": DIGITS}
"""Words that prompts consist of, in English: those that results/prompted-text measures."""

PROMPT_WORDS = 4
"""Words per prompt, all different: 116,280 prompts of words, 5,040 of digits."""

LEAST_LOG_PROBABILITY = -7.0
"""Log probability of a prompt, given a recording, from which it was said: results/prompted-text."""


class TextModel(Protocol):
    """Recogniser that returns the probability of texts, such as `mvplda.voice.extractors.decoder.TextDecoder`."""

    def log_probabilities(self, sound: Sound | SoundSegment, texts: Sequence[str]) -> FloatArray:
        """Return the log probability of each text, (n,)."""
        ...


def draw_prompt(kind: PromptKind, count: int = PROMPT_WORDS) -> tuple[str, ...]:
    """Return different random words of a vocabulary."""
    return tuple(secrets.SystemRandom().sample(VOCABULARY[kind], count))


def renderings(words: Sequence[str]) -> list[str]:
    """Return the texts that a recogniser may write for words said one after the other."""
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
    """Return the log probability that the words, and no others, were said: the sum over their renderings.

    The probabilities of all texts sum to 1, so that other texts need no search.
    """
    return float(np.logaddexp.reduce(model.log_probabilities(sound, renderings(words))))


def is_prompt_said(log_probability: float) -> bool:
    """Return whether a log probability of `prompt_log_probability` is that of the prompted words."""
    return log_probability >= LEAST_LOG_PROBABILITY
