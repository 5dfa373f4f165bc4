"""What every system is given: labelled training vectors, enrolments and tests."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...exceptions import DataError, LabelError
from ...io.vectors import VectorSet
from ...kinds import trial_kinds
from ...labels import encode_labels
from ..corpora.corpus import Corpus

if TYPE_CHECKING:
    from .extraction import Extra


def compared_views(corpus: Corpus) -> tuple[str, ...]:
    """The views in which an enrolment is of one class: two or more."""
    labels = corpus.model_labels()
    views = tuple(view for view in corpus.views if view in labels)
    if len(views) < 2:
        raise LabelError(
            f"{corpus.name}: an experiment needs two views in which an enrolment is of one class, "
            f"such as speaker and phrase; there is only {list(views)}. To compare voices alone: mvplda verify"
        )
    return views


@dataclass(frozen=True)
class Task:
    """Vectors of a corpus, sorted by what the protocol does with them.

    Attributes
    ----------
    views : the views in question, the first being the speaker
    train, train_labels : vectors (n, D) and {view: (n,) classes}
    enrol, enrol_ids : vectors and the number of the enrolment that each belongs to, ascending
    model_labels : {view: (m,) classes} of the enrolments
    test, test_labels : vectors and {view: (t,) classes}
    mask : (m, t) which trials there are; None: all
    groups : (m,) group of every enrolment, where the protocol keeps groups apart
    people : (n,) who speaks in every training vector; None: the classes of the first view
    unseen : (n,) training vectors of people that the extractor has not met, where that is known
    recorded : (n,) training vectors of recordings, not of what was made of them; None: where class and person agree
    blocks : {extractor: columns}, where the vectors of several stand side by side
    """

    views: tuple[str, ...]
    train: NDArray[Any]
    train_labels: dict[str, NDArray[Any]]
    enrol: NDArray[Any]
    enrol_ids: NDArray[np.int64]
    model_labels: dict[str, NDArray[Any]]
    test: NDArray[Any]
    test_labels: dict[str, NDArray[Any]]
    mask: NDArray[np.bool_] | None = None
    groups: NDArray[Any] | None = None
    people: NDArray[Any] | None = None
    unseen: NDArray[np.bool_] | None = None
    recorded: NDArray[np.bool_] | None = None
    blocks: dict[str, int] | None = None

    @classmethod
    def of(
        cls,
        corpus: Corpus,
        vectors: VectorSet,
        extra: Extra | None = None,
        *,
        met: Iterable[str] | None = None,
        blocks: dict[str, int] | None = None,
    ) -> Task:
        """The task that a corpus sets, with vectors of its utterances.

        Parameters
        ----------
        corpus : labels and protocol
        vectors : of all utterances that the protocol names
        extra : further training vectors
        met : classes of the first view that the extractor was trained on, where that is known
        blocks : {extractor: columns}, where the vectors of several stand side by side
        """
        protocol = corpus.protocol
        labels = corpus.model_labels()
        views = compared_views(corpus)

        def rows(which: NDArray[np.int64]) -> NDArray[Any]:
            return vectors.X[vectors.rows(corpus.ids[which])]

        train, train_labels = rows(protocol.train), corpus.labels_at(protocol.train)
        people = train_labels[corpus.views[0]].astype(np.str_)
        recorded = None if extra is None else np.arange(len(train) + len(extra.people)) < len(train)
        if extra is not None:
            train = np.concatenate([train, extra.vectors.X])
            train_labels = {
                view: np.concatenate([train_labels[view], extra.labels[view]]) for view in views
            }
            people = np.concatenate([people, extra.people])
        members = [len(part) for part in protocol.enrol.values()]
        first = np.array([part[0] for part in protocol.enrol.values()])
        groups = None if protocol.groups is None else protocol.groups[first]
        return cls(
            views,
            train,
            {view: train_labels[view] for view in views},
            rows(corpus.enrolled),
            np.repeat(np.arange(len(members)), members),
            {view: labels[view] for view in views},
            rows(protocol.test),
            {view: corpus.labels[view][protocol.test] for view in views},
            corpus.trial_mask(),
            groups,
            people,
            None if met is None else ~np.isin(people, list(met)),
            recorded,
            blocks,
        )

    @property
    def cell(self) -> str:
        """The view whose classes are cells: ``speaker:phrase``."""
        return ":".join(self.views)

    @cached_property
    def classes(self) -> dict[str, int]:
        """How many classes of every view there are to train on, cells included."""
        table = encode_labels(self.train_labels, (*self.views, self.cell))
        return {view: len(table.classes[view]) for view in table.views}

    @property
    def per_model(self) -> int:
        """Vectors of an enrolment, as most have them."""
        return int(np.median(np.bincount(self.enrol_ids)))

    @property
    def as_recorded(self) -> NDArray[np.bool_]:
        """(n,) training vectors that a trial can be made of.

        A noisy copy of an enrolled utterance, or a voice at another speed, is no trial that anybody will make.
        """
        if self.recorded is not None:
            return self.recorded
        own = self.train_labels[self.views[0]].astype(np.str_)
        return np.ones(len(own), dtype=bool) if self.people is None else own == self.people

    @property
    def without_variants(self) -> Task:
        """The same, trained on recordings alone."""
        own = self.as_recorded
        return replace(
            self,
            train=self.train[own],
            train_labels={view: values[own] for view, values in self.train_labels.items()},
            people=None if self.people is None else self.people[own],
            unseen=None if self.unseen is None else self.unseen[own],
            recorded=None,
        )

    @property
    def fair(self) -> NDArray[np.bool_]:
        """(n,) training vectors of recordings of people whom no extractor has met, where there are such."""
        unseen = self.as_recorded & (True if self.unseen is None else self.unseen)
        return unseen if unseen.any() else self.as_recorded

    @property
    def targets(self) -> NDArray[np.bool_]:
        """(models, tests) which trials are of the same class in every view."""
        return next(iter(self.kinds.values()))

    @cached_property
    def kinds(self) -> dict[str, NDArray[np.bool_]]:
        """Masks of the kinds of trials, (models, tests)."""
        kinds = trial_kinds(self.model_labels, self.test_labels)
        if self.mask is not None:
            kinds = {kind: mask & self.mask for kind, mask in kinds.items()}
        if not any(mask.any() for mask in list(kinds.values())[1:]):
            raise DataError("the protocol has no non-target trials")
        return kinds


def score(model: Any, task: Task, *, method: str | None = None, **question: Any) -> NDArray[Any]:
    """Scores of all enrolments against all tests, by anything that enrols and compares."""
    options = {} if method is None else {"method": method}
    profiles = model.enrol(task.enrol, task.enrol_ids, **options)
    return np.asarray(model.llr(profiles, task.test, **question))
