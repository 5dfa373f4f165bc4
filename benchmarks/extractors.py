"""Extractors that were fetched: multiples of real time on one thread, the network's share of it, and peak memory."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from typing import Any

import numpy as np
import onnxruntime
import soundfile

from mvplda.exceptions import FetchError
from mvplda.extractors import load_extractor
from mvplda.extractors.frontends import cached_file
from mvplda.extractors.network import OnnxExtractor
from mvplda.extractors.sound import golden_signal
from mvplda.extractors.weights import NAMES

from .timing import best_of, extra_memory, in_another_process

SECONDS = (1, 3, 10, 60)


def sound(seconds: int) -> Any:
    signal = golden_signal(16000)
    return np.tile(signal, 1 + seconds * 16000 // len(signal))[: seconds * 16000]


def network_share(extractor: OnnxExtractor, samples: Any) -> float:
    """CPU seconds in the network, of all that a vector takes."""
    inside, run = [0.0], extractor._run

    def timed(frames: Any) -> Any:
        start = time.process_time()
        found = run(frames)
        inside[0] += time.process_time() - start
        return found

    extractor._run = timed  # type: ignore[method-assign]
    start = time.process_time()
    extractor(samples, 16000)
    whole = time.process_time() - start
    extractor._run = run  # type: ignore[method-assign]
    return inside[0] / whole


def two_processes(name: str, rounds: int) -> float:
    """How many times faster two processes are than one, at 64 recordings of 6 s; what starts them counts too."""
    extractor = load_extractor(name)
    with tempfile.TemporaryDirectory() as folder:
        files = [f"{folder}/{i}.wav" for i in range(64)]
        for file in files:
            soundfile.write(file, sound(6), 16000)
        best = best_of(
            {"one": lambda: extractor.extract(files), "two": lambda: extractor.extract(files, workers=2)}, rounds
        )
    return best["one"] / best["two"]


def run(*, quick: bool, rounds: int, peer_python: str) -> dict[str, Any]:
    figures: dict[str, Any] = {"case": "the code's own signal, one thread", "times real time": {}}
    figures |= {"network's share": {}, "extra memory, MiB": {}, "two processes, times": {}}
    figures["load before"] = round(os.getloadavg()[0], 1)
    figures["on"] = "a GPU" if "CUDAExecutionProvider" in onnxruntime.get_available_providers() else "the processor"
    for name in NAMES:
        try:
            extractor = load_extractor(cached_file(name))
        except FetchError as error:
            figures.setdefault("left out", {})[name] = str(error)
            continue
        assert isinstance(extractor, OnnxExtractor)
        for seconds in SECONDS[: 2 if quick else None]:
            samples = sound(seconds)
            best = best_of({"one": lambda samples=samples, x=extractor: x(samples, 16000)}, rounds)["one"]
            figures["times real time"][f"{name}, {seconds} s"] = seconds / best
            shares = [network_share(extractor, samples) for _ in range(rounds)]
            figures["network's share"][f"{name}, {seconds} s"] = float(np.median(shares))
        figures["extra memory, MiB"][name] = in_another_process(
            "benchmarks.extractors", name, SECONDS[1 if quick else -1]
        )
        if not quick:
            figures["two processes, times"][name] = two_processes(name, 2)
    return figures


def main() -> None:
    """Extra memory of one vector, measured in a process of its own."""
    name, seconds = (json.loads(a) for a in sys.argv[1:])
    extractor, samples = load_extractor(name), sound(seconds)
    extractor(sound(1), 16000)  # what the libraries take once
    print(json.dumps(extra_memory(lambda: extractor(samples, 16000))))


if __name__ == "__main__":
    main()
