"""What every system is given: labelled training vectors, enrolments and tests."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...exceptions import DataError, LabelError
from ...io.vectors import VectorSet
from ...kinds import trial_kinds
from ...labels import encode_labels
from ..corpora.corpus import Corpus


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
    unseen : (n,) training vectors of speakers that the extractor was not trained on, where that is known
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
    unseen: NDArray[np.bool_] | None = None
    blocks: dict[str, int] | None = None

    @classmethod
    def of(
        cls,
        corpus: Corpus,
        vectors: VectorSet,
        *,
        trained_on: Collection[str] = (),
        blocks: dict[str, int] | None = None,
    ) -> Task:
        """The task that a corpus sets, with vectors of its utterances.

        Parameters
        ----------
        trained_on : classes of the first view that the extractor was trained on, where that is known
        blocks : {extractor: columns}, where the vectors of several stand side by side
        """
        protocol = corpus.protocol
        views = compared_views(corpus)
        model_labels = corpus.model_labels()
        sizes = [len(rows) for rows in protocol.enrol.values()]
        X = vectors.X[vectors.rows(corpus.ids)]
        speakers = corpus.labels[views[0]][protocol.train].astype(np.str_)
        groups = protocol.groups
        return cls(
            views,
            X[protocol.train],
            {view: corpus.labels[view][protocol.train] for view in views},
            X[protocol.enrolled],
            np.repeat(np.arange(len(sizes)), sizes),
            {view: model_labels[view] for view in views},
            X[protocol.test],
            {view: corpus.labels[view][protocol.test] for view in views},
            corpus.trial_mask(),
            None if groups is None else groups[protocol.first],
            ~np.isin(speakers, list(trained_on)) if trained_on else None,
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
    def held_out_trials(self) -> NDArray[np.bool_] | None:
        """(n,) training vectors that trials may be made of: of people whom the extractor was not trained on."""
        if self.unseen is None or not self.unseen.any():
            return None
        return self.unseen

    @cached_property
    def kinds(self) -> dict[str, NDArray[np.bool_]]:
        """Masks of the kinds of trials, (models, tests); the first are the targets."""
        kinds = trial_kinds(self.model_labels, self.test_labels)
        if self.mask is not None:
            kinds = {kind: mask & self.mask for kind, mask in kinds.items()}
        if not any(mask.any() for mask in list(kinds.values())[1:]):
            raise DataError("the protocol has no non-target trials")
        return kinds
