"""From a corpus to vectors: features, voices and copies, a network, and vectors of everything.

A network that is trained on few speakers learns them by heart. Two things are done about it.
*Voices*: every training speaker at another speed is one more speaker, with another pitch and
another vocal tract. *Copies*: every training utterance again in noise, in a room, over a
channel. Some speakers are held out of the network, to choose the epoch by; the back-end
trains on them too, for they show what the network makes of people that it has not met.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..._typing import IntArray
from ...exceptions import AudioError, DataError, NumericalError
from ...io.vectors import VectorSet
from ..corpora.corpus import Corpus, held_out_classes
from ..features.augmentation import Channel, Noise, Recipe, Room, Speed
from ..features.extract import Augmentation, extract_features
from ..features.frames import FeatureSettings
from ..features.store import FeatureSet
from ..networks.settings import NetworkSettings, Training
from ..settings import Rule, Settings, Whole

BABBLE = 40
"""Training utterances of which babble is made."""

OTHER_RECORDINGS = Recipe((Room(0.4), Noise(0.7, kinds=("white", "pink", "babble")), Channel(0.4)))


@dataclass(frozen=True)
class Variants(Settings):
    """What is made of the training utterances beside themselves.

    voices : speeds, each of which makes new speakers
    copies : how often every utterance, in every voice, is changed by the recipe
    recipe : noise, room and channel of a copy
    backend : whose vectors train the back-end: "speakers" (the corpus's own), "voices" (those
        of other speeds too), "copies" (everything; of extractors from elsewhere, as "voices"). ``best`` takes
        them if held-out speakers are the better for it
    """

    voices: Annotated[
        tuple[float, ...],
        Rule(
            lambda speeds: all(0.5 <= v <= 2 and v != 1 for v in speeds),
            "are speeds from 0.5 to 2 other than 1",
        ),
        Rule(
            lambda speeds: len(set(speeds)) == len(speeds),
            "make other speakers each, so none stands twice",
        ),
    ] = ()
    copies: Whole = 0
    recipe: Recipe = field(default_factory=lambda: OTHER_RECORDINGS)
    backend: Literal["speakers", "voices", "copies"] = "speakers"


@dataclass(frozen=True)
class Part:
    """Utterances of one voice and one copy, whose they are, and which of the corpus they were made of."""

    features: FeatureSet
    labels: dict[str, NDArray[Any]]
    voice: float
    copy: int
    rows: IntArray


@dataclass(frozen=True)
class Material:
    """Frames of a corpus: of all its utterances, and the variants of the training ones.

    rows : which utterances have frames, in the order of ``everything``
    skipped : (id, reason) of those that have none
    """

    everything: FeatureSet
    rows: IntArray
    variants: tuple[Part, ...]
    skipped: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Extra:
    """Vectors of variants, their labels, and the person behind each: a voice at another speed is the same person."""

    vectors: VectorSet
    labels: dict[str, NDArray[Any]]
    people: NDArray[Any]


@dataclass(frozen=True)
class Vectors:
    """Vectors of a corpus, and of the variants that the back-end trains on.

    blocks : {extractor: columns}, where several stand side by side
    """

    everything: VectorSet
    extra: Extra | None
    extractor: Any
    skipped: tuple[tuple[str, str], ...] = field(default=())
    blocks: dict[str, int] | None = None


def extract_corpus_features(
    corpus: Corpus,
    settings: FeatureSettings,
    variants: Variants,
    *,
    cache: str | os.PathLike[str] | None = None,
    on_error: Literal["raise", "skip"] = "raise",
    workers: int | None = None,
    verbose: bool = False,
    say: Callable[[str], None] = lambda text: None,
) -> Material:
    """Frames of all utterances, and of the training ones in every voice and copy."""
    if corpus.clips is None:
        raise DataError(f"{corpus.name} has no sound: give its vectors instead")
    clips = corpus.clips
    options: dict[str, Any] = {
        "cache": cache,
        "workers": workers,
        "verbose": verbose,
        "dtype": np.float32,
    }
    say(f"features of {len(corpus)} utterances")
    found = extract_features(corpus.ids, clips, settings, on_error=on_error, **options)
    number = {name: row for row, name in enumerate(corpus.ids.tolist())}
    rows = np.array([number[name] for name in found.features.ids.tolist()], dtype=np.int64)
    train = np.intersect1d(corpus.protocol.train, rows)
    babble = tuple(clips[row] for row in train[:: max(1, len(train) // BABBLE)][:BABBLE])
    parts = []
    for voice in (1.0, *variants.voices):
        for copy in range(variants.copies + 1):
            if voice == 1.0 and copy == 0:
                continue
            steps = (() if voice == 1.0 else (Speed(factor=(voice, voice)),)) + (
                variants.recipe.steps if copy else ()
            )
            changed = Augmentation(Recipe(steps), random_state=copy, babble=babble if copy else ())
            say(f"features of {len(train)} training utterances, voice {voice:g}, copy {copy}")
            part = extract_features(
                corpus.ids[train],
                [clips[row] for row in train],
                settings,
                on_error="skip",
                augment=changed,
                **options,
            ).features
            own = np.array([number[name] for name in part.ids.tolist()], dtype=np.int64)
            labels = corpus.labels_at(own)
            first = corpus.views[0]
            if voice != 1.0:
                labels[first] = np.char.add(labels[first].astype(np.str_), f"@{voice:g}")
            names = np.char.add(part.ids.astype(np.str_), f"@{voice:g}#{copy}")
            parts.append(
                Part(FeatureSet(names, part.frames, part.offsets), labels, voice, copy, own)
            )
    return Material(found.features, rows, tuple(parts), found.skipped)


def train_extractor(
    corpus: Corpus,
    material: Material,
    network: NetworkSettings,
    training: Training,
    feature_settings: FeatureSettings,
    *,
    verbose: bool = False,
    say: Callable[[str], None] = lambda text: None,
) -> Any:
    """A network for the corpus's training speakers, some of them held out to choose the epoch by."""
    from ..networks.training import train

    speaker = corpus.views[0]
    place = {row: i for i, row in enumerate(material.rows.tolist())}
    rows = np.array([row for row in corpus.protocol.train.tolist() if row in place], dtype=np.int64)
    people = corpus.labels[speaker][rows].astype(np.str_)
    held = np.zeros(0, dtype=np.str_)
    number = len(np.unique(people))
    if training.hold_out and number < 5:
        say(f"{number} training speakers are too few to hold any out: the last epoch is kept")
    elif training.hold_out:
        held = held_out_classes(people, training.hold_out, training.random_state)
    out = np.isin(people, held)

    def own(chosen: IntArray) -> FeatureSet:
        return material.everything.take(
            np.array([place[row] for row in chosen.tolist()], dtype=np.int64)
        )

    sets, labels = [own(rows[~out])], [corpus.labels_at(rows[~out])]
    for part in material.variants:
        stays = np.flatnonzero(~np.isin(corpus.labels[speaker][part.rows].astype(np.str_), held))
        sets.append(part.features.take(stays))
        labels.append({view: values[stays] for view, values in part.labels.items()})
    together = {
        view: np.concatenate([part[view].astype(np.str_) for part in labels])
        for view in corpus.views
    }
    held_out = (own(rows[out]), corpus.labels_at(rows[out])) if out.any() else None
    features = FeatureSet.concatenate(sets)
    say(
        f"training on {len(features)} utterances of {len(np.unique(together[speaker]))} speakers"
        + (f"; {len(held)} speakers held out" if len(held) else "")
    )
    return train(
        features,
        together,
        network,
        replace(training, hold_out=0.0),
        held_out=held_out,
        feature_settings=feature_settings.to_dict(),
        verbose=verbose,
    )


