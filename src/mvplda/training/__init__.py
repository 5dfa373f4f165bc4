"""Training of models that are ready for use: fitted, calibrated for each question, with measured thresholds.

fitting : `train`, which fits a model, calibrates it and chooses its thresholds
experts : committees with two experts per extractor, and optionally a third whose settings are
    chosen
floor : baseline that every model should beat, the plain mean of cosines
held_out : calibration, thresholds and error rates by cross-validation over people
data : checks of training data
"""

from .data import count_named
from .experts import make_committee, selection_lines
from .fitting import (
    COMMITTEE,
    model_names,
    needs_labels,
    show_fit,
    train,
    train_cosine_floor,
)
from .floor import FLOOR
from .held_out import (
    FARS,
    HELD_OUT,
    SAME_SEX,
    Groups,
    calibrate_on_held_out,
    deploy_on_speakers,
    questions_about,
)

__all__ = [
    "COMMITTEE",
    "FARS",
    "FLOOR",
    "HELD_OUT",
    "SAME_SEX",
    "Groups",
    "calibrate_on_held_out",
    "count_named",
    "deploy_on_speakers",
    "make_committee",
    "model_names",
    "needs_labels",
    "questions_about",
    "selection_lines",
    "show_fit",
    "train",
    "train_cosine_floor",
]
