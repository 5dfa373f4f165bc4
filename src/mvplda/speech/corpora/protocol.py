"""Protocols from what is known: speakers to train on, a number or share of them, or a column of splits."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..._typing import IntArray
from ...exceptions import DataError, LabelError, ParameterError
from ...io.files import repeated
from ...io.trials import Trials
from ..features.reading import Clip
from .corpus import (
    Corpus,
    Protocol,
    StringArray,
    cells_of,
    enrolments,
    named,
    safe_ids,
    session_order,
    split_classes,
)

log = logging.getLogger(__name__)

SHARE = 2 / 3
"""The share of the speakers to train on where nothing else is said."""
SPLITS = {
    "train": "train",
    "training": "train",
    "enrol": "enrol",
    "enroll": "enrol",
    "enrolment": "enrol",
    "enrollment": "enrol",
    "test": "test",
    "eval": "evaluation",
    "evaluation": "evaluation",
}


def build_corpus(
    name: str,
    ids: StringArray,
    labels: Mapping[str, StringArray],
    clips: tuple[Clip, ...] | None,
    session: StringArray | None = None,
    *,
    split: Any = None,
    sessions: int | None = None,
    source: str = "",
    **protocol: Any,
) -> Corpus:
    """A corpus with the protocol that `make_protocol` makes, of at most `sessions` sessions a cell, the first ones.

    Ids of sound are made such that lists can hold them (see `safe_ids`), ids of vectors are what they are.
    """
    if clips is not None:
        ids = np.array(safe_ids(ids.tolist()))
    if sessions is not None:
        if sessions < 1:
            raise ParameterError(f"the number of sessions to use is at least 1; got {sessions}")
        rows = np.argsort(session_order(session, len(ids)), kind="stable")
        kept = np.sort(
            np.concatenate(
                [cell[:sessions] for cell in cells_of(labels, rows, tuple(labels)).values()]
            )
        )
        ids, labels = ids[kept], {view: classes[kept] for view, classes in labels.items()}
        clips = None if clips is None else tuple(clips[row] for row in kept)
        session = None if session is None else session[kept]
        split = None if split is None else np.asarray(split)[kept]
    count, first = repeated(ids.tolist())
    if count:
        raise DataError(
            f"{name}: {count} utterance(s) have the id of another, the first is {first!r}"
        )
    try:
        made = make_protocol(ids, labels, session, split=split, **protocol)
    except (DataError, LabelError) as error:
        raise type(error)(f"{name}: {error}") from error
    return Corpus(name, ids, labels, clips, made, source, session)


def make_protocol(
    ids: StringArray,
    labels: Mapping[str, StringArray],
    sessions: StringArray | None = None,
    *,
    split: Any = None,
    training: float | int | Sequence[str] | None = None,
    random_state: int = 0,
    per_model: int = 3,
) -> Protocol:
    """The protocol of labelled utterances.

    Parameters
    ----------
    split : (n,) train, enrol and test; or train and evaluation, whose cells are then enrolled
        with their first sessions. Blank utterances are not used.
    training : without a split, the classes of the first view to train on: their names, or
        how many (a whole number, or a share below 1; None is two thirds), drawn with `random_state`
    per_model : utterances an enrolment (see `enrolments`)
    """
    if split is not None:
        if training is not None:
            raise DataError("the utterances say themselves who is trained on: leave training out")
        return _split_protocol(ids, labels, sessions, np.asarray(split).astype(np.str_), per_model)
    if training is None:
        training = SHARE
    view, classes = next(iter(labels.items()))
    if isinstance(training, str):
        raise ParameterError(
            f"training is a number of speakers, a share, or a list of their names; got {training!r}"
        )
    if isinstance(training, (int, float, np.integer)):
        names = split_classes(classes, training, random_state)[0]
    else:
        names = np.array([str(name) for name in training], dtype=np.str_)
    missing = np.setdiff1d(names, classes)
    chosen = np.isin(classes, names)
    if len(missing):
        raise LabelError(
            f"no utterance is of {len(missing)} {view}(s) to train on: {named(missing.tolist())}"
        )
    if chosen.all() or not chosen.any():
        side = "evaluation" if chosen.all() else "training"
        raise DataError(
            f"all {len(np.unique(classes))} {view}(s) are on one side, which leaves none for {side}"
        )
    found = enrolments(ids, labels, sessions, np.flatnonzero(~chosen), tuple(labels), per_model)
    return Protocol(np.flatnonzero(chosen), found.enrol, found.test)


def listed_protocol(
    ids: StringArray,
    models: Mapping[str, Sequence[str]],
    trials: Trials | None = None,
    *,
    train: IntArray | None = None,
    groups: StringArray | None = None,
    on_error: str = "raise",
) -> Protocol:
    """The protocol of enrolments that are listed, and of trials where they are too.

    Parameters
    ----------
    models : {model: ids of its utterances}
    trials : enrolment and test of every trial; None tests with all that is neither enrolled nor trained on
    train : rows to train on; None takes all that is neither enrolled nor tested (then trials are needed)
    groups : see `Protocol`
    on_error : "raise" refuses lists that name utterances which are not there; "skip" leaves those out, the
        enrolments that have no utterance left, and their trials, and says how many
    """
    if on_error not in ("raise", "skip"):
        raise ParameterError(f"on_error is 'raise' or 'skip'; got {on_error!r}")
    place = {name: row for row, name in enumerate(ids.tolist())}
    wanted = {str(name) for members in models.values() for name in members}
    wanted |= set() if trials is None else set(trials.test.used)
    missing = sorted(wanted - set(place))
    if missing and on_error == "raise":
        raise DataError(
            f"the lists name {len(missing)} utterance(s) that are not there: {named(missing)}. "
            "Leave them out with on_error='skip'"
        )
    if missing:
        models, trials = _without(set(missing), models, trials)
    enrol = {
        str(model): np.array([place[str(name)] for name in members])
        for model, members in models.items()
    }
    rest = np.ones(len(ids), dtype=bool)
    rest[np.concatenate([np.zeros(0, np.int64), *enrol.values()])] = False
    if trials is not None:
        test = np.array(sorted(place[name] for name in trials.test.used), dtype=np.int64)
        rest[test] = False
        train = np.flatnonzero(rest) if train is None else train
    elif train is None:
        raise DataError("enrolments without trials need to know what to train on")
    else:
        rest[train] = False
        test = np.flatnonzero(rest)
    if not (len(train) and len(enrol) and len(test)):
        raise DataError(
            f"{len(train)} utterances to train on, {len(enrol)} enrolments and {len(test)} tests; expected some of each"
        )
    return Protocol(train, enrol, test, groups, trials)


def _without(
    missing: set[str], models: Mapping[str, Sequence[str]], trials: Trials | None
) -> tuple[dict[str, list[str]], Trials | None]:
    """The lists without utterances that are not there."""
    left = {
        model: [str(name) for name in members if str(name) not in missing]
        for model, members in models.items()
    }
    kept = {model: members for model, members in left.items() if members}
    lost = 0
    if trials is not None:
        whole = trials.enrol.isin(kept) & ~trials.test.isin(missing)
        lost = int((~whole).sum())
        trials = trials[whole]
    log.warning(
        "left out: %d listed utterance(s) that are not there (%s), %d enrolment(s) and %d trial(s)",
        len(missing),
        named(sorted(missing)),
        len(left) - len(kept),
        lost,
    )
    return kept, trials


def _split_protocol(
    ids: StringArray,
    labels: Mapping[str, StringArray],
    sessions: StringArray | None,
    split: StringArray,
    per_model: int,
) -> Protocol:
    known = {
        name: SPLITS.get(name.strip().lower(), name and "?") for name in np.unique(split).tolist()
    }
    odd = [name for name, part in known.items() if part == "?"]
    if odd:
        raise LabelError(
            f"the split of an utterance is train, enrol, test or evaluation; got {named(odd)}"
        )
    parts = np.array([known[name] for name in split.tolist()])
    rows = {
        part: np.flatnonzero(parts == part) for part in ("train", "enrol", "test", "evaluation")
    }
    if len(rows["evaluation"]):
        if len(rows["enrol"]) or len(rows["test"]):
            raise LabelError(
                "the splits hold evaluation beside enrol or test: evaluation is enrolled and tested with"
            )
        found = enrolments(ids, labels, sessions, rows["evaluation"], tuple(labels), per_model)
        return Protocol(rows["train"], found.enrol, found.test)
    empty = [part for part in ("train", "enrol", "test") if not len(rows[part])]
    if empty:
        raise DataError(
            f"no utterance has the split {' or '.join(empty)}; a protocol needs train, enrol and test"
        )
    return Protocol(rows["train"], cells_of(labels, rows["enrol"], tuple(labels)), rows["test"])
