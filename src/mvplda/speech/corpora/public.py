"""Known corpora: C-VAU, Speech Commands and AudioMNIST, which are free; RSR2015 and Huiting202, the paper's."""

from __future__ import annotations

from pathlib import Path
from typing import Unpack

import numpy as np

from ..._typing import IntArray, Names, PathLike
from ...exceptions import DataError, ParameterError
from ...io.files import Groups
from ...io.trials import Trials, read_rsr2015_enrolment, read_trials, rsr2015_utterance
from ...kinds import Coded
from .corpus import (
    Corpus,
    Protocol,
    ProtocolOptions,
    Training,
    enrolments,
    listed_protocol,
    named,
    register_corpus,
    training_rows,
)
from .folder import Listing, match_files, read_listing

VIEWS = ("speaker", "phrase")
TRAINING_SPEAKERS = tuple(
    f"{number + 1:02d}" for number in sorted(np.random.RandomState(0).permutation(60)[:40])
)
"""The forty of AudioMNIST to train on."""
CVAU_SOURCE = "C-VAU, Cottbus Text-Dependent Voice Authentication Corpus, M. Wolff; MIT licence"
COMMANDS_SOURCE = "Speech Commands, Warden, arXiv 1804.03209; CC BY 4.0"
AUDIOMNIST_SOURCE = "AudioMNIST, Becker et al., 2018"
HUITING_SOURCE = "Huiting202, Shi et al., arXiv 1704.06061; not published"
HUITING_TRAINING = 132
"""Speakers of Huiting202 that the paper trains on; 70 others are tested."""
RSR2015_SOURCE = "RSR2015 part I, Larcher, Lee, Ma and Li, 2014"
SOUND_FOLDERS = ("wav", "flac", "sph")
"""The first that is there: SPHERE files may be compressed by Shorten, which sound libraries do not read."""
PATTERN = "{gender}/{speaker}/{speaker}_{session}_{phrase}"
PHRASES = 30
"""Part I has the phrases 001 to 030; parts II and III have later numbers."""
EVALUATION = {"male": 101, "female": 95}
"""The first speakers of the evaluation set, m101 to m157 and f095 to f143. Before them are the background, m001 to m050
and f001 to f047, and the development set."""


@register_corpus(
    "cvau", root="a folder <speaker>/<phrase>/<session>_<take>.flac, or vectors with these columns"
)
def cvau(
    root: PathLike,
    *,
    enrol: str = "2014-11",
    test: str = "angles",
    training: Training = 0.5,
    random_state: int = 0,
    per_model: int = 3,
) -> Corpus:
    """C-VAU: 35 speakers, 12 German pass-phrases, recording campaigns months apart; others say a phrase, too.

    Speakers who occur in both campaigns are enrolled with takes of one and tested with takes of the other. Whoever
    is trained on is neither. Free speech, which has no phrase, is left out.

    Parameters
    ----------
    enrol, test : the campaigns (2014-05, 2014-11, angles: turned microphone, low-gain: another room); of one
        campaign the first takes enrol, and the others test
    training : how many of the speakers who occur in both campaigns are trained on, beside all others
    random_state : of the draw
    per_model : takes of an enrolment, the first ones
    """
    listing = _by_takes(Path(root), "{speaker}/{phrase}/{session}_{take}")
    has_phrase = listing.labels(VIEWS)["phrase"] != ""
    listing = listing.take(np.flatnonzero(has_phrase))
    labels = listing.labels(VIEWS)
    session = listing.fields["session"]
    for campaign in (enrol, test):
        if campaign not in session:
            there = ", ".join(np.unique(session).tolist())
            raise ParameterError(f"cvau: there is no campaign {campaign!r}; there are {there}")
    speakers = labels["speaker"]
    both = np.intersect1d(speakers[session == enrol], speakers[session == test])
    chosen = np.isin(speakers, both)
    # who occurs in one campaign only cannot be tested across them
    train = ~chosen
    train[chosen] = training_rows({"speaker": speakers[chosen]}, training, random_state)
    rows = np.flatnonzero(~train & np.isin(session, [enrol, test]))
    # takes order a cell: sessions are campaigns here
    takes = listing.fields["take"]
    tested = None if enrol == test else session == test
    models, tests = enrolments(labels, takes, rows, per_model, tested)
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
    return listing.corpus("speech-commands", COMMANDS_SOURCE, "take", **protocol)


def _by_takes(path: Path, pattern: str) -> Listing:
    """A folder of sound, or an .npz of vectors whose columns have the names of the pattern's fields."""
    if not path.is_file():
        return match_files(path, pattern)
    with np.load(path) as arrays:
        fields = {name: arrays[name].astype(np.str_) for name in arrays if arrays[name].ndim == 1}
    number = np.arange(len(next(iter(fields.values()), ()))).astype(np.str_)
    return Listing(fields.get("id", number), None, {"take": number, **fields})


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
    data = Path(root) / "data"
    try:
        listing = read_listing(
            data if data.is_dir() else root, "{speaker}/{phrase}_{speaker}_{session}.wav"
        )
    except DataError as error:
        raise DataError(
            f"AudioMNIST is not there: {error}. Download the AudioMNIST repository and give its folder "
            "(data/<speaker>/<digit>_<speaker>_<repetition>.wav), or a packed folder with an index.csv"
        ) from error
    columns = listing.labels(("phrase", "speaker", "session"))
    # as the files of the repository are called, also where they are packed
    ids = np.array(["_".join(parts) for parts in zip(*columns.values(), strict=True)])
    if protocol.get("training") is None:
        protocol["training"] = np.intersect1d(TRAINING_SPEAKERS, columns["speaker"]).tolist()
    return listing._replace(ids=ids).corpus("audiomnist", AUDIOMNIST_SOURCE, **protocol)


