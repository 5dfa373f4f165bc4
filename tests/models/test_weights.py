"""Vectors of unequal noise: weights as fractional counts, against dense Gaussians with the noise of every vector."""

from __future__ import annotations

import numpy as np
import pytest
from dense import log_normal, noise_matrix
from dense_scoring import all_patterns, cell_classes, log_mean
from problems import NOISES, problem

from mvplda import (
    Bundle,
    Committee,
    MultiviewPLDA,
    Profiles,
    SufficientStatistics,
)
from mvplda.exceptions import DataError, ParameterError

UNCONNECTED = pytest.mark.filterwarnings("ignore::mvplda.exceptions.DisconnectedDesignWarning")


def dense_log_density(p, vectors, classes, weights, prior=None):
    """log N of vectors whose noise is Sigma / weight, latents shared where classes (n, K) agree."""
    covariance = np.kron(np.diag(1 / np.asarray(weights)), noise_matrix(p))
    mean = np.tile(p.mean, len(vectors))
    for k, B in enumerate(p.loadings):
        for c in np.unique(classes[:, k]):
            m, C = (prior or {}).get((k, c), (np.zeros(B.shape[1]), np.eye(B.shape[1])))
            has = (classes[:, k] == c).astype(float)
            covariance += np.kron(np.outer(has, has), B @ C @ B.T)
            mean += np.kron(has, B @ m)
    return log_normal(vectors.reshape(-1) - mean, covariance)


