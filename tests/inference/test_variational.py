"""The factorised posterior: against the exact one, and against its own definition written out densely."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from dense import dense_posterior, latent_matrix, noise_matrix
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

from mvplda.inference import variational
from mvplda.inference.design import Design
from mvplda.inference.em import Posterior, fit_em, posterior
from mvplda.inference.parameters import Parameters
from mvplda.inference.priors import MaximumLikelihood
from mvplda.inference.variational import FactorisedElimination, conjugate_gradients
from mvplda.labels import encode_labels

EXACT = {"one view", "nested alone"}
"""Designs with nothing left after the elimination of leaf and root."""


def both(p: Problem, noise: str = "diagonal") -> tuple[Design, Design, np.ndarray]:
    design, origin = p.design(noise)
    return design, Design.of(design.sums, tuple(p.views.values()), method="variational"), origin


def close(value: Any, reference: Any, tol: float = 1e-8) -> None:
    reference = np.asarray(reference)
    np.testing.assert_allclose(
        value, reference, rtol=tol, atol=tol * max(np.abs(reference).max(), 1e-3)
    )


@dataclass
class DenseBound:
    """The bound as it is defined, E_q[log p(x, z) - log q(z)], and the second moments of q."""

    value: float
    means: np.ndarray
    covariance: np.ndarray


def dense_bound(p: Problem, design: Design, parameters: Parameters) -> DenseBound:
    """q(rest) is a product over classes; the leaf given the rest is exact. No formula is shared with the code."""
    A, starts = latent_matrix(p.codes, parameters)
    weight = np.linalg.inv(np.kron(np.eye(len(p.X)), noise_matrix(parameters)))
    x = (p.X - parameters.mean).reshape(-1)
    precision = np.eye(A.shape[1]) + A.T @ weight @ A
    means = np.linalg.solve(precision, A.T @ weight @ x)
    rest = np.concatenate(
        [np.zeros(0, int), *(np.arange(starts[l], starts[l + 1]) for l in design.plan.rest)]
    )
    others = np.setdiff1d(np.arange(len(precision)), rest)
    inner = np.linalg.inv(precision[np.ix_(others, others)])
    gain = inner @ precision[np.ix_(others, rest)]
    schur = precision[np.ix_(rest, rest)] - precision[np.ix_(rest, others)] @ gain
    V, done = np.zeros_like(schur), 0
    for l in design.plan.rest:
        r = parameters.ranks[l]
        for _ in range((starts[l + 1] - starts[l]) // r):
            block = slice(done, done + r)
            V[block, block] = np.linalg.inv(schur[block, block])
            done += r
    covariance = np.empty_like(precision)
    covariance[np.ix_(rest, rest)] = V
    covariance[np.ix_(others, rest)] = -gain @ V
    covariance[np.ix_(rest, others)] = (-gain @ V).T
    covariance[np.ix_(others, others)] = inner + gain @ V @ gain.T
    residual = x - A @ means
    d = len(precision)
    expected = -0.5 * (
        len(x) * np.log(2 * np.pi)
        - np.linalg.slogdet(weight)[1]
        + residual @ weight @ residual
        + np.trace(A.T @ weight @ A @ covariance)
        + d * np.log(2 * np.pi)
        + means @ means
        + np.trace(covariance)
    )
    entropy = 0.5 * (d * (1 + np.log(2 * np.pi)) + np.linalg.slogdet(covariance)[1])
    return DenseBound(expected + entropy, means, covariance)


@pytest.fixture
def solved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Means to the last digits."""
    monkeypatch.setattr(variational, "MEAN_TOLERANCE", 1e-24)


def check_against_definition(p: Problem, noise: str) -> None:
    _, design, origin = both(p, noise)
    for parameters in (p.parameters, perturbed(p.parameters, np.random.default_rng(1))):
        found = posterior(design, about(parameters, origin))
        rotated = replace(found.parameters, mean=found.parameters.mean + origin)
        dense = dense_bound(p, design, rotated.on_host())
        close(found.log_likelihood, dense.value)
        ends = np.cumsum(
            [0, *(len(c) * r for c, r in zip(design.sums.counts, rotated.ranks, strict=True))]
        )
        ranks, total = rotated.ranks, np.zeros((sum(rotated.ranks),) * 2)
        for k, r in enumerate(ranks):
            part = slice(ends[k], ends[k + 1])
            close(found.means[k], dense.means[part].reshape(-1, r), 1e-6)
            C = len(found.means[k])
            blocks = dense.covariance[part, part].reshape(C, r, C, r)[
                np.arange(C), :, np.arange(C), :
            ]
            close(found.covariances(k), blocks)
            close(found.covariance_sums[1][k], blocks.sum(axis=0))
        second = dense.covariance + np.outer(dense.means, dense.means)
        for i in range(len(p.X)):
            where = np.concatenate(
                [ends[k] + p.codes[k][i] * r + np.arange(r) for k, r in enumerate(ranks)]
            )
            total += second[np.ix_(where, where)]
        close(found.sum_zz, total, 1e-6)


