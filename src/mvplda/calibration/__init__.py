"""Calibration of scores and of hypotheses' log-likelihoods."""

from .hypotheses import HypothesisCalibrator
from .scores import LinearCalibrator

__all__ = ["HypothesisCalibrator", "LinearCalibrator"]
