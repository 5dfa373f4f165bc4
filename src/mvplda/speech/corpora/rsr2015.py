"""RSR2015 part I: thirty pass-phrases of 300 speakers, nine sessions (Larcher et al., 2014; licensed)."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ..._typing import IntArray
from ...exceptions import DataError, LabelError, ParameterError
from ...io.trials import Trials, read_rsr2015_enrolment, read_trials, rsr2015_utterance
from ...kinds import Coded
from .corpus import Corpus, Protocol, StringArray, named, register_corpus
from .folder import Listing, match_files
from .protocol import enrolments, listed_protocol

SOURCE = "RSR2015 part I, Larcher, Lee, Ma and Li, 2014"
HOW = "RSR2015 is licensed by I2R, Singapore: give the folder that holds sph/<male|female>/<speaker>/*.sph"
SOUND_FOLDERS = ("sph", "wav", "flac", ".")
FORMATS = (".wav", ".flac", ".sph")
"""Of an utterance that lies there more than once, the first of these: a SPHERE file may be compressed by
Shorten, which sound libraries do not read, and what lies beside it is what was made of it."""
PATTERN = "{gender}/{speaker}/{speaker}_{session}_{phrase}"
PHRASES = 30
"""Part I has the phrases 001 to 030; parts II and III have later numbers."""
ENROL_SESSIONS = (1, 4, 7)
"""Those of the handset that a speaker enrols with; the six others are tested."""
DEVELOPMENT = {"male": 51, "female": 48}
EVALUATION = {"male": 101, "female": 95}
"""The first speakers of the development set, m051 to m100 and f048 to f094, and of the evaluation set, m101 to
m157 and f095 to f143. Before them is the background, m001 to m050 and f001 to f047."""
SUBSETS = {"evaluation": "eval", "development": "dev"}
KEYS = "key/part1"

log = logging.getLogger(__name__)


@register_corpus("rsr2015", root="the licensed corpus, with sph/ and key/")
def rsr2015(
    root: str | os.PathLike[str],
    *,
    subset: str = "evaluation",
    gender: str | None = None,
    keys: Literal[False] | str | os.PathLike[str] | None = None,
    training: Sequence[str] | None = None,
    phrases: int = PHRASES,
    on_error: str = "raise",
) -> Corpus:
    """RSR2015 part I: train on the speakers before a set, enrol and test the set by gender.

    Parameters
    ----------
    root : the corpus' folder, which holds ``sph/<gender>/<speaker>/<speaker>_<session>_<phrase>.sph``, or the one
        above it. Converted files will do, under ``wav`` or beside the others: of an utterance that lies there in
        two formats, .wav is preferred to .flac, and both to .sph
    subset : "evaluation" trains on background and development, as the paper does; "development" trains on the
        background, and leaves the evaluation set alone
    gender : "male" or "female" evaluates one; None both, each against itself. Both are trained on.
    keys : the folder that holds ``trn/3sess-pwd_eval_m.trn`` and ``ndx/3sess-pwd_eval_m.ndx`` (``f``; ``dev``):
        enrolments and trials as listed. None is the root's ``key/part1``, and lists that are not there are an
        error; False enrols sessions 1, 4 and 7 of every speaker and phrase, and tests with the others, all against
        all of the same gender.
    training : speakers to train on; None takes those before the set
    phrases : use the first so many
    on_error : "raise" stops at listed utterances that are not there; "skip" leaves them out, and says how many
    """
    if gender not in (None, "male", "female"):
        raise ParameterError(f"gender is 'male', 'female' or None for both; got {gender!r}")
    if subset not in SUBSETS:
        raise ParameterError(f"subset is {' or '.join(map(repr, SUBSETS))}; got {subset!r}")
    base, sound = _folders(Path(root))
    listing = _one_format(match_files(sound, PATTERN, on_error="skip", what="rsr2015"))
    number = _numbers(listing.fields["phrase"], "phrase")
    listing = listing.take(np.flatnonzero((number >= 1) & (number <= phrases)))
    if not len(listing):
        raise DataError(f"rsr2015: no file is of the phrases 001 to {phrases:03d} of part I")
    ids = np.array([rsr2015_utterance(path) for path in listing.ids.tolist()])
    labels = listing.labels(("speaker", "phrase"))
    genders = listing.fields["gender"]
    session = listing.fields["session"]
    train, evaluated = _sets(labels["speaker"], genders, subset, training)
    rows = np.flatnonzero(evaluated if gender is None else evaluated & (genders == gender))
    if not (train.any() and len(rows)):
        raise DataError(
            f"rsr2015: {int(train.sum())} utterances to train on and {len(rows)} of speakers to evaluate with; "
            "expected some of both: name the speakers to train on where the folder holds a part of the corpus"
        )
    train_rows = np.flatnonzero(train)
    if keys is False:
        numbers = _numbers(session, "session")
        protocol = _by_session(labels, numbers, train_rows, rows, genders)
    else:
        folder = base / KEYS if keys is None else Path(keys)
        models, trials = _read_lists(folder, gender, SUBSETS[subset], phrases)
        protocol = listed_protocol(
            ids, models, trials, train=train_rows, groups=genders, on_error=on_error
        )
    return Corpus("rsr2015", ids, labels, listing.clips, protocol, SOURCE, session)


def _folders(root: Path) -> tuple[Path, Path]:
    """The corpus' folder, and the one under it that holds the genders' sound: here, or one level down."""
    if root.is_dir():
        for base in (root, *sorted(folder for folder in root.iterdir() if folder.is_dir())):
            for name in SOUND_FOLDERS:
                if any((base / name / gender).is_dir() for gender in EVALUATION):
                    return base, base / name
    looked = ", ".join(str(root / name / "male") for name in SOUND_FOLDERS)
    raise DataError(
        f"RSR2015 is not there: looked for the folders {looked}, and one level down. {HOW}"
    )


def _one_format(listing: Listing) -> Listing:
    """One file per utterance."""
    chosen: dict[str, tuple[int, int]] = {}
    for row, (name, clip) in enumerate(zip(listing.ids.tolist(), listing.clips, strict=True)):
        suffix = clip.path.suffix.lower()
        rank = FORMATS.index(suffix) if suffix in FORMATS else len(FORMATS)
        chosen[name] = min(chosen.get(name, (rank, row)), (rank, row))
    if len(chosen) < len(listing):
        log.warning(
            "rsr2015: %d utterance(s) lie there in several formats, and the first of %s is used",
            len(listing) - len(chosen),
            ", ".join(FORMATS),
        )
    return listing.take(np.sort([row for _, row in chosen.values()]))


def _by_session(
    labels: dict[str, StringArray],
    sessions: IntArray,
    train: IntArray,
    rows: IntArray,
    genders: StringArray,
) -> Protocol:
    # Enrolment sessions come first, so that the first three of a cell are these.
    enrolling = np.isin(sessions, ENROL_SESSIONS)
    order = np.where(enrolling, sessions, sessions + sessions.max())
    models, tests = enrolments(labels, order, rows, per_model=len(ENROL_SESSIONS))
    odd = [name for name, members in models.items() if not enrolling[members].all()]
    if odd:
        log.warning(
            "rsr2015: %d enrolment(s) lack a session of 1, 4 and 7: %s", len(odd), named(odd)
        )
    return Protocol(train, models, tests, genders)


def _sets(
    speakers: StringArray, genders: StringArray, subset: str, training: Sequence[str] | None
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Utterances to train on, and those of the speakers who are evaluated."""
    if training is not None:
        missing = sorted(set(map(str, training)) - set(speakers.tolist()))
        if missing:
            raise LabelError(
                f"rsr2015: no utterance is of the speaker(s) to train on: {named(missing)}"
            )
        train = np.isin(speakers, [str(name) for name in training])
        return train, ~train
    odd = sorted(set(genders.tolist()) - set(EVALUATION))
    if odd:
        raise LabelError(f"rsr2015: the folders of speakers are male and female; got {named(odd)}")
    number = _numbers(np.array([name[1:] for name in speakers.tolist()]), "speaker")
    late = number >= np.array([EVALUATION[name] for name in genders.tolist()])
    if subset == "evaluation":
        return ~late, late
    train = number < np.array([DEVELOPMENT[name] for name in genders.tolist()])
    return train, ~train & ~late


