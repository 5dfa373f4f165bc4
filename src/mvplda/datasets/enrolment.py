"""Who is enrolled with what: cells of classes, their first sessions, and speakers kept apart."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..exceptions import DataError, LabelError, ParameterError
from ..io.text import BLANKS, check_ids

StringArray = NDArray[Any]
IntArray = NDArray[np.int64]

UNSAFE = re.compile(f"[{BLANKS}\0\ud800-\udfff]")
"""What no id can hold: blanks end it in a list, and bytes of a file's name that are no UTF-8 cannot be written."""
NAMED = 5
"""So many of the things left out are named in a message."""

log = logging.getLogger(__name__)


class Enrolments(NamedTuple):
    """Utterances of every enrolment, the tests, and the cells that had too few utterances."""

    enrol: dict[str, IntArray]
    test: IntArray
    left_out: tuple[str, ...]


def enrolments(
    ids: Any,
    labels: Mapping[str, Any],
    sessions: Any,
    rows: Any,
    views: Sequence[str] = ("speaker", "phrase"),
    per_model: int = 3,
) -> Enrolments:
    """Enrol every cell of classes with its first sessions, and test with the others.

    Parameters
    ----------
    ids : (n,) names of the utterances
    labels : view -> (n,) classes
    sessions : (n,) numbers or names that order the utterances of a cell; None takes
        the order of the utterances. Numbers written as text are ordered as numbers.
    rows : the utterances to use, such as those of the evaluation speakers
    views : what a model is of; ``("speaker",)`` enrols speakers over mixed phrases
    per_model : utterances an enrolment. A cell needs one more, to be tested with;
        cells with fewer are left out whole and named, by the result and in the log.

    Examples
    --------
    >>> labels = {"speaker": ["ann"] * 4 + ["bob"] * 2, "phrase": ["hi"] * 6}
    >>> found = enrolments(list("abcdef"), labels, [3, 2, 1, 0, 0, 1], range(6), per_model=3)
    >>> found.enrol, found.test, found.left_out
    ({'ann_hi': array([3, 2, 1])}, array([0]), ('bob_hi',))
    """
    ids, rows = np.asarray(ids), np.asarray(rows, dtype=np.int64)
    if per_model < 1:
        raise ParameterError(f"per_model is the number of utterances of an enrolment, at least 1; got {per_model}")
    cells = cells_of(labels, rows[np.argsort(session_order(sessions, len(ids))[rows], kind="stable")], views)
    enrol = {name: members[:per_model] for name, members in cells.items() if len(members) > per_model}
    left_out = [name for name in cells if name not in enrol]
    if not enrol:
        raise DataError(
            f"none of the {len(left_out)} cells of {' and '.join(views)} has the {per_model + 1} utterances that "
            f"enrolment with {per_model} and one test need: {named(left_out)}. Lower per_model, or give more sessions"
        )
    if left_out:
        log.warning("%d cell(s) have fewer than %d utterances: %s", len(left_out), per_model + 1, named(left_out))
    test = np.sort(np.concatenate([cells[name][per_model:] for name in enrol]))
    return Enrolments(enrol, test, tuple(left_out))


def cells_of(labels: Mapping[str, Any], rows: IntArray, views: Sequence[str]) -> dict[str, IntArray]:
    """The rows of every cell of some views, in the order given, by the names of its classes joined."""
    columns = []
    for view in views:
        if view not in labels:
            raise LabelError(f"there is no view {view!r} to enrol by; there are {', '.join(labels)}")
        columns.append(np.asarray(labels[view]).astype(np.str_)[rows])
    if not columns or len(rows) == 0:
        raise DataError(f"enrolments need views and utterances; got {len(columns)} and {len(rows)}")
    codes = np.stack([np.unique(column, return_inverse=True)[1] for column in columns])
    cells, cell = np.unique(codes, axis=1, return_inverse=True)
    order = np.argsort(cell.reshape(-1), kind="stable")
    bounds = np.searchsorted(cell.reshape(-1)[order], np.arange(cells.shape[1] + 1))
    joiner = _joiner(columns)
    names = safe_ids([joiner.join(str(column[order[start]]) for column in columns) for start in bounds[:-1]])
    return {name: rows[order[start:stop]] for name, (start, stop) in zip(names, pairwise(bounds), strict=True)}


def session_order(sessions: Any, number: int) -> IntArray:
    """(number,) ranks of the sessions, as numbers where all of them are."""
    if sessions is None:
        return np.arange(number, dtype=np.int64)
    array = np.asarray(sessions)
    if len(array) != number:
        raise LabelError(f"{len(array)} sessions for {number} utterances; expected as many")
    if array.dtype.kind not in "iuf":
        texts = array.astype(np.str_)
        array = texts.astype(np.int64) if all(text.isascii() and text.isdecimal() for text in texts) else texts
    return np.unique(array, return_inverse=True)[1].astype(np.int64)


def split_classes(classes: Any, training: int | float, seed: int = 0) -> tuple[StringArray, StringArray]:
    """Classes to train on and classes to evaluate on, none in both, each sorted.

    Parameters
    ----------
    classes : labels of one view; repetitions count once
    training : how many classes to train on: a whole number, or a share below 1
    seed : of the draw

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
        raise ParameterError(f"training is a number of classes or a share between 0 and 1; got {training!r}")
    if not 0 < number < len(names):
        raise DataError(
            f"{number} of {len(names)} classes to train on leaves none on one side: training and evaluation "
            "need at least one class each"
        )
    drawn = np.random.default_rng(seed).permutation(len(names))
    return names[np.sort(drawn[:number])], names[np.sort(drawn[number:])]


def safe_ids(names: Iterable[Any]) -> list[str]:
    """Names as ids that every list file can hold: blanks, and what is no Unicode text, become underscores.

    Two names that become the same id are an error that names both, for one of them would be lost.

    Examples
    --------
    >>> safe_ids(["zoom in/0001", "left/0001"])
    ['zoom_in/0001', 'left/0001']
    """
    texts = [str(name) for name in names]
    ids = [UNSAFE.sub("_", text) for text in texts]
    whose: dict[str, str] = {}
    for name, text in zip(ids, texts, strict=True):
        other = whose.setdefault(name, text)
        if other != text:
            raise LabelError(
                f"{other!r} and {text!r} would both be called {name!r}, for an id holds no blanks: rename one of them"
            )
    return check_ids(ids)


def named(names: Sequence[Any], number: int = NAMED) -> str:
    """The first names, and how many there are besides."""
    rest = len(names) - number
    return ", ".join(map(str, names[:number])) + (f" and {rest} more" if rest > 0 else "")


def _joiner(columns: Sequence[StringArray]) -> str:
    """A sign that stands in no class, so that joined names stay distinct."""
    if len(columns) == 1:
        return ""
    used = "".join(str(name) for column in columns for name in np.unique(column))
    return next((sign for sign in "_-/+|:~" if sign not in used), "::")
