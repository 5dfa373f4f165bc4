"""Readers and writers of files of vectors, label lists, enrolment lists, trial lists and scores.

`mvplda.io.plda_files` reads and writes PLDA models of Kaldi and pyannote.audio, `mvplda.io.onnx` writes ONNX graphs.
"""

from .lists import read_groups, read_labels, read_map, write_map
from .trials import Scores, Trials, match, read_scores, read_trials, write_scores, write_trials
from .vectors import VectorSet, read_vectors, write_vectors

__all__ = [
    "Scores",
    "Trials",
    "VectorSet",
    "match",
    "read_groups",
    "read_labels",
    "read_map",
    "read_scores",
    "read_trials",
    "read_vectors",
    "write_map",
    "write_scores",
    "write_trials",
    "write_vectors",
]
