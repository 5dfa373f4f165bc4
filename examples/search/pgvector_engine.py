"""pgvector: `<#>` is the negative inner product, exact without an index."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import psycopg
from pgvector.psycopg import register_vector


def search(index: Any, queries: Any, profiles: Any, tests: Any) -> Any:
    """Return the result of `index.rerank`: the best ten profiles of each test, scored exactly.

    index, queries : index of the profiles and query vectors of the tests, as in docs/search.md
    """
    connection = psycopg.connect(os.environ["DATABASE_URL"], autocommit=True)
    connection.execute("create extension if not exists vector")
    register_vector(connection)
    connection.execute("drop table if exists voices")
    connection.execute(
        f"create table voices (row int, profile int, vector vector({index.vectors.shape[1]}))"
    )
    with connection.cursor().copy(
        "copy voices from stdin with (format binary)"
    ) as copy:
        copy.set_types(["int4", "int4", "vector"])
        for row, (owner, vector) in enumerate(
            zip(index.owners, index.vectors, strict=True)
        ):
            copy.write_row([row, int(owner), vector])

    ask = (
        "select profile, -(vector <#> %s) from voices order by vector <#> %s limit 100"
    )
    answers = [connection.execute(ask, (one, one)).fetchall() for one in queries]
    candidates = np.array([[profile for profile, _ in answer] for answer in answers])
    last = np.array([answer[-1][1] for answer in answers])
    return index.rerank(
        profiles, tests, candidates, last + index.error(queries), top=10
    )
