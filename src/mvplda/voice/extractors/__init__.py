"""From sound to a vector: networks from elsewhere and our own, their recipes and fingerprints."""

from .extractor import Extractor, load_extractor
from .recipe import families

__all__ = ["Extractor", "families", "load_extractor"]
