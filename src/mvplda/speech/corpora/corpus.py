"""Utterances with labels and a protocol: all that an experiment knows of a data set."""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple, TypedDict, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..._typing import IntArray, PathLike
from ...exceptions import DataError, LabelError, ParameterError
from ...io.files import BLANKS, check_ids
from ...io.trials import Trials, rows_in
from ...kinds import patterns
from ..features.reading import Clip

StringArray = NDArray[Any]


@dataclass(frozen=True)
class Protocol:
    """Who is trained on, enrolled and tested: indices into a corpus.

    Every enrolment meets every test, unless ``groups`` (one label an
    utterance, such as the speaker's gender) keeps groups apart, or ``trials``
    lists which enrolment (by name) meets which test (by the utterance's id).
    """

    train: IntArray
    enrol: Mapping[str, IntArray]
    test: IntArray
    groups: StringArray | None = None
    trials: Trials | None = None


@dataclass(frozen=True)
class Corpus:
    """Utterances, their labels in every view, where their sound lies, and a protocol.

    Attributes
    ----------
    name : the data set's name
    ids : (n,) unique names of the utterances; those of sound hold no blanks, for lists have to hold them
    labels : view -> (n,) classes
    clips : n places of sound, or None where vectors come from elsewhere
    protocol : who is trained on, enrolled and tested
    source : what to cite
    sessions : (n,) which recording of its cell an utterance is, where that is known
    """

    name: str
    ids: StringArray
    labels: Mapping[str, StringArray]
    clips: tuple[Clip, ...] | None
    protocol: Protocol
    source: str = ""
    sessions: StringArray | None = None

    def __post_init__(self) -> None:
        n = len(self.ids)
        if n == 0:
            raise DataError(f"{self.name}: there are no utterances")
        if len(np.unique(self.ids)) != n:
            names, counts = np.unique(self.ids, return_counts=True)
            raise DataError(
                f"{self.name}: the utterance {names[counts > 1][0]!r} is there {counts.max()} times"
            )
        if self.clips is not None:
            check_ids(self.ids.tolist())  # here, not when vectors of the sound are written
        for view, classes in self.labels.items():
            if len(classes) != n:
                raise LabelError(
                    f"{self.name}: {n} utterances but {len(classes)} labels in view {view!r}"
                )
        for what, values in (("places of sound", self.clips), ("sessions", self.sessions)):
            if values is not None and len(values) != n:
                raise DataError(f"{self.name}: {n} utterances but {len(values)} {what}")
        self._check_protocol(n)

    def _check_protocol(self, n: int) -> None:
        protocol = self.protocol
        enrolled = self.enrolled
        for what, rows in (("train", protocol.train), ("enrol", enrolled), ("test", protocol.test)):
            if len(rows) and not (rows.min() >= 0 and rows.max() < n):
                raise DataError(
                    f"{self.name}: the protocol's {what} rows go beyond the {n} utterances"
                )
        empty = [model for model, rows in protocol.enrol.items() if len(rows) == 0]
        if empty:
            raise DataError(
                f"{self.name}: {len(empty)} enrolment(s) have no utterances: {named(empty)}"
            )
        if protocol.groups is not None and len(protocol.groups) != n:
            raise LabelError(f"{self.name}: {n} utterances but {len(protocol.groups)} groups")
        used = np.union1d(enrolled, protocol.test)
        for what, both in (
            ("trained on and evaluated with", np.intersect1d(protocol.train, used)),
            ("enrolled and tested with", np.intersect1d(enrolled, protocol.test)),
        ):
            # A list of trials may test with what makes another model: each trial says what it means.
            if len(both) and not (what.startswith("enrolled") and protocol.trials is not None):
                first = self.ids[both[0]]
                raise DataError(
                    f"{self.name}: {len(both)} utterance(s) are {what}, the first is {first!r}"
                )
        if protocol.trials is not None:
            _check_trials(
                self.name, protocol.trials, list(protocol.enrol), self.ids[protocol.test].tolist()
            )

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def views(self) -> tuple[str, ...]:
        return tuple(self.labels)

    @property
    def models(self) -> StringArray:
        """(m,) names of the enrolments."""
        return np.array(list(self.protocol.enrol), dtype=np.str_)

    @property
    def enrolled(self) -> IntArray:
        """The utterances of all enrolments, one enrolment after the other."""
        return np.concatenate([np.zeros(0, np.int64), *self.protocol.enrol.values()]).astype(
            np.int64
        )

    @property
    def _first(self) -> IntArray:
        """The first utterance of every enrolment."""
        return np.array([rows[0] for rows in self.protocol.enrol.values()], dtype=np.int64)

    def labels_at(self, rows: IntArray) -> dict[str, StringArray]:
        """The labels of some utterances."""
        return {view: classes[rows] for view, classes in self.labels.items()}

    def model_labels(self) -> dict[str, StringArray]:
        """Classes of the enrolments, in the views in which every enrolment is of one class."""
        first, rows = self._first, self.enrolled
        repeated = np.repeat(first, [len(members) for members in self.protocol.enrol.values()])
        return {
            view: classes[first]
            for view, classes in self.labels.items()
            if (classes[rows] == classes[repeated]).all()
        }

    def trial_mask(self) -> NDArray[np.bool_] | None:
        """(models, tests) which enrolment meets which test; None where all meet all."""
        protocol = self.protocol
        if protocol.trials is not None:
            mask = np.zeros((len(protocol.enrol), len(protocol.test)), dtype=bool)
            sides = (
                (protocol.trials.enrol, list(protocol.enrol)),
                (protocol.trials.test, self.ids[protocol.test].tolist()),
            )
            mask[tuple(rows_in(side.names, names)[side.codes] for side, names in sides)] = True
            return mask
        if protocol.groups is None:
            return None
        return np.asarray(protocol.groups[self._first][:, None] == protocol.groups[protocol.test])

    def trial_counts(self) -> dict[str, int]:
        """Trials of every kind: TC, TW, IC and IW of two views, and so on (see `mvplda.kinds`)."""
        protocol = self.protocol
        views = tuple(self.model_labels())
        first, test = self._first, protocol.test
        listed = self.trial_mask() if protocol.trials is not None else None
        exact: dict[tuple[bool, ...], int] = {}
        for pattern in patterns(views) if views else ():
            columns = [self.labels[view] for view, same in zip(views, pattern, strict=True) if same]
            columns += [] if protocol.groups is None else [protocol.groups]
            cell = _cells(columns, len(self))
            if listed is None:  # pairs in the same cell, without making the pairs
                alike = int(
                    np.bincount(cell[first], minlength=len(self))
                    @ np.bincount(cell[test], minlength=len(self))
                )
            else:
                alike = int(((cell[first][:, None] == cell[test]) & listed).sum())
            # Those that agree in more views came before: what is left agrees in just these.
            wider = (
                n
                for other, n in exact.items()
                if all(o or not p for o, p in zip(other, pattern, strict=True))
            )
            exact[pattern] = alike - sum(wider)
        return {name: exact[pattern] for pattern, name in patterns(views).items()} if views else {}

    def select(self, rows: Any = None, *, where: Mapping[str, Any] | None = None) -> Corpus:
        """The corpus of some utterances, in the same order and with the same protocol as far as it reaches.

        Enrolments keep the utterances that are left; one without any goes, and so
        do its trials.

        Parameters
        ----------
        rows : indices or a mask of the utterances to keep; None keeps all
        where : view -> classes to keep
        """
        keep = np.zeros(len(self), dtype=bool)
        chosen = np.arange(len(self)) if rows is None else np.asarray(rows)
        keep[chosen if len(chosen) else chosen.astype(np.int64)] = True
        for view, classes in (where or {}).items():
            if view not in self.labels:
                raise LabelError(
                    f"{self.name} has no view {view!r}; it has {', '.join(self.views)}"
                )
            keep &= np.isin(self.labels[view], np.atleast_1d(np.asarray(classes)))
        kept = np.flatnonzero(keep)
        place = np.full(len(self), -1, dtype=np.int64)
        place[kept] = np.arange(len(kept))
        old = self.protocol
        enrol = {name: place[members][keep[members]] for name, members in old.enrol.items()}
        enrol = {name: members for name, members in enrol.items() if len(members)}
        trials = old.trials
        if trials is not None:
            trials = trials[trials.enrol.isin(enrol) & trials.test.isin(self.ids[kept].tolist())]
        protocol = Protocol(
            place[old.train][keep[old.train]],
            enrol,
            place[old.test][keep[old.test]],
            None if old.groups is None else old.groups[kept],
            trials,
        )
        return replace(
            self,
            ids=self.ids[kept],
            labels={view: classes[kept] for view, classes in self.labels.items()},
            clips=None if self.clips is None else tuple(self.clips[row] for row in kept),
            protocol=protocol,
            sessions=None if self.sessions is None else self.sessions[kept],
        )

    def summary(self) -> str:
        """What is in the corpus and its protocol, in a few lines."""
        protocol = self.protocol
        evaluation = np.union1d(self.enrolled, protocol.test)
        classes = ", ".join(
            f"{len(np.unique(values))} of {view}" for view, values in self.labels.items()
        )
        lines = [f"{self.name}: {len(self)} utterances; classes: {classes}"]
        for what, rows in (("training", protocol.train), ("evaluation", evaluation)):
            parts = ", ".join(
                f"{len(np.unique(values[rows]))} of {view}" for view, values in self.labels.items()
            )
            lines.append(f"{what}: {len(rows)} utterances; {parts}")
        groups = (
            ""
            if protocol.groups is None
            else f" in {len(np.unique(protocol.groups[evaluation]))} groups"
        )
        lines.append(f"{len(protocol.enrol)} enrolments, {len(protocol.test)} tests{groups}")
        counts = self.trial_counts()
        listed = " (listed)" if protocol.trials is not None else ""
        lines.append(
            f"{sum(counts.values())} trials{listed}: "
            + ", ".join(f"{kind} {n}" for kind, n in counts.items())
        )
        return "\n".join(lines)


