"""Growth: exponents of time and memory of each operation, as one size doubles and the others stay.

``python -m benchmarks growth`` measures CPU seconds, and the peak of the memory that Python and NumPy allocate. An
exponent is that of the two largest sizes: 1 is linear, 0 does not depend on the size. Exponents above `LIMIT` are
listed with their reason.
"""

from __future__ import annotations

import json
import sys
import tracemalloc
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from math import log2
from typing import Any

import numpy as np

from mvplda import MultiviewPLDA, SufficientStatistics
from mvplda.metrics import evaluate
from mvplda.voice.setup import setup_vectors

from .timing import best_of

LIMIT = 1.1
DOUBLINGS = 3
NOTHING = 0.5
"""MiB up to which memory counts as none."""

Sizes = dict[str, int]
Work = Callable[[], object]

MODEL: Sizes = {"dimension": 128, "rank": 32, "people": 200}
OPERATIONS: dict[str, Sizes] = {
    "statistics": {"vectors": 50_000, "dimension": 128, "classes": 4000, "views": 1},
    "fit": {"vectors": 50_000, "dimension": 128, "classes": 4000, "rank": 32, "views": 1},
    "enrol": {**MODEL, "people": 80_000},
    "score": {**MODEL, "people": 4000, "tests": 4000},
    "score a list": {**MODEL, "people": 8000, "tests": 8000, "trials": 500_000},
    "identify": {**MODEL, "people": 100_000},
    "index": {**MODEL, "people": 80_000},
    "service index": {"people": 20_000},
    "service search": {"people": 20_000},
    "evaluate": {"trials": 2_000_000},
    "setup": {"people": 16, "recordings": 12, "dimension": 24},
}
SERVICE = "service"
"""First word of operations that need the packages of the service."""
QUICK = {"fit": {"vectors": 1000, "dimension": 16, "classes": 50, "rank": 4, "views": 1}}
CACHES = "linear work on arrays that outgrow the caches of the processor"
REASONS = {
    ("statistics", "dimension"): "the second moment has dimension^2 numbers",
    ("fit", "dimension"): "the second moment has dimension^2 numbers",
    ("fit", "views"): "each pair of views has a table, and the later views are solved together",
    ("enrol", "people"): CACHES,
    ("score", "tests"): CACHES,
    ("score a list", "rank"): CACHES,
    ("score a list", "trials"): CACHES,
    ("identify", "people"): CACHES,
    ("index", "rank"): "the vector of a profile is a product with matrices of rank^2 numbers",
    ("index", "people"): CACHES,
    ("service index", "people"): CACHES,
    ("service search", "people"): CACHES,
    ("evaluate", "trials"): "sorting takes n log n; " + CACHES,
    ("setup", "people"): "held-out trials are pairs of people",
    ("setup", "recordings"): "held-out trials are pairs of recordings",
    ("setup", "dimension"): "covariances have dimension^2 numbers and are factored in dimension^3",
}
"""Reasons of growth above `LIMIT`."""


def labelled(sizes: Sizes) -> tuple[Any, dict[str, Any]]:
    """Return random vectors of classes in as many views; every class of the first view has vectors."""
    rng = np.random.default_rng(0)
    n, d = sizes["vectors"], sizes["dimension"]
    X = rng.standard_normal((n, d), dtype=np.float32)
    labels = {"view0": np.arange(n) % sizes["classes"]}
    for view in range(1, sizes["views"]):
        labels[f"view{view}"] = rng.integers(0, 10, n)
    for classes in labels.values():
        X += 0.5 * rng.standard_normal((classes.max() + 1, d), dtype=np.float32)[classes]
    return X, labels


def fitted(sizes: Sizes) -> MultiviewPLDA:
    """Return a model of one view of a given rank."""
    case = {"vectors": 3000, "classes": 300, "views": 1, "dimension": sizes["dimension"]}
    X, labels = labelled(case)
    return MultiviewPLDA({"view0": sizes["rank"]}, max_iter=2, tol=0).fit(X, labels)


def drawn(n: int, dimension: int, seed: int) -> Any:
    return np.random.default_rng(seed).standard_normal((n, dimension), dtype=np.float32)


def prepare(operation: str, sizes: Sizes) -> Work:
    """Return the work that is measured, without what is made before it."""
    if operation == "statistics":
        X, labels = labelled(sizes)
        return partial(SufficientStatistics.from_arrays, X, labels)
    if operation == "fit":
        X, labels = labelled(sizes)
        ranks = {view: min(sizes["rank"], len(set(column)) - 1) for view, column in labels.items()}
        model = MultiviewPLDA(ranks, max_iter=5, tol=0)
        return lambda: model.fit(X, labels)
    if operation == "evaluate":
        rng = np.random.default_rng(0)
        kinds = rng.random(sizes["trials"]) < 0.1
        scores = rng.standard_normal(len(kinds)) + 3 * kinds
        return lambda: evaluate(scores, kinds)
    if operation == "setup":
        return _prepare_setup(sizes)
    if operation.startswith(SERVICE):
        return _prepare_service(operation, sizes)
    model = fitted(sizes)
    X = drawn(sizes["people"], sizes["dimension"], 1)
    if operation == "enrol":
        return lambda: model.enrol(X)
    profiles = model.enrol(X)
    if operation == "index":
        return lambda: model.index(profiles)
    if operation == "identify":
        test = drawn(10, sizes["dimension"], 2)
        return lambda: model.identify(profiles, test, top=10)
    tests = model.enrol(drawn(sizes["tests"], sizes["dimension"], 2))
    if operation == "score":
        out = np.ones((len(profiles), len(tests)), np.float32)
        return lambda: model.llr(profiles, tests, out=out, threads=1)
    shape = (len(profiles), len(tests))
    pairs = np.random.default_rng(3).integers(0, shape, (sizes["trials"], 2))
    return lambda: model.llr_trials(profiles, tests, pairs)


