"""What holds for any data (hypothesis)."""

from __future__ import annotations

import warnings
from functools import reduce
from operator import add
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mvplda import PLDA, MultiviewPLDA, SufficientStatistics
from mvplda.exceptions import MvpldaWarning

NOISE = st.sampled_from(["diagonal", "full"])
STRUCTURE = st.sampled_from(["a", "ab", "abc", "a b a:b", "a b c a:b b:c"])


@st.composite
def labelled(draw: Any) -> tuple[np.ndarray, dict[str, list[str | None]]]:
    """Vectors with three columns of labels: any counts, some missing, any scale and mean."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, dimension = draw(st.integers(12, 40)), draw(st.integers(1, 5))
    missing = draw(st.sampled_from([0.0, 0.2]))
    X = rng.normal(size=(n, dimension))
    labels: dict[str, list[str | None]] = {}
    for view in "abc":
        classes = draw(st.integers(2, n // 2))
        codes = np.concatenate([np.arange(2), rng.integers(0, classes, size=n - 2)])
        X += rng.normal(size=(classes, 2))[codes] @ rng.normal(size=(2, dimension))
        labels[view] = [
            None if i > 1 and rng.random() < missing else f"{view}{c}" for i, c in enumerate(codes)
        ]
    scale = 10.0 ** draw(st.integers(-6, 6))
    return scale * (X + draw(st.sampled_from([0.0, 1.0, 1e4]))), labels


def views_of(structure: str) -> dict[str, int | None]:
    names = structure.split() if " " in structure else list(structure)
    return dict.fromkeys(names, 2)


def fit(X: np.ndarray, labels: Any, views: dict[str, int | None], **settings: Any) -> MultiviewPLDA:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MvpldaWarning)
        return MultiviewPLDA(
            views, **{"random_state": 0, "tol": 0.0, "max_iter": 6, **settings}
        ).fit(X, labels)


def implied(model: MultiviewPLDA) -> list[np.ndarray]:
    """What the model says, whatever the coordinates of the latents: mean, noise, and every view's covariance."""
    return [model.mean_, model.noise_, *(b @ b.T for b in model.loadings_.values())]


def same_model(x: MultiviewPLDA, y: MultiviewPLDA, *, tolerance: float = 1e-6) -> None:
    for mine, theirs in zip(implied(x), implied(y), strict=True):
        np.testing.assert_allclose(
            mine, theirs, rtol=tolerance, atol=tolerance * np.abs(theirs).max()
        )
    np.testing.assert_allclose(x.log_likelihoods_[-1], y.log_likelihoods_[-1], rtol=1e-7, atol=1e-6)


@given(labelled(), STRUCTURE, NOISE, st.sampled_from(["moments", "random"]))
def test_the_likelihood_never_falls(data: Any, structure: str, noise: str, init: str) -> None:
    X, labels = data
    model = fit(X, labels, views_of(structure), noise=noise, init=init, max_iter=15)
    history = model.log_likelihoods_
    assert np.isfinite(history).all()
    assert np.diff(history).min() >= -1e-9 * (np.abs(history).max() + 1.0)


@given(labelled(), STRUCTURE, NOISE, st.randoms(use_true_random=False))
def test_the_order_of_vectors_changes_nothing(
    data: Any, structure: str, noise: str, random: Any
) -> None:
    X, labels = data
    order = list(range(len(X)))
    random.shuffle(order)
    views = views_of(structure)
    model = fit(X, labels, views, noise=noise)
    turned = fit(
        X[order], {v: [c[i] for i in order] for v, c in labels.items()}, views, noise=noise
    )
    same_model(model, turned)


@given(labelled(), STRUCTURE, NOISE, st.randoms(use_true_random=False))
def test_the_names_of_classes_change_nothing(
    data: Any, structure: str, noise: str, random: Any
) -> None:
    X, labels = data
    renamed = {}
    for view, column in labels.items():
        numbers = list(range(len(set(column))))
        random.shuffle(numbers)
        new = dict(zip(sorted(set(column) - {None}), numbers, strict=False))
        renamed[view] = [None if c is None else new[c] for c in column]
    views = views_of(structure)
    same_model(fit(X, labels, views, noise=noise), fit(X, renamed, views, noise=noise))


