"""Corpora that everyone can download: C-VAU, Speech Commands, AudioMNIST."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Unpack

import numpy as np

from ..._typing import PathLike
from ...exceptions import DataError, LabelError, ParameterError
from .corpus import Corpus, Protocol, ProtocolOptions, register_corpus
from .folder import INDEX, Listing, match_files, read_table
from .protocol import build_corpus, enrolments, training_rows

VIEWS = ("speaker", "phrase")
TRAINING_SPEAKERS = tuple(
    f"{number + 1:02d}" for number in sorted(np.random.RandomState(0).permutation(60)[:40])
)
"""The forty of AudioMNIST to train on."""
CVAU_SOURCE = "C-VAU, Cottbus Text-Dependent Voice Authentication Corpus, M. Wolff; MIT licence"
COMMANDS_SOURCE = "Speech Commands, Warden, arXiv 1804.03209; CC BY 4.0"
AUDIOMNIST_SOURCE = "AudioMNIST, Becker et al., 2018"


@register_corpus(
    "cvau", root="a folder <speaker>/<phrase>/<session>_<take>.flac, or vectors with these columns"
)
def cvau(
    root: PathLike,
    *,
    enrol: str = "2014-11",
    test: str = "angles",
    training: float | int | Sequence[str] = 0.5,
    random_state: int = 0,
    per_model: int = 3,
) -> Corpus:
    """C-VAU: 35 speakers, 12 German pass-phrases, recording campaigns months apart; others say a phrase, too.

    Speakers who occur in both campaigns are enrolled with takes of one and tested with takes of the other. Whoever
    is trained on is neither. Free speech, which has no phrase, is left out.

    Parameters
    ----------
    enrol, test : the campaigns (2014-05, 2014-11, angles: turned microphone, low-gain: another room)
    training : how many of the speakers who occur in both campaigns are trained on, beside all others
    random_state : of the draw
    per_model : takes of an enrolment, the first ones
    """
    listing = _by_takes(Path(root), "{speaker}/{phrase}/{session}_{take}")
    listing = listing.take(np.flatnonzero(listing.fields["phrase"] != ""))
    labels = listing.labels(VIEWS)
    session = listing.fields["session"]
    for campaign in (enrol, test):
        if campaign not in session:
            there = ", ".join(np.unique(session).tolist())
            raise ParameterError(f"cvau: there is no campaign {campaign!r}; there are {there}")
    speakers = labels["speaker"]
    both = np.intersect1d(speakers[session == enrol], speakers[session == test])
    chosen = np.isin(speakers, both)
    train = ~chosen
    train[chosen] = training_rows({"speaker": speakers[chosen]}, training, random_state)
    rows = np.flatnonzero(~train & np.isin(session, [enrol, test]))
    takes = listing.fields["take"]
    models, tests = enrolments(labels, takes, rows, VIEWS, per_model, session == test)
    protocol = Protocol(np.flatnonzero(train), models, tests)
    return Corpus("cvau", listing.ids, labels, listing.clips, protocol, CVAU_SOURCE, session)


@register_corpus(
    "speech-commands", root="a folder <speaker>/<word>/<take>.flac, or vectors with these columns"
)
def speech_commands(root: PathLike, **protocol: Unpack[ProtocolOptions]) -> Corpus:
    """Speech Commands: 1,855 speakers with their own phones and laptops, 30 English words, few takes of each.

    One take enrols unless `per_model` says otherwise; two thirds of the speakers are trained on unless `training`
    says otherwise.
    """
    listing = _by_takes(Path(root), "{speaker}/{phrase}/{take}")
    protocol.setdefault("per_model", 1)
    return build_corpus(
        "speech-commands",
        listing.ids,
        listing.labels(VIEWS),
        listing.clips,
        listing.fields["take"],
        source=COMMANDS_SOURCE,
        **protocol,
    )


def _by_takes(path: Path, pattern: str) -> Listing:
    """A folder of sound, or an .npz of vectors whose columns have the names of the pattern's fields."""
    if not path.is_file():
        return match_files(path, pattern, "skip")
    with np.load(path) as arrays:
        lacking = [name for name in VIEWS if name not in arrays]
        if lacking:
            raise LabelError(f"{path} has no column {lacking[0]!r}; it has {', '.join(arrays)}")
        columns = {name: arrays[name] for name in arrays if arrays[name].ndim == 1}
    number = np.arange(len(columns["speaker"]))
    fields = {name: column.astype(np.str_) for name, column in columns.items()}
    fields["take"] = columns.get("take", number)
    return Listing(columns.get("id", number).astype(np.str_), None, fields)


@register_corpus(
    "audiomnist", root="the downloaded repository, or a packed folder with an index.csv"
)
def audiomnist(root: PathLike, **protocol: Unpack[ProtocolOptions]) -> Corpus:
    """AudioMNIST: sixty speakers, ten English digits, fifty repetitions (Becker et al., 2018; MIT licence).

    40 speakers (`TRAINING_SPEAKERS`) to train on, 20 to enrol and test, all against all. Every digit of an evaluation
    speaker is enrolled with its first three repetitions (0 to 2) and tested with the others. All of a speaker were
    read in one sitting.

    Parameters
    ----------
    root : the downloaded repository, its ``data`` folder, or a packed folder: an ``index.csv``
        of file, start, length, speaker, phrase and session
    """
    root = Path(root)
    data = root / "data" if (root / "data").is_dir() else root
    if (root / INDEX).is_file():
        listing = read_table(root / INDEX, views=VIEWS)
    elif (data / "01").is_dir():
        listing = match_files(data, "{speaker}/{phrase}_{speaker}_{session}.wav")
    else:
        raise DataError(
            f"AudioMNIST is not there: looked for {root / INDEX} and {data / '01'}. Download the "
            "AudioMNIST repository and give its folder (data/<speaker>/<digit>_<speaker>_<repetition>.wav), or a "
            "packed folder with an index.csv"
        )
    labels = listing.labels(VIEWS)
    session = listing.labels(["session"])["session"]
    columns = zip(labels["phrase"], labels["speaker"], session, strict=True)
    ids = np.array(["_".join(parts) for parts in columns])
    if protocol.get("training") is None:
        protocol["training"] = np.intersect1d(TRAINING_SPEAKERS, labels["speaker"]).tolist()
    return build_corpus(
        "audiomnist", ids, labels, listing.clips, session, source=AUDIOMNIST_SOURCE, **protocol
    )