def _prepare_setup(sizes: Sizes) -> Work:
    """Return a setup of people who say three phrases each."""
    rng = np.random.default_rng(0)
    people = np.repeat(np.arange(sizes["people"]), sizes["recordings"])
    phrases = np.arange(len(people)) % 3
    d = sizes["dimension"]
    X = rng.normal(size=(len(people), d)) + 2 * rng.normal(size=(sizes["people"], d))[people]
    X += 2 * rng.normal(size=(3, d))[phrases]
    labels = {
        "speaker": np.array([f"s{k:04}" for k in people]),
        "phrase": np.array([f"p{k}" for k in phrases]),
    }
    return lambda: setup_vectors(X, labels, blocks={"a": d})


def _prepare_service(operation: str, sizes: Sizes) -> Work:
    """Return the work of the service's memory of voices: its vectors for the default model, or one search."""
    from mvplda.model_files import load_model
    from mvplda.serve.cells import Cell
    from mvplda.serve.model import Model
    from mvplda.serve.voice_memory import HalfSums, VoiceBlock
    from mvplda.voice.default_model import DEFAULT_MODEL

    model = Model(load_model(DEFAULT_MODEL))
    rng = np.random.default_rng(0)
    people = sizes["people"]
    weights = rng.integers(1, 4, people).astype(np.float64)
    sums = HalfSums.empty(people, model.rank)
    for start in range(0, people, 1000):
        rows = slice(start, min(start + 1000, people))
        evidence = 50 * rng.standard_normal((rows.stop - start, model.rank))
        sums.put(rows, np.sqrt(weights[rows, None]) * evidence, weights[rows])
    ids = [f"p{number}" for number in range(people)]
    if operation == "service index":
        return lambda: VoiceBlock(ids, sums).index(model)
    block = VoiceBlock(ids, sums)
    evidence = np.round(50 * rng.standard_normal(model.rank)).astype(np.int64)
    test = model.side([[Cell("", evidence, 1)]], False)
    block.llrs(model, test)
    return lambda: block.llrs(model, test)


def peak_mib(work: Work) -> float:
    """Return the MiB that Python and NumPy allocate at the peak of a call."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1] / 2**20
    finally:
        tracemalloc.stop()


def point(operation: str, sizes: Sizes, rounds: int) -> tuple[float, float]:
    """Return CPU seconds and MiB of one operation."""
    work = prepare(operation, sizes)
    # tracing slows Python down: memory and time are measured in separate calls
    memory = peak_mib(work)
    return best_of({"": work}, rounds)[""], memory


def exponent(smaller: float, larger: float) -> float:
    return log2(larger / smaller)


def growth(operation: str, usual: Sizes, axis: str, rounds: int) -> dict[str, Any]:
    """Return the points of one size, and the exponents of the two largest."""
    doubled = [{**usual, axis: usual[axis] * 2**k} for k in range(DOUBLINGS)]
    points = [point(operation, sizes, rounds) for sizes in doubled]
    row: dict[str, Any] = {
        "operation": operation,
        "axis": axis,
        "sizes": [sizes[axis] for sizes in doubled],
        "seconds": [round(seconds, 5) for seconds, _ in points],
        "MiB": [round(memory, 2) for _, memory in points],
    }
    row["exponent of time"] = round(exponent(*row["seconds"][-2:]), 2)
    row["exponent of memory"] = 0.0
    if row["MiB"][-1] > NOTHING:
        row["exponent of memory"] = round(exponent(*(max(m, NOTHING) for m in row["MiB"][-2:])), 2)
    if max(row["exponent of time"], row["exponent of memory"]) > LIMIT:
        row["reason"] = REASONS.get((operation, axis), "unknown")
    print(json.dumps(row), file=sys.stderr, flush=True)
    return row


def run(*, quick: bool, rounds: int, peer_python: str) -> dict[str, Any]:
    """Return the growth of every operation with every size."""
    rows = [
        growth(operation, usual, axis, 1 if operation == "setup" else min(rounds, 3))
        for operation, usual in (QUICK if quick else OPERATIONS).items()
        if not operation.startswith(SERVICE) or find_spec("sqlalchemy")
        for axis in usual
    ]
    return {
        "case": "one thread, best of several rounds; exponents of the two "
        f"largest sizes; above {LIMIT} with their reason",
        "growth": rows,
    }
