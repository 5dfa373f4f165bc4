"""Speed of statistics from files in GB/s per format, compared with reading and multiplying alone, and their memory.

``python -m benchmarks io``. At most two threads work: one reads, the other multiplies (BLAS has one thread). Times are
wall-clock seconds, the best of several interleaved rounds; "cold" means that the file was first removed from the page
cache.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from mvplda.distributed.shards import BATCH_BYTES, gather
from mvplda.io.lists import write_map
from mvplda.io.vectors import VectorSet, open_vectors, write_vectors

from .timing import extra_memory, in_another_process

DIMENSION, CLASSES, PHRASES = 256, 1000, 30
VIEWS = ["speaker", "phrase"]
TABLES = ("parquet",) if find_spec("pyarrow") is not None else ()
FORMATS = ("npz", *TABLES, "scp")
PIECE = 50_000


def pieces(vectors: int) -> Iterator[tuple[Any, Any, Any]]:
    """Vectors, speakers and phrases, a piece at a time."""
    rng = np.random.default_rng(0)
    for start in range(0, vectors, PIECE):
        n = min(PIECE, vectors - start)
        X = rng.standard_normal((n, DIMENSION), dtype=np.float32)
        yield X, rng.integers(0, CLASSES, size=n), rng.integers(0, PHRASES, size=n)


def write(folder: Path, name: str, vectors: int) -> tuple[Path, dict[str, str]]:
    """A shard in this format, and where its labels are."""
    path = folder / f"x.{name}"
    if name == "parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        writer: Any = None
        for some, speaker, phrase in pieces(vectors):
            lists = pa.FixedSizeListArray.from_arrays(pa.array(some.reshape(-1)), DIMENSION)
            table = pa.table({"vector": lists, "speaker": speaker, "phrase": phrase})
            if writer is None:
                options = {"compression": "none", "use_dictionary": False}
                writer = pq.ParquetWriter(path, table.schema, **options)
            writer.write_table(table)
        writer.close()
    else:
        all_pieces = list(pieces(vectors))
        X, speaker, phrase = (np.concatenate([p[i] for p in all_pieces]) for i in range(3))
        if name == "npz":
            np.savez(path, X=X, speaker=speaker, phrase=phrase)
        else:
            ids = np.array([f"utterance-{i:07d}" for i in range(vectors)])
            write_vectors(path, VectorSet(ids, X))
            for view, codes in zip(VIEWS, (speaker, phrase), strict=True):
                write_map(
                    folder / f"utt2{view}", dict(zip(ids.tolist(), codes.tolist(), strict=True))
                )
            return path, {view: str(folder / f"utt2{view}") for view in VIEWS}
    return path, {}


def out_of_the_cache(path: Path) -> None:
    for file in path.parent.iterdir():
        with file.open("rb") as opened:
            os.fsync(opened.fileno())
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def bare_read(path: Path) -> None:
    buffer = bytearray(BATCH_BYTES)
    path = path.with_suffix(".ark") if path.suffix == ".scp" else path
    with path.open("rb", buffering=0) as file:
        while file.readinto(buffer):
            pass


def bare_product(block: Any, times: int) -> None:
    for _ in range(times):
        block.T @ block


def read_alone(path: Path) -> None:
    for batch in open_vectors(str(path)).batches(BATCH_BYTES, [], False):
        assert len(batch.X)


def seconds(work: Callable[[], object], before: Callable[[], object] = lambda: None) -> float:
    before()
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


@contextmanager
def shard(name: str, vectors: int) -> Iterator[tuple[Path, dict[str, str]]]:
    with tempfile.TemporaryDirectory(prefix="mvplda-bench-") as folder:
        yield write(Path(folder), name, vectors)


def speed(name: str, vectors: int, rounds: int) -> dict[str, Any]:
    """GB of vectors a second: the bare read, the reader alone, and all of it."""
    block = next(pieces(4096))[0]
    with shard(name, vectors) as (path, labels):
        rows: dict[str, Callable[[], float]] = {
            "bare read": lambda: seconds(lambda: bare_read(path)),
            "bare read, cold": lambda: seconds(
                lambda: bare_read(path), lambda: out_of_the_cache(path)
            ),
            "bare X'X": lambda: seconds(lambda: bare_product(block, -(-vectors // 4096))),
            "reader alone": lambda: seconds(lambda: read_alone(path)),
            "statistics": lambda: seconds(lambda: gather(path, labels, VIEWS)),
            "statistics, cold": lambda: seconds(
                lambda: gather(path, labels, VIEWS), lambda: out_of_the_cache(path)
            ),
        }
        best = dict.fromkeys(rows, float("inf"))
        for _ in range(rounds):
            for row, measured in rows.items():
                best[row] = min(best[row], measured())
    size = vectors * DIMENSION * 4 / 1e9
    floor = max(best["bare read"], best["bare X'X"])
    return {
        "format": name,
        "GB/s": {row: round(size / time_, 3) for row, time_ in best.items()},
        "statistics to the slower of bare read and bare X'X": round(best["statistics"] / floor, 2),
    }


def engines(vectors: int, rounds: int) -> dict[str, Any]:
    """GB of vectors a second of four shards, on one worker and on two."""
    name = FORMATS[min(1, len(TABLES))]  # Parquet where it can be written, else .npz
    with tempfile.TemporaryDirectory(prefix="mvplda-bench-") as folder:
        paths = []
        for i in range(4):
            (Path(folder) / str(i)).mkdir()
            paths.append(write(Path(folder) / str(i), name, vectors // 4)[0])
        rows = {"serial": 1, "processes": 2}
        best = dict.fromkeys(rows, float("inf"))
        for _ in range(rounds):
            for row, workers in rows.items():
                work = partial(gather, paths, None, VIEWS, workers=workers)
                best[row] = min(best[row], seconds(work))
    size = vectors * DIMENSION * 4 / 1e9
    measured = {row: round(size / time_, 3) for row, time_ in best.items()}
    return {f"GB/s of four shards, {name}": measured}


def memory(name: str, vectors: int) -> dict[str, Any]:
    with shard(name, vectors) as (path, labels):
        peak = in_another_process("benchmarks.statistics_io", str(path), labels)
    size = vectors * DIMENSION * 4 / 2**20
    return {
        "format": name,
        "vectors": vectors,
        "vectors, MiB": round(size),
        "extra memory, MiB": round(peak, 1),
    }


def measure_memory(path: str, labels: dict[str, str]) -> None:
    """Peak of a run, in a process of its own; a small run before it pays for what the libraries take once."""
    with shard("parquet", 1000) as (small, _):
        gather(small, None, VIEWS)
    if path.endswith(".parquet"):
        with shard("parquet", 1000) as (small, _):
            gather(small, None, VIEWS)
    print(json.dumps(extra_memory(lambda: gather(path, labels, VIEWS))))


def run(*, quick: bool, rounds: int, peer_python: str) -> dict[str, Any]:
    vectors, counts = (20_000, (10**4, 10**5)) if quick else (250_000, (10**5, 5 * 10**5, 10**6))
    return {
        "machine": {"clock": "seconds on the wall, best of several rounds that take turns"},
        "case": f"{vectors} vectors, D={DIMENSION}, float32, {CLASSES} speakers, {PHRASES} phrases, full second moment",
        "speed": [speed(name, vectors, min(rounds, 3)) for name in FORMATS],
        "engines": engines(vectors, min(rounds, 3)),
        "memory": [memory(name, count) for name in TABLES[:1] for count in counts],
    }


if __name__ == "__main__":
    measure_memory(*(json.loads(argument) for argument in sys.argv[1:]))
