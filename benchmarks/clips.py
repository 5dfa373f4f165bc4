"""Recordings of AudioMNIST by speaker, phrase and session, and cached vectors of changed copies of them."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np

RATE = 16_000
Key = tuple[int, int, int]
"""Speaker, phrase and session."""


class Clips:
    """Samples of every clip, of unit peak."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with (folder / "index.csv").open() as file:
            self.rows = {
                (int(r["speaker"]), int(r["phrase"]), int(r["session"])): r
                for r in csv.DictReader(file)
            }

    @lru_cache(maxsize=4)  # noqa: B019  there is one object, and it lives as long as the program
    def _file(self, name: str) -> np.ndarray:
        import soundfile

        samples: np.ndarray = soundfile.read(self.folder / name, dtype="float32")[0]
        return samples

    def __getitem__(self, key: Key) -> np.ndarray:
        row = self.rows[key]
        start = int(row["start"])
        samples = self._file(row["file"])[start : start + int(row["length"])]
        return samples / max(float(np.abs(samples).max()), 1e-6)

    def seconds(self, key: Key) -> float:
        return int(self.rows[key]["length"]) / RATE


def vectors_of(make: Callable[[int], np.ndarray], n: int, extractor: str, kept: Path) -> np.ndarray:
    """(n, D) vectors of the samples that `make` gives, from the file `kept` where they were made before."""
    if kept.is_file():
        return np.asarray(np.load(kept))
    from mvplda import load_extractor

    network = load_extractor(extractor)
    found = np.stack([network(make(i), RATE) for i in range(n)]).astype(np.float32)
    kept.parent.mkdir(parents=True, exist_ok=True)
    np.save(kept, found)
    return found


def split(training: Sequence[int], speakers: Sequence[int]) -> tuple[list[int], list[int]]:
    """Training speakers, and the others."""
    own = {int(s) for s in training}
    return sorted(own), sorted(s for s in {int(s) for s in speakers} if s not in own)