def _cells(columns: list[StringArray], number: int) -> IntArray:
    """Which cell of all columns together every utterance is in."""
    cell = np.zeros(number, dtype=np.int64)
    for column in columns:
        codes = np.unique(column, return_inverse=True)[1]
        cell = np.unique(cell * number + codes, return_inverse=True)[1]
    return cell


def _check_trials(name: str, trials: Trials, models: list[str], tests: list[str]) -> None:
    for what, wanted, there in (("enrolment", trials.enrol, models), ("test", trials.test, tests)):
        missing = sorted(set(wanted.used) - set(there))
        if missing:
            raise DataError(
                f"{name}: the trials name {len(missing)} {what}(s) that are not there: {named(missing)}"
            )


UNSAFE = re.compile(f"[{BLANKS}\0\ud800-\udfff]")
"""What no id can hold: blanks end it in a list, and bytes of a file's name that are no UTF-8 cannot be written."""
NAMED = 5
"""So many of the things left out are named in a message."""

log = logging.getLogger(__name__)


class ProtocolOptions(TypedDict, total=False):
    """What corpora that make their own protocol can be told.

    sessions : use only so many sessions of every cell, the first ones
    training : classes of the first view to train on: their names, how many, or a share of them; unless given, two
        thirds, or what the corpus says. The others are enrolled and tested
    random_state : of the draw, where they are drawn
    per_model : utterances an enrolment, the first sessions of a cell; 3 unless given
    """

    sessions: int | None
    training: float | int | Sequence[str] | None
    random_state: int
    per_model: int


