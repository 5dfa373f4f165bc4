"""Systems that the study `benchmarks.evidence` compares.

All have the same reduction of dimensions and exact enrolment; their ranks are chosen on held-out people."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from benchmarks.evidence_data import LabelledVectors, Split
from mvplda import CosineScorer, select_model, train
from mvplda.exceptions import MvpldaWarning
from mvplda.models.base import BaseScorer
from mvplda.models.selection import NOISES, STRUCTURES, ModelCandidate, Selection
from mvplda.preprocessing import Reduction

Array = np.ndarray
ITERATIONS = 10
"""Iterations of EM by maximum likelihood; models with a prior are computed from moments, as in their selection."""
CELL = "person:second"
SHORT = {"combined": "PLDA", "views": "two views", "interaction": "three views"}
"""Names of the structures in tables."""


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress warnings about few classes, which small data sets always give."""
    level = logging.getLogger("mvplda").level
    logging.getLogger("mvplda").setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", MvpldaWarning)
            warnings.simplefilter("ignore", ConvergenceWarning)
            yield
    finally:
        logging.getLogger("mvplda").setLevel(level)


class Reduced:
    """Vectors of a division on the principal components of its training vectors.

    dim : number of components: at most as many as the variation within cells has degrees of freedom for two
    """

    def __init__(self, split: Split, components: int) -> None:
        self.split = split
        cells = np.unique(np.stack([_codes(c) for c in split.train_labels.values()]), axis=1)
        rows = int(split.train.sum())
        self.dim = max(2, min(components, split.X.shape[1], (rows - cells.shape[1]) // 2))
        self.X = Reduction(self.dim).fit(split.X[split.train]).transform(split.X)

    def select(
        self,
        structures: Sequence[str] = STRUCTURES,
        noises: Sequence[str] = NOISES,
        **labels: Array,
    ) -> Selection:
        """Choose ranks, and strengths of priors, on held-out training people.

        labels : labels of the training vectors; by default both
        """
        columns = labels or self.split.train_labels
        allowed = [
            structure for structure in structures if len(columns) > 1 or structure == "views"
        ]
        return select_model(
            self.split.X[self.split.train],
            columns,
            structures=allowed,
            noises=noises,
            enrolment=self.split.enrolment,
            preprocessing=Reduction(self.dim),
        )

    def fitted(self, candidate: ModelCandidate, **labels: Array) -> BaseScorer:
        """Fit a candidate to all training vectors."""
        columns = dict(labels) or self.split.train_labels
        max_iter = 0 if candidate.noise == "prior" else ITERATIONS
        return candidate.make_model(max_iter=max_iter, tol=0).fit(self.X[self.split.train], columns)

    def scores(self, model: BaseScorer, **question: Any) -> Array:
        """Return the LLR of each sampled trial."""
        return trial_scores(self.split, self.X, model, **question)


def _codes(column: Array) -> Array:
    return np.unique(column.astype(str), return_inverse=True)[1]


def trial_scores(split: Split, X: Array, model: Any, **question: Any) -> Array:
    """Return the scores of the sampled trials of a division by a fitted model of the vectors X."""
    profiles = model.enrol(X[split.enrol], split.ids)
    tests = model.enrol(X[split.test])
    return np.asarray(model.llr_trials(profiles, tests, split.pairs, **question), dtype=np.float64)


def best_by(selection: Selection, structure: str, noise: str | None = None) -> ModelCandidate:
    """Return the candidate with the lowest loss of one structure, and of one noise unless it is None."""
    return next(
        candidate
        for candidate in selection.table
        if candidate.structure == structure and noise in (None, candidate.noise)
    )


def cosine_scores(split: Split, columns: slice = slice(None)) -> Array:
    """Return cosines of the vectors before reduction."""
    X = split.X[:, columns]
    return trial_scores(split, X, CosineScorer().fit(X[split.train]))


def train_scores(split: Split, data: LabelledVectors, combined: bool = False) -> tuple[str, Array]:
    """Return the experts that `mvplda.train` chooses by default, in words, and its scores.

    combined : train on the combined label alone
    """
    X = np.concatenate(list(data.blocks.values()), axis=1)
    labels = {"cell": data.cell[split.train]} if combined else split.train_labels
    bundle = train(X[split.train], labels, blocks=split.blocks, enrolment=split.enrolment, folds=0)
    choice = (bundle.card or {}).get("choice", {})
    title = choice
    if isinstance(choice, Mapping):
        title = "; ".join(f"{name}: {block['chosen']}" for name, block in choice.items())
    return str(title), trial_scores(split, X, bundle)
