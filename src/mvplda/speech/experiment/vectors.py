"""From a corpus to vectors, of a network that is trained on it, of extractors or of files; what systems are given."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ...exceptions import DataError, LabelError
from ...extractors import load_extractor
from ...extractors.sound import Clip
from ...io.vectors import VectorSet, read_vectors
from ...kinds import trial_kinds
from ...labels import encode_labels
from ..corpora.corpus import Corpus
from ..frames import extract_features
from .configuration import Configuration

LARGE = 10**7
"""Weights of a network from which on an estimate of its training is made."""
Say = Callable[[str], None]


@dataclass(frozen=True)
class Reading:
    """How sound is read, and what is shown of it.

    on_error : "skip" goes on without utterances that cannot be read, and names them; "raise" stops
    workers : processes; None: one per core
    """

    on_error: Literal["raise", "skip"] = "skip"
    workers: int | None = None
    verbose: bool = False
    say: Say = lambda text: None


@dataclass(frozen=True)
class Vectors:
    """Vectors of a corpus, and what is known of how they were made.

    blocks : {extractor: columns}, where several stand side by side
    history : of a network's training, one record per epoch
    skipped : (id, reason) of utterances without a vector
    """

    vectors: VectorSet
    blocks: dict[str, int] | None = None
    history: tuple[Mapping[str, Any], ...] = ()
    skipped: tuple[tuple[str, str], ...] = ()


def train_on_corpus(
    corpus: Corpus, configuration: Configuration, path: Path, reading: Reading
) -> Vectors:
    """Train a network on the corpus's training speakers, write it as an extractor, and make all vectors."""
    from ..networks.export import training_recipe, write_extractor
    from ..networks.training import estimated_hours, train

    clips = _clips(corpus)
    recipe = training_recipe(configuration.features)
    training = configuration.training
    reading.say(f"features of {len(corpus)} utterances")
    whole = extract_features(
        corpus.ids,
        clips,
        recipe,
        on_error=reading.on_error,
        workers=reading.workers,
        verbose=reading.verbose,
    )
    used = np.flatnonzero(np.isin(whole.rows, corpus.protocol.train))
    labels = corpus.labels_at(whole.rows[used], corpus.views)
    speakers = len(np.unique(labels[corpus.views[0]]))
    reading.say(f"training on {len(used)} utterances of {speakers} speakers")
    features = whole.features.take(used)
    if configuration.network.weights > LARGE:
        hours = estimated_hours(features, labels, configuration.network, training)
        reading.say(
            f"about {hours:.1f} hours on this machine; it goes on after an interruption with"
        )
        reading.say(f"-s training.checkpoint={training.checkpoint or 'FILE'}")
    trained = train(features, labels, configuration.network, training, verbose=reading.verbose)
    extractor = write_extractor(trained, recipe, path)
    X = trained.extract(whole.features, training.device)
    vectors = VectorSet(corpus.ids[whole.rows], X, extractor.name)
    return Vectors(vectors, None, trained.history, whole.skipped)


def extract_corpus(corpus: Corpus, extractors: Sequence[str | Path], reading: Reading) -> Vectors:
    """Vectors of extractors side by side."""
    clips = _clips(corpus)
    extractor = load_extractor(list(extractors))
    reading.say(f"vectors of {len(corpus)} utterances: {extractor.name}")
    made = extractor.extract(
        list(clips),
        on_error=reading.on_error,
        progress=reading.verbose,
        workers=reading.workers or os.cpu_count() or 1,
    )
    left = np.setdiff1d(np.arange(len(corpus)), made.rows)
    reasons = [reason for _, reason in made.skipped]
    skipped = tuple(zip(corpus.ids[left].tolist(), reasons, strict=True))
    blocks = None
    if len(extractor.networks) > 1:
        blocks = {f"{one.name} ({i})": one.dimension for i, one in enumerate(extractor.networks, 1)}
    vectors = VectorSet(corpus.ids[made.rows], made.X, extractor.name)
    return Vectors(vectors, blocks, skipped=skipped)


def _clips(corpus: Corpus) -> tuple[Clip, ...]:
    if corpus.clips is None:
        raise DataError(f"{corpus.name} has no sound: give its vectors instead")
    return corpus.clips


def read_corpus_vectors(corpus: Corpus, files: Sequence[str | Path]) -> Vectors:
    """Vectors of files, side by side: of unit length each, so that none outweighs another.

    An .npz with several arrays of vectors has several blocks.
    """
    blocks: dict[str, NDArray[Any]] = {}
    for file in files:
        for name, X in _blocks_of(Path(file), corpus).items():
            blocks[name if name not in blocks else f"{name} ({len(blocks) + 1})"] = X
    (X, *others) = blocks.values()
    widths = None
    if others:
        widths = {name: int(block.shape[1]) for name, block in blocks.items()}
        lengths = [np.linalg.norm(block, axis=1, keepdims=True) for block in blocks.values()]
        units = [b / np.maximum(n, 1e-12) for b, n in zip(blocks.values(), lengths, strict=True)]
        X = np.concatenate(units, axis=1)
    return Vectors(VectorSet(corpus.ids, X, "+".join(blocks)), widths)


def _blocks_of(file: Path, corpus: Corpus) -> dict[str, NDArray[Any]]:
    if file.suffix == ".npz":
        with np.load(file) as arrays:
            tables = [name for name in arrays if arrays[name].ndim == 2]
            if len(tables) > 1 and "ids" not in arrays:
                rows = corpus.ids.astype(np.int64)
                return {name: arrays[name][rows].astype(np.float32) for name in tables}
    vectors = read_vectors(file)
    if not np.isin(corpus.ids, vectors.ids).any():
        raise DataError(
            f"none of the corpus's {len(corpus)} utterances, such as {str(corpus.ids[0])!r}, is among the "
            f"{len(vectors)} vectors of {file}, such as {str(vectors.ids[0])!r}"
        )
    X = vectors.X[vectors.rows(corpus.ids)].astype(np.float32)
    return {vectors.extractor or file.stem: X}


def compared_views(corpus: Corpus) -> tuple[str, ...]:
    """The views in which an enrolment is of one class: two or more."""
    views = tuple(corpus.model_labels())
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
    blocks: dict[str, int] | None = None

    @classmethod
    def of(cls, corpus: Corpus, vectors: VectorSet, blocks: dict[str, int] | None = None) -> Task:
        """The task that a corpus sets, with vectors of its utterances."""
        protocol = corpus.protocol
        views = compared_views(corpus)
        sizes = [len(rows) for rows in protocol.enrol.values()]
        X = vectors.X[vectors.rows(corpus.ids)]
        groups = protocol.groups
        return cls(
            views,
            X[protocol.train],
            corpus.labels_at(protocol.train, views),
            X[protocol.enrolled],
            np.repeat(np.arange(len(sizes)), sizes),
            corpus.model_labels(),
            X[protocol.test],
            corpus.labels_at(protocol.test, views),
            corpus.trial_mask(),
            groups[protocol.first] if groups is not None else None,
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

    @cached_property
    def kinds(self) -> dict[str, NDArray[np.bool_]]:
        """Masks of the kinds of trials, (models, tests); the first are the targets."""
        kinds = trial_kinds(self.model_labels, self.test_labels)
        if self.mask is not None:
            kinds = {kind: mask & self.mask for kind, mask in kinds.items()}
        if not any(mask.any() for mask in list(kinds.values())[1:]):
            raise DataError("the protocol has no non-target trials")
        return kinds
