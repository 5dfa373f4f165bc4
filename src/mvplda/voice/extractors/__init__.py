"""Extractors of vectors from recordings: pre-trained and own networks, their recipes and fingerprints."""

from .extractor import Extractor, load_extractor
from .recipe import families
from .sharded_extraction import extract_shards

__all__ = ["Extractor", "extract_shards", "families", "load_extractor"]
