"""Extractors, networks that turn recordings into vectors: downloading, loading and running them."""

from .extractor import Extractor, load_extractor
from .recipe import families
from .sharded_extraction import extract_shards

__all__ = ["Extractor", "extract_shards", "families", "load_extractor"]
