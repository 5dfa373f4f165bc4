"""Corpora of labelled utterances, and the registry by which a corpus is loaded by name.

Each corpus has a protocol, which defines the training utterances, the enrolments and the tests of an experiment.
"""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypedDict

import numpy as np
from numpy.typing import ArrayLike

from ..._typing import BoolArray, Columns, IntArray, Names, PathLike, Views
from ...exceptions import DataError, LabelError, ParameterError
from ...io.streams import BLANKS, check_ids, repeated
from ...io.trials import Trials, rows_in
from ...voice.audio.decode import FileSegment

Load = Callable[..., "Corpus"]
TrainingClasses = float | Sequence[str] | None
"""Training speakers (classes of the first view) as names, a number or a share; None: the default of the corpus."""
MAX_LISTED_NAMES = 5
"""Maximum number of names that a message lists."""
UNSAFE = re.compile(f"[{BLANKS}\0\ud800-\udfff]")
"""Pattern of characters that an id cannot contain: blanks, which separate ids in lists, and bytes of a file name that
are not valid UTF-8."""
TRIALS_PER_BLOCK = 1_000_000
DEFAULT_TRAINING_SHARE = 2 / 3
"""Default share of the speakers that are training speakers."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Protocol:
    """Division of a corpus into training, enrolments and tests.

    Attributes
    ----------
    train : indices of the training utterances
    enrol : {name of the enrolment: indices of its utterances}
    test : indices of the test utterances
    trials : pairs of an enrolment's name and a test utterance's id; None: every enrolment against every test
    """

    train: IntArray
    enrol: Mapping[str, IntArray]
    test: IntArray
    trials: Trials | None = None

    @property
    def enrolled(self) -> IntArray:
        """Indices of the utterances of all enrolments, concatenated in the order of `enrol`."""
        return np.concatenate([np.zeros(0, np.int64), *self.enrol.values()]).astype(np.int64)

    @property
    def sizes(self) -> list[int]:
        """Number of utterances per enrolment."""
        return [len(rows) for rows in self.enrol.values()]

    @property
    def first(self) -> IntArray:
        """Index of the first utterance of each enrolment."""
        return np.array([rows[0] for rows in self.enrol.values()], dtype=np.int64)


@dataclass(frozen=True)
class Corpus:
    """Corpus: utterances with labels, the locations of their samples, and a protocol of experiments.

    Attributes
    ----------
    name : name of the data set
    ids : (n,) unique ids of the utterances; ids of recordings contain no blanks, which separate ids in lists
    labels : {view: (n,) classes}
    files : location of each utterance's samples; None if the corpus consists of vectors
    protocol : training utterances, enrolments and tests
    source : citation
    sessions : (n,) session or repetition of each utterance within its cell (combination of classes); None if unknown
    groups : (n,) group of each utterance, such as the speaker's gender; enrolments of each group are also evaluated
        separately. None: no groups
    """

    name: str
    ids: Names
    labels: Columns
    files: tuple[FileSegment, ...] | None
    protocol: Protocol
    source: str = ""
    sessions: Names | None = None
    groups: Names | None = None

    def __post_init__(self) -> None:
        count, first = repeated(self.ids.tolist())
        if count:
            raise DataError(
                f"{self.name}: the utterance id {first!r} occurs more than once; ids must differ: rename one"
            )
        if self.files is not None:
            # checked before vectors are extracted, because writing them would fail
            check_ids(self.ids.tolist())
        protocol = self.protocol
        conflict = "both for training and for evaluation"
        shared = np.intersect1d(protocol.train, np.union1d(protocol.enrolled, protocol.test))
        if not len(shared) and protocol.trials is None:
            # only without a list of trials: a list may test with an utterance of another enrolment
            conflict = "both enrolled and tested"
            shared = np.intersect1d(protocol.enrolled, protocol.test)
        if len(shared):
            names = abbreviated(self.ids[shared].tolist())
            raise DataError(
                f"{self.name}: {len(shared)} utterance(s) are {conflict}, but each may have one role only: {names}"
            )

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def views(self) -> Views:
        """Names of the views, such as ("speaker", "phrase")."""
        return tuple(self.labels)

    def labels_at(self, rows: IntArray, views: Sequence[str]) -> Columns:
        """Return {view: labels of the utterances with the indices `rows`} for the given views."""
        return {view: self.labels[view][rows] for view in views}

    def model_labels(self) -> Columns:
        """Return {view: (enrolments,) class of each enrolment}.

        Views in which an enrolment has utterances of several classes are left out.
        """
        protocol = self.protocol
        repeated_first = np.repeat(protocol.first, protocol.sizes)
        return {
            view: classes[protocol.first]
            for view, classes in self.labels.items()
            if (classes[protocol.enrolled] == classes[repeated_first]).all()
        }

    def trial_mask(self) -> BoolArray | None:
        """Return the (enrolments, tests) mask of the listed trials; None if every pair is a trial."""
        protocol = self.protocol
        if protocol.trials is None:
            return None
        enrol = protocol.trials.enrol
        test = protocol.trials.test
        rows = rows_in(enrol.names, list(protocol.enrol))
        columns = rows_in(test.names, self.ids[protocol.test].tolist())
        mask = np.zeros((len(protocol.enrol), len(protocol.test)), dtype=bool)
        # in blocks: the indices of tens of millions of trials need more memory than the mask
        for start in range(0, len(enrol), TRIALS_PER_BLOCK):
            block = slice(start, start + TRIALS_PER_BLOCK)
            mask[rows[enrol.codes[block]], columns[test.codes[block]]] = True
        return mask

    def without(self, names: Sequence[str]) -> Corpus:
        """Return a copy whose protocol leaves out the utterances with the ids `names`, such as unusable ones.

        Enrolments without any utterance left are also left out, and so are all trials of left-out enrolments and tests.
        """
        protocol = self.protocol
        is_usable = ~np.isin(self.ids, names)
        usable_rows = {name: rows[is_usable[rows]] for name, rows in protocol.enrol.items()}
        enrol = {name: rows for name, rows in usable_rows.items() if len(rows)}
        trials = protocol.trials
        if trials is not None:
            trials = trials[trials.enrol.isin(enrol) & ~trials.test.isin(names)]
        train = protocol.train[is_usable[protocol.train]]
        test = protocol.test[is_usable[protocol.test]]
        return replace(self, protocol=Protocol(train, enrol, test, trials))

    def summary(self) -> str:
        """Return a few lines of text with the numbers of utterances, classes, enrolments and tests."""
        protocol = self.protocol
        subsets = {
            self.name: np.arange(len(self)),
            "training": protocol.train,
            "evaluation": np.union1d(protocol.enrolled, protocol.test),
        }
        lines = []
        for subset, rows in subsets.items():
            columns = self.labels_at(rows, self.views)
            counts = [f"{len(np.unique(values))} of {view}" for view, values in columns.items()]
            lines.append(f"{subset}: {len(rows)} utterances; {', '.join(counts)}")
        counts = [f"{len(protocol.enrol)} enrolments", f"{len(protocol.test)} tests"]
        if protocol.trials is not None:
            counts.append(f"{len(protocol.trials)} listed trials")
        return "\n".join([*lines, ", ".join(counts)])


class ProtocolOptions(TypedDict, total=False):
    """Options of the protocol of a corpus, which is built from its labels.

    training : training speakers (classes of the first view): their names, their number, or a proportion below 1; all
        others are enrolled and tested. Default: two thirds, or the usual division of the corpus
    random_state : seed of the draw of training speakers
    per_model : number of utterances per enrolment, the first sessions of a speaker and phrase; default 3
    """

    training: TrainingClasses
    random_state: int
    per_model: int


def build_corpus(
    name: str,
    ids: Names,
    labels: Columns,
    files: tuple[FileSegment, ...] | None,
    session: Names | None = None,
    *,
    source: str = "",
    training: TrainingClasses = None,
    random_state: int = 0,
    per_model: int = 3,
) -> Corpus:
    """Build a corpus whose protocol is derived from its labels.

    Ids of recordings are converted by `safe_ids`; ids of vectors remain unchanged.

    Parameters
    ----------
    name : name of the data set
    ids : (n,) ids of the utterances
    labels : {view: (n,) classes}, the speaker first
    files : locations of the samples; None for a corpus of vectors
    session : (n,) session of each utterance, which orders the utterances of a cell (combination of classes); None:
        their order in `ids`
    source : citation
    training : training classes of the first view: their names, or the number or proportion (below 1) of classes that
        are drawn at random; None: two thirds
    random_state : seed of the draw
    per_model : number of utterances per enrolment (see `enrolments`)
    """
    if files is not None:
        ids = np.array(safe_ids(ids.tolist()))
    train = training_rows(labels, training, random_state)
    rows = np.flatnonzero(~train)
    enrol, test = enrolments(labels, session, rows, per_model)
    protocol = Protocol(np.flatnonzero(train), enrol, test)
    return Corpus(name, ids, labels, files, protocol, source, session)


def training_rows(labels: Columns, training: TrainingClasses, random_state: int = 0) -> BoolArray:
    """Return the (n,) mask of the training utterances.

    Parameters
    ----------
    labels : {view: (n,) classes}; the classes of the first view are divided
    training : names of the training classes, or the number or proportion (below 1) of classes that are drawn at random;
        None: two thirds
    random_state : seed of the draw

    Raises
    ------
    LabelError
        A named class has no utterance.
    DataError
        All utterances are training utterances, or none is.
    """
    view, column = next(iter(labels.items()))
    classes = np.unique(column)
    training = DEFAULT_TRAINING_SHARE if training is None else training
    if isinstance(training, (int, float)):
        number = int(training)
        if 0 < training < 1:
            number = min(max(round(training * len(classes)), 1), len(classes) - 1)
        names = np.random.default_rng(random_state).permutation(classes)[:number]
    else:
        names = np.array([str(name) for name in training], dtype=np.str_)
    missing = np.setdiff1d(names, column).tolist()
    if missing:
        raise LabelError(
            f"{len(missing)} {view}(s) of the option training have no utterance: {abbreviated(missing)}. Correct the "
            "names"
        )
    mask = np.isin(column, names)
    if mask.all() or not mask.any():
        empty_side = "evaluation" if mask.all() else "training"
        raise DataError(
            f"none of {len(classes)} {view}(s) is left for {empty_side}: change the option training, which is "
            f"{training!r}"
        )
    return mask


def enrolments(
    labels: Columns,
    sessions: ArrayLike | None,
    rows: ArrayLike,
    per_model: int = 3,
    tests: BoolArray | None = None,
) -> tuple[dict[str, IntArray], IntArray]:
    """Choose utterances for enrolment and tests: each cell is enrolled with its first sessions, the others are tests.

    A cell is one combination of classes, such as one speaker with one phrase. Cells without enough utterances are left
    out and listed in the log.

    Parameters
    ----------
    labels : {view: (n,) classes}
    sessions : (n,) numbers or names that order the utterances of a cell; None: the order of the utterances.
        Numbers written as text are ordered as numbers
    rows : indices of the utterances to use, such as those of the evaluation speakers
    per_model : number of utterances per enrolment; a cell needs at least one more, as a test
    tests : (n,) mask of the test utterances, such as those of another session; the others are for enrolment.
        None: the utterances after the first `per_model` ones are tests

    Returns
    -------
    {name of the cell: indices of its enrolment utterances}, and the sorted indices of the tests

    Examples
    --------
    >>> labels = {"speaker": ["ann"] * 4 + ["bob"] * 2, "phrase": ["hi"] * 6}
    >>> enrolments(labels, [3, 2, 1, 0, 0, 1], range(6), per_model=3)
    ({'ann::hi': array([3, 2, 1])}, array([0]))
    """
    if per_model < 1:
        raise ParameterError(
            f"per_model, the number of utterances per enrolment, must be at least 1; got {per_model}"
        )
    rows = np.asarray(rows, dtype=np.int64)
    # a stable sort preserves the order of utterances within a session
    if sessions is not None:
        rows = rows[np.argsort(session_order(sessions)[rows], kind="stable")]
    enrol = {}
    tested = []
    too_small = []
    for name, members in cell_rows(labels, rows).items():
        enrol_candidates, cell_tests = members, members[per_model:]
        if tests is not None:
            enrol_candidates, cell_tests = members[~tests[members]], members[tests[members]]
        cell_enrol = enrol_candidates[:per_model]
        if len(cell_enrol) < per_model or not len(cell_tests):
            too_small.append(name)
        else:
            enrol[name] = cell_enrol
            tested.append(cell_tests)
    if not enrol:
        raise DataError(
            f"none of the {len(too_small)} cells of {' and '.join(labels)} has {per_model} utterances to enrol and one "
            f"to test: {abbreviated(too_small)}. Lower per_model, or add sessions"
        )
    if too_small:
        log.warning(
            "left out: %d cell(s) of %s without %d utterance(s) to enrol and one to test: %s",
            len(too_small),
            " and ".join(labels),
            per_model,
            abbreviated(too_small),
        )
    return enrol, np.sort(np.concatenate(tested))


def listed_protocol(
    ids: Names,
    models: Mapping[str, Sequence[str]],
    trials: Trials,
    train: IntArray,
) -> Protocol:
    """Build a protocol from lists of enrolments and trials.

    Listed utterances that the corpus lacks are left out, and a warning in the log counts them. Enrolments without any
    utterance left, and all trials of left-out enrolments and tests, are also left out.

    Parameters
    ----------
    ids : (n,) ids of the utterances
    models : {name of the enrolment: ids of its utterances}
    trials : name of the enrolment and id of the test utterance of each trial
    train : indices of the training utterances

    Raises
    ------
    DataError
        An enrolment of a trial is not in `models`, or no trial is left.
    """
    absent = sorted(set(trials.enrol.used) - set(models))
    if absent:
        raise DataError(
            f"{len(absent)} enrolment(s) in the list of trials are missing in the list of enrolments: "
            f"{abbreviated(absent)}. Pass lists that belong together"
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
        log.warning(
            "left out: %d listed utterance(s) without a recording: %s",
            len(missing),
            abbreviated(missing),
        )
        trials = trials[trials.enrol.isin(enrol) & ~trials.test.isin(missing)]
    if not len(trials):
        raise DataError(
            f"the corpus lacks utterances of every listed trial: {abbreviated(missing)}. Check that the lists belong "
            "to the recordings"
        )
    test = np.array(sorted(row_of[name] for name in trials.test.used))
    return Protocol(train, enrol, test, trials)


def cell_rows(labels: Columns, rows: IntArray) -> dict[str, IntArray]:
    """Group utterances by cell, a combination of classes such as one speaker with one phrase.

    Parameters
    ----------
    labels : {view: (n,) classes}
    rows : indices of the utterances to group

    Returns
    -------
    {name of the cell, its classes joined by ``::``: indices of its utterances in the order of `rows`}
    """
    columns = [np.asarray(column).astype(np.str_)[rows].tolist() for column in labels.values()]
    cells: dict[tuple[str, ...], list[int]] = {}
    for row, *cell in zip(rows, *columns, strict=True):
        cells.setdefault(tuple(cell), []).append(row)
    names = safe_ids("::".join(cell) for cell in sorted(cells))
    return {name: np.array(cells[cell]) for name, cell in zip(names, sorted(cells), strict=True)}


def session_order(sessions: ArrayLike) -> IntArray:
    """Return the (n,) ranks of sessions, equal for equal sessions; numbers written as text are ordered as numbers."""
    array = np.asarray(sessions).astype(np.str_)
    if np.char.isdecimal(array).all():
        array = array.astype(np.int64)
    return np.unique(array, return_inverse=True)[1].astype(np.int64)


def safe_ids(names: Iterable[object]) -> list[str]:
    """Convert names to ids that are valid in every list file: blanks and invalid Unicode become underscores.

    Raises
    ------
    LabelError
        Two different names yield the same id.

    Examples
    --------
    >>> safe_ids(["zoom in/0001", "left/0001"])
    ['zoom_in/0001', 'left/0001']
    """
    name_of_id: dict[str, str] = {}
    ids = []
    for name in map(str, names):
        safe_id = UNSAFE.sub("_", name)
        previous = name_of_id.setdefault(safe_id, name)
        if previous != name:
            raise LabelError(
                f"{previous!r} and {name!r} both yield the id {safe_id!r}, because ids cannot contain blanks: rename "
                "one of them"
            )
        ids.append(safe_id)
    return ids


class RegisteredCorpus(NamedTuple):
    """Entry of the registry of corpora.

    load : function ``load(root, **options)`` that returns a corpus
    root : description of the function's first argument
    """

    load: Load
    root: str

    @property
    def options(self) -> list[str]:
        """Names of the options of `load`, including those of `ProtocolOptions` if the function accepts them."""
        _, *names = inspect.signature(self.load).parameters
        if names[-1:] == ["protocol"]:
            names[-1:] = ProtocolOptions.__annotations__
        return names


CORPORA: dict[str, RegisteredCorpus] = {}
"""Registry of corpora, {name: function that loads the corpus}."""


def register_corpus(name: str, root: str) -> Callable[[Load], Load]:
    """Return a decorator that adds a function to the registry of corpora.

    Parameters
    ----------
    name : name of the corpus
    root : description of the first argument of the function ``load(root, **options)``, for help texts
    """

    def register(load: Load) -> Load:
        CORPORA[name] = RegisteredCorpus(load, root)
        return load

    return register


def load_corpus(name: str, root: PathLike, **options: object) -> Corpus:
    """Load a corpus by its name.

    Parameters
    ----------
    name : name of the corpus, a key of `CORPORA`
    root : folder of the corpus; for "folder" also a table, for "vectors" the file of the vectors
    options : options of the function that loads the corpus

    Raises
    ------
    ParameterError
        The name or an option is unknown.
    """
    if name not in CORPORA:
        raise ParameterError(f"unknown corpus {name!r}; available corpora: {', '.join(CORPORA)}")
    entry = CORPORA[name]
    try:
        return entry.load(root, **options)
    except TypeError as error:
        options_text = ", ".join(entry.options)
        raise ParameterError(
            f"wrong options of {name}; it accepts {options_text}: {error}"
        ) from error


def abbreviated(names: Sequence[object]) -> str:
    """Return the first five names as text, followed by the number of further names: "a, b, c, d, e and 2 more"."""
    n_hidden = len(names) - MAX_LISTED_NAMES
    suffix = f" and {n_hidden} more" if n_hidden > 0 else ""
    return ", ".join(map(str, names[:MAX_LISTED_NAMES])) + suffix
