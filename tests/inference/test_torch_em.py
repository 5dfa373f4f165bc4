"""EM on torch tensors: the dense posterior, and NumPy's parameters."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dense import dense_posterior
from problems import DESIGNS, NOISES, about, noise_model, perturbed, problem, speakers_and_phrases

from mvplda import MultiviewPLDA, SufficientStatistics, backend
from mvplda.exceptions import ParameterError
from mvplda.inference import design as design_module
from mvplda.inference import exact as elimination
from mvplda.inference.design import Design
from mvplda.inference.em import fit_em, moment_start, posterior, random_start
from mvplda.inference.priors import IsotropicPrior, MaximumLikelihood

torch = pytest.importorskip("torch", reason="torch is not installed")


def tensors(p: Any, noise: str) -> Any:
    return p.statistics().for_views(
        tuple(p.views), "full" if noise == "full" else "diagonal", "cpu"
    )


def relative(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-300))


@pytest.mark.parametrize("by_count", [False, True])
@pytest.mark.parametrize("pieces", ["whole", "small", "sparse"])
@pytest.mark.parametrize("name", DESIGNS)
def test_posterior_on_tensors_is_the_dense_one(
    name: str, pieces: str, by_count: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if pieces == "small":
        monkeypatch.setattr(elimination, "CHUNK_ELEMENTS", 1)
        monkeypatch.setattr(backend.Torch, "gram_rows", 3)
    if pieces == "sparse":
        monkeypatch.setattr(backend, "DENSE_TABLE_ELEMENTS", 0)
        monkeypatch.setattr(design_module, "DENSE_GRAM_ELEMENTS", 0)
    noise = NOISES[len(name) % len(NOISES)]
    p = problem(name, noise)
    sums = tensors(p, noise)
    design = replace(Design.of(sums, tuple(p.views.values())), by_count=by_count)
    origin = p.statistics().origin
    got: Any = posterior(design, about(p.parameters, origin).on(sums.xp))
    assert torch.is_tensor(got.sum_zz)
    canonical = got.parameters.on_host()
    exact = dense_posterior(p.X, p.codes, replace(canonical, mean=canonical.mean + origin))
    np.testing.assert_allclose(got.log_likelihood, exact.log_likelihood, rtol=1e-11)
    for k, (mean, covariance) in enumerate(zip(exact.means, exact.covariances, strict=True)):
        np.testing.assert_allclose(got.means[k], mean, atol=1e-9)
        np.testing.assert_allclose(got.covariances(k), covariance, atol=1e-9)
    np.testing.assert_allclose(got.sum_zz.numpy(), exact.sum_zz, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize(
    "name", ["one view", "unbalanced", "three views", "interaction", "nested", "missing"]
)
@pytest.mark.parametrize("weight", [0.0, 9.0])
def test_em_on_tensors_ends_in_the_parameters_of_numpy(
    name: str, noise: str, weight: float
) -> None:
    p = problem(name, noise)
    model = noise_model(noise, p.X.shape[1], weight=weight)
    rng = np.random.default_rng(1)
    start = about(perturbed(p.parameters, rng), p.statistics().origin)
    options: Any = {"max_iter": 15, "tol": 0.0}
    design, _ = p.design(noise)
    expected = fit_em(design, start, MaximumLikelihood(model), **options)
    sums = tensors(p, noise)
    got = fit_em(
        Design.of(sums, tuple(p.views.values())),
        start.on(sums.xp),
        MaximumLikelihood(model.on(sums.xp)),
        **options,
    )
    np.testing.assert_allclose(got.objectives, expected.objectives, rtol=1e-9)
    assert isinstance(got.parameters.mean, np.ndarray)
    for mine, theirs in zip(
        (got.parameters.mean, got.parameters.noise, *got.parameters.loadings),
        (expected.parameters.mean, expected.parameters.noise, *expected.parameters.loadings),
        strict=True,
    ):
        assert relative(mine, theirs) < 1e-6


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("make", [moment_start, random_start])
@pytest.mark.parametrize("name", ["one view", "interaction", "nested"])
def test_starts_are_the_same(name: str, noise: str, make: Any) -> None:
    p = problem(name, noise)
    model = noise_model(noise, p.X.shape[1])
    sums, host = tensors(p, noise), p.design(noise)[0].sums
    got = make(sums, tuple(p.views.values()), model.on(sums.xp), np.random.default_rng(5)).on_host()
    expected = make(host, tuple(p.views.values()), model, np.random.default_rng(5))
    np.testing.assert_allclose(got.noise, expected.noise, rtol=1e-10, atol=1e-12)
    for mine, theirs in zip(got.loadings, expected.loadings, strict=True):
        np.testing.assert_allclose(
            mine, theirs, atol=1e-6
        )  # of eigenvectors: their square root is lost in S2


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("extra", [{}, {"speaker:phrase": 2}])
def test_a_fit_to_a_tensor_is_the_fit_to_the_array(noise: Any, extra: dict[str, int]) -> None:
    X, labels = speakers_and_phrases(noise)
    views = {"speaker": 3, "phrase": 2, **extra}
    heard: list[Any] = []
    expected = MultiviewPLDA(views, noise=noise, tol=1e-5).fit(X, labels)
    model = MultiviewPLDA(views, noise=noise, tol=1e-5, callback=heard.append)
    model.fit(torch.from_numpy(X).requires_grad_(), labels)
    assert model.n_iter_ == expected.n_iter_ == len(heard)
    assert isinstance(model.mean_, np.ndarray)
    assert model.n_features_in_ == X.shape[1]
    assert relative(model.mean_, expected.mean_) < 1e-6
    assert relative(model.noise_, expected.noise_) < 1e-6
    for view in views:
        assert isinstance(model.loadings_[view], np.ndarray)
        assert relative(model.loadings_[view], expected.loadings_[view]) < 1e-6
        np.testing.assert_allclose(model.class_means_[view], expected.class_means_[view], atol=1e-6)
    for view, covariances in expected.class_covariances_.items():
        np.testing.assert_allclose(model.class_covariances_[view], covariances, atol=1e-6)
    assert str(model.diagnostics_) == str(expected.diagnostics_)
    there = model.log_likelihood(torch.from_numpy(X), labels)
    np.testing.assert_allclose(there, expected.log_likelihood(X, labels), rtol=1e-9)


@pytest.mark.parametrize("views", [["speaker"], ["speaker", "phrase", "speaker:phrase"]])
def test_a_prior_on_tensors_is_the_prior_on_arrays(views: list[str]) -> None:
    X, labels = speakers_and_phrases()
    settings: Any = {
        "prior": "isotropic",
        "prior_strength": {"noise": 0.2},
        "max_iter": 5,
        "tol": 0.0,
    }
    expected = MultiviewPLDA(dict.fromkeys(views), **settings).fit(
        X, {v: labels[v] for v in ("speaker", "phrase")}
    )
    model = MultiviewPLDA(dict.fromkeys(views), **settings)
    used: list[Any] = []
    with pytest.MonkeyPatch.context() as patch:
        m_step = IsotropicPrior.m_step

        def spy(self: Any, sums: Any, post: Any) -> Any:
            used.append(sums)
            return m_step(self, sums, post)

        patch.setattr(IsotropicPrior, "m_step", spy)
        model.fit_statistics(SufficientStatistics.from_arrays(X, labels, views=views), device="cpu")
    assert [type(sums.total) for sums in used] == [torch.Tensor] * model.n_iter_
    assert relative(model.mean_, expected.mean_) < 1e-8
    assert relative(model.noise_, expected.noise_) < 1e-8
    for view in views:
        mine, theirs = model.loadings_[view], expected.loadings_[view]
        assert relative(mine @ mine.T, theirs @ theirs.T) < 1e-8
    np.testing.assert_allclose(model.log_likelihoods_, expected.log_likelihoods_, rtol=1e-10)


def test_float32_tensors_are_summed_in_float64() -> None:
    X, labels = speakers_and_phrases()
    views = {"speaker": 3, "phrase": 2}
    expected = MultiviewPLDA(views).fit(X, labels)
    model = MultiviewPLDA(views).fit(torch.from_numpy(X).float(), labels)
    assert model.mean_.dtype == np.float64
    for view in views:
        assert relative(model.loadings_[view], expected.loadings_[view]) < 1e-4


def test_statistics_of_the_host_may_be_fitted_on_a_device() -> None:
    X, labels = speakers_and_phrases()
    statistics = SufficientStatistics.from_arrays(X, labels)
    views = {"speaker": 3, "phrase": 2}
    expected = MultiviewPLDA(views).fit_statistics(statistics)
    used: list[Any] = []
    original = backend.Torch.split_axes

    def spy(self: Any, *arguments: Any) -> Any:
        used.append(self.device.type)
        return original(self, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backend.Torch, "split_axes", spy)
        model = MultiviewPLDA(views).fit_statistics(statistics, device="cpu")
        assert set(used) == {"cpu"}
        used.clear()
        MultiviewPLDA(views).fit_statistics(statistics)
        assert not used
    assert relative(model.loadings_["speaker"], expected.loadings_["speaker"]) < 1e-6


def test_the_published_em_takes_tensors_too() -> None:
    X, labels = speakers_and_phrases()
    settings: Any = {"algorithm": "paper", "max_iter": 5, "tol": 0.0}
    views = {"speaker": 3, "phrase": 2}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "warnings.warn", lambda *args, **kwargs: None
        )  # the printed EM falls, as it does on arrays
        expected = MultiviewPLDA(views, **settings).fit(X, labels)
        model = MultiviewPLDA(views, **settings).fit(torch.from_numpy(X), labels)
    assert relative(model.loadings_["speaker"], expected.loadings_["speaker"]) < 1e-6


def test_unknown_devices_and_unfit_tensors_are_named() -> None:
    X, labels = speakers_and_phrases()
    statistics = SufficientStatistics.from_arrays(X, labels)
    with pytest.raises(ParameterError, match="device 'nowhere' cannot be used"):
        MultiviewPLDA().fit_statistics(statistics, device="nowhere")
    model = MultiviewPLDA().fit(torch.from_numpy(X), labels)
    with pytest.raises(ValueError, match="7 features"):
        model.log_likelihood(torch.from_numpy(X[:, :7]), labels)
    with pytest.raises(ValueError, match="at least 2 vectors"):
        model.fit(torch.from_numpy(X[:1]), {view: column[:1] for view, column in labels.items()})


@pytest.mark.slow
def test_the_benchmark_runs(tmp_path: Any) -> None:
    script = Path(__file__).resolve().parents[2] / "benchmarks" / "gpu_training.py"
    sizes = {
        "vectors": 4000,
        "chunk": 1000,
        "speakers": 90,
        "em-speakers": 70,
        "phrases": 5,
        "dimension": 12,
    }
    options = [f"--{name}={size}" for name, size in sizes.items()]
    command = [sys.executable, str(script), *options, "--device=cpu", "--ranks", "4", "3"]
    command += ["--output", str(tmp_path / "figures.json")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert figures["statistics of"]["vectors"] == 4000
    assert max(figures["largest difference of parameters from NumPy"].values()) < 1e-6
    iterations = [row for row in figures["EM"] if row["name"].endswith("an iteration")]
    assert len(iterations) == 5
    assert all(row["gain"] > -1e-9 for row in iterations)
