"""Whose voice of so many it is, searched in memory and by pgvector in the service's own PostgreSQL: milliseconds.

    python -m benchmarks.studies.pgvector postgresql://... --people 20000 --out results/pgvector/results.json

The database is empty, and has the extension. The answers of both must be the same.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.service import fill
from mvplda.paper.provenance import provenance, with_provenance, write_results
from mvplda.serve.app import open_service
from mvplda.serve.service import Service
from mvplda.serve.settings import Settings
from mvplda.serve.store import SERVICE


def ask(service: Service, vector: np.ndarray) -> tuple[dict, float]:
    begin = time.perf_counter()
    found = service.index.identify(service.accept_vector(vector), None, 5, 0.5, SERVICE)
    return found.model_dump(), time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("database")
    parser.add_argument("--people", type=int, default=20_000)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    os.environ["MVPLDA_DATABASE"] = options.database
    os.environ["MVPLDA_MASTER_KEY"] = base64.b64encode(b"m" * 32).decode()
    # a statement of the filling, too, is one of the service
    os.environ["MVPLDA_STATEMENT_TIMEOUT_S"] = "600"
    rng = np.random.default_rng(0)
    command = f"python -m benchmarks.studies.pgvector postgresql://... --people {options.people}"
    record = {**provenance(command=command), "unchecked": "times of a machine and a database"}
    results: dict = {"people": options.people}
    answers: dict[str, list] = {}
    with tempfile.TemporaryDirectory() as folder:
        fill(Path(folder), options.people)
        width = 0
        vectors = np.zeros((0, 0))
        for search in ("memory", "pgvector"):
            service = open_service(Settings(data=Path(folder), demo=True, search=search))
            if not width:
                width = service.model.width
                vectors = rng.normal(size=(22, width))
            runs = [ask(service, vector) for vector in vectors]
            times = [1e3 * seconds for _, seconds in runs[2:]]
            results[search] = {
                "first_s": runs[0][1],
                "best_ms": min(times),
                "median_ms": float(np.median(times)),
            }
            answers[search] = [
                [(row["profileId"], round(row["llr"], 4)) for row in found["candidates"]]
                for found, _ in runs
            ]
            service.store.close()
    results["same answers"] = answers["memory"] == answers["pgvector"]
    print(json.dumps(results, indent=1))
    write_results(options.out, "pgvector", rows=with_provenance(results, record))


if __name__ == "__main__":
    main()
