"""Vectors drawn from a model batch by batch, so that only the vectors themselves are in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

ROWS = 4096


def draw(
    codes: Sequence[Any],
    ranks: Sequence[int],
    dimension: int,
    dtype: str = "float64",
    seed: int = 0,
) -> Any:
    """(n, D) vectors with class numbers `codes`, one column a view: unit noise, half as much signal a view."""
    rng = np.random.default_rng(seed)
    effects = []
    for code, rank in zip(codes, ranks):  # noqa: B905 - also runs under the old interpreters of peers
        loading = rng.standard_normal((rank, dimension)) / np.sqrt(2 * rank)
        effects.append((rng.standard_normal((int(code.max()) + 1, rank)) @ loading).astype(dtype))
    X = np.empty((len(codes[0]), dimension), dtype=dtype)
    for start in range(0, len(X), ROWS):
        part = slice(start, start + ROWS)
        X[part] = rng.standard_normal(X[part].shape, dtype=dtype)
        for code, effect in zip(codes, effects):  # noqa: B905
            X[part] += effect[code[part]]
    return X


def equal_classes(classes: int, each: int) -> Any:
    """Class numbers of `each` vectors of every class."""
    return np.repeat(np.arange(classes), each)


def uneven_classes(classes: int, each: int, seed: int = 1) -> Any:
    """The same number of vectors, in classes of half to one and a half times as many."""
    sizes = np.random.default_rng(seed).integers(each // 2, each + each // 2 + 1, size=classes)
    while sizes.sum() != classes * each:
        error = classes * each - int(sizes.sum())
        some = np.random.default_rng(seed).permutation(classes)[: abs(error)]
        sizes[some] += np.sign(error)
    return np.repeat(np.arange(classes), sizes)


def people_with_sound(vectors: Path) -> list[str]:
    """Of a corpus of the shared data: those whose sound lies beside the vectors, and made the default model."""
    sound = vectors.with_suffix("")
    return sorted(path.name for path in sound.iterdir()) if sound.is_dir() else []


def whole(data: Mapping[str, np.ndarray]) -> bool:
    """Whether there are vectors of every extractor of the default model."""
    return "resnet" in data


CVAU_SECONDS, SPEECH_COMMANDS_SECONDS = 2.6, 0.65
"""Median duration of the speech in a recording of the people whose sound is in the shared data."""


def as_default(
    data: Mapping[str, np.ndarray], rows: Any = slice(None), *, seconds: float
) -> np.ndarray:
    """Return vectors as the default model takes them, or `default_of_two` if the data lack `resnet` and `sounds`.

    The shared data have CAM++ and words only.

    seconds : duration of all recordings if the data lack `sounds`; calibrations of the voice depend on it
    """
    # peers' interpreters run this file without the package
    from mvplda.voice.default_model import default_recipes
    from tools.default_model.trials import BLOCKS

    voices, words = data["camp"][rows], data["words"][rows]
    if whole(data):
        resnet, sounds = data["resnet"][rows], data["sounds"][rows]
    else:
        resnet = np.ones((len(voices), BLOCKS["resnet"][0]))
        width = BLOCKS["sounds"][0]
        sounds = np.ones((len(voices), width))
        # the duration is stored relative to the length of a point, which is 1
        sounds[:, :-1] *= np.sqrt(default_recipes()["sounds"].windows.points / (width - 1))
        sounds[:, -1] = seconds
    return np.hstack([voices, resnet, words, sounds]).astype(np.float64)


def default_for(data: Mapping[str, np.ndarray]) -> Any:
    """Return the default model, or `default_of_two` for data without ResNet."""
    from mvplda.model_files import load_model
    from mvplda.voice.default_model import DEFAULT_MODEL

    return load_model(DEFAULT_MODEL) if whole(data) else default_of_two()


def default_of_two() -> Any:
    """Return the default model without its block `resnet`; thresholds and calibrations stay those of the whole."""
    from mvplda.model_files import load_model
    from mvplda.voice.default_model import DEFAULT_MODEL

    bundle = load_model(DEFAULT_MODEL)
    bundle.scorer.weights = {**bundle.scorer.weights, "resnet": 0.0}
    return bundle