def _numbers(texts: StringArray, what: str) -> IntArray:
    odd = [text for text in np.unique(texts).tolist() if not (text.isascii() and text.isdecimal())]
    if odd:
        raise LabelError(
            f"rsr2015: a {what} is called by a number, such as m051_01_003; got {named(odd)}"
        )
    return texts.astype(np.int64)


def _read_lists(
    folder: Path, gender: str | None, subset: str, phrases: int
) -> tuple[dict[str, tuple[str, ...]], Trials]:
    """Enrolments and trials of the first phrases, as the lists of one gender or of both have them."""
    genders = list(EVALUATION) if gender is None else [gender]
    files = [
        folder / kind / f"3sess-pwd_{subset}_{name[0]}.{kind}"
        for kind in ("trn", "ndx")
        for name in genders
    ]
    missing = [str(file) for file in files if not file.is_file()]
    if missing:
        raise DataError(
            f"rsr2015: {len(missing)} of {len(files)} lists are not there: {named(missing)}. Put them there, name "
            "their folder (-s corpus.keys=FOLDER), evaluate one gender (-s corpus.gender=male), or do without lists "
            "(-s corpus.keys=false)"
        )
    models: dict[str, tuple[str, ...]] = {}
    for file in files[: len(genders)]:
        models.update(read_rsr2015_enrolment(file))
    parts = [read_trials(file, "rsr2015") for file in files[len(genders) :]]
    trials = Trials(
        _joined([part.enrol for part in parts]),
        _joined([part.test for part in parts]),
        _joined([part.kinds for part in parts]),
    )
    _compare_marks(trials)
    if phrases < PHRASES:
        # models and utterances end in the phrase's number
        models = {name: rows for name, rows in models.items() if _phrase(name) <= phrases}
        tests = [name for name in trials.test.used if _phrase(name) <= phrases]
        trials = trials[trials.enrol.isin(models) & trials.test.isin(tests)]
    return models, trials


