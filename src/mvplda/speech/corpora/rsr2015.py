"""RSR2015 part I: thirty pass-phrases of 300 speakers, nine sessions (Larcher et al., 2014; licensed)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ..._typing import IntArray, PathLike
from ...exceptions import DataError, LabelError, ParameterError
from ...io.trials import Trials, read_rsr2015_enrolment, read_trials, rsr2015_utterance
from ...kinds import Coded
from .corpus import Corpus, StringArray, named, register_corpus
from .folder import match_files
from .protocol import listed_protocol

SOURCE = "RSR2015 part I, Larcher, Lee, Ma and Li, 2014"
SOUND_FOLDERS = ("wav", "flac", "sph")
"""The first that is there: SPHERE files may be compressed by Shorten, which sound libraries do not read."""
PATTERN = "{gender}/{speaker}/{speaker}_{session}_{phrase}"
PHRASES = 30
"""Part I has the phrases 001 to 030; parts II and III have later numbers."""
EVALUATION = {"male": 101, "female": 95}
"""The first speakers of the evaluation set, m101 to m157 and f095 to f143. Before them are the background, m001 to m050
and f001 to f047, and the development set."""

log = logging.getLogger(__name__)


@register_corpus("rsr2015", root="the licensed corpus, with sph/ and key/")
def rsr2015(
    root: PathLike,
    *,
    gender: str | None = None,
    keys: PathLike | None = None,
    on_error: Literal["raise", "skip"] = "raise",
) -> Corpus:
    """RSR2015 part I: train on background and development, as the paper does; enrol and test the others by gender.

    Parameters
    ----------
    root : the corpus' folder, which holds ``sph/<gender>/<speaker>/<speaker>_<session>_<phrase>.sph``. Converted files
        under ``wav`` or ``flac`` are preferred
    gender : "male" or "female" evaluates one; None both, each against itself. Both are trained on.
    keys : the folder that holds ``trn/3sess-pwd_eval_m.trn`` and ``ndx/3sess-pwd_eval_m.ndx`` (``f``):
        enrolments and trials as listed. None is the root's ``key/part1``; lists that are not there are an error
    on_error : "raise" stops at listed utterances that are not there; "skip" leaves them out, and says how many
    """
    if gender not in (None, *EVALUATION):
        raise ParameterError(f"gender is 'male', 'female' or None for both; got {gender!r}")
    root = Path(root)
    listing = match_files(_sound(root), PATTERN, "skip")
    number = _numbers(listing.fields["phrase"], "phrase")
    listing = listing.take(np.flatnonzero((number >= 1) & (number <= PHRASES)))
    ids = np.array([rsr2015_utterance(path) for path in listing.ids.tolist()])
    labels = listing.labels(("speaker", "phrase"))
    genders = listing.fields["gender"]
    session = listing.fields["session"]
    evaluated = _evaluated(labels["speaker"], genders)
    train_rows = np.flatnonzero(~evaluated)
    if gender is not None:
        evaluated &= genders == gender
    if not (len(train_rows) and evaluated.any()):
        raise DataError(
            f"rsr2015: {len(train_rows)} utterances to train on and {int(evaluated.sum())} of speakers to evaluate "
            "with; expected some of both"
        )
    folder = root / "key/part1" if keys is None else Path(keys)
    wanted = list(EVALUATION) if gender is None else [gender]
    models, trials = _read_lists(folder, wanted)
    protocol = listed_protocol(ids, models, trials, train_rows, genders, on_error)
    return Corpus("rsr2015", ids, labels, listing.clips, protocol, SOURCE, session)


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


def _evaluated(speakers: StringArray, genders: StringArray) -> NDArray[np.bool_]:
    """(n,) utterances of the speakers who are evaluated."""
    odd = sorted(set(genders.tolist()) - set(EVALUATION))
    if odd:
        raise LabelError(f"rsr2015: the folders of speakers are male and female; got {named(odd)}")
    number = _numbers(np.array([name[1:] for name in speakers.tolist()]), "speaker")
    return np.asarray(number >= np.array([EVALUATION[name] for name in genders.tolist()]))


def _numbers(texts: StringArray, what: str) -> IntArray:
    try:
        return texts.astype(np.int64)
    except ValueError as error:
        raise LabelError(
            f"rsr2015: a {what} is called by a number, such as m051_01_003; {error}"
        ) from error


def _read_lists(folder: Path, genders: list[str]) -> tuple[dict[str, tuple[str, ...]], Trials]:
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
    models: dict[str, tuple[str, ...]] = {}
    for file in files["trn"]:
        models |= read_rsr2015_enrolment(file)
    parts = [read_trials(file, "rsr2015") for file in files["ndx"]]
    trials = Trials(
        _joined([part.enrol for part in parts]),
        _joined([part.test for part in parts]),
        _joined([part.kinds for part in parts]),
    )
    _compare_marks(trials)
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
    # an id is m051_01_003: the speaker comes first and the phrase last
    same_speaker = _same(trials, lambda name: name.rpartition("/")[2].partition("_")[0])
    same_phrase = _same(trials, lambda name: str(int(name.rpartition("_")[2])))
    kinds = {"TC": 3, "TW": 2, "IC": 1, "IW": 0}
    marks = np.array([kinds.get(name, -1) for name in trials.kinds.names])[trials.kinds.codes]
    wrong = int((marks != 2 * same_speaker + same_phrase).sum())
    if wrong:
        log.warning(
            "rsr2015: %d of %d marks in the key differ from what the ids say; the ids are used",
            wrong,
            len(trials),
        )


def _same(trials: Trials, part: Callable[[str], str]) -> NDArray[np.int8]:
    """(n,) 1 where a part of the ids of model and test is the same."""
    columns = [
        column.renamed([part(name) for name in column.names.tolist()])
        for column in (trials.enrol, trials.test)
    ]
    codes = _joined(columns).codes
    same: NDArray[np.int8] = (codes[: len(trials)] == codes[len(trials) :]).astype(np.int8)
    return same
