"""Decisions: from the LLR of a trial to accept, reject or inconclusive, with the reason.

operating_points : thresholds, the error rates measured at them, and the choice among them
verdicts : the decision about one trial or a list of trials
naming : the choice of one profile among several, or of none

A half is one view of a two-part question, voice or words, that is decided on its own. The command
line, the service and the report make every decision with this package.
"""

from .naming import NAMING_FAR, NamingResult, name_among, naming_point, without_outliers
from .operating_points import (
    DEFAULT_FAR,
    LOWEST_THRESHOLD,
    HalfThreshold,
    MeasuredRates,
    OperatingPoint,
    RateInterval,
    Verdict,
    distinct_points,
    point_for,
    promised_point,
)
from .verdicts import FAULTS, REASONS, Decision, decide, decide_each

__all__ = [
    "DEFAULT_FAR",
    "FAULTS",
    "LOWEST_THRESHOLD",
    "NAMING_FAR",
    "REASONS",
    "Decision",
    "HalfThreshold",
    "MeasuredRates",
    "NamingResult",
    "OperatingPoint",
    "RateInterval",
    "Verdict",
    "decide",
    "decide_each",
    "distinct_points",
    "name_among",
    "naming_point",
    "point_for",
    "promised_point",
    "without_outliers",
]
