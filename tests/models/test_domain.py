"""Unit-length embeddings in a domain that enrolments tell: against dense Gaussians, and what it is for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from mvplda import load
from mvplda.exceptions import DataError, LabelError
from mvplda.models.domain import DomainPLDA, moments

BLOCKS = {"voice": (6, "speaker"), "words": (4, "phrase")}


def corpus(seed: int = 0, n: int = 400, shift: float = 0.0) -> tuple[np.ndarray, dict[str, Any]]:
    rng = np.random.default_rng(seed)
    labels = {
        "speaker": rng.integers(0, 20, n),
        "phrase": rng.integers(0, 5, n),
        "domain": rng.integers(0, 2, n),
    }
    voices = rng.normal(size=(20, 6))[labels["speaker"]] + 0.5 * rng.normal(size=(n, 6)) + 1
    words = rng.normal(size=(5, 4))[labels["phrase"]] + 0.5 * rng.normal(size=(n, 4)) + 2
    return np.hstack([voices, words]) + shift, labels


@pytest.fixture(scope="module")
def model() -> DomainPLDA:
    return DomainPLDA(BLOCKS).fit(*corpus())


def dense_log_ratio(
    model: DomainPLDA, name: str, e: np.ndarray, counts: list[int], t: np.ndarray
) -> float:
    """Of sharing the class and the domain against the domain alone; e: mean of takes of cells with these counts."""
    start = 0 if name == "voice" else 6
    block = slice(start, start + BLOCKS[name][0])
    centre = (model.mean_ + model.shift_)[block]
    D = len(centre)
    own, noise = (part[name].astype(float) for part in (model.own_, model.noise_))
    domain = model.doubt_[name] / D / (1 - centre @ centre) * np.eye(D)

    def about(u: np.ndarray) -> np.ndarray:
        return (u - centre) / np.sqrt(1 - 2 * u @ centre + centre @ centre)

    share = sum(c**2 for c in counts) / sum(counts) ** 2
    other = model.other_[name] * np.eye(D)
    A = own + share * other + noise / sum(counts) + domain
    B = own + other + noise + domain
    both = np.concatenate([about(e[block]), about(t[block])])
    logs = []
    for shared in (own + domain, domain):
        covariance = np.block([[A, shared], [shared, B]])
        logs.append(multivariate_normal.logpdf(both, cov=covariance))
    return float(logs[0] - logs[1])


@pytest.mark.parametrize("where", ["training", "deployed"])
def test_scores_are_those_of_dense_gaussians(model: DomainPLDA, where: str) -> None:
    X, _ = corpus(1)
    profiles = model.enrol(X[:9], np.repeat(["x", "y", "z"], 3))
    tests = model.enrol(X[9:14])
    used = model if where == "training" else model.deployed(profiles)
    logs = used.log_likelihoods(profiles, tests)
    for i in range(3):
        for j in range(5):
            mean = profiles.y[i] / 3
            voice = dense_log_ratio(used, "voice", mean, [3], tests.y[j])
            words = dense_log_ratio(used, "words", mean, [3], tests.y[j])
            assert logs[("speaker",)][i, j] == pytest.approx(voice, abs=1e-9)
            assert logs[("phrase",)][i, j] == pytest.approx(words, abs=1e-9)
            assert logs[("speaker", "phrase")][i, j] == pytest.approx(voice + words, abs=1e-9)


def test_a_profile_of_several_phrases_has_a_mean_over_cells(model: DomainPLDA) -> None:
    X, _ = corpus(2)
    profiles = model.enrol(X[:4], ["x"] * 4, {"phrase": ["a", "a", "a", "b"]})
    tests = model.enrol(X[4:5])
    logs = model.log_likelihoods(profiles, tests)
    mean = profiles.y.sum(axis=0) / 4
    expected = dense_log_ratio(model, "voice", mean, [3, 1], tests.y[0])
    assert logs[("speaker",)][0, 0] == pytest.approx(expected, abs=1e-9)
    # the test says one of the two phrases, each as likely
    ratios = [
        dense_log_ratio(model, "words", profiles.y[row] / count, [count], tests.y[0])
        for row, count in enumerate((3, 1))
    ]
    expected = float(np.logaddexp.reduce(ratios) - np.log(2))
    assert logs[("phrase",)][0, 0] == pytest.approx(expected, abs=1e-9)


def test_the_domain_has_the_exact_posterior(model: DomainPLDA) -> None:
    X, labels = corpus(3)
    profiles = model.enrol(X[:30], labels["speaker"][:30], {"phrase": labels["phrase"][:30]})
    deployed = model.deployed(profiles)
    v = model.variances_["voice"]
    codes = profiles.labels["phrase"].codes
    n = len(codes)
    V = np.empty((n, n))
    for i in range(n):
        for j in range(n):
            V[i, j] = v["domain"] + v["speaker"] * (profiles.owner[i] == profiles.owner[j])
            V[i, j] += v["phrase"] * (codes[i] == codes[j])
        V[i, i] += v["cell"] + v["take"] / profiles.weights[i]
    means = profiles.y[:, :6] / profiles.weights[:, None] - model.mean_[:6]
    gain = v["domain"] * np.linalg.solve(V, np.ones(n))
    np.testing.assert_allclose(deployed.shift_[:6], gain @ means, atol=1e-12)
    assert deployed.doubt_["voice"] == pytest.approx(v["domain"] * (1 - gain.sum()), rel=1e-9)


def test_one_person_a_thousand_times_tells_little_of_the_domain(model: DomainPLDA) -> None:
    X, labels = corpus(4)
    same = np.flatnonzero((labels["speaker"] == 3) & (labels["phrase"] == 2))
    often = model.deployed(model.enrol(np.repeat(X[same], 1000, axis=0), ["x"] * 1000 * len(same)))
    everybody = model.deployed(model.enrol(X, labels["speaker"], {"phrase": labels["phrase"]}))
    for name in model.variances_:
        assert everybody.doubt_[name] < often.doubt_[name]
    v = model.variances_["voice"]
    least = 1 / (1 / v["domain"] + 1 / (v["speaker"] + v["phrase"] + v["cell"]))
    assert often.doubt_["voice"] == pytest.approx(least, rel=0.01)


def test_profiles_stay_as_they_are_when_the_domain_moves(model: DomainPLDA) -> None:
    X, labels = corpus(5, shift=0.5)
    profiles = model.enrol(X[:50], labels["speaker"][:50])
    deployed = model.deployed(profiles)
    assert not np.allclose(deployed.shift_, 0)
    scores = deployed.llr(profiles, X[50:60])
    again = deployed.llr(deployed.enrol(X[:50], labels["speaker"][:50]), X[50:60])
    np.testing.assert_array_equal(scores, again)
    assert deployed.deployed(profiles[:0]).shift_ == pytest.approx(np.zeros(10))


def test_a_saved_model_gives_the_same_scores(model: DomainPLDA, tmp_path) -> None:
    X, _ = corpus(6)
    deployed = model.deployed(model.enrol(X[:9], np.repeat(["x", "y", "z"], 3)))
    deployed.save(tmp_path / "model.safetensors")
    loaded = load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(loaded.llr(X[:5], X[5:9]), deployed.llr(X[:5], X[5:9]))


def test_moments_are_unbiased_for_uneven_designs() -> None:
    rng = np.random.default_rng(0)
    truth = (1.0, 0.5, 0.25, 2.0)
    found = np.zeros(4)
    for _ in range(20):
        own = rng.integers(0, 30, 3000)
        rest = rng.integers(0, 20, 3000)
        cells = rng.normal(size=(30, 20, 3)) * np.sqrt(truth[2])
        X = rng.normal(size=(30, 3))[own] * np.sqrt(truth[0])
        X = X + rng.normal(size=(20, 3))[rest] * np.sqrt(truth[1]) + cells[own, rest]
        X = X + rng.normal(size=(3000, 3)) * np.sqrt(truth[3])
        found += [np.trace(part) / 3 for part in moments(X, own, rest)]
    np.testing.assert_allclose(found / 20, truth, rtol=0.15)


def test_what_cannot_be_fitted_or_scored_is_said(model: DomainPLDA) -> None:
    X, labels = corpus()
    with pytest.raises(LabelError, match="phrase"):
        DomainPLDA(BLOCKS).fit(X, {"speaker": labels["speaker"]})
    with pytest.raises(DataError, match="10 columns"):
        DomainPLDA(BLOCKS).fit(X[:, :9], labels)
    zeros = X[:2].copy()
    zeros[0, :6] = 0
    with pytest.raises(DataError, match="block of zeros"):
        model.evidence(zeros)


def test_a_fitted_model_is_an_expert_of_a_committee(tmp_path):
    """It is moved to the domain of the training vectors, keeps its covariances, and is written with the others."""
    from mvplda import make_committee
    from mvplda.models.domain import InDomain

    X, labels = corpus()
    model = DomainPLDA(BLOCKS).fit(X, labels)
    own = {view: labels[view] for view in ("speaker", "phrase")}
    shifted = X + np.random.default_rng(1).normal(scale=0.2, size=X.shape[1])
    sizes = {name: columns for name, (columns, _) in BLOCKS.items()}
    committee = make_committee(sizes, list(own))
    committee.experts = {**committee.experts, "default model": InDomain(model)}
    committee.fit(shifted, own)
    expert = committee.experts_["default model"]
    enrolled = model.enrol(shifted, own["speaker"], {"phrase": own["phrase"]})
    np.testing.assert_array_equal(expert.mean_, model.deployed(enrolled).settled().mean_)
    assert np.abs(expert.mean_ - model.mean_).max() > 0.01
    for name in BLOCKS:
        np.testing.assert_array_equal(expert.own_[name], model.own_[name])
    committee.save(tmp_path / "committee.safetensors")
    again = load(tmp_path / "committee.safetensors")
    np.testing.assert_allclose(
        again.llr(shifted[:5], shifted[5:9]), committee.llr(shifted[:5], shifted[5:9]), atol=1e-5
    )
