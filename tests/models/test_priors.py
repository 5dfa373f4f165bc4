"""Priors for few classes: against brute force, general optimisers and the cosine."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from dense import log_normal
from dense_scoring import all_patterns, hypothesis_log_density
from problems import DESIGNS, problem
from scipy.optimize import minimize
from scipy.stats import rankdata

from mvplda import PLDA, MultiviewPLDA, SufficientStatistics, make_two_views
from mvplda.distributed.shards import gather
from mvplda.exceptions import ParameterError
from mvplda.inference.priors import Components, IsotropicPrior, moment_components

VIEWS = {"speaker": None, "phrase": None, "speaker:phrase": None}


def unit(X: np.ndarray) -> np.ndarray:
    return X / np.linalg.norm(X, axis=1, keepdims=True)


def few(rng: np.random.Generator, speakers: int = 6, phrases: int = 3, times: int = 2, D: int = 5):
    s, p = np.divmod(np.repeat(np.arange(speakers * phrases), times), phrases)
    X = rng.normal(size=(speakers, D))[s] + 0.6 * rng.normal(size=(phrases, D))[p]
    X += 0.5 * rng.normal(size=(speakers * phrases, D))[s * phrases + p] + 0.7 * rng.normal(
        size=(len(s), D)
    )
    return X, {"speaker": s, "phrase": p}


def covariances(model: MultiviewPLDA) -> tuple[np.ndarray, ...]:
    return tuple(map(np.asarray, Components.of(model.parameters_).covariances))


def dense_log_likelihood(X: np.ndarray, codes: list[np.ndarray], c: Components) -> float:
    n = len(X)
    joint = np.kron(np.eye(n), c.covariances[-1])
    for k, psi in enumerate(c.covariances[:-1]):
        joint += np.kron(np.equal.outer(codes[k], codes[k]).astype(float), psi)
    return log_normal(X.reshape(-1) - np.tile(c.mean, n), joint)


def dense_objective(X, codes, c: Components, prior: IsotropicPrior) -> float:
    counts = [len(np.unique(code)) for code in codes] + [len(X)]
    total = dense_log_likelihood(X, codes, c)
    for psi, target, s, n in zip(
        c.covariances, prior.targets, prior.strengths, counts, strict=True
    ):
        weight = n * s / (1 - s)
        total -= 0.5 * weight * (np.linalg.slogdet(psi)[1] + target * np.trace(np.linalg.inv(psi)))
    return total


def test_map_is_what_a_general_optimiser_finds():
    rng = np.random.default_rng(0)
    X, y = few(rng, speakers=4, phrases=2, times=2, D=2)
    strengths = {"speaker": 0.4, "phrase": 0.5, "noise": 0.3}
    model = MultiviewPLDA(
        {"speaker": None, "phrase": None},
        prior="isotropic",
        prior_strength=strengths,
        max_iter=3000,
        tol=1e-13,
    ).fit(X, y)
    codes = [y["speaker"], y["phrase"]]
    statistics = SufficientStatistics.from_arrays(X, y)
    moments = moment_components(statistics.for_views(("speaker", "phrase"), "full").on_host())
    prior = IsotropicPrior(moments, tuple(strengths.values()))
    lower = np.tril_indices(2)

    def unpack(theta: np.ndarray) -> Components:
        parts = []
        for k in range(3):
            L = np.zeros((2, 2))
            L[lower] = theta[2 + 3 * k : 5 + 3 * k]
            parts.append(L @ L.T)
        return Components(theta[:2], tuple(parts))

    def cost(theta: np.ndarray) -> float:
        return -dense_objective(X, codes, unpack(theta), prior)

    start = np.concatenate(
        [X.mean(axis=0), *((np.sqrt(t) * np.eye(2))[lower] for t in prior.targets)]
    )
    found = minimize(cost, start, method="BFGS", options={"gtol": 1e-9, "maxiter": 2000})
    best = unpack(found.x)
    ours = Components.of(model.parameters_)
    assert dense_objective(X, codes, ours, prior) == pytest.approx(-found.fun, abs=1e-6)
    for a, b in zip(ours.covariances, best.covariances, strict=True):
        np.testing.assert_allclose(a, b, atol=2e-4)


@pytest.mark.parametrize("design", list(DESIGNS))
def test_the_objective_never_falls(design):
    given = problem(design)
    seen = []
    model = MultiviewPLDA(dict.fromkeys(given.views), prior="isotropic", prior_strength=0.4, tol=0)
    for iterations in range(1, 13):
        model.set_params(max_iter=iterations).fit(given.X, given.labels)
        seen.append((model.log_likelihoods_[-1], model.parameters_))
    statistics = given.statistics()
    sums = statistics.for_views(tuple(given.views), "full").on_host()
    prior = IsotropicPrior(moment_components(sums), (0.4,) * (len(given.views) + 1))
    objectives = [ll + prior.log_density(p, sums) for ll, p in seen]
    assert np.diff(objectives).min() >= -1e-8 * abs(objectives[-1])
    assert np.diff(model._fitted.objectives).min() >= -1e-9 * abs(objectives[-1])


def test_moments_of_a_balanced_design_are_the_mean_squares():
    rng = np.random.default_rng(2)
    I, J, K, D = 7, 4, 3, 2
    X, y = few(rng, I, J, K, D)
    cube = X.reshape(I, J, K, D)
    cell, speaker, grand = cube.mean(2), cube.mean((1, 2)), cube.mean((0, 1, 2))
    within = (cube - cell[:, :, None]).reshape(-1, D)
    noise = within.T @ within / (I * J * (K - 1))
    phrase = cube.mean((0, 2))
    rest = (cell - speaker[:, None] - phrase + grand).reshape(-1, D)
    mixed = K * rest.T @ rest / ((I - 1) * (J - 1))
    between = J * K * (speaker - grand).T @ (speaker - grand) / (I - 1)
    statistics = SufficientStatistics.from_arrays(X, y, views=tuple(VIEWS))
    found = moment_components(statistics.for_views(tuple(VIEWS), "full").on_host())
    np.testing.assert_allclose(
        found.covariances[0], (between - mixed) / (J * K), rtol=1e-3, atol=1e-4
    )
    np.testing.assert_allclose(found.covariances[2], (mixed - noise) / K, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(found.covariances[3], noise, rtol=1e-3, atol=1e-4)


def test_full_rank_loadings_score_as_dense_densities_do():
    rng = np.random.default_rng(4)
    X, y = few(rng, D=3)
    model = MultiviewPLDA(VIEWS, prior="isotropic", prior_strength=0.5, max_iter=2, tol=0).fit(X, y)
    assert set(model.views_.values()) == {3}
    enrol, test = X[:3], X[10:12]
    p, views, base = model.parameters_, list(VIEWS), ["speaker", "phrase"]
    dense = {
        h: hypothesis_log_density(p, views, base, h, enrol, test[:1]) for h in all_patterns(base)
    }
    others = np.logaddexp.reduce([v for h, v in dense.items() if len(h) < 2]) - np.log(3)
    profiles = model.enrol(enrol, ["a"] * 3)
    assert model.llr(profiles, test[:1], dtype=np.float64)[0, 0] == pytest.approx(
        dense["speaker", "phrase"] - others, abs=1e-9
    )
    told = model.llr(
        profiles, test[:1], same="speaker", given={"phrase": "different"}, dtype=np.float64
    )
    assert told[0, 0] == pytest.approx(dense[("speaker",)] - dense[()], abs=1e-9)


def test_full_strength_ranks_like_cosine():
    rng = np.random.default_rng(6)
    X, y = few(rng, D=6)
    X = unit(X - X.mean(axis=0))
    model = MultiviewPLDA(VIEWS, prior="isotropic", prior_strength=1.0).fit(X, y)
    enrol, test = (unit(rng.normal(size=(n, 6))) for n in (20, 30))
    cosines = enrol @ test.T
    centred = MultiviewPLDA.from_parameters(np.zeros(6), model.loadings_, model.noise_)
    for question in (
        {},
        {"same": "speaker"},
        {"same": "speaker", "given": {"phrase": "different"}},
    ):
        llrs = centred.llr(enrol, test, dtype=np.float64, **question)
        np.testing.assert_array_equal(rankdata(llrs.round(10)), rankdata(cosines.round(10)))


@pytest.mark.parametrize(
    "case", ["one class", "one vector a class", "two vectors", "wide", "one phrase"]
)
def test_little_data_is_enough(case):
    rng = np.random.default_rng(7)
    X, y = few(rng, D=8)
    if case == "one class":
        y = {view: np.zeros(len(X), int) for view in y}
    elif case == "one vector a class":
        y = {view: np.arange(len(X)) for view in y}
    elif case == "two vectors":
        X, y = X[:2], {view: codes[:2] for view, codes in y.items()}
    elif case == "wide":
        X = rng.normal(size=(len(X), 60))
    else:
        y["phrase"] = np.zeros(len(X), int)
    model = MultiviewPLDA(VIEWS, prior="isotropic").fit(X, y)
    assert all(np.linalg.eigvalsh(c)[0] > 0 for c in covariances(model))
    assert sum(np.trace(c) for c in covariances(model)) < 10 * X.var(axis=0).sum() + 1
    assert np.isfinite(model.llr(X[:2], X[:5])).all()


def test_strengths_have_a_default():
    rng = np.random.default_rng(9)
    X, y = few(rng, speakers=4)
    assert set(MultiviewPLDA(VIEWS, prior="isotropic").fit(X, y).prior_strength_.values()) == {0.6}


def test_a_prior_is_kept_in_the_file(tmp_path):
    rng = np.random.default_rng(11)
    X, y = few(rng)
    model = PLDA(prior="isotropic", prior_strength=0.5).fit(X, y["speaker"])
    model.save(tmp_path / "model.safetensors")
    back = PLDA.load(tmp_path / "model.safetensors")
    assert back.prior == "isotropic"
    assert back.prior_strength == 0.5
    np.testing.assert_array_equal(back.llr(X[:3], X), model.llr(X[:3], X))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"views": {"speaker": 2, "phrase": None}}, "leave every rank None"),
        ({"prior": "flat"}, "prior must be one of"),
        ({"prior_strength": 1.5}, "got 1.5 for 'speaker'"),
        ({"prior_strength": {"pose": 0.5}}, "a strength for .pose."),
        ({"prior_strength": "much"}, "got 'much'"),
        ({"noise_shrinkage": 0.1}, "cannot be combined with noise_shrinkage="),
    ],
)
def test_wrong_settings_are_named(settings, message):
    X, y = few(np.random.default_rng(12))
    asked = {"views": VIEWS, "prior": "isotropic", **settings}
    with pytest.raises(ParameterError, match=message):
        MultiviewPLDA(asked.pop("views"), **asked).fit(X, y)


def test_a_prior_goes_with_statistics():
    X, y = few(np.random.default_rng(13))
    statistics = SufficientStatistics.from_arrays(X, y, views=tuple(VIEWS))
    model = MultiviewPLDA(
        VIEWS, prior="isotropic", prior_strength=0.5, max_iter=2, tol=0
    ).fit_statistics(statistics)
    other = MultiviewPLDA(VIEWS, prior="isotropic", prior_strength=0.5, max_iter=2, tol=0).fit(X, y)
    np.testing.assert_allclose(model.noise_, other.noise_, atol=1e-10)


def test_a_prior_through_shards_on_disk_is_the_prior_in_memory(tmp_path, monkeypatch):
    monkeypatch.setattr("mvplda.inference.priors.MOMENT_ROWS", 4)
    X, y = few(np.random.default_rng(14), speakers=9)
    paths = []
    for i, rows in enumerate(np.array_split(np.random.default_rng(0).permutation(len(X)), 3)):
        paths.append(tmp_path / f"{i}.npz")
        np.savez(paths[-1], X=X[rows], **{view: column[rows] for view, column in y.items()})
    gathered = gather(paths, views=list(VIEWS))
    gathered.save(tmp_path / "stats.safetensors")
    settings: dict[str, Any] = {
        "prior": "isotropic",
        "prior_strength": {"speaker": 0.3, "noise": 0.7},
        "max_iter": 4,
        "tol": 0,
    }
    model = MultiviewPLDA(VIEWS, **settings).fit_statistics(
        SufficientStatistics.load(tmp_path / "stats.safetensors")
    )
    other = MultiviewPLDA(VIEWS, **settings).fit(X, y)
    assert model.prior_strength_ == other.prior_strength_
    np.testing.assert_allclose(model.mean_, other.mean_, atol=1e-10)
    for mine, theirs in zip(covariances(model), covariances(other), strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-10)
    np.testing.assert_allclose(
        model.llr(X[:5], X, dtype=float), other.llr(X[:5], X, dtype=float), atol=1e-8
    )


@pytest.mark.parametrize(
    ("settings", "may_fall"),
    [
        ({}, False),
        ({"noise": "full"}, False),
        ({"noise_shrinkage": 0.5}, True),
        ({"noise": "full", "noise_shrinkage": 0.5}, True),
        ({"prior": "isotropic"}, True),
        ({"prior": "isotropic", "prior_strength": 0.9}, True),
    ],
    ids=str,
)
def test_what_em_maximises_never_falls(settings: dict[str, Any], may_fall: bool) -> None:
    """The objective with the prior's part; the log-likelihood alone may fall where there is one."""
    steps, objectives = [], []
    for seed in range(4):
        X, y, _ = make_two_views(8 + seed, 4, 5, 6, (4, 3), held_out=3, random_state=seed)
        model = MultiviewPLDA(["speaker", "phrase"], tol=0, max_iter=60, **settings).fit(X, y)
        assert model.objectives_.shape == model.log_likelihoods_.shape
        steps.append(np.diff(model.log_likelihoods_).min())
        objectives.append(np.diff(model.objectives_).min())
        if not settings.get("prior") and "noise_shrinkage" not in settings:
            np.testing.assert_array_equal(model.objectives_, model.log_likelihoods_)
    assert min(objectives) > -1e-9
    assert (min(steps) < -1e-6) == may_fall
