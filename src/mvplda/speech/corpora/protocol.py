"""Protocols: who is trained on, who is enrolled with what, and what is tested."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from ..._typing import IntArray
from ...exceptions import DataError, LabelError, ParameterError
from ...io.files import BLANKS, check_ids
from ...io.trials import Trials
from ..frames import Clip
from .corpus import Corpus, Protocol, StringArray, named

log = logging.getLogger(__name__)

UNSAFE = re.compile(f"[{BLANKS}\0\ud800-\udfff]")
"""What no id can hold: blanks end it in a list, and bytes of a file's name that are no UTF-8 cannot be written."""
SHARE = 2 / 3
"""The share of the speakers to train on where nothing else is given."""
SPLITS = {"training": "train", "enroll": "enrol", "enrolment": "enrol", "enrollment": "enrol"}
SPLITS |= {"eval": "evaluation"}
PARTS = ("train", "enrol", "test", "evaluation", "")


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
    """A corpus with the protocol that `make_protocol` makes, of at most `sessions` sessions per cell, the first ones.

    Ids of sound are made such that lists can hold them (see `safe_ids`), ids of vectors are what they are.
    """
    if clips is not None:
        ids = np.array(safe_ids(ids.tolist()))
    if sessions is not None:
        if sessions < 1:
            raise ParameterError(f"the number of sessions to use is at least 1; got {sessions}")
        order = np.argsort(session_order(session, len(ids)), kind="stable")
        cells = cells_of(labels, order, tuple(labels)).values()
        kept = np.sort(np.concatenate([cell[:sessions] for cell in cells]))
        ids = ids[kept]
        labels = {view: classes[kept] for view, classes in labels.items()}
        clips = None if clips is None else tuple(clips[row] for row in kept)
        session = None if session is None else session[kept]
        split = None if split is None else np.asarray(split)[kept]
    try:
        made = make_protocol(labels, session, split=split, **protocol)
    except (DataError, LabelError) as error:
        raise type(error)(f"{name}: {error}") from error
    return Corpus(name, ids, labels, clips, made, source, session)


