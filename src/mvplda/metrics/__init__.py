"""Error rates and costs of scores, with confidence intervals.

Terms are those of NIST: a *miss* is a target with a score below the threshold, a *false alarm* is a non-target with a
score at or above the threshold. Scores are natural-log likelihood ratios (LLRs).

curves : sorted scores, the convex hull of the ROC, EER, Cllr, minCllr
catalogue : definitions of all metrics, and the formula of their confidence intervals over speakers
evaluation : tables of all metrics by kind of trial
intervals : weights of trials if speakers are left out or resampled, and the intervals of the tables
comparison : paired test of two systems
thresholds : threshold for a given false-alarm rate; error rates of groups of people, of identification, and of several
    attempts
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
