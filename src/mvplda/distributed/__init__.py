"""Shards in, sums out: statistics of files that are larger than memory, on any engine.

``engines``  the same work for every item, here, on threads, processes or Dask
``shards``   files cut by rows, and where the labels of their vectors come from
``gathering``  the statistics of one shard and of all; shards that are done, on disk, so that a killed run goes on
``spark``    the same for record batches that another engine hands over
"""

from .gathering import BadShard, Gathered, ShardReport, gather
from .shards import SPARK_SCHEMA, statistics_of_batches

__all__ = ["SPARK_SCHEMA", "BadShard", "Gathered", "ShardReport", "gather", "statistics_of_batches"]
