"""Error rates and costs of scores.

Conventions are NIST's: a *miss* is a target below the threshold, a *false
alarm* a non-target at or above it; scores are natural-log likelihood ratios.

curves : sorted scores, the convex hull of the ROC, EER, Cllr, minCllr
costs : operating points by name, minDCF, actDCF, Bayes error over the prior
kinds, evaluation : kinds of trials, and the table by kind
intervals, bootstrap : intervals over speakers, and whether one system beats another
histogram : the same from counts, for scores that do not fit in memory
"""

from .bootstrap import Comparison, PairedTest, compare_systems
from .costs import (
    PRESETS,
    BayesErrorRates,
    DetectionCost,
    act_dcf,
    bayes_error_rates,
    detection_cost,
    detection_costs,
    min_dcf,
)
from .curves import Hull, ScoreCurve, cllr, convex_hull, eer, min_cllr
from .evaluation import Evaluation, Measures, evaluate
from .histogram import Bounds, ScoreHistogram
from .intervals import Interval, Intervals, speaker_intervals
from .kinds import eer_by_kind, trial_kinds

__all__ = [
    "PRESETS",
    "BayesErrorRates",
    "Bounds",
    "Comparison",
    "DetectionCost",
    "Evaluation",
    "Hull",
    "Interval",
    "Intervals",
    "Measures",
    "PairedTest",
    "ScoreCurve",
    "ScoreHistogram",
    "act_dcf",
    "bayes_error_rates",
    "cllr",
    "compare_systems",
    "convex_hull",
    "detection_cost",
    "detection_costs",
    "eer",
    "eer_by_kind",
    "evaluate",
    "min_cllr",
    "min_dcf",
    "speaker_intervals",
    "trial_kinds",
]
