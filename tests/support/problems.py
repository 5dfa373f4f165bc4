"""Small data sets drawn from known models, one for every kind of design."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from mvplda import SufficientStatistics
from mvplda.inference.design import Design
from mvplda.inference.parameters import NoiseModel, Parameters
from mvplda.io import Trials
from mvplda.labels import encode_labels

T = TypeVar("T")


def there(value: T | None) -> T:
    """A value that must not be None."""
    assert value is not None
    return value


def trials_of(enrol: Any, test: Any, kind: Any = None) -> Trials:
    """Trials of lists of names."""
    return Trials(np.array(enrol), np.array(test), None if kind is None else np.array(kind))


NOISES = ("diagonal", "full")


def crossed(a: int, b: int, times: int) -> tuple[np.ndarray, np.ndarray]:
    """Every class of one view with every class of another, `times` vectors each."""
    first, second = np.divmod(np.repeat(np.arange(a * b), times), b)
    return first, second


def uneven(rng: np.random.Generator, classes: int, n: int) -> np.ndarray:
    """Labels 0 .. classes - 1 with very different counts, every class present."""
    weights = np.arange(1, classes + 1) ** 1.5
    drawn = rng.choice(classes, size=n - classes, p=weights / weights.sum())
    return rng.permutation(np.concatenate([np.arange(classes), drawn]))


def _labels(name: str, rng: np.random.Generator) -> dict[str, Any]:
    if name == "balanced":
        return dict(zip("ab", crossed(5, 3, 2), strict=True))
    if name == "few classes":
        return dict(zip("ab", crossed(2, 2, 5), strict=True))
    if name == "nested":  # sessions inside speakers, phrases across both
        session = uneven(rng, 9, 36)
        return {"a": session % 4, "s": session, "b": uneven(rng, 3, 36)}
    labels: dict[str, Any] = {v: uneven(rng, c, 36) for v, c in (("a", 7), ("b", 4), ("c", 3))}
    if "missing" in name:
        labels = {
            v: [None if rng.random() < 0.2 else f"{v}{i}" for i in c] for v, c in labels.items()
        }
    return labels


DESIGNS: dict[str, dict[str, int]] = {
    "one view": {"a": 2},
    "balanced": {"a": 2, "b": 1},
    "few classes": {"a": 1, "b": 2},
    "unbalanced": {"a": 2, "b": 3},
    "three views": {"a": 2, "b": 1, "c": 2},
    "interaction": {"a": 2, "b": 2, "a:b": 1},
    "interaction first": {"b:a": 2, "b": 1, "a": 2},
    "interaction of three": {"a": 2, "b": 1, "c": 1, "a:b:c": 2},
    "two interactions": {"a": 1, "b": 2, "c": 1, "a:b": 2, "b:c": 1},
    "nested": {"a": 2, "s": 1, "b": 2},
    "nested alone": {"s": 2, "a": 1},
    "missing": {"a": 2, "b": 2},
    "missing, interaction": {"a": 2, "b": 1, "a:b": 2},
}


@dataclass(frozen=True)
class Problem:
    """Vectors, labels, class numbers of every view, and the parameters they were drawn from."""

    X: np.ndarray
    labels: dict[str, Any]
    views: dict[str, int]
    codes: list[np.ndarray]
    parameters: Parameters

    def statistics(self, **options: Any) -> SufficientStatistics:
        return SufficientStatistics.from_arrays(
            self.X, self.labels, views=tuple(self.views), **options
        )

    def design(self, noise: str) -> tuple[Design, np.ndarray]:
        """What the kernel works on, and the origin that its mean is relative to."""
        statistics = self.statistics()
        sums = statistics.for_views(tuple(self.views), "full" if noise == "full" else "diagonal")
        return Design.of(sums, tuple(self.views.values())), statistics.origin


def problem(name: str, noise: str = "diagonal", *, dimension: int = 4, seed: int = 0) -> Problem:
    rng = np.random.default_rng([seed, *name.encode()])
    labels, views = _labels("nested" if name.startswith("nested") else name, rng), DESIGNS[name]
    table = encode_labels(labels, tuple(views))
    parameters = random_parameters(rng, dimension, tuple(views.values()), noise)
    codes = [table.codes[v] for v in views]
    return Problem(draw(rng, codes, parameters), labels, views, codes, parameters)


def random_parameters(
    rng: np.random.Generator, dimension: int, ranks: tuple[int, ...], noise: str
) -> Parameters:
    """A model with a mean far from zero and noise of the size of the signal."""
    root = 0.5 * rng.normal(size=(dimension, dimension))
    sigma = {
        "full": root @ root.T + 0.2 * np.eye(dimension),
        "diagonal": rng.uniform(0.2, 1.5, dimension),
    }[noise]
    loadings = tuple(rng.normal(size=(dimension, r)) for r in ranks)
    return Parameters(5.0 + 3.0 * rng.normal(size=dimension), loadings, sigma)


def draw(rng: np.random.Generator, codes: list[np.ndarray], p: Parameters) -> np.ndarray:
    n, dimension = len(codes[0]), len(p.mean)
    covariance = np.diag(p.noise) if p.noise.ndim == 1 else p.noise
    X = np.asarray(p.mean) + rng.multivariate_normal(np.zeros(dimension), covariance, size=n)
    for code, loading in zip(codes, p.loadings, strict=True):
        X += rng.normal(size=(code.max() + 1, loading.shape[1]))[code] @ loading.T
    return X


def perturbed(p: Parameters, rng: np.random.Generator) -> Parameters:
    """Other parameters of the same shape: somewhere that EM still has to move from."""
    noise = p.noise * 1.7
    loadings = tuple(b + 0.5 * rng.normal(size=b.shape) for b in p.loadings)
    return Parameters(p.mean + 0.3 * rng.normal(size=p.mean.shape), loadings, noise)


def about(p: Parameters, origin: np.ndarray) -> Parameters:
    return replace(p, mean=p.mean - origin)


def noise_model(
    kind: Any, dimension: int, *, floor: float = 1e-6, weight: float = 0.0
) -> NoiseModel:
    return NoiseModel(kind, np.full(dimension, floor), np.linspace(1.0, 2.0, dimension), weight)


def speakers_and_phrases(noise: str = "diagonal") -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """270 vectors of 8 dimensions: 15 speakers (text) x 6 phrases (numbers) x 3, of ranks 3 and 2."""
    rng = np.random.default_rng(0)
    codes = list(crossed(15, 6, 3))
    labels = {"speaker": np.array([f"s{i}" for i in codes[0]]), "phrase": codes[1]}
    return draw(rng, codes, random_parameters(rng, 8, (3, 2), noise)), labels
