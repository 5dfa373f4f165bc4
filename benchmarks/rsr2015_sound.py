"""Memory of `mvplda reproduce rsr2015` from sound: a tree of the published size, or a part of it, of short noise.

python -m benchmarks.rsr2015_sound FOLDER [--people N] [--hidden H] [--frames F] [--output FILE]

Recordings of 0.3 s stand for those of 3 s: the number of files, not their duration, sets the memory of lists and
vectors. With --frames, the frames of every recording are random numbers of a full duration that are written directly to
the store of the frames, so that training and extraction read a file of the published size. The network has one layer
and is trained for one epoch. --evaluated shortens the lists.
"""

from __future__ import annotations

import argparse
import threading
import time
from pathlib import Path

import numpy as np

from benchmarks import rsr2015_size
from mvplda._optional import need
from mvplda.paper import corpus_vectors, network_training
from mvplda.paper.corpora import load_corpus
from mvplda.paper.experiment import run_experiment
from mvplda.paper.experiment_settings import read_recipe
from mvplda.paper.frame_store import FrameStore
from mvplda.paper.frames import utterance_stamps
from mvplda.paper.provenance import provenance, write_results

RATE = 16000
TRAINING_SHARE = {"male": 100 / 157, "female": 94 / 143}
SAMPLES_PER_SECOND = 20


class MemoryMonitor(threading.Thread):
    """Sampler of the memory of this process, which keeps the peaks of every stage.

    stages : one record per stage with its seconds and its peaks in GB: all resident memory, and the part that is not
        backed by a file
    """

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.stages: list[dict[str, float | str]] = []
        self.started = time.perf_counter()

    def begin(self, name: str) -> None:
        """Begin a stage, and print the one before."""
        if self.stages:
            print(*self.stages[-1].values(), flush=True)
        self.started = time.perf_counter()
        self.stages.append(
            {"stage": name, "seconds": 0.0, "peak_gb": 0.0, "peak_anonymous_gb": 0.0}
        )

    def run(self) -> None:
        while True:
            text = Path("/proc/self/status").read_text(encoding="ascii")
            fields = dict(line.split(":", 1) for line in text.splitlines())
            stage = self.stages[-1]
            stage["seconds"] = round(time.perf_counter() - self.started, 1)
            for key, name in (("peak_gb", "VmRSS"), ("peak_anonymous_gb", "RssAnon")):
                gigabytes = int(fields[name].split()[0]) / 2**20
                stage[key] = max(float(stage[key]), round(gigabytes, 3))
            time.sleep(1 / SAMPLES_PER_SECOND)


def write_tree(root: Path, people: int, evaluated: int) -> None:
    """Write stub files and lists of a tree with so many people, in the published proportions."""
    published = rsr2015_size.PEOPLE
    total = sum(map(len, published.values()))
    for gender, numbers in published.items():
        count = round(len(numbers) * people / total)
        first = rsr2015_size.FIRST_EVALUATED[gender] - round(count * TRAINING_SHARE[gender])
        rsr2015_size.PEOPLE[gender] = range(first, first + count)
    rsr2015_size.write_tree(root, evaluated)


def write_sound(root: Path, seconds: float) -> None:
    """Write recordings of noise in place of the stub files."""
    soundfile = need("soundfile")
    noise = np.random.default_rng(0).integers(-3000, 3000, size=RATE * 60).astype(np.int16)
    length = int(seconds * RATE)
    for k, stub in enumerate(sorted((root / "sph").rglob("*.sph"))):
        path = root / "wav" / stub.relative_to(root / "sph").with_suffix(".wav")
        path.parent.mkdir(parents=True, exist_ok=True)
        start = 997 * k % (len(noise) - length)
        soundfile.write(path, noise[start : start + length], RATE)


def write_frames(corpus, folder: Path, count: int, recipe) -> None:
    """Write random frames of every recording to the store that the experiment will find."""
    rng = np.random.default_rng(0)
    frames = rng.normal(size=(count + 1000, 39)).astype(np.float32)
    stamps = utterance_stamps(corpus.ids, corpus.files, recipe)
    store = FrameStore(folder, stamps)
    missing = stamps[len(store.entries) :]
    starts = rng.integers(1000, size=len(missing))
    for _ in store.add(missing, (frames[start : start + count] for start in starts)):
        pass


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--people", type=int, default=300)
    parser.add_argument("--evaluated", type=int, default=0, help="people per gender in the lists")
    parser.add_argument("--batch", type=int, default=256, help="frames per step of the training")
    parser.add_argument("--seconds", type=float, default=0.3, help="duration of a recording")
    parser.add_argument(
        "--hidden", type=int, default=2048, help="units, and columns of the vectors"
    )
    parser.add_argument(
        "--frames", type=int, default=0, help="frames per recording, not from sound"
    )
    parser.add_argument("--systems", nargs="*", default=["paper"])
    parser.add_argument("--output", type=Path, help="results file; by default in FOLDER")
    options = parser.parse_args()
    record = {**provenance(), "unchecked": "times and memory of a machine"}
    root = options.folder
    output = root / f"out-{options.hidden}-{options.frames}"
    monitor = MemoryMonitor()
    monitor.begin("tree")
    monitor.start()
    if not root.is_dir():
        write_tree(root, options.people, options.evaluated or options.people)
        if not options.frames:
            write_sound(root, options.seconds)

    monitor.begin("lists")
    corpus = load_corpus("rsr2015", root)
    recipe = read_recipe("paper-without-pretraining", {"name": "rsr2015"})
    settings = recipe.with_changes(
        {
            "network.hidden": options.hidden,
            "network.layers": 1,
            "training.epochs": 1,
            "training.batch": options.batch,
            "evaluation.systems": options.systems,
        }
    )
    if options.frames:
        monitor.begin("random frames")
        folder = output / corpus_vectors.FRAMES
        write_frames(
            corpus, folder, options.frames, network_training.training_recipe(settings.features)
        )

    extract = network_training.TrainedNetwork.extract

    def extract_vectors(trained, features):
        if len(features) > 1:
            monitor.begin("vectors")
        return extract(trained, features)

    network_training.TrainedNetwork.extract = extract_vectors

    def echo(text: str) -> None:
        """Print a line; a line that announces a stage begins it."""
        print(text, flush=True)
        for start, name in (("features", "frames"), ("training on", "training")):
            if text.startswith(start):
                monitor.begin(name)
        if "training vectors of dimension" in text:
            monitor.begin("systems")

    run_experiment(corpus, settings, output, echo)
    monitor.begin("end")
    path = options.output or output / "memory.json"
    settings_by_name = {
        name: str(value)
        for name, value in vars(options).items()
        if name not in ("folder", "output")
    }
    row = {"stages": monitor.stages, "options": settings_by_name, "provenance": record}
    write_results(path, "Memory from sound on a tree like RSR2015", rows=row)


if __name__ == "__main__":
    main()
