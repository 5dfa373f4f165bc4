"""Time and peak memory of a long list of trials: ``python -m benchmarks.trial_lists 3e7``.

The list is drawn into a temporary folder: models and tests with ids of 20 letters, one trial in a hundred a target.
Every command of mvplda runs in a process of its own; the peak is of the whole process, interpreter and libraries
included.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from mvplda import MultiviewPLDA, make_two_views
from mvplda.io import VectorSet, write_vectors

SPEAKERS, TESTS, DIMENSION = 2000, 40_000, 64


def draw(folder: Path, trials: int) -> None:
    """A model, vectors of models and of tests, and the list."""
    rng = np.random.default_rng(0)
    X, labels = make_two_views(60, 5, 6, DIMENSION, (8, 4), random_state=0)
    MultiviewPLDA({"speaker": 8, "phrase": 4}, max_iter=5).fit(X, labels).save(
        folder / "model.safetensors"
    )
    for name, count in (("enrol", SPEAKERS), ("test", TESTS)):
        ids = np.array([f"{name}-{k:0{19 - len(name)}d}" for k in range(count)])
        write_vectors(
            folder / f"{name}.npz",
            VectorSet(ids, rng.standard_normal((count, DIMENSION), dtype=np.float32)),
        )
    with (folder / "trials").open("w") as file:
        for start in range(0, trials, 10**6):
            some = min(10**6, trials - start)
            places = (
                np.sort(rng.integers(SPEAKERS * TESTS, size=some))
                if trials < 1e6
                else start + np.arange(some)
            )
            kinds = np.where(rng.random(some) < 0.01, "target", "nontarget").tolist()
            rows = zip((places // TESTS).tolist(), (places % TESTS).tolist(), kinds, strict=True)
            file.writelines(f"enrol-{m:014d} test-{t:015d} {kind}\n" for m, t, kind in rows)


def run(folder: Path, what: str, *command: str) -> None:
    started = time.perf_counter()
    child = subprocess.Popen(
        [sys.executable, "-m", "mvplda", *command], cwd=folder, stdout=subprocess.DEVNULL
    )
    _, status, used = os.wait4(child.pid, 0)
    assert status == 0, f"{what} ended with {status}"
    print(
        f"{what}: {time.perf_counter() - started:.0f} s, peak {used.ru_maxrss / 2**20:.2f} GiB",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trials", nargs="?", type=float, default=3e7)
    trials = int(parser.parse_args().trials)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        draw(folder, trials)
        print(f"{trials:.0e} trials, {(folder / 'trials').stat().st_size / 2**30:.2f} GiB of text")
        sides = ("--enrol", "enrol.npz", "--test", "test.npz", "--trials", "trials")
        run(folder, "score", "score", "model.safetensors", *sides, "-o", "scores")
        run(folder, "evaluate", "evaluate", "scores", "--trials", "trials")
        run(folder, "convert to parquet", "convert", "trials", "trials.parquet", "--as", "trials")


if __name__ == "__main__":
    main()
