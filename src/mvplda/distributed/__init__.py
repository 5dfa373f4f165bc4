"""Shards in, sums out: statistics of files that are larger than memory, on any engine.

``labels``    where the labels of a batch come from: a column, a list of ids, or a file row by row
``pieces``    files cut by rows, so that one huge file is many shards
``shard``     the statistics of one shard: the function that every engine runs
``finished``  shards that are done, on disk, so that a killed run goes on
``run``       all shards together
``spark``     the same for record batches that another engine hands over
"""

from .run import gather
from .shard import BadShard, Gathered, ShardReport
from .spark import statistics_of_batches

__all__ = ["BadShard", "Gathered", "ShardReport", "gather", "statistics_of_batches"]