class Entry(NamedTuple):
    """A corpus in the registry: its function, and what the root that it takes is."""

    load: Callable[..., Corpus]
    root: str

    @property
    def options(self) -> list[str]:
        """Names of the function's options; those that it hands on are the protocol's."""
        own = list(inspect.signature(self.load).parameters.values())[1:]
        shared = any(option.kind is option.VAR_KEYWORD for option in own) * list(
            ProtocolOptions.__annotations__
        )
        return [option.name for option in own if option.kind is not option.VAR_KEYWORD] + shared


CORPORA: dict[str, Entry] = {}
"""Corpora by name."""

Load = TypeVar("Load", bound=Callable[..., Corpus])


def register_corpus(name: str, root: str) -> Callable[[Load], Load]:
    """Register a function ``load(root, **options)`` that gives a corpus; ``root`` says what the first argument is."""

    def register(load: Load) -> Load:
        CORPORA[name] = Entry(load, root)
        return load

    return register


def load_corpus(name: str, root: PathLike, **options: Any) -> Corpus:
    """A corpus by its name and the folder that it lies in.

    Parameters
    ----------
    name : one of `CORPORA`: audiomnist, free-spoken-digits, arabic-commands, rsr2015, folder, synthetic, vectors
    root : the folder (or, for "folder", a table; for "synthetic", where to write it; for "vectors", their file)
    options : those of the corpus's own function
    """
    entry = CORPORA.get(name.replace("_", "-"))
    if entry is None:
        raise ParameterError(f"there is no data set {name!r}; there are {', '.join(CORPORA)}")
    odd = [option for option in options if option not in entry.options]
    if odd:
        raise ParameterError(
            f"{name} has no option {', '.join(odd)}; it has {', '.join(entry.options)}"
        )
    return entry.load(root, **options)


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
        raise ParameterError(
            f"per_model is the number of utterances of an enrolment, at least 1; got {per_model}"
        )
    cells = cells_of(
        labels, rows[np.argsort(session_order(sessions, len(ids))[rows], kind="stable")], views
    )
    enrol = {
        name: members[:per_model] for name, members in cells.items() if len(members) > per_model
    }
    left_out = [name for name in cells if name not in enrol]
    if not enrol:
        raise DataError(
            f"none of the {len(left_out)} cells of {' and '.join(views)} has the {per_model + 1} utterances that "
            f"enrolment with {per_model} and one test need: {named(left_out)}. Lower per_model, or give more sessions"
        )
    if left_out:
        log.warning(
            "%d cell(s) have fewer than %d utterances: %s",
            len(left_out),
            per_model + 1,
            named(left_out),
        )
    test = np.sort(np.concatenate([cells[name][per_model:] for name in enrol]))
    return Enrolments(enrol, test, tuple(left_out))


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
    names = safe_ids(
        [joiner.join(str(column[order[start]]) for column in columns) for start in bounds[:-1]]
    )
    return {
        name: rows[order[start:stop]]
        for name, (start, stop) in zip(names, pairwise(bounds), strict=True)
    }


def session_order(sessions: Any, number: int) -> IntArray:
    """(number,) ranks of the sessions, as numbers where all of them are."""
    if sessions is None:
        return np.arange(number, dtype=np.int64)
    array = np.asarray(sessions)
    if len(array) != number:
        raise LabelError(f"{len(array)} sessions for {number} utterances; expected as many")
    if array.dtype.kind not in "iuf":
        texts = array.astype(np.str_)
        array = (
            texts.astype(np.int64)
            if all(text.isascii() and text.isdecimal() for text in texts)
            else texts
        )
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
