"""Committees: evidence that adds up by hypothesis, factors from held-out classes, files."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.linalg import block_diag

import mvplda
from mvplda import Bundle, MultiviewPLDA, Question
from mvplda.exceptions import LabelError, ParameterError
from mvplda.models.baselines import CosineScorer
from mvplda.models.experts import Committee, weigh_experts
from mvplda.models.scorer import Scorer
from mvplda.preprocessing import standard_chain

VIEWS = {"speaker": None, "phrase": None, "speaker:phrase": None}
PARTS = {"voice": (0, 4), "words": (4, 7)}
SPEAKS = {"words": ["phrase"]}


def corpus(rng: np.random.Generator, speakers: int = 16, phrases: int = 4, times: int = 4):
    s, p = np.divmod(np.repeat(np.arange(speakers * phrases), times), phrases)
    voice = 1.5 * rng.normal(size=(speakers, 4))[s] + 0.3 * rng.normal(size=(phrases, 4))[p]
    words = 0.3 * rng.normal(size=(speakers, 3))[s] + 1.5 * rng.normal(size=(phrases, 3))[p]
    X = np.hstack([voice, words]) + 0.7 * rng.normal(size=(len(s), 7))
    return X, {"speaker": s, "phrase": p}


def expert() -> MultiviewPLDA:
    return MultiviewPLDA(VIEWS, prior="isotropic", prior_strength=0.4, max_iter=1, tol=0)


def committee(**settings) -> Committee:
    given = {"columns": PARTS, "speaks_of": SPEAKS, **settings}
    return Committee({"voice": expert(), "words": expert()}, **given)


QUESTIONS: list[dict[str, Any]] = [
    {},
    {"same": "speaker"},
    {"same": "phrase"},
    {"same": "speaker", "given": {"phrase": "different"}},
]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("question", QUESTIONS)
def test_the_same_as_one_model_whose_loadings_have_blocks(question):
    X, y = corpus(np.random.default_rng(0))
    ours = committee(factors=None).fit(X, y)
    voice, words = ours.experts_["voice"], ours.experts_["words"]
    unheard = [words.loadings_[view] @ words.loadings_[view].T for view in ("speaker", "speaker:phrase")]
    zeros = np.zeros((3, 4))
    loadings = {view: np.vstack([voice.loadings_[view], zeros]) for view in ("speaker", "speaker:phrase")}
    one = MultiviewPLDA.from_parameters(
        np.concatenate([voice.mean_, words.mean_]),
        {
            "speaker": loadings["speaker"],
            "phrase": block_diag(voice.loadings_["phrase"], words.loadings_["phrase"]),
            "speaker:phrase": loadings["speaker:phrase"],
        },
        block_diag(voice.noise_, words.noise_ + sum(unheard)),
    )
    enrol, test = X[::9], X[1::11]
    expected = one.llr(enrol, test, dtype=np.float64, **question)
    np.testing.assert_allclose(ours.llr(enrol, test, dtype=np.float64, **question), expected, atol=1e-8)
    if not question:
        posterior = ours.hypotheses(enrol, test, dtype=np.float64)
        for h, p in one.hypotheses(enrol, test, dtype=np.float64).items():
            np.testing.assert_allclose(posterior[h], p, atol=1e-9)


@pytest.fixture(scope="module")
def learnt() -> tuple[Committee, np.ndarray, dict]:
    X, y = corpus(np.random.default_rng(1))
    voting = Committee(
        {"voice": expert(), "again": expert(), "words": expert(), "cosine": CosineScorer()},
        columns={"voice": (0, 4), "again": (0, 4), "words": (4, 7), "cosine": (0, 4)},
        speaks_of={"words": ["phrase"], "cosine": ["speaker"]},
        enrolment=2,
    )
    return voting.fit(X, y), X, y


def test_it_is_a_scorer_whose_calls_agree(learnt):
    model, X, _ = learnt
    assert isinstance(model, Scorer)
    ids = np.repeat(np.arange(10), 2)
    profiles, tests = model.enrol(X[:20], ids), X[30:60]
    for question in QUESTIONS:
        matrix = model.llr(profiles, tests, dtype=np.float64, **question)
        pairs = np.asarray([(3, 4), (9, 29), (0, 0)])
        listed = model.llr_trials(profiles, tests, pairs, dtype=np.float64, **question)
        np.testing.assert_allclose(listed, matrix[pairs[:, 0], pairs[:, 1]], atol=1e-9)
        best = model.identify(profiles, tests, top=2, dtype=np.float64, **question)
        np.testing.assert_allclose(best.scores, -np.sort(-matrix, axis=0)[:2].T, atol=1e-9)
    asked = model.llr(profiles, tests, Question("speaker"))
    np.testing.assert_array_equal(asked, model.llr(profiles, tests, same="speaker"))


def test_an_expert_says_nothing_of_views_that_are_not_its_own():
    X, y = corpus(np.random.default_rng(2))
    alone = Committee({"words": expert()}, columns={"words": (4, 7)}, speaks_of=SPEAKS, factors=None).fit(X, y)
    assert np.abs(alone.llr(X[:5], X[5:9], same="speaker", given={"phrase": "different"})).max() == 0
    posterior = alone.hypotheses(X[:5], X[5:9], dtype=np.float64)
    np.testing.assert_allclose(posterior["speaker", "phrase"], posterior[("phrase",)])


def test_two_experts_that_say_the_same_are_believed_half_as_much():
    X, y = corpus(np.random.default_rng(3), speakers=24)
    one = Committee({"a": expert()}, columns={"a": (0, 4)}).fit(X, y)
    two = Committee({"a": expert(), "b": expert()}, columns={"a": (0, 4), "b": (0, 4)}).fit(X, y)
    assert sum(two.factors_.values()) == pytest.approx(one.factors_["a"], rel=0.02)
    np.testing.assert_allclose(two.llr(X[:9], X[9:30]), one.llr(X[:9], X[9:30]), atol=0.05)


def test_factors_are_where_the_slope_vanishes():
    rng = np.random.default_rng(4)
    truth = rng.integers(0, 4, size=3000)
    said = rng.normal(size=(3000, 4, 2))
    said[np.arange(3000), truth, 0] += 1.5
    said[:, -1] = 0.0
    factors, offsets = weigh_experts(said, truth)
    assert offsets[-1] == 0
    assert factors[0] > 0.3

    def cost(theta):
        logs = said @ theta[:2] + np.append(theta[2:], 0.0)
        weight = (1 / np.bincount(truth))[truth]
        return float((weight * (np.logaddexp.reduce(logs, axis=1) - logs[np.arange(3000), truth])).sum() / weight.sum())

    found = np.append(factors, offsets[:-1])
    for i in range(len(found)):
        step = np.zeros(len(found))
        step[i] = 0.05
        below = cost(found - step) if i > 1 or found[i] > 0.05 else np.inf
        assert cost(found) <= min(cost(found + step), below) + 1e-7


def test_known_classes_pass_through():
    X, y = corpus(np.random.default_rng(5))
    model = committee(known=["phrase"], enrolment=2).fit(X, y)
    claims = y["phrase"][:8]
    assert np.isfinite(model.llr(X[:8], X[8:20], known={"phrase": claims})).all()
    profiles = model.enrol(X[:8], labels={"phrase": claims})
    a = model.llr(profiles, X[8:20], known="phrase", dtype=np.float64)
    b = model.llr(X[:8], X[8:20], known={"phrase": claims}, dtype=np.float64)
    np.testing.assert_allclose(a, b, atol=1e-9)


def test_a_file_keeps_it(learnt, tmp_path):
    model, X, _ = learnt
    model.save(tmp_path / "committee.safetensors")
    back = mvplda.load(tmp_path / "committee.safetensors")
    assert isinstance(back, Committee)
    assert back.factors_ == model.factors_
    np.testing.assert_array_equal(back.llr(X[:4], X), model.llr(X[:4], X))
    assert back.describe()["experts"].keys() == model.experts_.keys()


def test_experts_with_preprocessing(tmp_path):
    X, y = corpus(np.random.default_rng(6))
    bundled = Committee(
        {"voice": Bundle(standard_chain(), expert()), "words": Bundle(standard_chain(), expert())},
        columns=PARTS,
        speaks_of=SPEAKS,
        factors={"words": 0.5},
    ).fit(X, y)
    assert bundled.factors_ == {"voice": 1.0, "words": 0.5}
    bundled.save(tmp_path / "bundled.safetensors")
    back = Committee.load(tmp_path / "bundled.safetensors")
    np.testing.assert_array_equal(back.llr(X[:4], X[4:9]), bundled.llr(X[:4], X[4:9]))


def test_few_classes_are_added_up_as_they_are():
    X, y = corpus(np.random.default_rng(7), speakers=5)
    assert committee().fit(X, y).factors_ == {"voice": 1.0, "words": 1.0}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"columns": {"voice": (0, 9)}}, "the vectors have 7"),
        ({"columns": {"noise": (0, 2)}}, "columns names 'noise'"),
        ({"speaks_of": {"words": ["pose"]}}, "speaks of 'pose'"),
        ({"factors": {"noise": 1.0}}, "factors names 'noise'"),
    ],
)
def test_wrong_settings_are_named(settings, message):
    X, y = corpus(np.random.default_rng(8))
    with pytest.raises(ParameterError, match=message):
        committee(**settings).fit(X, y)


def test_labels_are_needed():
    X, _ = corpus(np.random.default_rng(9))
    with pytest.raises(LabelError, match="give labels of every view"):
        committee().fit(X)
