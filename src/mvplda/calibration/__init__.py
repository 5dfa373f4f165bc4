"""Calibration of scores and of hypotheses' log-likelihoods. The imports register calibrators for model files."""

from .calibrator import Calibrator
from .hypotheses import HypothesisCalibrator
from .scores import LinearCalibrator

__all__ = ["Calibrator", "HypothesisCalibrator", "LinearCalibrator"]
