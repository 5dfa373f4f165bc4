"""Prompted text: random words to be said, other than those of earlier recordings, and the check that they were."""

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
"""Words that prompts consist of, in English: those that results/prompted-text measures."""

PROMPT_WORDS = 4
"""Words per prompt, all different: 116,280 prompts of words, 5,040 of digits."""

LEAST_LOG_PROBABILITY: Mapping[PromptKind, float] = {"words": -13.0, "digits": -7.0}
"""Log probability of a prompt, given a recording, from which it was said: results/prompted-text. Digits are recognised
more surely than other words, and confused with each other more often."""


class TextModel(Protocol):
    """Recogniser that returns the probability of texts, such as `mvplda.voice.extractors.decoder.TextDecoder`."""

    def log_probabilities(self, sound: Sound | SoundSegment, texts: Sequence[str]) -> FloatArray:
        """Return the log probability of each text, (n,)."""
        ...


def draw_prompt(kind: PromptKind, count: int = PROMPT_WORDS) -> tuple[str, ...]:
    """Return different random words of a vocabulary."""
    return tuple(secrets.SystemRandom().sample(VOCABULARY[kind], count))


def prompted_words(text: str) -> tuple[str, ...]:
    """Return the words of a prompt that is given as text."""
    return tuple(text.casefold().replace(",", " ").split())


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


def is_prompt_said(words: Sequence[str], log_probability: float) -> bool:
    """Return whether prompted words with this `prompt_log_probability` were said."""
    kind: PromptKind = "digits" if set(words) <= set(DIGITS) else "words"
    return log_probability >= LEAST_LOG_PROBABILITY[kind]


def with_prompt(
    decision: Decision, words: Sequence[str], log_probability: float | None
) -> Decision:
    """Return the decision about the voice together with that about prompted words: accepted only if both are.

    A copy stays a suspected replay, and an unusable recording inconclusive.

    words : the prompted words
    log_probability : of `prompt_log_probability`; None: the words were not looked for, and are rejected
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
