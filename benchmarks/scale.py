"""Time and memory of statistics over the numbers of vectors, classes and dimensions.

Vectors are drawn, summed and discarded batch by batch. ``python -m benchmarks scale`` measures each size in a separate
process, whose peak memory is then that of this size, and extrapolates to a thousand million vectors.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from mvplda import SufficientStatistics
from mvplda.inference.design import Design
from mvplda.inference.em import m_step, moment_start, posterior
from mvplda.inference.parameters import NoiseModel
from mvplda.statistics import Accumulator
from mvplda.statistics.classes import GrowingClasses, label_codes

from .timing import best_of, extra_memory, in_another_process

FULL: dict[str, Any] = {
    "vectors": [10**4, 10**5, 10**6, 10**7],
    "speakers": [10**2, 10**3, 10**4, 10**5, 10**6],
    "dimensions": [64, 128, 256, 512, 1024, 2048],
    "usual": {"vectors": 2 * 10**6, "speakers": 1000, "dimension": 128},
    "vectors by dimension": 10**5,
    "rank": 40,
}
QUICK: dict[str, Any] = {
    "vectors": [10**3, 10**4],
    "speakers": [50, 500],
    "dimensions": [16, 32],
    "usual": {"vectors": 5000, "speakers": 100, "dimension": 16},
    "vectors by dimension": 2000,
    "rank": 10,
}
PHRASES, LATENTS = 10, 8
VIEWS = ("speaker", "phrase")
BATCH_BYTES = 16 * 2**20
QUICKLY_DONE = 3 * 10**8
"""Numbers up to which a point is measured several times."""
FAR = {"vectors": 10**9, "dimension": 512, "speakers": 10**6}


class Source:
    """Vectors of speakers and phrases in random order; no speaker is left out."""

    def __init__(self, vectors: int, speakers: int, dimension: int) -> None:
        self.vectors, self.speakers, self.dimension = vectors, speakers, dimension
        rng = np.random.default_rng(0)
        self.latents = rng.standard_normal((speakers, LATENTS), dtype=np.float32)
        self.loading = rng.standard_normal((LATENTS, dimension), dtype=np.float32) / np.float32(
            LATENTS**0.5
        )
        self.phrases = rng.standard_normal((PHRASES, dimension), dtype=np.float32)

    def batches(self) -> Iterator[tuple[Any, Any, Any]]:
        rng = np.random.default_rng(1)
        step = max(1, BATCH_BYTES // (4 * self.dimension))
        for start in range(0, self.vectors, step):
            row = np.arange(start, min(start + step, self.vectors))
            speaker = np.where(
                row < self.speakers, row, rng.integers(0, self.speakers, size=len(row))
            )
            phrase = rng.integers(0, PHRASES, size=len(row))
            X = rng.standard_normal((len(row), self.dimension), dtype=np.float32)
            X += self.latents[speaker] @ self.loading
            X += self.phrases[phrase]
            yield X, speaker, phrase


def gather(source: Source) -> tuple[SufficientStatistics, dict[str, float]]:
    """Statistics of all batches; CPU seconds of drawing and of summing."""
    spent = {"generation": 0.0, "statistics": 0.0}
    sums: Accumulator | None = None
    classes = GrowingClasses(VIEWS)
    clock = time.process_time()
    for X, speaker, phrase in source.batches():
        before, clock = clock, time.process_time()
        spent["generation"] += clock - before
        sums = sums or Accumulator(X.shape[1], VIEWS)
        sums.add(
            X, classes.number({"speaker": label_codes(speaker), "phrase": label_codes(phrase)})
        )
        before, clock = clock, time.process_time()
        spent["statistics"] += clock - before
    assert sums is not None
    result = SufficientStatistics.of(sums, *classes.sorted())
    spent["statistics"] += time.process_time() - clock
    return result, spent


def iteration(statistics: SufficientStatistics, kind: Any, rank: int, rounds: int) -> float:
    """CPU seconds of one EM iteration."""
    sums = statistics.for_views(VIEWS, "full" if kind == "full" else "diagonal")
    ranks = (min(rank, len(sums.counts[0]) - 1, statistics.dimension), PHRASES - 1)
    noise = NoiseModel(kind, 1e-6 * statistics.variance, statistics.variance)
    design = Design.of(sums, ranks, iterations=10)
    post = posterior(design, moment_start(sums, ranks, noise, np.random.default_rng(0)))
    return best_of({"": lambda: posterior(design, m_step(sums, post, noise))}, rounds)[""]


def bare_product(source: Source) -> float:
    """CPU seconds of X'X alone, of all batches."""
    X = next(source.batches())[0]
    return best_of({"": lambda: X.T @ X}, 3)[""] * source.vectors / len(X)


