"""Utterances with labels and a protocol: all that an experiment needs of a data set; the registry of corpora.

A protocol says who is trained on, who is enrolled with what, and what is tested.
"""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypedDict

import numpy as np

from ..._typing import BoolArray, Columns, IntArray, Names, PathLike, Views
from ...exceptions import DataError, LabelError, ParameterError
from ...extractors.sound import Clip
from ...io.files import BLANKS, check_ids, repeated
from ...io.trials import Trials, rows_in

Load = Callable[..., "Corpus"]
Training = float | Sequence[str] | None
NAMED = 5
"""So many of the things left out are named in a message."""
UNSAFE = re.compile(f"[{BLANKS}\0\ud800-\udfff]")
"""What no id can hold: blanks end it in a list, and bytes of a file's name that are no UTF-8 cannot be written."""
TRIALS = 1_000_000
SHARE = 2 / 3
"""The share of the speakers to train on where nothing else is given."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Protocol:
    """Who is trained on, enrolled and tested: indices into a corpus.

    Every enrolment meets every test, unless ``trials`` lists which enrolment (by name) meets which test (by the
    utterance's id).
    """

    train: IntArray
    enrol: Mapping[str, IntArray]
    test: IntArray
    trials: Trials | None = None

    @property
    def enrolled(self) -> IntArray:
        """The utterances of all enrolments, one enrolment after the other."""
        return np.concatenate([np.zeros(0, np.int64), *self.enrol.values()]).astype(np.int64)

    @property
    def sizes(self) -> list[int]:
        """How many utterances every enrolment has."""
        return [len(rows) for rows in self.enrol.values()]

    @property
    def first(self) -> IntArray:
        """The first utterance of every enrolment."""
        return np.array([rows[0] for rows in self.enrol.values()], dtype=np.int64)


@dataclass(frozen=True)
class Corpus:
    """Utterances, their labels in every view, where their sound lies, and a protocol.

    Attributes
    ----------
    name : the data set's name
    ids : (n,) unique names of the utterances; those of sound hold no blanks, for lists have to hold them
    labels : view -> (n,) classes
    clips : n places of sound, or None where only vectors are there
    protocol : who is trained on, enrolled and tested
    source : what to cite
    sessions : (n,) which recording of its cell an utterance is, where that is known
    """

    name: str
    ids: Names
    labels: Columns
    clips: tuple[Clip, ...] | None
    protocol: Protocol
    source: str = ""
    sessions: Names | None = None

    def __post_init__(self) -> None:
        count, first = repeated(self.ids.tolist())
        if count:
            raise DataError(f"{self.name}: the utterance {first!r} is there more than once")
        if self.clips is not None:
            check_ids(self.ids.tolist())  # here, not when vectors of the sound are written
        protocol = self.protocol
        what = "trained on and evaluated with"
        both = np.intersect1d(protocol.train, np.union1d(protocol.enrolled, protocol.test))
        if not len(both) and protocol.trials is None:
            # a list of trials may test with what makes another model
            what = "enrolled and tested with"
            both = np.intersect1d(protocol.enrolled, protocol.test)
        if len(both):
            names = named(self.ids[both].tolist())
            raise DataError(f"{self.name}: {len(both)} utterance(s) are {what}: {names}")

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def views(self) -> Views:
        return tuple(self.labels)

    def labels_at(self, rows: IntArray, views: Sequence[str]) -> Columns:
        """The labels of some utterances in some views."""
        return {view: self.labels[view][rows] for view in views}

    def model_labels(self) -> Columns:
        """Classes of the enrolments, in the views in which every enrolment is of one class."""
        protocol = self.protocol
        repeated_first = np.repeat(protocol.first, protocol.sizes)
        return {
            view: classes[protocol.first]
            for view, classes in self.labels.items()
            if (classes[protocol.enrolled] == classes[repeated_first]).all()
        }

    def trial_mask(self) -> BoolArray | None:
        """(models, tests) which enrolment meets which test; None where all meet all."""
        protocol = self.protocol
        if protocol.trials is None:
            return None
        enrol = protocol.trials.enrol
        test = protocol.trials.test
        rows = rows_in(enrol.names, list(protocol.enrol))
        columns = rows_in(test.names, self.ids[protocol.test].tolist())
        mask = np.zeros((len(protocol.enrol), len(protocol.test)), dtype=bool)
        # some at a time: indices of tens of millions of trials would outweigh the mask
        for start in range(0, len(enrol), TRIALS):
            part = slice(start, start + TRIALS)
            mask[rows[enrol.codes[part]], columns[test.codes[part]]] = True
        return mask

    def without(self, names: Sequence[str]) -> Corpus:
        """The corpus whose protocol leaves some utterances out; an enrolment with none left goes, and its trials."""
        old = self.protocol
        there = ~np.isin(self.ids, names)
        left = {name: rows[there[rows]] for name, rows in old.enrol.items()}
        enrol = {name: rows for name, rows in left.items() if len(rows)}
        trials = old.trials
        if trials is not None:
            trials = trials[trials.enrol.isin(enrol) & ~trials.test.isin(names)]
        train = old.train[there[old.train]]
        test = old.test[there[old.test]]
        return replace(self, protocol=Protocol(train, enrol, test, trials))

    def summary(self) -> str:
        """What is in the corpus and its protocol, in a few lines."""
        protocol = self.protocol
        parts = {
            self.name: np.arange(len(self)),
            "training": protocol.train,
            "evaluation": np.union1d(protocol.enrolled, protocol.test),
        }
        lines = []
        for what, rows in parts.items():
            columns = self.labels_at(rows, self.views)
            counts = [f"{len(np.unique(values))} of {view}" for view, values in columns.items()]
            lines.append(f"{what}: {len(rows)} utterances; {', '.join(counts)}")
        counts = [f"{len(protocol.enrol)} enrolments", f"{len(protocol.test)} tests"]
        if protocol.trials is not None:
            counts.append(f"{len(protocol.trials)} listed trials")
        return "\n".join([*lines, ", ".join(counts)])


class ProtocolOptions(TypedDict, total=False):
    """Options of corpora that make their own protocol.

    training : classes of the first view to train on: their names, how many, or a share of them; unless given, two
        thirds, or what the corpus says. The others are enrolled and tested
    random_state : of the draw, where they are drawn
    per_model : utterances of an enrolment, the first sessions of a cell; 3 unless given
    """

    training: Training
    random_state: int
    per_model: int


def build_corpus(
    name: str,
    ids: Names,
    labels: Columns,
    clips: tuple[Clip, ...] | None,
    session: Names | None = None,
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
    train = training_rows(labels, training, random_state)
    rows = np.flatnonzero(~train)
    enrol, test = enrolments(labels, session, rows, per_model)
    protocol = Protocol(np.flatnonzero(train), enrol, test)
    return Corpus(name, ids, labels, clips, protocol, source, session)


def training_rows(labels: Columns, training: Training, random_state: int = 0) -> BoolArray:
    """(n,) which utterances are of classes of the first view to train on; neither all nor none are."""
    view, classes = next(iter(labels.items()))
    every = np.unique(classes)
    training = SHARE if training is None else training
    if isinstance(training, (int, float)):
        number = int(training)
        if 0 < training < 1:
            number = min(max(round(training * len(every)), 1), len(every) - 1)
        names = np.random.default_rng(random_state).permutation(every)[:number]
    else:
        names = np.array([str(name) for name in training], dtype=np.str_)
    missing = np.setdiff1d(names, classes).tolist()
    if missing:
        raise LabelError(
            f"no utterance is of {len(missing)} {view}(s) to train on: {named(missing)}"
        )
    chosen = np.isin(classes, names)
    if chosen.all() or not chosen.any():
        side = "evaluation" if chosen.all() else "training"
        raise DataError(f"all {len(every)} {view}(s) are on one side, which leaves none for {side}")
    return chosen


def enrolments(
    labels: Columns,
    sessions: Any,
    rows: Any,
    per_model: int = 3,
    tests: Any = None,
) -> tuple[dict[str, IntArray], IntArray]:
    """Enrol every cell of classes with its first sessions, and test with the others: {model: rows}, and tests.

    Parameters
    ----------
    labels : view -> (n,) classes; a model is of a class of each view
    sessions : (n,) numbers or names that order the utterances of a cell; None takes
        the order of the utterances. Numbers written as text are ordered as numbers.
    rows : the utterances to use, such as those of the evaluation speakers
    per_model : utterances of an enrolment. A cell needs one more, to be tested with;
        cells with fewer are left out whole and named in the log.
    tests : (n,) where given, which utterances are tests: those of another recording campaign. The others enrol.

    Examples
    --------
    >>> labels = {"speaker": ["ann"] * 4 + ["bob"] * 2, "phrase": ["hi"] * 6}
    >>> enrolments(labels, [3, 2, 1, 0, 0, 1], range(6), per_model=3)
    ({'ann::hi': array([3, 2, 1])}, array([0]))
    """
    if per_model < 1:
        raise ParameterError(
            f"per_model is the number of utterances of an enrolment, at least 1; got {per_model}"
        )
    rows = np.asarray(rows, dtype=np.int64)
    # stable: utterances of one session stay in their order
    if sessions is not None:
        rows = rows[np.argsort(session_order(sessions)[rows], kind="stable")]
    enrol = {}
    tested = []
    left_out = []
    for name, members in cells_of(labels, rows).items():
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
            f"none of the {len(left_out)} cells of {' and '.join(labels)} has the {per_model} utterances to enrol "
            f"with and one to test with: {named(left_out)}. Lower per_model, or give more sessions"
        )
    if left_out:
        log.warning("%d cell(s) have too few utterances: %s", len(left_out), named(left_out))
    return enrol, np.sort(np.concatenate(tested))


def listed_protocol(
    ids: Names,
    models: Mapping[str, Sequence[str]],
    trials: Trials,
    train: IntArray,
) -> Protocol:
    """The protocol of enrolments and trials that are listed.

    Listed utterances that are not there are left out, with the enrolments that have none left and their trials, and a
    warning counts them.

    Parameters
    ----------
    models : {model: ids of its utterances}
    trials : enrolment and test of every trial
    train : rows to train on
    """
    absent = sorted(set(trials.enrol.used) - set(models))
    if absent:
        raise DataError(
            f"the trials name {len(absent)} enrolment(s) without a list: {named(absent)}"
        )
    row_of = {name: row for row, name in enumerate(ids.tolist())}
    listed = set(trials.test.used).union(*models.values())
    missing = sorted(listed - set(row_of))
    enrol = {}
    for model, members in models.items():
        rows = [row_of[name] for name in members if name in row_of]
        if rows:
            enrol[model] = np.array(rows)
    if missing:
        log.warning("left out: %d listed utterance(s): %s", len(missing), named(missing))
        trials = trials[trials.enrol.isin(enrol) & ~trials.test.isin(missing)]
    if not len(trials):
        raise DataError(f"no listed trial has its utterances: {named(missing)} are not there")
    test = np.array(sorted(row_of[name] for name in trials.test.used))
    return Protocol(train, enrol, test, trials)


def cells_of(labels: Columns, rows: IntArray) -> dict[str, IntArray]:
    """The rows of every cell of classes, in the order given, by the names of its classes joined."""
    columns = [np.asarray(column).astype(np.str_)[rows].tolist() for column in labels.values()]
    cells: dict[tuple[str, ...], list[int]] = {}
    for row, *cell in zip(rows, *columns, strict=True):
        cells.setdefault(tuple(cell), []).append(row)
    names = safe_ids("::".join(cell) for cell in sorted(cells))
    return {name: np.array(cells[cell]) for name, cell in zip(names, sorted(cells), strict=True)}


def session_order(sessions: Any) -> IntArray:
    """(n,) ranks of the sessions, as numbers where all of them are."""
    array = np.asarray(sessions).astype(np.str_)
    if np.char.isdecimal(array).all():
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


class Entry(NamedTuple):
    """A corpus in the registry: its function, and what the root that it takes is."""

    load: Load
    root: str

    @property
    def options(self) -> list[str]:
        """Names of the function's options; those that it hands on are the protocol's."""
        _, *names = inspect.signature(self.load).parameters
        if names[-1:] == ["protocol"]:
            names[-1:] = ProtocolOptions.__annotations__
        return names


CORPORA: dict[str, Entry] = {}
"""Corpora by name."""


def register_corpus(name: str, root: str) -> Callable[[Load], Load]:
    """Register a function ``load(root, **options)`` that gives a corpus; ``root`` says what the first argument is."""

    def register(load: Load) -> Load:
        CORPORA[name] = Entry(load, root)
        return load

    return register


def load_corpus(name: str, root: PathLike, **options: Any) -> Corpus:
    """A corpus by its name in `CORPORA` and the folder that it lies in.

    Parameters
    ----------
    root : the folder (or, for "folder", a table; for "vectors", their file)
    options : those of the corpus's own function
    """
    if name not in CORPORA:
        raise ParameterError(f"there is no data set {name!r}; there are {', '.join(CORPORA)}")
    entry = CORPORA[name]
    try:
        return entry.load(root, **options)
    except TypeError as error:
        known = ", ".join(entry.options)
        raise ParameterError(f"wrong options of {name}, which has {known}: {error}") from error


def named(names: Sequence[Any]) -> str:
    """The first names, and how many there are besides."""
    rest = len(names) - NAMED
    more = f" and {rest} more" if rest > 0 else ""
    return ", ".join(map(str, names[:NAMED])) + more
