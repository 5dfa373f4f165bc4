"""Scorers. The imports below enter them in the registry, by which files and the command line know them."""

from .baselines import CascadeScorer, CosineScorer
from .durations import DurationNoise
from .experts import Committee
from .multiview import PLDA, MultiviewPLDA
from .scorer import SCORERS, BaseScorer, MatrixScorer, Scorer

__all__ = [
    "PLDA",
    "SCORERS",
    "BaseScorer",
    "CascadeScorer",
    "Committee",
    "CosineScorer",
    "DurationNoise",
    "MatrixScorer",
    "MultiviewPLDA",
    "Scorer",
]
