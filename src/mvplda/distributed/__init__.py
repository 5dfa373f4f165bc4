"""Statistics, scores and metrics of data sets in shards, computed by processes or a Dask cluster.

A shard is one of many files of a data set. `mvplda.voice.extractors.extract_shards` makes shards of vectors. Functions
are imported when they are first used, because importing the metrics takes time.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .ranges import gather_ranges
    from .scoring import score_shards
    from .sharded_evaluation import evaluate_shards
    from .shards import gather

__all__ = ["evaluate_shards", "gather", "gather_ranges", "score_shards"]

HOMES = {
    "evaluate_shards": "sharded_evaluation",
    "gather": "shards",
    "gather_ranges": "ranges",
    "score_shards": "scoring",
}
"""Module of each function."""


def __getattr__(name: str) -> Any:
    if name in HOMES:
        return getattr(import_module(f".{HOMES[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
