"""Unit-length embeddings in a domain that enrolments tell: against dense Gaussians, and what it is for."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from answer_checks import check_trials
from scipy.stats import multivariate_normal

from mvplda import Bundle, load
from mvplda.exceptions import DataError, LabelError, ParameterError, UnknownClassWarning
from mvplda.voice.domain import known_classes
from mvplda.voice.domain.estimator import DomainPLDA
from mvplda.voice.domain.known_classes import NEAREST_CLASSES
from mvplda.voice.domain.moments import channel_directions, variance_components
from mvplda.voice.domain.posterior import (
    KNOWN_CLASS_NOISE,
    SESSION_VARIANCE_RATIO,
    EnrolledCells,
)

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
    v = model.variances_[name]
    domain = model.domain_variances_[name] / D / (1 - centre @ centre) * np.eye(D)
    own, noise = v["own"] / D * np.eye(D), v["take"] / D * np.eye(D)

    def about(u: np.ndarray) -> np.ndarray:
        return (u - centre) / np.sqrt(1 - 2 * u @ centre + centre @ centre)

    share = sum(c**2 for c in counts) / sum(counts) ** 2
    other = (v["other"] + v["cell"] + SESSION_VARIANCE_RATIO * v["own"]) / D * np.eye(D)
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


def test_a_profile_of_several_sessions_has_a_mean_over_them(model: DomainPLDA) -> None:
    X, _ = corpus(2)
    profiles = model.enrol(X[:4], ["x"] * 4, {"recording": ["a", "a", "a", "b"]})
    tests = model.enrol(X[4:5])
    logs = model.log_likelihoods(profiles, tests)
    mean = profiles.y.sum(axis=0) / 4
    expected = dense_log_ratio(model, "voice", mean, [3, 1], tests.y[0])
    assert logs[("speaker",)][0, 0] == pytest.approx(expected, abs=1e-9)
    # phrases of one session are one session
    profiles = model.enrol(X[:4], ["x"] * 4, {"phrase": ["a", "a", "a", "b"]})
    logs = model.log_likelihoods(profiles, tests)
    expected = dense_log_ratio(model, "voice", mean, [4], tests.y[0])
    assert logs[("speaker",)][0, 0] == pytest.approx(expected, abs=1e-9)
    # the test says one of the two phrases, each as likely
    ratios = [
        dense_log_ratio(model, "words", profiles.y[row] / count, [count], tests.y[0])
        for row, count in enumerate((3, 1))
    ]
    expected = float(np.logaddexp.reduce(ratios) - np.log(2))
    assert logs[("phrase",)][0, 0] == pytest.approx(expected, abs=1e-9)


def test_phrases_by_name_are_classes_with_the_exact_posterior() -> None:
    """Everybody says one phrase: then all is one joint Gaussian of cells, class and test."""
    X, labels = corpus(7)
    model = DomainPLDA(BLOCKS, weights={"words": 0.5}).fit(*corpus())
    rows = [np.flatnonzero(labels["phrase"] == phrase)[:6] for phrase in (0, 1, 2)]
    # one person more with the first phrase, and takes in unequal numbers
    rows[0] = np.append(rows[0], np.flatnonzero(labels["phrase"] == 0)[6:9])
    chosen = np.concatenate(rows)
    who = np.repeat(["a", "b", "c", "d"], [4, 5, 6, 6])
    said = np.repeat(["x", "x", "y", "z"], [4, 5, 6, 6])
    profiles = model.enrol(X[chosen], who, {"phrase": said})
    used = model.deployed(profiles)
    assert used.known_names("phrase").tolist() == ["x", "y", "z"]
    tests = model.enrol(X[200:206])
    logs = used.log_likelihoods(profiles, tests, known=["phrase"])[("phrase",)]

    shift = used.shift_[6:]
    centre = model.mean_[6:] + shift
    D = len(centre)
    v = used.variances_["words"]
    square = 1 - centre @ centre

    def about(u: np.ndarray) -> np.ndarray:
        return (u - centre) / np.sqrt(1 - 2 * u @ centre + centre @ centre)

    means = profiles.y[:, 6:] / profiles.weights[:, None]
    z = np.array([about(one) for one in means])
    training = -shift / np.sqrt(np.mean([1 - 2 * u @ centre + centre @ centre for u in means]))
    domain = used.variances_["words"]["domain"] / square
    phrase = np.array([0, 0, 1, 2])
    within = v["other"] + v["cell"] + SESSION_VARIANCE_RATIO * v["own"]
    K = domain + v["own"] * np.equal.outer(phrase, phrase)
    K += np.diag(within + KNOWN_CLASS_NOISE * v["take"] / profiles.weights)

    def density(t: np.ndarray, said: int | None, own: int | None) -> float:
        variance = v["own"] + within + KNOWN_CLASS_NOISE * v["take"]
        if said is None:
            variance += used.domain_variances_["words"] / square
            return float(multivariate_normal.logpdf(t, cov=variance / D * np.eye(D)))
        k = domain + v["own"] * (phrase == said)
        if own is not None:
            k[own] += v["cell"]
        gain = np.linalg.solve(K, k)
        mean = training + gain @ (z - training)
        variance += domain - gain @ k
        return float(multivariate_normal.logpdf(t, mean, variance / D * np.eye(D)))

    for i in range(4):
        for j in range(6):
            t = about(tests.y[j, 6:])
            others = [None, *(c for c in range(3) if c != phrase[i])]
            same = 0.5 * density(t, phrase[i], i)
            # something new, or another known phrase, each as likely
            apart = np.logaddexp.reduce([0.5 * density(t, c, None) for c in others])
            expected = same - float(apart - np.log(len(others)))
            assert logs[i, j] == pytest.approx(expected, abs=1e-9)


def test_what_is_kept_of_known_phrases_changes_no_score(monkeypatch: pytest.MonkeyPatch) -> None:
    X, labels = corpus(7)
    model = DomainPLDA(BLOCKS).fit(*corpus())
    chosen = np.concatenate([np.flatnonzero(labels["phrase"] == c)[:6] for c in range(4)])
    said = np.repeat(["w", "x", "y", "z"], 6)
    who = np.arange(24) // 3
    profiles = model.enrol(X[chosen], who, {"phrase": said})
    tests = model.enrol(X[200:206])
    together = model.deployed(profiles)
    for _ in range(2):  # the second time, all of it is there already
        every = together.log_likelihoods(profiles, tests, known=["phrase"])
    monkeypatch.setattr("mvplda.voice.domain.unit_terms.MAX_CACHED_TERMS", 1)
    for row in range(8):
        alone = model.deployed(profiles)
        logs = alone.log_likelihoods(profiles[row], tests, known=["phrase"])
        for hypothesis, values in logs.items():
            np.testing.assert_allclose(values[0], every[hypothesis][row], atol=1e-9)


def test_a_name_that_says_nothing_is_not_believed() -> None:
    model = DomainPLDA(BLOCKS, delta={"words": 0.05}).fit(*corpus())
    # everybody has a phrase of their own
    rng = np.random.default_rng(8)
    who = np.repeat(np.arange(20), 3)
    X = np.hstack([rng.normal(size=(20, 6))[who] + 1, 3 * rng.normal(size=(20, 4))[who] + 2])
    X += 0.3 * rng.normal(size=X.shape)
    right = model.deployed(model.enrol(X, who, {"phrase": who}))
    assert right.known_names("phrase").tolist() == list(range(20))
    wrong = model.deployed(model.enrol(X, who, {"phrase": ["password"] * 60}))
    assert wrong.known_names("phrase").tolist() == []
    with pytest.raises(LabelError, match="view 'speaker' cannot be known by name"):
        wrong.known_names("speaker")
    np.testing.assert_allclose(wrong.shift_[6:], right.shift_[6:], atol=1e-12)


def test_one_phrase_that_few_people_share_is_not_known(model: DomainPLDA) -> None:
    X, labels = corpus(3)
    one = np.flatnonzero(labels["phrase"] == labels["phrase"][0])
    people = np.unique(labels["speaker"][one])
    for count, is_known in ((3, False), (4, True)):
        rows = one[np.isin(labels["speaker"][one], people[:count])]
        named = model.enrol(X[rows], labels["speaker"][rows], {"phrase": labels["phrase"][rows]})
        some = EnrolledCells.of(named, np.arange(len(named.owner)), ("speaker", "phrase"))
        assert ("phrase" in some.names) == is_known
        # as without names
        here, plain = model.deployed(named), model.enrol(X[rows], labels["speaker"][rows])
        assert is_known or np.allclose(here.shift_, model.deployed(plain).shift_)


def copied(seed: int = 0) -> tuple[np.ndarray, dict[str, Any]]:
    """Recordings and a copy of each, whose voice is moved along one column and whose words along another."""
    X, labels = corpus(seed, 600)
    moved = X.copy()
    rng = np.random.default_rng(seed + 1)
    moved[:, 2] += 3 * rng.normal(size=len(X))
    moved[:, 7] += 3 * rng.normal(size=len(X))
    both = {view: np.tile(names, 2) for view, names in labels.items()}
    return np.vstack([X, moved]), {**both, "source_recording": np.tile(np.arange(len(X)), 2)}


def test_directions_in_which_copies_differ_are_scaled_down() -> None:
    X, labels = copied()
    u = X[:, :6] / np.linalg.norm(X[:, :6], axis=1, keepdims=True)
    covariances = []
    for domain in (0, 1):
        rows = [np.flatnonzero(labels["source_recording"] == take) for take in range(600)]
        rows = [two for two in rows if labels["domain"][two[0]] == domain]
        apart = np.vstack([u[two] - u[two].mean(axis=0) for two in rows])
        covariances.append(apart.T @ apart / len(apart))
    s, W = np.linalg.eigh((covariances[0] + covariances[1]) / 2)
    a = np.sqrt(s.mean() / (s + s.mean()))
    # of six directions the three largest are kept
    a = np.append(np.ones(3), a[3:] / np.exp(np.log(a[:3]).mean()))
    R = channel_directions(u, labels["source_recording"], labels["domain"])
    np.testing.assert_allclose(np.eye(6) - R.T @ R, W @ np.diag(a) @ W.T, atol=1e-12)

    with_copies = DomainPLDA(BLOCKS).fit(X, labels)
    scaled = X[:, :6] @ (W @ np.diag(a) @ W.T)
    scaled /= np.linalg.norm(scaled, axis=1, keepdims=True)
    np.testing.assert_allclose(with_copies.project(X)[:, :6], scaled, atol=1e-12)


@pytest.mark.parametrize(("width", "directions"), [(10, 5), (79, 39), (100, 40)])
def test_channels_are_scaled_down_in_half_of_the_directions_and_at_most_forty(
    width: int, directions: int
) -> None:
    u = np.random.default_rng(8).normal(size=(300, width))
    R = channel_directions(u, np.arange(300) // 2, np.zeros(300))
    assert R.shape == (directions, width)


@pytest.mark.parametrize("takes", ["none recurs", "copies are alike"])
def test_without_copies_that_differ_nothing_is_scaled_down(takes: str) -> None:
    X, labels = corpus()
    plain = DomainPLDA(BLOCKS).fit(X, labels)
    if takes == "copies are alike":
        X, labels = np.vstack([X, X]), {view: np.tile(names, 2) for view, names in labels.items()}
    same = DomainPLDA(BLOCKS).fit(
        X, {**labels, "source_recording": np.tile(np.arange(400), len(X) // 400)}
    )
    np.testing.assert_allclose(same.mean_, plain.mean_, atol=1e-12)
    one = DomainPLDA({"voice": (9, "speaker"), "words": (1, "phrase")}).fit(*copied())
    assert len(one.channels_["words"]) == 0


def test_takes_may_be_numbered_anew_in_every_domain() -> None:
    X, labels = copied()
    u = X[:, :6]
    numbers = np.array(
        [f"{d}|{t}" for d, t in zip(labels["domain"], labels["source_recording"], strict=True)]
    )
    anew = labels["source_recording"].copy()
    for domain in (0, 1):
        rows = labels["domain"] == domain
        anew[rows] = np.unique(labels["source_recording"][rows], return_inverse=True)[1]
    np.testing.assert_allclose(
        channel_directions(u, anew, labels["domain"]),
        channel_directions(u, numbers, labels["domain"]),
        atol=1e-12,
    )


def test_a_copy_over_a_channel_is_nearer_to_its_person() -> None:
    blind = {view: names for view, names in copied()[1].items() if view != "source_recording"}
    X, labels = copied(5)
    people = labels["speaker"][:600]
    rates = []
    for known in (blind, copied()[1]):
        model = DomainPLDA(BLOCKS).fit(copied()[0], known)
        profiles = model.enrol(X[:600], people)
        scores = model.llr(profiles, X[600:], same=["speaker"])
        same = profiles.ids[:, None] == people
        rates.append(np.median(scores[same]) - np.quantile(scores[~same], 0.99))
    assert rates[1] > rates[0]


def test_the_domain_has_the_exact_posterior(model: DomainPLDA) -> None:
    X, labels = corpus(3)
    profiles = model.enrol(X[:30], labels["speaker"][:30], {"phrase": labels["phrase"][:30]})
    deployed = model.deployed(profiles)
    v = model.variances_["voice"]
    square = 1 - model.mean_[:6] @ model.mean_[:6]
    codes = profiles.labels["phrase"].codes
    n = len(codes)
    V = np.empty((n, n))
    for i in range(n):
        for j in range(n):
            V[i, j] = v["domain"] + v["own"] * square * (profiles.owner[i] == profiles.owner[j])
            V[i, j] += v["other"] * square * (codes[i] == codes[j])
        V[i, i] += (v["cell"] + v["take"] / profiles.weights[i]) * square
    means = profiles.y[:, :6] / profiles.weights[:, None] - model.mean_[:6]
    gain = v["domain"] * np.linalg.solve(V, np.ones(n))
    np.testing.assert_allclose(deployed.shift_[:6], gain @ means, atol=1e-12)
    assert deployed.domain_variances_["voice"] == pytest.approx(
        v["domain"] * (1 - gain.sum()), rel=1e-9
    )


def test_one_person_a_thousand_times_tells_little_of_the_domain(model: DomainPLDA) -> None:
    X, labels = corpus(4)
    same = np.flatnonzero((labels["speaker"] == 3) & (labels["phrase"] == 2))
    often = model.deployed(model.enrol(np.repeat(X[same], 1000, axis=0), ["x"] * 1000 * len(same)))
    everybody = model.deployed(model.enrol(X, labels["speaker"], {"phrase": labels["phrase"]}))
    for name in model.variances_:
        assert everybody.domain_variances_[name] < often.domain_variances_[name]
    v = model.variances_["voice"]
    square = 1 - model.mean_[:6] @ model.mean_[:6]
    least = 1 / (1 / v["domain"] + 1 / (v["own"] + v["other"] + v["cell"]) / square)
    assert often.domain_variances_["voice"] == pytest.approx(least, rel=0.01)


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
    names = np.repeat(["x", "y", "z"], 3)
    deployed = model.deployed(model.enrol(X[:9], names, {"phrase": names}))
    deployed.save(tmp_path / "model.safetensors")
    loaded = load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(loaded.llr(X[:5], X[5:9]), deployed.llr(X[:5], X[5:9]))
    if deployed.names_:
        assert loaded.known_names("phrase").tolist() == ["x", "y", "z"]
        np.testing.assert_array_equal(
            loaded.class_means_["phrase"], deployed.class_means_["phrase"]
        )


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
        found += np.array(variance_components(X, own, rest)) / 3
    np.testing.assert_allclose(found / 20, truth, rtol=0.15)


def with_a_second_voice() -> tuple[np.ndarray, dict[str, Any]]:
    X, labels = corpus()
    rng = np.random.default_rng(3)
    more = rng.normal(size=(20, 5))[labels["speaker"]] + 0.7 * rng.normal(size=(len(X), 5)) + 1
    return np.hstack([X[:, :6], more, X[:, 6:]]), labels


def test_two_blocks_about_the_speaker_add_up() -> None:
    """Each network of voices is a model of its own columns, and what they say of the speaker is added."""
    X, labels = with_a_second_voice()
    sizes = {"voice": slice(0, 6), "more": slice(6, 11)}
    words = np.arange(11, 15)
    blocks = {"voice": (6, "speaker"), "more": (5, "speaker"), "words": (4, "phrase")}
    both = DomainPLDA(blocks).fit(X, labels)
    people = labels["speaker"][:30]
    phrases = {"phrase": labels["phrase"][:30]}
    profiles = both.enrol(X[:30], people, phrases)
    expected = expected_there = 0.0
    for name, columns in sizes.items():
        some = X[:, [*range(columns.start, columns.stop), *words]]
        one = DomainPLDA({name: blocks[name], "words": blocks["words"]}).fit(some, labels)
        own = one.enrol(some[:30], people, phrases)
        expected += one.log_likelihoods(own, some[30:40])["speaker",]
        expected_there += one.deployed(own).log_likelihoods(own, some[30:40])["speaker",]
    assert np.abs(expected).max() > 1
    made = both.log_likelihoods(profiles, X[30:40])["speaker",]
    np.testing.assert_allclose(made, expected, rtol=1e-9, atol=1e-9)
    there = both.deployed(profiles).log_likelihoods(profiles, X[30:40])["speaker",]
    np.testing.assert_allclose(there, expected_there, rtol=1e-9, atol=1e-9)
    assert not np.allclose(there, made)


def test_one_view_alone_tells_people_apart() -> None:
    X, labels = corpus()
    model = DomainPLDA({"voice": (6, "speaker")}).fit(X[:, :6], labels)
    profiles = model.enrol(X[:200, :6], labels["speaker"][:200])
    llr = model.llr(profiles, X[200:, :6])
    same = np.equal.outer(profiles.ids, labels["speaker"][200:])
    assert np.median(llr[same]) > 1
    assert np.median(llr[~same]) < -1


def test_what_cannot_be_fitted_or_scored_is_said(model: DomainPLDA) -> None:
    two = {"voice": (4, "speaker"), "words": (3, "phrase"), "more": (3, "phrase")}
    with pytest.raises(ParameterError, match="two blocks are about the view"):
        DomainPLDA(two).fit(*corpus())
    with pytest.raises(DataError, match="NaN"):
        DomainPLDA(BLOCKS).fit(np.full((400, 10), np.nan), corpus()[1])
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
    from mvplda.models.deployment import AdaptedExpert

    X, labels = corpus()
    model = DomainPLDA(BLOCKS).fit(X, labels)
    own = {view: labels[view] for view in ("speaker", "phrase")}
    shifted = X + np.random.default_rng(1).normal(scale=0.2, size=X.shape[1])
    sizes = {name: columns for name, (columns, _) in BLOCKS.items()}
    committee = make_committee(sizes, list(own))
    committee.experts = {**committee.experts, "default model": AdaptedExpert(model)}
    committee.fit(shifted, own)
    expert = committee.experts_["default model"]
    enrolled = model.enrol(shifted, own["speaker"], {"phrase": own["phrase"]})
    np.testing.assert_array_equal(
        expert.mean_, model.deployed(enrolled).with_domain_as_prior().mean_
    )
    assert np.abs(expert.mean_ - model.mean_).max() > 0.01
    assert expert.variances_ == model.variances_
    committee.save(tmp_path / "committee.safetensors")
    again = load(tmp_path / "committee.safetensors")
    np.testing.assert_allclose(
        again.llr(shifted[:5], shifted[5:9]), committee.llr(shifted[:5], shifted[5:9]), atol=1e-5
    )


def test_people_without_phrases_are_trained_on_without_the_default_model() -> None:
    from mvplda.training import train

    X, labels = corpus()
    model = DomainPLDA(BLOCKS).fit(X, labels)
    sizes = {name: columns for name, (columns, _) in BLOCKS.items()}
    bundle = train(X, {"speaker": labels["speaker"]}, blocks=sizes, default=model)
    assert np.isfinite(bundle.llr(X[:5], X[5:9])).all()


Change = Callable[[DomainPLDA], object]

CHANGES: dict[str, Change] = {
    "weights": lambda m: setattr(m, "weights", {"voice": 0.3}),
    "mean_": lambda m: setattr(m, "mean_", 0.9 * m.mean_),
    "shift_": lambda m: setattr(m, "shift_", m.shift_ + 0.05),
    "variances_": lambda m: m.variances_["voice"].update(own=0.2),
    "domain_variances_": lambda m: m.domain_variances_.update(voice=0.07),
    "mean_ in place": lambda m: m.mean_.__imul__(0.9),
    "class_means_ in place": lambda m: m.class_means_["phrase"].__imul__(0.5),
    "class_means_": lambda m: m.class_means_.update(phrase=0.5 * m.class_means_["phrase"]),
    "class_variances_": lambda m: m.class_variances_.update(
        phrase=2.0 * m.class_variances_["phrase"]
    ),
    "names_": lambda m: m.names_["phrase"].reverse(),
    "no names_": lambda m: m.names_.clear(),
    "points": lambda m: setattr(m, "points", {"words": {"view": "phrase", "points": 3}}),
    "blocks": lambda m: setattr(m, "blocks", {"voice": (6, "speaker"), "words": (4, "speaker")}),
}
"""Every setting and fitted attribute that pair forms depend on, but `channels_`: profiles depend on these."""


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_of_any_part_changes_the_scores(name: str) -> None:
    """What is cached depends on every setting and fitted attribute: a fresh copy gives the same scores."""
    X, labels = corpus(9)
    phrases = [f"phrase {number}" for number in labels["phrase"][:60]]
    fitted = DomainPLDA(BLOCKS).fit(*corpus())
    profiles = fitted.enrol(X[:60], labels["speaker"][:60], {"phrase": phrases})
    evidence = fitted.evidence(X[60:90])
    model = fitted.deployed(profiles)
    assert list(model.names_) == ["phrase"]
    if name == "blocks":
        model.names_.clear()

    def scores(scorer: DomainPLDA) -> np.ndarray:
        known = ["phrase"] if scorer.names_ else None
        enrolled = scorer.profiles(profiles.y, profiles.weights, profiles.owner, profiles.ids)
        tests = scorer.profiles(evidence, np.ones(30), np.arange(30))
        claims = {"phrase": np.resize(phrases, len(enrolled))} if known else None
        return np.asarray(scorer.llr(enrolled, tests, known=claims, dtype=np.float64))

    before = scores(model)
    CHANGES[name](model)
    after = scores(model)
    # nothing is cached of a copy
    np.testing.assert_array_equal(after, scores(deepcopy(model)))
    assert not np.allclose(before, after, atol=1e-6)


def test_fitted_arrays_stay_writable_after_scoring() -> None:
    X, _ = corpus(1)
    model = DomainPLDA(BLOCKS).fit(*corpus())
    before = model.llr(X[:2], X[2:4])
    model.mean_ += 0
    model.shift_[:] += 0.05
    assert not np.allclose(model.llr(X[:2], X[2:4]), before, atol=1e-6)


@pytest.mark.parametrize("view", ["recording", "domain", "source_recording"])
def test_a_view_is_not_called_like_other_labels(view: str) -> None:
    X, labels = corpus()
    blocks = {"voice": (6, "speaker"), "words": (4, view)}
    with pytest.raises(ParameterError, match=f"cannot be about '{view}'"):
        DomainPLDA(blocks).fit(X, {**labels, view: labels["phrase"]})


def test_three_views_are_refused(model: DomainPLDA) -> None:
    X, labels = corpus()
    labels["device"] = np.arange(len(X)) % 3
    three = {"voice": (6, "speaker"), "words": (2, "phrase"), "device": (2, "device")}
    with pytest.raises(ParameterError, match=r"one or two views.*'device'.*Committee"):
        DomainPLDA(three).fit(X, labels)


def test_alternatives_of_a_phrase_are_the_nearest_ones() -> None:
    """Of more known phrases than are tried as alternatives, those in the same direction count."""
    n = NEAREST_CLASSES + 4
    model = DomainPLDA(BLOCKS).fit(*corpus())
    angles = np.linspace(0.0, 1.2, n)
    model.names_ = {"phrase": [f"p{number:02}" for number in range(n)]}
    means = np.zeros((n, 4))
    means[:, 0], means[:, 1] = np.cos(angles), np.sin(angles)
    model.class_means_ = {"phrase": 0.9 * means}
    model.class_variances_ = {"phrase": np.full(n, 0.01)}
    near_matches = model.nearest_classes("phrase")
    assert near_matches.shape == (n, NEAREST_CLASSES)
    for number, row in enumerate(near_matches):
        distances = np.linalg.norm(means - means[number], axis=1)
        expected = np.argsort(distances)[1 : NEAREST_CLASSES + 1]
        # ends of equal distance may come in either order
        np.testing.assert_allclose(np.sort(distances[row]), distances[expected])
        assert number not in row
    # a test of the neighbouring phrase is explained by that phrase, and not by one far away
    X, _ = corpus(3)
    profile = model.enrol(X[:2], ["ann", "bob"], {"phrase": ["p00", "p01"]})
    centre = model.mean_[6:]
    spoken = X[2].copy()
    spoken[6:] = centre + 0.5 * model.class_means_["phrase"][1]
    llr = model.llr(profile, spoken[None], same="phrase", known=["phrase"], dtype=np.float64)
    far = deepcopy(model)
    far.nearest_classes = lambda view: np.argsort(
        -np.linalg.norm(means[:, None] - means, axis=2), axis=1
    )[:, :NEAREST_CLASSES]
    with_far = far.llr(profile, spoken[None], same="phrase", known=["phrase"], dtype=np.float64)
    assert llr[0, 0] < with_far[0, 0] - 0.1
    assert llr[1, 0] > llr[0, 0]


# -- more cells than are solved at once ---------------------------------------------------


def own_phrases(n: int, seed: int = 11) -> tuple[np.ndarray, np.ndarray]:
    """Three takes of each of n people, who have a phrase of their own."""
    rng = np.random.default_rng(seed)
    who = np.repeat(np.arange(n), 3)
    X = np.hstack([rng.normal(size=(n, 6))[who] + 1, 3 * rng.normal(size=(n, 4))[who] + 2])
    return X + 0.3 * rng.normal(size=X.shape), who


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_classes, "MAX_CELLS", 40)
    monkeypatch.setattr(known_classes, "MAX_NAMED_CELLS", 25)


@pytest.mark.usefixtures("small_blocks")
def test_classes_of_blocks_are_those_of_all_cells(model: DomainPLDA) -> None:
    """The 601st phrase once switched known phrases off for everybody."""
    X, who = own_phrases(90)
    profiles = model.enrol(X, who, {"phrase": who})
    used = model.deployed(profiles)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(known_classes, "MAX_CELLS", 1000)
        whole = model.deployed(profiles)
    assert used.known_names("phrase").tolist() == whole.known_names("phrase").tolist()
    means, expected = used.class_means_["phrase"], whole.class_means_["phrase"]
    assert means.shape == expected.shape
    apart = np.linalg.norm(means - expected, axis=1)
    spread = np.linalg.norm(expected[:, None] - expected[None], axis=2)
    np.fill_diagonal(spread, np.inf)
    # fewer cells show the domain: far less than what tells classes apart
    assert np.median(apart) < 0.2 * np.median(spread.min(axis=1))
    doubts = used.class_variances_["phrase"] / whole.class_variances_["phrase"]
    assert 0.9 < doubts.min() <= doubts.max() < 1.5
    tests = model.enrol(X[::3])
    pairs = np.arange(90)[:, None].repeat(2, axis=1)
    logs, all_cells = (
        one.log_likelihoods(profiles, tests, known=["phrase"], pairs=pairs)["phrase",]
        for one in (used, whole)
    )
    assert np.abs(logs - all_cells).max() < 1.0
    check_trials(Bundle(None, used), profiles, tests, trials=20)


@pytest.mark.usefixtures("small_blocks")
def test_every_block_is_as_large_as_it_may_be(model: DomainPLDA) -> None:
    X, who = own_phrases(70)
    # two phrases that many people say, ten of three cells, and some cells without a name
    said = np.concatenate([[0] * 24, [1] * 12, np.repeat(np.arange(2, 12), 3), [-1] * 4])
    labels = np.array([None if name < 0 else int(name) for name in said], dtype=object)
    profiles = model.enrol(X[::3], who[::3], {"phrase": labels})
    rows = known_classes.sample_rows(np.arange(len(profiles.owner)), known_classes.MAX_CELLS)
    views = ("speaker", "phrase")
    some = EnrolledCells.of(profiles, rows, views)
    blocks = known_classes.class_blocks(profiles, some, rows, views, "phrase")
    assert len(blocks) == 2
    named: list[int] = []
    for block in blocks:
        assert 25 <= len(block.weights) <= 40
        codes = block.codes["phrase"]
        counts = np.bincount(codes[codes >= 0], minlength=len(block.names["phrase"]))
        names = [block.names["phrase"][i] for i in block.classes_to_estimate("phrase")]
        for name in names:
            count = counts[block.names["phrase"].index(name)]
            assert count == min(known_classes.MIN_CELLS_PER_CLASS, (said == name).sum())
        named += names
    assert named == list(range(12))
    assert known_classes.class_blocks(profiles, some, rows, views, "speaker") == []
    sizes = [len(group) for group in known_classes._pack(np.array([8, 8, 8, 3, 25, 3]), 25)]
    assert sizes == [3, 1, 1, 1]


def test_the_alternatives_of_a_phrase_are_the_nearest(
    model: DomainPLDA, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, who = own_phrases(30)
    used = model.deployed(model.enrol(X, who, {"phrase": who}))
    means = used.class_means_["phrase"]
    distances = np.linalg.norm(means[:, None] - means[None], axis=2)
    np.fill_diagonal(distances, np.inf)
    expected = np.argsort(distances, axis=1)[:, :NEAREST_CLASSES]
    for at_once in (7, 600):
        monkeypatch.setattr(known_classes, "MAX_CELLS", at_once)
        np.testing.assert_array_equal(known_classes.nearest_to_each(means), expected)


def test_numbers_in_arrays_without_dimensions_are_variances_and_weights(tmp_path: Path) -> None:
    X, labels = corpus()
    half: Any = np.array(0.5)
    model = DomainPLDA(BLOCKS, weights={"voice": half}).fit(X, labels)
    plain = DomainPLDA(BLOCKS, weights={"voice": 0.5}).fit(X, labels)
    np.testing.assert_array_equal(model.llr(X[:5], X[5:9]), plain.llr(X[:5], X[5:9]))
    variance: Any = np.array(model.variances_["voice"]["take"])
    model.variances_["voice"]["take"] = variance
    before = model.llr(X[:5], X[5:9])
    variance *= 4
    after = model.llr(X[:5], X[5:9])
    assert np.abs(after - before).max() > 1e-3
    model.save(tmp_path / "domain.safetensors")
    np.testing.assert_array_equal(
        DomainPLDA.load(tmp_path / "domain.safetensors").llr(X[:5], X[5:9]), after
    )


def test_a_question_about_known_classes_is_answered_if_none_was_enrolled_by_name(
    model: DomainPLDA,
) -> None:
    X, labels = corpus(4)
    profiles = model.enrol(X[:6], np.arange(6) // 2, {"phrase": ["a"] * 4 + ["b"] * 2})
    tests = model.enrol(X[6:9])
    enrolled = model.enrol(X, labels["speaker"], {"phrase": labels["phrase"].astype(str)})
    named = model.deployed(enrolled)
    assert len(named.known_names("phrase"))
    for scorer in (model, named):
        new = scorer.log_likelihoods(profiles, tests)
        with pytest.warns(UnknownClassWarning, match="scored as new classes"):
            known = scorer.log_likelihoods(profiles, tests, known=["phrase"])
        for hypothesis, values in new.items():
            np.testing.assert_allclose(known[hypothesis], values, rtol=1e-12, atol=1e-12)
