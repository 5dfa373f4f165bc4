"""Error rates and costs of scores.

Conventions are NIST's: a *miss* is a target below the threshold, a *false
alarm* a non-target at or above it; scores are natural-log likelihood ratios.

curves : sorted scores, the convex hull of the ROC, EER, Cllr, minCllr
catalogue : every metric with its interval, in one list; the formula of an interval over speakers
evaluation : the tables by kind of trial
intervals : trials that are weighed again when speakers are left out or drawn; the intervals of the tables
comparison : whether one system beats another
thresholds : a threshold for a wanted false-alarm rate and what it costs; errors of groups of people; of 1:N; of several
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
