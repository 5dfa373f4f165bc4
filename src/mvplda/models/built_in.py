"""Scorers of this package. Importing this module registers them for model files and the command line."""

from .committee import Committee
from .cosine import CosineScorer
from .multiview import MultiviewPLDA
from .plda import PLDA

__all__ = ["PLDA", "Committee", "CosineScorer", "MultiviewPLDA"]
