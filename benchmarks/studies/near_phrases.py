"""Are nearly the right words told from the right ones? Three digits, one of them replaced, or in another order.

``python -m benchmarks.studies.near_phrases DATA [-o results/near_phrases]``. DATA holds audiomnist/. Everybody says
phrases of three joined digits: three takes enrol, two test, and the same person says the phrase with another first,
second or third digit, with its digits in another order, and other phrases. Cosines of ``words`` about the mean of what
is enrolled, as the recipe has it and without the silence that it puts around the speech.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.report import study_command
from mvplda.metrics import eer
from mvplda.paper.corpora import load_corpus
from mvplda.voice.audio.decode import read_audio
from mvplda.voice.extractors import load_extractor
from tools.default_model.recordings import RATE, join_recordings

PEOPLE = 12
PHRASES = 4
ENROLLED = 3
TAKES = 5
KINDS = ("first word", "second word", "third word", "other order", "other phrase")


def variants(phrase: np.ndarray, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """The phrase with another digit in one place, and in another order."""
    others = rng.permutation(np.setdiff1d(np.arange(10), phrase))
    made = {}
    for place, kind in enumerate(KINDS[:3]):
        made[kind] = phrase.copy()
        made[kind][place] = others[place]
    made["other order"] = np.roll(phrase, rng.integers(1, 3))
    return made


def study(folder: Path) -> dict[str, Any]:
    corpus = load_corpus("audiomnist", folder / "audiomnist")
    assert corpus.files is not None
    assert corpus.sessions is not None
    network = load_extractor("words").networks[0]
    usual = network.recipe
    recipes = {"silence": usual, "none": replace(usual, samples=replace(usual.samples, pad_s=0.0))}
    speakers = corpus.labels["speaker"]
    sounds: list[Any] = []
    about: list[tuple[int, int, str, int]] = []
    for person, name in enumerate(np.unique(speakers)[1 :: 60 // PEOPLE]):
        clips = {
            (int(corpus.labels["phrase"][row]), int(corpus.sessions[row])): corpus.files[row]
            for row in np.flatnonzero(speakers == name)
        }
        rng = np.random.default_rng(person)
        for number in range(PHRASES):
            phrase = rng.permutation(10)[:3]
            said = [("right", phrase, take) for take in range(TAKES)]
            said += [(kind, other, ENROLLED) for kind, other in variants(phrase, rng).items()]
            for kind, digits, take in said:
                parts = [read_audio(clips[int(digit), take], RATE) for digit in digits]
                sounds.append(join_recordings(parts, rng))
                about.append((person, number, kind, take))
    rates = {}
    for way, recipe in recipes.items():
        network.recipe = recipe
        rates[way] = errors(np.array([network.embed(sound) for sound in sounds], float), about)
    return {"people": PEOPLE, "phrases": PHRASES, "eer": rates}


def errors(X: np.ndarray, about: list[tuple[int, int, str, int]]) -> dict[str, float]:
    """EER of every kind against owners with the right words."""
    enrols = np.array([kind == "right" and take < ENROLLED for _, _, kind, take in about])
    X = X / np.linalg.norm(X, axis=1, keepdims=True)
    X = X - X[enrols].mean(axis=0)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    scores: dict[str, list[float]] = {}
    cells = np.array([person * PHRASES + number for person, number, _, _ in about])
    for cell in np.unique(cells):
        profile = X[enrols & (cells == cell)].mean(axis=0)
        profile /= np.linalg.norm(profile)
        for row in np.flatnonzero(~enrols & (cells // PHRASES == cell // PHRASES)):
            kind = about[row][2] if cells[row] == cell else "other phrase"
            if cells[row] == cell or about[row][2] == "right":
                scores.setdefault(kind, []).append(float(X[row] @ profile))
    return {kind: float(eer(scores["right"], scores[kind])) for kind in KINDS}


def table(found: dict[str, Any]) -> str:
    lines = ["| EER, % | " + " | ".join(KINDS) + " |", "| :--- |" + " ---: |" * len(KINDS)]
    for way, rates in found["eer"].items():
        cells = (f"{100 * rates[kind]:.1f}" for kind in KINDS)
        lines += [f"| {way} | {' | '.join(cells)} |"]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    study_command("near_phrases", __doc__, study, table, reads=["audiomnist"])
