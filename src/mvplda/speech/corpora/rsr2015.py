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
from ...io.lists import read_rsr2015_enrolment, rsr2015_utterance
from ...io.trials import Trials, read_trials
from .corpus import Corpus, Protocol, StringArray, enrolments, named, register_corpus
from .folder import folder_with, match_files
from .protocol import listed_protocol

SOURCE = "RSR2015 part I, Larcher, Lee, Ma and Li, 2014"
HOW = "RSR2015 is licensed by I2R, Singapore: give its folder, which holds sph/<male|female>/<speaker>/*.sph"
PATTERN = "{gender}/{speaker}/{speaker}_{session}_{phrase}"
PHRASES = 30
"""Part I has the phrases 001 to 030; parts II and III have later numbers."""
ENROL_SESSIONS = (1, 4, 7)
"""Those of the handset that a speaker enrols with; the six others are tested."""
EVALUATION = {"male": 101, "female": 95}
"""The first speaker of the evaluation set: m101 to m157, and f095 to f143. Before them are background
(m001 to m050, f001 to f047) and development (m051 to m100, f048 to f094), both trained on, as in the paper."""
KEYS = "key/part1"

log = logging.getLogger(__name__)


@register_corpus("rsr2015", root="the licensed corpus, with sph/ and key/")
def rsr2015(
    root: str | os.PathLike[str],
    *,
    gender: str | None = None,
    keys: bool | str | os.PathLike[str] | None = None,
    training: Sequence[str] | None = None,
    phrases: int = PHRASES,
) -> Corpus:
    """RSR2015 part I: train on background and development, enrol and test the evaluation set by gender.

    Parameters
    ----------
    root : the corpus' folder, which holds ``sph/<gender>/<speaker>/<speaker>_<session>_<phrase>.sph``
        (files that were converted to another format will do)
    gender : "male" or "female" evaluates one; None both, each against itself. Both are trained on.
    keys : the folder that holds ``trn/*eval*.trn`` and ``ndx/*eval*.ndx``, or True for the root's
        ``key/part1``: enrolments and trials as listed. None uses those that are there; False
        enrols sessions 1, 4 and 7 of every speaker and phrase, and tests with the others, all
        against all of the same gender.
    training : speakers to train on; None takes background and development
    phrases : use the first so many
    """
    if gender not in (None, "male", "female"):
        raise ParameterError(f"gender is 'male', 'female' or None for both; got {gender!r}")
    found = match_files(folder_with(root, ("sph", "."), "RSR2015", HOW), PATTERN, on_error="skip", what="rsr2015")
    number = _numbers(found.fields["phrase"], "phrase")
    found = found.take(np.flatnonzero((number >= 1) & (number <= phrases)))
    if not len(found):
        raise DataError(f"rsr2015: no file is of the phrases 001 to {phrases:03d} of part I")
    ids = np.array([rsr2015_utterance(path.rpartition(".")[0]) for path in found.paths.tolist()])
    labels = {view: found.fields[view] for view in ("speaker", "phrase")}
    genders, session = found.fields["gender"], found.fields["session"]
    train = _trained(labels["speaker"], genders, training)
    rows = np.flatnonzero(~train if gender is None else ~train & (genders == gender))
    if not (train.any() and len(rows)):
        raise DataError(
            f"rsr2015: {int(train.sum())} utterances to train on and {len(rows)} of speakers to evaluate with; "
            "expected some of both: name the speakers to train on where the folder holds a part of the corpus"
        )
    lists = _key_files(Path(root), keys, gender)
    if lists is None:
        protocol = _by_session(ids, labels, _numbers(session, "session"), np.flatnonzero(train), rows, genders)
    else:
        models: dict[str, tuple[str, ...]] = {}
        for file in lists[0]:
            models.update(read_rsr2015_enrolment(file).models)
        parts = [read_trials(file, "rsr2015") for file in lists[1]]
        enrol, test = (np.concatenate([getattr(part, side) for part in parts]) for side in ("enrol", "test"))
        trials = Trials(enrol, test, np.concatenate([part.kind for part in parts if part.kind is not None]))
        if phrases < PHRASES:
            models, trials = _of_phrases(models, trials, phrases)
        protocol = listed_protocol(ids, models, trials, train=np.flatnonzero(train), groups=genders)
    return Corpus("rsr2015", ids, labels, found.clips, protocol, SOURCE, session)


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
        log.warning("rsr2015: %d enrolment(s) lack a session of 1, 4 and 7: %s", len(odd), named(odd))
    return Protocol(train, counts.enrol, counts.test, genders)


def _of_phrases(
    models: dict[str, tuple[str, ...]], trials: Trials, phrases: int
) -> tuple[dict[str, tuple[str, ...]], Trials]:
    """The enrolments and trials of the first phrases; models and utterances end in the phrase's number."""
    models = {name: members for name, members in models.items() if int(name.rpartition("_")[2]) <= phrases}
    used = {name for name in set(trials.test.tolist()) if int(name.rpartition("_")[2]) <= phrases}
    sides = zip(trials.enrol.tolist(), trials.test.tolist(), strict=True)
    return models, trials[[k for k, (model, test) in enumerate(sides) if model in models and test in used]]


def _trained(speakers: StringArray, genders: StringArray, training: Sequence[str] | None) -> NDArray[np.bool_]:
    if training is not None:
        missing = sorted(set(map(str, training)) - set(speakers.tolist()))
        if missing:
            raise LabelError(f"rsr2015: no utterance is of the speaker(s) to train on: {named(missing)}")
        return np.isin(speakers, [str(name) for name in training])
    number = _numbers(np.array([name[1:] for name in speakers.tolist()]), "speaker")
    odd = sorted(set(genders.tolist()) - set(EVALUATION))
    if odd:
        raise LabelError(f"rsr2015: the folders under sph are male and female; got {named(odd)}")
    return number < np.array([EVALUATION[name] for name in genders.tolist()])


def _numbers(texts: StringArray, what: str) -> IntArray:
    odd = [text for text in np.unique(texts).tolist() if not (text.isascii() and text.isdecimal())]
    if odd:
        raise LabelError(f"rsr2015: a {what} is called by a number, such as m051_01_003; got {named(odd)}")
    return texts.astype(np.int64)


def _key_files(
    root: Path, keys: bool | str | os.PathLike[str] | None, gender: str | None
) -> tuple[list[Path], list[Path]] | None:
    """The lists of enrolments and of trials, or None where there are none and none are asked for."""
    if keys is False:
        return None
    folder = root / KEYS if keys is None or keys is True else Path(keys)
    letters = "mf" if gender is None else gender[0]
    lists = tuple(
        [file for letter in letters for file in sorted(folder.glob(f"{kind}/3sess*pwd*eval_{letter}.{kind}"))]
        for kind in ("trn", "ndx")
    )
    if all(lists):
        return lists[0], lists[1]
    if keys is None:
        return None
    raise DataError(
        f"rsr2015: looked for {folder / 'trn' / '3sess-pwd_eval_m.trn'} and {folder / 'ndx' / '3sess-pwd_eval_m.ndx'} "
        f"(and _f); found {len(lists[0])} and {len(lists[1])} lists"
    )
