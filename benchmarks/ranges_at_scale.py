"""Statistics by ranges of classes at 100 million vectors, against the proportional extension of 4 million.

``python -m benchmarks ranges-at-scale`` sums up two drawn data sets on two workers. Both have as many vectors per
shard, per speaker and per range; the larger one has 25 times as many shards and ranges. If CPU seconds grew in
proportion to vectors, and the memory of a worker stayed the same, both ratios of the figures would be 1. The larger
run needs about 25 GB of disk.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from .ranges import PHRASES, QUICK, WORKERS, measure

SMALL = {"vectors": 4_000_000, "speakers": 400_000, "dimension": 16, "shards": 40, "ranges": 8}
FACTOR = 25
GROWING = ("vectors", "speakers", "shards", "ranges")
QUICK_FACTOR = 2


def enlarged(case: dict[str, int], factor: int) -> dict[str, int]:
    """Return a case with `factor` times as many vectors, speakers, shards and ranges, of the same dimension."""
    return {name: size * factor if name in GROWING else size for name, size in case.items()}


def run(*, quick: bool, rounds: int, peer_python: str) -> dict[str, Any]:
    """Return the figures of both data sets, and their ratios to growth in proportion to vectors."""
    small = QUICK if quick else SMALL
    factor = QUICK_FACTOR if quick else FACTOR
    cases = {"small": small, "large": enlarged(small, factor)}
    measured = {}
    for name, case in cases.items():
        with tempfile.TemporaryDirectory() as folder:
            measured[name] = measure(case, Path(folder))

    seconds = {name: row["CPU seconds of the workers"] for name, row in measured.items()}
    memory = {
        name: max(row["peak of a worker, MiB"] - row["of it before the work, MiB"], 1.0)
        for name, row in measured.items()
    }
    return {
        "cases": {
            name: {**case, "workers": WORKERS, "phrases": PHRASES} for name, case in cases.items()
        },
        "measured": measured,
        "CPU seconds, large against small in proportion": seconds["large"]
        / (factor * seconds["small"]),
        "memory of a worker above the libraries, large against small": memory["large"]
        / memory["small"],
    }
