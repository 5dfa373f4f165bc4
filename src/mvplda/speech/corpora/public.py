"""Public corpora, and every corpus by its name."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...exceptions import DataError, LabelError, ParameterError
from ...io.sources import fail
from ...io.text import read_lines
from .corpus import Corpus, named
from .folder import folder as folder_corpus
from .folder import folder_with, match_files, read_table, without_suffix
from .protocol import build_corpus
from .rsr2015 import rsr2015
from .synthetic import synthetic

# AudioMNIST: sixty speakers, ten English digits, fifty repetitions (Becker et al., 2018; MIT licence).


MNIST_SOURCE = "AudioMNIST, Becker et al., 2018"
MNIST_HOW = (
    "Download the AudioMNIST repository and give its folder (data/<speaker>/<digit>_<speaker>_<repetition>.wav), "
    "or a packed folder with an index.csv"
)
MNIST_PATTERN = "{speaker}/{phrase}_{speaker}_{session}.wav"
INDEX = "index.csv"
VECTORS = "audiomnist_jvectors.npz"
_TRAINED = (3, 5, 6, 8, 9, *range(11, 13), *range(14, 20), 21, 23, *range(26, 37), 38, *range(41, 45), 46)
TRAINING_SPEAKERS = tuple(f"{number:02d}" for number in (*_TRAINED, *range(50, 54), 55, 57, 59, 60))
"""The forty to train on: the first 40 of ``numpy.random.RandomState(0).permutation`` of 1 to 60."""


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
        found = match_files(_data(root), MNIST_PATTERN, what="audiomnist")
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
        source=MNIST_SOURCE,
    )


def _data(root: Path) -> Path:
    """The folder of the speakers' folders: the root's ``data``, or the root itself."""
    for folder in (root / "data", root):
        if folder.is_dir() and any(child.is_dir() and child.name.isdecimal() for child in folder.iterdir()):
            return folder
    raise DataError(
        f"AudioMNIST is not there: looked for {root / INDEX}, {root / 'data' / '01'} and {root / '01'}. {MNIST_HOW}"
    )


def _training(root: Path) -> tuple[str, ...]:
    for file in (root / VECTORS, root.parent / VECTORS):
        if file.is_file():
            with np.load(file) as arrays:
                if "training_speakers" in arrays:
                    return tuple(f"{int(number):02d}" for number in arrays["training_speakers"])
    return TRAINING_SPEAKERS


# Free Spoken Digit: six speakers, ten English digits, fifty recordings (CC BY-SA 4.0).


DIGITS_SOURCE = "Free Spoken Digit Dataset, Jackson et al."
DIGITS_HOW = "Download the repository free-spoken-digit-dataset and give its folder"
DIGITS_PATTERN = "{phrase}_{speaker}_{session}.wav"
EVALUATION_SPEAKERS = ("theo", "yweweler")
"""The last two of the six by name: the repository's own rule (recordings 0 to 4 are the test set) shares its
speakers between training and test, which says nothing about speakers not seen before."""


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
        folder_with(root, ("recordings", "."), "Free Spoken Digit", DIGITS_HOW),
        DIGITS_PATTERN,
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
        source=DIGITS_SOURCE,
    )


# Arabic Speech Commands: thirty speakers, forty words, ten rounds (Ghandoura et al., 2021; CC BY 4.0).


COMMANDS_SOURCE = "Arabic Speech Commands, Ghandoura, Hjabo and Al Dakkak, 2021"
COMMANDS_HOW = "Download the repository arabic-speech-commands-dataset and give its folder"
COMMANDS_PATTERN = "{phrase}/{speaker}_NO_{session}.wav"
SPEAKER = re.compile(rb"(?<!\d)(\d{8})(?!\d)")
PARTS = ("train", "val", "test")
SUFFIXES = (".csv", ".txt")


def arabic_commands(
    root: str | os.PathLike[str],
    *,
    sessions: int | None = None,
    training: float | int | Sequence[str] | None = None,
    random_state: int = 0,
    per_model: int = 3,
) -> Corpus:
    """Arabic Speech Commands, with the repository's split of the speakers.

    Speakers of its training and validation lists are trained on, those of the test list are
    enrolled and tested. Without lists, two thirds of the speakers, drawn with `random_state`, are trained on.

    Parameters
    ----------
    root : the repository, with ``dataset/<keyword>/<8-digit speaker>_NO_<round>.wav`` and
        ``train``, ``val`` and ``test`` as ``.csv`` or ``.txt``: a file a line, or a speaker
    sessions : use only so many rounds of a word, the first ones
    training : speakers to train on, a number or a share of them; the lists are then not read
    per_model : utterances an enrolment, the first rounds
    """
    folder = folder_with(root, ("dataset", "."), "Arabic Speech Commands", COMMANDS_HOW)
    found = match_files(folder, COMMANDS_PATTERN, what="arabic-commands", unmatched="skip")
    labels = {view: found.fields[view] for view in ("speaker", "phrase")}
    if training is None:
        lists = speaker_lists(Path(root))
        if lists:
            speakers = np.unique(labels["speaker"])
            known = np.unique(np.concatenate([list(names) for names in lists.values()]))
            unlisted = np.setdiff1d(speakers, known)
            if len(unlisted):
                raise LabelError(f"arabic-commands: no list names the speaker(s) {named(unlisted.tolist())}")
            training = [name for name in speakers.tolist() if name not in lists["test"]]
    return build_corpus(
        "arabic-commands",
        without_suffix(found.paths),
        labels,
        found.clips,
        found.fields["session"],
        training=training,
        random_state=random_state,
        per_model=per_model,
        limit=sessions,
        source=COMMANDS_SOURCE,
    )


def speaker_lists(root: Path) -> dict[str, set[str]]:
    """The speakers that the lists of the repository name; empty where there is no list of tests."""
    lists: dict[str, set[str]] = {}
    for part in PARTS:
        file = next((root / (part + suffix) for suffix in SUFFIXES if (root / (part + suffix)).is_file()), None)
        if file is None:
            continue
        lists[part] = {match.decode() for line in read_lines(file) for match in SPEAKER.findall(line)}
        if not lists[part]:
            fail(file, "no line names a speaker, such as 00000001 or dataset/left/00000001_NO_01.wav")
    if "test" not in lists:
        return {}
    for part in ("train", "val"):
        both = sorted(lists["test"] & lists.get(part, set()))
        if both:
            raise LabelError(
                f"arabic-commands: {len(both)} speaker(s) are in the lists {part} and test: {named(both)}. "
                "Name the speakers to train on instead"
            )
    return lists


# Data sets by name.


CORPORA: dict[str, Callable[..., Corpus]] = {
    "audiomnist": audiomnist,
    "free-spoken-digits": free_spoken_digits,
    "arabic-commands": arabic_commands,
    "rsr2015": rsr2015,
    "folder": folder_corpus,
    "synthetic": synthetic,
}


def load_corpus(name: str, root: str | os.PathLike[str], **options: Any) -> Corpus:
    """A corpus by its name and the folder that it lies in.

    Parameters
    ----------
    name : audiomnist, free-spoken-digits, arabic-commands, rsr2015, folder or synthetic
    root : the folder (or, for "folder", a table; for "synthetic", where to write it)
    options : those of the data set's own function
    """
    load = CORPORA.get(name.replace("_", "-"))
    if load is None:
        raise ParameterError(f"there is no data set {name!r}; there are {', '.join(CORPORA)}")
    known = inspect.signature(load).parameters
    odd = [option for option in options if option not in known]
    if odd and not any(p.kind is p.VAR_KEYWORD for p in known.values()):
        raise ParameterError(f"{name} has no option {', '.join(odd)}; it has {', '.join(list(known)[1:])}")
    return load(root, **options)
