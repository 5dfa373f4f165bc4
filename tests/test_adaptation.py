"""Adaptation: endpoints give each model back, and a shifted domain is better served."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from problems import crossed, random_parameters
from problems import draw as draw_vectors

from mvplda import PLDA, Bundle, MultiviewPLDA, make_committee
from mvplda.adaptation import (
    adapt,
    adapted,
    interpolate,
    mean_share,
    recentred,
    shift_mean,
)
from mvplda.exceptions import DataError, LabelError, ParameterError
from mvplda.inference.parameters import Parameters
from mvplda.metrics import eer
from mvplda.preprocessing import Centring, unit_chain
from mvplda.toy import known_model

VIEWS = {"speaker": 3, "phrase": 2}
D = 8


def fitted(seed: int, noise: Any = "diagonal", views: Any = VIEWS) -> MultiviewPLDA:
    rng = np.random.default_rng(seed)
    codes = list(crossed(30, 8, 3))
    X = draw_vectors(rng, codes, random_parameters(rng, D, (3, 2), noise))
    return MultiviewPLDA(views, noise=noise, max_iter=20, tol=0).fit(
        X, dict(zip(VIEWS, codes, strict=True))
    )


def covariances(model: MultiviewPLDA) -> dict[str, np.ndarray]:
    noise = np.diag(model.noise_) if model.noise_.ndim == 1 else model.noise_
    return {"noise": noise, **{v: B @ B.T for v, B in model.loadings_.items()}}


@pytest.mark.parametrize(
    "noises", [("diagonal", "diagonal"), ("full", "full"), ("full", "diagonal")]
)
@pytest.mark.parametrize("weight", [0.0, 1.0])
def test_the_ends_are_the_models(weight: float, noises: Any) -> None:
    pair = fitted(0, noises[0]), fitted(1, noises[1])
    mixed, end = interpolate(*pair, weight), pair[int(weight)]
    for name, covariance in covariances(end).items():
        assert covariances(mixed)[name] == pytest.approx(covariance, abs=1e-10)
    assert mixed.mean_ == pytest.approx(end.mean_)


def test_between_the_ends_covariances_are_mixed() -> None:
    a, b = fitted(0, "full"), fitted(1, "full")
    mixed = interpolate(a, b, 0.3)
    assert mixed.views_ == VIEWS
    noise = 0.7 * covariances(a)["noise"] + 0.3 * covariances(b)["noise"]
    assert covariances(mixed)["noise"] == pytest.approx(noise)
    lower = np.linalg.inv(np.linalg.cholesky(noise))
    for (
        view,
        rank,
    ) in VIEWS.items():  # the best approximation of this rank, in the metric of the noise
        both = 0.7 * covariances(a)[view] + 0.3 * covariances(b)[view]
        values = np.linalg.eigvalsh(lower @ both @ lower.T)[::-1]
        found = np.linalg.eigvalsh(lower @ covariances(mixed)[view] @ lower.T)[::-1]
        assert found[:rank] == pytest.approx(values[:rank])
    assert interpolate(a, a, 0.3).llr(np.eye(D), np.eye(D)) == pytest.approx(
        a.llr(np.eye(D), np.eye(D)), abs=1e-4
    )


def test_the_result_is_a_model_like_any(tmp_path: Any) -> None:
    a, b = fitted(0, "full"), fitted(1)
    before = {name: c.copy() for name, c in covariances(a).items()}
    mixed = interpolate(a, b)
    mixed.save(tmp_path / "m")
    again = MultiviewPLDA.load(tmp_path / "m")
    X = np.random.default_rng(0).normal(size=(6, D))
    assert again.llr(X, X) == pytest.approx(mixed.llr(X, X))
    labels = {"speaker": np.arange(6) % 2, "phrase": np.arange(6) // 3}
    assert np.isfinite(mixed.log_likelihood(X, labels))
    assert mixed.sample(labels, random_state=0).shape == (6, D)
    assert all((covariances(a)[name] == c).all() for name, c in before.items())
    with pytest.raises(LabelError, match="no class posteriors"):
        mixed.llr(X, X, known={"phrase": np.zeros(6)})
    one = PLDA(2).fit(np.vstack([X, X + 0.1]), np.tile(np.arange(6), 2))
    assert isinstance(interpolate(one, one), PLDA)


def test_mean_shift() -> None:
    model, X = fitted(0), np.random.default_rng(0).normal(5, 1, (100, D))
    assert shift_mean(model, X, 1.0).mean_ == pytest.approx(X.mean(0))
    assert shift_mean(model, X, 0.25).mean_ == pytest.approx(0.75 * model.mean_ + 0.25 * X.mean(0))
    away = X.mean(0) - model.mean_
    asked: dict[str, Any] = {"known": {"phrase": np.arange(6)}}
    there = shift_mean(model, X, 1.0).llr(X[:6], X[6:20], **asked)
    assert there == pytest.approx(model.llr(X[:6] - away, X[6:20] - away, **asked), abs=1e-3)


@pytest.fixture(scope="module")
def domains() -> dict[str, Any]:
    """A model of one domain; another whose noise is larger in a few directions, and whose mean has moved."""
    old = known_model(0, dimension=30, ranks=(6, 6))
    old.noise_ = old.noise_ / 16
    rng = np.random.default_rng(1)
    extra = 2 * rng.normal(size=(30, 4))
    p = old.parameters_
    new = MultiviewPLDA(old.views)
    new._take(
        tuple(old.views_),
        Parameters(
            p.mean + 4 * rng.normal(size=30), p.loadings, np.diag(p.noise) + extra @ extra.T
        ),
    )
    new.n_features_in_ = 30

    def drawn(model: MultiviewPLDA, speakers: int, seed: int) -> tuple[np.ndarray, dict[str, Any]]:
        labels = dict(zip(VIEWS, crossed(speakers, 10, 4), strict=True))
        return model.sample(labels, random_state=seed), labels

    training = drawn(old, 100, 0)
    model = MultiviewPLDA({"speaker": 6, "phrase": 6}, noise="full", max_iter=10, tol=0).fit(
        *training
    )
    return {
        "training": training,
        "model": model,
        "few": drawn(new, 12, 1),
        "held out": drawn(new, 60, 2),
    }


def merit(model: MultiviewPLDA, data: tuple[np.ndarray, dict[str, Any]]) -> tuple[float, float]:
    """Log-likelihood a vector, and EER of "same speaker"."""
    X, labels = data
    scores = model.llr(X[::4], X[1::4], same="speaker")
    same = labels["speaker"][::4][:, None] == labels["speaker"][1::4]
    return model.score(X, labels), eer(scores[same], scores[~same])


def test_adaptation_serves_the_new_domain(domains: dict[str, Any]) -> None:
    model, few, held_out = domains["model"], domains["few"], domains["held out"]
    results = {
        "none": merit(model, held_out),
        "mean": merit(shift_mean(model, few[0], 1.0), held_out),
        "supervised": merit(adapt(model, few[0], few[1], 0.5), held_out),
        "new only": merit(adapt(model, few[0], few[1], 1.0), held_out),
    }
    for name in ("mean", "supervised"):
        assert results[name][0] > results["none"][0] + 1, name
    assert results["supervised"][1] < 0.95 * results["none"][1]
    assert results["supervised"][0] > results["mean"][0]
    assert results["supervised"][0] > results["new only"][0]
    assert results["supervised"][1] < 0.95 * results["new only"][1]


# -- how far to go -----------------------------------------------------------------


def test_the_share_against_its_definition() -> None:
    """The error of a mean by leaving every vector out once."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(23, 4)) @ rng.normal(size=(4, 4)) + 1.0
    old = rng.normal(size=4)
    without = np.array([np.delete(X, i, axis=0).mean(0) for i in range(23)])
    chance = 22 / 23 * ((without - X.mean(0)) ** 2).sum()
    assert mean_share(X, old) == pytest.approx(1 - chance / ((X.mean(0) - old) ** 2).sum())
    assert mean_share(X, X.mean(0)) == 0
    assert mean_share(X, X.mean(0) + 1e-3) == 0


