"""The field's files: vectors, lists, trials, protocols, scores.

Models of other toolkits are read in `mvplda.io.plda`.
"""

from .files import read_groups, read_labels, read_map, write_groups, write_map
from .trials import (
    EnrolmentList,
    Matched,
    Scores,
    Trials,
    match,
    read_model_enrolment,
    read_rsr2015_enrolment,
    read_scores,
    read_train_labels,
    read_trials,
    trials_from_labels,
    write_scores,
    write_trials,
)
from .vectors import VectorSet, read_vectors, write_vectors

__all__ = [
    "EnrolmentList",
    "Matched",
    "Scores",
    "Trials",
    "VectorSet",
    "match",
    "read_groups",
    "read_labels",
    "read_map",
    "read_model_enrolment",
    "read_rsr2015_enrolment",
    "read_scores",
    "read_train_labels",
    "read_trials",
    "read_vectors",
    "trials_from_labels",
    "write_groups",
    "write_map",
    "write_scores",
    "write_trials",
    "write_vectors",
]
