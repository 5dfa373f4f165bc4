"""Drawn embeddings of domains: people, phrases and takes about a place that every domain has for itself."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from mvplda import Bundle
from mvplda.calibration.hypotheses import HypothesisCalibrator
from mvplda.decisions import OperatingPoint
from mvplda.voice.domain.estimator import DomainPLDA

VOICE, WORDS = 40, 24
BLOCKS = {"voice": (VOICE, "speaker"), "words": (WORDS, "phrase")}
DOMAINS = 4


@dataclass
class Place:
    """A domain with its people and phrases."""

    shift: np.ndarray
    people: np.ndarray
    phrases: np.ndarray
    rng: np.random.Generator

    def say(self, person: int, phrase: int, n: int = 1) -> np.ndarray:
        voice = self.people[person] + 0.06 * self.rng.normal(size=(n, VOICE))
        words = self.phrases[phrase] + 0.06 * self.rng.normal(size=(n, WORDS))
        return np.hstack([voice, words]) + self.shift


def make_place(seed: int, size: float = 0.1, people: int = 60, phrases: int = 6) -> Place:
    """size : of the domain's shift, per column"""
    rng = np.random.default_rng(seed)
    shift = np.hstack([size * rng.normal(size=VOICE), 0.2 * size * rng.normal(size=WORDS)])
    return Place(
        shift,
        0.1 * rng.normal(size=(people, VOICE)),
        0.15 * rng.normal(size=(phrases, WORDS)),
        rng,
    )


@lru_cache
def domain_bundle() -> Bundle:
    """A model of domains, fitted to four of them."""
    X, speakers, phrases, domains = [], [], [], []
    for number in range(DOMAINS):
        place = make_place(100 + number)
        for person in range(20):
            for phrase in range(5):
                X.append(place.say(person, phrase, 2))
                speakers += [f"{number} {person}"] * 2
                phrases += [f"{number} {phrase}"] * 2
                domains += [number] * 2
    labels = {"speaker": speakers, "phrase": phrases, "domain": domains}
    scorer = DomainPLDA(BLOCKS).fit(np.concatenate(X), labels)
    calibrator = HypothesisCalibrator()
    calibrator.weights_ = {"speaker": 1.0, "phrase": 1.0, "together": 1.0}
    names = ("speaker+phrase", "speaker", "phrase", "nothing")
    calibrator.constants_ = dict.fromkeys(names, 0.0)
    calibrator.outlier_probability_ = 1e-5
    calibrator.n_speakers_ = 80
    point = OperatingPoint(4.6, far=0.01, basis="drawn")
    questions = ("speaker+phrase", "speaker", "phrase")
    return Bundle(
        None,
        scorer,
        extractor="drawn",
        calibrations=dict.fromkeys(questions, calibrator),
        points={key: [point] for key in questions},
        card={"name": "drawn", "model": "domain"},
    )
