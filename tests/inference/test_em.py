"""One EM step against a plain one from dense moments; the objective never falls."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from dense import dense_posterior
from problems import (
    DESIGNS,
    NOISES,
    Problem,
    about,
    crossed,
    draw,
    noise_model,
    perturbed,
    problem,
    random_parameters,
)

from mvplda.inference.em import fit_em, m_step, moment_start, posterior, random_start
from mvplda.inference.parameters import NoiseModel, Parameters
from mvplda.inference.priors import MaximumLikelihood


def dense_em_step(p: Problem, start: Parameters, noise: NoiseModel) -> Parameters:
    """The M step written out vector by vector, from the moments of the dense posterior."""
    post = dense_posterior(p.X, p.codes, start)
    n, width = len(p.X), sum(start.ranks)
    C, R = np.zeros((p.X.shape[1], width + 1)), np.zeros((width + 1, width + 1))
    R[:width, :width], R[:width, width], R[width, :width], R[width, width] = (
        post.sum_zz,
        post.sum_z,
        post.sum_z,
        n,
    )
    for i, x in enumerate(p.X):
        z = np.concatenate(
            [m[code[i]] for m, code in zip(post.means, p.codes, strict=True)] + [[1.0]]
        )
        C += np.outer(x, z)
    W = np.linalg.solve(R, C.T).T
    residual = (p.X.T @ p.X - W @ C.T + noise.weight * np.diag(noise.target)) / (n + noise.weight)
    sigma = {
        "full": residual,
        "diagonal": np.diag(residual),
    }[noise.kind]
    mean: Any = W[:, width]
    loadings: list[Any] = []
    for k, latents in enumerate(start.slices):
        loading = W[:, latents]
        classes = range(len(post.means[k]))
        second = [
            np.outer(post.means[k][c], post.means[k][c]) + post.covariances[k][c] for c in classes
        ]
        centre = post.means[k].mean(axis=0)
        mean = mean + loading @ centre
        spread = np.mean(second, axis=0) - np.outer(centre, centre)
        loadings.append(loading @ np.linalg.cholesky(spread))
    return Parameters(mean, tuple(loadings), sigma)


@pytest.mark.parametrize("by_count", [True, False])
@pytest.mark.parametrize("weight", [0.0, 7.0])
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("name", DESIGNS)
def test_one_step_is_the_dense_one(name: str, noise: str, weight: float, by_count: bool) -> None:
    p = problem(name, noise)
    start = perturbed(p.parameters, np.random.default_rng(3))
    model = noise_model(noise, 4, weight=weight)
    design, origin = p.design(noise)
    post = posterior(replace(design, by_count=by_count), about(start, origin))
    updated = m_step(design.sums, post, model)
    expected = dense_em_step(p, start, model)
    np.testing.assert_allclose(updated.mean + origin, expected.mean, rtol=1e-9)
    np.testing.assert_allclose(updated.noise, expected.noise, rtol=1e-9, atol=1e-9)
    # A loading is identified up to a rotation of its latents, so compare B B'.
    for loading, expected_loading in zip(updated.loadings, expected.loadings, strict=True):
        np.testing.assert_allclose(
            loading @ loading.T,
            expected_loading @ expected_loading.T,
            rtol=1e-9,
            atol=1e-9 * np.abs(expected_loading).max() ** 2,
        )


@pytest.mark.parametrize("weight", [0.0, 10.0])
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("name", DESIGNS)
def test_the_objective_never_falls(name: str, noise: str, weight: float) -> None:
    p = problem(name, noise, seed=4)
    design, origin = p.design(noise)
    design = replace(design, by_count=weight > 0)
    start = about(perturbed(p.parameters, np.random.default_rng(5)), origin)
    fit = fit_em(
        design,
        start,
        MaximumLikelihood(noise_model(noise, 4, weight=weight)),
        max_iter=25,
        tol=0.0,
    )
    assert len(fit.log_likelihoods) == len(fit.objectives) == 26
    assert np.diff(fit.objectives).min() >= -1e-9 * np.abs(fit.objectives).max()
    assert fit.objectives[-1] > fit.objectives[0] + 1.0
    if weight == 0:
        np.testing.assert_array_equal(fit.objectives, fit.log_likelihoods)
    else:
        penalty = noise_model(noise, 4, weight=weight).log_prior(fit.parameters.noise)
        np.testing.assert_allclose(fit.objectives[-1] - fit.log_likelihoods[-1], penalty, rtol=1e-9)


def test_the_posterior_of_a_fit_belongs_to_its_parameters() -> None:
    p = problem("interaction")
    design, origin = p.design("diagonal")
    start = about(perturbed(p.parameters, np.random.default_rng(5)), origin)
    prior = MaximumLikelihood(noise_model("diagonal", 4))

    fit = fit_em(design, start, prior, max_iter=3, tol=0.0)
    expected = posterior(design, fit.parameters)
    assert fit.n_iter == 3
    assert fit.posterior.log_likelihood == fit.log_likelihoods[-1]
    np.testing.assert_allclose(fit.log_likelihoods[-1], expected.log_likelihood, rtol=1e-12)
    for means, expected_means in zip(fit.posterior.means, expected.means, strict=True):
        np.testing.assert_allclose(means, expected_means, rtol=1e-9, atol=1e-9)


def test_a_fit_without_iterations_describes_the_start() -> None:
    p = problem("interaction")
    design, origin = p.design("diagonal")
    start = about(p.parameters, origin)
    prior = MaximumLikelihood(noise_model("diagonal", 4))

    fit = fit_em(design, start, prior, max_iter=0, tol=0.0)
    assert (fit.n_iter, fit.converged, len(fit.objectives)) == (0, False, 0)
    expected = posterior(design, start).log_likelihood
    np.testing.assert_allclose(fit.log_likelihoods, [expected], rtol=1e-12)
    assert fit.posterior is fit.posterior  # one E step, however often it is read


@pytest.mark.parametrize("noise", NOISES)
def test_shrinkage_ends_where_no_change_helps(noise: str) -> None:
    """At the end of EM with every prior on, all nearby parameters have a lower objective."""
    p = problem("unbalanced", noise, seed=6)
    design, origin = p.design(noise)
    model = noise_model(noise, 4, weight=12.0)

    def objective(q: Parameters) -> float:
        dense = dense_posterior(p.X, p.codes, replace(q, mean=q.mean + origin)).log_likelihood
        sigma = np.diag(q.noise) if q.noise.ndim == 1 else q.noise
        inverse = np.linalg.inv(sigma)
        prior = (
            -0.5
            * model.weight
            * (np.linalg.slogdet(sigma)[1] + np.trace(inverse @ np.diag(model.target)))
        )
        return float(dense + prior)

    start = about(p.parameters, origin)
    fit = fit_em(design, start, MaximumLikelihood(model), max_iter=3000, tol=1e-13)
    best = fit.parameters
    np.testing.assert_allclose(objective(best), fit.objectives[-1], rtol=1e-9)
    rng = np.random.default_rng(7)
    for _ in range(30):
        step = 1e-3 * rng.normal(size=4)
        scale = np.exp(step if noise == "diagonal" else np.full(4, step[0]))
        if noise == "full":
            turn = np.eye(4) + 1e-3 * rng.normal(size=(4, 4))
            sigma = turn @ best.noise @ turn.T
        else:
            sigma = best.noise * scale
        for other in (
            replace(best, noise=sigma),
            replace(best, mean=best.mean + 1e-2 * rng.normal(size=4)),
            replace(
                best, loadings=tuple(b + 1e-2 * rng.normal(size=b.shape) for b in best.loadings)
            ),
            replace(best, loadings=tuple(b * 1.01 for b in best.loadings)),
            replace(best, loadings=tuple(b * 0.99 for b in best.loadings)),
        ):
            assert objective(other) < objective(best) + 1e-8


@pytest.mark.parametrize("noise", NOISES)
def test_noise_stays_on_or_above_its_floor(noise: str) -> None:
    floor = np.array([1.0, 0.3, 0.2, 5.0])
    p = problem("unbalanced", noise, seed=9)
    model = NoiseModel(noise, floor, np.ones(4))
    design, origin = p.design(noise)
    start = about(
        replace(p.parameters, noise=np.diag(10 * floor) if noise == "full" else 10 * floor), origin
    )
    fit = fit_em(design, start, MaximumLikelihood(model), max_iter=50, tol=0.0)
    assert np.diff(fit.objectives).min() >= -1e-9 * np.abs(fit.objectives).max()
    sigma = fit.parameters.noise
    above = (
        np.linalg.eigvalsh(sigma - np.diag(floor)).min()
        if noise == "full"
        else (sigma - floor).min()
    )
    assert above == pytest.approx(0.0, abs=1e-9)


def test_floor_of_a_full_noise_is_the_best_covariance_above_it() -> None:
    rng = np.random.default_rng(10)
    floor = rng.uniform(0.5, 2.0, 4)
    root = rng.normal(size=(4, 2))
    scatter = 10 * root @ root.T
    best = np.asarray(NoiseModel("full", floor, floor).estimate(scatter, 10.0))

    def value(sigma: np.ndarray) -> float:
        return float(-np.linalg.slogdet(sigma)[1] - np.trace(np.linalg.solve(sigma, scatter / 10)))

    for _ in range(50):
        half = rng.normal(size=(4, rng.integers(1, 5)))
        other = np.diag(floor) + half @ half.T
        for step in (1.0, 0.1, 0.01):
            assert value(best + step * (other - best)) <= value(best) + 1e-12


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("views", [{"a": 4}, {"a": 4, "b": 3}, {"a": 4, "b": 3, "a:b": 2}])
def test_moments_start_near_the_end(views: dict[str, int], noise: str) -> None:
    rng = np.random.default_rng(11)
    a, b = crossed(40, 10, 3)
    codes = [{"a": a, "b": b, "a:b": 10 * a + b}[v] for v in views]
    true = random_parameters(rng, 12, tuple(views.values()), noise)
    design, _ = Problem(draw(rng, codes, true), {"a": a, "b": b}, views, codes, true).design(noise)
    model = noise_model(noise, 12)
    starts = [
        start(design.sums, true.ranks, model, np.random.default_rng(0))
        for start in (moment_start, random_start)
    ]
    assert all(s.ranks == true.ranks and s.noise.shape == true.noise.shape for s in starts)
    moments, chance = (
        fit_em(design, s, MaximumLikelihood(model), max_iter=20, tol=0.0).log_likelihoods
        for s in starts
    )
    end = max(moments[-1], chance[-1])
    assert end - moments[1] < 0.2 * (end - chance[1])
