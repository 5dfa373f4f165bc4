"""Scorers. The imports below register them for model files and the command line."""

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
