"""From sound to a vector: networks from elsewhere and our own, their recipes and fingerprints."""

from .extractor import Extractor, load_extractor
from .quality import measure
from .recipe import families
from .sound import read_sound

__all__ = ["Extractor", "families", "load_extractor", "measure", "read_sound"]
