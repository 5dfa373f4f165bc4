"""Multi-view (joint) PLDA: verification of vectors that carry several labels at once."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "Bundle": "mvplda.bundle",
    "MultiviewPLDA": "mvplda.models.multiview",
    "MultiviewPLDACV": "mvplda.models.search",
    "PLDA": "mvplda.models.plda",
    "SufficientStatistics": "mvplda.statistics",
    "load": "mvplda.bundle",
    "load_extractor": "mvplda.extractors.extractor",
}

__all__ = ["PLDA", "Bundle", "MultiviewPLDA", "MultiviewPLDACV", "SufficientStatistics", "__version__", "load", "load_extractor"]

if TYPE_CHECKING:
    from .bundle import Bundle, load
    from .extractors.extractor import load_extractor
    from .models.multiview import MultiviewPLDA
    from .models.plda import PLDA
    from .models.search import MultiviewPLDACV
    from .statistics import SufficientStatistics


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'mvplda' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
