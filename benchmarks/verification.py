"""Time of verifying 3 s of sound with the default model, stage by stage, compared with its networks alone.

``python -m benchmarks verification`` needs the extractors of the default model (`mvplda extractor get`). Two sides of
one recording each are compared; the enrolled side is extracted before.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

from mvplda.exceptions import MvpldaError
from mvplda.voice.audio.decode import golden_signal
from mvplda.voice.audio.quality import QualityMeter
from mvplda.voice.audio.speech_detection import SoundSegment
from mvplda.voice.default_model import default_recipes
from mvplda.voice.extractors import Extractor, load_extractor
from mvplda.voice.extractors.front_end import prepare_samples
from mvplda.voice.fingerprint import CopyTest
from mvplda.voice.verification import VoiceModel

from .timing import best_of

RATE = 16000
SECONDS = 3


def recording(number: int) -> Any:
    """Return 3 s of a synthetic voice, of another level and noise per number."""
    signal = golden_signal(RATE)
    repeated = np.tile(signal, 1 + SECONDS * RATE // len(signal))[: SECONDS * RATE]
    noise = np.random.default_rng(number).normal(0, 1e-3, size=len(repeated))
    return (1.0 - 0.3 * number) * repeated + noise


def session_runs(extractor: Extractor, segment: SoundSegment) -> dict[str, Callable[[], object]]:
    """Return a call of onnxruntime alone per network, with the input that the segment gives."""
    runs = {}
    for network in extractor.networks:
        feeds = captured_feeds(network, segment)
        output = network.recipe.network.output
        runs[f"onnxruntime: {network.recipe.name}"] = (
            lambda session=network._session, feeds=feeds, output=output: session.run(
                [output], feeds
            )
        )
    return runs


def captured_feeds(network: Any, segment: SoundSegment) -> dict[str, Any]:
    """Return the input that a network passes to onnxruntime for a segment."""
    session = network._session
    captured: dict[str, Any] = {}

    class Recorder:
        def run(self, outputs: list[str], feeds: dict[str, Any]) -> Any:
            captured.update(feeds)
            return session.run(outputs, feeds)

    network._session = Recorder()
    network.embed(segment)
    network._session = session
    return captured


def run(*, quick: bool, rounds: int, peer_python: str) -> dict[str, Any]:
    """Return CPU milliseconds of the stages, best of many, and seconds on the wall with one and two threads."""
    try:
        model = VoiceModel.load()
    except MvpldaError as error:
        return {"left out": str(error)}
    repeats = 3 if quick else 5 * rounds
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / f"{number}.wav" for number in range(2)]
        for number, file in enumerate(files):
            soundfile.write(file, recording(number), RATE)
        enrolled, tested = (model.side(file) for file in files)
        samples = soundfile.read(files[1], dtype="float32")[0]
        segment = SoundSegment(samples, RATE)
        networks = session_runs(model.extractor, segment)

        def measure_quality() -> None:
            meter = QualityMeter(RATE)
            meter.add(SoundSegment(samples, RATE))
            meter.quality()

        def compute_frames() -> None:
            for network in model.extractor.networks:
                if network.recipe.features.kind != "samples":
                    network.frames(prepare_samples(segment, network.recipe))

        rows: dict[str, Callable[[], object]] = {
            "whole": lambda: model.verify(enrolled, files[1]),
            **networks,
            "frames of the networks": compute_frames,
            "speech detection and quality": measure_quality,
            "fingerprint": lambda: CopyTest.read(samples, RATE),
            "comparison of extracted vectors": lambda: model.verify(enrolled, tested),
        }
        seconds = best_of(rows, repeats)
        parallel = VoiceModel(
            model.bundle, load_extractor(list(default_recipes()), check=False, threads=2)
        )
        wall = best_of(
            {
                "one thread": lambda: model.verify(enrolled, files[1]),
                "two threads of onnxruntime": lambda: parallel.verify(enrolled, files[1]),
            },
            repeats,
            time.perf_counter,
        )
        vectors = [load.side(files[1]).X for load in (model, parallel)]
    bare = sum(seconds[name] for name in networks)
    return {
        "case": f"{SECONDS} s at {RATE} Hz, default model, without the detector of spoofs",
        "CPU milliseconds": {name: 1e3 * value for name, value in seconds.items()},
        "networks alone": 1e3 * bare,
        "times the networks alone": seconds["whole"] / bare,
        "milliseconds on the wall": {name: 1e3 * value for name, value in wall.items()},
        "largest difference of a vector with two threads": float(
            np.abs(np.subtract(*vectors)).max()
        ),
    }