def test_few_vectors_of_the_own_domain_move_nothing_and_many_of_another_all() -> None:
    rng = np.random.default_rng(0)
    shares = [mean_share(X, np.zeros(30)) for X in rng.normal(size=(40, 12, 30))]
    assert np.mean(shares) == pytest.approx(0.0, abs=0.15)
    far = rng.normal(size=(5000, 30)) * np.linspace(1, 4, 30) + 2
    assert mean_share(far, np.zeros(30)) > 0.99


def test_the_mean_that_the_preprocessing_takes_off_moves() -> None:
    """Behind the move the length is normalised, which a mean that moves after it cannot make good."""
    rng = np.random.default_rng(1)
    codes = crossed(30, 6, 4)
    labels = dict(zip(VIEWS, codes, strict=True))
    X = draw_vectors(rng, list(codes), random_parameters(rng, D, (3, 2), "diagonal"))
    new = X * np.linspace(0.7, 1.5, D) + 6 * rng.normal(size=D)
    bundle = Bundle(unit_chain(), MultiviewPLDA(VIEWS, noise="full", max_iter=5, tol=0)).fit(
        X, labels
    )
    before = bundle.prepare(X[:3]).copy()
    moved = bundle.adapt(new)
    share = mean_share(new, X.mean(0))
    assert share > 0.95
    by_hand = new - ((1 - share) * X.mean(0) + share * new.mean(0))
    assert moved.prepare(new) == pytest.approx(
        by_hand / np.linalg.norm(by_hand, axis=1, keepdims=True)
    )
    assert bundle.prepare(X[:3]) == pytest.approx(before)
    for name, covariance in covariances(moved.scorer).items():
        assert covariance == pytest.approx(covariances(bundle.scorer)[name])
    same = labels["speaker"][::4][:, None] == labels["speaker"][1::4]

    def error(some: Bundle) -> float:
        scores = some.llr(new[::4], new[1::4], same="speaker")
        return float(eer(scores[same], scores[~same]))

    assert error(moved) < 0.8 * error(bundle)
    again = load_bytes(moved)
    assert again.llr(new[:5], new[5:9]) == pytest.approx(moved.llr(new[:5], new[5:9]), abs=1e-5)
    assert recentred(Centring().fit(X), new, 1.0).mean_ == pytest.approx(new.mean(0))


