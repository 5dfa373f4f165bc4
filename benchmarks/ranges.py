"""Statistics by ranges of classes on two workers: CPU seconds, bytes and peak memory, extended to a large data set.

``python -m benchmarks ranges`` draws vectors of speakers in random order into shards, and sums them up on the two
workers of a local Dask cluster. The extension assumes that a worker of the large run has shards and ranges with as many
vectors and classes each, which sets their number, and that CPU seconds and bytes grow with vectors and dimensions.
"""

from __future__ import annotations

import resource
import tempfile
import time
from collections.abc import Iterator
from math import exp
from pathlib import Path
from typing import Any

import numpy as np

from mvplda import SufficientStatistics
from mvplda.distributed import gather_ranges
from mvplda.io.vectors import VectorSet, write_vectors

FULL = {"vectors": 4_000_000, "speakers": 400_000, "dimension": 64, "shards": 40, "ranges": 8}
QUICK = {"vectors": 20_000, "speakers": 2000, "dimension": 16, "shards": 4, "ranges": 2}
LARGE = {"vectors": 10**9, "speakers": 10**7, "dimension": 512}
PHRASES = 10
WORKERS = 2


def draw(case: dict[str, int], folder: Path) -> Iterator[Path]:
    """Write the shards: float32 vectors of speakers and phrases in random order."""
    size = case["vectors"] // case["shards"]
    for number in range(case["shards"]):
        rng = np.random.default_rng(number)
        X = rng.standard_normal((size, case["dimension"]), dtype=np.float32)
        speakers = [f"s{k}" for k in rng.integers(0, case["speakers"], size).tolist()]
        phrases = [f"p{k}" for k in rng.integers(0, PHRASES, size).tolist()]
        path = folder / f"part-{number:04}.parquet"
        ids = np.array([f"{number}-{row}" for row in range(size)])
        write_vectors(path, VectorSet(ids, X), {"speaker": speakers, "phrase": phrases})
        yield path


def usage() -> tuple[float, float]:
    """Return CPU seconds and peak memory in MiB of this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def measure(case: dict[str, int], folder: Path) -> dict[str, Any]:
    """Sum up drawn shards on two workers, and return what it took."""
    from distributed import Client, LocalCluster

    (folder / "shards").mkdir()
    paths = list(draw(case, folder / "shards"))
    with (
        LocalCluster(
            n_workers=WORKERS, threads_per_worker=1, processes=True, dashboard_address=None
        ) as cluster,
        Client(cluster) as client,
    ):
        before = client.run(usage)
        start = time.perf_counter()
        files = gather_ranges(
            paths,
            f"{folder}/stats-{{shard}}.safetensors",
            views=["speaker", "phrase"],
            ranges=case["ranges"],
            work_dir=folder / "work",
            scheduler=cluster.scheduler_address,
        )
        wall = time.perf_counter() - start
        after = client.run(usage)
    parts = [SufficientStatistics.load(file) for file in files]
    assert sum(part.n for part in parts) == case["vectors"]
    classes = sum(len(part.counts["speaker"]) for part in parts)
    assert classes <= case["speakers"]
    work = sum(file.stat().st_size for file in (folder / "work").iterdir())
    return {
        "CPU seconds of the workers": sum(after[k][0] - before[k][0] for k in after),
        "seconds on the wall": wall,
        "classes": classes,
        "bytes of the shards": sum(path.stat().st_size for path in paths),
        "bytes of the files of each shard and range": work,
        "bytes of the results": sum(Path(file).stat().st_size for file in files),
        "peak of a worker, MiB": max(after[k][1] for k in after),
        "of it before the work, MiB": max(before[k][1] for k in before),
    }


def distinct(vectors: float, classes: float) -> float:
    """Return the expected number of classes of vectors in random order."""
    return classes * (1 - exp(-vectors / classes))


def extended(case: dict[str, int], measured: dict[str, Any]) -> dict[str, Any]:
    """Return what the large data set takes by proportion, and the sizes by calculation."""
    wider = LARGE["dimension"] / case["dimension"]
    work = LARGE["vectors"] / case["vectors"] * wider
    per_shard = case["vectors"] / case["shards"]
    shards = LARGE["vectors"] / per_shard
    row = 8 * LARGE["dimension"]
    per_range = case["speakers"] / case["ranges"]
    return {
        "case": LARGE,
        "vectors per shard": per_shard,
        "shards": shards,
        "ranges": LARGE["speakers"] / per_range,
        "class sums of all shards, TB": shards
        * distinct(per_shard, LARGE["speakers"])
        * row
        / 1e12,
        "class sums of the result, GB": LARGE["speakers"] * row / 1e9,
        "class sums of a shard, GB": distinct(per_shard, LARGE["speakers"]) * row / 1e9,
        "class sums of a range, GB": per_range * row / 1e9,
        "CPU hours, in proportion to vectors and dimensions": measured["CPU seconds of the workers"]
        * work
        / 3600,
        "peak of a worker above the libraries, GiB, in proportion to dimensions": (
            measured["peak of a worker, MiB"] - measured["of it before the work, MiB"]
        )
        * wider
        / 1024,
    }


def run(*, quick: bool, rounds: int, peer_python: str) -> dict[str, Any]:
    """Return the figures of one run, which takes minutes, and their extension."""
    case = QUICK if quick else FULL
    with tempfile.TemporaryDirectory() as folder:
        measured = measure(case, Path(folder))
    return {
        "case": {**case, "workers": WORKERS, "phrases": PHRASES},
        "measured": measured,
        "extended by proportion": extended(case, measured),
    }
