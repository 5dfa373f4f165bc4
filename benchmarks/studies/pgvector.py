"""Inner products of all rows in PostgreSQL (pgvector) and in memory: milliseconds of a search for the best hundred.

    python -m benchmarks.studies.pgvector postgresql://... --out results/pgvector/results.json

The database has the extension; a table `voices_tried` is made in it and dropped again.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from mvplda.speech.results import provenance

ROWS, COLUMNS, TOP = 100_000, 200, 100


def best_of(queries: np.ndarray, search: Callable[[np.ndarray], object]) -> float:
    times = []
    for query in queries:
        begin = time.perf_counter()
        search(query)
        times.append(1e3 * (time.perf_counter() - begin))
    return min(times)


def main() -> None:
    import psycopg
    from pgvector.psycopg import register_vector

    parser = argparse.ArgumentParser()
    parser.add_argument("database")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(ROWS, COLUMNS)).astype(np.float32)
    queries = rng.normal(size=(12, COLUMNS)).astype(np.float32)
    results: dict = {
        "command": "python -m benchmarks.studies.pgvector",
        "rows": ROWS,
        "columns": COLUMNS,
    }
    with psycopg.connect(options.database, autocommit=True) as connection:
        connection.execute("create extension if not exists vector")
        register_vector(connection)
        connection.execute("drop table if exists voices_tried")
        connection.execute(f"create table voices_tried (row int, vector vector({COLUMNS}))")
        with connection.cursor().copy("copy voices_tried from stdin with (format binary)") as copy:
            copy.set_types(["int4", "vector"])
            for row, vector in enumerate(vectors):
                copy.write_row([row, vector])
        ask = f"select row from voices_tried order by vector <#> %s limit {TOP}"
        for workers in (0, 2):
            connection.execute(f"set max_parallel_workers_per_gather = {workers}")
            time_ms = best_of(queries, lambda one: connection.execute(ask, (one,)).fetchall())
            results[f"pgvector, {workers} parallel workers, best ms"] = time_ms
        connection.execute("drop table voices_tried")
    results["in memory, best ms"] = best_of(
        queries, lambda one: np.argpartition(-(vectors @ one), TOP)[:TOP]
    )
    print(json.dumps(results, indent=1))
    saved = {"title": "pgvector", "provenance": provenance(), "rows": results}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(saved, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
