"""Statistics of shards, gathered by processes or a Dask cluster."""

from .shards import gather

__all__ = ["gather"]
