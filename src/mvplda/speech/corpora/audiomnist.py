"""AudioMNIST: sixty speakers, ten English digits, fifty repetitions (Becker et al., 2018; MIT licence)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ...exceptions import DataError
from .corpus import Corpus, register_corpus
from .folder import match_files, read_table
from .protocol import build_corpus

SOURCE = "AudioMNIST, Becker et al., 2018"
HOW = (
    "Download the AudioMNIST repository and give its folder (data/<speaker>/<digit>_<speaker>_<repetition>.wav), "
    "or a packed folder with an index.csv"
)
PATTERN = "{speaker}/{phrase}_{speaker}_{session}.wav"
INDEX = "index.csv"
VECTORS = "audiomnist_jvectors.npz"
_TRAINED = (3, 5, 6, 8, 9, *range(11, 13), *range(14, 20), 21, 23, *range(26, 37), 38, *range(41, 45), 46)
TRAINING_SPEAKERS = tuple(f"{number:02d}" for number in (*_TRAINED, *range(50, 54), 55, 57, 59, 60))
"""The forty to train on: the first 40 of ``numpy.random.RandomState(0).permutation`` of 1 to 60."""


@register_corpus("audiomnist", root="the downloaded repository, or a packed folder with an index.csv")
def audiomnist(
    root: str | os.PathLike[str],
    *,
    sessions: int | None = None,
    training: float | int | Sequence[str] | None = None,
    random_state: int = 0,
    per_model: int = 3,
) -> Corpus:
    """AudioMNIST, packed or as downloaded; 40 speakers to train on, 20 to enrol and test, all against all.

    Every digit of an evaluation speaker is enrolled with its first three repetitions
    (0 to 2) and tested with the others. All repetitions of a speaker were read in one sitting.

    Parameters
    ----------
    root : the downloaded repository, its ``data`` folder, or a packed folder: an ``index.csv``
        of file, start, length, speaker, phrase and session
    sessions : use only so many repetitions of a digit, the first ones
    training : speakers to train on; None takes those that the vectors beside the folder name
        (``training_speakers`` of ``audiomnist_jvectors.npz``), else `TRAINING_SPEAKERS`
    """
    root = Path(root)
    if (root / INDEX).is_file():
        listed = read_table(root / INDEX, views=("speaker", "phrase"))
        labels, session, clips = listed.labels, listed.sessions, listed.clips
        if session is None:
            raise DataError(f"{root / INDEX} has no column session, which says what is enrolled")
    else:
        found = match_files(_data(root), PATTERN, what="audiomnist")
        labels, session, clips = (
            {view: found.fields[view] for view in ("speaker", "phrase")},
            found.fields["session"],
            found.clips,
        )
    ids = np.array([f"{p}_{s}_{k}" for s, p, k in zip(labels["speaker"], labels["phrase"], session, strict=True)])
    if training is None:
        training = [name for name in _training(root) if name in set(labels["speaker"].tolist())]
    return build_corpus(
        "audiomnist",
        ids,
        labels,
        clips,
        session,
        training=training,
        random_state=random_state,
        per_model=per_model,
        limit=sessions,
        source=SOURCE,
    )


def _data(root: Path) -> Path:
    """The folder of the speakers' folders: the root's ``data``, or the root itself."""
    for folder in (root / "data", root):
        if folder.is_dir() and any(child.is_dir() and child.name.isdecimal() for child in folder.iterdir()):
            return folder
    raise DataError(
        f"AudioMNIST is not there: looked for {root / INDEX}, {root / 'data' / '01'} and {root / '01'}. {HOW}"
    )


def _training(root: Path) -> tuple[str, ...]:
    for file in (root / VECTORS, root.parent / VECTORS):
        if file.is_file():
            with np.load(file) as arrays:
                if "training_speakers" in arrays:
                    return tuple(f"{int(number):02d}" for number in arrays["training_speakers"])
    return TRAINING_SPEAKERS
