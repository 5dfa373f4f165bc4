"""algorithm="paper": the printed EM, against a plain loop over cells."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from dense import log_normal
from problems import NOISES, about, crossed, noise_model, perturbed, problem

from mvplda import PLDA, MultiviewPLDA, SufficientStatistics
from mvplda.exceptions import LabelError, ParameterError
from mvplda.inference.em import PublishedEM, posterior
from mvplda.inference.parameters import Parameters


def data(seed: int = 0) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    rng = np.random.default_rng(seed)
    a, b = crossed(12, 5, 3)
    kept = rng.random(len(a)) < 0.8
    a, b = a[kept], b[kept]
    X = (
        2.0
        + rng.normal(size=(12, 6))[a]
        + rng.normal(size=(5, 6))[b]
        + 0.5 * rng.normal(size=(len(a), 6))
    )
    return X, {"a": a, "b": b}


def printed_step(
    X: np.ndarray,
    cells: list[tuple[int, ...]],
    p: Parameters,
    noise: str,
    body: bool = False,
    together: bool = False,
) -> Parameters:
    """One iteration of the paper's appendix, or of its body, cell by cell and vector by vector."""
    B = np.concatenate(p.loadings, axis=1)
    sigma = p.noise if p.noise.ndim == 2 else np.diag(p.noise)
    inverse = np.linalg.inv(sigma)
    mean = X.mean(axis=0)
    C, R = np.zeros(B.shape), np.zeros((B.shape[1], B.shape[1]))
    for cell in sorted(set(cells)):
        rows = [x for x, c in zip(X, cells, strict=True) if c == cell]
        weight = 1 if body else len(rows)
        covariance = np.linalg.inv(np.eye(B.shape[1]) + weight * B.T @ inverse @ B)
        z = covariance @ B.T @ inverse @ sum(x - p.mean for x in rows)
        for x in rows:
            C += np.outer(x - mean, z)
            R += covariance + np.outer(z, z)
    loadings = list(p.loadings)
    ends = np.cumsum([b.shape[1] for b in loadings])
    parts = [slice(end - b.shape[1], end) for end, b in zip(ends, loadings, strict=True)]
    for k, own in enumerate(parts):
        others = [(loadings[l], part) for l, part in enumerate(parts) if l != k]
        target = C[:, own] - sum(loading @ R[part, own] for loading, part in others)
        loadings[k] = target @ np.linalg.inv(R[own, own])
    if together:
        loadings = [(C @ np.linalg.inv(R))[:, own] for own in parts]
    centred = X - mean
    residual = (centred.T @ centred - np.concatenate(loadings, axis=1) @ C.T) / len(X)
    sigma = {
        "full": (residual + residual.T) / 2,
        "diagonal": np.diag(residual),
        "isotropic": np.full(len(mean), np.diag(residual).mean()),
    }[noise]
    return Parameters(mean, tuple(loadings), sigma)


def same(found: Parameters, expected: Parameters) -> None:
    np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-9)
    np.testing.assert_allclose(found.noise, expected.noise, rtol=1e-8, atol=1e-9)
    for mine, theirs in zip(found.loadings, expected.loadings, strict=True):
        np.testing.assert_allclose(mine @ mine.T, theirs @ theirs.T, rtol=1e-8, atol=1e-9)


READINGS: list[dict[str, bool]] = [
    {},
    {"body": True},
    {"together": True},
    {"body": True, "together": True},
]