def other_voices(
    corpus: Corpus, rows: IntArray, extractor: Any, voices: Sequence[float], workers: int = 1
) -> Extra:
    """Vectors that an extractor from elsewhere makes of utterances at other speeds: each is one more speaker."""
    from ..features.reading import read_audio

    assert corpus.clips is not None
    clips, speaker = corpus.clips, corpus.views[0]

    def vector(place: tuple[int, float]) -> Any:
        row, voice = place
        try:  # fewer samples a second, taken for as many as ever: pitch and tempo rise together
            return extractor(read_audio(clips[row], round(extractor.rate / voice)), extractor.rate)
        except (AudioError, NumericalError, OSError):
            return None

    places = [(row, voice) for voice in voices for row in rows.tolist()]
    with ThreadPoolExecutor(workers) as pool:
        made = list(pool.map(vector, places))
    kept = [(place, x) for place, x in zip(places, made, strict=True) if x is not None]
    own = np.asarray([row for (row, _), _ in kept], dtype=np.int64)
    marks = np.asarray([f"@{voice:g}" for (_, voice), _ in kept], dtype=np.str_)
    labels = corpus.labels_at(own)
    people = labels[speaker].astype(np.str_)
    labels[speaker] = np.char.add(people, marks)
    names = np.char.add(corpus.ids[own].astype(np.str_), marks)
    X = np.asarray([x for _, x in kept], dtype=np.float32).reshape(len(kept), extractor.dimension)
    return Extra(VectorSet(names, X, extractor.name), labels, people)


def extract_everything(
    corpus: Corpus, material: Material, extractor: Any, variants: Variants, *, device: str = "auto"
) -> Vectors:
    """Vectors of all utterances, and of the variants that the back-end is to see."""
    vectors = VectorSet(
        material.everything.ids,
        extractor.extract(material.everything, device=device),
        extractor.name,
    )
    chosen = [
        part
        for part in material.variants
        if variants.backend == "copies" or (variants.backend == "voices" and part.copy == 0)
    ]
    extra = None
    if chosen:
        features = FeatureSet.concatenate([part.features for part in chosen])
        labels = {
            view: np.concatenate([part.labels[view].astype(np.str_) for part in chosen])
            for view in chosen[0].labels
        }
        people = np.concatenate(
            [corpus.labels[corpus.views[0]][part.rows].astype(np.str_) for part in chosen]
        )
        own = VectorSet(features.ids, extractor.extract(features, device=device), extractor.name)
        extra = Extra(own, labels, people)
    return Vectors(vectors, extra, extractor, material.skipped)
