"""Multi-view (joint) PLDA: verification of vectors that carry several labels at once.

The names in ``__all__``, here and in the packages that ``docs/api.md`` lists, are public. A name is imported when it is
first used, so that ``import mvplda`` and ``mvplda --help`` load neither NumPy nor scikit-learn.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .exceptions import MvpldaError, MvpldaWarning

__version__ = "0.1.0"

__all__ = [
    "PLDA",
    "Accumulator",
    "Bundle",
    "Committee",
    "CosineScorer",
    "MultiviewPLDA",
    "MvpldaError",
    "MvpldaWarning",
    "Profiles",
    "Question",
    "SufficientStatistics",
    "__version__",
    "load",
    "load_extractor",
    "make_committee",
    "make_two_views",
    "select_model",
    "setup",
    "train",
]

if TYPE_CHECKING:
    from .bundle import Bundle
    from .datasets import make_two_views
    from .models.committee import Committee
    from .models.cosine import CosineScorer
    from .models.multiview import MultiviewPLDA
    from .models.plda import PLDA
    from .models.selection import select_model
    from .persistence import load
    from .scoring.profiles import Profiles
    from .scoring.question import Question
    from .statistics import Accumulator, SufficientStatistics
    from .training import make_committee, train
    from .voice.extractors.extractor import load_extractor
    from .voice.setup import setup

HOMES = {
    "bundle": ("Bundle",),
    "datasets": ("make_two_views",),
    "models.committee": ("Committee",),
    "models.cosine": ("CosineScorer",),
    "models.multiview": ("MultiviewPLDA",),
    "models.plda": ("PLDA",),
    "models.selection": ("select_model",),
    "persistence": ("load",),
    "scoring.profiles": ("Profiles",),
    "scoring.question": ("Question",),
    "statistics": ("Accumulator", "SufficientStatistics"),
    "training": ("make_committee", "train"),
    "voice.extractors.extractor": ("load_extractor",),
    "voice.setup": ("setup",),
}
"""Public names by the module that defines them; each is imported from there when it is first used."""


def __getattr__(name: str) -> Any:
    for module, names in HOMES.items():
        if name in names:
            return getattr(import_module(f".{module}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
