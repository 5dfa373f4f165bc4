"""Loading of the corpora C-VAU, Speech Commands and AudioMNIST, which are free, and of the paper's Huiting202."""

from __future__ import annotations

from pathlib import Path
from typing import Unpack

import numpy as np

from ..._typing import PathLike
from ...exceptions import DataError, ParameterError
from .corpus import (
    Corpus,
    Protocol,
    ProtocolOptions,
    TrainingClasses,
    enrolments,
    register_corpus,
    training_rows,
)
from .folder import Listing, match_files, read_listing

VIEWS = ("speaker", "phrase")
TRAINING_SPEAKERS = tuple(
    f"{number + 1:02d}" for number in sorted(np.random.RandomState(0).permutation(60)[:40])
)
"""Names of the 40 training speakers of AudioMNIST."""
CVAU_SOURCE = "C-VAU, Cottbus Text-Dependent Voice Authentication Corpus, M. Wolff; MIT licence"
COMMANDS_SOURCE = "Speech Commands, Warden, arXiv 1804.03209; CC BY 4.0"
AUDIOMNIST_SOURCE = "AudioMNIST, Becker et al., 2018"
HUITING_SOURCE = "Huiting202, Shi et al., arXiv 1704.06061; not published"
HUITING_TRAINING = 132
"""Number of training speakers of Huiting202 in the paper; the other 70 are tested."""


@register_corpus(
    "cvau", root="a folder <speaker>/<phrase>/<session>_<take>.flac, or vectors with these columns"
)
def cvau(
    root: PathLike,
    *,
    enrol: str = "2014-11",
    test: str = "angles",
    training: TrainingClasses = 0.5,
    random_state: int = 0,
    per_model: int = 3,
) -> Corpus:
    """Load C-VAU: 35 speakers and 12 German pass-phrases, recorded in sessions that are months apart.

    Speakers with recordings in both the `enrol` and the `test` session are enrolled with recordings of the first and
    tested with recordings of the second, unless they are training speakers. Free speech, which has no phrase, is left
    out.

    Parameters
    ----------
    root : folder <speaker>/<phrase>/<session>_<take>.flac, or .npz file of vectors with these columns
    enrol, test : sessions: 2014-05, 2014-11, angles (turned microphone) or low-gain (another room). If both are the
        same, the first recordings are enrolled and the others tested
    training : training speakers among those with both sessions: their names, their number, or a proportion below 1.
        Speakers without one of the sessions are training speakers in any case
    random_state : seed of the draw of training speakers
    per_model : number of recordings per enrolment, the first ones of a speaker and phrase
    """
    listing = _listing(Path(root), "{speaker}/{phrase}/{session}_{take}")
    has_phrase = listing.labels(VIEWS)["phrase"] != ""
    listing = listing.take(np.flatnonzero(has_phrase))
    labels = listing.labels(VIEWS)
    session = listing.fields["session"]
    for name in (enrol, test):
        if name not in session:
            available = ", ".join(np.unique(session).tolist())
            raise ParameterError(f"cvau: unknown session {name!r}; available sessions: {available}")

    speakers = labels["speaker"]
    in_both_sessions = np.intersect1d(speakers[session == enrol], speakers[session == test])
    can_be_tested = np.isin(speakers, in_both_sessions)
    # speakers of a single session cannot be tested across sessions
    train = ~can_be_tested
    candidates = {"speaker": speakers[can_be_tested]}
    train[can_be_tested] = training_rows(candidates, training, random_state)

    rows = np.flatnonzero(~train & np.isin(session, [enrol, test]))
    is_test = None if enrol == test else session == test
    # within a session, the field "take" orders the recordings of a cell
    models, tests = enrolments(labels, listing.fields["take"], rows, per_model, is_test)
    protocol = Protocol(np.flatnonzero(train), models, tests)
    return Corpus("cvau", listing.ids, labels, listing.files, protocol, CVAU_SOURCE, session)


