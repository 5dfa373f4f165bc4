"""Multi-view (joint) PLDA: verification of vectors that carry several labels at once."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "Bundle": "mvplda.bundle",
    "CascadeScorer": "mvplda.models.baselines",
    "Committee": "mvplda.models.experts",
    "CosineScorer": "mvplda.models.baselines",
    "KindCalibrator": "mvplda.calibration",
    "LinearCalibrator": "mvplda.calibration",
    "MultiviewPLDA": "mvplda.models.multiview",
    "MultiviewPLDACV": "mvplda.models.search",
    "PAVCalibrator": "mvplda.calibration",
    "PLDA": "mvplda.models.plda",
    "Profiles": "mvplda.scoring.profiles",
    "QualityCalibrator": "mvplda.calibration",
    "Question": "mvplda.scoring.question",
    "ScoreNormaliser": "mvplda.normalisation",
    "Scorer": "mvplda.models.scorer",
    "SufficientStatistics": "mvplda.statistics",
    "load": "mvplda.persistence",
}

__all__ = [
    "PLDA",
    "Bundle",
    "CascadeScorer",
    "Committee",
    "CosineScorer",
    "KindCalibrator",
    "LinearCalibrator",
    "MultiviewPLDA",
    "MultiviewPLDACV",
    "PAVCalibrator",
    "Profiles",
    "QualityCalibrator",
    "Question",
    "ScoreNormaliser",
    "Scorer",
    "SufficientStatistics",
    "__version__",
    "load",
]

if TYPE_CHECKING:
    from .bundle import Bundle
    from .calibration import KindCalibrator, LinearCalibrator, PAVCalibrator, QualityCalibrator
    from .models.baselines import CascadeScorer, CosineScorer
    from .models.experts import Committee
    from .models.multiview import MultiviewPLDA
    from .models.plda import PLDA
    from .models.scorer import Scorer
    from .models.search import MultiviewPLDACV
    from .normalisation import ScoreNormaliser
    from .persistence import load
    from .scoring.profiles import Profiles
    from .scoring.question import Question
    from .statistics import SufficientStatistics


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'mvplda' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
