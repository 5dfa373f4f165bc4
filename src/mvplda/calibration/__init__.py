"""Calibrators: they map scores, or log-likelihoods of hypotheses, to calibrated ones.

Importing the package registers its calibrators, so that stored models can refer to them by class
name.
"""

from .amount import AmountCalibrator
from .calibrator import Calibrator, Measures
from .hypotheses import HypothesisCalibrator
from .scores import LinearCalibrator

__all__ = ["AmountCalibrator", "Calibrator", "HypothesisCalibrator", "LinearCalibrator", "Measures"]
