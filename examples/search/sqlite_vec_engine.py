"""sqlite-vec searches all rows by distance, so every answer is certified."""

from __future__ import annotations

import sqlite3
from typing import Any

import numpy as np
import sqlite_vec
from distances import by_distance


def search(index: Any, queries: Any, profiles: Any, tests: Any) -> Any:
    """Return the result of `index.rerank`: the best ten profiles of each test, scored exactly.

    index, queries : index of the profiles and query vectors of the tests, as in docs/search.md
    """
    v, q = by_distance(index, queries)
    database = sqlite3.connect(":memory:")
    database.enable_load_extension(True)
    sqlite_vec.load(database)
    database.execute(
        f"create virtual table voices using vec0(vector float[{v.shape[1]}])"
    )
    database.executemany(
        "insert into voices(rowid, vector) values (?, ?)",
        [(row, vector.tobytes()) for row, vector in enumerate(v)],
    )
    ask = "select rowid from voices where vector match ? order by distance limit 100"
    rows = np.array(
        [[row for (row,) in database.execute(ask, (one.tobytes(),))] for one in q]
    )
    # all other rows have products at most as large as the smallest of these
    last = np.einsum("ij,ikj->ik", queries, index.vectors[rows]).min(axis=1)
    return index.rerank(
        profiles, tests, index.owners[rows], last + index.error(queries), top=10
    )
