"""Speed and memory of the installed extractors.

Measured are multiples of real time on one thread and in two processes, the share of the network in it, and memory.

python -m benchmarks extractors                        # all measurements: benchmarks/results/extractors.json
python -m benchmarks.extractors memory campplus 60     # MiB for a file of 60 seconds that is read in parts
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from typing import Any

import numpy as np
import soundfile

from mvplda.exceptions import FetchError
from mvplda.voice.audio.decode import golden_signal
from mvplda.voice.extractors import Extractor, load_extractor
from mvplda.voice.extractors.download import cached_file

from .timing import best_of, extra_memory, in_another_process

NAMES = ("campplus", "resnet", "words", "sounds")
SECONDS = (1, 3, 10, 30)
RECORDINGS, RECORDING_S = 200, 6
SHORT_S, LONG_S = 60, 3600


def sound(seconds: float) -> Any:
    signal = golden_signal(16000)
    return np.tile(signal, 1 + int(seconds * 16000) // len(signal))[: int(seconds * 16000)]


def network_share(extractor: Extractor, samples: Any) -> float:
    """CPU seconds in onnxruntime, of all that a vector with its quality takes; the words' filter banks are a graph."""
    inside = [0.0]

    class Timed:
        def __init__(self, session: Any) -> None:
            self.session = session

        def __getattr__(self, name: str) -> Any:
            return getattr(self.session, name)

        def run(self, *given: Any) -> Any:
            start = time.process_time()
            found = self.session.run(*given)
            inside[0] += time.process_time() - start
            return found

    network = extractor.networks[0]
    kept = network._session, network._graph
    network._session, network._graph = (
        Timed(kept[0]),
        Timed(kept[1]) if kept[1] is not None else None,
    )
    start = time.process_time()
    extractor(samples, 16000)
    whole = time.process_time() - start
    network._session, network._graph = kept
    return inside[0] / whole


def two_processes(name: str, count: int) -> dict[str, float]:
    """Seconds on the wall of one process and of two; what starts them, and loads the network again, counts."""
    extractor = load_extractor(name)
    with tempfile.TemporaryDirectory() as folder:
        files = [f"{folder}/{i}.wav" for i in range(count)]
        for file in files:
            soundfile.write(file, sound(RECORDING_S), 16000)
        best = best_of(
            {
                "one": lambda: extractor.extract(files),
                "two": lambda: extractor.extract(files, workers=2),
            },
            1,
            time.perf_counter,
        )
    return {**best, "times": best["one"] / best["two"]}


def memory(name: str, seconds: int) -> dict[str, float]:
    """MiB above what the loaded network takes, and seconds, of one vector of a WAV file."""
    extractor = load_extractor(name)
    extractor(sound(1), 16000)  # what the libraries take once
    with tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/long.wav"
        with soundfile.SoundFile(file, "w", 16000, 1) as out:
            for start in range(0, seconds, 60):
                out.write(sound(min(60, seconds - start)))
        start = time.process_time()
        extra = extra_memory(lambda: extractor(file))
    return {"MiB": extra, "times real time": seconds / (time.process_time() - start)}


def run(*, quick: bool, rounds: int, peer_python: str) -> dict[str, Any]:
    figures: dict[str, Any] = {
        "case": "the code's own signal, one thread, quality measured with every vector"
    }
    figures |= {
        "times real time": {},
        "network's share": {},
        "a file read in parts": {},
        "two processes": {},
    }
    for name in NAMES:
        try:
            extractor = load_extractor(cached_file(name))
        except FetchError as error:
            figures.setdefault("left out", {})[name] = str(error)
            continue
        for seconds in SECONDS[: 2 if quick else None]:
            samples = sound(seconds)
            best = best_of({"one": lambda samples=samples, x=extractor: x(samples, 16000)}, rounds)[
                "one"
            ]
            figures["times real time"][f"{name}, {seconds} s"] = seconds / best
            shares = [network_share(extractor, samples) for _ in range(rounds)]
            figures["network's share"][f"{name}, {seconds} s"] = float(np.median(shares))
        for seconds in (SHORT_S,) if quick or name != NAMES[0] else (SHORT_S, LONG_S):
            found = in_another_process("benchmarks.extractors", "memory", name, seconds)
            figures["a file read in parts"][f"{name}, {seconds} s"] = found
        if not quick:
            figures["two processes"][name] = two_processes(name, RECORDINGS)
    return figures


def main() -> None:
    def plain(text: str) -> str:  # other processes are given JSON
        return text.strip('"')

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", type=plain, choices=["memory"])
    parser.add_argument("name", type=plain)
    parser.add_argument("seconds", type=int, nargs="?", default=SHORT_S)
    given = parser.parse_args()
    print(json.dumps(memory(given.name, given.seconds)))


if __name__ == "__main__":
    main()
