"""Corners of scoring: weights that are none, threads, and domains that were set by hand."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from mvplda import MultiviewPLDA, Question, load
from mvplda.exceptions import DataError
from mvplda.scoring import block_ratios, comparison_sides, pair_terms
from mvplda.scoring import latent_terms as latents
from mvplda.voice.domain.estimator import DomainPLDA

RNG = np.random.default_rng(0)
X = RNG.normal(size=(200, 6))
LABELS = {"speaker": np.arange(200) % 10, "phrase": np.array(list("abcde"))[np.arange(200) // 40]}


@pytest.fixture(scope="module")
def model() -> MultiviewPLDA:
    return MultiviewPLDA({"speaker": 3, "phrase": 2, "speaker:phrase": 1}, max_iter=3, tol=0).fit(
        X, LABELS
    )


@pytest.mark.parametrize(
    "weights", [[1, 2], [1, -1, 1], [0, 1, 1], [np.nan, 1, 1], ["a"] * 3, np.ones((3, 1))]
)
def test_weights_of_vectors_are_positive_numbers(model, weights):
    with pytest.raises(DataError, match="positive number for each of 3 vectors"):
        model.enrol(X[:3], weights=weights)


def test_weights_may_be_a_list(model):
    listed = model.enrol(X[:3], [0, 0, 1], weights=[1, 2, 3])
    assert listed.weights.tolist() == [3, 3]


def test_threads_that_clear_what_is_kept(model, monkeypatch):
    for module, name in (
        (comparison_sides, "MAX_CACHED_FACTORS"),
        (block_ratios, "MAX_CACHED_TABLE_PAIRS"),
        (pair_terms, "MAX_CACHED_CALLS"),
    ):
        monkeypatch.setattr(module, name, 1)
    monkeypatch.setattr(latents, "MAX_CACHED_NUMBERS", 10)
    profiles, tests = model.enrol(X[:12], np.arange(12) // 3), model.enrol(X[50:53])
    questions = [
        Question(),
        Question("speaker"),
        Question("phrase"),
        Question(known={"phrase": list("abcd")}),
    ]
    wanted = [model.llr(profiles, tests, question) for question in questions]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as pool:
            asked = [i % len(questions) for i in range(200)]
            made = list(
                pool.map(lambda i: model.llr(profiles, tests, questions[i], threads=1), asked)
            )
    finally:
        sys.setswitchinterval(before)
    for i, llrs in zip(asked, made, strict=True):
        np.testing.assert_allclose(llrs, wanted[i], atol=1e-5)


def test_a_domain_that_is_doubted_more_is_scored_anew(tmp_path):
    model = DomainPLDA({"voice": (3, "speaker"), "words": (3, "phrase")}, delta={"voice": 9.0}).fit(
        X, LABELS
    )
    profiles = model.enrol(X[:4])
    before = model.llr(profiles, X[50:53])
    model.domain_variances_ = dict.fromkeys(model.domain_variances_, 0.01)
    model.save(tmp_path / "model.mvplda")
    # a variance that vectors of length 1 cannot have is cut: files with it would be refused
    again = load(tmp_path / "model.mvplda")
    np.testing.assert_allclose(
        model.llr(profiles, X[50:53]), again.llr(profiles, X[50:53]), atol=1e-6
    )
    assert not np.allclose(before, model.llr(profiles, X[50:53]))
