"""Data added to a fitted model, and people taken out of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from shard_files import VIEWS, close, corpus

from mvplda import MultiviewPLDA, SufficientStatistics
from mvplda.exceptions import DataError, LabelError


def of(X: Any, labels: dict[str, Any], rows: Any, **options: Any) -> SufficientStatistics:
    some = {name: column[rows] for name, column in labels.items()}
    return SufficientStatistics.from_arrays(X[rows], some, **{"views": VIEWS, **options})


def named(**options: Any) -> tuple[Any, dict[str, Any]]:
    X, labels = corpus(**options)
    return X, {name: column.astype(str) for name, column in labels.items()}


def test_float32_vectors_of_other_shards_about_other_origins() -> None:
    X, labels = named(dtype=np.float32)
    gone = np.arange(len(X)) % 3 == 0
    left = of(X, labels, slice(None)) - of(X, labels, gone).about(np.full(6, 2.0))
    close(of(X, labels, ~gone), left, tolerance=1e-5)


def test_adding_and_subtracting_is_nothing() -> None:
    X, labels = named()
    first, second = of(X, labels, slice(500)), of(X, labels, slice(500, None))
    close(first, first + second - second)


def test_what_was_not_added_cannot_be_subtracted() -> None:
    X, labels = named()
    whole = of(X, labels, slice(None))
    theirs = np.flatnonzero(labels["speaker"] == "s007")
    with pytest.raises(DataError, match="all vectors would be subtracted"):
        whole - whole
    stranger = {**labels, "speaker": np.where(np.arange(900) == 0, "stranger", labels["speaker"])}
    with pytest.raises(DataError, match=r"1 vector\(s\) fewer"):
        whole - of(X, stranger, slice(20))
    with pytest.raises(LabelError, match="are text and numbers"):
        whole - of(X, {**labels, "speaker": np.arange(900)}, slice(20))
    with pytest.raises(DataError, match="would be subtracted"):
        whole - of(X, labels, np.repeat(theirs, 3))
    with pytest.raises(DataError, match="equal dimensions"):
        whole - of(X[:, :2], labels, slice(20))
    with pytest.raises(LabelError, match="have no label"):
        whole - of(X, corpus()[1], slice(300))
    number: Any = 1
    with pytest.raises(TypeError):
        whole - number


def test_other_vectors_of_a_class_cannot_be_subtracted() -> None:
    X, labels = named()
    theirs = labels["speaker"] == "s007"
    whole = of(X, labels, slice(None))
    with pytest.raises(
        DataError, match="not those that were added: the sums of classes of view 'speaker'"
    ):
        whole - of(X + 1, labels, theirs)
    # The counts of every class allow it, but these two classes never met.
    four = {"speaker": np.array(["a", "a", "b", "b"]), "phrase": np.array([1, 1, 2, 2])}
    crossed = {"speaker": np.array(["a"]), "phrase": np.array([2])}
    for views in (("speaker", "phrase"), VIEWS):
        with pytest.raises(DataError, match=r"1 vector\(s\) fewer"):
            of(X[:4], four, slice(None), views=views) - of(X[:1], crossed, slice(None), views=views)


def vectors(n: int, seed: int, each: int = 12, noise: float = 1.0) -> tuple[Any, dict[str, Any]]:
    rng = np.random.default_rng(seed)
    truth = np.random.default_rng(99)
    loadings = {"speaker": truth.normal(size=(10, 3)), "phrase": truth.normal(size=(10, 2))}
    labels = {"speaker": rng.integers(0, n // each, size=n), "phrase": rng.integers(0, 6, size=n)}
    X = 3.0 + noise * rng.normal(size=(n, 10))
    for view, loading in loadings.items():
        X += rng.normal(size=(labels[view].max() + 1, loading.shape[1]))[labels[view]] @ loading.T
    return X, {
        "speaker": np.array([f"{seed}-{s}" for s in labels["speaker"]]),
        "phrase": labels["phrase"],
    }


@pytest.mark.parametrize("noise", ["diagonal", "full"])
def test_a_fit_without_a_speaker_is_a_fit_that_never_saw_them(noise: Any) -> None:
    X, labels = vectors(600, 0)
    theirs = labels["speaker"] == labels["speaker"][0]
    views = ("speaker", "phrase")
    left = of(X, labels, slice(None), views=views) - of(X, labels, theirs, views=views)
    settings: dict[str, Any] = {"noise": noise, "max_iter": 20, "tol": 0.0}
    ranks = {"speaker": 3, "phrase": 2}
    found = MultiviewPLDA(ranks, **settings).fit_statistics(left)
    expected = MultiviewPLDA(ranks, **settings).fit(
        X[~theirs], {v: c[~theirs] for v, c in labels.items()}
    )
    np.testing.assert_allclose(found.mean_, expected.mean_, rtol=0, atol=1e-10)
    np.testing.assert_allclose(found.noise_, expected.noise_, rtol=0, atol=1e-10)
    for view in views:
        np.testing.assert_allclose(
            found.loadings_[view], expected.loadings_[view], rtol=0, atol=1e-10
        )
    assert labels["speaker"][0] not in found.classes_["speaker"]
    assert found.log_likelihoods_[-1] == pytest.approx(expected.log_likelihoods_[-1], abs=1e-7)