@register_corpus(
    "huiting", root="a folder <speaker>/<phrase>/<session>.wav of Huiting202, or of its shape"
)
def huiting(root: PathLike, **protocol: Unpack[ProtocolOptions]) -> Corpus:
    """Huiting202: 202 speakers, 20 phrases; 132 speakers to train on, three sessions of a phrase enrol, the rest test.

    Of fewer speakers two thirds are trained on.
    """
    listing = match_files(Path(root), "{speaker}/{phrase}/{session}")
    if len(np.unique(listing.fields["speaker"])) > HUITING_TRAINING:
        protocol.setdefault("training", HUITING_TRAINING)
    return listing.corpus("huiting", HUITING_SOURCE, **protocol)


@register_corpus("rsr2015", root="the licensed corpus, with sph/ and key/")
def rsr2015(
    root: PathLike,
    *,
    gender: str | None = None,
    keys: PathLike | None = None,
) -> Corpus:
    """RSR2015 part I: train on background and development, as the paper does; enrol and test the others by gender.

    Parameters
    ----------
    root : the corpus' folder, which holds ``sph/<gender>/<speaker>/<speaker>_<session>_<phrase>.sph``. Converted files
        under ``wav`` or ``flac`` are preferred
    gender : "male" or "female" evaluates one; None both, each against itself. Both are trained on.
    keys : the folder that holds ``trn/3sess-pwd_eval_m.trn`` and ``ndx/3sess-pwd_eval_m.ndx`` (``f``):
        enrolments and trials as listed. None is the root's ``key/part1``; lists that are not there are an error
    """
    if gender not in (None, *EVALUATION):
        raise ParameterError(f"gender is 'male', 'female' or None for both; got {gender!r}")
    root = Path(root)
    listing = match_files(_sound(root), PATTERN)
    phrase = _numbers(listing.fields["phrase"])
    number = _numbers(np.array([name[1:] for name in listing.fields["speaker"].tolist()]))
    used = (number > 0) & (phrase > 0) & (phrase <= PHRASES)
    listing = listing.take(np.flatnonzero(used))
    ids = np.array([rsr2015_utterance(path) for path in listing.ids.tolist()])
    genders = listing.fields["gender"]
    # both genders are trained on, whichever is evaluated
    evaluated = np.zeros(len(ids), dtype=bool)
    train = np.zeros(len(ids), dtype=bool)
    wanted = [gender] if gender else list(EVALUATION)
    for name, first in EVALUATION.items():
        late = number[used] >= first
        train |= (genders == name) & ~late
        evaluated |= (genders == name) & late & (name in wanted)
    if not (train.any() and evaluated.any()):
        raise DataError(
            f"rsr2015: {int(train.sum())} utterances to train on and {int(evaluated.sum())} of speakers to evaluate "
            "with; expected some of both, in male/m001/m001_01_001 ..."
        )
    models, trials = _read_lists(root / "key/part1" if keys is None else Path(keys), wanted)
    protocol = listed_protocol(ids, models, trials, np.flatnonzero(train))
    labels = listing.labels(VIEWS)
    session = listing.fields["session"]
    return Corpus("rsr2015", ids, labels, listing.clips, protocol, RSR2015_SOURCE, session)


def _numbers(texts: Names) -> IntArray:
    """(n,) numbers; what is none is 0."""
    return np.where(np.char.isdecimal(texts), texts, "0").astype(np.int64)


def _sound(root: Path) -> Path:
    """The folder that holds the genders' sound."""
    for name in SOUND_FOLDERS:
        if any((root / name / gender).is_dir() for gender in EVALUATION):
            return root / name
    looked = ", ".join(str(root / name / "male") for name in SOUND_FOLDERS)
    raise DataError(
        f"RSR2015 is not there: looked for the folders {looked}. RSR2015 is licensed by I2R, Singapore: give the "
        "folder that holds sph/<male|female>/<speaker>/*.sph"
    )


def _read_lists(folder: Path, genders: list[str]) -> tuple[Groups, Trials]:
    """Enrolments and trials as the lists of one gender or of both have them."""
    files = {
        kind: [folder / kind / f"3sess-pwd_eval_{name[0]}.{kind}" for name in genders]
        for kind in ("trn", "ndx")
    }
    missing = [str(file) for some in files.values() for file in some if not file.is_file()]
    if missing:
        raise DataError(
            f"rsr2015: {len(missing)} lists are not there: {named(missing)}. Put them there, name "
            "their folder (-s corpus.keys=FOLDER), or evaluate one gender (-s corpus.gender=male)"
        )
    models: Groups = {}
    for file in files["trn"]:
        models |= read_rsr2015_enrolment(file)
    parts = [read_trials(file) for file in files["ndx"]]
    return models, Trials(_joined([p.enrol for p in parts]), _joined([p.test for p in parts]))


def _joined(columns: list[Coded]) -> Coded:
    """Columns one after the other; no id is written out, for there are tens of millions of them."""
    starts = np.cumsum([0, *(len(column.names) for column in columns[:-1])], dtype=np.int32)
    codes = [column.codes + start for column, start in zip(columns, starts, strict=True)]
    return Coded(np.concatenate([column.names for column in columns]), np.concatenate(codes))
