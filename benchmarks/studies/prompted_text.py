"""Challenges of prompted words: how often owners pass, and replays of other words and impostors do.

``python -m benchmarks.studies.prompted_text DATA [-o results/prompted-text]``. DATA holds audiomnist/,
speech_commands/, cvau/ and wuw/. Prompts are joined from recordings of single digits of AudioMNIST, of every second
person, and of single commands of Speech Commands. The default model was trained on the people of both. A person
enrols three recordings of a phrase of joined words. Voices are compared as the service compares them, with the default
model, deployed to the enrolled people. Replays are recordings of other words: other prompts, words in another order,
one word replaced, pass-phrases of C-VAU and telephone calls of WUW. The decoder must be in the cache (``mvplda
extractor get sounds --decoder``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import beta

from benchmarks.clips import Clips
from benchmarks.report import markdown_rows, study_command
from mvplda.serve.cells import Cell, Integers
from mvplda.serve.model import Model, VerificationTrial
from mvplda.serve.model_loading import open_model
from mvplda.serve.settings import Settings
from mvplda.voice.attacks.attack import RATE, Sound
from mvplda.voice.attacks.copies import telephone
from mvplda.voice.audio.decode import read_audio
from mvplda.voice.audio.speech_detection import SoundSegment
from mvplda.voice.extractors.decoder import TextDecoder, load_decoder
from mvplda.voice.prompts import (
    VOCABULARY,
    is_prompt_said,
    prompt_log_probability,
    with_prompt,
)

TRAINED_STEP = {"audiomnist": 2}
"""Every n-th speaker was used to train the default model with which results/prompted-text was made."""
ENROLMENTS = 3
PAUSE_S = (0.1, 0.3)
"""Pauses between words."""
TRIES = 4
"""Prompts per person: two first tries, each followed by a second one."""
OTHERS = 3
"""Other prompts that each recording is compared with."""
SNR_DB = 20.0
OUTSIDE = {"pass-phrases of C-VAU": "cvau", "telephone calls of WUW": "wuw"}
OUTSIDE_RECORDINGS = 200
"""Recordings per corpus whose words belong to no prompt."""

Words = tuple[str, ...]
Take = Callable[[str, int], Sound]


class Person(NamedTuple):
    """Person with recordings of single words.

    name : name of the person
    words : words with enough recordings
    take : function that returns a recording of a word by its number
    counts : number of recordings per word
    """

    name: str
    words: list[str]
    take: Take
    counts: Mapping[str, int]


class Attempt(NamedTuple):
    """Recording of prompted words.

    person : index of the person who said them
    """

    person: int
    words: Words
    sound: Sound


# -- people and their recordings ---------------------------------------------------------


def digit_people(data: Path) -> list[Person]:
    """Return the people of AudioMNIST that the default model was not trained on."""
    clips = Clips(data / "audiomnist")
    speakers = sorted({key[0] for key in clips.rows})
    trained = set(speakers[:: TRAINED_STEP["audiomnist"]])
    digits = list(VOCABULARY["digits"])

    def take_of(speaker: int) -> Take:
        return lambda word, number: 0.5 * clips[speaker, digits.index(word), number]

    return [
        Person(f"{speaker:02d}", digits, take_of(speaker), dict.fromkeys(digits, 20))
        for speaker in speakers
        if speaker not in trained
    ]


def command_people(data: Path) -> list[Person]:
    """Return the people of Speech Commands with at least four words of at least four recordings."""
    people = []
    for folder in sorted((data / "speech_commands").iterdir()):
        if not folder.is_dir():
            continue
        files = {path.name: sorted(path.glob("*.flac")) for path in sorted(folder.iterdir())}
        words = [word for word, found in files.items() if len(found) >= 4]
        if len(words) < 4:
            continue

        def take(word: str, number: int, files: Mapping[str, list[Path]] = files) -> Sound:
            sound = read_audio(files[word][number], RATE)
            spoken = SoundSegment(sound, RATE).cut(0.05)
            return np.asarray(0.5 * spoken / max(np.abs(spoken).max(), 1e-6))

        counts = {word: len(files[word]) for word in words}
        people.append(Person(folder.name, words, take, counts))
    return people


def join(sounds: Sequence[Sound], rng: np.random.Generator) -> Sound:
    """Return words with pauses between them."""
    parts = [np.zeros(RATE // 4)]
    for sound in sounds:
        parts += [sound, np.zeros(round(rng.uniform(*PAUSE_S) * RATE))]
    joined = np.concatenate([*parts, np.zeros(RATE // 4)])
    # silence of zeros occurs in no recording
    return np.asarray(joined + 1e-4 * rng.standard_normal(len(joined)))


def enrolments(person: Person, rng: np.random.Generator) -> list[Sound]:
    """Return three recordings of four words, joined from the first three recordings of each."""
    words = [str(word) for word in rng.choice(person.words, 4, replace=False)]
    return [
        join([person.take(word, number) for word in words], rng) for number in range(ENROLMENTS)
    ]


def attempts(people: Sequence[Person], rng: np.random.Generator) -> list[Attempt]:
    """Return `TRIES` prompts per person, joined from recordings that enrolled nothing."""
    found = []
    for index, person in enumerate(people):
        for _ in range(TRIES):
            words = tuple(str(word) for word in rng.choice(person.words, 4, replace=False))
            takes = [
                person.take(word, int(rng.integers(ENROLMENTS, person.counts[word])))
                for word in words
            ]
            found.append(Attempt(index, words, join(takes, rng)))
    return found


# -- the text ----------------------------------------------------------------------------


def add_noise(sound: Sound, rng: np.random.Generator) -> Sound:
    """Add white noise `SNR_DB` below the speech."""
    power = np.mean(np.square(sound)) * 10 ** (-SNR_DB / 10)
    return np.asarray(sound + np.sqrt(power) * rng.standard_normal(len(sound)))


CONDITIONS: Mapping[str, Callable[[Sound, np.random.Generator], Sound]] = {
    "clean": lambda sound, rng: sound,
    "telephone": telephone,
    "noise at 20 dB": add_noise,
}


def other_texts(
    words: Words, vocabulary: Sequence[str], rng: np.random.Generator
) -> dict[str, list[Words]]:
    """Return texts that a recording of these words does not hold, by kind."""
    replaced = list(words)
    spare = [word for word in vocabulary if word not in words]
    replaced[int(rng.integers(len(words)))] = str(rng.choice(spare))
    order = list(words)
    while tuple(order) == words:
        rng.shuffle(order)
    others: list[Words] = []
    while len(others) < OTHERS:
        drawn = tuple(str(word) for word in rng.choice(vocabulary, len(words), replace=False))
        if drawn != words:
            others.append(drawn)
    return {
        "another prompt": others,
        "one word replaced": [tuple(replaced)],
        "words in another order": [tuple(order)],
    }


def text_rows(
    decoder: TextDecoder, tests: Sequence[Attempt], vocabulary: Sequence[str]
) -> dict[str, Any]:
    """Return acceptance by the text alone, by condition."""
    rows: dict[str, Any] = {}
    for condition, change in CONDITIONS.items():
        rng = np.random.default_rng(1)
        said: dict[str, list[bool]] = {}
        for test in tests:
            sound = np.asarray(change(test.sound, rng), np.float32)
            texts = {"the prompt": [test.words], **other_texts(test.words, vocabulary, rng)}
            for kind, prompts in texts.items():
                said.setdefault(kind, []).extend(
                    is_prompt_said(words, prompt_log_probability(decoder, sound, words))
                    for words in prompts
                )
        rows[condition] = {kind: accepted(np.array(flags)) for kind, flags in said.items()}
    return rows


def outside_rows(decoder: TextDecoder, data: Path) -> dict[str, Any]:
    """Return acceptance of recordings of other phrases, compared with one random prompt of each kind."""
    rng = np.random.default_rng(2)
    rows = {}
    for name, folder in OUTSIDE.items():
        files = sorted((data / folder).glob("*/*/*.flac"))
        chosen = rng.choice(len(files), min(len(files), OUTSIDE_RECORDINGS), replace=False)
        said = []
        for number in chosen:
            sound = read_audio(files[number], RATE)
            for kind in VOCABULARY:
                words = tuple(str(word) for word in rng.choice(VOCABULARY[kind], 4, replace=False))
                log_probability = prompt_log_probability(decoder, sound, words)
                said.append(is_prompt_said(words, log_probability))
        rows[name] = accepted(np.array(said))
    return rows


# -- text and voice ----------------------------------------------------------------------


def decision_rows(
    model: Model, decoder: TextDecoder, people: Sequence[Person], tests: Sequence[Attempt]
) -> dict[str, Any]:
    """Return decisions about owners and impostors who say the right words, with the usual operating point."""
    rng = np.random.default_rng(3)
    profiles = [enrolled_cells(model, person, rng) for person in people]
    point = model.bundle.point(model.question(is_prompted=True))
    deployed = model.deployed(profiles)
    owners, voices, impostors = [], [], []
    for test in tests:
        share = share_of(model, test.sound)
        log_probability = prompt_log_probability(
            decoder, np.asarray(test.sound, np.float32), test.words
        )
        trials = [
            VerificationTrial(cells, Cell("", share, 1), None, point, is_prompted=True)
            for cells in profiles
        ]
        decisions = deployed.decisions(trials)
        own = decisions.pop(test.person)
        voices.append(own.answer == "accept")
        own = with_prompt(own, test.words, log_probability)
        owners.append(own.answer == "accept")
        others = [with_prompt(decision, test.words, log_probability) for decision in decisions]
        impostors += [other.answer == "accept" for other in others]
    first = np.array(owners[0::2])
    second = np.array(owners[1::2])
    return {
        "promised FAR": point.far,
        "people": len(people),
        "owners, first try": accepted(first),
        "owners, within two tries": accepted(first | second),
        "owners, voice alone": accepted(np.array(voices)),
        "impostors who say the words": accepted(np.array(impostors)),
    }


def enrolled_cells(model: Model, person: Person, rng: np.random.Generator) -> list[Cell]:
    """Return the sums of three recordings of a person, in one session."""
    shares = [share_of(model, sound) for sound in enrolments(person, rng)]
    return [Cell("phrase", np.sum(shares, axis=0), len(shares), "first")]


def share_of(model: Model, sound: Sound) -> Integers:
    """Return the summand of a recording in the sums of a profile."""
    assert model.extractor is not None
    vector = model.extractor(np.asarray(sound, np.float32), RATE)
    return model.contributions(vector[None])[0]


def accepted(flags: np.ndarray) -> dict[str, Any]:
    """Return count and share of accepted trials, with a 95 % interval (Clopper and Pearson)."""
    count, total = int(flags.sum()), len(flags)
    low = float(beta.ppf(0.025, count, total - count + 1)) if count else 0.0
    high = float(beta.ppf(0.975, count + 1, total - count)) if count < total else 1.0
    return {"trials": total, "accepted": count, "share": count / total, "low": low, "high": high}


# -- the study ---------------------------------------------------------------------------


def study(data: Path) -> dict[str, Any]:
    """Measure the text alone, and text and voice together."""
    model = open_model(Settings())
    decoder = load_decoder()
    found: dict[str, Any] = {}
    for name, people in (
        ("joined digits of AudioMNIST", digit_people(data)),
        ("joined commands of Speech Commands", command_people(data)),
    ):
        tests = attempts(people, np.random.default_rng(0))
        vocabulary = sorted({word for person in people for word in person.words})
        found[name] = {
            "text": text_rows(decoder, tests, vocabulary),
            "text and voice": decision_rows(model, decoder, people, tests),
        }
    found["recordings of other phrases"] = {"text": outside_rows(decoder, data)}
    return found


def table(found: Mapping[str, Any]) -> str:
    """Return the results as Markdown."""
    head = ["recordings", "what is decided", "", "trials", "accepted, %", "95 % interval"]
    rows = []
    for name, results in found.items():
        if name == "recordings of other phrases":
            rows += [
                [name, f"text: {kind} against a prompt", "", *_cells(row)]
                for kind, row in results["text"].items()
            ]
            continue
        for kind, row in results["text and voice"].items():
            if isinstance(row, dict):
                rows.append([name, f"text and voice: {kind}", "clean", *_cells(row)])
        for condition, kinds in results["text"].items():
            rows += [
                [name, f"text: {kind}", condition, *_cells(row)] for kind, row in kinds.items()
            ]
    return "\n".join(markdown_rows([head, *rows])) + "\n"


def _cells(row: Mapping[str, Any]) -> list[str]:
    interval = f"{100 * row['low']:.2f} to {100 * row['high']:.2f}"
    return [f"{row['trials']:,}", f"{100 * row['share']:.2f}", interval]


if __name__ == "__main__":
    study_command(
        "prompted-text",
        __doc__,
        study,
        table,
        reads=["audiomnist", "speech_commands", "cvau", "wuw"],
    )
