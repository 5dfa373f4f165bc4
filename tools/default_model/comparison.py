"""Comparison of a rebuilt default model with the shipped one."""

from __future__ import annotations

import numpy as np

from mvplda._typing import Array, Names
from mvplda.bundle import Bundle
from mvplda.training import questions_about

TOLERANCE = 1e-6
PEOPLE, PHRASES = 8, 4


def drawn_vectors(bundle: Bundle, seed: int = 0) -> tuple[Array, Names, Names]:
    """Draw artificial vectors with the columns that a model expects, two per person and phrase.

    bundle : model with a `DomainPLDA`
    seed : seed of the random draw

    Returns
    -------
    (n, D) vectors, (n,) names of people and (n,) names of phrases
    """
    rng = np.random.default_rng(seed)
    scorer = bundle.scorer
    speaker, phrase = np.divmod(np.tile(np.arange(PEOPLE * PHRASES), 2), PHRASES)
    codes = {"speaker": speaker, "phrase": phrase}
    columns = []
    for name, (width, view) in scorer.blocks.items():
        means = rng.normal(size=(PEOPLE + PHRASES, width))
        block = means[codes[view]] + 0.7 * rng.normal(size=(len(speaker), width))
        if name in (scorer.points or {}):
            points = block[:, :-1].reshape(len(block), scorer.points[name]["points"], -1)
            points /= np.linalg.norm(points, axis=2, keepdims=True)
            seconds = rng.uniform(0.5, 3.0, len(block))
            block = np.column_stack([points.reshape(len(block), -1), seconds])
        columns.append(block)
    return np.hstack(columns), np.char.mod("person %d", speaker), np.char.mod("phrase %d", phrase)


def llrs(bundle: Bundle, seed: int = 0) -> dict[str, Array]:
    """Return the calibrated LLRs of a model for artificial vectors, {question: LLRs}.

    Each question is asked with and without names of the enrolled phrases. The vectors are those of
    `drawn_vectors`; LLRs have the shape (profiles, tests).
    """
    X, people, phrases = drawn_vectors(bundle, seed)
    is_test = np.arange(len(X)) >= len(X) // 2
    scores = {}
    for known in (False, True):
        labels = {"phrase": phrases[~is_test]} if known else None
        profiles = bundle.enrol(X[~is_test], people[~is_test], labels)
        deployed = bundle.deployed(profiles)
        for views in questions_about(bundle.views):
            key = "+".join(views) + (", phrases known" if known else "")
            scores[key] = deployed.answer(profiles, X[is_test], {"same": views}).llr
    return scores


def differences(rebuilt: Bundle, shipped: Bundle) -> dict[str, float]:
    """Compare the LLRs and the thresholds of two models.

    Returns
    -------
    {"LLR ..." or "thresholds ...", followed by the question: largest absolute difference}; infinite
    if the numbers of thresholds differ
    """
    scores = llrs(rebuilt)
    largest = {
        f"LLR {question}": float(np.abs(scores[question] - expected).max())
        for question, expected in llrs(shipped).items()
    }
    for question, points in (shipped.points or {}).items():
        thresholds = [point.threshold for point in (rebuilt.points or {}).get(question, [])]
        expected = [point.threshold for point in points]
        same_count = len(thresholds) == len(expected)
        gap = np.abs(np.subtract(thresholds, expected)).max() if same_count else np.inf
        largest[f"thresholds {question}"] = float(gap)
    return largest
