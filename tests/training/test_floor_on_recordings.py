"""A trained model against its floor, the plain mean of cosines, on people of AudioMNIST."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mvplda.bundle import Bundle
from mvplda.training import train, train_cosine_floor

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
PEOPLE = 20
TOLERANCE = 0.001
"""Largest difference of error rates by which a model may exceed its floor."""

Vectors = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def audiomnist() -> Vectors:
    voices = np.load(DATA / "audiomnist_campplus.npz")
    words = np.load(DATA / "audiomnist_embeddings.npz")
    return voices["voice"], words["words"], voices["speaker"], voices["phrase"]


def errors(bundle: Bundle) -> dict[str, float]:
    """Return the EER of each kind of impostor, and Cllr."""
    measured = (bundle.card or {})["held_out"]["errors"]["speaker+phrase"]
    return {**measured["eer"], "Cllr": measured["cllr"]}


@pytest.mark.slow
def test_a_committee_is_no_worse_than_the_plain_mean_of_cosines() -> None:
    try:
        voices, words, speaker, phrase = audiomnist()
    except FileNotFoundError:
        pytest.skip(f"there are no vectors under {DATA}")
    rng = np.random.default_rng(0)
    chosen = rng.permutation(np.unique(speaker))[:PEOPLE]
    rows = np.concatenate(
        [
            rng.permutation(np.flatnonzero((speaker == who) & (phrase == what)))[:2]
            for who in chosen
            for what in np.unique(phrase[speaker == who])
        ]
    )
    X = np.hstack([voices[rows], words[rows]]).astype(np.float64)
    labels = {"speaker": speaker[rows].astype(str), "phrase": phrase[rows].astype(str)}
    blocks = {"voice": voices.shape[1], "words": words.shape[1]}
    floor = errors(
        train_cosine_floor(
            X, labels, blocks=blocks, block_views={"voice": ["speaker"], "words": ["phrase"]}
        )
    )
    model = errors(train(X, labels, blocks=blocks, choose=False))
    kinds = [kind for kind in floor if kind != "Cllr"]
    worst = max(floor[kind] for kind in kinds)
    assert max(model[kind] for kind in kinds) <= worst + TOLERANCE, (model, floor)
    assert model["Cllr"] <= floor["Cllr"], (model, floor)
