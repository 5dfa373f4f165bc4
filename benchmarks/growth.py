"""How time and memory grow with vectors and with speakers: statistics are linear in vectors, an iteration is not."""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np

from mvplda import MultiviewPLDA, SufficientStatistics
from mvplda.kernel.design import Design
from mvplda.kernel.em import NoiseModel, m_step
from mvplda.kernel.posterior import posterior
from mvplda.kernel.start import from_moments

from .data import draw
from .timing import best_of, extra_memory, in_another_process

FULL = {"vectors": [10**4, 10**5, 10**6], "speakers": [10**2, 10**3, 10**4, 10**5], "dimension": 128, "rank": 40}
QUICK = {"vectors": [10**3, 10**4], "speakers": [50, 500], "dimension": 32, "rank": 10}
PHRASES = 10
VIEWS = ("speaker", "phrase")


def labels_of(vectors: int, speakers: int) -> dict[str, Any]:
    """Random labels that leave no class empty: uneven and incomplete, as real sets are."""
    rng = np.random.default_rng(0)
    speaker = np.concatenate([np.arange(speakers), rng.integers(0, speakers, size=vectors - speakers)])
    return {"speaker": speaker, "phrase": rng.permutation(np.arange(vectors) % PHRASES)}


def run(*, quick: bool, rounds: int, peer_python: str) -> dict[str, Any]:
    case = QUICK if quick else FULL
    most = max(case["vectors"])
    few = case["speakers"][1]
    labels = labels_of(most, few)
    X = draw(list(labels.values()), [case["rank"], PHRASES - 1], case["dimension"])
    return {
        "case": f"D={case['dimension']}, speaker rank {case['rank']}, {PHRASES} phrases, diagonal noise",
        f"by vectors ({few} speakers)": [
            measure(X[:vectors], labels_of(vectors, few), case, rounds) for vectors in case["vectors"]
        ],
        f"by speakers ({most} vectors)": [
            measure(X, labels_of(most, speakers), case, rounds) for speakers in case["speakers"]
        ],
    }


def measure(X: Any, labels: dict[str, Any], case: dict[str, Any], rounds: int) -> dict[str, Any]:
    statistics = SufficientStatistics.from_arrays(X, labels, views=VIEWS, second_moment="diagonal")
    sums = statistics.for_views(VIEWS, "diagonal")
    ranks = (min(case["rank"], len(sums.counts[0]) - 1), PHRASES - 1)
    noise = NoiseModel("diagonal", 1e-6 * statistics.variance, statistics.variance)
    design = Design.of(sums, ranks, iterations=10)
    post = posterior(design, from_moments(sums, ranks, noise, np.random.default_rng(0)))
    seconds = best_of(
        {
            "statistics": lambda: SufficientStatistics.from_arrays(X, labels, views=VIEWS, second_moment="diagonal"),
            "one iteration": lambda: posterior(design, m_step(sums, post, noise, (0.0, 0.0))),
        },
        rounds,
    )
    vectors, speakers = len(X), len(sums.counts[0])
    return {
        "vectors": vectors,
        "speakers": speakers,
        "seconds": seconds,
        "distinct counts": len(design.leaf_counts[0]),
        "extra memory, MiB": in_another_process("benchmarks.growth", case, vectors, speakers),
        "vectors themselves, MiB": X.nbytes / 2**20,
    }


def main() -> None:
    """Extra memory of statistics and 10 iterations, measured in a process of its own."""
    case, vectors, speakers = (json.loads(a) for a in sys.argv[1:])

    def fit(X: Any, labels: dict[str, Any]) -> None:
        views = {"speaker": None if speakers <= case["rank"] else case["rank"], "phrase": PHRASES - 1}
        MultiviewPLDA(views, max_iter=10, tol=0.0, random_state=0).fit(X, labels)

    tiny = labels_of(1000, 100)
    fit(draw(list(tiny.values()), [5, 5], 50), tiny)  # what the libraries take once
    labels = labels_of(vectors, speakers)
    X = draw(list(labels.values()), [case["rank"], PHRASES - 1], case["dimension"])
    print(json.dumps(extra_memory(lambda: fit(X, labels))))


if __name__ == "__main__":
    main()
