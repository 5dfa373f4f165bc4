"""Covariances of the sides of trials are computed once per kind of side, not once per assignment."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mvplda import MultiviewPLDA, Question, make_two_views
from mvplda.models.base import release_caches
from mvplda.scoring.latent_terms import LatentTerms


@pytest.fixture(scope="module")
def model() -> tuple[Any, Any, Any]:
    """A model with more latents than columns, so that whitened means are compared; vectors and their phrases."""
    X, labels = make_two_views(12, 5, 3, 6, (6, 4), random_state=0)
    fitted = MultiviewPLDA({"speaker": 6, "phrase": 4}, max_iter=3).fit(X, labels)
    return fitted, X, labels["phrase"]


def log_likelihoods(model: tuple[Any, Any, Any]) -> Any:
    fitted, X, phrases = model
    pairs = np.stack([np.arange(30), np.arange(60, 90)], axis=1)
    question = Question(("speaker", "phrase"), known={"phrase": phrases})
    return fitted.log_likelihoods(fitted.enrol(X), fitted.enrol(X), question, pairs=pairs)


def test_each_covariance_is_computed_once(
    model: tuple[Any, Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    computed: list[Any] = []
    whole = LatentTerms._loading

    def counted(self: Any, known: Any, latents: Any = None) -> Any:
        if latents is None:
            computed.append((id(self), known.alike))
        return whole(self, known, latents)

    monkeypatch.setattr(LatentTerms, "_loading", counted)
    release_caches(model[0])
    log_likelihoods(model)
    assert len(computed) > 1
    assert len(set(computed)) == len(computed)


def test_the_cache_changes_no_value(
    model: tuple[Any, Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    cached = log_likelihoods(model)

    def fresh(self: Any, layout: Any, known: Any) -> Any:
        loading = self.space.whitened @ known.scale
        return loading @ loading.T + np.eye(len(loading)) / layout.table.weights[0]

    monkeypatch.setattr(LatentTerms, "_covariance", fresh)
    release_caches(model[0])
    for hypothesis, values in log_likelihoods(model).items():
        np.testing.assert_allclose(values, cached[hypothesis], rtol=1e-10, atol=1e-10)
