"""Committees: evidence that adds up by hypothesis, weights from held-out classes, files."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
import pytest
from problems import there
from scipy.linalg import block_diag

import mvplda
from mvplda import Bundle, MultiviewPLDA, Question, make_committee
from mvplda.exceptions import FewSpeakersWarning, LabelError, ParameterError
from mvplda.models.base import BaseScorer
from mvplda.models.committee import Committee
from mvplda.models.cosine import CosineScorer
from mvplda.models.expert_weights import (
    MAX_WEIGHT,
    MIN_RELATIVE_SIZE,
    OUTLIER_PROBABILITY,
    RIDGE,
    weigh_experts,
)
from mvplda.preprocessing import standard_chain

VIEWS = {"speaker": None, "phrase": None, "speaker:phrase": None}
PARTS = {"voice": (0, 4), "words": (4, 7)}


def corpus(rng: np.random.Generator, speakers: int = 16, phrases: int = 4, times: int = 4):
    s, p = np.divmod(np.repeat(np.arange(speakers * phrases), times), phrases)
    voice = 1.5 * rng.normal(size=(speakers, 4))[s] + 0.3 * rng.normal(size=(phrases, 4))[p]
    words = 0.3 * rng.normal(size=(speakers, 3))[s] + 1.5 * rng.normal(size=(phrases, 3))[p]
    X = np.hstack([voice, words]) + 0.7 * rng.normal(size=(len(s), 7))
    return X, {"speaker": s, "phrase": p}


def expert(*views: str) -> MultiviewPLDA:
    """Of all views, or of some."""
    ranks = dict.fromkeys(views) or VIEWS
    return MultiviewPLDA(ranks, prior="isotropic", prior_strength=0.4, max_iter=1, tol=0)


def committee(**settings) -> Committee:
    given = {"columns": PARTS, **settings}
    return Committee({"voice": expert(), "words": expert("phrase")}, **given)


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
    ours = committee(weights=None).fit(X, y)
    voice, words = ours.experts_["voice"], ours.experts_["words"]
    zeros = np.zeros((3, 4))
    loadings = {
        view: np.vstack([voice.loadings_[view], zeros]) for view in ("speaker", "speaker:phrase")
    }
    one = MultiviewPLDA.from_parameters(
        np.concatenate([voice.mean_, words.mean_]),
        {
            "speaker": loadings["speaker"],
            "phrase": block_diag(voice.loadings_["phrase"], words.loadings_["phrase"]),
            "speaker:phrase": loadings["speaker:phrase"],
        },
        block_diag(voice.noise_, words.noise_),
    )
    enrol, test = X[::9], X[1::11]
    expected = one.llr(enrol, test, dtype=np.float64, **question)
    np.testing.assert_allclose(
        ours.llr(enrol, test, dtype=np.float64, **question), expected, atol=1e-8
    )
    if not question:
        posterior = ours.hypotheses(enrol, test, dtype=np.float64)
        for h, p in one.hypotheses(enrol, test, dtype=np.float64).items():
            np.testing.assert_allclose(posterior[h], p, atol=1e-9)


@pytest.fixture(scope="module")
def learnt() -> tuple[Committee, np.ndarray, dict]:
    X, y = corpus(np.random.default_rng(1))
    voting = Committee(
        {
            "voice": expert(),
            "again": expert(),
            "words": expert("phrase"),
            "cosine": CosineScorer(views=["speaker"]),
        },
        columns={"voice": (0, 4), "again": (0, 4), "words": (4, 7), "cosine": (0, 4)},
        enrolment=2,
    )
    return voting.fit(X, y), X, y


def test_it_is_a_scorer_whose_calls_agree(learnt):
    model, X, _ = learnt
    assert isinstance(model, BaseScorer)
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
    experts = {"words": expert("phrase"), "voice": expert()}
    columns = {"words": (4, 7), "voice": (0, 4)}
    silent = dict.fromkeys(["speaker", "phrase", "together"], 0.0)
    alone = Committee(experts, columns=columns, weights={"voice": silent}).fit(X, y)
    assert (
        np.abs(alone.llr(X[:5], X[5:9], same="speaker", given={"phrase": "different"})).max() == 0
    )
    posterior = alone.hypotheses(X[:5], X[5:9], dtype=np.float64)
    np.testing.assert_allclose(posterior["speaker", "phrase"], posterior[("phrase",)])


def test_two_experts_that_say_the_same_are_believed_half_as_much():
    X, y = corpus(np.random.default_rng(3), speakers=24)
    one = Committee({"a": expert()}, columns={"a": (0, 4)}).fit(X, y)
    two = Committee({"a": expert(), "b": expert()}, columns={"a": (0, 4), "b": (0, 4)}).fit(X, y)
    for part, weight in one.weights_["a"].items():
        assert two.weights_["a"][part] + two.weights_["b"][part] == pytest.approx(weight, rel=0.1)
    np.testing.assert_allclose(
        two.llr(X[:9], X[9:30]), one.llr(X[:9], X[9:30]), rtol=0.1, atol=0.05
    )


def test_factors_are_where_the_slope_vanishes():
    rng = np.random.default_rng(4)
    truth = rng.integers(0, 4, size=3000)
    said = rng.normal(size=(3000, 4, 2))
    said[np.arange(3000), truth, 0] += 1.5
    said[:, -1] = 0.0
    weights, least = weigh_experts(said, truth)
    assert weights[0] > 0.3

    def cost(theta):
        logs = said @ theta
        weight = (1 / np.bincount(truth))[truth]
        size = np.sqrt((said**2).sum(axis=(0, 1)) / 3000)
        share = np.exp(logs) / np.exp(logs).sum(axis=1, keepdims=True)
        errors = -np.log(
            (1 - OUTLIER_PROBABILITY) * share[np.arange(3000), truth] + OUTLIER_PROBABILITY / 4
        )
        return float(
            (weight * errors).sum() / weight.sum() + RIDGE / 2 * ((theta * size) ** 2).sum()
        )

    assert least == pytest.approx(cost(weights), abs=1e-5)
    for i in range(2):
        step = np.zeros(2)
        step[i] = 0.05
        below = cost(weights - step) if weights[i] > 0.05 else np.inf
        assert cost(weights) <= min(cost(weights + step), below) + 1e-7


def test_a_few_trials_with_the_wrong_name_change_factors_little():
    rng = np.random.default_rng(5)
    truth = rng.integers(0, 2, size=4000)
    llr = rng.normal(np.where(truth == 0, 8.0, -8.0), 4.0)
    said = np.stack([llr, 0 * llr], axis=1)[:, :, None]
    (clean,), _ = weigh_experts(said, truth)
    wrong = np.where(np.arange(4000) % 100 == 0, 1 - truth, truth)
    (weight,), _ = weigh_experts(said, wrong)
    assert weight == pytest.approx(clean, rel=0.15)


@pytest.mark.parametrize(("size", "weight"), [(0.9, 0.0), (1.1, MAX_WEIGHT)])
def test_a_term_with_almost_no_evidence_has_no_weight(size: float, weight: float):
    rng = np.random.default_rng(6)
    truth = np.arange(400) % 2
    llrs = rng.normal(np.where(truth == 0, 1.0, -1.0)[:, None], 1.0, (400, 2))
    llrs *= 3 / np.sqrt(np.mean(llrs**2, axis=0))
    llrs[:, 1] *= size * MIN_RELATIVE_SIZE
    weights, _ = weigh_experts(np.stack([llrs, 0 * llrs], axis=1), truth)
    assert weights[0] > 0.5
    # above the limit the weight is as large as it may be: more of this evidence would be better
    assert weights[1] == pytest.approx(weight)


def test_a_factor_for_every_view_and_one_for_what_is_said_of_them_together():
    X, y = corpus(np.random.default_rng(10))
    parts = {"speaker": 0.5, "phrase": 2.0, "together": 0.25}
    ours = Committee({"voice": expert()}, columns={"voice": (0, 4)}, weights={"voice": parts}).fit(
        X, y
    )
    enrol, test = X[:6, :4], X[6:20, :4]
    alone = ours.experts_["voice"]

    def said(*views: str) -> np.ndarray:
        apart = {v: "different" for v in ("speaker", "phrase") if v not in views}
        return np.asarray(
            alone.llr(
                enrol, test, same=views, given=apart, priors={views: 1, (): 1}, dtype=np.float64
            )
        )

    s, p, both = said("speaker"), said("phrase"), said("speaker", "phrase")
    told = 0.5 * s + 2.0 * p + 0.25 * (both - s - p)
    other = np.logaddexp(np.logaddexp(0.5 * s, 2.0 * p), 0.0) - np.log(3)
    found = ours.llr(X[:6], X[6:20], dtype=np.float64)
    np.testing.assert_allclose(found, told - other, atol=1e-9)


@pytest.fixture(scope="module")
def alone() -> tuple[Committee, MultiviewPLDA, np.ndarray, np.ndarray]:
    """A committee of one, that one, vectors, and a seventh of them missing, so that no two phrases have one count."""
    rng = np.random.default_rng(5)
    X, y = corpus(rng)
    kept = rng.random(len(X)) < 0.8
    X, y = X[kept][:, :4], {view: column[kept] for view, column in y.items()}
    ours = Committee({"voice": expert()}, weights=None).fit(X, y)
    alone = ours.experts_["voice"]
    assert isinstance(alone, MultiviewPLDA)
    return ours, alone, X, y["phrase"]


@pytest.mark.parametrize("question", QUESTIONS)
def test_known_classes_as_the_expert_itself_has_them(alone, question):
    ours, expert, X, phrases = alone
    ids = np.sort(np.arange(70) % 24)
    claims = np.where(
        np.arange(24) % 7, phrases[:24], 99
    )  # a phrase that training has not met among them
    tests = np.arange(60) // 2
    asked = {**question, "known": {"phrase": claims}, "dtype": np.float64}
    sides = [(m.enrol(X[:70], ids), m.enrol(X[70:130], tests)) for m in (ours, expert)]
    with pytest.warns(mvplda.exceptions.UnknownClassWarning):
        found, expected = ours.llr(*sides[0], **asked), expert.llr(*sides[1], **asked)
    np.testing.assert_allclose(found, expected, atol=1e-8)
    pairs = np.asarray([(3, 4), (23, 29), (3, 0), (0, 7)])
    with pytest.warns(mvplda.exceptions.UnknownClassWarning):
        listed = ours.llr_trials(*sides[0], pairs, **asked)
    with pytest.warns(mvplda.exceptions.UnknownClassWarning):
        best = ours.identify(*sides[0], top=2, **asked)
    np.testing.assert_allclose(listed, found[pairs[:, 0], pairs[:, 1]], atol=1e-8)
    np.testing.assert_allclose(best.scores, -np.sort(-found, axis=0)[:2].T, atol=1e-8)


@pytest.mark.parametrize(
    "question",
    [
        {},
        {"same": "speaker"},
        {"same": ["speaker", "phrase"]},
        {"same": ["speaker", "phrase"], "known": "phrase"},
        {"same": "speaker", "known": "phrase"},
    ],
)
def test_mixed_enrolment_and_sequences_as_the_expert_itself_has_them(alone, question):
    ours, expert, X, phrases = alone
    ids, tests = np.arange(48) // 4, np.arange(40) // 2
    sides = [
        (
            m.enrol(X[:48], ids, labels={"phrase": phrases[:48]}),
            m.enrol(X[48:88], tests, labels={"phrase": phrases[48:88]}),
        )
        for m in (ours, expert)
    ]
    asked = {**question, "dtype": np.float64}
    expected = expert.llr(*sides[1], **asked)
    np.testing.assert_allclose(ours.llr(*sides[0], **asked), expected, atol=1e-8)
    pairs = np.asarray([(3, 4), (11, 19), (3, 0)])
    listed = ours.llr_trials(*sides[0], pairs, **asked)
    np.testing.assert_allclose(listed, expected[pairs[:, 0], pairs[:, 1]], atol=1e-8)


def test_the_cosine_may_be_among_the_experts(learnt):
    model, X, y = learnt
    assert model.weights_["cosine"].keys() == {"speaker"}
    only = Committee({"cosine": CosineScorer(views=["speaker"])}, columns={"cosine": (0, 4)})
    only.fit(X, y)
    cosines = CosineScorer().fit(X[:, :4]).llr(X[:5, :4], X[5:40, :4], dtype=np.float64)
    scores = only.llr(X[:5], X[5:40], same="speaker", dtype=np.float64)
    np.testing.assert_array_equal(np.argsort(scores, axis=1), np.argsort(cosines, axis=1))


def test_blocks_have_two_experts_each_and_a_calibration_of_their_own(tmp_path):
    X, y = corpus(np.random.default_rng(11), speakers=24)
    ours = make_committee({"voice": 4, "words": 3}, ["speaker", "phrase"], enrolment=2).fit(X, y)
    assert [*ours.experts_][:3] == ["voice", "voice, whitened", "words"]
    assert there(ours.columns)["words, whitened"] == (4, 7)
    assert [*ours.classes_] == ["speaker", "phrase"]
    np.testing.assert_array_equal(ours.classes_["phrase"], np.unique(y["phrase"]))
    # weights of held-out trials are calibrated already, but for how the kinds of trials are weighed
    ours.save(tmp_path / "blocks.safetensors")
    back = Committee.load(tmp_path / "blocks.safetensors")
    np.testing.assert_array_equal(back.llr(X[:4], X[4:9]), ours.llr(X[:4], X[4:9]))


def test_a_file_keeps_it(learnt, tmp_path):
    model, X, _ = learnt
    model.save(tmp_path / "committee.safetensors")
    back = mvplda.load(tmp_path / "committee.safetensors")
    assert isinstance(back, Committee)
    assert back.weights_ == model.weights_
    np.testing.assert_array_equal(back.llr(X[:4], X), model.llr(X[:4], X))
    assert back.describe()["experts"].keys() == model.experts_.keys()


def test_experts_with_preprocessing(tmp_path):
    X, y = corpus(np.random.default_rng(6))
    bundled = Committee(
        {
            "voice": Bundle(standard_chain(), expert()),
            "words": Bundle(standard_chain(), expert("phrase")),
        },
        columns=PARTS,
        weights={"words": 0.5},
    ).fit(X, y)
    assert bundled.weights_["voice"] == {"speaker": 1.0, "phrase": 1.0, "together": 1.0}
    assert bundled.weights_["words"] == {"phrase": 0.5}
    bundled.save(tmp_path / "bundled.safetensors")
    back = Committee.load(tmp_path / "bundled.safetensors")
    np.testing.assert_array_equal(back.llr(X[:4], X[4:9]), bundled.llr(X[:4], X[4:9]))


def test_few_classes_are_added_up_as_they_are():
    X, y = corpus(np.random.default_rng(7), speakers=5)
    with pytest.warns(FewSpeakersWarning, match="not calibrated"):
        few = committee().fit(X, y)
    assert {weight for parts in few.weights_.values() for weight in parts.values()} == {1.0}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"columns": {"voice": (0, 9)}}, "must lie within the 7 columns"),
        ({"columns": {"noise": (0, 2)}}, "columns has an unknown expert, 'noise'"),
        ({"weights": {"noise": 1.0}}, "weights has an unknown expert, 'noise'"),
    ],
)
def test_wrong_settings_are_named(settings, message):
    X, y = corpus(np.random.default_rng(8))
    with pytest.raises(ParameterError, match=message):
        committee(**settings).fit(X, y)


def test_labels_are_needed():
    X, _ = corpus(np.random.default_rng(9))
    with pytest.raises(LabelError, match="pass y with the labels of every view"):
        committee().fit(X)


def test_names_have_no_part_in_the_folds():
    X, y = corpus(np.random.default_rng(20), speakers=9)
    order = np.random.default_rng(21).permutation(len(X))
    X, y = X[order], {view: column[order] for view, column in y.items()}
    renamed = {
        view: np.array([f"{(60 * code) % 101:03d}" for code in column])
        for view, column in y.items()
    }
    one, other = (committee().fit(X, labels) for labels in (y, renamed))
    for name, weights in one.weights_.items():
        assert other.weights_[name] == pytest.approx(weights, abs=1e-4)
    np.testing.assert_allclose(
        one.llr(X[:9], X, dtype=float), other.llr(X[:9], X, dtype=float), atol=1e-3
    )


def test_a_kind_that_never_occurs_is_no_alternative() -> None:
    """Speakers who say one phrase each make no trial of "same speaker, other phrase", which then tells nothing."""
    rng = np.random.default_rng(0)
    truth = rng.choice([0, 2, 3], size=600)
    speaker, phrase = (
        rng.normal(np.where(np.isin(truth, who), 2.0, -2.0), 1.5) for who in ([0], [0, 2])
    )
    none = np.zeros(600)
    said = np.stack([[speaker, speaker, none, none], [phrase, none, phrase, none]]).T
    weights, cost = weigh_experts(said, truth)
    alone, least = weigh_experts(said[:, [0, 2, 3]], np.searchsorted([0, 2, 3], truth))
    assert weights == pytest.approx(alone)
    assert cost == pytest.approx(least)
    assert weights[0] > 0.5


def test_an_interaction_that_labels_cannot_tell_from_the_speaker_is_left_out():
    def views(speaker, phrase):
        labels = {"speaker": speaker, "phrase": phrase}
        fitted = make_committee({"voice": 4}, ["speaker", "phrase"], labels=labels)
        return [list(one.scorer.views) for one in fitted.experts.values()]

    who = np.repeat(np.arange(12), 4)
    one, two = who % 3, (who + np.arange(48) % 2) % 3
    assert views(who, one) == [["speaker", "phrase"]] * 2
    assert views(who, two) == [["speaker", "phrase", "speaker:phrase"]] * 2
    few = np.where(
        who < 3, two, one
    )  # three speakers of twelve say a second phrase: one combination is free
    assert views([f"s{k}" for k in who], few.astype(object)) == [["speaker", "phrase"]] * 2
    unlabelled = one.astype(object)
    unlabelled[::4] = None
    assert views(who, unlabelled) == [["speaker", "phrase"]] * 2


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["weights_", "class_means_", "classes_"])
def test_a_change_of_any_part_changes_the_scores(name: str) -> None:
    """What is cached depends on every fitted attribute: a fresh copy gives the same scores."""
    rng = np.random.default_rng(0)
    labels = {"speaker": np.arange(240) % 12, "phrase": np.arange(240) // 60}
    X = rng.normal(size=(12, 5))[labels["speaker"]] + rng.normal(size=(4, 5))[labels["phrase"]]
    X += rng.normal(size=X.shape)
    experts = {name: expert("speaker", "phrase") for name in ("one", "two")}
    model = Committee(experts, weights=None).fit(X, labels)
    profiles = model.enrol(X[:6])
    tests = model.enrol(X[6:12])

    def scores(scorer: Any) -> np.ndarray:
        return scorer.llr(profiles, tests, known={"phrase": labels["phrase"][:6]})

    before = scores(model)
    first = model.experts_["one"]
    if name == "weights_":
        model.weights_["one"]["speaker"] = 0.2
    elif name == "class_means_":
        first.class_means_ = {view: 2.0 * means for view, means in first.class_means_.items()}
    else:
        first.classes_ = {**first.classes_, "phrase": first.classes_["phrase"][::-1]}
    after = scores(model)
    np.testing.assert_array_equal(after, scores(deepcopy(model)))
    assert not np.allclose(before, after, atol=1e-4)
