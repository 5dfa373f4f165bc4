"""Utterances with labels and a protocol: all that an experiment needs of a data set; the registry of corpora."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypedDict

import numpy as np
from numpy.typing import NDArray

from ..._typing import IntArray, PathLike
from ...exceptions import DataError, ParameterError
from ...extractors.sound import Clip
from ...io.files import check_ids, repeated
from ...io.trials import Trials, rows_in

StringArray = NDArray[Any]
Load = Callable[..., "Corpus"]
NAMED = 5
"""So many of the things left out are named in a message."""


@dataclass(frozen=True)
class Protocol:
    """Who is trained on, enrolled and tested: indices into a corpus.

    Every enrolment meets every test, unless ``groups`` (one label per utterance, such as the speaker's gender)
    keeps groups apart, or ``trials`` lists which enrolment (by name) meets which test (by the utterance's id).
    """

    train: IntArray
    enrol: Mapping[str, IntArray]
    test: IntArray
    groups: StringArray | None = None
    trials: Trials | None = None

    @property
    def enrolled(self) -> IntArray:
        """The utterances of all enrolments, one enrolment after the other."""
        return np.concatenate([np.zeros(0, np.int64), *self.enrol.values()]).astype(np.int64)

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
    ids: StringArray
    labels: Mapping[str, StringArray]
    clips: tuple[Clip, ...] | None
    protocol: Protocol
    source: str = ""
    sessions: StringArray | None = None

    def __post_init__(self) -> None:
        count, first = repeated(self.ids.tolist())
        if count:
            raise DataError(f"{self.name}: the utterance {first!r} is there more than once")
        if self.clips is not None:
            check_ids(self.ids.tolist())  # here, not when vectors of the sound are written
        protocol = self.protocol
        used = np.union1d(protocol.enrolled, protocol.test)
        apart = {"trained on and evaluated with": (protocol.train, used)}
        if protocol.trials is None:
            # a list of trials may test with what makes another model
            apart["enrolled and tested with"] = (protocol.enrolled, protocol.test)
        for what, (one, other) in apart.items():
            both = self.ids[np.intersect1d(one, other)].tolist()
            if both:
                raise DataError(f"{self.name}: {len(both)} utterance(s) are {what}: {named(both)}")

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def views(self) -> tuple[str, ...]:
        return tuple(self.labels)

    def labels_at(self, rows: IntArray, views: Sequence[str]) -> dict[str, StringArray]:
        """The labels of some utterances in some views."""
        return {view: self.labels[view][rows] for view in views}

    def model_labels(self) -> dict[str, StringArray]:
        """Classes of the enrolments, in the views in which every enrolment is of one class."""
        protocol = self.protocol
        sizes = [len(rows) for rows in protocol.enrol.values()]
        repeated_first = np.repeat(protocol.first, sizes)
        return {
            view: classes[protocol.first]
            for view, classes in self.labels.items()
            if (classes[protocol.enrolled] == classes[repeated_first]).all()
        }

    def trial_mask(self) -> NDArray[np.bool_] | None:
        """(models, tests) which enrolment meets which test; None where all meet all."""
        protocol = self.protocol
        groups = protocol.groups
        if protocol.trials is not None:
            enrol = protocol.trials.enrol
            test = protocol.trials.test
            rows = rows_in(enrol.names, list(protocol.enrol))[enrol.codes]
            columns = rows_in(test.names, self.ids[protocol.test].tolist())[test.codes]
            mask = np.zeros((len(protocol.enrol), len(protocol.test)), dtype=bool)
            mask[rows, columns] = True
            return mask
        if groups is None:
            return None
        return np.asarray(groups[protocol.first][:, None] == groups[protocol.test])

    def without(self, names: Sequence[str]) -> Corpus:
        """The corpus without some utterances; an enrolment that has none left goes, and so do its trials."""
        keep = ~np.isin(self.ids, names)
        number = np.cumsum(keep) - 1

        def left(rows: IntArray) -> IntArray:
            return number[rows[keep[rows]]]

        old = self.protocol
        enrol = {name: left(rows) for name, rows in old.enrol.items() if keep[rows].any()}
        trials = old.trials
        if trials is not None:
            trials = trials[trials.enrol.isin(enrol) & ~trials.test.isin(names)]
        groups = None if old.groups is None else old.groups[keep]
        clips = self.clips
        if clips is not None:
            clips = tuple(clips[row] for row in np.flatnonzero(keep))
        return replace(
            self,
            ids=self.ids[keep],
            labels={view: classes[keep] for view, classes in self.labels.items()},
            clips=clips,
            protocol=Protocol(left(old.train), enrol, left(old.test), groups, trials),
            sessions=None if self.sessions is None else self.sessions[keep],
        )

    def summary(self) -> str:
        """What is in the corpus and its protocol, in a few lines."""
        protocol = self.protocol
        evaluation = np.union1d(protocol.enrolled, protocol.test)
        parts = {self.name: np.arange(len(self)), "training": protocol.train}
        lines = []
        for what, rows in {**parts, "evaluation": evaluation}.items():
            classes = ", ".join(
                f"{len(np.unique(values[rows]))} of {view}" for view, values in self.labels.items()
            )
            lines.append(f"{what}: {len(rows)} utterances; {classes}")
        listed = "" if protocol.trials is None else f", {len(protocol.trials)} listed trials"
        lines.append(f"{len(protocol.enrol)} enrolments, {len(protocol.test)} tests{listed}")
        return "\n".join(lines)


class ProtocolOptions(TypedDict, total=False):
    """Options of corpora that make their own protocol.

    training : classes of the first view to train on: their names, how many, or a share of them; unless given, two
        thirds, or what the corpus says. The others are enrolled and tested
    random_state : of the draw, where they are drawn
    per_model : utterances of an enrolment, the first sessions of a cell; 3 unless given
    """

    training: float | int | Sequence[str] | None
    random_state: int
    per_model: int


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
    root : the folder (or, for "folder", a table; for "synthetic", where to write it; for "vectors", their file)
    options : those of the corpus's own function
    """
    entry = CORPORA.get(name)
    if entry is None:
        raise ParameterError(f"there is no data set {name!r}; there are {', '.join(CORPORA)}")
    odd = [option for option in options if option not in entry.options]
    if odd:
        raise ParameterError(
            f"{name} has no option {', '.join(odd)}; it has {', '.join(entry.options)}"
        )
    return entry.load(root, **options)


def named(names: Sequence[Any]) -> str:
    """The first names, and how many there are besides."""
    rest = len(names) - NAMED
    more = f" and {rest} more" if rest > 0 else ""
    return ", ".join(map(str, names[:NAMED])) + more
