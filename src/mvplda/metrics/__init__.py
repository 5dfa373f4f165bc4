"""Error rates and costs of scores, with confidence intervals.

Conventions are NIST's: a *miss* is a target below the threshold, a *false
alarm* a non-target at or above it; scores are natural-log likelihood ratios.

curves : sorted scores, the convex hull of the ROC, EER, Cllr, minCllr
catalogue : list of all metrics, and the formula of their intervals over speakers
evaluation : tables by kind of trial
intervals : trials reweighted by resampled speakers, and the intervals of the tables
comparison : paired test of two systems
thresholds : threshold for a given false-alarm rate; errors of groups of people, of identification, of several attempts
"""

from ..kinds import trial_kinds
from .catalogue import METRICS, Metric
from .comparison import compare_systems
from .curves import ScoreCurve, cllr, eer
from .evaluation import evaluate
from .intervals import speaker_intervals
from .thresholds import group_errors, identification_curve, threshold_for, transactions

__all__ = [
    "METRICS",
    "Metric",
    "ScoreCurve",
    "cllr",
    "compare_systems",
    "eer",
    "evaluate",
    "group_errors",
    "identification_curve",
    "speaker_intervals",
    "threshold_for",
    "transactions",
    "trial_kinds",
]
