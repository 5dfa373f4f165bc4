"""Error rates and costs of scores.

Conventions are NIST's: a *miss* is a target below the threshold, a *false
alarm* a non-target at or above it; scores are natural-log likelihood ratios.

curves : sorted scores, the convex hull of the ROC, EER, Cllr, minCllr
costs : detection costs by name, Bayes error over the prior
catalogue : every metric with its interval, in one list
evaluation : the tables by kind of trial
intervals, bootstrap : intervals over speakers, and whether one system beats another
"""

from ..kinds import trial_kinds
from .bootstrap import Comparison, PairedTest, compare_systems
from .catalogue import METRICS, Interval, Metric, act_dcf, metrics_of, min_dcf
from .costs import PRESETS, BayesErrorRates, DetectionCost, bayes_error_rates, detection_cost, detection_costs
from .curves import Curve, Hull, ScoreCurve, cllr, eer, min_cllr
from .evaluation import Evaluation, Measures, eer_by_kind, evaluate
from .intervals import Intervals, speaker_intervals

__all__ = [
    "METRICS",
    "PRESETS",
    "BayesErrorRates",
    "Comparison",
    "Curve",
    "DetectionCost",
    "Evaluation",
    "Hull",
    "Interval",
    "Intervals",
    "Measures",
    "Metric",
    "PairedTest",
    "ScoreCurve",
    "act_dcf",
    "bayes_error_rates",
    "cllr",
    "compare_systems",
    "detection_cost",
    "detection_costs",
    "eer",
    "eer_by_kind",
    "evaluate",
    "metrics_of",
    "min_cllr",
    "min_dcf",
    "speaker_intervals",
    "trial_kinds",
]