@register_corpus(
    "speech-commands", root="a folder <speaker>/<word>/<take>.flac, or vectors with these columns"
)
def speech_commands(root: PathLike, **protocol: Unpack[ProtocolOptions]) -> Corpus:
    """Load Speech Commands: 1,855 speakers on their own phones and laptops, 30 English words, few recordings per word.

    By default, one recording is enrolled per speaker and word, and two thirds of the speakers are training speakers.

    Parameters
    ----------
    root : folder <speaker>/<word>/<take>.flac, or .npz file of vectors with these columns
    protocol : see `ProtocolOptions`
    """
    listing = _listing(Path(root), "{speaker}/{phrase}/{take}")
    protocol.setdefault("per_model", 1)
    return listing.corpus("speech-commands", COMMANDS_SOURCE, "take", **protocol)


def _listing(path: Path, pattern: str) -> Listing:
    """Return the list of utterances of a folder of sound files, or of an .npz file of vectors.

    pattern : pattern of the sound files' names, such as ``{speaker}/{phrase}/*``; an .npz file must have arrays with
        the names of its fields
    """
    if not path.is_file():
        return match_files(path, pattern)
    with np.load(path) as arrays:
        fields = {name: arrays[name].astype(np.str_) for name in arrays if arrays[name].ndim == 1}
    n_rows = len(next(iter(fields.values()), ()))
    row_numbers = np.arange(n_rows).astype(np.str_)
    return Listing(fields.get("id", row_numbers), None, {"take": row_numbers, **fields})


@register_corpus("audiomnist", root="the downloaded repository, or a folder with an index.csv")
def audiomnist(root: PathLike, **protocol: Unpack[ProtocolOptions]) -> Corpus:
    """Load AudioMNIST: 60 speakers, ten English digits, 50 repetitions (Becker et al., 2018; MIT licence).

    By default, 40 speakers (`TRAINING_SPEAKERS`) are training speakers; the other 20 are enrolled and tested, all
    against all. Each digit of a speaker is enrolled with its first three repetitions (0 to 2) and tested with the
    others. All recordings of a speaker come from one session.

    Parameters
    ----------
    root : the downloaded repository, its ``data`` folder, or a folder with an ``index.csv`` of the columns file,
        start, length, speaker, phrase and session
    protocol : see `ProtocolOptions`
    """
    data = Path(root) / "data"
    try:
        listing = read_listing(
            data if data.is_dir() else root, "{speaker}/{phrase}_{speaker}_{session}.wav"
        )
    except DataError as error:
        raise DataError(
            f"AudioMNIST was not found: {error}. Download the AudioMNIST repository and pass its folder "
            "(data/<speaker>/<digit>_<speaker>_<repetition>.wav), or a folder with an index.csv"
        ) from error
    columns = listing.labels(("phrase", "speaker", "session"))
    # the file names of the repository, for every kind of root
    ids = np.array(["_".join(values) for values in zip(*columns.values(), strict=True)])
    if protocol.get("training") is None:
        protocol["training"] = np.intersect1d(TRAINING_SPEAKERS, columns["speaker"]).tolist()
    return listing._replace(ids=ids).corpus("audiomnist", AUDIOMNIST_SOURCE, **protocol)


@register_corpus(
    "huiting",
    root="a folder <speaker>/<phrase>/<session>.wav of Huiting202 or another corpus in this layout",
)
def huiting(root: PathLike, **protocol: Unpack[ProtocolOptions]) -> Corpus:
    """Load Huiting202 (202 speakers, 20 phrases), or another corpus with the same layout of folders.

    By default, 132 speakers are training speakers, or two thirds if there are at most 132; three recordings of a
    speaker and phrase are enrolled, the others tested.

    Parameters
    ----------
    root : folder <speaker>/<phrase>/<session>.wav
    protocol : see `ProtocolOptions`
    """
    listing = match_files(Path(root), "{speaker}/{phrase}/{session}")
    if len(np.unique(listing.fields["speaker"])) > HUITING_TRAINING:
        protocol.setdefault("training", HUITING_TRAINING)
    return listing.corpus("huiting", HUITING_SOURCE, **protocol)
