"""Free Spoken Digit: six speakers, ten English digits, fifty recordings (CC BY-SA 4.0)."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np

from .corpus import Corpus, register_corpus
from .folder import folder_with, match_files, without_suffix
from .protocol import build_corpus

SOURCE = "Free Spoken Digit Dataset, Jackson et al."
HOW = "Download the repository free-spoken-digit-dataset and give its folder"
PATTERN = "{phrase}_{speaker}_{session}.wav"
EVALUATION_SPEAKERS = ("theo", "yweweler")
"""The last two of the six by name: the repository's own rule (recordings 0 to 4 are the test set) shares its
speakers between training and test, which says nothing about speakers not seen before."""


@register_corpus("free-spoken-digits", root="the downloaded repository")
def free_spoken_digits(
    root: str | os.PathLike[str],
    *,
    sessions: int | None = None,
    training: float | int | Sequence[str] | None = None,
    random_state: int = 0,
    per_model: int = 3,
) -> Corpus:
    """Free Spoken Digit; the speakers theo and yweweler are enrolled and tested, the others trained on.

    Parameters
    ----------
    root : the repository, which holds ``recordings/<digit>_<name>_<index>.wav``
    sessions : use only so many recordings of a digit, the first ones
    training : speakers to train on, a number or a share of them drawn with `random_state`; None as above
    per_model : utterances an enrolment, the first recordings
    """
    found = match_files(
        folder_with(root, ("recordings", "."), "Free Spoken Digit", HOW),
        PATTERN,
        what="free-spoken-digits",
    )
    labels = {view: found.fields[view] for view in ("speaker", "phrase")}
    if training is None:
        training = [name for name in np.unique(labels["speaker"]).tolist() if name not in EVALUATION_SPEAKERS]
    return build_corpus(
        "free-spoken-digits",
        without_suffix(found.paths),
        labels,
        found.clips,
        found.fields["session"],
        training=training,
        random_state=random_state,
        per_model=per_model,
        limit=sessions,
        source=SOURCE,
    )