@pytest.mark.usefixtures("solved")
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("name", DESIGNS)
def test_bound_and_moments_are_those_of_the_definition(name: str, noise: str) -> None:
    check_against_definition(problem(name, noise), noise)


@pytest.mark.usefixtures("solved")
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("name", DESIGNS)
def test_never_above_the_exact_likelihood_and_equal_where_nothing_is_left(
    name: str, noise: str
) -> None:
    p = problem(name, noise)
    exact, design, origin = both(p, noise)
    truth, bound = (posterior(d, about(p.parameters, origin)) for d in (exact, design))
    close(dense_posterior(p.X, p.codes, p.parameters).log_likelihood, truth.log_likelihood)
    assert bound.log_likelihood <= truth.log_likelihood + 1e-9 * abs(truth.log_likelihood)
    for mine, theirs in zip(bound.means, truth.means, strict=True):
        close(mine, theirs, 1e-6)
    if name in EXACT:
        close(bound.log_likelihood, truth.log_likelihood, 1e-12)
        close(bound.sum_zz, truth.sum_zz, 1e-11)
    else:
        assert bound.log_likelihood < truth.log_likelihood - 1e-9


def test_equal_where_classes_of_the_rest_do_not_touch() -> None:
    """Sessions within speakers: what is left is a view, but its classes are independent."""
    rng = np.random.default_rng(0)
    session = rng.permutation(np.repeat(np.arange(24), 3))
    labels = {"session": session, "speaker": session // 3}
    views = {"session": 1, "speaker": 2}
    parameters = random_parameters(rng, 4, (1, 2), "diagonal")
    codes = list(labels.values())
    p = Problem(draw(rng, codes, parameters), labels, views, codes, parameters)
    exact, design, origin = both(p)
    assert design.plan.rest == (1,)
    truth, bound = (posterior(d, about(parameters, origin)) for d in (exact, design))
    close(bound.log_likelihood, truth.log_likelihood, 1e-12)
    close(bound.sum_zz, truth.sum_zz, 1e-9)
    assert isinstance(bound.elimination, FactorisedElimination)
    assert bound.elimination.products <= 2  # the preconditioner is the inverse


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("name", DESIGNS)
def test_em_never_lowers_the_bound(name: str, noise: str) -> None:
    p = problem(name, noise, dimension=6)
    _, design, origin = both(p, noise)
    start = about(perturbed(p.parameters, np.random.default_rng(2)), origin)
    for weight in (0.0, 5.0):
        fit = fit_em(
            design,
            start,
            MaximumLikelihood(noise_model(noise, 6, weight=weight)),
            max_iter=25,
            tol=0.0,
        )
        assert np.diff(fit.objectives).min() >= -1e-9 * np.abs(fit.objectives).max()
        assert fit.objectives[-1] > fit.objectives[0] + 1.0


def medium(kind: str) -> Problem:
    rng = np.random.default_rng(4)
    if kind == "sparse":
        a, b = sparse_cells(rng, 300, 200, 3000)
    elif kind == "very sparse":
        a, b = sparse_cells(rng, 300, 200, 1000)
    else:
        a, b = crossed(200, 20, 1)
    views = {"a": 10, "b": 5}
    if kind == "interaction":
        a, b = sparse_cells(rng, 150, 80, 1500)
        views["a:b"] = 3
    labels = {"a": a, "b": b}
    if kind == "three views":
        a, b = sparse_cells(rng, 120, 80, 1500)
        labels = {"a": a, "b": b, "c": rng.permutation(np.arange(1500) % 40)}
        views = {"a": 6, "b": 5, "c": 4}
    parameters = random_parameters(rng, 30, tuple(views.values()), "diagonal")
    table = encode_labels(labels, tuple(views))
    codes = [table.codes[v] for v in views]
    return Problem(draw(rng, codes, parameters), labels, views, codes, parameters)


def sparse_cells(
    rng: np.random.Generator, rows: int, columns: int, n: int
) -> tuple[np.ndarray, np.ndarray]:
    """One vector each in about n cells at random; every class has one."""
    a = np.concatenate([np.arange(rows), rng.integers(0, rows, size=n - rows)])
    return a, rng.permutation(
        np.concatenate([np.arange(columns), rng.integers(0, columns, size=n - columns)])
    )


def subspace_gap(a: np.ndarray, b: np.ndarray) -> float:
    """Sine of the largest angle between two column spaces."""
    qa, qb = np.linalg.qr(a)[0], np.linalg.qr(b)[0]
    return float(np.linalg.norm(qa - qb @ (qb.T @ qa), 2))


@pytest.mark.parametrize("kind", ["sparse", "very sparse", "dense", "interaction", "three views"])
def test_within_a_hundredth_of_a_nat_on_medium_designs(kind: str) -> None:
    p = medium(kind)
    exact, design, origin = both(p)
    truth, bound = (posterior(d, about(p.parameters, origin)) for d in (exact, design))
    gap = (truth.log_likelihood - bound.log_likelihood) / len(p.X)
    assert 0 < gap < 0.01
    assert isinstance(bound.elimination, FactorisedElimination)
    assert bound.elimination.products < 40


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sparse", "dense", "three views"])
def test_fits_end_where_the_exact_ones_do(kind: str) -> None:
    p = medium(kind)
    exact, design, origin = both(p)
    start = about(perturbed(p.parameters, np.random.default_rng(2)), origin)
    fits = [
        fit_em(d, start, MaximumLikelihood(noise_model("diagonal", 30)), max_iter=60, tol=1e-6)
        for d in (exact, design)
    ]
    at_the_end = posterior(exact, fits[1].parameters).log_likelihood
    assert at_the_end >= fits[1].log_likelihoods[-1]
    assert abs(at_the_end - fits[0].log_likelihoods[-1]) / len(p.X) < 0.01
    for mine, theirs in zip(fits[1].parameters.loadings, fits[0].parameters.loadings, strict=True):
        assert subspace_gap(mine, theirs) < 0.02
    close(fits[1].parameters.noise, fits[0].parameters.noise, 0.01)


def test_unsolved_means_still_give_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bound holds at any means: stopping conjugate gradients early only loosens it."""
    p = medium("dense")
    exact, design, origin = both(p)
    parameters = about(p.parameters, origin)
    whole = posterior(design, parameters).log_likelihood
    values = []
    for products in (0, 1, 3):
        monkeypatch.setattr(variational, "MAX_PRODUCTS", products)
        values.append(posterior(design, parameters).log_likelihood)
    assert values[0] < values[1] < values[2] <= whole < posterior(exact, parameters).log_likelihood


def test_means_are_solved_for_to_rounding() -> None:
    """The bound is flat about the best means: it says little of them."""
    p = medium("sparse")
    exact, design, origin = both(p)
    truth, bound = (posterior(d, about(p.parameters, origin)) for d in (exact, design))
    for mine, theirs in zip(bound.means, truth.means, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-6)


def test_conjugate_gradients_solve_and_stop() -> None:
    rng = np.random.default_rng(0)
    root = rng.normal(size=(40, 40))
    M = root @ root.T + np.diag(np.geomspace(1, 1e4, 40))
    b, scale = rng.normal(size=40), 1 / np.diag(M)
    x, products, error = conjugate_gradients(
        lambda x: M @ x, lambda x: scale * x, b, tolerance=1e-20, max_iter=200
    )
    assert error <= 1e-20
    np.testing.assert_allclose(x, np.linalg.solve(M, b), rtol=1e-7, atol=1e-10)
    _, _, error = conjugate_gradients(
        lambda x: M @ x, lambda x: x, b, tolerance=1e-20, max_iter=products
    )
    assert error > 1e-20
    nothing, products, _ = conjugate_gradients(
        lambda x: M @ x, lambda x: scale * x, 0 * b, tolerance=0.0, max_iter=9
    )
    assert products == 0
    assert not nothing.any()
    singular = conjugate_gradients(lambda x: 0 * x, lambda x: x, b, tolerance=0.0, max_iter=9)
    assert singular[2] > 0  # and no division by zero


def arrays_of(found: Posterior) -> int:
    """Numbers that a posterior and its design keep."""
    system = found.elimination
    assert isinstance(system, FactorisedElimination)
    tables = system.design.squares.values()
    kept = [*system.V.values(), system.delta, system.leaf_delta, *found.means]
    return sum(t.nnz for t in tables) + sum(a.size for a in kept)


@pytest.mark.parametrize("interaction", [False, True])
def test_memory_is_linear_in_classes_and_cells(interaction: bool) -> None:
    import tracemalloc

    peaks, kept = [], []
    for classes in (1000, 4000):
        rng = np.random.default_rng(0)
        a, b = sparse_cells(rng, classes, classes, 5 * classes)
        views = {"a": 3, "b": 2, **({"a:b": 2} if interaction else {})}
        parameters = random_parameters(rng, 6, tuple(views.values()), "diagonal")
        p = Problem(rng.normal(size=(len(a), 6)), {"a": a, "b": b}, views, [], parameters)
        sums = p.statistics().for_views(tuple(views), "diagonal")
        tracemalloc.start()
        found = posterior(Design.of(sums, tuple(views.values()), method="variational"), parameters)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        kept.append(arrays_of(found))
    assert peaks[1] < 5 * peaks[0]  # 16 times as much if anything were dense
    assert kept[1] < 5 * kept[0]
    assert peaks[1] < 4000 * 2 * 4000 * 2 * 8 / 8
