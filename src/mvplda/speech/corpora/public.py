"""Corpora that everyone can download: C-VAU, Speech Commands, AudioMNIST, Free Spoken Digit, Arabic Speech Commands."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from ..._typing import PathLike
from ...exceptions import DataError, LabelError, ParameterError
from ...io.files import fail, read_lines
from .corpus import Corpus, Protocol, ProtocolOptions, StringArray, named, register_corpus
from .folder import INDEX, Listing, folder_with, match_files, read_table
from .protocol import build_corpus, enrolments, training_rows

TRAINING_SPEAKERS = tuple(
    f"{number + 1:02d}" for number in sorted(np.random.RandomState(0).permutation(60)[:40])
)
"""The forty of AudioMNIST to train on."""
EVALUATION_SPEAKERS = ("theo", "yweweler")
"""The last two of the six of Free Spoken Digit by name: the repository's own rule (recordings 0 to 4 are the test set)
shares its speakers between training and test."""
EIGHT_DIGITS = re.compile(rb"(?<!\d)(\d{8})(?!\d)")
CVAU_SOURCE = "C-VAU, Cottbus Text-Dependent Voice Authentication Corpus, M. Wolff; MIT licence"
COMMANDS_SOURCE = "Speech Commands, Warden, arXiv 1804.03209; CC BY 4.0"


@register_corpus(
    "cvau", root="a folder <speaker>/<phrase>/<session>_<take>.flac, or vectors with these columns"
)
def cvau(
    root: PathLike,
    *,
    enrol: str = "2014-11",
    test: str = "angles",
    training: float | int | Sequence[str] | None = 0.5,
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
    ids, labels, clips, session, take = _by_takes(root, "{speaker}/{phrase}/{session}_{take}")
    spoken = np.flatnonzero(labels["phrase"] != "")
    ids = ids[spoken]
    labels = {view: classes[spoken] for view, classes in labels.items()}
    session, take = session[spoken], take[spoken]
    if clips is not None:
        clips = tuple(clips[row] for row in spoken)
    for campaign in (enrol, test):
        if campaign not in session:
            there = ", ".join(np.unique(session).tolist())
            raise ParameterError(f"cvau: there is no campaign {campaign!r}; there are {there}")
    speakers = labels["speaker"]
    both = np.intersect1d(speakers[session == enrol], speakers[session == test])
    chosen = np.isin(speakers, both)
    train = ~chosen
    own = {"speaker": speakers[chosen]}
    train[chosen] = training_rows(own, 0.5 if training is None else training, random_state)
    rows = np.flatnonzero(~train & np.isin(session, [enrol, test]))
    models, tests = enrolments(labels, take, rows, per_model=per_model, tests=session == test)
    protocol = Protocol(np.flatnonzero(train), models, tests)
    return Corpus("cvau", ids, labels, clips, protocol, CVAU_SOURCE, session)


@register_corpus(
    "speech-commands", root="a folder <speaker>/<word>/<take>.flac, or vectors with these columns"
)
def speech_commands(root: PathLike, **protocol: Unpack[ProtocolOptions]) -> Corpus:
    """Speech Commands: 1,855 speakers with their own phones and laptops, 30 English words, few takes of each.

    One take enrols unless `per_model` says otherwise; two thirds of the speakers are trained on unless `training`
    says otherwise.
    """
    ids, labels, clips, _, take = _by_takes(root, "{speaker}/{phrase}/{take}")
    protocol.setdefault("per_model", 1)
    return build_corpus(
        "speech-commands", ids, labels, clips, take, source=COMMANDS_SOURCE, **protocol
    )


def _by_takes(
    root: PathLike, pattern: str
) -> tuple[StringArray, dict[str, StringArray], Any, StringArray, StringArray]:
    """Ids, labels, clips, sessions and takes, of a folder of sound or of an .npz of vectors with columns."""
    path = Path(root)
    if not path.is_file():
        listing = match_files(path, pattern, on_error="skip", what=path.name)
        fields = listing.fields
        session = fields.get("session", fields["take"])
        return (
            listing.ids,
            listing.labels(("speaker", "phrase")),
            listing.clips,
            session,
            fields["take"],
        )
    with np.load(path) as arrays:
        lacking = [name for name in ("speaker", "phrase") if name not in arrays]
        if lacking:
            raise LabelError(f"{path} has no column {lacking[0]!r}; it has {', '.join(arrays)}")
        labels = {view: arrays[view].astype(np.str_) for view in ("speaker", "phrase")}
        number = np.arange(len(labels["speaker"]))
        take = arrays.get("take", number)
        session = arrays["session"].astype(np.str_) if "session" in arrays else take.astype(np.str_)
        ids = arrays.get("id", number)
    return ids.astype(np.str_), labels, None, session, take


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
    if (root / INDEX).is_file():
        listing = read_table(root / INDEX, views=("speaker", "phrase"))
    else:
        pattern = "{speaker}/{phrase}_{speaker}_{session}.wav"
        listing = match_files(_digits(root), pattern, what="audiomnist")
    if listing.session is None:
        raise DataError(f"{root / INDEX} has no column session, which says what is enrolled")
    labels = listing.labels(("speaker", "phrase"))
    columns = zip(labels["phrase"], labels["speaker"], listing.session, strict=True)
    ids = np.array(["_".join(parts) for parts in columns])
    if protocol.get("training") is None:
        there = set(labels["speaker"].tolist())
        protocol["training"] = [name for name in TRAINING_SPEAKERS if name in there]
    source = "AudioMNIST, Becker et al., 2018"
    return build_corpus(
        "audiomnist", ids, labels, listing.clips, listing.session, source=source, **protocol
    )


def _digits(root: Path) -> Path:
    """The folder of the speakers' folders: the root's ``data``, or the root itself."""
    for folder in (root / "data", root):
        if folder.is_dir() and any(child.name.isdecimal() for child in folder.iterdir()):
            return folder
    raise DataError(
        f"AudioMNIST is not there: looked for {root / INDEX}, {root / 'data' / '01'} and {root / '01'}. Download the "
        "AudioMNIST repository and give its folder (data/<speaker>/<digit>_<speaker>_<repetition>.wav), or a packed "
        "folder with an index.csv"
    )


@register_corpus("free-spoken-digits", root="the downloaded repository")
def free_spoken_digits(root: PathLike, **protocol: Unpack[ProtocolOptions]) -> Corpus:
    """Free Spoken Digit: six speakers, ten English digits, fifty recordings (CC BY-SA 4.0).

    Unless `training` says otherwise, the speakers theo and yweweler are enrolled and tested, the others trained on.

    Parameters
    ----------
    root : the repository, which holds ``recordings/<digit>_<name>_<index>.wav``
    """
    how = "Download the repository free-spoken-digit-dataset and give its folder"
    folder = folder_with(root, ("recordings", "."), "Free Spoken Digit", how)
    listing = match_files(folder, "{phrase}_{speaker}_{session}.wav", what="free-spoken-digits")
    if protocol.get("training") is None:
        speakers = np.unique(listing.fields["speaker"]).tolist()
        protocol["training"] = [name for name in speakers if name not in EVALUATION_SPEAKERS]
    return _of_listing(
        "free-spoken-digits", listing, "Free Spoken Digit Dataset, Jackson et al.", protocol
    )


@register_corpus("arabic-commands", root="the downloaded repository")
def arabic_commands(root: PathLike, **protocol: Unpack[ProtocolOptions]) -> Corpus:
    """Arabic Speech Commands: thirty speakers, forty words, ten rounds (Ghandoura et al., 2021; CC BY 4.0).

    Speakers of the repository's training and validation lists are trained on, those of the test list are enrolled and
    tested. Without lists, two thirds of the speakers are trained on; with `training` the lists are not read.

    Parameters
    ----------
    root : the repository, with ``dataset/<keyword>/<8-digit speaker>_NO_<round>.wav`` and
        ``train``, ``val`` and ``test`` as ``.csv`` or ``.txt``: a file per line, or a speaker
    """
    how = "Download the repository arabic-speech-commands-dataset and give its folder"
    folder = folder_with(root, ("dataset", "."), "Arabic Speech Commands", how)
    pattern = "{phrase}/{speaker}_NO_{session}.wav"
    listing = match_files(folder, pattern, what="arabic-commands", on_error="skip")
    if protocol.get("training") is None:
        tested = _listed_speakers(Path(root), "test")
        trained = _listed_speakers(Path(root), "train") | _listed_speakers(Path(root), "val")
        speakers = np.unique(listing.fields["speaker"]).tolist()
        if tested & trained:
            raise LabelError(
                f"arabic-commands: the lists of tests and of training share speakers: {named(sorted(tested & trained))}"
            )
        unlisted = sorted(set(speakers) - tested - trained)
        if tested and unlisted:
            raise LabelError(f"arabic-commands: no list names the speaker(s) {named(unlisted)}")
        if tested:
            protocol["training"] = [name for name in speakers if name not in tested]
    source = "Arabic Speech Commands, Ghandoura, Hjabo and Al Dakkak, 2021"
    return _of_listing("arabic-commands", listing, source, protocol)


def _listed_speakers(root: Path, part: str) -> set[str]:
    """The speakers that a list of the repository names; none where there is no such list."""
    for suffix in (".csv", ".txt"):
        file = root / (part + suffix)
        if file.is_file():
            names = {
                name.decode() for line in read_lines(file) for name in EIGHT_DIGITS.findall(line)
            }
            if not names:
                fail(file, "no line names a speaker, such as 00000001")
            return names
    return set()


def _of_listing(name: str, listing: Listing, source: str, protocol: Any) -> Corpus:
    labels = listing.labels(("speaker", "phrase"))
    return build_corpus(
        name, listing.ids, labels, listing.clips, listing.session, source=source, **protocol
    )
