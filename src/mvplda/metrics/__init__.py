"""Error rates and costs of scores.

Conventions are NIST's: a *miss* is a target below the threshold, a *false
alarm* a non-target at or above it; scores are natural-log likelihood ratios.

curves : sorted scores, the convex hull of the ROC, EER, Cllr, minCllr, Bayes error over the prior
catalogue : every metric with its interval, in one list
evaluation : the tables by kind of trial
jackknife : the formula of an interval over speakers
weighted : trials that are weighed again when speakers are left out or drawn
intervals : the intervals of the tables
comparison : whether one system beats another
groups : errors of groups of people at a common threshold
points : a threshold for a wanted false-alarm rate, and what it costs
"""

from ..costs import PRESETS, DetectionCost, detection_cost, detection_costs
from ..kinds import trial_kinds
from .catalogue import METRICS, Metric, act_dcf, metrics_of, min_dcf
from .comparison import Comparison, PairedTest, compare_systems
from .curves import BayesErrorRates, Curve, Hull, ScoreCurve, bayes_error_rates, cllr, eer, min_cllr
from .evaluation import Evaluation, Measures, eer_by_kind, evaluate
from .groups import GroupErrors, group_errors
from .intervals import Intervals, speaker_intervals
from .jackknife import Interval
from .points import ThresholdPoint, threshold_for

__all__ = [
    "METRICS",
    "PRESETS",
    "BayesErrorRates",
    "Comparison",
    "Curve",
    "DetectionCost",
    "Evaluation",
    "GroupErrors",
    "Hull",
    "Interval",
    "Intervals",
    "Measures",
    "Metric",
    "PairedTest",
    "ScoreCurve",
    "ThresholdPoint",
    "act_dcf",
    "bayes_error_rates",
    "cllr",
    "compare_systems",
    "detection_cost",
    "detection_costs",
    "eer",
    "eer_by_kind",
    "evaluate",
    "group_errors",
    "metrics_of",
    "min_cllr",
    "min_dcf",
    "speaker_intervals",
    "threshold_for",
    "trial_kinds",
]
