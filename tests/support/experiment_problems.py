"""Small corpora of drawn vectors and of hummed tunes, for tests of experiments."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from mvplda import MultiviewPLDA
from mvplda.io.vectors import VectorSet
from mvplda.speech.corpora.corpus import Corpus
from mvplda.speech.corpora.folder import corpus_of_vectors
from mvplda.speech.experiment.systems import BackendSettings
from mvplda.speech.experiment.task import Task

SMALL = BackendSettings(
    reduce=15,
    paper_rank=4,
    speaker_rank=5,
    cell_rank=6,
    components=12,
    shrinkages=(0.02, 0.1),
    random_state=0,
)
RANKS = {"speaker": 4, "phrase": 3, "channel": 2, "speaker:phrase": 3}
SIZES = {"speaker": 1.0, "phrase": 1.3, "channel": 0.7, "speaker:phrase": 0.4}


def drawn(
    classes: dict[str, int],
    sessions: int = 5,
    *,
    dimension: int = 15,
    noise: float = 1.0,
    views: tuple[str, ...] = ("speaker", "phrase", "speaker:phrase"),
    seed: int = 0,
    **protocol: Any,
) -> tuple[Corpus, VectorSet]:
    """A corpus of every class with every other, and vectors of a known model, in an order of their own."""
    rng = np.random.default_rng(seed)
    names = [*classes]
    codes = [a.reshape(-1) for a in np.indices((*classes.values(), sessions))]
    labels = {
        name: np.array([f"{name[0]}{c:02d}" for c in code])
        for name, code in zip(names, codes, strict=False)
    }
    ids = np.array(["-".join(map(str, row)) for row in zip(*codes, strict=True)])
    loadings = {view: SIZES[view] * rng.standard_normal((dimension, RANKS[view])) for view in views}
    truth = MultiviewPLDA.from_parameters(
        rng.standard_normal(dimension), loadings, noise * rng.gamma(4, 0.5, dimension)
    )
    X = truth.sample(labels, random_state=seed)
    corpus = corpus_of_vectors(ids, labels, codes[-1], name="drawn", random_state=seed, **protocol)
    order = rng.permutation(len(ids))
    return corpus, VectorSet(ids[order], X[order], "drawn")


def drawn_task(classes: dict[str, int] | None = None, **options: Any) -> Task:
    return Task.of(*drawn(classes or {"speaker": 18, "phrase": 4}, **options))


def in_groups(corpus: Corpus, groups: Any) -> Corpus:
    """The same corpus, its groups kept apart."""
    return replace(corpus, protocol=replace(corpus.protocol, groups=np.asarray(groups)))


def hum(
    root: Path, speakers: list[str], *, tunes: int = 2, sessions: int = 5, seed: int = 0
) -> Path:
    """Voices of their own pitch humming tunes: <root>/<speaker>/tune<k>_<session>.wav."""
    import soundfile

    rng = np.random.default_rng(seed)
    time = np.arange(int(0.3 * 16000)) / 16000
    shapes = ([1, 1.3], [1.5, 1], [1, 1.8])[:tunes]
    for s, speaker in enumerate(speakers):
        (root / speaker).mkdir(parents=True, exist_ok=True)
        for t, shape in enumerate(shapes):
            for session in range(sessions):
                pitch = (
                    np.interp(time, [0, 0.3], shape) * (110 + 25 * s) * (1 + 0.01 * rng.normal())
                )
                phase = 2 * np.pi * np.cumsum(pitch) / 16000
                wave = sum(np.sin(k * phase) / k ** (0.5 + 0.2 * (s % 4)) for k in range(1, 20))
                wave = 0.05 * wave + 0.003 * rng.normal(size=len(time))
                soundfile.write(
                    root / speaker / f"tune{t}_{session}.wav", wave.astype(np.float32), 16000
                )
    return root
