"""Make the model of ``mvplda serve --demo``: synthetic voices say pass-phrases to the small network.

``python -m benchmarks.demonstration`` writes the model into the package. It must not decide about people.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

import mvplda
from benchmarks.voices import RATE, Espeak, Speaker, draw_speaker
from mvplda._typing import Array
from mvplda.atomic_files import write_atomically
from mvplda.tensor_files import packed_chunks, unpack
from mvplda.training import train
from mvplda.voice.extractors import load_extractor

PHRASES = (
    "my voice is my key",
    "turn the lights down",
    "call my brother now",
    "what time is the train",
    "book a table for two",
    "open the front door",
    "play some quiet music",
    "send the letter today",
)
SPEAKERS, TAKES, ENROLMENT = 32, 4, 3
FARS = (0.05, 0.02, 0.01)
MODELS = Path(mvplda.__file__).parent / "serve" / "models"


def record(espeak: Espeak, voice: Speaker, text: str, rng: np.random.Generator) -> Array:
    """A phrase in a quiet room, with some of the room before and behind it."""
    speech = espeak.say(text, voice, rng)
    before, behind = (RATE * rng.uniform(0.2, 1.2, size=2)).astype(int)
    sound = np.pad(0.4 * speech / np.abs(speech).max(), (before, behind))
    noise = 10 ** rng.uniform(-3, -2)
    return sound + rng.normal(0, noise, len(sound))


def in_single_precision(file: Path) -> None:
    """Write the matrices of a model file with 32 bits, so that the package is smaller."""
    tensors, about = unpack(file)
    smaller = {
        name: array.astype(np.float32) if array.ndim > 1 and array.dtype == np.float64 else array
        for name, array in tensors.items()
    }
    write_atomically(file, b"".join(packed_chunks(smaller, about)))


def main() -> None:
    extractor = load_extractor(MODELS / "small.onnx")
    espeak = Espeak(seed=0)
    rng = np.random.default_rng(0)
    speakers = np.repeat(np.arange(SPEAKERS), len(PHRASES) * TAKES).astype(str)
    phrases = np.tile(np.repeat(PHRASES, TAKES), SPEAKERS)
    voices = {name: draw_speaker(int(name), 0) for name in np.unique(speakers)}
    vectors = [
        extractor.embed(record(espeak, voices[name], text, rng).astype(np.float32))
        for name, text in zip(speakers, phrases, strict=True)
    ]
    # labels of phrases as the service makes them of what people type
    labels = {"speaker": speakers, "phrase": np.char.replace(phrases, " ", "-")}
    bundle = train(
        np.array(vectors), labels, enrolment=ENROLMENT, fars=FARS, extractor=extractor.name
    )
    bundle.card = {
        **dict(bundle.card or {}),
        "licence": "that of the package",
        "basis": f"{SPEAKERS} synthetic voices: a toy, which must not decide about people",
    }
    bundle.save(MODELS / "small.safetensors")
    in_single_precision(MODELS / "small.safetensors")


if __name__ == "__main__":
    main()
