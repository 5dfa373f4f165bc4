"""Vectors of unequal noise: weights of enrolled vectors as fractional counts, against dense Gaussians."""

from __future__ import annotations

import numpy as np
import pytest
from dense import log_normal, noise_matrix
from dense_scoring import all_patterns, cell_classes, log_mean
from problems import problem

from mvplda import (
    Bundle,
    Committee,
    MultiviewPLDA,
    Profiles,
)
from mvplda.exceptions import DataError


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


def test_equal_weights_are_none():
    p = problem("interaction", "full")
    model = MultiviewPLDA(p.views, noise="full").fit(p.X, p.labels)
    weighted = model.enrol(p.X[:3], weights=np.ones(3))
    np.testing.assert_array_equal(model.llr(p.X[:3], p.X[3:9]), model.llr(weighted, p.X[3:9]))


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
    model = MultiviewPLDA(ranks, **settings).fit(p.X, labels)
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
    model = MultiviewPLDA(p.views).fit(p.X, p.labels)
    with pytest.raises(DataError, match="weight"):
        model.enrol(p.X, weights=wrong)
