"""Work on shards by processes or a Dask cluster: statistics, scores and metrics.

Vectors of recordings are extracted by `mvplda.voice.extractors.extract_shards`.
"""

from .evaluation import evaluate_shards
from .ranges import gather_ranges
from .scoring import score_shards
from .shards import gather

__all__ = ["evaluate_shards", "gather", "gather_ranges", "score_shards"]
