"""Scorers. The imports below enter them in the registry, by which files and the command line know them."""

from .base import SCORERS, BaseScorer, find_scorers
from .committee import Committee
from .cosine import CosineScorer
from .multiview import MultiviewPLDA
from .plda import PLDA

__all__ = [
    "PLDA",
    "SCORERS",
    "BaseScorer",
    "Committee",
    "CosineScorer",
    "MultiviewPLDA",
    "find_scorers",
]
