"""Time and memory of one E step with two views of many classes each, over the size of the dense system to be solved."""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np

from mvplda import SufficientStatistics
from mvplda.inference.design import Design
from mvplda.inference.em import m_step, moment_start, posterior
from mvplda.inference.parameters import NoiseModel

from .data import draw
from .timing import best_of, extra_memory, in_another_process

VIEWS = ("speaker", "channel")
RANKS, DIMENSION, EACH = (16, 8), 32, 10
FULL = [32, 64, 128, 256, 384, 512, 768]
QUICK = [16, 32]


def prepared(classes: int) -> tuple[Any, NoiseModel, Any]:
    """Vectors in random cells of classes x classes; no class is empty."""
    vectors = EACH * classes
    rng = np.random.default_rng(0)
    first = np.concatenate([np.arange(classes), rng.integers(0, classes, size=vectors - classes)])
    labels = {"speaker": first, "channel": rng.permutation(np.arange(vectors) % classes)}
    X = draw(list(labels.values()), RANKS, DIMENSION, "float32")
    statistics = SufficientStatistics.from_arrays(X, labels, views=VIEWS, second_moment="diagonal")
    sums = statistics.for_views(VIEWS, "diagonal")
    noise = NoiseModel("diagonal", 1e-6 * statistics.variance, statistics.variance)
    return sums, noise, moment_start(sums, RANKS, noise, np.random.default_rng(0))


def growing(classes: int, rounds: int) -> dict[str, Any]:
    """One iteration."""
    sums, noise, start = prepared(classes)
    design = Design.of(sums, RANKS)
    post = posterior(design, start)
    work = {"exact": lambda: posterior(design, m_step(sums, post, noise))}
    return {
        "classes each": classes,
        "vectors": sums.n,
        "dense size": design.plan.dense_size,
        "seconds": best_of(work, rounds if classes < 300 else 1)["exact"],
        "extra memory, MiB": in_another_process("benchmarks.crossed", classes),
    }


def run(*, quick: bool, rounds: int, peer_python: str) -> dict[str, Any]:
    rows = [growing(classes, rounds) for classes in (QUICK if quick else FULL)]
    sizes = np.log([row["dense size"] for row in rows[-4:]])
    seconds = np.log([row["seconds"] for row in rows[-4:]])
    return {
        "case": f"D={DIMENSION}, ranks {RANKS[0]}+{RANKS[1]}, {EACH} random cells a class, diagonal noise",
        "growth": rows,
        "time grows as dense size to the power": float(np.polyfit(sizes, seconds, 1)[0]),
    }


def main() -> None:
    """MiB that one E step takes above the statistics, in a process of its own."""
    sums, _, start = prepared(int(sys.argv[1]))
    print(json.dumps(extra_memory(lambda: posterior(Design.of(sums, RANKS), start))))


if __name__ == "__main__":
    main()
