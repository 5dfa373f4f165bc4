"""Scorers: models that score vectors. Classes are imported on first use, because some import scikit-learn."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .base import BaseScorer, find_scorers

if TYPE_CHECKING:
    from .base import SCORERS
    from .built_in import PLDA, Committee, CosineScorer, MultiviewPLDA

__all__ = [
    "PLDA",
    "SCORERS",
    "BaseScorer",
    "Committee",
    "CosineScorer",
    "MultiviewPLDA",
    "find_scorers",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        built_in = import_module(".built_in", __name__)
        # complete only when all scorers are imported
        return find_scorers() if name == "SCORERS" else getattr(built_in, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
