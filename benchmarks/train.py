"""Time of 10 training iterations of standard PLDA with full noise, compared with bare products and other programs."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from mvplda import PLDA

from .data import draw, equal_classes, uneven_classes
from .floor import Iteration, one_hot
from .peers import PEERS, quoted_ratios, run_peer
from .timing import best_of, extra_memory, in_another_process

BARE = "bare X'X"


@dataclass(frozen=True)
class Case:
    name: str
    classes: int
    each: int
    dimension: int
    rank: int
    iterations: int = 10

    def __str__(self) -> str:
        return f"{self.classes} x {self.each} vectors, D={self.dimension}, rank {self.rank}"


CASES = (Case("small", 1000, 20, 200, 100), Case("large", 5000, 20, 512, 150))
QUICK = (Case("quick", 200, 10, 40, 10),)


def fit(X: Any, y: Any, case: Case) -> PLDA:
    return PLDA(case.rank, noise="full", max_iter=case.iterations, tol=0.0, random_state=0).fit(
        X, y
    )


def run(*, quick: bool, rounds: int, peer_python: str) -> dict[str, Any]:
    return {"cases": [measure(case, rounds, peer_python) for case in (QUICK if quick else CASES)]}


def measure(case: Case, rounds: int, peer_python: str) -> dict[str, Any]:
    y, uneven = equal_classes(case.classes, case.each), uneven_classes(case.classes, case.each)
    X = draw([y], [case.rank], case.dimension)
    X32 = X.astype(np.float32)
    sums = one_hot(y)
    iteration = Iteration([case.classes], [case.rank], case.dimension, full=True)
    seconds = best_of(
        {
            BARE: lambda: X.T @ X,
            "bare X'X, float32": lambda: X32.T @ X32,
            "class sums": lambda: sums @ X,
            "one iteration's products": iteration,
            "mvplda": lambda: fit(X, y, case),
            "mvplda, uneven classes": lambda: fit(X, uneven, case),
            "mvplda, float32": lambda: fit(X32, y, case),
        },
        rounds,
    )
    floor = (
        seconds[BARE]
        + seconds["class sums"]
        + case.iterations * seconds["one iteration's products"]
    )
    ours = [name for name in seconds if name.startswith("mvplda")]
    peers = {name: run_peer(name, asdict(case), max(2, rounds // 2), peer_python) for name in PEERS}
    return {
        "case": str(case),
        "seconds": {**seconds, "floor": floor},
        "ratio to bare X'X": {name: seconds[name] / seconds[BARE] for name in ours},
        "ratio to the floor": {name: seconds[name] / floor for name in ours},
        "float32: largest difference of parameters": difference(fit(X, y, case), fit(X32, y, case)),
        "extra memory, MiB": {
            dtype: in_another_process("benchmarks.train", asdict(case), dtype)
            for dtype in ("float64", "float32")
        },
        "peers measured here": peers,
        "peers quoted, ratio to their bare X'X": quoted_ratios(case.name),
    }


def difference(a: PLDA, b: PLDA) -> dict[str, float]:
    """Largest difference, relative to the largest entry; covariances, because a loading may be turned."""

    def relative(x: Any, y: Any) -> float:
        return float(np.abs(x - y).max() / np.abs(x).max())

    (x,), (y,) = a.loadings_.values(), b.loadings_.values()
    scale = np.sqrt(np.diag(a.noise_).max())
    return {
        "mean": float(np.abs(a.mean_ - b.mean_).max() / scale),
        "between-class covariance": relative(x @ x.T, y @ y.T),
        "noise": relative(a.noise_, b.noise_),
    }


def main() -> None:
    """Extra memory of one fit, measured in a process of its own."""
    case, dtype = Case(**json.loads(sys.argv[1])), json.loads(sys.argv[2])
    tiny = equal_classes(50, 20)
    fit(draw([tiny], [5], 20, dtype), tiny, Case("", 50, 20, 20, 5))  # what the libraries take once
    y = equal_classes(case.classes, case.each)
    X = draw([y], [case.rank], case.dimension, dtype)
    print(json.dumps(extra_memory(lambda: fit(X, y, case))))


if __name__ == "__main__":
    main()
