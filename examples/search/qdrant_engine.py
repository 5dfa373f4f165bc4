"""Qdrant's local mode: the metric DOT with exact=True searches all rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from qdrant_client import QdrantClient, models


def search(index: Any, queries: Any, profiles: Any, tests: Any) -> Any:
    """Return the result of `index.rerank`: the best ten profiles of each test, scored exactly.

    index, queries : index of the profiles and query vectors of the tests, as in docs/search.md
    """
    client = QdrantClient(":memory:")
    metric = models.VectorParams(
        size=index.vectors.shape[1], distance=models.Distance.DOT
    )
    client.create_collection("voices", vectors_config=metric)
    names = [{"profile": int(owner)} for owner in index.owners]
    client.upload_collection(
        "voices", vectors=index.vectors, payload=names, ids=range(len(names))
    )

    ask = models.SearchParams(exact=True)
    answers = [
        client.query_points(
            "voices", query=one.tolist(), limit=100, search_params=ask
        ).points
        for one in queries
    ]
    candidates = np.array(
        [[point.payload["profile"] for point in answer] for answer in answers]
    )
    last = np.array([answer[-1].score for answer in answers])
    return index.rerank(
        profiles, tests, candidates, last + index.error(queries), top=10
    )