def make_protocol(
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
    per_model : utterances of an enrolment (see `enrolments`)
    """
    if split is not None:
        if training is not None:
            raise DataError("the split says who is trained on: leave training out")
        return _split_protocol(labels, sessions, np.asarray(split).astype(np.str_), per_model)
    train = training_rows(labels, SHARE if training is None else training, random_state)
    enrol, test = enrolments(labels, sessions, np.flatnonzero(~train), tuple(labels), per_model)
    return Protocol(np.flatnonzero(train), enrol, test)


def training_rows(
    labels: Mapping[str, StringArray], training: float | int | Sequence[str], random_state: int = 0
) -> Any:
    """(n,) which utterances are of classes of the first view to train on; neither all nor none are."""
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
    if len(missing):
        raise LabelError(
            f"no utterance is of {len(missing)} {view}(s) to train on: {named(missing.tolist())}"
        )
    chosen = np.isin(classes, names)
    if chosen.all() or not chosen.any():
        side = "evaluation" if chosen.all() else "training"
        raise DataError(
            f"all {len(np.unique(classes))} {view}(s) are on one side, which leaves none for {side}"
        )
    return chosen


def enrolments(
    labels: Mapping[str, Any],
    sessions: Any,
    rows: Any,
    views: Sequence[str] = ("speaker", "phrase"),
    per_model: int = 3,
    tests: Any = None,
) -> tuple[dict[str, IntArray], IntArray]:
    """Enrol every cell of classes with its first sessions, and test with the others: {model: rows}, and tests.

    Parameters
    ----------
    labels : view -> (n,) classes
    sessions : (n,) numbers or names that order the utterances of a cell; None takes
        the order of the utterances. Numbers written as text are ordered as numbers.
    rows : the utterances to use, such as those of the evaluation speakers
    views : what a model is of; ``("speaker",)`` enrols speakers over mixed phrases
    per_model : utterances of an enrolment. A cell needs one more, to be tested with;
        cells with fewer are left out whole and named in the log.
    tests : (n,) where given, which utterances are tests: those of another recording campaign. The others enrol.

    Examples
    --------
    >>> labels = {"speaker": ["ann"] * 4 + ["bob"] * 2, "phrase": ["hi"] * 6}
    >>> enrolments(labels, [3, 2, 1, 0, 0, 1], range(6), per_model=3)
    ({'ann_hi': array([3, 2, 1])}, array([0]))
    """
    if per_model < 1:
        raise ParameterError(
            f"per_model is the number of utterances of an enrolment, at least 1; got {per_model}"
        )
    rows = np.asarray(rows, dtype=np.int64)
    order = session_order(sessions, len(next(iter(labels.values()))))
    cells = cells_of(labels, rows[np.argsort(order[rows], kind="stable")], views)
    enrol = {}
    tested = [np.zeros(0, np.int64)]
    left_out = []
    for name, members in cells.items():
        own = members[:per_model]
        others = members[per_model:]
        if tests is not None:
            own = members[~tests[members]][:per_model]
            others = members[tests[members]]
        if len(own) < per_model or not len(others):
            left_out.append(name)
        else:
            enrol[name] = own
            tested.append(others)
    if not enrol:
        raise DataError(
            f"none of the {len(left_out)} cells of {' and '.join(views)} has the {per_model} utterances to enrol "
            f"with and one to test with: {named(left_out)}. Lower per_model, or give more sessions"
        )
    if left_out:
        log.warning("%d cell(s) have too few utterances: %s", len(left_out), named(left_out))
    return enrol, np.sort(np.concatenate(tested))


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
        enrolments that have no utterance left, and their trials, and logs how many
    """
    if on_error not in ("raise", "skip"):
        raise ParameterError(f"on_error is 'raise' or 'skip'; got {on_error!r}")
    place = {name: row for row, name in enumerate(ids.tolist())}
    wanted = {str(name) for members in models.values() for name in members}
    if trials is not None:
        wanted |= set(trials.test.used)
    missing = sorted(wanted - set(place))
    if missing and on_error == "raise":
        raise DataError(
            f"the lists name {len(missing)} utterance(s) that are not there: {named(missing)}. "
            "Leave them out with on_error=skip"
        )
    enrol = {}
    for model, members in models.items():
        rows = [place[str(name)] for name in members if str(name) in place]
        if rows:
            enrol[str(model)] = np.array(rows, dtype=np.int64)
    if missing and trials is not None:
        trials = trials[trials.enrol.isin(enrol) & ~trials.test.isin(missing)]
    if missing:
        log.warning(
            "left out: %d listed utterance(s) that are not there: %s", len(missing), named(missing)
        )
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


def _split_protocol(
    labels: Mapping[str, StringArray],
    sessions: StringArray | None,
    split: StringArray,
    per_model: int,
) -> Protocol:
    words = [name.strip().lower() for name in split.tolist()]
    parts = np.array([SPLITS.get(word, word) for word in words])
    odd = sorted(set(parts.tolist()) - set(PARTS))
    if odd:
        raise LabelError(
            f"the split of an utterance is train, enrol, test or evaluation; got {named(odd)}"
        )
    rows = {part: np.flatnonzero(parts == part) for part in PARTS}
    if len(rows["evaluation"]):
        if len(rows["enrol"]) or len(rows["test"]):
            raise LabelError("the splits hold evaluation beside enrol or test: give one of the two")
        enrol, test = enrolments(labels, sessions, rows["evaluation"], tuple(labels), per_model)
        return Protocol(rows["train"], enrol, test)
    empty = [part for part in ("train", "enrol", "test") if not len(rows[part])]
    if empty:
        raise DataError(
            f"no utterance has the split {' or '.join(empty)}; a protocol needs train, enrol and test"
        )
    return Protocol(rows["train"], cells_of(labels, rows["enrol"], tuple(labels)), rows["test"])


def cells_of(
    labels: Mapping[str, Any], rows: IntArray, views: Sequence[str]
) -> dict[str, IntArray]:
    """The rows of every cell of some views, in the order given, by the names of its classes joined."""
    columns = []
    for view in views:
        if view not in labels:
            raise LabelError(
                f"there is no view {view!r} to enrol by; there are {', '.join(labels)}"
            )
        columns.append(np.asarray(labels[view]).astype(np.str_)[rows])
    if not columns or len(rows) == 0:
        raise DataError(f"enrolments need views and utterances; got {len(columns)} and {len(rows)}")
    codes = np.stack([np.unique(column, return_inverse=True)[1] for column in columns])
    cells, cell = np.unique(codes, axis=1, return_inverse=True)
    order = np.argsort(cell.reshape(-1), kind="stable")
    bounds = np.searchsorted(cell.reshape(-1)[order], np.arange(cells.shape[1] + 1))
    joiner = _joiner(columns)
    names = [joiner.join(str(column[order[start]]) for column in columns) for start in bounds[:-1]]
    members = [rows[order[start:stop]] for start, stop in pairwise(bounds)]
    return dict(zip(safe_ids(names), members, strict=True))


def session_order(sessions: Any, number: int) -> IntArray:
    """(number,) ranks of the sessions, as numbers where all of them are."""
    if sessions is None:
        return np.arange(number, dtype=np.int64)
    array = np.asarray(sessions)
    if len(array) != number:
        raise LabelError(f"{len(array)} sessions for {number} utterances; expected as many")
    if array.dtype.kind not in "iuf":
        array = array.astype(np.str_)
        if all(text.isascii() and text.isdecimal() for text in array):
            array = array.astype(np.int64)
    return np.unique(array, return_inverse=True)[1].astype(np.int64)


def split_classes(
    classes: Any, training: int | float, random_state: int = 0
) -> tuple[StringArray, StringArray]:
    """Classes to train on and classes to evaluate on, none in both, each sorted.

    Parameters
    ----------
    classes : labels of one view; repetitions count once
    training : how many classes to train on: a whole number, or a share below 1
    random_state : of the draw

    Examples
    --------
    >>> [part.tolist() for part in split_classes(["ann", "bob", "cat", "bob"], 2)]
    [['ann', 'cat'], ['bob']]
    """
    names = np.unique(np.asarray(classes).astype(np.str_))
    if isinstance(training, (int, np.integer)) and not isinstance(training, bool):
        number = int(training)
    elif isinstance(training, float) and 0 < training < 1:
        number = min(max(round(training * len(names)), 1), len(names) - 1)
    else:
        raise ParameterError(
            f"training is a number of classes or a share between 0 and 1; got {training!r}"
        )
    if not 0 < number < len(names):
        raise DataError(
            f"{number} of {len(names)} classes to train on leaves none on one side: training and evaluation "
            "need at least one class each"
        )
    drawn = np.random.default_rng(random_state).permutation(len(names))
    return names[np.sort(drawn[:number])], names[np.sort(drawn[number:])]


def held_out_classes(classes: Any, share: float, random_state: int = 0) -> StringArray:
    """A share of the classes, at least 2, to be held out."""
    number = len(np.unique(np.asarray(classes).astype(np.str_)))
    return split_classes(classes, number - max(2, round(share * number)), random_state)[1]


def safe_ids(names: Iterable[Any]) -> list[str]:
    """Names as ids that every list file can hold: blanks, and what is no Unicode text, become underscores.

    Two names that become the same id are an error that names both, for one of them would be lost.

    Examples
    --------
    >>> safe_ids(["zoom in/0001", "left/0001"])
    ['zoom_in/0001', 'left/0001']
    """
    owner: dict[str, str] = {}
    ids = []
    for name in names:
        text = str(name)
        ids.append(UNSAFE.sub("_", text))
        other = owner.setdefault(ids[-1], text)
        if other != text:
            raise LabelError(
                f"{other!r} and {text!r} would both be called {ids[-1]!r}, for ids hold no blanks: rename one"
            )
    return check_ids(ids)


def _joiner(columns: Sequence[StringArray]) -> str:
    """A sign that stands in no class, so that joined names stay distinct."""
    if len(columns) == 1:
        return ""
    used = "".join(str(name) for column in columns for name in np.unique(column))
    return next((sign for sign in "_-/+|:~" if sign not in used), "::")
