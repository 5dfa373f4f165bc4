"""From a corpus to vectors: of a network that is trained on it, of extractors, or of files.

A network that is trained on few speakers learns them by heart. *Voices* help: every training speaker at another speed
is one more speaker, with another pitch and another vocal tract. Some speakers are held out of the network, to choose
the epoch by; the back-end trains on them too, for they show what the network makes of people whom it was not
trained on.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...exceptions import DataError
from ...extractors import load_extractor
from ...io.vectors import VectorSet, read_vectors
from ..corpora.corpus import Corpus
from ..corpora.protocol import held_out_classes
from ..frames import FeatureSet, extract_features
from .configuration import Configuration

Say = Callable[[str], None]
TRAIN = "train"
"""Among extractors: the network that is trained on the corpus."""
EXTRACTOR_FILE = "extractor.onnx"


@dataclass(frozen=True)
class Vectors:
    """Vectors of a corpus, and what is known of how they were made.

    blocks : {extractor: columns}, where several stand side by side
    trained_on : speakers that a network was trained on
    history : of its training, one record per epoch
    skipped : (id, reason) of utterances without a vector
    """

    vectors: VectorSet
    blocks: dict[str, int] | None = None
    trained_on: tuple[str, ...] = ()
    history: tuple[Mapping[str, Any], ...] = ()
    skipped: tuple[tuple[str, str], ...] = ()


def train_on_corpus(
    corpus: Corpus,
    configuration: Configuration,
    path: Path,
    *,
    on_error: Any = "skip",
    workers: int | None = None,
    verbose: bool = False,
    say: Say = lambda text: None,
) -> Vectors:
    """Train a network on the corpus's training speakers, write it as an extractor, and make all vectors."""
    from ..networks.export import training_recipe, write_extractor
    from ..networks.training import train

    clips = _clips(corpus)
    recipe = training_recipe(configuration.features)
    training = configuration.training
    options: dict[str, Any] = {"workers": workers, "verbose": verbose}
    say(f"features of {len(corpus)} utterances")
    whole = extract_features(corpus.ids, clips, recipe, on_error=on_error, **options)
    speaker = corpus.views[0]
    usable = np.isin(whole.rows, corpus.protocol.train)
    people = corpus.labels[speaker][whole.rows].astype(np.str_)
    held = np.zeros(0, dtype=np.str_)
    names = np.unique(people[usable])
    if training.hold_out and len(names) >= 5:
        held = held_out_classes(names, training.hold_out, training.random_state)
    out = usable & np.isin(people, held)
    inside = np.flatnonzero(usable & ~out)
    rows = whole.rows[inside]
    parts = [whole.features.take(inside)]
    labels = [corpus.labels_at(rows)]
    for speed in training.voices:
        say(f"features of {len(rows)} training utterances at {speed:g} of their speed")
        chosen = [clips[row] for row in rows]
        made = extract_features(
            corpus.ids[rows], chosen, recipe, speed=speed, on_error="skip", **options
        )
        parts.append(made.features)
        own = corpus.labels_at(rows[made.rows])
        own[speaker] = np.char.add(own[speaker].astype(np.str_), f"@{speed:g}")
        labels.append(own)
    together = {
        view: np.concatenate([part[view].astype(np.str_) for part in labels])
        for view in corpus.views
    }
    features = FeatureSet.concatenate(parts)
    say(
        f"training on {len(features)} utterances of {len(np.unique(together[speaker]))} speakers; "
        f"{len(held)} speakers held out"
    )
    held_out = None
    if out.any():
        outside = np.flatnonzero(out)
        held_out = whole.features.take(outside), corpus.labels_at(whole.rows[outside])
    trained = train(
        features, together, configuration.network, training, held_out=held_out, verbose=verbose
    )
    extractor = write_extractor(trained, recipe, path)
    X = trained.extract(whole.features, training.device)
    vectors = VectorSet(corpus.ids[whole.rows], X, extractor.name)
    met = tuple(np.setdiff1d(names, held).tolist())
    return Vectors(vectors, None, met, trained.history, whole.skipped)


def extract_corpus(
    corpus: Corpus,
    extractors: Sequence[str | Path],
    *,
    on_error: Any = "skip",
    workers: int | None = None,
    verbose: bool = False,
    say: Say = lambda text: None,
) -> Vectors:
    """Vectors of extractors side by side."""
    clips = _clips(corpus)
    extractor = load_extractor(list(extractors))
    say(f"vectors of {len(corpus)} utterances: {extractor.name}")
    made = extractor.extract(
        list(clips), on_error=on_error, progress=verbose, workers=workers or os.cpu_count() or 1
    )
    left = sorted(set(range(len(corpus))) - set(made.rows))
    reasons = [reason for _, reason in made.skipped]
    skipped = tuple(zip(corpus.ids[left].tolist(), reasons, strict=True))
    parts = extractor.networks if len(extractor.networks) > 1 else []
    blocks = {f"{part.name} ({i})": part.dimension for i, part in enumerate(parts, 1)} or None
    vectors = VectorSet(corpus.ids[made.rows], made.X, extractor.name)
    return Vectors(vectors, blocks, skipped=skipped)


def read_corpus_vectors(corpus: Corpus, files: Sequence[str | Path]) -> Vectors:
    """Vectors of files, side by side: of unit length each, so that none outweighs another.

    An .npz with several arrays of vectors has several blocks.
    """
    blocks: dict[str, NDArray[Any]] = {}
    for file in files:
        for name, X in _blocks_of(Path(file), corpus).items():
            blocks[name if name not in blocks else f"{name} ({len(blocks) + 1})"] = X
    if len(blocks) == 1:
        ((name, X),) = blocks.items()
        return Vectors(VectorSet(corpus.ids, X, name))
    units = [
        X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1e-12) for X in blocks.values()
    ]
    widths = {name: int(X.shape[1]) for name, X in blocks.items()}
    return Vectors(VectorSet(corpus.ids, np.concatenate(units, axis=1), "+".join(blocks)), widths)


def _blocks_of(file: Path, corpus: Corpus) -> dict[str, NDArray[Any]]:
    if file.suffix == ".npz":
        with np.load(file) as arrays:
            tables = [name for name in arrays if arrays[name].ndim == 2]
            if len(tables) > 1 and "ids" not in arrays:
                rows = corpus.ids.astype(np.int64)
                return {name: arrays[name][rows].astype(np.float32) for name in tables}
    vectors = read_vectors(file)
    if not any(name in vectors for name in corpus.ids.tolist()):
        raise DataError(
            f"none of the corpus's {len(corpus)} utterances, such as {str(corpus.ids[0])!r}, is among the "
            f"{len(vectors)} vectors of {file}, such as {str(vectors.ids[0])!r}"
        )
    name = vectors.extractor or file.stem
    return {name: np.asarray(vectors.X[vectors.rows(corpus.ids)], dtype=np.float32)}


def _clips(corpus: Corpus) -> tuple[Any, ...]:
    if corpus.clips is None:
        raise DataError(f"{corpus.name} has no sound: give its vectors instead")
    return corpus.clips
