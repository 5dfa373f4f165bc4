"""Time of 10 EM iterations with two views, with and without interaction, compared with bare matrix products."""

from __future__ import annotations

import json
import sys
import warnings
from typing import Any

import numpy as np

from mvplda import MultiviewPLDA, SufficientStatistics

from .data import draw
from .floor import Iteration, one_hot
from .timing import best_of, extra_memory, in_another_process

FULL = {
    "speakers": 1000,
    "phrases": 30,
    "each": 9,
    "dimension": 512,
    "ranks": [150, 29, 30],
    "iterations": 10,
}
QUICK = {
    "speakers": 50,
    "phrases": 5,
    "each": 3,
    "dimension": 40,
    "ranks": [10, 4, 5],
    "iterations": 10,
}
VIEWS = ("speaker", "phrase", "speaker:phrase")


def make(case: dict[str, Any], n_views: int) -> tuple[Any, list[Any], dict[str, int]]:
    """Vectors, class numbers in every view, and the ranks of the views."""
    phrases, each = case["phrases"], case["each"]
    cells = np.repeat(np.arange(case["speakers"] * phrases), each)
    codes = [cells // phrases, cells % phrases, cells][:n_views]
    ranks = case["ranks"][:n_views]
    return draw(codes, ranks, case["dimension"]), codes, dict(zip(VIEWS, ranks, strict=False))


def fit(X: Any, codes: list[Any], views: dict[str, int], iterations: int) -> MultiviewPLDA:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = MultiviewPLDA(views, max_iter=iterations, tol=0.0, random_state=0)
        return model.fit(X, {"speaker": codes[0], "phrase": codes[1]})


def run(*, quick: bool, rounds: int, peer_python: str) -> dict[str, Any]:
    case = QUICK if quick else FULL
    return {"cases": [measure(case, n_views, rounds) for n_views in (2, 3)]}


def measure(case: dict[str, Any], n_views: int, rounds: int) -> dict[str, Any]:
    X, codes, views = make(case, n_views)
    labels = {"speaker": codes[0], "phrase": codes[1]}
    sums = [one_hot(code) for code in codes]
    classes = [int(code.max()) + 1 for code in codes]
    iteration = Iteration(classes, list(views.values()), case["dimension"], full=False)
    seconds = best_of(
        {
            "class sums": lambda: [table @ X for table in sums],
            "one iteration's products": iteration,
            "mvplda": lambda: fit(X, codes, views, case["iterations"]),
            "of which statistics": lambda: SufficientStatistics.from_arrays(
                X, labels, views=tuple(views), second_moment="diagonal"
            ),
        },
        rounds,
    )
    floor = seconds["class sums"] + case["iterations"] * seconds["one iteration's products"]
    return {
        "case": f"{case['speakers']} speakers x {case['phrases']} phrases x {case['each']}, D={case['dimension']}, "
        + ", ".join(f"{view} {rank}" for view, rank in views.items()),
        "seconds": {**seconds, "floor": floor},
        "ratio to the floor": {"mvplda": seconds["mvplda"] / floor},
        "extra memory, MiB": {"float64": in_another_process("benchmarks.joint", case, n_views)},
        "of it class sums of the views, MiB": sum(classes) * case["dimension"] * 8 / 2**20,
    }


def main() -> None:
    """Extra memory of one fit, measured in a process of its own."""
    case, n_views = (json.loads(a) for a in sys.argv[1:])
    fit(*make(QUICK, n_views), 2)  # what the libraries take once
    made = make(case, n_views)
    print(json.dumps(extra_memory(lambda: fit(*made, case["iterations"]))))


if __name__ == "__main__":
    main()
