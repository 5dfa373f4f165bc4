"""Two views with many classes each: the exact E step against the factorised one as the dense system grows.

``python -m benchmarks crossed`` measures where "auto" should change from one to the other
(`mvplda.inference.design.AUTO_OPERATIONS`), what the bound loses, and the largest designs.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from mvplda import MultiviewPLDA, SufficientStatistics
from mvplda.inference.design import AUTO_OPERATIONS, Design
from mvplda.inference.em import m_step, moment_start, posterior
from mvplda.inference.parameters import NoiseModel
from mvplda.statistics.accumulator import Sums

from .data import draw
from .timing import best_of, extra_memory, in_another_process

VIEWS = ("speaker", "channel")
RANKS, DIMENSION, EACH = (16, 8), 32, 10
FULL = {
    "classes": [32, 64, 128, 256, 384, 512, 768],
    "large": [[10**4, 10**5], [10**4, 10**6], [10**5, 10**6]],
}
QUICK = {"classes": [16, 32], "large": [[500, 2500]]}
PATIENCE = 2.0
"""Seconds of one thread that an exact iteration may take before "auto" prefers the bound."""


def labels_of(classes: int, vectors: int) -> dict[str, Any]:
    """So many vectors in random cells of classes x classes; no class is empty."""
    rng = np.random.default_rng(0)
    first = np.concatenate([np.arange(classes), rng.integers(0, classes, size=vectors - classes)])
    return {"speaker": first, "channel": rng.permutation(np.arange(vectors) % classes)}


def statistics_of(classes: int, vectors: int) -> SufficientStatistics:
    labels = labels_of(classes, vectors)
    X = draw(list(labels.values()), RANKS, DIMENSION, "float32")
    return SufficientStatistics.from_arrays(X, labels, views=VIEWS, second_moment="diagonal")


def prepared(statistics: SufficientStatistics) -> tuple[Sums, NoiseModel, Any]:
    sums = statistics.for_views(VIEWS, "diagonal")
    noise = NoiseModel("diagonal", 1e-6 * statistics.variance, statistics.variance)
    return sums, noise, moment_start(sums, RANKS, noise, np.random.default_rng(0))


def growing(classes: int, rounds: int) -> dict[str, Any]:
    """One iteration of both methods, and what the bound loses."""
    sums, noise, start = prepared(statistics_of(classes, EACH * classes))
    designs = {m: Design.of(sums, RANKS, method=m) for m in ("exact", "variational")}  # type: ignore[arg-type]
    posts = {m: posterior(design, start) for m, design in designs.items()}
    rounds = rounds if classes < 300 else 1
    seconds = best_of(
        {m: lambda m=m: posterior(designs[m], m_step(sums, posts[m], noise)) for m in designs},
        rounds,
    )
    sigma = posts["exact"].parameters.sigma
    apart = 0.0  # log |Lambda| if all classes of all views were independent: the plain mean field
    for n, loading in zip(sums.counts, posts["exact"].parameters.loadings, strict=True):
        gram = np.linalg.eigvalsh(loading.T @ sigma.solve(loading))
        apart += float(np.log1p(np.outer(n, gram)).sum())
    exact = posts["exact"]
    return {
        "classes each": classes,
        "vectors": sums.n,
        "dense size": designs["exact"].plan.dense_size,
        "seconds": seconds,
        "bound below the log-likelihood, nat a vector": (
            exact.log_likelihood - posts["variational"].log_likelihood
        )
        / sums.n,
        "plain mean field below it, nat a vector": (apart - exact.elimination.log_determinant)
        / 2
        / sums.n,
        "extra memory, MiB": {
            m: in_another_process("benchmarks.crossed", "memory", classes, m)
            for m in ("exact", "variational")
        },
    }


def memory(classes: int, method: str) -> float:
    """MiB that one E step takes above the statistics."""
    sums, _, start = prepared(statistics_of(classes, EACH * classes))
    return extra_memory(lambda: posterior(Design.of(sums, RANKS, method=method), start))  # type: ignore[arg-type]


def large(classes: int, vectors: int) -> dict[str, Any]:
    """A fit of two iterations by "auto", from the vectors on; peak memory of the whole process."""
    labels = labels_of(classes, vectors)
    X = draw(list(labels.values()), RANKS, DIMENSION, "float32")
    marks: list[float] = []
    model = MultiviewPLDA(
        dict(zip(VIEWS, RANKS, strict=True)),
        max_iter=2,
        tol=0.0,
        callback=lambda _: marks.append(time.process_time()),
    )
    begin = time.process_time()
    model.fit(X, labels)
    end = time.process_time()
    status = Path("/proc/self/status").read_text().splitlines()
    return {
        "classes each": classes,
        "cells filled": len(
            np.unique(labels["speaker"].astype(np.int64) * classes + labels["channel"])
        ),
        "vectors": vectors,
        "algorithm": model.algorithm_used_,
        "seconds an iteration": marks[1] - marks[0],
        "seconds of the fit (statistics, start, 2 iterations, diagnostics)": end - begin,
        "peak memory of the process, MiB": int(
            next(x.split()[1] for x in status if x.startswith("VmHWM"))
        )
        / 1024,
        "vectors themselves, MiB": X.nbytes / 2**20,
    }


def threshold(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The dense size at which an exact iteration reaches the limit of patience, by a line through the logs."""
    some = rows[-4:]
    size, seconds = (
        np.log([r["dense size"] for r in some]),
        np.log([r["seconds"]["exact"] for r in some]),
    )
    slope, offset = np.polyfit(size, seconds, 1)
    reached = float(np.exp((np.log(PATIENCE) - offset) / slope))
    return {
        "patience, seconds an iteration": PATIENCE,
        "time grows as dense size to the power": float(slope),
        "dense size there": reached,
        "dense size of AUTO_OPERATIONS": (AUTO_OPERATIONS / 2) ** (1 / 3),
    }


def run(*, quick: bool, rounds: int, peer_python: str) -> dict[str, Any]:
    case = QUICK if quick else FULL
    rows = [growing(classes, rounds) for classes in case["classes"]]
    return {
        "case": f"D={DIMENSION}, ranks {RANKS[0]}+{RANKS[1]}, {EACH} random cells a class, diagonal noise",
        "growth": rows,
        "threshold": threshold(rows),
        "large": [
            in_another_process("benchmarks.crossed", "large", c, v) for c, v in case["large"]
        ],
    }


def main() -> None:
    """One measurement, in a process of its own."""
    kind, *arguments = (json.loads(a) for a in sys.argv[1:])
    print(json.dumps({"memory": memory, "large": large}[kind](*arguments)))


if __name__ == "__main__":
    main()
