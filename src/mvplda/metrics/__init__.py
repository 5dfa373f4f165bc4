"""Error rates and costs of scores.

Conventions are NIST's: a *miss* is a target below the threshold, a *false
alarm* a non-target at or above it; scores are natural-log likelihood ratios.

curves : sorted scores, the convex hull of the ROC, EER, Cllr, minCllr, Bayes error over the prior
catalogue : every metric with its interval, in one list
evaluation : the tables by kind of trial
intervals : intervals over speakers, and whether one system beats another
"""

from ..costs import PRESETS, DetectionCost, detection_cost, detection_costs
from ..kinds import trial_kinds
from .catalogue import METRICS, Interval, Metric, act_dcf, metrics_of, min_dcf
from .curves import BayesErrorRates, Curve, Hull, ScoreCurve, bayes_error_rates, cllr, eer, min_cllr
from .evaluation import Evaluation, Measures, eer_by_kind, evaluate
from .intervals import Comparison, Intervals, PairedTest, compare_systems, speaker_intervals

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
