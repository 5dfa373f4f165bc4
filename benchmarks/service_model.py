"""Make the default models of the service: vectors of pass-phrases, a joint model of them, its calibration and errors.

``python benchmarks/service_model.py vectors AUDIOMNIST VECTORS.npz`` joins spoken digits (AudioMNIST, MIT licence) into
pass-phrases of three to six, over rooms, noises and channels that are drawn, and makes their vectors with campplus and
words. ``python benchmarks/service_model.py fit VECTORS.npz MODEL.safetensors`` fits and writes the model: see
`mvplda.serve.model`.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np

from mvplda import load_extractor
from mvplda.speech.features import Channel, Gain, Noise, Recipe, Room, augment, read_audio

RATE = 16000
DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
PHRASES, SESSIONS = 40, 4
CONDITIONS = Recipe(
    steps=(
        Room(probability=0.3, t60_s=(0.1, 0.5)),
        Channel(probability=0.5, gain_db=(-6.0, 6.0), low_hz=(20.0, 200.0), high_hz=(5000.0, 8000.0)),
        Noise(probability=0.6, snr_db=(12.0, 35.0), kinds=("white", "pink")),
        Gain(),
    )
)


def phrases(rng: np.random.Generator) -> list[tuple[int, ...]]:
    """Sequences of digits that all differ, of three to six."""
    found: dict[tuple[int, ...], None] = {}
    while len(found) < PHRASES:
        found[tuple(rng.integers(0, 10, rng.integers(3, 7)).tolist())] = None
    return list(found)


def said(clips: list[np.ndarray], rng: np.random.Generator) -> np.ndarray:
    """Digits one after the other, with short pauses; between them lies what a quiet microphone hears."""
    pauses = [np.zeros(int(rng.uniform(0.02, 0.15) * RATE), np.float32) for _ in range(len(clips) + 1)]
    joined = np.concatenate([part for pair in zip(pauses, [*clips, pauses[0]], strict=True) for part in pair])
    joined /= max(float(np.abs(joined).max()), 1e-6) * 2
    return augment(joined + rng.normal(0, 10 ** (-rng.uniform(55, 75) / 20), len(joined)), CONDITIONS, rng, rate=RATE)


def make_vectors(root: Path, output: Path, part: str) -> None:
    rng = np.random.default_rng(0)
    texts = phrases(rng)
    extractor = load_extractor(["campplus", "words"])
    with (root / "index.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    speakers = sorted({row["speaker"] for row in rows})
    number, of = map(int, part.split("/"))
    X, labels = [], []
    for k, speaker in enumerate(speakers):
        if k % of != number:
            continue
        own = np.random.default_rng([1, k])
        samples = read_audio(root / f"{speaker}.flac", RATE)
        clips: dict[int, list[np.ndarray]] = {}
        for row in rows:
            if row["speaker"] == speaker:
                start, length = int(row["start"]), int(row["length"])
                clips.setdefault(int(row["phrase"]), []).append(samples[start : start + length])
        for text in texts:
            for session in range(SESSIONS):
                # five takes of a digit a session: none is in two
                takes = [clips[d][int(own.integers(5 * session, 5 * session + 5))] for d in text]
                X.append(extractor(said(takes, own), RATE))
                labels.append((speaker, " ".join(DIGITS[d] for d in text), session))
        print(speaker, len(X), flush=True)
    speaker, phrase, session = map(np.asarray, zip(*labels, strict=True))
    np.savez(output, X=np.asarray(X), speaker=speaker, phrase=phrase, session=session, extractor=extractor.name)


if __name__ == "__main__":
    if sys.argv[1] == "vectors":
        make_vectors(Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4] if len(sys.argv) > 4 else "0/1")