@pytest.mark.parametrize("kind", ["views", "one"])
def test_a_model_with_a_prior_is_adapted_with_labels_too(kind: str) -> None:
    """Its ranks are not for settings to say, before an adaptation and after."""
    rng = np.random.default_rng(4)
    codes = crossed(12, 4, 3)
    labels: Any = dict(zip(VIEWS, codes, strict=True)) if kind == "views" else codes[0]
    X = draw_vectors(rng, list(codes), random_parameters(rng, D, (3, 2), "diagonal"))
    few: dict[str, Any] = {"prior": "isotropic", "prior_strength": 0.5}
    model = (MultiviewPLDA(dict.fromkeys(VIEWS), **few) if kind == "views" else PLDA(**few)).fit(
        X, labels
    )
    moved = adapt(shift_mean(model, X + 1, 1.0), X + 1, labels, 0.25)
    fresh = (MultiviewPLDA(dict.fromkeys(VIEWS), **few) if kind == "views" else PLDA(**few)).fit(
        X + 1, labels
    )
    assert moved.mean_ == pytest.approx(fresh.mean_)
    for name, covariance in covariances(moved).items():
        assert covariance == pytest.approx(
            0.75 * covariances(model)[name] + 0.25 * covariances(fresh)[name], abs=1e-8
        )


def test_a_committee_is_adapted_expert_by_expert() -> None:
    rng = np.random.default_rng(2)
    codes = crossed(16, 4, 4)
    labels = dict(zip(VIEWS, codes, strict=True))
    X = draw_vectors(rng, list(codes), random_parameters(rng, D, (3, 2), "diagonal"))
    new = X + 6 * rng.normal(size=D)
    committee = make_committee({"a": 5, "b": D - 5}, list(VIEWS)).fit(X, labels)
    moved = adapted(committee, new)
    assert moved.factors_ == committee.factors_
    for name, part in {"a": new[:, :5], "b, whitened": new[:, 5:]}.items():
        own = committee.experts_[name]
        by_hand = own.adapt(part) if isinstance(own, Bundle) else adapted(own, part)
        assert moved.experts_[name].llr(part[:4], part[4:9]) == pytest.approx(
            by_hand.llr(part[:4], part[4:9])
        )
    assert not np.allclose(moved.llr(new[:4], new[4:9]), committee.llr(new[:4], new[4:9]))
    assert moved.llr(new[:4], new[4:9]).shape == (4, 5)


def load_bytes(bundle: Bundle) -> Bundle:
    with tempfile.TemporaryDirectory() as folder:
        bundle.save(Path(folder) / "m.safetensors")
        return Bundle.load(Path(folder) / "m.safetensors")


def test_errors() -> None:
    a = fitted(0)
    with pytest.raises(LabelError, match="different views"):
        interpolate(a, fitted(1, views={"speaker": 2}))
    with pytest.raises(ParameterError, match=r"weight lies in \[0, 1\]"):
        interpolate(a, a, 1.5)
    with pytest.raises(DataError, match="width 3, expected 8"):
        shift_mean(a, np.zeros((4, 3)))
    with pytest.raises(DataError, match="at least 2 finite"):
        shift_mean(a, np.full((4, D), np.nan))
    with pytest.raises(ParameterError, match="a weight is for vectors with labels"):
        adapted(a, np.zeros((4, D)), weight=0.5)
