"""Scorers. The imports below enter them in the registry, by which files and the command line know them."""

from .committee import Committee, CosineScorer
from .domain import DomainPLDA
from .multiview import PLDA, MultiviewPLDA
from .scorer import SCORERS, BaseScorer, find_scorers

__all__ = [
    "PLDA",
    "SCORERS",
    "BaseScorer",
    "Committee",
    "CosineScorer",
    "DomainPLDA",
    "MultiviewPLDA",
    "find_scorers",
]