def point(vectors: int, speakers: int, dimension: int, rank: int, rounds: int) -> dict[str, Any]:
    """One point of a curve, measured here."""
    small = gather(Source(2000, 50, 16))[0]  # what the libraries take once
    iteration(small, "full", 5, 1)
    source = Source(vectors, speakers, dimension)
    found: list[Any] = []
    memory = {"statistics": extra_memory(lambda: found.append(gather(source)))}
    statistics, seconds = found.pop()
    assert (statistics.n, len(statistics.counts["speaker"])) == (vectors, speakers)
    for _ in range(rounds - 1 if vectors * dimension <= QUICKLY_DONE else 0):
        again = gather(source)[1]
        seconds = {name: min(value, again[name]) for name, value in seconds.items()}
    seconds["bare X'X"] = bare_product(source)
    for kind in ("diagonal", "full"):

        def work(kind: str = kind) -> None:
            seconds[f"an iteration, {kind} noise"] = iteration(statistics, kind, rank, rounds)

        memory[f"EM, {kind} noise"] = extra_memory(work)
    return {
        "vectors": vectors,
        "speakers": speakers,
        "dimension": dimension,
        "seconds": seconds,
        "peak memory above the libraries, MiB": memory,
        "vectors themselves, MiB": vectors * dimension * 4 / 2**20,
        "class sums themselves, MiB": (speakers + PHRASES) * dimension * 8 / 2**20,
    }


def run(*, quick: bool, rounds: int, peer_python: str) -> dict[str, Any]:
    case = QUICK if quick else FULL
    usual = case["usual"]

    def measured(**changed: int) -> dict[str, Any]:
        of = {**usual, **changed}
        arguments = of["vectors"], of["speakers"], of["dimension"], case["rank"], min(rounds, 3)
        found: dict[str, Any] = in_another_process("benchmarks.scale", *arguments)
        print(json.dumps(found), file=sys.stderr, flush=True)
        return found

    by_vectors = [
        measured(vectors=n, speakers=min(usual["speakers"], n // 10)) for n in case["vectors"]
    ]
    by_speakers = [measured(speakers=c) for c in case["speakers"]]
    by_dimension = [
        measured(vectors=case["vectors by dimension"], dimension=d) for d in case["dimensions"]
    ]
    return {
        "case": f"float32 vectors drawn in batches of 16 MiB, {PHRASES} phrases, full second moment, speaker rank "
        f"{case['rank']}; one thread of a machine that others use as well: expect a fifth more or less",
        "by vectors": by_vectors,
        "by speakers": by_speakers,
        "by dimension": by_dimension,
        "far": extended(by_vectors, by_speakers, by_dimension, case["rank"]),
    }


def extended(
    by_vectors: list[Any], by_speakers: list[Any], by_dimension: list[Any], rank: int
) -> dict[str, Any]:
    """What a thousand million vectors take, if the lines go on.

    Of the time of a vector the product is measured at this D; what many speakers in random order add is measured at
    another, and taken to grow as D, which is too much. An iteration is the products of all speakers in float64.
    """
    n = np.log([row["vectors"] for row in by_vectors[-2:]])
    t = np.log([row["seconds"]["statistics"] for row in by_vectors[-2:]])
    wide = min(by_dimension, key=lambda row: abs(row["dimension"] - FAR["dimension"]))
    few, many = (
        min(by_speakers, key=lambda row: abs(row["speakers"] - count))
        for count in (wide["speakers"], FAR["speakers"])
    )
    each = wide["seconds"]["statistics"] / wide["vectors"]
    more = (
        max(many["seconds"]["statistics"] - few["seconds"]["statistics"], 0.0) / many["vectors"]
    )  # rows far apart
    more *= FAR["dimension"] / many["dimension"]
    total = FAR["vectors"] * (each + more)
    sums = FAR["speakers"] * FAR["dimension"] * 8 / 2**30
    size = FAR["vectors"] * FAR["dimension"] * 4
    peak = many["peak memory above the libraries, MiB"]["statistics"]
    operations = FAR["speakers"] * (4.0 * FAR["dimension"] * rank + 2.0 * rank**2)
    return {
        "case": FAR,
        "statistics grow as vectors to the power": float((t[1] - t[0]) / (n[1] - n[0])),
        "microseconds a vector, few speakers": 1e6 * each,
        "microseconds more, many speakers": 1e6 * more,
        "CPU hours of the statistics": total / 3600,
        "hours with 64 workers": total / 3600 / 64,
        "MB/s that each of them reads": size / total / 1e6,
        "size of the vectors, TB": size / 1e12,
        "class sums, GiB": sums,
        "peak while a result is put in order, GiB": sums
        * peak
        / many["class sums themselves, MiB"],
        "CPU seconds of an iteration, no two speakers alike": operations / float64_rate(rank),
    }


def float64_rate(rank: int) -> float:
    """Operations a second of one thread in the products of an iteration."""
    F, B = np.ones((4096, FAR["dimension"])), np.ones((FAR["dimension"], rank))
    return 2.0 * F.size * rank / best_of({"": lambda: F @ B}, 5)[""]


if __name__ == "__main__":
    print(json.dumps(point(*(json.loads(argument) for argument in sys.argv[1:]))))
