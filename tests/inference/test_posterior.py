"""The exact E step against the dense Gaussian of all latents."""

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
    draw,
    perturbed,
    problem,
    random_parameters,
    uneven,
)
from scipy.stats import multivariate_normal
from sklearn.base import clone

from mvplda import MultiviewPLDA
from mvplda.exceptions import DesignTooLargeError, NumericalError
from mvplda.inference import design as design_module
from mvplda.inference import exact, root
from mvplda.inference.design import Design
from mvplda.inference.em import posterior
from mvplda.inference.parameters import canonical_and_weighted, noise_of


def close(value: Any, reference: Any) -> None:
    """Equal to 1e-9 of the largest entry."""
    reference = np.asarray(reference)
    np.testing.assert_allclose(
        value, reference, rtol=1e-9, atol=1e-9 * max(np.abs(reference).max(), 1e-3)
    )


def check(p: Problem, noise: str, *, by_count: bool = False) -> None:
    design, origin = p.design(noise)
    for parameters in (p.parameters, perturbed(p.parameters, np.random.default_rng(1))):
        found = posterior(replace(design, by_count=by_count), about(parameters, origin))
        rotated = replace(
            found.parameters.on_host(), mean=np.asarray(found.parameters.mean) + origin
        )
        dense = dense_posterior(p.X, p.codes, rotated)
        close(found.log_likelihood, dense_posterior(p.X, p.codes, parameters).log_likelihood)
        for k, view in enumerate(p.views):
            close(found.means[k], dense.means[k])
            close(found.covariances(k), dense.covariances[k])
            close(found.covariance_sums[1][k], dense.covariances[k].sum(axis=0))
            assert len(found.means[k]) == len(np.unique(p.codes[k])), view
        close(found.sum_z, dense.sum_z)
        each = np.concatenate(
            [mean[code] for mean, code in zip(dense.means, p.codes, strict=True)], axis=1
        )
        close(found.sum_xz, (p.X - origin).T @ each)
        close(found.sum_zz, dense.sum_zz)


@pytest.mark.parametrize("by_count", [False, True])
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("name", DESIGNS)
def test_posterior_is_the_dense_one(name: str, noise: str, by_count: bool) -> None:
    check(problem(name, noise), noise, by_count=by_count)


@pytest.mark.parametrize("size", [1, 40])
@pytest.mark.parametrize("name", DESIGNS)
def test_posterior_in_small_pieces(name: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact, "CHUNK_ELEMENTS", size)
    check(problem(name, "full", seed=1), "full")


