"""Make the default models of the service: extractors' vectors of pass-phrases, a joint model, calibration and errors.

\b
python benchmarks/service_model.py digits AUDIOMNIST VECTORS.npz
    joins spoken digits (AudioMNIST, MIT licence) into pass-phrases of three to six, over rooms, noises and channels
    that are drawn, and makes their vectors with campplus and words
python benchmarks/service_model.py network CORPUS NETWORK.onnx VECTORS.npz
    trains the small network of the demo on synthetic speech (mvplda experiment synthetic makes it), and its vectors
python benchmarks/service_model.py fit VECTORS.npz MODEL.safetensors
    fits the model on all speakers, calibrates it and measures its errors on speakers that are held out in turn, and
    writes it, with what it rests on beside it (MODEL.json)
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from mvplda import load_extractor
from mvplda.extractors.frontends import make_frames
from mvplda.extractors.network import OnnxExtractor
from mvplda.extractors.recipe import Features, Network, Recipe, Samples, to_toml
from mvplda.serve.model import slug
from mvplda.speech.features import Channel, Gain, Noise, Room, augment, read_audio
from mvplda.speech.features import Recipe as Conditions

RATE = 16000
DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
PHRASES, SESSIONS = 40, 4
CONDITIONS = Conditions(
    steps=(
        Room(probability=0.3, t60_s=(0.1, 0.5)),
        Channel(probability=0.5, gain_db=(-6.0, 6.0), low_hz=(20.0, 200.0), high_hz=(5000.0, 8000.0)),
        Noise(probability=0.6, snr_db=(12.0, 35.0), kinds=("white", "pink")),
        Gain(),
    )
)
SMALL = Recipe(
    name="small",
    description="A small network of mvplda, trained on 40 synthetic voices: it shows how things work, no more",
    licence="Apache-2.0",
    views=("speaker", "phrase"),
    samples=Samples(level="peak"),
    features=Features(bins=40),
    network=Network("frames", "lengths", "vectors"),
)

# -- vectors -------------------------------------------------------------------------------


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


def rows_of(root: Path) -> dict[str, list[dict[str, str]]]:
    by_speaker: dict[str, list[dict[str, str]]] = {}
    with (root / "index.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            by_speaker.setdefault(row["speaker"], []).append(row)
    return by_speaker


def digit_phrases(root: Path) -> Iterator[tuple[str, str, int, np.ndarray]]:
    texts = phrases(np.random.default_rng(0))
    for k, (speaker, rows) in enumerate(sorted(rows_of(root).items())):
        own = np.random.default_rng([1, k])
        samples = read_audio(root / f"{speaker}.flac", RATE)
        clips: dict[int, list[np.ndarray]] = {}
        for row in rows:
            start, length = int(row["start"]), int(row["length"])
            clips.setdefault(int(row["phrase"]), []).append(samples[start : start + length])
        for text in texts:
            for session in range(SESSIONS):
                # five takes of a digit a session: none is in two
                takes = [clips[d][int(own.integers(5 * session, 5 * session + 5))] for d in text]
                yield speaker, slug(" ".join(DIGITS[d] for d in text)), session, said(takes, own)


def synthetic_phrases(root: Path, sessions: int = 2) -> Iterator[tuple[str, str, int, np.ndarray]]:
    for k, (speaker, rows) in enumerate(sorted(rows_of(root).items())):
        own = np.random.default_rng([2, k])
        samples = read_audio(root / f"{speaker}.flac", RATE)
        for row in rows:
            if int(row["session"]) < sessions:
                start, length = int(row["start"]), int(row["length"])
                clip = samples[start : start + length]
                yield speaker, row["phrase"], int(row["session"]), augment(clip, CONDITIONS, own, rate=RATE)


def write(path: Path, X: list[np.ndarray], labels: list[tuple[str, str, int]], name: str) -> None:
    speaker, phrase, session = map(np.asarray, zip(*labels, strict=True))
    np.savez(path, X=np.asarray(X), speaker=speaker, phrase=phrase, session=session, extractor=name)


def make_digits(root: Path, output: Path) -> None:
    extractor = load_extractor(["campplus", "words"])
    X, labels = [], []
    for *label, samples in digit_phrases(root):
        X.append(extractor(samples, RATE))
        labels.append(tuple(label))
    write(output, X, labels, extractor.name)  # type: ignore[arg-type]


def make_network(root: Path, network: Path, output: Path) -> None:
    from mvplda.speech.features import FeatureSet
    from mvplda.speech.networks import ModernNetwork, default_training, export_onnx, train

    labels, frames = [], []
    for *label, samples in synthetic_phrases(root):
        levelled = samples * np.float32(SMALL.samples.level_value / max(float(np.abs(samples).max()), 1e-9))
        labels.append(tuple(label))
        frames.append(make_frames(levelled, SMALL))
    speaker, phrase, _ = map(np.asarray, zip(*labels, strict=True))
    trained = np.isin(speaker, np.unique(speaker)[:40])
    features = FeatureSet.from_utterances(
        np.arange(trained.sum()).astype(str), [f for f, t in zip(frames, trained, strict=True) if t]
    )
    small = ModernNetwork(channels=64, pooled=96, attention=48, embedding=128)
    training = default_training(small, epochs=10, batch=64, hold_out=0.2)
    made = train(features, {"speaker": speaker[trained], "phrase": phrase[trained]}, small, training, verbose=True)
    export_onnx(made, network)
    network.with_suffix(".toml").write_text(to_toml(SMALL), encoding="utf-8")
    extractor = OnnxExtractor(network)
    golden = extractor.golden()
    network.with_suffix(".toml").write_text(
        to_toml(SMALL.__class__(**{**vars(SMALL), "golden": golden})), encoding="utf-8"
    )
    extractor = load_extractor(network)  # type: ignore[assignment]
    X = [extractor._run(one[None])[0] for one in frames]
    write(output, X, labels, extractor.name)  # type: ignore[arg-type]


if __name__ == "__main__":
    {"digits": make_digits, "network": make_network}[sys.argv[1]](*map(Path, sys.argv[2:]))
