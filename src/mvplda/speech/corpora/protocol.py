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
from ...extractors.sound import Clip
from ...io.files import BLANKS
from ...io.trials import Trials
from .corpus import Corpus, Protocol, StringArray, named

log = logging.getLogger(__name__)

Training = float | int | Sequence[str] | None
UNSAFE = re.compile(f"[{BLANKS}\0\ud800-\udfff]")
"""What no id can hold: blanks end it in a list, and bytes of a file's name that are no UTF-8 cannot be written."""
SHARE = 2 / 3
"""The share of the speakers to train on where nothing else is given."""


def build_corpus(
    name: str,
    ids: StringArray,
    labels: Mapping[str, StringArray],
    clips: tuple[Clip, ...] | None,
    session: StringArray | None = None,
    *,
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
    training : the classes of the first view to train on: their names, or how many (a whole number, or a share
        below 1; None is two thirds), drawn with `random_state`
    per_model : utterances of an enrolment (see `enrolments`)
    """
    if clips is not None:
        ids = np.array(safe_ids(ids.tolist()))
    try:
        train = training_rows(labels, training, random_state)
        rows = np.flatnonzero(~train)
        enrol, test = enrolments(labels, session, rows, tuple(labels), per_model)
    except (DataError, LabelError) as error:
        raise type(error)(f"{name}: {error}") from error
    protocol = Protocol(np.flatnonzero(train), enrol, test)
    return Corpus(name, ids, labels, clips, protocol, source, session)


def training_rows(
    labels: Mapping[str, StringArray], training: Training, random_state: int = 0
) -> NDArray[np.bool_]:
    """(n,) which utterances are of classes of the first view to train on; neither all nor none are."""
    view, classes = next(iter(labels.items()))
    every = np.unique(classes)
    training = SHARE if training is None else training
    if isinstance(training, (int, float)):
        number = int(training)
        if 0 < training < 1:
            number = min(max(round(training * len(every)), 1), len(every) - 1)
        names = every[np.random.default_rng(random_state).permutation(len(every))[:number]]
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
    trials: Trials,
    train: IntArray,
    groups: StringArray,
    on_error: Literal["raise", "skip"] = "raise",
) -> Protocol:
    """The protocol of enrolments and trials that are listed.

    Parameters
    ----------
    models : {model: ids of its utterances}
    trials : enrolment and test of every trial
    train : rows to train on
    groups : see `Protocol`
    on_error : "raise" refuses lists that name utterances which are not there; "skip" leaves those out, the
        enrolments that have no utterance left, and their trials, and logs how many
    """
    row_of = {name: row for row, name in enumerate(ids.tolist())}
    wanted = {name for members in models.values() for name in members} | set(trials.test.used)
    missing = sorted(wanted - set(row_of))
    absent = sorted(set(trials.enrol.used) - set(models))
    if on_error == "raise":
        absent += missing
    if absent:
        raise DataError(
            f"the lists name {len(absent)} enrolment(s) or utterance(s) that are not there: {named(absent)}. "
            "Leave utterances out with on_error=skip"
        )
    rows = {
        model: np.array([row_of[name] for name in members if name in row_of], dtype=np.int64)
        for model, members in models.items()
    }
    enrol = {model: members for model, members in rows.items() if len(members)}
    if missing:
        log.warning("left out: %d listed utterance(s): %s", len(missing), named(missing))
        trials = trials[trials.enrol.isin(enrol) & ~trials.test.isin(missing)]
    test = np.array(sorted(row_of[name] for name in trials.test.used), dtype=np.int64)
    return Protocol(train, enrol, test, groups, trials)


def cells_of(
    labels: Mapping[str, Any], rows: IntArray, views: Sequence[str]
) -> dict[str, IntArray]:
    """The rows of every cell of some views, in the order given, by the names of its classes joined."""
    columns = [np.asarray(labels[view]).astype(np.str_)[rows].tolist() for view in views]
    cells: dict[tuple[str, ...], list[int]] = {}
    for row, cell in zip(rows, zip(*columns, strict=True), strict=True):
        cells.setdefault(cell, []).append(row)
    # a sign that stands in no class keeps joined names distinct
    joiner = "::" if any("_" in name for cell in cells for name in cell) else "_"
    names = safe_ids(joiner.join(cell) for cell in sorted(cells))
    members = [np.array(cells[cell]) for cell in sorted(cells)]
    return dict(zip(names, members, strict=True))


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