def _joined(columns: list[Coded]) -> Coded:
    """Columns one after the other; no id is written out, for there are tens of millions of them."""
    table = Coded.of(np.concatenate([column.names for column in columns]))
    codes = []
    start = 0
    for column in columns:
        codes.append(table.codes[start : start + len(column.names)][column.codes])
        start += len(column.names)
    return Coded(table.names, np.concatenate(codes))


def _compare_marks(trials: Trials) -> None:
    """Count trials whose mark is not what the ids of model and test say, and log it."""

    def coded(column: Coded, part: Callable[[str], object]) -> Coded:
        return column.renamed([str(part(name)) for name in column.names.tolist()])

    same = {}
    for what, part in (("speaker", _speaker), ("phrase", _phrase)):
        both = _joined([coded(trials.enrol, part), coded(trials.test, part)])
        same[what] = both.codes[: len(trials)] == both.codes[len(trials) :]
    meant = np.where(same["speaker"], 0, 2) + np.where(same["phrase"], 0, 1)
    kinds = ["TC", "TW", "IC", "IW"]
    place = np.array([kinds.index(name) if name in kinds else -1 for name in trials.kinds.names])
    wrong = int((place[trials.kinds.codes] != meant).sum())
    if wrong:
        log.warning(
            "rsr2015: %d of %d marks in the key differ from what the ids say; the ids are used",
            wrong,
            len(trials),
        )


def _speaker(name: str) -> str:
    return name.rpartition("/")[2].partition("_")[0]


def _phrase(name: str) -> int:
    return int(name.rpartition("_")[2])
