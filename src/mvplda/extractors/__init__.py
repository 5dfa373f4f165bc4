"""From sound to a vector: networks from elsewhere and our own, their recipes and fingerprints."""

from .extractor import Extracted, Extractor, Utterance, load_extractor
from .quality import Quality, QualitySettings, measure
from .recipe import Recipe, families, read_recipe, to_toml
from .sound import read_sound
from .weights import get_weights

__all__ = [
    "Extracted",
    "Extractor",
    "Quality",
    "QualitySettings",
    "Recipe",
    "Utterance",
    "families",
    "get_weights",
    "load_extractor",
    "measure",
    "read_recipe",
    "read_sound",
    "to_toml",
]
