"""RSR2015 part I: thirty pass-phrases of 300 speakers, nine sessions (Larcher et al., 2014; licensed)."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..._typing import IntArray
from ...exceptions import DataError, LabelError, ParameterError
from ...io.trials import Trials, read_rsr2015_enrolment, read_trials, rsr2015_utterance
from .corpus import Corpus, Protocol, StringArray, enrolments, named, register_corpus
from .folder import Found, match_files
from .protocol import listed_protocol

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
    keys: bool | str | os.PathLike[str] | None = None,
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
    keys : the folder that holds ``trn/*eval*.trn`` and ``ndx/*eval*.ndx`` (or ``*dev*``), or True for the root's
        ``key/part1``: enrolments and trials as listed. None uses those that are there; False
        enrols sessions 1, 4 and 7 of every speaker and phrase, and tests with the others, all
        against all of the same gender.
    training : speakers to train on; None takes those before the set
    phrases : use the first so many
    on_error : "raise" stops at listed utterances that are not there; "skip" leaves them out, and says how many
    """
    if gender not in (None, "male", "female"):
        raise ParameterError(f"gender is 'male', 'female' or None for both; got {gender!r}")
    if subset not in SUBSETS:
        raise ParameterError(f"subset is {' or '.join(map(repr, SUBSETS))}; got {subset!r}")
    base, sound = _folders(Path(root))
    found = _one_format(match_files(sound, PATTERN, on_error="skip", what="rsr2015"))
    number = _numbers(found.fields["phrase"], "phrase")
    found = found.take(np.flatnonzero((number >= 1) & (number <= phrases)))
    if not len(found):
        raise DataError(f"rsr2015: no file is of the phrases 001 to {phrases:03d} of part I")
    ids = np.array([rsr2015_utterance(path.rpartition(".")[0]) for path in found.paths.tolist()])
    labels = {view: found.fields[view] for view in ("speaker", "phrase")}
    genders, session = found.fields["gender"], found.fields["session"]
    train, judged = _sets(labels["speaker"], genders, subset, training)
    rows = np.flatnonzero(judged if gender is None else judged & (genders == gender))
    if not (train.any() and len(rows)):
        raise DataError(
            f"rsr2015: {int(train.sum())} utterances to train on and {len(rows)} of speakers to evaluate with; "
            "expected some of both: name the speakers to train on where the folder holds a part of the corpus"
        )
    lists = _key_files(base, keys, gender, SUBSETS[subset])
    if lists is None:
        protocol = _by_session(
            ids, labels, _numbers(session, "session"), np.flatnonzero(train), rows, genders
        )
    else:
        models: dict[str, tuple[str, ...]] = {}
        for file in lists[0]:
            models.update(read_rsr2015_enrolment(file).models)
        parts = [read_trials(file, "rsr2015") for file in lists[1]]
        columns = ("enrol", "test", "kind")
        enrol, test, kind = (
            np.concatenate([getattr(part, column) for part in parts]) for column in columns
        )
        trials = Trials(enrol, test, kind)
        if phrases < PHRASES:
            models, trials = _of_phrases(models, trials, phrases)
        protocol = listed_protocol(
            ids, models, trials, train=np.flatnonzero(train), groups=genders, on_error=on_error
        )
    return Corpus("rsr2015", ids, labels, found.clips, protocol, SOURCE, session)


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


def _one_format(found: Found) -> Found:
    """One file an utterance."""
    stems = np.array([path.rpartition(".")[0] for path in found.paths.tolist()])
    suffixes = ["." + path.rpartition(".")[2].lower() for path in found.paths.tolist()]
    rank = np.array(
        [FORMATS.index(suffix) if suffix in FORMATS else len(FORMATS) for suffix in suffixes]
    )
    order = np.lexsort([rank, stems])
    first = np.ones(len(order), dtype=bool)
    first[1:] = stems[order][1:] != stems[order][:-1]
    kept = np.sort(order[first])
    if len(kept) < len(stems):
        twice = sorted(set(stems[np.setdiff1d(order, kept)].tolist()))
        log.warning(
            "rsr2015: %d utterance(s) lie there in several formats, and the first of %s is used: %s",
            len(twice),
            ", ".join(FORMATS),
            named(twice),
        )
    return found.take(kept)


def _by_session(
    ids: StringArray,
    labels: dict[str, StringArray],
    sessions: IntArray,
    train: IntArray,
    rows: IntArray,
    genders: StringArray,
) -> Protocol:
    # Enrolment sessions come first, so that the first three of a cell are these.
    enrolling = np.isin(sessions, ENROL_SESSIONS)
    order = np.where(enrolling, sessions, sessions + sessions.max())
    counts = enrolments(ids, labels, order, rows, per_model=len(ENROL_SESSIONS))
    odd = [name for name, members in counts.enrol.items() if not enrolling[members].all()]
    if odd:
        log.warning(
            "rsr2015: %d enrolment(s) lack a session of 1, 4 and 7: %s", len(odd), named(odd)
        )
    return Protocol(train, counts.enrol, counts.test, genders)


def _of_phrases(
    models: dict[str, tuple[str, ...]], trials: Trials, phrases: int
) -> tuple[dict[str, tuple[str, ...]], Trials]:
    """The enrolments and trials of the first phrases; models and utterances end in the phrase's number."""
    models = {
        name: members for name, members in models.items() if int(name.rpartition("_")[2]) <= phrases
    }
    used = [name for name in trials.test.used if int(name.rpartition("_")[2]) <= phrases]
    return models, trials[trials.enrol.isin(models) & trials.test.isin(used)]


def _sets(
    speakers: StringArray, genders: StringArray, subset: str, training: Sequence[str] | None
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Utterances to train on, and those of the speakers who are judged."""
    if training is not None:
        missing = sorted(set(map(str, training)) - set(speakers.tolist()))
        if missing:
            raise LabelError(
                f"rsr2015: no utterance is of the speaker(s) to train on: {named(missing)}"
            )
        train = np.isin(speakers, [str(name) for name in training])
        return train, ~train
    number = _numbers(np.array([name[1:] for name in speakers.tolist()]), "speaker")
    odd = sorted(set(genders.tolist()) - set(EVALUATION))
    if odd:
        raise LabelError(f"rsr2015: the folders of speakers are male and female; got {named(odd)}")
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


def _key_files(
    root: Path, keys: bool | str | os.PathLike[str] | None, gender: str | None, subset: str
) -> tuple[list[Path], list[Path]] | None:
    """The lists of enrolments and of trials, or None where there are none and none are asked for."""
    if keys is False:
        return None
    folder = root / KEYS if keys is None or keys is True else Path(keys)
    genders = tuple(EVALUATION) if gender is None else (gender,)
    lists = {
        (kind, name): sorted(folder.glob(f"{kind}/3sess*pwd*{subset}_{name[0]}.{kind}"))
        for kind in ("trn", "ndx")
        for name in genders
    }
    if keys is None and not any(lists.values()):
        return None
    missing = [
        str(folder / kind / f"3sess-pwd_{subset}_{name[0]}.{kind}")
        for (kind, name), found in lists.items()
        if not found
    ]
    if missing:
        raise DataError(
            f"rsr2015: {len(missing)} of {len(lists)} lists are not there: {named(missing)}. Put them there, judge one "
            "gender with gender=, or leave all lists with keys=False"
        )
    trn, ndx = (
        [file for (k, _), found in lists.items() if k == kind for file in found]
        for kind in ("trn", "ndx")
    )
    return trn, ndx
