"""Prompted words: random, in several renderings, and accepted only if they were said."""

from __future__ import annotations

import shutil
import subprocess

import numpy as np
import pytest

from mvplda.decisions import Decision, HalfThreshold
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
    prompted_words,
    renderings,
    with_prompt,
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
    assert is_prompt_said(words, np.log(0.7))
    other = prompt_log_probability(heard, np.zeros(10), ("seven", "two", "nine", "three"))
    assert other < min(LEAST_LOG_PROBABILITY.values())
    assert not is_prompt_said(words, other)
    assert not is_prompt_said(words, float("nan"))


def test_the_limit_is_that_of_the_kind():
    between = sum(LEAST_LOG_PROBABILITY.values()) / 2
    assert is_prompt_said(("seven", "stop"), between)
    assert not is_prompt_said(("seven", "two"), between)
    assert prompted_words(" Seven, two  ") == ("seven", "two")


def test_renderings_are_different_and_end_with_the_last_word():
    for words in (DIGITS[:4], ("stop", "two", "yes", "left")):
        texts = renderings(words)
        assert len(set(texts)) == len(texts) >= 5
        assert texts[0] == f"{', '.join(words).capitalize()}."


@pytest.mark.parametrize(
    ("voice", "log_probability", "answer", "reason"),
    [
        ("accept", -1.0, "accept", None),
        ("accept", -30.0, "reject", "wrong_phrase"),
        ("accept", None, "reject", "wrong_phrase"),
        ("reject", -1.0, "reject", "wrong_speaker"),
        ("reject", -30.0, "reject", "both"),
        ("inconclusive", -1.0, "inconclusive", "not_enough_evidence"),
        ("inconclusive", -30.0, "reject", "wrong_phrase"),
    ],
)
def test_voice_and_words_are_both_required(voice, log_probability, answer, reason):
    reasons = {"accept": None, "reject": "wrong_speaker", "inconclusive": "not_enough_evidence"}
    decision = Decision(voice, reasons[voice], 0.0, 1.0, {}, {"speaker": voice})
    both = with_prompt(decision, ("stop", "two"), log_probability)
    assert (both.answer, both.reason) == (answer, reason)
    assert both.views == {
        "speaker": voice,
        "phrase": "accept" if log_probability == -1 else "reject",
    }


@pytest.mark.parametrize(
    ("log_probability", "sentence"),
    [
        (-1.0, "Accepted: same speaker and phrase (speaker LLR +7.00, accepts from 5.00)."),
        (-30.0, "Rejected: wrong phrase (speaker LLR +7.00, accepts from 5.00)."),
    ],
)
def test_a_sentence_has_no_threshold_of_prompted_words(log_probability, sentence):
    halves = {"speaker": HalfThreshold(5.0)}
    llrs = {"speaker": 7.0}
    decision = Decision("accept", None, 7.0, 5.0, {}, {"speaker": "accept"}, llrs, halves=halves)
    both = with_prompt(decision, ("stop", "two"), log_probability)
    assert both.sentence() == sentence
    assert set(both.to_dict()["halves"]) == {"speaker"}


@pytest.mark.parametrize("reason", ["suspected_replay", "unusable_recording"])
def test_words_do_not_change_decisions_without_a_comparison(reason):
    decision = Decision("reject", reason, 0.0, 1.0, {})
    assert with_prompt(decision, ("stop", "two"), -30.0) is decision


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
        assert is_prompt_said(words, own), own
        for others in (prompts[1 - number], words[::-1]):
            log_probability = prompt_log_probability(decoder, sound, others)
            assert not is_prompt_said(others, log_probability), others
