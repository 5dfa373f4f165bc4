"""Corpora that everyone can download: AudioMNIST, Free Spoken Digit, Arabic Speech Commands."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Unpack

import numpy as np

from ..._typing import PathLike
from ...exceptions import DataError, LabelError
from ...io.files import fail, read_lines
from .corpus import Corpus, ProtocolOptions, named, register_corpus
from .folder import INDEX, folder_with, match_files, read_table, without_suffix
from .protocol import build_corpus

VECTORS = "audiomnist_jvectors.npz"
_TRAINED = (
    3,
    5,
    6,
    8,
    9,
    *range(11, 13),
    *range(14, 20),
    21,
    23,
    *range(26, 37),
    38,
    *range(41, 45),
    46,
)
TRAINING_SPEAKERS = tuple(f"{number:02d}" for number in (*_TRAINED, *range(50, 54), 55, 57, 59, 60))
"""The forty of AudioMNIST to train on: the first 40 of ``numpy.random.RandomState(0).permutation`` of 1 to 60."""
EVALUATION_SPEAKERS = ("theo", "yweweler")
"""The last two of the six of Free Spoken Digit by name: the repository's own rule (recordings 0 to 4 are the test set)
shares its speakers between training and test, which says nothing about speakers not seen before."""
EIGHT_DIGITS = re.compile(rb"(?<!\d)(\d{8})(?!\d)")


@register_corpus(
    "audiomnist", root="the downloaded repository, or a packed folder with an index.csv"
)
def audiomnist(root: PathLike, **protocol: Unpack[ProtocolOptions]) -> Corpus:
    """AudioMNIST: sixty speakers, ten English digits, fifty repetitions (Becker et al., 2018; MIT licence).

    40 speakers to train on, 20 to enrol and test, all against all. Every digit of an evaluation speaker is enrolled
    with its first three repetitions (0 to 2) and tested with the others. All of a speaker were read in one sitting.

    Parameters
    ----------
    root : the downloaded repository, its ``data`` folder, or a packed folder: an ``index.csv``
        of file, start, length, speaker, phrase and session
    protocol : see `ProtocolOptions`. Unless `training` names them, the speakers to train on are those that the vectors
        beside the folder name (``training_speakers`` of ``audiomnist_jvectors.npz``), else `TRAINING_SPEAKERS`
    """
    root = Path(root)
    if (root / INDEX).is_file():
        listed = read_table(root / INDEX, views=("speaker", "phrase"))
        labels, session, clips = listed.labels, listed.sessions, listed.clips
        if session is None:
            raise DataError(f"{root / INDEX} has no column session, which says what is enrolled")
    else:
        found = match_files(
            _digits(root), "{speaker}/{phrase}_{speaker}_{session}.wav", what="audiomnist"
        )
        labels, session, clips = found.speaker_and_phrase, found.fields["session"], found.clips
    ids = np.array(
        [
            f"{p}_{s}_{k}"
            for s, p, k in zip(labels["speaker"], labels["phrase"], session, strict=True)
        ]
    )
    if protocol.get("training") is None:
        there = set(labels["speaker"].tolist())
        protocol["training"] = [name for name in _trained(root) if name in there]
    return build_corpus(
        "audiomnist",
        ids,
        labels,
        clips,
        session,
        source="AudioMNIST, Becker et al., 2018",
        **protocol,
    )


def _digits(root: Path) -> Path:
    """The folder of the speakers' folders: the root's ``data``, or the root itself."""
    for folder in (root / "data", root):
        if folder.is_dir() and any(
            child.is_dir() and child.name.isdecimal() for child in folder.iterdir()
        ):
            return folder
    raise DataError(
        f"AudioMNIST is not there: looked for {root / INDEX}, {root / 'data' / '01'} and {root / '01'}. Download the "
        "AudioMNIST repository and give its folder (data/<speaker>/<digit>_<speaker>_<repetition>.wav), or a packed "
        "folder with an index.csv"
    )


def _trained(root: Path) -> tuple[str, ...]:
    for file in (root / VECTORS, root.parent / VECTORS):
        if file.is_file():
            with np.load(file) as arrays:
                if "training_speakers" in arrays:
                    return tuple(f"{int(number):02d}" for number in arrays["training_speakers"])
    return TRAINING_SPEAKERS


@register_corpus("free-spoken-digits", root="the downloaded repository")
def free_spoken_digits(root: PathLike, **protocol: Unpack[ProtocolOptions]) -> Corpus:
    """Free Spoken Digit: six speakers, ten English digits, fifty recordings (CC BY-SA 4.0).

    Unless `training` says otherwise, the speakers theo and yweweler are enrolled and tested, the others trained on.

    Parameters
    ----------
    root : the repository, which holds ``recordings/<digit>_<name>_<index>.wav``
    protocol : see `ProtocolOptions`
    """
    how = "Download the repository free-spoken-digit-dataset and give its folder"
    folder = folder_with(root, ("recordings", "."), "Free Spoken Digit", how)
    found = match_files(folder, "{phrase}_{speaker}_{session}.wav", what="free-spoken-digits")
    if protocol.get("training") is None:
        speakers = np.unique(found.fields["speaker"]).tolist()
        protocol["training"] = [name for name in speakers if name not in EVALUATION_SPEAKERS]
    ids, labels, source = (
        without_suffix(found.paths),
        found.speaker_and_phrase,
        "Free Spoken Digit Dataset, Jackson et al.",
    )
    return build_corpus(
        "free-spoken-digits",
        ids,
        labels,
        found.clips,
        found.fields["session"],
        source=source,
        **protocol,
    )


@register_corpus("arabic-commands", root="the downloaded repository")
def arabic_commands(root: PathLike, **protocol: Unpack[ProtocolOptions]) -> Corpus:
    """Arabic Speech Commands: thirty speakers, forty words, ten rounds (Ghandoura et al., 2021; CC BY 4.0).

    Speakers of the repository's training and validation lists are trained on, those of the test list are enrolled and
    tested. Without lists, two thirds of the speakers are trained on; with `training` the lists are not read.

    Parameters
    ----------
    root : the repository, with ``dataset/<keyword>/<8-digit speaker>_NO_<round>.wav`` and
        ``train``, ``val`` and ``test`` as ``.csv`` or ``.txt``: a file a line, or a speaker
    protocol : see `ProtocolOptions`
    """
    how = "Download the repository arabic-speech-commands-dataset and give its folder"
    folder = folder_with(root, ("dataset", "."), "Arabic Speech Commands", how)
    found = match_files(
        folder, "{phrase}/{speaker}_NO_{session}.wav", what="arabic-commands", on_error="skip"
    )
    lists = speaker_lists(Path(root)) if protocol.get("training") is None else {}
    if lists:
        speakers = np.unique(found.fields["speaker"]).tolist()
        unlisted = sorted(set(speakers).difference(*lists.values()))
        if unlisted:
            raise LabelError(f"arabic-commands: no list names the speaker(s) {named(unlisted)}")
        protocol["training"] = [name for name in speakers if name not in lists["test"]]
    ids, session = without_suffix(found.paths), found.fields["session"]
    source = "Arabic Speech Commands, Ghandoura, Hjabo and Al Dakkak, 2021"
    return build_corpus(
        "arabic-commands",
        ids,
        found.speaker_and_phrase,
        found.clips,
        session,
        source=source,
        **protocol,
    )


def speaker_lists(root: Path) -> dict[str, set[str]]:
    """The speakers that the lists of the repository name; empty where there is no list of tests."""
    lists: dict[str, set[str]] = {}
    for part in ("train", "val", "test"):
        file = next(
            (file for suffix in (".csv", ".txt") if (file := root / (part + suffix)).is_file()),
            None,
        )
        if file is None:
            continue
        lists[part] = {
            match.decode() for line in read_lines(file) for match in EIGHT_DIGITS.findall(line)
        }
        if not lists[part]:
            fail(
                file, "no line names a speaker, such as 00000001 or dataset/left/00000001_NO_01.wav"
            )
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
