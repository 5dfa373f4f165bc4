"""Calibration: scores in, natural-log likelihood ratios out.

Every calibrator has ``fit(scores, kinds_or_targets)`` and ``transform(scores)``. Fit it on
trials that are not those of the evaluation.
"""

from ..costs import threshold_from_costs
from .inputs import name_kinds
from .linear import KindCalibrator, LinearCalibrator, QualityCalibrator
from .pav import PAVCalibrator

__all__ = [
    "KindCalibrator",
    "LinearCalibrator",
    "PAVCalibrator",
    "QualityCalibrator",
    "name_kinds",
    "threshold_from_costs",
]
