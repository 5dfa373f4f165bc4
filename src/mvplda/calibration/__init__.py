"""Calibration of scores and of hypotheses' log-likelihoods. The imports register calibrators for model files."""

from .amount import AmountCalibrator
from .calibrator import Calibrator, Measures
from .hypotheses import HypothesisCalibrator
from .scores import LinearCalibrator

__all__ = ["AmountCalibrator", "Calibrator", "HypothesisCalibrator", "LinearCalibrator", "Measures"]