@given(labelled(), NOISE)
def test_the_order_of_views_changes_nothing(data: Any, noise: str) -> None:
    X, labels = data
    model = fit(X, labels, {"a": 2, "b": 1, "a:b": 1}, noise=noise, max_iter=0)
    swapped = fit(X, labels, {"a:b": 1, "b": 1, "a": 2}, noise=noise, max_iter=0)
    swapped.mean_, swapped.noise_ = model.mean_, model.noise_
    swapped.loadings_ = {v: model.loadings_[v] for v in swapped.views_}
    assert swapped.log_likelihood(X, labels) == pytest.approx(
        model.log_likelihood(X, labels), rel=1e-9, abs=1e-7
    )


@given(
    labelled(), STRUCTURE, NOISE, st.lists(st.integers(1, 11), min_size=1, max_size=3, unique=True)
)
def test_shards_add_up_to_one_pass(data: Any, structure: str, noise: str, cuts: list[int]) -> None:
    X, labels = data
    views = views_of(structure)
    shards = [
        SufficientStatistics.from_arrays(
            X[rows], {v: [c[i] for i in rows] for v, c in labels.items()}, views=list(views)
        )
        for rows in np.split(np.arange(len(X)), sorted(cuts))
    ]
    model = fit(X, labels, views, noise=noise)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MvpldaWarning)
        merged = MultiviewPLDA(views, noise=noise, random_state=0, tol=0.0, max_iter=6)
        merged.fit_statistics(reduce(add, shards))
    same_model(merged, model)


@given(labelled(), NOISE)
def test_one_view_is_plda(data: Any, noise: Any) -> None:
    X, labels = data
    model = fit(X, labels, {"a": 2}, noise=noise)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MvpldaWarning)
        plda = PLDA(2, noise=noise, random_state=0, tol=0.0, max_iter=6).fit(X, labels["a"])
    same_model(model, plda, tolerance=1e-12)
    np.testing.assert_array_equal(model.transform(X), plda.transform(X))


@given(labelled(), STRUCTURE, NOISE, st.integers(0, 1000))
def test_a_rotated_loading_is_the_same_model(
    data: Any, structure: str, noise: str, seed: int
) -> None:
    X, labels = data
    model = fit(X, labels, views_of(structure), noise=noise)
    before = model.log_likelihood(X, labels)
    rng = np.random.default_rng(seed)
    for view, loading in model.loadings_.items():
        rotation = np.linalg.qr(rng.normal(size=(loading.shape[1], loading.shape[1])))[0]
        model.loadings_[view] = loading @ rotation
    assert model.log_likelihood(X, labels) == pytest.approx(before, rel=1e-9, abs=1e-6)


@given(labelled(), STRUCTURE, st.sampled_from(["diagonal", "full"]), st.integers(0, 1000))
def test_units_of_columns_change_nothing(data: Any, structure: str, noise: str, seed: int) -> None:
    """Scaling and shifting columns scales and shifts the model, and the density by the Jacobian."""
    X, labels = data
    rng = np.random.default_rng(seed)
    units, shift = (
        10.0 ** rng.integers(-4, 5, size=X.shape[1]),
        rng.normal(size=X.shape[1]) * X.std(axis=0),
    )
    views = views_of(structure)
    model, scaled = (
        fit(X, labels, views, noise=noise),
        fit((X + shift) * units, labels, views, noise=noise),
    )
    expected = model.log_likelihoods_ - len(X) * np.log(units).sum()
    np.testing.assert_allclose(scaled.log_likelihoods_, expected, rtol=1e-6, atol=1e-4)
    for view, loading in model.loadings_.items():
        mine, theirs = loading @ loading.T, scaled.loadings_[view] / units[:, None]
        np.testing.assert_allclose(
            theirs @ theirs.T, mine, rtol=1e-4, atol=1e-4 * np.abs(mine).max()
        )
