"""Protocols: who is trained on, who is enrolled with what, and what is tested."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..._typing import IntArray
from ...exceptions import DataError, LabelError, ParameterError
from ...io.files import BLANKS
from ...io.trials import Trials
from ..frames import Clip
from .corpus import Corpus, Protocol, StringArray, named

log = logging.getLogger(__name__)

Training = float | int | Sequence[str] | None
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
    source: str = "",
    training: Training = None,
    random_state: int = 0,
    per_model: int = 3,
) -> Corpus:
    """A corpus with a protocol that is made of its labels.

    Ids of sound are made such that lists can hold them (see `safe_ids`), ids of vectors are what they are.

    Parameters
    ----------
    session : (n,) what orders the utterances of a cell; None: they are in order
    split : (n,) train, enrol and test; or train and evaluation, whose cells are then enrolled
        with their first sessions. Blank utterances are not used.
    training : without a split, the classes of the first view to train on: their names, or
        how many (a whole number, or a share below 1; None is two thirds), drawn with `random_state`
    per_model : utterances of an enrolment (see `enrolments`)
    """
    if clips is not None:
        ids = np.array(safe_ids(ids.tolist()))
    try:
        if split is not None:
            if training is not None:
                raise DataError("the split says who is trained on: leave training out")
            protocol = _split_protocol(labels, session, split, per_model)
        else:
            train = training_rows(labels, training, random_state)
            rows = np.flatnonzero(~train)
            enrol, test = enrolments(labels, session, rows, tuple(labels), per_model)
            protocol = Protocol(np.flatnonzero(train), enrol, test)
    except (DataError, LabelError) as error:
        raise type(error)(f"{name}: {error}") from error
    return Corpus(name, ids, labels, clips, protocol, source, session)


def training_rows(
    labels: Mapping[str, StringArray], training: Training, random_state: int = 0
) -> NDArray[np.bool_]:
    """(n,) which utterances are of classes of the first view to train on; neither all nor none are."""
    view, classes = next(iter(labels.items()))
    every = np.unique(classes)
    training = SHARE if training is None else training
    if isinstance(training, str):
        raise ParameterError(
            f"training is a number of speakers, a share, or a list of their names; got {training!r}"
        )
    if isinstance(training, (int, float)):
        number = training
        if isinstance(training, float) and 0 < training < 1:
            number = min(max(round(training * len(every)), 1), len(every) - 1)
        if int(number) != number or number < 0:
            raise ParameterError(
                f"training is a number of speakers or a share between 0 and 1; got {training!r}"
            )
        names = every[np.random.default_rng(random_state).permutation(len(every))[: int(number)]]
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
        raise DataError(f"all {len(every)} {view}(s) are on one side, which leaves none for {side}")
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
    if sessions is not None:
        rows = rows[np.argsort(session_order(sessions)[rows], kind="stable")]
    enrol = {}
    tested = []
    left_out = []
    for name, members in cells_of(labels, rows, views).items():
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
    on_error: Literal["raise", "skip"] = "raise",
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
    row_of = {name: row for row, name in enumerate(ids.tolist())}
    enrol = {}
    wanted: set[str] = set() if trials is None else set(trials.test.used)
    for model, members in models.items():
        wanted.update(members)
        rows = [row_of[name] for name in members if name in row_of]
        if rows:
            enrol[model] = np.array(rows, dtype=np.int64)
    missing = sorted(wanted - set(row_of))
    unknown = [] if trials is None else sorted(set(trials.enrol.used) - set(models))
    if unknown or (missing and on_error == "raise"):
        absent = unknown or missing
        raise DataError(
            f"the lists name {len(absent)} enrolment(s) or utterance(s) that are not there: {named(absent)}. "
            "Leave utterances out with on_error=skip"
        )
    if missing:
        log.warning("left out: %d listed utterance(s): %s", len(missing), named(missing))
        if trials is not None:
            trials = trials[trials.enrol.isin(enrol) & ~trials.test.isin(missing)]
    free = np.ones(len(ids), dtype=bool)
    for rows_of_model in enrol.values():
        free[rows_of_model] = False
    if trials is not None:
        test = np.array(sorted(row_of[name] for name in trials.test.used), dtype=np.int64)
        free[test] = False
        train = np.flatnonzero(free) if train is None else train
    elif train is None:
        raise DataError("enrolments without trials need to know what to train on")
    else:
        free[train] = False
        test = np.flatnonzero(free)
    if not (len(train) and len(enrol) and len(test)):
        raise DataError(
            f"{len(train)} utterances to train on, {len(enrol)} enrolments and {len(test)} tests; expected some of each"
        )
    return Protocol(train, enrol, test, groups, trials)


def _split_protocol(
    labels: Mapping[str, StringArray], sessions: StringArray | None, split: Any, per_model: int
) -> Protocol:
    words = [str(name).strip().lower() for name in split]
    parts = np.array([SPLITS.get(word, word) for word in words])
    odd = sorted(set(parts.tolist()) - set(PARTS))
    if odd:
        raise LabelError(
            f"the split of an utterance is train, enrol, test or evaluation; got {named(odd)}"
        )
    train, enrol, test, evaluation = (np.flatnonzero(parts == part) for part in PARTS[:-1])
    if len(evaluation) == 0 and len(train) and len(enrol) and len(test):
        return Protocol(train, cells_of(labels, enrol, tuple(labels)), test)
    if len(enrol) or len(test) or not len(train) or not len(evaluation):
        raise DataError(
            "the splits are train, enrol and test, some of each; or train and evaluation; "
            f"there are {', '.join(np.unique(parts).tolist())}"
        )
    return Protocol(train, *enrolments(labels, sessions, evaluation, tuple(labels), per_model))


def cells_of(
    labels: Mapping[str, Any], rows: IntArray, views: Sequence[str]
) -> dict[str, IntArray]:
    """The rows of every cell of some views, in the order given, by the names of its classes joined."""
    columns = [np.asarray(labels[view]).astype(np.str_)[rows] for view in views]
    codes = np.stack([np.unique(column, return_inverse=True)[1] for column in columns])
    _, first, cell = np.unique(codes, axis=1, return_index=True, return_inverse=True)
    order = np.argsort(cell.reshape(-1), kind="stable")
    members = np.split(rows[order], np.cumsum(np.bincount(cell.reshape(-1)))[:-1])
    # a sign that stands in no class keeps joined names distinct
    joiner = "::" if any("_" in name for column in columns for name in np.unique(column)) else "_"
    names = [joiner.join(column[row] for column in columns) for row in first]
    return dict(zip(safe_ids(names), members, strict=True))


def session_order(sessions: Any) -> IntArray:
    """(n,) ranks of the sessions, as numbers where all of them are."""
    array = np.asarray(sessions)
    if array.dtype.kind not in "iuf":
        array = array.astype(np.str_)
        if all(text.isascii() and text.isdecimal() for text in array):
            array = array.astype(np.int64)
    return np.unique(array, return_inverse=True)[1].astype(np.int64)


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
    for name in map(str, names):
        ids.append(UNSAFE.sub("_", name))
        other = owner.setdefault(ids[-1], name)
        if other != name:
            raise LabelError(
                f"{other!r} and {name!r} would both be called {ids[-1]!r}, for ids hold no blanks: rename one"
            )
    return ids