@UNCONNECTED
@pytest.mark.parametrize(
    "design", ["one view", "unbalanced", "interaction", "three views", "missing"]
)
@pytest.mark.parametrize("noise", NOISES)
def test_a_fit_is_the_optimum_of_the_dense_likelihood(design, noise):
    p = problem(design, noise)
    rng = np.random.default_rng(0)
    weights = rng.uniform(0.3, 3.0, len(p.X))
    model = MultiviewPLDA(p.views, noise=noise, tol=1e-7, max_iter=300).fit(
        p.X, p.labels, weights=weights
    )
    dense = dense_log_density(model.parameters_, p.X, np.stack(p.codes, axis=1), weights)
    assert model.log_likelihoods_[-1] == pytest.approx(dense, rel=1e-9)
    assert model.log_likelihood(p.X, p.labels, weights=weights) == pytest.approx(dense, rel=1e-9)
    assert np.diff(model.log_likelihoods_).min() >= -1e-8
    # at the optimum: no small change of any parameter is likelier
    for name in ("mean", "noise", "loading"):
        for sign in (-1, 1):
            moved = _moved(model.parameters_, name, 1e-2 * sign)
            assert dense_log_density(moved, p.X, np.stack(p.codes, axis=1), weights) < dense + 1e-3
    # the unit of weights is the unit of the noise
    twice = MultiviewPLDA(p.views, noise=noise, tol=1e-7, max_iter=300).fit(
        p.X, p.labels, weights=2 * weights
    )
    np.testing.assert_allclose(twice.noise_, 2 * model.noise_, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(twice.log_likelihoods_[-1], model.log_likelihoods_[-1], rtol=1e-9)


def _moved(p, name, amount):
    from dataclasses import replace

    if name == "mean":
        return replace(p, mean=p.mean + amount * np.sqrt(np.diag(noise_matrix(p))))
    if name == "noise":
        return replace(p, noise=p.noise * (1 + amount))
    return replace(p, loadings=(p.loadings[0] * (1 + amount), *p.loadings[1:]))


def test_equal_weights_are_none():
    p = problem("interaction", "full")
    plain = MultiviewPLDA(p.views, noise="full").fit(p.X, p.labels)
    same = MultiviewPLDA(p.views, noise="full").fit(p.X, p.labels, weights=np.ones(len(p.X)))
    np.testing.assert_array_equal(plain.noise_, same.noise_)
    np.testing.assert_array_equal(
        plain.llr(p.X[:3], p.X[3:9]), same.llr(same.enrol(p.X[:3], weights=np.ones(3)), p.X[3:9])
    )


@pytest.mark.parametrize(
    "views", [{"a": 2}, {"a": 2, "b": 2}, {"a": 2, "b": 2, "a:b": 1}, {"a": 9, "b": 9}]
)
def test_scores_of_weighted_vectors_are_those_of_dense_densities(views):
    p = problem("interaction", "full")
    labels = {name: p.labels[name] for name in ("a", "b")}
    settings = (
        {"prior": "isotropic", "prior_strength": 0.3}
        if max(views.values()) == 9
        else {"noise": "full"}
    )
    ranks = dict.fromkeys(views) if "prior" in settings else views
    rng = np.random.default_rng(3)
    weights = rng.uniform(0.3, 3.0, len(p.X))
    model = MultiviewPLDA(ranks, **settings).fit(p.X, labels, weights=weights)
    base = [v for v in model.views_ if ":" not in v]
    rows, tests, ids = np.array([0, 3, 5, 9]), np.array([7, 8, 20, 21]), [0, 0, 0, 1]
    profiles = model.enrol(p.X[rows], ids, weights=weights[rows])
    tested = model.enrol(p.X[tests], ["x", "y", "z", "z"], weights=weights[tests])

    def log_density(e, t, h):
        both = np.concatenate([e, t])
        table = np.zeros((len(both), len(base)), dtype=int)
        table[len(e) :] = [0 if view in h else 1 for view in base]
        classes = cell_classes(list(model.views_), base, table)
        return dense_log_density(model.parameters_, p.X[both], classes, weights[both])

    for same in [None, *base] if len(base) > 1 else [None]:
        found = model.llr(profiles, tested, same=same, dtype=np.float64)
        for i, e in enumerate((rows[:3], rows[3:])):
            for j, t in enumerate((tests[:1], tests[1:2], tests[2:])):
                logs = {h: log_density(e, t, h) for h in all_patterns(base)}
                yes = [h for h in logs if set([same] if same else base) <= set(h)]
                want = log_mean([logs[h] for h in yes]) - log_mean(
                    [v for h, v in logs.items() if h not in yes]
                )
                assert found[i, j] == pytest.approx(want, abs=1e-7)
    if len(base) > 1:
        labelled = {"b": np.array(["u", "v", "u", "u"])}
        mixed = model.enrol(p.X[rows], ids, labelled, weights=weights[rows])
        np.testing.assert_allclose(
            mixed.weights, [weights[rows][[0, 2]].sum(), weights[rows][1], weights[rows][3]]
        )


@UNCONNECTED
def test_statistics_with_weights_add_up_and_come_back(tmp_path):
    p = problem("missing, interaction", "diagonal")
    rng = np.random.default_rng(1)
    weights = rng.uniform(0.3, 3.0, len(p.X))
    weights /= weights.mean()
    views = tuple(p.views)

    def of(rows):
        labels = {name: [column[i] for i in rows] for name, column in p.labels.items()}
        return SufficientStatistics.from_arrays(
            p.X[rows], labels, views=views, weights=weights[rows]
        )

    whole, parts = of(np.arange(36)), of(np.arange(15)) + of(np.arange(15, 36))
    parts.save(tmp_path / "s.safetensors")
    parts = SufficientStatistics.load(tmp_path / "s.safetensors")
    assert whole.weight == pytest.approx(whole.n)
    fits = [MultiviewPLDA(p.views, max_iter=50, tol=0).fit_statistics(s) for s in (whole, parts)]
    np.testing.assert_allclose(fits[0].noise_, fits[1].noise_, rtol=1e-6)
    np.testing.assert_allclose(
        fits[0].log_likelihoods_[-1], fits[1].log_likelihoods_[-1], rtol=1e-9
    )


def test_a_committee_and_a_bundle_take_weights():
    p = problem("unbalanced", "diagonal")
    labels = {name: p.labels[name] for name in ("a", "b")}
    model = MultiviewPLDA({"a": 2, "b": 2})
    weights = np.linspace(0.5, 2, 5)
    committee = Committee({"one": model, "two": Bundle(None, model)}, factors=None).fit(p.X, labels)
    profiles = committee.enrol(p.X[:5], ["x", "x", "y", "y", "y"], weights=weights)
    np.testing.assert_allclose(profiles.weights, [weights[:2].sum(), weights[2:].sum()])
    alone = committee.experts_["one"]
    sure = committee.llr(profiles, p.X[5:8], same="a", dtype=np.float64)
    half = alone.llr(
        alone.enrol(p.X[:5], ["x", "x", "y", "y", "y"], weights=weights), p.X[5:8], dtype=np.float64
    )
    assert isinstance(profiles, Profiles)
    assert sure.shape == half.shape


@pytest.mark.parametrize("wrong", [np.ones(3), -np.ones(36), np.full(36, np.nan), np.zeros(36)])
def test_what_is_no_weight_is_refused(wrong):
    p = problem("unbalanced", "diagonal")
    with pytest.raises(DataError, match="weight"):
        MultiviewPLDA(p.views).fit(p.X, p.labels, weights=wrong)
    model = MultiviewPLDA(p.views).fit(p.X, p.labels)
    with pytest.raises(DataError, match="weight"):
        model.enrol(p.X, weights=wrong)


def test_tensors_have_no_weights():
    torch = pytest.importorskip("torch")
    p = problem("unbalanced", "diagonal")
    with pytest.raises(ParameterError, match="torch"):
        MultiviewPLDA(p.views).fit(torch.as_tensor(p.X), p.labels, weights=np.ones(len(p.X)))
