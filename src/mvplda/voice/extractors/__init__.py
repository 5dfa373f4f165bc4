"""Extractors of vectors from recordings: pre-trained and own networks, their recipes and fingerprints."""

from .extractor import Extractor, load_extractor
from .recipe import families

__all__ = ["Extractor", "families", "load_extractor"]
