"""The study of the errata: variance by brute force, and the fixed point of the E step in the paper's body."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import numpy as np
import pytest

from benchmarks.studies import errata as study
from mvplda import MultiviewPLDA, make_two_views
from mvplda.datasets import known_model
from mvplda.inference.em import PublishedEM


def test_shares_are_those_of_drawn_pairs():
    model = known_model(0, dimension=20, ranks=(4, 4))
    assert study.shares_of_pairs(model, 20_000) == pytest.approx(
        model.explained_variance_ratio_, abs=0.01
    )


def test_shares_are_those_of_drawn_classes():
    """Many classes and vectors, so that the classes drawn are like all classes."""
    model = known_model(0, dimension=20, ranks=(4, 4))
    speaker, phrase, _ = (a.reshape(-1) for a in np.indices((150, 150, 3)))
    labels = {"speaker": speaker, "phrase": phrase}
    X = model.sample(labels, random_state=0)
    found = study.shares_of_means(X, labels)
    assert found == pytest.approx(model.explained_variance_ratio_, abs=0.06)


@pytest.mark.parametrize("each", [2, 5])
def test_the_body_has_the_right_noise_and_bounded_loadings(each):
    """Every signal-to-noise ratio g becomes g / (1 + (H - 1) g): that of PLDA of cells, and the body's."""
    X, labels = make_two_views(60, 20, each, 30, (3, 3), random_state=0)
    cells = labels["speaker"] * 20 + labels["phrase"]
    settings = {"max_iter": 400, "tol": 0}
    plda = MultiviewPLDA({"cell": 6}, **settings).fit(X, {"cell": cells})
    body = MultiviewPLDA(
        {"speaker": 3, "phrase": 3}, algorithm="paper", init="random", random_state=0, **settings
    )
    body.published_em = partial(PublishedEM, body=True)
    body.fit(X, labels)
    ratios = study.signal_to_noise(plda)
    expected = ratios / (1 + (each - 1) * ratios)
    np.testing.assert_allclose(study.signal_to_noise(body), expected, rtol=0.01)
    np.testing.assert_allclose(body.noise_, plda.noise_, rtol=0.01)
    assert study.signal_to_noise(body)[-1] < 1 / (each - 1)


def test_printed_alternatives_rank_backwards():
    """Both half-shared hypotheses as printed are the more likely, the more two vectors agree."""
    model = known_model(0, dimension=30, ranks=(3, 3))
    rng = np.random.default_rng(0)
    x = rng.standard_normal((20, 30)) @ np.diag(np.sqrt(model.noise_))
    x += rng.standard_normal((20, 3)) @ model.loadings_["speaker"].T
    x += rng.standard_normal((20, 3)) @ model.loadings_["phrase"].T
    x -= x.mean(axis=0) - model.mean_
    alternatives: list[tuple[str, ...]] = [("phrase",), ("speaker",), ()]
    for shared in alternatives[:2]:
        weights: dict[Iterable[str], float] = dict.fromkeys(alternatives, 1e-200)
        scores = model.llr(x, x, scoring="paper", priors={**weights, shared: 1.0}, dtype=np.float64)
        # a vector agrees with itself more than with the others
        own = np.diag(scores).mean()
        others = scores[~np.eye(20, dtype=bool)].mean()
        assert own < others