@pytest.mark.parametrize("reading", READINGS)
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("name", ["one view", "unbalanced"])
def test_a_step_from_anywhere_is_the_printed_one(
    name: str, noise: str, reading: dict[str, bool]
) -> None:
    p = problem(name, noise)
    start = perturbed(p.parameters, np.random.default_rng(0))
    design, origin = p.design(noise)
    cell = ":".join(p.views)
    statistics = SufficientStatistics.from_arrays(p.X, p.labels, views=(cell,)).about(origin)
    cells = statistics.for_views((cell,), "full" if noise == "full" else "diagonal").on_host()
    current = posterior(design, about(start, origin))
    found = PublishedEM(cells, noise_model(noise, 4), **reading).m_step(design.sums, current)
    cells_of = list(zip(*(c.tolist() for c in p.codes), strict=True))
    expected = printed_step(p.X, cells_of, start, noise, **reading)
    same(replace(found, mean=found.mean + origin), expected)


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("views", [{"a": 3}, {"a": 3, "b": 2}])
def test_a_fit_takes_printed_steps(views: dict[str, int | None], noise: Any) -> None:
    X, labels = data()
    cells = list(zip(*(labels[v].tolist() for v in views), strict=True))
    settings: dict[str, Any] = {"noise": noise, "algorithm": "paper", "random_state": 0, "tol": 0.0}
    start, first, second = (
        MultiviewPLDA(views, max_iter=i, **settings).fit(X, {v: labels[v] for v in views})
        for i in range(3)
    )
    for before, after in ((start, first), (first, second)):
        same(after.parameters_, printed_step(X, cells, before.parameters_, noise))


def test_its_likelihood_may_fall() -> None:
    X, labels = data()
    model = MultiviewPLDA({"a": 5, "b": 4}, algorithm="paper", random_state=0, tol=0.0, max_iter=20)
    model.fit(X, labels)
    assert np.diff(model.log_likelihoods_).min() < 0
    exact = MultiviewPLDA({"a": 5, "b": 4}, random_state=0, tol=0.0, max_iter=20).fit(X, labels)
    assert np.diff(exact.log_likelihoods_).min() >= -1e-9 * abs(exact.log_likelihoods_[-1])
    assert exact.log_likelihoods_[-1] > model.log_likelihoods_.max()


def test_the_likelihood_beside_it_is_the_models_own() -> None:
    """Not the likelihood of cells taken as independent."""
    X, labels = data()
    model = MultiviewPLDA(
        {"a": 2, "b": 2}, algorithm="paper", random_state=0, tol=0.0, max_iter=3
    ).fit(X, labels)
    covariance = np.kron(np.eye(len(X)), np.diag(model.noise_))
    for view, loading in model.loadings_.items():
        same = labels[view][:, None] == labels[view][None, :]
        covariance += np.kron(same, loading @ loading.T)
    dense = log_normal((X - model.mean_).reshape(-1), covariance)
    assert model.log_likelihoods_[-1] == pytest.approx(dense, rel=1e-9)


def test_statistics_with_the_cell_as_a_view_are_enough() -> None:
    X, labels = data()
    model = MultiviewPLDA({"a": 2, "b": 2}, algorithm="paper", random_state=0)
    fitted = model.fit(X, labels).mean_, model.loadings_["a"], model.noise_
    model.fit_statistics(SufficientStatistics.from_arrays(X, labels, views=("a", "b", "a:b")))
    for before, after in zip(
        fitted, (model.mean_, model.loadings_["a"], model.noise_), strict=True
    ):
        np.testing.assert_allclose(after, before, rtol=1e-9)
    with pytest.raises(LabelError, match="no view 'a:b'"):
        model.fit_statistics(SufficientStatistics.from_arrays(X, labels))


@pytest.mark.parametrize(
    "views", [{"a": 1, "b": 1, "c": 1}, {"a": 1, "b": 1, "a:b": 1}, {"a": 1, "a:b": 1}, None]
)
def test_it_is_for_one_or_two_plain_views(views: Any) -> None:
    X, labels = data()
    with pytest.raises(ParameterError, match="one or two views without interaction"):
        MultiviewPLDA(views, algorithm="paper").fit(X, {**labels, "c": labels["a"] % 2})


def test_one_view_is_plda() -> None:
    X, labels = data()
    plda = PLDA(2, algorithm="paper", random_state=0).fit(X, labels["a"])
    multi = MultiviewPLDA({"a": 2}, algorithm="paper", random_state=0).fit(X, {"a": labels["a"]})
    np.testing.assert_array_equal(plda.log_likelihoods_, multi.log_likelihoods_)
