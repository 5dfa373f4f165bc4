"""Certified search: the exact best ten of many profiles by FAISS and `rerank`, against FAISS's flat search alone.

Profiles hold one to three vectors each. FAISS's search returns products in float32 and no certificate; the certified
search also enrols the tests, computes their queries, scores 100 candidates exactly and bounds all other profiles.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .scoring import fitted
from .timing import best_of

CASES = {
    "one view, exact products": {"speaker": 150},
    "two views, bounds": {"speaker": 100, "phrase": 20},
}
CANDIDATES, TOP = 100, 10
BATCHES = (1, 16, 200)


def measure(views: dict[str, int], n_profiles: int, rounds: int) -> dict[str, Any]:
    """Return CPU milliseconds of one batch of tests, for each size of a batch."""
    import faiss

    faiss.omp_set_num_threads(1)
    model, X = fitted(views, 200)
    rng = np.random.default_rng(0)

    def vectors(rows: Any) -> Any:
        return X[rows] + rng.normal(0, 0.05, size=(len(rows), X.shape[1]))

    owners = np.repeat(np.arange(n_profiles), rng.integers(1, 4, n_profiles))
    profiles = model.enrol(vectors(rng.integers(0, len(X), len(owners))), owners)
    index = model.index(profiles, same="speaker")
    flat = faiss.IndexFlatIP(index.vectors.shape[1])
    flat.add(index.vectors)
    figures = {}
    for batch in BATCHES:
        samples = vectors(rng.integers(0, len(X), batch))
        queries = model.queries(model.enrol(samples), index)

        def certified(samples: Any = samples) -> Any:
            tests = model.enrol(samples)
            queries = model.queries(tests, index)
            products, rows = flat.search(queries, CANDIDATES)
            unseen = products[:, -1] + index.error(queries)
            return index.rerank(profiles, tests, index.owners[rows], unseen, top=TOP)

        seconds = best_of(
            {
                "FAISS alone": lambda queries=queries: flat.search(queries, TOP),
                "certified": certified,
            },
            4 * rounds,
        )
        figures[f"{batch} tests"] = {
            "milliseconds": {name: 1e3 * value for name, value in seconds.items()},
            "times FAISS alone": seconds["certified"] / seconds["FAISS alone"],
            "share certified": float(certified().certified.mean()),
        }
    return {"rows": len(index.vectors), "width": index.vectors.shape[1], **figures}


def run(*, quick: bool, rounds: int, peer_python: str) -> dict[str, Any]:
    """Return the figures of both cases; without FAISS, the reason why there are none."""
    try:
        import faiss
    except ImportError as error:
        return {"left out": str(error)}
    n_profiles = 2000 if quick else 100_000
    cases = {name: measure(views, n_profiles, rounds) for name, views in CASES.items()}
    return {"profiles": n_profiles, "faiss": faiss.__version__, "cases": cases}
