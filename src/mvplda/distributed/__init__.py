"""Shards in, sums out: statistics of files that are larger than memory, on processes or a cluster.

``engines``  the same work for every item, here, in processes or on Dask
``gathering``  the statistics of one shard and of all; shards that are done, on disk, so that a killed run goes on
"""

from .gathering import gather

__all__ = ["gather"]
