"""A kind of noise is one class and one line of the registry; kinds that are registered here go all the way."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dense import dense_posterior
from dense_scoring import hypothesis_log_density
from problems import Problem, problem

from mvplda import MultiviewPLDA
from mvplda._typing import AnyArray
from mvplda.inference.parameters import (
    NOISES,
    DiagonalNoise,
    FullNoise,
    NoiseModel,
    Parameters,
    noise_of,
)

SHAPE = np.array([1.0, 2.0, 0.5, 3.0])
INSIDE = np.kron(np.eye(2), np.ones((2, 2)))


class ScaledNoise(DiagonalNoise):
    """s times variances that are known but for their scale."""

    kind = "scaled"

    @classmethod
    def estimate(cls, scatter: AnyArray, n: float, model: NoiseModel) -> AnyArray:
        variances = super().estimate(scatter, n, model)
        return SHAPE * (variances / SHAPE).mean()


class BlockNoise(FullNoise):
    """Two groups of columns that are independent of each other."""

    kind = "block"

    @classmethod
    def estimate(cls, scatter: AnyArray, n: float, model: NoiseModel) -> AnyArray:
        full = np.diag(scatter) if scatter.ndim == 1 else scatter
        return super().estimate(full * INSIDE, n, model)


TOYS = {"scaled": ScaledNoise, "block": BlockNoise}


@pytest.fixture(params=TOYS)
def toy(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setitem(NOISES, request.param, TOYS[request.param])
    return str(request.param)


def fitted(p: Problem, kind: str, **settings: object) -> MultiviewPLDA:
    model = MultiviewPLDA(p.views, noise=kind, **{"tol": 1e-12, "max_iter": 3000, **settings})
    return model.fit(p.X, p.labels)


def likelihood(p: Problem, model: MultiviewPLDA, noise: np.ndarray) -> float:
    parameters = Parameters(model.mean_, tuple(model.loadings_.values()), noise)
    return dense_posterior(p.X, p.codes, parameters).log_likelihood


@pytest.mark.parametrize("shrinkage", [0.0, 0.1])
def test_a_registered_noise_is_fitted_by_em(toy: str, shrinkage: float) -> None:
    p = problem("unbalanced", "full")
    model = fitted(p, toy, noise_shrinkage=shrinkage)
    if shrinkage == 0:
        assert min(b - a for a, b in pairwise(model.log_likelihoods_)) >= -1e-9 * abs(
            model.log_likelihoods_[-1]
        )
    assert model.log_likelihoods_[-1] == pytest.approx(
        likelihood(p, model, model.noise_), rel=1e-10
    )
    within = model.noise_ / SHAPE if toy == "scaled" else model.noise_[INSIDE == 0]
    np.testing.assert_allclose(within, within[0] if toy == "scaled" else 0.0, rtol=1e-12)


def test_the_estimate_of_a_registered_noise_is_the_best_of_its_kind(toy: str) -> None:
    p = problem("unbalanced", "full")
    model = fitted(p, toy)
    best = likelihood(p, model, model.noise_)
    rng = np.random.default_rng(0)
    for _ in range(5):
        step = 1e-2 * rng.normal(size=(4, 4)) * INSIDE
        other = (
            model.noise_ * 1.01
            if toy == "scaled"
            else model.noise_ + step @ step.T - np.diag(np.diag(step) ** 2)
        )
        assert likelihood(p, model, other) < best


QUESTIONS = [  # what is asked, and the hypotheses above and below the line: which views are the same
    ({"priors": {(): 1.0}}, [("a", "b")], [()]),
    ({"same": "a"}, [("a",), ("a", "b")], [(), ("b",)]),
]


@pytest.mark.parametrize(("question", "above", "below"), QUESTIONS)
def test_a_registered_noise_scores_as_dense_densities_do(
    toy: str,
    tmp_path: Path,
    question: dict[str, Any],
    above: list[tuple[str, ...]],
    below: list[tuple[str, ...]],
) -> None:
    p = problem("unbalanced", "full")
    fitted(p, toy, tol=1e-4).save(tmp_path / "model.safetensors")
    model = MultiviewPLDA.load(tmp_path / "model.safetensors")
    assert model.noise == toy

    def density(same: list[tuple[str, ...]], i: int, j: int) -> float:
        sides = p.X[i : i + 1], p.X[5 + j : 6 + j]
        return np.logaddexp.reduce(
            [
                hypothesis_log_density(model.parameters_, ["a", "b"], ["a", "b"], s, *sides)
                for s in same
            ]
        )

    expected = [[density(above, i, j) - density(below, i, j) for j in range(3)] for i in range(2)]
    found = model.llr(p.X[:2], p.X[5:8], dtype=np.float64, **question)
    np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("kind", ["diagonal", "full"])
def test_a_noise_knows_its_covariance(kind: str) -> None:
    array = problem("one view", kind).parameters.noise
    noise = noise_of(array)
    dense = np.diag(array) if kind != "full" else array
    np.testing.assert_array_equal(noise.covariance, dense)
    np.testing.assert_array_equal(noise.variances, np.diag(dense))
    np.testing.assert_allclose(noise.lower @ noise.lower.T, dense, rtol=1e-12, atol=1e-14)
    assert noise.log_determinant == pytest.approx(np.linalg.slogdet(dense)[1])
    np.testing.assert_allclose(noise.solve(np.eye(4)), np.linalg.inv(dense), rtol=1e-10, atol=1e-12)
    drawn = noise.draw(200_000, np.random.default_rng(0))
    np.testing.assert_allclose(np.cov(drawn.T), dense, atol=0.03 * np.diag(dense).max())