@pytest.mark.parametrize("name", [name for name in DESIGNS if "interaction" in name])
def test_posterior_that_keeps_nothing_of_the_root(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(root, "KEPT_PAIRS", -1)
    monkeypatch.setattr(root, "KEPT_ROOT_ELEMENTS", -1)
    monkeypatch.setattr(root, "WIDE_BLOCK", 1)
    monkeypatch.setattr(exact, "CHUNK_ELEMENTS", 20)
    p = problem(name, seed=3)
    check(p, "diagonal")
    tables = p.design("diagonal")[0].root_tables
    assert tables.n_groups > 1
    assert not tables.keeps_pairs


@pytest.mark.parametrize("name", DESIGNS)
def test_posterior_with_sparse_tables(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(design_module, "DENSE_GRAM_ELEMENTS", 0)
    monkeypatch.setattr(design_module, "FILLED", 2.0)
    p = problem(name, seed=2)
    design, _ = p.design("diagonal")
    assert not any(isinstance(gram, np.ndarray) for gram in design.grams.values())
    check(p, "diagonal")


def test_one_number_a_class_by_a_sparse_product(monkeypatch: pytest.MonkeyPatch) -> None:
    """Crossed effects in one dimension, of which few cells are filled: as by Gram tables, and as the dense model."""
    rng = np.random.default_rng(0)
    labels = {"user": rng.integers(0, 40, 200), "item": rng.integers(0, 25, 200)}
    X = rng.normal(size=(200, 1)) + rng.normal(size=40)[labels["user"], None]
    X += rng.normal(size=25)[labels["item"], None]
    model = MultiviewPLDA({"user": 1, "item": 1}, max_iter=5, tol=0)
    tables = clone(model).fit(X, labels)
    monkeypatch.setattr(design_module, "MANY_ENTRIES", 0.0)
    direct = clone(model).fit(X, labels)
    np.testing.assert_allclose(direct.log_likelihoods_, tables.log_likelihoods_, rtol=1e-12)
    for view, loading in tables.loadings_.items():
        np.testing.assert_allclose(direct.loadings_[view], loading, rtol=1e-10)
    covariance = direct.noise_[0] * np.eye(200)
    for view, codes in labels.items():
        covariance += direct.loadings_[view].item() ** 2 * np.equal.outer(codes, codes)
    dense = multivariate_normal(np.full(200, direct.mean_[0]), covariance).logpdf(X[:, 0])
    assert direct.log_likelihood(X, labels) == pytest.approx(dense, rel=1e-10)


def test_designs_take_every_path() -> None:
    """The designs above have all kinds of elimination among them."""
    plans = {name: problem(name).design("diagonal")[0].plan for name in DESIGNS}
    assert {(plan.root is not None, len(plan.rest)) for plan in plans.values()} >= {
        (False, 0),
        (False, 1),
        (False, 2),
        (True, 0),
        (True, 1),
        (True, 2),
    }


@pytest.mark.parametrize("name", ["balanced", "interaction", "nested"])
def test_any_view_may_be_eliminated_first(name: str) -> None:
    p = problem(name)
    design, origin = p.design("diagonal")
    expected = posterior(design, about(p.parameters, origin))
    ranks = p.parameters.ranks
    sizes = [len(c) * r for c, r in zip(design.sums.counts, ranks, strict=True)]
    for leaf in range(len(ranks)):
        rest = tuple(k for k in range(len(ranks)) if k != leaf)
        plan = design_module.Plan(leaf, None, rest, sum(sizes[k] for k in rest))
        found = posterior(Design(design.sums, plan), about(p.parameters, origin))
        close(found.log_likelihood, expected.log_likelihood)
        close(found.sum_zz, expected.sum_zz)
        for mine, theirs in zip(found.means, expected.means, strict=True):
            close(mine, theirs)


def test_root_classes_with_equal_tables_share_a_factorisation() -> None:
    labels = {"a": np.repeat(np.arange(12), 6), "b": np.tile([0, 0, 1, 1, 2, 2], 12)}
    p = replace(
        problem("interaction"), labels=labels, X=np.random.default_rng(0).normal(size=(72, 4))
    )
    design, _ = p.design("diagonal")
    assert design.plan.root == 0
    assert len(design.root_tables.size) == 1
    assert design.root_tables.n_groups == 1
    table = p.statistics()
    codes = [labels["a"], labels["b"], labels["a"] * 3 + labels["b"]]
    assert [len(table.counts[v]) for v in p.views] == [12, 3, 36]
    check(replace(p, codes=codes), "diagonal")


@pytest.mark.parametrize("by_count", [False, True])
def test_view_copied_exactly_without_noise_keeps_its_digits(by_count: bool) -> None:
    """Two equal views and noise a millionth of the signal: the worst conditioned of ordinary cases."""
    rng = np.random.default_rng(0)
    y = uneven(rng, 8, 200)
    true = random_parameters(rng, 4, (2, 3), "diagonal")
    true = replace(true, noise=1e-6 * true.noise)
    X = draw(rng, [y, y], true)
    # one view whose loading is both loadings side by side is the same model
    merged = replace(true, loadings=(np.concatenate(true.loadings, axis=1),))
    two = Problem(X, {"a": y, "b": y}, {"a": 2, "b": 3}, [y, y], true)
    one = Problem(X, {"a": y}, {"a": 5}, [y], merged)
    values = []
    for p in (one, two):
        design, origin = p.design("diagonal")
        design = replace(design, by_count=by_count)
        values.append(posterior(design, about(p.parameters, origin)).log_likelihood)
    assert values[1] == pytest.approx(values[0], rel=2e-9)


def test_canonical_parameters_are_the_same_model() -> None:
    p = problem("unbalanced", "full").parameters
    rotated = canonical_and_weighted(p)[0]
    for before, after in zip(p.loadings, rotated.loadings, strict=True):
        close(after @ after.T, before @ before.T)
        gram = after.T @ np.linalg.solve(p.noise, after)
        close(gram, np.diag(np.diag(gram)))
        assert (np.diff(np.diag(gram)) <= 0).all()
        assert (after[np.abs(after).argmax(axis=0), np.arange(after.shape[1])] > 0).all()


def test_too_large_a_design_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(design_module, "MAX_DENSE", 5)
    with pytest.raises(
        DesignTooLargeError, match=r"R = .* classes x rank .* GiB; the limit is R = 5"
    ):
        problem("unbalanced").design("diagonal")


def test_noise_that_is_no_covariance_is_named() -> None:
    with pytest.raises(NumericalError, match="not positive definite"):
        noise_of(np.diag([1.0, -1.0])).solve(np.eye(2))
