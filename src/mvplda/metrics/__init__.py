"""Error rates and costs of scores.

Conventions are NIST's: a *miss* is a target below the threshold, a *false
alarm* a non-target at or above it; scores are natural-log likelihood ratios.

curves : sorted scores, the convex hull of the ROC, EER, Cllr, minCllr, Bayes error over the prior
catalogue : every metric with its interval, in one list; the formula of an interval over speakers
evaluation : the tables by kind of trial
intervals : trials that are weighed again when speakers are left out or drawn; the intervals of the tables
comparison : whether one system beats another
thresholds : a threshold for a wanted false-alarm rate and what it costs; errors of groups of people; errors of 1:N
"""

from ..kinds import trial_kinds
from .catalogue import METRICS, Metric
from .comparison import compare_systems
from .curves import ScoreCurve, bayes_error_rates, cllr, eer
from .evaluation import eer_by_kind, evaluate
from .intervals import speaker_intervals
from .thresholds import group_errors, identification_curve, threshold_for

__all__ = [
    "METRICS",
    "Metric",
    "ScoreCurve",
    "bayes_error_rates",
    "cllr",
    "compare_systems",
    "eer",
    "eer_by_kind",
    "evaluate",
    "group_errors",
    "identification_curve",
    "speaker_intervals",
    "threshold_for",
    "trial_kinds",
]
