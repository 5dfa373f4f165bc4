"""Utterances with labels and a protocol: all that an experiment knows of a data set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..exceptions import DataError, LabelError

StringArray = NDArray[Any]
IntArray = NDArray[np.int64]


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
    utterance, such as the speaker's gender) keeps groups apart.
    """

    train: IntArray
    enrol: Mapping[str, IntArray]
    test: IntArray
    groups: StringArray | None = None


@dataclass(frozen=True)
class Corpus:
    """Utterances, their labels in every view, where their sound lies, and a protocol.

    Attributes
    ----------
    name : the data set's name
    ids : (n,) unique names of the utterances
    labels : view -> (n,) classes
    clips : n places of sound, or None where vectors come from elsewhere
    protocol : who is trained on, enrolled and tested
    source : what to cite
    """

    name: str
    ids: StringArray
    labels: Mapping[str, StringArray]
    clips: tuple[Clip, ...] | None
    protocol: Protocol
    source: str = ""

    def __post_init__(self) -> None:
        n = len(self.ids)
        if n == 0:
            raise DataError(f"{self.name}: there are no utterances")
        if len(np.unique(self.ids)) != n:
            names, counts = np.unique(self.ids, return_counts=True)
            raise DataError(f"{self.name}: the utterance {names[counts > 1][0]!r} is there {counts.max()} times")
        for view, classes in self.labels.items():
            if len(classes) != n:
                raise LabelError(f"{self.name}: {n} utterances but {len(classes)} labels in view {view!r}")
        if self.clips is not None and len(self.clips) != n:
            raise DataError(f"{self.name}: {n} utterances but {len(self.clips)} places of sound")

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def views(self) -> tuple[str, ...]:
        return tuple(self.labels)

    def labels_at(self, rows: IntArray) -> dict[str, StringArray]:
        """The labels of some utterances."""
        return {view: classes[rows] for view, classes in self.labels.items()}
