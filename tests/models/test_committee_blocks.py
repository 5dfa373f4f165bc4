"""With all weights 1 a committee is one model whose loadings have a block for every expert, whatever is asked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from dense_scoring import cell_classes, joint_log_density
from scipy.linalg import block_diag

from mvplda import Committee, MultiviewPLDA

COLUMNS = {"voice": (0, 4), "words": (4, 7), "phrase only": (7, 9)}
RANKS: dict[str, dict[str, int]] = {
    "voice": {"speaker": 3, "phrase": 2, "speaker:phrase": 2, "domain": 1},
    "words": {"speaker": 1, "phrase": 3, "domain": 2},
    "phrase only": {"phrase": 2},
}
VIEWS = ("speaker", "phrase", "speaker:phrase", "domain")
PHRASES = ["a", "b", "c", "d"]
DOMAINS = ["office", "car"]
SITE = "a new site"


def add_class(model: MultiviewPLDA, view: str, name: str, mean: Any, covariance: Any) -> None:
    """A class that is not from training, such as the domain of a deployment."""
    model.classes_[view] = np.append(model.classes_[view], name)
    model.class_means_[view] = np.vstack([model.class_means_[view], mean])
    model.class_covariances_[view] = np.concatenate([model.class_covariances_[view], [covariance]])


def trained_expert(rng: np.random.Generator, name: str) -> MultiviewPLDA:
    """A model with given parameters, and posteriors of phrases and domains, of which no two are alike."""
    start, stop = COLUMNS[name]
    D = stop - start
    loadings = {view: rng.normal(size=(D, rank)) for view, rank in RANKS[name].items()}
    root = rng.normal(size=(D, D))
    noise = root @ root.T / D + 0.4 * np.eye(D)
    model = MultiviewPLDA.from_parameters(rng.normal(size=D), loadings, noise)
    for view, names in (("phrase", PHRASES), ("domain", DOMAINS)):
        if view not in RANKS[name]:
            continue
        rank = RANKS[name][view]
        model.classes_[view] = np.array(names)
        model.class_means_[view] = rng.normal(size=(len(names), rank))
        roots = rng.normal(size=(len(names), rank, rank)) / 2
        model.class_covariances_[view] = roots @ roots.transpose(0, 2, 1) + 0.05 * np.eye(rank)
    if "domain" in RANKS[name]:
        rank = RANKS[name]["domain"]
        add_class(model, "domain", SITE, rng.normal(size=rank), 0.3 * np.eye(rank))
    return model


def committee_of(experts: dict[str, MultiviewPLDA]) -> Committee:
    committee = Committee(experts, columns={name: COLUMNS[name] for name in experts}, weights=None)
    committee.experts_ = dict(experts)
    committee.width_ = 9
    committee._find_views(("speaker", "phrase", "domain"))
    committee.weights_ = {name: committee._given_weights(name) for name in experts}
    return committee


def block_model(experts: dict[str, MultiviewPLDA]) -> MultiviewPLDA:
    loadings = {}
    for view in VIEWS:
        blocks = []
        for expert in experts.values():
            D = len(expert.mean_)
            blocks.append(expert.loadings_.get(view, np.zeros((D, 0))))
        loadings[view] = block_diag(*blocks)
    mean = np.concatenate([expert.mean_ for expert in experts.values()])
    noise = block_diag(*(expert.noise_ for expert in experts.values()))
    model = MultiviewPLDA.from_parameters(mean, loadings, noise)
    for view in ("phrase", "domain"):
        having = [expert for expert in experts.values() if view in expert.classes_]
        model.classes_[view] = having[0].classes_[view]
        model.class_means_[view] = np.hstack([e.class_means_[view] for e in having])
        model.class_covariances_[view] = np.stack(
            [
                block_diag(*(e.class_covariances_[view][c] for e in having))
                for c in range(len(model.classes_[view]))
            ]
        )
    return model


@pytest.fixture(scope="module")
def both() -> tuple[Committee, MultiviewPLDA]:
    rng = np.random.default_rng(3)
    experts = {name: trained_expert(rng, name) for name in COLUMNS}
    return committee_of(experts), block_model(experts)


RNG = np.random.default_rng(4)
E = 2 * RNG.normal(size=(7, 9))
T = 2 * RNG.normal(size=(6, 9))
IDS = [0, 0, 1, 1, 1, 2, 3]
ONE_PHRASE = {"phrase": ["a", "a", "b", "b", "b", "c", "new"]}
MIXED = {"phrase": ["a", "b", "b", "b", "c", "c", "new"]}
SAID = {"phrase": ["a", "b", "c", "d", "a", "new"]}
CLAIMS = ["a", "b", "c", "new"]
HERE = {"domain": [SITE] * 7}
THERE = {"domain": [SITE] * 6}

ASKED: dict[str, tuple[Any, Any, Any]] = {
    "all": (None, None, {}),
    "speaker": (None, None, {"same": "speaker"}),
    "given": (None, None, {"same": "speaker", "given": {"phrase": "same", "domain": "different"}}),
    "priors": (None, None, {"priors": {("speaker",): 2, "phrase": 1, (): 3}}),
    "known": (None, None, {"known": {"phrase": CLAIMS}}),
    "known, speaker": (None, None, {"same": "speaker", "known": {"phrase": CLAIMS}}),
    "known, phrase": (None, None, {"same": "phrase", "known": {"phrase": CLAIMS}}),
    "mixed enrolment": (MIXED, None, {"same": ["speaker", "phrase"]}),
    "mixed enrolment, known": (MIXED, None, {"known": "phrase"}),
    "facts": (MIXED, SAID, {"same": "speaker"}),
    "facts, known": (MIXED, SAID, {"same": "speaker", "known": "phrase"}),
    "claims": (MIXED, SAID, {"same": ["speaker", "phrase"]}),
    "claims, known": (ONE_PHRASE, SAID, {"same": "phrase", "known": "phrase"}),
    "domain": (HERE, THERE, {"known": "domain"}),
    "domain, known": (
        HERE,
        THERE,
        {"same": "speaker", "known": {"phrase": CLAIMS, "domain": None}},
    ),
    "domain, mixed": (
        {**MIXED, **HERE},
        {**SAID, **THERE},
        {"same": "speaker", "known": "domain"},
    ),
}


@pytest.mark.filterwarnings("ignore::mvplda.exceptions.UnknownClassWarning")
@pytest.mark.parametrize("name", ASKED)
def test_every_question_has_the_answer_of_the_block_model(name: str, both: Any) -> None:
    labels, said, asked = ASKED[name]
    answers = []
    for scorer in both:
        profiles = scorer.enrol(E, IDS, labels)
        tests = scorer.enrol(T, None, said)
        matrix = scorer.llr(profiles, tests, dtype=np.float64, **asked)
        pairs = [(3, 1), (0, 5), (1, 1), (2, 0)]
        listed = scorer.llr_trials(profiles, tests, pairs, dtype=np.float64, **asked)
        np.testing.assert_allclose(listed, [matrix[i, j] for i, j in pairs], atol=1e-9)
        best = scorer.identify(profiles, tests, top=2, dtype=np.float64, **asked)
        np.testing.assert_allclose(best.scores, -np.sort(-matrix.T, axis=1)[:, :2], atol=1e-9)
        np.testing.assert_allclose(scorer.llr(profiles, tests, **asked), matrix, atol=1e-3)
        open_question = {k: v for k, v in asked.items() if k != "same"}
        shares = scorer.hypotheses(profiles, tests, dtype=np.float64, **open_question)
        np.testing.assert_allclose(sum(shares.values()), 1.0)
        answers.append((matrix, shares))
    np.testing.assert_allclose(answers[0][0], answers[1][0], atol=1e-8)
    for h, share in answers[1][1].items():
        np.testing.assert_allclose(answers[0][1][h], share, atol=1e-9)


def test_the_domain_of_a_deployment_against_dense_densities(both: Any) -> None:
    """Both sides are of one class of the domain, known as N(m, P): it moves their means and ties them by P."""
    _, model = both
    views = list(model.views_)
    base = ["speaker", "phrase", "domain"]
    k = views.index("domain")
    prior = model.class_means_["domain"][-1], model.class_covariances_["domain"][-1]
    here = {"domain": [SITE] * 2}
    profiles = model.enrol(E[:2], labels=here)
    logs = model.log_likelihoods(profiles, model.enrol(T[:2], labels=here), known="domain")
    assert list(logs) == [("speaker", "phrase"), ("speaker",), ("phrase",), ()]
    for i in range(2):
        for j in range(2):
            dense = {}
            for h in logs:
                rows = np.zeros((2, 3), dtype=int)
                rows[1] = [0 if "speaker" in h else 1, 0 if "phrase" in h else 1, 0]
                cells = cell_classes(views, base, rows)
                cells[:, k] = 0
                vectors = np.stack([E[i], T[j]])
                dense[h] = joint_log_density(model.parameters_, vectors, cells, {(k, 0): prior})
            for h in logs:
                assert logs[h][i, j] == pytest.approx(dense[h] - dense[()], abs=1e-8)


def test_labels_where_an_expert_has_some_views_only(both: Any) -> None:
    committee, _ = both
    profiles = committee.enrol(E, IDS, {"speaker": list("uuvvvwx"), **MIXED})
    assert profiles.y.shape == (6, committee.width_out)
    assert np.isfinite(committee.llr(profiles, T, same="speaker")).all()


def test_evidence_adds_up_to_profiles(both: Any) -> None:
    for scorer in both:
        y = scorer.evidence(E)
        sums = np.stack([y[:2].sum(0), y[2:5].sum(0), y[5], y[6]])
        profiles = scorer.profiles(sums, [2, 3, 1, 1], [0, 1, 2, 3], ids=list("pqrs"))
        enrolled = scorer.enrol(E, np.array(list("ppqqqrs")))
        np.testing.assert_allclose(
            scorer.llr(profiles, T, dtype=np.float64),
            scorer.llr(enrolled, T, dtype=np.float64),
            atol=1e-9,
        )
        assert profiles.counts.tolist() == [2, 3, 1, 1]
        with pytest.raises(ValueError, match="in order"):
            scorer.profiles(sums, [2, 3, 1, 1], [0, 2, 1, 3])
