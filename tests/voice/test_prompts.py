"""Prompted words: random, in several renderings, and accepted only if they were said."""

from __future__ import annotations

import shutil
import subprocess

import numpy as np
import pytest

from mvplda.exceptions import FetchError
from mvplda.voice.audio.decode import read_audio
from mvplda.voice.extractors.decoder import load_decoder
from mvplda.voice.prompts import (
    DIGITS,
    LEAST_LOG_PROBABILITY,
    PROMPT_WORDS,
    VOCABULARY,
    draw_prompt,
    is_prompt_said,
    prompt_log_probability,
    renderings,
)


class Listener:
    """Recogniser that has heard one text, with these probabilities of its renderings."""

    def __init__(self, probabilities: dict[str, float]) -> None:
        self.probabilities = probabilities

    def log_probabilities(self, sound, texts):
        return np.log([self.probabilities.get(text, 1e-12) for text in texts])


@pytest.mark.parametrize("kind", VOCABULARY)
def test_prompts_are_different_words_in_random_order(kind):
    prompts = [draw_prompt(kind) for _ in range(200)]
    assert all(len(set(prompt)) == PROMPT_WORDS for prompt in prompts)
    assert {word for prompt in prompts for word in prompt} == set(VOCABULARY[kind])
    assert len(set(prompts)) > 180


def test_probabilities_of_renderings_are_added():
    words = ("seven", "two", "nine", "one")
    heard = Listener({"Seven, two, nine, one.": 0.4, "7, 2, 9, 1.": 0.3})
    assert prompt_log_probability(heard, np.zeros(10), words) == pytest.approx(np.log(0.7))
    assert is_prompt_said(np.log(0.7))
    other = prompt_log_probability(heard, np.zeros(10), ("seven", "two", "nine", "three"))
    assert other < LEAST_LOG_PROBABILITY
    assert not is_prompt_said(other)
    assert not is_prompt_said(float("nan"))


def test_renderings_are_different_and_end_with_the_last_word():
    for words in (DIGITS[:4], ("stop", "two", "yes", "left")):
        texts = renderings(words)
        assert len(set(texts)) == len(texts) >= 5
        assert texts[0] == f"{', '.join(words).capitalize()}."


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("espeak-ng") is None, reason="needs the program espeak-ng")
def test_the_recogniser_accepts_the_words_that_are_said(tmp_path):
    try:
        decoder = load_decoder()
    except FetchError as error:
        pytest.skip(str(error))
    prompts = [("seven", "stop", "two", "yes"), ("nine", "zero", "four", "one")]
    for number, words in enumerate(prompts):
        path = tmp_path / f"{number}.wav"
        text = ", ".join(words)
        command = ["espeak-ng", "-v", "en-us", "-s", "130", "-w", str(path), text]
        subprocess.run(command, check=True)
        sound = read_audio(path, decoder.rate)
        own = prompt_log_probability(decoder, sound, words)
        assert is_prompt_said(own), own
        replaced = [*words[:2], "three", words[3]]
        for others in (prompts[1 - number], replaced, words[::-1], words[:3]):
            assert not is_prompt_said(prompt_log_probability(decoder, sound, others)), others
