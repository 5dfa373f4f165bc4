"""Speed of scoring: likelihood ratios per second over the number of trials, compared with bare matrix products."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from mvplda import MultiviewPLDA

from .timing import best_of, extra_memory

QUOTED = {
    "VBx": 8.9e7,
    "hyperion": 8.8e7,
    "SpeechBrain": 6.5e7,
    "DCA-PLDA": 3.7e7,
    "Kaldi": 9.3e4,
    "wespeaker": 3e4,
}
QUOTED_BARE = 8.9e7 / 0.25
QUOTED_LISTS = {
    "DCA-PLDA": 1e6 / 1.7,
    "hyperion": 1e6 / 3.7,
    "SpeechBrain": 1e6 / 4.0,
    "Kaldi": 1e6 / 11.7,
}
QUOTED_BARE_LIST = 4.6e6
LATENCY = (512, {"speaker": 150, "phrase": 29})


def fitted(views: dict[str, int], dimension: int) -> tuple[MultiviewPLDA, np.ndarray]:
    """A model of random views, and vectors of the kind that it was trained on."""
    rng = np.random.default_rng(0)
    n = 4000
    classes = dict(zip(views, (300, 30), strict=False))
    labels = {view: rng.integers(0, classes[view], n) for view in views}
    X = rng.normal(size=(n, dimension))
    for view, rank in views.items():
        X += (
            0.3
            * (rng.normal(size=(classes[view], rank)) @ rng.normal(size=(rank, dimension)))[
                labels[view]
            ]
        )
    return MultiviewPLDA(views, max_iter=3, tol=0).fit(X, labels), X


def wall(rows: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    return best_of(rows, rounds, time.perf_counter)


def fresh(profiles: Any) -> Any:
    """The same profiles, without what scoring has kept of them."""
    return replace(profiles)


def sides(model: MultiviewPLDA, X: np.ndarray, profiles: int, tests: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(1)
    return model.enrol(X[rng.integers(0, len(X), profiles)]), model.enrol(
        X[rng.integers(0, len(X), tests)]
    )


def matrix_case(
    views: dict[str, int], widths: tuple[int, ...], profiles: int, tests: int, rounds: int
) -> dict:
    model, X = fitted(views, 200)
    enrol, test = sides(model, X, profiles, tests)
    rng = np.random.default_rng(2)
    factors = [
        [rng.normal(size=(n, w)).astype(np.float32) for n in (profiles, tests)] for w in widths
    ]
    out = np.ones((profiles, tests), dtype=np.float32)
    memory = extra_memory(lambda: model.llr(enrol, test, out=out, threads=1))

    def bare() -> None:
        for left, right in factors:
            np.matmul(left, right.T, out=out)

    def bare_fresh() -> list[Any]:
        return [np.matmul(left, right.T) for left, right in factors]

    seconds = wall(
        {
            "bare products": bare,
            "bare products, fresh results": bare_fresh,
            "mvplda, out=": lambda: model.llr(fresh(enrol), fresh(test), out=out, threads=1),
            "mvplda, out=, the same profiles again": lambda: model.llr(
                enrol, test, out=out, threads=1
            ),
            "mvplda, fresh result": lambda: model.llr(fresh(enrol), fresh(test), threads=1),
            "mvplda, out=, two threads": lambda: model.llr(
                fresh(enrol), fresh(test), out=out, threads=2
            ),
            "mvplda, float64, out=": lambda: model.llr(
                fresh(enrol), fresh(test), dtype=np.float64, threads=1
            ),
        },
        rounds,
    )
    exact = model.llr(enrol[:200], test[:500], dtype=np.float64)
    return {
        "case": f"{profiles} x {tests} pairs, ranks {'+'.join(map(str, views.values()))}",
        "seconds": seconds,
        "LLR a second": {name: profiles * tests / s for name, s in seconds.items()},
        "share of the bare products": {n: seconds["bare products"] / s for n, s in seconds.items()},
        "two threads against one": seconds["mvplda, out="] / seconds["mvplda, out=, two threads"],
        "memory beyond the result, MiB": memory,
        "largest float32 error": float(np.abs(model.llr(enrol[:200], test[:500]) - exact).max()),
    }


def list_case(
    views: dict[str, int], width: int, profiles: int, tests: int, trials: int, rounds: int
) -> dict:
    model, X = fitted(views, 200)
    enrol, test = sides(model, X, profiles, tests)
    rng = np.random.default_rng(3)
    pairs = np.stack([rng.integers(0, profiles, trials), rng.integers(0, tests, trials)], axis=1)
    left, right = (rng.normal(size=(n, width)).astype(np.float32) for n in (profiles, tests))

    def indexed() -> None:
        for start in range(0, trials, 2048):
            some = pairs[start : start + 2048]
            np.einsum("ij,ij->i", left[some[:, 0]], right[some[:, 1]])

    def taken() -> None:
        for start in range(0, trials, 2048):
            some = pairs[start : start + 2048]
            np.einsum("ij,ij->i", left.take(some[:, 0], 0), right.take(some[:, 1], 0))

    rows = {"bare indexing and dot": indexed, "bare take and dot": taken}
    seconds = wall(
        {**rows, "mvplda": lambda: model.llr_trials(fresh(enrol), fresh(test), pairs)}, rounds
    )
    return {
        "case": f"a list of {trials} trials, ranks {'+'.join(map(str, views.values()))}",
        "seconds": seconds,
        "LLR a second": {name: trials / s for name, s in seconds.items()},
        "times the bare work": {name: seconds["mvplda"] / seconds[name] for name in rows},
    }


def latency_case(dimension: int, views: dict[str, int], rounds: int) -> dict:
    """One trial at a time, as a log-in asks: milliseconds, the best and the median of many."""
    rng = np.random.default_rng(4)
    root = rng.normal(size=(dimension, dimension)) / np.sqrt(dimension)
    loadings = {view: 0.2 * rng.normal(size=(dimension, rank)) for view, rank in views.items()}
    model = MultiviewPLDA.from_parameters(
        np.zeros(dimension), loadings, root @ root.T + np.eye(dimension)
    )
    X = model.sample({view: np.arange(4) for view in views}, random_state=0)
    profile, vector = model.enrol(X[:3], [0, 0, 0]), X[3:]
    rows: dict[str, Callable[[], object]] = {
        "enrol one vector": lambda: model.enrol(vector),
        "one profile against one vector": lambda: model.llr(profile, vector),
        "the four probabilities": lambda: model.hypotheses(profile, vector),
    }
    figures = {}
    for name, call in rows.items():
        times = []
        for _ in range(100 * rounds):
            start = time.perf_counter()
            call()
            times.append(1e3 * (time.perf_counter() - start))
        figures[name] = {"best": min(times), "median": float(np.median(times))}
    ranks = "+".join(map(str, views.values()))
    return {
        "case": f"single trials, D = {dimension}, ranks {ranks}, full noise",
        "milliseconds": figures,
    }


def identify_case(profiles: int, views: dict[str, int], rounds: int) -> dict:
    """One test against many profiles that are kept, as 1:N does."""
    model, X = fitted(views, 200)
    rng = np.random.default_rng(5)
    enrol = model.enrol(X[rng.integers(0, len(X), profiles)])
    model.identify(enrol, X[:1], same="speaker")
    seconds = wall({"identify": lambda: model.identify(enrol, X[:1], same="speaker")}, 3 * rounds)[
        "identify"
    ]
    return {
        "case": f"the ten best of {profiles} profiles, ranks {'+'.join(map(str, views.values()))}",
        "milliseconds": 1e3 * seconds,
    }


def run(*, quick: bool, rounds: int, peer_python: str) -> dict[str, Any]:
    """All cases. `peer_python` is not used: the peers' figures are quoted."""
    profiles, tests, trials = (500, 2000, 10_000) if quick else (5000, 20_000, 1_000_000)
    one, joint = {"speaker": 100}, {"speaker": 20, "phrase": 20}
    sizes = (100, 1000) if quick else (100, 300, 1000, 3000, 10_000)
    growth = []
    for size in sizes:
        row: dict[str, Any] = {"size": size}
        for name, views in (("one view, rank 100", one), ("two views, ranks 20+20", joint)):
            model, X = fitted(views, 200)
            enrol, test = sides(model, X, size, size)
            out = np.zeros((size, size), dtype=np.float32)
            seconds = wall(
                {
                    "s": lambda m=model, e=enrol, t=test, o=out: m.llr(
                        fresh(e), fresh(t), out=o, threads=1
                    )
                },
                rounds,
            )["s"]
            row[name] = size * size / seconds
        growth.append(row)
    return {
        "one view": matrix_case(one, (100,), profiles, tests, rounds),
        "two views": matrix_case(joint, (40, 20, 20), profiles, tests, rounds),
        "list, one view": list_case(one, 100, profiles, tests, trials, rounds),
        "list, two views": list_case(joint, 80, profiles, tests, trials, rounds),
        "single trials": latency_case(
            *((60, {"speaker": 15, "phrase": 5}) if quick else LATENCY), rounds
        ),
        "one test against many": [
            identify_case(n, {"speaker": 100, "phrase": 20}, rounds)
            for n in ((1000,) if quick else (100_000, 1_000_000))
        ],
        "LLR a second by size": growth,
        "peers quoted, share of their bare product (one view)": {
            n: v / QUOTED_BARE for n, v in QUOTED.items()
        },
        "peers quoted, lists, share of bare indexing and dot": {
            n: v / QUOTED_BARE_LIST for n, v in QUOTED_LISTS.items()
        },
    }
