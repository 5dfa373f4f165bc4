"""Utterances with labels and a protocol: all that an experiment knows of a data set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..exceptions import DataError, LabelError
from ..io.text import check_ids
from ..io.trials import Trials, patterns
from .enrolment import Enrolments, IntArray, StringArray, enrolments, named, split_classes

__all__ = [
    "Clip",
    "Corpus",
    "Enrolments",
    "IntArray",
    "Protocol",
    "StringArray",
    "enrolments",
    "split_classes",
]


@dataclass(frozen=True)
class Clip:
    """Where the samples of an utterance lie: a file, or a stretch of one.

    ``start`` and ``length`` count samples at the file's own rate; a length of
    None means to the end. ``channel`` None means the mean of all channels.
    """

    path: Path
    start: int = 0
    length: int | None = None
    channel: int | None = None


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
            raise DataError(f"{self.name}: the utterance {names[counts > 1][0]!r} is there {counts.max()} times")
        if self.clips is not None:
            check_ids(self.ids.tolist())  # here, not when vectors of the sound are written
        for view, classes in self.labels.items():
            if len(classes) != n:
                raise LabelError(f"{self.name}: {n} utterances but {len(classes)} labels in view {view!r}")
        for what, values in (("places of sound", self.clips), ("sessions", self.sessions)):
            if values is not None and len(values) != n:
                raise DataError(f"{self.name}: {n} utterances but {len(values)} {what}")
        self._check_protocol(n)

    def _check_protocol(self, n: int) -> None:
        protocol = self.protocol
        enrolled = self.enrolled
        for what, rows in (("train", protocol.train), ("enrol", enrolled), ("test", protocol.test)):
            if len(rows) and not (rows.min() >= 0 and rows.max() < n):
                raise DataError(f"{self.name}: the protocol's {what} rows go beyond the {n} utterances")
        empty = [model for model, rows in protocol.enrol.items() if len(rows) == 0]
        if empty:
            raise DataError(f"{self.name}: {len(empty)} enrolment(s) have no utterances: {named(empty)}")
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
                raise DataError(f"{self.name}: {len(both)} utterance(s) are {what}, the first is {first!r}")
        if protocol.trials is not None:
            _check_trials(self.name, protocol.trials, list(protocol.enrol), self.ids[protocol.test].tolist())

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
        return np.concatenate([np.zeros(0, np.int64), *self.protocol.enrol.values()]).astype(np.int64)

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
            view: classes[first] for view, classes in self.labels.items() if (classes[rows] == classes[repeated]).all()
        }

    def trial_mask(self) -> NDArray[np.bool_] | None:
        """(models, tests) which enrolment meets which test; None where all meet all."""
        protocol = self.protocol
        if protocol.trials is not None:
            mask = np.zeros((len(protocol.enrol), len(protocol.test)), dtype=bool)
            model = {name: row for row, name in enumerate(protocol.enrol)}
            column = {name: k for k, name in enumerate(self.ids[protocol.test].tolist())}
            trials = protocol.trials
            mask[[model[m] for m in trials.enrol.tolist()], [column[t] for t in trials.test.tolist()]] = True
            return mask
        if protocol.groups is None:
            return None
        return np.asarray(protocol.groups[self._first][:, None] == protocol.groups[protocol.test])

    def trial_counts(self) -> dict[str, int]:
        """Trials of every kind: TC, TW, IC and IW of two views, and so on (see `mvplda.io.trials`)."""
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
                    np.bincount(cell[first], minlength=len(self)) @ np.bincount(cell[test], minlength=len(self))
                )
            else:
                alike = int(((cell[first][:, None] == cell[test]) & listed).sum())
            # Those that agree in more views came before: what is left agrees in just these.
            wider = (n for other, n in exact.items() if all(o or not p for o, p in zip(other, pattern, strict=True)))
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
                raise LabelError(f"{self.name} has no view {view!r}; it has {', '.join(self.views)}")
            keep &= np.isin(self.labels[view], np.atleast_1d(np.asarray(classes)))
        kept = np.flatnonzero(keep)
        place = np.full(len(self), -1, dtype=np.int64)
        place[kept] = np.arange(len(kept))
        old = self.protocol
        enrol = {name: place[members][keep[members]] for name, members in old.enrol.items()}
        enrol = {name: members for name, members in enrol.items() if len(members)}
        trials = old.trials
        if trials is not None:
            there = np.isin(trials.enrol, list(enrol)) & np.isin(trials.test, self.ids[kept])
            trials = trials[np.flatnonzero(there)]
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
        classes = ", ".join(f"{len(np.unique(values))} of {view}" for view, values in self.labels.items())
        lines = [f"{self.name}: {len(self)} utterances; classes: {classes}"]
        for what, rows in (("training", protocol.train), ("evaluation", evaluation)):
            parts = ", ".join(f"{len(np.unique(values[rows]))} of {view}" for view, values in self.labels.items())
            lines.append(f"{what}: {len(rows)} utterances; {parts}")
        groups = "" if protocol.groups is None else f" in {len(np.unique(protocol.groups[evaluation]))} groups"
        lines.append(f"{len(protocol.enrol)} enrolments, {len(protocol.test)} tests{groups}")
        counts = self.trial_counts()
        listed = " (listed)" if protocol.trials is not None else ""
        lines.append(
            f"{sum(counts.values())} trials{listed}: " + ", ".join(f"{kind} {n}" for kind, n in counts.items())
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
        missing = sorted(set(wanted.tolist()) - set(there))  # sets, for lists of trials have millions of rows
        if missing:
            raise DataError(f"{name}: the trials name {len(missing)} {what}(s) that are not there: {named(missing)}")
